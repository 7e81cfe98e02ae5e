"""Recursive descent over the statements of a mutation."""

from __future__ import annotations

from typing import Literal

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.parse_expr import ExprParser
from omnigraph.compiler.text import Token
from omnigraph.model.limits import QUERY_STATEMENTS_MAX

STATEMENTS = ("insert", "upsert", "update", "delete", "for")
_TYPES = "type names start with an upper-case letter"


class MutationParser(ExprParser):
    """What stands in a mutation behind its `match`."""

    takes_records = False  # whether a parameter has fields

    def projections(self) -> tuple[ast.Projection, ...]:
        """What stands between the braces of `return` and `returning`."""
        raise AssertionError("only the parser of whole queries reads columns")

    def cap(self, count: int, limit: int, resource: str, at: int) -> None:
        if count > limit:
            raise self.error(f"{resource} are limited to {limit}", at=at, hint="split the query")

    def at_statement(self) -> bool:
        return any(self.at_word(word) for word in STATEMENTS)

    def mutation(
        self, at: int | None = None, clauses: tuple[ast.Clause, ...] = ()
    ) -> ast.MutationBody:
        """Statements in order, and what they return; the `match` in front was read already."""
        began = self.peek().at if at is None else at
        self.matched, self.named = bool(clauses), bool(clauses) or self.takes_records
        statements: list[ast.Statement] = []
        count = 0
        while self.at_statement():
            statement = self._for() if self.at_word("for") else self._simple()
            statements.append(statement)
            count += len(statement.statements) if isinstance(statement, ast.For) else 1
            self.cap(count, QUERY_STATEMENTS_MAX, "statements of a mutation", statement.at)
        returning: tuple[ast.Projection, ...] = ()
        if self.skip_word("returning"):
            self.expect("{", "`{`", hint="write `returning { $e.id, count(*) as n }`")
            returning = self.projections()
        elif self.at_word("return"):
            raise self.refusal("`returning`", hint="a mutation gives rows by `returning { ... }`")
        self.matched = self.named = False
        return ast.MutationBody(tuple(statements), began, clauses, returning)

    def _for(self) -> ast.For:
        at = self.take().at
        hint = "write `for $row in $rows  insert Person { name: $row.name }`"
        var = self.expect("variable", "a variable", hint=hint)
        if not self.skip_word("in"):
            raise self.refusal("`in`", words=("in",), hint=hint)
        items = self.expect("variable", "a parameter that is a list", hint=hint)
        self.named = True
        if not (braces := self.skip("{")):
            statements = [self._inner()]
        else:
            statements = []
            while not statements or not self.at("}"):
                statements.append(self._inner())
                count, word = len(statements), "statements of a mutation"
                self.cap(count, QUERY_STATEMENTS_MAX, word, statements[-1].at)
            self.take()
        found, of = ast.Var(var.text[1:], var.at), ast.Var(items.text[1:], items.at)
        return ast.For(found, of, tuple(statements), braces, at)

    def _inner(self) -> ast.Simple:
        if self.at_word("for") or not self.at_statement():
            hint = "a `for` inside a `for` is two queries" if self.at_word("for") else None
            what = "`insert`, `upsert`, `update` or `delete`"
            raise self.refusal(what, words=STATEMENTS[:-1], hint=hint)
        return self._simple()

    def _simple(self) -> ast.Simple:
        word = self.take()
        verb = word.text.lower()
        if verb in {"update", "delete"} and self.at("variable"):
            return self._found(word, verb)
        target = self.expect("type", "a type name", hint=_TYPES)
        if verb in {"insert", "upsert"}:
            return self._insert(word, verb, target)
        if verb == "delete":
            return ast.Delete(target.text, self._where(verb), word.at, target.at)
        self.expect_word("set")
        assigns = self._assigns()
        return ast.Update(target.text, assigns, self._where(verb), word.at, target.at)

    def _found(self, word: Token, verb: str) -> ast.UpdateFound | ast.DeleteFound:
        token = self.take()
        var = ast.Var(token.text[1:], token.at)
        found: ast.UpdateFound | ast.DeleteFound = ast.DeleteFound(var, word.at)
        if verb == "update":
            self.expect_word("set")
            found = ast.UpdateFound(var, self._assigns(), word.at)
        if self.at_word("where"):
            hint = "conditions on what is found are clauses of the `match { ... }` in front"
            raise self.refusal("the next statement", hint=hint)
        return found

    def _insert(self, word: Token, verb: str, target: Token) -> ast.Insert:
        assigns = self._assigns()
        mode: Literal["put", "nothing", "upsert"] = "upsert" if verb == "upsert" else "put"
        if mode == "put" and self.at_word("or"):
            self.take()
            self.expect_word("nothing")
            mode = "nothing"
        var = None
        if self.skip_word("as"):
            name = self.expect("variable", "a variable", hint="write `insert ... as $e`")
            var = ast.Var(name.text[1:], name.at)
            self.named = True
        return ast.Insert(target.text, assigns, word.at, target.at, mode, var)

    def _assigns(self) -> tuple[ast.Entry, ...]:
        self.expect("{", "`{`")
        assigns: list[ast.Entry] = []
        while not assigns or self.peek().kind != "}":
            name = self.name("a property name")
            self.expect(":", "`:` and a value", hint="assignments are written `name: value`")
            assigns.append(ast.Entry(name.text, self._of_row(), name.at))
            self.skip(",")
        self.take()
        return tuple(assigns)

    def _where(self, verb: str) -> ast.Expr:
        if not self.at_word("where"):
            hint = f"{verb} needs a condition, such as `where name = $name`"
            raise self.refusal("`where`", hint=hint)
        self.take()
        return self._of_row()

    def _of_row(self) -> ast.Expr:
        """An expression over the properties of the row that a statement looks at."""
        self.in_where = True
        expr = self.expression()
        self.in_where = False
        return expr
