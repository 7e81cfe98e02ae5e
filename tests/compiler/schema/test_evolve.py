"""The migration planner: which change is which step, how risky, and what to do instead."""

from __future__ import annotations

import pytest

from omnigraph.compiler.schema import compile_schema, plan_migration
from omnigraph.errors import SchemaError, SchemaUnsupportedError
from omnigraph.model.plan import Code, Tier


def plan(old, new, **options):
    return plan_migration(compile_schema(old), compile_schema(new), **options)


def node(body):
    return f"node A {{ k: String @key {body} }}"


EDGE = "node A { k: String @key } edge E: A -> A "

# old, new, the steps as (kind, tier)
SUPPORTED = [
    (node(""), node("x: I32 @default(7)"), [("add_property", "safe")]),
    (node(""), node("x: I32? @default(7)"), [("add_property", "safe")]),
    (
        node(""),
        node("x: I32? @unique"),
        [("add_property", "safe"), ("add_constraint", "validated")],
    ),
    (node("x: I32"), node("x: I64"), [("widen_property", "safe")]),
    (node("x: F32?"), node("x: F64?"), [("widen_property", "safe")]),
    ("node A { k: I32 @key }", "node A { k: I64 @key }", [("widen_property", "safe")]),
    (node("x: I32"), node("x: I32?"), [("relax_nullability", "safe")]),
    (node("x: [I32]"), node("x: [I32]?"), [("relax_nullability", "safe")]),
    (node("x: enum(a)"), node("x: enum(a, b)"), [("extend_enum", "safe")]),
    (node("x: I32"), node("x: I32 @unique"), [("add_constraint", "validated")]),
    (node("x: I32"), node("x: I32 @unique(k, x)"), [("add_constraint", "safe")]),  # k is the key
    (node("x: I32"), node("x: I32 @index"), [("add_constraint", "safe")]),
    (node("x: I32"), node("x: I32 @range(x, 0..)"), [("add_constraint", "validated")]),
    (node("x: String"), node('x: String @check(x, "^a")'), [("add_constraint", "validated")]),
    (node("x: I32 @unique"), node("x: I32"), [("remove_constraint", "safe")]),
    (node('x: String @check(x, "a")'), node("x: String"), [("remove_constraint", "safe")]),
    (
        node("x: I32 @range(x, 0..9)"),
        node("x: I32 @range(x, -1..10)"),
        [("remove_constraint", "safe"), ("add_constraint", "safe")],
    ),
    (
        node("x: I32 @range(x, 0..9)"),
        node("x: I32 @range(x, 1..9)"),
        [("remove_constraint", "safe"), ("add_constraint", "validated")],
    ),
    (EDGE, EDGE + "@card(0..2)", [("change_cardinality", "validated")]),
    (EDGE + "@card(1..2)", EDGE + "@card(0..3)", [("change_cardinality", "safe")]),
    (EDGE + "@card(1..2)", EDGE, [("change_cardinality", "safe")]),
    (EDGE + "@card(0..)", EDGE + "@card(1..)", [("change_cardinality", "validated")]),
    (EDGE, EDGE + "{ @unique(src, dst) }", [("add_constraint", "validated")]),
    (node("x: I32"), node("x: I32 @default(1)"), [("update_property_metadata", "safe")]),
    (node("x: I32"), node('x: I32 @description("d")'), [("update_property_metadata", "safe")]),
    (node("x: I32 @unique"), node(""), [("drop_property", "destructive")]),
    (
        node("x: I32 y: I32 @unique(x, y)"),
        node("x: I32"),
        [("drop_property", "destructive"), ("remove_constraint", "safe")],
    ),
    (
        node("x: I32 @unique"),
        node('y: I32 @unique @rename_from("x")'),
        [("rename_property", "safe")],
    ),
    (
        node("t: String v: Vector(2) @embed(t)"),
        node('u: String @rename_from("t") v: Vector(2) @embed(u)'),
        [("rename_property", "safe")],
    ),
    ("", "interface I { a: I32 }", [("add_type", "safe")]),
    (
        "interface I { a: I32? } node N implements I {}",
        "interface I { a: I32? b: I32? } node N implements I {}",
        [("add_property", "safe"), ("add_property", "safe")],
    ),
]


@pytest.mark.parametrize(("old", "new", "steps"), SUPPORTED)
def test_a_supported_change_is_these_steps_and_then_nothing(old, new, steps):
    found = plan(old, new)
    assert [(step["kind"], step["tier"]) for step in found.to_json()["steps"]] == steps
    assert found.supported
    assert plan_migration(found.catalog, compile_schema(new)).steps == ()


# old, new, entity, part of the reason, code, part of the hint
REFUSED = [
    (node(""), node("x: I32"), "node:A.x", "required property", "OG-MF-103", "`@default(…)`"),
    (node(""), node("x: [I32]"), "node:A.x", "required property", "OG-MF-103", "make it nullable"),
    (node("x: I32?"), node("x: I32"), "node:A.x", "changing property type", "OG-MF-106", "keep it"),
    (node("x: I64"), node("x: I32"), "node:A.x", "from I64 to I32", "OG-MF-106", "new property"),
    (node("x: U32"), node("x: I64"), "node:A.x", "from U32 to I64", "OG-MF-106", "new property"),
    (node("x: [I32]"), node("x: [I64]"), "node:A.x", "from [I32] to", "OG-MF-106", "new property"),
    (node("x: I32"), node("x: I64?"), "node:A.x", "from I32 to I64?", "OG-MF-106", "`I32?` first"),
    (
        node("x: enum(a, b)"),
        node("x: enum(a)"),
        "node:A.x",
        "changing",
        "OG-MF-106",
        "keep the old",
    ),
    (
        "node A { k: F32 @key }",
        "node A { k: F64 @key }",
        "node:A.k",
        "F32",
        "OG-MF-106",
        "new prop",
    ),
    (node("x: I32"), node("x: I32 @pii"), "node:A.x", "changing annotations", None, "as it was"),
    ("node A {}", "node A @team(x) {}", "node:A", "changing annotations", None, "as it was"),
    (
        "node A { x: I32 y: I32 @key(x, y) }",
        "node A { x: I32 y: I32 z: I32? }",
        "node:A",
        "removing constraints",
        None,
        "ids are made from the key",
    ),
    (
        "node A { x: I32 y: I32 }",
        "node A { x: I32 y: I32 @key(y, x) }",
        "node:A",
        "adding constraint @key(x, y)",
        None,
        "ids are made from the key",
    ),
    (
        node("t: String v: Vector(2)"),
        node("t: String v: Vector(2) @embed(t)"),
        "node:A.v",
        "@embed",
        None,
        "new Vector property",
    ),
    (
        "interface I { a: I32? } node N implements I {}",
        "interface I { a: I32? } node N { a: I32? }",
        "node:N",
        "changing implemented interfaces",
        None,
        "in the node itself",
    ),
]


@pytest.mark.parametrize(("old", "new", "entity", "reason", "code", "hint"), REFUSED)
def test_a_refused_change_says_why_and_what_to_do_instead(old, new, entity, reason, code, hint):
    found = plan(old, new)
    assert not found.supported
    step = next(step for step in found.steps if getattr(step, "entity", None) == entity)
    assert reason in step.reason
    assert step.code == code
    assert hint in step.hint


def test_applying_a_refused_plan_fails_with_the_first_message_and_all_steps():
    with pytest.raises(SchemaUnsupportedError) as caught:
        plan(node(""), node("x: I32 y: I32")).require_supported()
    assert caught.value.message.startswith("[OG-MF-103] node:A.x: ")
    assert len(caught.value.steps) == 2


def test_a_supported_plan_may_be_applied():
    plan(node(""), node("x: I32?")).require_supported()


@pytest.mark.parametrize(("loss", "mode"), [(False, "soft"), (True, "hard")])
def test_drops_are_hard_only_when_data_loss_is_allowed(loss, mode):
    old = "node A { k: String @key x: I32 } node B {} edge E: A -> B"
    steps = plan(old, "node A { k: String @key }", allow_data_loss=loss).to_json()["steps"]
    assert [(step["kind"], step["mode"], step["code"]) for step in steps] == [
        ("drop_property", mode, Code.DROP_PROPERTY),
        ("drop_type", mode, Code.DROP_EDGE_TYPE),
        ("drop_type", mode, Code.DROP_NODE_TYPE),
    ]


def test_renames_read_the_same_in_python_and_in_json():
    step = plan("node A {}", 'node B @rename_from("A") {}').steps[0]
    wanted = {"kind": "rename_type", "type_kind": "node", "from": "A", "to": "B"}
    assert {name: getattr(step, name) for name in wanted} == wanted
    assert step.to_json() == {**wanted, "tier": Tier.SAFE}
    with pytest.raises(AttributeError):
        _ = step.nothing


def test_a_rename_keeps_the_order_in_which_ids_are_made():
    old = "node P { alpha: String zeta: String @key(alpha, zeta) }"
    new = 'node P { a: String @rename_from("zeta") z: String @rename_from("alpha") @key(a, z) }'
    found = plan(old, new)
    assert found.catalog.nodes["P"].key == ("z", "a")
    assert compile_schema(new).nodes["P"].key == ("a", "z")
    again = plan_migration(found.catalog, compile_schema(new))
    assert again.steps == ()
    assert again.catalog.hash == found.catalog.hash


UNRESOLVED = [
    ('node B @rename_from("Ax") {}', 'node type B declares @rename_from("Ax")', "`Aa`"),
    ('node Aa { y: I32? @rename_from("zz") }', 'property Aa.y declares @rename_from("zz")', "`x`"),
    ('node Aa { x: I32 } node B @rename_from("Aa") {}', "consumed by more than one", "starts anew"),
    (
        'node Aa { y: I32 @rename_from("x") z: I32 @rename_from("x") }',
        "property Aa.x is consumed by more than one desired declaration: y and z",
        "starts anew",
    ),
]


ABC = "node A {} node B {} node C {}"
EXCHANGED = {
    "two types": (
        ABC,
        'node B @rename_from("A") {} node A @rename_from("B") {} node C {}',
        'node type B declares @rename_from("A"), but both B and A',
    ),
    "three types in a ring": (
        ABC,
        'node A @rename_from("B") {} node B @rename_from("C") {} node C @rename_from("A") {}',
        'node type A declares @rename_from("B"), but both A and B',
    ),
    "a name that another one still has": (
        ABC,
        'node A {} node B @rename_from("A") {} node C {}',
        'node type B declares @rename_from("A"), but both B and A',
    ),
    "a name that is there, from one that goes": (
        ABC,
        'node B @rename_from("A") {} node C {}',
        'node type B declares @rename_from("A"), but both B and A',
    ),
    "a chain": (
        ABC,
        'node D @rename_from("C") {} node C @rename_from("B") {} node A {}',
        'node type C declares @rename_from("B"), but both C and B',
    ),
    "edge types": (
        "node N {} edge E: N -> N edge F: N -> N",
        'node N {} edge E: N -> N @rename_from("F") edge F: N -> N @rename_from("E")',
        'edge type E declares @rename_from("F"), but both E and F',
    ),
    "two properties of one type": (
        "node N { a: I32? b: I32? }",
        'node N { a: I32? @rename_from("b") b: I32? @rename_from("a") }',
        'property N.a declares @rename_from("b"), but both a and b',
    ),
    "two properties of different types": (
        "node N { a: I32? b: String? }",
        'node N { a: String? @rename_from("b") b: I32? @rename_from("a") }',
        'property N.a declares @rename_from("b"), but both a and b',
    ),
    "properties of a type that is renamed": (
        "node N { a: I32? b: I32? }",
        'node M @rename_from("N") { a: I32? @rename_from("b") b: I32? }',
        'property M.a declares @rename_from("b"), but both a and b',
    ),
    "properties of an edge": (
        "node N {} edge E: N -> N { a: I32? b: I32? }",
        'node N {} edge E: N -> N { a: I32? b: I32? @rename_from("a") }',
        'property E.b declares @rename_from("a"), but both b and a',
    ),
}


@pytest.mark.parametrize(("old", "new", "message"), EXCHANGED.values(), ids=EXCHANGED.keys())
def test_names_cannot_be_exchanged_in_one_apply(old, new, message):
    with pytest.raises(SchemaError) as caught:
        plan(old, new)
    assert message in caught.value.message
    assert "third name" in caught.value.hint


def test_names_are_exchanged_by_way_of_a_third():
    texts = [
        "node A {} node B { z: I32? }",
        'node T @rename_from("A") {} node B { z: I32? }',
        'node T @rename_from("A") {} node A @rename_from("B") { z: I32? }',
        'node B @rename_from("T") {} node A @rename_from("B") { z: I32? }',
    ]
    accepted = compile_schema(texts[0])
    for text in texts[1:]:
        found = plan_migration(accepted, compile_schema(text))
        assert [step.kind for step in found.steps] == ["rename_type"]
        accepted = found.catalog


def test_a_hint_that_has_done_its_work_may_stay_when_its_name_lives_again():
    first = plan("node A {}", 'node B @rename_from("A") {}').catalog
    text = 'node B @rename_from("A") {} node A { x: I32? }'
    second = plan_migration(first, compile_schema(text))
    assert [step.kind for step in second.steps] == ["add_type"]
    again = plan_migration(second.catalog, compile_schema(text))
    assert again.steps == ()
    without = plan_migration(again.catalog, compile_schema('node B @rename_from("A") {}'))
    assert [step.kind for step in without.steps] == ["drop_type"]


@pytest.mark.parametrize(("new", "message", "hint"), UNRESOLVED)
def test_a_rename_hint_must_name_one_thing_that_is_there(new, message, hint):
    with pytest.raises(SchemaError) as caught:
        plan("node Aa { x: I32 }", new)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_hints_inside_a_new_type_rename_nothing():
    steps = plan("node A {}", 'node A {} node B { y: I32 @rename_from("x") }').to_json()["steps"]
    assert [step["kind"] for step in steps] == ["add_type"]
