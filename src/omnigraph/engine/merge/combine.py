"""Three versions of one type become one: entity by entity, by what each side did to it.

What both sides of a merge are compared with is mostly one snapshot: the best common ancestor. After
branches have merged each other to and fro there are several, and any one of them alone would let
the changes of the others pass for changes of a side, or hide them. So the ancestors are merged
first, entity by entity and against what *they* share; where that gives no single answer the entity
is *disputed*, and sides that do not agree on it are a conflict. The same holds for everything if an
ancestor cannot be read any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.engine.check.bucket import TableChange
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.core import Core
from omnigraph.engine.history.difference import (
    Places,
    Side,
    TableDifference,
    difference,
    ids_at,
    paired,
    read_columns,
    stored_side,
    unequal_rows,
    whole_rows,
)
from omnigraph.engine.history.lift import Seen
from omnigraph.engine.merge.conflicts import entity_words, row_conflict
from omnigraph.engine.merge.settle import Clash, Decision, Take, told_of_deleted
from omnigraph.engine.rows.columns import batch_schema
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import Pin, Snapshot, TypeCounts
from omnigraph.model.limits import MERGE_BASE_ROUNDS_MAX
from omnigraph.model.schema import ROW_ID
from omnigraph.results.merging import ConflictKind, MergeConflict, PropertyConflict, Strategy
from omnigraph.storage.manifest.history import Parents, best_common
from omnigraph.storage.table.table import Tables

DeedKind = Literal["insert", "update", "delete"]
_TAKES: tuple[Take, ...] = ("ours", "theirs")
_UNDECIDED: Mapping[str, Decision] = {}


class _Deed(NamedTuple):
    """What was done to an entity, and the place of its row (the old one, if deleted)."""

    kind: DeedKind
    place: int


class Combined(msgspec.Struct, frozen=True, kw_only=True):
    """What the target's table has to take over from the source, and what stands against it."""

    change: TableChange
    counts: TypeCounts
    conflicts: tuple[MergeConflict, ...] = ()
    clashing: frozenset[str] = frozenset()  # what both sides changed, settled or not


def adopt(theirs: TableDifference) -> Combined:
    """Only the source changed the type: take all of it."""
    return _combined(theirs, _deeds(theirs))


def combine(
    ours: TableDifference,
    theirs: TableDifference,
    *,
    strategy: Strategy,
    disputed: frozenset[str],
    decisions: Mapping[str, Decision] = _UNDECIDED,
) -> Combined:
    """Both sides changed the type: take what the target left alone, compare what both touched.

    `ours` is the target's difference from the base, `theirs` the source's. What the base says of
    the `disputed` entities proves nothing: each side counts as having touched them, so that only
    sides that agree are no conflict. What somebody has decided about an entity counts more than
    the strategy.
    """
    mine, wanted = _deeds(ours, disputed), _deeds(theirs, disputed)
    shared = [one for one in wanted if one in mine]
    written = [one for one in shared if "delete" not in (mine[one].kind, wanted[one].kind)]
    unequal = unequal_rows(
        theirs.entity, ours.after, _at(mine, written), theirs.after, _at(wanted, written)
    )
    differ = [one for one, unlike in zip(written, unequal, strict=True) if unlike]
    clashes: dict[str, ConflictKind] = {
        one: "divergent_insert" if mine[one].kind == "insert" else "divergent_update"
        for one in differ
    }
    for one in set(shared) - set(written):
        if mine[one].kind != wanted[one].kind:
            clashes[one] = "delete_vs_update"
    both = _Both(
        ours=ours, theirs=theirs, mine=mine, wanted=wanted, disputed=disputed, clashes=clashes
    )
    takes, merged, conflicts = both.settled(strategy, decisions)
    for one in shared:
        if takes.get(one) != "theirs":
            del wanted[one]
    return replace(_combined(theirs, wanted, merged, conflicts), clashing=frozenset(clashes))


class _Both(msgspec.Struct, frozen=True, kw_only=True):
    """What both sides did to the entities of a type, and those on which they clash."""

    ours: TableDifference
    theirs: TableDifference
    mine: Mapping[str, _Deed]
    wanted: Mapping[str, _Deed]
    disputed: frozenset[str]
    clashes: Mapping[str, ConflictKind]

    def settled(
        self, strategy: Strategy, decisions: Mapping[str, Decision]
    ) -> tuple[Mapping[str, Take], pa.Table | None, tuple[MergeConflict, ...]]:
        """The entities of which one side is taken, the rows that are put together from both, and
        what stays a conflict."""
        by_strategy = next((side for side in _TAKES if side == strategy), None)
        takes: dict[str, Take] = {}
        apart: list[str] = []
        deleted: list[str] = []
        columns = {side: self._columns_of(side) for side in _TAKES}
        given = dict(decisions)
        for one, kind in self.clashes.items():
            decision = decisions.get(one, by_strategy)
            if isinstance(decision, str) and kind != "delete_vs_update" and columns[decision]:
                given[one] = columns[decision]
                apart.append(one)
            elif isinstance(decision, str):
                takes[one] = decision
            elif kind != "delete_vs_update":
                apart.append(one)
            elif decision is None:
                deleted.append(one)
            else:
                raise _no_values(self.theirs.entity, one)
        merged: pa.Table | None = None
        told: dict[str, list[PropertyConflict]] = {}
        if apart:
            clash = Clash.of(self.ours, self.theirs, apart, self._places(apart))
            done, rows, left = clash.settled(given, strategy)
            merged = rows if done else None
            told = clash.told([one for one in apart if one not in done], left)
        for side in _TAKES:
            told |= self._told_of_deleted([one for one in deleted if self._deleted_by(one) == side])
        conflicts = (
            row_conflict(
                self.theirs.entity,
                one,
                self.clashes[one],
                sure=one not in self.disputed,
                properties=told[one],
                deleted_by=self._deleted_by(one),
            )
            for one in sorted(told)
        )
        return takes, merged, tuple(conflicts)

    def _columns_of(self, side: Take) -> Decision:
        """How to take an entity as a side has it whose schema lacks properties that the other's
        has: nobody can have changed there what is not there, so those are the other side's.
        Nothing if it has them all."""
        lifts = {"ours": self.ours.after.lift, "theirs": self.theirs.after.lift}
        other: Take = "ours" if side == "theirs" else "theirs"
        lacking = [
            name
            for name, stored in lifts[side].stored_as.items()
            if stored is None and lifts[other].stored_as.get(name, name) is not None
        ]
        if not lacking:
            return {}
        names = [name for name in batch_schema(self.theirs.entity).names if name != "id"]
        return {name: {"take": other if name in lacking else side} for name in names}

    def _deleted_by(self, one: str) -> Take | None:
        """The side that deleted the entity, if one did."""
        if self.mine[one].kind == "delete":
            return "ours"
        return "theirs" if self.wanted[one].kind == "delete" else None

    def _places(self, entity_ids: Sequence[str]) -> tuple[Places, Places, Places]:
        """Where the entities are in our rows, in theirs, and in those of the base."""
        return (
            _at(self.mine, entity_ids),
            _at(self.wanted, entity_ids),
            self._in_base(self.theirs.before, entity_ids),
        )

    def _in_base(self, before: Side, entity_ids: Sequence[str]) -> Places:
        # Without a row in the base, nobody can tell who changed which property.
        there = places_by_id(before)
        known = (-1 if one in self.disputed else there.get(one, -1) for one in entity_ids)
        return np.array(list(known), dtype=np.int64)

    def _told_of_deleted(self, entity_ids: Sequence[str]) -> dict[str, list[PropertyConflict]]:
        """What the other side changed of entities that one and the same side deleted."""
        if not entity_ids:
            return {}
        by = self._deleted_by(entity_ids[0])
        assert by is not None, "one of the sides deleted it"
        found, deeds = (self.theirs, self.wanted) if by == "ours" else (self.ours, self.mine)
        at_base = self._in_base(found.before, entity_ids)
        return told_of_deleted(found, entity_ids, _at(deeds, entity_ids), at_base, by=by)


def _no_values(entity: Entity, one: str) -> InputError:
    return InputError(
        f"one side deleted {entity_words(entity.table_key, one)}: no values can settle that",
        hint='say "ours" or "theirs"',
        argument="resolutions",
        type_key=entity.table_key,
        entity_id=one,
    )


def _deeds(found: TableDifference, disputed: frozenset[str] = frozenset()) -> dict[str, _Deed]:
    """What was done to each entity."""
    deeds: dict[str, _Deed] = {}
    kinds: tuple[tuple[DeedKind, Side, Places], ...] = (
        ("insert", found.after, found.inserted),
        ("update", found.after, found.updated_after),
        ("delete", found.before, found.deleted),
    )
    for kind, side, places in kinds:
        for entity_id, place in zip(ids_at(side, places), places.tolist(), strict=True):
            deeds[entity_id] = _Deed(kind, place)
    left_alone = disputed - deeds.keys()
    there = places_by_id(found.after) if left_alone else {}
    for entity_id in sorted(left_alone):
        still = entity_id in there
        deeds[entity_id] = _Deed("update", there[entity_id]) if still else _Deed("delete", -1)
    return deeds


def _at(deeds: Mapping[str, _Deed], entity_ids: Sequence[str]) -> Places:
    return np.array([deeds[one].place for one in entity_ids], dtype=np.int64)


def _combined(
    theirs: TableDifference,
    wanted: Mapping[str, _Deed],
    merged: pa.Table | None = None,
    conflicts: tuple[MergeConflict, ...] = (),
) -> Combined:
    """The source's deeds, and rows that were merged from both sides."""
    deleted = frozenset(one for one, deed in wanted.items() if deed.kind == "delete")
    written = [one for one in wanted if one not in deleted]
    rows = whole_rows(theirs.after, theirs.entity, _at(wanted, written))
    if merged is not None:
        rows = pa.concat_tables([rows, merged.cast(rows.schema)])
    inserted = sum(deed.kind == "insert" for deed in wanted.values())
    return Combined(
        change=TableChange(entity=theirs.entity, rows=rows, deleted=deleted),
        counts=TypeCounts(
            inserted=inserted, updated=rows.num_rows - inserted, deleted=len(deleted)
        ),
        conflicts=conflicts,
    )


def places_by_id(side: Side) -> dict[str, int]:
    """Where the row of each entity is."""
    ids: list[str] = side.ids.to_pylist()
    return {entity_id: place for place, entity_id in enumerate(ids)}


# --- what both sides are compared with ---------------------------------------------------------


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One type: a stored version of its table, what is laid over it, and the disputed entities."""

    seen: Seen | None  # None: the type is not there
    laid: TableChange | None = None
    disputed: frozenset[str] = frozenset()

    @property
    def is_stored(self) -> bool:
        """Whether the stored version is all there is to it."""
        return self.laid is None and not self.disputed

    def is_at(self, seen: Seen | None) -> bool:
        """Whether it is just this version of a table."""
        return self.is_stored and _pin(self.seen) == _pin(seen)

    @property
    def ids(self) -> frozenset[str]:
        """The entities of which the stored version does not tell everything."""
        if self.laid is None:
            return self.disputed
        return self.disputed | self.laid.deleted | _ids(self.laid.rows)


def _pin(seen: Seen | None) -> Pin | None:
    return None if seen is None else seen.entry.pin


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The ancestors that a merge starts from. No snapshots: none can be read."""

    snapshots: tuple[Snapshot, ...]
    parents: Parents | None = None  # needed for more than one

    @property
    def commit_ids(self) -> tuple[str, ...]:
        return tuple(one.graph_commit_id for one in self.snapshots)


def readable(core: Core, commit_ids: Sequence[str]) -> tuple[Snapshot, ...]:
    """The snapshots of these commits; none if one of them cannot be read."""
    try:
        return tuple(core.store.manifests.at_commit(one) for one in commit_ids)
    except NotFoundError:
        return ()  # a release that did not know that it is needed has cleaned it up


def shared_by(
    core: Core, base: Base, done: Sequence[Snapshot], snapshot: Snapshot
) -> tuple[Snapshot, ...]:
    """What some ancestors share with another one; none if that is not sure."""
    assert base.parents is not None, "several ancestors come with who descends from whom"
    found = best_common(
        [one.graph_commit_id for one in done], [snapshot.graph_commit_id], base.parents
    )
    return () if found.unknown else readable(core, found.best)


def base_state(
    core: Core,
    base: Base,
    see: Callable[[Snapshot], Seen | None],
    sides: tuple[Seen | None, Seen | None],
    strategy: Strategy,
) -> State:
    """The type in the base. If nothing is known of it, all that differs between the sides is
    disputed. `see` says how a snapshot shows the type."""
    ours, theirs = sides
    merging = _Bases(core=core, base=base, see=see, strategy=strategy)
    if base.snapshots:
        return merging.of(base.snapshots, rounds_left=MERGE_BASE_ROUNDS_MAX)
    return merging.disputed(State(seen=ours), State(seen=theirs))


class _Bases(msgspec.Struct, frozen=True, kw_only=True):
    """Merging common ancestors of one type into one."""

    core: Core
    base: Base
    see: Callable[[Snapshot], Seen | None]
    strategy: Strategy

    def of(self, snapshots: Sequence[Snapshot], *, rounds_left: int) -> State:
        """One after the other is merged into the first, in the order of their ids."""
        state = State(seen=self.see(snapshots[0]))
        for at, snapshot in enumerate(snapshots[1:], start=1):
            seen = self.see(snapshot)
            if not state.is_at(seen):
                done = snapshots[:at]
                shared = shared_by(self.core, self.base, done, snapshot) if rounds_left else ()
                if shared:
                    base = self.of(shared, rounds_left=rounds_left - 1)
                    state = self._merged(base, state, State(seen=seen))
                else:
                    state = self.disputed(state, State(seen=seen))
        return state

    def _merged(self, base: State, ours: State, theirs: State) -> State:
        tables = self.core.store.tables
        if ours.is_at(None):  # laid over the table of the one that has the type
            ours, theirs = theirs, ours
        if theirs.is_at(None) and base.is_at(None):
            return ours
        combined = combine(
            state_difference(tables, base, ours),
            state_difference(tables, base, theirs),
            # Which side wins is for the sides of the merge, not for what they share.
            strategy="property" if self.strategy == "property" else "fail",
            disputed=base.disputed,
        )
        conflicts = frozenset(one.entity_id for one in combined.conflicts if one.entity_id)
        return State(
            seen=ours.seen,
            laid=_laid(ours.laid, combined.change),
            disputed=ours.disputed | theirs.disputed | conflicts,
        )

    def disputed(self, ours: State, theirs: State) -> State:
        """Nothing is known of what they share: all that differs is disputed."""
        found = state_difference(self.core.store.tables, ours, theirs)
        ids = {
            *ids_at(found.before, found.deleted),
            *ids_at(found.after, found.inserted),
            *ids_at(found.after, found.updated_after),
        }
        return replace(ours, disputed=ours.disputed | theirs.disputed | ids)


def _laid(below: TableChange | None, above: TableChange) -> TableChange | None:
    """Two changes as one, the second on top of the first."""
    if below is None:
        return None if above.is_empty else above
    written = _ids(above.rows)
    return TableChange(
        entity=above.entity,
        rows=pa.concat_tables([_without(below.rows, written | above.deleted), above.rows]),
        deleted=(below.deleted - written) | above.deleted,
    )


def _ids(rows: pa.Table) -> frozenset[str]:
    return frozenset(str(one) for one in rows["id"].to_pylist())


def _without(rows: pa.Table, ids: frozenset[str]) -> pa.Table:
    listed: Any = pa.array(sorted(ids), pa.string())
    return rows.filter(pc.invert(pc.is_in(rows["id"], value_set=listed)))


# --- differences of states -------------------------------------------------------------------


def state_difference(tables: Tables, before: State, after: State) -> TableDifference:
    """How the type's entities differ from one state to the other. Both sides of it have the rows
    of disputed entities, also where they are equal."""
    if before.seen is not None and after.seen is not None:
        found = difference(tables, before.seen, after.seen)
    else:
        found = _all_or_nothing(tables, before.seen, after.seen)
    ids = before.ids | after.ids
    if not ids:
        return found
    return paired(
        found.entity,
        _laid_over(found.before, before, ids),
        _laid_over(found.after, after, ids),
    )


def _all_or_nothing(tables: Tables, before: Seen | None, after: Seen | None) -> TableDifference:
    """All rows are new, or gone, because the type is not there on one side."""
    seen = before or after
    assert seen is not None, "a type that is on no side is nobody's"
    table, columns = tables.open(seen.entry), read_columns(seen.lift.entity)
    stored = table.read(columns=[*seen.lift.stored(columns), ROW_ID])
    full = Side(table=table, lift=seen.lift, rows=seen.lift.rows(stored, columns))
    empty = replace(full, rows=full.rows.slice(0, 0))
    sides = (full, empty) if before is not None else (empty, full)
    return paired(seen.lift.entity, *sides)


def _laid_over(side: Side, state: State, ids: frozenset[str]) -> Side:
    """The side with the stored rows of these entities too, and what the state lays over them."""
    entity = side.lift.entity
    columns = [*read_columns(entity), ROW_ID]
    there = state.seen is not None
    missing = sorted(ids.difference(side.ids.to_pylist())) if there else []
    rows = side.rows.select(columns)
    if missing:
        stored = stored_side(side.table, side.lift, missing).rows
        rows = pa.concat_tables([rows, stored.cast(rows.schema)])
    if state.laid is None:
        return Side(table=side.table, lift=side.lift, rows=rows)
    over = state.laid.rows
    kept = _without(rows, state.laid.deleted | _ids(over))
    unstored: Any = pa.nulls(over.num_rows, rows.schema.field(ROW_ID).type)
    laid = over.select(columns[:-1]).append_column(ROW_ID, unstored)
    return Side(
        table=side.table,
        lift=side.lift,
        rows=pa.concat_tables([kept, laid.cast(rows.schema)]),
        laid=over,
    )
