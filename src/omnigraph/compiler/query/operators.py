"""Operators between typed expressions; reads and the `where` of mutations share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.problems import Problems
from omnigraph.compiler.query.types import (
    I64,
    comparable,
    core,
    element,
    is_integer,
    is_number,
    is_text,
)
from omnigraph.model.schema import PropertyType, Scalar

_ARITHMETIC = frozenset({"+", "-", "*", "/", "%"})
NULLABLE_BOOL = PropertyType(scalar=Scalar.BOOL, nullable=True)
_ZERO = ir.Literal(value=0, type=I64)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorChecker:
    """Each method returns the typed operation, or reports a problem and returns None."""

    problems: Problems

    def binary(self, expr: ast.Binary, left: ir.Expr, right: ir.Expr) -> ir.Expr | None:
        if expr.op in _ARITHMETIC:
            return self.arithmetic(expr.op, expr.at, left, right)
        if expr.op == "contains":
            return self._contains(expr, left, right)
        if expr.op == "starts_with":
            return self._starts_with(expr, left, right)
        if not self._may_compare(expr.at, left, right):
            return None
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

    def _may_compare(self, at: int, left: ir.Expr, right: ir.Expr) -> bool:
        for side in (left, right):
            if isinstance(side, ir.Literal) and side.value is None:
                hint = "write `is null` or `is not null`"
                self.problems.report(at, "nothing compares with null", code="T7", hint=hint)
                return False
        for kind in (left.type, right.type):
            if kind.is_list:
                hint = "use `contains`, or `in` with the list on the right"
                message = "list comparisons in filters are not supported"
                self.problems.report(at, message, code="T7", hint=hint)
                return False
            if kind.scalar is Scalar.VECTOR:
                hint = "order by `nearest(...)` instead"
                message = "vector comparisons in filters are not supported"
                self.problems.report(at, message, code="T7", hint=hint)
                return False
        if comparable(left.type, right.type):
            return True
        message = f"cannot compare {core(left.type)} with {core(right.type)}"
        self.problems.report(at, message, code="T7", hint=_comparison_hint(left.type, right))
        return False

    def _contains(self, expr: ast.Binary, left: ir.Expr, right: ir.Expr) -> ir.Expr | None:
        if not left.type.is_list and not is_text(left.type):
            message = (
                "contains requires a list property (membership) or a String property (substring)"
                f", got {core(left.type)}"
            )
            self.problems.report(expr.at, message, code="T7")
            return None
        if right.type.is_list or right.type.scalar is Scalar.VECTOR:
            message = f"contains requires a scalar right operand, got {core(right.type)}"
            hint = "test one value at a time and join the tests with `and` or `or`"
            self.problems.report(expr.at, message, code="T7", hint=hint)
            return None
        if not left.type.is_list:
            if not self._require_text(expr.at, right, "contains on a String"):
                return None
            return ir.TextContains(text=left, part=right, type=truth(left, right))
        if not self._may_compare(expr.at, _Element.of(left), right):
            return None
        return ir.ListContains(items=left, needle=right, type=truth(left, right))

    def _starts_with(self, expr: ast.Binary, left: ir.Expr, right: ir.Expr) -> ir.Expr | None:
        if not is_text(left.type):
            message = f"starts_with requires a String property on the left, got {core(left.type)}"
            self.problems.report(expr.at, message, code="T7")
            return None
        if not self._require_text(expr.at, right, "starts_with"):
            return None
        return ir.StartsWith(text=left, prefix=right, type=truth(left, right))

    def _require_text(self, at: int, right: ir.Expr, what: str) -> bool:
        if is_text(right.type) and not (isinstance(right, ir.Literal) and right.value is None):
            return True
        message = f"{what} requires a String right operand, got {core(right.type)}"
        self.problems.report(at, message, code="T7")
        return False

    def membership(self, expr: ast.In, needle: ir.Expr, options: ir.Expr) -> ir.Expr | None:
        """`in`: options are a list literal, a list parameter or a list property."""
        if not options.type.is_list:
            message = f"`in` requires a list on the right, got {core(options.type)}"
            hint = 'write `in ["a", "b"]`, or declare the parameter as a list: `$x: [String]`'
            self.problems.report(expr.at, message, code="T7", hint=hint)
            return None
        empty = isinstance(options, ir.Literal) and not options.value
        if not empty and not self._may_compare(expr.at, needle, _Element.of(options)):
            return None
        found: ir.Expr
        if isinstance(options, ir.Literal | ir.Param):
            found = ir.InList(needle=needle, options=options, type=truth(needle, options))
        else:
            found = ir.ListContains(items=options, needle=needle, type=truth(needle, options))
        return negation(found) if expr.negated else found

    def arithmetic(self, op: str, at: int, left: ir.Expr, right: ir.Expr) -> ir.Expr | None:
        for side in (left, right):
            null = isinstance(side, ir.Literal) and side.value is None
            if null or not is_number(side.type):
                got = "null" if null else core(side.type)
                message = f"`{op}` requires numbers, got {got}"
                self.problems.report(at, message, code="T7")
                return None
        whole = is_integer(left.type) and is_integer(right.type) and op != "/"
        scalar = Scalar.I64 if whole else Scalar.F64
        by_zero = op in {"/", "%"} and not (isinstance(right, ir.Literal) and right.value)
        absent = left.type.nullable or right.type.nullable or by_zero
        kind = PropertyType(scalar=scalar, nullable=absent)
        return ir.Arithmetic(op=ir.ArithmeticOp(op), left=left, right=right, type=kind)

    def minus(self, expr: ast.Minus, item: ir.Expr) -> ir.Expr | None:
        return self.arithmetic("-", expr.at, _ZERO, item)

    def logic(self, expr: ast.Logic, items: Sequence[ir.Expr | None]) -> ir.Expr | None:
        sound = tuple(item for item in items if item is not None)
        if len(sound) < len(items):
            return None
        kind = truth(*sound)
        return ir.And(items=sound, type=kind) if expr.op == "and" else ir.Or(items=sound, type=kind)

    def require_bool(self, expr: ast.Expr, checked: ir.Expr) -> ir.Expr | None:
        kind = checked.type
        if kind.scalar is Scalar.BOOL and not kind.is_list:
            return checked
        hint = "compare it with = != < <= > >=, contains, starts_with, in or is null"
        message = f"a condition must be true or false, got {core(kind)}"
        self.problems.report(expr.at, message, code="T7", hint=hint)
        return None


def truth(*parts: ir.Expr) -> PropertyType:
    """The type of a condition over these parts: it may be null when one of them may."""
    return NULLABLE_BOOL if any(part.type.nullable for part in parts) else ir.BOOL


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


class _Element:
    """Lets the elements of a list take part in a comparison check."""

    @staticmethod
    def of(items: ir.Expr) -> ir.Expr:
        return ir.Param(name="", type=element(items.type))


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
