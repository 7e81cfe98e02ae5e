"""Values: what fits a type, what is refused and why, and how dates and times are read."""

import datetime as dt
import math

import pytest

from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.model.values import (
    DAYS_MAX,
    DAYS_MIN,
    MS_MAX,
    MS_MIN,
    BlobCell,
    Misfit,
    calendar_number,
    fit,
    fits_f32,
    json_value,
    moment_at,
    nearest_f32,
    parse_date,
    parse_iso,
    parse_moment,
)


def kind(scalar, **more):
    return PropertyType(scalar=scalar, **more)


FITS = [
    (Scalar.STRING, "", ""),
    (Scalar.BOOL, True, True),
    (Scalar.I32, 2**31 - 1, 2**31 - 1),
    (Scalar.I64, "-9223372036854775808", -(2**63)),
    (Scalar.U64, 2**64 - 1, 2**64 - 1),
    (Scalar.U64, "18446744073709551615", 2**64 - 1),
    (Scalar.F64, 3, 3.0),
    (Scalar.F64, "-Infinity", -math.inf),
    (Scalar.F32, 16777217, 16777216.0),
    (Scalar.DATE, "1970-01-02", 1),
    (Scalar.DATE, dt.date(1969, 12, 31), -1),
    (Scalar.DATE, 19723, 19723),
    (Scalar.DATETIME, "1970-01-01T00:00:00.5Z", 500),
    (Scalar.DATETIME, "1970-01-01T01:00:00+01:00", 0),
    (Scalar.DATETIME, "1970-01-01T00:00:01", 1000),
    (Scalar.DATETIME, "1969-12-31T23:59:59.9999Z", -1),
    (Scalar.DATETIME, 1704067200000, 1704067200000),
    (Scalar.BLOB, "base64:AQID", BlobCell(data=b"\x01\x02\x03")),
    (Scalar.BLOB, "base64:", BlobCell(data=b"")),
    (Scalar.BLOB, "s3://bucket/key", BlobCell(uri="s3://bucket/key")),
]


FITS += [(Scalar.I32, 1.0, 1), (Scalar.U64, -0.0, 0)]


@pytest.mark.parametrize(("scalar", "value", "fitted"), FITS)
def test_a_value_of_the_right_kind_fits(scalar, value, fitted):
    assert fit(value, kind(scalar)) == fitted


MISFITS = [
    (Scalar.STRING, 7, "expects String,"),
    (Scalar.STRING, "\ud800", "lone surrogate"),
    (Scalar.BOOL, 1, "expects Bool,"),
    (Scalar.I32, "30", "expects Int32 (I32),"),
    (Scalar.I32, True, "expects Int32 (I32),"),
    (Scalar.I32, 1.5, "expects Int32 (I32),"),
    (Scalar.I64, 2.0**53, "expects Int64 (I64),"),  # it may have been written 2^53 + 1
    (Scalar.I64, 2.0**60, "expects Int64 (I64),"),
    (Scalar.I32, math.nan, "expects Int32 (I32),"),
    (Scalar.I32, 2**31, "Int32 range"),
    (Scalar.U32, -1, "UInt32 range"),
    (Scalar.U64, "18446744073709551616", "UInt64 range"),
    (Scalar.F32, 1e39, "Float32 range"),
    (Scalar.F32, "x", "expects Float32 (F32),"),
    (Scalar.F32, 10**400, "Float32 range"),
    (Scalar.F64, "1.5", "expects Float64 (F64),"),
    (Scalar.F64, 10**400, "Float64 range"),
    (Scalar.DATE, "2023-02-29", "no day of the calendar"),
    (Scalar.DATE, "2024-1-1", "expects Date,"),
    (Scalar.DATE, 10**8, "years 1 to 9999"),
    (Scalar.DATETIME, "2024-01-01", "expects DateTime,"),
    (Scalar.DATETIME, "2024-01-01T25:00:00Z", "no moment"),
    (Scalar.DATETIME, 10**17, "years 1 to 9999"),
    (Scalar.BLOB, "base64:!!", "not valid base64"),
    (Scalar.BLOB, "readme.txt", "URI"),
    (Scalar.BLOB, "https://example.com/x", "URI"),
    (Scalar.BLOB, "file:///" + "x" * 70_000, "longer than"),
]


@pytest.mark.parametrize(("scalar", "value", "words"), MISFITS)
def test_a_value_of_the_wrong_kind_says_why(scalar, value, words):
    misfit = fit(value, kind(scalar))
    assert isinstance(misfit, Misfit)
    assert words in misfit.message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1.0], "1 numbers"),
        ([1.0, "x"], "an item 'x'"),
        ([1.0, math.inf], "not finite"),
        ("1,2", "expects Vector(2)"),
    ],
)
def test_a_vector_has_its_length_and_finite_numbers(value, words):
    assert words in fit(value, kind(Scalar.VECTOR, dimension=2)).message


def test_a_list_holds_no_nulls_and_nothing_foreign():
    texts = kind(Scalar.STRING, is_list=True)
    assert fit(["a", "b"], texts) == ["a", "b"]
    assert "null or invalid item 7 at position 1" in fit(["a", 7], texts).message
    assert "null or invalid item" in fit([None], texts).message
    assert "expects [String]," in fit("a", texts).message


MOMENTS = [
    ("1970-01-01T00:00:01Z", 1000),
    ("1970-01-01t00:00:01z", 1000),
    ("1970-01-01 00:00:01", 1000),  # without an offset it means UTC
    ("1970-01-01T00:00:01.9999999999Z", 1999),
    ("1969-12-31T23:59:59.9999Z", -1),
    ("1970-01-01T00:00:00-00:00", 0),
    ("1970-01-01T23:59:00+23:59", 0),
    ("2024-02-29T00:00:00Z", 1709164800000),
    ("0001-01-01T00:00:00Z", MS_MIN),
    ("9999-12-31T23:59:59.999Z", MS_MAX),
    ("0001-01-01T00:00:00+00:01", None),
    ("9999-12-31T23:59:59-00:01", None),
    ("2023-02-29T00:00:00Z", None),
    ("0000-01-01T00:00:00Z", None),
    ("2024-01-01T24:00:00Z", None),
    ("2024-01-01T23:59:60Z", None),
    ("2024-01-01T00:00:00+24:00", None),
    ("2024-01-01T00:00:00+00:60", None),
    ("2024-01-01T00:00:00+0100", None),
    ("2024-01-01T00:00Z", None),
    ("2024-01-01T00:00:00.Z", None),
    ("2024-01-01", None),
    ("2024-01-01T00:00:00Z\n", None),
    ("٢٠٢٤-01-01T00:00:00Z", None),
]


@pytest.mark.parametrize(("text", "milliseconds"), MOMENTS)
def test_a_moment_is_rfc_3339_and_without_an_offset_it_means_utc(text, milliseconds):
    assert parse_moment(text) == milliseconds
    if milliseconds is not None:
        assert calendar_number(moment_at(milliseconds)) == milliseconds
        assert parse_moment(json_value(moment_at(milliseconds))) == milliseconds


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1970-01-02", 1),
        ("0001-01-01", DAYS_MIN),
        ("9999-12-31", DAYS_MAX),
        ("2024-02-30", None),
        ("0000-01-01", None),
        ("20240101", None),
        ("2024-01-01\n", None),
    ],
)
def test_a_date_is_a_day_of_the_calendar(text, number):
    day = parse_date(text)
    assert (None if day is None else calendar_number(day)) == number


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-01-01", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        ("2024-01-01T10:00", dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC)),
        ("2024-01-01T10:00:00.000001Z", dt.datetime(2024, 1, 1, 10, 0, 0, 1, tzinfo=dt.UTC)),
        ("01HXAMPLE0000000000000000X", None),
        ("20240101", None),
    ],
)
def test_a_time_written_by_hand_may_leave_out_its_end(text, moment):
    assert parse_iso(text) == moment


def test_f32_holds_what_has_a_neighbour_in_its_range():
    largest = 3.4028234663852886e38
    assert fits_f32(3.4028235e38)  # as C prints the largest one
    assert nearest_f32(3.4028235e38) == largest
    assert not fits_f32(3.41e38)
    assert all(map(fits_f32, (math.inf, -math.inf, math.nan, -largest)))
