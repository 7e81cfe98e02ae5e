"""Records of one load, gathered by type into Arrow tables.

Python values live only until a chunk is full; what stays is Arrow, about as big as the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.write.change import Places
from omnigraph.engine.write.columns import batch_schema, column
from omnigraph.engine.write.constraints import Cells, Entity, foreign_id, misfit
from omnigraph.engine.write.keys import canonical_ids, key_text, respelled_id, respelled_ids
from omnigraph.engine.write.records import Record
from omnigraph.engine.write.violations import Findings, Place
from omnigraph.model.limits import LOAD_CHUNK_ROWS
from omnigraph.model.schema import Catalog, EdgeType, NodeType


class _Absent:
    """Marks a required property that a record leaves out."""


_ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """All records of one type. Ids are null where the graph is to make them."""

    entity: Entity
    rows: pa.Table
    places: Places
    absent: Cells
    misfits: Cells
    foreign: frozenset[str]  # ids that keyed nodes were given and cannot have


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBatch:
    """A request that has been read: tables by table key, and the values that did not fit."""

    tables: Mapping[str, LoadedTable]
    found: Findings
    strict: bool


def gather(
    records: Iterable[Record], catalog: Catalog, *, strict: bool, found: Findings
) -> LoadBatch:
    """Read all records. Values that do not fit become findings, not errors."""
    gathering: dict[str, _Gathering] = {}
    for record in records:
        key = record.entity.table_key
        table = gathering.get(key)
        if table is None:
            table = gathering[key] = _Gathering(record.entity, found, strict=strict)
        table.add(record)
    aliases = {key: table.finish() for key, table in gathering.items()}
    return LoadBatch(
        tables={key: table.loaded(catalog, aliases) for key, table in sorted(gathering.items())},
        found=found,
        strict=strict,
    )


@dataclass(slots=True)
class _Gathering:
    """The records of one type so far."""

    entity: Entity
    found: Findings
    strict: bool = field(kw_only=True)
    _chunks: list[pa.Table] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    _absent: set[tuple[int, str]] = field(default_factory=set)
    _misfits: set[tuple[int, str]] = field(default_factory=set)
    _aliases: dict[str, str] = field(default_factory=dict)
    _foreign: set[str] = field(default_factory=set)
    _done: int = 0
    _waiting: list[Record] = field(default_factory=list)

    def add(self, record: Record) -> None:
        self._waiting.append(record)
        if len(self._waiting) >= LOAD_CHUNK_ROWS:
            self._flush()

    def finish(self) -> dict[str, str]:
        """Convert what is left; the aliases that its ids were written by."""
        self._flush()
        return self._aliases

    def loaded(self, catalog: Catalog, aliases: Mapping[str, dict[str, str]]) -> LoadedTable:
        schema = batch_schema(self.entity)
        rows = pa.concat_tables(self._chunks) if self._chunks else schema.empty_table()
        if isinstance(self.entity, EdgeType) and not self.strict:
            rows = _respelled_ends(rows, self.entity, catalog, aliases)
        return LoadedTable(
            entity=self.entity,
            rows=rows,
            places=Places(
                word="line" if self.strict else "record", numbers=np.array(self._numbers)
            ),
            absent=frozenset(self._absent),
            misfits=frozenset(self._misfits),
            foreign=frozenset(self._foreign),
        )

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        self._numbers += [record.number for record in waiting]
        columns: dict[str, Any] = {
            prop.name: self._column(waiting, prop.name) for prop in self.entity.properties
        }
        if isinstance(self.entity, EdgeType):
            columns["src"] = pa.array([record.src for record in waiting], pa.string())
            columns["dst"] = pa.array([record.dst for record in waiting], pa.string())
        given = [record.data.get("id") for record in waiting]
        columns["id"] = pa.array(given, pa.string())
        schema = batch_schema(self.entity)
        chunk = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        if isinstance(self.entity, NodeType) and self.entity.key:
            chunk = self._keyed(self.entity, chunk, given)
        self._chunks.append(chunk)
        self._done += len(waiting)

    def _column(self, waiting: list[Record], name: str) -> Any:
        prop = self.entity.by_name[name]
        required = not prop.type.nullable and prop.default is None
        instead = _ABSENT if required else prop.default
        values = [record.data.get(name, instead) for record in waiting]
        if required and _ABSENT in values:
            self._absent |= {
                (self._done + row, name) for row, v in enumerate(values) if v is _ABSENT
            }
            values = [None if value is _ABSENT else value for value in values]
        array, problems = column(values, prop.type, strict=self.strict)
        if problems:
            self._misfits |= {(self._done + problem.row, name) for problem in problems}
            self.found.add(
                [
                    misfit(self.entity, name, problem, self._place(problem.row))
                    for problem in problems[: self.found.room]
                ],
                total=len(problems),
            )
        return array

    def _keyed(self, node: NodeType, chunk: pa.Table, given: list[str | None]) -> pa.Table:
        """The chunk with canonical ids; explicit ids must agree with them."""
        ids = canonical_ids(node, chunk)
        if any(one is not None for one in given):
            for row, (written, canonical) in enumerate(zip(given, ids.to_pylist(), strict=True)):
                if written is not None and canonical is not None and written != canonical:
                    self._other_spelling(node, chunk, row, written, canonical)
        return chunk.set_column(0, "id", ids)

    def _other_spelling(
        self, node: NodeType, chunk: pa.Table, row: int, written: str, canonical: str
    ) -> None:
        if not self.strict and written in _spellings(node, chunk, row, written, canonical):
            self._aliases[written] = canonical
            return
        place = self._place(row)
        self._misfits.add((self._done + row, "id"))
        self._foreign.add(written)
        self.found.add([foreign_id(node, written, canonical, place, strict=self.strict)])

    def _place(self, row: int) -> Place:
        return place_of(self._numbers[self._done + row], strict=self.strict)


def place_of(number: int, *, strict: bool) -> Place:
    """Where the record of that number was."""
    return Place(f"{'line' if strict else 'record'} {number}", (0, number))


def _spellings(
    node: NodeType, chunk: pa.Table, row: int, written: str, canonical: str
) -> tuple[str, ...]:
    """Other texts that may stand for the row's id in the permissive form: another spelling of a
    single key value, and for a composite key its first value alone, as old exports have it."""
    if len(node.key) == 1:
        return (written,) if respelled_id(node, written) == canonical else ()
    first = node.key[0]
    value: Any = chunk.column(first)[row]
    plain = value.value if hasattr(value, "value") else value.as_py()
    return (key_text(plain, node.by_name[first].type),)


def _respelled_ends(
    rows: pa.Table, edge: EdgeType, catalog: Catalog, aliases: Mapping[str, dict[str, str]]
) -> pa.Table:
    """The edges with their ends spelled as the ids of the nodes are."""
    for name, node_type in (("src", edge.from_type), ("dst", edge.to_type)):
        node = catalog.nodes[node_type]
        ends: Any = rows[name].combine_chunks()
        known = aliases.get(node.table_key)
        if known:
            encoded = ends.dictionary_encode()
            words = [known.get(word, word) for word in encoded.dictionary.to_pylist()]
            ends = pc.take(pa.array(words, pa.string()), encoded.indices)
        spelled = respelled_ids(node, ends)
        rows = rows.set_column(rows.schema.get_field_index(name), name, spelled)
    return rows
