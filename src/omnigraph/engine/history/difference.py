"""What differs between two states of the graph, entity by entity.

Only rows that are not at the same place in both versions of a table are read; they are paired by
entity id and compared property by property, typed: null is not "", 1.0 is not "1". An entity that
was deleted and made again, or touched without a change, is judged by what it is, not by what was
done to it. Where the schemas differ, the rows of both are seen under one (`lift.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.engine.arrow import Mask, flat
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.history.lift import Lift, Seen
from omnigraph.engine.rows.columns import batch_schema, written_rows
from omnigraph.model.schema import ROW_ID, Scalar
from omnigraph.storage.table.blobs import StoredBlob
from omnigraph.storage.table.table import Table, Tables

Places = npt.NDArray[np.int64]


class HeldBlob(msgspec.Struct, frozen=True, kw_only=True):
    """A blob of a row that is not stored."""

    uri: str | None
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self) -> bytes:
        return self.data


Blob = StoredBlob | HeldBlob


def _held(cell: dict[str, Any] | None) -> HeldBlob | None:
    return None if cell is None else HeldBlob(uri=cell["uri"], data=cell["data"] or b"")


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one version of a table, as its lift shows them: everything but blobs, which are
    read when asked for.

    The last rows may be ones that are laid over the version: `laid` has them whole.
    """

    table: Table
    lift: Lift
    rows: pa.Table  # id, (src, dst,) properties without blobs, _rowid
    laid: pa.Table | None = None

    def blobs(self, name: str, places: Places) -> list[Blob | None]:
        from_table = self.rows.num_rows - (self.laid.num_rows if self.laid is not None else 0)
        read = iter(self._stored_blobs(name, places[places < from_table]))
        held = self.laid[name].to_pylist() if self.laid is not None else []
        return [
            next(read) if place < from_table else _held(held[place - from_table])
            for place in places.tolist()
        ]

    def _stored_blobs(self, name: str, places: Places) -> list[StoredBlob | None]:
        stored = self.lift.stored_as.get(name, name)
        if stored is None:
            return [None] * len(places)
        row_ids = self.rows[ROW_ID].take(pa.array(places, pa.int64())).to_numpy()
        return self.table.blobs(stored, [int(row_id) for row_id in row_ids])

    @property
    def ids(self) -> Any:
        return flat(self.rows["id"])


class TableDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The entities of one type that differ. The places point into the rows of their side;
    `updated_before` and `updated_after` belong together, place by place."""

    entity: Entity
    before: Side
    after: Side
    inserted: Places
    deleted: Places
    updated_before: Places
    updated_after: Places


def stored_side(table: Table, lift: Lift, ids: Sequence[str]) -> Side:
    """The rows of these entities, as far as the table has them."""
    columns = read_columns(lift.entity)
    rows = table.lookup("id", ids, [*lift.stored(columns), ROW_ID])
    return Side(table=table, lift=lift, rows=lift.rows(rows, columns))


def difference(tables: Tables, before: Seen, after: Seen) -> TableDifference:
    """How the entities of a type differ from one version of a table to another; both are seen as
    rows of one type."""
    entity = after.lift.entity
    assert before.lift.entity == entity, "only rows of one type can be compared"
    if before.lift.untouched_differ or after.lift.untouched_differ:
        return paired(entity, _whole_side(tables, before), _whole_side(tables, after))
    old, new = tables.open(before.entry), tables.open(after.entry)
    columns = read_columns(entity)
    new_rows, old_rows = new.differing_rows(
        old,
        shared=tables.shared(after.entry, before.entry),
        columns=after.lift.stored(columns),
        older_columns=before.lift.stored(columns),
    )
    return paired(
        entity,
        Side(table=old, lift=before.lift, rows=before.lift.rows(old_rows, columns)),
        Side(table=new, lift=after.lift, rows=after.lift.rows(new_rows, columns)),
    )


def one_sided(tables: Tables, *, before: Seen | None, after: Seen | None) -> TableDifference:
    """The difference of a type that is in one of two states only: all its entities."""
    seen = after or before
    assert seen is not None, "a type is in one of the states"
    side = _whole_side(tables, seen)
    nobody = replace(side, rows=side.rows.slice(0, 0))
    pair = (side, nobody) if after is None else (nobody, side)
    return paired(seen.lift.entity, *pair)


def _whole_side(tables: Tables, seen: Seen) -> Side:
    columns = read_columns(seen.lift.entity)
    table = tables.open(seen.entry)
    stored = table.read(columns=[*seen.lift.stored(columns), ROW_ID])
    return Side(table=table, lift=seen.lift, rows=seen.lift.rows(stored, columns))


def read_columns(entity: Entity) -> list[str]:
    """What is read of a row to compare it: all but blobs."""
    return [name for name in batch_schema(entity).names if name not in blob_names(entity)]


def blob_names(entity: Entity) -> list[str]:
    return [prop.name for prop in entity.properties if prop.type.scalar is Scalar.BLOB]


def whole_rows(side: Side, entity: Entity, places: Places) -> pa.Table:
    """The rows at these places as the write path wants them, blobs included."""
    return written_rows(entity, side.rows.take(places), lambda name: side.blobs(name, places))


# --- pairing and comparing -------------------------------------------------------------------


def paired(entity: Entity, before: Side, after: Side) -> TableDifference:
    """The difference of two sides, each of which has every row that may differ from the other's."""
    place: Any = pc.index_in(after.ids, value_set=before.ids)
    known = np.asarray(place.is_valid())
    both_after = np.flatnonzero(known)
    both_before = np.asarray(place.drop_null(), dtype=np.int64)
    alone = np.ones(len(before.ids), dtype=bool)
    alone[both_before] = False
    changed = unequal_rows(entity, before, both_before, after, both_after)
    return TableDifference(
        entity=entity,
        before=before,
        after=after,
        inserted=np.flatnonzero(~known),
        deleted=np.flatnonzero(alone),
        updated_before=both_before[changed],
        updated_after=both_after[changed],
    )


def unequal_rows(
    entity: Entity, left: Side, at_left: Places, right: Side, at_right: Places
) -> Mask:
    """Which of the paired rows differ in any column."""
    found = np.zeros(len(at_left), dtype=bool)
    for _, mask in unequal_columns(entity, left, at_left, right, at_right):
        found |= mask
    return found


def unequal_columns(
    entity: Entity, left: Side, at_left: Places, right: Side, at_right: Places
) -> Iterator[tuple[str, Mask]]:
    """For each column, which of the paired rows differ in it."""
    mine, theirs = left.rows.take(at_left), right.rows.take(at_right)
    blobs = blob_names(entity)
    for name in batch_schema(entity).names:
        if name == "id":
            continue
        if name in blobs:
            pairs = zip(left.blobs(name, at_left), right.blobs(name, at_right), strict=True)
            yield name, np.array([not _same_blob(a, b) for a, b in pairs], dtype=bool)
        else:
            yield name, _unequal(flat(mine[name]), flat(theirs[name]))


def _unequal(left: Any, right: Any) -> Mask:
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array([not same(a, b) for a, b in pairs], dtype=bool)
    differ: Any = pc.not_equal(left, right)
    if pa.types.is_floating(left.type):
        differ = pc.and_(differ, pc.invert(pc.and_(pc.is_nan(left), pc.is_nan(right))))
    one_null = np.asarray(left.is_null()) ^ np.asarray(right.is_null())
    found: Mask = one_null | np.asarray(pc.fill_null(differ, pa.scalar(value=False)))
    return found


def same(left: Any, right: Any) -> bool:
    """Whether two values of one property are the same; NaN is, to NaN."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    both_nan = isinstance(left, float) and isinstance(right, float) and left != left != right
    return bool(left == right or (both_nan and right != right))


def _same_blob(left: Blob | None, right: Blob | None) -> bool:
    if left is None or right is None:
        return left is right
    if left.uri or right.uri:
        return left.uri == right.uri
    return left.size == right.size and left.read() == right.read()


def ids_at(side: Side, places: Places) -> list[str]:
    """The entity ids of the rows at these places."""
    ids: list[str] = side.ids.take(pa.array(places, pa.int64())).to_pylist()
    return ids
