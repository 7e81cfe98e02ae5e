"""Laws of the schema language over generated and mutated texts."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schema_texts import schemas

from omnigraph.compiler.schema import (
    catalog_from_ir,
    compile_schema,
    format_schema,
    plan_migration,
    print_schema,
)
from omnigraph.compiler.schema.compile import decode
from omnigraph.compiler.schema.parse import parse_schema
from omnigraph.compiler.schema.printer import laid_out
from omnigraph.compiler.text import SourceText
from omnigraph.errors import CorruptGraphError, InputError
from omnigraph.model.plan import SchemaPlan

# A generated schema is costly to make; the long profile multiplies this like everything else.
FEW = settings(max_examples=settings().max_examples // 3)

EVERYTHING = """
// A schema that uses every form once.
interface Named { name: String @key }
node Person @description("a human") implements Named {
    age: I32? /* in years */
    email: String? @unique
    role: enum(admin, user)? @default(user)
    bio: String? @index
    vec: Vector(4)? @embed("bio", model="m1") @index
    tags: [String]?
    @range(age, 0..150)
    @check(email, "^[^@]+@[^@]+$")
}
node Company { name: String @key  founded: I32? @index, rating: F64 @default(-1.5) }
edge Knows: Person -> Person { since: Date?  @unique(src, dst) }
edge WorksAt: Person -> Company @card(0..1) @instruction("current job only")
"""


def parsed(text):
    return parse_schema(SourceText(text, "schema"))


@FEW
@given(schemas())
def test_printing_and_parsing_gives_the_tree_back(tree):
    assert parsed(laid_out(tree)) == tree


@FEW
@given(schemas())
def test_printing_a_catalog_keeps_its_meaning(tree):
    catalog = compile_schema(laid_out(tree))
    assert compile_schema(print_schema(catalog)).ir == catalog.ir


@FEW
@given(schemas(), st.randoms(use_true_random=False))
def test_order_of_declarations_and_members_leaves_no_trace_in_the_hash(tree, chance):
    shuffled = [_shuffled(decl, chance) for decl in tree]
    chance.shuffle(shuffled)
    assert compile_schema(laid_out(shuffled)).hash == compile_schema(laid_out(tree)).hash


def _shuffled(decl, chance):
    members = list(decl.members)
    chance.shuffle(members)
    values = {name: getattr(decl, name) for name in decl.__struct_fields__}
    return type(decl)(**(values | {"members": tuple(members)}))


@FEW
@given(schemas())
def test_a_stored_catalog_comes_back_whole(tree):
    catalog = compile_schema(laid_out(tree))
    assert catalog_from_ir(catalog.ir, catalog.source) == catalog


@FEW
@given(schemas())
def test_the_ir_alone_says_everything_but_the_order(tree):
    catalog = compile_schema(laid_out(tree))
    stored = decode(catalog.ir)
    # A source that no longer compiles is kept as text only; the IR still decides.
    kept = catalog_from_ir(catalog.ir, "not a schema")
    assert (kept.hash, kept.source) == (catalog.hash, "not a schema")
    assert plan_migration(kept, catalog).steps == ()
    for name, node in catalog.nodes.items():
        assert {prop.name: prop.type for prop in stored.nodes[name].properties} == {
            prop.name: prop.type for prop in node.properties
        }
        assert stored.nodes[name].key == node.key


@FEW
@given(schemas(), schemas())
def test_a_plan_always_explains_itself_and_ends_where_it_should(old, new):
    accepted, desired = compile_schema(laid_out(old)), compile_schema(laid_out(new))
    plan = plan_migration(accepted, desired)
    assert isinstance(plan, SchemaPlan)
    assert (plan.steps == ()) == (accepted.hash == desired.hash)
    assert plan_migration(plan.catalog, desired).steps == ()
    for step in plan.to_json()["steps"]:
        assert step["kind"] != "unsupported_change" or (step["reason"] and step["hint"])


@FEW
@given(schemas())
def test_formatting_twice_is_formatting_once(tree):
    text = laid_out(tree)
    once = format_schema(text)
    assert format_schema(once) == once
    assert parsed(once) == tree


@pytest.mark.parametrize(
    "text",
    [
        EVERYTHING,
        "// only a comment",
        "node A { // behind the brace\n a: I32 // behind a\n\n\n // before b\n b: I32 /* c */ }",
        "node A {}// tight\n/* block\n of two lines */ node B {} // last",
        "edge E: A -> B // one\nedge F: A -> B\n\n\nedge G: A -> B { w: I32 } edge H: A -> B",
        'node A @description("// no comment /* either */") { /* alone */ }',
    ],
)
def test_formatting_keeps_every_comment_and_the_meaning(text):
    once = format_schema(text)
    assert parsed(once) == parsed(text)
    assert format_schema(once) == once
    for comment in ("in years", "behind the brace", "behind a", "before b", "tight", "last", "one"):
        assert (comment in once) == (comment in text)


@pytest.mark.parametrize(
    ("ir", "part"),
    [
        ("{", "unreadable"),
        ('{"ir_version":1}', "unreadable"),
        ('{"ir_version":9,"interfaces":[],"nodes":[],"edges":[]}', "IR version 9"),
    ],
)
def test_a_broken_ir_is_a_corrupt_graph(ir, part):
    with pytest.raises(CorruptGraphError, match=part):
        catalog_from_ir(ir, "node A {}")


def test_a_source_of_another_meaning_is_a_corrupt_graph():
    stored = compile_schema("node A { a: I32 }")
    with pytest.raises(CorruptGraphError, match="does not compile to the stored schema"):
        catalog_from_ir(stored.ir, "node A { a: I64 }")


# --- mutation: no text may do anything but compile or be refused by us -------------------------


def test_mutated_texts_compile_or_are_refused_by_us():
    chance = random.Random(7)
    outcomes = {mutated_outcome(EVERYTHING, chance) for _ in range(1500)}
    assert outcomes == {"compiled", "refused"}


def mutated_outcome(text, chance):
    """Change a few characters, compile, and say what came of it."""
    chars = list(text)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(chars))
        match chance.randrange(4):
            case 0:
                del chars[at]
            case 1:
                chars.insert(at, chance.choice('{}()[]:,@?="\\/*.->\n\x00é9aZ_'))
            case 2:
                chars[at] = chr(chance.randrange(0x2000))
            case _:
                end = min(len(chars), at + chance.randint(1, 30))
                chars[at:at] = chars[at:end]
    try:
        compile_schema("".join(chars))
    except InputError:
        return "refused"
    return "compiled"
