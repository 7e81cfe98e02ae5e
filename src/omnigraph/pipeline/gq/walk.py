"""Walking along edges: joins with the tables of edges.

A walk of several hops goes breadth first, a join a hop, from all its starts at once; what it means
is told in `engine/read/match/walk.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from omnigraph.compiler.query import ir
from omnigraph.pipeline.gq.rows import BROADCAST_ROWS_MAX, Found, Reading
from omnigraph.pipeline.gq.scan import together


class Edges(msgspec.Struct, frozen=True, kw_only=True):
    """Edges as pairs of nodes: the columns of the near and the far end, and of their types if nodes
    of several types are among them. `frame` may have columns of an edge variable too."""

    frame: DataFrame
    near: str
    far: str
    near_type: str | None
    far_type: str | None
    rows: int

    @property
    def near_end(self) -> list[str]:
        return [self.near, *([self.near_type] if self.near_type else [])]

    @property
    def far_end(self) -> list[str]:
        return [self.far, *([self.far_type] if self.far_type else [])]


def edges(
    reading: Reading,
    legs: Sequence[ir.Leg],
    *,
    undirected: bool,
    reverse: bool,
    typed: bool,
    edge_var: str | None = None,
    conditions: Sequence[ir.Expr] = (),
    parallel: bool = False,
) -> Edges:
    """The edges of some legs, from their near to their far ends: with `reverse` the near end is
    where edges lead to. Without an edge variable parallel edges are one pair, unless it does not
    matter."""
    near, far = reading.fresh("near"), reading.fresh("far")
    near_type = reading.fresh("type") if typed else None
    far_type = reading.fresh("type") if typed else None
    ends = ("dst", "src") if reverse else ("src", "dst")
    parts = []
    if not legs:  # from no hop on: the walk ends where it began
        named = [name for name in (near, far, near_type, far_type) if name]
        parts.append(reading.nothing(named, {}))
    for leg in legs:
        columns = {near: ends[0], far: ends[1]}
        kinds = {}
        if edge_var is not None:
            own, own_kinds = reading.entity_columns(edge_var)
            columns, kinds = {**columns, **own}, own_kinds
        frame = reading.scan("edge", leg.edge_type, columns, kinds, conditions)
        if near_type and far_type:
            types = (leg.to_type, leg.from_type) if reverse else (leg.from_type, leg.to_type)
            frame = frame.withColumns({near_type: F.lit(types[0]), far_type: F.lit(types[1])})
        parts.append(frame)
    frame = together(parts)
    if undirected:
        frame = both_ways(frame, near, far, near_type, far_type)
    rows = reading.row_count("edge", (leg.edge_type for leg in legs))
    if edge_var is None and not parallel and may_be_parallel(reading, legs, undirected=undirected):
        # What is joined by its near end lies right already when it was compared.
        frame = frame if rows <= BROADCAST_ROWS_MAX else reading.by(frame, near, rows)
        frame = frame.distinct()
    return Edges(frame=frame, near=near, far=far, near_type=near_type, far_type=far_type, rows=rows)


def may_be_parallel(reading: Reading, legs: Sequence[ir.Leg], *, undirected: bool) -> bool:
    """Whether two edges of the legs may join the same two nodes: not those of one type whose ends
    are declared unique."""
    if undirected or len(legs) != 1:
        return True
    (leg,) = legs
    unique = reading.catalog.edges[leg.edge_type].unique
    return not any({*names} <= {"src", "dst"} for names in unique)


def both_ways(
    frame: DataFrame, near: str, far: str, near_type: str | None, far_type: str | None
) -> DataFrame:
    """Every edge from either end; a self loop once."""
    loop = F.col(near) == F.col(far)
    swapped = {near: far, far: near}
    if near_type and far_type:
        loop &= F.col(near_type) == F.col(far_type)
        swapped |= {near_type: far_type, far_type: near_type}
    turned = frame.where(~loop).select(
        *(F.col(swapped.get(name, name)).alias(name) for name in frame.columns)
    )
    return frame.unionAll(turned)


def is_typed(reading: Reading, step: ir.Traversal | ir.Way) -> bool:
    """Whether the ends of a walk have to be told apart by their types."""
    types = {end for leg in step.legs for end in (leg.from_type, leg.to_type)}
    types |= {*reading.variables[step.src].types, *reading.variables[step.dst].types}
    if len(types) == 1:
        return False
    ends = (reading.variables[step.src].types, reading.variables[step.dst].types)
    plain = [ends] == [((leg.from_type,), (leg.to_type,)) for leg in step.legs]
    one_hop = (step.min_hops, step.max_hops) == (1, 1)
    return not (plain and one_hop and not step.undirected)


def walked(reading: Reading, rows: Found, step: ir.Traversal) -> Found:
    """The rows extended along the edge, to an end that has nothing but its identity yet. When both
    ends are bound, rows without such an edge go away instead."""
    forward = step.src in rows.variables
    near, far = (step.src, step.dst) if forward else (step.dst, step.src)
    typed = is_typed(reading, step)
    if step.min_hops > step.max_hops:
        pairs = one_hop(reading, step, typed=typed, reverse=not forward)
        return joined(reading, rows, step, near, far, pairs, F.lit(False))  # noqa: FBT003
    if (step.min_hops, step.max_hops) == (1, 1) or step.edge_var is not None:
        bound = far in rows.variables
        many = reading.row_count("edge", (leg.edge_type for leg in step.legs)) > BROADCAST_ROWS_MAX
        late = step.edge_var is None and (bound or (rows.narrow and many))
        pairs = one_hop(reading, step, typed=typed, reverse=not forward, parallel=late)
        single = not may_be_parallel(reading, step.legs, undirected=step.undirected)
        if not late or bound or single:
            return joined(reading, rows, step, near, far, pairs)
        # Of few rows, those along parallel edges are fewer than all parallel edges.
        number = reading.fresh("number")
        numbered = rows.frame.withColumn(number, F.monotonically_increasing_id())
        found = joined(reading, rows.with_frame(numbered), step, near, far, pairs)
        keys = [*reading.layout.identity(near), number, *reading.layout.identity(far)]
        return found.with_frame(found.frame.dropDuplicates(keys).drop(number))
    pairs = reached(reading, rows, step, near, typed=typed, reverse=not forward)
    return joined(reading, rows, step, near, far, pairs)


def one_hop(
    reading: Reading, step: ir.Traversal, *, typed: bool, reverse: bool, parallel: bool = False
) -> Edges:
    """The edges that a step of one hop goes along, with its edge variable if it has one."""
    conditions: Sequence[ir.Expr] = ()
    if step.edge_var is not None:
        conditions, _ = reading.pushed(step.edge_var, step.edge_conditions)
    return edges(
        reading,
        step.legs,
        undirected=step.undirected,
        reverse=reverse,
        typed=typed,
        edge_var=step.edge_var,
        conditions=conditions,
        parallel=parallel,
    )


def joined(
    reading: Reading,
    rows: Found,
    step: ir.Traversal,
    near: str,
    far: str,
    pairs: Edges,
    also: Column | None = None,
) -> Found:
    """The rows with the far ends of the pairs; where that end is bound, only such rows stay."""
    layout = reading.layout
    on = [F.col(layout.id(near)) == F.col(pairs.near)]
    if pairs.near_type:
        on.append(reading.is_type(near, pairs.near_type))
    bound = far in rows.variables
    if bound:
        on.append(F.col(layout.id(far)) == F.col(pairs.far))
        if pairs.far_type:
            on.append(reading.is_type(far, pairs.far_type))
    if also is not None:
        on.append(also)
    condition = reduce(lambda a, b: a & b, on)
    frame = pairs.frame
    if not bound and pairs.far_type:
        frame = frame.where(F.col(pairs.far_type).isin(*reading.variables[far].types))
    how = "left_semi" if bound and step.edge_var is None else "inner"
    frame = rows.frame.join(reading.small(frame, pairs.rows), condition, how)
    frame = frame.drop(*pairs.near_end)
    if bound:
        frame = frame.drop(*pairs.far_end)
    else:
        frame = frame.withColumnRenamed(pairs.far, layout.id(far))
        if pairs.far_type and layout.is_open(far):
            frame = frame.withColumnRenamed(pairs.far_type, layout.type(far))
        elif pairs.far_type:
            frame = frame.drop(pairs.far_type)
        elif layout.is_open(far):
            (name,) = {leg.to_type for leg in step.legs}
            frame = frame.withColumn(layout.type(far), F.lit(name))
    more = [far] if step.edge_var is None else [far, step.edge_var]
    return rows.with_frame(frame, *more)


# --- several hops ------------------------------------------------------------------------------


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """What was reached from each start: a frame for every number of hops, of the columns of the
    start and of the node, and how many rows all of them have."""

    start: list[str]
    node: list[str]
    frames: list[DataFrame]
    rows: int


def layers(
    reading: Reading, starts: DataFrame, start: list[str], along: Edges, max_hops: int
) -> Layers:
    """The nodes at each distance from each start, up to a number of hops. `starts` has the columns
    of a node each."""
    node = [reading.fresh("node") for _ in start]
    first = starts.select(
        *(F.col(name) for name in start),
        *(F.col(name).alias(new) for name, new in zip(start, node, strict=True)),
    )
    seen, rows = reading.counted(first)
    pairs = along.frame if max_hops == 1 else reading.kept(along.frame)
    frames, total = [seen], rows
    while rows and len(frames) <= max_hops:
        step = reduce(
            lambda a, b: a & b,
            [F.col(a) == F.col(b) for a, b in zip(node, along.near_end, strict=True)],
        )
        here = reading.small(frames[-1], rows)
        onward = here.join(pairs, step, "inner").select(
            *(F.col(name) for name in start),
            *(F.col(name).alias(new) for name, new in zip(along.far_end, node, strict=True)),
        )
        new = onward.distinct().join(seen, [*start, *node], "left_anti")
        layer, rows = reading.counted(new)
        total += rows
        frames.append(layer)
        seen = seen.unionAll(layer)
    return Layers(start=start, node=node, frames=frames, rows=total)


def starts_of(
    reading: Reading, rows: Found, var: str, *, typed: bool
) -> tuple[DataFrame, list[str]]:
    """Every different node that a variable holds in the rows, and its columns."""
    layout, names = reading.layout, [reading.fresh("start")]
    columns = [F.col(layout.id(var)).alias(names[0])]
    if typed:
        names.append(reading.fresh("start"))
        if layout.is_open(var):
            columns.append(F.col(layout.type(var)).alias(names[1]))
        else:
            columns.append(F.lit(reading.variables[var].types[0]).alias(names[1]))
    frame = rows.frame.where(F.col(layout.id(var)).isNotNull()).select(*columns)
    return frame.distinct(), names


def reached(
    reading: Reading, rows: Found, step: ir.Traversal, near: str, *, typed: bool, reverse: bool
) -> Edges:
    """The pairs of nodes that a walk of several hops joins."""
    along = edges(
        reading, step.legs, undirected=step.undirected, reverse=reverse, typed=typed, parallel=True
    )
    starts, start = starts_of(reading, rows, near, typed=typed)
    found = layers(reading, starts, start, along, step.max_hops)
    counted = [frame for depth, frame in enumerate(found.frames) if depth >= step.min_hops]
    if 0 < step.min_hops <= len(found.frames):
        # One hop less than the walk needs is made up for by a self loop at its target.
        target = found.start if reverse else found.node
        near_ones = found.frames[step.min_hops - 1]
        looped = near_ones.join(loops(along, target), target, "left_semi")
        counted.append(looped.select(*near_ones.columns))  # what it was joined by came first
    if not counted:
        counted = [found.frames[0].limit(0)]
    return Edges(
        frame=together(counted),
        near=found.start[0],
        far=found.node[0],
        near_type=found.start[1] if typed else None,
        far_type=found.node[1] if typed else None,
        rows=2 * found.rows,  # nodes with a loop may be there twice
    )


def loops(along: Edges, names: Sequence[str]) -> DataFrame:
    """The nodes with an edge to themselves, in columns of these names."""
    same = reduce(
        lambda a, b: a & b,
        [F.col(a) == F.col(b) for a, b in zip(along.near_end, along.far_end, strict=True)],
    )
    ends = zip(along.near_end, names, strict=True)
    return along.frame.where(same).select(*(F.col(end).alias(name) for end, name in ends))


def degrees(reading: Reading, rows: Found, expr: ir.Degree) -> Found:
    """The rows with how many edges of a type touch the node of each."""
    layout, var = reading.layout, expr.var
    edge = reading.catalog.edges[expr.edge_type]
    src, dst = reading.fresh("src"), reading.fresh("dst")
    frame = reading.scan("edge", expr.edge_type, {src: "src", dst: "dst"}, {})
    sides = []
    if expr.direction in ("out", "both"):
        sides.append((src, edge.from_type, frame))
    if expr.direction in ("in", "both"):
        within = expr.direction == "both" and edge.from_type == edge.to_type
        others = frame.where(F.col(src) != F.col(dst)) if within else frame
        sides.append((dst, edge.to_type, others))
    node, kind, total = reading.fresh("node"), reading.fresh("type"), reading.fresh("degree")
    ends = [
        some.select(F.col(side).alias(node), F.lit(name).alias(kind))
        for side, name, some in sides
        if name in reading.variables[var].types
    ]
    made = {**rows.made, expr: total}
    zero = F.when(F.col(layout.id(var)).isNotNull(), F.lit(0).cast("bigint"))
    if not ends:
        found = rows.frame.withColumn(total, zero)
        return Found(frame=found, variables=rows.variables, made=made)
    counts = together(ends).groupBy(node, kind).agg(F.count(F.lit(1)).alias(total))
    on = (F.col(layout.id(var)) == F.col(node)) & reading.is_type(var, kind)
    found = rows.frame.join(counts, on, "left").drop(node, kind)
    found = found.withColumn(total, F.coalesce(F.col(total), zero))
    return Found(frame=found, variables=rows.variables, made=made)
