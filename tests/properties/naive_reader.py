"""A slow and obvious evaluator of read plans: loops over everything, no arrays, no joins.

It shares the IR with the engine and nothing else. Values are Python's: those of an F32 property are
floats that 32 bits can hold. `Overflow` stands for the error that a user would see.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from fractions import Fraction
from typing import Any

from msgspec.structs import replace
from naive_functions import Overflow, called
from naive_paths import name_of, path, reached
from naive_paths import steps as steps_of
from naive_search import searched

from omnigraph.compiler.query import ir
from omnigraph.compiler.query.functions import FUNCTIONS
from omnigraph.model.schema import FLOATS, INTEGERS, Scalar

Entity = dict[str, Any]
_GIVEN = "#given"  # which row of the stage before a match goes on from


class _Group:
    """What an expression over groups sees."""

    def __init__(self, keys, made):
        self.keys, self.made = keys, made


class Naive:
    """`nodes[T]` and `edges[E]` are lists of dictionaries with `id` (and `src`, `dst`)."""

    def __init__(self, nodes, edges, params, now_ms=0, ends=None):
        self.ends = ends or {}  # of edge types: only where nodes of two types may share an id
        self.nodes, self.edges = nodes, edges
        self.params, self.now_ms = params, now_ms
        self.variables: Any = {}
        self.matched: list[Any] = []  # the rows of the stage: fused ranks look at all of them

    # --- match ---

    def block(self, block: ir.MatchBlock, env):
        for found in self._bound(list(block.bindings), dict(env)):
            for walked in self._walked(list(block.traversals), found):
                for row in self._unwound(list(block.unwinds), walked):
                    if all(self.value(f.expr, row) is True for f in block.filters):
                        yield from self._optional(block, list(block.optionals), row)

    def _bound(self, bindings, env):
        if not bindings:
            yield env
            return
        first, *rest = bindings
        for node in self._of_types(first.types):
            with_it = {**env, first.var: node}
            if all(self.value(c, with_it) is True for c in first.conditions):
                yield from self._bound(rest, with_it)

    def _of_types(self, types):
        return [{**node, "#type": kind} for kind in types for node in self.nodes[kind]]

    def _walked(self, steps, env):
        if not steps:
            yield env
            return
        first, *rest = steps
        if first.src not in env or first.dst not in env:  # wildcards that have no binding
            missing = first.src if first.src not in env else first.dst
            for node in self._of_types(self.variables[missing].types):
                yield from self._walked(steps, {**env, missing: node})
            return
        if env[first.src] is None or env[first.dst] is None:
            return
        a, b = name_of(env[first.src]), name_of(env[first.dst])
        if first.edge_var is not None:
            for leg in first.legs:
                for one, edge, other in steps_of(self, [leg], undirected=first.undirected):
                    if (one, other) == (a, b):
                        with_it = {**env, first.edge_var: {**edge, "#type": leg.edge_type}}
                        if all(self.value(c, with_it) is True for c in first.edge_conditions):
                            yield from self._walked(rest, with_it)
        elif b in reached(self, first, a):
            yield from self._walked(rest, env)

    def _unwound(self, unwinds, env):
        if not unwinds:
            yield env
            return
        ready = [one for one in unwinds if one.variables <= env.keys()]
        rest = [one for one in unwinds if one is not ready[0]]
        items = ready[0].items
        record = isinstance(items, ir.RecordParam)
        found = self.params[items.name] if record else self.value(items, env)
        for place, item in enumerate(found or ()):
            row = {**(item if record else {"": item}), ir.PLACE: place}
            yield from self._unwound(rest, {**env, ready[0].var: row})

    def _optional(self, block, optionals, env):
        if not optionals:
            if all(self.value(f.expr, env) is True for f in block.late_filters) and all(
                not any(True for _ in self.block(n.block, env)) for n in block.negations
            ):
                yield env
            return
        first, *rest = optionals
        matches = list(self.block(first.block, env))
        for found in matches or [{**env, **dict.fromkeys(first.introduces)}]:
            yield from self._optional(block, rest, found)

    # --- expressions ---

    def value(self, expr, env) -> Any:
        match expr:
            case ir.Literal():
                return expr.value
            case ir.Param():
                return self.params[expr.name]
            case ir.Now():
                return self.now_ms
            case ir.PropertyRef():
                return None if env[expr.var] is None else env[expr.var].get(expr.prop)
            case ir.IdRef():
                return None if env[expr.var] is None else env[expr.var]["id"]
            case ir.RowRef():
                return None if env[expr.var] is None else env[expr.var][expr.column]
            case ir.Position():
                return None if env[expr.var] is None else repr(name_of(env[expr.var]))
            case ir.EndpointRef():
                return None if env[expr.var] is None else env[expr.var][expr.side]
            case ir.TypeRef():
                return None if env[expr.var] is None else env[expr.var]["#type"]
            case ir.PathPart():
                return self._path(expr, env)
            case ir.Compare():
                left, right = self.value(expr.left, env), self.value(expr.right, env)
                left, right = (
                    _beside(left, expr.left, expr.right),
                    _beside(right, expr.right, expr.left),
                )
                return _compared(expr.op, left, right)
            case ir.And():
                parts = [self.value(item, env) for item in expr.items]
                return False if False in parts else (None if None in parts else True)
            case ir.Or():
                parts = [self.value(item, env) for item in expr.items]
                return True if True in parts else (None if None in parts else False)
            case ir.Not():
                inner = self.value(expr.item, env)
                return None if inner is None else not inner
            case ir.IsNull():
                return (self.value(expr.item, env) is None) != expr.negated
            case ir.InList():
                needle, options = self.value(expr.needle, env), self.value(expr.options, env)
                if needle is None or options is None:
                    return None
                options = [_beside(one, expr.options, expr.needle) for one in options]
                return any(one is not None and one == needle for one in options)
            case ir.ListContains():
                items, needle = self.value(expr.items, env), self.value(expr.needle, env)
                if items is None or needle is None:
                    return None
                return any(one == _beside(needle, expr.needle, expr.items) for one in items)
            case ir.TextContains():
                text, part = self.value(expr.text, env), self.value(expr.part, env)
                return None if text is None or part is None else part in text
            case ir.StartsWith():
                text, part = self.value(expr.text, env), self.value(expr.prefix, env)
                return None if text is None or part is None else text.startswith(part)
            case ir.Arithmetic():
                return _calculated(expr, self.value(expr.left, env), self.value(expr.right, env))
            case ir.FunctionCall():
                kinds = [arg.type.scalar.value for arg in expr.args]
                given = [self.value(arg, env) for arg in expr.args]
                if FUNCTIONS[expr.name].result == "common" and expr.type.scalar in FLOATS:
                    given = [_as_float(one) for one in given]
                return called(expr.name, given, kinds)
            case ir.Case():
                for condition, value in expr.whens:
                    if self.value(condition, env) is True:
                        return self._branch(expr, value, env)
                return self._branch(expr, expr.otherwise, env)
            case ir.KeyRef():
                return env.keys[expr.index]
            case ir.AggregateRef():
                return env.made[expr.index]
            case ir.Degree():
                return self._degree(expr, env)
            case ir.BlockValue():
                found = sum(1 for _ in self.block(expr.block, env))
                return found > 0 if expr.word == "exists" else found
            case _:
                return searched(self, expr, env)

    def _branch(self, expr, value, env):
        found = self.value(value, env)
        return _as_float(found) if expr.type.scalar in FLOATS else found

    def _path(self, expr, env):
        ends = env[expr.way.src], env[expr.way.dst]
        found = None if None in ends else path(self, expr.way, *map(name_of, ends))
        if found is None:
            return None
        return len(found[1]) if expr.part == "length" else found[expr.part == "edges"]

    def _degree(self, expr, env):
        if env[expr.var] is None:
            return None
        kind, node = name_of(env[expr.var])
        ends, found = self.ends.get(expr.edge_type, (kind, kind)), 0
        for edge in self.edges[expr.edge_type]:
            out = (kind, node) == (ends[0], edge["src"]) and expr.direction in ("out", "both")
            into = (kind, node) == (ends[1], edge["dst"]) and expr.direction in ("in", "both")
            found += out or into
        return found

    # --- the rest of a plan ---

    def run(self, plan: ir.QueryPlan) -> list[tuple[Any, ...]]:
        """Rows as tuples, in order: by the orderings, then by ids (groups by their keys)."""
        if isinstance(plan, ir.UnionPlan):
            return self._united(plan)
        self.variables = plan.variables
        envs = [{}]
        for stage in plan.before:
            envs = [self._handed_on(stage, row) for row in self._rows(stage, envs)]
        return [row[0] for row in self._rows(plan, envs)]

    def _united(self, plan: ir.UnionPlan) -> list[tuple[Any, ...]]:
        if plan.limit is not None and self.value(plan.limit, {}) == 0:
            return []  # nothing is looked at
        found: list[tuple[Any, ...]] = []
        for part, keeps in zip(plan.parts, (True, *plan.keeps), strict=True):
            for row in self.run(part):
                typed = zip(row, plan.columns, strict=True)
                found.append(
                    tuple(_as_float(v) if c.type.scalar in FLOATS else v for v, c in typed)
                )
            if not keeps:
                found = list({_same(row): row for row in reversed(found)}.values())
        rows = [(row, [row[o.column] for o in plan.orderings], list(row)) for row in found]
        return [row[0] for row in self._windowed(plan, rows)]

    def _handed_on(self, stage, row):
        """What the next stage begins with."""
        shown, _, _, env = row
        columns = {p.name: value for p, value in zip(stage.projections, shown, strict=True)}
        return {**{item.var: env[item.var] for item in stage.carries}, stage.row: columns}

    def _rows(self, plan, outer):
        """The rows of a stage: values, sort keys, what breaks ties, and one match behind them."""
        if plan.limit is not None and self.value(plan.limit, {}) == 0:
            return []  # nothing is looked at
        given = [{**env, _GIVEN: number} for number, env in enumerate(outer)]
        envs = [found for env in given for found in self.block(plan.match, env)]
        self.matched = envs
        if plan.row and plan.limit is None and plan.offset is None:
            ranks = tuple(one for one in plan.orderings if one.rank)
            plan = replace(plan, orderings=ranks, tie_break=())
        if plan.grouping is not None:
            rows = self._grouped(plan, envs)
        else:
            rows = [
                (
                    tuple(self.value(p.expr, env) for p in plan.projections),
                    [self.value(o.expr, env) for o in plan.orderings],
                    [self._identity(t, env) for t in plan.tie_break],
                    env,
                )
                for env in envs
            ]
        if plan.distinct:
            seen: dict[Any, Any] = {}
            for shown, order, _, env in rows:
                seen.setdefault(_same(shown), (shown, order, list(shown), env))
            rows = list(seen.values())
        ranks = [at for at, ordering in enumerate(plan.orderings) if ordering.rank]
        rows = [row for row in rows if all(row[1][at] is not None for at in ranks)]
        return self._windowed(plan, rows)

    def _windowed(self, plan, rows):
        downs = [o.descending for o in plan.orderings]
        rows.sort(key=functools.cmp_to_key(lambda a, b: _order(a, b, downs)))
        offset = self.value(plan.offset, {}) if plan.offset is not None else 0
        limit = self.value(plan.limit, {}) if plan.limit is not None else None
        last = None if limit is None else offset + limit
        if not getattr(plan, "each_by", ()):
            return rows[offset:last]
        each: dict[Any, list[Any]] = {}  # one ranking for each row of the stage before
        for row in rows:
            names = [_weight(self._identity(one, row[3])) for one in plan.each_by]
            each.setdefault(row[3][_GIVEN], []).append((names, row))
        parts = sorted(each.values(), key=lambda part: part[0][0])
        return [row for part in parts for _, row in part[offset:last]]

    def _identity(self, expr, env):
        """What orders rows by themselves: the id, then the type; or a value."""
        if not isinstance(expr, ir.IdRef):
            return self.value(expr, env)
        entity = env[expr.var]
        return None if entity is None else (entity["id"], entity["#type"])

    def _grouped(self, plan, envs):
        groups: dict[str, Any] = {}
        order = plan.grouping.row_order
        envs = sorted(envs, key=lambda env: [_weight(self._identity(one, env)) for one in order])
        for env in envs:
            keys = [self.value(k, env) for k in plan.grouping.keys]
            groups.setdefault(_same(keys), (keys, []))[1].append(env)
        if not plan.grouping.keys and not groups:
            groups[""] = ([], [])
        rows = []
        for keys, members in groups.values():
            made = [self._aggregate(call, members) for call in plan.grouping.aggregates]

            of = functools.partial(self._over, _Group(keys, made))
            if plan.grouping.having is not None and of(plan.grouping.having) is not True:
                continue
            rows.append(
                (
                    tuple(of(p.expr) for p in plan.projections),
                    [of(o.expr) for o in plan.orderings],
                    [of(t) for t in plan.tie_break],
                    members[0] if members else {},
                )
            )
        return rows

    def _over(self, group, expr):
        return self.value(expr, group)

    def _aggregate(self, call, envs):
        if call.arg is None:
            return len(envs)
        values = [v for v in (self.value(call.arg, env) for env in envs) if v is not None]
        if call.distinct:
            first: dict[Any, Any] = {}
            for value in (self.value(call.arg, env) for env in envs):
                if value is not None:
                    first.setdefault(_same(value), value)
            values = list(first.values())
        match call.fn:
            case ir.AggregateFn.COLLECT:
                return values
            case ir.AggregateFn.STDDEV:
                return _deviation([float(one) for one in values])
            case ir.AggregateFn.MEDIAN if values:
                return _percentile([float(one) for one in values], 0.5)
            case ir.AggregateFn.PERCENTILE if values:
                return _percentile([float(one) for one in values], self.value(call.share, {}))
            case ir.AggregateFn.COUNT:
                return len(values)
            case _ if not values:
                return None
            case ir.AggregateFn.SUM:
                total = _total(values)
                return _fitting(total) if isinstance(total, int) else total
            case ir.AggregateFn.AVG:
                return _total(values) / len(values)
            case ir.AggregateFn.MIN:
                return min(values, key=_weight)
            case ir.AggregateFn.MAX:
                return max(values, key=_weight)


def _deviation(values):
    if len(values) < 2:
        return None
    mean = _total(values) / len(values)
    squares = [(one - mean) * (one - mean) for one in values]
    total = _total(squares)
    return math.nan if math.isnan(total) else math.sqrt(total / (len(values) - 1))


def _percentile(values, share):
    values = sorted(values, key=_weight)
    place = share * (len(values) - 1)
    low, high = values[math.floor(place)], values[math.ceil(place)]
    part = place - math.floor(place)
    return low if part == 0 or low == high else low + (high - low) * part


def _compared(op, a, b):
    if a is None or b is None:
        return None
    return {
        ir.CompareOp.EQ: a == b,
        ir.CompareOp.NE: a != b,
        ir.CompareOp.LT: a < b,
        ir.CompareOp.LE: a <= b,
        ir.CompareOp.GT: a > b,
        ir.CompareOp.GE: a >= b,
    }[op]


def _beside(value, expr, other):
    """A float constant beside an F32 property is the nearest F32, if there is one."""
    given = isinstance(value, float) and not ir.variables_of(expr)
    if not given or other.type.scalar is not Scalar.F32 or math.isnan(value):
        return value
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return value


def _as_float(value):
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _calculated(expr, a, b):
    if a is None or b is None:
        return None
    whole = expr.type.scalar in INTEGERS
    a, b = (_fitting(a), _fitting(b)) if whole else (float(a), float(b))
    result = _result(expr.op, a, b)
    return _fitting(result) if whole and result is not None else result


def _result(op, a, b):
    match op:
        case ir.ArithmeticOp.ADD:
            return a + b
        case ir.ArithmeticOp.SUB:
            return a - b
        case ir.ArithmeticOp.MUL:
            return a * b
        case ir.ArithmeticOp.DIV:
            return None if b == 0 else a / b
        case ir.ArithmeticOp.MOD:
            if b == 0:
                return None
            if isinstance(a, float):
                return math.nan if math.isinf(a) or math.isnan(b) else math.fmod(a, b)
            rest = abs(a) % abs(b)
            return -rest if a < 0 else rest


def _fitting(number):
    if not -(2**63) <= number < 2**63:
        raise Overflow
    return number


def _total(values):
    """The exact sum; of floats rounded once, so that it does not depend on rows."""
    if not isinstance(values[0], float):
        return sum(values)
    odd = [value for value in values if not math.isfinite(value)]
    if odd:
        return sum(odd)
    total = sum(map(Fraction, values))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _weight(value):
    """A key that Python sorts as the language does: null, the values, NaN."""
    if value is None:
        return (0,)
    if isinstance(value, list | tuple):
        return (1, [_weight(item) for item in value])
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    return (1, value)


def _same(value):
    """What groups by: NaN is one value, and so is zero."""
    if isinstance(value, list | tuple):
        return tuple(_same(item) for item in value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _order(one, two, downs):
    for a, b, down in itertools.chain(
        zip(one[1], two[1], downs, strict=True),
        zip(one[2], two[2], itertools.repeat(False), strict=False),
    ):
        left, right = _weight(a), _weight(b)
        if left != right:
            less = left < right
            return (1 if less else -1) if down else (-1 if less else 1)
    return 0
