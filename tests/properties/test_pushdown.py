"""Storage answers as memory does: random conditions, orders, limits and offsets over null, NaN,
both zeros, infinities, the ends of the integers, empty lists and the first and last days.

A table is asked in every way there is (`ways.py`), before and after `optimize` has built the
indexes. The number of cases is `OMNIGRAPH_PUSHDOWN_CASES`.
"""

from __future__ import annotations

import os
import random

import pytest
from query_cases import SCHEMA, Cases, comparable, lines, records
from ways import FOR_MANY_ROWS, WAYS, opened, way

from omnigraph import Graph, errors
from omnigraph.engine.core import OpenMode
from omnigraph.engine.read.memory import frame

CASES = int(os.environ.get("OMNIGRAPH_PUSHDOWN_CASES", "120"))
SEED = int(os.environ.get("OMNIGRAPH_PUSHDOWN_SEED", "1"))


def answer(graph, case):
    """The rows, or the error that a user would see."""
    try:
        return comparable(graph.query(case.text, params=case.params).to_arrow())
    except errors.InputError as cause:
        return f"{type(cause).__name__}: {cause}"


def made(folder, rng, rows):
    graph = Graph.init(str(folder / "g.omni"), SCHEMA, durability="process")
    found = records(rng, rows)
    for first in range(0, rows, max(1, rows // 3)):  # several fragments
        graph.load(lines(found[first : first + max(1, rows // 3)]), mode="append")
    return graph


def ask_everyway(uri, rng, cases, ways=tuple(WAYS)):
    """The same case in every way, each with a handle of its own, which grows warm on the way."""
    handles = {name: opened(uri, name) for name in ways}
    handles["by itself"] = Graph.open(uri, OpenMode.READ_ONLY)
    for number in range(cases):
        case = Cases(rng).case()
        with way("in memory"):
            expected = answer(handles["in memory"], case)
        if number < 50 or number % 10 == 0:  # it soon has everything in memory
            assert answer(handles["by itself"], case) == expected, case
        for name in ways:
            with way(name):
                assert answer(handles[name], case) == expected, (name, case)
    for handle in handles.values():
        handle.close()


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_storage_answers_as_memory_does(tmp_path, rows):
    rng = random.Random(f"{SEED}:{rows}")
    graph = made(tmp_path, rng, rows)
    cases = CASES if rows > 1 else CASES // 6
    ask_everyway(graph.uri, rng, cases)
    if rows:
        graph.optimize()
        ask_everyway(graph.uri, rng, cases)


@pytest.mark.timeout(0)
def test_a_table_too_big_for_memory_at_first_touch_answers_the_same(tmp_path):
    """20,000 rows: cold, then warm, then with indexes; also with the thresholds everybody has."""
    rng = random.Random(SEED)
    graph = made(tmp_path, rng, 20_000)
    assert graph.snapshot().entries["node:P"].row_count > frame.SMALL_TABLE_ROWS
    ask_everyway(graph.uri, rng, CASES // 4, FOR_MANY_ROWS)
    graph.optimize()
    ask_everyway(graph.uri, rng, CASES // 4, FOR_MANY_ROWS)
    for _ in range(max(3, CASES // 100)):
        case = Cases(rng).case()
        with Graph.open(graph.uri, OpenMode.READ_ONLY) as cold:
            first = answer(cold, case)
            for _ in range(3):
                assert answer(cold, case) == first, case
