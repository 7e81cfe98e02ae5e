"""The formatter: `.gq` text in one style. What it prints parses to the same tree, and every comment
survives, at most moved to the nearest line of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import assert_never

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.functions import FUNCTIONS
from omnigraph.compiler.query.parse import parse_file
from omnigraph.compiler.text import Lines, quoted
from omnigraph.model.schema import PropertyType

_INDENT = "    "
_COLUMNS_MAX = 100
_LEVELS = {"or": 1, "and": 2, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_NOT, _COMPARISON, _SUM, _UNARY, _PRIMARY = 3, 4, 5, 7, 8
_WALK = re.compile(r"\$\w+ (?:contains|starts_with|ends_with|like|matches|in|and|or) \$")


def format_source(source: str) -> str:
    """The text in the house style of queries, or ParseError."""
    return laid_out(parse_file(source), source)


def laid_out(file: ast.QueryFile, source: str = "") -> str:
    """The text of a tree, with the comments of its source; parsing it gives the tree back."""
    return _Writer(source).file(file)


class _Writer:
    """Prints a file with the comments of its source."""

    def __init__(self, source: str) -> None:
        self.end = len(source) + 1
        self.out = Lines(source)

    def file(self, file: ast.QueryFile) -> str:
        for index, query in enumerate(file.queries):
            if index:
                self.out.behind(before=query.at)
                self.out.add("")
            self._flush(query.at, 0)
            self._query(query)
        self._flush(self.end, 0)
        return str(self.out)

    def _flush(self, before: int, depth: int) -> None:
        self.out.comments(before=before, indent=_INDENT * depth)

    def _line(self, depth: int, text: str) -> None:
        self.out.add(_INDENT * depth + text)

    # --- queries ---

    def _query(self, query: ast.Query) -> None:
        params = ", ".join(map(_param, query.params))
        head = f"query {query.name}({params})"
        if query.description is None and query.instruction is None:
            self._line(0, head + " {")
        else:
            self._line(0, head)
            for word in ("description", "instruction"):
                text = getattr(query, word)
                if text is not None:
                    self._line(0, f"@{word}({quoted(text)})")
            self._line(0, "{")
        if isinstance(query.body, ast.ReadBody):
            self._read(query.body, query.end)
        else:
            self._mutation(query.body, query.end)
        self._flush(query.end, 1)
        self._line(0, "}")

    def _read(self, body: ast.ReadBody, end: int) -> None:
        parts = (body, *(part.body for part in body.unions))
        ends = [*(part.at for part in body.unions), end]
        for number, (part, until) in enumerate(zip(parts, ends, strict=True)):
            if number:
                union = body.unions[number - 1]
                self._flush(union.at, 1)
                self._line(1, "union all" if union.all else "union")
            stages = (*part.before, part)
            nexts = [*(stage.at for stage in stages[1:]), until]
            for stage, behind in zip(stages, nexts, strict=True):
                self._stage("return" if stage is part else "with", stage, behind)

    def _stage(self, word: str, stage: ast.Stage, end: int) -> None:
        first = stage.projections[0].at
        if stage.clauses:
            self._flush(stage.at, 1)
            self._line(1, "match {")
            for clause in stage.clauses:
                self._clause(clause, 2)
            # Comments at the end of the block stay in it.
            self._flush(first, 2)
            self._line(1, "}")
        after = min((order.at for order in stage.orderings), default=end)
        having_at = after if stage.having is None else stage.having.at
        items = [(item.at, _with(item.expr, "as", item.alias)) for item in stage.projections]
        self._group(f"{word} distinct" if stage.distinct else word, items, having_at)
        if stage.having is not None:
            self._group("having", [(stage.having.at, expression(stage.having))], after)
        if stage.orderings:
            items = [(item.at, _with(item.expr, item.direction)) for item in stage.orderings]
            paged = [count.at for count in (stage.limit, stage.offset) if count is not None]
            self._group("order", items, min(paged, default=end))
        for name, value in (("limit", stage.limit), ("offset", stage.offset)):
            if value is not None:
                self._flush(value.at, 1)
                self._line(1, f"{name} {expression(value)}")

    def _group(
        self,
        word: str,
        items: Sequence[tuple[int, str]],
        end: int,
        tail: str = "",
        *,
        depth: int = 1,
    ) -> None:
        """`word { a, b }` on one line when it fits and no comment stands inside."""
        line = f"{word} {{ {', '.join(text for _, text in items)} }}{tail}"
        fits = len(line) + depth * len(_INDENT) <= _COLUMNS_MAX
        if fits and not self.out.has_comment(end):
            self._line(depth, line)
            return
        self._line(depth, f"{word} {{")
        for index, (at, text) in enumerate(items):
            self._flush(at, depth + 1)
            self._line(depth + 1, text + ("," if index < len(items) - 1 else ""))
        self._flush(end, depth + 1)
        self._line(depth, "}" + tail)

    def _clause(self, clause: ast.Clause, depth: int) -> None:
        self._flush(clause.at, depth)
        if not isinstance(clause, ast.BlockClause):
            self._line(depth, _clause_text(clause))
            return
        only = clause.clauses[0]
        if len(clause.clauses) == 1 and not isinstance(only, ast.BlockClause):
            text = f"{clause.word} {{ {_clause_text(only)} }}"
            fits = len(text) + depth * len(_INDENT) <= _COLUMNS_MAX
            if fits and not self.out.has_comment(only.at):
                self._line(depth, text)
                return
        self._line(depth, f"{clause.word} {{")
        for inner in clause.clauses:
            self._clause(inner, depth + 1)
        self._line(depth, "}")

    # --- mutations ---

    def _mutation(self, body: ast.MutationBody, end: int) -> None:
        if body.clauses:
            self._flush(body.at, 1)
            self._line(1, "match {")
            for clause in body.clauses:
                self._clause(clause, 2)
            self._flush(body.statements[0].at, 2)
            self._line(1, "}")
        for statement in body.statements:
            if not isinstance(statement, ast.For):
                self._statement(statement, 1)
                continue
            self._flush(statement.at, 1)
            tail = " {" if statement.braces else ""
            self._line(1, f"for ${statement.var.name} in ${statement.items.name}{tail}")
            for inner in statement.statements:
                self._statement(inner, 2)
            if statement.braces:
                self._line(1, "}")
        if body.returning:
            items = [(item.at, _with(item.expr, "as", item.alias)) for item in body.returning]
            self._flush(items[0][0], 1)
            self._group("returning", items, end)

    def _statement(self, statement: ast.Simple, depth: int) -> None:
        self._flush(statement.at, depth)
        if isinstance(statement, ast.DeleteFound):
            self._line(depth, f"delete ${statement.var.name}")
            return
        if isinstance(statement, ast.Delete):
            text = f"delete {statement.type_name} where {expression(statement.where)}"
            self._line(depth, text)
            return
        assigns = [
            (item.at, f"{item.name}: {expression(item.value)}") for item in statement.assigns
        ]
        end, tail = assigns[-1][0], ""
        match statement:
            case ast.Insert():
                verb = "upsert" if statement.mode == "upsert" else "insert"
                head = f"{verb} {statement.type_name}"
                tail += " or nothing" if statement.mode == "nothing" else ""
                tail += "" if statement.var is None else f" as ${statement.var.name}"
            case ast.UpdateFound():
                head = f"update ${statement.var.name} set"
            case ast.Update():
                head = f"update {statement.type_name} set"
                end, tail = statement.where.at, f" where {expression(statement.where)}"
            case _:
                assert_never(statement)
        self._group(head, assigns, end, tail, depth=depth)


def _param(param: ast.ParamDecl) -> str:
    default = "" if param.default is None else f" = {expression(param.default)}"
    return f"${param.name}: {param_type(param.type)}{default}"


def param_type(kind: PropertyType | ast.TypeOf | ast.RecordDecl) -> str:
    """The type of a parameter, or of a field of one, as it is written."""
    match kind:
        case PropertyType():
            return str(kind)
        case ast.TypeOf():
            core = f"{kind.type_name}.{kind.prop}"
        case _:
            fields = ", ".join(f"{field.name}: {param_type(field.type)}" for field in kind.fields)
            core = f"{{{fields}}}"
    return (f"[{core}]" if kind.is_list else core) + ("?" if kind.nullable else "")


def _clause_text(clause: ast.Binding | ast.Traversal | ast.FilterClause | ast.Unwind) -> str:
    match clause:
        case ast.Unwind():
            return f"unwind {expression(clause.items)} as ${clause.var.name}"
        case ast.Binding():
            text = f"${clause.var}: {clause.type_name}"
            if clause.matches:
                items = ", ".join(f"{m.name}: {expression(m.value)}" for m in clause.matches)
                text += f" {{ {items} }}"
            return text
        case ast.Traversal():
            edge = f"<{clause.edge}>" if clause.undirected else clause.edge
            if clause.edge_var is not None:
                edge = f"${clause.edge_var.name}:{edge}"
            if clause.bounded:
                high = "" if clause.max_hops is None else clause.max_hops
                edge += f"{{{clause.min_hops},{high}}}"
            return f"${clause.src.name} {edge} ${clause.dst.name}"
        case ast.FilterClause():
            text = expression(clause.expr)
            # A leading minus would read as a subtraction from the clause before, and two bare
            # variables around a word as a traversal.
            return f"({text})" if text.startswith("-") or _WALK.match(text) else text


def _with(expr: ast.Expr, *words: str | None) -> str:
    """An expression and the words behind it, if they are all there."""
    text = expression(expr)
    return text if None in words else " ".join((text, *filter(None, words)))


def expression(expr: ast.Expr, level: int = 0) -> str:
    """The text of an expression, in parentheses when it binds looser than `level`."""
    own, text = _parts(expr)
    return f"({text})" if own < level else text


def _parts(expr: ast.Expr) -> tuple[int, str]:
    """How tightly an expression binds, and its text."""
    match expr:
        case ast.Logic():
            level = _LEVELS[expr.op]
            return level, f" {expr.op} ".join(expression(i, level + 1) for i in expr.items)
        case ast.Unary() if expr.op == "not":
            return _NOT, f"not {expression(expr.item, _NOT)}"
        case ast.Binary():
            level = _LEVELS.get(expr.op, _COMPARISON)
            # Comparisons do not chain; arithmetic leans to the left.
            left = expression(expr.left, _SUM if level == _COMPARISON else level)
            return level, f"{left} {expr.op} {expression(expr.right, level + 1)}"
        case ast.In():
            word = "not in" if expr.negated else "in"
            options = expression(expr.options, _PRIMARY)
            return _COMPARISON, f"{expression(expr.item, _SUM)} {word} {options}"
        case ast.Between():
            bounds = f"{expression(expr.low, _SUM)} and {expression(expr.high, _SUM)}"
            return _COMPARISON, f"{expression(expr.item, _SUM)} between {bounds}"
        case ast.NullTest():
            word = "is not null" if expr.negated else "is null"
            return _COMPARISON, f"{expression(expr.item, _SUM)} {word}"
        case ast.Unary():
            return _UNARY, f"-{expression(expr.item, _UNARY)}"
        case _:
            return _PRIMARY, _primary(expr)


def _primary(expr: ast.Expr) -> str:
    match expr:
        case ast.Lit():
            return _literal(expr)
        case ast.ListLit():
            return f"[{', '.join(_literal(item) for item in expr.items)}]"
        case ast.Var():
            return f"${expr.name}"
        case ast.Access():
            return f"${expr.var}.{expr.prop}"
        case ast.Word():
            return expr.name
        case ast.NowCall():
            return "now()"
        case ast.Index():
            low = "" if expr.low is None else expression(expr.low, _SUM)
            high = "" if expr.high is None else expression(expr.high, _SUM)
            places = f"{low}..{high}" if expr.sliced else low
            return f"{expression(expr.items, _PRIMARY)}[{places}]"
        case ast.Case():
            return _case(expr)
        case ast.Block():
            # Clauses need no separator, but two lines of them could run into one another.
            return f"{expr.word} {{ {'  '.join(map(_inline, expr.clauses))} }}"
        case ast.EdgeName():
            return f"<{expr.name}>" if expr.undirected else expr.name
        case ast.Call():
            # A search takes sums as its arguments, other functions whole expressions.
            level = _SUM if FUNCTIONS[expr.name].kind == "search" else 0
            return f"{expr.name}({', '.join(expression(arg, level) for arg in expr.args)})"
        case ast.Aggregate():
            if expr.arg is None:
                return f"{expr.name}(*)"
            word = "distinct " if expr.distinct else ""
            share = "" if expr.share is None else f", {expression(expr.share, _SUM)}"
            return f"{expr.name}({word}{expression(expr.arg, _SUM)}{share})"
        case ast.Star():
            return f"${expr.var}.*"
        case _:
            raise AssertionError("operators are printed elsewhere")


def _case(case: ast.Case) -> str:
    parts = ["case"]
    if case.subject is not None:
        parts.append(expression(case.subject, _SUM))
    for condition, value in case.whens:
        parts.append(f"when {expression(condition)} then {expression(value)}")
    if case.otherwise is not None:
        parts.append(f"else {expression(case.otherwise)}")
    return " ".join([*parts, "end"])


def _inline(clause: ast.Clause) -> str:
    """A clause inside an expression; a condition is bracketed, so that no other joins it."""
    if isinstance(clause, ast.BlockClause):
        return f"{clause.word} {{ {'  '.join(map(_inline, clause.clauses))} }}"
    text = _clause_text(clause)
    bare = not isinstance(clause, ast.FilterClause) or text.startswith("(")
    return text if bare else f"({text})"


def _literal(lit: ast.Lit) -> str:
    match lit.kind:
        case "string":
            return quoted(str(lit.value))
        case "date" | "datetime":
            return f"{lit.kind}({quoted(str(lit.value))})"
        case "bool":
            return "true" if lit.value else "false"
        case "null":
            return "null"
        case _:
            return repr(lit.value)
