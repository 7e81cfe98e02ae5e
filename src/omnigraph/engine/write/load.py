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

from omnigraph.engine.write.batch import LoadBatch, LoadedTable, gather, place_of
from omnigraph.engine.write.change import Changes, Places, TableChange, stage
from omnigraph.engine.write.constraints import existing, repeated_id, repeats
from omnigraph.engine.write.records import Data, records
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.validate import validate_rows, with_good_values
from omnigraph.engine.write.violations import Findings, Unreadable
from omnigraph.errors import RecordError
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
    found = Findings()

    def refuse(error: RecordError) -> None:
        word = "line" if strict else "record"
        number = int(error.facts[word])
        place = place_of(number, strict=strict)
        text = error.message.removeprefix(f"{place}: ")
        facts = {word: number}
        found.refuse([Unreadable(text=text, place=place, hint=error.hint, facts=facts)])

    read = records(data, catalog, strict=strict, refuse=refuse)
    return gather(read, catalog, strict=strict, found=found)


def prepare_load(
    batch: LoadBatch,
    *,
    mode: str,
    catalog: Catalog,
    context: WriteContext,
    world: World,
) -> LoadOutcome:
    """Check the batch against the context's snapshot and stage it; raises before any staging.

    A record that is refused takes no part in the checks that follow, so that everything that is
    wrong is told once and nothing that only follows from it.
    """
    stored = Stored(context)
    found = batch.found.copy()
    lost = found.any_unreadable
    changes: Changes = {
        key: replace(_as_change(table, mode, world), incomplete=lost)
        for key, table in batch.tables.items()
    }
    changes = with_good_values(changes, found)
    changes = {
        key: _each_id_once(change, mode, found, strict=batch.strict)
        for key, change in changes.items()
    }
    if mode == "append":
        changes = {key: _not_stored(change, stored, found) for key, change in changes.items()}
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
        refused=table.foreign,
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
    first, second = repeats(ids.dictionary_encode().indices)
    told = np.flatnonzero(second)
    found.add(
        [
            repeated_id(
                change.entity,
                ids[int(row)].as_py(),
                [change.place_of(int(first[row])), change.place_of(int(row))],
            )
            for row in told[: found.room]
        ],
        total=len(told),
    )
    return change.without(first != np.arange(len(ids)))


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


def _not_stored(change: TableChange, stored: Stored, found: Findings) -> TableChange:
    """The change as a strict insert, without the records whose ids are there already."""
    if change.fresh:
        return change
    ids: Any = change.rows["id"].combine_chunks()
    taken = stored.present(change.entity.table_key, ids)
    there = np.asarray(pc.is_in(ids, value_set=taken))
    at = np.flatnonzero(there)
    found.add(
        [
            existing(change.entity, ids[int(row)].as_py(), change.place_of(int(row)))
            for row in at[: found.room]
        ],
        total=len(at),
    )
    return replace(change.without(there), fresh=True)
