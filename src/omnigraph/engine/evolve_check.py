"""New constraints against the rows that are there, before anything moves.

Only the columns that a constraint is about are read, as they will be: under their new names, with
defaults filled in and numbers widened. Rows stay in Arrow, value checks go batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.evolve_tables import Checked, Entity, TableEvolution
from omnigraph.engine.write.columns import column_type, from_fitted
from omnigraph.engine.write.constraints import (
    OutDegree,
    Unique,
    check_unique,
    check_values,
    degree_broken,
)
from omnigraph.engine.write.values import fit
from omnigraph.engine.write.violations import Findings
from omnigraph.model.plan import AddConstraint, ChangeCardinality, UniqueConstraint
from omnigraph.model.schema import Cardinality, Check, EdgeType, NodeType, Property, Range
from omnigraph.storage.table import Table


def check_rows(evolution: TableEvolution, table: Table, found: Findings) -> None:
    """Add every way in which the table's rows break the constraints that the plan adds."""
    for check in evolution.checks:
        _check(check, _Rows(evolution, table), found)


def _check(check: Checked, rows: _Rows, found: Findings) -> None:
    entity = rows.entity
    match check:
        case ChangeCardinality(to_cardinality=bounds):
            assert isinstance(entity, EdgeType), "only edges have a cardinality"
            _check_degrees(entity, bounds, rows, found)
        case AddConstraint(value=UniqueConstraint(properties=columns)):
            whole = rows.read(["id", *(name for name in columns if name != "id")])
            check_unique(entity, Unique(columns=columns), whole, found, place_of=_nowhere)
        case AddConstraint(value=Range() | Check() as rule):
            # A type with this one property and this one rule is all that the check has to know.
            assert isinstance(entity, NodeType), "only nodes have value constraints"
            lone = replace(
                entity,
                properties=(entity.by_name[rule.property],),
                key=(),
                ranges=(rule,) if isinstance(rule, Range) else (),
                checks=(rule,) if isinstance(rule, Check) else (),
            )
            for batch in rows.batches(["id", rule.property]):
                check_values(lone, batch, found, place_of=_nowhere)
        case AddConstraint():
            raise AssertionError("keys are never added, and indexes need no check")


def _check_degrees(edge: EdgeType, bounds: Cardinality, rows: _Rows, found: Findings) -> None:
    rule = OutDegree(minimum=bounds.minimum, maximum=bounds.maximum)
    counted = rows.read(["src"])["src"].value_counts()
    sources, counts = counted.field(0), counted.field(1)
    outside: Any = pc.less(counts, pa.scalar(bounds.minimum))
    if bounds.maximum is not None:
        outside = pc.or_(outside, pc.greater(counts, pa.scalar(bounds.maximum)))
    broken = pa.table({"source": sources, "count": counts}).filter(outside).sort_by("source")
    violations = (
        degree_broken(edge, rule, row["source"], row["count"], None)
        for row in broken.slice(0, found.room).to_pylist()
    )
    found.add([one for one in violations if one is not None], total=broken.num_rows)


class _Rows:
    """The rows of a table as they will be after the evolution."""

    def __init__(self, evolution: TableEvolution, table: Table) -> None:
        self._evolution, self._table = evolution, table
        self._added = {prop.name: prop for prop in evolution.added}

    @property
    def entity(self) -> Entity:
        return self._evolution.entity

    def read(self, columns: Sequence[str]) -> pa.Table:
        """The columns of all rows."""
        return self._shaped(self._table.read(columns=self._stored(columns)), columns)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The same in pieces."""
        for batch in self._table.scan(columns=self._stored(columns)):
            yield self._shaped(pa.Table.from_batches([batch]), columns)

    def _stored(self, columns: Sequence[str]) -> list[str]:
        kept = [name for name in columns if name not in self._added]
        return [self._evolution.old_name(name) for name in kept]

    def _shaped(self, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
        return pa.table({name: self._column(rows, name) for name in columns})

    def _column(self, rows: pa.Table, name: str) -> Any:
        if name in self._added:
            return _constant(self._added[name], rows.num_rows)
        values = rows[self._evolution.old_name(name)]
        prop = self.entity.by_name.get(name)
        return values if prop is None else values.cast(column_type(prop.type))


def _constant(prop: Property, count: int) -> Any:
    value: Any = from_fitted([fit(prop.default, prop.type)], prop.type)
    repeated: Any = pa.repeat(value[0], count)
    return pa.chunked_array([repeated])


def _nowhere(row: int) -> str | None:
    """Stored rows come from no line of a file."""
    del row
    return None
