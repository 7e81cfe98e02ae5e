"""What both sides of a merge are compared with.

Mostly that is one snapshot: the best common ancestor. After branches have merged each other to and
fro there are several, and any one of them alone would let the changes of the others pass for
changes of a side, or hide them. So the ancestors are merged first, entity by entity and against
what *they* share; where that gives no single answer the entity is *disputed*, and sides that do not
agree on it are a conflict. The same holds for everything if an ancestor cannot be read any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.check.change import TableChange
from omnigraph.engine.core import Core
from omnigraph.engine.history.difference import (
    Side,
    TableDifference,
    difference,
    ids_at,
    paired,
    read_columns,
)
from omnigraph.engine.merge.combine import combine
from omnigraph.engine.merge.conflicts import Strategy
from omnigraph.errors import NotFoundError
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.limits import MERGE_BASE_ROUNDS_MAX
from omnigraph.model.schema import ROW_ID, EdgeType, NodeType
from omnigraph.storage.manifest.history import Parents, best_common
from omnigraph.storage.table.table import Tables

Entity = NodeType | EdgeType


class State(msgspec.Struct, frozen=True, kw_only=True):
    """One type: a stored version of its table, what is laid over it, and the disputed entities."""

    entry: TableEntry
    laid: TableChange | None = None
    disputed: frozenset[str] = frozenset()

    @property
    def is_stored(self) -> bool:
        """Whether the stored version is all there is to it."""
        return self.laid is None and not self.disputed

    @property
    def ids(self) -> frozenset[str]:
        """The entities of which the stored version does not tell everything."""
        if self.laid is None:
            return self.disputed
        return self.disputed | self.laid.deleted | _ids(self.laid.rows)


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The ancestors that a merge starts from. No snapshots: none can be read."""

    snapshots: tuple[Snapshot, ...]
    parents: Parents | None = None  # needed for more than one

    @property
    def commit_ids(self) -> tuple[str, ...]:
        return tuple(one.graph_commit_id for one in self.snapshots)


def read_base(core: Core, commit_ids: Sequence[str], parents: Parents) -> Base:
    """The base of these best common ancestors; one that cannot be read makes all of it unknown."""
    return Base(snapshots=_snapshots(core, commit_ids), parents=parents)


def _snapshots(core: Core, commit_ids: Sequence[str]) -> tuple[Snapshot, ...]:
    """The snapshots of these commits; none if one of them cannot be read."""
    try:
        return tuple(core.store.manifests.at_commit(one) for one in commit_ids)
    except NotFoundError:
        return ()  # a release that did not know that it is needed has cleaned it up


def base_state(
    core: Core, base: Base, entity: Entity, sides: tuple[TableEntry, TableEntry], strategy: Strategy
) -> State:
    """The type in the base. If nothing is known of it, all that differs between the sides is
    disputed."""
    ours, theirs = sides
    merging = _Bases(core=core, base=base, entity=entity, strategy=strategy)
    if base.snapshots:
        return merging.of(base.snapshots, rounds_left=MERGE_BASE_ROUNDS_MAX)
    return merging.disputed(State(entry=ours), State(entry=theirs))


class _Bases(msgspec.Struct, frozen=True, kw_only=True):
    """Merging common ancestors of one type into one."""

    core: Core
    base: Base
    entity: Entity
    strategy: Strategy

    def of(self, snapshots: Sequence[Snapshot], *, rounds_left: int) -> State:
        """One after the other is merged into the first, in the order of their ids."""
        key = self.entity.table_key
        done = [snapshots[0]]
        state = State(entry=snapshots[0].entries[key])
        for snapshot in snapshots[1:]:
            entry = snapshot.entries[key]
            if not (state.is_stored and entry == state.entry):
                shared = self._shared(done, snapshot) if rounds_left else ()
                if shared:
                    base = self.of(shared, rounds_left=rounds_left - 1)
                    state = self._merged(base, state, State(entry=entry))
                else:
                    state = self.disputed(state, State(entry=entry))
            done.append(snapshot)
        return state

    def _shared(self, done: Sequence[Snapshot], snapshot: Snapshot) -> tuple[Snapshot, ...]:
        """What the snapshots merged so far share with the next; none if that is not sure."""
        assert self.base.parents is not None, "several ancestors come with who descends from whom"
        found = best_common(
            [one.graph_commit_id for one in done], [snapshot.graph_commit_id], self.base.parents
        )
        return () if found.unknown else _snapshots(self.core, found.best)

    def _merged(self, base: State, ours: State, theirs: State) -> State:
        tables = self.core.store.tables
        combined = combine(
            state_difference(tables, self.entity, base, ours),
            state_difference(tables, self.entity, base, theirs),
            # Which side wins is for the sides of the merge, not for what they share.
            strategy="property" if self.strategy == "property" else "fail",
            disputed=base.disputed,
        )
        conflicts = frozenset(one.entity_id for one in combined.conflicts if one.entity_id)
        return State(
            entry=ours.entry,
            laid=_laid(ours.laid, combined.change),
            disputed=ours.disputed | theirs.disputed | conflicts,
        )

    def disputed(self, ours: State, theirs: State) -> State:
        """Nothing is known of what they share: all that differs is disputed."""
        found = state_difference(self.core.store.tables, self.entity, ours, theirs)
        ids = {
            *ids_at(found.before, found.deleted),
            *ids_at(found.after, found.inserted),
            *ids_at(found.after, found.updated_after),
        }
        return State(
            entry=ours.entry,
            laid=ours.laid,
            disputed=ours.disputed | theirs.disputed | frozenset(ids),
        )


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


def state_difference(
    tables: Tables, entity: Entity, before: State, after: State
) -> TableDifference:
    """How the type's entities differ from one state to the other. Both sides of it have the rows
    of disputed entities, also where they are equal."""
    found = difference(tables, entity, before.entry, after.entry)
    ids = before.ids | after.ids
    if not ids:
        return found
    return paired(
        entity,
        _laid_over(found.before, entity, before, ids),
        _laid_over(found.after, entity, after, ids),
    )


def _laid_over(side: Side, entity: Entity, state: State, ids: frozenset[str]) -> Side:
    """The side with the stored rows of these entities too, and what the state lays over them."""
    columns = [*read_columns(entity), ROW_ID]
    missing = sorted(ids.difference(side.ids.to_pylist()))
    rows = side.rows.select(columns)
    if missing:
        rows = pa.concat_tables([rows, side.table.lookup("id", missing, columns).cast(rows.schema)])
    if state.laid is None:
        return Side(table=side.table, rows=rows)
    over = state.laid.rows
    kept = _without(rows, state.laid.deleted | _ids(over))
    unstored: Any = pa.nulls(over.num_rows, rows.schema.field(ROW_ID).type)
    laid = over.select(columns[:-1]).append_column(ROW_ID, unstored)
    return Side(
        table=side.table,
        rows=pa.concat_tables([kept, laid.cast(rows.schema)]),
        laid=over,
    )
