"""Parameters: every type takes what it should, in one Python form, and refuses the rest by name."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

from omnigraph.compiler.query import bind_params, parse_file
from omnigraph.errors import InputError, MissingParameterError, ParameterError


def _bind(kind: str, value: object, **options) -> object:
    (query,) = parse_file(f"query q($x: {kind}) {{ match {{ $p: P }} return {{ $p }} }}").queries
    return bind_params(query.params, {"x": value}, **options)["x"]


ACCEPTED = [
    ("String", "", ""),
    ("I32", "-2147483648", -2147483648),
    ("I64", 2**53, 2**53),
    ("U64", str(2**63 - 1), 2**63 - 1),
    ("F64", 3, 3.0),
    ("F32", 0.5, 0.5),
    ("Date", "2024-02-29", dt.date(2024, 2, 29)),
    ("Date", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
    ("DateTime", "1970-01-01T00:00:01Z", 1000),
    ("DateTime", "1970-01-01T01:00:00.123456+01:00", 123),
    ("DateTime", "1969-12-31T23:59:59.999Z", -1),
    ("DateTime", "1970-01-01 00:00:02", 2000),
    ("DateTime", dt.datetime(1970, 1, 1, 0, 0, 3), 3000),
    ("DateTime", dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
    ("Vector(2)", [1, 2.5], [1.0, 2.5]),
    ("Vector(2)", (1, 2), [1.0, 2.0]),
    ("Vector(2)", np.array([1, 2], dtype=np.float32), [1.0, 2.0]),
    ("I64", np.int64(7), 7),
    ("[I32]", ["1", 2], [1, 2]),
    ("[String]?", None, None),
    ("[Date]", ["2024-01-01"], [dt.date(2024, 1, 1)]),
    ("Blob", "base64:AAAA", "base64:AAAA"),
    ("I32", 2.0, 2),
]


@pytest.mark.parametrize(("kind", "value", "bound"), ACCEPTED)
def test_a_value_takes_the_form_of_its_type(kind, value, bound):
    found = _bind(kind, value)
    assert found == bound
    assert type(found) is type(bound)


REFUSED = [
    ("String", 5, "expected string"),
    ("String", None, "null is not accepted"),
    ("I32", 2.5, "expected integer"),
    ("I64", 2.0**60, "expected integer"),
    ("I64", float("nan"), "expected integer"),
    ("I32", True, "expected integer"),
    ("I32", "1.0", "expected integer"),
    ("I32", "9" * 30, "expected integer"),
    ("U32", -1, "value -1 exceeds U32"),
    ("U64", 2**63, "engine range for U64"),
    ("F64", True, "expected float"),
    ("F32", 1e39, "exceeds F32"),
    ("F64", 10**400, "exceeds F64"),
    ("Bool", "true", "expected boolean"),
    ("Date", "2023-02-29", "expected date string"),
    ("Date", dt.datetime(2024, 1, 1), "expected date string"),
    ("DateTime", "2024-01-01", "expected datetime string"),
    ("DateTime", "2024-01-01T25:00:00Z", "expected datetime string"),
    ("Vector(2)", [1], "expected 2 elements, got 1"),
    ("Vector(2)", "ab", "expected array for Vector(2)"),
    ("Vector(2)", [1, True], "not numeric"),
    ("Vector(2)", [1, float("nan")], "not finite"),
    ("String", "a\ud800", "half of a surrogate pair"),
    ("[String]", ["\udfff"], "half of a surrogate pair"),
    ("[I32]", [1, None], "expected integer, got null"),
    ("[I32]", [[1]], "expected integer, got array"),
    ("I32", {"a": 1}, "object is not supported"),
]


@pytest.mark.parametrize(("kind", "value", "message"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_by_name(kind, value, message):
    with pytest.raises(ParameterError, match=r"^param 'x': ") as caught:
        _bind(kind, value)
    assert message in caught.value.message
    assert caught.value.name == "x"


def test_javascript_numbers_must_be_exact():
    assert _bind("I64", 2**53 - 1, mode="javascript") == 2**53 - 1
    assert _bind("I64", str(2**53), mode="javascript") == 2**53
    with pytest.raises(ParameterError, match="JS safe integer"):
        _bind("I64", -(2**53), mode="javascript")


def test_a_required_parameter_must_be_given_and_a_nullable_one_may_be_left_out():
    source = "query q($a: I32, $b: I32?) { match { $p: P } return { $p } }"
    (query,) = parse_file(source).queries
    assert bind_params(query.params, {"a": 1}) == {"a": 1, "b": None}
    with pytest.raises(MissingParameterError, match=r"^param 'a': ") as caught:
        bind_params(query.params, None, query="q")
    assert (caught.value.name, caught.value.query) == ("a", "q")


@pytest.mark.parametrize("values", [[], "text", 3])
def test_parameters_are_an_object(values):
    with pytest.raises(InputError, match="params must be a JSON object"):
        bind_params((), values)
