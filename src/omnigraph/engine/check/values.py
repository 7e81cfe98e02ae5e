"""Each value by itself: the rules that need nothing but the row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.compiler.query.ir import CompareOp
from omnigraph.engine.check.findings import Findings, Place, Violation
from omnigraph.engine.check.rules import (
    Entity,
    FiniteKey,
    Matches,
    OneOf,
    Required,
    ValueRule,
    Within,
    rules_of,
)
from omnigraph.engine.expr.evaluate import compare, number_scalar
from omnigraph.engine.rows.columns import CellProblem
from omnigraph.model.schema import NodeType
from omnigraph.model.values import shown

PlaceOf = Callable[[int], Place | None]
Cells = frozenset[tuple[int, str]]  # (row, property)


def misfit(entity: Entity, name: str, problem: CellProblem, place: Place | None) -> Violation:
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


def missing(entity: Entity, name: str, place: Place | None, *, absent: bool) -> Violation:
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
    node: NodeType, given: str, canonical: str, place: Place | None, *, strict: bool
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
    place: Place | None,
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
