"""The constraints of a type as data, and the checks that need nothing but the rows themselves.

`rules_of` is the one description; the in-process evaluator (`validate.py`) and the Spark pipeline
both execute it and build their violations here, so that verdicts and words are the same. Order of
checking: values, uniqueness, endpoints, cardinality.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.compiler.query.ir import CompareOp
from omnigraph.engine.expr.compare import compare, number_scalar
from omnigraph.engine.expr.order import equal_codes, row_keys
from omnigraph.engine.write.columns import CellProblem
from omnigraph.engine.write.values import shown
from omnigraph.engine.write.violations import Findings, Violation
from omnigraph.model.schema import FLOATS, EdgeType, NodeType

Entity = NodeType | EdgeType
PlaceOf = Callable[[int], str | None]
Cells = frozenset[tuple[int, str]]  # (row, property)


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """The property may not be null."""

    property: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf:
    """The value is one of an enum's."""

    property: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """The number lies between both bounds, each inclusive and optional; NaN lies nowhere."""

    property: str
    minimum: int | float | None
    maximum: int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The pattern is found somewhere in the text (RE2, as the reference's regex)."""

    property: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteKey:
    """A float in a key is a real number, or no id could name the node."""

    property: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """No two rows agree in all these columns; rows with a null among them are exempt."""

    columns: tuple[str, ...]

    @property
    def label(self) -> str:
        return label_of(self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The column names an existing node of the type."""

    column: Literal["src", "dst"]
    node_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutDegree:
    """Each source that a write touches ends with this many edges of the type."""

    minimum: int
    maximum: int | None


ValueRule = Required | OneOf | Within | Matches | FiniteKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Everything that a type demands of its rows, in the order of checking."""

    values: tuple[ValueRule, ...]
    unique: tuple[Unique, ...]
    endpoints: tuple[Endpoint, ...]
    out_degree: OutDegree | None


def rules_of(entity: Entity) -> Rules:
    """The type's constraints. The key itself is not among `unique`: it is the id."""
    return Rules(
        values=_value_rules(entity),
        unique=_unique_rules(entity),
        endpoints=endpoint_rules(entity),
        out_degree=_out_degree(entity),
    )


def label_of(columns: Sequence[str]) -> str:
    """How messages name one property or several."""
    return columns[0] if len(columns) == 1 else f"({', '.join(columns)})"


def _value_rules(entity: Entity) -> tuple[ValueRule, ...]:
    rules: list[ValueRule] = []
    for prop in entity.properties:
        if not prop.type.nullable:
            rules.append(Required(property=prop.name))
        if prop.type.enum_values is not None:
            rules.append(OneOf(property=prop.name, values=prop.type.enum_values))
    if isinstance(entity, NodeType):
        rules += [
            Within(property=r.property, minimum=r.minimum, maximum=r.maximum) for r in entity.ranges
        ]
        rules += [Matches(property=c.property, pattern=c.pattern) for c in entity.checks]
        rules += [
            FiniteKey(property=name)
            for name in entity.key
            if entity.by_name[name].type.scalar in FLOATS
        ]
    return tuple(rules)


def _unique_rules(entity: Entity) -> tuple[Unique, ...]:
    key = frozenset(entity.key) if isinstance(entity, NodeType) else frozenset()
    seen: dict[frozenset[str], Unique] = {}
    for columns in entity.unique:
        if frozenset(columns) != key:
            seen.setdefault(frozenset(columns), Unique(columns=tuple(columns)))
    return tuple(seen.values())


def endpoint_rules(entity: Entity) -> tuple[Endpoint, ...]:
    """What the ends of a type's edges must name; nothing for nodes."""
    if isinstance(entity, NodeType):
        return ()
    return (
        Endpoint(column="src", node_type=entity.from_type),
        Endpoint(column="dst", node_type=entity.to_type),
    )


def _out_degree(entity: Entity) -> OutDegree | None:
    if isinstance(entity, NodeType):
        return None
    wanted = entity.cardinality
    if wanted.minimum == 0 and wanted.maximum is None:
        return None
    return OutDegree(minimum=wanted.minimum, maximum=wanted.maximum)


# --- violations, in the same words everywhere -------------------------------------------------


def misfit(entity: Entity, name: str, problem: CellProblem, place: str | None) -> Violation:
    """A value of the wrong type."""
    return Violation(
        kind="type",
        entity_kind=entity.kind,
        type_name=entity.name,
        property=name,
        value=shown(problem.value),
        ids=(),
        text=f"{entity.name}: field '{name}' {problem.message}",
        place=place,
    )


def missing(entity: Entity, name: str, place: str | None, *, absent: bool) -> Violation:
    """A required property that was left out (`absent`), or is null or was not readable."""
    text = (
        f"missing required property '{name}'"
        if absent
        else f"non-nullable property '{name}' has null or invalid values"
    )
    return Violation(
        kind="required",
        entity_kind=entity.kind,
        type_name=entity.name,
        property=name,
        value=None,
        ids=(),
        text=f"{entity.name}: {text}",
        place=place,
    )


def foreign_id(
    node: NodeType, given: str, canonical: str, place: str | None, *, strict: bool
) -> Violation:
    """An explicit id that is not the one its key gives."""
    derived = f"its canonical @key id '{canonical}'" if strict else f"@key value '{canonical}'"
    return Violation(
        kind="key",
        entity_kind="node",
        type_name=node.name,
        property="id",
        value=given,
        ids=(given, canonical),
        text=f"{node.name}: id '{given}' does not match {derived}",
        place=place,
    )


def repeated(
    entity: Entity, columns: Sequence[str], value: str, ids: Sequence[str], place: str | None
) -> Violation:
    """Two rows that agree where no two may; `ids` names their entities."""
    held = " and ".join(f"'{one}'" for one in ids[:2])
    return Violation(
        kind="unique",
        entity_kind=entity.kind,
        type_name=entity.name,
        property=label_of(columns),
        value=value,
        ids=tuple(ids),
        text=f"@unique violation on {entity.name}.{label_of(columns)}: "
        f"value '{value}' held by {held}",
        place=place,
    )


def repeated_id(entity: Entity, entity_id: str, places: Sequence[str | None]) -> Violation:
    """One id given to several rows of one batch."""
    key = entity.key if isinstance(entity, NodeType) else ()
    columns = key or ("id",)
    where = " and ".join(str(place) for place in places[:2] if place)
    return Violation(
        kind="unique",
        entity_kind=entity.kind,
        type_name=entity.name,
        property=label_of(columns),
        value=entity_id,
        ids=(entity_id,),
        text=f"@unique violation on {entity.name}.{label_of(columns)}: "
        f"value '{entity_id}' appears in {where or 'several rows'}",
        place=places[1] if len(places) > 1 else None,
    )


def existing(entity: Entity, entity_id: str, place: str | None) -> Violation:
    """A record of a strict insert whose id is stored already."""
    key = entity.key if isinstance(entity, NodeType) else ()
    return Violation(
        kind="conflict",
        entity_kind=entity.kind,
        type_name=entity.name,
        property=label_of(key or ("id",)),
        value=entity_id,
        ids=(entity_id,),
        text=f"{entity.kind} {entity.name} '{entity_id}' already exists",
        place=place,
    )


def dangling(
    edge: EdgeType, rule: Endpoint, endpoint: str, edge_id: str, place: str | None
) -> Violation:
    """An edge whose end is no node."""
    return Violation(
        kind="endpoint",
        entity_kind="edge",
        type_name=edge.name,
        property=rule.column,
        value=endpoint,
        ids=(edge_id,),
        text=f"edge {edge.name}: {rule.column} '{endpoint}' not found in {rule.node_type}",
        place=place,
    )


def degree_broken(
    edge: EdgeType, rule: OutDegree, source: str, count: int, place: str | None
) -> Violation | None:
    """A source with too many or too few edges, or None if the number is right."""
    if rule.maximum is not None and count > rule.maximum:
        bound = f"max {rule.maximum}"
    elif count < rule.minimum:
        bound = f"min {rule.minimum}"
    else:
        return None
    return Violation(
        kind="cardinality",
        entity_kind="edge",
        type_name=edge.name,
        property="src",
        value=source,
        ids=(source,),
        text=f"@card violation on edge {edge.name}: source '{source}' has {count} edges ({bound})",
        place=place,
    )


# --- checks over the rows of one batch --------------------------------------------------------


def check_values(
    entity: Entity,
    rows: pa.Table,
    found: Findings,
    *,
    place_of: PlaceOf,
    absent: Cells = frozenset(),
    misfits: Cells = frozenset(),
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Every value rule over the rows; which rows break one. `absent` cells were left out by the
    input; `misfits` are null because their value did not fit, which has been reported already."""
    bad = np.zeros(rows.num_rows, dtype=bool)
    for rule in rules_of(entity).values:
        values = rows.column(rule.property)
        broken = _broken(rule, values)
        if broken is None:
            continue
        at = np.flatnonzero(broken)
        if misfits:
            at = np.array([r for r in at if (int(r), rule.property) not in misfits], dtype=int)
        violations = [
            _value_violation(entity, rule, rows, int(row), place_of(int(row)), absent)
            for row in at[: found.room]
        ]
        found.add(violations, total=len(at))
        bad[at] = True
    return bad


def _broken(rule: ValueRule, values: pa.ChunkedArray[Any]) -> np.ndarray[Any, Any] | None:
    """A mask of the rows that break the rule, or None if none does."""
    column: Any = values
    mask: Any
    match rule:
        case Required():
            mask = column.is_null() if column.null_count else None
        case OneOf():
            known = pc.is_in(column, value_set=pa.array(rule.values, pa.string()))
            mask = None if pc.all(known).as_py() else pc.and_(pc.invert(known), column.is_valid())
        case Within():
            mask = _outside(rule, column)
        case Matches():
            mask = pc.invert(pc.match_substring_regex(column, rule.pattern))
        case FiniteKey():
            mask = pc.invert(pc.is_finite(column))
    if mask is None:
        return None
    flags = pc.fill_null(mask, False)  # noqa: FBT003 - Arrow's signature
    return np.asarray(flags) if pc.any(flags).as_py() else None


def _outside(rule: Within, column: Any) -> Any:
    """Where a bound is not kept, as a query compares; NaN keeps none."""
    values: Any = column.combine_chunks()
    broken: Any = None
    for op, bound in ((CompareOp.GE, rule.minimum), (CompareOp.LE, rule.maximum)):
        if bound is not None:
            beyond = pc.invert(compare(op, values, number_scalar(bound)))
            broken = beyond if broken is None else pc.or_(broken, beyond)
    return broken


def _value_violation(
    entity: Entity,
    rule: ValueRule,
    rows: pa.Table,
    row: int,
    place: str | None,
    absent: Cells,
) -> Violation:
    name = rule.property
    if isinstance(rule, Required):
        return missing(entity, name, place, absent=(row, name) in absent)
    value = rows.column(name)[row].as_py()
    label = f"{entity.name}.{name}"
    identity = rows.column("id")[row].as_py() if "id" in rows.column_names else None
    return Violation(
        kind=_KINDS[type(rule)],
        entity_kind=entity.kind,
        type_name=entity.name,
        property=name,
        value=str(value),
        ids=() if identity is None else (identity,),
        text=_value_text(rule, label, value),
        place=place,
    )


def _value_text(rule: OneOf | Within | Matches | FiniteKey, label: str, value: Any) -> str:
    match rule:
        case OneOf():
            expected = ", ".join(rule.values)
            return f"invalid enum value '{value}' for {label} (expected: {expected})"
        case Within():
            return f"@range violation on {label}: {_beyond(rule, value)}"
        case Matches():
            return (
                f"@check violation on {label}: value '{value}' does not match "
                f"pattern '{rule.pattern}'"
            )
        case FiniteKey():
            return f"@key property {label} must be a finite number, got {value}"


def _beyond(rule: Within, value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "value is NaN"
    if rule.minimum is not None and value < rule.minimum:
        return f"value {value} < min {rule.minimum}"
    return f"value {value} > max {rule.maximum}"


_KINDS: dict[type, Any] = {OneOf: "enum", Within: "range", Matches: "check", FiniteKey: "key"}


def check_unique(
    entity: Entity, rule: Unique, rows: pa.Table, found: Findings, *, place_of: PlaceOf
) -> None:
    """The rule inside one batch whose ids are all different."""
    if rows.num_rows < 2:
        return
    there, keys = unique_keys([rows], rule.columns)
    first, second = repeats(keys)
    told = np.flatnonzero(second)
    described = []
    for at in told[: found.room]:
        holder, row = int(there[first[at]]), int(there[at])
        value = tuple_text([rows[name][row].as_py() for name in rule.columns])
        ids = [rows["id"][holder].as_py(), rows["id"][row].as_py()]
        described.append(repeated(entity, rule.columns, value, ids, place_of(row)))
    found.add(described, total=len(told))


def unique_keys(
    tables: Sequence[pa.Table], columns: Sequence[str]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The rows, counted through all tables, without a null among the columns; and a number for
    each, equal exactly where the values are, as in a group: NaN equals NaN, -0.0 equals 0.0."""
    codes = []
    for name in columns:
        chunks: list[Any] = [chunk for table in tables for chunk in table[name].chunks]
        codes.append(equal_codes(pa.concat_arrays(chunks)))
    there = np.flatnonzero(np.logical_and.reduce([column >= 0 for column in codes]))
    return there, row_keys([column[there] for column in codes])


def repeats(codes: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Of rows that are the same thing if their codes are equal: the first row of each row's kind,
    and which rows are the second of theirs, the ones at which a repetition is told."""
    numbers = np.asarray(codes)
    order = np.argsort(numbers, kind="stable")
    starts = np.concatenate([[True], numbers[order][1:] != numbers[order][:-1]])
    heads = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    first = np.empty(len(order), dtype=np.int64)
    first[order] = order[heads]
    second = np.zeros(len(order), dtype=bool)
    second[order] = np.arange(len(order)) == heads + 1
    return first, second


def tuple_text(values: Sequence[Any]) -> str:
    """The values of a unique tuple as messages show them."""
    return ", ".join(_cell_text(value) for value in values)


def _cell_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
