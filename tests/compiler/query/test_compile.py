"""What a plan says: names resolved, conditions placed, groups and orders spelled out."""

from __future__ import annotations

import datetime as dt

import pytest

from omnigraph.compiler.query import compile_query, ir
from omnigraph.compiler.schema import compile_schema
from omnigraph.model.schema import Scalar

SCHEMA = compile_schema("""
node Person {
  name: String @key
  age: I32?
  score: F64?
  tags: [String]?
  born: Date?
  seen: DateTime?
  bio: String?
  vec: Vector(2)? @embed("bio", model="m1")
  level: I64 @default(3)
}
node Company { name: String @key }
node Shared { label: String }
edge Knows: Person -> Person { since: Date?  weight: F32? }
edge WorksAt: Person -> Company
edge Shared: Shared -> Shared { weight: I32? }
""")


def _plan(clauses: str, rest: str = "return { $p.name }", params: str = "") -> ir.ReadPlan:
    source = f"query q({params}) {{ match {{ $p: Person {clauses} }} {rest} }}"
    return compile_query(source, SCHEMA).plan


def _mutation(statements: str, params: str = "") -> tuple[ir.Statement, ...]:
    source = f"query q({params}) {{ {statements} }}"
    return compile_query(source, SCHEMA).plan.statements


# --- match ---


def test_conditions_on_one_variable_sit_at_its_binding():
    plan = _plan(
        """$p $w:knows $f  $w.since is not null  $p.age > 1 and $f.age > 2
           $p.age < $f.age  $f: Person { name: "b" }"""
    )
    person, friend = plan.match.bindings
    assert [type(c).__name__ for c in person.conditions] == ["Compare"]
    assert {c.left.prop for c in friend.conditions} == {"age", "name"}
    assert friend.declared
    (walk,) = plan.match.traversals
    assert walk.edge_conditions == (
        ir.IsNull(
            item=ir.PropertyRef(var="w", prop="since", type=walk.edge_conditions[0].item.type),
            negated=True,
        ),
    )
    (rest,) = plan.match.filters
    assert rest.variables == {"p", "f"}


def test_a_variable_reached_by_a_walk_takes_its_type_from_the_edge():
    plan = _plan('$p worksAt $c $c.name = "x"', "return { $c.name }")
    company = plan.match.bindings[1]
    assert (company.var, company.type_name, company.declared) == ("c", "Company", False)
    assert len(company.conditions) == 1


def test_wildcards_get_hidden_names_of_their_own():
    plan = _plan("$p knows $_  $_ knows $p  $p $_:knows $f")
    ends = [(walk.src, walk.dst, walk.edge_var) for walk in plan.match.traversals]
    names = {name for end in ends for name in end if name}
    assert len(names) == 5
    assert sum(plan.variables[name].hidden for name in names) == 3
    assert all(("#" in name) == plan.variables[name].hidden for name in names)


def test_two_inner_blocks_may_use_one_name_for_different_things():
    plan = _plan("not { $p knows $x } not { $p worksAt $x }")
    first, second = (block.block.traversals[0].dst for block in plan.match.negations)
    assert first != second
    assert {plan.variables[first].type_name, plan.variables[second].type_name} == {
        "Person",
        "Company",
    }


def test_a_negation_names_the_outer_variables_it_uses_at_any_depth():
    plan = _plan("$p knows $f not { $p worksAt $c not { $c.name = $f.name } }")
    (outer,) = plan.match.negations
    assert outer.outer == {"p", "f"}
    (inner,) = outer.block.negations
    assert inner.outer == {"c", "f"}
    assert inner.block.bindings == ()
    assert inner.block.filters[0].variables == {"c", "f"}


def test_a_binding_in_an_inner_block_filters_the_outer_variable():
    plan = _plan("not { $p: Person { age: 3 } }")
    block = plan.match.negations[0].block
    assert block.bindings == ()
    assert block.filters[0].variables == {"p"}


def test_optional_variables_are_nullable_outside_and_filter_late():
    plan = _plan("optional { $p knows $f $f.age > 3 } $f.age < 9", "return { $f.name, $f }")
    (optional,) = plan.match.optionals
    assert optional.outer == {"p"}
    assert optional.introduces == ("f",)
    assert optional.block.bindings[0].conditions
    assert [item.variables for item in plan.match.late_filters] == [{"f"}]
    assert plan.match.filters == ()
    assert [column.nullable for column in plan.columns] == [True, True]
    assert plan.variables["f"].nullable
    assert not plan.variables["p"].nullable


def test_edges_between_two_types_have_at_most_one_hop():
    walks = _plan("$p worksAt{1,3} $c $p knows{2,4} $f").match.traversals
    assert [(walk.min_hops, walk.max_hops) for walk in walks] == [(1, 1), (2, 4)]


def test_bare_variables_compare_by_id():
    plan = _plan("$p knows $f $p != $f")
    assert plan.match.filters[0].expr == ir.Compare(
        op=ir.CompareOp.NE, left=ir.IdRef(var="p"), right=ir.IdRef(var="f")
    )


def test_ids_and_endpoints_can_be_read_and_matched():
    plan = _plan('$p $w:knows $f $p: Person { id: "x" }', "return { $p.id, $w.id, $w.src, $w.dst }")
    assert [column.name for column in plan.columns] == ["p.id", "w.id", "w.src", "w.dst"]
    assert plan.projections[2].expr == ir.EndpointRef(var="w", side="src")
    assert plan.match.bindings[0].conditions[0].left == ir.IdRef(var="p")


def test_a_parameter_of_the_same_name_is_the_value_of_an_inline_match():
    source = "query q($p: String) { match { $p: Person { name: $p } } return { $p.age } }"
    plan = compile_query(source, SCHEMA).plan
    assert isinstance(plan.match.bindings[0].conditions[0].right, ir.Param)


# (condition, the typed form of its parts)
CONDITIONS = [
    ('$p.tags contains "a"', ir.ListContains),
    ('"a" in $p.tags', ir.ListContains),
    ('$p.name contains "a"', ir.TextContains),
    ('$p.name starts_with "a"', ir.StartsWith),
    ("$p.age in [1, 2]", ir.InList),
    ("$p.age in []", ir.InList),
    ("$p.age not in [1]", ir.Not),
    ("$p.age is null", ir.IsNull),
    ("$p.age > 1 or $p.age < 0", ir.Or),
    ("not $p.age > 1", ir.Not),
    ('search($p.bio, "a")', ir.TextMatch),
    ('search($p.bio, "a") = true', ir.TextMatch),
    ('search($p.bio, "a") != true', ir.Not),
]


@pytest.mark.parametrize(("condition", "kind"), CONDITIONS)
def test_each_condition_has_its_form(condition, kind):
    (binding,) = _plan(condition).match.bindings
    (found,) = binding.conditions
    assert isinstance(found, kind)
    assert found.type.scalar is Scalar.BOOL


# (clauses, what stands in the block: walks and conditions)
BARE = [
    ("$a starts_with $b", ["StartsWith"]),
    ("$a in $l", ["InList"]),
    ("$p in $l", ["InList"]),
    ("$p starts_with $b", ["StartsWith"]),
    ("$f: Person $p starts_with $f", ["StartsWith"]),
    ("$a starts_with $b and $p.age > 1", ["StartsWith", "Compare"]),
    ("$a in $l or $p.age > 1", ["Or"]),
    ("optional { $p knows $f $f in $l }", []),
    ("$p contains $f", ["walk"]),
    ("$p contains $a", ["TextContains"]),
    # A name that the pattern binds is no parameter any more, in whatever order it is told.
    ("$p contains $a $p knows $a", ["walk", "walk"]),
]


@pytest.mark.parametrize(("clauses", "kinds"), BARE)
def test_a_word_between_two_variables_walks_only_a_declared_edge_between_nodes(clauses, kinds):
    schema = compile_schema("""
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
edge Contains: Person -> Person
""")
    source = (
        f"query q($a: String, $b: String, $l: [String]) {{ match {{ $p: Person {clauses} }} "
        "return { $p.name } }"
    )
    match = compile_query(source, schema).plan.match
    conditions = [condition for binding in match.bindings for condition in binding.conditions]
    conditions += [item.expr for item in (*match.filters, *match.late_filters)]
    found = ["walk"] * len(match.traversals) + [type(item).__name__ for item in conditions]
    assert sorted(found) == sorted(kinds)


# (clauses after `$p: Person`, how many they are)
LINES = [
    ("$p.age > 3\n-1 < $p.age", 2),
    ("$p.age > 3\n- 1 < $p.age", 2),
    ("$p.age > 3\n-$p.age in [1, 2]", 2),
    ("$p.name contains $p.name\n-$p.age is null", 2),
    ("$p.age > 3\n($p.age < 9 or $p.age = 10)", 2),
    ("$p.age > 3\n-1", 1),
    ("$p.age\n- 1 > 3", 1),
    ("($p.age > 3\n-1)", 1),
]


@pytest.mark.parametrize(("clauses", "count"), LINES)
def test_a_line_that_begins_with_a_minus_is_a_clause_if_it_tests_something(clauses, count):
    (binding,) = _plan(clauses).match.bindings
    assert len(binding.conditions) == count


def test_literals_have_the_python_form_of_their_type():
    plan = _plan(
        """$p.born = date("2024-02-29") $p.seen < datetime("1970-01-01T01:00:00.5+01:00")
           $p.age > -3 $p.score < 1e3"""
    )
    values = [condition.right.value for condition in plan.match.bindings[0].conditions]
    assert values == [dt.date(2024, 2, 29), 500, -3, 1000.0]


# (expression, scalar, nullable)
ARITHMETIC = [
    ("$p.level + 1", Scalar.I64, False),
    ("$p.level / 2", Scalar.F64, False),
    ("$p.level % 0", Scalar.I64, True),
    ("$p.age * 2", Scalar.I64, True),
    ("$p.level * 2.0", Scalar.F64, False),
    ("-$p.score", Scalar.F64, True),
]


@pytest.mark.parametrize(("expression", "scalar", "nullable"), ARITHMETIC)
def test_arithmetic_has_the_type_of_its_result(expression, scalar, nullable):
    (column,) = _plan("", f"return {{ {expression} as x }}").columns
    assert (column.type.scalar, column.nullable) == (scalar, nullable)


# (expression, may it be null)
CONDITIONS_RETURNED = [
    ("$p.level > 3", False),
    ("$p.age > 3", True),
    ("$p.level > 3 and $p.age is null", False),
    ("not ($p.age in [1] or $p.level > 3)", True),
    ("$p.name contains $x", True),
    ('$p.tags contains "a"', True),
    ('search($p.name, "a")', False),
]


@pytest.mark.parametrize(("expression", "nullable"), CONDITIONS_RETURNED)
def test_a_returned_condition_says_whether_it_can_be_null(expression, nullable):
    (column,) = _plan("", f"return {{ {expression} as x }}", "$x: String?").columns
    assert (column.kind, column.nullable) == ("bool", nullable)


# --- return, order ---


# (projections, column names)
NAMES = [
    ("$p, $p.name, $p.age as years", ["p", "p.name", "years"]),
    ("7, 8, $x, now()", ["literal", "literal_2", "x", "now"]),
    (
        "$p.name, count($p), count($p.age), sum($p.age), count(*)",
        ["p.name", "p", "p.age", "p.age_2", "count"],
    ),
    ('$p.age + 1, bm25($p.bio, "a")', ["expr", "bm25"]),
    ("$p.name, $p.name as p_name, $p.name", ["p.name", "p_name", "p.name_2"]),
]


@pytest.mark.parametrize(("projections", "names"), NAMES)
def test_columns_are_named_once(projections, names):
    plan = _plan("", f"return {{ {projections} }}", params="$x: I32")
    assert [column.name for column in plan.columns] == names
    assert [item.name for item in plan.projections] == names


def test_kinds_of_columns_are_described():
    plan = _plan("", "return { $p, $p.age, $p.level, $p.tags, $p.vec, $x, $p.name }", "$x: String")
    kinds = [column.kind for column in plan.columns]
    assert kinds == ["object", "int", "bigint", "list", "vector", "string", "string"]


def test_groups_are_spelled_out():
    plan = _plan(
        "$p worksAt $c",
        """return { $c.name, count(*) as n, sum($p.age) as s, sum($p.age) / count(*) as mean }
           order { n desc, $c.name, max($p.age) }""",
    )
    assert plan.grouping is not None
    assert len(plan.grouping.keys) == 1
    assert [call.fn for call in plan.grouping.aggregates] == ["count", "sum", "max"]
    name, count, total, mean = (item.expr for item in plan.projections)
    assert isinstance(name, ir.KeyRef)
    assert (count.index, total.index) == (0, 1)
    assert isinstance(mean, ir.Arithmetic)
    assert [ordering.column for ordering in plan.orderings] == [1, 0, None]
    assert plan.tie_break == (ir.KeyRef(index=0, type=name.type),)
    assert [column.nullable for column in plan.columns] == [False, False, True, True]
    assert plan.columns[2].type.scalar is Scalar.I64


def test_a_grouped_entity_can_be_ordered_by_its_properties():
    plan = _plan("$p knows $f", "return { $p, count($f) as n } order { $p.age }")
    assert plan.grouping is not None
    assert len(plan.grouping.keys) == 2
    assert plan.orderings[0].expr == ir.KeyRef(index=1, type=plan.grouping.keys[1].type)


def test_ties_are_broken_by_the_ids_of_all_visible_variables():
    plan = _plan("$p $w:knows $f $f knows $_ not { $f worksAt $c }")
    assert plan.tie_break == tuple(ir.IdRef(var=var) for var in ("f", "p", "w"))


# (ordering, descending, rank)
RANKS = [
    ('nearest($p.vec, "a")', False, True),
    ('bm25($p.bio, "a")', True, True),
    ('bm25($p.bio, "a") desc', True, True),
    ('bm25($p.bio, "a") asc', False, True),
    ('rrf(bm25($p.bio, "a"), nearest($p.vec, $v))', True, True),
    ("$p.age desc", True, False),
    ("score", True, True),
    ("score desc", True, True),
    ("score asc", False, True),
    ("years", False, False),
]


@pytest.mark.parametrize(("ordering", "descending", "rank"), RANKS)
def test_ranks_are_ordered_best_first(ordering, descending, rank):
    rest = (
        f'return {{ bm25($p.bio, "a") as score, $p.age as years }} order {{ {ordering} }} limit 3'
    )
    (found,) = _plan("", rest, "$v: Vector(2)").orderings
    assert (found.descending, found.rank) == (descending, rank)


def test_text_for_nearest_carries_the_model_of_the_property():
    plan = _plan(
        "", "return { $p.name } order { nearest($p.vec, $q) } limit $n", "$q: String, $n: I64"
    )
    rank = plan.orderings[0].expr
    assert isinstance(rank, ir.Nearest)
    assert (rank.embed_text, rank.embed_model, rank.dimension) == (True, "m1", 2)
    assert plan.limit == ir.Param(name="n", type=plan.limit.type)


@pytest.mark.parametrize("tail", ["limit 5 offset 2", "offset 2 limit 5", "limit 5\noffset 2"])
def test_limit_and_offset_come_in_either_order(tail):
    plan = _plan("", "return { $p.name } " + tail)
    assert (plan.limit.value, plan.offset.value) == (5, 2)


@pytest.mark.parametrize("rest", ["return distinct { $p.age }", "return { distinct $p.age }"])
def test_distinct_stands_before_or_inside_the_braces(rest):
    plan = _plan("", rest)
    assert plan.distinct
    assert len(plan.columns) == 1
    assert plan.tie_break == ()


# --- mutations ---


def test_an_insert_holds_typed_values_and_declared_defaults():
    (insert,) = _mutation(
        """insert Person { name: "a", score: 1, born: "2024-01-01", tags: [], vec: [1, 2],
           seen: now(), age: null }"""
    )
    values = {
        item.property: getattr(item.value, "value", item.value) for item in insert.assignments
    }
    assert values == {
        "name": "a",
        "score": 1.0,
        "born": dt.date(2024, 1, 1),
        "tags": (),
        "vec": (1.0, 2.0),
        "seen": ir.Now(),
        "age": None,
        "level": 3,
    }
    assert all(
        item.type == SCHEMA.nodes["Person"].by_name[item.property].type
        for item in insert.assignments
    )


def test_edges_are_inserted_with_ends_and_updated_by_them():
    insert, update = _mutation(
        """insert Knows { from: $a, to: "b", weight: 1 }
           update Knows set { weight: 2.5 } where from = $a and to != "b" and id is not null""",
        "$a: String",
    )
    assert (insert.kind, insert.from_id.name, insert.to_id.value) == ("edge", "a", "b")
    assert update.kind == "edge"
    source, target, identity = update.where.items
    assert source.left == ir.EndpointRef(var=ir.SELF, side="src")
    assert target.left == ir.EndpointRef(var=ir.SELF, side="dst")
    assert identity.item == ir.IdRef(var=ir.SELF)


# (statement, the kind of entity it is about)
SHARED = [
    ('insert Shared { label: "a" }', "node"),
    ('insert Shared { from: "a", to: "b" }', "edge"),
    ('delete Shared where label = "a"', "node"),
    ('delete Shared where from = "a" or weight > 3', "edge"),
]


@pytest.mark.parametrize(("statement", "kind"), SHARED)
def test_endpoints_tell_an_edge_from_a_node_of_the_same_name(statement, kind):
    (found,) = _mutation(statement)
    assert found.kind == kind


def test_reads_and_mutations_know_what_they_are():
    read = compile_query("query r() { match { $p: Person } return { $p } }", SCHEMA)
    write = compile_query('query w() { delete Person where name = "a" }', SCHEMA)
    assert read.kind == "read"
    assert isinstance(read.plan, ir.ReadPlan)
    assert write.kind == "mutation"
    assert isinstance(write.plan, ir.MutationPlan)


def test_a_compiled_query_is_cached_by_source_schema_and_name():
    source = "query r() { match { $p: Person } return { $p } }"
    same = compile_schema(SCHEMA.source + "\n// a comment changes nothing")
    other = compile_schema(SCHEMA.source + "\nnode Extra { x: String }")
    first = compile_query(source, SCHEMA)
    assert compile_query(source, same) is first
    assert compile_query(source, other) is not first
