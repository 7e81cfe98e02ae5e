"""The rules across rows, each decided once for every kind of write, a bucket at a time.

Ids, unique values, ends of edges and their number are four kinds of one question: which rows have
the same key? Nothing here knows whether it looks at a mutation in memory or at one bucket of a load
on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from omnigraph.engine.arrow import ArrowTable, Column, Ints, Mask, as_mask, flat, pa, pc
from omnigraph.engine.check.bucket import (
    NO_IDS,
    Bucket,
    NewRows,
    Offence,
    Offences,
    Section,
    Terms,
    gathered,
    without,
)
from omnigraph.engine.check.rules import Endpoint, Unique, rules_of
from omnigraph.engine.expr.order import equal_codes, row_keys
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID, Cardinality, Catalog, EdgeType, NodeType

AllTerms = Mapping[str, Terms]  # by table key: what the change does to each table that it names
Kind = Literal["ids", "unique", "ends", "degrees", "orphans"]


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """New rows that replace stored ones, and where those are."""

    rows: Ints
    row_ids: Ints
    addresses: Ints


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What the ids of one table's new rows say about them."""

    matched: int = 0  # new ids that are stored too
    losers: Ints  # rows that a later one of the same id overrules
    refused: Ints  # rows that may not have their id; no other check looks at them
    located: Located | None = None


def decide(
    bucket: Bucket, all_terms: AllTerms, catalog: Catalog, kinds: Sequence[Kind], out: Offences
) -> dict[str, Identity]:
    """Add everything that is wrong in the bucket to `out`; what is known of each table's ids."""
    identities = {}
    terms = [
        all_terms[entity.table_key] for entity in catalog.types() if entity.table_key in all_terms
    ]
    if "ids" in kinds:
        identities = {one.entity.table_key: decide_ids(bucket, one, out) for one in terms}
    if "unique" in kinds:
        for one in terms:
            for unique in rules_of(one.entity).unique:
                if one.touches(unique.columns):
                    decide_unique(bucket, one, unique, out)
    for one in terms:
        if isinstance(one.entity, NodeType):
            if "ends" in kinds and one.replaces_all:
                _decide_kept(bucket, one.entity, all_terms, catalog, out)
            elif "orphans" in kinds:
                _decide_orphans(bucket, one.entity, all_terms, catalog, out)
            continue
        rules = rules_of(one.entity)
        for end in rules.endpoints:
            if "ends" in kinds and one.touches([end.column]):
                decide_ends(bucket, one.entity, end, all_terms, out)
        if "degrees" in kinds and rules.out_degree and one.touches(["src"]):
            decide_degrees(bucket, one, rules.out_degree, out)
    return identities


# --- ids --------------------------------------------------------------------------------------


def decide_ids(bucket: Bucket, terms: Terms, out: Offences) -> Identity:
    """Ids that occur twice, and ids that are stored already."""
    none = np.empty(0, dtype=np.int64)
    new = None
    if not terms.fresh:
        new = gathered(bucket.new_rows(terms.entity.table_key, ("id",), ()))
    if new is None:
        return Identity(losers=none, refused=none)
    key, ids = terms.entity.table_key, flat(new.rows["id"])
    repeated, refused = _repeated(terms, ids), np.zeros(len(ids), dtype=bool)
    if repeated.any() and not terms.last_counts:
        _add_repeated(key, new, ids, repeated, out)
        refused = repeated
    located, met = None, refused
    if not terms.replaces_all:
        stored = bucket.stored_ids(key, ids, located=terms.locates)
        met = as_mask(pc.is_in(ids, value_set=flat(stored["id"])))
        located = _located(new, ids, stored) if terms.locates and met.any() else None
    if terms.strictly_new and met.any():
        # A row that repeats an id is told for that; only a quarantine wants to hear of both.
        told = np.flatnonzero(met if out.listed_max is None else met & ~refused)
        offences = [
            Offence(value=str(ids[int(at)]), row=int(new.numbers[at]), row_id=str(ids[int(at)]))
            for at in out.first(told)
        ]
        out.add(Section("existing", key, "id"), offences, len(told))
        refused = refused | met
    return Identity(
        matched=0 if terms.replaces_all else int(met.sum()),
        losers=new.numbers[repeated] if terms.last_counts else none,
        refused=new.numbers[refused],
        located=located,
    )


def _repeated(terms: Terms, ids: Column) -> Mask:
    """The rows that are not the one that counts among those of their id."""
    if pc.count_distinct(ids).as_py() == len(ids):
        return np.zeros(len(ids), dtype=bool)
    codes = np.asarray(ids.dictionary_encode().indices)
    if not terms.last_counts:
        return np.asarray(repeats(codes)[0] != np.arange(len(codes)))
    last = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    last[codes] = np.arange(len(codes))  # later assignments win, and rows are in input order
    return np.asarray(last[codes] != np.arange(len(codes)))


def _add_repeated(key: str, new: NewRows, ids: Column, repeated: Mask, out: Offences) -> None:
    """Each id once, at its second row; for a quarantine at every later row."""
    first, second = repeats(ids.dictionary_encode().indices)
    told = np.flatnonzero(repeated if out.listed_max is None else second)
    offences = [
        Offence(
            value=str(ids[int(at)]),
            row=int(new.numbers[at]),
            row_id=str(ids[int(at)]),
            rival=int(new.numbers[first[at]]),
        )
        for at in out.first(told)
    ]
    out.add(Section("repeated", key, "id"), offences, int(second.sum()))


def _located(new: NewRows, ids: Column, stored: ArrowTable) -> Located:
    at = pc.index_in(ids, value_set=flat(stored["id"]))
    mine = np.flatnonzero(as_mask(pc.is_valid(at)))
    theirs = np.asarray(at.drop_null())
    return Located(
        rows=new.numbers[mine],
        row_ids=np.asarray(flat(stored[ROW_ID])).astype(np.int64)[theirs],
        addresses=np.asarray(flat(stored[ROW_ADDRESS])).astype(np.int64)[theirs],
    )


# --- unique values ----------------------------------------------------------------------------


def decide_unique(bucket: Bucket, terms: Terms, rule: Unique, out: Offences) -> None:
    """Rows that agree with an earlier new row, or with a stored one that stays."""
    key, columns = terms.entity.table_key, rule.columns
    new = gathered(bucket.new_rows(key, columns, ("id",)))
    if new is None:
        return
    tables = [new.rows]
    if not terms.replaces_all:
        asked = None
        if bucket.asks:
            asked = {name: pc.unique(flat(new.rows[name]).drop_null()) for name in columns}
        stored = bucket.stored_rows(key, columns, ("id",), asked)
        tables += [stored.select(new.rows.column_names)] if stored.num_rows else []
    there, keys = unique_keys(tables, columns)
    mine = int(np.searchsorted(there, new.rows.num_rows))
    _add_among(key, rule, new, there[:mine], keys[:mine], out)
    if len(tables) > 1:
        _add_held(key, rule, new, tables[1], there, keys, mine, out)


def decide_unique_in(key: str, rule: Unique, rows: ArrowTable, out: Offences) -> None:
    """The same of the rows of a whole table, which have every id once."""
    if not rows.num_rows:
        return
    new = NewRows(rows, np.arange(rows.num_rows, dtype=np.int64))
    there, keys = unique_keys([rows], rule.columns)
    _add_among(key, rule, new, there, keys, out)


def _add_among(
    key: str, rule: Unique, new: NewRows, there: Ints, keys: Ints, out: Offences
) -> None:
    first, second = repeats(keys)
    told = np.flatnonzero(first != np.arange(len(first)) if out.listed_max is None else second)
    offences = [
        Offence(
            value=shown(new.rows, rule, row := int(there[at])),
            row=int(new.numbers[row]),
            row_id=_id_of(new.rows, row),
            rival=int(new.numbers[there[first[at]]]),
            rival_id=_id_of(new.rows, int(there[first[at]])),
        )
        for at in out.first(told)
    ]
    out.add(Section("unique", key, rule.label), offences, int(second.sum()))


def _add_held(
    key: str,
    rule: Unique,
    new: NewRows,
    stored: ArrowTable,
    there: Ints,
    keys: Ints,
    mine: int,
    out: Offences,
) -> None:
    """New rows whose values a stored row has: each with the first that has them."""
    known, at = np.unique(keys[mine:], return_index=True)
    if not len(known):
        return
    found = np.searchsorted(known, keys[:mine]).clip(max=len(known) - 1)
    same = np.flatnonzero(known[found] == keys[:mine])
    rows = there[same]
    holders = there[mine:][at[found[same]]] - new.rows.num_rows
    # A row of a strict insert whose id is stored is told for that.
    own = pc.equal(new.rows["id"].take(rows), stored["id"].take(holders))
    other = np.flatnonzero(~as_mask(own))
    offences = [
        Offence(
            value=shown(new.rows, rule, row := int(rows[pair])),
            row=int(new.numbers[row]),
            row_id=_id_of(new.rows, row),
            rival_id=_id_of(stored, int(holders[pair])),
        )
        for pair in out.first(other)
    ]
    out.add(Section("held", key, rule.label), offences, len(other))


def shown(rows: ArrowTable, rule: Unique, row: int) -> str:
    """The values of a row as messages show them."""
    texts = []
    for name in rule.columns:
        value = rows[name][row].as_py()
        if isinstance(value, bool):
            texts.append("true" if value else "false")
        else:
            texts.append(value.isoformat() if hasattr(value, "isoformat") else str(value))
    return ", ".join(texts)


def _id_of(rows: ArrowTable, row: int) -> str:
    return str(rows["id"][row].as_py())


# --- ends of edges ----------------------------------------------------------------------------


def decide_ends(
    bucket: Bucket, edge: EdgeType, rule: Endpoint, all_terms: AllTerms, out: Offences
) -> None:
    """New edges whose end names no node."""
    section = Section("dangling", edge.table_key, rule.column)
    for new in bucket.new_rows(edge.table_key, (rule.column,), ()):
        ends = new.rows[rule.column]
        known = _nodes_after(bucket, rule.node_type, all_terms, ends)
        lost = np.flatnonzero(~as_mask(pc.is_in(ends, value_set=known)))
        offences = [
            Offence(value=str(ends[int(at)]), row=int(new.numbers[at])) for at in out.first(lost)
        ]
        out.add(section, offences, len(lost))


def _nodes_after(bucket: Bucket, node_type: str, all_terms: AllTerms, ends: Any) -> Column:
    """The ids that name a node of the type once the change is made, as far as ends need them."""
    key = f"node:{node_type}"
    terms, pending = all_terms.get(key), _known_nodes(bucket, key)
    if terms is not None and terms.replaces_all:
        return pending
    asked = None
    if bucket.asks:
        asked = {"id": without(unique := flat(pc.unique(ends)), unique, pending)}
    return pa.concat_arrays([pending, flat(bucket.stored_rows(key, ("id",), (), asked)["id"])])


def _known_nodes(bucket: Bucket, key: str) -> Column:
    """The ids that the change itself holds, also of records that were refused."""
    new = gathered(bucket.new_rows(key, ("id",), ()))
    ids = NO_IDS if new is None else flat(new.rows["id"])
    return pa.concat_arrays([ids, bucket.refused_ids(key)])


def _ends_at(
    node: NodeType, all_terms: AllTerms, catalog: Catalog
) -> Iterator[tuple[EdgeType, Endpoint]]:
    """The ends at nodes of the type that stored edges have which stay."""
    for edge in catalog.edges_touching(node.name):
        terms = all_terms.get(edge.table_key)
        if terms is None or not terms.replaces_all:
            for rule in rules_of(edge).endpoints:
                if rule.node_type == node.name:
                    yield edge, rule


def _decide_kept(
    bucket: Bucket, node: NodeType, all_terms: AllTerms, catalog: Catalog, out: Offences
) -> None:
    """Edges that stay although the nodes of a type were replaced as a whole."""
    for edge, rule in _ends_at(node, all_terms, catalog):
        kept = bucket.stored_rows(edge.table_key, (rule.column,), ("id",), None)
        nodes = _known_nodes(bucket, node.table_key)
        _add_kept(edge, rule, without(kept, kept[rule.column], nodes), out)


def _decide_orphans(
    bucket: Bucket, node: NodeType, all_terms: AllTerms, catalog: Catalog, out: Offences
) -> None:
    """Edges that stay although their node is deleted. A mutation takes them along; a merge brings
    edges of one side and deletions of the other together."""
    gone = bucket.deleted_ids(node.table_key)
    for edge, rule in _ends_at(node, all_terms, catalog) if len(gone) else ():
        asked: dict[str, Column] = {rule.column: gone}
        kept = bucket.stored_rows(edge.table_key, (rule.column,), ("id",), asked)
        _add_kept(edge, rule, kept, out)


def _add_kept(edge: EdgeType, rule: Endpoint, lost: ArrowTable, out: Offences) -> None:
    first = lost.sort_by("id").slice(0, out.listed_max)
    offences = [
        Offence(value=str(row[rule.column]), row_id=str(row["id"]))
        for row in first.select(["id", rule.column]).to_pylist()
    ]
    out.add(Section("kept", edge.table_key, rule.column), offences, lost.num_rows)


# --- number of edges --------------------------------------------------------------------------


def decide_degrees(bucket: Bucket, terms: Terms, rule: Cardinality, out: Offences) -> None:
    """Sources that the change touches and that end with too many or too few edges."""
    assert isinstance(terms.entity, EdgeType), "only edges are counted"
    key = terms.entity.table_key
    minimum = 0 if terms.incomplete else rule.minimum
    sources, counts = _counted(bucket, key)
    if not terms.replaces_all:
        if minimum > 0 and not terms.fresh:
            left = pc.unique(bucket.left_sources(key))
            left = without(left, left, bucket.deleted_ids(f"node:{terms.entity.from_type}"))
            left = without(left, left, sources)
            sources = pa.concat_arrays([sources, left])
            counts = np.concatenate([counts, np.zeros(len(left), dtype=np.int64)])
        asked = {"src": sources} if bucket.asks else None
        kept = bucket.stored_rows(key, ("src",), ("id",), asked)["src"]
        at = np.asarray(flat(pc.index_in(kept, value_set=sources)).drop_null())
        counts = counts + np.bincount(at, minlength=len(sources))
    wrong = counts < minimum
    if rule.maximum is not None:
        wrong |= counts > rule.maximum
    at = np.flatnonzero(wrong)
    if len(at):
        _add_degrees(bucket, key, rule, sources.take(pa.array(at)), counts[at], out)


def _counted(bucket: Bucket, key: str) -> tuple[Column, Ints]:
    """The sources of new edges, and how many each has."""
    sources, counts = [NO_IDS], [np.empty(0, dtype=np.int64)]
    for new in bucket.new_rows(key, ("src",), ()):
        counted: Any = new.rows["src"].value_counts()
        sources.append(flat(counted.field(0)))
        counts.append(np.asarray(flat(counted.field(1))))
    encoded = pa.concat_arrays(sources).dictionary_encode()
    totals = np.bincount(
        np.asarray(encoded.indices),
        weights=np.concatenate(counts),
        minlength=len(encoded.dictionary),
    )
    return encoded.dictionary, totals.astype(np.int64)


def _add_degrees(
    bucket: Bucket, key: str, rule: Cardinality, sources: Column, counts: Ints, out: Offences
) -> None:
    edges: list[list[int]] = [[] for _ in range(len(sources))]
    for new in bucket.new_rows(key, ("src",), ()):
        codes = pc.index_in(flat(new.rows["src"]), value_set=sources)
        at = np.flatnonzero(as_mask(pc.is_valid(codes)))
        for row, code in zip(at, np.asarray(codes.drop_null()), strict=True):
            edges[int(code)].append(int(new.numbers[row]))
    offences = []
    for source, count, rows in zip(sources.to_pylist(), counts.tolist(), edges, strict=True):
        over = 0 if rule.maximum is None else count - rule.maximum
        surplus = rows[len(rows) - over :] if 0 < over < len(rows) else rows
        offences.append(
            Offence(
                value=source,
                # Told at the first edge that is one too many.
                row=surplus[0] if surplus else -1,
                count=count,
                surplus=tuple(surplus) if out.listed_max is None else (),
            )
        )
    out.add(Section("degree", key, "src"), offences, len(offences))


def unique_keys(
    tables: Sequence[pa.Table], columns: Sequence[str]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The rows, counted through all tables, without a null among the columns; and a number for
    each, equal exactly where the values are, as in a group: NaN equals NaN, -0.0 equals 0.0."""
    codes = []
    for name in columns:
        chunks: list[Any] = [chunk for table in tables for chunk in table[name].chunks]
        codes.append(equal_codes(pa.concat_arrays(chunks)))
    there = np.flatnonzero(np.logical_and.reduce([column >= 0 for column in codes]))
    return there, row_keys([column[there] for column in codes])


def repeats(codes: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Of rows that are the same thing if their codes are equal: the first row of each row's kind,
    and which rows are the second of theirs, the ones at which a repetition is told."""
    numbers = np.asarray(codes)
    order = np.argsort(numbers, kind="stable")
    starts = np.concatenate([[True], numbers[order][1:] != numbers[order][:-1]])
    heads = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    first = np.empty(len(order), dtype=np.int64)
    first[order] = order[heads]
    second = np.zeros(len(order), dtype=bool)
    second[order] = np.arange(len(order)) == heads + 1
    return first, second
