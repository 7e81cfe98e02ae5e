"""Transactions: several mutations, loads and reads on one snapshot, and one commit at the end.

Everything is pending in memory until then. A read that comes after a change sees the snapshot with
that change, through an overlay (`overlay.py`). At the end the whole is checked and committed, if no
table that was read or is written was changed by others meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from omnigraph.compiler.query import CompiledQuery, bind_params, ir
from omnigraph.engine.access import OPEN, Gate
from omnigraph.engine.arguments import MAPPING_OR_NONE, TEXT_OR_NONE, require, require_message
from omnigraph.engine.check.bucket import TableChange, stage
from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.validate import find_orphans, look_up, validate_values
from omnigraph.engine.core import Core, compiled_as
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.load.order import LoadData, request_order
from omnigraph.engine.load.run import gather
from omnigraph.engine.read.context import ReadLimits
from omnigraph.engine.read.run import Reader
from omnigraph.engine.rows.parts import Stored
from omnigraph.engine.write.mutate import Asking, checked
from omnigraph.engine.write.overlay import Overlay
from omnigraph.engine.write.pending import Pending
from omnigraph.engine.write.statements import Execution
from omnigraph.errors import (
    PreconditionFailedError,
    TransactionConflictError,
    TransactionStateError,
)
from omnigraph.model.graph import MAIN, Commit, Snapshot, WriterKind
from omnigraph.model.schema import Catalog
from omnigraph.results.rows import QueryResult
from omnigraph.results.writing import LoadResult, MutationResult
from omnigraph.storage.commit.prepared import Intent, Prepared
from omnigraph.storage.commit.writer import DraftContext, WriteContext

State = Literal["new", "open", "failed", "committed", "rolled back"]


class TransactionOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction as its caller asked for it."""

    branch: str = MAIN
    actor_id: str | None = None
    message: str | None = None
    if_commit: str | None = None
    gate: Gate = OPEN


class Transaction:
    """One transaction; `Graph.transaction` makes it, a `with` block opens and ends it."""

    def __init__(
        self,
        core: Core,
        reader: Reader,
        order: TransactionOrder,
        threads: set[int],
        *,
        then: Callable[[Snapshot | None], None],
    ) -> None:
        require(TEXT_OR_NONE, actor=order.actor_id, if_commit=order.if_commit)
        require_message(order.message)
        self._core, self._reader, self._order, self._then = core, reader, order, then
        self._threads = threads  # of the graph, those with an open transaction
        self._thread = 0
        self._state: State = "new"
        self._why = ""  # it failed
        self._commit: Commit | None = None
        self._runs = 0
        self._replaced = False

    # --- beginning and ending ----------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._state != "new":
            raise TransactionStateError(
                "a transaction is used once", hint="ask the graph for another one"
            )
        core, thread = self._core, threading.get_ident()
        core.require_writable()
        if thread in self._threads:
            raise TransactionStateError(
                "this thread has a transaction open already",
                hint="transactions do not nest; use the one that is open, or end it first",
            )
        branch = core.branch(self._order.branch)
        self._base = self._seen = core.head(branch.name)
        actual = self._base.graph_commit_id
        if self._order.if_commit not in (None, actual):
            raise PreconditionFailedError(
                expected=str(self._order.if_commit), actual=actual, branch=branch.name
            )
        self._catalog: Catalog = core.catalog(self._base)
        self._draft = DraftContext(core.writer, branch, self._base)
        self._stored = Stored(self._base, self._draft.table)
        self._pending = Pending(self._catalog, self._stored, embeds=core.world.embedder is not None)
        self._overlay = Overlay(core.store.tables)
        self._seen_at = self._pending.version
        self._now_ms = core.world.clock.now_us() // 1000
        self._thread, self._state = thread, "open"
        self._threads.add(thread)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._state == "rolled back":
            return
        if error is not None:
            self._end("rolled back")
            return
        self._require_mine()
        if self._state == "failed":
            self._end("rolled back")
            raise TransactionStateError(
                f"the transaction was rolled back, because a part of it failed: {self._why}",
                hint="leave the block with the error, or run the whole transaction again",
            )
        try:
            self._finish()
        except BaseException:
            self._end("rolled back")
            raise
        self._end("committed")

    def rollback(self) -> None:
        """Give everything up; nothing of it was ever visible. `TransactionStateError` if it has
        ended.

        Examples:
            >>> with graph.transaction() as tx:
            ...     ids = tx.mutate(ADD, params={"name": "Eve"}).ids
            ...     tx.rollback()
            >>> graph.query(NAMES).row_count
            3
        """
        self._require_mine()
        if self._state not in ("open", "failed"):
            raise TransactionStateError(f"the transaction is not open: it is {self._state}")
        self._end("rolled back")

    @property
    def commit(self) -> Commit | None:
        """The commit, once the block has ended; None if nothing changed."""
        if self._state != "committed":
            raise TransactionStateError(
                f"there is no commit: the transaction is {self._state}",
                hint="the commit is made at the end of the `with` block",
            )
        return self._commit

    def _end(self, state: State) -> None:
        self._state = state
        self._threads.discard(self._thread)
        self._overlay.take_back(discard=True)

    def _require_mine(self) -> None:
        if self._state != "new" and threading.get_ident() != self._thread:
            raise TransactionStateError(
                "the transaction belongs to another thread",
                hint="a transaction is used by the thread that opened it",
            )

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Around each call: what fails half way may have left half of itself behind."""
        self._require_mine()
        if self._state == "failed":
            raise TransactionStateError(
                f"a part of the transaction failed, and nothing more can be added: {self._why}",
                hint="run the whole transaction again",
            )
        if self._state != "open":
            raise TransactionStateError(
                f"the transaction is not open: it is {self._state}",
                hint="use it inside its `with` block",
            )
        version = self._pending.version
        try:
            yield
        except BaseException as cause:
            if self._pending.version != version:
                self._state, self._why = "failed", str(cause)
            raise

    # --- inside ------------------------------------------------------------------------------

    def mutate(
        self, source: str, name: str | None = None, *, params: Mapping[str, Any] | None = None
    ) -> MutationResult:
        """Run one mutation query; it becomes a part of the transaction's commit.

        Examples:
            >>> with graph.transaction(message="two at once") as tx:
            ...     first = tx.mutate(ADD, params={"name": "Eve"})
            ...     second = tx.mutate(ADD, params={"name": "Kim"})
            >>> tx.commit.message
            'two at once'
        """
        with self._using():
            compiled = compiled_as("mutation", source, name, self._catalog)
            require(MAPPING_OR_NONE, params=params)
            plan = compiled.plan
            assert isinstance(plan, ir.MutationPlan), "a mutation has a mutation plan"
            constants = Constants(
                params=bind_params(compiled.params, params or {}), now_ms=self._now_ms
            )
            asking = Asking(reader=self._reader, catalog=self._catalog, constants=constants)
            self._runs += 1
            before = self._snapshot() if _asks(plan) else self._base
            run = Execution(
                self._pending, constants, self._core.world, source=f"mutation {self._runs}"
            )
            found = asking.found(plan, run, before)
            if plan.match is not None:
                self._rely_on(compiled)
            self._pending.version += 1  # from here on a failure leaves half of it
            run.run(plan, found)
            self._pending.fill_vectors(self._core.world.embedder)
            self._require_values()
            rows = []
            if plan.returning is not None:
                seen = before if plan.returning.before else self._snapshot()
                rows = asking.returned(plan, run, seen)
            return MutationResult(
                branch=self._order.branch,
                query_name=compiled.name,
                affected_nodes=run.affected["affected_nodes"],
                affected_edges=run.affected["affected_edges"],
                actor_id=self._order.actor_id,
                commit=None,
                ids=tuple(run.ids),
                rows=rows,
            )

    def load(
        self,
        data: LoadData,
        *,
        mode: str,
        type: str | None = None,  # noqa: A002 - as `Graph.load` has it
        strict: bool = True,
    ) -> LoadResult:
        """Load data as a part of the transaction's commit, as `Graph.load` takes it.

        Examples:
            >>> with graph.transaction() as tx:
            ...     loaded = tx.load({"Person": [{"name": "Eve"}]}, mode="append")
            >>> loaded.total_entities
            1
        """
        with self._using():
            order = request_order(
                data,
                type_name=type,
                strict=strict,
                idempotency_key=None,
                uri=self._core.root.uri,
                mode=mode,
                branch=self._order.branch,
                from_branch=None,
                actor=self._order.actor_id,
                message=None,
                on_error="fail",
                quarantine=None,
                embed=self._core.world.embedder,
            )
            seen = self._snapshot()
            context = DraftContext(self._core.writer, self._base.branch, seen)
            gathered = gather(self._core, order, self._base.branch, context)
            self._stored.relied_on |= gathered.rows.keys() | gathered.replaced
            self._pending.version += 1
            for key in gathered.replaced:
                self._replaced = True
                table = self._pending.table(self._catalog.type_of(key))
                table.delete(table.all_ids())
            for key, rows in gathered.rows.items():
                self._pending.table(self._catalog.type_of(key)).put(rows)
            return LoadResult.of(gathered.report)

    def query(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        limits: ReadLimits | None = None,
        explain: bool = False,
    ) -> QueryResult:
        """Run one read query on the graph with everything that the transaction has done so far.

        Examples:
            >>> with graph.transaction() as tx:
            ...     ids = tx.mutate(ADD, params={"name": "Eve"}).ids
            ...     seen = tx.query(NAMES).column("p.name")
            >>> seen
            ['Ada', 'Bob', 'Cem', 'Eve']
        """
        with self._using():
            order = self._order
            order.gate.require("query", branch=order.branch, actor=order.actor_id)
            compiled = compiled_as("read", source, name, self._catalog)
            require(MAPPING_OR_NONE, params=params)
            self._rely_on(compiled)
            result = self._reader.run(
                compiled,
                params=bind_params(compiled.params, params or {}),
                catalog=self._catalog,
                snapshot=self._snapshot(),
                now_ms=self._now_ms,
                limits=limits,
                explain=explain,
            )
            result.to_arrow()  # what it is made from is gone when the transaction ends
            return result

    def _rely_on(self, compiled: CompiledQuery) -> None:
        self._stored.relied_on |= {
            f"{use.kind}:{use.type_name}" for use in compiled.operation.reads
        }

    def _require_values(self) -> None:
        """Each value by itself is judged at once; rows against each other at the end."""
        validate_values(
            self._pending.changes(), self._catalog, Findings(), place_of=self._pending.place
        )

    def _snapshot(self) -> Snapshot:
        """The graph with everything that is pending."""
        if self._seen_at != self._pending.version:
            self._overlay.take_back(discard=True)
            changes = self._pending.changes()
            look_up(changes, self._stored)
            staged = stage(changes, self._draft, self._stored)
            self._seen = self._overlay.over(self._base, staged)
            self._seen_at = self._pending.version
        return self._seen

    # --- committing --------------------------------------------------------------------------

    def _finish(self) -> None:
        changes = self._pending.changes()
        if not changes:
            return
        order = self._order
        intent = Intent(
            branch=self._base.branch,
            kind=WriterKind.MUTATION,
            actor_id=order.actor_id,
            message=order.message,
            if_commit=order.if_commit,
        )
        after, _ = self._core.write(
            intent, lambda context: (self._prepared(context, changes), None), then=self._then
        )
        self._commit = None if after is None else after.head

    def _prepared(self, context: WriteContext, changes: Mapping[str, TableChange]) -> Prepared:
        relied_on = self._stored.relied_on | changes.keys()
        self._require_unmoved(context.snapshot, relied_on)
        stored = Stored(context.snapshot, context.table)
        if self._replaced:
            found = Findings()
            find_orphans(changes, self._catalog, stored, found)
            found.raise_if_any()
        staged = checked(changes, self._pending, context, stored)
        return Prepared(
            staged=staged, relied_on=frozenset(stored.relied_on | relied_on), strict=True
        )

    def _require_unmoved(self, fresh: Snapshot, relied_on: set[str]) -> None:
        """What was read and what is written is still as it was at the beginning."""
        base = self._base
        if fresh.graph_commit_id == base.graph_commit_id:
            return
        # Upkeep moves tables and changes no content, so that what was read still holds.
        if self._core.writer.only_maintenance(base, fresh):
            return
        moved = [
            key
            for key in sorted(relied_on)
            if key not in fresh.entries or fresh.entries[key].pin != base.entries[key].pin
        ]
        if base.schema.fingerprint != fresh.schema.fingerprint:
            moved.insert(0, "schema")
        if moved:
            raise TransactionConflictError(table_key=moved[0], branch=base.branch.name)


def _asks(plan: ir.MutationPlan) -> bool:
    """Whether a mutation looks at the graph as it is before it runs."""
    return plan.match is not None or (plan.returning is not None and plan.returning.before)
