"""Mutations: statements run in order into one pending change, which is then checked and staged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.compiler.query import ir
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.write.change import stage
from omnigraph.engine.write.columns import CellProblem
from omnigraph.engine.write.constraints import Entity, misfit, missing
from omnigraph.engine.write.keys import canonical_id, respelled_id
from omnigraph.engine.write.pending import PendingRow, PendingTable
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.validate import look_up, validate
from omnigraph.engine.write.values import Misfit, fit
from omnigraph.engine.write.violations import Findings
from omnigraph.errors import InputError
from omnigraph.model.ports import World
from omnigraph.model.schema import Catalog, EdgeType, NodeType
from omnigraph.storage.writer import Prepared, WriteContext


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationOutcome:
    """What a mutation did. `prepared` is None when nothing changes."""

    prepared: Prepared | None
    affected_nodes: int
    affected_edges: int


def prepare_mutation(
    plan: ir.MutationPlan,
    *,
    params: Mapping[str, Any],
    catalog: Catalog,
    context: WriteContext,
    world: World,
) -> MutationOutcome:
    """Run the statements on the context's snapshot, check the outcome and stage it.

    Nothing is visible afterwards; a change that the schema forbids raises before any staging.
    """
    stored = Stored(context)
    constants = Constants(params=params, now_ms=world.clock.now_us() // 1000)
    run = _Run(catalog, stored, constants, world)
    for statement in plan.statements:
        run.execute(statement)
    changes = {
        key: change for key, table in run.tables.items() if not (change := table.change()).is_empty
    }
    if not changes:
        return MutationOutcome(prepared=None, affected_nodes=0, affected_edges=0)
    look_up(changes, stored)
    validate(changes, catalog, stored, Findings())
    prepared = Prepared(
        staged=stage(changes, context, stored),
        relied_on=frozenset(stored.relied_on),
        strict=any(not isinstance(one, ir.Insert) for one in plan.statements),
    )
    return MutationOutcome(
        prepared=prepared, affected_nodes=run.affected_nodes, affected_edges=run.affected_edges
    )


class _Run:
    """One execution of a plan."""

    def __init__(
        self, catalog: Catalog, stored: Stored, constants: Constants, world: World
    ) -> None:
        self._catalog, self._stored, self._world = catalog, stored, world
        self._constants = constants
        self.tables: dict[str, PendingTable] = {}
        self.affected_nodes = 0
        self.affected_edges = 0

    def execute(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Insert():
                self._insert(statement)
            case ir.Update():
                self._update(statement)
            case ir.Delete():
                self._delete(statement)

    def _table(self, entity: Entity) -> PendingTable:
        return self.tables.setdefault(entity.table_key, PendingTable(entity, self._stored))

    def _entity(self, statement: ir.Statement) -> Entity:
        return self._catalog.type_of(f"{statement.kind}:{statement.type_name}")

    def _count(self, entity: Entity, affected: int) -> None:
        if isinstance(entity, NodeType):
            self.affected_nodes += affected
        else:
            self.affected_edges += affected

    # --- insert ---

    def _insert(self, statement: ir.Insert) -> None:
        entity = self._entity(statement)
        row: PendingRow = {prop.name: None for prop in entity.properties}
        row |= self._assigned(entity, statement.assignments)
        if isinstance(entity, EdgeType):
            row["src"] = self._endpoint(entity.from_type, "from", statement.from_id)
            row["dst"] = self._endpoint(entity.to_type, "to", statement.to_id)
        keyed = isinstance(entity, NodeType) and bool(entity.key)
        if isinstance(entity, NodeType) and keyed:
            _require_key(entity, row)
            row["id"] = canonical_id(entity, row)
        else:
            row["id"] = self._world.ids.ulid()
        self._table(entity).insert(row, fresh=not keyed)
        self._count(entity, 1)

    def _endpoint(self, node_type: str, side: str, value: ir.Literal | ir.Param | None) -> str:
        text = None if value is None else self._constants.value(value)
        if not isinstance(text, str):
            raise InputError(f"an edge needs '{side}', got null", property=side)
        return respelled_id(self._catalog.nodes[node_type], text)

    def _assigned(self, entity: Entity, assignments: tuple[ir.Assignment, ...]) -> PendingRow:
        """The fitted values of assignments; all that do not fit are reported together."""
        values: PendingRow = {}
        found = Findings()
        for assignment in assignments:
            name = assignment.property
            given = self._constants.value(assignment.value)
            value = fit(given, entity.by_name[name].type)
            if isinstance(value, Misfit):
                problem = CellProblem(row=0, message=value.message, value=given)
                found.add([misfit(entity, name, problem, None)])
            else:
                values[name] = value
        found.raise_if_any()
        return values

    # --- update and delete ---

    def _update(self, statement: ir.Update) -> None:
        entity = self._entity(statement)
        table = self._table(entity)
        values = self._assigned(entity, statement.assignments)
        _refuse_key_update(entity, values)
        matched = list(table.matching(statement.where, self._constants, whole=True))
        for row in matched:
            table.update(row, values)
        self._count(entity, len(matched))

    def _delete(self, statement: ir.Delete) -> None:
        entity = self._entity(statement)
        table = self._table(entity)
        matched = table.matching(statement.where, self._constants, whole=False)
        gone = table.delete([row["id"] for row in matched])
        self._count(entity, len(gone))
        if gone and isinstance(entity, NodeType):
            self._cascade(entity, gone)

    def _cascade(self, node: NodeType, gone: list[str]) -> None:
        """Delete every edge that starts or ends at one of the nodes, each once."""
        ids = pa.array(gone, pa.string())
        for edge in self._catalog.edges_touching(node.name):
            sides = [
                side
                for side, end in (("src", edge.from_type), ("dst", edge.to_type))
                if end == node.name
            ]
            lost = [
                one
                for side in sides
                for one in self._stored.rows_where_in(edge.table_key, side, ids, ["id"])[
                    "id"
                ].to_pylist()
            ]
            if lost:
                unique = list(dict.fromkeys(str(one) for one in lost))
                self._count(edge, len(self._table(edge).delete(unique)))


def _require_key(node: NodeType, row: PendingRow) -> None:
    found = Findings()
    found.add(missing(node, name, None, absent=False) for name in node.key if row[name] is None)
    found.raise_if_any()


def _refuse_key_update(entity: Entity, values: PendingRow) -> None:
    for name in entity.key if isinstance(entity, NodeType) else ():
        if name in values:
            raise InputError(
                f"cannot update @key property '{name}' — delete and re-insert instead",
                property=name,
                type_name=entity.name,
            )
