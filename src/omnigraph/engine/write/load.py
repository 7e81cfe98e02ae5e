"""Request-sized loads: records become one checked change, which is then staged.

append inserts strictly, merge replaces by id (the last record of an id wins), overwrite makes the
records of each type they name the whole type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.write.batch import LoadBatch, LoadedTable, gather
from omnigraph.engine.write.change import Changes, Places, TableChange, stage
from omnigraph.engine.write.constraints import repeated_id
from omnigraph.engine.write.records import Data, records
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.validate import validate_rows, validate_values
from omnigraph.engine.write.violations import Findings
from omnigraph.errors import KeyConflictError
from omnigraph.model.ports import World
from omnigraph.model.schema import Catalog, EntityKind, NodeType
from omnigraph.storage.writer import Prepared, WriteContext


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOutcome:
    """How many entities of each type a load wrote. `prepared` is None when nothing changes."""

    prepared: Prepared | None
    nodes: Mapping[str, int]
    edges: Mapping[str, int]


def read_load(data: Data, *, catalog: Catalog, strict: bool) -> LoadBatch:
    """Read a request once; it can then be prepared as often as the writer needs."""
    return gather(records(data, catalog, strict=strict), catalog, strict=strict)


def prepare_load(
    batch: LoadBatch,
    *,
    mode: str,
    catalog: Catalog,
    context: WriteContext,
    world: World,
) -> LoadOutcome:
    """Check the batch against the context's snapshot and stage it; raises before any staging."""
    stored = Stored(context)
    found = Findings()
    found.add(batch.found.listed, total=batch.found.total)
    changes: Changes = {key: _as_change(table, mode, world) for key, table in batch.tables.items()}
    validate_values(changes, catalog, found)
    changes = {
        key: _each_id_once(change, mode, found, strict=batch.strict)
        for key, change in changes.items()
    }
    found.raise_if_any()
    if mode == "append":
        changes = {key: _not_stored(change, stored) for key, change in changes.items()}
    validate_rows(changes, catalog, stored, found)
    prepared = Prepared(
        staged=stage(changes, context, stored),
        relied_on=frozenset(stored.relied_on),
        strict=mode == "overwrite",
    )
    return LoadOutcome(
        prepared=None if prepared.is_empty else prepared,
        nodes=_counts(changes, "node"),
        edges=_counts(changes, "edge"),
    )


def _counts(changes: Changes, kind: EntityKind) -> dict[str, int]:
    return {
        change.entity.name: change.rows.num_rows
        for change in changes.values()
        if change.entity.kind == kind
    }


def _as_change(table: LoadedTable, mode: str, world: World) -> TableChange:
    rows, generated = table.rows, False
    keyed = isinstance(table.entity, NodeType) and bool(table.entity.key)
    if not keyed and rows["id"].null_count:
        generated = rows["id"].null_count == rows.num_rows
        ids = [world.ids.ulid() if one is None else one for one in rows["id"].to_pylist()]
        rows = rows.set_column(0, "id", pa.array(ids, pa.string()))
    return TableChange(
        entity=table.entity,
        rows=rows,
        fresh=generated,
        replaces_all=mode == "overwrite",
        places=table.places,
        absent=table.absent,
        misfits=table.misfits,
    )


def _each_id_once(change: TableChange, mode: str, found: Findings, *, strict: bool) -> TableChange:
    """The change with every id once: the last record counts where that is the rule."""
    ids: Any = change.rows["id"].combine_chunks()
    if change.fresh or pc.count_distinct(ids).as_py() == len(ids):
        return change
    # The permissive form keeps the reference's rule that a batch names a keyed node once.
    keyed = isinstance(change.entity, NodeType) and bool(change.entity.key)
    if mode == "merge" and (strict or not keyed):
        return _last_of_each(change, ids)
    rows = pa.table({"id": ids, "row": pa.array(np.arange(len(ids)))})
    groups: Any = rows.group_by("id").aggregate([("row", "min"), ("row", "count")])
    twice = groups.filter(pc.greater(groups["row_count"], pa.scalar(1))).sort_by("row_min")
    described = []
    for repeated in twice["id"].slice(0, found.room).to_pylist():
        at = np.flatnonzero(np.asarray(pc.equal(ids, pa.scalar(repeated))))[:2]
        places = [change.place_of(int(row)) for row in at]
        described.append(repeated_id(change.entity, repeated, places))
    found.add(described, total=twice.num_rows)
    return change


def _last_of_each(change: TableChange, ids: Any) -> TableChange:
    rows = pa.table({"id": ids, "row": pa.array(np.arange(len(ids)))})
    last: Any = rows.group_by("id").aggregate([("row", "max")])["row_max"]
    kept = np.sort(last.to_numpy())
    assert change.places is not None, "loaded rows have places"
    places = Places(word=change.places.word, numbers=change.places.numbers[kept])
    return replace(
        change,
        rows=change.rows.take(pa.array(kept)),
        places=places,
        absent=frozenset(),
        misfits=frozenset(),
    )


def _not_stored(change: TableChange, stored: Stored) -> TableChange:
    """The change as a strict insert: `KeyConflictError` for the first id that is there."""
    if change.fresh:
        return change
    ids: Any = change.rows["id"].combine_chunks()
    taken = stored.present(change.entity.table_key, ids)
    if len(taken):
        at = int(np.flatnonzero(np.asarray(pc.is_in(ids, value_set=taken)))[0])
        raise KeyConflictError(
            entity_kind=change.entity.kind,
            type_name=change.entity.name,
            entity_id=ids[at].as_py(),
            place=change.place_of(at),
        )
    return replace(change, fresh=True)
