"""How many edges start at each id of a range, staged and stored ones together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import VIOLATIONS_LISTED_MAX
from omnigraph.pipeline.arrow import Column, Ints, Mask, as_mask, flat, pc
from omnigraph.pipeline.idtasks import Degree, IdTask, Offence, Offences, key_groups


def broken_degrees(task: IdTask, rule: Degree, known: Column) -> Offences | None:
    """The ids that end with too many or too few edges; None if there are none."""
    known, staged = _staged_degrees(task, rule, known)
    touched, counts = staged > 0, staged.copy()
    if rule.stored is not None and rule.stored.row_count:
        replaced = _staged_ids(task, rule)
        for rows in _stored_edges(task, rule, rule.stored, known, touched, replaced):
            known, touched, counts = _with_strangers(rows["src"], known, touched, counts)
            codes = np.asarray(flat(pc.index_in(rows["src"], value_set=known)))
            gone = np.zeros(len(codes), dtype=bool)
            if replaced is not None:
                gone = as_mask(flat(pc.is_in(rows["id"], value_set=replaced)))
            counts += np.bincount(codes[~gone], minlength=len(known))
            if rule.minimum > 0:
                touched[codes[gone]] = True  # an edge that moves away leaves its source touched
    wrong = touched & (counts < rule.minimum)
    if rule.maximum is not None:
        wrong |= touched & (counts > rule.maximum)
    at = np.flatnonzero(wrong)
    if not len(at):
        return None
    return _degree_offences(task, rule, known, at, counts)


def _with_strangers(
    sources: Column, known: Column, touched: Mask, counts: Ints
) -> tuple[Column, Mask, Ints]:
    """Make room for sources that were not asked about so far."""
    strangers = pc.unique(flat(sources.filter(pc.invert(pc.is_in(sources, value_set=known)))))
    if not len(strangers):
        return known, touched, counts
    none = np.zeros(len(strangers), dtype=np.int64)
    return (
        pa.concat_arrays([known, strangers]),
        np.concatenate([touched, none.astype(bool)]),
        np.concatenate([counts, none]),
    )


def _stored_edges(
    task: IdTask,
    rule: Degree,
    entry: TableEntry,
    known: Column,
    touched: Mask,
    replaced: Column | None,
) -> Iterator[Any]:
    """The stored edges that matter: those of the range, or of the few sources that are touched."""
    table = task.access.table(entry)
    names = ["id", "src"]
    if not task.lookup:
        yield from table.scan(columns=names, where=task.within.where("src"))
        return
    sources = known.filter(pa.array(touched)).to_pylist()
    if replaced is not None and rule.minimum > 0:
        left = table.lookup("id", replaced.to_pylist(), names)["src"].to_pylist()
        sources = list(dict.fromkeys([*sources, *left]))
    if sources:
        yield table.lookup("src", sources, names)


def _staged_degrees(task: IdTask, rule: Degree, known: Column) -> tuple[Column, Ints]:
    """How many staged edges start at each id; sources that are no nodes are counted as well."""
    counts = np.zeros(len(known), dtype=np.int64)
    for keys, _, _ in key_groups(task.access, rule.parts, "src", task.within):
        codes = pc.index_in(keys, value_set=known)
        if codes.null_count:
            strangers = pc.unique(keys.filter(pc.is_null(codes)))
            known = pa.concat_arrays([known, strangers])
            counts = np.concatenate([counts, np.zeros(len(strangers), dtype=np.int64)])
            codes = pc.index_in(keys, value_set=known)
        counts += np.bincount(np.asarray(flat(codes)), minlength=len(known))
    return known, counts


def _staged_ids(task: IdTask, rule: Degree) -> Column | None:
    """The ids of the staged edges, if any of them may replace a stored one."""
    explicit = [part for part in rule.parts if not part.fresh_ids]
    if not rule.shadowing or not explicit:
        return None
    return pa.concat_arrays([flat(part.columns(task.access, ["id"])["id"]) for part in explicit])


def _degree_offences(task: IdTask, rule: Degree, known: Column, at: Ints, counts: Ints) -> Offences:
    sources = known.take(pa.array(at))
    edges: dict[int, list[tuple[int, int]]] = {int(code): [] for code in range(len(at))}
    for keys, parts, ordinals in key_groups(task.access, rule.parts, "src", task.within):
        codes = pc.index_in(keys, value_set=sources)
        valid = np.flatnonzero(np.asarray(pc.is_valid(codes)))
        numbers = np.asarray(flat(codes.drop_null()))
        for row, code in zip(valid, numbers, strict=True):
            edges[int(code)].append((int(parts[row]), int(ordinals[row])))
    listed = []
    for code in range(len(at)):
        rows, count = edges[code], int(counts[at[code]])
        over = 0 if rule.maximum is None else count - rule.maximum
        surplus = rows[len(rows) - over :] if 0 < over < len(rows) else rows
        part, ordinal = rows[0] if rows else (-1, -1)
        listed.append(
            Offence(
                part=part,
                ordinal=ordinal,
                value=str(sources[code].as_py()),
                count=count,
                surplus=tuple(surplus) if task.list_all else (),
            )
        )
    # Sources without a staged edge have no place: they come last.
    listed.sort(key=lambda one: (one.part < 0, one.order, one.value))
    keep = len(listed) if task.list_all else VIOLATIONS_LISTED_MAX
    return Offences(
        kind="degree",
        table_key=rule.table_key,
        column="src",
        listed=tuple(listed[:keep]),
        total=len(at),
    )
