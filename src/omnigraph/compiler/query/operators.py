"""What the operators of the query language take and give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.functions import FUNCTIONS, TRUNC_UNITS, is_calendar
from omnigraph.compiler.query.types import (
    I64,
    common_type,
    comparable,
    core,
    element,
    is_integer,
    is_null,
    is_number,
    is_text,
)
from omnigraph.compiler.text import MisfitError, Problems, RefusedError
from omnigraph.model.schema import PropertyType, Scalar

_ARITHMETIC = frozenset({"+", "-", "*", "/", "%"})
_TEXT_TESTS = frozenset({"ends_with", "like", "matches"})
_NULLABLE_BOOL = PropertyType(scalar=Scalar.BOOL, nullable=True)
_ZERO: Final = ir.Literal(value=0, type=I64)


class Duration(msgspec.Struct, frozen=True, kw_only=True):
    """A length of time while it is checked: the expression of its milliseconds, a whole number.

    It is no value: it may only be added to, or taken from, a day, a moment or another duration.
    """

    ms: ir.Expr

    @property
    def type(self) -> PropertyType:
        return self.ms.type


Checked = ir.Expr | Duration


class OperatorChecker(msgspec.Struct, frozen=True, kw_only=True):
    """Each method returns the typed operation, or reports a problem and raises `RefusedError`."""

    problems: Problems

    def _refused(self, at: int, message: str, hint: str | None = None) -> RefusedError:
        return self.problems.refused(at, message, code="T7", hint=hint)

    def binary(self, expr: ast.Binary, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        if expr.op in _ARITHMETIC:
            return self.arithmetic(expr.op, expr.at, left, right)
        if expr.op in _TEXT_TESTS:
            return self._applied(expr.op, expr.at, (left, right), (expr.left, expr.right))
        if expr.op == "contains":
            return self._contains(expr, left, right)
        if expr.op == "starts_with":
            return self._starts_with(expr, left, right)
        self._require_comparable(expr.at, left, right)
        self._advise_on_enums(expr.at, left, right)
        return _plain_search(expr.op, left, right) or ir.Compare(
            op=ir.CompareOp(expr.op), left=left, right=right, type=truth(left, right)
        )

    def _advise_on_enums(self, at: int, left: ir.Expr, right: ir.Expr) -> None:
        """A comparison with a value that the enum does not have is legal, but hardly meant."""
        for one, other in ((left, right), (right, left)):
            values = one.type.enum_values
            if values is None or not isinstance(other, ir.Literal) or other.value in values:
                continue
            message = f"'{other.value}' is not a value of {core(one.type)}"
            self.problems.advise(at, message)

    def _require_comparable(self, at: int, left: ir.Expr, right: ir.Expr) -> None:
        if is_null(left) or is_null(right):
            hint = "write `is null` or `is not null`"
            raise self._refused(at, "nothing compares with null", hint)
        for kind in (left.type, right.type):
            if kind.is_list:
                hint = "use `contains`, or `in` with the list on the right"
                raise self._refused(at, "list comparisons in filters are not supported", hint)
            if kind.scalar is Scalar.VECTOR:
                hint = "order by `nearest(...)` instead"
                raise self._refused(at, "vector comparisons in filters are not supported", hint)
        if not comparable(left.type, right.type):
            message = f"cannot compare {core(left.type)} with {core(right.type)}"
            raise self._refused(at, message, _comparison_hint(left.type, right))

    def _contains(self, expr: ast.Binary, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        if not left.type.is_list and not is_text(left.type):
            message = (
                "contains requires a list property (membership) or a String property (substring)"
                f", got {core(left.type)}"
            )
            raise self._refused(expr.at, message)
        if right.type.is_list or right.type.scalar is Scalar.VECTOR:
            message = f"contains requires a scalar right operand, got {core(right.type)}"
            hint = "test one value at a time and join the tests with `and` or `or`"
            raise self._refused(expr.at, message, hint)
        if not left.type.is_list:
            self._require_text(expr.at, right, "contains on a String")
            return ir.TextContains(text=left, part=right, type=truth(left, right))
        self._require_comparable(expr.at, ir.Param(name="", type=element(left.type)), right)
        return ir.ListContains(items=left, needle=right, type=truth(left, right))

    def _starts_with(self, expr: ast.Binary, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        if not is_text(left.type):
            message = f"starts_with requires a String property on the left, got {core(left.type)}"
            raise self._refused(expr.at, message)
        self._require_text(expr.at, right, "starts_with")
        return ir.StartsWith(text=left, prefix=right, type=truth(left, right))

    def _require_text(self, at: int, right: ir.Expr, what: str) -> None:
        if not is_text(right.type) or is_null(right):
            message = f"{what} requires a String right operand, got {core(right.type)}"
            raise self._refused(at, message)

    def membership(self, expr: ast.In, needle: ir.Expr, options: ir.Expr) -> ir.Expr:
        """`in`: options are a list literal, a list parameter or a list property."""
        if not options.type.is_list:
            message = f"`in` requires a list on the right, got {core(options.type)}"
            hint = 'write `in ["a", "b"]`, or declare the parameter as a list: `$x: [String]`'
            raise self._refused(expr.at, message, hint)
        if not isinstance(options, ir.Literal) or options.value:
            item = ir.Param(name="", type=element(options.type))
            self._require_comparable(expr.at, needle, item)
        found: ir.Expr
        if isinstance(options, ir.Literal | ir.Param):
            found = ir.InList(needle=needle, options=options, type=truth(needle, options))
        else:
            found = ir.ListContains(items=options, needle=needle, type=truth(needle, options))
        return negation(found) if expr.negated else found

    def between(self, expr: ast.Between, item: ir.Expr, low: ir.Expr, high: ir.Expr) -> ir.Expr:
        """`item >= low and item <= high`."""
        parts = []
        for op, bound in ((">=", low), ("<=", high)):
            self._require_comparable(expr.at, item, bound)
            parts.append(
                ir.Compare(op=ir.CompareOp(op), left=item, right=bound, type=truth(item, bound))
            )
        return ir.And(items=tuple(parts), type=truth(*parts))

    # --- sums ---

    def added(self, op: str, at: int, left: Checked, right: Checked) -> Checked:
        """`+` and `-`: numbers, texts, lists, days, moments and durations."""
        if isinstance(left, Duration) and isinstance(right, Duration):
            return Duration(ms=self.arithmetic(op, at, left.ms, right.ms))
        if isinstance(left, Duration) and op == "+":
            left, right = right, left
        if isinstance(left, Duration):
            raise self._refused(at, "nothing can be taken from a duration but another one")
        if isinstance(right, Duration):
            if not is_calendar(left.type):
                message = f"a duration is added to Date or DateTime, got {core(left.type)}"
                raise self._refused(at, message)
            ms = right.ms if op == "+" else self.arithmetic("-", at, _ZERO, right.ms)
            return self._applied("shifted", at, (left, ms))
        if op == "-" and is_calendar(left.type) and is_calendar(right.type):
            if left.type.scalar is not right.type.scalar:
                message = f"`-` requires two of one kind, got {core(left.type)} and "
                hint = "`date(x)` and `datetime(x)` convert"
                raise self._refused(at, message + core(right.type), hint)
            return self._applied("since", at, (left, right))
        if op == "+" and left.type.is_list:
            return self._appended(at, left, right)
        texts = (
            is_text(left.type) and is_text(right.type) and not (is_null(left) and is_null(right))
        )
        if op == "+" and texts:
            return self._applied("concat", at, (left, right))
        return self.arithmetic(op, at, left, right)

    def _appended(self, at: int, items: ir.Expr, more: ir.Expr) -> ir.Expr:
        """A list and another one, or one element more."""
        if not more.type.is_list:
            more = self._single(more)
        return self._applied("joined", at, (items, more))

    def _single(self, item: ir.Expr) -> ir.Expr:
        """A list of one element."""
        kind = replace(item.type, is_list=True)
        if isinstance(item, ir.Literal):
            value = item.value
            assert not isinstance(value, tuple), "a list is no element"
            return ir.Literal(value=None if value is None else (value,), type=kind)
        return ir.FunctionCall(name="single", args=(item,), type=kind)

    def arithmetic(self, op: str, at: int, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        for side in (left, right):
            if is_null(side) or not is_number(side.type):
                got = "null" if is_null(side) else core(side.type)
                texts = op == "+" and (is_text(left.type) or is_text(right.type))
                hint = "`to_string(x)` makes a text of a value" if texts else None
                raise self._refused(at, f"`{op}` requires numbers, got {got}", hint)
        whole = is_integer(left.type) and is_integer(right.type) and op != "/"
        scalar = Scalar.I64 if whole else Scalar.F64
        by_zero = op in {"/", "%"} and not (isinstance(right, ir.Literal) and right.value)
        absent = left.type.nullable or right.type.nullable or by_zero
        kind = PropertyType(scalar=scalar, nullable=absent)
        return ir.Arithmetic(op=ir.ArithmeticOp(op), left=left, right=right, type=kind)

    # --- calls ---

    def call(self, expr: ast.Call, args: tuple[ir.Expr, ...]) -> Checked:
        """A call of a scalar function, or of one that makes a duration."""
        found = self._applied(expr.name, expr.at, args, expr.args)
        if expr.name == "trunc":
            self._require_unit(expr, args[0])
        return Duration(ms=found) if FUNCTIONS[expr.name].kind == "duration" else found

    def _require_unit(self, expr: ast.Call, unit: ir.Expr) -> None:
        """The unit is known before the rows are: a text in quotes, or a parameter."""
        fits = isinstance(unit, ir.Param) or (
            isinstance(unit, ir.Literal) and unit.value in TRUNC_UNITS
        )
        if not fits:
            got = f' "{unit.value}"' if isinstance(unit, ir.Literal) else ""
            hint = "one of: " + ", ".join(f'"{name}"' for name in TRUNC_UNITS)
            raise self._refused(expr.args[0].at, f"trunc does not know the unit{got}", hint)

    def element(self, expr: ast.Index, args: tuple[ir.Expr, ...]) -> ir.Expr:
        """`list[place]` or `list[a..b]`."""
        name = "slice" if expr.sliced else "element"
        return self._applied(name, expr.at, args, (expr.items,))

    def case(
        self, expr: ast.Case, whens: Sequence[tuple[ir.Expr, ir.Expr]], otherwise: ir.Expr
    ) -> ir.Expr:
        """The value of the first condition that is true."""
        values = [*(value for _, value in whens), otherwise]
        there = [value for value in values if not is_null(value)]
        kind = common_type(there)
        if kind is None:
            names = " and ".join(dict.fromkeys(core(value.type) for value in there))
            raise self._refused(expr.at, f"case requires values of one type, got {names}")
        kind = replace(kind, nullable=any(value.type.nullable for value in values))
        return ir.Case(whens=tuple(whens), otherwise=otherwise, type=kind)

    def equality(self, at: int, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        self._require_comparable(at, left, right)
        return ir.Compare(op=ir.CompareOp.EQ, left=left, right=right, type=truth(left, right))

    def _applied(
        self, name: str, at: int, args: tuple[ir.Expr, ...], written: Sequence[ast.Expr] = ()
    ) -> ir.Expr:
        """The call of a function of the table, if it takes these arguments."""
        try:
            kind = FUNCTIONS[name].result_type(args, [*map(_called, written)])
        except MisfitError as error:
            raise error.at(at, self.problems) from error
        return ir.FunctionCall(name=name, args=args, type=kind)


def _called(expr: ast.Expr) -> str:
    """What an argument is called where it is a column; else nothing."""
    match expr:
        case ast.Access():
            return f"`${expr.var}.{expr.prop}`"
        case ast.Var():
            return f"`${expr.name}`"
        case ast.Word():
            return f"`{expr.name}`"
        case _:
            return ""


def truth(*parts: ir.Expr) -> PropertyType:
    """The type of a condition over these parts: it may be null when one of them may."""
    return _NULLABLE_BOOL if any(part.type.nullable for part in parts) else ir.BOOL


def negation(item: ir.Expr) -> ir.Not:
    return ir.Not(item=item, type=truth(item))


def _plain_search(op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr | None:
    """`search(...) = true` is the long form of `search(...)`; None when this is not that."""
    if not isinstance(left, ir.TextMatch) or not isinstance(right, ir.Literal):
        return None
    if op not in {"=", "!="}:
        return None
    wanted = right.value is (op == "=")
    return left if wanted else negation(left)


def _comparison_hint(left: PropertyType, right: ir.Expr) -> str | None:
    """What to write instead, when the slip is a common one."""
    kind = right.type
    text = isinstance(right, ir.Literal) and isinstance(right.value, str)
    if left.scalar is Scalar.DATE and is_text(kind):
        return 'write `date("2026-02-14")`' if text else "declare the parameter as Date"
    if left.scalar is Scalar.DATETIME and is_text(kind):
        return (
            'write `datetime("2026-02-14T10:00:00Z")`'
            if text
            else "declare the parameter as DateTime"
        )
    if is_number(left) and is_text(kind):
        return "numbers take no quotes" if text else "declare the parameter as a number"
    if is_text(left) and is_number(kind):
        return "text takes quotes"
    return None
