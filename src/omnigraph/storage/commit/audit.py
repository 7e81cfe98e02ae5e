"""The audit table: one row for every recovery action, written once per operation id.

It is a record and nothing hangs on it: when it cannot be written, the row is kept as a small file
of its own, and when not even that is possible, in memory. Recovery goes on in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import orjson
import pyarrow as pa

from omnigraph.errors import AlreadyExistsError, ConflictError, CorruptGraphError, OmnigraphError
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import PUBLISHER_RETRY_BUDGET
from omnigraph.model.ports import ObjectStore
from omnigraph.model.structs import JsonStruct
from omnigraph.storage.lance import sql
from omnigraph.storage.lance.columns import PRIMARY_KEY
from omnigraph.storage.lance.pylance import is_foreign
from omnigraph.storage.objects.root import AUDIT, AUDIT_RECORDS, is_id
from omnigraph.storage.table.table import Table, Tables

logger = logging.getLogger(__name__)

_FIELDS: list[Any] = [
    pa.field("graph_commit_id", pa.utf8()),
    pa.field("recovery_kind", pa.utf8(), nullable=False),
    pa.field("recovery_for_actor", pa.utf8()),
    pa.field("operation_id", pa.utf8(), nullable=False, metadata=PRIMARY_KEY),
    pa.field("sidecar_writer_kind", pa.utf8()),
    pa.field("graph_branch", pa.utf8()),
    pa.field("per_table_outcomes_json", pa.utf8(), nullable=False),
    pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
]
_SCHEMA = pa.schema(_FIELDS)


class TableOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What recovery did to one table: from the head it found to the version it published."""

    table_key: str
    from_version: int
    to_version: int


class RecoveryRecord(JsonStruct, frozen=True, kw_only=True):
    """One recovery action. `recovery_for_actor` is the actor of the write that died."""

    operation_id: str
    recovery_kind: str
    graph_commit_id: str | None
    recovery_for_actor: str | None
    writer_kind: str | None = msgspec.field(name="sidecar_writer_kind")
    graph_branch: str | None
    outcomes: tuple[TableOutcome, ...] = msgspec.field(name="per_table_outcomes")
    created_at: int


class Audit:
    """Append-only. Several branches may recover at once, so an append tries again when it loses."""

    def __init__(self, tables: Tables, store: ObjectStore) -> None:
        self._tables = tables
        self._store = store
        self._unstored: dict[str, RecoveryRecord] = {}

    def record(self, record: RecoveryRecord) -> None:
        """Write the row, unless one of the same operation id is there already; never raises for
        a store that fails or a table that is damaged."""
        try:
            self._append(record)
        except BaseException as cause:
            # Lance panics as a BaseException; a crash that a test plays must still get through.
            if not _is_fault(cause):
                raise
            logger.warning(
                "a recovery is not in the audit table",
                extra={"operation": record.operation_id, "why": str(cause)},
            )
            self._keep_beside(record)

    def _append(self, record: RecoveryRecord) -> None:
        for attempt in range(PUBLISHER_RETRY_BUDGET):
            # Looked up in each round: a recovery that was cut off behind this row comes here again,
            # and another one may write the same row between our look and our append.
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

    def _keep_beside(self, record: RecoveryRecord) -> None:
        try:
            # Two records of one operation are the same recovery: the first one is kept.
            if not is_id(record.operation_id):
                # Junk in the recovery folder may be called anything, and this becomes a path.
                raise ValueError(f"{record.operation_id!r} is no operation id")  # noqa: TRY301
            body = orjson.dumps(record.to_json(), option=orjson.OPT_INDENT_2)
            self._store.put_if_absent(f"{AUDIT_RECORDS}/{record.operation_id}.json", body)
        except BaseException as cause:
            if not _is_fault(cause):
                raise
            logger.warning("a recovery is not recorded", extra=record.to_json())
            self._unstored[record.operation_id] = record

    def records(self) -> list[RecoveryRecord]:
        """Every recovery action that can be read, oldest first; `problems` tells of the rest."""
        return self._read()[0]

    def problems(self) -> list[str]:
        """What of the record cannot be read, in words."""
        return self._read()[1]

    def remove(self) -> None:
        """Take the table away, so that a new one is begun; what can be read of it is kept."""
        # Kept first, then removed: a crash in between leaves every row once or twice, never none.
        for record in self.records():
            self._keep_beside(record)
        self._tables.forget(AUDIT)
        if not self._store.delete_prefix(AUDIT):
            self._store.delete(AUDIT)  # something else than a table stood in its place

    def _read(self) -> tuple[list[RecoveryRecord], list[str]]:
        # By operation id, so that a row which stands in several of the three places counts once.
        found, problems = dict(self._unstored), []
        for key in self._store.list_keys(AUDIT_RECORDS):
            stored = self._store.read(key)
            if stored is None:
                continue
            try:
                record = msgspec.json.decode(stored.body, type=RecoveryRecord)
            except (msgspec.MsgspecError, ValueError) as cause:
                problems.append(f"'{key}' cannot be read: {cause}")
            else:
                found[record.operation_id] = record
        try:
            found.update((record.operation_id, record) for record in self._rows())
        except BaseException as cause:
            if not _is_fault(cause):
                raise
            problems.append(f"the table '{AUDIT}' cannot be read: {cause}")
        for problem in problems:
            logger.warning("recoveries that cannot be read", extra={"why": problem})
        return sorted(found.values(), key=lambda record: record.operation_id), problems

    def _rows(self) -> Iterator[RecoveryRecord]:
        if not self._tables.exists(AUDIT):
            if self._store.read(AUDIT) is not None:
                raise CorruptGraphError("a file stands in its place", part=AUDIT)
        else:
            for row in self._open().read(columns=_SCHEMA.names).to_pylist():
                yield _from_row(row)

    def _open_or_create(self) -> Table:
        if not self._tables.exists(AUDIT):
            # Two recoveries of different branches may be here at once; both append afterwards.
            with suppress(AlreadyExistsError):  # another recovery made it first
                self._tables.create(AUDIT, _SCHEMA)
        return self._open()

    def _open(self) -> Table:
        head = self._tables.head_version(AUDIT, None)
        return self._tables.open(TableEntry(table_key="audit", location=AUDIT, version=head))


def _to_arrow(record: RecoveryRecord) -> pa.Table:
    facts = record.to_json()
    facts["per_table_outcomes_json"] = orjson.dumps(facts.pop("per_table_outcomes")).decode()
    return pa.Table.from_pylist([facts], schema=_SCHEMA)


def _from_row(row: dict[str, Any]) -> RecoveryRecord:
    row["per_table_outcomes"] = orjson.loads(row.pop("per_table_outcomes_json"))
    row["created_at"] = round(row["created_at"].timestamp() * 1_000_000)
    return msgspec.convert(row, RecoveryRecord)


def _is_fault(cause: BaseException) -> bool:
    """Whether the store or the table failed us; a killed process or a defect is none."""
    return isinstance(cause, OmnigraphError) or is_foreign(cause)
