"""Answers that once were wrong, or were none: NaN, both zeros, numbers out of range, empty types,
pages and lists as group keys."""

from __future__ import annotations

import json
import math
import re

import pytest

from omnigraph import Graph
from omnigraph.engine.core import OpenMode
from omnigraph.engine.read.memory import cache
from omnigraph.errors import InputError

SCHEMA = """
node P {
  name: String @key
  d: F64?  f: F32?  i: I32?  u: U32?  l: I64?  tags: [String]?  fs: [F64]?
}
node Q { name: String @key }
edge Knows: P -> P { since: Date? }
edge Likes: Q -> P
"""


def graph_of(folder, rows):
    graph = Graph.init(str(folder / "g.omni"), SCHEMA, durability="process")
    graph.load("\n".join(json.dumps({"type": "P", "data": row}) for row in rows), mode="append")
    return graph


@pytest.fixture(params=["in memory", "from storage"])
def way(request, monkeypatch):
    """Small tables are read like big ones the second time."""
    if request.param == "from storage":
        monkeypatch.setattr(cache, "SMALL_TABLE_ROWS", -1)
        monkeypatch.setattr(cache, "FRAME_ROWS_MAX", -1)
        monkeypatch.setattr(cache.Caches, "known_frame", lambda self, entry: None)
    return request.param


def names(graph, conditions, tail="", **params):
    kinds = {int: "I64", float: "F64", list: "[I64]"}
    declared = ", ".join(f"${name}: {kinds[type(value)]}" for name, value in params.items())
    text = f"query q({declared}) {{ match {{ $p: P  {conditions} }} return {{ $p.name }} {tail} }}"
    return [row["p.name"] for row in graph.query(text, params=params).to_pylist()]


REALS = {"a": 0.0, "b": -0.0, "c": 1.5, "d": "NaN", "e": None, "f": "Infinity", "g": "-Infinity"}


@pytest.fixture(scope="module")
def reals_stored(tmp_path_factory):
    rows = [{"name": n, "d": v, "f": v} for n, v in REALS.items()]
    return graph_of(tmp_path_factory.mktemp("reals"), rows)


@pytest.fixture
def reals(reals_stored, way):
    return reals_stored


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("$p.X > 1.0", "cf"),
        ("$p.X >= 0.0", "abcf"),
        ("$p.X < 1.0", "abg"),
        ("$p.X = 0.0", "ab"),
        ("$p.X = -0.0", "ab"),
        ("$p.X != 0.0", "cdfg"),
        ("not ($p.X > 1.0)", "abdg"),
        ("not ($p.X <= 1.0)", "cdf"),
        ("not ($p.X = 1.5)", "abdfg"),
        ("$p.X in [0.0, 1.5]", "abc"),
        ("$p.X not in [1.5]", "abdfg"),
        ("$p.d = $p.f", "abcfg"),
        ("$p.d != $p.f", "d"),
        ("$p.X = $nan", ""),
        ("$p.X != $nan", "abcdfg"),
        ("$p.X <= $nan", ""),
    ],
)
@pytest.mark.parametrize("name", ["d", "f"])
def test_nan_satisfies_unequal_only_and_the_zeros_are_equal(reals, condition, expected, name):
    params = {"nan": math.nan} if "$nan" in condition else {}
    found = names(reals, condition.replace("X", name), "order { $p.name }", **params)
    assert "".join(found) == expected


@pytest.mark.parametrize("tail", ["", "limit 100", "limit 3", "offset 2", "limit 1 offset 2"])
def test_nan_is_above_every_number_and_zeros_are_ordered_by_id(reals, tail):
    said = dict(zip(tail.split()[::2], map(int, tail.split()[1::2]), strict=True))
    offset = said.get("offset", 0)
    last = offset + said["limit"] if "limit" in said else None
    assert names(reals, "", f"order {{ $p.d }} {tail}") == list("egabcfd")[offset:last]
    assert names(reals, "", f"order {{ $p.d desc }} {tail}") == list("dfcabge")[offset:last]


def test_nan_is_one_value_in_groups_whatever_its_bits(reals):
    # Infinity minus itself has another NaN than the one that was loaded.
    query = "query q() { match { $p: P  $p.d is not null } return %s }"

    def rows(answer):
        return reals.query(query % answer).to_pylist()

    assert len(rows("distinct { $p.d - $p.d as x }")) == 2
    assert rows("{ count(distinct $p.d - $p.d) as n, count(distinct $p.d) as m }") == [
        {"n": 2, "m": 5}
    ]
    assert [row["n"] for row in rows("{ $p.d, count(*) as n }")] == [1, 2, 1, 1, 1]
    assert rows("{ min($p.d) as lo, min($p.f) as low }") == [{"lo": -math.inf, "low": -math.inf}]
    assert math.isnan(rows("{ max($p.d) as hi }")[0]["hi"])


@pytest.mark.parametrize("first", [-0.0, 0.0])
@pytest.mark.parametrize("cold", [True, False])
def test_of_both_zeros_a_group_shows_the_one_whichever_came_first(tmp_path, first, cold):
    rows = [{"name": n, "d": v, "fs": [v]} for n, v in (("a", first), ("b", -first))]
    graph = graph_of(tmp_path, rows)
    for _ in range(1 if cold else 3):
        for answer in ("{ $p.d, $p.fs, count(*) as n }", "distinct { $p.d, $p.fs }"):
            (found,) = graph.query(f"query q() {{ match {{ $p: P }} return {answer} }}").to_pylist()
            assert [math.copysign(1, x) for x in (found["p.d"], *found["p.fs"])] == [1, 1]
        many = "query q() { match { $p: P } return { collect(distinct $p.fs[0]) as l } }"
        assert [math.copysign(1, x) for x in graph.query(many).to_pylist()[0]["l"]] == [1]


@pytest.mark.parametrize(("condition", "count"), [("$p.d > 1.0", 2), ("$p.d = 7.0", 0)])
def test_different_entities_are_counted_in_the_rows_that_match(reals, condition, count):
    query = f"query q() {{ match {{ $p: P  {condition} }} return {{ count(distinct $p) as n }} }}"
    assert reals.query(query).to_pylist() == [{"n": count}]


def test_an_equality_between_types_joins_no_nan_but_both_zeros(reals):
    query = """query q() { match { $p: P  $q: P  $p.d = $q.f } return { $p.name, $q.name }
               order { $p.name, $q.name } }"""
    found = [tuple(row.values()) for row in reals.query(query).to_pylist()]
    assert found == [*((a, b) for a in "ab" for b in "ab"), ("c", "c"), ("f", "f"), ("g", "g")]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    rows = [
        {"name": "a", "i": 1, "u": 1, "l": 2**53, "f": 0.1},
        {"name": "b", "i": 2, "u": 2**32 - 1, "l": 2**53 + 1, "f": 16777216.0},
        {"name": "c"},
    ]
    return graph_of(tmp_path_factory.mktemp("numbers"), rows)


@pytest.mark.parametrize(
    ("condition", "params", "expected"),
    [
        ("$p.i < 3000000000", {}, "ab"),
        ("$p.i > 3000000000", {}, ""),
        ("not ($p.i > 3000000000)", {}, "ab"),
        ("$p.i != -3000000000", {}, "ab"),
        ("$p.i in [1, 3000000000]", {}, "a"),
        ("$p.i not in $x", {"x": [2, 2**40]}, "a"),
        ("$p.i = $x", {"x": 2**40}, ""),
        ("$p.i <= $x", {"x": 1.5}, "a"),
        ("$p.i < $x", {"x": math.inf}, "ab"),
        ("$p.u >= -1", {}, "ab"),
        ("$p.u < -1", {}, ""),
        ("-1 < $p.u", {}, "ab"),
        ("$p.l > 9007199254740992.0", {}, "b"),
        ("$p.l < 18446744073709551615", {}, "ab"),
        ("$p.f = 16777217", {}, ""),
        ("$p.f < 16777217", {}, "ab"),
        ("$p.f = 0.1", {}, "a"),
        ("$p.f < $x", {"x": 1e300}, "ab"),
    ],
)
def test_a_number_that_the_column_cannot_hold_compares_by_its_value(
    numbers, way, condition, params, expected
):
    found = names(numbers, condition, "order { $p.name }", **params)
    assert "".join(found) == expected


@pytest.mark.parametrize("answer", ["{ $p.name }", "{ count(*) as n }", "distinct { $p.name }"])
def test_a_limit_of_zero_gives_no_row(reals, answer):
    for order in ("", "order { n }" if "count" in answer else "order { $p.name }"):
        query = f"query q() {{ match {{ $p: P }} return {answer} {order} limit 0 }}"
        assert reals.query(query).to_pylist() == []


def test_pages_fit_together_however_they_are_written(tmp_path, way):
    graph = graph_of(tmp_path, [{"name": name} for name in "dbeac"])
    for first in range(6):
        assert names(graph, "", f"limit {first}") == list("abcde")[:first]
        assert names(graph, "", f"limit 2 offset {first}") == list("abcde")[first : first + 2]
        assert names(graph, "", f"offset {first}") == list("abcde")[first:]
    assert names(graph, "") == list("abcde")


def test_a_page_may_begin_and_end_beyond_any_row(tmp_path, way):
    graph = graph_of(tmp_path, [{"name": name} for name in "ba"])
    assert names(graph, "", f"limit {2**63 - 1} offset 1") == ["b"]
    assert names(graph, "", f"limit {2**63 - 1} offset {2**63 - 1}") == []
    assert names(graph, "", f"order {{ $p.i }} limit {2**63 - 1}") == ["a", "b"]


def test_lists_are_group_keys_of_any_number(tmp_path):
    count = 9000  # more groups than are sorted all at once
    rows = [{"name": f"{n:05d}", "tags": [f"t{n % 4500:04d}"]} for n in range(count)]
    graph = graph_of(tmp_path, rows)
    query = "query q() { match { $p: P } return { $p.tags, count(*) as n } limit 3 }"
    assert graph.query(query).to_pylist() == [{"p.tags": [f"t000{n}"], "n": 2} for n in range(3)]
    query = "query q() { match { $p: P } return distinct { $p.tags } limit 2 offset 4400 }"
    assert graph.query(query).to_pylist() == [{"p.tags": ["t4400"]}, {"p.tags": ["t4401"]}]


@pytest.mark.parametrize("column", ["$w.src", "$w.dst", "$w.since", "$w.id", "$f.name", "$f"])
def test_what_an_optional_block_did_not_find_is_null(tmp_path, way, column):
    graph = graph_of(tmp_path, [{"name": "a"}])
    matched = "$p: P  optional { $p $w:knows $f }"
    query = f"query q() {{ match {{ {matched} }} return {{ {column} }} }}"
    (row,) = graph.query(query).to_pylist()
    assert list(row.values()) == [None]


@pytest.mark.parametrize(
    "clauses",
    [
        "optional { $q likes $p }  not { $q likes $_ }",
        "optional { $q $w:likes $p }  optional { $q likes $o }",
        "optional { $q likes $p }  optional { $q likes $o  $o knows{1,3} $n }",
    ],
)
def test_a_walk_from_nothing_in_an_empty_type_finds_nothing(tmp_path, way, clauses):
    graph = graph_of(tmp_path, [{"name": "a"}])
    query = f"query q() {{ match {{ $p: P  {clauses} }} return {{ $p.name, $q.name }} }}"
    assert graph.query(query).to_pylist() == [{"p.name": "a", "q.name": None}]


# --- one meaning for reads and mutations ---


@pytest.fixture(scope="module")
def extremes(tmp_path_factory):
    rows = [
        {"name": "a", "l": 2**63 - 1, "d": 1e308, "f": 0.1, "i": 1},
        {"name": "b", "l": 5, "d": "NaN", "f": 0.5},
        {"name": "c"},
    ]
    return graph_of(tmp_path_factory.mktemp("extremes"), rows)


@pytest.mark.parametrize(
    "condition",
    [
        "l + 1 > 0",
        "l * 2 > 0",
        "0 - l < 0",
        "l / 2 > 2",
        "l % 2 = 1",
        "d * 10.0 > 0.0",
        "d > 1.0",
        "not (d > 1.0)",
        "not (d = d)",
        "f = 0.1",
        "l >= 9223372036854775807.0",
        "i in [1, 3000000000]",
        "l + 1 > 0 and name = \"b\"",
        "name = \"b\" and l + 1 > 0",
        "l + 1 > 0 or name = \"b\"",
        "l < 10 and l + 1 > 0",
        "9223372036854775807 + 1 > 0",
        "9223372036854775807 + 1 > 0 and name = \"nobody\"",
    ],
)  # fmt: skip
def test_a_condition_means_the_same_in_a_match_and_in_a_mutation(extremes, condition):
    graph = extremes
    read = re.sub(r"\b(name|l|d|f|i)\b", r"$p.\1", condition)

    def outcome(run):
        try:
            return run()
        except InputError as error:
            return str(error).partition(", in statement")[0]  # which a mutation tells besides

    def mutated():
        graph.create_branch("b")
        update = f'query u() {{ update P set {{ tags: ["hit"] }} where {condition} }}'
        try:
            graph.mutate(update, branch="b")
            hit = 'query q() { match { $p: P  $p.tags contains "hit" } return { $p.name } }'
            return sorted(row["p.name"] for row in graph.query(hit, branch="b").to_pylist())
        finally:
            graph.delete_branch("b", force=True)

    expected = outcome(lambda: sorted(names(graph, f"({read})")))
    assert outcome(mutated) == expected
    with Graph.open(graph.uri, OpenMode.READ_ONLY) as cold:
        assert outcome(lambda: sorted(names(cold, f"({read})"))) == expected
