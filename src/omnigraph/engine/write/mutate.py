"""Mutations: statements run in order into one pending change, which is then checked and staged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import pyarrow as pa

from omnigraph.compiler.query import CompiledQuery, bind_params, compile_query, ir
from omnigraph.engine.arguments import MAPPING_OR_NONE, TEXT, TEXT_OR_NONE, require
from omnigraph.engine.check.change import stage
from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.check.validate import look_up, validate
from omnigraph.engine.check.values import misfit, missing
from omnigraph.engine.core import Core
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.results import MutationResult, remembering
from omnigraph.engine.rows.columns import CellProblem
from omnigraph.engine.rows.keys import canonical_id, respelled_id
from omnigraph.engine.rows.stored import Stored
from omnigraph.engine.write.pending import FittedRow, PendingTable
from omnigraph.errors import InputError
from omnigraph.model.graph import Snapshot, WriterKind
from omnigraph.model.ports import World
from omnigraph.model.requests import KeyedRequest
from omnigraph.model.schema import Catalog, EdgeType, NodeType
from omnigraph.model.values import Misfit, fit
from omnigraph.storage.commit.prepared import AppliedBeforeError, Intent, Prepared
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.table.read import texts


class MutationOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation query as its caller asked for it."""

    source: str
    name: str | None
    params: Mapping[str, Any] | None
    branch: str
    actor_id: str | None
    if_commit: str | None
    idempotency_key: str | None


class MutationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a mutation did. `prepared` is None when nothing changes."""

    prepared: Prepared | None
    affected_nodes: int
    affected_edges: int


def mutate(
    core: Core, order: MutationOrder, *, then: Callable[[Snapshot | None], None]
) -> MutationResult:
    """Run one mutation query as one commit; `then` is told what came of it."""
    require(MAPPING_OR_NONE, params=order.params)
    params = order.params or {}
    request = KeyedRequest.of(
        order.idempotency_key, "mutation", source=order.source, name=order.name, params=params
    )
    intent = Intent(
        branch=core.branch(order.branch),
        kind=WriterKind.MUTATION,
        actor_id=order.actor_id,
        if_commit=order.if_commit,
        request=request,
    )

    def prepare(context: WriteContext) -> tuple[Prepared | None, dict[str, Any]]:
        catalog = core.catalog(context.snapshot)
        compiled = compiled_as("mutation", order.source, order.name, catalog)
        assert isinstance(compiled.plan, ir.MutationPlan), "a mutation has a mutation plan"
        outcome = prepare_mutation(
            compiled.plan,
            params=bind_params(compiled.params, params),
            catalog=catalog,
            context=context,
            world=core.world,
        )
        told = {
            "query_name": compiled.name,
            "affected_nodes": outcome.affected_nodes,
            "affected_edges": outcome.affected_edges,
        }
        return remembering(outcome.prepared, request, told), told

    try:
        after, told = core.write(intent, prepare, then=then)
    except AppliedBeforeError as before:
        return MutationResult.told_again(before.commit, branch=order.branch)
    return MutationResult(
        branch=order.branch,
        **told,
        actor_id=order.actor_id,
        commit=after.head if after else None,
    )


def compiled_as(
    kind: Literal["read", "mutation"], source: str, name: str | None, catalog: Catalog
) -> CompiledQuery:
    """The query, or `InputError` if it is of the other kind."""
    require(TEXT, source=source)
    require(TEXT_OR_NONE, name=name)
    compiled = compile_query(source, catalog, name)
    if compiled.kind == kind:
        return compiled
    verb = "mutate" if kind == "read" else "query"
    what = "a mutation" if kind == "read" else "a read query"
    raise InputError(
        f"query '{compiled.name}' is {what}", hint=f"run it with `{verb}`", query=compiled.name
    )


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
        strict=any(not isinstance(statement, ir.Insert) for statement in plan.statements),
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
        if entity.table_key not in self.tables:
            self.tables[entity.table_key] = PendingTable(entity, self._stored)
        return self.tables[entity.table_key]

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
        row: FittedRow = {prop.name: None for prop in entity.properties}
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

    def _assigned(self, entity: Entity, assignments: tuple[ir.Assignment, ...]) -> FittedRow:
        """The fitted values of assignments; all that do not fit are reported together."""
        values: FittedRow = {}
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
        matched = table.matching(statement.where, self._constants)
        table.update(matched, values)
        self._count(entity, matched.num_rows)

    def _delete(self, statement: ir.Delete) -> None:
        entity = self._entity(statement)
        table = self._table(entity)
        gone = table.delete(table.matching_ids(statement.where, self._constants))
        self._count(entity, len(gone))
        if gone and isinstance(entity, NodeType):
            self._cascade(entity, gone)

    def _cascade(self, node: NodeType, gone: list[str]) -> None:
        """Delete every edge that starts or ends at one of the nodes, each once."""
        ids = pa.array(gone, pa.string())
        for edge in self._catalog.edges_touching(node.name):
            lost: dict[str, None] = {}
            for side, end in (("src", edge.from_type), ("dst", edge.to_type)):
                if end == node.name:
                    found = self._stored.rows_where_in(edge.table_key, side, ids, ["id"])
                    lost.update(dict.fromkeys(texts(found["id"])))
            if lost:
                self._count(edge, len(self._table(edge).delete(list(lost))))


def _require_key(node: NodeType, row: FittedRow) -> None:
    found = Findings()
    found.add(missing(node, name, None, absent=False) for name in node.key if row[name] is None)
    found.raise_if_any()


def _refuse_key_update(entity: Entity, values: FittedRow) -> None:
    for name in entity.key if isinstance(entity, NodeType) else ():
        if name in values:
            raise InputError(
                f"cannot update @key property '{name}' — delete and re-insert instead",
                property=name,
                type_name=entity.name,
            )
