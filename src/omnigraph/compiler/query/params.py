"""Parameters: what a query declares, and the values that a caller gives."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any
from typing import Literal as Choice

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.ir import Field, Literal, Param, RecordParam
from omnigraph.compiler.query.types import core, element, fitted
from omnigraph.compiler.text import MisfitError, Problems, did_you_mean
from omnigraph.errors import InputError, MissingParameterError, ParameterError
from omnigraph.model.schema import INTEGERS, Catalog, PropertyType, Scalar
from omnigraph.model.values import (
    DATE_HINT,
    FLOAT_EXACT_MAX,
    INTEGER_BOUNDS,
    MOMENT_HINT,
    calendar_number,
    fits_f32,
    has_lone_surrogate,
    in_bounds,
    nearest_f32,
    nearest_f32s,
    parse_date,
    parse_moment,
    plain,
    whole,
)

RESERVED_PARAMS = frozenset({"__nanograph_now"})
ParamMode = Choice["standard", "javascript"]
_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_JSON_WORDS = (
    (NoneType, "null"), (bool, "boolean"), ((int, float), "number"), (str, "string"),
    ((list, tuple), "array"),
)  # fmt: skip


# --- declarations ------------------------------------------------------------------------------


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Checks the parameters that a query declares."""

    catalog: Catalog
    problems: Problems

    def declared(self, params: Sequence[ast.ParamDecl]) -> tuple[Param | RecordParam, ...]:
        """What is declared, as far as it is sound."""
        found: dict[str, Param | RecordParam] = {}
        for param in params:
            if param.name in RESERVED_PARAMS:
                message = f"parameter `${param.name}` is reserved for runtime timestamp injection"
                self.problems.report(param.at, message, hint="call now() instead")
            elif param.name == "_":
                self.problems.report(param.at, "`$_` is the wildcard and cannot be a parameter")
            elif param.name in found:
                self.problems.report(param.at, f"parameter `${param.name}` is declared twice")
            found[param.name] = self._declared(param)
        return tuple(found.values())

    def _declared(self, param: ast.ParamDecl) -> Param | RecordParam:
        written = param.type
        if isinstance(written, ast.RecordDecl):
            if param.default is not None:
                message = f"parameter `${param.name}` is a record and takes no default"
                self.problems.report(param.default.at, message)
            return RecordParam(
                name=param.name,
                fields=self._fields(written),
                is_list=written.is_list,
                nullable=written.nullable,
            )
        kind = self._type(written)
        return Param(name=param.name, type=kind, default=self._default(param, kind))

    def _fields(self, written: ast.RecordDecl) -> tuple[Field, ...]:
        found: dict[str, Field] = {}
        for field in written.fields:
            if field.name in found:
                self.problems.report(field.at, f"field `{field.name}` is declared twice")
            found[field.name] = Field(name=field.name, type=self._type(field.type))
        return tuple(found.values())

    def _default(self, param: ast.ParamDecl, kind: PropertyType) -> Literal | None:
        if param.default is None:
            return None
        try:
            found = fitted(param.default, kind, param.name)
        except MisfitError as error:
            message = error.message.replace("property `", "parameter `$")
            self.problems.report(param.default.at, message, code="T7", hint=error.hint)
            return None
        if kind.scalar is Scalar.F32 and isinstance(found.value, float):
            return replace(found, value=nearest_f32(found.value))
        return found

    def _type(self, written: PropertyType | ast.TypeOf) -> PropertyType:
        """The type, for `Person.role` that of the property; any other for one that is unknown."""
        if isinstance(written, PropertyType):
            return written
        catalog, refused = self.catalog, self.problems.report
        entity = catalog.nodes.get(written.type_name) or catalog.edges.get(written.type_name)
        if entity is None:
            hint = self.problems.suggest(written.type_name, [*catalog.nodes, *catalog.edges])
            refused(written.at, f"unknown type `{written.type_name}`", code="T1", hint=hint)
            return PropertyType(scalar=Scalar.STRING, nullable=True)
        prop = entity.by_name.get(written.prop)
        if prop is None:
            message = f"{entity.kind} type `{entity.name}` has no property `{written.prop}`"
            hint = self.problems.suggest(written.prop, entity.by_name)
            refused(written.at, message, code="T6", hint=hint)
            return PropertyType(scalar=Scalar.STRING, nullable=True)
        if written.is_list and (prop.type.is_list or prop.type.scalar is Scalar.VECTOR):
            refused(written.at, f"`{written.type_name}.{written.prop}` is a list already")
        is_list = written.is_list or prop.type.is_list
        return replace(prop.type, is_list=is_list, nullable=written.nullable)


# --- values ------------------------------------------------------------------------------------


def bind_params(
    params: Sequence[Param | RecordParam],
    values: Mapping[str, Any] | None,
    *,
    query: str | None = None,
    mode: ParamMode = "standard",
) -> dict[str, Any]:
    """A value for every declared parameter, in the Python form of its type.

    Date becomes `datetime.date`, DateTime `int` milliseconds since the epoch, Vector a list of
    floats, `[T]` a list. An omitted parameter has its default, else a nullable one is None.
    Records become dictionaries with all their fields; those of a single record are also bound as
    `name.field`. In `javascript` mode whole numbers that a JavaScript client cannot have meant
    exactly are refused. Raises MissingParameterError or ParameterError, also for a value that the
    query does not declare.
    """
    if values is None:
        values = {}
    if not isinstance(values, dict | Mapping):  # a dict is found at once, others by their bases
        raise InputError("params must be a JSON object", hint='pass {"name": value, ...}')
    bound: dict[str, Any] = {}
    _refuse_undeclared([decl.name for decl in params], values)
    for decl in params:
        if isinstance(decl, RecordParam):
            bound |= _bound_record(decl, values, query, mode)
        elif decl.name in values:
            bound[decl.name] = _Binder(decl.name, mode).bind(values[decl.name], decl.type)
        elif decl.default is not None:
            value = decl.default.value
            bound[decl.name] = list(value) if isinstance(value, tuple) else value
        elif decl.type.nullable:
            bound[decl.name] = None
        else:
            raise MissingParameterError(name=decl.name, query=query)
    return bound


def _refuse_undeclared(known: Sequence[str], values: Mapping[str, Any]) -> None:
    for name in values:
        if name not in known:
            shown = ", ".join(f"`${other}`" for other in known)
            hint = did_you_mean(str(name), known)
            hint = hint or (f"it declares {shown}" if known else "it declares no parameters")
            raise ParameterError("the query declares no such parameter", name=str(name), hint=hint)


def _bound_record(
    decl: RecordParam, values: Mapping[str, Any], query: str | None, mode: ParamMode
) -> dict[str, Any]:
    """The values that a record, or a list of records, is bound to."""
    binder = _Binder(decl.name, mode)
    value = values.get(decl.name)
    if value is None:
        if not decl.nullable and decl.name not in values:
            raise MissingParameterError(name=decl.name, query=query)
        if not decl.nullable:
            raise binder.error("null is not accepted for non-nullable parameter")
        nothing = {} if decl.is_list else {f"{decl.name}.{one.name}": None for one in decl.fields}
        return {decl.name: None, **nothing}
    if decl.is_list:
        if not isinstance(value, list | tuple):
            raise binder.unexpected("array of objects", value)
        return {decl.name: [binder.record(item, decl, at) for at, item in enumerate(value)]}
    found = binder.record(value, decl, None)
    return {decl.name: found} | {f"{decl.name}.{name}": one for name, one in found.items()}


class _Binder:
    """Turns one value; every error names the parameter."""

    def __init__(self, name: str, mode: ParamMode) -> None:
        self.name, self.mode = name, mode

    def error(self, message: str, hint: str | None = None) -> ParameterError:
        return ParameterError(message, name=self.name, hint=hint)

    def unexpected(self, wanted: str, value: Any) -> ParameterError:
        number = wanted == "string" and isinstance(value, int | float)
        hint = f'text stands in quotes: "{str(value).lower()}"' if number else None
        return self.error(f"expected {wanted}, got {_word(value)}", hint=hint)

    def record(self, value: Any, decl: RecordParam, at: int | None) -> dict[str, Any]:
        """A record with a value for every field; `at` is its place in a list of them."""
        where = "" if at is None else f"[{at}]"
        if not isinstance(value, Mapping):
            wanted = f"object for {where}" if where else "object"
            raise self.unexpected(wanted, value)
        names = [field.name for field in decl.fields]
        for name in value:
            if name not in names:
                hint = did_you_mean(str(name), names) or f"its fields are {', '.join(names)}"
                raise self.error(f"the record{where} has no field `{name}`", hint=hint)
        found = {}
        for field in decl.fields:
            if field.name not in value and not field.type.nullable:
                raise self.error(f"the record{where} misses the field `{field.name}`")
            inner = _Binder(f"{self.name}{where}.{field.name}", self.mode)
            found[field.name] = inner.bind(value.get(field.name), field.type)
        return found

    def bind(self, value: Any, kind: PropertyType) -> Any:
        text = type(value) is str  # as most are: a point read has no time for what they are not
        value = value if text else plain(value)
        if value is None:
            if kind.nullable:
                return None
            message = "null is not accepted for non-nullable parameter"
            raise self.error(message, hint=f"declare it as `${self.name}: {core(kind)}?`")
        if not text and isinstance(value, Mapping):
            raise self.error("object is not supported")
        if kind.is_list or kind.scalar is Scalar.VECTOR:
            if not isinstance(value, list | tuple):
                raise self.unexpected(f"array for {core(kind)}", value)
            if not kind.is_list:
                return self._vector(map(plain, value), kind)
            one = element(kind)
            return [self._scalar(plain(item), one) for item in value]
        return self._scalar(value, kind)

    def _scalar(self, value: Any, kind: PropertyType) -> Any:
        scalar = kind.scalar
        if scalar in INTEGERS:
            return self._integer(value, scalar)
        match scalar:
            case Scalar.STRING | Scalar.BLOB:
                if not isinstance(value, str):
                    wanted = "string" if scalar is Scalar.STRING else "blob string"
                    raise self.unexpected(wanted, value)
                if has_lone_surrogate(value):
                    raise self.error("expected text, got half of a surrogate pair")
                if kind.enum_values is not None and value not in kind.enum_values:
                    choices = ", ".join(kind.enum_values)
                    hint = did_you_mean(value, kind.enum_values)
                    raise self.error(f"expected one of [{choices}], got '{value}'", hint=hint)
                return value
            case Scalar.BOOL:
                if not isinstance(value, bool):
                    raise self.unexpected("boolean", value)
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
            if self.mode == "javascript" and abs(number) > FLOAT_EXACT_MAX:
                message = (
                    f"integer {number} exceeds JS safe integer range; "
                    "pass a decimal string for exact values"
                )
                raise self.error(message)
        else:
            raise self.unexpected("integer", value)
        if not in_bounds(number, scalar):
            low, high = INTEGER_BOUNDS[scalar]
            message = f"value {number} exceeds {scalar.value}"
            raise self.error(message, hint=f"{scalar.value} goes from {low} to {high}")
        if scalar is Scalar.U64 and not in_bounds(number, Scalar.I64):
            raise self.error(f"value {number} exceeds current engine range for U64")
        return number

    def _float(self, value: Any, scalar: Scalar) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.unexpected("float", value)
        try:
            number = float(value)
        except OverflowError:
            raise self.error(f"value exceeds {scalar.value}") from None
        if scalar is not Scalar.F32:
            return number
        if not fits_f32(number):
            raise self.error(f"value {number} exceeds F32")
        return nearest_f32(number)  # the value that it has wherever it is looked at

    def _date(self, value: Any) -> dt.date:
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return value
        if isinstance(value, dt.datetime):
            raise self.error(f"expected date string, got {_word(value)}", hint="pass its .date()")
        if not isinstance(value, str):
            raise self.unexpected("date string", value)
        day = parse_date(value)
        if day is None:
            raise self.error(f"expected date string, got '{value}'", hint=DATE_HINT)
        return day

    def _datetime(self, value: Any) -> int:
        if isinstance(value, dt.datetime):
            return calendar_number(value)
        if not isinstance(value, str):
            raise self.unexpected("datetime string", value)
        stamp = parse_moment(value)
        if stamp is None:
            raise self.error(f"expected datetime string, got '{value}'", hint=MOMENT_HINT)
        return stamp

    def _vector(self, items: Iterable[Any], kind: PropertyType) -> list[float]:
        given = [*items]
        numbers = nearest_f32s(given)
        if numbers is None:  # one of them may be wrong: which?
            numbers = [self._vector_number(one) for one in given]
        if len(numbers) != kind.dimension:
            raise self.error(f"expected {kind.dimension} elements, got {len(numbers)}")
        return numbers

    def _vector_number(self, number: Any) -> float:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise self.error("vector element is not numeric")
        if isinstance(number, float) and not math.isfinite(number):
            raise self.error("vector element is not finite")
        return self._float(number, Scalar.F32)


def _word(value: Any) -> str:
    """How JSON calls the kind of a value."""
    for kind, word in _JSON_WORDS:
        if isinstance(value, kind):
            return word
    return type(value).__name__
