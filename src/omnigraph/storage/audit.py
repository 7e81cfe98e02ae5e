"""The audit table: one row for every recovery action, written once per operation id."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.errors import AlreadyExistsError, ConflictError
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import PUBLISHER_RETRY_BUDGET
from omnigraph.storage import sql
from omnigraph.storage.layout import AUDIT
from omnigraph.storage.table import Table, Tables

_FIELDS: list[Any] = [
    pa.field("graph_commit_id", pa.utf8()),
    pa.field("recovery_kind", pa.utf8(), nullable=False),
    pa.field("recovery_for_actor", pa.utf8()),
    pa.field(
        "operation_id",
        pa.utf8(),
        nullable=False,
        metadata={b"lance-schema:unenforced-primary-key": b"true"},
    ),
    pa.field("sidecar_writer_kind", pa.utf8()),
    pa.field("graph_branch", pa.utf8()),
    pa.field("per_table_outcomes_json", pa.utf8(), nullable=False),
    pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
]
_SCHEMA = pa.schema(_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What recovery did to one table: from the head it found to the version it published."""

    table_key: str
    from_version: int
    to_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRecord:
    """One recovery action. `recovery_for_actor` is the actor of the write that died."""

    operation_id: str
    recovery_kind: str
    graph_commit_id: str | None
    recovery_for_actor: str | None
    writer_kind: str | None
    graph_branch: str | None
    outcomes: tuple[TableOutcome, ...]
    created_at: int

    def to_json(self) -> dict[str, Any]:
        return {
            "operation_id": self.operation_id,
            "recovery_kind": self.recovery_kind,
            "graph_commit_id": self.graph_commit_id,
            "recovery_for_actor": self.recovery_for_actor,
            "sidecar_writer_kind": self.writer_kind,
            "graph_branch": self.graph_branch,
            "per_table_outcomes": [_outcome_json(outcome) for outcome in self.outcomes],
            "created_at": self.created_at,
        }


class Audit:
    """Append-only. Several branches may recover at once, so an append tries again when it loses."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def record(self, record: RecoveryRecord) -> None:
        """Write the row, unless one of the same operation id is there already."""
        for attempt in range(PUBLISHER_RETRY_BUDGET):
            table = self._open_or_create()
            if table.count(f"operation_id = {sql.literal(record.operation_id)}"):
                return
            staged = table.stage_append(_to_arrow(record))
            assert staged is not None, "one row is something to append"
            try:
                self._tables.apply(staged)
            except ConflictError:
                if attempt + 1 == PUBLISHER_RETRY_BUDGET:
                    raise
            else:
                return

    def records(self) -> list[RecoveryRecord]:
        """Every recovery action, oldest first."""
        if not self._tables.exists(AUDIT):
            return []
        rows = self._open().read(columns=_SCHEMA.names).to_pylist()
        return sorted((_from_row(row) for row in rows), key=lambda record: record.operation_id)

    def _open_or_create(self) -> Table:
        if not self._tables.exists(AUDIT):
            with suppress(AlreadyExistsError):  # another recovery made it first
                self._tables.create(AUDIT, _SCHEMA)
        return self._open()

    def _open(self) -> Table:
        head = self._tables.head_version(AUDIT, None)
        return self._tables.open(TableEntry(table_key="audit", location=AUDIT, version=head))


def _outcome_json(outcome: TableOutcome) -> dict[str, Any]:
    return {
        "table_key": outcome.table_key,
        "from_version": outcome.from_version,
        "to_version": outcome.to_version,
    }


def _to_arrow(record: RecoveryRecord) -> pa.Table:
    outcomes = orjson.dumps([_outcome_json(outcome) for outcome in record.outcomes]).decode()
    return pa.Table.from_pylist(
        [
            {
                "graph_commit_id": record.graph_commit_id,
                "recovery_kind": record.recovery_kind,
                "recovery_for_actor": record.recovery_for_actor,
                "operation_id": record.operation_id,
                "sidecar_writer_kind": record.writer_kind,
                "graph_branch": record.graph_branch,
                "per_table_outcomes_json": outcomes,
                "created_at": record.created_at,
            }
        ],
        schema=_SCHEMA,
    )


def _from_row(row: Mapping[str, Any]) -> RecoveryRecord:
    created_at = row["created_at"]
    return RecoveryRecord(
        operation_id=row["operation_id"],
        recovery_kind=row["recovery_kind"],
        graph_commit_id=row["graph_commit_id"],
        recovery_for_actor=row["recovery_for_actor"],
        writer_kind=row["sidecar_writer_kind"],
        graph_branch=row["graph_branch"],
        outcomes=tuple(
            TableOutcome(**outcome) for outcome in orjson.loads(row["per_table_outcomes_json"])
        ),
        created_at=round(created_at.timestamp() * 1_000_000),
    )
