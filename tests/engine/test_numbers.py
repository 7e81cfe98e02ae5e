"""Numbers mean the same in every condition, whoever evaluates it: scan, memory or mutation."""

from __future__ import annotations

import json
import math

import pytest

from omnigraph import Graph, errors

SCHEMA = """
node Reading {
  slot: I64 @key
  count: U64?
  value: F64?
  single: F32?
  marks: [I64]?
  seen: I32?
}
"""
MAX = 2**63 - 1
ROWS = [
    {"slot": MAX, "count": 2**64 - 1, "value": 7.5, "single": 0.1, "marks": [10, 2]},
    {"slot": -MAX - 1, "count": 2, "value": -0.0, "single": 1.5, "marks": [2]},
    {"slot": 0, "value": 0.0, "single": "Infinity", "marks": [10, 2]},
    {"slot": 1, "value": "-Infinity", "single": "NaN"},
    {"slot": 2},
]

# condition (a property is written @name) -> slots for which it holds
CONDITIONS = {
    "@value % 2 = 1.5": {MAX},
    "@value % 0.5 = 0": {MAX, -MAX - 1, 0},
    "@slot / 2 > 1": {MAX},
    "@slot * 1.0 > 1": {MAX, 2},
    "@count / 0 is null": {MAX, -MAX - 1, 0, 1, 2},
    "@single = 0.1": {MAX},
    "@single in [0.1, 7]": {MAX},
    "@single > 1e308": {0},
    "@single != 1e308": {MAX, -MAX - 1, 0, 1},
    "@count in [18446744073709551615, 0.5]": set(),
    "@slot in [9223372036854775807, 0]": {MAX, 0},
    "@value = 0.0": {-MAX - 1, 0},
    "@value in [0.0]": {-MAX - 1, 0},
    "@value in [-0.0, 7.5]": {-MAX - 1, 0, MAX},
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    place = tmp_path_factory.mktemp("numbers") / "graph.omni"
    with Graph.init(place, SCHEMA, durability="process") as graph:
        lines = [json.dumps({"type": "Reading", "data": row}) for row in ROWS]
        graph.load(lines, mode="append")
        yield graph


def asked(graph, text):
    return graph.query("query q() { match { $r: Reading } return { " + text + " } }").to_pylist()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_holds_for_the_same_rows_in_reads_and_mutations(graph, condition):
    expected = CONDITIONS[condition]
    read = condition.replace("@", "$r.")
    for text in (read, f"{read} or $r.slot % 7 = 6"):  # the second cannot be left to storage
        query = "query q() { match { $r: Reading " + text + " } return { $r.slot } }"
        slots = {row["r.slot"] for row in graph.query(query).to_pylist()}
        assert slots == expected, text
    where = condition.replace("@", "")
    done = graph.mutate("query q() { update Reading set { seen: 1 } where " + where + " }")
    assert done.affected_nodes == len(expected)


def test_a_list_that_no_integer_type_holds_is_refused(graph):
    with pytest.raises(errors.TypeCheckError) as caught:
        asked(graph, "$r.slot in [18446744073709551615, -1] as listed")
    assert caught.value.t_code == "T7"


def test_lists_can_be_group_keys_and_are_ordered_by_their_elements(graph):
    rows = asked(graph, "$r.marks, count(*) as n")
    assert [(row["r.marks"], row["n"]) for row in rows] == [(None, 2), ([2], 1), ([10, 2], 2)]


def test_zero_and_minus_zero_are_one_group(graph):
    counts = {row["r.value"]: row["n"] for row in asked(graph, "$r.value, count(*) as n")}
    assert counts == {None: 1, -math.inf: 1, 0.0: 2, 7.5: 1}


def test_a_mean_needs_no_sum_that_fits(graph):
    (row,) = asked(graph, "avg($r.count) as mean")
    assert row["mean"] == (2**64 + 1) / 2


def test_a_sum_may_be_the_smallest_integer(tmp_path):
    with Graph.init(tmp_path / "g", SCHEMA, durability="process") as graph:
        graph.mutate("query q() { insert Reading { slot: -9223372036854775808 } }")
        assert asked(graph, "sum($r.slot) as total") == [{"total": -(2**63)}]
        graph.mutate("query q() { insert Reading { slot: -1 } }")
        with pytest.raises(errors.InputError, match="does not fit into 64 bits"):
            asked(graph, "sum($r.slot) as total")
