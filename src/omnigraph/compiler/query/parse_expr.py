"""Recursive descent over tokens: the cursor and the expressions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Literal, TypeVar, assert_never

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.functions import FUNCTIONS, Function, unknown_function_hint
from omnigraph.compiler.query.parse_graph import graph_arguments
from omnigraph.compiler.text import BLANK, Cursor, SourceText, Token, token_expression, tokenize
from omnigraph.errors import LimitExceededError
from omnigraph.model.limits import QUERY_NESTING_MAX, QUERY_OPERATORS_MAX, QUERY_SOURCE_BYTES_MAX

_TOKEN = token_expression(
    r"(?P<variable>\$[a-z_][A-Za-z0-9_]*+)|(?P<ident>[a-z_][A-Za-z0-9_]*+)"
    r"|(?P<type>[A-Z][A-Za-z0-9_]*+)"
    r"|(?P<float>[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?+|[eE][+-]?[0-9]++))|(?P<int>[0-9]++)",
    marks=rf"<=|>=|!=|\.\.|/(?!\*)|\|(?={BLANK}[A-Za-z_])|[{{}}()\[\],:.<>=@?*+%-]",
)
COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
TEXT_OPERATORS = frozenset({"contains", "starts_with", "ends_with", "like", "matches"})
WORD_OPERATORS = TEXT_OPERATORS | {"in"}  # between two bare variables they may also be edges
_ADDITIVE = frozenset({"+", "-"})
_MULTIPLICATIVE = frozenset({"*", "/", "%"})
_T = TypeVar("_T")
_LITERAL_WORDS = frozenset({"true", "false", "null"})
_NAMES = frozenset({"ident", "type"})
# Words that go on with a value, so that what stands before them is one.
_GOING_ON = WORD_OPERATORS | {"and", "or", "is", "as", "asc", "desc", "between"}
_BLOCK_WORDS = frozenset({"exists", "count"})
# Calls whose name and bracket may stand apart, as they always could.
_APART = frozenset({"count", "sum", "avg", "min", "max", "now"})

# What may stand after an expression: nothing that could be taken for a part of it, another clause
# of a `match`, or another column of a `return`.
After = Literal["closed", "clause", "column"]


def tokens_from(source: SourceText, start: int) -> list[Token]:
    """The tokens of a text from an offset on, up to its end or to what begins no token."""
    found = tokenize(source.text[start:] if start else source.text, _TOKEN)
    return [token._replace(at=token.at + start) for token in found] if start else found


class ExprParser(Cursor):
    """A cursor over the tokens of one text that can read expressions.

    Words are read in two registers: in reads a bare word is an alias, and searches, aggregates and
    what asks the graph are known; in a mutation a bare word is a property and they are not.
    Keywords are words where the grammar expects one, in any case of letters.
    """

    SLIPS: ClassVar[dict[str, str]] = {
        "'": "strings take double quotes",
        ";": "nothing ends a clause; a new line or a space is enough",
        "&": "write `and`",
        "|": "write `or`",
        "!": "write `not` before a condition, or `!=` between two values",
        "$": "a variable is `$` and a name that starts with a lower-case letter or `_`",
        "#": "a comment starts with `//`",
        "~": "write `matches`, `like`, `contains` or one of the search functions",
        "^": "write `pow(x, y)`",
        "`": "names are written without quotes",
    }

    def __init__(self, source: SourceText, tokens: list[Token] | None = None) -> None:
        # Four bytes a character at most, so that the common case needs no encoding.
        if len(source.text) * 4 > QUERY_SOURCE_BYTES_MAX:
            size = len(source.text.encode("utf-8", "surrogatepass"))
            if size > QUERY_SOURCE_BYTES_MAX:
                raise LimitExceededError(
                    resource="query source (bytes)", limit=QUERY_SOURCE_BYTES_MAX, actual=size
                )
        super().__init__(source, tokens_from(source, 0) if tokens is None else tokens)
        self.depth = 0
        self.operators = 0
        self.in_where = False
        self.named = self.matched = False  # whether statements know rows by name, and of a match
        self.after: After = "closed"
        self.ground = 0  # the depth at which the expression that is being read began
        self.breaks: list[tuple[int, ast.Expr]] = []
        self._no_case: set[int] = set()  # tokens `case` that begin no case

    def clauses(self, word: str) -> tuple[ast.Clause, ...]:
        """The clauses of a block, which the parser of whole queries knows."""
        raise AssertionError(f"only the parser of whole queries reads the clauses of {word}")

    # --- words ---

    def at_word(self, word: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.kind in _NAMES and token.text.lower() == word

    def _operator(self) -> str:
        """The word here if it may be an operator; the name of the next assignment is none."""
        token = self.peek()
        if token.kind not in _NAMES or self.peek(1).kind == ":":
            return ""
        return token.text.lower()

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
        while self._operator() == word:
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
        token, word = self.peek(), self._operator()
        if token.kind in COMPARISONS or word in TEXT_OPERATORS:
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
            return ast.Binary(word or token.text, left, right, token.at)
        return self._word_test(left, token, word) if word else left

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
        token, word = self.peek(), self._operator()
        if not word:
            return token.kind in COMPARISONS
        if word == "not":
            return self.at_word("in", 1)
        return word in TEXT_OPERATORS or word in {"in", "is", "between"}

    def _at_arrow(self, token: Token) -> bool:
        """Whether somebody wrote `<-` or `<-[`, as other graph languages do."""
        minus = self.peek()
        joined = token.kind == "<" and minus.kind == "-" and minus.at == token.at + 1
        return joined and self.peek(1).kind in {"ident", "type", "-", "["}

    def _word_test(self, left: ast.Expr, token: Token, word: str) -> ast.Expr:
        """`in`, `not in`, `between`, `is null` and `is not null` after an operand."""
        negated_in = word == "not" and self.at_word("in", 1)
        if word == "in" or negated_in:
            self._count_operator(self.take())
            if negated_in:
                self.take()
            return ast.In(left, self._options(), negated_in, token.at)
        if word == "between":
            self._count_operator(self.take())
            low = self._sum()
            self.expect_word("and")
            return ast.Between(left, low, self._right_side(), token.at)
        if word == "is" and (self.at_word("null", 1) or self.at_word("not", 1)):
            self._count_operator(self.take())
            negated = self.skip_word("not")
            self.expect_word("null")
            return ast.NullTest(left, negated, token.at)
        return left

    def _options(self) -> ast.Expr:
        token = self.peek()
        named = token.kind == "ident" or (token.kind == "type" and self.peek(1).kind == "(")
        if token.kind in {"[", "variable", "("} or named:
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
        """A primary expression with the places that are asked of it: `list[0]`, `list[1..3]`.

        The bracket touches its list; after white space it begins a list of its own.
        """
        expr = self._primary()
        while self._touches() and self.at("["):
            expr = self._index(expr)
        if self.at("(") and self._touches() and isinstance(expr, ast.Var | ast.Access):
            raise self.refusal(
                "the end of the value", hint="a variable or property cannot be called"
            )
        return expr

    def _touches(self) -> bool:
        before = self.tokens[self.next - 1]
        return self.peek().at == before.at + len(before.text)

    def _index(self, items: ast.Expr) -> ast.Expr:
        self.enter()
        token = self.take()
        self._count_operator(token)
        low = None if self.at("..") else self._sum()
        sliced = self.skip("..")
        high = self._sum() if sliced and not self.at("]") else None
        self.expect("]", "`]`", hint="an element is `list[0]`, a part of the list `list[1..3]`")
        self.leave()
        return ast.Index(items, low, high, sliced, token.at)

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
            case "type" if self._calls_or_means(token):
                return self._word_or_call(token)
            case _:
                raise self.refusal("a value", hint=self._value_hint(token))

    def _calls_or_means(self, token: Token) -> bool:
        """Whether a word with a capital is a value: a literal, a call, a block or a case."""
        word = token.text.lower()
        return (
            word in _LITERAL_WORDS
            or self.peek(1).kind == "("
            or (word in _BLOCK_WORDS and self.peek(1).kind == "{")
            or (word == "case" and self.peek(1).kind not in {"}", ",", ":"})
        )

    def _value_hint(self, token: Token) -> str | None:
        if token.kind == "type":
            return f'a value is a variable, a literal or a call; text takes quotes: "{token.text}"'
        if token.kind == "{":
            return "a block follows `not`, `optional`, `exists` or `count`"
        return None

    def _variable_or_access(self) -> ast.Expr:
        token = self.take()
        if self.peek().kind != ".":
            return ast.Var(token.text[1:], token.at)
        if self.in_where and not self.named:
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
        word = token.text.lower()
        if word in _LITERAL_WORDS:
            return self.literal()
        if word in _BLOCK_WORDS and self.peek(1).kind == "{":
            return self._block(token, word)
        if word == "case":
            found = self._case(token)
            if found is not None:
                return found
        if self.peek(1).kind == "(":
            if word in {"date", "datetime"} and self.peek(2).kind == "string":
                return self.literal()
            known = FUNCTIONS.get(word)
            if known is not None and self._is_unknown(known):
                known = None
            adjacent = self.peek(1).at == token.at + len(word)
            if known is not None and (word in _APART or self._calls(adjacent=adjacent)):
                return self._call(known)
            if adjacent:
                hint = unknown_function_hint(token.text)
                raise self.error(f"unknown function `{token.text}`", at=token.at, hint=hint)
        self.take()
        return ast.Word(token.text, token.at)

    def _is_unknown(self, function: Function) -> bool:
        """Whether the function cannot be called here: operators nowhere, others in reads only."""
        only_reads = {"search", "aggregate"} | (set() if self.matched else {"graph"})
        return function.kind == "operator" or (self.in_where and function.kind in only_reads)

    def _block(self, token: Token, word: str) -> ast.Expr:
        if self.in_where and not self.matched:
            message = f"`{word} {{ }}` is not available in a mutation"
            raise self.error(message, at=token.at, hint="compare properties of the row")
        self.take()
        self._count_operator(token)
        kept = self.operators, self.after, self.ground, self.breaks
        clauses = self.clauses(word)
        self.operators, self.after, self.ground, self.breaks = kept
        return ast.Block(word, clauses, token.at)

    def _case(self, token: Token) -> ast.Expr | None:
        """A whole `case … end`; None if the word is a name here."""
        begin, marked = self.next, self.operators
        if token.at in self._no_case or self.peek(1).kind in {"}", ")", "]", ",", ":", "end"}:
            return None
        follows = self.peek(1)
        if follows.kind in _NAMES and follows.text.lower() in _GOING_ON:
            return None
        if follows.kind not in {*_NAMES, "variable", "int", "float", "string", "(", "[", "-"}:
            return None
        self.enter()
        self.take()
        subject = None if self.at_word("when") else self._sum()
        if not self.at_word("when"):
            self.next, self.operators = begin, marked
            self._no_case.add(token.at)
            self.leave()
            return None
        whens: list[tuple[ast.Expr, ast.Expr]] = []
        while self.skip_word("when"):
            self._count_operator(token)
            condition = self._logic()
            self.expect_word("then")
            whens.append((condition, self._logic()))
        otherwise = self._logic() if self.skip_word("else") else None
        if not self.at_word("end"):
            raise self.refusal("`when`, `else` or `end`", words=("when", "else", "end"))
        self.take()
        self.leave()
        return ast.Case(subject, tuple(whens), otherwise, token.at)

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
            case "graph":
                return self._graph_call(function)
            case "scalar" | "duration":
                return self._scalar_call(function)
            case "operator":
                raise AssertionError("an operator stands between its values")
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

    def _graph_call(self, function: Function) -> ast.Expr:
        token = self.take()
        args = self._bracketed(lambda: graph_arguments(self, function))
        return ast.Call(function.name, args, token.at)

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
        if name == "nearest" and index == 2:
            token = self.peek()
            if token.text.lower() != "exact":
                raise self.refusal("`exact`", hint="it keeps `nearest` from using an index")
            return ast.Word("exact", self.take().at)
        if name == "rrf" and index < 2:
            token = self.peek()
            name = token.text.lower()
            if name not in {"nearest", "bm25"} or self.peek(1).kind != "(":
                raise self.refusal(
                    "`nearest(...)` or `bm25(...)`", hint="rrf fuses two of these ranks"
                )
            return self._search(FUNCTIONS[name])
        return self._sum()

    def _aggregate(self, name: str) -> ast.Expr:
        token = self.take()

        def argument() -> ast.Aggregate:
            if name == "count" and self.skip("*"):
                return ast.Aggregate(name, None, distinct=False, at=token.at)
            distinct = self.peek(1).kind != ")" and self.skip_word("distinct")
            arg, share = self._sum(), None
            if name == "percentile":
                self.expect(",", "`,` and a share", hint="write `percentile($p.age, 0.95)`")
                share = self._sum()
            return ast.Aggregate(name, arg, distinct, token.at, share)

        return self._bracketed(argument)

    # --- literals and plain values ---

    def value(self) -> ast.Expr:
        """What may be matched: a literal, a variable, a property, a column or `now()`."""
        token = self.peek()
        if token.kind == "variable":
            return self._variable_or_access()
        if token.kind == "ident" and self.peek(1).kind in {",", "}"} and not self._means_literal():
            return ast.Word(self.take().text, token.at)
        if self.at_word("now") and self.peek(1).kind == "(":
            return self.now()
        return self.literal()

    def _means_literal(self) -> bool:
        return self.peek().text.lower() in _LITERAL_WORDS

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
        word = token.text.lower() if token.kind in _NAMES else ""
        if word in _LITERAL_WORDS:
            self.take()
            if word == "null":
                return ast.Lit("null", None, at)
            return ast.Lit("bool", word == "true", at)
        if word in {"date", "datetime"} and self.peek(1).kind == "(":
            self.take()
            self.take()
            text = self.unquoted(self.expect("string", "a string"))
            self.expect(")", "`)`")
            return ast.Lit(word, text, at)
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
