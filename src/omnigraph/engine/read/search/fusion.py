"""Two rankings fused into one (`rrf`): by vectors and by words, each among the entities of a match.

Where only the first rows are wanted, the ranks of most entities need not be known: bounds on them
tell who cannot be among the first, and only the rest are ranked exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

import msgspec
import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, pa, pc
from omnigraph.engine.expr.evaluate import is_constant
from omnigraph.engine.expr.order import Key, Window, order_rows
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    Positions,
    distinct_positions,
    distinct_sorted,
    places_among,
)
from omnigraph.engine.read.search import search
from omnigraph.engine.read.search.search import Evaluate
from omnigraph.engine.read.search.text import Scores
from omnigraph.engine.read.search.vectors import Floats, Singles, doubt
from omnigraph.errors import InputError

FUSED_ROWS_MIN: Final = 4096  # fewer entities are all ranked
CONTENDERS_MAX: Final = 512  # of more that may be among the first, all are ranked


def fused(
    run: Run, expr: ir.Rrf, positions_of: Callable[[str], Positions], values: Evaluate
) -> Array:
    """The sum of 1 / (k + rank + 1) over both ranks, among the entities that the rows hold."""
    k = checked_k(values(expr.k).as_py())
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


def checked_k(k: int | None) -> int:
    """The `k` of a fused rank, or an error."""
    if k is None or k <= 0:
        raise InputError(f"rrf: k must be a whole number above 0, got {k}")
    return k


def require_one_query(*, constant: bool) -> None:
    if not constant:
        raise InputError("rrf: what is searched for must be the same for every row")


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
    require_one_query(constant=isinstance(values(expr.query), pa.Scalar))
    frame = run.frame_of(expr.field.var)
    entities, back = distinct_positions(positions, frame.length)
    scores = search.answer(run, expr, entities, values)
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


# --- only the first ----------------------------------------------------------------------------


class Fused(msgspec.Struct, frozen=True):
    """Entities by their ascending positions, and the fused score of each."""

    positions: Positions
    scores: Scores

    def at(self, positions: Positions) -> Array:
        """The scores at these positions, all of which are known."""
        return pa.array(self.scores[places_among(self.positions, positions)])


def first_fused(
    run: Run, expr: ir.Rrf, entities: Positions, wanted: int, values: Evaluate
) -> Fused | None:
    """The entities that may be among the `wanted` first, ties included; None: rank them all.
    `entities` are those of the match, ascending."""
    nearest, bm25 = _by_kind(expr)
    count = len(entities)
    if nearest is None or bm25 is None or count < FUSED_ROWS_MIN or wanted * 2 >= count:
        return None
    # As every other path has them: a vector of the query is rounded to the type of the property.
    k, vector, words = (
        values(part).as_py() if is_constant(part) else None
        for part in (expr.k, nearest.query, bm25.query)
    )
    if k is None or k <= 0 or vector is None or words is None:
        return None
    query = search.query_vector(run, nearest, vector)
    hits = search.relevance(run, bm25, words).positions
    told = places_among(entities, hits)
    told = told[told >= 0]  # rows of `entities` that have a text with a word of the query
    close = search.similarity(run, nearest, query)[entities]
    near = _Near(run, nearest, entities, close, query)
    rows = np.union1d(told, near.may_be_first(wanted))
    text_ranks = np.full(len(rows), -1, dtype=np.int64)
    text_ranks[places_among(rows, told)] = _ranks(run, bm25, entities[told], values)
    most = _reciprocal_sum([near.least_ranks(rows), text_ranks], k)
    least = _reciprocal_sum([near.greatest_ranks(rows), text_ranks], k)
    if len(rows) > wanted:
        edge = np.partition(least, len(least) - wanted)[len(least) - wanted]
        kept = most >= edge
        rows, text_ranks = rows[kept], text_ranks[kept]
    if len(rows) > CONTENDERS_MAX:
        return None
    ranks = [near.ranks(rows), text_ranks]
    if expr.first is bm25:
        ranks.reverse()
    return Fused(entities[rows], _reciprocal_sum(ranks, k))


def _by_kind(expr: ir.Rrf) -> tuple[ir.Nearest | None, ir.Bm25 | None]:
    both = (expr.first, expr.second)
    if both[0].field.var != both[1].field.var:
        return None, None
    nearest = next((part for part in both if isinstance(part, ir.Nearest)), None)
    return nearest, next((part for part in both if isinstance(part, ir.Bm25)), None)


class _Near:
    """Ranks by distance, from a quick comparison that may be wrong by `doubt` each."""

    def __init__(
        self, run: Run, expr: ir.Nearest, entities: Positions, close: Singles, query: Floats
    ) -> None:
        self._run, self._expr, self._entities, self._query = run, expr, entities, query
        self._close = close  # -inf where there is no vector
        self._ordered = np.sort(close[close > -np.inf]).astype(np.float64)
        self._room = 2 * doubt(len(query))  # nearer by more than this is nearer

    def may_be_first(self, wanted: int) -> Positions:
        """The rows that are not certainly behind `wanted` others."""
        if len(self._ordered) <= wanted:
            return np.flatnonzero(self._close > -np.inf)
        return np.flatnonzero(self._close >= self._ordered[-wanted] - self._room)

    def least_ranks(self, rows: Positions) -> Positions:
        """How many entities are certainly nearer than each; -1 for one without a vector."""
        return self._counted(rows, self._room, "right", 0)

    def greatest_ranks(self, rows: Positions) -> Positions:
        """How many others may be nearer."""
        return self._counted(rows, -self._room, "left", 1)

    def _counted(
        self, rows: Positions, room: float, side: Literal["left", "right"], own: int
    ) -> Positions:
        close = self._close[rows].astype(np.float64)
        nearer = len(self._ordered) - np.searchsorted(self._ordered, close + room, side=side)
        return np.where(close > -np.inf, nearer - own, -1)

    def ranks(self, rows: Positions) -> Positions:
        """The exact ranks: those of whom the quick comparison is not sure are compared exactly."""
        found = self.least_ranks(rows)
        unsure = self._unsure(rows[found >= 0])
        place = np.empty(len(unsure), dtype=np.int64)
        place[self._exact_order(unsure)] = np.arange(len(unsure))
        close = self._close[unsure].astype(np.float64)
        for at in np.flatnonzero(found >= 0).tolist():
            own = places_among(unsure, rows[at : at + 1])[0]
            low, high = close[own] - self._room, close[own] + self._room
            beside = (close >= low) & (close <= high)
            found[at] += np.count_nonzero(place[beside] < place[own])
        return found

    def _unsure(self, rows: Positions) -> Positions:
        """All rows that are about as near as one of these, and perhaps a few more, ascending."""
        parts = [NO_POSITIONS]
        ends = np.sort(self._close[rows].astype(np.float64))
        breaks = np.flatnonzero(np.diff(ends) > self._room) + 1
        for some in np.split(ends, breaks):
            if len(some):
                # In single precision, and a step wider: every row is looked at.
                low = np.nextafter(np.float32(some[0] - self._room), np.float32(-np.inf))
                high = np.nextafter(np.float32(some[-1] + self._room), np.float32(np.inf))
                parts.append(np.flatnonzero((self._close >= low) & (self._close <= high)))
        return distinct_sorted(np.concatenate(parts))

    def _exact_order(self, rows: Positions) -> Positions:
        """These rows by distance, and by id among equals."""
        positions = self._entities[rows]
        far = search.distances(self._run, self._expr, positions, self._query)
        frame = self._run.frame_of(self._expr.field.var)
        by_id = Key(
            lambda: frame.fetch("id", positions),
            lambda some: frame.fetch("id", positions[some]),
            descending=False,
        )
        return order_rows([Key.of(pa.array(far), descending=False), by_id], len(rows), Window())
