"""The `where` of a mutation: the exact verdict, and a sieve that never loses a row."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.compiler.query import ir
from omnigraph.engine.write.columns import column
from omnigraph.engine.write.predicate import Scope, candidates, columns_of, holds, listed_values
from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import World
from omnigraph.model.schema import NodeType, Property, PropertyType, Scalar
from omnigraph.storage.arrow_schema import arrow_schema
from omnigraph.storage.objects import Root
from omnigraph.storage.table import Tables

SCOPE = Scope(params={}, now_ms=1_700_000_000_000)
TYPES = {
    "i": PropertyType(scalar=Scalar.I32, nullable=True),
    "u": PropertyType(scalar=Scalar.U64, nullable=True),
    "f": PropertyType(scalar=Scalar.F32, nullable=True),
    "s": PropertyType(scalar=Scalar.STRING, nullable=True),
    "b": PropertyType(scalar=Scalar.BOOL, nullable=True),
    "d": PropertyType(scalar=Scalar.DATE, nullable=True),
    "t": PropertyType(scalar=Scalar.DATETIME, nullable=True),
    "l": PropertyType(scalar=Scalar.STRING, nullable=True, is_list=True),
}
VALUES = {
    "i": [None, -5, 0, 1, 2**31 - 1],
    "u": [None, 0, 7, 2**63, 2**64 - 1],
    "f": [None, 0.0, -0.0, 0.5, float("nan"), float("inf"), 16777216.0],
    "s": [None, "", "a", "a'b", "é", "zz"],
    "b": [None, True, False],
    "d": [None, 0, -1, 19723],
    "t": [None, 0, -1, 1_700_000_000_000],
    "l": [None, [], ["a"], ["a", "é"]],
}
CONSTANTS = {
    Scalar.I32: st.integers(-(2**70), 2**70),
    Scalar.F64: st.sampled_from([0.0, -0.0, 0.5, 1.0, -5.0, 1e300, 2.0**63, 16777216.0]),
    Scalar.STRING: st.sampled_from(VALUES["s"][1:]),
    Scalar.BOOL: st.booleans(),
    Scalar.DATE: st.sampled_from([dt.date(1970, 1, 1), dt.date(2024, 1, 1)]),
    Scalar.DATETIME: st.sampled_from([0, -1, 1_700_000_000_000]),
}
COMPARABLE = {
    "i": (Scalar.I32, Scalar.F64),
    "u": (Scalar.I32, Scalar.F64),
    "f": (Scalar.I32, Scalar.F64),
    "s": (Scalar.STRING,),
    "b": (Scalar.BOOL,),
    "d": (Scalar.DATE, Scalar.DATETIME),
    "t": (Scalar.DATETIME, Scalar.DATE),
}


def ref(name):
    return ir.PropertyRef(var=ir.SELF, prop=name, type=TYPES[name])


def literal(value, scalar):
    return ir.Literal(value=value, type=PropertyType(scalar=scalar))


@st.composite
def comparisons(draw):
    name = draw(st.sampled_from(sorted(COMPARABLE)))
    scalar = draw(st.sampled_from(COMPARABLE[name]))
    constant = literal(draw(st.one_of(st.none(), CONSTANTS[scalar])), scalar)
    sides = [ref(name), constant]
    if draw(st.booleans()):
        sides.reverse()
    return ir.Compare(op=draw(st.sampled_from(ir.CompareOp)), left=sides[0], right=sides[1])


@st.composite
def leaves(draw):
    match draw(st.integers(0, 5)):
        case 0 | 1 | 2:
            return draw(comparisons())
        case 3:
            name = draw(st.sampled_from(sorted(TYPES)))
            return ir.IsNull(item=ref(name), negated=draw(st.booleans()))
        case 4:
            name = draw(st.sampled_from(["i", "s"]))
            scalar = COMPARABLE[name][0]
            options = draw(st.lists(st.one_of(st.none(), CONSTANTS[scalar]), max_size=3))
            kind = PropertyType(scalar=scalar, is_list=True)
            return ir.InList(needle=ref(name), options=ir.Literal(value=tuple(options), type=kind))
        case _:
            part = literal(draw(CONSTANTS[Scalar.STRING]), Scalar.STRING)
            return draw(
                st.sampled_from(
                    [
                        ir.TextContains(text=ref("s"), part=part),
                        ir.StartsWith(text=ref("s"), prefix=part),
                        ir.ListContains(items=ref("l"), needle=part),
                    ]
                )
            )


CONDITIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda items: ir.And(items=tuple(items))),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: ir.Or(items=tuple(items))),
        inner.map(lambda item: ir.Not(item=item)),
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A table in which every value of every column occurs."""
    folder = tmp_path_factory.mktemp("predicate")
    node = NodeType(name="T", properties=tuple(Property(name=n, type=t) for n, t in TYPES.items()))
    count = max(map(len, VALUES.values()))
    rows = [
        {name: values[n % len(values)] for name, values in VALUES.items()} | {"id": f"r{n}"}
        for n in range(count)
    ]
    world = World(durability="process")
    tables = Tables(Root.parse(str(folder), {}), world)
    schema = arrow_schema(node)
    version = tables.create("nodes/t", schema)
    entry = TableEntry(table_key="node:T", location="nodes/t", version=version)
    columns = [pa.array([row["id"] for row in rows])]
    columns += [column([row[name] for row in rows], TYPES[name], strict=True)[0] for name in TYPES]
    write = tables.open(entry).stage_append(pa.Table.from_arrays(columns, schema=schema))
    update = tables.apply(write)
    entry = TableEntry(table_key="node:T", location="nodes/t", version=update.version)
    return rows, tables.open(entry)


@given(condition=CONDITIONS)
def test_the_sieve_lets_every_matching_row_through(stored, condition):
    rows, table = stored
    exact = {row["id"] for row in rows if holds(condition, row, SCOPE)}
    sieve = candidates(condition, SCOPE)
    assert exact <= set(table.read(columns=["id"], where=sieve)["id"].to_pylist())
    assert columns_of(condition) <= TYPES.keys()
    among = listed_values(condition, SCOPE)
    if among is not None:
        assert exact <= set(table.lookup(*among, ["id"])["id"].to_pylist())


@pytest.mark.parametrize(
    ("op", "left", "right", "result"),
    [
        (ir.ArithmeticOp.ADD, 2, 3, 5),
        (ir.ArithmeticOp.DIV, 1, 2, 0.5),
        (ir.ArithmeticOp.DIV, 1, 0, None),
        (ir.ArithmeticOp.MOD, -7, 3, -1),
        (ir.ArithmeticOp.MOD, 7, -3, 1),
        (ir.ArithmeticOp.MOD, 7, 0, None),
        (ir.ArithmeticOp.MUL, None, 3, None),
    ],
)
def test_arithmetic_in_a_condition_is_that_of_queries(op, left, right, result):
    number = PropertyType(scalar=Scalar.I32, nullable=True)
    sides = {"left": literal(left, Scalar.I32), "right": literal(right, Scalar.I32)}
    computed = ir.Arithmetic(op=op, type=number, **sides)
    if result is None:
        assert holds(ir.IsNull(item=computed), {}, SCOPE)
    else:
        same = ir.Compare(op=ir.CompareOp.EQ, left=computed, right=literal(result, Scalar.F64))
        assert holds(same, {}, SCOPE)


def test_now_and_parameters_are_constants_of_the_run():
    scope = Scope(params={"x": 5}, now_ms=1000)
    number = PropertyType(scalar=Scalar.I32)
    same = ir.Compare(op=ir.CompareOp.EQ, left=ref("i"), right=ir.Param(name="x", type=number))
    later = ir.Compare(op=ir.CompareOp.LT, left=ref("t"), right=ir.Now())
    assert holds(same, {"i": 5}, scope)
    assert holds(later, {"t": 999}, scope)
    assert not holds(later, {"t": 1000}, scope)
    assert candidates(same, scope) == "`i` = 5"
