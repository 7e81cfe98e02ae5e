"""Parameter values: from JSON (or plain Python) values to the forms that plans expect."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from omnigraph.compiler.query.ir import ParamDecl
from omnigraph.compiler.query.temporal import parse_date, parse_datetime
from omnigraph.compiler.query.types import core, element
from omnigraph.errors import InputError, MissingParameterError, ParameterError
from omnigraph.model.schema import INTEGERS, PropertyType, Scalar
from omnigraph.model.values import F32_MAX, INTEGER_BOUNDS, whole

_U64_ENGINE_MAX = 2**63 - 1
# A JavaScript number is a double: beyond this, whole numbers lose digits on the way here.
JS_SAFE_INTEGER_MAX = 2**53 - 1
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

ParamMode = Literal["standard", "javascript"]


def bind_params(
    params: Sequence[ParamDecl],
    values: Mapping[str, Any] | None,
    *,
    query: str | None = None,
    mode: ParamMode = "standard",
) -> dict[str, Any]:
    """A value for every declared parameter, in the Python form of its type.

    Date becomes `datetime.date`, DateTime `int` milliseconds since the epoch, Vector a list of
    floats, `[T]` a list. An omitted or null nullable parameter is None. Undeclared values are kept
    as they are; the query does not see them. In `javascript` mode whole numbers that a JavaScript
    client cannot have meant exactly are refused. Raises MissingParameterError or ParameterError.
    """
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        raise InputError("params must be a JSON object", hint='pass {"name": value, ...}')
    bound: dict[str, Any] = {}
    for decl in params:
        if decl.name not in values:
            if not decl.type.nullable:
                raise MissingParameterError(name=decl.name, query=query)
            bound[decl.name] = None
            continue
        bound[decl.name] = _Binder(decl.name, mode).bind(values[decl.name], decl.type)
    for name, value in values.items():
        if name not in bound:
            _refuse_objects(str(name), value)
            bound[str(name)] = value
    return bound


def _refuse_objects(name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        raise ParameterError("object is not supported", name=name)


class _Binder:
    """Turns one value; every error names the parameter."""

    def __init__(self, name: str, mode: ParamMode) -> None:
        self.name, self.mode = name, mode

    def error(self, message: str, hint: str | None = None) -> ParameterError:
        return ParameterError(message, name=self.name, hint=hint)

    def bind(self, value: Any, kind: PropertyType) -> Any:
        value = _plain(value)
        if value is None:
            if kind.nullable:
                return None
            message = "null is not accepted for non-nullable parameter"
            raise self.error(message, hint=f"declare it as `${self.name}: {core(kind)}?`")
        _refuse_objects(self.name, value)
        if kind.is_list:
            if not isinstance(value, list | tuple):
                raise self.error(f"expected array for {core(kind)}, got {_word(value)}")
            one = element(kind)
            return [self.scalar(_plain(item), one) for item in value]
        if kind.scalar is Scalar.VECTOR:
            return self._vector(value, kind)
        return self.scalar(value, kind)

    def scalar(self, value: Any, kind: PropertyType) -> Any:
        scalar = kind.scalar
        if scalar in INTEGERS:
            return self._integer(value, scalar)
        match scalar:
            case Scalar.STRING | Scalar.BLOB:
                if not isinstance(value, str):
                    word = "string" if scalar is Scalar.STRING else "blob string"
                    raise self.error(f"expected {word}, got {_word(value)}")
                if not value.isascii() and _SURROGATE.search(value):
                    raise self.error("expected text, got half of a surrogate pair")
                return value
            case Scalar.BOOL:
                if not isinstance(value, bool):
                    raise self.error(f"expected boolean, got {_word(value)}")
                return value
            case Scalar.DATE:
                return self._date(value)
            case Scalar.DATETIME:
                return self._datetime(value)
            case _:
                return self._float(value, scalar)

    def _integer(self, value: Any, scalar: Scalar) -> int:
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            number = int(value)
        elif isinstance(value, float) and (exact := whole(value)) is not None:
            number = exact
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
            if self.mode == "javascript" and abs(number) > JS_SAFE_INTEGER_MAX:
                message = (
                    f"integer {number} exceeds JS safe integer range; "
                    "pass a decimal string for exact values"
                )
                raise self.error(message)
        else:
            raise self.error(f"expected integer, got {_word(value)}")
        low, high = INTEGER_BOUNDS[scalar]
        if not low <= number <= high:
            message = f"value {number} exceeds {scalar.value}"
            raise self.error(message, hint=f"{scalar.value} goes from {low} to {high}")
        if number > _U64_ENGINE_MAX:
            raise self.error(f"value {number} exceeds current engine range for U64")
        return number

    def _float(self, value: Any, scalar: Scalar) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(f"expected float, got {_word(value)}")
        try:
            number = float(value)
        except OverflowError:
            raise self.error(f"value exceeds {scalar.value}") from None
        if scalar is Scalar.F32 and F32_MAX < abs(number) < float("inf"):
            raise self.error(f"value {number} exceeds F32")
        return number

    def _date(self, value: Any) -> dt.date:
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value
        if not isinstance(value, str):
            raise self.error(f"expected date string, got {_word(value)}")
        day = parse_date(value)
        if day is None:
            raise self.error(f"expected date string, got '{value}'", hint="dates are YYYY-MM-DD")
        return day

    def _datetime(self, value: Any) -> int:
        if isinstance(value, dt.datetime):
            aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            return (aware - _EPOCH) // dt.timedelta(milliseconds=1)
        if not isinstance(value, str):
            raise self.error(f"expected datetime string, got {_word(value)}")
        stamp = parse_datetime(value)
        if stamp is None:
            hint = "timestamps are RFC 3339, such as 2026-02-14T10:00:00Z"
            raise self.error(f"expected datetime string, got '{value}'", hint=hint)
        return stamp

    def _vector(self, value: Any, kind: PropertyType) -> list[float]:
        if not isinstance(value, list | tuple):
            raise self.error(f"expected array for {core(kind)}, got {_word(value)}")
        numbers: list[float] = []
        for item in value:
            plain = _plain(item)
            if isinstance(plain, bool) or not isinstance(plain, int | float):
                raise self.error("vector element is not numeric")
            if isinstance(plain, float) and not math.isfinite(plain):
                raise self.error("vector element is not finite")
            numbers.append(self._float(plain, Scalar.F32))
        if len(numbers) != kind.dimension:
            raise self.error(f"expected {kind.dimension} elements, got {len(numbers)}")
        return numbers


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays as Python values, without knowing NumPy."""
    unwrap = getattr(value, "tolist", None)
    return unwrap() if callable(unwrap) else value


def _word(value: Any) -> str:
    """How JSON calls the kind of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return type(value).__name__
