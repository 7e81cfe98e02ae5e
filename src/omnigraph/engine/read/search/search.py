"""Search in rows: text predicates, relevance, vector distance and their fusion.

Every answer is computed from the texts and vectors of the snapshot itself, never from a storage
index, so it is the same whether an index is complete, partial or missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, pa, pc, picked
from omnigraph.engine.expr.order import Key, Window, order_rows
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.memory.arrays import Positions, distinct_positions
from omnigraph.engine.read.search.text import text_index
from omnigraph.engine.read.search.vectors import Floats, distances, query_vector
from omnigraph.errors import InputError

Evaluate = Callable[[ir.Expr], Any]
Searching = ir.TextMatch | ir.Bm25 | ir.Nearest


def answer(run: Run, expr: Searching, positions: Positions, values: Evaluate) -> Array:
    """The predicate or score for the entity at each position; null at -1 and for a null query."""
    query = values(expr.query)
    if isinstance(query, pa.Scalar):
        size = run.frame_of(expr.field.var).length
        if len(positions) <= size:
            return _one_query(run, expr, positions, query.as_py(), values)
        entities, back = distinct_positions(positions, size)
        found = _one_query(run, expr, entities, query.as_py(), values)
        return picked(found, back)
    # The text or vector asked for differs from row to row: one search for each different one.
    groups: dict[Any, list[int]] = {}
    for row, asked in enumerate(query.to_pylist()):
        groups.setdefault(tuple(asked) if isinstance(asked, list) else asked, []).append(row)
    parts, order = [], []
    for asked, rows in groups.items():
        at = np.asarray(rows, dtype=np.int64)
        parts.append(_one_query(run, expr, positions[at], asked, values))
        order.append(at)
    if not parts:
        return pa.nulls(0, pa.bool_() if isinstance(expr, ir.TextMatch) else pa.float64())
    return picked(pa.concat_arrays(parts), np.argsort(np.concatenate(order)))


def _one_query(
    run: Run, expr: Searching, positions: Positions, query: Any, values: Evaluate
) -> Array:
    if isinstance(expr, ir.TextMatch):
        return _text_match(run, expr, positions, query, values)
    if query is None:
        return pa.nulls(len(positions), pa.float64())
    frame = run.frame_of(expr.field.var)
    if isinstance(expr, ir.Bm25):
        index = text_index(run.caches, frame, run.stored(expr.field.var, expr.field.prop))
        scores = index.bm25(query, frame.length)
        found = np.where(positions >= 0, scores[positions] if frame.length else np.nan, np.nan)
    else:
        found = distances(run, expr, positions, query_vector(run, expr, query))
    return pa.array(found, mask=np.isnan(found))


def _text_match(
    run: Run, expr: ir.TextMatch, positions: Positions, query: Any, values: Evaluate
) -> Array:
    edits = values(expr.max_edits).as_py() if expr.max_edits is not None else 2
    if query is None or edits is None:
        return pa.nulls(len(positions), pa.bool_())
    if edits < 0:
        raise InputError(f"fuzzy: the number of edits must be 0 or more, got {edits}")
    frame = run.frame_of(expr.field.var)
    name = run.stored(expr.field.var, expr.field.prop)
    index = text_index(run.caches, frame, name)
    match expr.kind:
        case ir.TextMatchKind.SEARCH:
            hit = index.any_word(query, frame.length)
        case ir.TextMatchKind.PHRASE:
            hit = index.phrase(query, frame.length)
        case _:
            hit = index.close_word(query, edits, frame.length)
    found = hit[positions] if frame.length else np.zeros(len(positions), dtype=np.bool_)
    column = frame.column(name)
    unknown = positions < 0
    if column.base.null_count or column.patch.null_count:
        unknown = unknown | column.take(positions).is_null().to_numpy(zero_copy_only=False)
    return pa.array(found, mask=unknown if unknown.any() else None)


def fused(
    run: Run, expr: ir.Rrf, positions_of: Callable[[str], Positions], values: Evaluate
) -> Array:
    """The sum of 1 / (k + rank + 1) over both ranks, among the entities that the rows hold."""
    k = values(expr.k).as_py()
    if k is None or k <= 0:
        raise InputError(f"rrf: k must be a whole number above 0, got {k}")
    both = (expr.first, expr.second)
    var = expr.first.field.var
    if var != expr.second.field.var:
        total = _reciprocal_sum(
            [_ranks(run, part, positions_of(part.field.var), values) for part in both], k
        )
    else:
        # Rows of one entity score the same: many rows cost one lookup each.
        entities, back = distinct_positions(positions_of(var), run.frame_of(var).length)
        total = _reciprocal_sum([_ranks(run, part, entities, values) for part in both], k)[back]
    return pa.array(total, mask=total == 0.0)


def _reciprocal_sum(ranks: Sequence[Positions], k: int) -> Floats:
    """0 where neither list has the row: every rank adds something."""
    total = np.zeros(len(ranks[0]))
    for rank in ranks:
        has = rank >= 0
        total[has] += 1.0 / (k + rank[has] + 1.0)
    return total


def _ranks(
    run: Run, expr: ir.Nearest | ir.Bm25, positions: Positions, values: Evaluate
) -> Positions:
    """The place of each row's entity, from 0, best first and by id among equals; -1 for none."""
    if not isinstance(values(expr.query), pa.Scalar):
        raise InputError("rrf: what is searched for must be the same for every row")
    frame = run.frame_of(expr.field.var)
    entities, back = distinct_positions(positions, frame.length)
    scores = answer(run, expr, entities, values)
    numbers = pc.fill_null(scores, np.nan).to_numpy(zero_copy_only=False)
    scored = np.flatnonzero(~np.isnan(numbers))
    ranked = pa.array(numbers[scored])
    order = order_rows(
        [
            Key(lambda rows: picked(ranked, rows), descending=isinstance(expr, ir.Bm25)),
            Key(lambda rows: frame.fetch("id", entities[scored[rows]]), descending=False),
        ],
        len(scored),
        Window(),
    )
    place = np.full(len(entities), -1, dtype=np.int64)
    place[scored[order]] = np.arange(len(scored), dtype=np.int64)
    return place[back]
