"""`Graph`: the names that users call, each one call into the module that does the work."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from omnigraph.compiler.query import (
    CompiledQuery,
    LintReport,
    bind_params,
    compile_query,
    lint_source,
)
from omnigraph.engine import access
from omnigraph.engine.arguments import (
    FLAG,
    MAPPING_OR_NONE,
    PATH,
    TEXT,
    TEXT_OR_NONE,
    TEXTS_OR_NONE,
    instance,
    or_none,
    require,
)
from omnigraph.engine.core import Core, OpenMode, compiled_as, init_core, open_core, world_of
from omnigraph.engine.maintain.optimize import (
    DEFAULT_POLICY,
    AutoMaintenance,
    MaintenancePolicy,
    OptimizeReport,
    Progress,
    Work,
    optimize,
)
from omnigraph.engine.read.context import Explanation, ReadLimits, Run
from omnigraph.engine.read.result import QueryResult
from omnigraph.engine.read.run import Reader
from omnigraph.engine.refs import At
from omnigraph.engine.timeline import Timeline
from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import MAIN
from omnigraph.model.limits import GRACE_MS, MAINTENANCE_CONCURRENCY
from omnigraph.model.machine import Later
from omnigraph.model.plan import SchemaPlan
from omnigraph.storage.commit.outcome import tell_last_commit

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.engine import evolve as evolving
    from omnigraph.engine.algorithms import run as algorithmic
    from omnigraph.engine.load import order as orders
    from omnigraph.engine.load import report as reporting
    from omnigraph.engine.load import run as loading
    from omnigraph.engine.maintain import backup as copying
    from omnigraph.engine.maintain import cleanup as cleaning
    from omnigraph.engine.maintain import health as checkup
    from omnigraph.engine.maintain import repair as repairing
    from omnigraph.engine.maintain import stored_retention as keeping
    from omnigraph.engine.maintain import verify as verifying
    from omnigraph.engine.read import export as exporting
    from omnigraph.engine.write import filling
    from omnigraph.engine.write import mutate as mutating
    from omnigraph.engine.write import transaction as transacting
else:
    algorithmic = Later("omnigraph.engine.algorithms.run")
    evolving = Later("omnigraph.engine.evolve")
    orders = Later("omnigraph.engine.load.order")
    reporting = Later("omnigraph.engine.load.report")
    loading = Later("omnigraph.engine.load.run")
    cleaning = Later("omnigraph.engine.maintain.cleanup")
    keeping = Later("omnigraph.engine.maintain.stored_retention")
    checkup = Later("omnigraph.engine.maintain.health")
    repairing = Later("omnigraph.engine.maintain.repair")
    copying = Later("omnigraph.engine.maintain.backup")
    verifying = Later("omnigraph.engine.maintain.verify")
    exporting = Later("omnigraph.engine.read.export")
    filling = Later("omnigraph.engine.write.filling")
    mutating = Later("omnigraph.engine.write.mutate")
    transacting = Later("omnigraph.engine.write.transaction")

logger = logging.getLogger(__name__)

_LIMITS_OR_NONE = or_none(instance(ReadLimits))


class Graph(Timeline):
    """One open graph. Safe to share between threads; several processes may open the same one."""

    def __init__(
        self,
        core: Core,
        *,
        maintenance: MaintenancePolicy | None = DEFAULT_POLICY,
        gate: access.Gate = access.OPEN,
    ) -> None:
        """Use `Graph.init` or `Graph.open`."""
        super().__init__(core, gate)
        self._auto = AutoMaintenance(core, maintenance, tidy=self._tidy)
        self._reader = Reader(
            core.store.tables, cache_bytes=core.world.cache_bytes, embedder=core.world.embedder
        )
        self._in_transaction: set[int] = set()  # threads with a transaction that is open
        self._stores_topologies = maintenance is not None and maintenance.topologies

    # --- opening and closing -----------------------------------------------------------------

    @classmethod
    def init(
        cls, uri: str | os.PathLike[str], schema_text: str, actor: str | None = None, **options: Any
    ) -> Graph:
        """Make an empty graph with this schema; `AlreadyExistsError` if one is there."""
        require(PATH, uri=uri)
        gate = access.Gate.of(options.pop("policy", None), actor)
        upkeep = _maintenance(options)
        core = init_core(os.fspath(uri), schema_text, actor_id=actor, world=world_of(options))
        return cls(core, maintenance=upkeep, gate=gate)

    @classmethod
    def open(
        cls, uri: str | os.PathLike[str], mode: OpenMode = OpenMode.READ_WRITE, **options: Any
    ) -> Graph:
        """Open the graph there; `NotFoundError` if there is none.

        Writes of this handle look after their tables by themselves; `maintenance=None` turns that
        off. `durability="process"` is for graphs that a power cut may take. `cache_bytes` bounds
        what reading keeps in memory (default: a quarter of the machine's, at least 1 GiB).
        `actor` acts through this handle, and does only what a `policy` (or its file) allows.
        `embedder` makes the vectors of `@embed` properties that are written without one, and of
        texts in `nearest`: a callable (texts in, vectors out), an `EmbedConfig`, or True for the
        provider that the environment names.
        """
        require(PATH, uri=uri)
        gate = access.Gate.of(options.pop("policy", None), options.pop("actor", None))
        upkeep = _maintenance(options)
        core = open_core(os.fspath(uri), mode=mode, world=world_of(options))
        return cls(core, maintenance=upkeep, gate=gate)

    @staticmethod
    def connect(
        url: str, *, token: str | None = None, graph: str | None = None, timeout: float = 60.0
    ) -> RemoteGraph:
        """A graph of a server: `http://host/graphs/alpha`, or the server's address and `graph`."""
        from omnigraph.client.graph import RemoteGraph  # noqa: PLC0415 - it stands above

        return RemoteGraph.connect(url, token=token, graph=graph, timeout=timeout)

    def acting_as(self, actor: str | None, *, policy: access.PolicySource | None = None) -> Graph:
        """The same open graph for another actor, by this handle's policy or another."""
        self._alive()
        view = copy(self)  # it ends with this one
        gate = access.Gate.of(self._gate.policy if policy is None else policy, actor)
        view.__dict__.update(_gate=gate, _is_borrowed=True)
        return view

    def close(self) -> None:
        """Let go of caches and background work; a closed graph refuses every call."""
        if self._is_borrowed:
            return
        self._ended.set()
        self._auto.close()
        self._reader.close()
        self._core.close()
        self._presence.close()

    def refresh(self) -> None:
        """See what other processes have committed, and settle what dead ones left unfinished."""
        core = self._alive()
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
        require(_LIMITS_OR_NONE, limits=limits)
        require(FLAG, explain=explain)
        core, target = self._state("query", branch, snapshot)
        catalog = core.catalog(target)
        compiled = compiled_as("read", source, name, catalog)
        require(MAPPING_OR_NONE, params=params)
        with core.store.meanwhile(target.branch):
            return self._reader.run(
                compiled,
                params=bind_params(compiled.params, params or {}),
                catalog=catalog,
                snapshot=target,
                now_ms=core.world.clock.now_us() // 1000,
                limits=limits,
                explain=explain,
            )

    @property
    def algorithms(self) -> algorithmic.Algorithms:
        """Whole-graph algorithms, as Arrow tables by id: `graph.algorithms.pagerank("knows")`."""
        return algorithmic.Algorithms(self._reading)

    @contextmanager
    def _reading(self, branch: str, snapshot: At | None) -> Iterator[Run]:
        core, target = self._state("algorithms", branch, snapshot)
        with (
            core.store.meanwhile(target.branch),
            self._reader.reading(target, core.catalog(target)) as run,
        ):
            yield run

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

    def describe(
        self,
        source: str,
        name: str | None = None,
        *,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> CompiledQuery:
        """A query checked and not run: its name, kind, parameters, columns and what it touches."""
        require(TEXT, source=source)
        require(TEXT_OR_NONE, name=name)
        core, target = self._state("describe", branch, snapshot)
        return compile_query(source, core.catalog(target), name)

    def schema_source(self, branch: str = MAIN) -> str:
        return self._allowed("schema_source").snapshot(branch).schema.source

    def lint(self, source: str, branch: str = MAIN) -> LintReport:
        """Check a query file against the schema; bad source becomes findings, never an error."""
        require(TEXT, source=source)
        core, target = self._state("lint", branch, None)
        return lint_source(source, core.catalog(target))

    def export(
        self, *, branch: str = MAIN, snapshot: At | None = None, types: Sequence[str] | None = None
    ) -> Iterator[str]:
        """The graph as NDJSON lines that `load` takes back, nodes first."""
        require(TEXTS_OR_NONE, types=types)
        core, target = self._state("export", branch, snapshot)
        return exporting.export_lines(core.store, core.catalog(target), target, types)

    def read_blob(
        self,
        kind: str,
        type_name: str,
        id: str,  # noqa: A002 - the name is fixed by the API
        property: str,  # noqa: A002 - likewise
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> exporting.BlobReader:
        """The bytes of one Blob property."""
        core, target = self._state("read_blob", branch, snapshot)
        return exporting.read_blob(
            core.store.tables, core.catalog(target), target, kind, type_name, id, property
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
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> mutating.MutationResult:
        """Run one mutation query as one commit, or not at all.

        With an `idempotency_key` it runs once, however often it is submitted.
        """
        core = self._allowed("mutate", branch=branch, actor=actor)
        order = mutating.MutationOrder(
            source=source,
            name=name,
            params=params,
            branch=branch,
            actor_id=self._gate.acting(actor),
            message=message,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
        )
        return mutating.mutate(core, self._reader, order, then=self._auto.notice)

    def transaction(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        if_commit: str | None = None,
    ) -> transacting.Transaction:
        """Several mutations, loads and reads as one commit: use it in a `with` block.

        Reads inside see what is pending; an exception leaves nothing. Afterwards `commit` is the
        commit, None if nothing changed.
        """
        core = self._allowed("transaction", branch=branch, actor=actor)
        order = transacting.TransactionOrder(
            branch=branch,
            actor_id=self._gate.acting(actor),
            message=message,
            if_commit=if_commit,
            gate=self._gate,
        )
        return transacting.Transaction(
            core, self._reader, order, self._in_transaction, then=self._auto.notice
        )

    def load(
        self,
        data: orders.LoadData,
        *,
        mode: str,
        type: str | None = None,  # noqa: A002 - the signature is fixed by the API
        branch: str = MAIN,
        from_branch: str | None = None,
        actor: str | None = None,
        strict: bool = True,
        message: str | None = None,
        idempotency_key: str | None = None,
        on_error: orders.OnError = "fail",
        quarantine: str | os.PathLike[str] | None = None,
        progress: reporting.Listener | None = None,
    ) -> reporting.LoadResult:
        """Load data as one commit, or change nothing.

        `data` is graph NDJSON (a str is the text itself, a path names a file or folder), records
        as dictionaries, or a mapping from types to their rows: dictionaries, a data frame, an Arrow
        table, a path, a `Source`. `type` says of which type all rows are. `mode` is "append",
        "merge" or "overwrite". A load with an `idempotency_key` lands once, however often it is
        submitted. `on_error="quarantine"` puts bad records into the folder `quarantine` (default:
        `<graph>.quarantine`) and loads the rest. `progress` is told how far it is."""
        core = self._alive()
        self._gate.require_load(core, branch=branch, from_branch=from_branch, actor=actor)
        order = orders.request_order(
            data,
            type_name=type,
            strict=strict,
            idempotency_key=idempotency_key,
            uri=self.uri,
            mode=mode,
            branch=branch,
            from_branch=from_branch,
            actor=self._gate.acting(actor),
            message=message,
            on_error=on_error,
            quarantine=quarantine,
            embed=self._core.world.embedder,
        )
        report = loading.load_here(core, order, listener=progress, then=self._auto.notice)
        self._store_topologies(branch)
        return reporting.LoadResult.of(report)

    def embed(
        self,
        branch: str = MAIN,
        *,
        types: Sequence[str] | None = None,
        actor: str | None = None,
        message: str | None = None,
    ) -> filling.EmbedReport:
        """Make the `@embed` vectors that stored entities lack, with the graph's `embedder`.

        Some thousand a commit: what is done stays when a later text fails, and a second call goes
        on from there.
        """
        return filling.fill_vectors(
            self._allowed("embed", branch=branch, actor=actor),
            branch=branch,
            types=types,
            actor_id=self._gate.acting(actor),
            message=message,
            then=self._auto.notice,
        )

    # --- schema ------------------------------------------------------------------------------

    def plan_schema(
        self,
        source: str,
        allow_data_loss: bool = False,  # noqa: FBT001, FBT002 - the signature is fixed by the API
        *,
        branch: str = MAIN,
    ) -> SchemaPlan:
        """The steps from the branch's schema to this one, without taking them."""
        core = self._told_by("plan_schema", branch)
        return evolving.plan_schema(core, source, branch=branch, allow_data_loss=allow_data_loss)

    def apply_schema(
        self,
        source: str,
        allow_data_loss: bool = False,  # noqa: FBT001, FBT002 - likewise
        actor: str | None = None,
        *,
        branch: str = MAIN,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> evolving.SchemaApplyResult:
        """Bring a branch to this schema in one commit; other branches keep theirs.

        With `allow_data_loss`, the past of dropped types and properties goes too, as far as no
        other branch needs it. With an `idempotency_key` the schema is applied once, however often
        it is submitted.
        """
        core = self._allowed("apply_schema", target=branch, actor=actor)
        return evolving.apply_schema(
            core,
            source,
            branch=branch,
            allow_data_loss=allow_data_loss,
            actor_id=self._gate.acting(actor),
            message=message,
            idempotency_key=idempotency_key,
        )

    # --- maintenance -------------------------------------------------------------------------

    def ensure_indices(
        self, branch: str = MAIN, *, concurrency: int = MAINTENANCE_CONCURRENCY
    ) -> OptimizeReport:
        """Build the indexes that the schema declares and extend them over new rows, as one
        commit. Those that cannot be built yet are in `pending_indexes` with the reason."""
        core = self._allowed("ensure_indices")
        return optimize(core, branch, Work(depth="indexes", concurrency=concurrency))

    def optimize(
        self,
        branch: str = MAIN,
        *,
        concurrency: int = MAINTENANCE_CONCURRENCY,
        progress: Progress | None = None,
    ) -> OptimizeReport:
        """Compact small fragments, bring indexes up to date and mend damaged ones, as one commit.

        Readers and writers go on meanwhile. Refused while an unfinished write cannot be settled.
        A graph that was opened with an `embedder` first gets the `@embed` vectors that are missing.
        """
        core, how = self._allowed("optimize"), Work(concurrency=concurrency, progress=progress)
        if core.world.embedder is not None:
            filling.fill_vectors(core, branch=branch, then=self._auto.notice)
        report = optimize(core, branch, how)
        self._store_topologies(branch)
        return report

    def _store_topologies(self, branch: str) -> None:
        if not self._stores_topologies:
            return
        try:
            target = self._core.snapshot(branch, None)
            with self._core.store.meanwhile(target.branch):
                self._reader.store_topologies(target, self._core.catalog(target))
        except OmnigraphError as cause:  # what was asked for is done; this only saves time
            logger.warning("topologies not stored", extra={"why": cause.message})

    def retention(self) -> keeping.Retention:
        """How much of the past each branch keeps, as `set_retention` has stored it."""
        return keeping.stored(self._allowed("retention"))

    def set_retention(
        self, rules: Mapping[str, Mapping[str, Any]], *, automatic: bool = False
    ) -> keeping.Retention:
        """Store with the graph how much of the past its branches keep, in place of what it was.

        `rules` has the bounds of `cleanup` (`keep_versions`, `older_than`) by pattern of branch
        names (`*`, `release/*`, a name); of those that fit a branch the longest counts, and one
        that none fits keeps everything. `cleanup()` without bounds goes by it; with `automatic`
        upkeep does so by itself now and then. Heads, tags and bases of merges stay in any case.
        """
        return keeping.store(self._allowed("set_retention"), rules, automatic=automatic)

    def _tidy(self) -> None:
        if keeping.stored(self._core).automatic:
            # Somebody in this very process may be reading a former head.
            how = cleaning.Cleanup(grace=GRACE_MS / 1000, concurrency=1)
            cleaning.cleanup(self._core, self._presence, how)

    def cleanup(
        self,
        keep_versions: int | None = None,
        older_than: keeping.Age | None = None,
        *,
        preview: bool = False,
        grace: keeping.Age | None = None,
        concurrency: int = MAINTENANCE_CONCURRENCY,
    ) -> cleaning.CleanupReport:
        """Collect what no branch, no snapshot within the retention and no unfinished write needs.

        A snapshot goes only if it is neither among the newest `keep_versions` of its branch nor
        younger than `older_than` (a timedelta, or seconds); without either, the graph's own
        retention decides (`set_retention`). With `preview` nothing is touched and
        the report says what would go. `grace` is how long former heads stay for their readers:
        none if nobody else has the graph open, else a minute.
        """
        how = cleaning.Cleanup(
            keep_versions=keep_versions,
            older_than=older_than,
            preview=preview,
            grace=grace,
            concurrency=concurrency,
        )
        return cleaning.cleanup(self._allowed("cleanup"), self._presence, how)

    def repair(
        self,
        confirm: bool = False,  # noqa: FBT001, FBT002 - the API fixes all three
        force: bool = False,  # noqa: FBT001, FBT002
        restore: bool = False,  # noqa: FBT001, FBT002
        *,
        branch: str = MAIN,
    ) -> repairing.RepairReport:
        """Explain tables that moved past what is published.

        `confirm` publishes those where only maintenance happened, and undoes writes of ours that
        were given up. `force` publishes all others too, as long as columns, ids and edge ends
        hold; `restore` puts every one of them back to what is published. Without `confirm` the
        report only says how things stand.
        """
        wanted = repairing.Orders(confirm=confirm, force=force, restore=restore)
        return repairing.repair(self._allowed("repair"), branch, wanted)

    def health(self, branch: str = MAIN) -> checkup.HealthReport:
        """Fragments, index coverage, versions, bytes and unfinished writes, with advice."""
        return checkup.health(self._told_by("health", branch), branch)

    def verify(
        self,
        deep: bool = False,  # noqa: FBT001, FBT002
        *,
        progress: verifying.Progress | None = None,
    ) -> verifying.VerifyReport:
        """Compare files, sizes, digests and row counts of all branches, tags and kept commits with
        what was promised; `deep` also reads all rows of every branch and tag. Changes nothing.
        `progress` is called with what is looked at, how far it is, and how much there is."""
        return verifying.verify(self._allowed("verify"), deep=deep, progress=progress)

    def backup(
        self, dest: str | os.PathLike[str], *, progress: copying.Progress | None = None
    ) -> copying.BackupReport:
        """Copy the graph as it is now, with all branches, tags and kept history, to an empty place:
        a folder or an object store. Others may go on writing; cleanup waits. The copy is a graph
        of its own."""
        return copying.backup(self._allowed("backup"), dest, progress=progress)


def _maintenance(options: dict[str, Any]) -> MaintenancePolicy | None:
    policy: MaintenancePolicy | None = options.pop("maintenance", DEFAULT_POLICY)
    require(or_none(instance(MaintenancePolicy)), maintenance=policy)
    return policy
