"""What a mutation returns: a stage without a match, over the rows that its statements ran for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal as Choice
from typing import Protocol

from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_body import StageChecker
from omnigraph.compiler.query.check_expr import SIDES
from omnigraph.compiler.query.scope import Context, Name, Scope, Unwound, property_ref
from omnigraph.compiler.query.types import element
from omnigraph.compiler.text import RefusedError
from omnigraph.model.schema import EdgeType, NodeType, PropertyType

# The ends of an edge as statements call them.
ENDS: Mapping[str, Choice["src", "dst"]] = {"from": "src", "to": "dst", **SIDES}


class Known(Protocol):
    """What is known behind the last statement."""

    @property
    def scope(self) -> Scope: ...  # what the match binds

    @property
    def names(self) -> Mapping[str, Name]: ...

    def column(self, expr: ir.Expr) -> ir.Param:
        """A value of the match's row, as statements see it."""
        ...


def returning(
    context: Context,
    params: tuple[ir.Param | ir.RecordParam, ...],
    body: ast.MutationBody,
    known: Known,
    *,
    changed: NodeType | EdgeType | None,
) -> ir.Returning:
    """The plan of `returning`. `changed` is what the last statement, an update or delete by a
    condition of its own, has met: its properties are bare words."""
    scope, ids = Scope(), dict[str, str | None]()
    for written, bound in known.scope.items():
        if not bound.is_open:
            scope.add(written, bound)
            ids[bound.name] = known.column(bound.id).name
    last = body.statements[-1]
    inner = {
        item.var.name
        for item in (last.statements if isinstance(last, ast.For) else ())
        if isinstance(item, ast.Insert) and item.var is not None
    }
    for written, name in known.names.items():
        if name.variable is not None and (name.value is not None or written in inner):
            scope.add(written, name.variable)
            ids[name.variable.name] = written
    values: dict[str, ir.Param] = {}
    for written, item in known.scope.unwound.items():
        fields = {"": item.element, **item.fields}
        found = {field: known.column(ref) for field, ref in fields.items() if ref is not None}
        scope.unwind(written, _given(written, found, values))
    if isinstance(last, ast.For):
        scope.unwind(last.var.name, _given(last.var.name, _items(context, last), values))
    of = None
    if changed is not None:
        of = ir.Variable(name=ir.SELF, kind=changed.kind, types=(changed.name,))
        context.variables[ir.SELF] = of
        ids[ir.SELF] = None
    checker = _ReturningChecker(context=context, scope=scope, of=of)
    shown = ast.Stage((), body.returning, False, (), None, None, body.returning[0].at)  # noqa: FBT003
    stage = checker.stage(shown, row="")
    if stage is None:
        raise RefusedError
    # Rows stay in the order in which the statements ran, also inside a `collect`.
    facts = {name: getattr(stage, name) for name in stage.__struct_fields__}
    if stage.grouping is None:
        facts["tie_break"] = ()
    else:
        facts["grouping"] = replace(stage.grouping, row_order=())
    plan = ir.ReadPlan(
        **facts, params=params, variables=context.variables, columns=checker.columns()
    )
    deletes = any(isinstance(item, ast.Delete | ast.DeleteFound) for item in body.simple)
    return ir.Returning(plan=plan, ids=ids, values=values, before=deletes)


def _items(context: Context, loop: ast.For) -> dict[str, ir.Param]:
    """What statements know of an item of a `for`, by field; of a plain value under no name."""
    record = context.records.get(loop.items.name)
    if record is not None:
        return {
            field.name: ir.Param(name=f"{loop.var.name}.{field.name}", type=field.type)
            for field in record.fields
        }
    kind: PropertyType = element(context.params[loop.items.name])
    return {"": ir.Param(name=loop.var.name, type=kind)}


def _given(written: str, found: Mapping[str, ir.Param], values: dict[str, ir.Param]) -> Unwound:
    """A value, or a record of values, that each row is given, and is added to the `values`."""
    columns = {field: f"${written}.{field}" if field else f"${written}" for field in found}
    values |= {columns[field]: param for field, param in found.items()}
    ref = partial(ir.RowRef, var=ir.GIVEN)
    refs = {field: ref(column=columns[field], type=found[field].type) for field in found}
    if "" in refs:
        return Unwound(name=ir.GIVEN, element=refs[""])
    return Unwound(name=ir.GIVEN, fields=refs)


class _ReturningChecker(StageChecker, kw_only=True):
    """Checks `returning`; bare words are columns, or properties of what the last statement, an
    update or delete of its own, has changed."""

    of: ir.Variable | None

    def _alias(self, word: ast.Word) -> ir.Expr:
        if self.of is None or word.name in self._aliases:
            return super()._alias(word)
        return self._own(self.of, word) or super()._alias(word)

    def _inside(self, word: ast.Word) -> ir.Expr | None:
        return None if self.of is None else self._own(self.of, word)

    def _own(self, of: ir.Variable, word: ast.Word) -> ir.Expr | None:
        """A property, the id, or an end of what was changed."""
        prop = self.context.properties(of).get(word.name)
        if prop is not None:
            return property_ref(of, prop)
        if of.kind == "edge" and word.name in ENDS:
            return ir.EndpointRef(var=of.name, side=ENDS[word.name], type=of.id.type)
        return of.id if word.name == "id" else None
