"""Search in rows: text predicates, relevance, vector distance and their fusion.

Every answer is computed from the texts and vectors of the snapshot itself, never from a storage
index, so it is the same whether an index is complete, partial or missing.

The metric of vectors is cosine distance (0 = same direction, 2 = opposite); a vector of zeros is at
distance 1 from all. Of many rows, a quick comparison in single precision first leaves out those
that cannot be among the nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, pa, pc, picked
from omnigraph.engine.embed import check_same_space, environment_embedder
from omnigraph.engine.expr.evaluate import is_constant
from omnigraph.engine.expr.order import Key, Window, order_rows
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.memory.arrays import (
    Column,
    Mask,
    Positions,
    distinct_positions,
)
from omnigraph.engine.read.memory.cache import Caches
from omnigraph.engine.read.memory.frame import Change, Frame
from omnigraph.engine.read.search.text import text_index
from omnigraph.errors import InputError
from omnigraph.model.schema import ROW_ID

Floats = npt.NDArray[np.float64]
Evaluate = Callable[[ir.Expr], Any]
Searching = ir.TextMatch | ir.Bm25 | ir.Nearest

SCANNED_SHARE: Final = 4  # from a quarter of the rows on, a scan is cheaper than lookups
SCAN_BATCH_ROWS: Final = 8192
NEAR_ROWS_MIN: Final = 4096  # fewer vectors are compared exactly at once
NEAR_MARGIN: Final = 1e-3  # far more than what single precision can be wrong by


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

    def ids(rows: Positions) -> Array:
        return frame.fetch("id", entities[rows])

    order = order_rows(
        [
            Key.of(ranked, descending=isinstance(expr, ir.Bm25)),
            Key(partial(ids, scored), lambda rows: ids(scored[rows]), descending=False),
        ],
        len(scored),
        Window(),
    )
    place = np.full(len(entities), -1, dtype=np.int64)
    place[scored[order]] = np.arange(len(scored), dtype=np.int64)
    return place[back]


# --- vectors -----------------------------------------------------------------------------------


def query_vector(run: Run, expr: ir.Nearest, query: Any) -> Floats:
    """The vector to look for; text is embedded first, by the model that the schema declares."""
    if expr.embed_text:
        name = f"{run.variables[expr.field.var].type_name}.{expr.field.prop}"
        embedder = environment_embedder()
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
    for batch in frame.table.batches([expr.field.prop], batch_rows=SCAN_BATCH_ROWS):
        run.budget.check_time()
        at = frame.at_row_ids(batch.column(ROW_ID).to_numpy(zero_copy_only=False))
        found[at] = cosine_distances(batch.column(expr.field.prop), query)
    return found


def cosine_distances(vectors: Array, query: Floats) -> Floats:
    """NaN where there is no vector."""
    matrix = vectors.flatten().to_numpy(zero_copy_only=False)  # of those that are there
    matrix = matrix.astype(np.float64).reshape(-1, len(query))
    scale = np.sqrt((matrix * matrix).sum(axis=1)) * float(np.sqrt((query * query).sum()))
    dots = (matrix * query).sum(axis=1)
    cosine = np.divide(dots, scale, out=np.zeros_like(dots), where=scale > 0)
    result = np.full(len(vectors), np.nan)
    result[vectors.is_valid().to_numpy(zero_copy_only=False)] = np.clip(1.0 - cosine, 0.0, 2.0)
    return result


# --- the quick comparison ----------------------------------------------------------------------


def near_enough(run: Run, expr: ir.Nearest, positions: Positions, wanted: int) -> Mask | None:
    """Which rows may be among the `wanted` nearest, with room to be wrong; None if all may."""
    if len(positions) < NEAR_ROWS_MIN or wanted * 2 >= len(positions):
        return None
    query = run.constants.value(expr.query) if is_constant(expr.query) else None
    if query is None:
        return None
    frame = run.frame_of(expr.field.var)
    block = unit_vectors(run.caches, frame, expr.field.prop, expr.dimension)
    if block is None:
        return None
    close = block.similarity(query_vector(run, expr, query))[positions]
    close[positions < 0] = -np.inf
    edge = np.partition(close, len(close) - wanted)[len(close) - wanted]
    return np.asarray(close >= edge - NEAR_MARGIN)


def unit_vectors(caches: Caches, frame: Frame, column: str, dimension: int) -> UnitVectors | None:
    """The vectors of a column for quick comparison; None if they would not fit."""
    if not caches.can_keep(frame.length * dimension * 4):
        return None

    def build() -> UnitVectors:
        return UnitVectors.build(frame.column(column).whole())

    def move(older: UnitVectors, change: Change) -> UnitVectors | None:
        changed = change.values(column)
        return None if changed is None else older.moved(*changed, change.length)

    frame.follow(column)
    return caches.derived("vectors", frame, column, build=build, move=move)


class UnitVectors(msgspec.Struct, frozen=True):
    """The vectors of a column scaled to length 1, by position; null where there is none."""

    column: Column

    @classmethod
    def build(cls, vectors: Array) -> UnitVectors:
        return cls(Column.of(_scaled(vectors)))

    def moved(self, at: Positions, vectors: Array, length: int) -> UnitVectors:
        """With other vectors at these positions, some of them perhaps new."""
        return UnitVectors(self.column.patched(at, _scaled(vectors), length))

    def buffers(self) -> Mapping[int, int]:
        """What is held: versions share most of it."""
        return self.column.buffers()

    def similarity(self, query: Floats) -> npt.NDArray[np.float32]:
        """Roughly the cosine with the query, by position; -inf where there is no vector."""
        size = float(np.sqrt((query * query).sum()))
        unit = (query / size if size > 0 else query).astype(np.float32)
        column = self.column
        result = np.full(column.length, -np.inf, dtype=np.float32)
        result[: len(column.base)] = _products(column.base, unit)
        result[column.patch_at] = _products(column.patch, unit)
        return result


def _products(vectors: Array, unit: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    width = len(unit)
    # Not `flatten`, which copies everything where one vector is missing.
    numbers = vectors.values.slice(vectors.offset * width, len(vectors) * width)
    found: npt.NDArray[np.float32] = numbers.to_numpy().reshape(-1, width) @ unit
    if vectors.null_count:
        found[vectors.is_null().to_numpy(zero_copy_only=False)] = -np.inf
    return found


def _scaled(vectors: Array) -> Array:
    dimension = vectors.type.list_size
    there = vectors.is_valid().to_numpy(zero_copy_only=False)
    rows = np.zeros((len(vectors), dimension), dtype=np.float32)
    rows[there] = vectors.flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension)
    size = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    rows /= np.where(size > 0, size, 1.0).astype(np.float32)[:, None]
    mask = pa.array(~there)
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), dimension, mask=mask)
