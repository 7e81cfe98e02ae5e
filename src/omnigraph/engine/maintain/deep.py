"""Reading every row of a snapshot: are ids there, unique and those of their keys, do values keep
the rules of the schema, do the ends of edges exist, can the indexes be read?

Ids are compared a hash bucket at a time, in as many passes over the id columns as it takes to hold
no more of them than `VERIFY_PASS_ROWS_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.keyfiles import bucket_numbers
from omnigraph.engine.check.rules import Endpoint, Entity, check_values, rules_of
from omnigraph.engine.check.validate import check_unique
from omnigraph.engine.rows.keys import canonical_ids
from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import Pin
from omnigraph.model.limits import VERIFY_PASS_ROWS_MAX
from omnigraph.model.schema import Catalog, NodeType
from omnigraph.storage.table.table import Table

Advance = Callable[[str, int, int], None]
_SHOWN_MAX: Final = 10  # rows of a table that are named for one kind of problem
_BATCH_ROWS: Final = 65_536


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong in the rows of one table (kind, message), and how many were read."""

    table_key: str
    rows: int = 0
    problems: tuple[tuple[str, str], ...] = ()


def check_rows(
    catalog: Catalog,
    tables: Mapping[str, Table],
    seen: set[Pin],
    asked: set[tuple[Pin, ...]],
    advance: Advance,
) -> Iterator[Row]:
    """Check what was not `seen` and what was not `asked` before; both grow."""
    for entity in catalog.types():
        table = tables.get(entity.table_key)
        if table is None:
            continue
        try:
            if table.entry.pin not in seen:
                seen.add(table.entry.pin)
                yield _check_table(entity, table, advance)
            pins = (table.entry.pin, *(tables[k].entry.pin for k in _ends(entity) if k in tables))
            if pins not in asked:
                asked.add(pins)
                yield _check_ends(entity, table, tables, advance)
        except OmnigraphError as cause:
            yield Row(table_key=entity.table_key, problems=(("unreadable", cause.message),))


def _check_table(entity: Entity, table: Table, advance: Advance) -> Row:
    """The rows of a table by themselves and against each other."""
    found, problems = Findings(listed_max=_SHOWN_MAX), _Problems(entity)
    rows, total = 0, table.count()
    columns = [name for name in table.schema.names if name != "_rowid"]
    for batch in table.scan(columns=columns, batch_rows=_BATCH_ROWS):
        part = pa.Table.from_batches([batch])
        rows += part.num_rows
        check_values(entity, part, found)
        problems.nulls(part)
        if isinstance(entity, NodeType) and entity.key:
            problems.keys(entity, part)
        advance(f"rows of {entity.name}", rows, total)
    if rows != total:
        problems.add("row-count", f"{rows} rows were read, the table has {total}")
    for number, passes in _passes(total):
        ids = _values(table, ["id"], number, passes)["id"]
        counts = pc.value_counts(ids)
        twice = counts.filter(pc.greater(counts.field("counts"), pa.scalar(1)))
        problems.list("duplicate-id", "id {} is there more than once", twice.field("values"))
        for rule in rules_of(entity).unique:
            check_unique(
                entity,
                rule,
                _values(table, ["id", *rule.columns], number, passes, rule.columns),
                found,
            )
    for violation in found.listed:
        problems.add("value", violation.message)
    if found.total > len(found.listed):
        problems.add("value", f"and {found.total - len(found.listed)} more violations")
    for name in table.broken_indexes():
        problems.add("index", f"index '{name}' cannot be read")
    return Row(table_key=entity.table_key, rows=rows, problems=tuple(problems.found))


def _check_ends(entity: Entity, table: Table, tables: Mapping[str, Table], advance: Advance) -> Row:
    """Whether the ends of a table's edges exist."""
    problems = _Problems(entity)
    for rule in rules_of(entity).endpoints:
        nodes = tables.get(f"node:{rule.node_type}")
        if nodes is None:
            continue
        for number, passes in _passes(nodes.count()):
            there = _values(nodes, ["id"], number, passes)["id"]
            _miss(problems, rule, table, there.combine_chunks(), (number, passes))
            advance(f"ends of {entity.name}", number + 1, passes)
    return Row(table_key=entity.table_key, problems=tuple(problems.found))


def _miss(
    problems: _Problems, rule: Endpoint, edges: Table, there: Any, part: tuple[int, int]
) -> None:
    words = f"edge {{}} has no {'source' if rule.column == 'src' else 'target'} in {rule.node_type}"
    for batch in edges.scan(columns=["id", rule.column], batch_rows=_BATCH_ROWS):
        rows = _bucket(pa.Table.from_batches([batch]), [rule.column], *part)
        known = pc.is_in(rows[rule.column], value_set=there)
        problems.list("missing-end", words, rows.filter(pc.invert(known))["id"])


def _ends(entity: Entity) -> list[str]:
    return [f"node:{rule.node_type}" for rule in rules_of(entity).endpoints]


def _passes(rows: int) -> Iterator[tuple[int, int]]:
    passes = max(1, -(-rows // VERIFY_PASS_ROWS_MAX))
    return ((number, passes) for number in range(passes))


def _values(
    table: Table, columns: Sequence[str], number: int, passes: int, by: Sequence[str] = ("id",)
) -> pa.Table:
    """The columns of the rows that fall into one of the buckets."""
    names = list(dict.fromkeys(columns))
    parts = [
        _bucket(pa.Table.from_batches([batch]), by, number, passes)
        for batch in table.scan(columns=names, batch_rows=_BATCH_ROWS)
    ]
    return pa.concat_tables(parts) if parts else table.read(columns=names)


def _bucket(rows: pa.Table, by: Sequence[str], number: int, passes: int) -> pa.Table:
    if passes == 1:
        return rows
    mine = bucket_numbers([rows[name] for name in by], passes) == np.uint16(number)
    return rows.filter(pa.array(mine))


class _Problems:
    """What is wrong in one table: a few rows are named, the rest is counted."""

    def __init__(self, entity: Entity) -> None:
        self._entity = entity
        self._counts: dict[str, int] = {}
        self.found: list[tuple[str, str]] = []

    def add(self, kind: str, message: str) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= _SHOWN_MAX:
            self.found.append((kind, f"{self._entity.name}: {message}"))

    def list(self, kind: str, words: str, ids: Any) -> None:
        for one in ids:
            self.add(kind, words.format(repr(one.as_py())))

    def nulls(self, rows: pa.Table) -> None:
        for name in ("id", "src", "dst"):
            if name in rows.column_names and rows[name].null_count:
                self.add("null", f"{rows[name].null_count} rows have no {name}")

    def keys(self, node: NodeType, rows: pa.Table) -> None:
        """An id says what the key says."""
        if any(rows[name].null_count for name in node.key):
            return  # told by the rules of values
        wrong = pc.not_equal(rows["id"], canonical_ids(node, rows.combine_chunks()))
        self.list("key", "id {} is not that of its key", rows.filter(wrong)["id"])
