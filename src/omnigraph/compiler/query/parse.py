"""Recursive descent over tokens: files, queries, match clauses and mutation statements."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache

from msgspec.structs import asdict, replace

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.hints.elsewhere import A_QUERY, NODES, WORDS, taught
from omnigraph.compiler.query.parse_expr import WORD_OPERATORS, tokens_from
from omnigraph.compiler.query.parse_graph import ANY, alternatives
from omnigraph.compiler.query.parse_mutation import STATEMENTS, MutationParser
from omnigraph.compiler.text import SourceText, Token
from omnigraph.errors import ParseError
from omnigraph.model.limits import (
    CACHED_QUERY_CHARS_MAX,
    PARSED_QUERIES_CACHED_MAX,
    PROBLEMS_LISTED_MAX,
    QUERY_CLAUSES_MAX,
    QUERY_HOPS_MAX,
    QUERY_PARAMS_MAX,
    QUERY_STAGES_MAX,
)
from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.model.values import VECTOR_DIMENSION_MAX

_BASE_TYPES = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
_ANNOTATIONS = ("description", "instruction")
_AFTER_EDGE = frozenset({">", "|"})  # inside `< >`
_LISTS_BEGIN = frozenset({"variable", "ident", "[", "("})
SOURCE_NAME = "query"


def parse_file(source: str) -> ast.QueryFile:
    """The tree of a `.gq` text, or ParseError with line, column and excerpt."""
    return _known(source, body_too=False)


def parse_text(source: str) -> ast.QueryFile:
    """The tree of what is to be run: a `.gq` text, or only the body of a query without parameters,
    which is then called `q`."""
    return _known(source, body_too=True)


def _known(source: str, *, body_too: bool) -> ast.QueryFile:
    if len(source) > CACHED_QUERY_CHARS_MAX:
        return _parsed(source, body_too=body_too)
    return _remembered(source, body_too=body_too)


def _parsed(source: str, *, body_too: bool) -> ast.QueryFile:
    text = SourceText(source, SOURCE_NAME)
    parser = _Parser(text)
    others = parser.at_word("for") and parser.peek(1).kind != "variable"  # GQL has a `FOR x`
    is_body = body_too and parser.at_body() and not others
    try:
        return ast.QueryFile((parser.body_alone(),)) if is_body else parser.file()
    except ParseError as error:
        told = taught(_refusal_of_file(text), text) if is_body else None
        # What begins as another language does is told about as a whole.
        foreign = told is not None and told.hint not in {A_QUERY, WORDS["match"]}
        raise (told if told is not None and foreign else taught(error, text)) from None


def _refusal_of_file(text: SourceText) -> ParseError:
    try:
        _Parser(text).file()
    except ParseError as error:
        return error
    raise AssertionError("a file does not begin as a body does")


def parse_all(source: str) -> tuple[tuple[ast.Query, ...], tuple[ParseError, ...]]:
    """Every query of a text that can be read, and an error for each that cannot.

    After an error reading goes on at the next line that begins with `query`.
    """
    text = SourceText(source, SOURCE_NAME)
    queries: list[ast.Query] = []
    errors: list[ParseError] = []
    parser = _Parser(text)
    while len(errors) < PROBLEMS_LISTED_MAX:
        began = parser.peek().at
        try:
            while parser.peek().kind != "end":
                began = parser.peek().at
                queries.append(parser.query())
        except ParseError as error:
            errors.append(taught(error, text))
            after = max(began + 1, text.offset(error.line, error.column))
            again = _NEXT_QUERY.search(source, after)
            if again is None:
                break
            parser = _Parser(text, _tokens_again(parser, again.start()))
        else:
            break
    return tuple(queries), tuple(errors)


def _tokens_again(parser: _Parser, start: int) -> list[Token]:
    """The tokens from an offset on: those that were read already, or what follows a character that
    begins none."""
    if parser.tokens[-1].kind != "end" and parser.tokens[-1].at < start:
        return tokens_from(parser.source, start)
    return parser.tokens[bisect_left(parser.tokens, start, key=lambda token: token.at) :]


_NEXT_QUERY = re.compile(r"(?im)^[ \t]*query\s+\w+\s*[({@]")
_remembered = lru_cache(maxsize=PARSED_QUERIES_CACHED_MAX)(_parsed)


class _Parser(MutationParser):
    """Everything around the expressions."""

    clauses_read = 0
    has_columns = False  # of a stage before, so that a bare word may be a condition

    def file(self) -> ast.QueryFile:
        queries: list[ast.Query] = []
        while self.peek().kind != "end":
            queries.append(self.query())
        return ast.QueryFile(tuple(queries))

    def query(self) -> ast.Query:
        if not self.at_word("query"):
            begins = self.peek().text.lower()
            words = {"match", *STATEMENTS, *WORDS}
            hint = WORDS["match"] if begins in words else None
            raise self.refusal("`query`", words=("query", "match", *STATEMENTS), hint=hint)
        at = self.take().at
        name = self.name("a query name").text
        params = self._params()
        self.takes_records = any(isinstance(param.type, ast.RecordDecl) for param in params)
        notes = self._annotations()
        self.expect("{", "`{`")
        if not self.at_body():
            what = "`match`, `insert`, `upsert`, `update`, `delete` or `for`"
            raise self.refusal(what, words=("match", *STATEMENTS), hint=self._elsewhere())
        body = self._body()
        end = self._end_of_body(body, "}", "`}`")
        description, instruction = notes.get("description"), notes.get("instruction")
        return ast.Query(name, params, description, instruction, body, at, end)

    def at_body(self) -> bool:
        return self.at_word("match") or self.at_statement()

    def _body(self) -> ast.ReadBody | ast.MutationBody:
        return self._read() if self.at_word("match") else self.mutation()

    def body_alone(self) -> ast.Query:
        """What stands between the braces of a query, and nothing after it."""
        at = self.peek().at
        body = self._body()
        end = self._end_of_body(body, "end", "the end of the query")
        return ast.Query("q", (), None, None, body, at, end)

    def _end_of_body(self, body: ast.ReadBody | ast.MutationBody, kind: str, what: str) -> int:
        hint = None
        token = self.peek()
        if isinstance(body, ast.ReadBody):
            if token.text in STATEMENTS:
                hint = "a query either reads or changes the graph; write two queries"
            elif token.text in {"order", "limit", "offset"}:
                hint = "after return comes order, then limit and offset, each at most once"
            elif token.text.lower() == "with":
                hint = "`return` ends a query; `with` goes on: `match { } with { } match { }`"
            else:
                hint = self._elsewhere()
        return self.expect(kind, what, hint=hint).at

    def _params(self) -> tuple[ast.ParamDecl, ...]:
        self.expect("(", "`(`", hint="a query without parameters is written `query name() { ... }`")
        params: list[ast.ParamDecl] = []
        while self.peek().kind != ")":
            if params:
                self.expect(",", "`,` or `)`")
            token = self.expect("variable", "a parameter such as `$name: String`")
            self.expect(":", "`:` and the parameter's type")
            kind = self._param_type()
            default = self.literal() if self.skip("=") else None
            params.append(ast.ParamDecl(token.text[1:], kind, token.at, default))
            self.cap(len(params), QUERY_PARAMS_MAX, "parameters of a query", token.at)
        self.take()
        return tuple(params)

    def _param_type(self) -> PropertyType | ast.TypeOf | ast.RecordDecl:
        record = self.at("{") or (self.at("[") and self.peek(1).kind == "{")
        return self._record() if record else self._type()

    def _record(self) -> ast.RecordDecl:
        """`{name: String, age: I32?}`, or a list of such records in brackets."""
        at, is_list = self.peek().at, self.skip("[")
        self.take()
        fields: list[ast.FieldDecl] = []
        while not fields or not self.at("}"):
            if fields:
                self.expect(",", "`,` or `}`")
            name = self.name("a field name")
            self.expect(":", "`:` and the field's type")
            fields.append(ast.FieldDecl(name.text, self._type(), name.at))
            self.cap(len(fields), QUERY_PARAMS_MAX, "fields of a record", name.at)
        self.take()
        if is_list:
            self.expect("]", "`]`")
        return ast.RecordDecl(tuple(fields), self.skip("?"), is_list, at)

    def _type(self) -> PropertyType | ast.TypeOf:
        is_list = self.skip("[")
        token = self.peek()
        dimension: int | None = None
        scalar: Scalar | None = None
        prop = ""
        if token.kind == "type" and self.peek(1).kind == ".":
            self.take()
            self.take()
            prop = self.name("a property name").text
        elif token.kind == "type" and token.text == "Vector" and not is_list:
            self.take()
            scalar, dimension = Scalar.VECTOR, self._dimension()
        elif token.kind == "type" and token.text in _BASE_TYPES:
            self.take()
            scalar = _BASE_TYPES[token.text]
        else:
            names = ", ".join([*_BASE_TYPES, "Vector(n)", "[T]", "Type.property"])
            hint = f"one of: {names}, each with ? or not; a record is `{{name: String}}`"
            raise self.refusal("a parameter type", hint=hint)
        if is_list:
            self.expect("]", "`]`")
        nullable = self.skip("?")
        if scalar is None:
            return ast.TypeOf(token.text, prop, nullable, is_list, token.at)
        return PropertyType(scalar=scalar, nullable=nullable, is_list=is_list, dimension=dimension)

    def _dimension(self) -> int:
        self.expect("(", "`(` and the number of dimensions", hint="write Vector(n)")
        token = self.expect("int", "the number of dimensions")
        dimension = self.integer(token)
        if not 1 <= dimension <= VECTOR_DIMENSION_MAX:
            message = f"a vector has 1 to {VECTOR_DIMENSION_MAX} dimensions, not {token.text}"
            raise self.error(message, at=token.at)
        self.expect(")", "`)`")
        return dimension

    def _annotations(self) -> dict[str, str]:
        notes: dict[str, str] = {}
        while self.peek().kind == "@":
            at = self.take().at
            token = self.peek()
            if token.kind != "ident" or token.text not in _ANNOTATIONS:
                raise self.refusal("`description` or `instruction`", words=_ANNOTATIONS)
            self.take()
            if token.text in notes:
                raise self.error(f"duplicate @{token.text}", at=at, hint="one is enough")
            self.expect("(", "`(`")
            notes[token.text] = self.unquoted(self.expect("string", "a string"))
            self.expect(")", "`)`")
        return notes

    def cap(self, count: int, limit: int, resource: str, at: int) -> None:
        if count > limit:
            raise self.error(f"{resource} are limited to {limit}", at=at, hint="split the query")

    # --- reads ---

    def _read(self) -> ast.ReadBody | ast.MutationBody:
        first = self._joined()
        if isinstance(first, ast.MutationBody):
            return first
        unions: list[ast.UnionPart] = []
        while self.at_word("union"):
            at = self.take().at
            everything = self.skip_word("all")
            if not self.at_word("match"):
                raise self.refusal("`match` after `union`", words=("match",))
            part = self._joined()
            if isinstance(part, ast.MutationBody):
                raise self.error("a mutation is no part of a union", at=part.statements[0].at)
            unions.append(ast.UnionPart(everything, part, at))
            self.cap(len(unions), QUERY_STAGES_MAX, "unions", at)
        return replace(first, unions=tuple(unions))

    def _joined(self) -> ast.ReadBody | ast.MutationBody:
        """One of the queries of a union: its stages, of which the last returns. Statements behind
        the first match make it a mutation."""
        self.clauses_read = 0
        before: list[ast.Stage] = []
        while True:
            self.has_columns = bool(before)
            at, clauses = self._match(first=not before)
            if self.at_statement() and not before:
                return self.mutation(at, clauses)
            if self.at_word("return"):
                last = self._rows("return", clauses, at)
                return ast.ReadBody(**asdict(last), before=tuple(before))
            if not self.at_word("with"):
                what = "`return`" if clauses else "`match`, `with` or `return`"
                words = ("return", "with", "match")
                raise self.refusal(what, words=words, hint=self._elsewhere())
            before.append(self._rows("with", clauses, at))
            self.cap(len(before), QUERY_STAGES_MAX, "stages of a query", at)

    def _match(self, *, first: bool) -> tuple[int, tuple[ast.Clause, ...]]:
        """The match of a stage; a later one may do without."""
        at = self.peek().at
        if not first and not self.at_word("match"):
            return at, ()
        self.take()
        if not self.at("{"):
            raise self.refusal("`{` after `match`", hint=NODES)
        return at, self.clauses("match")

    def _rows(self, word: str, clauses: tuple[ast.Clause, ...], at: int) -> ast.Stage:
        """What is made of rows: `return` or `with`, `having`, `order`, `limit` and `offset`."""
        self.take()
        distinct = self.skip_word("distinct")
        star = f"every property of a node is `{word} {{ $p.* }}`" if self.at("*") else None
        shape = WORDS["return"].replace("return", word)
        self.expect("{", "`{`", hint=star or shape)
        # The word may also stand inside the braces, where it can only mean this.
        if not distinct and self.at_word("distinct") and self.peek(1).kind not in {",", "}"}:
            distinct = not self.at_word("as", 1)
            if distinct:
                self.take()
        projections = self.projections()
        having = self._having() if self.skip_word("having") else None
        orderings = self._orderings() if self.skip_word("order") else ()
        limit, offset = self._window()
        return ast.Stage(clauses, projections, distinct, orderings, limit, offset, at, having)

    def _elsewhere(self) -> str | None:
        """What a word of another language is called here."""
        return WORDS.get(self.peek().text.lower())

    def projections(self) -> tuple[ast.Projection, ...]:
        projections: list[ast.Projection] = []
        while not projections or self.peek().kind != "}":
            at = self.peek().at
            if [self.peek(ahead).kind for ahead in range(3)] == ["variable", ".", "*"]:
                projections.append(ast.Projection(self._star(), None, at))
                self.skip(",")
                continue
            expr = self.expression(after="column")
            alias = self.name("a column name").text if self.skip_word("as") else None
            projections.append(ast.Projection(expr, alias, at))
            self.cap(len(projections), QUERY_CLAUSES_MAX, "projections", at)
            self.skip(",")
        self.take()
        return tuple(projections)

    def _star(self) -> ast.Star:
        token = self.take()
        self.take()
        self.take()
        return ast.Star(token.text[1:], token.at)

    def _having(self) -> ast.Expr:
        """Conditions on groups; several are joined as by `and`."""
        self.expect("{", "`{`", hint="write `having { people > 3 }`")
        at, items = self.peek().at, [self.expression(after="clause")]
        while not self.at("}"):
            items.append(self.expression(after="clause"))
            self.cap(len(items), QUERY_CLAUSES_MAX, "conditions", items[-1].at)
        self.take()
        return items[0] if len(items) == 1 else ast.Logic("and", _flat(items), at)

    def _orderings(self) -> tuple[ast.Ordering, ...]:
        self.expect("{", "`{`", hint=WORDS["by"])
        orderings: list[ast.Ordering] = []
        while True:
            at = self.peek().at
            expr = self.expression()
            direction = None
            if self.at_word("asc") or self.at_word("desc"):
                token = self.peek()
                if isinstance(expr, ast.Call) and expr.name == "nearest":
                    hint = "nearest always puts the smallest distance first"
                    raise self.error(f"nearest takes no `{token.text}`", at=token.at, hint=hint)
                direction = self.take().text.lower()
            orderings.append(ast.Ordering(expr, direction, at))
            self.cap(len(orderings), QUERY_CLAUSES_MAX, "orderings", at)
            if not self.skip(","):
                break
        self.expect("}", "`,` or `}`", hint="sort keys are separated by commas")
        return tuple(orderings)

    def _window(self) -> tuple[ast.Lit | ast.Var | None, ast.Lit | ast.Var | None]:
        found: dict[str, ast.Lit | ast.Var] = {}
        while self.at_word("limit") or self.at_word("offset"):
            word = self.peek().text.lower()
            if word in found:
                break
            self.take()
            token = self.peek()
            if token.kind == "variable":
                self.take()
                found[word] = ast.Var(token.text[1:], token.at)
            else:
                hint = f"write `{word} 10` or `{word} $n`"
                token = self.expect("int", "a whole number or a parameter", hint=hint)
                found[word] = ast.Lit("int", self.integer(token), token.at)
        return found.get("limit"), found.get("offset")

    # --- match clauses ---

    def clauses(self, word: str) -> tuple[ast.Clause, ...]:
        self.enter()
        in_where, self.in_where = self.in_where, False
        self.expect("{", f"`{{` after `{word}`")
        clauses: list[ast.Clause] = []
        while not clauses or self.peek().kind != "}":
            clauses.append(self._clause())
            self.clauses_read += 1
            self.cap(self.clauses_read, QUERY_CLAUSES_MAX, "clauses", clauses[-1].at)
        self.take()
        self.in_where = in_where
        self.leave()
        return tuple(clauses)

    def _clause(self) -> ast.Clause:
        token = self.peek()
        word = token.text.lower()
        if token.kind in {"ident", "type"} and self.peek(1).kind == "{":
            if word in {"not", "optional"}:
                self.take()
                return ast.BlockClause(word, self.clauses(word), token.at)
            if word in {"exists", "count"}:
                return self._filter(token)
            raise self.refusal("`not {` or `optional {`", words=("not", "optional"))
        if word == "unwind" and self.peek(1).kind in _LISTS_BEGIN:
            return self._unwind()
        if token.kind == "variable":
            if self.peek(1).kind == ":":
                return self._binding()
            if self._at_traversal():
                return self._traversal()
        arrow = self.peek(1).kind == "-" and self.peek(2).kind in {"[", ">"}
        if token.kind == "variable" and arrow:
            self.take()
            raise self.refusal("an edge", hint="an edge is walked by its name: `$a knows $b`")
        if token.kind == "(" and self.peek(1).kind == "ident" and self.peek(2).kind in {":", ")"}:
            raise self.refusal("a clause", hint=NODES)
        if token.kind in {"}", "end"}:
            raise self.refusal(
                "a clause", hint="for instance `$p: Person`, `$p knows $f` or `$p.age > 3`"
            )
        return self._filter(token)

    def _unwind(self) -> ast.Unwind:
        at = self.take().at
        items = self.expression()
        if not self.at_word("as"):
            raise self.refusal("`as` and a variable", hint="write `unwind $p.tags as $tag`")
        self.take()
        return ast.Unwind(items, self._variable(), at)

    def _filter(self, token: Token) -> ast.FilterClause:
        expr = self.expression(after="clause")
        column = isinstance(expr, ast.Word) and self.has_columns
        if column or not isinstance(expr, ast.Var | ast.Lit | ast.Word | ast.ListLit):
            return ast.FilterClause(expr, token.at)
        hint = None
        found = self.peek()
        if isinstance(expr, ast.Var) and found.kind == "type":
            hint = f"`{token.text}: {found.text}` binds a node; edge names start in lower case"
        elif isinstance(expr, ast.Var):
            hint = f"`{token.text}: Type` binds a node, `{token.text} edge $other` walks an edge"
        raise self.refusal("a binding, a traversal or a comparison", hint=hint)

    def _at_traversal(self) -> bool:
        """Whether the tokens after the leading variable can only be a traversal."""
        second, third = self.peek(1), self.peek(2)
        if second.kind == "variable":
            return True
        if second.kind == "<":
            return (third.kind == "ident" or self.at_word(ANY, 2)) and self.peek(
                3
            ).kind in _AFTER_EDGE
        if self.at_word(ANY, 1) and second.kind == "type":
            return third.kind in {"{", "|"} or (
                third.kind == "variable" and self.peek(3).kind != "."
            )
        if second.kind != "ident" or second.text == "not":
            return False
        if second.text == "between" and third.kind == "variable" and self.at_word("and", 3):
            return False
        if third.kind == "variable" and second.text in WORD_OPERATORS:
            # `$q contains $m` may walk an edge of that name, which the schema decides;
            # `$q contains $m.name` and `$q contains $m and ...` compare.
            return self.peek(3).kind != "." and not (
                self.at_word("and", 3) or self.at_word("or", 3)
            )
        return third.kind in {"{", "|"} or (third.kind == "variable" and self.peek(3).kind != ".")

    def _binding(self) -> ast.Binding:
        token = self.take()
        self.take()
        type_hint = "node types start with an upper-case letter"
        type_token = self.expect("type", "a node type", hint=type_hint)
        matches: list[ast.Entry] = []
        if self.skip("{"):
            while not matches or self.peek().kind != "}":
                name = self.name("a property name")
                self.expect(":", "`:`", hint="inline matches are equalities: `{ name: $name }`")
                matches.append(ast.Entry(name.text, self.value(), name.at))
                if not self.skip(",") and self.peek().kind != "}":
                    raise self.refusal("`,` or `}`")
            self.take()
        name_text = token.text[1:]
        return ast.Binding(name_text, type_token.text, tuple(matches), token.at, type_token.at)

    def _traversal(self) -> ast.Traversal:
        src = self._variable()
        edge_var: ast.Var | None = None
        if self.peek().kind == "variable":
            edge_var = self._variable()
            hint = f"`${src.name} $w:edge $other` names the edge"
            self.expect(":", "`:` and an edge name", hint=hint)
        undirected, edge_at = self.skip("<"), self.peek().at
        edge = alternatives(self, self._edge_name)
        if undirected:
            self.expect(">", "`>`")
        bounds_at = self.peek().at
        bounded = self.peek().kind == "{"
        low, high = self._bounds() if bounded else (1, 1)
        dst = self._variable()
        return ast.Traversal(
            src,
            edge_var,
            edge,
            undirected,
            low,
            high,
            bounded,
            dst,
            src.at,
            edge_at,
            bounds_at,
        )

    def _edge_name(self) -> Token:
        token = self.peek()
        hint = None
        if token.kind == "type":
            lowered = token.text[0].lower() + token.text[1:]
            hint = f"in a traversal an edge name starts in lower case: `{lowered}`"
        if self.at_word("not"):
            raise self.refusal("an edge name")
        if self.at_word(ANY):
            return self.take()
        return self.expect("ident", "an edge name", hint=hint)

    def _variable(self) -> ast.Var:
        token = self.expect("variable", "a variable")
        return ast.Var(token.text[1:], token.at)

    def _bounds(self) -> tuple[int, int | None]:
        self.take()
        hint = "hop bounds are written `{min,max}`"
        low = self._hops(self.expect("int", "the smallest number of hops", hint=hint))
        self.expect(",", "`,`", hint=hint)
        high = self._hops(self.take()) if self.peek().kind == "int" else None
        self.expect("}", "`}`", hint=hint)
        return low, high

    def _hops(self, token: Token) -> int:
        hops = self.integer(token)
        if hops > QUERY_HOPS_MAX:
            raise self.error(f"hops are limited to {QUERY_HOPS_MAX}", at=token.at)
        return hops


def _flat(items: list[ast.Expr]) -> tuple[ast.Expr, ...]:
    """The parts of a conjunction; those of one inside it are its own."""
    parts: list[ast.Expr] = []
    for item in items:
        joined = isinstance(item, ast.Logic) and item.op == "and"
        parts.extend(item.items if isinstance(item, ast.Logic) and joined else (item,))
    return tuple(parts)
