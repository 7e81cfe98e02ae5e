"""Recursive descent over tokens: the cursor and the expressions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NoReturn

from omnigraph.compiler.diagnostics import SourceText, closest
from omnigraph.compiler.query import ast
from omnigraph.compiler.query.tokens import Token, fail, problem, tokenize, unquote
from omnigraph.errors import ParseError
from omnigraph.model.limits import QUERY_NESTING_MAX, QUERY_OPERATORS_MAX

AGGREGATES = frozenset({"count", "sum", "avg", "min", "max"})
# Search functions and how many arguments each takes.
SEARCHES = {
    "nearest": (2, 2),
    "bm25": (2, 2),
    "search": (2, 2),
    "fuzzy": (2, 3),
    "match_text": (2, 2),
    "rrf": (2, 3),
}
COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
TEXT_OPERATORS = frozenset({"contains", "starts_with"})
WORD_OPERATORS = TEXT_OPERATORS | {"in"}  # between two bare variables they may also be edges
_ADDITIVE = frozenset({"+", "-"})
_MULTIPLICATIVE = frozenset({"*", "/", "%"})
_LITERAL_WORDS = frozenset({"true", "false", "null"})

# What may stand after an expression: nothing that could be taken for a part of it, another clause
# of a `match`, or another column of a `return`.
After = Literal["closed", "clause", "column"]


class ExprParser:
    """A cursor over the tokens of one text that can read expressions.

    Words are read in two registers: in reads a bare word is an alias and the text operators and
    search functions are known; in the `where` of a mutation a bare word is a property and they
    are not.
    """

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.tokens = tokenize(source)
        self.next = 0
        self.depth = 0
        self.operators = 0
        self.in_where = False
        self.after: After = "closed"
        self.ground = 0  # the depth at which the expression that is being read began
        self.breaks: list[tuple[int, ast.Expr]] = []

    # --- cursor ---

    def peek(self, ahead: int = 0) -> Token:
        """The token `ahead` places from here; past the end it is the end token."""
        return self.tokens[min(self.next + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.tokens[self.next]
        if token.kind != "end":
            self.next += 1
        return token

    def at_word(self, word: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind == "ident" and token.text == word

    def skip(self, kind: str) -> bool:
        """Take the next token if it is of this kind."""
        if self.tokens[self.next].kind != kind:
            return False
        self.next += 1
        return True

    def skip_word(self, word: str) -> bool:
        if not self.at_word(word):
            return False
        self.next += 1
        return True

    def expect(self, kind: str, what: str, *, hint: str | None = None) -> Token:
        """Take a token of this kind or fail, saying what was expected."""
        if self.tokens[self.next].kind != kind:
            self.refuse(what, hint=hint)
        return self.take()

    def expect_word(self, word: str) -> Token:
        if not self.at_word(word):
            self.refuse(f"`{word}`", words=(word,))
        return self.take()

    def refuse(
        self, what: str, *, hint: str | None = None, words: Collection[str] = ()
    ) -> NoReturn:
        """Fail at the next token: `what` was expected, `words` are possible keywords there."""
        raise self.refusal(what, hint=hint, words=words)

    def refusal(
        self, what: str, *, hint: str | None = None, words: Collection[str] = ()
    ) -> ParseError:
        """The error that `refuse` raises."""
        token = self.peek()
        if hint is None and token.kind in {"ident", "type"} and words:
            near = closest(token.text, words)
            if near is not None and near != token.text:
                hint = f"did you mean `{near}`?"
        return problem(self.source, token.at, f"expected {what}, found {token}", hint=hint)

    def enter(self) -> None:
        """Go one level deeper; every call is paired with `leave`."""
        self.depth += 1
        if self.depth > QUERY_NESTING_MAX:
            message = f"nesting is limited to {QUERY_NESTING_MAX} levels"
            fail(self.source, self.peek().at, message, hint="split the query")

    def leave(self) -> None:
        self.depth -= 1

    def _count_operator(self, token: Token) -> None:
        self.operators += 1
        if self.operators > QUERY_OPERATORS_MAX:
            message = f"an expression is limited to {QUERY_OPERATORS_MAX} operators"
            hint = "use `in [..]` for long alternatives, or split the condition"
            fail(self.source, token.at, message, hint=hint)

    # --- expressions, loosest first ---

    def expression(self, *, after: After = "closed") -> ast.Expr:
        """A whole expression, with its own budget of operators."""
        self.operators = 0
        self.after, self.ground = after, self.depth
        return self._disjunction()

    def _disjunction(self) -> ast.Expr:
        return self._logic("or")

    def _logic(self, word: str) -> ast.Expr:
        at = self.peek().at
        first = self._negation() if word == "and" else self._logic("and")
        if not self.at_word(word):
            return first
        items = [first]
        while self.at_word(word):
            self._count_operator(self.take())
            items.append(self._negation() if word == "and" else self._logic("and"))
        # `(a and b) and c` is the same conjunction as `a and b and c`.
        flat: list[ast.Expr] = []
        for item in items:
            flat.extend(item.items if isinstance(item, ast.Logic) and item.op == word else (item,))
        return ast.Logic(word, tuple(flat), at)

    def _negation(self) -> ast.Expr:
        places: list[int] = []
        while self.at_word("not") and self.peek(1).kind != "{":
            token = self.take()
            self._count_operator(token)
            places.append(token.at)
        expr = self._comparison()
        for at in reversed(places):
            expr = ast.Negated(expr, at)
        return expr

    def _comparison(self) -> ast.Expr:
        left = self._sum()
        token = self.peek()
        if token.kind in COMPARISONS or (token.kind == "ident" and token.text in TEXT_OPERATORS):
            if self.in_where and token.kind == "ident":
                message = f"`{token.text}` is not available in the where of a mutation"
                hint = "compare with = != < <= > >=, in [..] or is null"
                fail(self.source, token.at, message, hint=hint)
            self._count_operator(self.take())
            if isinstance(left, ast.Var) and self._at_arrow(token):
                hint = f"there are no arrows; `$other edge ${left.name}` walks the other way"
                self.refuse("a value", hint=hint)
            if self.peek().kind in COMPARISONS:
                self.refuse("a value", hint=f"one operator is enough: {_operators_near(token)}")
            right = self._right_side()
            if self.peek().kind in COMPARISONS:
                hint = "comparisons do not chain; join two of them with `and`"
                self.refuse("the end of the comparison", hint=hint)
            return ast.Binary(token.text, left, right, token.at)
        if token.kind == "ident":
            return self._word_test(left, token)
        return left

    def _right_side(self) -> ast.Expr:
        """The right operand of a comparison.

        A line that begins with a minus goes on with the sum, unless another test follows: two of
        them cannot be one clause, so the line is the next clause.
        """
        outer, self.breaks = self.breaks, []
        right = self._sum(right_side=True)
        found, self.breaks = self.breaks, outer
        if len(found) == 1 and self._at_test():
            self.next, right = found[0]
        return right

    def _at_test(self) -> bool:
        token = self.peek()
        if token.kind != "ident":
            return token.kind in COMPARISONS
        if token.text == "not":
            return self.at_word("in", 1)
        return token.text in TEXT_OPERATORS or token.text in {"in", "is"}

    def _at_arrow(self, token: Token) -> bool:
        """Whether somebody wrote `<-` or `<-[`, as other graph languages do."""
        minus = self.peek()
        joined = token.kind == "<" and minus.kind == "-" and minus.at == token.at + 1
        return joined and self.peek(1).kind in {"ident", "type", "-", "["}

    def _word_test(self, left: ast.Expr, token: Token) -> ast.Expr:
        """`in`, `not in`, `is null` and `is not null` after an operand."""
        negated_in = token.text == "not" and self.at_word("in", 1)
        if token.text == "in" or negated_in:
            self._count_operator(self.take())
            if negated_in:
                self.take()
            return ast.In(left, self._options(), negated_in, token.at)
        if token.text == "is" and (self.at_word("null", 1) or self.at_word("not", 1)):
            self._count_operator(self.take())
            negated = self.skip_word("not")
            self.expect_word("null")
            return ast.NullTest(left, negated, token.at)
        return left

    def _options(self) -> ast.Expr:
        token = self.peek()
        if token.kind in {"[", "variable"} or (self.in_where and token.kind == "ident"):
            return self._operand()
        hint = 'write `in ["a", "b"]` or `in $list`'
        raise self.refusal("a list", hint=hint)

    def _sum(self, *, right_side: bool = False) -> ast.Expr:
        left = self._product()
        while self.peek().kind in _ADDITIVE:
            self._mind_the_line(left, right_side=right_side)
            token = self.take()
            self._count_operator(token)
            left = ast.Binary(token.text, left, self._product(), token.at)
        return left

    def _mind_the_line(self, left: ast.Expr, *, right_side: bool) -> None:
        """Note or refuse a minus at the start of a line, where something else could begin."""
        token = self.peek()
        if token.kind != "-" or self.after == "closed" or self.depth > self.ground:
            return
        before = self.tokens[self.next - 1]
        if "\n" not in self.source.text[before.at + len(before.text) : token.at]:
            return
        if self.after == "clause" and right_side:
            self.breaks.append((self.next, left))
        elif self.peek(1).at == token.at + 1:
            message = f"a line that begins with `-` could go on with {before} or be a new one"
            apart = "a comma before it" if self.after == "column" else "parentheses around it"
            hint = f"write {apart} to begin a new {self.after}, a space after `-` to subtract"
            fail(self.source, token.at, message, hint=hint)

    def _product(self) -> ast.Expr:
        left = self._unary()
        while self.peek().kind in _MULTIPLICATIVE:
            token = self.take()
            self._count_operator(token)
            left = ast.Binary(token.text, left, self._unary(), token.at)
        return left

    def _unary(self) -> ast.Expr:
        places: list[int] = []
        while self.peek().kind == "-":
            token = self.take()
            self._count_operator(token)
            places.append(token.at)
        expr = self._operand()
        for at in reversed(places):
            expr = _minus(expr, at)
        return expr

    def _operand(self) -> ast.Expr:
        """A primary expression that nothing is stuck to, as other languages index and call."""
        expr = self._primary()
        before, token = self.tokens[self.next - 1], self.peek()
        if token.at != before.at + len(before.text):
            return expr
        if token.kind == "[":
            hint = (
                "a single element cannot be read; `contains` looks for a value in a list, "
                "and a list that is a value of its own takes a comma before it"
            )
            self.refuse("the end of the value", hint=hint)
        if token.kind == "(" and isinstance(expr, ast.Var | ast.Access):
            self.refuse("the end of the value", hint="a variable or property cannot be called")
        return expr

    def _primary(self) -> ast.Expr:
        token = self.peek()
        match token.kind:
            case "variable":
                return self._variable_or_access()
            case "int" | "float" | "string" | "[":
                return self.literal()
            case "(":
                self.enter()
                self.take()
                inner = self._disjunction()
                self.expect(")", "`)`")
                self.leave()
                return inner
            case "ident":
                return self._word_or_call(token)
            case _:
                raise self.refusal("a value", hint=self._value_hint(token))

    def _value_hint(self, token: Token) -> str | None:
        if token.kind == "type":
            return f'a value is a variable, a literal or a call; text takes quotes: "{token.text}"'
        if token.kind == "{":
            return "a block follows `not` or `optional` only"
        return None

    def _variable_or_access(self) -> ast.Expr:
        token = self.take()
        if self.peek().kind != ".":
            return ast.Var(token.text[1:], token.at)
        if self.in_where:
            hint = "in the where of a mutation a property is a bare name"
            fail(self.source, token.at, f"unexpected property access on `{token.text}`", hint=hint)
        self.take()
        return ast.Access(token.text[1:], self.name("a property name").text, token.at)

    def name(self, what: str) -> Token:
        """A lower-case identifier."""
        token = self.peek()
        hint = None
        if token.kind == "type":
            hint = "names of properties, parameters and aliases start with a lower-case letter"
        return self.expect("ident", what, hint=hint)

    def _word_or_call(self, token: Token) -> ast.Expr:
        word = token.text
        if word in _LITERAL_WORDS:
            return self.literal()
        if self.peek(1).kind == "(":
            if word in {"date", "datetime"}:
                return self.literal()
            if word == "now":
                return self.now()
            if not self.in_where and word in SEARCHES:
                return self._search(word)
            if not self.in_where and word in AGGREGATES:
                return self._aggregate(word)
            if self.peek(1).at == token.at + len(word):
                known = {"now", "date", "datetime", *SEARCHES, *AGGREGATES}
                near = closest(word, known)
                hint = f"did you mean `{near}`?" if near and near != word else None
                fail(self.source, token.at, f"unknown function `{word}`", hint=hint)
        self.take()
        return ast.Word(word, token.at)

    def now(self) -> ast.NowCall:
        at = self.take().at
        self.expect("(", "`(`")
        self.expect(")", "`)`")
        return ast.NowCall(at)

    def _search(self, name: str) -> ast.Expr:
        token = self.take()
        self.enter()
        self.take()
        least, most = SEARCHES[name]
        args: list[ast.Expr] = []
        while len(args) < most and not (len(args) >= least and self.peek().kind == ")"):
            if args:
                self.expect(",", "`,`")
            args.append(self._search_argument(name, len(args)))
        self.expect(")", "`)`")
        self.leave()
        return ast.Call(name, tuple(args), token.at)

    def _search_argument(self, name: str, index: int) -> ast.Expr:
        if name == "nearest" and index == 0:
            if self.peek().kind != "variable" or self.peek(1).kind != ".":
                self.refuse("a property such as `$d.embedding`")
            return self._variable_or_access()
        if name == "rrf" and index < 2:
            token = self.peek()
            if token.text not in {"nearest", "bm25"} or self.peek(1).kind != "(":
                self.refuse("`nearest(...)` or `bm25(...)`", hint="rrf fuses two of these ranks")
            return self._search(token.text)
        return self._sum()

    def _aggregate(self, name: str) -> ast.Expr:
        token = self.take()
        self.enter()
        self.take()
        if name == "count" and self.skip("*"):
            self.expect(")", "`)`")
            self.leave()
            return ast.Aggregate(name, None, distinct=False, at=token.at)
        distinct = self.at_word("distinct") and self.peek(1).kind != ")"
        if distinct:
            self.take()
        arg = self._sum()
        self.expect(")", "`)`")
        self.leave()
        return ast.Aggregate(name, arg, distinct, token.at)

    # --- literals and plain values ---

    def value(self) -> ast.Expr:
        """What may be matched or assigned: a literal, a variable or `now()`."""
        token = self.peek()
        if token.kind == "variable":
            self.take()
            if self.peek().kind == ".":
                hint = "match a property with a filter clause, such as `$a.x = $b.y`"
                self.refuse("a literal, a variable or now()", hint=hint)
            return ast.Var(token.text[1:], token.at)
        if self.at_word("now") and self.peek(1).kind == "(":
            return self.now()
        return self.literal()

    def literal(self) -> ast.Lit | ast.ListLit:
        token = self.peek()
        if token.kind == "[":
            return self._list()
        return self._scalar()

    def _list(self) -> ast.ListLit:
        at = self.take().at
        items: list[ast.Lit] = []
        while self.peek().kind != "]":
            if items:
                self.expect(",", "`,` or `]`")
            items.append(self._scalar())
        self.take()
        return ast.ListLit(tuple(items), at)

    def _scalar(self) -> ast.Lit:
        token = self.peek()
        at = token.at
        negative = self.skip("-")
        number = self.peek()
        if number.kind in {"int", "float"}:
            self.take()
            return _number(self.source, number, at, negative=negative)
        if negative:
            self.refuse("a number")
        if token.kind == "string":
            self.take()
            return ast.Lit("string", unquote(self.source, token), at)
        if token.kind == "ident" and token.text in _LITERAL_WORDS:
            self.take()
            if token.text == "null":
                return ast.Lit("null", None, at)
            return ast.Lit("bool", token.text == "true", at)
        if token.text in {"date", "datetime"} and self.peek(1).kind == "(":
            self.take()
            self.take()
            text = unquote(self.source, self.expect("string", "a string"))
            self.expect(")", "`)`")
            return ast.Lit(token.text, text, at)
        raise self.refusal("a value", hint=self._value_hint(token))


def _number(source: SourceText, token: Token, at: int, *, negative: bool) -> ast.Lit:
    sign = "-" if negative else ""
    if token.kind == "float":
        value = float(sign + token.text)
        if value in (float("inf"), float("-inf")):
            fail(source, at, f"number {token} is too large")
        return ast.Lit("float", value, at)
    if len(token.text.lstrip("0")) > 20:
        fail(source, at, f"number {token} is too large")
    return ast.Lit("int", int(sign + token.text), at)


def _minus(expr: ast.Expr, at: int) -> ast.Expr:
    """A minus sign before a number literal belongs to the literal."""
    if isinstance(expr, ast.Lit) and expr.kind in {"int", "float"}:
        assert isinstance(expr.value, int | float)
        return ast.Lit(expr.kind, -expr.value, at)
    return ast.Minus(expr, at)


def _operators_near(token: Token) -> str:
    return "`=` tests for equality" if token.text == "=" else "use one of = != < <= > >="
