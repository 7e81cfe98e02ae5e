"""What changed between two versions of a table, at a cost that follows the change.

Fragments that both versions share are never read. Where a fragment only lost rows, the deletion
files say which ones. Rows keep their row id when they are updated or moved by compaction, so row
ids tell inserted, updated and deleted rows apart.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.storage.lance.files import deleted_offsets, fragment_keys
from omnigraph.storage.table.pinned import Pinned

_STAMP: Final = "_row_last_updated_at_version"
_OFFSET_BITS: Final = 32
_SPARSE_MAX: Final = 10_000  # rows of a fragment that are worth naming one by one

U64 = npt.NDArray[np.uint64]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Where the inserted and updated rows are on the newer side, and the row ids that are gone."""

    inserted: U64
    updated: U64
    deleted: U64


class _Side(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one version that are not where the other version has them, by row id."""

    ids: U64
    stamps: U64
    addresses: U64


def changes(newer: Pinned, older: Pinned) -> Changes:
    """The difference between a version and one of its ancestors (also across a fork)."""
    return _compare(*_sides(newer, older))


def differing(newer: Pinned, older: Pinned, *, one_line: bool) -> tuple[U64, U64]:
    """The addresses, on the newer and on the older side, of all rows that may differ.

    On one line of versions row ids tell apart what was merely moved; otherwise the same row id may
    mean different rows, and every row that is not at the same place on both sides is named.
    """
    new, old = _sides(newer, older)
    if not one_line:
        return new.addresses, old.addresses
    _, at_new, at_old = np.intersect1d(new.ids, old.ids, assume_unique=True, return_indices=True)
    moved = new.stamps[at_new] == old.stamps[at_old]
    return np.delete(new.addresses, at_new[moved]), np.delete(old.addresses, at_old[moved])


def _sides(newer: Pinned, older: Pinned) -> tuple[_Side, _Side]:
    """The rows of each version that the other one does not have at the same place."""
    new_keys, old_keys = fragment_keys(newer.dataset), fragment_keys(older.dataset)
    whole_new = [one for one, key in new_keys.items() if old_keys.get(one) != key]
    whole_old = [one for one, key in old_keys.items() if new_keys.get(one) != key]
    came: list[U64] = []
    went: list[U64] = []
    for number in [one for one in whole_new if one in old_keys]:
        if new_keys[number].files != old_keys[number].files:
            continue
        before = _deleted_offsets(older, number)
        after = _deleted_offsets(newer, number)
        if before is None or after is None:
            continue
        back, gone = _only_in(before, after), _only_in(after, before)
        if len(back) + len(gone) > _SPARSE_MAX:
            continue
        came.append(back | np.uint64(number << _OFFSET_BITS))
        went.append(gone | np.uint64(number << _OFFSET_BITS))
        whole_new.remove(number)
        whole_old.remove(number)
    return _side(newer, whole_new, came), _side(older, whole_old, went)


def _compare(new: _Side, old: _Side) -> Changes:
    _, at_new, at_old = np.intersect1d(new.ids, old.ids, assume_unique=True, return_indices=True)
    # Compaction moves rows without touching their stamps.
    touched = at_new[new.stamps[at_new] != old.stamps[at_old]]
    return Changes(
        inserted=np.delete(new.addresses, at_new),
        updated=new.addresses[touched],
        deleted=np.delete(old.ids, at_old),
    )


def _side(pinned: Pinned, fragments: list[int], places: list[U64]) -> _Side:
    parts: list[pa.Table] = []
    if fragments:
        chosen = [pinned.dataset.get_fragment(number) for number in fragments]
        parts.append(_hidden_columns(pinned, fragments=chosen))
    addresses = [address for part in places for address in part.tolist()]
    if addresses:
        listed = ", ".join(str(address) for address in addresses)
        parts.append(_hidden_columns(pinned, filter=f"_rowaddr IN ({listed})"))
    ids = _column(parts, ROW_ID)
    order = np.argsort(ids, kind="stable")
    return _Side(
        ids=ids[order],
        stamps=_column(parts, _STAMP)[order],
        addresses=_column(parts, ROW_ADDRESS)[order],
    )


def _column(parts: list[pa.Table], name: str) -> U64:
    empty = np.empty(0, np.uint64)
    return np.concatenate([empty, *(np.asarray(part[name], dtype=np.uint64) for part in parts)])


def _only_in(these: U64, those: U64) -> U64:
    """What the first ascending array has and the second has not."""
    if not len(these):
        return these
    seen = np.zeros(int(max(these[-1], those[-1] if len(those) else 0)) + 1, np.bool_)
    seen[these] = True
    seen[those] = False
    return np.flatnonzero(seen).astype(np.uint64)


def _hidden_columns(pinned: Pinned, **chosen: Any) -> pa.Table:
    found: pa.Table = pinned.dataset.scanner(
        columns=[ROW_ID, _STAMP, ROW_ADDRESS], scan_stats_callback=pinned.meter.add, **chosen
    ).to_table()
    return found


def _deleted_offsets(pinned: Pinned, number: int) -> U64 | None:
    """The offsets that the deletion file names; None if it is not in the table's own folder."""
    deletions = pinned.dataset.get_fragment(number).metadata.deletion_file
    if deletions is None:
        return np.empty(0, np.uint64)
    if deletions.base_id is not None:
        return None
    body = pinned.read_file(str(deletions.path(number)))
    return None if body is None else deleted_offsets(deletions.file_type, body)
