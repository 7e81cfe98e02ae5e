"""The one shortest way between the two nodes of a row: how long it is, its nodes and its edges.

`engine/read/match/paths.py` and `weighted.py` say which one it is: from its end backwards, the node
before is the first by id (and type) of all that lie on such a way. Distances are found a hop at a
time from all sources at once, each until its targets are reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from omnigraph.compiler.query import ir
from omnigraph.errors import InputError
from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.pipeline.gq.layout import spark_type
from omnigraph.pipeline.gq.rows import Found, Reading
from omnigraph.pipeline.gq.scan import together
from omnigraph.pipeline.gq.walk import both_ways

_S, _T, _A, _B = ("s", "st"), ("t", "tt"), ("a", "at"), ("b", "bt")  # ends of pairs and of edges
_HOPS, _NODES, _EDGES, _DEPTH, _FAR = "hops", "nodes", "edges", "depth", "far"
_EDGE, _EDGE_TYPE, _WEIGHT = "edge", "edge_type", "weight"


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """Holds rows for the steps of one way, without the columns that have one value in all rows:
    most ways lead along edges of one type."""

    reading: Reading
    constants: Mapping[str, str]

    @classmethod
    def of(cls, reading: Reading, way: ir.Way) -> _Held:
        starts, ends = (reading.variables[var].types for var in (way.src, way.dst))
        froms, tos = {leg.from_type for leg in way.legs}, {leg.to_type for leg in way.legs}
        if way.undirected:
            froms = tos = froms | tos
        types = {"st": starts, "tt": ends, "at": froms, "bt": tos, "nt": {*starts, *tos}}
        types[_EDGE_TYPE] = {leg.edge_type for leg in way.legs}
        alone = {name: tuple(some) for name, some in types.items() if len(some) == 1}
        return cls(reading=reading, constants={name: one for name, (one,) in alone.items()})

    def kept(self, frame: DataFrame) -> DataFrame:
        return self._whole(self.reading.kept(self._narrow(frame)), frame)

    def counted(self, frame: DataFrame) -> tuple[DataFrame, int]:
        held, rows = self.reading.counted(self._narrow(frame))
        return self._whole(held, frame), rows

    def _narrow(self, frame: DataFrame) -> DataFrame:
        return frame.drop(*self.constants)

    def _whole(self, held: DataFrame, frame: DataFrame) -> DataFrame:
        of = self.constants
        names = frame.columns
        return held.select(*(F.lit(of[n]).alias(n) if n in of else F.col(n) for n in names))


class _Way(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps of one way share. `edges` has the ends (`a`, `b`), the id, type and weight of
    every edge that may be walked, once for each way that it may be walked."""

    reading: Reading
    way: ir.Way
    held: _Held
    edges: DataFrame
    pairs: int  # how many there are

    def at(self, names: Sequence[str], others: Sequence[str]) -> Column:
        return (F.col(names[0]) == F.col(others[0])) & (F.col(names[1]) == F.col(others[1]))


def with_way(reading: Reading, rows: Found, way: ir.Way) -> Found:
    """The rows with columns for all that the plan asks of the way between two of their nodes."""
    layout = reading.layout
    rows = rows.with_frame(reading.kept(rows.frame))  # they are looked at twice
    parts = sorted(layout.ways[way], key=lambda part: part.part)
    names = {part.part: reading.fresh("way") for part in parts}
    ends = {name: reading.fresh("end") for name in (*_S, *_T)}
    node_of: dict[str, Column] = {}
    for (id_name, type_name), var in ((_S, way.src), (_T, way.dst)):
        node_of[id_name] = F.col(layout.id(var))
        kind = F.lit(reading.variables[var].types[0])
        node_of[type_name] = F.col(layout.type(var)) if layout.is_open(var) else kind
    pairs = rows.frame.select(*(column.alias(name) for name, column in node_of.items()))
    pairs = pairs.where("s is not null and t is not null").distinct()
    found = _found(
        reading, way, pairs, wants_nodes=set(names) != {"length"}, wants_edges="edges" in names
    )
    values = {"length": F.col(_HOPS), "nodes": F.transform(F.col(_NODES), lambda n: n["id"])}
    values["edges"] = F.col(_EDGES)
    found = found.select(
        *(F.col(name).alias(new) for name, new in ends.items()),
        *(values[part.part].cast(spark_type(part.type)).alias(names[part.part]) for part in parts),
    )
    on = [node_of[name] == F.col(ends[name]) for name in ends]
    frame = rows.frame.join(found, on[0] & on[1] & on[2] & on[3], "left").drop(*ends.values())
    told: dict[ir.Expr, str] = {part: names[part.part] for part in parts}
    return Found(frame=frame, variables=rows.variables, made={**rows.made, **told})


def _found(
    reading: Reading, way: ir.Way, pairs: DataFrame, *, wants_nodes: bool, wants_edges: bool
) -> DataFrame:
    """The way of each pair: `hops`, and if wanted `nodes` and `edges`."""
    held = _Held.of(reading, way)
    pairs, number = held.counted(pairs)
    edges = _edges(held, way)
    if way.weight is None and not wants_edges:
        edges = edges.select(*_A, *_B)
    steps = _Way(reading=reading, way=way, held=held, edges=held.kept(edges), pairs=number)
    if way.weight is None:
        along = steps.edges.select(*_A, *_B)
        lengths, reached = _layers(steps, pairs, along, max_hops=way.max_hops)
    else:
        along = held.kept(_tight(steps, pairs))
        lengths, reached = _layers(steps, pairs, along, max_hops=ir.HOPS_OPEN)
    again = F.col(_HOPS) + 1 == F.lit(way.min_hops)
    one = F.when(again, 1).otherwise(0)
    if not wants_nodes:
        return lengths.withColumn(_HOPS, F.col(_HOPS) + one)
    found = _recovered(steps, lengths, reached, along)
    last = F.array(F.struct(F.col("t").alias("id"), F.col("tt").alias("type")))
    nodes = F.when(again, F.concat(F.col(_NODES), last)).otherwise(F.col(_NODES))
    found = found.withColumn(_NODES, nodes).withColumn(_HOPS, F.col(_HOPS) + one)
    return _with_edges(steps, found) if wants_edges else found


def _edges(held: _Held, way: ir.Way) -> DataFrame:
    reading = held.reading
    if not way.legs:
        weight = {} if way.weight is None else {_WEIGHT: PropertyType(scalar=Scalar.F64)}
        return reading.nothing([*_A, *_B, _EDGE, _EDGE_TYPE, *weight], weight)
    parts = []
    for leg in way.legs:
        columns = {"a": "src", "b": "dst", _EDGE: "id"}
        kinds = {}
        if way.weight is not None:
            columns[_WEIGHT] = way.weight
            prop = reading.catalog.edges[leg.edge_type].by_name[way.weight]
            kinds[_WEIGHT] = prop.type
        frame = reading.scan("edge", leg.edge_type, columns, kinds)
        frame = frame.withColumns(
            {"at": F.lit(leg.from_type), "bt": F.lit(leg.to_type), _EDGE_TYPE: F.lit(leg.edge_type)}
        )
        if way.weight is not None:
            frame = frame.withColumn(_WEIGHT, F.col(_WEIGHT).cast("double"))
        parts.append(frame)
    frame = together(parts)
    if way.weight is not None:
        frame = _weighed(held, way, frame)
    return both_ways(frame, "a", "b", "at", "bt") if way.undirected else frame


def _weighed(held: _Held, way: ir.Way, frame: DataFrame) -> DataFrame:
    """The edges that can be walked; `InputError` for a weight that is none."""
    frame = held.kept(frame)
    weight = F.col(_WEIGHT)
    wrong = frame.where((weight < 0) | F.isnan(weight))
    for leg in way.legs:
        first = wrong.where(F.col(_EDGE_TYPE) == leg.edge_type).agg(F.min(_EDGE)).first()
        if first is not None and first[0] is not None:
            raise InputError(
                f"shortest: the {way.weight} of an edge is 0 or more, which that of "
                f"{leg.edge_type} '{first[0]}' is not",
                hint="leave such edges out, or correct their weights",
            )
    return frame.where(weight.isNotNull() & (weight < float("inf")))


def _layers(
    steps: _Way, pairs: DataFrame, along: DataFrame, *, max_hops: int
) -> tuple[DataFrame, DataFrame]:
    """How many hops it is between each pair that is joined, and all nodes that were met on the way
    there, with their depths. `along` may be of one source each."""
    reading, held = steps.reading, steps.held
    own = [name for name in _S if name in along.columns]
    here = pairs.select(*_S, F.col("s").alias("n"), F.col("st").alias("nt")).distinct()
    here, rows = held.counted(here.withColumn(_DEPTH, F.lit(0)))
    left, met, seen, depth = pairs, [here], here, 0
    while depth < max_hops:
        found = here.select("s", "st", F.col("n").alias("t"), F.col("nt").alias("tt"))
        found = reading.small(found, rows)
        left, waiting = held.counted(left.join(found, [*_S, *_T], "left_anti"))
        if not waiting:
            break
        depth += 1
        going = here.drop(_DEPTH)
        if waiting < steps.pairs:  # sources that have reached all their targets go no further
            going = going.join(left.select(*_S).distinct(), [*_S], "left_semi")
        on = steps.at(("n", "nt"), _A)
        edges = along.withColumnsRenamed({name: f"own_{name}" for name in own})
        for name in own:
            on &= F.col(name) == F.col(f"own_{name}")
        going = reading.small(going, rows)
        onward = going.join(edges, on, "inner").select(
            *_S, F.col("b").alias("n"), F.col("bt").alias("nt")
        )
        onward = onward.distinct().join(seen.drop(_DEPTH), [*_S, "n", "nt"], "left_anti")
        here, rows = held.counted(onward.withColumn(_DEPTH, F.lit(depth)))
        if not rows:
            break
        met.append(here)
        seen = seen.unionAll(here)
    reached = together(met)
    ends = {"n": "t", "nt": "tt", _DEPTH: _HOPS}
    lengths = pairs.join(reached.withColumnsRenamed(ends), [*_S, *_T], "inner")
    return lengths.withColumn(_HOPS, F.col(_HOPS).cast("bigint")), reached


def _recovered(steps: _Way, lengths: DataFrame, reached: DataFrame, along: DataFrame) -> DataFrame:
    """One way of each pair, from its end backwards."""
    reading = steps.reading
    own = [name for name in _S if name in along.columns]
    edges = along.withColumnsRenamed({name: f"own_{name}" for name in own})
    layers = reached.withColumnsRenamed({"s": "ls", "st": "lst", _DEPTH: "ld"})
    node = F.struct(F.col("t").alias("id"), F.col("tt").alias("type"))
    found = lengths.withColumn(_NODES, F.array(node))
    found = steps.held.kept(found)
    longest = found.agg(F.max(_HOPS)).first()
    for back in range(1, (longest[0] or 0) + 1 if longest else 1):
        here = found.where(F.col(_HOPS) >= back).select(
            *_S, *_T, _HOPS, F.col(_NODES)[0].alias("here")
        )
        on = (F.col("here.id") == F.col("b")) & (F.col("here.type") == F.col("bt"))
        for name in own:
            on &= F.col(name) == F.col(f"own_{name}")
        before = reading.small(here, steps.pairs).join(edges, on, "inner")
        on = steps.at(_S, ("ls", "lst")) & steps.at(_A, ("n", "nt"))
        before = before.join(layers, on & (F.col("ld") == F.col(_HOPS) - back), "inner")
        chosen = before.groupBy(*_S, *_T).agg(
            F.min(F.struct(F.col("a").alias("id"), F.col("at").alias("type"))).alias("before")
        )
        found = found.join(chosen, [*_S, *_T], "left")
        grown = F.concat(F.array(F.col("before")), F.col(_NODES))
        found = found.withColumn(
            _NODES, F.when(F.col("before").isNotNull(), grown).otherwise(F.col(_NODES))
        )
        found = steps.held.kept(found.drop("before"))
    return found


def _with_edges(steps: _Way, found: DataFrame) -> DataFrame:
    """The ways with their edges: between two nodes the lightest, then the first by id."""
    hops = found.where(F.col(_HOPS) > 0).select(
        *_S,
        *_T,
        F.posexplode(
            F.arrays_zip(
                F.slice(_NODES, 1, F.col(_HOPS).cast("int")).alias("one"),
                F.slice(_NODES, 2, F.col(_HOPS).cast("int")).alias("other"),
            )
        ).alias("i", "hop"),
    )
    on = (F.col("hop.one.id") == F.col("a")) & (F.col("hop.one.type") == F.col("at"))
    on &= (F.col("hop.other.id") == F.col("b")) & (F.col("hop.other.type") == F.col("bt"))
    by = [F.col(_EDGE), F.col(_EDGE_TYPE)]
    if steps.way.weight is not None:
        by.insert(0, F.col(_WEIGHT))
    hops = steps.reading.small(hops, steps.pairs)
    edges = hops.join(steps.edges, on, "inner").groupBy(*_S, *_T, "i")
    chosen = edges.agg(F.min(F.struct(*by)).alias("best"))
    lists = chosen.groupBy(*_S, *_T).agg(
        F.sort_array(F.collect_list(F.struct("i", F.col(f"best.{_EDGE}").alias("id")))).alias("all")
    )
    frame = found.join(lists, [*_S, *_T], "left")
    some = F.transform(F.col("all"), lambda hop: hop["id"])
    none = F.array().cast("array<string>")
    return frame.withColumn(_EDGES, F.coalesce(some, none)).drop("all")


# --- weights -----------------------------------------------------------------------------------


def _tight(steps: _Way, pairs: DataFrame) -> DataFrame:
    """For every source the edges that a lightest way from it may take."""
    held, weight = steps.held, F.col(_WEIGHT)
    here = pairs.select(*_S, F.col("s").alias("n"), F.col("st").alias("nt")).distinct()
    here, rows = held.counted(here.withColumn(_FAR, F.lit(0.0)))
    known = here
    while rows:
        onward = here.join(steps.edges, steps.at(("n", "nt"), _A), "inner")
        onward = onward.select(
            *_S,
            F.col("b").alias("n"),
            F.col("bt").alias("nt"),
            (F.col(_FAR) + weight).alias(_FAR),
        )
        onward = onward.groupBy(*_S, "n", "nt").agg(F.min(_FAR).alias(_FAR))
        if not onward.where(F.col(_FAR) == float("inf")).isEmpty():
            raise InputError(
                "shortest: the weights of a way add up to more than an F64 can hold",
                hint="use smaller weights",
            )
        older = known.withColumnRenamed(_FAR, "older")
        nearer = onward.join(older, [*_S, "n", "nt"], "left")
        nearer = nearer.where(F.col("older").isNull() | (F.col(_FAR) < F.col("older")))
        here, rows = held.counted(nearer.drop("older"))
        both = known.unionAll(here).groupBy(*_S, "n", "nt")
        known = held.kept(both.agg(F.min(_FAR).alias(_FAR)))
    one = known.withColumnsRenamed({"n": "on", "nt": "ont", _FAR: "of"})
    other = known.withColumnsRenamed({"s": "xs", "st": "xst", "n": "xn", "nt": "xnt", _FAR: "xf"})
    frame = one.join(steps.edges, steps.at(("on", "ont"), _A), "inner")
    on = steps.at(_S, ("xs", "xst")) & steps.at(_B, ("xn", "xnt"))
    frame = frame.join(other, on & (F.col("of") + weight == F.col("xf")), "inner")
    return frame.select(*_S, *_A, *_B).distinct()
