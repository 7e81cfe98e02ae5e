"""Search in rows: text predicates, relevance and vector distance.

Every answer is computed from the texts and vectors of the snapshot itself, never from a storage
index, so it is the same whether an index is complete, partial or missing.

Words and vectors that do not fit the memory budget are read from storage for each question, part by
part; `explain` says so, and the answer is the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, float64_array, pa, picked
from omnigraph.engine.embed import check_same_space, environment_embedder
from omnigraph.engine.expr.evaluate import is_constant
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.memory.arrays import Positions, distinct_positions
from omnigraph.engine.read.memory.frame import HOT_FETCHES, SMALL_TABLE_ROWS
from omnigraph.engine.read.memory.selection import Selection
from omnigraph.engine.read.search import text
from omnigraph.engine.read.search.coded import (
    Closeness,
    VectorCodes,
    closeness_of,
    coded_parts,
)
from omnigraph.engine.read.search.neighbours import INDEX_SHARE, indexed_positions
from omnigraph.engine.read.search.vectors import (
    Floats,
    Singles,
    Vectors,
    cosine_distances,
    kept_vectors,
    streamed_distances,
    streamed_similarity,
)
from omnigraph.engine.text.analysis import PLAIN, Analysis
from omnigraph.errors import InputError
from omnigraph.model.ports import TextEmbedder
from omnigraph.storage.derived import DamagedError

logger = logging.getLogger(__name__)

Evaluate = Callable[[ir.Expr], Any]
T = TypeVar("T")
Searching = ir.TextMatch | ir.Bm25 | ir.Nearest

SCANNED_SHARE: Final = 4  # from a quarter of the rows on, a scan is cheaper than lookups
NEAR_ROWS_MIN: Final = 4096  # fewer vectors are compared exactly at once
NEAR_MARGIN: Final = 1e-3  # far more than what single precision can be wrong by
STORED_TRIES_MAX: Final = 1 << 16  # more files than a table has
WHOLE_NUMBERS_MAX: Final = 1 << 23  # of vectors that are looked at as they are
REMEMBERED_MAX: Final = 4096  # rows whose distances a query remembers
TAKEN_NUMBERS: Final = 1 << 22  # of vectors that are read together


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
    kind = pa.bool_() if isinstance(expr, ir.TextMatch) else pa.float64()
    return for_each_query(
        query, kind, lambda asked, rows: _one_query(run, expr, positions[rows], asked, values)
    )


def for_each_query(
    query: Array, kind: pa.DataType, look: Callable[[Any, Positions], Array]
) -> Array:
    """The text or vector asked for differs from row to row: one search for each different one, of
    the rows that ask for it."""
    groups: dict[Any, list[int]] = {}
    for row, asked in enumerate(query.to_pylist()):
        groups.setdefault(tuple(asked) if isinstance(asked, list) else asked, []).append(row)
    if not groups:
        return pa.nulls(0, kind)
    order = [np.asarray(rows, dtype=np.int64) for rows in groups.values()]
    parts = [look(asked, rows) for asked, rows in zip(groups, order, strict=True)]
    return picked(pa.concat_arrays(parts), np.argsort(np.concatenate(order)))


def beside(run: Run, expr: ir.Nearest, positions: Positions, others: Positions) -> Array:
    """The distance of each row's entity to the vector of another entity of its row."""
    assert isinstance(expr.query, ir.PropertyRef), "the vector is that of another entity"
    name = run.stored(expr.query.var, expr.query.prop)
    entities, back = np.unique(others, return_inverse=True)
    order = np.argsort(back, kind="stable")
    ends = np.searchsorted(back[order], np.arange(len(entities) + 1))
    found = np.full(len(positions), np.nan)
    for number, vector in enumerate(run.rows_of(expr.query.var).fetch(name, entities).to_pylist()):
        if vector is not None:
            rows = order[ends[number] : ends[number + 1]]
            asked = query_vector(run, expr, vector)
            found[rows] = distances(run, expr, positions[rows], asked)
    return float64_array(found)


def _one_query(
    run: Run, expr: Searching, positions: Positions, query: Any, values: Evaluate
) -> Array:
    if isinstance(expr, ir.TextMatch):
        return _text_match(run, expr, positions, query, values)
    if query is None:
        return pa.nulls(len(positions), pa.float64())
    if isinstance(expr, ir.Bm25):
        size = run.frame_of(expr.field.var).length
        found = relevance(run, expr, query).at(positions, size)
    else:
        found = distances(run, expr, positions, query_vector(run, expr, query))
    return float64_array(found)


def _text_match(
    run: Run, expr: ir.TextMatch, positions: Positions, query: Any, values: Evaluate
) -> Array:
    edits = values(expr.max_edits).as_py() if expr.max_edits is not None else 2
    if query is None or edits is None:
        return pa.nulls(len(positions), pa.bool_())
    analysis = analysis_of(run, expr.field)
    find = text.finder(expr.kind, query, edits, analysis)
    size = run.frame_of(expr.field.var).length

    def look(parts: Iterable[text.Part], all_told: bool) -> text.Matches:  # noqa: FBT001
        return text.matches(parts, find, size, all_told=all_told)

    hit = _over_parts(run, expr.field, analysis, look)
    unknown = positions < 0
    if hit.told is not None:
        unknown |= ~hit.told[positions]
    return pa.array(hit.found[positions], mask=unknown if unknown.any() else None)


def relevance(run: Run, expr: ir.Bm25, query: str) -> text.Hits:
    """The scores of all texts that hold a word of the query; computed once a query."""
    key = (expr.field, query)
    found: text.Hits | None = run.hits.get(key)
    if found is None:
        size, analysis = run.frame_of(expr.field.var).length, analysis_of(run, expr.field)
        found = _over_parts(
            run, expr.field, analysis, lambda parts, _: text.bm25(parts, query, size, analysis)
        )
        run.hits[key] = found
    return found


def relevant(run: Run, expr: ir.Bm25) -> Positions | None:
    """Every entity that has a score, where one thing is asked for all rows; None otherwise."""
    query = run.constants.value(expr.query) if is_constant(expr.query) else None
    return None if query is None else relevance(run, expr, query).positions


def analysis_of(run: Run, field: ir.PropertyRef) -> Analysis:
    """How the texts of a property are cut and compared."""
    prop = run.entity_of(field.var).by_name.get(field.prop)
    return PLAIN if prop is None else Analysis.of(prop.indexing)


def _over_parts(
    run: Run,
    field: ir.PropertyRef,
    analysis: Analysis,
    look: Callable[[Iterable[text.Part], bool], T],
) -> T:
    """What a look at the words of a column gives; it is told whether every living entity has a
    text. A stored file that turns out to be damaged counts as missing: then we look again."""
    frame, name = run.frame_of(field.var), run.stored(field.var, field.prop)
    for _ in range(STORED_TRIES_MAX):
        try:
            index = text.text_index(run.caches, frame, name, analysis)
            if index is not None:
                return look(index.parts, index.count == frame.length - len(frame.gone))
            with _streaming(run, field):
                parts = text.streamed_parts(frame, name, analysis)
                return look(_checked(run, parts), False)  # noqa: FBT003
        except DamagedError as cause:
            logger.warning("stored words are damaged", extra={"why": str(cause)})
            text.forget(run.caches, frame, name, analysis)
    raise AssertionError("every damaged file is looked at once")


def _checked(run: Run, parts: Iterable[text.Part]) -> Iterator[text.Part]:
    for part in parts:
        run.budget.check_time()
        yield part


@contextmanager
def _streaming(run: Run, field: ir.PropertyRef) -> Iterator[None]:
    """Around a pass over a column that is not kept."""
    with run.trace.step("read", f"${field.var}.{field.prop} (streamed)"):
        yield


# --- vectors -----------------------------------------------------------------------------------


def query_vector(run: Run, expr: ir.Nearest, query: Any) -> Floats:
    """The vector to look for; text is embedded first, by the model that the schema declares."""
    type_name = run.variables[expr.field.var].type_name
    return vector_of(expr, query, type_name=type_name, embedder=run.embedder)


def vector_of(
    expr: ir.Nearest, query: Any, *, type_name: str, embedder: TextEmbedder | None = None
) -> Floats:
    """The same, with the embedder of the environment if there is no other."""
    if expr.embed_text:
        embedder = embedder or environment_embedder()
        name = f"{type_name}.{expr.field.prop}"
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
    """Exact cosine distance at each position, NaN where there is no vector."""
    frame, name = run.frame_of(expr.field.var), expr.field.prop
    many = len(positions) * SCANNED_SHARE >= frame.length
    vectors = _vectors(run, expr) if many or _is_worth_keeping(run, expr) else None
    if vectors is not None:
        return vectors.distances(positions, query)
    if many:
        with _streaming(run, expr.field):
            return streamed_distances(frame, name, query, run.budget.check_time)[positions]
    if len(positions) > REMEMBERED_MAX:
        return _taken_distances(run, expr, positions, query)
    # A query orders by a distance and then shows it: its few rows are read once.
    known: dict[int, float] = run.hits.setdefault((expr.field, query.tobytes()), {})
    new = np.array([one for one in set(positions.tolist()) if one not in known], dtype=np.int64)
    if len(new):
        far = _taken_distances(run, expr, new, query)
        known.update(zip(new.tolist(), far.tolist(), strict=True))
    return np.array([known[one] for one in positions.tolist()], dtype=np.float64)


def _taken_distances(run: Run, expr: ir.Nearest, positions: Positions, query: Floats) -> Floats:
    """The same from the vectors of these rows, read from storage."""
    frame, found = run.frame_of(expr.field.var), np.empty(len(positions))
    step = max(1, TAKEN_NUMBERS // max(1, expr.dimension))
    for first in range(0, len(positions), step):
        run.budget.check_time()
        some = frame.taken(expr.field.prop, positions[first : first + step])
        found[first : first + step] = cosine_distances(some, query)
    return found


def _vectors(run: Run, expr: ir.Nearest) -> Vectors | None:
    frame = run.frame_of(expr.field.var)
    return kept_vectors(run.caches, frame, expr.field.prop, expr.dimension)


def _is_worth_keeping(run: Run, expr: ir.Nearest) -> bool:
    """Whether the vectors should be in memory though few of them are asked for."""
    return _is_small(run, expr) and _is_asked_often(run, expr)


def _is_small(run: Run, expr: ir.Nearest) -> bool:
    """Whether whole vectors are so few that comparing them all is as good as a first look at
    numbers that stand for them."""
    return run.frame_of(expr.field.var).length * expr.dimension <= WHOLE_NUMBERS_MAX


def _is_asked_often(run: Run, expr: ir.Nearest) -> bool:
    frame = run.frame_of(expr.field.var)
    return frame.note_use(expr.field.prop) >= HOT_FETCHES or frame.length <= SMALL_TABLE_ROWS


def nearest_positions(
    run: Run, expr: ir.Nearest, rows: Positions | Selection, wanted: int
) -> Positions | None:
    """The ascending positions that may be among the `wanted` nearest of these; None if all may.
    What is left out is farther than `wanted` others for certain."""
    count = rows.count if isinstance(rows, Selection) else len(rows)
    if count < NEAR_ROWS_MIN or wanted * 2 >= count:
        return None
    asked = run.constants.value(expr.query) if is_constant(expr.query) else None
    if asked is None:
        return None
    frame, query = run.frame_of(expr.field.var), query_vector(run, expr, asked)
    everything = isinstance(rows, Selection) and rows.everything
    entities = None if everything else _entities(rows, frame.length)
    count = frame.length if entities is None else len(entities)
    if count < NEAR_ROWS_MIN or wanted * 2 >= count:
        return None
    if expr.approximate and count * INDEX_SHARE >= frame.length:
        near = indexed_positions(run, expr, query, entities, wanted)
        if near is not None:
            return near
    if count * SCANNED_SHARE < frame.length and not _is_asked_often(run, expr):
        return None
    found = closeness(run, expr, query)
    chosen = (found if entities is None else found.at(entities)).may_be_first(wanted)
    if chosen is None or entities is None:
        return chosen
    return entities[chosen]


def _entities(rows: Positions | Selection, size: int) -> Positions:
    """Each position once, ascending."""
    if isinstance(rows, Selection):
        return rows.positions()
    held = np.zeros(size + 1, dtype=np.bool_)  # the last cell stands for -1
    held[rows] = True
    return np.flatnonzero(held[:size])


def closeness(run: Run, expr: ir.Nearest, query: Floats) -> Closeness:
    """About the cosine with the query, by position, and how wrong it may be."""
    frame, name = run.frame_of(expr.field.var), expr.field.prop
    if _is_small(run, expr):
        close = similarity(run, expr, query)
        return Closeness(close, np.full(len(close), NEAR_MARGIN / 2, dtype=np.float32))
    check = run.budget.check_time
    with run.trace.step("compare", f"${expr.field.var}.{name} by numbers") as step:
        codes: VectorCodes | None = run.caches.of_column(
            "vector numbers",
            frame,
            name,
            nbytes=frame.length * (expr.dimension + 8),
            build=lambda: VectorCodes.build(frame, name, expr.dimension),
            move=lambda older, change: older.moved(change, name),
        )
        step.rows = frame.length
        if codes is not None:
            return codes.closeness(query, check)
        step.detail += " (streamed)"
        parts = coded_parts(frame, name, expr.dimension)
        return closeness_of(parts, frame.length, query, check)


def similarity(run: Run, expr: ir.Nearest, query: Floats) -> Singles:
    """Roughly the cosine with the query, by position; -inf where there is no vector."""
    vectors = _vectors(run, expr)
    if vectors is not None:
        return vectors.similarity(query)
    frame = run.frame_of(expr.field.var)
    with _streaming(run, expr.field):
        return streamed_similarity(frame, expr.field.prop, query, run.budget.check_time)
