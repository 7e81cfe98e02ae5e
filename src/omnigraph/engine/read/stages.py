"""The stages of a query: each matches, and makes groups, columns and an order of the rows.

A stage begins with the rows of the one before: entities by their positions, and one more number a
row by which the columns are found that were made there. After the match come groups or distinct
rows, order, offset and limit, and the columns. Sort keys are evaluated as late as possible: the
first for all rows, the others only for rows that the keys before them leave tied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final

import numpy as np
from msgspec.structs import replace

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, as_mask, int64_array, pa
from omnigraph.engine.expr.evaluate import (
    Constants,
    Rows,
    cast_to,
    evaluate,
    holding,
    needs_whole,
)
from omnigraph.engine.expr.order import (
    Key,
    Piece,
    Window,
    order_rows,
    row_keys,
)
from omnigraph.engine.read.context import Run, sort_keys
from omnigraph.engine.read.group import Groups, grouped
from omnigraph.engine.read.match.candidates import with_pushed_scan
from omnigraph.engine.read.match.match import NO_VARIABLES, match
from omnigraph.engine.read.match.relation import EACH_GIVEN, WHOLE_MATCH, MatchedRows, Relation
from omnigraph.engine.read.match.walk import last_hop, only_counted
from omnigraph.engine.read.memory.arrays import NO_POSITIONS, Positions
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.search.fusion import FUSED_ROWS_MIN, first_fused
from omnigraph.engine.read.search.search import nearest_positions, relevant
from omnigraph.engine.read.stream import streamed
from omnigraph.errors import InputError
from omnigraph.results.rows import QueryResult, slices_of
from omnigraph.storage.lance.columns import value_type

RANKED_SHARE: Final = 8  # fewer than this part of all entities are sorted by themselves
ASCENDING_SHARE: Final = 64  # for fewer it does not pay to look whether all ids ascend
ALIKE_ROWS_MAX: Final = 1024  # of so few rows it is seen at once that one entity is in all of them
SCHEMAS_KNOWN_MAX: Final = 1_024
PROJECTED_ROWS_MAX: Final = 4096  # of more rows, columns are made batch by batch


def answered(run: Run, plan: ir.ReadPlan, outer: Relation = NO_VARIABLES) -> QueryResult:
    """The rows of a query without unions; `outer` are rows that its first match begins with."""
    for number, stage in enumerate(plan.before, 1):
        with run.trace.step("with", f"stage {number}") as step:
            outer = _Stage(run, stage, outer).handed_on()
            step.rows = outer.count
    return _Answer(run, plan, outer).result()


def window_of(constants: Constants, plan: ir.Stage | ir.UnionPlan) -> Window:
    """Which of all rows, in their order, are shown."""
    return Window(
        offset=_count(constants, plan.offset, "offset") or 0,
        limit=_count(constants, plan.limit, "limit"),
    )


def unordered(plan: ir.Stage) -> ir.Stage:
    """The same for whoever takes all rows, in any order; ranks still leave rows out."""
    if plan.limit is not None or plan.offset is not None:
        return plan
    if any(ordering.rank for ordering in plan.orderings):
        return plan
    return replace(plan, orderings=(), tie_break=())


class _Stage:
    """The steps of one stage: match, group, order, offset, limit."""

    def __init__(self, run: Run, plan: ir.Stage, outer: Relation) -> None:
        self._run = run
        self._plan = plan
        self._outer = outer
        self._shown = [projection.expr for projection in plan.projections]
        self._window = window_of(run.constants, plan)

    def handed_on(self) -> Relation:
        """The rows that the next stage begins with."""
        plan, run = self._plan, self._run
        kinds = [value_type(expr.type) for expr in self._shown]
        if self._window.limit == 0:
            carried = Relation(0, {item.var: NO_POSITIONS for item in plan.carries})
            columns = [pa.nulls(0, kind) for kind in kinds]
        elif plan.grouping is not None:
            groups = self._ordered_groups(self._groups(plan.grouping))
            carried = Relation(
                groups.count, {item.var: _positions(groups, item) for item in plan.carries}
            )
            columns = [groups.values(expr) for expr in self._shown]
        else:
            relation = self._rows()
            carried = relation.only([item.var for item in plan.carries])
            rows = MatchedRows(run, relation)
            columns = [rows.values(expr) for expr in self._shown]
        if not columns:
            return carried
        run.budget.reserve(carried.count, len(columns) + len(plan.carries))
        names = [projection.name for projection in plan.projections]
        values = [cast_to(array, kind) for array, kind in zip(columns, kinds, strict=True)]
        run.rows[plan.row] = dict(zip(names, values, strict=True))
        return carried.numbered(plan.row)

    @property
    def _first(self) -> bool:
        """Whether no stage came before."""
        return self._outer is NO_VARIABLES

    def _rows(self) -> Relation:
        """The rows of a stage without groups, in order if that matters to anybody."""
        run, plan = self._run, self._plan
        if plan.row:
            plan = unordered(plan)
        with run.trace.step("match") as step:
            cut = _cut_before_walk(run, plan, self._window.wanted) if self._first else None
            if cut is None:
                block = with_pushed_scan(run, plan, self._window) if self._first else plan.match
                outer = self._outer.numbered(EACH_GIVEN) if plan.each_by else self._outer
                relation = match(run, block, outer)
            else:
                relation = cut
            step.rows = relation.count
        if plan.row and not plan.orderings and not plan.tie_break:
            return relation
        with run.trace.step("order") as step:
            if cut is None:
                wanted = None if plan.each_by else self._window.wanted
                relation = _with_fusions(run, plan, relation, wanted)
            relation = _ordered(run, plan, relation, self._window)
            step.rows = relation.count
        return relation

    def _groups(self, grouping: ir.Grouping) -> Groups:
        run, plan = self._run, self._plan
        counted = only_counted(plan, run.variables) if self._first else None
        found = None if counted or not self._first else streamed(run, plan, grouping)
        if found is not None:
            return found
        with run.trace.step("match") as step:
            relation = match(run, counted.block if counted else plan.match, self._outer)
            step.rows = relation.count
        weights = None
        if counted is not None:
            with run.trace.step("count", f"neighbours of ${counted.near}") as step:
                relation, weights = counted.weigh(run, relation)
                step.rows = relation.count
        if grouping.row_order:
            relation = _by_itself(run, relation, grouping.row_order)
        with run.trace.step("group" if plan.grouping else "distinct") as step:
            groups = grouped(run, grouping, relation, weights)
            step.rows = groups.count
        return groups

    def _ordered_groups(self, groups: Groups) -> Groups:
        """The groups that stay, in order if that matters to anybody."""
        run, plan = self._run, self._plan
        if plan.grouping is not None and plan.grouping.having is not None:
            with run.trace.step("having") as step:
                groups = groups.at(np.flatnonzero(holding([plan.grouping.having], groups)))
                step.rows = groups.count
        if plan.row:
            plan = unordered(plan)
        if not plan.orderings and not plan.tie_break and self._window.whole:
            return groups
        with run.trace.step("order") as step:
            keys = [_key(groups, expr, descending=down) for expr, down in sort_keys(plan)]
            shown = groups.at(order_rows(keys, groups.count, self._window))
            step.rows = shown.count
        return shown


def _positions(groups: Groups, item: ir.Carried) -> Positions:
    """Where the entities of the groups are, -1 for none."""
    assert item.key is not None, "what a group hands on is one of its keys"
    return np.asarray(groups.key(item.key).fill_null(-1), dtype=np.int64)


class _Answer(_Stage):
    """The last stage, whose columns are the result."""

    def __init__(self, run: Run, plan: ir.ReadPlan, outer: Relation) -> None:
        super().__init__(run, plan, outer)
        self._schema = result_schema(plan.columns)

    def result(self) -> QueryResult:
        plan = self._plan
        if self._window.limit == 0:
            return self._made([pa.nulls(0, kind) for kind in self._schema.types])
        if plan.grouping is not None:
            groups = self._ordered_groups(self._groups(plan.grouping))
            return self._made([groups.values(expr) for expr in self._shown])
        if plan.distinct:
            grouping = ir.Grouping(keys=tuple(self._shown), aggregates=())
            return self._distinct(self._groups(grouping))
        return self._streamed(self._rows())

    def _streamed(self, relation: Relation) -> QueryResult:
        """Projections are made when they are asked for, unless a rank needs to see all rows."""
        if relation.count <= PROJECTED_ROWS_MAX or any(map(needs_whole, self._shown)):
            with self._run.trace.step("project") as step:
                step.rows = relation.count
                return self._made(self._projected(relation))
        return self._shown_by(
            relation.count,
            lambda first, last: self._fitted(self._projected(relation.slice(first, last))),
        )

    def _projected(self, relation: Relation) -> list[Array]:
        rows = MatchedRows(self._run, relation)
        return [rows.values(expr) for expr in self._shown]

    def _distinct(self, groups: Groups) -> QueryResult:
        places = [(place, False) for place in range(len(self._shown))]
        for ordering in reversed(self._plan.orderings):
            assert ordering.column is not None, "under distinct every ordering is a column"
            places.insert(0, (ordering.column, ordering.descending))
            if ordering.rank:  # what has no score is left out
                groups = groups.at(np.flatnonzero(as_mask(groups.key(ordering.column).is_valid())))
        keys = [
            Key(partial(groups.key, place), partial(_key_at, groups, place), descending)
            for place, descending in places
        ]
        shown = groups.at(order_rows(keys, groups.count, self._window))
        return self._made([shown.key(place) for place in range(len(self._shown))])

    def _made(self, columns: Sequence[Array]) -> QueryResult:
        fitted = self._fitted(columns)
        return self._shown_by(len(fitted[0]), slices_of(fitted))

    def _fitted(self, columns: Sequence[Array]) -> list[Array]:
        """The columns, cast to the schema where an expression gave a narrower type."""
        return [
            column if column.type == kind else column.cast(kind)
            for column, kind in zip(columns, self._schema.types, strict=True)
        ]

    def _shown_by(self, count: int, make: Callable[[int, int], Sequence[Array]]) -> QueryResult:
        return QueryResult(
            schema=self._schema,
            row_count=count,
            graph_commit_id=self._run.snapshot.graph_commit_id,
            make=make,
        )


@lru_cache(SCHEMAS_KNOWN_MAX)
def result_schema(columns: tuple[ir.ColumnInfo, ...]) -> pa.Schema:
    """The columns of an answer."""
    return pa.schema(
        [
            pa.field(column.name, value_type(column.type), nullable=column.type.nullable)
            for column in columns
        ]
    )


def _count(constants: Constants, expr: ir.Literal | ir.Param | None, word: str) -> int | None:
    value = None if expr is None else constants.value(expr)
    if value is None:
        return None
    if value < 0:
        raise InputError(f"{word} must be 0 or more, got {value}")
    return int(value)


# --- order -------------------------------------------------------------------------------------


def _ordered(run: Run, plan: ir.Stage, relation: Relation, window: Window) -> Relation:
    """The rows that will be shown, in order."""
    if plan.each_by:
        return _ordered_each(run, plan, relation, window)
    if relation.count < 2 and not plan.orderings:
        return _windowed(relation, window)
    names, values = _told_apart(plan.tie_break)
    # Sorting the ids of few rows costs less than knowing the order of all ids.
    everything = sum(run.rows_of(name).length for name in names)
    plain = not plan.orderings and not values
    if plain and window.wanted is None and relation.count * RANKED_SHARE >= everything:
        return _windowed(_by_id(run, relation, names), window)
    relation = _ranked_only(run, plan.orderings, relation, window.wanted)
    if plain and _in_id_order(run, relation, names):
        return _windowed(relation, window)
    rows = MatchedRows(run, relation)
    keys = [_key(rows, order.expr, descending=order.descending) for order in plan.orderings]
    keys += _row_keys(rows, plan.tie_break)
    if keys and window.wanted is not None and relation.count > ALIKE_ROWS_MAX:
        keys[0] = replace(keys[0], pieces=_pieces(rows, sort_keys(plan)[0][0]))
    return relation.take(order_rows(keys, relation.count, window))


def _ordered_each(run: Run, plan: ir.Stage, relation: Relation, window: Window) -> Relation:
    """The same, of each row of the stage before by itself: as many as the window shows of every
    one, in the order of those rows."""
    relation = _ranked_only(run, plan.orderings, relation, None)
    rows = MatchedRows(run, relation)
    keys = [
        *_row_keys(rows, plan.each_by),
        Key.of(int64_array(relation[EACH_GIVEN]), descending=False),
    ]
    keys += [_key(rows, order.expr, descending=order.descending) for order in plan.orderings]
    relation = relation.take(
        order_rows([*keys, *_row_keys(rows, plan.tie_break)], relation.count, Window())
    )
    given = relation[EACH_GIVEN]
    first = np.flatnonzero(np.append(True, given[1:] != given[:-1]))[: len(given)]
    place = np.arange(len(given)) - np.repeat(first, np.diff(first, append=len(given)))
    shown = place >= window.offset
    if window.limit is not None:
        shown &= place < window.offset + window.limit
    return relation.where(shown)


def _told_apart(tie_break: Sequence[ir.Expr]) -> tuple[list[str], list[ir.Expr]]:
    """The variables whose ids order rows, and what else does."""
    names = [key.var for key in tie_break if isinstance(key, ir.IdRef)]
    return names, [key for key in tie_break if not isinstance(key, ir.IdRef)]


def _row_keys(rows: MatchedRows, order: Sequence[ir.Expr]) -> list[Key]:
    keys: list[Key] = []
    for expr in order:
        ids = isinstance(expr, ir.IdRef)
        keys += _id_keys(rows, expr) if ids else [_key(rows, expr, descending=False)]
    return keys


def _by_itself(run: Run, relation: Relation, order: Sequence[ir.Expr]) -> Relation:
    """All rows in the order that they have by themselves."""
    names, values = _told_apart(order)
    if not values:
        return _by_id(run, relation, names)
    keys = _row_keys(MatchedRows(run, relation), order)
    return relation.take(order_rows(keys, relation.count, Window()))


def _windowed(relation: Relation, window: Window) -> Relation:
    if window.whole:
        return relation
    shown = window.of(relation.count)
    return relation.slice(shown.start, min(shown.stop, relation.count))


def _key(rows: Rows, expr: ir.Expr, *, descending: bool) -> Key:
    return Key(
        partial(rows.values, expr), lambda numbers: rows.at(numbers).values(expr), descending
    )


def _key_at(groups: Groups, place: int, numbers: Positions) -> Array:
    return groups.at(numbers).key(place)


def _pieces(rows: MatchedRows, expr: ir.Expr) -> list[Piece]:
    """The rows of a stored column chunk by chunk, where they are a selection of its table."""
    if not isinstance(expr, ir.PropertyRef | ir.IdRef):
        return []
    run, relation = rows.run, rows.relation
    selection = relation.selected(expr.var)
    if selection is None or len(selection.parts) < 2:
        return []
    name = "id" if isinstance(expr, ir.IdRef) else run.stored(expr.var, expr.prop)
    column = run.frame_of(expr.var).held(name, relation.count)
    if column is None:
        return []
    return [
        Piece(part.count, partial(part.of, column), partial(column.bounds, part.number))
        for part in selection.parts
    ]


def _id_keys(rows: MatchedRows, expr: ir.Expr) -> list[Key]:
    """The ids of a variable; their positions instead, where these have the same order. Of an open
    one the types decide between equal ids: the positions of one type are before those of others."""
    assert isinstance(expr, ir.IdRef), "rows that are not grouped are told apart by ids"
    var, run = expr.var, rows.run
    if 0 < rows.count <= ALIKE_ROWS_MAX:
        positions = rows.relation[var]
        if (positions == positions[0]).all():  # as behind a lookup: nothing to order
            return []
    if run.variables[var].is_open:
        positions = int64_array(rows.relation[var])
        return [_key(rows, expr, descending=False), Key.of(positions, descending=False)]

    def values(some: MatchedRows) -> Array:
        # Position -1 is null, and comes first as it should.
        ascend = _ids_ascend(run, some.relation, var)
        return int64_array(some.relation[var]) if ascend else some.values(expr)

    return [Key(lambda: values(rows), lambda numbers: values(rows.at(numbers)), descending=False)]


def _ids_ascend(run: Run, relation: Relation, var: str) -> bool:
    """Whether the order of ids is that of positions, if it pays to know."""
    frame = run.frame_of(var)
    share = ASCENDING_SHARE if frame.is_hot("id") else RANKED_SHARE
    return relation.count * share >= frame.length and frame.ids_ascend()


def _in_id_order(run: Run, relation: Relation, names: Sequence[str]) -> bool:
    """Whether the rows are known to be in the order of their ids already."""
    if len(names) != 1 or run.variables[names[0]].is_open:
        return not names
    ascending = relation.selected(names[0]) is not None
    return ascending and _ids_ascend(run, relation, names[0])


def _with_fusions(run: Run, plan: ir.Stage, relation: Relation, wanted: int | None) -> Relation:
    """Fused ranks look at all rows, so they are computed before any row goes away."""
    fusions = plan.fusions
    if not fusions:
        return relation
    only = _only_fusion(plan)
    if wanted is not None and only is not None:
        narrowed = _first_fused(run, only, relation, wanted)
        if narrowed is not None:
            return narrowed
    rows = MatchedRows(run, relation)
    for expr in fusions:
        run.fused[expr] = rows.search(expr)
    return relation.numbered(WHOLE_MATCH)


def _only_fusion(plan: ir.Stage) -> ir.Rrf | None:
    """What rows are ordered by first, the best in front, if that is a fused rank and there is no
    other."""
    first = plan.orderings[0] if plan.orderings else None
    if first is None or not first.rank or not first.descending:
        return None
    if not isinstance(first.expr, ir.Rrf):
        return None
    return first.expr if plan.fusions == {first.expr} else None


def _cut_before_walk(run: Run, plan: ir.Stage, wanted: int | None) -> Relation | None:
    """The rows of a match with one walk from the entities that a fused rank orders, walked only
    from those that may be among the first; None where that cannot be told before."""
    expr = _only_fusion(plan)
    if expr is None or wanted is None or run.variables[expr.first.field.var].is_open:
        return None
    var = expr.first.field.var
    hop = last_hop(plan.match, var, run.variables)
    if hop is None:
        return None
    # Ranks are those among the entities of the match: all that the walk leads on from.
    near, counts = hop.weigh(run, match(run, hop.block))
    if int(counts.sum()) < FUSED_ROWS_MIN:
        return None
    values = partial(evaluate, rows=MatchedRows(run, near))
    found = first_fused(run, expr, np.sort(near[var]), wanted, values)
    if found is None:
        return None
    others = tuple(one for one in plan.match.bindings if one.var != var)
    start = Relation(len(found.positions), {var: found.positions})
    relation = match(run, replace(plan.match, bindings=others), start)
    run.fused[expr] = found.at(relation[var])
    return relation.numbered(WHOLE_MATCH)


def _first_fused(run: Run, expr: ir.Rrf, relation: Relation, wanted: int) -> Relation | None:
    """The rows of the entities that may be among the first; every entity has a row at least."""
    if relation.count < FUSED_ROWS_MIN:
        return None
    var = expr.first.field.var
    size = run.frame_of(var).length
    held = np.zeros(size + 1, dtype=np.bool_)  # the last cell stands for -1
    held[relation[var]] = True
    values = partial(evaluate, rows=MatchedRows(run, relation))
    found = first_fused(run, expr, np.flatnonzero(held[:size]), wanted, values)
    if found is None:
        return None
    narrowed = relation.among(var, found.positions, size)
    run.fused[expr] = found.at(narrowed[var])
    return narrowed.numbered(WHOLE_MATCH)


def _ranked_only(
    run: Run, orderings: Sequence[ir.Ordering], relation: Relation, wanted: int | None
) -> Relation:
    """Without the rows that a search rank leaves out."""
    for place, ordering in enumerate(orderings):
        if not ordering.rank:
            continue
        nearest_first = place == 0 and not ordering.descending
        if nearest_first and isinstance(ordering.expr, ir.Nearest) and wanted is not None:
            relation = _nearest_only(run, ordering.expr, relation, wanted)
        if isinstance(ordering.expr, ir.Bm25):
            var, found = ordering.expr.field.var, relevant(run, ordering.expr)
            if found is not None:
                relation = relation.among(var, found, run.frame_of(var).length)
                continue
        scored = MatchedRows(run, relation).values(ordering.expr).is_valid()
        relation = relation.where(as_mask(scored))
    return relation


def _nearest_only(run: Run, expr: ir.Nearest, relation: Relation, wanted: int) -> Relation:
    """Without the rows that cannot be among the nearest ones."""
    var = expr.field.var
    chosen = relation.selected(var)
    found = nearest_positions(run, expr, relation[var] if chosen is None else chosen, wanted)
    return relation if found is None else relation.among(var, found, run.frame_of(var).length)


def _by_id(run: Run, relation: Relation, names: Sequence[str]) -> Relation:
    """All rows, by the ids of their variables: the first of them are what a limit would show."""
    if relation.count < 2 or _in_id_order(run, relation, names):
        return relation
    if len(names) == 1:
        selection = relation.selected(names[0])
        if selection is not None and selection.everything:
            order = run.frame_of(names[0]).id_order()
            return relation.take(order.astype(np.int64))
    if any(run.variables[var].is_open for var in names):
        rows = MatchedRows(run, relation)
        by = [key for var in names for key in _id_keys(rows, ir.IdRef(var=var))]
        return relation.take(order_rows(by, relation.count, Window()))
    keys = [_id_numbers(run.frame_of(var), relation[var]) for var in names]
    combined = row_keys([numbers + 1 for numbers in keys])
    if (combined[1:] >= combined[:-1]).all():
        return relation
    key = Key.of(int64_array(combined), descending=False)
    return relation.take(order_rows([key], relation.count, Window()))


def _id_numbers(frame: Frame, positions: Positions) -> Positions:
    """Numbers in the order of the ids; null is -1."""
    if frame.ids_ascend():
        return positions
    return np.append(frame.id_ranks(), -1)[positions]  # the last cell stands for -1
