"""The functions and operators of the query language.

Functions are told once, in one table: how a call is written, which types it takes and gives, what
null does to it, and its line in the reference. The parser, the checker, the hints for unknown names
and `tools/reference.py` read the table. A scalar function is one entry here and the kernel of the
same name in `engine/expr/evaluate.py`. Searches and aggregates look at more than the values of one
row: `check_expr` types them, and only their names, the numbers of their arguments and their words
are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.types import (
    STRING,
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
_NULLABLE_BOOL = PropertyType(scalar=Scalar.BOOL, nullable=True)

FunctionKind: TypeAlias = Literal["scalar", "search", "aggregate", "clock"]


class Accepts(msgspec.Struct, frozen=True):
    """What an argument may be: a word for messages, and the test of its type."""

    word: str
    test: Callable[[PropertyType], bool]


TEXT: Final = Accepts("String", is_text)
ANYTHING: Final = Accepts("a value", lambda kind: kind.scalar is not Scalar.BLOB)


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function; `call` is how the reference writes it and `says` what it gives.

    `accepts` has an entry for every argument; the last `optional` of them may be left out, and the
    very last one may be repeated if `repeats`. `result` is a type, or "common" for the type that
    all arguments can become: they are brought to it before the kernel runs. The result is null if
    `nulls` of the arguments are.
    """

    name: str
    kind: FunctionKind = "scalar"
    call: str
    says: str
    accepts: tuple[Accepts, ...] = (ANYTHING,)
    optional: int = 0
    repeats: bool = False
    result: PropertyType | Literal["common"] = "common"
    nulls: Literal["any", "all"] = "any"

    @property
    def least(self) -> int:
        return len(self.accepts) - self.optional

    @property
    def most(self) -> int | None:
        return None if self.repeats else len(self.accepts)

    def result_type(self, args: Sequence[ir.Expr]) -> PropertyType:
        """The type of a call, or `MisfitError`."""
        if len(args) < self.least or (self.most is not None and len(args) > self.most):
            raise self._misfit(f"`{self.name}` cannot take {len(args)} arguments")
        for index, arg in enumerate(args):
            accepts = self.accepts[min(index, len(self.accepts) - 1)]
            if not is_null(arg) and not accepts.test(arg.type):
                raise self._misfit(f"{self.name} requires {accepts.word}, got {core(arg.type)}")
        kind = self.result if self.result != "common" else self._common(args)
        among = any if self.nulls == "any" else all
        return replace(kind, nullable=among(arg.type.nullable for arg in args))

    def _common(self, args: Sequence[ir.Expr]) -> PropertyType:
        found = common_type([arg for arg in args if not is_null(arg)])
        if found is not None:
            return found
        names = " and ".join(dict.fromkeys(core(arg.type) for arg in args if not is_null(arg)))
        raise self._misfit(f"{self.name} requires values of one type, got {names}")

    def _misfit(self, message: str) -> MisfitError:
        return MisfitError(message, code="T7", hint=f"write `{self.call}`")


def _search(call: str, says: str, *, most: int = 2, optional: int = 0) -> Function:
    name, accepts = call.partition("(")[0], (ANYTHING,) * most
    return Function(
        name=name, kind="search", call=call, says=says, accepts=accepts, optional=optional
    )


def _aggregate(call: str, says: str) -> Function:
    return Function(name=call.partition("(")[0], kind="aggregate", call=call, says=says)


_NEAREST: Final = (
    "score: cosine distance (0 same direction, 2 opposite), smallest first; q is a vector, or text "
    "to be embedded; needs a limit"
)
_EDITS: Final = "condition: a term within that many edits (2 if not given)"
_RRF: Final = "score: reciprocal rank fusion of two of the above (k 60 if not given); needs a limit"
_COUNT: Final = "how many values; of `count(*)` rows, of `count(distinct x)` different values"

SCALARS: Final[tuple[Function, ...]] = (
    Function(
        name="lower",
        call="lower(text)",
        says="the text in lower case, letter by letter as Unicode maps them",
        accepts=(TEXT,),
        result=STRING,
    ),
    Function(
        name="coalesce",
        call="coalesce(a, b, …)",
        says="the first argument that is not null, as the one type that fits all of them",
        repeats=True,
        nulls="all",
    ),
)
_NOW: Final = Function(
    name="now", kind="clock", call="now()", accepts=(), says="the moment of this run, a DateTime"
)

FUNCTIONS: Final[Mapping[str, Function]] = {
    made.name: made
    for made in (
        *SCALARS,
        _search("search($v.text, q)", "condition: any term of q occurs"),
        _search("fuzzy($v.text, q, edits)", _EDITS, most=3, optional=1),
        _search("match_text($v.text, q)", "condition: the terms of q in a row"),
        _search("bm25($v.text, q)", "score: relevance, best first in `order`"),
        _search("nearest($v.vec, q)", _NEAREST),
        _search("rrf(rank, rank, k)", _RRF, most=3, optional=1),
        _aggregate("count(x)", _COUNT),
        _aggregate("sum(x)", "the sum of numbers"),
        _aggregate("avg(x)", "the mean of numbers, a float"),
        _aggregate("min(x)", "the smallest number or text"),
        _aggregate("max(x)", "the largest number or text"),
        _NOW,
    )
}


# --- operators ---------------------------------------------------------------------------------


class OperatorChecker(msgspec.Struct, frozen=True, kw_only=True):
    """Each method returns the typed operation, or reports a problem and raises `RefusedError`."""

    problems: Problems

    def _refused(self, at: int, message: str, hint: str | None = None) -> RefusedError:
        return self.problems.refused(at, message, code="T7", hint=hint)

    def binary(self, expr: ast.Binary, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        if expr.op in _ARITHMETIC:
            return self.arithmetic(expr.op, expr.at, left, right)
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

    def arithmetic(self, op: str, at: int, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        for side in (left, right):
            if is_null(side) or not is_number(side.type):
                got = "null" if is_null(side) else core(side.type)
                raise self._refused(at, f"`{op}` requires numbers, got {got}")
        whole = is_integer(left.type) and is_integer(right.type) and op != "/"
        scalar = Scalar.I64 if whole else Scalar.F64
        by_zero = op in {"/", "%"} and not (isinstance(right, ir.Literal) and right.value)
        absent = left.type.nullable or right.type.nullable or by_zero
        kind = PropertyType(scalar=scalar, nullable=absent)
        return ir.Arithmetic(op=ir.ArithmeticOp(op), left=left, right=right, type=kind)

    def call(self, expr: ast.Call, args: tuple[ir.Expr, ...]) -> ir.Expr:
        """A call of a scalar function."""
        try:
            kind = FUNCTIONS[expr.name].result_type(args)
        except MisfitError as error:
            raise error.at(expr.at, self.problems) from error
        return ir.FunctionCall(name=expr.name, args=args, type=kind)


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
