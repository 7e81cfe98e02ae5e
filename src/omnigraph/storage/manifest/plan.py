"""What a publish would write, decided from facts alone. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from omnigraph.errors import (
    AlreadyExistsError,
    ExpectedVersionMismatchError,
    PreconditionFailedError,
)
from omnigraph.model.changeset import (
    Changeset,
    Expectation,
    HeadIs,
    Lineage,
    Registration,
    TableIs,
    TableUpdate,
    Tombstone,
)
from omnigraph.model.graph import Branch, Commit, TableEntry
from omnigraph.model.limits import (
    MANIFEST_SEALED_ROWS_MAX,
    MANIFEST_TAIL_COMMITS_MAX,
    MANIFEST_TAIL_COMMITS_MIN,
)
from omnigraph.storage.manifest.rows import CommitRow, Tail


def is_empty(changeset: Changeset) -> bool:
    """Whether it would change nothing: such a publish only checks what it expects."""
    return not (
        changeset.updates
        or changeset.registrations
        or changeset.tombstones
        or changeset.schema is not None
        or changeset.lineage is not None
    )


def check_expectations(tail: Tail, expects: Iterable[Expectation]) -> None:
    """Raise for the first thing that no longer is as the write relied on."""
    for expected in expects:
        match expected:
            case TableIs():
                _check_table(tail, expected)
            case HeadIs(commit_id=commit_id):
                if tail.head.id != commit_id:
                    raise PreconditionFailedError(expected=commit_id, actual=tail.head.id)
            case _:
                assert_never(expected)


def _check_table(tail: Tail, expected: TableIs) -> None:
    entry = tail.entries.get(expected.table_key)
    if entry is None:
        holds = expected.version == 0
    else:
        holds = (entry.version, entry.branch) == (expected.version, expected.branch)
    if not holds:
        raise _moved(tail, expected.table_key, expected.version)


def successor(tail: Tail, changeset: Changeset, commit: CommitRow) -> Tail:
    """The tail after the changeset, or an error if a row would be doubled or go backwards."""
    entries = dict(tail.entries)
    tombstones = dict(tail.tombstones)
    for gone in changeset.tombstones:
        _bury(tail, gone)
        del entries[gone.table_key]
        tombstones[gone.table_key] = gone.version
    locations = {new.table_key: _location(entries, new) for new in changeset.registrations}
    for update in changeset.updates:
        location = locations.pop(update.table_key, None)
        if location is None:
            location = _next_location(tail, entries, update)
        entries[update.table_key] = TableEntry(
            table_key=update.table_key,
            location=location,
            version=update.version,
            branch=update.branch,
            row_count=update.row_count,
        )
        tombstones.pop(update.table_key, None)  # a name's next life begins
    assert not locations, f"registered without a version: {sorted(locations)}"
    return replace(
        tail,
        schema=changeset.schema or tail.schema,
        entries=dict(sorted(entries.items())),
        tombstones=tombstones,
        commits=(*tail.commits, commit),
    )


def _bury(tail: Tail, gone: Tombstone) -> None:
    entry = tail.entries.get(gone.table_key)
    if entry is None or gone.version < entry.version:
        raise _moved(tail, gone.table_key, gone.version)


def _location(entries: dict[str, TableEntry], new: Registration) -> str:
    if new.table_key in entries:
        raise AlreadyExistsError(
            f"table '{new.table_key}' is registered already", kind="table", name=new.table_key
        )
    return new.location


def _next_location(tail: Tail, entries: dict[str, TableEntry], update: TableUpdate) -> str:
    entry = entries.get(update.table_key)
    if entry is None:
        raise _moved(tail, update.table_key, update.version)
    handed_over = entry.branch != update.branch and (
        update.version > entry.version
        # The same rows under another owner, as when a merge adopts a table.
        or (update.version == entry.version and update.row_count == entry.row_count)
    )
    if not handed_over and update.version <= entry.version:
        # The version row is there already, or a later one.
        raise _moved(tail, update.table_key, update.version - 1)
    return entry.location


def _moved(tail: Tail, table_key: str, expected: int) -> ExpectedVersionMismatchError:
    return ExpectedVersionMismatchError(
        table_key=table_key, expected=expected, actual=tail.version_of(table_key)
    )


def next_commit(
    tail: Tail, branch: Branch, lineage: Lineage, *, version: int, publish_id: str
) -> CommitRow:
    """The commit that follows the head."""
    return CommitRow(
        commit=Commit(
            graph_commit_id=lineage.commit_id,
            parent_commit_id=tail.head.id,
            merged_parent_commit_id=lineage.merged_parent_commit_id,
            graph_branch=branch.name,
            graph_manifest_version=version,
            actor_id=lineage.actor_id,
            created_at=lineage.created_at,
            properties=dict(lineage.properties),
        ),
        branch_id=branch.id,
        publish_id=publish_id,
    )


# --- sealing ---------------------------------------------------------------------------------


class Sealing(msgspec.Struct, frozen=True, kw_only=True):
    """Older commits that leave the tail, and how many of the newest fragments join them."""

    tail: Tail
    commits: tuple[CommitRow, ...]
    folded: int


def sealing(tail: Tail, sealed_rows: Sequence[int]) -> Sealing | None:
    """What to seal, given the sizes of the history fragments, newest first; None = nothing yet.

    Fragments fold like the digits of a binary counter: each commit is rewritten O(log n) times and
    O(log n) fragments stay, while nearly every publish writes the tail alone.
    """
    if len(tail.commits) <= MANIFEST_TAIL_COMMITS_MAX:
        return None
    leaving = tail.commits[:-MANIFEST_TAIL_COMMITS_MIN]
    rows, folded = len(leaving), 0
    for size in sealed_rows:
        if size > rows or rows + size > MANIFEST_SEALED_ROWS_MAX:
            break
        rows, folded = rows + size, folded + 1
    newest = max(row.id for row in leaving)
    return Sealing(
        tail=replace(
            tail,
            commits=tail.commits[-MANIFEST_TAIL_COMMITS_MIN:],
            sealed_through=max(newest, tail.sealed_through or newest),
        ),
        commits=leaving,
        folded=folded,
    )
