"""What expressions give. The table of functions is complete, and every kernel gives what a plain
Python reading of its line says, on awkward values too."""

from __future__ import annotations

import datetime as dt
import json
import math
import random

import pytest

from omnigraph import Graph, errors
from omnigraph.compiler.query import ir
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.model.schema import PropertyType, Scalar

SCHEMA = """
node P {
  k: String @key
  s: String?
  c: enum(red, green)?
  i: I32?
  tags: [String]?
}
edge E: P -> P { note: String? }
"""
# Letters whose full lower case would be longer or depend on their place.
TEXTS = [None, "", "abc", "ABC", "Straße", "ẞ", "İI", "ΟΔΟΣ", "ÀÉ", "Ǆ", "日本", "🙂A", " \n"]


def lines(rows):
    return [json.dumps({"type": "P", "data": data}) for data in rows]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    graph = Graph.init(str(tmp_path_factory.mktemp("g") / "g.omni"), SCHEMA, durability="process")
    rows = [{"k": f"k{number:02}", "s": text} for number, text in enumerate(TEXTS)]
    rows[1] |= {"c": "red", "i": 7, "tags": ["x"]}
    graph.load(lines(rows), mode="append")
    return graph


def asked(graph, expr, *, where="", **params):
    """The values of an expression over all rows, in the order of their keys."""
    declared = ", ".join(f"${name}: String?" for name in params)
    match = f"match {{ $p: P {where} }}"
    text = f"query q({declared}) {{ {match} return {{ {expr} as x }} order {{ $p.k }} }}"
    return graph.query(text, params=params).to_arrow()["x"].to_pylist()


# --- lower -------------------------------------------------------------------------------------


def plain_lower(text):
    """Unicode's lower case of every letter by itself."""
    special = {"İ": "i"}
    return None if text is None else "".join(special.get(char, char.lower()) for char in text)


def test_lower_maps_letter_by_letter(graph):
    assert asked(graph, "lower($p.s)") == [plain_lower(text) for text in TEXTS]
    assert asked(graph, "lower($p.c)")[1] == "red"


def test_lower_of_a_constant_is_a_constant(graph):
    assert asked(graph, 'lower("ÀB")') == ["àb"] * len(TEXTS)
    assert asked(graph, "lower($q)", q=None) == [None] * len(TEXTS)
    assert asked(graph, "lower(null)") == [None] * len(TEXTS)


def test_lower_finds_rows_in_any_case(graph):
    assert asked(graph, "$p.s", where="lower($p.s) = lower($q)", q="Abc") == ["abc", "ABC"]
    assert asked(graph, "$p.s", where='not lower($p.s) starts_with "a"', q=None)[0] == ""
    assert asked(graph, "$p.s", where='lower($p.s) in ["ẞ", "ß"]', q=None) == ["ẞ"]


def test_lower_orders_and_stands_over_groups(graph):
    text = "query q() { match { $p: P } return { $p.s } order { lower($p.s) desc } limit 2 }"
    assert graph.query(text).to_arrow()["p.s"].to_pylist() == ["🙂A", "日本"]
    text = "query q() { match { $p: P } return { lower(max($p.s)) as top, count(*) as n } }"
    assert graph.query(text).to_arrow().to_pylist() == [{"top": "🙂a", "n": len(TEXTS)}]


def test_lower_works_in_the_where_of_a_mutation(tmp_path):
    graph = Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process")
    graph.load(lines([{"k": key, "s": key} for key in ("A", "a", "B")]), mode="append")
    done = graph.mutate('query q() { update P set { i: 1 } where lower(s) = "a" }')
    assert done.affected_nodes == 2
    assert graph.mutate('query q() { delete P where lower(s) = "b" }').affected_nodes == 1


@pytest.mark.parametrize(
    ("expr", "message", "hint"),
    [
        ("lower($p.i)", "T7: lower requires String, got I32", "write `lower(text)`"),
        ("lower($p.tags)", "T7: lower requires String, got [String]", "write `lower(text)`"),
        ("lower()", "T7: `lower` cannot take 0 arguments", "write `lower(text)`"),
        ('lower($p.s, "x")', "T7: `lower` cannot take 2 arguments", "write `lower(text)`"),
        ("lowr($p.s)", "unknown function `lowr`", "did you mean `lower` or `floor`?"),
        ("lower($p.s", "expected `,` or `)`", "a `)` is missing: every `(` is closed"),
    ],
)
def test_a_wrong_call_says_what_the_function_takes(graph, expr, message, hint):
    with pytest.raises(errors.InputError) as caught:
        asked(graph, expr)
    assert message in str(caught.value)
    assert caught.value.hint == hint


def test_a_column_called_lower_keeps_its_meaning(graph):
    text = "query q() { match { $p: P } return { $p.k as lower lower ($p.i) as n } limit 1 }"
    assert graph.query(text).to_arrow().column_names == ["lower", "lower_2", "n"]


# --- coalesce ----------------------------------------------------------------------------------

VALUES = {
    "b": ("Bool", [None, True, False]),
    "i": ("I32", [None, 0, -(2**31), 2**31 - 1]),
    "l": ("I64", [None, -(2**63), 2**53 + 1, 2**63 - 1]),
    "u": ("U32", [None, 0, 2**32 - 1]),
    "w": ("U64", [None, 0, 2**64 - 1]),
    "f": ("F32", [None, 0.0, -0.0, 1.5, "NaN", "Infinity"]),
    "d": ("F64", [None, -0.0, 0.1, "NaN", "-Infinity", 5e-324]),
    "s": ("String", [None, "", "a", "İ"]),
    "c": ("enum(red, green)", [None, "red", "green"]),
    "day": ("Date", [None, "0001-01-01", "9999-12-31"]),
    "t": ("DateTime", [None, "1970-01-01T00:00:00Z", "2026-02-14T10:00:00Z"]),
    "tags": ("[String]", [None, [], ["a", ""]]),
    "reals": ("[F64]", [None, [], [0.5]]),
    "vec": ("Vector(2)", [None, [0.5, 1.5]]),
}
# What may stand together, with literals that go along: text, and the value they have beside F64.
TOGETHER = [
    (["b"], [("true", True), ("null", None)]),
    (["i", "l", "u"], [("0", 0), ("-5", -5), ("null", None)]),
    (["u", "w"], [("0", 0), ("18446744073709551615", 2**64 - 1)]),
    (["i", "l", "u", "w", "f", "d"], [("0.25", 0.25), ("7", 7), ("null", None)]),
    (["s", "c"], [('"x"', "x"), ("null", None)]),
    (["day"], [('date("2020-02-29")', dt.date(2020, 2, 29)), ("null", None)]),
    (["t"], [("null", None)]),
    (["tags"], [("[]", []), ('["z"]', ["z"]), ("null", None)]),
    (["reals"], [("[]", []), ("[1, 2.5]", [1.0, 2.5]), ("null", None)]),
    (["vec"], [("null", None)]),
]


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A graph of random rows over every type, and its rows as a query gives them."""
    rng = random.Random(7)
    properties = "\n".join(
        f"{name}: {kind}{'' if kind.endswith('?') else '?'}" for name, (kind, _) in VALUES.items()
    )
    folder = tmp_path_factory.mktemp("typed")
    graph = Graph.init(
        str(folder / "g.omni"), f"node P {{ k: String @key\n{properties} }}", durability="process"
    )
    rows = [
        {"k": f"{number:03}"} | {name: rng.choice(values) for name, (_, values) in VALUES.items()}
        for number in range(60)
    ]
    graph.load(lines(rows), mode="append")
    columns = ", ".join(f"$p.{name} as {name}" for name in VALUES)
    text = f"query q() {{ match {{ $p: P }} return {{ {columns} }} order {{ $p.k }} }}"
    return graph, graph.query(text).to_arrow().to_pylist()


def first_of(values):
    return next((value for value in values if value is not None), None)


def same(found, wanted):
    """Equal, NaN with itself, and -0.0 apart from 0.0."""
    if isinstance(wanted, float):
        return repr(found) == repr(wanted)
    return type(found) is type(wanted) and found == wanted


@pytest.mark.parametrize("seed", range(8))
def test_coalesce_is_the_first_value_that_is_not_null(typed, seed):
    graph, rows = typed
    rng = random.Random(seed)
    for columns, literals in TOGETHER * 2:
        chosen = [rng.choice(columns) for _ in range(rng.randint(1, 3))]
        parts = [(f"$p.{name}", lambda row, name=name: row[name]) for name in chosen]
        parts += [(text, lambda _, value=value: value) for text, value in literals[:1]]
        rng.shuffle(parts)
        expr = f"coalesce({', '.join(text for text, _ in parts)})"
        scalars = {VALUES[name][0] for name in chosen}
        wide = "F64" in scalars or ("F32" in scalars and len(scalars) > 1)
        floats = wide or scalars == {"F32"} or literals[0][0] == "0.25"
        wanted = [first_of(read(row) for _, read in parts) for row in rows]
        if floats:
            wanted = [None if value is None else float(value) for value in wanted]
        found = asked(graph, expr)
        assert all(map(same, found, wanted)), (expr, found, wanted)


@pytest.mark.parametrize(
    ("expr", "kind"),
    [
        ("coalesce($p.i, 0)", "int32"),
        ("coalesce($p.i, 3000000000)", "int64"),
        ("coalesce($p.i, $p.u)", "int64"),
        ("coalesce($p.w, 0)", "uint64"),
        ("coalesce($p.w, $p.u)", "uint64"),
        ("coalesce($p.f, 0.1)", "float"),
        ("coalesce($p.f, 16777217)", "double"),
        ("coalesce($p.i, 0.5)", "double"),
        ("coalesce($p.f, $p.d)", "double"),
        ('coalesce($p.c, "blue")', "string"),
        ("coalesce(null, null)", "string"),
        ("coalesce($p.i)", "int32"),
    ],
)
def test_coalesce_widens_no_more_than_it_must(typed, expr, kind):
    graph, _ = typed
    found = graph.query(f"query q() {{ match {{ $p: P }} return {{ {expr} as x }} }}").to_arrow()
    assert str(found.schema.field("x").type) == kind


@pytest.mark.parametrize(
    ("expr", "got"),
    [
        ("coalesce($p.i, $p.s)", "I32 and String"),
        ("coalesce($p.w, $p.l)", "U64 and I64"),
        ("coalesce($p.w, -1)", "U64 and I64"),
        ("coalesce($p.day, $p.t)", "Date and DateTime"),
        ("coalesce($p.tags, $p.s)", "[String] and String"),
        ("coalesce($p.vec, [1.0, 2.0])", "Vector(2) and [F64]"),
    ],
)
def test_coalesce_refuses_what_has_no_type_in_common(typed, expr, got):
    graph, _ = typed
    with pytest.raises(
        errors.TypeCheckError, match="T7: coalesce requires values of one type"
    ) as e:
        asked(graph, expr)
    assert got in str(e.value)


def test_coalesce_works_in_conditions_groups_and_the_where_of_a_mutation(tmp_path):
    graph = Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process")
    graph.load(lines([{"k": "a", "i": 1}, {"k": "b"}, {"k": "c", "tags": ["x"]}]), mode="append")
    assert asked(graph, "$p.k", where="coalesce($p.i, 5) > 3") == ["b", "c"]
    assert asked(graph, "$p.k", where='"x" in coalesce($p.tags, [])') == ["c"]
    assert asked(graph, "$p.k", where="coalesce($p.i = 1, true)") == ["a", "b", "c"]
    text = "query q() { match { $p: P } return { coalesce(sum($p.i), 0) + 1 as n } }"
    assert graph.query(text).to_arrow().to_pylist() == [{"n": 2}]
    done = graph.mutate('query q() { update P set { s: "y" } where coalesce(i, 0) = 0 }')
    assert done.affected_nodes == 2


def test_equal_constants_that_differ_in_sign_are_kept_apart():
    real = PropertyType(scalar=Scalar.F64)
    plus, minus = (ir.Literal(value=value, type=real) for value in (0.0, -0.0))
    constants = Constants(params={}, now_ms=0)
    assert plus == minus
    signs = [math.copysign(1, constants.scalar(one).as_py()) for one in (plus, minus, plus)]
    assert signs == [1, -1, 1]


def test_constants_of_another_process_are_made_anew():
    whole = PropertyType(scalar=Scalar.I64)
    constants = Constants(params={}, now_ms=0)
    one, other = ir.Literal(value=1, type=whole), ir.Literal(value=2, type=whole)
    # What a worker gets may by chance have the identity of an expression of its own.
    constants._scalars[id(other)] = (one, constants.scalar(one))
    assert constants.scalar(other).as_py() == 2
