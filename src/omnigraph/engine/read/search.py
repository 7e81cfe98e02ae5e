"""Search in rows: text predicates, relevance, vector distance and their fusion.

Every answer is computed from the texts and vectors of the snapshot itself, never from a storage
index, so it is the same whether an index is complete, partial or missing. The vector metric is
cosine distance (0 = same direction, 2 = opposite); a vector of zeros is at distance 1 from all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, pa, pc
from omnigraph.engine.embed import check_same_space
from omnigraph.engine.read.column import Positions
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.relation import Relation, distinct_positions
from omnigraph.engine.read.sort import Everything, Key, order_rows
from omnigraph.engine.read.source import ROW_ID
from omnigraph.errors import InputError

Floats = npt.NDArray[np.float64]
Evaluate = Callable[[ir.Expr], Any]
SCANNED_SHARE: Final = 4  # from a quarter of the rows on, a scan is cheaper than lookups
SCAN_BATCH_ROWS: Final = 8192
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
        return found.take(pa.array(back))
    # The text or vector asked for differs from row to row: one search for each different one.
    asked = query.to_pylist()
    groups: dict[Any, list[int]] = {}
    for row, one in enumerate(asked):
        groups.setdefault(tuple(one) if isinstance(one, list) else one, []).append(row)
    parts, order = [], []
    for one, rows in groups.items():
        at = np.asarray(rows, dtype=np.int64)
        parts.append(_one_query(run, expr, positions[at], one, values))
        order.append(at)
    if not parts:
        return pa.nulls(0, pa.bool_() if isinstance(expr, ir.TextMatch) else pa.float64())
    return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order))))


def _one_query(
    run: Run, expr: Searching, positions: Positions, query: Any, values: Evaluate
) -> Array:
    if isinstance(expr, ir.TextMatch):
        return _text_match(run, expr, positions, query, values)
    if query is None:
        return pa.nulls(len(positions), pa.float64())
    frame = run.frame_of(expr.field.var)
    there = positions >= 0
    if isinstance(expr, ir.Bm25):
        scores = run.caches.text_index(frame, run.stored(expr.field.var, expr.field.prop)).bm25(
            query, frame.length
        )
        found = np.where(there, scores[positions] if frame.length else np.nan, np.nan)
    else:
        found = distances(run, expr, positions, query_vector(run, expr, query))
    return pa.array(found, mask=np.isnan(found))


def _text_match(
    run: Run, expr: ir.TextMatch, positions: Positions, query: Any, values: Evaluate
) -> Array:
    edits = values(expr.max_edits).as_py() if expr.max_edits is not None else 2
    if query is None or edits is None:
        return pa.nulls(len(positions), pa.bool_())
    frame = run.frame_of(expr.field.var)
    index = run.caches.text_index(frame, run.stored(expr.field.var, expr.field.prop))
    if edits < 0:
        raise InputError(f"fuzzy: the number of edits must be 0 or more, got {edits}")
    match expr.kind:
        case ir.TextMatchKind.SEARCH:
            hit = index.any_word(query, frame.length)
        case ir.TextMatchKind.PHRASE:
            hit = index.phrase(query, frame.length)
        case _:
            hit = index.close_word(query, edits, frame.length)
    found = hit[positions] if frame.length else np.zeros(len(positions), dtype=np.bool_)
    column = frame.column(run.stored(expr.field.var, expr.field.prop))
    unknown = positions < 0
    if column.base.null_count or column.patch.null_count:
        unknown = unknown | column.take(positions).is_null().to_numpy(zero_copy_only=False)
    return pa.array(found, mask=unknown if unknown.any() else None)


# --- vectors ---------------------------------------------------------------------------------


def query_vector(run: Run, expr: ir.Nearest, query: Any) -> Floats:
    """The vector to look for; text is embedded first, by the model that the schema declares."""
    if expr.embed_text:
        name = f"{run.variables[expr.field.var].type_name}.{expr.field.prop}"
        embedder = run.embedder()
        check_same_space(declared=expr.embed_model, used=embedder.model, property_name=name)
        query = embedder.embed(query, dimension=expr.dimension)
    vector = np.asarray(query, dtype=np.float64)
    if len(vector) != expr.dimension:
        raise InputError(
            f"nearest: the query vector has {len(vector)} numbers, "
            f"'{expr.field.prop}' has {expr.dimension}"
        )
    return vector


def distances(run: Run, expr: ir.Nearest, positions: Positions, query: Floats) -> Floats:
    """Exact cosine distance at each position, NaN where there is no vector.

    Each row is summed by itself and in double precision: the distance of an entity does not depend
    on what it is compared beside.
    """
    frame = run.frame_of(expr.field.var)
    if len(positions) * SCANNED_SHARE >= frame.length and not frame.fits(expr.field.prop):
        return _scanned_distances(run, expr, query)[positions]
    found = np.empty(len(positions))
    step = max(1, (1 << 22) // max(1, expr.dimension))
    for first in range(0, len(positions), step):
        run.budget.check_time()
        some = frame.fetch(expr.field.prop, positions[first : first + step])
        found[first : first + step] = cosine_distances(some, query)
    return found


def _scanned_distances(run: Run, expr: ir.Nearest, query: Floats) -> Floats:
    """The distances of a whole column that is too big to keep, a batch at a time; -1 is NaN."""
    frame = run.frame_of(expr.field.var)
    found = np.full(frame.length + 1, np.nan)  # the last cell stands for -1
    for batch in frame.source.batches([expr.field.prop], batch_rows=SCAN_BATCH_ROWS):
        run.budget.check_time()
        at = frame.at_row_ids(batch.column(ROW_ID).to_numpy(zero_copy_only=False))
        found[at] = cosine_distances(batch.column(expr.field.prop), query)
    return found


def cosine_distances(vectors: Array, query: Floats) -> Floats:
    dimension = len(query)
    filled = vectors
    missing = np.zeros(len(vectors), dtype=np.bool_)
    if vectors.null_count:
        missing = vectors.is_null().to_numpy(zero_copy_only=False)
        filled = vectors.filter(pc.is_valid(vectors))
    matrix = filled.flatten().to_numpy(zero_copy_only=False)
    matrix = matrix.astype(np.float64).reshape(-1, dimension)
    scale = np.sqrt((matrix * matrix).sum(axis=1)) * float(np.sqrt((query * query).sum()))
    dots = (matrix * query).sum(axis=1)
    cosine = np.divide(dots, scale, out=np.zeros_like(dots), where=scale > 0)
    result = np.full(len(vectors), np.nan)
    result[~missing] = np.clip(1.0 - cosine, 0.0, 2.0)
    return result


# --- fusion ----------------------------------------------------------------------------------


def fused(run: Run, expr: ir.Rrf, relation: Relation, values: Evaluate) -> Array:
    """The sum of 1 / (k + rank + 1) over both ranks, among the entities that the rows hold."""
    k = values(expr.k).as_py()
    if k is None or k <= 0:
        raise InputError(f"rrf: k must be a whole number above 0, got {k}")
    var = expr.first.field.var
    if var != expr.second.field.var:
        ranks = [
            _ranks(run, one, relation[one.field.var], values) for one in (expr.first, expr.second)
        ]
        total = _reciprocal_sum(ranks, k)
        return pa.array(total, mask=total == 0.0)
    # Rows of one entity score the same: many rows cost one lookup each.
    entities, back = distinct_positions(relation[var], run.frame_of(var).length)
    ranks = [_ranks(run, one, entities, values) for one in (expr.first, expr.second)]
    total = _reciprocal_sum(ranks, k)[back]
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
    size = run.frame_of(expr.field.var).length
    entities, back = distinct_positions(positions, size)
    scores = answer(run, expr, entities, values)
    numbers = pc.fill_null(scores, np.nan).to_numpy(zero_copy_only=False)
    if isinstance(expr, ir.Bm25):
        numbers = -numbers
    scored = np.flatnonzero(~np.isnan(numbers))
    frame = run.frame_of(expr.field.var)
    ranked = pa.array(numbers[scored])
    order = order_rows(
        [
            Key(lambda rows: ranked.take(pa.array(rows)), descending=False),
            Key(lambda rows: frame.fetch("id", entities[scored[rows]]), descending=False),
        ],
        len(scored),
        Everything(),
    )
    place = np.full(len(entities), -1, dtype=np.int64)
    place[scored[order]] = np.arange(len(scored), dtype=np.int64)
    return place[back]
