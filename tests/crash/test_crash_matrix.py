"""Every writer kind x every step x {raised, killed}, and again with a second crash in recovery."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from harness import Crash, CrashAt, FailAt, Reached, assert_settled, content, history, world
from stories import BY_NAME, PAIR, STORIES, Story, build

from omnigraph import Graph
from omnigraph.errors import OmnigraphError
from omnigraph.model.ports import LeaseTerms, World
from omnigraph.model.steps import Step

# When the sidecar is gone the write is over, and a branch or tag is there or not as soon as its
# file is: there is nothing left that could fail.
PAST_FAILING = frozenset(
    {
        Step.SIDECAR_DELETED,
        Step.BRANCH_REF_WRITTEN,
        Step.BRANCH_REF_DELETED,
        Step.BRANCH_MANIFEST_DROPPED,
        Step.BRANCH_TABLE_DROPPED,
        Step.BRANCH_RESTORED,
        Step.BRANCH_RETIRED_ENDED,
        Step.TAG_WRITTEN,
        Step.TAG_DELETED,
    }
)


@cache
def undisturbed(name: str) -> tuple[dict, dict, tuple[tuple[Step, int], ...]]:
    """What the graph holds before and after the story, and the steps it reaches in between."""
    story = BY_NAME[name]
    with TemporaryDirectory() as folder:
        uri = f"{folder}/g.omni"
        build(uri, story)
        before = content(uri)
        reached = Reached()
        with Graph.open(uri, world=world(reached)) as graph:
            story.act(graph)
        return before, content(uri), tuple(reached.steps)


def crash(uri: str, story: Story, step: Step, nth: int) -> None:
    graph = Graph.open(uri, world=world(CrashAt(step, nth)))
    with pytest.raises(Crash):
        story.act(graph)


def cases():
    for story in STORIES:
        # Tables are applied side by side: which of two steps comes first is not always the same,
        # and every worker of a run has to list the same cases.
        for step, nth in sorted(undisturbed(story.name)[2]):
            yield pytest.param(story.name, step, nth, id=f"{story.name} x {step} #{nth}")


def check_before_or_after(uri: str, name: str) -> None:
    """The heart of the matter: all of the story or nothing of it, and life goes on."""
    before, after, _ = undisturbed(name)
    story = BY_NAME[name]
    with Graph.open(uri, durability="process") as graph:  # the first open recovers
        story.mend(graph)
    found = content(uri)
    assert found in (before, after)
    assert_settled(uri)
    commits = history(uri, story.branch)
    with Graph.open(uri, durability="process") as graph:
        records = graph.recoveries()
        assert len({record.operation_id for record in records}) == len(records)
        rolled_forward = [r for r in records if r.recovery_kind == "RolledForward"]
        assert not rolled_forward or found == after
        assert history(uri, story.branch) == commits, "a second recovery changed something"
        graph.mutate(PAIR, "after", branch=story.branch)
    assert history(uri, story.branch)[1:] == commits
    assert content(uri) != found


@pytest.mark.parametrize(("name", "step", "nth"), list(cases()))
def test_a_crash_leaves_the_graph_before_or_after(tmp_path, name, step, nth):
    uri = str(tmp_path / "g.omni")
    build(uri, BY_NAME[name])
    crash(uri, BY_NAME[name], step, nth)
    check_before_or_after(uri, name)


@pytest.mark.parametrize(("name", "step", "nth"), list(cases()))
def test_a_crash_inside_recovery_changes_nothing(tmp_path, name, step, nth):
    graph, crashed = tmp_path / "g.omni", tmp_path / "crashed"
    uri, reached = str(graph), Reached()
    build(uri, BY_NAME[name])
    crash(uri, BY_NAME[name], step, nth)
    # Every recovery gets the same files. Tables move side by side, so that another crash at the
    # same step may leave other versions, and a recovery that goes another way.
    shutil.copytree(graph, crashed)
    Graph.open(uri, world=world(reached)).close()
    for recovery_step, recovery_nth in reached.steps:
        shutil.rmtree(graph)
        shutil.copytree(crashed, graph)  # to the same place: lines name it
        with pytest.raises(Crash):
            Graph.open(uri, world=world(CrashAt(recovery_step, recovery_nth)))
        check_before_or_after(uri, name)


@pytest.mark.parametrize(
    ("name", "step", "nth"), [case for case in cases() if case.values[1] not in PAST_FAILING]
)
def test_an_error_at_a_step_is_settled_at_once(tmp_path, name, step, nth):
    uri = str(tmp_path / "g.omni")
    build(uri, BY_NAME[name])
    before, after, _ = undisturbed(name)
    with Graph.open(uri, world=world(FailAt(step, nth))) as graph:
        try:
            BY_NAME[name].act(graph)
        except (OSError, OmnigraphError):
            expected = before
        else:
            expected = after
        assert content(uri) == expected, "the caller was told the opposite of what happened"
        BY_NAME[name].mend(graph)
        graph.mutate(PAIR, "after", branch=BY_NAME[name].branch)
    check_life_goes_on(uri, BY_NAME[name])


def check_life_goes_on(uri: str, story: Story) -> None:
    Graph.open(uri, durability="process").close()
    assert_settled(uri)
    history(uri, story.branch)


def killed_cases():
    """Every named step and every story is killed for real once; `make test-all` kills each story
    at each of its steps."""
    killed: set[Step | str] = set()
    for case in cases():
        name, step, nth = case.values
        marks = [pytest.mark.slow] if {name, step} <= killed else []
        killed |= {name, step}
        yield pytest.param(name, step, nth, id=case.id, marks=marks)


@pytest.mark.parametrize(("name", "step", "nth"), list(killed_cases()))
def test_a_killed_process_leaves_the_graph_before_or_after(tmp_path, name, step, nth):
    uri = str(tmp_path / "g.omni")
    build(uri, BY_NAME[name])
    child = Path(__file__).with_name("child.py")
    done = subprocess.run(
        [sys.executable, str(child), uri, name, step.value, str(nth)],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == -9, done.stderr.decode()
    check_before_or_after(uri, name)


# --- fences: what recovery leaves on tables where a lease can lapse ---

LAPSING = LeaseTerms(file_locks_lapse=True)


def fencing(steps) -> World:
    return World(steps=steps, durability="process", lease=LAPSING)


@cache
def fence_steps(name: str) -> tuple[tuple[Step, int], ...]:
    """The steps that recovery reaches after a writer had armed and done nothing yet."""
    with TemporaryDirectory() as folder:
        uri = f"{folder}/g.omni"
        build(uri, BY_NAME[name])
        crash(uri, BY_NAME[name], Step.SIDECAR_WRITTEN, 1)
        reached = Reached()
        Graph.open(uri, world=fencing(reached)).close()
        return tuple(reached.steps)


ARMING = [s.name for s in STORIES if (Step.SIDECAR_WRITTEN, 1) in undisturbed(s.name)[2]]


@pytest.mark.parametrize("name", [name for name in ARMING if not name.startswith("repair")])
def test_a_crash_while_fencing_changes_nothing(tmp_path, name):
    fences = [(step, nth) for step, nth in fence_steps(name) if step is Step.RECOVERY_TABLE_FENCED]
    assert fences
    for step, nth in (*fences, (Step.RECOVERY_PUBLISHED, 1)):
        uri = str(tmp_path / f"{step}-{nth}.omni")
        build(uri, BY_NAME[name])
        crash(uri, BY_NAME[name], Step.SIDECAR_WRITTEN, 1)
        with pytest.raises(Crash):
            Graph.open(uri, world=fencing(CrashAt(step, nth)))
        check_before_or_after(uri, name)


class Sleepy:
    """Others settle the write while its writer sleeps: its sidecar is gone when it wakes up, and
    then something fails. `plan` is told of every step that follows."""

    def __init__(self, uri: str, plan) -> None:
        self._folder, self._plan, self._slept = Path(uri, "__recovery"), plan, False

    def reach(self, step: Step) -> None:
        if self._slept:
            self._plan.reach(step)
        elif step is Step.TABLES_APPLIED:
            self._slept = True
            for sidecar in self._folder.glob("*.json"):
                sidecar.unlink()
            raise OSError("the answer was lost")


LATE = "mutation: a node and its edge"


def late_write(uri: str, plan) -> None:
    build(uri, BY_NAME[LATE])
    with Graph.open(uri, world=world(Sleepy(uri, plan))) as graph:
        BY_NAME[LATE].act(graph)


def test_what_landed_after_others_gave_the_write_up_is_undone(tmp_path):
    uri, reached = str(tmp_path / "g.omni"), Reached()
    with pytest.raises(OSError, match="the answer was lost"):
        late_write(uri, reached)
    assert (Step.RECOVERY_LATE_WRITE_ARMED, 1) in reached.steps
    assert content(uri) == undisturbed(LATE)[0]
    check_before_or_after(uri, LATE)
    for step, nth in reached.steps:
        uri = str(tmp_path / f"{step}-{nth}.omni")
        with pytest.raises(Crash):
            late_write(uri, CrashAt(step, nth))
        if step is Step.WRITE_IN_DOUBT:
            # The one moment at which nothing on disk tells of it but the tables themselves.
            with Graph.open(uri, durability="process") as graph:
                report = graph.repair(confirm=True)
            assert {one.classification for one in report.datasets} == {
                "no_drift",
                "unpublished_write",
            }
        check_before_or_after(uri, LATE)
