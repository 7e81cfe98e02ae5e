"""Mutations: targets, assignments and `where` conditions become typed statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as Choice
from typing import assert_never

import msgspec

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import Context, ExprChecker, Scope
from omnigraph.compiler.query.types import (
    LiteralError,
    assignable,
    core,
    fitted,
)
from omnigraph.model.schema import EdgeType, NodeType, Property, Scalar

_ENDS = ("from", "to")
_SIDES: dict[str, Choice["src", "dst"]] = {"from": "src", "to": "dst", "src": "src", "dst": "dst"}


class MutationChecker(msgspec.Struct, frozen=True, kw_only=True):
    """Checks one mutation query. `plan()` is the only door."""

    context: Context
    params: tuple[ir.ParamDecl, ...]

    def plan(self, body: ast.MutationBody) -> ir.MutationPlan | None:
        """The plan, or None when the context holds problems."""
        statements = [self._statement(statement) for statement in body.statements]
        if self.context.problems:
            return None
        sound = tuple(statement for statement in statements if statement is not None)
        assert len(sound) == len(statements), "a missing statement comes with a problem"
        return ir.MutationPlan(params=self.params, statements=sound)

    def _statement(self, statement: ast.Statement) -> ir.Statement | None:
        entity = self._target(statement)
        if entity is None:
            return None
        match statement:
            case ast.Insert():
                return self._insert(statement, entity)
            case ast.Update():
                return self._update(statement, entity)
            case ast.Delete():
                where = self._where(statement.where, entity)
                if where is None:
                    return None
                return ir.Delete(kind=entity.kind, type_name=entity.name, where=where)
            case _:
                assert_never(statement)

    def _target(self, statement: ast.Statement) -> NodeType | EdgeType | None:
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
            hint = self.context.problems.suggest(
                statement.type_name, [*catalog.nodes, *catalog.edges]
            )
            self.context.problems.report(statement.type_at, message, code="T10", hint=hint)
        return found

    def _where(self, where: ast.Expr, entity: NodeType | EdgeType) -> ir.Expr | None:
        checker = _WhereChecker(context=self.context, scope=Scope(), entity=entity)
        return checker.condition(where)

    # --- insert ---

    def _insert(self, statement: ast.Insert, entity: NodeType | EdgeType) -> ir.Insert | None:
        ends: dict[str, ir.Literal | ir.Param | None] = {}
        plain: list[ast.Assign] = []
        for assign in statement.assigns:
            if isinstance(entity, EdgeType) and assign.name in _ENDS:
                if assign.name in ends:
                    self._report_twice(assign)
                ends[assign.name] = self._endpoint(assign, entity)
            else:
                plain.append(assign)
        assignments = self._assignments(plain, entity)
        written = {assign.name for assign in plain}
        self._require_all(statement, entity, written | set(ends))
        defaults = tuple(
            ir.Assignment(property=prop.name, type=prop.type, value=_default(prop))
            for prop in entity.properties
            if prop.default is not None and prop.name not in written
        )
        if assignments is None:
            return None
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

    def _endpoint(self, assign: ast.Assign, edge: EdgeType) -> ir.Literal | ir.Param | None:
        value = self._value(assign, Property(name=assign.name, type=ir.ID), edge)
        return value if isinstance(value, ir.Literal | ir.Param) else None

    # --- update ---

    def _update(self, statement: ast.Update, entity: NodeType | EdgeType) -> ir.Update | None:
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
        assignments = self._assignments(plain, entity)
        where = self._where(statement.where, entity)
        if assignments is None or where is None:
            return None
        return ir.Update(
            kind=entity.kind, type_name=entity.name, assignments=assignments, where=where
        )

    # --- assignments ---

    def _assignments(
        self, assigns: Sequence[ast.Assign], entity: NodeType | EdgeType
    ) -> tuple[ir.Assignment, ...] | None:
        found: list[ir.Assignment] = []
        seen: set[str] = set()
        for assign in assigns:
            if assign.name in seen:
                self._report_twice(assign)
                continue
            seen.add(assign.name)
            prop = entity.by_name.get(assign.name)
            if prop is None:
                _report_unknown(self.context, entity, assign.name, assign.at)
                continue
            value = self._value(assign, prop, entity)
            if value is not None:
                found.append(ir.Assignment(property=prop.name, type=prop.type, value=value))
        return tuple(found) if len(found) == len(assigns) else None

    def _report_twice(self, assign: ast.Assign) -> None:
        message = f"duplicate assignment for property `{assign.name}`"
        self.context.problems.report(assign.at, message, code="T13", hint="assign it once")

    def _value(
        self, assign: ast.Assign, prop: Property, entity: NodeType | EdgeType
    ) -> ir.Literal | ir.Param | ir.Now | None:
        problems = self.context.problems
        value = assign.value
        if isinstance(value, ast.Lit | ast.ListLit):
            try:
                return fitted(value, prop.type, prop.name)
            except LiteralError as error:
                code = error.code or (None if error.message.startswith("list literal") else "T7")
                problems.report(value.at, error.message, code=code, hint=error.hint)
                return None
        if isinstance(value, ast.NowCall):
            if assignable(ir.TIMESTAMP, prop.type):
                return ir.Now()
            message = f"now() is a DateTime but property `{prop.name}` has type {core(prop.type)}"
            problems.report(value.at, message, code="T7")
            return None
        assert isinstance(value, ast.Var), "the grammar takes nothing else"
        given = _parameter(self.context, value)
        if given is None:
            return None
        if not assignable(given.type, prop.type):
            message = (
                f"property `{prop.name}` of `{entity.name}` has type {core(prop.type)} "
                f"but `${value.name}` is {core(given.type)}"
            )
            hint = f"declare the parameter as `${value.name}: {prop.type}`"
            problems.report(value.at, message, code="T7", hint=hint)
            return None
        return given


class _WhereChecker(ExprChecker, kw_only=True):
    """Checks the condition of an update or delete: bare words are properties of the target, and
    variables are parameters."""

    entity: NodeType | EdgeType

    def variable(self, var: ast.Var) -> ir.Expr | None:
        return _parameter(self.context, var)

    def word(self, word: ast.Word) -> ir.Expr | None:
        prop = self.entity.by_name.get(word.name)
        if prop is None:
            if word.name == "id":
                return ir.IdRef(var=ir.SELF)
            if isinstance(self.entity, EdgeType) and word.name in _SIDES:
                return ir.EndpointRef(var=ir.SELF, side=_SIDES[word.name])
            _report_unknown(self.context, self.entity, word.name, word.at)
            return None
        if prop.type.scalar is Scalar.BLOB:
            message = f"blob property `{prop.name}` cannot be used in WHERE predicates"
            self.context.problems.report(word.at, message, code="T11")
            return None
        return ir.PropertyRef(var=ir.SELF, prop=prop.name, type=prop.type)


def _parameter(context: Context, var: ast.Var) -> ir.Param | None:
    declared = context.params.get(var.name)
    if declared is None:
        message = f"mutation variable `${var.name}` must be a declared query parameter"
        hint = context.problems.suggest(var.name, context.params)
        context.problems.report(var.at, message, code="T14", hint=hint)
        return None
    return ir.Param(name=var.name, type=declared)


def _report_unknown(context: Context, entity: NodeType | EdgeType, name: str, at: int) -> None:
    message = f"{entity.kind} type `{entity.name}` has no property `{name}`"
    choices = [*entity.by_name, *(_ENDS if isinstance(entity, EdgeType) else ())]
    context.problems.report(at, message, code="T11", hint=context.problems.suggest(name, choices))


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
