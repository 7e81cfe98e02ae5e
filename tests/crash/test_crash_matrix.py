"""Every writer kind x every step x {raised, killed}, and again with a second crash in recovery."""

from __future__ import annotations

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
from omnigraph.model.steps import Step

# When the sidecar is gone the write is over, and a branch is there or not as soon as its reference
# is: there is nothing left that could fail.
PAST_FAILING = frozenset(
    {
        Step.SIDECAR_DELETED,
        Step.BRANCH_REF_WRITTEN,
        Step.BRANCH_REF_DELETED,
        Step.BRANCH_MANIFEST_DROPPED,
        Step.BRANCH_TABLE_DROPPED,
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


@cache
def recovery_steps(name: str, step: Step, nth: int) -> tuple[tuple[Step, int], ...]:
    """The steps that recovery reaches after the story crashed there."""
    with TemporaryDirectory() as folder:
        uri = f"{folder}/g.omni"
        build(uri, BY_NAME[name])
        crash(uri, BY_NAME[name], step, nth)
        reached = Reached()
        Graph.open(uri, world=world(reached)).close()
        return tuple(reached.steps)


def crash(uri: str, story: Story, step: Step, nth: int) -> None:
    graph = Graph.open(uri, world=world(CrashAt(step, nth)))
    with pytest.raises(Crash):
        story.act(graph)


def cases():
    for story in STORIES:
        for step, nth in undisturbed(story.name)[2]:
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
    for recovery_step, recovery_nth in recovery_steps(name, step, nth):
        uri = str(tmp_path / f"{recovery_step}-{recovery_nth}.omni")
        build(uri, BY_NAME[name])
        crash(uri, BY_NAME[name], step, nth)
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


@pytest.mark.parametrize(("name", "step", "nth"), list(cases()))
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
