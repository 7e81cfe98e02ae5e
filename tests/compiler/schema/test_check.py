"""Declarations that parse but make no sense, and those that do."""

from __future__ import annotations

import pytest

from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import InputError, ParseError, SchemaError

N = "node N { a: String } "

WRONG = [
    # types
    ("node N { a: Strin }", "unknown type 'Strin' of N.a", "`String`"),
    ("node N { a: int }", "unknown type 'int'", "`I64`"),
    ("node N { a: Qqqqqqq }", "unknown type", "the types are String"),
    ("node N { a: [Foo] }", "unknown type 'Foo'", None),
    ("node N { a: enum(x, y, x) }", "duplicate enum value 'x' in N.a", None),
    # names
    ("node N { a: String a: I32 }", "duplicate property 'a' in node N", None),
    ("node N { id: String }", "property name 'id' is reserved", "without declaring"),
    ("node N { src: String }", "property name 'src' is reserved", "without declaring"),
    (N + "edge E: N -> N { dst: String }", "property name 'dst' is reserved", None),
    (N + "edge E: N -> N { from: Date }", "'from' is reserved on edges", "`valid_from`"),
    ("node N { __x: String }", "property name '__x' is reserved", "another name"),
    # keys and column constraints
    ("node N { a: String? @key }", "@key property N.a cannot be nullable", "remove the `?`"),
    ("node N { a: String? @key(a) }", "@key property N.a cannot be nullable", None),
    ("node N { a: String @key b: String @key }", "declares multiple @key", "`@key(a, b)`"),
    ("node N { a: String @key b: String @key(b) }", "declares multiple @key", "`@key(a, b)`"),
    ("node N { a: [I32] @unique }", "@unique is not supported on list property N.a", None),
    ("node N { a: [I32] @index(a) }", "@index is not supported on list property N.a", None),
    ("node N { a: Vector(2) @unique(a) }", "@unique is not supported on vector property", None),
    ("node N { a: String @unique(a, a) }", "names property 'a' twice", None),
    ("node N { name: String @index(nmae) }", "unknown property 'nmae'", "`name`"),
    ("node N { a: String @unique(src) }", "unknown property 'src'", None),
    ("node N @unique { a: String }", "@unique is only supported on node properties", "braces"),
    # range and check
    ("node N { a: I32 @range }", "@range requires property name and bounds", "@range(a, 0..100)"),
    ("node N { a: I32 @range(a, 9..0) }", "has min 9 > max 0", None),
    ("node N { a: [I32] @range(a, 0..9) }", "requires a numeric type, got [I32]", None),
    ("node N { a: I32 @range(0..9, a) }", "@range requires property name and bounds", None),
    ("node N { a: I32 @range(a, 0..9, 1) }", "expected range bounds", None),
    ("node N { a: I32 @range(a, 0..99999999999999999999) }", "a bound beyond 64 bits", None),
    ('node N { a: [String] @check(a, "x") }', "requires a String type, got [String]", None),
    ('node N { a: String @check(a, "(?=x)") }', "uses look-around", "second @check"),
    ('node N { a: String @check(a, "(a)\\\\1") }', "uses a back-reference", None),
    # annotations
    ("node N { a: String @embed(a) }", "@embed is only supported on Vector", None),
    ("node N { v: Vector(2) @embed(x) }", "unknown source property 'x'", None),
    ("node N { i: I32 v: Vector(2) @embed(i) }", "@embed source property N.i must be", None),
    ('node N { t: String v: Vector(2) @embed(t, model="") }', "non-empty string", None),
    ('node N { a: String @description("") }', "@description on property N.a requires", "@desc"),
    ("node N @instruction { a: String }", "@instruction on node N requires a non-empty", None),
    ('node N @description("a") @description("b") {}', "node N declares @description multi", None),
    ("node N @rename_from(5) {}", "@rename_from on node N requires exactly one", None),
    ("node N @x(1, a=1, a=2) {}", "@x on node N names an argument twice", None),
    # defaults
    ("node N { a: I32 @default }", "@default on N.a requires exactly one value", "`@default(0)`"),
    ("node N { a: I32 @default(1.5) }", "@default(1.5) does not fit N.a: I32", "whole number"),
    ("node N { a: I32 @default(true) }", "does not fit N.a: I32", None),
    ("node N { a: I32 @default(2147483648) }", "does not fit", None),
    ("node N { a: U32 @default(-1) }", "does not fit", None),
    ("node N { a: Bool @default(1) }", "does not fit", "`@default(true)`"),
    ('node N { a: F64 @default("1") }', "does not fit", None),
    ("node N { a: enum(x, y) @default(z) }", "@default(z) does not fit", "`x`, `y`"),
    ('node N { a: Date @default("2024-02-30") }', "does not fit", "2024-01-31"),
    ('node N { a: DateTime @default("2024-02-03") }', "does not fit", "T12:00:00Z"),
    ("node N { a: [I32] @default(1) }", "@default is not supported on [I32] property", None),
    ("node N { a: Blob @default(x) }", "@default is not supported on Blob property", None),
    ("node N { a: String @key @default(x) }", "not supported on key property N.a", None),
    ("node N { a: String @default(x) @key(a) }", "not supported on key property N.a", None),
    ("node N { a: I32 @default(9) @range(a, 0..5) }", "outside of its @range", None),
    ("node N @default(1) {}", "@default is only supported on node properties", "behind"),
    # interfaces
    (
        "interface I { a: I32 } interface J { a: I64 } node N implements I, J {}",
        "conflicting declarations of property 'a'",
        None,
    ),
    ("interface Named { a: I32 } node N implements Name {}", "unknown interface 'Name'", "`Named`"),
    ("interface I { a: String? @key }", "@key property I.a cannot be nullable", None),
    # edges
    (N + "edge E: N -> N @card(3..1)", "has min 3 > max 1", "`@card(1..3)`"),
    (N + 'edge E: N -> N { a: String @check(a, "x") }', "@check constraint is not supported", None),
]


@pytest.mark.parametrize(("source", "message", "hint"), WRONG)
def test_a_wrong_declaration_is_named_with_a_way_out(source, message, hint):
    with pytest.raises(ParseError) as caught:
        compile_schema(source)
    assert message in caught.value.message
    assert (hint in (caught.value.hint or "")) if hint else True


MISFITS = [
    ("node N {} node N {}", "duplicate node type: N", 11),
    ("interface I {} interface I {}", "duplicate interface: I", 16),
    (N + "edge E: N -> N edge E: N -> N", "duplicate edge type: E", 37),
    (N + "edge Knows: N -> N edge KNOWS: N -> N", "only in letter case", 41),
    (N + "edge E: M -> N", "edge E references unknown source type: M", 30),
]


@pytest.mark.parametrize(("source", "message", "column"), MISFITS)
def test_declarations_that_do_not_fit_together_are_schema_errors(source, message, column):
    with pytest.raises(SchemaError) as caught:
        compile_schema(source)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (1, column)


def test_all_problems_of_a_file_are_reported_wrong_declarations_first():
    source = "edge E: A -> N\nnode N {\n  a: Strin\n  b: [Blob]\n  @unique(c)\n}\nnode N {}"
    with pytest.raises(InputError) as caught:
        compile_schema(source)
    found = [(entry["line"], entry["message"].split(":")[0]) for entry in caught.value.errors]
    assert found == [
        (3, "parse error"),
        (4, "parse error"),
        (5, "parse error"),
        (1, "catalog error"),
        (7, "catalog error"),
    ]
    assert caught.value.message == caught.value.errors[0]["message"]


def test_a_property_with_an_unknown_type_causes_no_second_error():
    with pytest.raises(ParseError) as caught:
        compile_schema("node N { a: Strin @unique(a) @index(a) }")
    assert len(caught.value.errors) == 1


def test_interfaces_flow_into_nodes_with_their_constraints():
    catalog = compile_schema(
        """
        interface Named { name: String @key @description("how people say it") }
        interface Seen { seen: DateTime? @index  name: String @unique }
        node P implements Named, Seen { age: I32? }
        """
    )
    node = catalog.nodes["P"]
    assert [(prop.name, prop.inherited_from) for prop in node.properties] == [
        ("age", None),
        ("name", "Named"),
        ("seen", "Seen"),
    ]
    assert (node.key, node.unique, node.index) == (("name",), (("name",),), (("seen",),))
    assert node.by_name["name"].description == "how people say it"


def test_the_order_of_interfaces_does_not_matter():
    bodies = "interface A { x: I32 @unique } interface B { x: I32 @index } "
    one = compile_schema(bodies + "node N implements A, B {}")
    two = compile_schema(bodies + "node N implements B, A {}")
    assert one.hash == two.hash


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("I32 @default(-3)", -3),
        ("U64 @default(18446744073709551615)", 2**64 - 1),
        ("F32 @default(1)", 1.0),
        ("F64 @default(-0.5)", -0.5),
        ("Bool @default(false)", False),
        ('String @default("")', ""),
        ("String @default(word)", "word"),
        ("enum(a, 2024) @default(a)", "a"),
        ('enum(a, 2024) @default("2024")', "2024"),
        ('Date @default("2024-02-29")', "2024-02-29"),
        ('DateTime @default("2024-02-29T01:02:03.9+02:00")', "2024-02-29T01:02:03.9+02:00"),
        ('DateTime? @default("2024-02-29t01:02:03.123456789z")', "2024-02-29t01:02:03.123456789z"),
        ("I32? @default(7)", 7),
    ],
)
def test_a_default_is_a_value_of_the_type(written, value):
    prop = compile_schema(f"node N {{ a: {written} }}").nodes["N"].properties[0]
    assert prop.default == value
    assert type(prop.default) is type(value)


def test_a_composite_key_stands_in_identity_order():
    node = compile_schema("node M { tenant: String slot: U32 @key(tenant, slot) }").nodes["M"]
    assert node.key == ("slot", "tenant")


def test_body_and_property_forms_mean_the_same():
    behind = compile_schema("node N { a: String @key b: I32 @unique @index }")
    body = compile_schema("node N { a: String b: I32 @key(a) @unique(b) @index(b) @index(b) }")
    assert behind.hash == body.hash


def test_compiling_the_same_text_again_is_a_look_up():
    assert compile_schema(N) is compile_schema(N)
