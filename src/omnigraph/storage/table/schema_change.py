"""Changing the columns of a table in one staged write.

Lance numbers columns, and a number must never come to mean another column. The new numbers are
therefore found on a copy of the table's description in memory, which Lance itself evolves; no file
of the table is touched until the write lands, and columns without values need no new files at all.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import lance
import msgspec
import pyarrow as pa
from lance import LanceOperation as Op
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata

from omnigraph.storage.lance import stamps
from omnigraph.storage.lance.digests import Written
from omnigraph.storage.lance.files import data_paths
from omnigraph.storage.table.pinned import Pinned
from omnigraph.storage.table.stage import Evolving, StagedWrite, refilled, staged, staged_on


class AddedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A new column: null in every row, or with the value of an SQL expression over the row."""

    field: pa.Field[Any]
    value: str | None = None


class ColumnChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with the columns, each called what it is called now. An added column may take the
    name of a dropped one, and its value may be made from it."""

    renamed: Mapping[str, str] = {}
    dropped: Sequence[str] = ()
    added: Sequence[AddedColumn] = ()
    made_nullable: Sequence[str] = ()
    touches_rows: bool = False  # every row counts as changed by it, so that differences read it

    @property
    def is_empty(self) -> bool:
        return not (self.renamed or self.dropped or self.added or self.made_nullable)


def stage(pinned: Pinned, changes: ColumnChanges) -> StagedWrite | None:
    """All changes in one write; None if there are none."""
    if changes.is_empty:
        return None
    with pinned.translated(doing="change columns of"):
        drafts = {one.field.name: one.value for one in changes.added if one.value is not None}
        brought, filled = _fill(pinned, {_draft(name): drafts[name] for name in drafts})
        fragments = filled.fragments
        if not fragments:
            drafts = {}  # no rows, no values: these columns are added like all others
        schema = _evolved(brought, changes, list(drafts), pinned.dataset.max_field_id)
    if not fragments or not (drafts or changes.touches_rows):
        return staged(pinned, "schema", Op.Project(schema))
    # First the columns, empty, then the files that fill them. Lance's merge would do both at once,
    # but stamps every row as changed, and the next difference would have to read them all.
    version = pinned.entry.version
    columns = Transaction(version, Op.Project(schema), str(uuid.uuid4()), {})
    if changes.touches_rows:
        fragments = [_touched(one, version + 2) for one in fragments]
    values = Transaction(version + 1, refilled(fragments, schema), str(uuid.uuid4()), {})
    evolving = Evolving(before=(columns,), last=values, uuid=values.uuid)
    rows = int(pinned.dataset.count_rows())
    write = staged_on(pinned.entry, "evolution", evolving, rows=rows, versions=2)
    return msgspec.structs.replace(write, digests=filled.digests)


def _draft(name: str) -> str:
    """What a column is called while an old one of its name is still there."""
    return f"{name} in the making"


def _fill(pinned: Pinned, values: Mapping[str, str]) -> tuple[Any, Written]:
    """The fragments with a new data file each for the columns that have values."""
    dataset = pinned.dataset
    schema: Any = dataset.lance_schema
    fragments: list[FragmentMetadata] = []
    for fragment in dataset.get_fragments():
        if values:
            changed, schema = fragment.merge_columns(dict(values))
            fragments.append(changed)
        else:
            fragments.append(fragment.metadata)
    if not values:
        return schema, Written(fragments=fragments)
    paths = data_paths(pinned.folder, fragments, last_only=True)
    digests = pinned.lines.flusher.keep(pinned.folder, paths)
    return schema, Written(fragments=fragments, digests=digests)


def _touched(fragment: FragmentMetadata, version: int) -> FragmentMetadata:
    """The fragment with a note that this version changed all of its rows."""
    note = stamps.encode([stamps.Run(rows=fragment.physical_rows, version=version)])
    stamped = {**fragment.to_json(), "last_updated_at_version_meta": {"inline": list(note)}}
    return FragmentMetadata.from_json(json.dumps(stamped))


def _evolved(schema: Any, changes: ColumnChanges, drafts: Sequence[str], highest: int) -> Any:
    """The schema after the changes; new columns have numbers beyond the highest ever used."""
    # Without the files: creating a dataset numbers its columns anew, and what a file holds under a
    # number may be of another shape than the column that has the number then.
    scratch = lance.LanceDataset.commit(
        f"memory://{secrets.token_hex(8)}", Op.Overwrite(schema, [])
    )
    # This puts the table's own numbers back.
    scratch = lance.LanceDataset.commit(
        scratch, Op.Project(schema), read_version=int(scratch.version)
    )
    if changes.dropped:
        scratch.drop_columns(list(changes.dropped))
    alterations: dict[str, Any] = {
        old: {"path": old, "name": new} for old, new in changes.renamed.items()
    }
    for name in changes.made_nullable:
        alterations[name] = {"path": name, **alterations.get(name, {}), "nullable": True}
    for name in drafts:
        path = f"`{_draft(name)}`"
        alterations[path] = {"path": path, "name": name, "nullable": True}
    if alterations:
        scratch.alter_columns(*alterations.values())
    padding = [f"padding {n}" for n in range(highest - int(scratch.max_field_id))]
    if padding:
        scratch.add_columns([pa.field(name, pa.bool_()) for name in padding])
    present = set(scratch.schema.names)
    added = [one.field for one in changes.added if one.field.name not in present]
    empty = [field.with_nullable(True) for field in added]  # noqa: FBT003
    if empty:
        scratch.add_columns(empty)
    if padding:
        scratch.drop_columns(padding)
    return scratch.lance_schema
