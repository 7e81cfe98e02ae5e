"""Rows stored under one schema, seen under another of the same history."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.compiler.schema import compile_schema, plan_migration
from omnigraph.engine.history.lift import comparable, lift


def grown(*texts):
    """The catalogs after each apply."""
    found = [compile_schema(texts[0])]
    for text in texts[1:]:
        plan = plan_migration(found[-1], compile_schema(text))
        plan.require_supported()
        found.append(plan.catalog)
    return found


def node(body, name="A", hint=""):
    return f"node {name} {hint} {{ k: String @key {body} }}"


def seen(stored, shown, rows):
    """The rows as the shown schema has them."""
    (entity,) = shown.nodes.values()
    (key,) = (one.table_key for one in stored.nodes.values())
    found = lift(stored, key, entity, shown)
    columns = ["id", *(one.name for one in entity.properties)]
    table = pa.table(rows)
    assert set(found.stored(columns)) <= set(table.column_names)
    return found.rows(table.select(found.stored(columns)), columns).to_pydict()


ROWS = {"id": ["a"], "k": ["a"], "x": pa.array([7], pa.int32())}
# texts of one apply after the other, and what becomes of `x: I32? = 7`
CASES = [
    ([node("x: I32?")], {"x": [7]}),
    ([node('y: I32? @rename_from("x")')], {"y": [7]}),
    ([node('y: I32? @rename_from("x")', "B", '@rename_from("A")')], {"y": [7]}),
    ([node("x: I64?")], {"x": [7]}),
    ([node("")], {}),
    ([node(""), node("x: I32?")], {"x": [None]}),
    ([node(""), node("x: String? @default(z)")], {"x": ["z"]}),
    (
        [node('y: I32? @rename_from("x")'), node("y: I32? x: I32? @default(3)")],
        {"y": [7], "x": [3]},
    ),
    (
        [node("x: I32? z: I32 @default(1)"), node("x: I32? z: I32 @default(2)")],
        {"x": [7], "z": [1]},
    ),
    ([node("x: I32? z: I32?"), node("x: I32? z: I32? @default(2)")], {"x": [7], "z": [None]}),
]


@pytest.mark.parametrize(("texts", "expected"), CASES)
def test_rows_are_seen_by_identity(texts, expected):
    first, *_, last = grown(node("x: I32?"), *texts)
    assert seen(first, last, ROWS) == {"id": ["a"], "k": ["a"], **expected}


def test_branches_that_each_added_a_property_do_not_mix_them_up():
    base = compile_schema(node(""))
    one = plan_migration(base, compile_schema(node("x: I32?"))).catalog
    other = plan_migration(base, compile_schema(node("y: I32?"))).catalog
    assert seen(one, other, ROWS) == {"id": ["a"], "k": ["a"], "y": [None]}


def test_rows_go_back_to_an_older_schema_too():
    first, last = grown(node("x: I32?"), node('y: I32? @rename_from("x") z: I32?'))
    stored = {"id": ["a"], "k": ["a"], "y": pa.array([7], pa.int32()), "z": [1]}
    assert seen(last, first, stored) == {"id": ["a"], "k": ["a"], "x": [7]}


def test_values_are_compared_in_the_wider_of_two_types():
    narrow, wide = grown(node("x: I32? f: F64?"), node("x: I64? f: F64?"))
    for one, other in ((narrow, wide), (wide, narrow)):
        found = comparable(one.nodes["A"], one, other)
        assert found.by_name["x"].type.scalar.value == "I64"
    assert comparable(wide.nodes["A"], wide, wide) is wide.nodes["A"]


def test_a_row_id_stays_with_its_row():
    first, last = grown(node("x: I32?"), node('y: I32? @rename_from("x")'))
    found = lift(first, "node:A", last.nodes["A"], last)
    table = pa.table({**ROWS, "_rowid": pa.array([5], pa.uint64())})
    assert found.rows(table, ["id", "y"]).to_pydict() == {"id": ["a"], "y": [7], "_rowid": [5]}


def test_a_schema_that_dropped_what_is_shown_says_so():
    first, without, again = grown(node("x: I32?"), node(""), node("x: I32?"))
    for stored in (without, again):
        assert lift(stored, "node:A", first.nodes["A"], first).untouched_differ
    for shown in (without, again):
        assert not lift(first, "node:A", shown.nodes["A"], shown).untouched_differ


@pytest.mark.parametrize(
    ("ours", "theirs", "differ"),
    [
        (["x: I32? @default(1)"], ["x: I32? @default(1)"], False),
        (["x: I32? @default(1)"], ["x: I32? @default(2)"], True),
        (["x: I32? @default(1)"], ["x: I32?"], True),
        (["x: I32? @default(1)"], ["x: I64? @default(1)"], False),
        (["x: I32? @default(1)", "x: I32? @default(2)"], ["x: I32? @default(1)"], False),
        (["x: I32? @default(1)", "x: I32? @default(2)"], ["x: I32? @default(2)"], True),
        (["x: F32? @default(0.1)"], ["x: F64? @default(0.1)"], True),
        (["x: F32? @default(0.5)"], ["x: F64? @default(0.5)"], False),
        (["x: F32? @default(0.1)", "x: F64? @default(0.1)"], ["x: F32? @default(0.1)"], False),
        (['x: String? @default("a")', 'y: String? @rename_from("x")'], ["x: String?"], True),
    ],
)
def test_a_property_that_both_added_and_filled_with_something_else_says_so(ours, theirs, differ):
    one, other = (grown(node(""), *map(node, each))[-1] for each in (ours, theirs))
    for stored, shown in ((one, other), (other, one)):
        found = lift(stored, "node:A", comparable(shown.nodes["A"], shown, stored), shown)
        assert found.untouched_differ is differ


@pytest.mark.parametrize(
    ("ours", "theirs", "seen_as"),
    [
        ("x: String?", "x: I32?", None),
        ("x: I32?", "x: Bool?", None),
        ("x: I32?", "x: [I64]?", None),
        ("x: Vector(2)?", "x: Vector(3)?", None),
        ("x: String?", "x: Blob?", None),
        ("x: Blob?", "x: String?", None),
        ("x: String?", "x: I32? @default(3)", 3),
    ],
)
def test_a_property_that_both_added_as_different_things_is_not_there(ours, theirs, seen_as):
    one, other = (grown(node(""), node(each))[-1] for each in (ours, theirs))
    entity = comparable(other.nodes["A"], other, one)
    found = lift(one, "node:A", entity, other)
    assert found.stored(["id", "x"]) == ["id"]
    assert found.rows(pa.table({"id": ["a"]}), ["id", "x"])["x"].to_pylist() == [seen_as]
    assert not found.untouched_differ
