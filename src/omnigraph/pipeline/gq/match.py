"""How a match becomes joins: start at the most selective variable, walk, filter as early as can be.

Blocks inside a match (`optional`, `not`, `exists`, `count`) run once for all different rows around
them, and are joined back to these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from msgspec.structs import replace
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from omnigraph.compiler.query import ir
from omnigraph.engine.expr.evaluate import can_fail
from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.pipeline.gq.layout import Layout, spark_type
from omnigraph.pipeline.gq.rows import Found, Reading
from omnigraph.pipeline.gq.search import searched
from omnigraph.pipeline.gq.values import constant
from omnigraph.pipeline.gq.walk import degrees, is_typed, one_hop, walked
from omnigraph.pipeline.gq.ways import with_way


def no_variables(reading: Reading) -> Found:
    """One row of nothing: crossed with others it changes nothing."""
    return Found(frame=reading.spark.range(1).select(), variables=frozenset())


def match(reading: Reading, block: ir.MatchBlock, outer: Found | None = None) -> Found:
    """All rows of a stage's match, each an extension of a row of the stage before."""
    return _Block(reading, block, outer).rows()


def computed(reading: Reading, rows: Found, exprs: Iterable[ir.Expr]) -> Found:
    """The rows with columns for everything in the expressions that looks beyond a row: edges around
    it, or all other rows."""
    for expr in exprs:
        for part in reversed([*ir.walk(expr)]):  # what is inside first
            if part in rows.made:
                continue
            match part:
                case ir.Degree():
                    rows = degrees(reading, rows, part)
                case ir.BlockValue():
                    rows = _block_value(reading, rows, part)
                case ir.PathPart():
                    rows = with_way(reading, rows, part.way)
                case ir.Bm25() | ir.Rrf() | ir.TextMatch() | ir.Nearest():
                    rows = searched(reading, rows, part)
                case _:
                    pass
    return rows


class _Block:
    """One level of a match, with the rows of the level above fixed."""

    def __init__(self, reading: Reading, block: ir.MatchBlock, outer: Found | None) -> None:
        self._reading, self._block, self._outer = reading, block, outer
        self._bindings = {binding.var: binding for binding in block.bindings}
        self._todo = list(block.traversals)
        alone = [not clause.variables and can_fail(clause.expr) for clause in block.filters]
        self._filters = [c for c, fatal in zip(block.filters, alone, strict=True) if not fatal]
        self._fatal = [c for c, fatal in zip(block.filters, alone, strict=True) if fatal]
        self._unwinds = list(block.unwinds)

    def rows(self) -> Found:
        pieces: list[Found] = []
        if self._outer is not None:
            pieces.append(self._grown(self._filtered(self._outer)))
        pieces += [self._grown(self._start(group)) for group in self._groups()]
        rows = self._combined(pieces)
        for optional in self._block.optionals:
            rows = _extended(self._reading, rows, optional)
        for late in self._block.late_filters:
            rows = self._where(rows, late.expr)
        for negation in self._block.negations:
            rows = _without(self._reading, rows, negation)
        for clause in self._fatal:
            rows = self._where(rows, clause.expr)
        return rows

    # --- one group of connected variables ---

    def _groups(self) -> list[list[str]]:
        """The variables that no walk from the outer rows reaches, by connection."""
        outer = self._outer.variables if self._outer is not None else frozenset()
        group_of = {var: {var} for var in (*outer, *self._bindings)}
        for step in self._block.traversals:
            merged = group_of.get(step.src, set()) | group_of.get(step.dst, set())
            group_of.update(dict.fromkeys(merged, merged))
        groups = dict.fromkeys(frozenset(group_of[var]) for var in self._bindings)
        return [sorted(group) for group in groups if group.isdisjoint(outer)]

    def _start(self, group: Sequence[str]) -> Found:
        """Read the variable of the group with the narrowest conditions, or the edges of a walk if
        nothing is asked of the nodes at one of its ends."""
        var = min(group, key=self._weight)
        if not self._bindings[var].conditions:
            for step in self._todo:
                if var in (step.src, step.dst) and self._is_plain(step):
                    return self._from_edges(step)
        return self._entities(var)

    def _weight(self, var: str) -> tuple[int, int]:
        conditions = self._bindings[var].conditions
        named = any(
            isinstance(part, ir.Compare) and part.op is ir.CompareOp.EQ for part in conditions
        )
        rows = self._reading.row_count("node", self._reading.variables[var].types)
        return (0 if named else 1 if conditions else 2, rows)

    def _entities(self, var: str) -> Found:
        conditions = self._bindings[var].conditions
        inside, outside = self._reading.pushed(var, conditions)
        frame = self._reading.entities(var, inside)
        rows = Found(frame=frame, variables=frozenset({var}), narrow=bool(conditions))
        for condition in outside:
            rows = self._where(rows, condition)
        return self._filtered(rows)

    def _is_plain(self, step: ir.Traversal) -> bool:
        alone = (step.min_hops, step.max_hops) == (1, 1)
        return alone and step.src != step.dst and not is_typed(self._reading, step)

    def _from_edges(self, step: ir.Traversal) -> Found:
        """The edges themselves, with their ends; what is asked of these is joined to them."""
        reading, layout = self._reading, self._reading.layout
        self._todo.remove(step)
        pairs = one_hop(reading, step, typed=False, reverse=False)
        frame = pairs.frame.withColumnsRenamed(
            {pairs.near: layout.id(step.src), pairs.far: layout.id(step.dst)}
        )
        more = {step.src, step.dst} | ({step.edge_var} if step.edge_var else set())
        rows = Found(frame=frame, variables=frozenset(more))
        return self._ended(rows, step, (step.src, step.dst))

    def _grown(self, rows: Found) -> Found:
        """Walk every traversal that can be reached; those between two bound ends first."""
        while True:
            reachable = [
                step
                for step in self._todo
                if step.src in rows.variables or step.dst in rows.variables
            ]
            if not reachable:
                return self._unwound(rows)
            step = min(reachable, key=lambda step: not {step.src, step.dst} <= rows.variables)
            self._todo.remove(step)
            new = [var for var in dict.fromkeys((step.src, step.dst)) if var not in rows.variables]
            rows = self._ended(walked(self._reading, rows, step), step, new)

    def _ended(self, rows: Found, step: ir.Traversal, new: Iterable[str]) -> Found:
        """What was walked, with the properties of its new ends, where all conditions are true."""
        reading = self._reading
        for var in new:
            rows = self._with_properties(rows, var)
        if step.edge_var is not None:
            _, outside = reading.pushed(step.edge_var, step.edge_conditions)
            for condition in outside:
                rows = self._where(rows, condition)
        return self._filtered(rows)

    def _with_properties(self, rows: Found, var: str) -> Found:
        """The rows with the properties of an end that a walk has found."""
        reading, layout = self._reading, self._reading.layout
        binding = self._bindings.get(var)
        inside, outside = reading.pushed(var, binding.conditions if binding else ())
        if layout.properties(var) or inside:
            names = {name: reading.fresh("end") for name in layout.identity(var)}
            types = reading.variables[var].types
            there = reading.entities(var, inside, names=names)
            there = reading.small(there, reading.row_count("node", types))
            on = [F.col(name) == F.col(new) for name, new in names.items()]
            frame = rows.frame.join(there, all_of(on), "inner").drop(*names.values())
            rows = rows.with_frame(frame)
        for condition in outside:
            rows = self._where(rows, condition)
        return rows

    # --- lists ---

    def _unwound(self, rows: Found) -> Found:
        """Unwind every waiting list whose variables are all there."""
        while True:
            ready = [one for one in self._unwinds if one.variables <= rows.variables]
            ready = [one for one in ready if one.variables]
            if not ready:
                return rows
            self._unwinds.remove(ready[0])
            rows = self._filtered(_elements(self._reading, rows, ready[0]))

    # --- conditions over several variables ---

    def _filtered(self, rows: Found) -> Found:
        for clause in list(self._filters):
            if clause.variables <= rows.variables:
                self._filters.remove(clause)
                rows = self._where(rows, clause.expr)
        return rows

    def _where(self, rows: Found, condition: ir.Expr) -> Found:
        rows = computed(self._reading, rows, [condition])
        return rows.with_frame(rows.frame.where(self._reading.values(rows).condition(condition)))

    def _combined(self, pieces: list[Found]) -> Found:
        """The pieces joined: by an equality between them if there is one, crossed otherwise."""
        reading = self._reading
        rows, *rest = pieces or [no_variables(reading)]
        for unwind in [one for one in self._unwinds if not one.variables]:
            self._unwinds.remove(unwind)
            rows = self._unwound(self._filtered(_elements(reading, rows, unwind)))
        while rest:
            piece, equality = self._next_piece(rows, rest)
            rest = [other for other in rest if other is not piece]
            made = {**rows.made, **piece.made}
            together = replace(rows, variables=rows.variables | piece.variables, made=made)
            if equality is None:
                frame = _counted(reading, rows).crossJoin(_counted(reading, piece))
                rows = replace(together, frame=frame)
            else:
                self._filters.remove(equality)
                frame = rows.frame.join(
                    piece.frame, reading.values(together).condition(equality.expr), "inner"
                )
                rows = replace(together, frame=frame)
            rows = self._unwound(self._filtered(rows))
        return rows

    def _next_piece(self, rows: Found, rest: Sequence[Found]) -> tuple[Found, ir.Filter | None]:
        for piece in rest:
            for clause in self._filters:
                if _joins(clause, rows, piece):
                    return piece, clause
        return rest[0], None


def _counted(reading: Reading, rows: Found) -> DataFrame:
    """The rows, for being crossed with others: where a condition may have left few of many, they
    are found and counted first. Spark would find them again for every part of the others."""
    if not rows.narrow:
        return rows.frame
    return reading.small(*reading.counted(rows.frame))


_JOINED = frozenset({Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.DATE, Scalar.DATETIME})


def _joins(clause: ir.Filter, rows: Found, piece: Found) -> bool:
    """Whether a condition is an equality of two columns that Spark can join by."""
    equality = clause.expr
    if not isinstance(equality, ir.Compare) or equality.op is not ir.CompareOp.EQ:
        return False
    sides = (equality.left, equality.right)
    plain = ir.PropertyRef | ir.IdRef | ir.EndpointRef | ir.RowRef
    if not all(isinstance(side, plain) and side.type.scalar in _JOINED for side in sides):
        return False
    if sides[0].type.scalar is not sides[1].type.scalar or any(s.type.is_list for s in sides):
        return False
    a, b = (ir.variables_of(side) for side in sides)
    return (a <= rows.variables and b <= piece.variables) or (
        b <= rows.variables and a <= piece.variables
    )


def _elements(reading: Reading, rows: Found, unwind: ir.Unwind) -> Found:
    """The rows, each once for every element of its list; a null list has none."""
    layout, place = reading.layout, PropertyType(scalar=Scalar.I64)
    if isinstance(unwind.items, ir.RecordParam):
        fields = {field.name: field.type for field in unwind.items.fields}
        layout.add_rows(unwind.var, {**fields, ir.PLACE: place})
        records = reading.constants.params[unwind.items.name] or ()
        made = [
            F.struct(*(constant(record[name], kind) for name, kind in fields.items()))
            for record in records
        ]
        shape = ", ".join(
            f"f{n}: {spark_type(kind).simpleString()}" for n, kind in enumerate(fields.values())
        )
        lists = F.array(*made).cast(f"array<struct<{shape}>>")
        names = {name: f"f{number}" for number, name in enumerate(fields)}
    else:
        kind = unwind.items.type
        element = PropertyType(scalar=kind.scalar, nullable=True, dimension=kind.dimension)
        layout.add_rows(unwind.var, {"": element, ir.PLACE: place})
        rows = computed(reading, rows, [unwind.items])
        lists = reading.values(rows).column(unwind.items)
        names = {}
    at, item = reading.fresh("place"), reading.fresh("item")
    frame = rows.frame.select("*", F.posexplode(lists).alias(at, item))
    columns = {layout.row(unwind.var, ir.PLACE): F.col(at).cast("bigint")}
    if names:
        columns |= {layout.row(unwind.var, n): F.col(item)[f] for n, f in names.items()}
    else:
        columns[layout.row(unwind.var, "")] = F.col(item)
    return rows.with_frame(frame.withColumns(columns).drop(at, item), unwind.var)


# --- inner blocks ------------------------------------------------------------------------------


def all_of(conditions: Sequence[Column]) -> Column:
    return reduce(lambda a, b: a & b, conditions)


def _inner(
    reading: Reading, rows: Found, block: ir.MatchBlock, outer: Iterable[str]
) -> tuple[Found, dict[str, str]]:
    """A block, run once for every different outer row: its rows, and the columns in which they
    name the outer row that they belong to, by the column there."""
    layout = reading.layout
    known = sorted(set(outer) & rows.variables)
    identity = [name for var in known for name in layout.identity(var)]
    details = [name for var in known for name in layout.details(var)]
    names = {name: reading.fresh("outer") for name in identity}
    if identity:
        apart = layout.float_rows() & {*identity}
        firsts = [F.first(name).alias(name) for name in (*details, *sorted(apart))]
        keys = [
            _key(layout, name).alias(names[name] if name in apart else name) for name in identity
        ]
        grouped = rows.frame.groupBy(*keys)
        base = grouped.agg(*firsts) if firsts else rows.frame.select(*identity).distinct()
        base = base.select(
            *(F.col(name).alias(name) for name in (*identity, *details)),
            *(F.col(new if name in apart else name).alias(new) for name, new in names.items()),
        )
    else:
        base = rows.frame.limit(1).select()
    started = Found(frame=base, variables=frozenset(known))
    return match(reading, block, started), names


def _key(layout: Layout, name: str) -> Column:
    """What rows are told apart by. Spark takes 0.0 for -0.0, but a block may say which it is."""
    return F.col(name).cast("string") if name in layout.float_rows() else F.col(name)


def _back(layout: Layout, names: dict[str, str]) -> Column:
    if not names:
        return F.lit(True)  # noqa: FBT003  (a value)
    return all_of([_key(layout, name).eqNullSafe(F.col(new)) for name, new in names.items()])


def _without(reading: Reading, rows: Found, negation: ir.Negation) -> Found:
    found, names = _inner(reading, rows, negation.block, negation.outer)
    hits = _hits(reading, found, names)
    return rows.with_frame(rows.frame.join(hits, _back(reading.layout, names), "left_anti"))


def _hits(reading: Reading, found: Found, names: dict[str, str]) -> DataFrame:
    if names:
        return found.frame.select(*names.values()).distinct()
    return found.frame.limit(1).select(F.lit(1).alias(reading.fresh("hit")))


def _extended(reading: Reading, rows: Found, optional: ir.Optional) -> Found:
    layout = reading.layout
    found, names = _inner(reading, rows, optional.block, optional.outer)
    columns = layout.columns(optional.introduces)
    some = found.frame.select(
        *(F.col(name) for name in names.values()), *(F.col(name) for name in columns)
    )
    frame = rows.frame.join(some, _back(reading.layout, names), "left").drop(*names.values())
    return rows.with_frame(frame, *optional.introduces)


def _block_value(reading: Reading, rows: Found, value: ir.BlockValue) -> Found:
    """The rows with whether, or how often, a block matches for each."""
    found, names = _inner(reading, rows, value.block, value.outer)
    column = reading.fresh("block")
    if names:
        counts = found.frame.groupBy(*names.values()).agg(F.count(F.lit(1)).alias(column))
    else:
        counts = found.frame.agg(F.count(F.lit(1)).alias(column))
    frame = rows.frame.join(counts, _back(reading.layout, names), "left").drop(*names.values())
    total = F.coalesce(F.col(column), F.lit(0).cast("bigint"))
    frame = frame.withColumn(column, total > 0 if value.word == "exists" else total)
    return Found(frame=frame, variables=rows.variables, made={**rows.made, value: column})
