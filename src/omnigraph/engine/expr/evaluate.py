"""Expressions over rows: Arrow arrays in, an Arrow array (or, for constants, a scalar) out.

Logic has three values: a comparison with null is null. Numbers are compared without loss, by their
value, whatever their types. Division and remainder by zero give null; an integer that leaves its 64
bits is an error, never a wrong number. Such an error belongs to rows that every other condition
keeps: `holding` asks the conditions that can fail last.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.compiler.query.functions import FUNCTIONS
from omnigraph.compiler.query.ir import CompareOp
from omnigraph.engine.arrow import Array, DataType, Mask, Values, as_mask, booleans, pa, pc, picked
from omnigraph.engine.expr.compare import by_numbers, compare
from omnigraph.engine.expr.kernels import KERNELS, overflow
from omnigraph.model.schema import INTEGERS, PropertyType, Scalar
from omnigraph.model.values import INTEGER_BOUNDS, calendar_number
from omnigraph.storage.lance.columns import value_type

Constant = ir.Literal | ir.Param | ir.Now
Search = ir.TextMatch | ir.Bm25 | ir.Nearest | ir.Rrf


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """Bound parameters and the one moment that `now()` means in this run."""

    params: Mapping[str, Any]
    now_ms: int
    # By identity: 0.0 and -0.0 are equal expressions, but not the same constant.
    _scalars: dict[int, tuple[ir.Expr, Values]] = msgspec.field(default_factory=dict)

    def scalar(self, expr: Constant) -> Values:
        """The constant as an Arrow scalar, made once for all chunks that it is compared with."""
        known = self._scalars.get(id(expr))
        # The expression is kept beside its value, so that no other one gets its identity; what
        # came from another process has none of ours.
        if known is None or known[0] is not expr:
            known = self._scalars[id(expr)] = (expr, scalar_of(self.value(expr), expr.type))
        return known[1]

    def value(self, expr: ir.Expr) -> Any:
        """The Python value of a literal, a parameter or `now()`."""
        match expr:
            case ir.Literal():
                return expr.value
            case ir.Param():
                return self.params[expr.name]
            case ir.Now():
                return self.now_ms
            case _:
                raise AssertionError(f"no constant: {expr}")


class Rows:
    """The rows that an expression is evaluated over, with the constants of the run.

    Each kind answers what an expression of its place may ask: `MatchedRows` and `Groups` in reads,
    `TableRows` in mutations. The compiler has refused everything else.
    """

    count: int
    constants: Constants

    def value_of(self, var: str, name: str) -> Array:
        """A property, or the `id`, of the entity that the variable holds."""
        raise AssertionError(f"{type(self).__name__} have no ${var}.{name}")

    def endpoint(self, var: str, side: str) -> Array:
        """The id of the node at one side (`src` or `dst`) of the edge that the variable holds."""
        raise AssertionError(f"{type(self).__name__} have no ${var}.{side}")

    def search(self, expr: Search) -> Array:
        raise AssertionError(f"{type(self).__name__} have no {type(expr).__name__}")

    def type_of(self, var: str) -> Array:
        """The name of the type of the entity that an open variable holds."""
        raise AssertionError(f"{type(self).__name__} have no type of ${var}")

    def of_graph(self, expr: ir.Degree | ir.BlockValue | ir.PathPart) -> Array:
        """What the edges around each row tell."""
        raise AssertionError(f"{type(self).__name__} have no {type(expr).__name__}")

    def computed(self, expr: ir.KeyRef | ir.AggregateRef) -> Array:
        """A key or an aggregate of a group."""
        raise AssertionError(f"{type(self).__name__} have no {type(expr).__name__}")

    def of_row(self, expr: ir.RowRef | ir.Position) -> Array:
        """What comes with a row, or where its entity is."""
        raise AssertionError(f"{type(self).__name__} have no {expr.var}")

    def at(self, numbers: npt.NDArray[np.int64]) -> Rows:
        """Only the rows with these numbers."""
        raise AssertionError(f"{type(self).__name__} are not chosen from, asked for {len(numbers)}")

    def values(self, expr: ir.Expr) -> Array:
        """The expression for every row, as an array."""
        return as_column(evaluate(expr, self), self.count)


def is_constant(expr: ir.Expr) -> TypeGuard[Constant]:
    return isinstance(expr, Constant)


def needs_whole(expr: ir.Expr) -> bool:
    """Whether the expression looks beyond its rows: ranks at all rows, others at edges. Such a one
    is evaluated over whole tables, never over a part that storage gave."""
    return ranks(expr) or ir.asks_graph(expr)


def ranks(expr: ir.Expr) -> bool:
    """Whether the value of one row depends on which others there are."""
    return any(isinstance(part, Search) for part in ir.walk(expr))


def conjuncts(conditions: Sequence[ir.Expr]) -> Iterator[ir.Expr]:
    """The conditions with every `and` taken apart: a row stays where all of them are true."""
    for condition in conditions:
        if isinstance(condition, ir.And):
            yield from conjuncts(condition.items)
        else:
            yield condition


def can_fail(expr: ir.Expr) -> bool:
    """Whether evaluation may end in an error: whole numbers may leave their 64 bits, days the
    calendar."""
    return any(map(_fails, ir.walk(expr)))


def _fails(part: ir.Expr) -> bool:
    match part:
        case ir.Arithmetic():
            return part.type.scalar in INTEGERS
        case ir.FunctionCall():
            return FUNCTIONS[part.name].fails and part.type.scalar is not Scalar.F64
        case ir.BlockValue():
            return True  # its conditions may
        case ir.PathPart():
            return part.way.weight is not None  # of which one may be below 0
        case _:
            return False


class Conditions(msgspec.Struct, frozen=True):
    """Conditions with every `and` taken apart, to be asked of many rows. Those that can fail only
    see the rows that the others keep: so a row that storage has left out, or might have, cannot
    raise an error."""

    safe: Sequence[ir.Expr]
    failing: Sequence[ir.Expr]

    @classmethod
    def of(cls, conditions: Sequence[ir.Expr]) -> Conditions:
        safe: list[ir.Expr] = []
        failing: list[ir.Expr] = []
        for part in conjuncts(conditions):
            (failing if can_fail(part) else safe).append(part)
        return cls(safe, failing)

    def true_rows(self, rows: Rows) -> Array:
        """The rows for which all conditions are true, as Arrow's booleans without null."""
        kept: Array | None = None
        if not rows.count:
            return booleans(np.ones(0, dtype=np.bool_))
        for part in self.safe:
            if kept is not None and not kept.true_count:
                return kept
            answer = _true(evaluate(part, rows), rows.count)
            kept = answer if kept is None else pc.and_(kept, answer)
        for part in self.failing:
            at = None if kept is None else np.flatnonzero(as_mask(kept))
            if at is None or len(at) == rows.count:
                kept = _true(evaluate(part, rows), rows.count)
            elif len(at):
                mask = np.zeros(rows.count, dtype=np.bool_)
                mask[at] = as_mask(_true(evaluate(part, rows.at(at)), len(at)))
                kept = booleans(mask)
        return booleans(np.ones(rows.count, dtype=np.bool_)) if kept is None else kept


def holding(conditions: Sequence[ir.Expr], rows: Rows) -> Mask:
    """The rows for which all conditions are true, as numpy's booleans."""
    return as_mask(Conditions.of(conditions).true_rows(rows))


def _true(values: Values, count: int) -> Array:
    """Where a three-valued answer is true: null counts as not true."""
    if isinstance(values, pa.Scalar):
        return booleans(np.full(count, values.as_py() is True))
    return values if not values.null_count else pc.fill_null(values, fill_value=False)


def scalar_of(value: Any, kind: PropertyType) -> Values:
    """A Python value of the IR as an Arrow scalar of its type."""
    arrow = value_type(kind)
    if value is None:
        return pa.scalar(None, arrow)
    if isinstance(value, dt.datetime):
        value = calendar_number(value)
    return pa.scalar(list(value) if isinstance(value, tuple) else value, arrow)


def evaluate(expr: ir.Expr, rows: Rows) -> Values:
    """The value of the expression for every row."""
    match expr:
        case ir.Literal() | ir.Param() | ir.Now():
            return rows.constants.scalar(expr)
        case ir.PropertyRef():
            return rows.value_of(expr.var, expr.prop)
        case ir.IdRef():
            return rows.value_of(expr.var, "id")
        case ir.RowRef() | ir.Position():
            return rows.of_row(expr)
        case ir.EndpointRef():
            return rows.endpoint(expr.var, expr.side)
        case ir.TypeRef():
            return rows.type_of(expr.var)
        case ir.Compare():
            return compare(expr.op, evaluate(expr.left, rows), evaluate(expr.right, rows))
        case ir.And() | ir.Or() | ir.Not() | ir.IsNull():
            return _logic(expr, rows)
        case ir.InList():
            return _in_list(expr, rows)
        case ir.ListContains():
            return _list_contains(evaluate(expr.items, rows), evaluate(expr.needle, rows), rows)
        case ir.TextContains():
            return _text(expr.text, expr.part, rows, pc.match_substring, operator.contains)
        case ir.StartsWith():
            return _text(expr.text, expr.prefix, rows, pc.starts_with, str.startswith)
        case ir.Arithmetic() if not rows.count:
            return pa.nulls(0, value_type(expr.type))  # no row, so no error either
        case ir.Arithmetic():
            return _arithmetic(expr, evaluate(expr.left, rows), evaluate(expr.right, rows))
        case ir.FunctionCall():
            return _call(expr, rows)
        case ir.Case():
            return _case(expr, rows)
        case ir.Degree() | ir.BlockValue() | ir.PathPart():
            return rows.of_graph(expr)
        case ir.TextMatch() | ir.Bm25() | ir.Nearest() | ir.Rrf():
            return rows.search(expr)
        case ir.KeyRef() | ir.AggregateRef():
            return rows.computed(expr)
        case ir.AggregateCall():
            raise AssertionError("aggregates are computed by the grouping")


def as_column(values: Values, count: int) -> Array:
    """The values as an array of `count` rows, constants repeated."""
    if not isinstance(values, pa.Scalar):
        return values
    if not values.is_valid or not count:
        return pa.nulls(count, values.type)
    return pa.repeat(values, count)


def _logic(expr: ir.And | ir.Or | ir.Not | ir.IsNull, rows: Rows) -> Values:
    match expr:
        case ir.Not():
            return pc.invert(evaluate(expr.item, rows))
        case ir.IsNull():
            item = evaluate(expr.item, rows)
            return pc.is_valid(item) if expr.negated else pc.is_null(item)
        case ir.And() | ir.Or():
            name = "and_kleene" if isinstance(expr, ir.And) else "or_kleene"
            answer = evaluate(expr.items[0], rows)
            for item in expr.items[1:]:
                answer = pc.call_function(name, [answer, evaluate(item, rows)])
            return answer


def _in_list(expr: ir.InList, rows: Rows) -> Values:
    needle = evaluate(expr.needle, rows)
    options = rows.constants.value(expr.options)
    nothing = pa.scalar(None, pa.bool_())
    if options is None:
        return nothing if isinstance(needle, pa.Scalar) else pa.nulls(len(needle), pa.bool_())
    element = PropertyType(scalar=expr.options.type.scalar, dimension=expr.options.type.dimension)
    listed = [option for option in options if option is not None]
    if expr.needle.type.scalar in INTEGERS and element.scalar in INTEGERS:
        # What the needle's type cannot hold, the needle cannot be.
        low, high = INTEGER_BOUNDS[expr.needle.type.scalar]
        element = PropertyType(scalar=expr.needle.type.scalar)
        listed = [option for option in listed if low <= option <= high]
    # Arrow looks floats up bit by bit and would tell 0 from -0.
    exact = needle.type == value_type(element) and not pa.types.is_floating(needle.type)
    if exact and not pa.types.is_boolean(needle.type) and not isinstance(needle, pa.Scalar):
        values = pa.array(listed, needle.type)
        return pc.if_else(pc.is_null(needle), nothing, pc.is_in(needle, value_set=values))
    no = pa.scalar(False)  # noqa: FBT003 - a value
    answer: Values = pc.if_else(pc.is_null(needle), nothing, no)
    for option in listed:
        hit = compare(CompareOp.EQ, needle, scalar_of(option, element))
        answer = pc.or_kleene(answer, hit)
    return answer


def _list_contains(items: Values, needle: Values, rows: Rows) -> Values:
    """Membership, row by row: compare every element with its row's needle, then look for a hit."""
    lists = as_column(items, rows.count)
    wanted = as_column(needle, rows.count)
    parents = pc.list_parent_indices(lists)
    hits = compare(CompareOp.EQ, pc.list_flatten(lists), wanted.take(parents))
    found = np.zeros(len(lists), dtype=np.bool_)
    true_at = pc.fill_null(as_column(hits, len(parents)), False)  # noqa: FBT003 - a value
    found[parents.filter(true_at).to_numpy(zero_copy_only=False)] = True
    unknown = pc.or_(pc.is_null(lists), pc.is_null(wanted))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), booleans(found))


def _text(
    text: ir.Expr,
    part: ir.Expr,
    rows: Rows,
    of_column: Callable[..., Values],
    of_one: Callable[[str, str], bool],
) -> Values:
    """A text predicate; when the second side is a constant Arrow does it for the whole column."""
    left, right = evaluate(text, rows), evaluate(part, rows)
    if isinstance(right, pa.Scalar) and not isinstance(left, pa.Scalar):
        if not right.is_valid:
            return pa.nulls(len(left), pa.bool_())
        return of_column(left, pattern=right.as_py())
    pairs = zip(*(as_column(side, rows.count).to_pylist() for side in (left, right)), strict=True)
    return pa.array([None if None in pair else of_one(*pair) for pair in pairs], pa.bool_())


def _call(expr: ir.FunctionCall, rows: Rows) -> Values:
    function, kind = FUNCTIONS[expr.name], value_type(expr.type)
    if not rows.count:
        return pa.nulls(0, kind)  # no row, so no error either
    args = [evaluate(arg, rows) for arg in expr.args]
    alone = all(isinstance(arg, pa.Scalar) for arg in args)
    if function.nulls != "all" and any(isinstance(a, pa.Scalar) and not a.is_valid for a in args):
        return pa.scalar(None, kind) if alone else pa.nulls(rows.count, kind)
    if function.result == "common":
        args = [cast_to(arg, kind) for arg in args]
    return KERNELS[expr.name](*args)


def _case(expr: ir.Case, rows: Rows) -> Values:
    """Branch by branch, each for the rows that are left; what can fail must not see the others."""
    target = value_type(expr.type)
    left = np.arange(rows.count, dtype=np.int64)
    found: list[Array] = []
    places: list[npt.NDArray[np.int64]] = []

    def take(value: ir.Expr, at: npt.NDArray[np.int64]) -> None:
        if len(at):
            some = rows if len(at) == rows.count else rows.at(at)
            found.append(as_column(cast_to(evaluate(value, some), target), some.count))
            places.append(at)

    for condition, value in expr.whens:
        if not len(left):
            break
        some = rows if len(left) == rows.count else rows.at(left)
        true = as_mask(_true(evaluate(condition, some), some.count))
        take(value, left[true])
        left = left[~true]
    take(expr.otherwise, left)
    if len(found) < 2:
        return found[0] if found else pa.nulls(0, target)
    order = np.argsort(np.concatenate(places), kind="stable")
    return picked(pa.concat_arrays(found), order)


def cast_to(values: Values, target: DataType) -> Values:
    """The values as those of a type that holds them."""
    if isinstance(values, pa.Scalar) and not values.is_valid:
        return pa.scalar(None, target)  # the literal null is of no type
    # A whole number beyond 2^53 becomes the nearest float; all others keep their value.
    return pc.cast(values, target, safe=pa.types.is_integer(target))


_CHECKED: Final = {
    ir.ArithmeticOp.ADD: "add_checked",
    ir.ArithmeticOp.SUB: "subtract_checked",
    ir.ArithmeticOp.MUL: "multiply_checked",
}


def _arithmetic(expr: ir.Arithmetic, left: Values, right: Values) -> Values:
    target = value_type(expr.type)
    try:
        left, right = cast_to(left, target), cast_to(right, target)
        if expr.op in _CHECKED:
            return pc.call_function(_CHECKED[expr.op], [left, right])
        # A zero divisor gives null, and so does everything that touches null.
        zero = pc.equal(right, pa.scalar(0, target))
        right = pc.if_else(zero, pa.scalar(None, target), right)
        if expr.op is ir.ArithmeticOp.DIV:
            return pc.divide(left, right)
        return _remainder(left, right, target)
    except pa.ArrowInvalid as cause:
        raise overflow(expr.op.value, expr.type.scalar.value) from cause


def _remainder(left: Values, right: Values, target: DataType) -> Values:
    """left - trunc(left / right) * right: the sign of the left side, as in SQL."""
    if pa.types.is_integer(target):
        safe = pc.if_else(pc.equal(right, pa.scalar(-1, target)), pa.scalar(1, target), right)
        return pc.subtract(left, pc.multiply(pc.divide(left, safe), safe))
    with np.errstate(invalid="ignore"):
        return by_numbers(np.fmod, left, right)
