"""Spark's filters as conditions on a stored table; what cannot be said exactly is left to Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from omnigraph.model.schema import EdgeType, NodeType, PropertyType, Scalar
from omnigraph.storage import sql

_COMPARISONS: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_TEXT: Final = PropertyType(scalar=Scalar.STRING)
_ORDERED: Final = frozenset(
    {Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.DATE, Scalar.DATETIME}
)


def split_filters(
    entity: NodeType | EdgeType, filters: Iterable[Filter]
) -> tuple[str | None, list[Filter]]:
    """The condition that the store will check, and the filters that Spark must check itself."""
    conditions: list[str] = []
    left: list[Filter] = []
    for one in filters:
        condition = condition_of(entity, one)
        if condition is None:
            left.append(one)
        else:
            conditions.append(condition)
    return sql.all_of(*conditions), left


def condition_of(entity: NodeType | EdgeType, one: Filter) -> str | None:
    """The filter as SQL with the same answer on every row, or None."""
    if isinstance(one, Not):
        inner = condition_of(entity, one.child)
        return None if inner is None else f"NOT ({inner})"
    attribute: Any = getattr(one, "attribute", ())
    if len(attribute) != 1:
        return None
    kind = _kind(entity, attribute[0])
    if kind is None or kind.is_list:
        return None
    name = sql.column(attribute[0])
    match one:
        case IsNull():
            return f"{name} IS NULL"
        case IsNotNull():
            return f"{name} IS NOT NULL"
        case _ if kind.scalar not in _ORDERED and kind.scalar is not Scalar.BOOL:
            return None
        case In():
            values = [v for v in one.value if v is not None]
            return sql.in_list(attribute[0], values) if all(map(_plain, values)) else None
        case StringStartsWith() if kind.scalar is Scalar.STRING:
            return f"starts_with({name}, {sql.literal(one.value)})"
        case _ if type(one) in _COMPARISONS and _plain(getattr(one, "value", None)):
            return f"{name} {_COMPARISONS[type(one)]} {sql.literal(one.value)}"  # type: ignore[attr-defined]
        case _:
            return None


def _kind(entity: NodeType | EdgeType, name: str) -> PropertyType | None:
    if name == "id" or (isinstance(entity, EdgeType) and name in ("src", "dst")):
        return _TEXT
    prop = entity.by_name.get(name)
    return prop.type if prop else None


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | bool | dt.date | dt.datetime)
