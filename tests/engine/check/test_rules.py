"""The constraints as data, and the checks that need nothing but a batch of rows."""

import json
import math

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.compiler.schema import compile_schema
from omnigraph.engine.check.findings import Findings, Place, Violation
from omnigraph.engine.check.rules import (
    Endpoint,
    FiniteKey,
    OneOf,
    Required,
    Unique,
    check_values,
    rules_of,
)
from omnigraph.engine.check.validate import check_unique
from omnigraph.engine.rows.columns import batch_schema, column
from omnigraph.errors import ConstraintViolationError
from omnigraph.model.limits import VIOLATIONS_LISTED_MAX
from omnigraph.model.schema import Cardinality, Check, Range

SCHEMA = compile_schema("""
node T {
  k: F64 @key
  i: I32?
  u: U64?
  f: F32?
  s: String?
  role: enum(a, b)?
  day: Date?
  @unique(s, day)
  @unique(day, s)
  @unique(k)
  @unique(u)
  @range(i, 0.5..10)
  @range(u, ..18446744073709551615)
  @range(f, -1.5..)
  @check(s, "^[a-z]+$")
}
edge E: T -> T @card(1..2) { note: String  @unique(src, dst) }
edge Free: T -> T
""")
NODE = SCHEMA.nodes["T"]


def rows(**columns):
    """A batch of the node type; columns that are not given are null."""
    count = len(next(iter(columns.values())))
    arrays = [pa.array([f"id{n}" for n in range(count)])]
    for prop in NODE.properties:
        values = columns.get(
            prop.name, [float(n) for n in range(count)] if prop.name == "k" else None
        )
        array, problems = column(values or [None] * count, prop.type, strict=True)
        assert not problems
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=batch_schema(NODE))


def findings(table, **options):
    found = Findings()
    check_values(
        NODE,
        table,
        found,
        place_of=lambda row: Place(word="row", number=row, at=(0, row)),
        **options,
    )
    return found


def test_a_type_describes_its_rules_once_and_in_order():
    rules = rules_of(NODE)
    assert rules.values == (
        Required(property="k"),
        OneOf(property="role", values=("a", "b")),
        Range(property="i", minimum=0.5, maximum=10),
        Range(property="u", minimum=None, maximum=18446744073709551615),
        Range(property="f", minimum=-1.5, maximum=None),
        Check(property="s", pattern="^[a-z]+$"),
        FiniteKey(property="k"),
    )
    # The key is the id, and the same columns in another order are the same rule.
    assert {frozenset(rule.columns) for rule in rules.unique} == {
        frozenset({"s", "day"}),
        frozenset({"u"}),
    }
    assert (rules.endpoints, rules.out_degree) == ((), None)
    edge = rules_of(SCHEMA.edges["E"])
    assert edge.endpoints == (
        Endpoint(column="src", node_type="T"),
        Endpoint(column="dst", node_type="T"),
    )
    assert edge.out_degree == Cardinality(minimum=1, maximum=2)
    assert rules_of(SCHEMA.edges["Free"]).out_degree is None


BROKEN = [
    ({"i": [0, 1, 10, 11, None]}, [0, 3], "range"),
    ({"u": [0, 2**64 - 1, None]}, [], "range"),
    ({"f": [-1.5, -1.6, math.nan, math.inf]}, [1, 2], "range"),
    ({"s": ["abc", "aB", "", None]}, [1, 2], "check"),
    ({"role": ["a", "c", None]}, [1], "enum"),
    ({"k": [1.0, math.nan, math.inf]}, [1, 2], "key"),
    ({"k": [1.0, None]}, [1], "required"),
]


@pytest.mark.parametrize(("columns", "broken", "kind"), BROKEN)
def test_each_rule_finds_exactly_its_rows(columns, broken, kind):
    found = findings(rows(**columns))
    assert [str(violation.place) for violation in found.listed] == [f"row {row}" for row in broken]
    assert {violation.kind for violation in found.listed} <= {kind}
    assert found.total == len(broken)


def test_a_left_out_property_and_a_null_one_have_different_words():
    table = rows(k=[None, None, None])
    found = findings(table, absent=frozenset({(0, "k")}), misfits=frozenset({(2, "k")}))
    assert [violation.message for violation in found.listed] == [
        "row 0: T: missing required property 'k'",
        "row 1: T: non-nullable property 'k' has null or invalid values",
    ]


def test_uniqueness_inside_a_batch_names_both_holders_and_exempts_nulls():
    table = rows(
        s=["a", "a", "a", None, None, "b"],
        day=["2020-01-01", "2020-01-02", "2020-01-01", "2020-01-01", "2020-01-01", None],
    )
    found = Findings()
    check_unique(NODE, Unique(columns=("s", "day")), table, found)
    assert [violation.message for violation in found.listed] == [
        "@unique violation on T.(s, day): value 'a, 2020-01-01' held by 'id0' and 'id2'"
    ]
    assert found.listed[0].ids == ("id0", "id2")


def test_findings_list_the_first_and_count_all():
    many = VIOLATIONS_LISTED_MAX + 20
    found = findings(rows(i=[99] * many))
    assert (len(found.listed), found.total) == (VIOLATIONS_LISTED_MAX, many)
    found = Findings()
    table = rows(u=[n // 2 for n in range(2 * many)])
    check_unique(NODE, Unique(columns=("u",)), table, found)
    assert (len(found.listed), found.total) == (VIOLATIONS_LISTED_MAX, many)
    with pytest.raises(ConstraintViolationError, match=f"and {many - 1} more") as caught:
        found.raise_if_any()
    assert caught.value.total == many


def test_a_violation_says_everything_in_json():
    violation = Violation(
        kind="range",
        entity_kind="node",
        type_name="T",
        property="i",
        value="11",
        ids=("x",),
        text="too much",
        place=Place(word="line", number=3, at=(0, 3)),
    )
    error = ConstraintViolationError("no", violations=[violation], total=1)
    assert error.to_json()["violations"] == [
        {
            "kind": "range",
            "entity_kind": "node",
            "type_name": "T",
            "property": "i",
            "value": "11",
            "ids": ["x"],
            "place": "line 3",
            "message": "line 3: too much",
        }
    ]


# --- uniqueness of floats: equal as in a group ---

SAME_FLOATS = [(1.5, 1.5), (0.0, -0.0), ("NaN", "NaN"), ("Infinity", "Infinity")]


@pytest.mark.parametrize(("one", "other"), SAME_FLOATS)
@pytest.mark.parametrize("kind", ["F32", "F64"])
@pytest.mark.parametrize("way", ["one load", "two loads", "many small loads", "schema"])
def test_no_two_entities_share_a_unique_float(tmp_path, one, other, kind, way):
    plain, unique = (f"node T {{ k: String @key  x: {kind}?{word} }}" for word in ("", " @unique"))
    graph = Graph.init(
        str(tmp_path / "g.omni"), plain if way == "schema" else unique, durability="process"
    )

    def line(name, value):
        return json.dumps({"type": "T", "data": {"k": name, "x": value}})

    others = [line(f"m{number}", float(number + 2)) for number in range(12)]
    if way == "two loads":
        graph.load(line("a", one), mode="append")
    if way == "many small loads":  # storage then remembers what each small piece holds
        for text in [line("a", one), *others]:
            graph.load(text, mode="append")
    before = graph.snapshot().graph_commit_id
    with pytest.raises(ConstraintViolationError, match=r"@unique violation on T\.x"):  # noqa: PT012
        if way == "schema":
            graph.load("\n".join([line("a", one), line("b", other)]), mode="append")
            before = graph.snapshot().graph_commit_id
            graph.apply_schema(unique)
        elif way == "one load":
            graph.load("\n".join([line("a", one), *others, line("b", other)]), mode="append")
        else:
            graph.load(line("b", other), mode="append")
    assert graph.snapshot().graph_commit_id == before


def test_many_pairs_of_equal_values_are_told_by_their_own_rows(tmp_path):
    schema = "node T { k: String @key  x: F64?  y: String?  @unique(x, y) }"
    graph = Graph.init(str(tmp_path / "g.omni"), schema, durability="process")
    rows = [("a", 2.0, "p"), ("b", 1.0, "p"), ("c", 1.0, "p"), ("d", 2.0, "q"), ("e", 2.0, "p"),
            ("f", None, "p"), ("g", None, "p")]  # fmt: skip
    lines = [json.dumps({"type": "T", "data": {"k": k, "x": x, "y": y}}) for k, x, y in rows]
    with pytest.raises(ConstraintViolationError) as caught:
        graph.load("\n".join(lines), mode="append")
    # In the order of the records at which a value comes up again.
    assert [sorted(one.ids) for one in caught.value.violations] == [["b", "c"], ["a", "e"]]
