"""Three versions of one type become one: entity by entity, by what each side did to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.check.change import TableChange
from omnigraph.engine.history.difference import (
    Places,
    Side,
    TableDifference,
    ids_at,
    unequal_columns,
    unequal_rows,
    whole_rows,
)
from omnigraph.engine.merge.conflicts import (
    MergeConflict,
    Strategy,
    TypeCounts,
    row_conflict,
)
from omnigraph.engine.rows.columns import batch_schema

Deed = Literal["insert", "update", "delete"]


class Combined(msgspec.Struct, frozen=True, kw_only=True):
    """What the target's table has to take over from the source, and what stands against it."""

    change: TableChange
    counts: TypeCounts
    conflicts: tuple[MergeConflict, ...] = ()


def adopt(theirs: TableDifference) -> Combined:
    """Only the source changed the type: take all of it."""
    return _combined(theirs, _deeds(theirs), (), pa.table({}))


def combine(
    ours: TableDifference,
    theirs: TableDifference,
    *,
    strategy: Strategy,
    disputed: frozenset[str] = frozenset(),
) -> Combined:
    """Both sides changed the type: take what the target left alone, compare what both touched.

    `ours` is the target's difference from the base, `theirs` the source's. What the base says of
    the `disputed` entities proves nothing: each side counts as having touched them, so that only
    sides that agree are no conflict.
    """
    mine, wanted = _deeds(ours, disputed), _deeds(theirs, disputed)
    meeting = _Meeting(ours=ours, theirs=theirs, strategy=strategy, disputed=disputed)
    conflicts: list[MergeConflict] = []
    merged: list[pa.Table] = []
    shared = [entity_id for entity_id in wanted if entity_id in mine]
    both_wrote = [one for one in shared if "delete" not in (mine[one][0], wanted[one][0])]
    for entity_id, verdict in meeting.judge_written(both_wrote, mine, wanted, merged):
        if verdict != "take":
            del wanted[entity_id]
        if verdict == "conflict":
            kind = "divergent_insert" if mine[entity_id][0] == "insert" else "divergent_update"
            conflicts.append(_conflict(theirs, entity_id, kind, disputed))
    for entity_id in set(shared) - set(both_wrote):
        if mine[entity_id][0] == wanted[entity_id][0] == "delete" or strategy == "ours":
            del wanted[entity_id]
        elif strategy != "theirs":
            del wanted[entity_id]
            conflicts.append(_conflict(theirs, entity_id, "delete_vs_update", disputed))
    ordered = sorted(conflicts, key=lambda conflict: conflict.entity_id or "")
    extra = pa.concat_tables(merged) if merged else pa.table({})
    return _combined(theirs, wanted, tuple(ordered), extra)


def _conflict(
    theirs: TableDifference, entity_id: str, kind: Any, disputed: frozenset[str]
) -> MergeConflict:
    entity = theirs.entity
    return row_conflict(entity.kind, entity.name, entity_id, kind, sure=entity_id not in disputed)


def _deeds(
    found: TableDifference, disputed: frozenset[str] = frozenset()
) -> dict[str, tuple[Deed, int]]:
    """What was done to each entity, and the place of its row (the old one, if deleted)."""
    deeds: dict[str, tuple[Deed, int]] = {}
    for deed, side, places in (
        ("insert", found.after, found.inserted),
        ("update", found.after, found.updated_after),
        ("delete", found.before, found.deleted),
    ):
        for entity_id, place in zip(ids_at(side, places), places.tolist(), strict=True):
            deeds[entity_id] = (deed, place)  # type: ignore[assignment]
    left_alone = disputed - deeds.keys()
    there = places_by_id(found.after) if left_alone else {}
    for entity_id in sorted(left_alone):
        deeds[entity_id] = ("update", there[entity_id]) if entity_id in there else ("delete", -1)
    return deeds


def _combined(
    theirs: TableDifference,
    wanted: dict[str, tuple[Deed, int]],
    conflicts: tuple[MergeConflict, ...],
    merged: pa.Table,
) -> Combined:
    written = [place for deed, place in wanted.values() if deed != "delete"]
    rows = whole_rows(theirs.after, theirs.entity, np.array(written, dtype=np.int64))
    if merged.num_rows:
        rows = pa.concat_tables([rows, merged.cast(rows.schema)])
    deeds = [deed for deed, _ in wanted.values()]
    return Combined(
        change=TableChange(
            entity=theirs.entity,
            rows=rows,
            deleted=frozenset(one for one, (deed, _) in wanted.items() if deed == "delete"),
        ),
        counts=TypeCounts(
            inserted=deeds.count("insert"),
            updated=deeds.count("update") + merged.num_rows,
            deleted=deeds.count("delete"),
        ),
        conflicts=conflicts,
    )


class _Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """Entities that both sides wrote."""

    ours: TableDifference
    theirs: TableDifference
    strategy: Strategy
    disputed: frozenset[str]

    def judge_written(
        self,
        entity_ids: list[str],
        mine: dict[str, tuple[Deed, int]],
        wanted: dict[str, tuple[Deed, int]],
        merged: list[pa.Table],
    ) -> Iterator[tuple[str, Literal["take", "leave", "conflict"]]]:
        """A verdict on each; rows merged by property are put into `merged` and left otherwise."""
        if not entity_ids:
            return
        at_mine = np.array([mine[one][1] for one in entity_ids], dtype=np.int64)
        at_wanted = np.array([wanted[one][1] for one in entity_ids], dtype=np.int64)
        differ = unequal_rows(
            self.theirs.entity, self.ours.after, at_mine, self.theirs.after, at_wanted
        )
        settled = np.zeros(len(entity_ids), dtype=bool)
        if self.strategy == "property":
            based = np.array(
                [mine[one][0] == "update" and one not in self.disputed for one in entity_ids],
                dtype=bool,
            )
            settled = self._by_property(entity_ids, at_mine, at_wanted, differ & based, merged)
        for at, entity_id in enumerate(entity_ids):
            if not differ[at] or settled[at] or self.strategy == "ours":
                yield entity_id, "leave"
            else:
                yield entity_id, "take" if self.strategy == "theirs" else "conflict"

    def _by_property(
        self,
        entity_ids: list[str],
        at_mine: Places,
        at_wanted: Places,
        asked: Any,
        merged: list[pa.Table],
    ) -> Any:
        """Merge the asked-for entities whose sides changed different properties; say which."""
        at = np.flatnonzero(asked)
        settled = np.zeros(len(entity_ids), dtype=bool)
        if not len(at):
            return settled
        base_of = places_by_id(self.theirs.before)
        base = np.array([base_of[entity_ids[one]] for one in at], dtype=np.int64)
        entity = self.theirs.entity
        before = self.theirs.before
        by_us = dict(unequal_columns(entity, before, base, self.ours.after, at_mine[at]))
        by_them = dict(unequal_columns(entity, before, base, self.theirs.after, at_wanted[at]))
        between = dict(
            unequal_columns(entity, self.ours.after, at_mine[at], self.theirs.after, at_wanted[at])
        )
        clash = np.zeros(len(at), dtype=bool)
        for name in by_us:
            clash |= by_us[name] & by_them[name] & between[name]
        free = np.flatnonzero(~clash)
        settled[at[free]] = True
        kept = whole_rows(self.ours.after, entity, at_mine[at[free]])
        brought = whole_rows(self.theirs.after, entity, at_wanted[at[free]])
        columns = [
            kept[name]
            if name == "id"
            else pc.if_else(pa.array(by_them[name][free]), brought[name], kept[name])
            for name in batch_schema(entity).names
        ]
        merged.append(pa.Table.from_arrays(columns, schema=batch_schema(entity)))
        return settled


def places_by_id(side: Side) -> dict[str, int]:
    """Where the row of each entity is."""
    ids: list[str] = side.ids.to_pylist()
    return {entity_id: place for place, entity_id in enumerate(ids)}
