"""Query texts for tests: the examples of the reference page; random trees to be printed; damage.

A generator draws from a `random.Random`: hypothesis passes one that it can replay, a bench passes a
plain one with a seed.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from msgspec.structs import replace

from omnigraph.compiler.query import ast
from omnigraph.compiler.schema import compile_schema
from omnigraph.model.schema import PropertyType, Scalar

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "query-language.md"
BLOCKS = re.findall(r"(?ms)^```(\S+)(?: (\S+))?\n(.*?)^```$", PAGE.read_text("utf-8"))
CATALOG = compile_schema(next(body for kind, _, body in BLOCKS if kind == "pg"))
EXAMPLES = [(code, body) for kind, code, body in BLOCKS if kind == "gq"]

NAMES = ("a", "name", "age", "q2", "x_y", "tags", "vec", "born", "id", "bio", "role")
VARS = ("p", "q", "f", "w", "p", "_")
TYPES = ("Person", "Company", "Person", "Knows", "Nope")
EDGES = ("knows", "worksAt", "knows", "likes", "contains", "any")
TEXTS = ("", "a", "admin", 'quo"te', "back\\slash", "new\nline", "ünïcødé", "2024-01-01", "// no")
FIELDS = (PropertyType(scalar=Scalar.I32, nullable=True), PropertyType(scalar=Scalar.STRING))
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")
DAMAGE = '{}()[]<>$"\\/*,.:=!-+@ \n_eE0aé\x00\u2028'


class TreeMaker:
    """Makes trees as the parser makes them, most of them ill-typed."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def one(self, options):
        return options[self.random.randrange(len(options))]

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def several(self, make, least: int, most: int) -> tuple:
        return tuple(make() for _ in range(self.random.randint(least, most)))

    # --- expressions ---

    def scalar(self) -> ast.Lit:
        kind = self.one(("int", "float", "string", "bool", "null", "date", "datetime"))
        value = {
            "int": lambda: self.one((0, 1, -1, 25, 2**31, -(2**63), 2**64 - 1, 10**20 - 1)),
            "float": lambda: self.one((0.5, -1.0, 1e300, 5e-324, -2.5e-7)),
            "bool": lambda: self.chance(50),
            "null": lambda: None,
            "datetime": lambda: self.one((*TEXTS, "2024-01-01T10:00:00Z")),
        }.get(kind, lambda: self.one(TEXTS))()
        return ast.Lit(kind, value, 0)

    def variable(self) -> ast.Var:
        return ast.Var(self.one(VARS), 0)

    def access(self) -> ast.Access:
        return ast.Access(self.one(VARS), self.one(NAMES), 0)

    def list_literal(self) -> ast.ListLit:
        return ast.ListLit(self.several(self.scalar, 0, 3), 0)

    def value(self):
        return self.one((self.scalar, self.list_literal, self.variable, lambda: ast.NowCall(0)))()

    def matched(self):
        word = lambda: ast.Word(self.one(NAMES), 0)  # noqa: E731
        return self.one((self.value, self.value, self.access, word))()

    def leaf(self, *, where: bool):
        if where:
            word = lambda: ast.Word(self.one(NAMES), 0)  # noqa: E731
            return self.one((self.value, word, word))()
        return self.one((self.value, self.access, self.access))()

    def expression(self, depth: int = 3, *, where: bool = False):
        if depth == 0 or self.chance(25):
            return self.leaf(where=where)
        inner = lambda: self.expression(depth - 1, where=where)  # noqa: E731
        makers = [self._binary, self._logic, self._unary, self._test, self._function]
        makers += [self._text_operator, self._between, self._index, self._case]
        if not where:
            makers += [self._search, self._aggregate, self._graph, self._block]
        return self.one(makers)(inner)

    def _binary(self, inner):
        return ast.Binary(self.one(COMPARISONS + ARITHMETIC), inner(), inner(), 0)

    def _text_operator(self, inner):
        word = self.one(("contains", "starts_with", "ends_with", "like", "matches"))
        return ast.Binary(word, inner(), inner(), 0)

    def _between(self, inner):
        return ast.Between(inner(), inner(), inner(), 0)

    def _index(self, inner):
        items = self.one((self.list_literal, lambda: self._function(inner)))()
        if self.chance(50):
            return ast.Index(items, inner(), None, sliced=False, at=0)
        low, high = (inner() if self.chance(70) else None for _ in range(2))
        return ast.Index(items, low, high, sliced=True, at=0)

    def _case(self, inner):
        subject = inner() if self.chance(40) else None
        whens = self.several(lambda: (inner(), inner()), 1, 2)
        return ast.Case(subject, whens, inner() if self.chance(60) else None, 0)

    def edges(self) -> str:
        """One name, or several."""
        return "|".join(self.several(lambda: self.one(EDGES), 1, 3 if self.chance(20) else 1))

    def _graph(self, inner):
        if self.chance(30):
            edge = ast.EdgeName(self.edges(), self.chance(40), 0)
            weight = (ast.Word(self.one(NAMES), 0),) if self.chance(40) else ()
            path = ast.Call("shortest", (self.variable(), self.variable(), edge, *weight), 0)
            if self.chance(30):
                path = self.variable()
            return ast.Call(self.one(("nodes", "edges", "length")), (path,), 0)
        if self.chance(50):
            return ast.Call(self.one(("id", "type")), (self.variable(),), 0)
        edge = ast.EdgeName(self.one(EDGES), self.chance(40), 0)
        return ast.Call("degree", (self.variable(), edge), 0)

    def _block(self, inner):
        clauses = self.several(lambda: self.clause(0), 1, 2)
        return ast.Block(self.one(("exists", "count")), clauses, 0)

    def _logic(self, inner):
        op = self.one(("and", "or"))
        parts: list = []
        for item in self.several(inner, 2, 3):
            same = isinstance(item, ast.Logic) and item.op == op
            parts.extend(item.items if same else (item,))
        return ast.Logic(op, tuple(parts), 0)

    def _unary(self, inner):
        item = inner()
        if self.chance(50):
            return ast.Unary("not", item, 0)
        if isinstance(item, ast.Lit) and item.kind in {"int", "float"}:
            return ast.Lit(item.kind, -item.value, 0)
        return ast.Unary("-", item, 0)

    def _test(self, inner):
        if self.chance(50):
            return ast.NullTest(inner(), self.chance(50), 0)
        options = self.one((self.list_literal, self.variable, lambda: self._function(inner)))()
        return ast.In(inner(), options, self.chance(50), 0)

    def _function(self, inner):
        names = ("lower", "coalesce", "substring", "round", "to_date", "days", "trunc")
        return ast.Call(self.one(names), self.several(inner, 0, 3), 0)

    def _search(self, inner):
        name = self.one(("search", "match_text", "fuzzy", "rank", "rrf"))
        if name == "rank":
            return self._rank(inner)
        if name == "rrf":
            return ast.Call("rrf", (self._rank(inner), self._rank(inner), inner()), 0)
        count = 3 if name == "fuzzy" and self.chance(50) else 2
        return ast.Call(name, tuple(inner() for _ in range(count)), 0)

    def _rank(self, inner):
        if self.chance(50):
            return ast.Call("nearest", (self.access(), inner()), 0)
        return ast.Call("bm25", (inner(), inner()), 0)

    def _aggregate(self, inner):
        if self.chance(20):
            return ast.Aggregate("count", None, distinct=False, at=0)
        name = self.one(("count", "sum", "avg", "min", "max", "collect", "percentile"))
        share = inner() if name == "percentile" else None
        return ast.Aggregate(name, inner(), self.chance(20), 0, share)

    # --- queries ---

    def clause(self, depth: int = 2):
        if depth and self.chance(25):
            clauses = self.several(lambda: self.clause(depth - 1), 1, 3)
            return ast.BlockClause(self.one(("not", "optional")), clauses, 0)
        return self.one((self.binding, self.traversal, self.filter, self.unwind))()

    def binding(self) -> ast.Binding:
        match = lambda: ast.Entry(self.one(NAMES), self.matched(), 0)  # noqa: E731
        return ast.Binding(self.one(VARS), self.one(TYPES), self.several(match, 0, 2), 0, 0)

    def traversal(self) -> ast.Traversal:
        bounded = self.chance(30)
        low = self.random.randint(0, 3) if bounded else 1
        high = self.one((None, 0, 2, 4)) if bounded else 1
        edge_var = self.variable() if self.chance(30) else None
        return ast.Traversal(
            self.variable(),
            edge_var,
            self.edges(),
            self.chance(20),
            low,
            high,
            bounded,
            self.variable(),
            0,
            0,
            0,
        )

    def filter(self) -> ast.FilterClause:
        expr = self.expression()
        if isinstance(expr, ast.Var | ast.Lit | ast.ListLit):
            expr = ast.NullTest(expr, negated=False, at=0)
        return ast.FilterClause(expr, 0)

    def projection(self) -> ast.Projection:
        if self.chance(10):
            return ast.Projection(ast.Star(self.one(VARS), 0), None, 0)
        alias = self.one(NAMES) if self.chance(30) else None
        return ast.Projection(self.expression(), alias, 0)

    def ordering(self) -> ast.Ordering:
        expr = ast.Word(self.one(NAMES), 0) if self.chance(30) else self.expression()
        nearest = isinstance(expr, ast.Call) and expr.name == "nearest"
        direction = None if nearest else self.one((None, "asc", "desc"))
        return ast.Ordering(expr, direction, 0)

    def window(self):
        if self.chance(60):
            return None
        if self.chance(50):
            return ast.Var(self.one(NAMES), 0)
        return ast.Lit("int", self.random.randint(0, 100), 0)

    def stage(self, *, first: bool):
        bound = (ast.Binding("p", "Person", (), 0, 0), *self.several(self.clause, 0, 4))
        return (
            bound if first or self.chance(70) else (),
            self.several(self.projection, 1, 3),
            self.chance(20),
            self.several(self.ordering, 0, 2),
            self.window(),
            self.window(),
            0,
            self.expression() if self.chance(15) else None,
        )

    def single(self) -> ast.ReadBody:
        count = self.random.randint(1, 2) if self.chance(20) else 0
        before = tuple(ast.Stage(*self.stage(first=not number)) for number in range(count))
        return ast.ReadBody(*self.stage(first=not count), before)

    def read(self) -> ast.ReadBody:
        union = lambda: ast.UnionPart(self.chance(50), self.single(), 0)  # noqa: E731
        unions = self.several(union, 1, 2) if self.chance(15) else ()
        return replace(self.single(), unions=unions)

    def unwind(self) -> ast.Unwind:
        return ast.Unwind(self.one((self.list_literal, self.access))(), self.variable(), 0)

    def param_type(self):
        nullable, is_list = self.chance(30), self.chance(30)
        if self.chance(60):
            return ast.TypeOf(self.one(TYPES), self.one(NAMES), nullable, is_list, 0)
        field = lambda: ast.FieldDecl(self.one(NAMES), self.one(FIELDS), 0)  # noqa: E731
        return ast.RecordDecl(self.several(field, 1, 3), nullable, is_list, 0)

    def statement(self):
        value = lambda: self.expression(2, where=True) if self.chance(30) else self.value()  # noqa: E731
        assign = lambda: ast.Entry(self.one(NAMES), value(), 0)  # noqa: E731
        kind = self.random.randrange(3)
        target = self.one(TYPES)
        if kind == 0:
            return ast.Insert(target, self.several(assign, 1, 3), 0, 0)
        where = self.expression(where=True)
        if kind == 1:
            return ast.Update(target, self.several(assign, 1, 3), where, 0, 0)
        return ast.Delete(target, where, 0, 0)

    def param(self) -> ast.ParamDecl:
        scalar = self.one(tuple(Scalar))
        vector = scalar is Scalar.VECTOR
        kind = PropertyType(
            scalar=scalar,
            nullable=self.chance(30),
            is_list=not vector and self.chance(20),
            dimension=4 if vector else None,
        )
        default = self.scalar() if self.chance(20) else None
        kind = self.param_type() if self.chance(20) else kind
        return ast.ParamDecl(self.one(NAMES), kind, 0, default)

    def query(self) -> ast.Query:
        body = self.read()
        if self.chance(30):
            body = ast.MutationBody(self.several(self.statement, 1, 3))
        notes = [self.one(TEXTS) if self.chance(20) else None for _ in range(2)]
        return ast.Query(self.one(NAMES), self.several(self.param, 0, 3), *notes, body, 0, 0)

    def file(self) -> ast.QueryFile:
        return ast.QueryFile(self.several(self.query, 0, 2))


def damaged(random: Random, texts: list[str]) -> str:
    """One of the texts with a few characters replaced, dropped or doubled."""
    text = texts[random.randrange(len(texts))]
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(text))
        end = min(len(text), at + random.randint(0, 5))
        kind = random.randrange(3)
        middle = ("", DAMAGE[random.randrange(len(DAMAGE))], text[at:end] * 2)[kind]
        text = text[:at] + middle + text[end:]
    return text
