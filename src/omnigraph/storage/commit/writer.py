"""The one way to write: prepare → stage → lease → A arm → B apply → C publish → D disarm.

`prepare` is the caller's: it reads one snapshot, decides, and stages uncommitted table writes. This
file does the rest, the same for every writer kind. What a write relied on is checked again under
the lease; writes that may rebase are prepared again, strict ones are refused.

Whatever happens under the lease happens in a thread that no interrupt reaches (`unbroken.py`): an
interrupt is raised when the write is whole or undone, and says which.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpectedVersionMismatchError,
    IdempotencyKeyReusedError,
    InputError,
    LimitExceededError,
    OmnigraphError,
    PreconditionFailedError,
    RecoveryRequiredError,
    RowLevelCasContentionError,
)
from omnigraph.model.graph import (
    MESSAGE_PROPERTY,
    WRITER_KIND_PROPERTY,
    Branch,
    HeadIs,
    Pin,
    Snapshot,
    TableEntry,
    TableUpdate,
    WriterKind,
)
from omnigraph.model.limits import (
    FORK_LIVES_MAX,
    LEASE_WAIT_MS_MAX,
    REPREPARES_BEFORE_LEASED,
    REPREPARES_MAX,
    WRITE_THREADS_MAX,
)
from omnigraph.model.ports import World
from omnigraph.model.steps import Step
from omnigraph.storage.commit.judge import MAINTENANCE
from omnigraph.storage.commit.outcome import Outcome
from omnigraph.storage.commit.prepared import AppliedBeforeError, Intent, Prepared, find_applied
from omnigraph.storage.commit.recovery import Recovery, Stuck
from omnigraph.storage.commit.sidecar import Effect, Sidecar
from omnigraph.storage.objects.lease import Lease, stop_if_asked
from omnigraph.storage.store import Store
from omnigraph.storage.table.stage import StagedWrite
from omnigraph.storage.table.table import Table, Tables

logger = logging.getLogger(__name__)

_CLOSING_LOOK_MS: Final = 5

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Told = TypeVar("_Told")


class _Write(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared write on its way through the protocol, and what becomes of it."""

    intent: Intent
    base: Snapshot
    prepared: Prepared
    outcome: Outcome


class _MovedError(Exception):
    """A table (or the schema) that the write relies on moved on before the lease was taken."""


class WriteContext:
    """What `prepare` works with: one snapshot, its tables, and tables that may be staged on."""

    def __init__(
        self, writer: Writer, branch: Branch, snapshot: Snapshot, *, lease: Lease | None = None
    ) -> None:
        self._writer, self._lease = writer, lease
        self.branch, self.snapshot = branch, snapshot

    def table(self, table_key: str) -> Table:
        """The table as the snapshot has it, for reading."""
        stop_if_asked()  # a write that prepares under the lease is not interrupted otherwise
        return self._writer.store.tables.open(self.snapshot.entries[table_key])

    def writable(self, table_key: str, *, renamed: str | None = None) -> Table:
        """The same rows, on the branch's own line: a first write on a branch forks the table. A
        write that renames the table's key says so."""
        entry = self.snapshot.entries[table_key]
        assert entry.table_key == table_key, "a snapshot names its tables by their keys"
        # A line that the branch inherits is shared: a commit on it would show on other branches.
        if not self.branch.owns(entry.branch):
            line = self._writer.fork(self.branch, entry, self._lease)
            entry = replace(entry, branch=line)
        return self._writer.store.tables.open(replace(entry, table_key=renamed or table_key))

    @property
    def tables(self) -> Tables:
        return self._writer.store.tables

    @property
    def world(self) -> World:
        return self._writer.store.world

    def each(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """The work done for every item, side by side, with the results in order."""
        if len(items) <= 1:
            return [work(item) for item in items]
        # Work that hands on work of its own would wait for a thread that waits for it.
        return list(self._writer.pool.map(work, items))


class DraftContext(WriteContext):
    """For what is staged to be looked at and never to be committed: on the lines that the snapshot
    has, so that looking forks nothing."""

    def writable(self, table_key: str, *, renamed: str | None = None) -> Table:
        assert renamed is None, "a schema is not drafted"
        return self.table(table_key)


# The write, None for nothing to change, and whatever its caller wants to know of the last try.
Prepare = Callable[[WriteContext], tuple[Prepared | None, _Told]]


class Writer:
    """Carries prepared writes through the commit protocol."""

    def __init__(self, store: Store, recovery: Recovery) -> None:
        self.store = store
        self.recovery = recovery
        self.last_commit_id: str | None = None  # the newest commit that this handle made
        self.prepared_again = 0  # tries that somebody else's commit made void
        # Mutations of one handle take turns from their first read on. Strict ones would otherwise
        # refuse each other all the time; loads and merges may take long and do not wait.
        self._turns: defaultdict[str | None, threading.Lock] = defaultdict(threading.Lock)
        self._writing: dict[object, int] = {}  # writes in progress, by the thread that makes them
        self._closed = False
        self.pool = ThreadPoolExecutor(WRITE_THREADS_MAX, thread_name_prefix="omnigraph-prepare")
        # Preparing may wait for a lease whose holder waits for a thread to apply with: two pools.
        self._appliers = ThreadPoolExecutor(WRITE_THREADS_MAX, thread_name_prefix="omnigraph-apply")

    def write(
        self,
        intent: Intent,
        prepare: Prepare[_Told],
        *,
        then: Callable[[Snapshot | None], None] | None = None,
    ) -> tuple[Snapshot | None, _Told]:
        """Commit what `prepare` makes of the branch head. Returns the snapshot after it, None if
        there was nothing to change, and what `prepare` told of the write that was made. Raises and
        leaves nothing visible otherwise.

        An interrupt carries a note that says whether the write was committed. `then` is done
        right after the write and counts as part of it.
        """
        in_turn = intent.kind is WriterKind.MUTATION
        outcome = Outcome()
        me = object()
        try:
            # Noted before the look: `close` sets its mark first and then waits for those it finds.
            self._writing[me] = threading.get_ident()
            self._require_open()
            # The turn is only a courtesy between threads: what keeps writers apart is the lease.
            with self._turns[intent.branch.id] if in_turn else nullcontext():
                after, told = self._write(intent, prepare, outcome)
            if then is not None:
                then(after)
        except Exception:
            raise
        except BaseException as interrupt:
            # Errors say themselves what became of the write; an interrupt knows nothing of it.
            outcome.tell(interrupt)
            raise
        else:
            return after, told
        finally:
            self._writing.pop(me, None)

    def _require_open(self) -> None:
        if self._closed:
            raise InputError("the graph is closed", hint="open it again")

    def _write(
        self, intent: Intent, prepare: Prepare[_Told], outcome: Outcome
    ) -> tuple[Snapshot | None, _Told]:
        branch = intent.branch
        assert REPREPARES_BEFORE_LEASED < REPREPARES_MAX, "the last tries prepare under the lease"
        for attempt in range(REPREPARES_MAX):
            try:
                if attempt < REPREPARES_BEFORE_LEASED:
                    return self._attempt(intent, prepare, outcome, None)
                # Late attempts prepare under the lease: a busy branch cannot starve a writer.
                return self._leased(
                    branch, lambda lease: self._attempt(intent, prepare, outcome, lease)
                )
            except _MovedError as moved:
                self.prepared_again += 1
                logger.debug("prepare again", extra={"table": str(moved)})
        raise RowLevelCasContentionError(branch=branch.name, attempts=REPREPARES_MAX)

    def _attempt(
        self, intent: Intent, prepare: Prepare[_Told], outcome: Outcome, early: Lease | None
    ) -> tuple[Snapshot | None, _Told]:
        branch = intent.branch
        # Every decision of this try is made on this one snapshot; under the lease it is compared
        # with the head once more.
        base = self._current(branch, early)
        # Before the head: a request that has landed moved the head by itself.
        self._require_new(intent)
        _require_head(intent, base)
        prepared: Prepared | None = None
        try:
            # The caller's work, on one snapshot: nothing that it stages can be seen by anybody.
            prepared, told = prepare(WriteContext(self, branch, base, lease=early))
            if prepared is None or prepared.is_empty:
                return None, told
            self.store.world.steps.reach(Step.WRITE_STAGED)
            _assert_staged_on(base, prepared)
            write = _Write(intent=intent, base=base, prepared=prepared, outcome=outcome)
            return self._leased(branch, lambda lease: self._commit(write, lease), early), told
        except _MovedError:
            # Before arming, so no version names the files. Loads keep theirs for the next try.
            if intent.kind is WriterKind.MUTATION and prepared is not None:
                self._discard(prepared)
            raise
        except AppliedBeforeError:  # under the lease and before arming: nothing landed
            # An apply's new tables are kept: another try, also of somebody else, may use them.
            if intent.kind is not WriterKind.SCHEMA_APPLY and prepared is not None:
                self._discard(prepared)
            raise
        except OmnigraphError:
            with self.store.meanwhile(branch):
                self._look_again(intent)
                raise

    def _require_new(self, intent: Intent) -> None:
        commit = find_applied(self.store.manifests, intent.branch, intent.request)
        if commit is not None:
            assert intent.request is not None, "only a keyed request can be found"
            raise AppliedBeforeError(commit)

    def _look_again(self, intent: Intent) -> None:
        """After a refusal: what stands in the way of a keyed request may be that very request,
        landed by another submission."""
        if intent.request is None:
            return
        commit = None
        try:
            # Fresh, because the refusal may come from what has landed since we looked.
            self.store.manifests.fresh(intent.branch.id)
            commit = find_applied(self.store.manifests, intent.branch, intent.request)
        except IdempotencyKeyReusedError:
            raise
        except OmnigraphError as cause:  # the refusal is what the caller should hear of
            logger.debug("could not look again", extra={"why": cause.message})
        if commit is not None:
            # The refusal may be that the outcome is unknown: then the commit may be our own.
            raise AppliedBeforeError(commit, maybe_ours=True)

    def _discard(self, prepared: Prepared) -> None:
        """Mutations write their rows anew each time; what was not armed is nobody's.

        Never to be called once a sidecar was written: recovery may still publish what it names.
        """
        for staged in prepared.staged:
            try:
                self.store.tables.discard(staged)
            except OmnigraphError as cause:  # cleanup finds the files when they are old
                logger.warning(
                    "left files behind", extra={"table": staged.table_key, "why": cause.message}
                )

    def fork(self, branch: Branch, entry: TableEntry, early: Lease | None) -> str:
        """Give the branch its own line of a table, at the version that it inherited."""
        assert not branch.owns(entry.branch), "a branch forks what it inherits, nothing else"

        def forked(lease: Lease) -> str:
            # A dead writer may have forked this very table: its sidecar is settled first.
            self.recovery.sweep_branch(branch, lease)
            # A line is made from what the branch shows now, or its next snapshot would go back.
            current = self.store.manifests.head(branch).entries.get(entry.table_key)
            if _pin(current) != _pin(entry):
                raise _MovedError(entry.table_key)
            line = self._fork_line(branch, entry)
            self.store.world.steps.reach(Step.TABLE_FORKED)
            return line

        return self._leased(branch, forked, early)

    def _fork_line(self, branch: Branch, entry: TableEntry) -> str:
        for life in range(1, FORK_LIVES_MAX + 1):
            line = branch.line(life)
            assert branch.owns(line), "a branch's lines carry its id"
            # A line with other content is an earlier life: old snapshots may need it.
            with suppress(AlreadyExistsError):
                self.store.tables.fork(
                    entry.location,
                    source_branch=entry.branch,
                    version=entry.version,
                    branch_id=line,
                )
                return line
        raise LimitExceededError(
            resource=f"lines of {entry.table_key} on branch '{branch.name}'",
            limit=FORK_LIVES_MAX,
            actual=FORK_LIVES_MAX + 1,
            hint="run `omnigraph cleanup`",
        )

    # --- under the lease -------------------------------------------------------------------

    def _leased(
        self, branch: Branch, work: Callable[[Lease], _Result], early: Lease | None = None
    ) -> _Result:
        """Do the work under the branch's lease: the one that is held already, or a new one."""
        if early is not None:
            return work(early)
        return self.store.leases.holding(branch.id, work, wait_ms=LEASE_WAIT_MS_MAX)

    def _current(self, branch: Branch, early: Lease | None) -> Snapshot:
        """The head to prepare on, after the unfinished writes of others are dealt with."""
        # In the steady state the folder is empty and this is one listing, without the lease.
        if self.recovery.sidecars.operation_ids():
            self._leased(branch, lambda lease: self.recovery.sweep_branch(branch, lease), early)
        return self.store.manifests.head(branch)

    def _commit(self, write: _Write, lease: Lease) -> Snapshot:
        intent, prepared = write.intent, write.prepared
        assert not prepared.is_empty, "nothing to change is never committed"
        self.store.world.steps.reach(Step.WRITE_LEASED)
        branch = self.store.refs.get(intent.branch.name)
        # The lease is the id's, not the name's: a younger branch of this name has another one.
        if branch.id != intent.branch.id:
            raise ConflictError(f"branch '{branch.name}' was deleted and made again")
        # From here on the head stands still: everything below is checked against it.
        stuck = self.recovery.sweep_branch(branch, lease)
        fresh = self.store.manifests.head(branch)
        # Nobody else can publish here while we hold the lease, and what dead writers left is
        # settled: a key that is not there now cannot come to be there but by this very commit.
        self._require_new(intent)
        _require_head(intent, fresh)
        self._require_unmoved(write.base, fresh, prepared)
        self._require_no_drift(fresh, prepared, stuck)
        stop_if_asked()  # for the last time: what is begun from here on is finished or undone
        return self._land(write, fresh, lease)

    def _require_unmoved(self, base: Snapshot, fresh: Snapshot, prepared: Prepared) -> None:
        if fresh.head.graph_commit_id == base.head.graph_commit_id:
            return  # the same commit is the same snapshot, whatever it relied on
        keys = {staged.table_key for staged in prepared.staged}
        keys |= {update.table_key for update in prepared.repoints}
        keys |= prepared.relied_on
        if prepared.rely_on_head:
            keys |= base.entries.keys() | fresh.entries.keys()
        for key in sorted(keys):
            before, now = base.entries.get(key), fresh.entries.get(key)
            # By place, line and version: a version number alone may belong to another line.
            if _pin(before) == _pin(now):
                continue
            if prepared.strict and not self.only_maintenance(base, fresh):
                expected, actual = before.version if before else 0, now.version if now else 0
                raise ExpectedVersionMismatchError(table_key=key, expected=expected, actual=actual)
            raise _MovedError(key)
        # Rows were checked and shaped by the schema of the base, so that it counts as read.
        if base.schema.fingerprint != fresh.schema.fingerprint:
            raise _MovedError("schema")

    def only_maintenance(self, base: Snapshot, fresh: Snapshot) -> bool:
        """Whether all commits since changed no content, so that a strict write may try again."""
        # Walked back along first parents: each commit between must be maintenance, not only the
        # newest one.
        commit = fresh.head
        kinds = {kind.value for kind in MAINTENANCE}
        for _ in range(REPREPARES_MAX):
            if commit.graph_commit_id == base.head.graph_commit_id:
                return True
            if commit.writer_kind not in kinds:
                return False
            parent = commit.parent_commit_id
            found = self.store.manifests.find_commit(fresh.branch, parent) if parent else None
            if found is None:
                return False
            commit = found
        return False

    def _require_no_drift(
        self, fresh: Snapshot, prepared: Prepared, stuck: tuple[Stuck, ...]
    ) -> None:
        """A head ahead of its pin is poison: what lies there was never published, and a commit on
        top of it would publish it."""
        for staged in prepared.staged:
            # A sidecar that could not be settled explains what it names; nobody builds on that.
            covered = [s for s in stuck if staged.table_key in s.tables]
            if covered and covered[0].graph_branch == fresh.branch.name:
                raise _recovery_required(staged.table_key, covered[0])
            tables = self.store.tables
            if tables.is_head(staged.location, staged.branch, staged.pinned_version):
                continue
            head = tables.head_version(staged.location, staged.branch)
            # Sidecars that name no tables could not be read: any drift may be theirs.
            suspects = [s for s in stuck if not s.tables]
            if suspects:
                raise _recovery_required(staged.table_key, suspects[0])
            raise ConflictError(
                f"the data of '{staged.table_key}' was changed outside of any commit",
                hint="`omnigraph repair` says how, and puts it back with --restore --confirm",
                table_key=staged.table_key,
                expected=staged.pinned_version,
                actual=head,
            )

    # --- A, B, C, D ------------------------------------------------------------------------

    def _land(self, write: _Write, fresh: Snapshot, lease: Lease) -> Snapshot:
        world, outcome = self.store.world, write.outcome
        sidecar = self._sidecar(write.intent, fresh, write.prepared)
        assert sidecar.parent_commit_id == fresh.head.graph_commit_id, "a commit follows the head"
        lease.check()
        # A: before any table moves, the disk says what is about to happen. If this fails, nothing
        # has happened; if we die behind it, recovery finishes or undoes the write.
        self.recovery.sidecars.arm(sidecar)
        outcome.begin(sidecar.graph_commit_id)
        try:
            world.steps.reach(Step.SIDECAR_WRITTEN)
            # B: each table gets its version, on exactly the pin that the sidecar names.
            updates = self._apply_all(write.prepared, sidecar, lease)
            # C: one publish makes all of it visible. Its expectation is what keeps a writer out
            # that slept between this look and the publish.
            lease.check()
            changeset = sidecar.changeset(
                updates,
                actor_id=write.intent.actor_id,
                expects=(HeadIs(commit_id=fresh.head.graph_commit_id),),
            )
            snapshot = self.store.publisher.publish(fresh.branch, changeset)
            outcome.land()
            world.steps.reach(Step.WRITE_PUBLISHED)
        except BaseException as cause:  # noqa: BLE001 - whatever happened, the outcome is found out
            snapshot = self.recovery.resolve_doubt(sidecar, outcome, lease, cause)
        else:
            # D: the manifest version is synced by now. Only then may the sidecar go, because it
            # alone tells a torn version from one that was acknowledged.
            self.recovery.disarm(sidecar.operation_id, Step.SIDECAR_DELETED)
        assert snapshot.head.graph_commit_id == sidecar.graph_commit_id, "what landed is the head"
        self.last_commit_id = sidecar.graph_commit_id
        return snapshot

    def _sidecar(self, intent: Intent, fresh: Snapshot, prepared: Prepared) -> Sidecar:
        world = self.store.world
        # The id of the commit is chosen before it exists: who loses the answer can look it up.
        commit_id = world.ids.ulid()
        said = [one for one in (intent.message, prepared.note) if one is not None]
        return Sidecar(
            operation_id=world.ids.ulid(),
            writer_kind=intent.kind,
            actor_id=intent.actor_id,
            graph_branch=fresh.branch.name,
            branch_id=fresh.branch.id,
            graph_commit_id=commit_id,
            rollback_commit_id=world.ids.ulid(),
            parent_commit_id=fresh.head.graph_commit_id,
            created_at=world.clock.now_us(),
            effects=tuple(_effect(staged) for staged in prepared.staged),
            repoints=prepared.repoints,
            registrations=prepared.registrations,
            tombstones=prepared.tombstones,
            schema=prepared.schema,
            merged_parent_commit_id=prepared.merged_parent_commit_id,
            properties={
                **prepared.told_properties,
                **({MESSAGE_PROPERTY: "; ".join(said)} if said else {}),
                **(intent.request.properties if intent.request else {}),
                WRITER_KIND_PROPERTY: intent.kind.value,
            },
        )

    def _apply_all(
        self, prepared: Prepared, sidecar: Sidecar, lease: Lease
    ) -> tuple[TableUpdate, ...]:
        commit_id = sidecar.graph_commit_id
        # Each table version carries the commit's id: drift can be traced to the write it is from.
        writes = sorted(
            (staged.for_commit(commit_id) for staged in prepared.staged),
            key=lambda staged: staged.table_key,
        )
        if len(writes) <= 1:
            updates = [self._apply(staged, lease) for staged in writes]
        else:
            # Side by side; the order does not matter, because nobody sees any of them before C.
            futures: list[Future[TableUpdate]] = []
            try:
                for staged in writes:
                    futures.append(self._appliers.submit(self._apply, staged, lease))  # noqa: PERF401 - each as it comes
            finally:
                # All are awaited before an error is raised: none may land behind our back.
                _await_all(futures)
            updates = [future.result() for future in futures]
        assert [one.table_key for one in updates] == [one.table_key for one in writes]
        self.store.world.steps.reach(Step.TABLES_APPLIED)
        return tuple(updates)

    def _apply(self, staged: StagedWrite, lease: Lease) -> TableUpdate:
        # Whoever slept here until the lease lapsed has been given up by others meanwhile. Falling
        # asleep right after the look is what the fence on the table is for.
        lease.check()
        update = self.store.tables.apply(staged)
        # Lance must not have moved our transaction behind somebody else's: pin and plan hold.
        assert update.version == staged.version_after, "a table is committed on its pin"
        self.store.world.steps.reach(Step.TABLE_APPLIED)
        return update

    @property
    def others_write(self) -> bool:
        """Whether another thread is in the middle of a write, however long that takes."""
        me = threading.get_ident()
        return any(thread != me for thread in list(self._writing.values()))

    def close(self) -> None:
        """Let go of the threads; writes in progress are awaited, and new ones refused."""
        # The mark comes before the wait: a write that starts now finds it and refuses itself.
        self._closed = True
        while self.others_write:
            time.sleep(_CLOSING_LOOK_MS / 1000)
        self.pool.shutdown()
        self._appliers.shutdown()


def _await_all(futures: Sequence[Future[TableUpdate]]) -> None:
    """Until every one has ended, whatever strikes this thread meanwhile."""
    # A commit that lands after its write was settled would be drift that nobody can explain.
    struck: BaseException | None = None
    while not all(future.done() for future in futures):
        try:
            wait(futures)
        except BaseException as interrupt:  # noqa: BLE001 - it goes on when all have ended
            struck = struck or interrupt
    if struck is not None:
        raise struck


def _assert_staged_on(base: Snapshot, prepared: Prepared) -> None:
    """Whatever is staged stands on what the snapshot pins, and each table is written once."""
    keys = [staged.table_key for staged in prepared.staged]
    assert len(set(keys)) == len(keys), "one write, one version of a table"
    assert not set(keys) & {update.table_key for update in prepared.repoints}, "one table, one fate"
    known = {entry.location for entry in base.datasets}
    for staged in prepared.staged:
        assert staged.version_after > staged.pinned_version, "a write is a new version"
        assert staged.location in known, "only a table that the snapshot has can be written"


def _pin(entry: TableEntry | None) -> Pin | None:
    return None if entry is None else entry.pin


def _require_head(intent: Intent, snapshot: Snapshot) -> None:
    actual = snapshot.head.graph_commit_id
    if intent.if_commit is not None and intent.if_commit != actual:
        raise PreconditionFailedError(
            expected=intent.if_commit, actual=actual, branch=intent.branch.name
        )


def _effect(staged: StagedWrite) -> Effect:
    return Effect(
        table_key=staged.table_key,
        location=staged.location,
        branch=staged.branch,
        expected_version=staged.pinned_version,
        version_to_be=staged.version_after,
        transaction_uuid=staged.transaction_uuid,
        row_count=staged.row_count_after,
    )


def _recovery_required(table_key: str, stuck: Stuck) -> RecoveryRequiredError:
    return RecoveryRequiredError(
        f"'{table_key}' is held by an unfinished write that could not be settled: {stuck.reason}",
        operation_id=stuck.operation_id,
        table_key=table_key,
    )
