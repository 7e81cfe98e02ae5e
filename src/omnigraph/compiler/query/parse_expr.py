"""Recursive descent over tokens: the cursor and the expressions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal, TypeVar, assert_never

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.functions import FUNCTIONS, Function
from omnigraph.compiler.text import Cursor, SourceText, Token, closest, token_expression, tokenize
from omnigraph.errors import LimitExceededError
from omnigraph.model.limits import QUERY_NESTING_MAX, QUERY_OPERATORS_MAX, QUERY_SOURCE_BYTES_MAX

_TOKEN = token_expression(
    r"(?P<variable>\$[a-z_][A-Za-z0-9_]*+)|(?P<ident>[a-z_][A-Za-z0-9_]*+)"
    r"|(?P<type>[A-Z][A-Za-z0-9_]*+)"
    r"|(?P<float>[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?+|[eE][+-]?[0-9]++))|(?P<int>[0-9]++)",
    marks=r"<=|>=|!=|/(?!\*)|[{}()\[\],:.<>=@?*+%-]",
)
COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
TEXT_OPERATORS = frozenset({"contains", "starts_with"})
WORD_OPERATORS = TEXT_OPERATORS | {"in"}  # between two bare variables they may also be edges
_ADDITIVE = frozenset({"+", "-"})
_MULTIPLICATIVE = frozenset({"*", "/", "%"})
_T = TypeVar("_T")
_LITERAL_WORDS = frozenset({"true", "false", "null"})

# What may stand after an expression: nothing that could be taken for a part of it, another clause
# of a `match`, or another column of a `return`.
After = Literal["closed", "clause", "column"]


class ExprParser(Cursor):
    """A cursor over the tokens of one text that can read expressions.

    Words are read in two registers: in reads a bare word is an alias and the text operators and
    search functions are known; in the `where` of a mutation a bare word is a property and they
    are not.
    """

    SLIPS: ClassVar[dict[str, str]] = {
        "'": "strings take double quotes",
        ";": "nothing ends a clause; a new line or a space is enough",
        "&": "write `and`",
        "|": "write `or`",
        "!": "write `not` before a condition, or `!=` between two values",
        "$": "a variable is `$` and a name that starts with a lower-case letter or `_`",
        "#": "a comment starts with `//`",
        "~": "write `contains`, `starts_with` or one of the search functions",
        "^": "there is no power operator",
        "`": "names are written without quotes",
    }

    def __init__(self, source: SourceText) -> None:
        # Four bytes a character at most, so that the common case needs no encoding.
        if len(source.text) * 4 > QUERY_SOURCE_BYTES_MAX:
            size = len(source.text.encode("utf-8", "surrogatepass"))
            if size > QUERY_SOURCE_BYTES_MAX:
                raise LimitExceededError(
                    resource="query source (bytes)", limit=QUERY_SOURCE_BYTES_MAX, actual=size
                )
        super().__init__(source, tokenize(source.text, _TOKEN))
        last = self.tokens[-1]
        if last.kind == "stray":
            raise self.unreadable(last)
        self.depth = 0
        self.operators = 0
        self.in_where = False
        self.after: After = "closed"
        self.ground = 0  # the depth at which the expression that is being read began
        self.breaks: list[tuple[int, ast.Expr]] = []

    # --- bounds ---

    def enter(self) -> None:
        """Go one level deeper; every call is paired with `leave`."""
        self.depth += 1
        if self.depth > QUERY_NESTING_MAX:
            message = f"nesting is limited to {QUERY_NESTING_MAX} levels"
            raise self.error(message, at=self.peek().at, hint="split the query")

    def leave(self) -> None:
        self.depth -= 1

    def _bracketed(self, rule: Callable[[], _T]) -> _T:
        """What stands between the brackets that begin here, one level deeper."""
        self.enter()
        self.take()
        found = rule()
        self.expect(")", "`)`")
        self.leave()
        return found

    def _count_operator(self, token: Token) -> None:
        self.operators += 1
        if self.operators > QUERY_OPERATORS_MAX:
            message = f"an expression is limited to {QUERY_OPERATORS_MAX} operators"
            hint = "use `in [..]` for long alternatives, or split the condition"
            raise self.error(message, at=token.at, hint=hint)

    # --- expressions, loosest first ---

    def expression(self, *, after: After = "closed") -> ast.Expr:
        """A whole expression, with its own budget of operators."""
        self.operators = 0
        self.after, self.ground = after, self.depth
        return self._logic()

    def _logic(self, word: str = "or") -> ast.Expr:
        at = self.peek().at
        items = [self._logic("and") if word == "or" else self._negation()]
        while self.at_word(word):
            self._count_operator(self.take())
            items.append(self._logic("and") if word == "or" else self._negation())
        if len(items) == 1:
            return items[0]
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
            expr = ast.Unary("not", expr, at)
        return expr

    def _comparison(self) -> ast.Expr:
        left = self._sum()
        token = self.peek()
        if token.kind in COMPARISONS or (token.kind == "ident" and token.text in TEXT_OPERATORS):
            if self.in_where and token.kind == "ident":
                message = f"`{token.text}` is not available in the where of a mutation"
                hint = "compare with = != < <= > >=, in [..] or is null"
                raise self.error(message, at=token.at, hint=hint)
            self._count_operator(self.take())
            if isinstance(left, ast.Var) and self._at_arrow(token):
                hint = f"there are no arrows; `$other edge ${left.name}` walks the other way"
                raise self.refusal("a value", hint=hint)
            if self.peek().kind in COMPARISONS:
                use = "`=` tests for equality" if token.text == "=" else "use one of = != < <= > >="
                raise self.refusal("a value", hint=f"one operator is enough: {use}")
            right = self._right_side()
            if self.peek().kind in COMPARISONS:
                hint = "comparisons do not chain; join two of them with `and`"
                raise self.refusal("the end of the comparison", hint=hint)
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
        named = token.kind == "ident" and (self.in_where or self.peek(1).kind == "(")
        if token.kind in {"[", "variable"} or named:
            return self._operand()
        raise self.refusal("a list", hint='write `in ["a", "b"]` or `in $list`')

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
            raise self.error(message, at=token.at, hint=hint)

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
            if isinstance(expr, ast.Lit) and expr.kind in {"int", "float"}:
                # A minus sign before a number literal belongs to the literal.
                assert isinstance(expr.value, int | float)
                expr = ast.Lit(expr.kind, -expr.value, at)
            else:
                expr = ast.Unary("-", expr, at)
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
            raise self.refusal("the end of the value", hint=hint)
        if token.kind == "(" and isinstance(expr, ast.Var | ast.Access):
            raise self.refusal(
                "the end of the value", hint="a variable or property cannot be called"
            )
        return expr

    def _primary(self) -> ast.Expr:
        token = self.peek()
        match token.kind:
            case "variable":
                return self._variable_or_access()
            case "int" | "float" | "string" | "[":
                return self.literal()
            case "(":
                return self._bracketed(self._logic)
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
            message = f"unexpected property access on `{token.text}`"
            hint = "in the where of a mutation a property is a bare name"
            raise self.error(message, at=token.at, hint=hint)
        self.take()
        return ast.Access(token.text[1:], self.name("a property name").text, token.at)

    def name(self, what: str) -> Token:
        """A lower-case identifier."""
        hint = "names of properties, parameters and aliases start with a lower-case letter"
        return self.expect("ident", what, hint=hint if self.at("type") else None)

    def _word_or_call(self, token: Token) -> ast.Expr:
        word = token.text
        if word in _LITERAL_WORDS:
            return self.literal()
        if self.peek(1).kind == "(":
            if word in {"date", "datetime"}:
                return self.literal()
            known = FUNCTIONS.get(word)
            if known is not None and known.kind in {"search", "aggregate"} and self.in_where:
                known = None
            adjacent = self.peek(1).at == token.at + len(word)
            if known is not None and (known.kind != "scalar" or self._calls(adjacent=adjacent)):
                return self._call(known)
            if adjacent:
                near = closest(word, {"date", "datetime", *FUNCTIONS})
                hint = f"did you mean `{near}`?" if near and near != word else None
                raise self.error(f"unknown function `{word}`", at=token.at, hint=hint)
        self.take()
        return ast.Word(word, token.at)

    def _calls(self, *, adjacent: bool) -> bool:
        """Whether a word and a bracket are a call: apart from each other they may also be two
        columns of a `return`, a named one and one in brackets."""
        return adjacent or self.after != "column" or self.depth > self.ground

    def _call(self, function: Function) -> ast.Expr:
        match function.kind:
            case "clock":
                return self.now()
            case "search":
                return self._search(function)
            case "aggregate":
                return self._aggregate(function.name)
            case "scalar":
                return self._scalar_call(function)
            case _:
                assert_never(function.kind)

    def _scalar_call(self, function: Function) -> ast.Expr:
        token = self.take()

        def arguments() -> tuple[ast.Expr, ...]:
            args: list[ast.Expr] = []
            while not self.at(")"):
                if args:
                    self.expect(",", "`,` or `)`")
                args.append(self._logic())
                self._count_operator(token)
            return tuple(args)

        return ast.Call(function.name, self._bracketed(arguments), token.at)

    def now(self) -> ast.NowCall:
        at = self.take().at
        self.expect("(", "`(`")
        self.expect(")", "`)`")
        return ast.NowCall(at)

    def _search(self, function: Function) -> ast.Expr:
        token = self.take()

        def arguments() -> tuple[ast.Expr, ...]:
            args: list[ast.Expr] = []
            while len(args) < len(function.accepts):
                if len(args) >= function.least and self.at(")"):
                    break
                if args:
                    self.expect(",", "`,`")
                args.append(self._search_argument(function.name, len(args)))
            return tuple(args)

        return ast.Call(function.name, self._bracketed(arguments), token.at)

    def _search_argument(self, name: str, index: int) -> ast.Expr:
        if name == "nearest" and index == 0:
            if self.peek().kind != "variable" or self.peek(1).kind != ".":
                raise self.refusal("a property such as `$d.embedding`")
            return self._variable_or_access()
        if name == "rrf" and index < 2:
            token = self.peek()
            if token.text not in {"nearest", "bm25"} or self.peek(1).kind != "(":
                raise self.refusal(
                    "`nearest(...)` or `bm25(...)`", hint="rrf fuses two of these ranks"
                )
            return self._search(FUNCTIONS[token.text])
        return self._sum()

    def _aggregate(self, name: str) -> ast.Expr:
        token = self.take()

        def argument() -> ast.Aggregate:
            if name == "count" and self.skip("*"):
                return ast.Aggregate(name, None, distinct=False, at=token.at)
            distinct = self.peek(1).kind != ")" and self.skip_word("distinct")
            return ast.Aggregate(name, self._sum(), distinct, token.at)

        return self._bracketed(argument)

    # --- literals and plain values ---

    def value(self) -> ast.Expr:
        """What may be matched or assigned: a literal, a variable or `now()`."""
        token = self.peek()
        if token.kind == "variable":
            self.take()
            if self.peek().kind == ".":
                hint = "match a property with a filter clause, such as `$a.x = $b.y`"
                raise self.refusal("a literal, a variable or now()", hint=hint)
            return ast.Var(token.text[1:], token.at)
        if self.at_word("now") and self.peek(1).kind == "(":
            return self.now()
        return self.literal()

    def literal(self) -> ast.Lit | ast.ListLit:
        if not self.at("["):
            return self._scalar()
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
            return self._number(number, at, negative=negative)
        if negative:
            raise self.refusal("a number")
        if token.kind == "string":
            self.take()
            return ast.Lit("string", self.unquoted(token), at)
        if token.kind == "ident" and token.text in _LITERAL_WORDS:
            self.take()
            if token.text == "null":
                return ast.Lit("null", None, at)
            return ast.Lit("bool", token.text == "true", at)
        if token.text in {"date", "datetime"} and self.peek(1).kind == "(":
            self.take()
            self.take()
            text = self.unquoted(self.expect("string", "a string"))
            self.expect(")", "`)`")
            return ast.Lit(token.text, text, at)
        raise self.refusal("a value", hint=self._value_hint(token))

    def _number(self, token: Token, at: int, *, negative: bool) -> ast.Lit:
        text = f"-{token.text}" if negative else token.text
        if token.kind == "int":
            return ast.Lit("int", self.integer(token) * (-1 if negative else 1), at)
        if math.isinf(float(text)):
            raise self.error(f"number {token} is too large", at=at)
        return ast.Lit("float", float(text), at)

    def integer(self, token: Token) -> int:
        if len(token.text.lstrip("0")) > 20:
            raise self.error(f"number {token} is too large", at=token.at)
        return int(token.text)
