"""Mutations: statements run in order into one pending change, which is then checked and staged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.compiler.query import CompiledQuery, bind_params, ir
from omnigraph.engine.arguments import MAPPING_OR_NONE, TEXT, TEXT_OR_NONE, require
from omnigraph.engine.check.bucket import TableChange, stage
from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.validate import look_up, validate
from omnigraph.engine.core import Core, compiled_as
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.read.run import Reader
from omnigraph.engine.rows.parts import Stored
from omnigraph.engine.write.overlay import Overlay
from omnigraph.engine.write.pending import Pending
from omnigraph.engine.write.statements import Execution, placed
from omnigraph.errors import InputError
from omnigraph.model.graph import Snapshot, WriterKind
from omnigraph.model.limits import RETURNED_BYTES_KEPT_MAX
from omnigraph.model.ports import World
from omnigraph.model.requests import KeyedRequest
from omnigraph.model.schema import Catalog
from omnigraph.results.writing import MutationResult, json_rows
from omnigraph.storage.commit.prepared import AppliedBeforeError, Intent, Prepared, remembering
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.table.stage import StagedWrite


class MutationOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation query as its caller asked for it."""

    source: str
    name: str | None
    params: Mapping[str, Any] | None
    branch: str
    actor_id: str | None
    message: str | None
    if_commit: str | None
    idempotency_key: str | None


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What the statements of a mutation did."""

    affected: Mapping[str, int]
    ids: tuple[str, ...] = ()
    rows: list[dict[str, Any]] = msgspec.field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """What the commit of a keyed request says of it, for when it is submitted again."""
        facts = {"ids": list(self.ids), "rows": json_rows(self.rows)}
        kept = len(msgspec.json.encode(facts)) <= RETURNED_BYTES_KEPT_MAX
        return {**self.affected, **(facts if kept else {})}


def mutate(
    core: Core,
    reader: Reader,
    order: MutationOrder,
    *,
    then: Callable[[Snapshot | None], None],
) -> MutationResult:
    """Run one mutation query as one commit; `then` is told what came of it."""
    require(TEXT, source=order.source)
    require(TEXT_OR_NONE, name=order.name)
    require(MAPPING_OR_NONE, params=order.params)
    params = order.params or {}
    request = KeyedRequest.of(
        order.idempotency_key, "mutation", source=order.source, name=order.name, params=params
    )
    intent = Intent(
        branch=core.branch(order.branch),
        kind=WriterKind.MUTATION,
        actor_id=order.actor_id,
        message=order.message,
        if_commit=order.if_commit,
        request=request,
    )

    def prepare(context: WriteContext) -> tuple[Prepared | None, tuple[str, Done]]:
        catalog = core.catalog(context.snapshot)
        compiled = compiled_as("mutation", order.source, order.name, catalog)
        prepared, done = prepare_mutation(
            compiled,
            params=bind_params(compiled.params, params),
            catalog=catalog,
            context=context,
            world=core.world,
            reader=reader,
        )
        told = {"query_name": compiled.name, **done.told()}
        return remembering(prepared, request, told), (compiled.name, done)

    try:
        after, (query_name, done) = core.write(intent, prepare, then=then)
    except AppliedBeforeError as before:
        return MutationResult.told_again(before.commit, branch=order.branch)
    return MutationResult(
        branch=order.branch,
        query_name=query_name,
        affected_nodes=done.affected["affected_nodes"],
        affected_edges=done.affected["affected_edges"],
        actor_id=order.actor_id,
        commit=after.head if after else None,
        ids=done.ids,
        rows=done.rows,
    )


def prepare_mutation(
    compiled: CompiledQuery,
    *,
    params: Mapping[str, Any],
    catalog: Catalog,
    context: WriteContext,
    world: World,
    reader: Reader,
) -> tuple[Prepared | None, Done]:
    """Run the statements on the context's snapshot, check the outcome and stage it (None: nothing
    changes); also what they did.

    Nothing is visible afterwards; a change that the schema forbids raises before any staging.
    """
    plan = compiled.plan
    assert isinstance(plan, ir.MutationPlan), "a mutation has a mutation plan"
    stored = Stored(context.snapshot, context.table)
    pending = Pending(catalog, stored, embeds=world.embedder is not None)
    constants = Constants(params=params, now_ms=world.clock.now_us() // 1000)
    asking = Asking(reader=reader, catalog=catalog, constants=constants)
    run = Execution(pending, constants, world)
    run.run(plan, asking.found(plan, run, context.snapshot))
    pending.fill_vectors(world.embedder)
    if plan.match is not None:
        stored.relied_on |= {f"{use.kind}:{use.type_name}" for use in compiled.operation.reads}
    changes = pending.changes()
    if not changes:
        rows = asking.returned(plan, run, context.snapshot)
        return None, Done(affected=run.affected, ids=tuple(run.ids), rows=rows)
    staged = checked(changes, pending, context, stored)
    prepared = Prepared(
        staged=staged,
        relied_on=frozenset(stored.relied_on),
        strict=any(not isinstance(statement, ir.Insert) for statement in plan.simple),
    )
    rows = []
    if plan.returning is not None:
        overlay = Overlay(context.tables)
        try:
            before = plan.returning.before
            seen = context.snapshot if before else overlay.over(context.snapshot, staged)
            rows = asking.returned(plan, run, seen)
        finally:
            overlay.take_back(discard=False)
    return prepared, Done(affected=run.affected, ids=tuple(run.ids), rows=rows)


def checked(
    changes: Mapping[str, TableChange], pending: Pending, context: WriteContext, stored: Stored
) -> tuple[StagedWrite, ...]:
    """The staged writes of changes that the schema allows."""
    look_up(changes, stored)
    validate(changes, pending.catalog, stored, Findings(), place_of=pending.place)
    return stage(changes, context, stored)


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What a mutation asks the graph by way of reads: its match, and what it returns."""

    reader: Reader
    catalog: Catalog
    constants: Constants

    def found(self, plan: ir.MutationPlan, run: Execution, snapshot: Snapshot) -> pa.Table | None:
        """The rows of the match, if there is one."""
        if plan.match is None:
            return None
        try:
            return self._rows(plan.match, snapshot)
        except InputError as error:
            # Which statement wants the value that cannot be made: the match makes them all.
            for one, column in zip(plan.match.projections, plan.match.columns, strict=True):
                alone = replace(plan.match, projections=(one,), columns=(column,))
                try:
                    self._rows(alone, snapshot)
                except InputError:
                    raise placed(error, run.place(*plan.wanted[column.name])) from error
            raise

    def _rows(self, plan: ir.ReadPlan, snapshot: Snapshot) -> pa.Table:
        return self.reader.rows(
            plan, constants=self.constants, snapshot=snapshot, catalog=self.catalog
        )

    def returned(
        self, plan: ir.MutationPlan, run: Execution, snapshot: Snapshot
    ) -> list[dict[str, Any]]:
        """The rows of `returning`, with the values of the snapshot."""
        if plan.returning is None:
            return []
        found = self.reader.about(
            plan.returning.plan,
            run.returned(plan.returning),
            constants=self.constants,
            snapshot=snapshot,
            catalog=self.catalog,
        )
        return found.to_pylist()
