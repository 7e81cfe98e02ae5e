"""Which rows two versions of a table do not share, told by what their version files say.

A version file has the row ids of every fragment and the stamps of its rows (`lance/row_ids.py`,
`lance/stamps.py`), and deletion files say which rows are gone. So rows are compared as *runs*:
neighbours whose row ids go up by one and that one version changed last. Runs are few where a table
was loaded, however many rows it has, so that to move all rows by compaction or to give them other
columns costs a comparison nothing. Where the notes are written in a way that we do not know, the
row ids and stamps are scanned and made into runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.bitmap import Bitmap

from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.storage.lance import pylance, row_ids, stamps
from omnigraph.storage.lance.files import deleted_offsets, fragment_keys
from omnigraph.storage.lance.row_ids import U64
from omnigraph.storage.table.pinned import OFFSET_BITS, Pinned

Mask = npt.NDArray[np.bool_]

STAMP: Final = "_row_last_updated_at_version"
_MAP_SHARE_MIN: Final = 16  # ids for each run looked at, up to which a map of all is cheaper
_SPARSE_MAX: Final = 10_000  # rows of a fragment that are worth naming one by one
_ONE: Final = np.uint64(1)


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows of one version are: in these whole fragments, and at these addresses."""

    fragments: list[int]
    addresses: list[int]


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one version: of each run the first row id and the first place, how many rows it has,
    and when they were last changed."""

    ids: U64
    addresses: U64
    rows: U64
    stamps: U64

    @classmethod
    def of_rows(cls, found: pa.Table) -> Runs:
        """Rows that were read with their row ids, stamps and places."""
        ids, changed, places = (
            np.asarray(found[name], dtype=np.uint64) for name in (ROW_ID, STAMP, ROW_ADDRESS)
        )
        follows = (ids[1:] == ids[:-1] + _ONE) & (places[1:] == places[:-1] + _ONE)
        follows &= changed[1:] == changed[:-1]
        begins = np.flatnonzero(np.concatenate([[True], ~follows]))[: len(ids)]
        rows = np.diff(begins, append=len(ids)).astype(np.uint64)
        return cls(ids=ids[begins], addresses=places[begins], rows=rows, stamps=changed[begins])

    def joined(self, *others: Runs) -> Runs:
        """These and others of the same version."""
        if not others:
            return self
        each = (self, *others)
        return Runs(
            ids=np.concatenate([one.ids for one in each]),
            addresses=np.concatenate([one.addresses for one in each]),
            rows=np.concatenate([one.rows for one in each]),
            stamps=np.concatenate([one.stamps for one in each]),
        )

    def places(self, chosen: Mask) -> U64:
        """The place of every row of the chosen runs."""
        return row_ids.counted_up(self.addresses[chosen], self.rows[chosen])

    def row_ids(self, chosen: Mask) -> U64:
        """The row id of every row of the chosen runs."""
        return row_ids.counted_up(self.ids[chosen], self.rows[chosen])


_NONE: Final = Runs(**dict.fromkeys(Runs.__struct_fields__, np.empty(0, np.uint64)))


def apart(newer: Pinned, older: Pinned) -> tuple[Places, Places]:
    """Where each version has rows that the other one may not have at the same place."""
    mine, theirs = pylance.fragments_apart(newer.dataset, older.dataset)
    new_keys, old_keys = fragment_keys(newer.dataset, mine), fragment_keys(older.dataset, theirs)
    here, there = set(new_keys), set(old_keys)
    kept = {one for one in here & there if new_keys[one].files == old_keys[one].files}
    kept -= _restamped(newer, older, kept)
    alike = {one for one in kept if new_keys[one] == old_keys[one]}
    whole_new, whole_old = sorted(here - alike), sorted(there - alike)
    came: list[int] = []
    went: list[int] = []
    for number in sorted(kept - alike):
        before, after = _deleted(older, number), _deleted(newer, number)
        if before is None or after is None:
            continue
        back, gone = before - after, after - before
        if len(back) + len(gone) > _SPARSE_MAX:
            continue
        came += [number << OFFSET_BITS | offset for offset in back]
        went += [number << OFFSET_BITS | offset for offset in gone]
        whole_new.remove(number)
        whole_old.remove(number)
    return (
        Places(fragments=whole_new, addresses=came),
        Places(fragments=whole_old, addresses=went),
    )


def _restamped(newer: Pinned, older: Pinned, numbers: Set[int]) -> set[int]:
    """Those of the fragments, of the same files in both versions, whose rows were changed all the
    same: a column went, and the one that has its name now has no values and so no file."""
    if not numbers:
        return set()
    mine, theirs = (pylance.row_notes(one.dataset, numbers) for one in (newer, older))
    return {one for one in mine.keys() & theirs.keys() if mine[one].stamps != theirs[one].stamps}


def runs_at(pinned: Pinned, places: Places) -> Runs:
    """The rows at these places of the version."""
    told = dict(_told(pinned, places.fragments))
    found = [*told.values()]
    if untold := [one for one in places.fragments if one not in told]:
        chosen = [pinned.dataset.get_fragment(number) for number in untold]
        found.append(_scanned(pinned, fragments=chosen))
    if places.addresses:
        listed = ", ".join(str(address) for address in places.addresses)
        found.append(_scanned(pinned, filter=f"{ROW_ADDRESS} IN ({listed})"))
    return _NONE.joined(*found)


def cut(new: Runs, old: Runs) -> tuple[Runs, Runs]:
    """The same rows in shorter runs: each of the one side has the row ids of one of the other, or
    shares none with any."""
    if not len(new.ids) or not len(old.ids):
        return new, old
    bounds = [new.ids, new.ids + new.rows, old.ids, old.ids + old.rows]
    top = int(max(bounds[1].max(), bounds[3].max()))
    if top > _MAP_SHARE_MIN * (len(new.ids) + len(old.ids)):
        edges = np.unique(np.concatenate(bounds))
    else:
        marks = np.zeros(top + 1, dtype=np.bool_)
        for one in bounds:
            marks[one] = True
        edges = np.flatnonzero(marks).astype(np.uint64)
    return _cut_at(new, edges), _cut_at(old, edges)


def unlike(new: Runs, old: Runs, *, shared: int, versions: tuple[int, int]) -> tuple[Mask, Mask]:
    """Which runs of each side, after `cut`, may hold something else than the other's rows of their
    row ids.

    `shared` is a version that both came from, 0 if there is none. A row that neither has touched
    since then, by its stamp, has the row id that it had there: if both have it, it was merely moved
    (compaction moves rows; it may raise a stamp, but never above its own version).
    """
    at_new, at_old = _looked_up(new.ids, old), _looked_up(old.ids, new)
    alike_new = (new.stamps <= shared) & (at_new <= shared) & (at_new > 0)
    alike_old = (old.stamps <= shared) & (at_old <= shared) & (at_old > 0)
    # A restored table has stamps of before what was undone: on the way from an ancestor a stamp
    # that went down is a row that was put back.
    newer, older = versions
    if shared == older:
        alike_new &= new.stamps >= at_new
        alike_old &= old.stamps <= at_old
    elif shared == newer:
        alike_new &= new.stamps <= at_new
        alike_old &= old.stamps >= at_old
    return ~alike_new, ~alike_old


def among(runs: Runs, others: Runs) -> Mask:
    """Which runs of one side, after `cut`, the other has too. Most differences are rows that were
    added, and have only one side."""
    if not len(runs.ids) or not len(others.ids):
        return np.zeros(len(runs.ids), dtype=np.bool_)
    return np.isin(runs.ids, others.ids, assume_unique=True)


# --- runs ------------------------------------------------------------------------------------


def _cut_at(runs: Runs, edges: U64) -> Runs:
    first = np.searchsorted(edges, runs.ids)
    pieces = np.searchsorted(edges, runs.ids + runs.rows) - first
    which = np.repeat(np.arange(len(pieces)), pieces)
    at = np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces - first, pieces)
    ids = edges[at]
    return Runs(
        ids=ids,
        addresses=runs.addresses[which] + (ids - runs.ids[which]),
        rows=edges[at + 1] - ids,
        stamps=runs.stamps[which],
    )


def _looked_up(ids: U64, runs: Runs) -> U64:
    """The stamps that runs have which begin with these row ids, 0 for one that is not among them.
    Row ids are counted up from 0, so that a map of them all is small."""
    if not len(ids) or not len(runs.ids):
        return np.zeros(len(ids), dtype=np.uint64)
    top = int(max(ids.max(), runs.ids.max()))
    if top > _MAP_SHARE_MIN * (len(ids) + len(runs.ids)):
        order = np.argsort(runs.ids)
        places = np.searchsorted(runs.ids, ids, sorter=order).clip(max=len(order) - 1)
        at = order[places]
        return np.where(runs.ids[at] == ids, runs.stamps[at], np.uint64(0))
    known = np.zeros(top + 1, dtype=np.uint64)
    known[runs.ids] = runs.stamps
    found: U64 = known[ids]
    return found


# --- what a version says of its rows ---------------------------------------------------------


def _told(pinned: Pinned, numbers: Sequence[int]) -> Iterator[tuple[int, Runs]]:
    """The rows of fragments as the version file tells them, by number, as far as it does."""
    if not numbers:
        return
    notes = pylance.row_notes(pinned.dataset, frozenset(numbers))
    for number in numbers:
        note = notes.get(number)
        ids = None if note is None else row_ids.decode(note.row_ids)
        changed = None if note is None else stamps.decode(note.stamps)
        gone = _deleted(pinned, number)
        if note is None or ids is None or changed is None or gone is None:
            continue
        if note.rows == int(ids[1].sum()) == sum(run.rows for run in changed):
            yield number, _fragment_runs(number << OFFSET_BITS, ids, changed, sorted(gone))


def _fragment_runs(
    place: int, ids: row_ids.Runs, changed: Sequence[stamps.Run], gone: Sequence[int]
) -> Runs:
    first, rows = ids
    versions = np.array([run.version for run in changed], np.uint64)
    if len(first) == len(changed) == 1 and not gone:
        places = np.array([place], np.uint64)
        return Runs(ids=first, addresses=places, rows=rows, stamps=versions)
    ids_at = np.cumsum(rows) - rows
    stamps_at = np.cumsum([0, *(run.rows for run in changed[:-1])]).astype(np.uint64)
    left_out = np.array(gone, np.uint64)
    total = int(rows.sum())
    at = np.unique(np.concatenate([ids_at, stamps_at, left_out, left_out + _ONE]))
    at = at[at < total]
    length = np.diff(at, append=np.uint64(total))
    kept = ~np.isin(at, left_out, assume_unique=True)
    at, length = at[kept], length[kept]
    of_id = np.searchsorted(ids_at, at, side="right") - 1
    of_stamp = np.searchsorted(stamps_at, at, side="right") - 1
    return Runs(
        ids=first[of_id] + (at - ids_at[of_id]),
        addresses=at + np.uint64(place),
        rows=length,
        stamps=versions[of_stamp],
    )


def _deleted(pinned: Pinned, number: int) -> Any | None:
    """The set of offsets that the deletion file names; None if that cannot be found."""
    deletions = pinned.dataset.get_fragment(number).metadata.deletion_file
    if deletions is None:
        return Bitmap()
    place: str | None = pinned.place
    if deletions.base_id is not None:
        base = pinned.dataset.base_paths().get(deletions.base_id)
        place = None if base is None else pinned.lines.root.below(str(base.path))
    if place is None:
        return None
    found = pinned.lines.store.read(f"{place}/{deletions.path(number)}")
    return None if found is None else deleted_offsets(deletions.file_type, found.body)


def _scanned(pinned: Pinned, **chosen: Any) -> Runs:
    found: pa.Table = pinned.dataset.scanner(
        columns=[ROW_ID, STAMP, ROW_ADDRESS], scan_stats_callback=pinned.meter.add, **chosen
    ).to_table()
    return Runs.of_rows(found)
