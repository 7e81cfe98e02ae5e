"""What storage is asked for: a sieve never loses a row, and an exact one keeps no other."""

import datetime as dt
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.compiler.query import ir
from omnigraph.engine.expr.evaluate import Constants, evaluate, holding
from omnigraph.engine.expr.sql import listed_values, push_down, sieve
from omnigraph.engine.rows.columns import column
from omnigraph.engine.write.pending import TableRows, columns_of
from omnigraph.errors import InputError
from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import World
from omnigraph.model.schema import NodeType, Property, PropertyType, Scalar
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.objects.root import Root
from omnigraph.storage.table.table import Tables

CONSTANTS_OF_RUN = Constants(params={}, now_ms=1_700_000_000_000)
# A NaN with its sign set, as infinity minus infinity has it: Lance orders it below all numbers.
LOW_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
TYPES = {
    "i": PropertyType(scalar=Scalar.I32, nullable=True),
    "u": PropertyType(scalar=Scalar.U64, nullable=True),
    "l": PropertyType(scalar=Scalar.I64, nullable=True),
    "f": PropertyType(scalar=Scalar.F32, nullable=True),
    "r": PropertyType(scalar=Scalar.F64, nullable=True),
    "s": PropertyType(scalar=Scalar.STRING, nullable=True),
    "b": PropertyType(scalar=Scalar.BOOL, nullable=True),
    "d": PropertyType(scalar=Scalar.DATE, nullable=True),
    "t": PropertyType(scalar=Scalar.DATETIME, nullable=True),
    "many": PropertyType(scalar=Scalar.STRING, nullable=True, is_list=True),
}
VALUES = {
    "i": [None, -(2**31), -5, 0, 1, 2**31 - 1],
    "l": [None, -(2**63), -(2**53) - 1, 0, 2**53 + 1, 2**63 - 1],
    "u": [None, 0, 7, 2**63, 2**64 - 1],
    "f": [None, 0.0, -0.0, 0.1, 0.5, float("nan"), LOW_NAN, float("inf"), 16777216.0, -1.0],
    "r": [None, 0.0, -0.0, 0.1, float("nan"), LOW_NAN, float("inf"), float("-inf"), 2.0**53, -5.0],
    "s": [None, "", "a", "a'b", "a%", "a_", "\\", "a\x00b", "é", "zz"],
    "b": [None, True, False],
    "d": [None, 0, -1, 19723, -719162, 2932896],
    "t": [None, 0, -1, 1_700_000_000_000, -62135596800000, 253402300799999],
    "many": [None, [], ["a"], ["a", "é"]],
}
CONSTANTS = {
    Scalar.I64: st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from(VALUES["l"][1:])),
    Scalar.U64: st.sampled_from([2**63, 2**64 - 1]),
    Scalar.F32: st.sampled_from([0.1, 16777217.0, float("nan")]),
    Scalar.F64: st.sampled_from(
        [
            0.0,
            -0.0,
            0.1,
            0.5,
            1.0,
            -5.0,
            1e300,
            2.0**63,
            16777216.0,
            16777217.0,
            2.0**31,
            -0.5,
            float("nan"),
            float("inf"),
            float("-inf"),
        ]
    ),
    Scalar.STRING: st.sampled_from(VALUES["s"][1:]),
    Scalar.BOOL: st.booleans(),
    Scalar.DATE: st.sampled_from([dt.date(1970, 1, 1), dt.date(2024, 1, 1), dt.date(1, 1, 1)]),
    Scalar.DATETIME: st.sampled_from(VALUES["t"][1:]),
}
NUMBERS = (Scalar.I64, Scalar.U64, Scalar.F32, Scalar.F64)
COMPARABLE = {
    "i": NUMBERS,
    "u": NUMBERS,
    "l": NUMBERS,
    "f": NUMBERS,
    "r": NUMBERS,
    "s": (Scalar.STRING,),
    "b": (Scalar.BOOL,),
    "d": (Scalar.DATE,),
    "t": (Scalar.DATETIME,),
}


def ref(name):
    return ir.PropertyRef(var=ir.SELF, prop=name, type=TYPES[name])


def literal(value, scalar):
    return ir.Literal(value=value, type=PropertyType(scalar=scalar))


@st.composite
def comparisons(draw):
    name = draw(st.sampled_from(sorted(COMPARABLE)))
    scalar = draw(st.sampled_from(COMPARABLE[name]))
    constant = literal(draw(st.one_of(st.none(), CONSTANTS[scalar], CONSTANTS[scalar])), scalar)
    numbers = [other for other in COMPARABLE if COMPARABLE[other] == COMPARABLE[name]]
    other = st.sampled_from(numbers).map(ref)
    sides = [ref(name), draw(st.one_of(st.just(constant), st.just(constant), other))]
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
            name = draw(st.sampled_from(sorted(COMPARABLE)))
            scalar = draw(st.sampled_from(COMPARABLE[name]))
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
                        ref("b"),
                        ir.ListContains(items=ref("many"), needle=part),
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
    whole = pa.Table.from_arrays(columns, schema=schema)
    write = tables.open(entry).stage_append(whole)
    update = tables.apply(write)
    entry = TableEntry(table_key="node:T", location="nodes/t", version=update.version)
    return whole, tables.open(entry)


@given(condition=CONDITIONS)
def test_a_sieve_keeps_every_true_row_and_an_exact_one_no_other(stored, condition):
    rows, table = stored
    keep = holding([condition], TableRows(rows, CONSTANTS_OF_RUN))
    true = set(rows.filter(pa.array(keep))["id"].to_pylist())
    found = sieve(condition, CONSTANTS_OF_RUN)
    if found is not None:
        kept = set(table.read(columns=["id"], where=found.where)["id"].to_pylist())
        assert kept == true if found.exact else kept >= true, found
    among = listed_values(condition, CONSTANTS_OF_RUN)
    if among is not None:
        assert true <= set(table.lookup(*among, ["id"])["id"].to_pylist())
    assert columns_of(condition) <= TYPES.keys()


@given(conditions=st.lists(CONDITIONS, max_size=3))
def test_pushed_down_conditions_and_the_rest_are_all_of_them(stored, conditions):
    rows, table = stored
    pushed = push_down(conditions, CONSTANTS_OF_RUN)
    kept = table.read(columns=rows.column_names, where=pushed.where)
    answer = TableRows(kept, CONSTANTS_OF_RUN)
    left = kept.filter(pa.array(holding(pushed.rest, answer)))
    keep = holding(conditions, TableRows(rows, CONSTANTS_OF_RUN))
    assert left["id"].to_pylist() == rows.filter(pa.array(keep))["id"].to_pylist()


ENTITY = pa.table({"i": pa.array([2**31 - 1], pa.int32()), "t": pa.array([999], pa.int64())})


def computed(op, left, right):
    number = PropertyType(scalar=Scalar.I64, nullable=True)
    sides = {"left": literal(left, Scalar.I64), "right": literal(right, Scalar.I64)}
    return ir.Arithmetic(op=op, type=number, **sides)


def test_a_condition_that_can_fail_is_never_pushed_down():
    total = ir.Arithmetic(
        op=ir.ArithmeticOp.ADD,
        left=ref("l"),
        right=literal(1, Scalar.I64),
        type=PropertyType(scalar=Scalar.I64, nullable=True),
    )
    risky = ir.Compare(op=ir.CompareOp.GT, left=total, right=literal(0, Scalar.I64))
    safe = ir.Compare(op=ir.CompareOp.LT, left=ref("l"), right=literal(10, Scalar.I64))
    pushed = push_down([ir.And(items=(risky, safe))], CONSTANTS_OF_RUN)
    assert pushed.where == "`l` < 10"
    assert pushed.rest == (risky,)
    assert sieve(ir.Or(items=(ir.And(items=(risky, safe)), safe)), CONSTANTS_OF_RUN) is None


def test_an_error_needs_a_row_that_the_other_conditions_keep():
    number = PropertyType(scalar=Scalar.I64, nullable=True)
    total = ir.Arithmetic(
        op=ir.ArithmeticOp.ADD, left=ref("l"), right=literal(1, Scalar.I64), type=number
    )
    risky = ir.Compare(op=ir.CompareOp.GT, left=total, right=literal(0, Scalar.I64))
    safe = ir.Compare(op=ir.CompareOp.LT, left=ref("l"), right=literal(10, Scalar.I64))
    rows = pa.table({"l": pa.array([2**63 - 1, 5], pa.int64())})
    scope = TableRows(rows, CONSTANTS_OF_RUN)
    assert holding([risky, safe], scope).tolist() == [False, True]
    with pytest.raises(InputError, match="does not fit into I64"):
        holding([risky], scope)


@pytest.mark.parametrize(
    ("op", "left", "right", "result"),
    [
        (ir.ArithmeticOp.ADD, 2, 3, 5),
        (ir.ArithmeticOp.MOD, -7, 3, -1),
        (ir.ArithmeticOp.MOD, 7, -3, 1),
        (ir.ArithmeticOp.MOD, 7, 0, None),
        (ir.ArithmeticOp.MOD, -(2**63), -1, 0),
        (ir.ArithmeticOp.MUL, None, 3, None),
    ],
)
def test_arithmetic_of_whole_numbers(op, left, right, result):
    scope = TableRows(ENTITY, CONSTANTS_OF_RUN)
    assert evaluate(computed(op, left, right), scope).as_py() == result


def test_now_and_parameters_are_constants_of_the_run():
    constants = Constants(params={"x": 2**31 - 1}, now_ms=1000)
    same = ir.Compare(
        op=ir.CompareOp.EQ,
        left=ref("i"),
        right=ir.Param(name="x", type=PropertyType(scalar=Scalar.I32)),
    )
    later = ir.Compare(op=ir.CompareOp.LT, left=ref("t"), right=ir.Now())
    rows = ENTITY.set_column(1, "t", ENTITY["t"].cast(pa.timestamp("ms", tz="UTC")))
    assert holding([same, later], TableRows(rows, constants)).tolist() == [True]
    assert sieve(same, constants).where == "`i` = 2147483647"
