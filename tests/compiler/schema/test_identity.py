"""Who is who after schema changes: ids survive renames, and two branches agree on them."""

from __future__ import annotations

import struct

import pytest

from omnigraph.compiler.schema import catalog_from_ir, compile_schema, plan_migration, steps_between
from omnigraph.model.graph import SchemaRecord


def applied(catalog, *texts):
    """The catalog after one apply for each text."""
    for text in texts:
        plan = plan_migration(catalog, compile_schema(text))
        plan.require_supported()
        catalog = plan.catalog
    return catalog


def grown(*texts):
    return applied(compile_schema(texts[0]), *texts[1:])


def node(body, name="A", hint=""):
    return f"node {name} {hint} {{ k: String @key {body} }}"


def ids(catalog):
    return {
        key: (catalog.identities.type_id(key), set(catalog.property_ids(key).values()))
        for key in (made.table_key for made in catalog.types())
    }


# texts of one apply after the other, and what the last type's properties are
LIVES = [
    ([node("x: I32?")], {"A.k", "A.x"}),
    ([node("x: I32?"), node('y: I32? @rename_from("x")')], {"A.k", "A.x"}),
    ([node("x: I32?"), node(""), node("x: I32?")], {"A.k", "A.x#2"}),
    ([node("x: I32?"), node(""), node("x: I32?"), node(""), node("x: I32?")], {"A.k", "A.x#3"}),
    (
        [node("x: I32?"), node('y: I32? @rename_from("x")'), node("y: I32? x: I32?")],
        {"A.k", "A.x", "A.x#2"},
    ),
    (
        [node("x: I32?"), node('y: I32? @rename_from("x")'), node(""), node("x: I32? y: I32?")],
        {"A.k", "A.x#2", "A.y"},
    ),
    ([node("x: I32"), node("x: I64")], {"A.k", "A.x"}),
    ([node(""), node("", "B", '@rename_from("A")'), node("x: I32?", "B")], {"A.k", "A.x"}),
]


@pytest.mark.parametrize(("texts", "properties"), LIVES)
def test_a_property_keeps_its_id_and_a_later_life_gets_its_own(texts, properties):
    (found,) = ids(grown(*texts)).values()
    assert found == ("node:A", {f"node:{one}" for one in properties})


def test_a_type_keeps_its_id_and_a_later_life_gets_its_own():
    before = node("")
    renamed = node("", "B", '@rename_from("A")')
    after = grown(before, renamed, renamed + node("x: I32?"))
    assert ids(after) == {
        "node:A": ("node:A#2", {"node:A#2.k", "node:A#2.x"}),
        "node:B": ("node:A", {"node:A.k"}),
    }
    assert grown(before, "node Z { k: I32 }", before).identities.type_id("node:A") == "node:A#2"


def test_edges_and_interfaces_have_ids_too():
    named = "interface Named { name: String }"
    base = named + node("") + "edge E: A -> A { w: F64? }"
    after = grown(
        base,
        'interface Named { title: String @rename_from("name") }'
        + node("")
        + 'edge F: A -> A @rename_from("E") { v: F64? @rename_from("w") }',
    )
    assert ids(after)["edge:F"] == ("edge:E", {"edge:E.w"})
    assert after.identities.property_id("interface:Named", "title") == "interface:Named.name"


def test_branches_that_add_the_same_name_mean_the_same_thing():
    base = grown(node("x: I32?"), node(""))
    one, other = applied(base, node("x: I32?")), applied(base, node("y: F64? x: String?"))
    assert one.property_ids("node:A")["x"] == other.property_ids("node:A")["x"] == "node:A.x#2"


def test_nothing_is_kept_while_names_tell_everything():
    after = grown(node(""), node("x: I32?"), node("x: I64?") + "node B { k: I32 }")
    assert after.identities.is_empty


def test_properties_retire_with_their_type():
    assert grown(node("x: I32?"), "node B { k: I32 }").identities.retired == ("node:A",)


def test_a_schema_and_its_identities_come_back_from_what_is_stored():
    after = grown(node("x: I32?"), node('y: I32? @rename_from("x") @default(1)'))
    record = SchemaRecord.of(after)
    assert catalog_from_ir(record.ir, record.source).hash == record.hash
    assert record.identities == after.identities


def test_the_fingerprint_tells_a_property_that_was_made_again():
    first = grown(node("x: I32?"))
    again = applied(first, node(""), node("x: I32?"))
    assert first.hash == again.hash
    assert SchemaRecord.of(first).fingerprint != SchemaRecord.of(again).fingerprint
    same = applied(first, node(""), node("x: I32?"))
    assert SchemaRecord.of(same).fingerprint == SchemaRecord.of(again).fingerprint


# --- what entities got that were there before a property -----------------------------------------

TENTH = struct.unpack("f", struct.pack("f", 0.1))[0]
FILLINGS = [
    ([node(""), node("x: I32?")], None),
    ([node(""), node("x: I32? @default(7)")], 7),
    ([node(""), node("x: I32? @default(7)"), node("x: I32? @default(8)")], 7),
    ([node(""), node("x: I32?"), node("x: I32? @default(8)")], None),
    ([node(""), node("x: I32? @default(7)"), node("x: I32?"), node("x: I64?")], 7),
    ([node(""), node("x: F32? @default(0.1)"), node("x: F64? @default(0.1)")], TENTH),
    (
        [
            node(""),
            node("x: F32? @default(0.1)"),
            node("x: F64? @default(0.1)"),
            node('y: F64? @rename_from("x") @default(2)'),
        ],
        TENTH,
    ),
]


@pytest.mark.parametrize(("texts", "value"), FILLINGS)
def test_a_schema_knows_what_older_entities_got_for_a_property(texts, value):
    after = grown(*texts)
    prop = after.nodes["A"].properties[-1]
    assert after.filling("node:A", prop) == value


def test_what_a_dropped_property_was_filled_with_is_forgotten():
    assert not grown(node("x: I32 @default(7)"), node("x: I32"), node("")).identities.filled


# --- steps between two states of a history -------------------------------------------------------


def kinds(earlier, later):
    return [step.kind for step in steps_between(earlier, later)]


def test_steps_between_two_states_go_by_identity_and_not_by_hints():
    base = grown(node("x: I32?"))
    renamed = applied(base, node('y: I32? @rename_from("x")', "B", '@rename_from("A")'))
    again = applied(renamed, node("z: String?", "B"), node("y: I32?", "B"))
    assert kinds(base, renamed) == ["rename_type", "rename_property"]
    assert kinds(renamed, base) == ["rename_type", "rename_property"]
    assert kinds(base, again) == ["rename_type", "add_property", "drop_property"]
    # The hints of the text have done their work long ago.
    assert kinds(renamed, again) == ["add_property", "drop_property"]


def test_steps_between_states_may_change_a_type_in_several_ways():
    base = grown(node("x: I32 e: enum(a)"))
    after = applied(
        base,
        node("x: I64 e: enum(a)"),
        node("x: I64? e: enum(a)"),
        node("x: I64? e: enum(a, b)"),
        node("x: I64? e: enum(a, b)?"),
    )
    assert kinds(base, after) == [
        "extend_enum",
        "relax_nullability",
        "widen_property",
        "relax_nullability",
    ]
    assert "unsupported_change" in kinds(after, base)


def test_two_schemas_of_one_text_differ_if_a_property_was_made_again():
    base = grown(node("x: I32?"))
    again = applied(base, node(""), node("x: I32?"))
    assert kinds(base, again) == ["add_property", "drop_property"]
    assert kinds(base, base) == []
