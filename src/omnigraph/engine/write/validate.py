"""The in-process evaluator: a whole change against the graph that it would make.

Values first: rows that are not what they should be make no sense to the rest, so a load leaves them
out of the other checks and a mutation stops there. Then uniqueness, endpoints and cardinality, all
findings together. Stored rows count unless the change shadows them: replaces, deletes or overwrites
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.write.change import Changes, TableChange
from omnigraph.engine.write.constraints import (
    Endpoint,
    OutDegree,
    Unique,
    check_unique,
    check_values,
    dangling,
    degree_broken,
    repeated,
    rules_of,
    tuple_text,
    unique_keys,
)
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.violations import Findings
from omnigraph.model.schema import Catalog, EdgeType, NodeType


def validate(changes: Changes, catalog: Catalog, stored: Stored, found: Findings) -> None:
    """Raise `ConstraintViolationError` unless the graph after the change obeys the schema."""
    validate_values(changes, catalog, found)
    validate_rows(changes, catalog, stored, found)


def look_up(changes: Changes, stored: Stored) -> None:
    """Ask each table once for every id that a small change needs to know about."""
    wanted: dict[str, set[str]] = {}
    for key, change in changes.items():
        if not (change.fresh or change.replaces_all):
            wanted.setdefault(key, set()).update(_texts(change.rows["id"]))
        for rule in rules_of(change.entity).endpoints:
            if change.touches([rule.column]):
                ends = wanted.setdefault(f"node:{rule.node_type}", set())
                ends.update(_texts(change.rows[rule.column]))
    for key, ids in sorted(wanted.items()):
        stored.locate(key, ids)


def validate_values(changes: Changes, catalog: Catalog, found: Findings) -> None:
    """The first half: each value by itself. `found` may already hold values of wrong types."""
    for change in _ordered(changes, catalog):
        _check_own_values(change, found)
    found.raise_if_any()


def with_good_values(changes: Changes, found: Findings) -> Changes:
    """The changes without the rows whose values are wrong, which are told to `found`."""
    return {key: _with_good_values(change, found) for key, change in changes.items()}


def _with_good_values(change: TableChange, found: Findings) -> TableChange:
    bad = _check_own_values(change, found)
    bad[[row for row, _ in change.misfits]] = True
    return change.without(bad)


def _check_own_values(change: TableChange, found: Findings) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return check_values(
        change.entity,
        change.rows,
        found,
        place_of=change.place_of,
        absent=change.absent,
        misfits=change.misfits,
    )


def validate_rows(changes: Changes, catalog: Catalog, stored: Stored, found: Findings) -> None:
    """The second half: rows against each other and against stored ones."""
    ordered = _ordered(changes, catalog)
    for change in ordered:
        for rule in rules_of(change.entity).unique:
            if change.rows.num_rows and change.touches(rule.columns):
                _check_unique(change, rule, stored, found)
    for change in ordered:
        if isinstance(change.entity, EdgeType):
            _check_new_edges(change, change.entity, changes, stored, found)
        elif change.replaces_all:
            _check_kept_edges(change, changes, catalog, stored, found)
    for change in ordered:
        degree = rules_of(change.entity).out_degree
        if degree and isinstance(change.entity, EdgeType) and change.touches(["src"]):
            _check_out_degree(change, change.entity, degree, changes, stored, found)
    found.raise_if_any()


def _ordered(changes: Changes, catalog: Catalog) -> list[TableChange]:
    keys = (entity.table_key for entity in catalog.types())
    return [changes[key] for key in keys if key in changes]


# --- uniqueness -------------------------------------------------------------------------------


def _check_unique(change: TableChange, rule: Unique, stored: Stored, found: Findings) -> None:
    check_unique(change.entity, rule, change.rows, found, place_of=change.place_of)
    if change.replaces_all:
        return
    columns = list(rule.columns)
    mine: Any = change.rows.select(_distinct("id", columns))
    theirs = _same_values(change, columns, stored)
    if theirs.num_rows == 0:
        return
    clashes = []
    for at, holder in _held(mine, theirs, columns):
        values = [mine[name][at].as_py() for name in columns]
        clashes.append((at, mine["id"][at].as_py(), theirs["id"][holder].as_py(), values))
    found.add(
        [
            repeated(
                change.entity, columns, tuple_text(values), (holder, mine_id), change.place_of(at)
            )
            for at, mine_id, holder, values in clashes[: found.room]
        ],
        total=len(clashes),
    )


def _held(mine: pa.Table, theirs: pa.Table, columns: Sequence[str]) -> list[tuple[int, int]]:
    """Rows of mine whose values a row of theirs has, each with the first that has them."""
    there, keys = unique_keys([mine, theirs], columns)
    split = int(np.searchsorted(there, mine.num_rows))
    known, at = np.unique(keys[split:], return_index=True)
    found = np.searchsorted(known, keys[:split]).clip(max=max(0, len(known) - 1))
    same = np.flatnonzero(known[found] == keys[:split]) if len(known) else found[:0]
    holders = there[split:][at[found[same]]] - mine.num_rows
    return list(zip(there[:split][same].tolist(), holders.tolist(), strict=True))


def _same_values(change: TableChange, columns: Sequence[str], stored: Stored) -> pa.Table:
    """The stored rows that hold, in every column, a value that some row of the change has there."""
    wanted = {name: pc.unique(_flat(change.rows[name]).drop_null()) for name in columns}
    first, *others = columns
    if any(len(values) == 0 for values in wanted.values()):
        wanted[first] = wanted[first].slice(0, 0)
    rows = stored.rows_where_in(
        change.entity.table_key,
        first,
        wanted[first],
        _distinct("id", columns),
        and_in={name: wanted[name] for name in others},
    )
    return _unshadowed(rows, change)


def _distinct(first: str, others: Sequence[str]) -> list[str]:
    return [first, *(name for name in others if name != first)]


def _unshadowed(rows: pa.Table, change: TableChange) -> pa.Table:
    """The stored rows that will still be there, unchanged, after the change."""
    if rows.num_rows == 0 or change.fresh:
        return rows
    if change.rows.num_rows:
        rows = _without(rows, _flat(change.rows["id"]))
    return _without(rows, pa.array(sorted(change.deleted), pa.string())) if change.deleted else rows


def _without(rows: pa.Table, ids: Any) -> pa.Table:
    kept: Any = pc.invert(pc.is_in(rows["id"], value_set=ids))
    return rows.filter(kept)


# --- endpoints --------------------------------------------------------------------------------


def _check_new_edges(
    change: TableChange, edge: EdgeType, changes: Changes, stored: Stored, found: Findings
) -> None:
    for rule in rules_of(edge).endpoints:
        if change.rows.num_rows and change.touches([rule.column]):
            _check_endpoints(change, edge, rule, changes, stored, found)


def _check_endpoints(
    change: TableChange,
    edge: EdgeType,
    rule: Endpoint,
    changes: Changes,
    stored: Stored,
    found: Findings,
) -> None:
    ends: Any = _flat(change.rows[rule.column])
    known = _nodes_after(pc.unique(ends), rule.node_type, changes, stored)
    lost: Any = pc.invert(pc.is_in(ends, value_set=known))
    at = np.flatnonzero(np.asarray(lost))
    found.add(
        [
            dangling(
                edge,
                rule,
                ends[int(row)].as_py(),
                change.rows["id"][int(row)].as_py() or "",
                change.place_of(int(row)),
            )
            for row in at[: found.room]
        ],
        total=len(at),
    )


def _nodes_after(ids: Any, node_type: str, changes: Changes, stored: Stored) -> Any:
    """Those of the ids that name a node of the type once the change is made."""
    table_key = f"node:{node_type}"
    change = changes.get(table_key)
    if change is None:
        return stored.present(table_key, ids)
    pending: Any = _known_nodes(change)
    if change.replaces_all:
        return pending
    asked = ids.filter(pc.invert(pc.is_in(ids, value_set=pending)))
    present: Any = stored.present(table_key, asked)
    if change.deleted:
        gone = pa.array(sorted(change.deleted), pa.string())
        present = present.filter(pc.invert(pc.is_in(present, value_set=gone)))
    return pa.concat_arrays([pending, present])


def _known_nodes(change: TableChange) -> Any:
    """The ids that the change holds, also of records that were refused: that their edges have no
    end only follows from that."""
    refused = pa.array(sorted(change.refused), pa.string())
    return pa.concat_arrays([_flat(change.rows["id"]), refused])


def _check_kept_edges(
    change: TableChange, changes: Changes, catalog: Catalog, stored: Stored, found: Findings
) -> None:
    """Edges that stay although the nodes of a type were replaced as a whole."""
    assert isinstance(change.entity, NodeType), "only nodes have edges"
    nodes = _known_nodes(change)
    for edge in catalog.edges_touching(change.entity.name):
        other = changes.get(edge.table_key)
        if other is not None and other.replaces_all:
            continue
        for rule in rules_of(edge).endpoints:
            if rule.node_type != change.entity.name or stored.is_empty(edge.table_key):
                continue
            kept = stored.rows(edge.table_key, ["id", rule.column])
            kept = kept if other is None else _unshadowed(kept, other)
            lost: Any = pc.invert(pc.is_in(kept[rule.column], value_set=nodes))
            orphans = kept.filter(lost).sort_by("id")
            found.add(
                [
                    dangling(edge, rule, row[rule.column], row["id"], None)
                    for row in orphans.slice(0, found.room).to_pylist()
                ],
                total=orphans.num_rows,
            )


# --- cardinality ------------------------------------------------------------------------------


def _check_out_degree(
    change: TableChange,
    edge: EdgeType,
    rule: OutDegree,
    changes: Changes,
    stored: Stored,
    found: Findings,
) -> None:
    if change.incomplete:
        rule = replace(rule, minimum=0)
    pending: Any = _flat(change.rows["src"])
    sources = pc.unique(pending)
    kept: Any = pa.array([], pa.string())
    if not change.replaces_all:
        if rule.minimum > 0 and not change.fresh:
            sources = _with_left_sources(sources, change, edge, changes, stored)
        rows = stored.rows_where_in(edge.table_key, "src", sources, ["id", "src"])
        kept = _flat(_unshadowed(rows, change)["src"])
    counted = pa.concat_arrays([pending, kept]).value_counts()
    counts = dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True))
    fresh = set(pc.unique(pending).to_pylist())
    told = [*(s for s in sources.to_pylist() if s in fresh)]
    told += sorted(s for s in sources.to_pylist() if s not in fresh)
    broken = [
        source
        for source in told
        if degree_broken(edge, rule, source, counts.get(source, 0), None) is not None
    ]
    found.add(
        [
            violation
            for source in broken[: found.room]
            if (
                violation := degree_broken(
                    edge, rule, source, counts.get(source, 0), _place_of_source(change, source)
                )
            )
        ],
        total=len(broken),
    )


def _with_left_sources(
    sources: Any, change: TableChange, edge: EdgeType, changes: Changes, stored: Stored
) -> Any:
    """Also the sources that replaced or deleted edges start from, unless they are deleted too."""
    touched: Any = pa.concat_arrays(
        [_flat(change.rows["id"]), pa.array(sorted(change.deleted), pa.string())]
    )
    old = _flat(stored.rows_where_in(edge.table_key, "id", touched, ["id", "src"])["src"])
    nodes = changes.get(f"node:{edge.from_type}")
    if nodes is not None and nodes.deleted:
        gone = pa.array(sorted(nodes.deleted), pa.string())
        old = old.filter(pc.invert(pc.is_in(old, value_set=gone)))
    return pc.unique(pa.concat_arrays([sources, old]))


def _place_of_source(change: TableChange, source: str) -> str | None:
    at: int = pc.index(change.rows["src"], source).as_py()
    return change.place_of(at) if at >= 0 else None


def _texts(column: Any) -> list[str]:
    return list(column.to_pylist())


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
