"""The change of a mutation or a merge against the graph that it would make.

Values first: rows that are not what they should be make no sense to the rest. Then uniqueness, ends
and number of edges, all findings together. Stored rows count unless the change replaces or deletes
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from omnigraph.engine.check.bucket import MemoryBucket, Offences, Section
from omnigraph.engine.check.change import Changes, TableChange
from omnigraph.engine.check.decide import Kind, decide, decide_unique_in
from omnigraph.engine.check.describe import describe, repeated
from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.rules import Entity, Unique, rules_of
from omnigraph.engine.check.values import check_values
from omnigraph.engine.rows.parts import Stored
from omnigraph.model.schema import Catalog


def validate(changes: Changes, catalog: Catalog, stored: Stored, found: Findings) -> None:
    """Raise `ConstraintViolationError` unless the graph after the change obeys the schema."""
    validate_values(changes, catalog, found)
    validate_rows(changes, catalog, stored, found)


def look_up(changes: Changes, stored: Stored) -> None:
    """Ask each table once for every id that a small change needs to know about."""
    wanted: dict[str, set[str]] = {}
    for key, change in changes.items():
        if not (change.fresh or change.replaces_all):
            wanted.setdefault(key, set()).update(_texts(change.rows["id"]))
        for rule in rules_of(change.entity).endpoints:
            if change.terms.touches([rule.column]):
                ends = wanted.setdefault(f"node:{rule.node_type}", set())
                ends.update(_texts(change.rows[rule.column]))
    for key, ids in sorted(wanted.items()):
        stored.locate(key, ids)


def validate_values(changes: Changes, catalog: Catalog, found: Findings) -> None:
    """The first half: each value by itself. `found` may already hold values of wrong types."""
    for change in _ordered(changes, catalog):
        check_values(change.entity, change.rows, found)
    found.raise_if_any()


def validate_rows(changes: Changes, catalog: Catalog, stored: Stored, found: Findings) -> None:
    """The second half: rows against each other and against stored ones."""
    _decide(changes, catalog, stored, ("unique", "ends", "degrees"), found)
    found.raise_if_any()


def find_orphans(changes: Changes, catalog: Catalog, stored: Stored, found: Findings) -> None:
    """Stored edges whose node the change deletes without them."""
    _decide(changes, catalog, stored, ("orphans",), found)


def _decide(
    changes: Changes, catalog: Catalog, stored: Stored, kinds: Sequence[Kind], found: Findings
) -> None:
    offences = Offences(found.room)
    terms = {key: change.terms for key, change in changes.items()}
    decide(MemoryBucket(changes, stored), terms, catalog, kinds, offences)
    describe(offences, catalog, _Names(changes), kinds, found)


class _Names:
    """The rows of changes by their numbers."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def place(self, table_key: str, row: int) -> None:
        """What a statement or a merge writes has no place."""

    def entity_id(self, table_key: str, row: int) -> str:
        return self._changes[table_key].rows["id"][row].as_py() or ""


def _ordered(changes: Changes, catalog: Catalog) -> list[TableChange]:
    keys = (entity.table_key for entity in catalog.types())
    return [changes[key] for key in keys if key in changes]


def _texts(column: Any) -> list[str]:
    return list(column.to_pylist())


def check_unique(entity: Entity, rule: Unique, rows: pa.Table, found: Findings) -> None:
    """A rule that a schema adds, over all rows of a table."""
    offences, section = Offences(found.room), Section("unique", entity.table_key, rule.label)
    decide_unique_in(entity.table_key, rule, rows, offences)
    found.add(
        [
            repeated(entity, rule.columns, one.value, (one.rival_id, one.row_id), None)
            for one in offences.listed(section)
        ],
        total=offences.total(section),
    )
