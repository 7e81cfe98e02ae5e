"""Turns of short queries: one has it, and nobody waits for a long one."""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.engine.read.memory import threads

WAIT_SECONDS = 30
SCHEMA = "node Person { name: String @key  age: I32? }"
PEOPLE = [{"type": "Person", "data": {"name": name, "age": len(name)}} for name in ("ann", "bo")]

pytestmark = pytest.mark.skipif(not threads._has_lock, reason="turns are for Python's lock")


@pytest.fixture(autouse=True)
def no_turn_left():
    yield
    threads.end_turn()


def begin_elsewhere():
    """Another thread that begins a turn: what it was told, once it has ended it again."""
    told = []

    def query():
        told.append(threads.begin_turn())
        threads.end_turn()

    other = threading.Thread(target=query)
    other.start()
    return other, told


def test_a_query_waits_for_the_turn_of_another(monkeypatch):
    monkeypatch.setattr(threads, "TURN_SECONDS", WAIT_SECONDS)
    assert threads.begin_turn()
    other, told = begin_elsewhere()
    other.join(0.05)
    assert not told
    threads.end_turn()
    other.join(WAIT_SECONDS)
    assert told == [True]


def test_nobody_waits_for_a_long_query_and_only_the_first_finds_out(monkeypatch):
    monkeypatch.setattr(threads, "TURN_SECONDS", 0.01)
    assert threads.begin_turn()
    other, told = begin_elsewhere()
    other.join(WAIT_SECONDS)
    assert told == [True]
    monkeypatch.setattr(threads, "TURN_SECONDS", WAIT_SECONDS)
    other, told = begin_elsewhere()  # would wait for ever, were it for the long one
    other.join(WAIT_SECONDS / 2)
    assert told == [True]


def test_a_thread_has_one_turn_only():
    assert threads.begin_turn()
    assert not threads.begin_turn()
    threads.end_turn()
    threads.end_turn()
    assert threads.begin_turn()


def test_work_in_other_threads_ends_the_turn(monkeypatch):
    monkeypatch.setattr(threads, "PARALLEL_ROWS_MIN", 1)
    monkeypatch.setattr(pa, "cpu_count", lambda: 2)
    assert threads.begin_turn()
    assert threads.in_parallel(lambda item: item + 1, [1, 2], rows=2) == [2, 3]
    assert threads.begin_turn()


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(threads, "PARALLEL_ROWS_MIN", 1)
    monkeypatch.setattr(pa, "cpu_count", lambda: 2)


def test_who_asks_works_too_and_answers_keep_their_order(two_cores):
    met = threading.Barrier(2)
    seen = set()

    def work(item):
        if item < 2:
            met.wait(WAIT_SECONDS)  # two threads are at work at once
        seen.add(threading.get_ident())
        return item * 10

    assert threads.in_parallel(work, range(50), rows=50) == [item * 10 for item in range(50)]
    assert threading.get_ident() in seen
    assert len(seen) == 2


def test_the_first_item_that_fails_tells_why_and_the_rest_is_left(two_cores):
    begun = []

    def work(item):
        begun.append(item)
        if item >= 3:
            raise ValueError(item)
        return item

    with pytest.raises(ValueError, match=r"^3$"):
        threads.in_parallel(work, range(1000), rows=1000)
    assert len(begun) <= 5
    assert threads.in_parallel(abs, [-1, -2], rows=2) == [1, 2]


def test_work_within_work_is_done_on_the_spot(two_cores):
    def outer(item):
        here = threading.get_ident()
        inner = threads.in_parallel(lambda _: threading.get_ident(), range(9), rows=9)
        return {*inner} == {here}

    assert threads.in_parallel(outer, range(6), rows=6) == [True] * 6


def test_a_query_that_reads_from_storage_ends_its_turn_and_leaves_none_behind(
    tmp_path, monkeypatch
):
    ended = []
    monkeypatch.setattr(threads._turns, "end", lambda: ended.append(1))
    text = "query q() { match { $p: Person } return { $p.name } }"
    with Graph.init(str(tmp_path / "graph"), SCHEMA) as graph:
        graph.load(PEOPLE, mode="append")
        ended.clear()
        assert len(graph.query(text)) == 2
        assert ended, "the table was read"
    monkeypatch.undo()
    threads.end_turn()
    assert threads.begin_turn()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Python 3.12: there are threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_a_forked_child_does_not_wait_for_a_turn_of_its_parent(monkeypatch):
    monkeypatch.setattr(threads, "TURN_SECONDS", WAIT_SECONDS)
    holder_has_it, done = threading.Event(), threading.Event()

    def hold():
        threads.begin_turn()
        holder_has_it.set()
        done.wait(WAIT_SECONDS)
        threads.end_turn()

    holder = threading.Thread(target=hold)
    holder.start()
    assert holder_has_it.wait(WAIT_SECONDS)
    child = os.fork()
    if child == 0:
        os._exit(0 if threads._turns._turn.lock.acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0
    done.set()
    holder.join(WAIT_SECONDS)
