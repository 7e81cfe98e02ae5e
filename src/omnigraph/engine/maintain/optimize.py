"""`optimize` and `ensure_indices`: compact fragments, extend indexes, publish once.

The long part happens beside the writers: tables are planned and rewritten on one snapshot without
any lease. Then one ordinary write, with its sidecar, shows the result of all tables at once; what
other writers changed meanwhile is fitted or left out, and never waits for us.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from omnigraph.engine.arguments import CALL_OR_NONE, INT, require
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.core import Core, OpenMode
from omnigraph.engine.derive import derive
from omnigraph.engine.runner import Inline
from omnigraph.errors import ConflictError, IntegrityError, OmnigraphError
from omnigraph.model.graph import Branch, Commit, Snapshot, TableEntry, WriterKind, type_words
from omnigraph.model.limits import (
    AUTO_CLEANUP_COMMITS,
    AUTO_FRAGMENTS_MAX,
    LEASE_WAIT_MS_MAX,
    MAINTENANCE_CONCURRENCY,
)
from omnigraph.model.ports import Runner
from omnigraph.model.schema import EdgeType, NodeType, Property, Scalar
from omnigraph.model.structs import JsonStruct
from omnigraph.storage.commit.prepared import Intent, Prepared
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.objects.lease import Lease
from omnigraph.storage.table.index import IndexKind, IndexSpec
from omnigraph.storage.table.table import Table, Tables
from omnigraph.storage.table.upkeep import StagedUpkeep, Upkeep, UpkeepPlan, UpkeepTask, UpkeepWork

logger = logging.getLogger(__name__)

DRIFT = "drift_needs_repair"
INHERITED = "inherited_from_parent"

Depth = Literal["full", "tail", "indexes"]
RunTasks = Callable[[Table, Sequence[UpkeepTask]], Sequence[Any]]
Progress = Callable[[str, int, int], None]


class PendingProperty(JsonStruct, frozen=True, kw_only=True):
    """An index that a schema declares and that cannot be built yet."""

    property: str
    reason: str


class OptimizeStats(JsonStruct, frozen=True, kw_only=True):
    """What happened to one table. `skipped` and `error` say why nothing did."""

    type_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: str | None = None
    published_dataset_version: int | None = None
    lance_head_version: int | None = None
    pending_indexes: tuple[PendingProperty, ...] = ()
    error: str | None = None


class OptimizeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a branch; `commit` is None if there was nothing to do."""

    uri: str
    branch: str
    datasets: tuple[OptimizeStats, ...]
    commit: Commit | None

    @property
    def pending_indexes(self) -> Mapping[str, tuple[PendingProperty, ...]]:
        return {one.type_key: one.pending_indexes for one in self.datasets if one.pending_indexes}

    def to_json(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "branch": self.branch,
            "graph_commit_id": self.commit.graph_commit_id if self.commit else None,
            "datasets": [one.to_json() for one in self.datasets],
        }


def run_here(table: Table, tasks: Sequence[UpkeepTask]) -> Sequence[Any]:
    """Every task one after the other; Lance uses all cores for each."""
    return [table.run_upkeep_task(task) for task in tasks]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """How to work: how much at once, what runs the tasks, and who hears of the progress."""

    depth: Depth = "full"
    keys: frozenset[str] | None = None  # None = every table
    concurrency: int = MAINTENANCE_CONCURRENCY
    run_tasks: RunTasks = run_here
    runner: Runner = Inline(threads=1)  # of what is made after the commit
    index_task_rows: int | None = None  # None = every index segment is one task
    progress: Progress | None = None


class _Done(NamedTuple):
    """What the long part made for a table; nobody sees it yet."""

    table: Table
    work: UpkeepWork


def optimize(core: Core, branch: str, how: Work) -> OptimizeReport:
    """Compact small fragments and bring indexes up to date on one branch, as one commit; with the
    depth "indexes" build and extend what the schema declares, without compacting anything."""
    core.require_writable()
    require(INT, concurrency=how.concurrency)
    require(CALL_OR_NONE, progress=how.progress)
    kind = WriterKind.ENSURE_INDICES if how.depth == "indexes" else WriterKind.OPTIMIZE
    require_settled(core, "optimize" if kind is WriterKind.OPTIMIZE else "ensure_indices")
    target = core.branch(branch)
    snapshot = core.store.manifests.head(target)
    keys = sorted(how.keys & snapshot.entries.keys() if how.keys is not None else snapshot.entries)
    stats, done = _in_parallel(core, snapshot, keys, how)
    staged, after = _publish(core, Intent(branch=target, kind=kind), done)
    if after is not None:
        stats |= {key: _landed(stats[key], one, after) for key, one in staged.items()}
    # Also where there was nothing to publish: a restored graph has no derived files.
    thorough = how.depth == "full" and core.root.local_path is not None
    derive(core, how.runner, after or snapshot, keys, thorough=thorough)
    return OptimizeReport(
        uri=core.root.uri,
        branch=branch,
        datasets=tuple(stats.values()),
        commit=after.head if after else None,
    )


def require_settled(core: Core, doing: str) -> None:
    """Settle what dead writers left; `ConflictError` if something cannot be settled."""
    stuck = core.recover()
    if stuck:
        raise ConflictError(
            f"{doing} needs a clean recovery state: unfinished write {stuck[0].operation_id} "
            f"could not be settled ({stuck[0].reason})",
            hint="opening the graph again runs the recovery sweep; see `omnigraph recovery list`",
            operation_id=stuck[0].operation_id,
        )


# --- the long part ---------------------------------------------------------------------------


def _in_parallel(
    core: Core, snapshot: Snapshot, keys: Sequence[str], how: Work
) -> tuple[dict[str, OptimizeStats], dict[str, _Done]]:
    def work(key: str) -> tuple[OptimizeStats, _Done | None]:
        try:
            return _one_table(core, snapshot, key, how)
        except IntegrityError:
            raise
        except OmnigraphError as cause:  # one table's fault is its own: the others go on
            logger.warning("table not maintained", extra={"table": key, "why": cause.message})
            return OptimizeStats(type_key=key, error=cause.message), None

    stats: dict[str, OptimizeStats] = {}
    done: dict[str, _Done] = {}
    with ThreadPoolExecutor(max(1, how.concurrency), thread_name_prefix="maintain") as pool:
        for key, (told, made) in zip(keys, pool.map(work, keys), strict=True):
            stats[key] = told
            if made is not None:
                done[key] = made
            if how.progress is not None:
                how.progress(key, len(stats), len(keys))
    return stats, done


def _one_table(
    core: Core, snapshot: Snapshot, key: str, how: Work
) -> tuple[OptimizeStats, _Done | None]:
    branch, entry = snapshot.branch, snapshot.entries[key]
    stats = OptimizeStats(
        type_key=key,
        published_dataset_version=entry.version,
        lance_head_version=entry.version,
    )
    if not branch.owns(entry.branch):
        # Its rows belong to the branch it came from; a copy of them would help nobody.
        return replace(stats, skipped=INHERITED), None
    head = _drifted_head(core, branch, entry)
    if head is not None:
        return replace(stats, skipped=DRIFT, lance_head_version=head), None
    table = core.store.tables.open(entry, alone=True)
    plan = _plan(table, index_specs(core.catalog(snapshot).type_of(key)), how)
    pending = [PendingProperty(property=spec.column, reason=why) for spec, why in plan.pending]
    stats = replace(stats, pending_indexes=tuple(pending))
    if plan.is_empty:
        return stats, None
    return stats, _Done(table, table.finish_upkeep(plan, how.run_tasks(table, plan.tasks)))


def _plan(table: Table, specs: Sequence[IndexSpec], how: Work) -> UpkeepPlan:
    if how.depth == "tail":
        # Only those that are quick to extend: this runs beside the writers.
        quick = [spec for spec in specs if spec.kind == "btree"]
        return table.plan_upkeep(quick, Upkeep(tiered=True))
    return table.plan_upkeep(
        specs,
        Upkeep(
            compact=how.depth == "full",
            check_indexes=True,
            drop_undeclared=True,
            index_task_rows=how.index_task_rows,
        ),
    )


def _drifted_head(core: Core, branch: Branch, entry: TableEntry) -> int | None:
    """The head of a table that is ahead of what is published, or None.

    A writer at work is ahead for a moment, so a suspicion is looked at again under the lease.
    """
    tables = core.store.tables
    if tables.head_version(entry.location, entry.branch) == entry.version:
        return None

    def look(_: Lease) -> int | None:
        fresh = core.store.manifests.head(branch).entries.get(entry.table_key)
        if fresh is None or fresh.location != entry.location or fresh.branch != entry.branch:
            return None
        head = head_of(tables, fresh)
        return head if head > fresh.version else None

    return core.store.leases.holding(branch.id, look, wait_ms=LEASE_WAIT_MS_MAX)


def head_of(tables: Tables, entry: TableEntry) -> int:
    """The newest version of the table; `IntegrityError` if it is older than what is published."""
    head = tables.head_version(entry.location, entry.branch)
    if head < entry.version:
        raise IntegrityError(
            f"the newest data of {type_words(entry.table_key)} is missing: what is stored is "
            "older than what was committed",
            table_key=entry.table_key,
            expected=entry.version,
            actual=head,
        )
    return head


# --- the short part --------------------------------------------------------------------------


def _publish(
    core: Core, intent: Intent, done: Mapping[str, _Done]
) -> tuple[dict[str, StagedUpkeep], Snapshot | None]:
    staged: dict[str, StagedUpkeep] = {}  # by the last try, also if that was refused

    def prepare(context: WriteContext) -> tuple[Prepared, None]:
        staged.clear()
        for key, one in done.items():
            if key in context.snapshot.entries:
                fitting = context.table(key).stage_upkeep(one.work)
                if fitting is not None:
                    staged[key] = fitting
        return Prepared(staged=tuple(one.write for one in staged.values())), None

    if not done:
        return {}, None
    landed: dict[str, StagedUpkeep] = {}
    try:
        after, _ = core.write(intent, prepare)
        landed = staged if after is not None else {}
    except ConflictError:
        if _nothing_moved(core, staged):
            _discard_rest(done, landed)
        raise
    _discard_rest(done, landed)
    return landed, after


def _nothing_moved(core: Core, staged: Mapping[str, StagedUpkeep]) -> bool:
    """Whether a refused write is sure to have left no version, not even a buried one.

    A file that a version names must stay: recovery may still publish that version. What is left
    behind in doubt is found by `cleanup` when it is old.
    """
    if core.recovery.sidecars.operation_ids():
        return False
    writes = [one.write for one in staged.values()]
    return all(
        core.store.tables.is_head(one.location, one.branch, one.pinned_version) for one in writes
    )


def _discard_rest(done: Mapping[str, _Done], landed: Mapping[str, StagedUpkeep]) -> None:
    """Delete the files that no version names: the write is certain to have left them out."""
    for key, one in done.items():
        try:
            one.table.discard_upkeep(one.work, landed.get(key))
        except OmnigraphError as cause:  # cleanup finds the files when they are old
            logger.warning("left files behind", extra={"table": key, "why": cause.message})


def _landed(stats: OptimizeStats, staged: StagedUpkeep, after: Snapshot) -> OptimizeStats:
    version = after.entries[stats.type_key].version
    return replace(
        stats,
        fragments_removed=staged.fragments_removed,
        fragments_added=staged.fragments_added,
        committed=True,
        published_dataset_version=version,
        lance_head_version=version,
    )


# --- which indexes a schema means --------------------------------------------------------------

# Indexes are derived: reads are right without any.


_VECTOR: Mapping[str, Any] = {"metric": "cosine"}


def index_specs(entity: Entity) -> tuple[IndexSpec, ...]:
    """Every index that a type should have.

    `id`, and the ends of edges, always have one. Keys, unique and indexed properties have a B-tree,
    and vectors a vector index if the schema wishes for an approximate one. Lists and blobs have
    none. The words of indexed texts are in derived files (`engine/derive.py`).
    """
    ends = ("src", "dst") if isinstance(entity, EdgeType) else ()
    found = [_spec(column, "btree") for column in ("id", *ends)]
    key = entity.key if isinstance(entity, NodeType) else ()
    indexed = set(chain.from_iterable(entity.index))
    for name in chain(key, *entity.unique, *entity.index):
        prop = entity.by_name.get(name)
        if prop is not None:
            found += [_spec(name, kind) for kind in _kinds(prop, indexed=name in indexed)]
    return tuple({spec.name: spec for spec in found}.values())


def _kinds(prop: Property, *, indexed: bool) -> tuple[IndexKind, ...]:
    kind = prop.type
    if kind.is_list or kind.scalar is Scalar.BLOB:
        return ()
    if kind.scalar is Scalar.VECTOR:
        return ("vector",) if indexed and prop.indexing.ann else ()
    return ("btree",)


def _spec(column: str, kind: IndexKind) -> IndexSpec:
    parameters = _VECTOR if kind == "vector" else {}
    return IndexSpec(name=f"{column}_{kind}", column=column, kind=kind, parameters=parameters)


logger = logging.getLogger(__name__)


# --- upkeep that runs by itself ----------------------------------------------------------------

# Small fragments are compacted before reads suffer from them. It looks at what a write left behind,
# and works in a thread of its own beside readers and writers. It never fails anything: what goes
# wrong is logged, and the next write looks again.


class MaintenancePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a table is looked after without being asked.

    More small fragments than this are compacted, and the indexes of keys and ends extended over
    them. Full-text and vector indexes are left to `optimize`. With `topologies`, `load` and
    `optimize` also leave the topology of every big edge type in the user's cache folder, so that
    no reader on this machine has to build it.
    """

    small_fragments_max: int = AUTO_FRAGMENTS_MAX
    topologies: bool = False


DEFAULT_POLICY: Final = MaintenancePolicy()


class AutoMaintenance:
    """Watches the writes of one open graph. One table set of one branch is worked on at a time."""

    def __init__(
        self, core: Core, policy: MaintenancePolicy | None, *, tidy: Callable[[], None]
    ) -> None:
        """`tidy` cleans up if the graph's own retention asks for that."""
        self._core = core
        self._policy = policy if core.mode is OpenMode.READ_WRITE else None
        self._tidy = tidy
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None
        self._seen: dict[str, TableEntry] = {}
        self._versions: dict[str | None, int] = {}  # of each branch's manifest, when last seen
        self._untidy = False
        self._closed = False

    def notice(self, after: Snapshot | None) -> None:
        """A write has landed: start upkeep if one of its tables needs it. Never raises."""
        if self._policy is None or after is None:
            return
        self._untidy = self._untidy or self._is_untidy(after)
        if self._is_busy():
            return
        try:
            due = self._due(after, self._policy)
        except OmnigraphError as cause:
            logger.warning("upkeep looked in vain", extra={"why": cause.message})
            return
        if due or self._untidy:
            self._start(after.branch.name, due)

    def wait(self) -> None:
        """Until the upkeep that is running is done."""
        running = self._running
        if running is not None:
            running.join()

    def close(self) -> None:
        """Finish what is running; start nothing more."""
        with self._lock:
            self._closed = True
        self.wait()

    def _is_busy(self) -> bool:
        return self._running is not None and self._running.is_alive()

    def _is_untidy(self, after: Snapshot) -> bool:
        """Whether so many commits have been made that it is worth asking for the retention. The
        numbers of versions decide, so that processes of one write each come to it in turn; upkeep
        itself takes a number now and then, which no write of ours tells."""
        now = after.manifest_version
        before = self._versions.get(after.branch.id, now - 2)
        self._versions[after.branch.id] = now
        return now // AUTO_CLEANUP_COMMITS > before // AUTO_CLEANUP_COMMITS

    def _due(self, after: Snapshot, policy: MaintenancePolicy) -> frozenset[str]:
        due: set[str] = set()
        for key, entry in after.entries.items():
            if self._seen.get(key) == entry or not after.branch.owns(entry.branch):
                continue
            self._seen[key] = entry
            fragmentation = self._core.store.tables.open(entry).fragmentation()
            if fragmentation.small_fragments > policy.small_fragments_max:
                due.add(key)
        return frozenset(due)

    def _start(self, branch: str, due: frozenset[str]) -> None:
        with self._lock:
            if self._closed or self._is_busy():
                return
            tidy, self._untidy = self._untidy, False
            work = (branch, due, tidy)
            self._running = threading.Thread(target=self._run, args=work, name="upkeep")
            self._running.start()

    def _run(self, branch: str, due: frozenset[str], tidy: bool) -> None:  # noqa: FBT001
        try:
            if tidy:
                self._tidy()
            if not due:
                return
            report = optimize(self._core, branch, Work(depth="tail", keys=due, concurrency=1))
        except Exception as cause:  # noqa: BLE001 - upkeep is a favour: it must not break anything
            logger.warning("upkeep failed", extra={"branch": branch, "why": str(cause)})
            return
        removed = sum(one.fragments_removed for one in report.datasets)
        logger.debug("upkeep done", extra={"branch": branch, "fragments_removed": removed})
