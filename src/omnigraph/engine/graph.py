"""`Graph`: the names that users call, each one call into the room that does the work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from omnigraph.compiler.query import (
    CompiledQuery,
    LintReport,
    bind_params,
    compile_query,
    lint_source,
)
from omnigraph.compiler.query.ir import MutationPlan
from omnigraph.engine.arguments import checks_arguments
from omnigraph.engine.core import Core, OpenMode, open_core
from omnigraph.engine.graph_history import HistoryCalls
from omnigraph.engine.graph_maintenance import MaintenanceCalls
from omnigraph.engine.graph_schema import SchemaCalls
from omnigraph.engine.init import init_core
from omnigraph.engine.maintain.auto import DEFAULT_POLICY, AutoMaintenance, MaintenancePolicy
from omnigraph.engine.merge.conflicts import MergePreview, MergeResult, Strategy
from omnigraph.engine.merge.run import merge, preview
from omnigraph.engine.read.context import ReadLimits
from omnigraph.engine.read.explain import Explanation
from omnigraph.engine.read.export import export_lines
from omnigraph.engine.read.result import QueryResult
from omnigraph.engine.read.run import Reader
from omnigraph.engine.resolve import resolve_recovery
from omnigraph.engine.results import LoadResult, MutationResult, remembering
from omnigraph.engine.write.batch import LoadBatch
from omnigraph.engine.write.blobs import BlobReader, read_blob
from omnigraph.engine.write.load import LoadOutcome, prepare_load, read_load
from omnigraph.engine.write.mutate import prepare_mutation
from omnigraph.engine.write.records import held_lines
from omnigraph.errors import ConflictError, InputError
from omnigraph.model.changeset import WriterKind
from omnigraph.model.graph import MAIN, Branch, Commit, Snapshot
from omnigraph.model.ports import World
from omnigraph.model.requests import KeyedRequest, digest_of_lines
from omnigraph.storage.applied import AppliedBeforeError
from omnigraph.storage.audit import RecoveryRecord
from omnigraph.storage.outcome import tell_last_commit
from omnigraph.storage.presence import Presence
from omnigraph.storage.recovery import Resolution
from omnigraph.storage.ref_files import UnreadableRef
from omnigraph.storage.sidecar import Sidecar, UnreadableSidecar
from omnigraph.storage.writer import Intent, Prepared, WriteContext

__all__ = ["Graph", "OpenMode"]

At = str | int | datetime
LoadData = str | bytes | os.PathLike[str] | Iterable[str | bytes]
LOAD_MODES = ("append", "merge", "overwrite")


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoadOrder:
    """How data is to be loaded."""

    mode: str
    strict: bool
    actor: str | None
    request: KeyedRequest | None


@checks_arguments
class Graph(HistoryCalls, SchemaCalls, MaintenanceCalls):
    """One open graph. Safe to share between threads; several processes may open the same one."""

    def __init__(
        self, core: Core, *, maintenance: MaintenancePolicy | None = DEFAULT_POLICY
    ) -> None:
        """Use `Graph.init` or `Graph.open`."""
        self._core = core
        self._presence = Presence(core.root, writable=core.mode is OpenMode.READ_WRITE)
        self._auto = AutoMaintenance(core, maintenance)
        self._reader = Reader(core.rooms.tables)
        self._closed = False

    # --- opening and closing -----------------------------------------------------------------

    @classmethod
    def init(
        cls, uri: str | os.PathLike[str], schema_text: str, actor: str | None = None, **options: Any
    ) -> Graph:
        """Make an empty graph with this schema; `AlreadyExistsError` if one is there."""
        policy = options.pop("maintenance", DEFAULT_POLICY)
        core = init_core(os.fspath(uri), schema_text, actor_id=actor, world=_world(options))
        return cls(core, maintenance=policy)

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        mode: OpenMode = OpenMode.READ_WRITE,
        **options: Any,
    ) -> Graph:
        """Open the graph there; `NotFoundError` if there is none.

        Writes of this handle look after their tables by themselves; `maintenance=None` turns that
        off. `durability="process"` is for graphs that a power cut may take.
        """
        policy = options.pop("maintenance", DEFAULT_POLICY)
        return cls(open_core(os.fspath(uri), mode=mode, world=_world(options)), maintenance=policy)

    @property
    def uri(self) -> str:
        return self._core.root.uri

    def close(self) -> None:
        """Let go of caches and background work; a closed graph refuses every call."""
        self._closed = True
        self._auto.close()
        self._reader.close()
        self._core.close()
        self._presence.close()

    def refresh(self) -> None:
        """See what other processes have committed, and settle what dead ones left unfinished."""
        core = self._opened()
        core.recover()
        core.head()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            tell_last_commit(error, self._core.writer.last_commit_id)
        self.close()

    def __repr__(self) -> str:
        return f"Graph({self.uri!r})"

    # --- reading -----------------------------------------------------------------------------

    def query(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        snapshot: At | None = None,
        limits: ReadLimits | None = None,
        explain: bool = False,
    ) -> QueryResult:
        """Run one read query on one snapshot: the branch head, or the graph as it was.

        `limits` bounds its memory and time; with `explain` the result's `explanation` says what
        was done.
        """
        core = self._opened()
        target = core.snapshot(branch, snapshot)
        catalog = core.catalog(target)
        compiled = compile_query(source, catalog, name)
        _require_kind(compiled, "read")
        with core.meanwhile(target.branch):
            return self._reader.run(
                compiled,
                params=bind_params(compiled.params, params or {}),
                catalog=catalog,
                snapshot=target,
                now_ms=core.world.clock.now_us() // 1000,
                limits=limits,
                explain=explain,
            )

    def explain(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> Explanation:
        """Run a read query and tell how: strategies, expected and actual rows, times, reads."""
        result = self.query(
            source, name, params=params, branch=branch, snapshot=snapshot, explain=True
        )
        assert result.explanation is not None, "it was asked for"
        return result.explanation

    def schema_source(self, branch: str = MAIN) -> str:
        return self._opened().head(branch).schema.source

    def lint(self, source: str, branch: str = MAIN) -> LintReport:
        """Check a query file against the schema; bad source becomes findings, never an error."""
        core = self._opened()
        return lint_source(source, core.catalog(core.head(branch)))

    def export(
        self,
        *,
        branch: str = MAIN,
        snapshot: At | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[str]:
        """The graph as NDJSON lines that `load` takes back, nodes first."""
        core = self._opened()
        target = core.snapshot(branch, snapshot)
        lines = export_lines(core.rooms.tables, core.catalog(target), target, types)
        return _watched(core, target.branch, lines)

    def read_blob(
        self,
        kind: str,
        type_name: str,
        id: str,  # noqa: A002 - the name is fixed by the API
        property: str,  # noqa: A002 - likewise
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> BlobReader:
        """The bytes of one Blob property."""
        core = self._opened()
        target = core.snapshot(branch, snapshot)
        return read_blob(
            core.rooms.tables, core.catalog(target), target, kind, type_name, id, property
        )

    # --- writing -----------------------------------------------------------------------------

    def mutate(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
    ) -> MutationResult:
        """Run one mutation query as one commit, or not at all.

        With an `idempotency_key` it runs once, however often it is submitted.
        """
        core = self._opened()
        target = core.branch(branch)
        request = KeyedRequest.of(
            idempotency_key, "mutation", source=source, name=name, params=params or {}
        )
        told: dict[str, Any] = {}

        def prepare(context: WriteContext) -> Prepared | None:
            catalog = core.catalog(context.snapshot)
            compiled = compile_query(source, catalog, name)
            _require_kind(compiled, "mutation")
            assert isinstance(compiled.plan, MutationPlan), "a mutation has a mutation plan"
            outcome = prepare_mutation(
                compiled.plan,
                params=bind_params(compiled.params, params or {}),
                catalog=catalog,
                context=context,
                world=core.world,
            )
            told["query_name"] = compiled.name
            told["affected_nodes"] = outcome.affected_nodes
            told["affected_edges"] = outcome.affected_edges
            return remembering(outcome.prepared, request, told)

        intent = Intent(
            branch=target,
            kind=WriterKind.MUTATION,
            actor_id=actor,
            if_commit=if_commit,
            request=request,
        )
        try:
            after = core.write(intent, prepare, then=self._auto.notice)
        except AppliedBeforeError as before:
            return MutationResult.told_again(before.commit, branch=branch)
        assert told, "a write prepares at least once"
        head = after.head if after else None
        return MutationResult(branch=branch, **told, actor_id=actor, commit=head)

    def load(
        self,
        data: LoadData,
        *,
        mode: str,
        branch: str = MAIN,
        from_branch: str | None = None,
        actor: str | None = None,
        strict: bool = True,
        idempotency_key: str | None = None,
    ) -> LoadResult:
        """Load request-sized NDJSON as one commit; `omnigraph.pipeline` takes more.

        With an `idempotency_key` it is loaded once, however often it is submitted.
        """
        core = self._opened()
        core.require_writable()
        if mode not in LOAD_MODES:
            raise InputError(f"unknown load mode '{mode}'", hint=f"use {', '.join(LOAD_MODES)}")
        request = None
        if idempotency_key is not None:
            # Lines may come only once, and both the digest and the load need them.
            data = held_lines(data)
            lines = digest_of_lines(data)
            request = KeyedRequest.of(
                idempotency_key, "load", lines=lines, mode=mode, strict=strict
            )
        target, created = core.load_target(branch, from_branch, actor_id=actor)
        order = _LoadOrder(mode=mode, strict=strict, actor=actor, request=request)
        told = {"base_branch": from_branch, "branch_created": created}
        try:
            result = self._load(data, order, target, told)
        except AppliedBeforeError as before:
            return LoadResult.told_again(before.commit, uri=self.uri, branch=branch, mode=mode)
        except BaseException:
            if created:
                core.abandon_branch(target)
            raise
        return replace(result, base_branch=from_branch, branch_created=created)

    def _load(
        self, data: LoadData, order: _LoadOrder, target: Branch, told: Mapping[str, Any]
    ) -> LoadResult:
        core = self._core
        batch: LoadBatch | None = None
        schema_hash = ""
        outcome: LoadOutcome | None = None

        def prepare(context: WriteContext) -> Prepared | None:
            nonlocal outcome, batch, schema_hash
            catalog = core.catalog(context.snapshot)
            if batch is None:
                batch = read_load(data, catalog=catalog, strict=order.strict)
                schema_hash = context.snapshot.schema.hash
            elif context.snapshot.schema.hash != schema_hash:
                raise ConflictError("the schema changed during the load", hint="load again")
            outcome = prepare_load(
                batch, mode=order.mode, catalog=catalog, context=context, world=core.world
            )
            counts = {"nodes": outcome.nodes, "edges": outcome.edges}
            return remembering(outcome.prepared, order.request, {**counts, **told})

        intent = Intent(
            branch=target, kind=WriterKind.LOAD, actor_id=order.actor, request=order.request
        )
        after = core.write(intent, prepare, then=self._auto.notice)
        assert outcome is not None, "a write prepares at least once"
        return LoadResult(
            uri=self.uri,
            branch=target.name,
            mode=order.mode,
            nodes=outcome.nodes,
            edges=outcome.edges,
            actor_id=order.actor,
            commit=after.head if after else None,
        )

    # --- branches and history ----------------------------------------------------------------

    def branches(self) -> list[str]:
        """`main` first, then the others by name."""
        return [branch.name for branch in self._opened().rooms.refs.list()]

    def unreadable_branches(self) -> list[UnreadableRef]:
        """The branches whose reference is damaged: they are in no list and stop nobody else."""
        return list(self._opened().rooms.refs.unreadable())

    def create_branch(self, name: str, from_branch: str = MAIN, actor: str | None = None) -> Branch:
        """Fork the whole graph; no table is copied."""
        return self._opened().create_branch(name, from_branch, actor_id=actor)

    def delete_branch(
        self,
        name: str,
        actor: str | None = None,  # noqa: ARG002
        force: bool = False,  # noqa: FBT001, FBT002 - the API fixes it
    ) -> None:
        """End a branch; what was merged stays, its own commits go. `force` also ends a branch
        whose reference cannot be read."""
        self._opened().delete_branch(name, force=force)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        actor: str | None = None,
        *,
        strategy: Strategy = "fail",
        delete_branch: bool = False,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Merge a branch into another as one commit; `MergeConflictsError` and nothing otherwise.

        `strategy` settles entities that both sides changed: "ours" keeps the target's, "theirs"
        takes the source's, "property" merges what each side changed. With an `idempotency_key`
        the merge is made once, however often it is submitted.
        """
        return merge(
            self._opened(),
            source,
            into,
            actor_id=actor,
            strategy=strategy,
            delete_branch=delete_branch,
            idempotency_key=idempotency_key,
        )

    def merge_preview(
        self, source: str, into: str = MAIN, *, strategy: Strategy = "fail"
    ) -> MergePreview:
        """What `merge` would do now, conflicts included, without writing anything."""
        return preview(self._opened(), source, into, strategy=strategy)

    def commits(
        self, branch: str = MAIN, *, actor: str | None = None, limit: int | None = None
    ) -> list[Commit]:
        """The history of a branch, newest first; the last one is the genesis commit."""
        core = self._opened()
        if limit is not None and limit < 0:
            raise InputError(f"limit must be 0 or more, got {limit}")
        return core.history.commits(core.branch(branch), actor=actor, limit=limit)

    def commit(self, commit_id: str) -> Commit:
        return self._opened().history.commit(commit_id)

    def snapshot(self, branch: str = MAIN, at: At | None = None) -> Snapshot:
        """Which version of which dataset makes up the graph, now or `at` a commit or moment."""
        return self._opened().snapshot(branch, at)

    # --- recovery ----------------------------------------------------------------------------

    def recoveries(self) -> list[RecoveryRecord]:
        """Every recovery action so far that can be read, oldest first."""
        return self._opened().rooms.audit.records()

    def recovery_log_problems(self) -> list[str]:
        """What of the record of recoveries cannot be read, in words; nothing hangs on it."""
        return self._opened().rooms.audit.problems()

    def clear_recovery_log(self) -> None:
        """Take the record of recoveries away, for one that is damaged; a new one is begun."""
        core = self._opened()
        core.require_writable()
        core.rooms.audit.remove()

    def pending_recoveries(self) -> list[Sidecar | UnreadableSidecar]:
        """Unfinished writes that are still waiting."""
        return self._opened().rooms.sidecars.pending()

    def resolve_recovery(self, operation_id: str, how: Resolution = "auto") -> RecoveryRecord:
        """Settle one unfinished write by hand: finish or undo it, "roll-back" or "discard" it."""
        return resolve_recovery(self._opened(), operation_id, how=how)

    # --- inside ------------------------------------------------------------------------------

    def _opened(self) -> Core:
        if self._closed:
            raise InputError(f"the graph '{self.uri}' is closed", hint="open it again")
        self._presence.touch()
        return self._core


def _watched(core: Core, branch: Branch, lines: Iterator[str]) -> Iterator[str]:
    with core.meanwhile(branch):
        yield from lines


def _world(options: dict[str, Any]) -> World:
    """The world that keyword options ask for: `durability`, or a whole `world` for tests."""
    world = options.pop("world", None) or World()
    durability = options.pop("durability", world.durability)
    if options:
        raise InputError(
            f"unknown option '{next(iter(options))}'", hint="there are durability and maintenance"
        )
    if durability not in ("power", "process"):
        raise InputError(f"unknown durability '{durability}'", hint='use "power" or "process"')
    return replace(world, durability=durability)


def _require_kind(compiled: CompiledQuery, kind: str) -> None:
    if compiled.kind == kind:
        return
    verb = "mutate" if kind == "read" else "query"
    what = "a mutation" if kind == "read" else "a read query"
    raise InputError(
        f"query '{compiled.name}' is {what}", hint=f"run it with `{verb}`", query=compiled.name
    )
