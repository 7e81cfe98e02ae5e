"""One meaning of values: whole columns, files and lines have the verdict of `fit` on each."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from omnigraph.compiler.schema import compile_schema
from omnigraph.engine.load.inputs.lines import Bucket, LineParser
from omnigraph.engine.load.inputs.records import StrictRecords, gather
from omnigraph.engine.load.inputs.tabular import fitted_column
from omnigraph.engine.rows.columns import column, fitted, from_fitted, json_values
from omnigraph.model.schema import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.model.values import (
    DAYS_MAX,
    DAYS_MIN,
    F32_MAX,
    INTEGER_BOUNDS,
    MS_MAX,
    MS_MIN,
    Misfit,
    fit,
    json_value,
)


def kind(scalar, **more):
    return PropertyType(scalar=scalar, **more)


KINDS = [
    *(kind(scalar) for scalar in Scalar if scalar is not Scalar.VECTOR),
    *(kind(s, is_list=True) for s in Scalar if s not in (Scalar.VECTOR, Scalar.BLOB)),
    kind(Scalar.VECTOR, dimension=2),
]
ENDS = sorted({end for bounds in INTEGER_BOUNDS.values() for end in bounds} | {0, 2**53})
INTEGERS_NEAR = [near for end in ENDS for near in (end - 1, end, end + 1)]
COUNTS = [near for end in (DAYS_MIN, DAYS_MAX, MS_MIN, MS_MAX) for near in (end - 1, end, end + 1)]
FLOATS_ODD = [
    *(0.0, -0.0, 1.5, 1e308, -1e308, 5e-324, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 3.0),
    *(F32_MAX, 3.4028235e38, 3.41e38, 1e-46, math.inf, -math.inf, math.nan),
]
DAYS = [
    *("2024-02-29", "2023-02-29", "0001-01-01", "0000-12-31", "9999-12-31", "2024-02-30"),
    *("1970-01-01", "2024-1-1", "2024-01-01 ", "2024-13-01", "2024-00-10", "\uff12024-01-01"),
]
CLOCKS = ["T00:00:00", " 23:59:59", "t12:00:00", "T24:00:00", "T23:59:60", "T10:00", "_10:00:00"]
DIGITS = ["", ".0", ".9", ".123", ".1234", ".123456", ".999999999", ".1234567890123", "."]
OFFSETS = ["", "Z", "z", "+00:00", "-00:00", "+23:59", "-23:59", "+24:00", "+01:60", "+0100", "+01"]
MOMENTS = st.builds("{}{}{}{}".format, *map(st.sampled_from, (DAYS, CLOCKS, DIGITS, OFFSETS)))
PLAIN_MOMENTS = st.builds(
    "{}{}{}{}".format,
    st.dates().map(str),
    st.sampled_from(["T00:00:00", " 23:59:59"]),
    st.sampled_from(DIGITS[:-1]),
    st.sampled_from(["", "Z", "+02:00", "-23:59"]),
)
TEXTS = st.one_of(
    st.text(max_size=4),
    st.sampled_from([*DAYS, "NaN", "-Infinity", "12", "-0", "base64:AQ==", "file:///x", "12\n"]),
)
INTEGER_VALUES = st.one_of(st.sampled_from(INTEGERS_NEAR + COUNTS), st.integers(-5, 5))
FLOAT_VALUES = st.one_of(st.sampled_from(FLOATS_ODD), st.floats())
SAME = (INTEGER_VALUES, FLOAT_VALUES, MOMENTS, PLAIN_MOMENTS, st.dates().map(str), TEXTS)
ANY = st.one_of(st.none(), st.booleans(), *SAME)


def columns_of(items):
    """Lists of values of one kind, nulls among them, and lists of such lists."""
    some = st.lists(st.one_of(st.none(), items), max_size=6)
    plain = st.lists(items, max_size=6)
    return st.one_of(plain, some, st.lists(st.one_of(st.none(), plain), max_size=4))


PAIRS = st.lists(st.one_of(st.none(), st.lists(FLOAT_VALUES, min_size=2, max_size=2)), max_size=4)
COLUMNS = st.one_of(
    *map(columns_of, SAME),
    columns_of(st.booleans()),
    columns_of(st.one_of(INTEGER_VALUES, FLOAT_VALUES)),
    PAIRS,
    st.lists(st.one_of(ANY, st.lists(ANY, max_size=3)), max_size=6),
)


def judged(values, which):
    verdicts = [fit(value, which) for value in values]
    misfits = [row for row, verdict in enumerate(verdicts) if isinstance(verdict, Misfit)]
    alone = from_fitted([None if isinstance(v, Misfit) else v for v in verdicts], which)
    return alone, misfits


def same(left, right):
    """Equal with NaN as itself, and -0.0 not as 0.0."""
    return left.type == right.type and str(left.to_pylist()) == str(right.to_pylist())


@settings(max_examples=200, deadline=None)
@given(values=COLUMNS, which=st.sampled_from(KINDS))
@example(values=["0000-12-31T23:59:59-23:59"], which=kind(Scalar.DATETIME))
@example(values=["1969-12-31T23:59:59.9999Z"], which=kind(Scalar.DATETIME))
@example(values=[True, 1.5], which=kind(Scalar.F64))
@example(values=[[], None, []], which=kind(Scalar.DATE, is_list=True))
@example(values=[["a", "a"], [None]], which=kind(Scalar.STRING, is_list=True))
def test_a_column_gives_the_verdict_of_each_value(values, which):
    array, problems = column(values, which, strict=True)
    alone, misfits = judged(values, which)
    assert [problem.row for problem in problems] == misfits
    assert same(array, alone)


SOURCES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.string(), pa.bool_()),
]


@settings(max_examples=200, deadline=None)
@given(values=columns_of(st.one_of(*SAME, st.booleans())), data=st.data())
def test_what_a_column_leaves_open_is_all_that_it_does_not_know(values, data):
    """Of any Arrow type: where `fitted` answers, it answers as `fit` would."""
    source = data.draw(st.sampled_from(SOURCES))
    which = data.draw(st.sampled_from(KINDS))
    try:
        raw = pa.array(values, pa.list_(source) if which.is_list else source)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return
    array, left = fitted(raw, which)
    alone, misfits = judged(raw.to_pylist(), which)
    assert left[misfits].all()
    assert same(array.filter(pa.array(~left)), alone.filter(pa.array(~left)))


@settings(max_examples=200, deadline=None)
@given(values=columns_of(st.one_of(INTEGER_VALUES, FLOAT_VALUES)), data=st.data())
def test_numbers_of_a_file_fit_as_the_same_numbers_do(values, data):
    source = data.draw(st.sampled_from([pa.int64(), pa.uint64(), pa.float64(), pa.float32()]))
    which = data.draw(st.sampled_from([kind(scalar) for scalar in INTEGERS | FLOATS]))
    try:
        raw = pa.array(values, source)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return
    array, problems = fitted_column(raw, which)
    alone, misfits = judged(raw.to_pylist(), which)
    assert [problem.row for problem in problems] == misfits
    assert same(array, alone)


@settings(max_examples=200, deadline=None)
@given(
    numbers=st.lists(st.one_of(st.none(), st.integers(MS_MIN * 1000, MS_MAX * 1000)), max_size=5),
    zone=st.sampled_from([None, "UTC", "Europe/Berlin"]),
)
def test_timestamps_of_a_file_are_cut_to_milliseconds_as_datetimes_are(numbers, zone):
    raw = pa.array(numbers, pa.timestamp("us", tz=zone))
    cells = pa.array(numbers, pa.timestamp("us", tz="UTC")).to_pylist()
    array, problems = fitted_column(raw, kind(Scalar.DATETIME))
    alone, misfits = judged(cells, kind(Scalar.DATETIME))
    assert (problems, misfits) == ([], [])
    assert same(array, alone)


@settings(max_examples=200, deadline=None)
@given(values=columns_of(st.one_of(*SAME, st.booleans())), which=st.sampled_from(KINDS))
def test_a_column_is_spelled_in_json_as_each_of_its_values(values, which):
    array, _ = column(values, which, strict=True)
    if which.scalar is Scalar.BLOB:
        return
    assert str(json_values(array, which)) == str([json_value(v) for v in array.to_pylist()])


SCHEMA = """
node T {
  key: String @key
  whole: I32?
  big: U64?
  real: F64?
  narrow: F32?
  day: Date?
  at: DateTime?
  lives: Bool @default(true)
  level: I32? @default(7)
  tags: [String]?
  days: [Date]?
  vec: Vector(2)?
}
"""
CATALOG = compile_schema(SCHEMA)
MEMBERS = {
    "id": st.sampled_from(["k", "other"]),
    "whole": st.one_of(st.integers(-5, 5), st.sampled_from([2**31, 1.0, 1.5])),
    "big": st.sampled_from([0, 2**64 - 1, 2**64, "7", 3.0, 2**53, 2**53 + 1]),
    "real": st.one_of(st.sampled_from([0, 1e308, "NaN"]), st.floats(allow_nan=False)),
    "narrow": st.sampled_from([0.1, 3.4028235e38, 1e39]),
    "day": st.sampled_from([*DAYS, 19723]),
    "at": st.one_of(MOMENTS, PLAIN_MOMENTS, st.sampled_from(COUNTS)),
    "lives": st.booleans(),
    "level": st.integers(-3, 3),
    "tags": st.lists(st.sampled_from(["", "Zoë", 'x":null', '"level":null', "x"]), max_size=2),
    "days": st.lists(st.sampled_from(DAYS), max_size=2),
    "vec": st.lists(st.sampled_from([0, 1.5, 1e39]), min_size=1, max_size=2),
}


@st.composite
def lines(draw):
    """A line whose members are there, null or missing, spelled in one of the ways of JSON."""
    data = {"key": "k"}
    for name in draw(st.sets(st.sampled_from(list(MEMBERS)), max_size=4)):
        data[name] = draw(st.one_of(st.none(), MEMBERS[name]))
    compact = draw(st.booleans())
    text = json.dumps(
        {"type": "T", "data": data},
        ensure_ascii=draw(st.booleans()),
        separators=(",", ":") if compact else None,
    )
    if draw(st.integers(0, 9)) == 0:
        text = text.replace('"level"', '"\\u006cevel"').replace('"id"', '"\\u0069d"')
    return text.encode()


@settings(max_examples=200, deadline=None)
@given(given_lines=st.lists(lines(), min_size=1, max_size=8))
def test_a_line_that_is_read_with_others_says_what_it_says_alone(given_lines):
    numbers = list(range(len(given_lines)))
    bucket = Bucket(lines=given_lines, numbers=numbers, text=None)
    parsed, slow = LineParser(CATALOG).parse("node:T", bucket)
    assert sorted(parsed.numbers.tolist() + [number for number, _ in slow]) == numbers
    assert parsed.rows.num_rows == len(parsed.numbers)
    for row, number in enumerate(parsed.numbers):
        record = StrictRecords(CATALOG).read(given_lines[number], int(number))
        (raw,) = gather([record], CATALOG, strict=True)
        assert not raw.violations or raw.foreign
        alone = raw.rows.drop_columns("id")
        mine = parsed.rows.slice(row, 1).drop_columns("id")
        assert str(mine.to_pylist()) == str(alone.to_pylist())


@pytest.mark.parametrize("null", ["id", "level"])
def test_lines_with_nulls_and_fine_times_are_not_read_one_by_one(null):
    data = {"key": "k", "at": "2020-01-01T10:00:00.123456Z", "day": None, "tags": ["caf\u00e9"]}
    some = [json.dumps({"type": "T", "data": data}).encode()] * 40
    odd = json.dumps({"type": "T", "data": {**data, null: None}}).encode()
    bucket = Bucket(lines=[*some, odd], numbers=list(range(41)), text=None)
    parsed, slow = LineParser(CATALOG).parse("node:T", bucket)
    # Only an id may not be null; a null where there is a default stays null.
    assert [number for number, _ in slow] == ([40] if null == "id" else [])
    assert parsed.rows["level"].to_pylist() == [7] * 40 + ([] if null == "id" else [None])


def test_lines_with_integers_as_floats_are_not_read_one_by_one():
    values = [30.0, 1.5, None, 7, 2**31, 2.0**60]
    some = [json.dumps({"type": "T", "data": {"key": "k", "whole": v}}).encode() for v in values]
    bucket = Bucket(lines=some, numbers=list(range(len(some))), text=None)
    parsed, slow = LineParser(CATALOG).parse("node:T", bucket)
    assert [number for number, _ in slow] == [1, 4, 5]
    assert parsed.rows["whole"].to_pylist() == [30, None, 7]


def test_an_integer_among_floats_keeps_its_last_digit():
    values = [2.0, 2**53 - 1, 2**53, 2**53 + 1]
    some = [json.dumps({"type": "T", "data": {"key": "k", "big": v}}).encode() for v in values]
    bucket = Bucket(lines=some, numbers=list(range(len(some))), text=None)
    parsed, slow = LineParser(CATALOG).parse("node:T", bucket)
    assert [number for number, _ in slow] == [2, 3]
    assert parsed.rows["big"].to_pylist() == [2, 2**53 - 1]
