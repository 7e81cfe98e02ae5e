"""What changed between two versions of a table, at a cost that follows the change.

Fragments that both versions share are never read. Where a fragment only lost rows, the deletion
files say which ones. Rows keep their row id when they are updated or moved by compaction, so row
ids tell inserted, updated and deleted rows apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.storage.deletions import decode
from omnigraph.storage.handles import Pinned

_ROW_ID: Final = "_rowid"
_STAMP: Final = "_row_last_updated_at_version"
_OFFSET_BITS: Final = 32
_SPARSE_MAX: Final = 10_000  # rows of a fragment that are worth naming one by one

U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Row ids on the newer side (inserted, updated) and on the older one (deleted), ascending."""

    inserted: U64
    updated: U64
    deleted: U64


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentKey:
    """What makes two fragments the same: their files and their deletions."""

    files: tuple[str, ...]
    deletions: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The rows of one version that are not where the other version has them."""

    ids: U64
    stamps: U64


def fragment_keys(dataset: Any) -> Mapping[int, FragmentKey]:
    """The identity of each fragment, by number."""
    keys: dict[int, FragmentKey] = {}
    for fragment in dataset.get_fragments():
        meta = fragment.metadata
        deletions = meta.deletion_file
        keys[meta.id] = FragmentKey(
            files=tuple(file.path for file in meta.files),
            deletions=None if deletions is None else str(deletions.path(meta.id)),
        )
    return keys


def changes(newer: Pinned, older: Pinned) -> Changes:
    """The difference between a version and one of its ancestors (also across a fork)."""
    new_keys, old_keys = fragment_keys(newer.dataset), fragment_keys(older.dataset)
    whole_new = [one for one, key in new_keys.items() if old_keys.get(one) != key]
    whole_old = [one for one, key in old_keys.items() if new_keys.get(one) != key]
    came: list[U64] = []
    went: list[U64] = []
    for number in [one for one in whole_new if one in old_keys]:
        if new_keys[number].files != old_keys[number].files:
            continue
        before = _deleted_addresses(older, number)
        after = _deleted_addresses(newer, number)
        if before is None or after is None:
            continue
        back = np.setdiff1d(before, after, assume_unique=True)
        gone = np.setdiff1d(after, before, assume_unique=True)
        if len(back) + len(gone) > _SPARSE_MAX:
            continue
        came.append(back)
        went.append(gone)
        whole_new.remove(number)
        whole_old.remove(number)
    return _compare(_side(newer, whole_new, came), _side(older, whole_old, went))


def _compare(new: _Side, old: _Side) -> Changes:
    shared, at_new, at_old = np.intersect1d(
        new.ids, old.ids, assume_unique=True, return_indices=True
    )
    return Changes(
        inserted=np.setdiff1d(new.ids, shared, assume_unique=True),
        # Compaction moves rows without touching their stamps.
        updated=shared[new.stamps[at_new] != old.stamps[at_old]],
        deleted=np.setdiff1d(old.ids, shared, assume_unique=True),
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
    ids = [part[_ROW_ID].to_numpy() for part in parts]
    stamps = [part[_STAMP].to_numpy() for part in parts]
    empty = np.empty(0, np.uint64)
    all_ids = np.concatenate([empty, *ids]).astype(np.uint64)
    order = np.argsort(all_ids, kind="stable")
    return _Side(
        ids=all_ids[order],
        stamps=np.concatenate([empty, *stamps]).astype(np.uint64)[order],
    )


def _hidden_columns(pinned: Pinned, **chosen: Any) -> pa.Table:
    found: pa.Table = pinned.dataset.scanner(
        columns=[_ROW_ID, _STAMP], scan_stats_callback=pinned.meter.add, **chosen
    ).to_table()
    return found


def _deleted_addresses(pinned: Pinned, number: int) -> U64 | None:
    """The addresses that the deletion file names; None if it is not in the table's own folder."""
    deletions = pinned.dataset.get_fragment(number).metadata.deletion_file
    if deletions is None:
        return np.empty(0, np.uint64)
    if deletions.base_id is not None:
        return None
    body = pinned.read_file(str(deletions.path(number)))
    if body is None:
        return None
    return decode(deletions.file_type, body) | np.uint64(number << _OFFSET_BITS)
