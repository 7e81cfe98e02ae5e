"""Search on executors.

Whether a text matches, and how far a vector is, a row says by itself. Relevance has to know of all
texts: tasks count them first, a group of fragments each, and then find the texts with any word of
the question, so that scores are those of the engine to the last bit. A fused rank orders the
entities of the match by each of its two scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, float64_array, picked
from omnigraph.engine.expr.evaluate import Search, evaluate, is_constant
from omnigraph.engine.read.search import text
from omnigraph.engine.read.search.fragments import over_fragments
from omnigraph.engine.read.search.fusion import checked_k, require_one_query
from omnigraph.engine.read.search.search import for_each_query, vector_of
from omnigraph.engine.read.search.vectors import cosine_distances
from omnigraph.engine.rows.parts import FragmentGroup, GraphAccess, fragment_groups
from omnigraph.engine.text.analysis import Analysis
from omnigraph.pipeline.gq.rows import Found, Reading
from omnigraph.pipeline.gq.scan import carried, in_tasks
from omnigraph.pipeline.gq.values import TaskRows, arrow_function

T = TypeVar("T")


def searched(reading: Reading, rows: Found, expr: Search) -> Found:
    """The rows with the answer of a search for each."""
    match expr:
        case ir.TextMatch():
            return _matching(reading, rows, expr)
        case ir.Nearest():
            return _distance(reading, rows, expr)
        case ir.Bm25():
            return _relevance(reading, rows, expr)
        case ir.Rrf():
            return _fused(reading, rows, expr)


def _asked(reading: Reading, expr: ir.Expr) -> Any:
    """What a constant means in the type that it has."""
    return evaluate(expr, TaskRows(0, reading.constants, {})).as_py()


def _analysis(reading: Reading, field: ir.PropertyRef) -> Analysis:
    (name,) = reading.variables[field.var].types
    return Analysis.of(reading.catalog.nodes[name].by_name[field.prop].indexing)


# --- what a row says by itself -----------------------------------------------------------------


def _matching(reading: Reading, rows: Found, expr: ir.TextMatch) -> Found:
    query = _asked(reading, expr.query)
    edits = 2 if expr.max_edits is None else _asked(reading, expr.max_edits)
    if query is None or edits is None:
        return _with(reading, rows, expr, F.lit(None).cast("boolean"))
    analysis = _analysis(reading, expr.field)
    text.finder(expr.kind, query, edits, analysis)  # or an error now

    # Spark reads these hints.
    def matches(values: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        find = text.finder(expr.kind, query, edits, analysis)
        found: pa.Array[Any] = text.matched(values, find, analysis)
        return found

    column = reading.values(rows).column(expr.field)
    return _with(reading, rows, expr, arrow_function(matches, pa.bool_())(column))


def _distance(reading: Reading, rows: Found, expr: ir.Nearest) -> Found:
    values = reading.values(rows)
    if is_constant(expr.query):
        query = _vector(reading, expr)

        def far(values: pa.Array) -> pa.Array:  # type: ignore[type-arg]
            found: pa.Array[Any] = _distances(values, query)
            return found

        made = arrow_function(far, pa.float64())(values.column(expr.field))
    else:

        def apart(values: pa.Array, queries: pa.Array) -> pa.Array:  # type: ignore[type-arg]
            found: pa.Array[Any] = for_each_query(
                queries, pa.float64(), lambda one, some: _distances(picked(values, some), one)
            )
            return found

        columns = (values.column(part) for part in (expr.field, expr.query))
        made = arrow_function(apart, pa.float64())(*columns)
    return _with(reading, rows, expr, made)


def _distances(values: Array, query: Any) -> Array:
    if query is None:
        return pa.nulls(len(values), pa.float64())
    vectors = carried(values, pa.list_(pa.float32(), len(query)))
    return float64_array(cosine_distances(vectors, np.asarray(query, dtype=np.float64)))


def _vector(reading: Reading, expr: ir.Nearest) -> Any:
    """The vector that is asked for; None for null."""
    asked = _asked(reading, expr.query)
    (name,) = reading.variables[expr.field.var].types
    return None if asked is None else vector_of(expr, asked, type_name=name).tolist()


def _with(reading: Reading, rows: Found, expr: ir.Expr, column: Column) -> Found:
    name = reading.fresh("found")
    made = {**rows.made, expr: name}
    frame = rows.frame.withColumn(name, column)
    return Found(frame=frame, variables=rows.variables, made=made)


# --- relevance ---------------------------------------------------------------------------------

_ID: Final[pa.DataType] = pa.string()
_SCORE: Final[pa.DataType] = pa.float64()
_HITS: Final = pa.schema({"id": _ID, "score": _SCORE})
_COUNTS: Final[pa.DataType] = pa.list_(pa.int64())
_SEEN: Final = pa.schema({"texts": pa.int64(), "weight": pa.int64(), "holders": _COUNTS})


class _Words(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a column, and the question about it: what every task is given."""

    access: GraphAccess
    column: str
    analysis: Analysis
    query: str
    everything: text.Seen | None = None  # once it is known

    def seen(self, group: FragmentGroup) -> Iterator[pa.RecordBatch]:
        """What the texts of some fragments add to what is to be known of all."""
        for found, _ in self._over(
            group, lambda part: text.seen([part], self.query, self.analysis)
        ):
            yield pa.RecordBatch.from_pylist([msgspec.structs.asdict(found)], _SEEN)

    def hits(self, group: FragmentGroup) -> Iterator[pa.RecordBatch]:
        """The entities among these that hold a word of the question, and their scores."""

        def look(part: text.Part) -> text.Hits:
            at = part.words.positions
            size = int(at[-1]) + 1 if len(at) else 0  # nulls have a position, but no words
            return text.bm25([part], self.query, size, self.analysis, self.everything)

        for found, ids in self._over(group, look):
            if len(found.positions):
                columns = [ids(found.positions), pa.array(found.scores)]
                yield pa.record_batch(columns, schema=_HITS)

    def _over(self, group: FragmentGroup, look: Callable[[text.Part], T]) -> Iterator[Any]:
        table = self.access.table(group.entry)
        return over_fragments(table, self.column, self.analysis, group.fragments, look)


def _relevance(reading: Reading, rows: Found, expr: ir.Bm25) -> Found:
    query, var = _asked(reading, expr.query), expr.field.var
    entry = reading.snapshot.entries[f"node:{reading.variables[var].types[0]}"]
    groups = [*fragment_groups(reading.access.table(entry))] if query is not None else []
    if not groups:
        return _with(reading, rows, expr, F.lit(None).cast("double"))
    words = _Words(
        access=reading.access,
        column=expr.field.prop,
        analysis=_analysis(reading, expr.field),
        query=query,
    )
    told = in_tasks(reading.spark, groups, words.seen, _SEEN).collect()
    seen = (text.Seen(row["texts"], row["weight"], tuple(row["holders"])) for row in told)
    words = msgspec.structs.replace(words, everything=reduce(text.Seen.plus, seen))
    owner, score = reading.fresh("owner"), reading.fresh("found")
    hits = in_tasks(reading.spark, groups, words.hits, _HITS).toDF(owner, score)
    on = F.col(reading.layout.id(var)) == F.col(owner)
    frame = rows.frame.join(hits, on, "left").drop(owner)
    return Found(frame=frame, variables=rows.variables, made={**rows.made, expr: score})


# --- fused ranks -------------------------------------------------------------------------------


def _fused(reading: Reading, rows: Found, expr: ir.Rrf) -> Found:
    k = checked_k(_asked(reading, expr.k))
    both = (expr.first, expr.second)
    for part in both:
        require_one_query(constant=is_constant(part.query))
        if part not in rows.made:
            rows = searched(reading, rows, part)
    # The rows are looked at three times: they must be the same each time.
    rows = rows.with_frame(reading.kept(rows.frame))
    frame, gains = rows.frame, []
    for part in both:
        owner, rank = reading.fresh("owner"), reading.fresh("rank")
        frame = frame.join(
            _ranks(reading, rows, part, owner, rank), _is(reading, part, owner), "left"
        )
        frame = frame.drop(owner)
        gains.append(F.coalesce(F.lit(1.0) / (F.lit(float(k)) + F.col(rank)), F.lit(0.0)))
    total = gains[0] + gains[1]
    return _with(reading, rows.with_frame(frame), expr, F.when(total != 0.0, total))


def _is(reading: Reading, part: ir.Nearest | ir.Bm25, owner: str) -> Column:
    return F.col(reading.layout.id(part.field.var)) == F.col(owner)


def _ranks(
    reading: Reading, rows: Found, part: ir.Nearest | ir.Bm25, owner: str, rank: str
) -> DataFrame:
    """The place of each entity of the match, from 1, best first and by id among equals."""
    score = reading.fresh("score")
    node = F.col(reading.layout.id(part.field.var))
    entities = rows.frame.select(node.alias(owner), F.col(rows.made[part]).alias(score))
    entities = entities.where(F.col(owner).isNotNull() & F.col(score).isNotNull()).distinct()
    better = F.col(score).desc() if isinstance(part, ir.Bm25) else F.col(score).asc()
    place = F.row_number().over(Window.orderBy(better, F.col(owner).asc()))
    return entities.select(owner, place.alias(rank))
