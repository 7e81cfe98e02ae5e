"""The body of a read becomes a plan: its stages one after the other, and the parts of a union."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_body import StageChecker
from omnigraph.compiler.query.scope import Context, Scope
from omnigraph.compiler.query.types import common_type, core, is_null, kind_word


class ReadChecker(msgspec.Struct, frozen=True, kw_only=True):
    """Checks one read query. `plan()` is the only door."""

    context: Context
    params: tuple[ir.Param | ir.RecordParam, ...]

    def plan(self, body: ast.ReadBody) -> ir.QueryPlan | None:
        """The plan, or None when the context holds problems."""
        if body.unions:
            return self._union(body)
        found = self._stages(body)
        return None if found is None else found[0]

    def _stages(
        self, body: ast.ReadBody, *, whole: bool = False
    ) -> tuple[ir.ReadPlan, tuple[ast.Projection, ...]] | None:
        """A plan and its columns as they were written. What is wrong with a stage leaves those
        behind it without names, so they are not looked at then."""
        # Variables of the parts of a union have nothing to do with each other.
        context = replace(self.context, variables={}, rows=set(), gone=set(), buried=set())
        scope, before = Scope(), []
        for number, written in enumerate(body.before, 1):
            checker = StageChecker(context=context, scope=scope)
            row = f"#{number}"
            stage = checker.stage(written, row=row)
            if stage is None:
                return None
            before.append(stage)
            context.rows.add(row)
            context.gone.update(scope, scope.unwound, scope.paths)
            scope = checker.handed_on()
            context.gone -= {*scope, *scope.unwound, *scope.paths}
        last = StageChecker(context=context, scope=scope)
        stage = last.stage(body, row="", whole=whole)
        if stage is None:
            return None
        plan = ir.ReadPlan(
            **{name: getattr(stage, name) for name in stage.__struct_fields__},
            params=self.params,
            variables=context.variables,
            columns=last.columns(),
            before=tuple(before),
        )
        return plan, last.written

    # --- unions ---

    def _union(self, body: ast.ReadBody) -> ir.UnionPlan | None:
        bodies = [replace(body, unions=()), *(part.body for part in body.unions)]
        found = [self._stages(part, whole=part is bodies[-1]) for part in bodies]
        sound = [part for part in found if part is not None]
        if len(sound) < len(found):
            return None
        plans = [plan for plan, _ in sound]
        for part, (plan, written) in zip(body.unions, sound[1:], strict=True):
            self._require_same_names(part, plans[0], plan, written)
        if self.context.problems:
            return None
        columns = tuple(
            self._column(place, plans, [written[place].at for _, written in sound])
            for place in range(len(plans[0].columns))
        )
        if self.context.problems:
            return None
        last = plans[-1]
        # The order behind the last part is that of the whole.
        parts = (*plans[:-1], replace(last, orderings=(), limit=None, offset=None))
        return ir.UnionPlan(
            params=self.params,
            parts=parts,
            keeps=tuple(part.all for part in body.unions),
            columns=columns,
            orderings=tuple(map(_by_column, last.orderings)),
            limit=last.limit,
            offset=last.offset,
        )

    def _require_same_names(
        self,
        part: ast.UnionPart,
        first: ir.ReadPlan,
        plan: ir.ReadPlan,
        written: Sequence[ast.Projection],
    ) -> None:
        names, wanted = [c.name for c in plan.columns], [c.name for c in first.columns]
        if names == wanted:
            return
        differ = [
            item.at
            for item, name, other in zip(written, names, wanted, strict=False)
            if name != other
        ]
        at = differ[0] if differ else part.body.projections[-1].at
        message = f"the queries of a union return the same columns: {_listed(wanted)}"
        hint = f"this one returns {_listed(names)}; `as` gives a column another name"
        self.context.problems.report(at, message, hint=hint)

    def _column(
        self, place: int, plans: Sequence[ir.ReadPlan], places: Sequence[int]
    ) -> ir.ColumnInfo:
        """The column that holds the values of all parts."""
        columns = [plan.columns[place] for plan in plans]
        exprs = [plan.projections[place].expr for plan in plans]
        found = columns[0].type
        for count in range(1, len(exprs) + 1):
            there = [expr for expr in exprs[:count] if not is_null(expr)]
            kind = common_type(there) if there else found
            if kind is None:
                name, got = columns[0].name, core(columns[count - 1].type)
                message = f"column `{name}` is {core(found)} in a query before, and {got} here"
                hint = "`to_string(x)` and others make values of one type"
                self.context.problems.report(places[count - 1], message, code="T7", hint=hint)
                break
            found = kind
        found = replace(found, nullable=any(column.nullable for column in columns))
        kinds = {column.kind for column in columns}
        return replace(
            columns[0], type=found, kind=kinds.pop() if len(kinds) == 1 else kind_word(found)
        )


def _by_column(ordering: ir.Ordering) -> ir.ColumnOrder:
    assert ordering.column is not None, "the order of a union is by its columns"
    return ir.ColumnOrder(column=ordering.column, descending=ordering.descending)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
