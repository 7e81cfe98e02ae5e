"""What statements have done so far, seen by those that come after: rows that shadow stored ones,
and deletions. A mutation has one `Pending`; a transaction has one for all its queries and loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, as_mask, flat, picked
from omnigraph.engine.check.bucket import TableChange
from omnigraph.engine.check.findings import Place
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.expr.evaluate import Constants, Rows, holding
from omnigraph.engine.expr.sql import column_of, listed_values, push_down
from omnigraph.engine.load.vectors import (
    EmbedPlan,
    FillError,
    VectorFiller,
    gaps_of,
    no_vector,
)
from omnigraph.engine.rows.columns import BLOB_CELL, batch_schema, from_fitted, written_rows
from omnigraph.engine.rows.parts import Stored
from omnigraph.model.ports import TextEmbedder
from omnigraph.model.schema import Catalog, PropertyType, Scalar
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.table.read import texts

FittedRow = dict[str, Any]  # values by column, as `model.values.fit` gives them

_IDS = ir.Param(name="#ids", type=PropertyType(scalar=Scalar.STRING, is_list=True))
_AMONG_IDS = ir.InList(needle=ir.IdRef(var=ir.SELF), options=_IDS)


class Pending:
    """Changes of tables on one snapshot."""

    def __init__(self, catalog: Catalog, stored: Stored, *, embeds: bool = False) -> None:
        """`embeds`: a text that changes leaves its vector empty, to be made anew."""
        self.catalog, self.stored, self._embeds = catalog, stored, embeds
        self.tables: dict[str, PendingTable] = {}
        self.version = 0  # grows with every statement that ran

    def table(self, entity: Entity) -> PendingTable:
        if entity.table_key not in self.tables:
            table = PendingTable(entity, self.stored, embeds=self._embeds)
            self.tables[entity.table_key] = table
        return self.tables[entity.table_key]

    def changes(self) -> dict[str, TableChange]:
        """What differs from the snapshot, by table."""
        found = {key: table.change() for key, table in self.tables.items()}
        return {key: change for key, change in found.items() if not change.is_empty}

    def fill_vectors(self, embedder: TextEmbedder | None) -> int:
        """Make the `@embed` vectors that written rows lack and have a text for; how many."""
        if embedder is None:
            return 0
        filler = VectorFiller(EmbedPlan(source=embedder), FileAccess(), what="the write")
        for key, table in self.tables.items():
            try:
                table.fill_vectors(filler)
            except FillError as stopped:
                entity_id = table.written_id(stopped.row)
                place = self.place(key, entity_id)
                raise no_vector(
                    stopped.error,
                    type_name=table.entity.name,
                    prop=stopped.prop.name,
                    where=f"{place}: '{entity_id}'" if place else f"'{entity_id}'",
                    entity_id=entity_id,
                ) from stopped.error
        return filler.made

    def place(self, table_key: str, entity_id: str) -> Place | None:
        """The statement that wrote the entity last."""
        table = self.tables.get(table_key)
        return None if table is None else table.places.get(entity_id)


class TableRows(Rows):
    """The rows that the `where` of a mutation looks at: columns of one table."""

    def __init__(self, table: pa.Table, constants: Constants) -> None:
        self.table = table
        self.count = table.num_rows
        self.constants = constants

    def value_of(self, var: str, name: str) -> Array:
        assert var == ir.SELF, "a statement looks at one entity at a time"
        return flat(self.table[name])

    def endpoint(self, var: str, side: str) -> Array:
        return self.value_of(var, side)

    def at(self, numbers: npt.NDArray[np.int64]) -> TableRows:
        return TableRows(picked(self.table, numbers), self.constants)

    def matching(self, where: ir.Expr) -> pa.Table:
        """The rows for which the condition is true."""
        keep = holding([where], self)
        return self.table if keep.all() else self.table.filter(pa.array(keep))


def columns_of(where: ir.Expr) -> frozenset[str]:
    """The columns that the condition looks at."""
    names = (column_of(part) for part in ir.walk(where))
    return frozenset(name for name in names if name is not None)


class PendingTable:
    """What has been done so far to one table: rows that shadow stored ones, and deletions.

    Rows are Arrow tables with the columns of `batch_schema`. A later statement sees pending rows
    first and stored rows only where nothing shadows them.
    """

    def __init__(self, entity: Entity, stored: Stored, *, embeds: bool = False) -> None:
        self.entity = entity
        # Vector properties by the text they are made from
        self._embedded = {
            prop.name: prop.embed.source for prop in entity.properties if embeds and prop.embed
        }
        self.places: dict[str, Place] = {}  # of the statements that wrote entities last
        self._stored = stored
        self._schema = batch_schema(entity)
        self._put_rows = self._schema.empty_table()  # each id once
        self._put_ids: dict[str, None] = {}  # of those
        self._inserted: dict[str, FittedRow] = {}  # by id: newer than those, not yet in Arrow
        self._patches: dict[str, FittedRow] = {}  # some values of rows in Arrow or in storage
        self._fresh: set[str] = set()
        self._deleted: set[str] = set()
        self._touched: set[str] | None = set()
        self._between: dict[tuple[str, str], str | None] = {}  # edges that were looked for

    def insert(self, row: FittedRow, *, fresh: bool) -> None:
        """Put a whole new row; `fresh` ids were made by us and cannot be stored."""
        entity_id = row["id"]
        self._inserted[entity_id] = row
        self._patches.pop(entity_id, None)
        self._deleted.discard(entity_id)
        self._touched = None
        if fresh:
            self._fresh.add(entity_id)
        if "src" in row:
            self._between[row["src"], row["dst"]] = entity_id

    def patch(self, entity_id: str, values: FittedRow) -> None:
        """Set some values of an entity that is there."""
        row = self._inserted.get(entity_id)
        if row is not None:
            for vector, source in self._embedded.items():
                if source in values and row[source] != values[source]:
                    row[vector] = None
            row.update(values)
            return
        self._patches.setdefault(entity_id, {}).update(values)
        if self._touched is not None:
            self._touched |= values.keys()

    def update(self, rows: pa.Table, values: FittedRow, computed: Mapping[str, Array]) -> None:
        """Put the rows with some values set: one for all rows, or one for each."""
        if not rows.num_rows:
            return
        columns: dict[str, Any] = {name: rows[name] for name in self._schema.names}
        for name, value in values.items():
            cell = from_fitted([value], self.entity.by_name[name].type)
            columns[name] = picked(cell, np.zeros(rows.num_rows, dtype=np.int64))
        columns |= computed
        given = values.keys() | computed.keys()
        emptied = self._emptied(rows, columns, lambda name: np.full(rows.num_rows, name in given))
        self._put(pa.table(columns, schema=self._schema))
        if self._touched is not None:
            self._touched |= given | emptied

    def put(self, rows: pa.Table) -> None:
        """Put whole rows, each id once."""
        self._rows()
        self._deleted.difference_update(texts(rows["id"]))
        self._touched = None
        self._between.clear()
        self._put(rows.select(self._schema.names).cast(self._schema))

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Remove rows; those of them that were not removed before."""
        new = [entity_id for entity_id in ids if entity_id not in self._deleted]
        rows = self._rows()
        self._deleted.update(new)
        self._touched = None
        self._between.clear()
        self._put_rows = _without(rows, new)
        for entity_id in new:
            self._put_ids.pop(entity_id, None)
        return new

    def all_ids(self) -> list[str]:
        """The ids of all rows, pending or stored."""
        pending = texts(self._rows()["id"])
        stored = self._stored.rows(self.entity.table_key, ["id"])
        return [*pending, *texts(_without(stored, [*pending, *self._deleted])["id"])]

    def touching(self, side: str, ids: pa.Array[Any]) -> list[str]:
        """The edges, pending or stored, that have one of the nodes at this side."""
        pending = self._rows()
        there: Any = pc.is_in(pending[side], value_set=ids)
        stored = self._stored.rows_where_in(self.entity.table_key, side, ids, ["id"])
        # Ends never change, so that what is stored and shadowed is among the pending ones.
        stored = _without(stored, [*self._put_ids])
        return [*texts(pending.filter(there)["id"]), *texts(stored["id"])]

    # --- whether something is there ---

    def look_for(self, ids: Iterable[str]) -> None:
        """Ask storage once for all of these ids, of which `has` is asked later."""
        self._stored.locate(self.entity.table_key, list(ids))

    def has(self, entity_id: str) -> bool:
        if entity_id in self._inserted or entity_id in self._put_ids:
            return True
        if entity_id in self._deleted:
            return False
        self.look_for([entity_id])
        found = self._stored.located(self.entity.table_key, [entity_id])
        return found is not None and found.num_rows > 0

    def look_between(self, ends: Iterable[tuple[str, str]]) -> None:
        """Ask storage once for the edges between all of these ends."""
        asked = [pair for pair in dict.fromkeys(ends) if pair not in self._between]
        if not asked:
            return
        self._between.update(dict.fromkeys(asked))
        sides = [pa.array([pair[at] for pair in asked], pa.string()).unique() for at in (0, 1)]
        names, more = ["id", "src", "dst"], {"dst": sides[1]}
        stored = self._stored.rows_where_in(
            self.entity.table_key, "src", sides[0], names, and_in=more
        )
        for rows in (_without(stored, [*self._deleted]), self._rows().select(names)):
            for row in rows.to_pylist():
                if (row["src"], row["dst"]) in self._between:
                    self._between[row["src"], row["dst"]] = row["id"]

    def between(self, src: str, dst: str) -> str | None:
        """The edge between these nodes, if there is one."""
        self.look_between([(src, dst)])
        return self._between[src, dst]

    def matching(self, where: ir.Expr, constants: Constants) -> pa.Table:
        """The rows, pending or stored, for which the condition is true."""
        pending = TableRows(self._rows(), constants).matching(where)
        stored, row_ids = self._stored_matching(where, constants, self._schema.names)
        table = self._stored.table(self.entity.table_key)
        whole = written_rows(self.entity, stored, lambda name: table.blobs(name, row_ids))
        return pa.concat_tables([pending, whole])

    def matching_ids(self, where: ir.Expr, constants: Constants) -> list[str]:
        """The ids of the rows for which the condition is true."""
        pending = TableRows(self._rows(), constants).matching(where)
        stored, _ = self._stored_matching(where, constants, ["id"])
        return [*texts(pending["id"]), *texts(stored["id"])]

    def change(self) -> TableChange:
        """Everything so far, as the validator and the stager want it."""
        rows = self._rows()
        fresh = rows.num_rows > 0 and not self._deleted
        return TableChange(
            entity=self.entity,
            rows=rows,
            deleted=frozenset(self._deleted),
            fresh=fresh and self._fresh.issuperset(texts(rows["id"])),
            touched=None if self._touched is None else frozenset(self._touched),
        )

    def _rows(self) -> pa.Table:
        """The pending rows, each id once."""
        if self._patches:
            self._put(self._patched())
        if self._inserted:
            rows = list(self._inserted.values())
            self._inserted = {}
            columns = []
            for name in self._schema.names:
                prop, values = self.entity.by_name.get(name), [row[name] for row in rows]
                columns.append(
                    from_fitted(values, prop.type) if prop else pa.array(values, pa.string())
                )
            self._put(pa.Table.from_arrays(columns, schema=self._schema))
        return self._put_rows

    def _patched(self) -> pa.Table:
        """The whole rows of entities of which some values were set."""
        patches, self._patches = self._patches, {}
        kept, self._inserted = self._inserted, {}  # newer than what is patched here
        constants = Constants(params={_IDS.name: list(patches)}, now_ms=0)
        rows = self.matching(_AMONG_IDS, constants)
        self._inserted = kept
        # As they were patched: rows go into the table in the order of the statements.
        at = {entity_id: place for place, entity_id in enumerate(texts(rows["id"]))}
        found = [entity_id for entity_id in patches if entity_id in at]
        rows = picked(rows, [at[entity_id] for entity_id in found])
        columns = {name: flat(rows[name]) for name in self._schema.names}
        for name in dict.fromkeys(name for values in patches.values() for name in values):
            given = [place for place, one in enumerate(found) if name in patches[one]]
            values = [patches[found[place]][name] for place in given]
            chosen = np.arange(len(found), dtype=np.int64)
            chosen[given] = len(found) + np.arange(len(given), dtype=np.int64)
            cells = from_fitted(values, self.entity.by_name[name].type)
            columns[name] = picked(pa.concat_arrays([columns[name], cells]), chosen)
        emptied = self._emptied(
            rows, columns, lambda name: np.array([name in patches[one] for one in found], bool)
        )
        if self._touched is not None:
            self._touched |= emptied
        return pa.table(columns, schema=self._schema)

    def _emptied(
        self,
        before: pa.Table,
        columns: dict[str, Any],
        given: Callable[[str], npt.NDArray[np.bool_]],
    ) -> set[str]:
        """Take the vectors of texts that become other ones out of the columns, where none is given
        with the text; the names of the columns that lost some. `given` says in which rows a column
        was set."""
        emptied: set[str] = set()
        for vector, source in self._embedded.items():
            now = columns[source]
            same: Any = pc.equal(before[source], now)
            both_null: Any = pc.and_(pc.is_null(before[source]), pc.is_null(now))
            changed = ~as_mask(flat(pc.or_(pc.fill_null(same, pa.scalar(value=False)), both_null)))
            gone = np.flatnonzero(changed & ~given(vector))
            if len(gone):
                there = np.arange(before.num_rows, dtype=np.int64)
                column = flat(columns[vector])
                there[gone] = len(column)
                columns[vector] = picked(
                    pa.concat_arrays([column, pa.nulls(1, column.type)]), there
                )
                emptied.add(vector)
        return emptied

    def written_id(self, row: int) -> str:
        """The id of a pending row."""
        return str(self._rows()["id"][row].as_py())

    def fill_vectors(self, filler: VectorFiller) -> None:
        """Make the vectors that pending rows lack, or `FillError` with the number of the row."""
        if not self._embedded:
            return
        for gap in gaps_of(self.entity, self._rows(), frozenset()):
            self._put_rows = filler.filled(self._put_rows, gap)
            if self._touched is not None:
                self._touched.add(gap.prop.name)

    def _put(self, rows: pa.Table) -> None:
        """Add rows, each id once; what is pending of their ids is replaced in its place."""
        before = self._put_rows
        self._put_rows = pa.concat_tables([before, rows])
        if before.num_rows:
            last = {entity_id: at for at, entity_id in enumerate(texts(self._put_rows["id"]))}
            self._put_rows = picked(self._put_rows, list(last.values()))
            self._put_ids = dict.fromkeys(last)
        else:
            self._put_ids = dict.fromkeys(texts(rows["id"]))

    def _stored_matching(
        self, where: ir.Expr, constants: Constants, columns: Sequence[str]
    ) -> tuple[pa.Table, list[int]]:
        """The stored rows that nothing shadows and for which the condition is true, and their row
        ids. Blobs are no columns here: they are read by row id."""
        key = self.entity.table_key
        needed = columns_of(where).union(columns)
        found = self._stored.placed_rows(
            key,
            [
                field.name
                for field in self._schema
                if field.name in needed and field.type != BLOB_CELL
            ],
            where=push_down([where], constants).where,
            among=listed_values(where, constants),
        )
        found = _without(found, [*texts(self._rows()["id"]), *self._deleted])
        # Storage may have looked up a part of the condition only: all of it is judged here.
        matched = TableRows(found, constants).matching(where)
        return matched, self._stored.remember_places(key, matched)


def _without(rows: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The rows that have none of these ids."""
    if not ids or not rows.num_rows:
        return rows
    gone: Any = pc.is_in(rows["id"], value_set=pa.array(ids, pa.string()))
    return rows.filter(pc.invert(gone))
