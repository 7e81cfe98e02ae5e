"""Every function and operator of the table gives what its plain Python meaning says, over awkward
values: null, NaN, both zeros, infinities, the ends of the integers and of the calendar, empty texts
and lists, combining characters and emoji; with columns, with constants, and with both."""

from __future__ import annotations

import datetime as dt
import itertools
import math

import pyarrow as pa
import pytest
from naive_functions import Overflow, called

from omnigraph.compiler.query import ir
from omnigraph.compiler.query.functions import FUNCTIONS
from omnigraph.engine.expr.evaluate import Constants, Rows, evaluate
from omnigraph.engine.expr.kernels import KERNELS
from omnigraph.errors import InputError, LimitExceededError
from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.storage.lance.columns import value_type

NAN, INF = math.nan, math.inf
TEXTS = [
    None, "", "a", "A", "abc", " a\tb ", "\u00a0x\u2003", "Straße", "İI", "ΟΔΟΣ", "e\u0301", "é",
    "日本", "🙂", "🙂a🙂", "a,b,,c", ",", "a%b", "a_b", "a\\b", "new\nline", "a\x00b", "12", "-7",
]  # fmt: skip
WHOLE = [None, 0, 1, -1, 2, 5, -3, 25, 2**31 - 1, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1]
SMALL = [None, 0, 1, 2, 3, -1, -2, 10, 100, -100, 2**63 - 1, -(2**63)]
UNSIGNED = [None, 0, 1, 45, 2**63 + 1, 2**64 - 1]
REAL = [
    None, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 2.675, 1.005, 1.115, -1.115,
    1e300, -1e300, 5e-324, NAN, INF, -INF, 2.0**52 + 0.5, 2.0**63, -(2.0**63), 123456789.987654321,
]  # fmt: skip
SINGLE = [None, 0.0, -0.0, 0.10000000149011612, 1.5, NAN, INF, 16777216.0, 3.4028234663852886e38]
DAYS = [None, dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2024, 2, 29),
        dt.date(2021, 8, 15), dt.date(9999, 12, 31)]  # fmt: skip
MOMENTS = [None, -62135596800000, -1, 0, 999, 1709208000123, 253402300799999, 1629028799999]
TAGS = [None, [], ["a"], ["a", "b", "c"], ["", "🙂"], ["x", "x"]]
NUMBERS_TEXT = [
    None, "", "0", "-0", "42", "+7", "42.9", "-42.9", "1e3", "1.", ".5", "x", " 1", "1 ", "1_0",
    "٣", "NaN", "Infinity", "-Infinity", "9223372036854775807", "9223372036854775808", "1e300",
    "-9223372036854775808", "1e-7", "12345678901234567890123", "--1", "1e", "e5", "0x10",
]  # fmt: skip
DATE_TEXT = [None, "", "2024-02-29", "2023-02-29", "0000-01-01", "9999-12-31", "2024-2-1", "today",
             "2024-01-01T10:00:00Z", "2024-01-01T10:00:00.123456Z", "2024-01-01T10:00:00+02:00",
             "2024-01-01 10:00:00", "20240101", "0001-01-01"]  # fmt: skip
QUERIES = [None, "", "b", "xy cb -b", "?"]
SHOWN = [None, "b, cb. B xy", "cb", "q r s xy b t", "Ünb `b` b"]
PATTERNS = [None, "", "%", "a%", "_", "%b", "a_b", "a\\%b", "a\\_b", "🙂%", "%\\\\%", "__"]
REGULAR = [None, "", "a", "a.*", ".", "[a-z]+", "a|abc", "(?i)a", "[^,]*", "\\d+", ".\u0301"]

S, I, F, F32 = Scalar.STRING, Scalar.I64, Scalar.F64, Scalar.F32  # noqa: E741
D, T, B = Scalar.DATE, Scalar.DATETIME, Scalar.BOOL
# name, and for each argument its type and values
CASES = [
    ("lower", (S, TEXTS)),
    ("upper", (S, TEXTS)),
    ("trim", (S, TEXTS)),
    ("length", (S, TEXTS)),
    ("length", ([S], TAGS)),
    ("substring", (S, TEXTS), (I, SMALL)),
    ("substring", (S, TEXTS), (I, [None, 0, 1, 2, -1]), (I, SMALL)),
    ("replace", (S, TEXTS), (S, [None, "", "a", "🙂", "%"]), (S, [None, "", "aa", "é"])),
    ("split", (S, TEXTS), (S, [None, "", ",", "🙂", "a"])),
    ("concat", (S, TEXTS), (S, TEXTS)),
    ("highlight", (S, TEXTS), (S, QUERIES)),
    ("highlight", (S, SHOWN), (S, QUERIES), (S, [None, "<"]), (S, [None, "", ">"])),
    ("snippet", (S, [*TEXTS, *SHOWN]), (S, QUERIES), (I, [None, 1, 2, 30])),
    ("coalesce", (I, WHOLE), (I, WHOLE)),
    ("abs", (I, [one for one in WHOLE if one != -(2**63)])),
    ("abs", (F, REAL)),
    ("abs", (Scalar.U64, UNSIGNED)),
    ("round", (I, WHOLE)),
    ("round", (F, REAL)),
    ("round", (F, REAL), (I, [None, 0, 1, 2, 3, -1, -2, 11, 12, 300, -300])),
    ("round", (I, [0, 5, -5, 15, 149, -150, 2**53]), (I, [None, 0, 2, -1, -2, -19, -40])),
    ("floor", (F, REAL)),
    ("floor", (I, WHOLE)),
    ("ceil", (F, REAL)),
    ("sqrt", (F, REAL)),
    ("pow", (F, REAL), (F, REAL)),
    ("pow", (I, [None, 0, 2, -3, 10]), (I, [None, 0, 1, -1, 3, 400])),
    ("sign", (F, REAL)),
    ("sign", (I, WHOLE)),
    ("least", (F, REAL), (F, REAL)),
    ("greatest", (F, REAL), (F, REAL)),
    ("least", (S, TEXTS), (S, TEXTS)),
    ("greatest", (D, DAYS), (D, DAYS)),
    ("greatest", (I, WHOLE), (I, WHOLE), (I, SMALL)),
    ("to_string", (F, REAL)),
    ("to_string", (F32, SINGLE)),
    ("to_string", (I, WHOLE)),
    ("to_string", (B, [None, True, False])),
    ("to_string", (D, DAYS)),
    ("to_string", (S, TEXTS)),
    ("to_int", (S, NUMBERS_TEXT)),
    ("to_int", (F, REAL)),
    ("to_int", (Scalar.U64, UNSIGNED)),
    ("to_int", (B, [None, True, False])),
    ("to_float", (S, NUMBERS_TEXT)),
    ("to_float", (I, WHOLE)),
    ("to_date", (S, DATE_TEXT)),
    ("to_date", (T, MOMENTS)),
    ("to_date", (D, DAYS)),
    ("to_datetime", (S, DATE_TEXT)),
    ("to_datetime", (D, DAYS)),
    ("date", (T, MOMENTS)),
    ("datetime", (S, DATE_TEXT)),
    ("range", (I, [None, 0, 3, -2]), (I, [None, 0, 5, -4])),
    *((name, (D, DAYS)) for name in ("year", "month", "day")),
    *((name, (T, MOMENTS)) for name in ("year", "month", "day", "hour", "minute", "second")),
    *(
        ("trunc", (S, [unit]), given)
        for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
        for given in ((D, DAYS), (T, MOMENTS))
    ),
    *((name, (I, [None, 0, 1, -3, 10**6])) for name in ("days", "hours", "minutes", "seconds")),
    ("seconds", (F, [None, 0.0, 0.0005, -0.0005, 1.5, NAN, 1e9, 0.1234567])),
    ("ends_with", (S, TEXTS), (S, [None, "", "a", "🙂", "b", "\u0301"])),
    ("like", (S, TEXTS), (S, PATTERNS)),
    ("matches", (S, TEXTS), (S, REGULAR)),
    ("element", ([S], TAGS), (I, SMALL)),
    ("slice", ([S], TAGS), (I, [None, 0, 1, 2, -1, -5, 9]), (I, [None, 0, 1, 3, -1, 2**63 - 1])),
    ("joined", ([S], TAGS), ([S], TAGS)),
    ("single", (S, TEXTS)),
    ("shifted", (D, DAYS[2:-1]), (I, [None, 0, 1, -1, 86400000, 90000000, -90000000])),
    ("shifted", (T, MOMENTS[2:-2]), (I, [None, 0, 1, -1, 86400000])),
    ("since", (T, MOMENTS), (T, MOMENTS)),
    ("since", (D, DAYS), (D, DAYS)),
]


class Table(Rows):
    """Columns by name."""

    def __init__(self, columns):
        self.columns = columns
        self.count = len(columns[0])
        self.constants = Constants(params={}, now_ms=0)

    def value_of(self, var, name):
        return self.columns[int(name)]


def kind_of(written):
    listed = isinstance(written, list)
    return PropertyType(scalar=written[0] if listed else written, is_list=listed, nullable=True)


def plain(value):
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def expected(name, row, kinds):
    return plain(called(name, row, [kind.scalar.value for kind in kinds]))


def literal(value, kind):
    return ir.Literal(value=tuple(value) if isinstance(value, list) else value, type=kind)


def test_every_function_and_operator_has_a_kernel_and_cases():
    made = {
        name for name, one in FUNCTIONS.items() if one.kind in ("scalar", "duration", "operator")
    }
    assert made == set(KERNELS)
    assert made - {case[0] for case in CASES} == set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_a_kernel_is_its_plain_meaning(case):
    name, *given = case
    kinds = [kind_of(written) for written, _ in given]
    rows = [list(row) for row in itertools.product(*(values for _, values in given))]
    columns = [
        pa.array([row[at] for row in rows], value_type(kind)) for at, kind in enumerate(kinds)
    ]
    refs = [ir.PropertyRef(var="p", prop=str(at), type=kind) for at, kind in enumerate(kinds)]
    wanted = [expected(name, row, kinds) for row in rows]
    if name != "trunc":
        kind = FUNCTIONS[name].result_type(refs)
        call = ir.FunctionCall(name=name, args=tuple(refs), type=kind)
        found = evaluate(call, Table(columns))
        assert found.type == value_type(kind) or name in ("length", "sign"), name
        assert [plain(one) for one in found.to_pylist()] == wanted
        # A slice of a table has arrays that do not begin at their first value.
        part = evaluate(call, Table([column.slice(3, 9) for column in columns]))
        assert [plain(one) for one in part.to_pylist()] == wanted[3:12]
    # The last arguments as constants, then all of them.
    for fixed in range(len(given)):
        for row in rows[:: max(1, len(rows) // 23)]:
            args = [*refs[:fixed], *map(literal, row[fixed:], kinds[fixed:])]
            some = [one for one in rows if repr(one[fixed:]) == repr(row[fixed:])]
            table = [
                pa.array([one[at] for one in some], value_type(kind))
                for at, kind in enumerate(kinds)
            ]
            if name == "trunc" and fixed == 1:
                continue
            call = ir.FunctionCall(
                name=name, args=tuple(args), type=FUNCTIONS[name].result_type(args)
            )
            found = Table(table).values(call).to_pylist()
            assert [plain(one) for one in found] == [expected(name, one, kinds) for one in some]


@pytest.mark.parametrize(
    ("name", "row", "kinds"),
    [
        ("abs", [-(2**63)], [I]),
        ("round", [2**63 - 1, -1], [I, I]),
        ("days", [2**60], [I]),
        ("hours", [1e300], [F]),
        ("shifted", [dt.date(9999, 12, 31), 86400000], [D, I]),
        ("shifted", [dt.date(1, 1, 1), -86400000], [D, I]),
        ("shifted", [253402300799999, 1], [T, I]),
        ("shifted", [0, 2**63 - 1], [T, I]),
    ],
)
def test_what_does_not_fit_is_an_error(name, row, kinds):
    with pytest.raises(Overflow):
        called(name, row)
    args = tuple(map(literal, row, map(kind_of, kinds)))
    call = ir.FunctionCall(name=name, args=args, type=FUNCTIONS[name].result_type(args))
    with pytest.raises(InputError, match="does not fit into"):
        evaluate(call, Table([pa.array([1])]))
    assert len(evaluate(call, Table([pa.array([])]))) == 0, "no row, no error"


def test_a_range_has_its_limit():
    args = (literal(0, kind_of(I)), literal(10**7, kind_of(I)))
    call = ir.FunctionCall(name="range", args=args, type=kind_of([I]))
    with pytest.raises(LimitExceededError, match="range"):
        evaluate(call, Table([pa.array([1])]))


@pytest.mark.parametrize("pattern", ["[a", "a)|(b", "(?=a)", "\\"])
def test_a_pattern_that_is_none_is_named(pattern):
    args = (literal("a", kind_of(S)), literal(pattern, kind_of(S)))
    call = ir.FunctionCall(name="matches", args=args, type=kind_of(B))
    with pytest.raises(InputError, match="no regular expression") as caught:
        evaluate(call, Table([pa.array([1])]))
    assert "RE2" in caught.value.hint
