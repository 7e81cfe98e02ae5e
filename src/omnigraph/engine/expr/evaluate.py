"""Expressions over rows: Arrow arrays in, an Arrow array (or, for constants, a scalar) out.

Logic has three values: a comparison with null is null. Division and remainder by zero give null;
an integer that leaves its 64 bits is an error, never a wrong number. Such an error belongs to rows
that every other condition keeps: `holding` asks the conditions that can fail last.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, DataType, Values, pa, pc
from omnigraph.engine.expr.compare import compare
from omnigraph.engine.expr.functions import call
from omnigraph.errors import InputError
from omnigraph.model.schema import INTEGERS, PropertyType
from omnigraph.model.values import INTEGER_BOUNDS, calendar_number
from omnigraph.storage.lance.columns import value_type

Constant = ir.Literal | ir.Param | ir.Now
Search = ir.TextMatch | ir.Bm25 | ir.Nearest | ir.Rrf
Mask = npt.NDArray[np.bool_]


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """Bound parameters and the one moment that `now()` means in this run."""

    params: Mapping[str, Any]
    now_ms: int

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
        """A property of the entity that the variable holds."""
        raise AssertionError(f"{type(self).__name__} have no ${var}.{name}")

    def id_of(self, var: str) -> Array:
        raise AssertionError(f"{type(self).__name__} have no ${var}")

    def endpoint(self, var: str, side: str) -> Array:
        """The id of the node at one side (`src` or `dst`) of the edge that the variable holds."""
        raise AssertionError(f"{type(self).__name__} have no ${var}.{side}")

    def search(self, expr: Search) -> Array:
        raise AssertionError(f"{type(self).__name__} have no {type(expr).__name__}")

    def computed(self, expr: ir.KeyRef | ir.AggregateRef) -> Array:
        """A key or an aggregate of a group."""
        raise AssertionError(f"{type(self).__name__} have no {type(expr).__name__}")

    def at(self, numbers: npt.NDArray[np.int64]) -> Rows:
        """Only the rows with these numbers."""
        raise AssertionError(f"{type(self).__name__} are not chosen from, asked for {len(numbers)}")

    def values(self, expr: ir.Expr) -> Array:
        """The expression for every row, as an array."""
        return column_of(evaluate(expr, self), self.count)


def is_constant(expr: ir.Expr) -> TypeGuard[Constant]:
    return isinstance(expr, Constant)


def conjuncts(conditions: Sequence[ir.Expr]) -> Iterator[ir.Expr]:
    """The conditions with every `and` taken apart: a row stays where all of them are true."""
    for condition in conditions:
        if isinstance(condition, ir.And):
            yield from conjuncts(condition.items)
        else:
            yield condition


def can_fail(expr: ir.Expr) -> bool:
    """Whether evaluation may end in an error: whole numbers may leave their 64 bits."""
    return any(
        isinstance(part, ir.Arithmetic) and part.type.scalar in INTEGERS for part in ir.walk(expr)
    )


def holding(conditions: Sequence[ir.Expr], rows: Rows) -> Mask:
    """The rows for which all conditions are true.

    Conditions that can fail only see the rows that the others keep. So a row that storage has
    left out, or might have, cannot raise an error.
    """
    keep = np.ones(rows.count, dtype=np.bool_)
    for part in sorted(conjuncts(conditions), key=can_fail):
        if not can_fail(part):
            keep &= truths(evaluate(part, rows), rows.count)
            continue
        kept = np.flatnonzero(keep)
        if not len(kept):
            break
        some = rows if len(kept) == rows.count else rows.at(kept)
        keep[kept] = truths(evaluate(part, some), len(kept))
    return keep


def truths(values: Values, count: int) -> Mask:
    """Where a three-valued answer is true: null counts as not true."""
    if isinstance(values, pa.Scalar):
        return np.full(count, values.as_py() is True)
    if values.null_count:
        values = pc.fill_null(values, False)  # noqa: FBT003 - the fill value, not a flag
    return np.array(values.to_numpy(zero_copy_only=False), dtype=np.bool_)


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
            return scalar_of(rows.constants.value(expr), expr.type)
        case ir.PropertyRef():
            return rows.value_of(expr.var, expr.prop)
        case ir.IdRef():
            return rows.id_of(expr.var)
        case ir.EndpointRef():
            return rows.endpoint(expr.var, expr.side)
        case ir.Compare():
            return compare(expr.op, evaluate(expr.left, rows), evaluate(expr.right, rows))
        case ir.And() | ir.Or() | ir.Not() | ir.IsNull():
            return _logic(expr, rows)
        case ir.InList():
            return _in_list(expr, rows)
        case ir.ListContains():
            return _list_contains(evaluate(expr.items, rows), evaluate(expr.needle, rows), rows)
        case ir.TextContains():
            return _text(_contains, evaluate(expr.text, rows), evaluate(expr.part, rows), rows)
        case ir.StartsWith():
            text, prefix = evaluate(expr.text, rows), evaluate(expr.prefix, rows)
            return _text(_starts, text, prefix, rows)
        case ir.Arithmetic() if not rows.count:
            return pa.nulls(0, value_type(expr.type))  # no row, so no error either
        case ir.Arithmetic():
            return _arithmetic(expr, evaluate(expr.left, rows), evaluate(expr.right, rows))
        case ir.FunctionCall():
            return call(expr, [evaluate(arg, rows) for arg in expr.args])
        case ir.TextMatch() | ir.Bm25() | ir.Nearest() | ir.Rrf():
            return rows.search(expr)
        case ir.KeyRef() | ir.AggregateRef():
            return rows.computed(expr)
        case ir.AggregateCall():
            raise AssertionError("aggregates are computed by the grouping")


def column_of(values: Values, count: int) -> Array:
    """The values as an array of `count` rows, constants repeated."""
    if not isinstance(values, pa.Scalar):
        return values
    if not values.is_valid:
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
    answer: Values = pc.if_else(
        pc.is_null(needle),
        nothing,
        pa.scalar(False),  # noqa: FBT003 - a value
    )
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
    for option in listed:
        hit = compare(ir.CompareOp.EQ, needle, scalar_of(option, element))
        answer = pc.or_kleene(answer, hit)
    return answer


def _list_contains(items: Values, needle: Values, rows: Rows) -> Values:
    """Membership, row by row: compare every element with its row's needle, then look for a hit."""
    lists = column_of(items, rows.count)
    wanted = column_of(needle, rows.count)
    parents = pc.list_parent_indices(lists)
    hits = compare(ir.CompareOp.EQ, pc.list_flatten(lists), wanted.take(parents))
    found = np.zeros(len(lists), dtype=np.bool_)
    true_at = pc.fill_null(column_of(hits, len(parents)), False)  # noqa: FBT003 - a value
    found[parents.filter(true_at).to_numpy(zero_copy_only=False)] = True
    unknown = pc.or_(pc.is_null(lists), pc.is_null(wanted))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), pa.array(found))


def _contains(text: str, part: str) -> bool:
    return part in text


def _starts(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


def _text(test: Any, text: Values, other: Values, rows: Rows) -> Values:
    """A text predicate; when the second side is a constant Arrow does it for the whole column."""
    if isinstance(other, pa.Scalar) and not isinstance(text, pa.Scalar):
        pattern = other.as_py()
        if pattern is None:
            return pa.nulls(len(text), pa.bool_())
        if test is _starts:
            return pc.starts_with(text, pattern=pattern)
        return pc.match_substring(text, pattern=pattern)
    texts = column_of(text, rows.count).to_pylist()
    others = column_of(other, rows.count).to_pylist()
    answers = [
        None if a is None or b is None else test(a, b) for a, b in zip(texts, others, strict=True)
    ]
    return pa.array(answers, pa.bool_())


_CHECKED: Final = {
    ir.ArithmeticOp.ADD: "add_checked",
    ir.ArithmeticOp.SUB: "subtract_checked",
    ir.ArithmeticOp.MUL: "multiply_checked",
}


def _arithmetic(expr: ir.Arithmetic, left: Values, right: Values) -> Values:
    target = value_type(expr.type)
    try:
        # A whole number beyond 2^53 becomes the nearest float; an integer has to fit as it is.
        exact = pa.types.is_integer(target)
        left, right = pc.cast(left, target, safe=exact), pc.cast(right, target, safe=exact)
        if expr.op in _CHECKED:
            return pc.call_function(_CHECKED[expr.op], [left, right])
        # A zero divisor gives null, and so does everything that touches null.
        zero = pc.equal(right, pa.scalar(0, target))
        right = pc.if_else(zero, pa.scalar(None, target), right)
        if expr.op is ir.ArithmeticOp.DIV:
            return pc.divide(left, right)
        return _remainder(left, right, target)
    except pa.ArrowInvalid as cause:
        raise InputError(
            f"the result of '{expr.op.value}' does not fit into {expr.type.scalar.value}",
            hint="use a float property or literal to calculate with floats",
        ) from cause


def _remainder(left: Values, right: Values, target: DataType) -> Values:
    """left - trunc(left / right) * right: the sign of the left side, as in SQL."""
    if pa.types.is_integer(target):
        safe = pc.if_else(pc.equal(right, pa.scalar(-1, target)), pa.scalar(1, target), right)
        return pc.subtract(left, pc.multiply(pc.divide(left, safe), safe))
    constant = isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar)
    a, b = (pa.array([v.as_py()], target) if isinstance(v, pa.Scalar) else v for v in (left, right))
    missing = np.asarray(a.is_null()) | np.asarray(b.is_null())  # a constant meets every row
    with np.errstate(invalid="ignore"):
        rest = np.fmod(
            a.fill_null(0).to_numpy(zero_copy_only=False),
            b.fill_null(1).to_numpy(zero_copy_only=False),
        )
    made = pa.array(rest, target, mask=missing)
    return made[0] if constant else made
