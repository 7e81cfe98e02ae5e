"""Merging schemas: every pair of changes with its outcome, and laws over random walks."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from omnigraph.compiler.schema import compile_schema, plan_migration, steps_between
from omnigraph.compiler.schema.merge import merge_schemas
from omnigraph.compiler.schema.things import things_of
from omnigraph.model import plan
from schema_moves import Shape

BASE = """
interface Named { name: String }
node Person @description("who") implements Named {
    k: String @key
    age: I32? @description("years")
    rate: F32?
    role: enum(a, b)?
    city: String @default("x")
    mail: String?
    @range(age, 0..100)
    @unique(mail)
}
node Company { k: String @key  founded: I32? }
edge Knows: Person -> Person @card(0..5) { w: I32?  @index(w) }
edge At: Person -> Company
"""


def swap(old, new):
    assert old in BASE, old
    return [BASE.replace(old, new)]


def chain(*pairs):
    """Several applies, one after the other."""
    texts, text = [], BASE
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
        texts.append(text)
    return texts


# One thing, `age` of Person (and what stands beside it), changed in every way there is; the same on
# other things; and what only meets by a name. The first word is the kind of the step.
CHANGES = {
    "add_type Team": swap("edge At", "node Team { k: String @key }\nedge At"),
    "add_type Team otherwise": swap("edge At", "node Team { k: String @key  n: I32? }\nedge At"),
    "add_type Team by another key": swap("edge At", "node Team { n: String @key }\nedge At"),
    "add_type Likes": swap("edge At", "edge Likes: Person -> Person\nedge At"),
    "add_type Leads": swap("edge At", "edge Leads: Person -> Company\nedge At"),
    "add_type interface": swap("node Company", "interface Aged { born: I32? }\nnode Company"),
    "rename_type Company Firm": [
        BASE.replace("node Company", 'node Firm @rename_from("Company")').replace(
            "-> Company", "-> Firm"
        )
    ],
    "rename_type Company Team": [
        BASE.replace("node Company", 'node Team @rename_from("Company")').replace(
            "-> Company", "-> Team"
        )
    ],
    "rename_type Knows Likes": swap(
        "edge Knows: Person -> Person @card(0..5)",
        'edge Likes: Person -> Person @card(0..5) @rename_from("Knows")',
    ),
    "add_property Person.note": swap("    rate", "    note: String?\n    rate"),
    "add_property Person.note otherwise": swap("    rate", "    note: I32?\n    rate"),
    "add_property Named.note": swap("{ name: String }", "{ name: String  note: String? }"),
    "add_property Company.seat": swap("founded: I32?", "founded: I32?  seat: String?"),
    "rename_property age years": [
        BASE.replace(
            "    age: I32? @description", '    years: I32? @rename_from("age") @description'
        ).replace("@range(age", "@range(years")
    ],
    "rename_property age note": [
        BASE.replace(
            "    age: I32? @description", '    note: I32? @rename_from("age") @description'
        ).replace("@range(age", "@range(note")
    ],
    "rename_property mail note": [
        BASE.replace("    mail: String?", '    note: String? @rename_from("mail")').replace(
            "@unique(mail)", "@unique(note)"
        )
    ],
    "rename_property Named.name": swap(
        "{ name: String }", '{ title: String @rename_from("name") }'
    ),
    "extend_enum role c": swap("enum(a, b)", "enum(a, b, c)"),
    "extend_enum role d": swap("enum(a, b)", "enum(a, b, d)"),
    "widen_property age": swap("age: I32?", "age: I64?"),
    "widen_property rate": swap("rate: F32?", "rate: F64?"),
    "relax_nullability city": swap('city: String @default("x")', 'city: String? @default("x")'),
    "add_constraint unique age": swap("@unique(mail)", "@unique(mail)\n    @unique(age)"),
    "change_index mail": swap("mail: String?", 'mail: String? @index(language="german")'),
    "add_constraint index age": swap("@unique(mail)", "@unique(mail)\n    @index(age)"),
    "add_constraint range age 0..50": swap("0..100", "0..50"),
    "add_constraint range age 0..60": swap("0..100", "0..60"),
    "add_constraint check mail": swap("@unique(mail)", '@unique(mail)\n    @check(mail, "@")'),
    "remove_constraint range age": swap("    @range(age, 0..100)\n", ""),
    "remove_constraint unique mail": swap("    @unique(mail)\n", ""),
    "remove_constraint index w": swap("  @index(w)", ""),
    "change_cardinality Knows 0..7": swap("0..5", "0..7"),
    "change_cardinality Knows 0..9": swap("0..5", "0..9"),
    "update_type_metadata Person": swap('"who"', '"somebody"'),
    "update_type_metadata Person otherwise": swap('"who"', '"a human"'),
    "update_type_metadata Person instruction": swap(
        '@description("who")', '@description("who") @instruction("be kind")'
    ),
    "update_property_metadata age": swap('"years"', '"full years"'),
    "update_property_metadata age otherwise": swap('"years"', '"since birth"'),
    "update_property_metadata age default": swap(
        '@description("years")', '@description("years") @default(1)'
    ),
    "drop_type Company": [
        BASE.replace("node Company { k: String @key  founded: I32? }", "").replace(
            "edge At: Person -> Company", ""
        )
    ],
    "drop_type Knows": swap("edge Knows: Person -> Person @card(0..5) { w: I32?  @index(w) }", ""),
    "drop_property age": [
        BASE.replace('    age: I32? @description("years")\n', "").replace(
            "    @range(age, 0..100)\n", ""
        )
    ],
    "drop_property founded": swap("  founded: I32?", ""),
    "drop_property mail": [
        BASE.replace("    mail: String?\n", "").replace("    @unique(mail)\n", "")
    ],
    "drop_property age and again": [
        BASE.replace('    age: I32? @description("years")\n', "").replace(
            "    @range(age, 0..100)\n", ""
        ),
        BASE.replace('    age: I32? @description("years")\n', "    age: String?\n").replace(
            "    @range(age, 0..100)\n", ""
        ),
    ],
    "relax_nullability and widen": chain(
        ("age: I32?", "age: I64?"), ("city: String @d", "city: String? @d")
    ),
}

_AGE = (
    "rename_property age years", "rename_property age note", "widen_property age",
    "add_constraint unique age", "add_constraint index age", "add_constraint range age 0..50",
    "add_constraint range age 0..60", "update_property_metadata age",
    "update_property_metadata age otherwise", "update_property_metadata age default",
    "relax_nullability and widen",
)  # fmt: skip
# What cannot both be, and what the conflict may name: the type, the property.
CONFLICTS = {
    # added by both, not alike
    ("add_type Team by another key", "add_type Team"): "Team",
    ("add_type Team by another key", "add_type Team otherwise"): "Team, Team.n",
    ("add_property Person.note", "add_property Person.note otherwise"): "Person.note",
    # changed by one, dropped by the other
    ("drop_property mail", "change_index mail"): "Person.mail",
    # one name for two things
    ("add_type Team", "rename_type Company Team"): "Team",
    ("add_type Team otherwise", "rename_type Company Team"): "Team",
    ("add_type Team by another key", "rename_type Company Team"): "Team",
    ("add_type Likes", "rename_type Knows Likes"): "Likes",
    ("add_property Person.note", "rename_property age note"): "Person.note",
    ("add_property Person.note", "rename_property mail note"): "Person.note",
    ("add_property Person.note otherwise", "rename_property age note"): "Person.note",
    ("add_property Person.note otherwise", "rename_property mail note"): "Person.note",
    ("add_property Named.note", "rename_property age note"): "Person.note",
    ("add_property Named.note", "rename_property mail note"): "Person.note",
    ("rename_property age note", "rename_property mail note"): "Person.note",
    # what an interface brings is not what the type declares
    ("add_property Named.note", "add_property Person.note otherwise"): "Named.note, Person.note",
    # one thing, changed in two ways
    ("rename_type Company Firm", "rename_type Company Team"): "Firm, Team",
    ("rename_property age years", "rename_property age note"): "Person.years, Person.note",
    ("add_constraint range age 0..50", "add_constraint range age 0..60"): "Person.age",
    ("add_constraint range age 0..50", "remove_constraint range age"): "Person.age",
    ("add_constraint range age 0..60", "remove_constraint range age"): "Person.age",
    ("change_cardinality Knows 0..7", "change_cardinality Knows 0..9"): "Knows",
    ("update_type_metadata Person", "update_type_metadata Person otherwise"): "Person",
    ("update_property_metadata age", "update_property_metadata age otherwise"): "Person.age",
    # dropped by one, changed or referred to by the other; to take something away from what goes
    # is no conflict
    **{
        (drop, one): "Person, Person.age, Person.years, Person.note"
        for drop in ("drop_property age", "drop_property age and again")
        for one in _AGE
    },
    ("drop_property mail", "add_constraint check mail"): "Person",
    ("drop_property mail", "rename_property mail note"): "Person.note",
    ("drop_type Company", "add_type Leads"): "Leads",
    ("drop_type Company", "rename_type Company Firm"): "Firm",
    ("drop_type Company", "rename_type Company Team"): "Team",
    ("drop_type Company", "add_property Company.seat"): "Company",
    ("drop_type Knows", "rename_type Knows Likes"): "Likes",
    ("drop_type Knows", "change_cardinality Knows 0..7"): "Knows",
    ("drop_type Knows", "change_cardinality Knows 0..9"): "Knows",
}
_BOTH_WAYS = CONFLICTS | {(b, a): found for (a, b), found in CONFLICTS.items()}


def evolved(start, texts):
    """What a graph has after it applied the texts."""
    catalog = start
    for text in texts:
        made = plan_migration(catalog, compile_schema(text))
        made.require_supported()
        catalog = made.catalog
    return catalog


def told(steps, before, after):
    """Steps by ids, so that those of two branches can be compared. What one side declares itself
    and the other inherits is declared: no step that an apply could take, nor one for the table."""
    bodies = [
        _told(one, before, after)
        for step in steps
        if "provenance" not in str(step)
        for one in _parts(step)
    ]
    for body, old, new in _notes(steps, before, after):
        bodies += [
            {**body, "note": name, "value": str(new.get(name))}
            for name in old.keys() | new
            if old.get(name) != new.get(name)
        ]
    return sorted(json.dumps(body, sort_keys=True) for body in bodies)


def _parts(step):
    """One step a fact: an enum is extended value by value, texts are told by `_notes`."""
    if isinstance(step, plan.ExtendEnum):
        return [replace(step, added_values=[value]) for value in step.added_values]
    texts = isinstance(step, plan.UpdatePropertyMetadata | plan.UpdateTypeMetadata)
    return [] if texts else [step]


def _notes(steps, before, after):
    """For each step about texts: what it is about, its texts before and after."""
    old, new = things_of(before).types, things_of(after).types
    keys = {(one.kind, one.name): id_ for id_, one in new.items()}
    for step in steps:
        if isinstance(step, plan.UpdateTypeMetadata):
            id_ = keys[step.type_kind, step.name]
            facts = [
                {name: one for name, one in side[id_].facts.items() if "@" in name}
                for side in (old, new)
            ]
            yield {"kind": step.kind, "type": id_}, *facts
        elif isinstance(step, plan.UpdatePropertyMetadata):
            id_ = keys[step.type_kind, step.type_name]
            made = next(
                one for one in new[id_].properties.values() if one.name == step.property_name
            )
            facts = [
                {
                    name: one
                    for name, one in side[id_].properties[made.id].facts.items()
                    if "@" in name
                }
                for side in (old, new)
            ]
            yield {"kind": step.kind, "type": id_, "property": made.id}, *facts


def _told(step, before, after):
    body = step.to_json()
    body.pop("mode", None)
    kind = body.get("type_kind", "")
    old = isinstance(step, plan.DropType)
    name = body.pop("type_name", None) or body.get("to", body.get("name"))
    if isinstance(step, plan.RenameType):
        body["from"] = ""
    key = f"{kind}:{name}"
    catalog = before if old else after
    body["type"] = catalog.identities.type_id(key)
    if isinstance(step, plan.DropType | plan.AddType):
        return body
    if isinstance(step, plan.DropProperty):
        was = next(
            f"{kind}:{one}"
            for one in _names(before, kind)
            if before.identities.type_id(f"{kind}:{one}") == body["type"]
        )
        body["property"] = before.identities.property_id(was, body.pop("property_name"))
        return body
    ids = {
        prop.name: after.identities.property_id(key, prop.name)
        for prop in _names(after, kind)[name].properties
    }
    if isinstance(step, plan.RenameProperty):
        body["from"] = ids[body["to"]]
    if "property_name" in body:
        body["property_name"] = ids[body["property_name"]]
    if isinstance(step, plan.AddConstraint | plan.RemoveConstraint):
        text = json.dumps(body.pop("constraint"))
        for one, id_ in sorted(ids.items()):
            text = text.replace(f'"{one}"', f'"{id_}"')
        body["constraint"] = sorted(text)
        body.pop("tier")
    for field in ("from_type", "to_type"):
        if field in body:
            body[field] = body[field]["scalar"]
    if isinstance(step, plan.ChangeCardinality):
        body["from"] = body["tier"] = None
    return body


def _names(catalog, kind):
    return {"node": catalog.nodes, "edge": catalog.edges, "interface": catalog.interfaces}[kind]


@pytest.fixture(scope="module")
def states():
    base = compile_schema(BASE)
    return base, {name: evolved(base, texts) for name, texts in CHANGES.items()}


def test_the_changes_are_of_every_kind(states):
    base, made = states
    kinds = {step.kind for side in made.values() for step in steps_between(base, side)}
    every = {one.kind for one in plan._Step.__subclasses__()} - {"unsupported_change"}
    assert kinds == every
    for name, side in made.items():
        assert name.split()[0] in {step.kind for step in steps_between(base, side)}


def test_what_a_conflict_is_about_is_in_the_table_of_changes():
    assert {name for pair in CONFLICTS for name in pair} <= CHANGES.keys()


@pytest.mark.parametrize("mine", CHANGES)
def test_every_pair_of_changes_has_the_outcome_that_the_table_states(states, mine):
    base, made = states
    ours = made[mine]
    for other, theirs in made.items():
        found = merge_schemas(base, ours, theirs)
        expected = _BOTH_WAYS.get((mine, other))
        if expected is not None:
            assert found.catalog is None, (mine, other)
            for one in found.conflicts:
                named = f"{one.type_name}.{one.property_name}".removesuffix(".None")
                assert named in expected.split(", "), (mine, other)
                for step, side in ((one.step_ours, ours), (one.step_theirs, theirs)):
                    # A property of a type that both added is told by itself.
                    added = one.type_name not in base.nodes and one.property_name
                    assert added or step in steps_between(base, side), (mine, other)
            continue
        assert found.conflicts == (), (mine, other, [one.message for one in found.conflicts])
        if mine == other:
            assert found.catalog is ours
        assert_both(base, ours, theirs, found.catalog)


def assert_both(base, ours, theirs, merged):
    """From either side, the merged schema is the other side's steps away, but for shared ones."""
    assert compile_schema(merged.source).ir == merged.ir or merged.identities.born
    mine = told(steps_between(base, ours), base, ours)
    others = told(steps_between(base, theirs), base, theirs)
    both_added = {one for one in mine if "add_type" in one} & set(others)
    for done, wanted, side in ((mine, others, ours), (others, mine, theirs)):
        rest = told(steps_between(side, merged), side, merged)
        if both_added:
            continue  # a type that both added, not alike, has the properties of both
        # What goes with a type that the other side dropped is told with it.
        gone = [one for one in wanted if one not in done and one not in rest]
        assert rest == [one for one in wanted if one not in done and one not in gone]
        assert all(_of_dropped(one, done) for one in gone)


def _of_dropped(told_step, done):
    step = json.loads(told_step)
    of = (step["type"], step.get("property"))
    less = step["kind"] in ("remove_constraint", "drop_property")
    drops = [json.loads(one) for one in done if '"drop_' in one]
    return less and any(
        (one["kind"] == "drop_type" and one["type"] == of[0])
        or (one["kind"] == "drop_property" and one["type"] == of[0])
        for one in drops
    )


def test_merging_the_other_way_round_gives_the_same_schema(states):
    base, made = states
    for mine, other in itertools.combinations(made, 2):
        one, two = (
            merge_schemas(base, made[mine], made[other]),
            merge_schemas(base, made[other], made[mine]),
        )
        assert same(one, two), (mine, other)


def same(one, two):
    if one.catalog is None or two.catalog is None:
        return len(one.conflicts) == len(two.conflicts) > 0
    return (one.catalog.hash, one.catalog.identities) == (two.catalog.hash, two.catalog.identities)


def walk(start, shape, chance, moves):
    catalog = start
    for _ in range(moves):
        moved = shape.moved(chance)
        if moved is None:
            continue
        found = plan_migration(catalog, compile_schema(moved.text()))
        if found.supported:
            shape, catalog = moved.settled(), found.catalog
    return catalog, shape


@given(st.randoms(use_true_random=False))
def test_random_walks_merge_alike_both_ways_and_each_keeps_what_the_other_did(chance):
    start = Shape()
    base, shape = walk(compile_schema(start.text()), start, chance, chance.randint(0, 8))
    ours, _ = walk(base, shape.copy(), chance, chance.randint(0, 5))
    theirs, _ = walk(base, shape.copy(), chance, chance.randint(0, 5))
    one, two = merge_schemas(base, ours, theirs), merge_schemas(base, theirs, ours)
    assert same(one, two)
    if one.catalog is not None:
        assert_both(base, ours, theirs, one.catalog)
        # Merged again, from either side, nothing is left to do.
        again = merge_schemas(ours, ours, one.catalog).catalog
        assert (again.hash, again.identities) == (one.catalog.hash, one.catalog.identities)
