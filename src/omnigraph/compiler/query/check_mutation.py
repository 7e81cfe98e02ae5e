"""The body of a mutation becomes a plan: the match in front, statements, and what they return.

Statements see a row of the match, an item of a `for` and entities inserted before them as
parameters: `#0`, `#1`, … are columns that the match computes, the others have the written names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

import msgspec

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import ExprChecker
from omnigraph.compiler.query.check_match import MatchChecker
from omnigraph.compiler.query.check_returning import ENDS, returning
from omnigraph.compiler.query.scope import Context, Name, Scope, property_ref
from omnigraph.compiler.query.types import assignable, core, element, fitted, kind_word
from omnigraph.compiler.text import MisfitError, RefusedError, each_checked
from omnigraph.model.schema import EdgeType, NodeType, Property, Scalar

_ENDS = ("from", "to")
Entity = NodeType | EdgeType


class MutationChecker(msgspec.Struct, kw_only=True):
    """Checks one mutation query. `plan()` is the only door."""

    context: Context
    params: tuple[ir.Param | ir.RecordParam, ...]
    scope: Scope = msgspec.field(default_factory=Scope)  # what the match binds
    names: dict[str, Name] = msgspec.field(default_factory=dict)
    # What statements want of a row of the match; equal expressions share a place.
    _columns: dict[ir.Expr, int] = msgspec.field(default_factory=dict)
    _wanted: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    _statement_at: tuple[int, int] = (0, 0)  # its number and its line

    def plan(self, body: ast.MutationBody) -> ir.MutationPlan | None:
        """The plan, or None when the context holds problems."""
        block = None
        if body.clauses:
            block = MatchChecker(context=self.context, scope=self.scope).block(body.clauses)
        statements: tuple[ir.Statement, ...] = ()
        with suppress(RefusedError):
            statements = each_checked(self._statement, body.statements)
        shown = None
        with suppress(RefusedError):
            shown = self._returning(body) if body.returning else None
        if self.context.problems:
            return None
        return ir.MutationPlan(
            params=self.params,
            statements=statements,
            match=None if block is None else self._match(block),
            wanted=self._wanted,
            returning=shown,
        )

    def _returning(self, body: ast.MutationBody) -> ir.Returning:
        last = body.statements[-1]
        changed = None
        if isinstance(last, ast.Update | ast.Delete) and not body.clauses:
            changed = self._target(last)
        return returning(self.context, self.params, body, self, changed=changed)

    def _match(self, block: ir.MatchBlock) -> ir.ReadPlan:
        """The match, with a column for everything that statements want of a row."""
        names = {expr: f"#{place}" for expr, place in self._columns.items()}
        return ir.ReadPlan(
            params=self.params,
            variables=self.context.variables,
            match=block,
            grouping=None,
            projections=tuple(ir.Projection(name=names[expr], expr=expr) for expr in names),
            columns=tuple(
                ir.ColumnInfo(name=name, type=expr.type, kind=kind_word(expr.type), label=name)
                for expr, name in names.items()
            ),
            tie_break=self.scope.row_order(),
        )

    def column(self, expr: ir.Expr) -> ir.Param:
        """A value of the match's row, as statements see it."""
        place = self._columns.setdefault(expr, len(self._columns))
        self._wanted.setdefault(f"#{place}", self._statement_at)
        return ir.Param(name=f"#{place}", type=expr.type)

    # --- statements ---

    def _statement(self, statement: ast.Statement) -> ir.Statement:
        if not isinstance(statement, ast.For):
            return self._simple(statement)
        refused = self.context.problems.refused
        record = self.context.records.get(statement.items.name)
        if record is not None and record.is_list:
            fields = {field.name: field.type for field in record.fields}
            return self._loop(statement, Name(fields=fields), tuple(fields))
        items = self.context.params.get(statement.items.name)
        if items is None:
            message = f"`for` runs over a parameter, and `${statement.items.name}` is none"
            hint = self.context.problems.suggest(statement.items.name, self.context.params)
            raise refused(statement.items.at, message, code="T14", hint=hint)
        if not items.is_list:
            message = f"`for` runs over a list, and `${statement.items.name}` is {core(items)}"
            hint = f"declare it as `${statement.items.name}: [{core(items)}]`"
            raise refused(statement.items.at, message, code="T7", hint=hint)
        return self._loop(statement, Name(value=element(items)), None)

    def _loop(self, statement: ast.For, item: Name, fields: tuple[str, ...] | None) -> ir.Loop:
        self._name(statement.var, item)
        known = set(self.names)
        made = each_checked(self._simple, statement.statements)
        for name in self.names.keys() - known:
            # Behind the loop there are as many of them as there were items.
            self.names[name] = msgspec.structs.replace(self.names[name], value=None)
        del self.names[statement.var.name]
        return ir.Loop(
            name=statement.var.name, items=statement.items.name, fields=fields, statements=made
        )

    def _name(self, var: ast.Var, name: Name) -> None:
        known = (self.names, self.context.params, self.context.records)
        if self._is_found(var.name) or any(var.name in names for names in known):
            message = f"`${var.name}` has a meaning already"
            raise self.context.problems.refused(var.at, message, hint="choose another name")
        self.names[var.name] = name

    def _simple(self, statement: ast.Simple) -> ir.Simple:
        number = self._statement_at[0] + 1
        line = self.context.problems.source.place(statement.at)[0]
        self._statement_at = (number, line)
        found: ir.Simple
        match statement:
            case ast.UpdateFound() | ast.DeleteFound():
                found = self._of_found(statement)
            case ast.Insert():
                found = self._insert(statement, self._target(statement))
            case ast.Update():
                found = self._update(statement, self._target(statement))
            case ast.Delete():
                entity = self._target(statement)
                where = self._where(statement.where, entity)
                found = ir.Delete(kind=entity.kind, type_name=entity.name, where=where)
            case _:
                assert_never(statement)
        return msgspec.structs.replace(found, number=number, line=line)

    def _of_found(self, statement: ast.UpdateFound | ast.DeleteFound) -> ir.Simple:
        var = statement.var
        bound = self.scope.get(var.name)
        if bound is None:
            message = f"`${var.name}` is not bound by a match in front of the statements"
            hint = self.context.problems.suggest(var.name, self.scope)
            hint = hint or f"write `match {{ ${var.name}: Type ... }}` first"
            raise self.context.problems.refused(var.at, message, code="T6", hint=hint)
        if bound.is_open:
            message = f"`${var.name}` may be of several types: {', '.join(bound.types)}"
            hint = "bind it with one type, and write a query for each"
            raise self.context.problems.refused(var.at, message, code="T10", hint=hint)
        entity, found = self._entity(bound), self.column(bound.id)
        if isinstance(statement, ast.DeleteFound):
            return ir.DeleteFound(kind=entity.kind, type_name=entity.name, entity=found)
        assignments = self._changed(statement.assigns, entity, bound)
        return ir.UpdateFound(
            kind=entity.kind, type_name=entity.name, entity=found, assignments=assignments
        )

    def _target(self, statement: ast.Insert | ast.Update | ast.Delete) -> Entity:
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

    def _where(self, where: ast.Expr, entity: Entity) -> ir.Expr:
        return self._row_checker(entity).condition(where)

    def _row_checker(self, entity: Entity | None) -> _RowChecker:
        return _RowChecker(context=self.context, scope=self.scope, entity=entity, owner=self)

    def _entity(self, bound: ir.Variable) -> Entity:
        assert not bound.is_open, "an open variable is no target"
        catalog = self.context.catalog
        types: Mapping[str, Entity] = catalog.nodes if bound.kind == "node" else catalog.edges
        return types[bound.type_name]

    # --- insert ---

    def _insert(self, statement: ast.Insert, entity: Entity) -> ir.Insert:
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
            assignments = self._assignments(plain, entity, of=None)
        written = {assign.name for assign in plain}
        self._require_all(statement, entity, written | set(ends))
        defaults = tuple(
            ir.Assignment(property=prop.name, type=prop.type, value=_default(prop))
            for prop in entity.properties
            if prop.default is not None and prop.name not in written
        )
        if statement.var is not None:
            variable = self.context.bind(Scope(), statement.var.name, entity.kind, entity.name)
            # What is left of one that is there already is not read for it.
            told = {"put": entity.by_name.keys(), "upsert": written, "nothing": _key(entity)}
            known = (
                entity.by_name[name] for name in told[statement.mode] if name in entity.by_name
            )
            fields = {prop.name: prop.type for prop in known}
            name = Name(value=ir.ID, fields={**fields, "id": ir.ID}, variable=variable)
            self._name(statement.var, name)
        return ir.Insert(
            kind=entity.kind,
            type_name=entity.name,
            assignments=assignments if statement.mode == "upsert" else (*assignments, *defaults),
            defaults=defaults if statement.mode == "upsert" else (),
            from_id=ends.get("from"),
            to_id=ends.get("to"),
            mode=statement.mode,
            name=None if statement.var is None else statement.var.name,
        )

    def _require_all(self, statement: ast.Insert, entity: Entity, written: set[str]) -> None:
        report = self.context.problems.report
        verb = "upsert" if statement.mode == "upsert" else "insert"
        if isinstance(entity, EdgeType):
            for end in _ENDS:
                if end not in written:
                    node = entity.from_type if end == "from" else entity.to_type
                    message = f"{verb} of edge `{entity.name}` misses required endpoint `{end}`"
                    hint = f"`{end}` is the id of a {node} node"
                    report(statement.at, message, code="T12", hint=hint)
        if statement.mode != "put" and not _can_be_met(entity):
            message = f"`{entity.name}` has nothing by which one that is there is known again"
            hint = "a node type needs a @key for that, an edge type @unique(src, dst)"
            report(statement.at, message, code="T12", hint=hint)
        for prop in entity.properties:
            if statement.mode == "upsert" and prop.name not in _key(entity):
                continue  # what is there already has them
            if prop.type.nullable or prop.default is not None or prop.name in written:
                continue
            message = f"{verb} of `{entity.name}` misses required property `{prop.name}`"
            if prop.embed is not None:
                if prop.embed.source in written:
                    continue
                message += f" or its embedding source `{prop.embed.source}`"
            report(statement.at, message, code="T12", hint=f"add `{prop.name}: ...`")

    def _endpoint(self, assign: ast.Entry, edge: EdgeType) -> ir.Expr | None:
        with suppress(RefusedError):
            self._require_end(assign, edge)
            return self._value(assign, Property(name=assign.name, type=ir.ID), edge, of=None)
        return None

    def _require_end(self, assign: ast.Entry, edge: EdgeType) -> None:
        """A variable that is put at an end is a node of its type."""
        if not isinstance(assign.value, ast.Var):
            return
        name = self.names.get(assign.value.name)
        bound = self.scope.get(assign.value.name) or (name and name.variable)
        wanted = edge.from_type if assign.name == "from" else edge.to_type
        if bound and (bound.kind, bound.type_name) != ("node", wanted):
            message = (
                f"`{assign.name}` of edge `{edge.name}` is a {wanted} but "
                f"`${assign.value.name}` is a {bound.type_name}"
            )
            raise self.context.problems.refused(assign.value.at, message, code="T5")

    # --- update ---

    def _update(self, statement: ast.Update, entity: Entity) -> ir.Update:
        assignments = self._changed(statement.assigns, entity, None)
        where = self._where(statement.where, entity)
        return ir.Update(
            kind=entity.kind, type_name=entity.name, assignments=assignments, where=where
        )

    def _changed(
        self, assigns: Sequence[ast.Entry], entity: Entity, found: ir.Variable | None
    ) -> tuple[ir.Assignment, ...]:
        """The assignments of an update: to an entity that is `found`, or to rows of its table."""
        for assign in assigns:
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
        plain = [a for a in assigns if not _is_end(entity, a.name)]
        with suppress(RefusedError):
            return self._assignments(plain, entity, of=found or entity)
        return ()

    # --- assignments ---

    def _assignments(
        self, assigns: Sequence[ast.Entry], entity: Entity, *, of: _Of
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
            value = self._value(assign, prop, entity, of=of)
            return ir.Assignment(property=prop.name, type=prop.type, value=value)

        return each_checked(assignment, assigns)

    def _report_twice(self, assign: ast.Entry) -> None:
        message = f"duplicate assignment for property `{assign.name}`"
        self.context.problems.report(assign.at, message, code="T13", hint="assign it once")

    def _value(self, assign: ast.Entry, prop: Property, entity: Entity, *, of: _Of) -> ir.Expr:
        """The value of an assignment; it may be computed from what the row or the entity `of` the
        statement was."""
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
        hint, what = None, "the value"
        if isinstance(value, ast.Var):
            given: ir.Expr = self.variable(value)
            what = f"`${value.name}`"
            if value.name in self.context.params:
                hint = f"declare the parameter as `${value.name}: {prop.type}`"
        elif self._is_of_match(value, of):
            given = self.column(self._match_checker(of).check(value))
        else:
            row = None if isinstance(of, ir.Variable) else of
            given = self._row_checker(row).check(value)
        if not assignable(given.type, prop.type):
            message = (
                f"property `{prop.name}` of `{entity.name}` has type {core(prop.type)} "
                f"but {what} is {core(given.type)}"
            )
            raise refused(message, hint=hint)
        return given

    def _is_of_match(self, value: ast.Expr, of: _Of) -> bool:
        """Whether the match can compute the value: it is about its row, and about nothing else."""
        about = False
        for part in ast.walk(value):
            if isinstance(part, ast.Block) or (
                isinstance(part, ast.Word) and isinstance(of, ir.Variable)
            ):
                about = True
            elif isinstance(part, ast.Word):
                return False
            elif isinstance(part, ast.Var | ast.Access):
                name = part.name if isinstance(part, ast.Var) else part.var
                if name in self.names:
                    return False
                about = about or self._is_found(name)
        return about

    def _is_found(self, name: str) -> bool:
        """Whether the match binds the name: an entity, a path, or an item of a list."""
        return name in self.scope or name in self.scope.unwound or name in self.scope.paths

    def _match_checker(self, of: _Of) -> ExprChecker:
        """Expressions over a row of the match; bare words are properties of what is updated."""

        def word(word: ast.Word) -> ir.Expr:
            assert isinstance(of, ir.Variable), "only what is found has bare words here"
            entity = self._entity(of)
            if word.name == "id" and "id" not in entity.by_name:
                return of.id
            if isinstance(entity, EdgeType) and _is_end(entity, word.name):
                return ir.EndpointRef(var=of.name, side=ENDS[word.name], type=of.id.type)
            prop = entity.by_name.get(word.name)
            if prop is None:
                raise _unknown(self.context, entity, word.name, word.at)
            if prop.type.scalar is Scalar.BLOB:
                message = f"blob property `{prop.name}` cannot be computed with"
                raise self.context.problems.refused(word.at, message, code="T24")
            return property_ref(of, prop)

        aliases = word if isinstance(of, ir.Variable) else None
        return ExprChecker(context=self.context, scope=self.scope, aliases=aliases)

    # --- names ---

    def variable(self, var: ast.Var) -> ir.Expr:
        """`$x` in a statement: an item, the id of an entity, or a parameter."""
        name = self.names.get(var.name)
        if name is None and self._is_found(var.name):
            return self.column(self._match_checker(None).check(var))
        if name is None:
            return _parameter(self.context, var, (*self.scope, *self.names))
        if name.value is None:
            what, hint = "a record; name one of its fields", None
            if name.variable is not None:
                what = "gone behind its `for`"
                hint = "put the statements that use it into the braces of the `for`"
            message = f"`${var.name}` is {what}"
            raise self.context.problems.refused(var.at, message, code="T7", hint=hint)
        return ir.Param(name=var.name, type=name.value)

    def access(self, access: ast.Access) -> ir.Expr:
        """`$x.y` in a statement."""
        name = self.names.get(access.var)
        if name is None:
            found = self._match_checker(None).check(access)
            return found if isinstance(found, ir.Param) else self.column(found)
        fields = name.fields if name.value is not None or name.variable is None else None
        if fields is None or access.prop not in fields:
            message = f"`${access.var}` has no `{access.prop}` here"
            hint = self.context.problems.suggest(access.prop, fields or ())
            raise self.context.problems.refused(access.at, message, code="T6", hint=hint)
        kind = fields[access.prop]
        if kind.scalar is Scalar.BLOB:
            message = f"blob property `{access.prop}` cannot be computed with"
            raise self.context.problems.refused(access.at, message, code="T24")
        text = (
            access.var if access.prop == "id" and name.variable else f"{access.var}.{access.prop}"
        )
        return ir.Param(name=text, type=kind)


_Of = Entity | ir.Variable | None


class _RowChecker(ExprChecker, kw_only=True):
    """Checks an expression of a statement: bare words are properties of the row that it looks at,
    and variables are what the statement knows by name. An insert looks at no row."""

    entity: Entity | None
    owner: MutationChecker

    def variable(self, var: ast.Var) -> ir.Expr:
        return self.owner.variable(var)

    def access(self, access: ast.Access) -> ir.Expr:
        return self.owner.access(access)

    def _of_graph(self, call: ast.Call) -> ir.Expr:
        return self.owner.column(super()._of_graph(call))

    def _block(self, expr: ast.Block) -> ir.Expr:
        return self.owner.column(super()._block(expr))

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
            if isinstance(entity, EdgeType) and word.name in ENDS:
                return ir.EndpointRef(var=ir.SELF, side=ENDS[word.name])
            raise _unknown(self.context, entity, word.name, word.at)
        if prop.type.scalar is Scalar.BLOB:
            message = f"blob property `{prop.name}` cannot be used in WHERE predicates"
            raise self.context.problems.refused(word.at, message, code="T11")
        return ir.PropertyRef(var=ir.SELF, prop=prop.name, type=prop.type)


def _parameter(context: Context, var: ast.Var, names: Iterable[str]) -> ir.Param:
    declared = context.params.get(var.name)
    if declared is None:
        message = f"mutation variable `${var.name}` must be a declared query parameter"
        hint = context.problems.suggest(var.name, [*context.params, *names])
        raise context.problems.refused(var.at, message, code="T14", hint=hint)
    return ir.Param(name=var.name, type=declared)


def _unknown(context: Context, entity: Entity, name: str, at: int) -> RefusedError:
    message = f"{entity.kind} type `{entity.name}` has no property `{name}`"
    choices = [*entity.by_name, *(_ENDS if isinstance(entity, EdgeType) else ())]
    hint = context.problems.suggest(name, choices)
    return context.problems.refused(at, message, code="T11", hint=hint)


def _key(entity: Entity) -> tuple[str, ...]:
    return entity.key if isinstance(entity, NodeType) else ()


def _can_be_met(entity: Entity) -> bool:
    """Whether one that is inserted may be there already: by its key, or between its ends."""
    if isinstance(entity, NodeType):
        return bool(entity.key)
    return any(set(columns) == {"src", "dst"} for columns in entity.unique)


def _is_end(entity: Entity, name: str) -> bool:
    return isinstance(entity, EdgeType) and name in ENDS and name not in entity.by_name


def _default(prop: Property) -> ir.Literal:
    """The declared default as a value of the property's type; the schema checked that it fits."""
    value = prop.default
    kinds = {str: "string", bool: "bool", int: "int", float: "float"}
    return fitted(ast.Lit(kinds[type(value)], value, 0), prop.type, prop.name)


def _names_in(statement: ast.Insert | ast.Update | ast.Delete) -> set[str]:
    """Every property name that a statement writes or tests."""
    names: set[str] = set()
    if not isinstance(statement, ast.Delete):
        names |= {assign.name for assign in statement.assigns}
    if not isinstance(statement, ast.Insert):
        names |= {part.name for part in ast.walk(statement.where) if isinstance(part, ast.Word)}
    return names
