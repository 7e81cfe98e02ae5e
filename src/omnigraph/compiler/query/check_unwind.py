"""`unwind`: lists of a match that become rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import ExprChecker
from omnigraph.compiler.query.scope import WILDCARD, Context, Scope, Unwound
from omnigraph.compiler.query.types import I64, core, element
from omnigraph.compiler.text import RefusedError


class UnwindChecker(msgspec.Struct, frozen=True, kw_only=True):
    """Checks the lists of one block and binds their elements; `taken` are names of others."""

    context: Context
    scope: Scope
    taken: Collection[str]

    def found(self, clauses: Sequence[ast.Clause]) -> tuple[ir.Unwind, ...]:
        """Every `unwind` of the clauses, those first that others take their lists from."""
        made: list[ir.Unwind] = []
        waiting = [clause for clause in clauses if isinstance(clause, ast.Unwind)]
        while waiting:
            names = {clause.var.name for clause in waiting}
            ready = [one for one in waiting if not names & _variables(one.items)] or waiting
            for clause in ready:
                with suppress(RefusedError):
                    made.append(self._unwound(clause))
            waiting = [clause for clause in waiting if clause not in ready]
        return tuple(made)

    def _unwound(self, clause: ast.Unwind) -> ir.Unwind:
        refused = partial(self.context.problems.refused, clause.var.at)
        written = clause.var.name
        if written == WILDCARD:
            raise refused("an unwound element needs a name", hint="write `unwind $list as $x`")
        if written in self.taken or written in self.scope.unwound:
            message = f"`${written}` is already bound"
            raise refused(message, hint="choose another name")
        name = self.context.fresh(written)
        ref = partial(ir.RowRef, var=name)
        place = ref(column=ir.PLACE, type=I64)
        record = self._record_list(clause.items)
        if record is not None:
            fields = {one.name: ref(column=one.name, type=one.type) for one in record.fields}
            unwound = Unwound(name=name, fields=fields, place=place)
            unwind = ir.Unwind(var=name, items=record)
        else:
            items = ExprChecker(context=self.context, scope=self.scope).check(clause.items)
            if not items.type.is_list:
                message = f"unwind requires a list, got {core(items.type)}"
                raise self.context.problems.refused(clause.items.at, message, code="T7")
            kind = element(items.type)
            unwound = Unwound(name=name, element=ref(column="", type=kind), place=place)
            unwind = ir.Unwind(var=name, items=items, variables=ir.variables_of(items))
        self.context.rows.add(name)
        self.scope.unwind(written, unwound)
        return unwind

    def _record_list(self, items: ast.Expr) -> ir.RecordParam | None:
        """The parameter that is a list of records, if it is written here."""
        if not isinstance(items, ast.Var) or items.name in self.scope.unwound:
            return None
        record = self.context.records.get(items.name)
        return record if record is not None and record.is_list else None


def _variables(expr: ast.Expr) -> set[str]:
    """The variables that an expression is written with, outside of blocks."""
    parts = [*ast.walk(expr)]
    accesses = {part.var for part in parts if isinstance(part, ast.Access)}
    return accesses | {part.name for part in parts if isinstance(part, ast.Var)}
