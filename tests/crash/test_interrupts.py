"""An interrupted write is whole or has not happened, and the interrupt says which."""

from __future__ import annotations

import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import pytest
from harness import InterruptAt, assert_settled, content, history, world
from stories import BY_NAME, PAIR, SCHEMA, SEED, build
from test_crash_matrix import PAST_FAILING, cases, undisturbed

from inside import store_of
from omnigraph import Graph
from omnigraph.cli.failure import interrupted_line
from omnigraph.model.ports import World
from omnigraph.model.steps import Step
from omnigraph.storage.commit.outcome import outcome_told
from omnigraph.storage.objects.lease import Leases
from omnigraph.storage.objects.root import Root, open_store

# An interrupt may fall between the opening of a folder and the `with` that would close it, or into
# a finalizer: Python then warns of what it cleans up itself, and nothing of ours could do so.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TABLES = 12
# The everyday run is small; `OMNIGRAPH_TEST_INTERRUPTS=200` is the one that proves something.
INTERRUPTS = int(os.environ.get("OMNIGRAPH_TEST_INTERRUPTS", "15"))
CHILDREN = max(3, INTERRUPTS // 5) if INTERRUPTS < 100 else INTERRUPTS
WIDE_SCHEMA = "\n".join(f"node T{number} {{ k: String @key }}" for number in range(TABLES))
KEYS = "query keys() { match { $t: T%d } return { $t.k } }"


def interrupt() -> None:
    """Ctrl-C, sent to the very thread that it will strike: sent to the process it may come late."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


def rows(key: str) -> str:
    return "\n".join(
        json.dumps({"type": f"T{number}", "data": {"k": key}}) for number in range(TABLES)
    )


def found_in(graph: Graph, key: str) -> int:
    """In how many of the tables the key is."""
    count = 0
    for number in range(TABLES):
        keys = [row["t.k"] for row in graph.query(KEYS % number, "keys").to_pylist()]
        assert keys.count(key) <= 1, "a row is doubled"
        count += key in keys
    return count


def claim_of(text: str | None) -> bool | None:
    """Whether the text says that the write was committed; None if it says nothing about it."""
    if text is None or "is not known" in text:
        return None
    return not re.search("nothing was (written|committed)", text)


def check_claim(graph: Graph, key: str, *, told: bool | None) -> None:
    there = found_in(graph, key)
    assert there in (0, TABLES), "half a commit is visible"
    assert told is None or told == (there == TABLES), "the message is not true"


def raise_inside_calls(number: int, frame: FrameType | None) -> None:
    """What Ctrl-C does, but only to our own code: a test cannot outlast four of them in a row."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("omnigraph."):
            signal.default_int_handler(number, frame)
        frame = frame.f_back


@pytest.fixture(autouse=True)
def _hears_interrupts():
    """A shell lets what it starts in the background ignore SIGINT."""
    usual = signal.signal(signal.SIGINT, raise_inside_calls)
    yield
    signal.signal(signal.SIGINT, usual)
    gc.collect()  # here, where such warnings are let pass, and not during another test


@pytest.fixture
def wide(tmp_path):
    with Graph.init(
        str(tmp_path / "g.omni"), WIDE_SCHEMA, durability="process", maintenance=None
    ) as graph:
        graph.load(rows("first"), mode="append")
        yield graph


def interrupted_load(graph: Graph, key: str, *, after_s: float, times: int) -> bool | None:
    """Load the key while the process gets SIGINTs; whether the call said that it was committed."""

    def strike() -> None:
        time.sleep(after_s)
        for _ in range(times):
            interrupt()
            time.sleep(0.001)

    striking = threading.Thread(target=strike)
    striking.start()
    try:
        graph.load(rows(key), mode="append")
    except KeyboardInterrupt as struck:
        return claim_of(outcome_told(struck))
    else:
        return True
    finally:
        striking.join()


def measured_s(graph: Graph, key: str) -> float:
    began = time.perf_counter()
    graph.load(rows(key), mode="append")
    return time.perf_counter() - began


@pytest.mark.parametrize("times", [1, 4])
def test_interrupts_at_random_moments_in_a_process_that_goes_on(wide, times, record_property):
    usual_s = min(measured_s(wide, f"measured{number}") for number in range(3))
    chance, claims = random.Random(times), []
    for number in range(INTERRUPTS):
        key = f"k{number}"
        told = interrupted_load(wide, key, after_s=chance.uniform(0.0, 1.2 * usual_s), times=times)
        claims.append(told)
        check_claim(wide, key, told=told)
        wide.load(rows(f"later{number}"), mode="append")
    record_property("claims", {claim: claims.count(claim) for claim in set(claims)})
    assert_settled(wide.uri)
    assert all(one.classification == "no_drift" for one in wide.repair().datasets)
    assert not wide.recoveries(), "nothing was left for others to settle"


def test_an_interrupted_command_says_what_became_of_the_load(wide, tmp_path, record_property):
    child = Path(__file__).with_name("interrupt_child.py")
    chance, claims, usual_s = random.Random(7), [], 0.5
    for number in range(CHILDREN):
        data, key = tmp_path / f"{number}.jsonl", f"k{number}"
        data.write_text(rows(key))
        words = ["load", "--mode", "append", "--data", str(data), wide.uri]
        with subprocess.Popen(
            [sys.executable, str(child), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout.readline() == "ready\n"
            began = time.perf_counter()
            time.sleep(chance.uniform(0.0, 1.1 * usual_s))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        code = int(out.split()[-1]) if "exit" in out else None
        if code == 130:
            assert "Traceback" not in err
            (line,) = [one for one in err.splitlines() if one.startswith("interrupted; ")]
            told = claim_of(line)
        else:
            # The command had ended before.
            assert code == 0, err
            told, usual_s = True, 0.8 * usual_s + 0.2 * (time.perf_counter() - began)
        claims.append((code, told))
        check_claim(wide, key, told=told)
        wide.load(rows(f"later{number}"), mode="append")
    record_property("claims", {str(claim): claims.count(claim) for claim in set(claims)})
    assert_settled(wide.uri)


def test_tables_under_way_are_awaited(wide, monkeypatch):
    """The interrupt falls while one table is slow: the lease must not go before that one lands."""
    real, slow = store_of(wide).tables.apply, threading.Event()

    def apply(staged):
        if staged.table_key == "node:T7" and not slow.is_set():
            slow.set()
            interrupt()
            time.sleep(0.3)
        return real(staged)

    monkeypatch.setattr(store_of(wide).tables, "apply", apply)
    with pytest.raises(KeyboardInterrupt) as struck:
        wide.load(rows("slow"), mode="append")
    commit = wide.commits()[0].graph_commit_id
    assert outcome_told(struck.value) == f"the write was committed as {commit}"
    assert_settled(wide.uri)
    wide.load(rows("next"), mode="append")


def test_an_interrupt_ends_the_wait_for_a_lease(wide):
    root, here = Root.parse(wide.uri, {}), World()
    with Leases(root, open_store(root, here), here).hold(None, wait_ms=0):
        threading.Timer(0.1, interrupt).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt) as struck:
            wide.load(rows("waits"), mode="append")
        assert time.monotonic() - began < 20
    assert outcome_told(struck.value) == "nothing was written"
    wide.load(rows("waits"), mode="append")
    assert found_in(wide, "waits") == TABLES


def test_an_interrupted_load_keeps_the_branch_that_it_landed_on(wide, monkeypatch):
    real = store_of(wide).publisher.publish

    def publish(branch, changeset):
        interrupt()
        time.sleep(0.1)
        return real(branch, changeset)

    monkeypatch.setattr(store_of(wide).publisher, "publish", publish)
    with pytest.raises(KeyboardInterrupt) as struck:
        wide.load(rows("side"), mode="append", branch="side", from_branch="main")
    commit = wide.commits("side")[0].graph_commit_id
    assert outcome_told(struck.value) == f"the write was committed as {commit}"


# Every writer kind goes through the same steps; these reach all of them.
STRUCK = (
    "mutation: the first write on a branch",
    "load: merge",
    "schema: renames, columns, a new and a dropped type",
    "optimize: two tables",
)


def struck_cases():
    for case in cases():
        if case.values[0] in STRUCK and case.values[1] not in PAST_FAILING:
            yield case


@pytest.mark.parametrize(("name", "step", "nth"), list(struck_cases()))
def test_an_interrupt_at_a_step_says_what_happened(tmp_path, name, step, nth):
    uri, story = str(tmp_path / "g.omni"), BY_NAME[name]
    build(uri, story)
    before, after, _ = undisturbed(name)
    with Graph.open(uri, world=world(InterruptAt(step, nth))) as graph:
        with pytest.raises(KeyboardInterrupt) as struck:
            story.act(graph)
        told = claim_of(outcome_told(struck.value))
        assert told is not None
        assert content(uri) == (after if told else before), "the message is not true"
        graph.mutate(PAIR, "after", branch=story.branch)
    assert_settled(uri)
    history(uri, story.branch)


@pytest.mark.parametrize("first", [Step.SIDECAR_WRITTEN, Step.TABLE_APPLIED, Step.PUBLISHED])
@pytest.mark.parametrize(
    "second",
    [
        Step.WRITE_IN_DOUBT,
        Step.RECOVERY_PUBLISHED,
        Step.RECOVERY_AUDITED,
        Step.RECOVERY_SIDECAR_DELETED,
    ],
)
def test_a_second_interrupt_while_the_write_settles_itself(tmp_path, first, second):
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load(SEED, mode="overwrite")
    before = content(uri)
    plan = InterruptAt(first, then=second)
    with (
        Graph.open(uri, world=world(plan)) as graph,
        pytest.raises(KeyboardInterrupt) as struck,
    ):
        graph.mutate(PAIR, "pair")
    told = claim_of(outcome_told(struck.value))
    Graph.open(uri, durability="process").close()
    assert_settled(uri)
    assert told is None or told == (content(uri) != before), "the message is not true"
    with Graph.open(uri, durability="process") as graph:
        graph.mutate(PAIR, "after")


def test_an_interrupt_behind_the_write_tells_of_the_commit(wide):
    """The handle is closed and the answer is being shown: the commit is made all the same."""
    commit = wide.load(rows("shown"), mode="append").commit
    wide.close()
    assert interrupted_line(KeyboardInterrupt()) == (
        f"interrupted; the last commit was {commit.graph_commit_id}"
    )
