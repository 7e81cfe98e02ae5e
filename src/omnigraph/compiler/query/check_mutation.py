"""The body of a mutation becomes a plan: targets, assignments and `where` conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal as Choice
from typing import assert_never

import msgspec

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import SIDES, ExprChecker
from omnigraph.compiler.query.scope import Context, Scope
from omnigraph.compiler.query.types import assignable, core, fitted
from omnigraph.compiler.text import MisfitError, RefusedError, each_checked
from omnigraph.model.schema import EdgeType, NodeType, Property, Scalar

_ENDS = ("from", "to")
_SIDES: Mapping[str, Choice["src", "dst"]] = {"from": "src", "to": "dst", **SIDES}


class MutationChecker(msgspec.Struct, frozen=True, kw_only=True):
    """Checks one mutation query. `plan()` is the only door."""

    context: Context
    params: tuple[ir.Param | ir.RecordParam, ...]

    def plan(self, body: ast.MutationBody) -> ir.MutationPlan | None:
        """The plan, or None when the context holds problems."""
        statements: tuple[ir.Statement, ...] = ()
        with suppress(RefusedError):
            statements = each_checked(self._statement, body.statements)
        if self.context.problems:
            return None
        return ir.MutationPlan(params=self.params, statements=statements)

    def _statement(self, statement: ast.Statement) -> ir.Statement:
        entity = self._target(statement)
        match statement:
            case ast.Insert():
                return self._insert(statement, entity)
            case ast.Update():
                return self._update(statement, entity)
            case ast.Delete():
                where = self._where(statement.where, entity)
                return ir.Delete(kind=entity.kind, type_name=entity.name, where=where)
            case _:
                assert_never(statement)

    def _target(self, statement: ast.Statement) -> NodeType | EdgeType:
        """The type of that name; where a node and an edge share it, endpoints tell them apart."""
        catalog = self.context.catalog
        node = catalog.nodes.get(statement.type_name)
        edge = catalog.edges.get(statement.type_name)
        if node is not None and edge is not None:
            written = _names_in(statement)
            ends = {*_ENDS, "src", "dst"} - set(node.by_name)
            return edge if written & ends else node
        found = node or edge
        if found is None:
            message = f"unknown type `{statement.type_name}`"
            problems = self.context.problems
            hint = problems.suggest(statement.type_name, [*catalog.nodes, *catalog.edges])
            raise problems.refused(statement.type_at, message, code="T10", hint=hint)
        return found

    def _where(self, where: ast.Expr, entity: NodeType | EdgeType) -> ir.Expr:
        checker = _RowChecker(context=self.context, scope=Scope(), entity=entity)
        return checker.condition(where)

    # --- insert ---

    def _insert(self, statement: ast.Insert, entity: NodeType | EdgeType) -> ir.Insert:
        ends: dict[str, ir.Expr | None] = {}
        plain: list[ast.Entry] = []
        for assign in statement.assigns:
            if isinstance(entity, EdgeType) and assign.name in _ENDS:
                if assign.name in ends:
                    self._report_twice(assign)
                ends[assign.name] = self._endpoint(assign, entity)
            else:
                plain.append(assign)
        assignments: tuple[ir.Assignment, ...] = ()
        with suppress(RefusedError):
            assignments = self._assignments(plain, entity, row=False)
        written = {assign.name for assign in plain}
        self._require_all(statement, entity, written | set(ends))
        defaults = tuple(
            ir.Assignment(property=prop.name, type=prop.type, value=_default(prop))
            for prop in entity.properties
            if prop.default is not None and prop.name not in written
        )
        return ir.Insert(
            kind=entity.kind,
            type_name=entity.name,
            assignments=(*assignments, *defaults),
            from_id=ends.get("from"),
            to_id=ends.get("to"),
        )

    def _require_all(
        self, statement: ast.Insert, entity: NodeType | EdgeType, written: set[str]
    ) -> None:
        report = self.context.problems.report
        if isinstance(entity, EdgeType):
            for end in _ENDS:
                if end not in written:
                    node = entity.from_type if end == "from" else entity.to_type
                    message = f"insert of edge `{entity.name}` misses required endpoint `{end}`"
                    hint = f"`{end}` is the id of a {node} node"
                    report(statement.at, message, code="T12", hint=hint)
        for prop in entity.properties:
            if prop.type.nullable or prop.default is not None or prop.name in written:
                continue
            message = f"insert of `{entity.name}` misses required property `{prop.name}`"
            if prop.embed is not None:
                if prop.embed.source in written:
                    continue
                message += f" or its embedding source `{prop.embed.source}`"
            report(statement.at, message, code="T12", hint=f"add `{prop.name}: ...`")

    def _endpoint(self, assign: ast.Entry, edge: EdgeType) -> ir.Expr | None:
        with suppress(RefusedError):
            return self._value(assign, Property(name=assign.name, type=ir.ID), edge, row=False)
        return None

    # --- update ---

    def _update(self, statement: ast.Update, entity: NodeType | EdgeType) -> ir.Update:
        for assign in statement.assigns:
            if isinstance(entity, NodeType) and assign.name in entity.key:
                message = (
                    f"cannot update @key property '{assign.name}' — delete and re-insert instead"
                )
                self.context.problems.report(assign.at, message)
            if isinstance(entity, EdgeType) and _is_end(entity, assign.name):
                message = (
                    f"cannot update endpoint `{assign.name}` of edge `{entity.name}` — "
                    "delete and re-insert instead"
                )
                self.context.problems.report(assign.at, message, code="T16")
        plain = [a for a in statement.assigns if not _is_end(entity, a.name)]
        assignments: tuple[ir.Assignment, ...] = ()
        with suppress(RefusedError):
            assignments = self._assignments(plain, entity, row=True)
        where = self._where(statement.where, entity)
        return ir.Update(
            kind=entity.kind, type_name=entity.name, assignments=assignments, where=where
        )

    # --- assignments ---

    def _assignments(
        self, assigns: Sequence[ast.Entry], entity: NodeType | EdgeType, *, row: bool
    ) -> tuple[ir.Assignment, ...]:
        seen: set[str] = set()

        def assignment(assign: ast.Entry) -> ir.Assignment:
            if assign.name in seen:
                self._report_twice(assign)
                raise RefusedError
            seen.add(assign.name)
            prop = entity.by_name.get(assign.name)
            if prop is None:
                raise _unknown(self.context, entity, assign.name, assign.at)
            value = self._value(assign, prop, entity, row=row)
            return ir.Assignment(property=prop.name, type=prop.type, value=value)

        return each_checked(assignment, assigns)

    def _report_twice(self, assign: ast.Entry) -> None:
        message = f"duplicate assignment for property `{assign.name}`"
        self.context.problems.report(assign.at, message, code="T13", hint="assign it once")

    def _value(
        self, assign: ast.Entry, prop: Property, entity: NodeType | EdgeType, *, row: bool
    ) -> ir.Expr:
        """The value of an assignment; with `row` it may be computed from what the row was."""
        value = assign.value
        refused = partial(self.context.problems.refused, value.at, code="T7")
        if isinstance(value, ast.Lit | ast.ListLit):
            try:
                return fitted(value, prop.type, prop.name)
            except MisfitError as error:
                code = error.code or (None if error.message.startswith("list literal") else "T7")
                raise error.at(value.at, self.context.problems, code=code) from error
        if isinstance(value, ast.NowCall):
            if assignable(ir.TIMESTAMP, prop.type):
                return ir.Now()
            kind = core(prop.type)
            raise refused(f"now() is a DateTime but property `{prop.name}` has type {kind}")
        hint = None
        if isinstance(value, ast.Var):
            given: ir.Expr = _parameter(self.context, value)
            what, hint = (
                f"`${value.name}`",
                f"declare the parameter as `${value.name}: {prop.type}`",
            )
        else:
            of = entity if row else None
            checker = _RowChecker(context=self.context, scope=Scope(), entity=of)
            given, what = checker.check(value), "the value"
        if not assignable(given.type, prop.type):
            message = (
                f"property `{prop.name}` of `{entity.name}` has type {core(prop.type)} "
                f"but {what} is {core(given.type)}"
            )
            raise refused(message, hint=hint)
        return given


class _RowChecker(ExprChecker, kw_only=True):
    """Checks an expression of a statement: bare words are properties of the row that it looks at,
    and variables are parameters. An insert looks at no row."""

    entity: NodeType | EdgeType | None

    def variable(self, var: ast.Var) -> ir.Expr:
        return _parameter(self.context, var)

    def word(self, word: ast.Word) -> ir.Expr:
        entity = self.entity
        if entity is None:
            message = f"`{word.name}` is neither a value nor a variable"
            hint = f'an insert has no row to read; text takes quotes: "{word.name}"'
            raise self.context.problems.refused(word.at, message, hint=hint)
        prop = entity.by_name.get(word.name)
        if prop is None:
            if word.name == "id":
                return ir.IdRef(var=ir.SELF)
            if isinstance(entity, EdgeType) and word.name in _SIDES:
                return ir.EndpointRef(var=ir.SELF, side=_SIDES[word.name])
            raise _unknown(self.context, entity, word.name, word.at)
        if prop.type.scalar is Scalar.BLOB:
            message = f"blob property `{prop.name}` cannot be used in WHERE predicates"
            raise self.context.problems.refused(word.at, message, code="T11")
        return ir.PropertyRef(var=ir.SELF, prop=prop.name, type=prop.type)


def _parameter(context: Context, var: ast.Var) -> ir.Param:
    declared = context.params.get(var.name)
    if declared is None:
        message = f"mutation variable `${var.name}` must be a declared query parameter"
        hint = context.problems.suggest(var.name, context.params)
        raise context.problems.refused(var.at, message, code="T14", hint=hint)
    return ir.Param(name=var.name, type=declared)


def _unknown(context: Context, entity: NodeType | EdgeType, name: str, at: int) -> RefusedError:
    message = f"{entity.kind} type `{entity.name}` has no property `{name}`"
    choices = [*entity.by_name, *(_ENDS if isinstance(entity, EdgeType) else ())]
    hint = context.problems.suggest(name, choices)
    return context.problems.refused(at, message, code="T11", hint=hint)


def _is_end(entity: NodeType | EdgeType, name: str) -> bool:
    return isinstance(entity, EdgeType) and name in _SIDES and name not in entity.by_name


def _default(prop: Property) -> ir.Literal:
    """The declared default as a value of the property's type; the schema checked that it fits."""
    value = prop.default
    kinds = {str: "string", bool: "bool", int: "int", float: "float"}
    return fitted(ast.Lit(kinds[type(value)], value, 0), prop.type, prop.name)


def _names_in(statement: ast.Statement) -> set[str]:
    """Every property name that a statement writes or tests."""
    names: set[str] = set()
    if not isinstance(statement, ast.Delete):
        names |= {assign.name for assign in statement.assigns}
    if not isinstance(statement, ast.Insert):
        names |= {part.name for part in ast.walk(statement.where) if isinstance(part, ast.Word)}
    return names
