"""The constraints of a type as data, and those of them that need nothing but one row's values.

`rules_of` is the one description of what a schema demands of its rows. Values are checked here,
rows against each other in `decide.py`, in this order: values, ids, uniqueness, ends, number of
edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.compiler.query.ir import CompareOp
from omnigraph.engine.check.findings import Findings, Place, Violation, violated
from omnigraph.engine.expr.compare import compare, number_scalar
from omnigraph.engine.rows.columns import CellProblem
from omnigraph.model.schema import FLOATS, Cardinality, Check, EdgeType, NodeType, Range
from omnigraph.model.values import shown

Entity = NodeType | EdgeType


class Required(msgspec.Struct, frozen=True, kw_only=True):
    """The property may not be null."""

    property: str


class OneOf(msgspec.Struct, frozen=True, kw_only=True):
    """The value is one of an enum's."""

    property: str
    values: tuple[str, ...]


class FiniteKey(msgspec.Struct, frozen=True, kw_only=True):
    """A float in a key is a real number, or no id could name the node."""

    property: str


class Unique(msgspec.Struct, frozen=True, kw_only=True):
    """No two rows agree in all these columns; rows with a null among them are exempt."""

    columns: tuple[str, ...]

    @property
    def label(self) -> str:
        return label_of(self.columns)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The column names an existing node of the type."""

    column: Literal["src", "dst"]
    node_type: str


# A range lies between both bounds, each inclusive and optional; NaN lies nowhere. The pattern of a
# check is found somewhere in the text (RE2, as the reference's regex).
ValueRule = Required | OneOf | Range | Check | FiniteKey


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a type demands of its rows, in the order of checking."""

    values: tuple[ValueRule, ...]
    unique: tuple[Unique, ...]
    endpoints: tuple[Endpoint, ...]
    out_degree: Cardinality | None  # of each source that a write touches


def rules_of(entity: Entity) -> Rules:
    """The type's constraints. The key itself is not among `unique`: it is the id."""
    degree = entity.cardinality if isinstance(entity, EdgeType) else Cardinality()
    return Rules(
        values=_value_rules(entity),
        unique=_unique_rules(entity),
        endpoints=endpoint_rules(entity),
        out_degree=None if degree == Cardinality() else degree,
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
        rules += [*entity.ranges, *entity.checks]
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


# --- each value by itself ---------------------------------------------------------------------

PlaceOf = Callable[[int], Place | None]
Cells = frozenset[tuple[int, str]]  # (row, property)


def misfit(entity: Entity, name: str, problem: CellProblem, place: Place | None) -> Violation:
    """A value of the wrong type."""
    text = f"{entity.name}: field '{name}' {problem.message}"
    return violated(entity, "type", name, text, value=shown(problem.value), place=place)


def missing(entity: Entity, name: str, place: Place | None, *, absent: bool) -> Violation:
    """A required property that was left out (`absent`), or is null or was not readable."""
    text = (
        f"missing required property '{name}'"
        if absent
        else f"non-nullable property '{name}' has null or invalid values"
    )
    return violated(entity, "required", name, f"{entity.name}: {text}", place=place)


def foreign_id(
    node: NodeType, given: str, canonical: str, place: Place | None, *, strict: bool
) -> Violation:
    """An explicit id that is not the one its key gives."""
    derived = f"its canonical @key id '{canonical}'" if strict else f"@key value '{canonical}'"
    text = f"{node.name}: id '{given}' does not match {derived}"
    return violated(node, "key", "id", text, value=given, ids=(given, canonical), place=place)


def check_values(
    entity: Entity,
    rows: pa.Table,
    found: Findings,
    *,
    place_of: PlaceOf = lambda _row: None,
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
        case Range():
            mask = _outside(rule, column)
        case Check():
            mask = pc.invert(pc.match_substring_regex(column, rule.pattern))
        case FiniteKey():
            mask = pc.invert(pc.is_finite(column))
    if mask is None:
        return None
    flags = pc.fill_null(mask, False)  # noqa: FBT003 - Arrow's signature
    return np.asarray(flags) if pc.any(flags).as_py() else None


def _outside(rule: Range, column: Any) -> Any:
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
    place: Place | None,
    absent: Cells,
) -> Violation:
    name = rule.property
    if isinstance(rule, Required):
        return missing(entity, name, place, absent=(row, name) in absent)
    value = rows.column(name)[row].as_py()
    identity = rows.column("id")[row].as_py() if "id" in rows.column_names else None
    return violated(
        entity,
        _KINDS[type(rule)],
        name,
        _value_text(rule, f"{entity.name}.{name}", value),
        value=str(value),
        ids=() if identity is None else (identity,),
        place=place,
    )


def _value_text(rule: OneOf | Range | Check | FiniteKey, label: str, value: Any) -> str:
    match rule:
        case OneOf():
            expected = ", ".join(rule.values)
            return f"invalid enum value '{value}' for {label} (expected: {expected})"
        case Range():
            return f"@range violation on {label}: {_beyond(rule, value)}"
        case Check():
            return (
                f"@check violation on {label}: value '{value}' does not match "
                f"pattern '{rule.pattern}'"
            )
        case FiniteKey():
            return f"@key property {label} must be a finite number, got {value}"


def _beyond(rule: Range, value: Any) -> str:
    if isinstance(value, float) and math.isnan(value):
        return "value is NaN"
    if rule.minimum is not None and value < rule.minimum:
        return f"value {value} < min {rule.minimum}"
    return f"value {value} > max {rule.maximum}"


_KINDS: dict[type, Any] = {OneOf: "enum", Range: "range", Check: "check", FiniteKey: "key"}
