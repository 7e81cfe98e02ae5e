"""The one way to write: prepare → stage → lease → A arm → B apply → C publish → D disarm.

`prepare` is the caller's: it reads one snapshot, decides, and stages uncommitted table writes. This
file does the rest, the same for every writer kind. What a write relied on is checked again under
the lease; writes that may rebase are prepared again, strict ones are refused.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpectedVersionMismatchError,
    IdempotencyKeyReusedError,
    LimitExceededError,
    OmnigraphError,
    OutcomeUnknownError,
    PreconditionFailedError,
    RecoveryRequiredError,
    RowLevelCasContentionError,
)
from omnigraph.model.changeset import (
    HeadIs,
    Registration,
    TableUpdate,
    Tombstone,
    WriterKind,
)
from omnigraph.model.graph import Branch, SchemaRecord, Snapshot, TableEntry
from omnigraph.model.limits import (
    FORK_LIVES_MAX,
    LEASE_WAIT_MS_MAX,
    REPREPARES_BEFORE_LEASED,
    REPREPARES_MAX,
    WRITE_THREADS_MAX,
)
from omnigraph.model.requests import KeyedRequest
from omnigraph.model.steps import Step
from omnigraph.storage.applied import AppliedBeforeError, require_new
from omnigraph.storage.judge import MAINTENANCE, Finish, RollForward
from omnigraph.storage.lease import Lease
from omnigraph.storage.recovery import Recovery, Rooms, Stuck
from omnigraph.storage.sidecar import Effect, Sidecar
from omnigraph.storage.staged import StagedWrite
from omnigraph.storage.table import Table

logger = logging.getLogger(__name__)

WRITER_KIND_PROPERTY = "writer_kind"

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a prepared write will do, and what it relied on.

    `relied_on` names the tables that were read for decisions beside those that are staged; the
    versions are those of the snapshot. `strict` refuses a moved table, otherwise the write is
    prepared again. `rely_on_head` extends the reliance to the whole branch.
    """

    staged: tuple[StagedWrite, ...] = ()
    repoints: tuple[TableUpdate, ...] = ()
    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    schema: SchemaRecord | None = None
    relied_on: frozenset[str] = frozenset()
    strict: bool = False
    rely_on_head: bool = False
    merged_parent_commit_id: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Nothing to change, hence nothing to commit (a merge always leaves its commit)."""
        return not (
            self.staged
            or self.repoints
            or self.registrations
            or self.tombstones
            or self.schema
            or self.merged_parent_commit_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Who writes what kind of change to which branch, and the head it insists on, if any.

    A `request` with a key is carried out once: if the branch has its commit, also by a submission
    that lands while this one is prepared, the write raises `AppliedBeforeError`.
    """

    branch: Branch
    kind: WriterKind
    actor_id: str | None = None
    if_commit: str | None = None
    request: KeyedRequest | None = None


class _MovedError(Exception):
    """A table that the write relies on moved on before the lease was taken."""

    def __init__(self, table_key: str, *, expected: int, actual: int) -> None:
        super().__init__(table_key)
        self.table_key, self.expected, self.actual = table_key, expected, actual


class WriteContext:
    """What `prepare` works with: one snapshot, its tables, and tables that may be staged on."""

    def __init__(self, writer: Writer, branch: Branch, snapshot: Snapshot, *, leased: bool) -> None:
        self._writer, self._leased = writer, leased
        self.branch, self.snapshot = branch, snapshot

    def table(self, table_key: str) -> Table:
        """The table as the snapshot has it, for reading."""
        return self._writer.rooms.tables.open(self.snapshot.entries[table_key])

    def writable(self, table_key: str) -> Table:
        """The same rows, on the branch's own line: a first write on a branch forks the table."""
        entry = self.snapshot.entries[table_key]
        if self.branch.owns(entry.branch):
            return self._writer.rooms.tables.open(entry)
        return self._writer.fork(self.branch, entry, leased=self._leased)

    def each(self, work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """The work done for every item, side by side, with the results in order."""
        if len(items) <= 1:
            return [work(item) for item in items]
        return list(self._writer.pool.map(work, items))


Prepare = Callable[[WriteContext], Prepared | None]


class Writer:
    """Carries prepared writes through the commit protocol."""

    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self.recovery = Recovery(rooms)
        # Mutations of one handle take turns from their first read on. Strict ones would otherwise
        # refuse each other all the time; loads and merges may take long and do not wait.
        self._turns: defaultdict[str | None, threading.Lock] = defaultdict(threading.Lock)

    def write(self, intent: Intent, prepare: Prepare) -> Snapshot | None:
        """Commit what `prepare` makes of the branch head; the snapshot after it, or None if there
        was nothing to change. Raises and leaves nothing visible otherwise."""
        in_turn = intent.kind is WriterKind.MUTATION
        with self._turns[intent.branch.id] if in_turn else nullcontext():
            return self._write(intent, prepare)

    def _write(self, intent: Intent, prepare: Prepare) -> Snapshot | None:
        branch = intent.branch
        for attempt in range(REPREPARES_MAX):
            leased = attempt >= REPREPARES_BEFORE_LEASED
            # Late attempts prepare under the lease, so that a busy branch cannot starve a writer.
            with self._lease(branch) if leased else nullcontext() as early:
                base = self._current(branch, leased=leased)
                # Before the head: a request that has landed moved the head by itself.
                require_new(self.rooms.manifests, branch, intent.request)
                _require_head(intent, base)
                context = WriteContext(self, branch, base, leased=leased)
                prepared: Prepared | None = None
                try:
                    prepared = prepare(context)
                    if prepared is None or prepared.is_empty:
                        return None
                    self.rooms.world.steps.reach(Step.WRITE_STAGED)
                    with self._lease(branch) if early is None else nullcontext(early) as lease:
                        return self._commit(intent, base, prepared, lease)
                except _MovedError as moved:
                    logger.debug("prepare again", extra={"table": moved.table_key})
                    if intent.kind is WriterKind.MUTATION and prepared is not None:
                        self._discard(prepared)
                except AppliedBeforeError:
                    if intent.kind is not WriterKind.SCHEMA_APPLY and prepared is not None:
                        self._discard(prepared)
                    raise
                except OmnigraphError:
                    self._look_again(intent)
                    raise
        raise RowLevelCasContentionError(branch=branch.name, attempts=REPREPARES_MAX)

    def _look_again(self, intent: Intent) -> None:
        """After a refusal: what stands in the way of a keyed request may be that very request,
        landed by another submission. Nothing is discarded here, since it may even be our own."""
        if intent.request is None:
            return
        try:
            self.rooms.manifests.fresh(intent.branch.id)
            require_new(self.rooms.manifests, intent.branch, intent.request)
        except IdempotencyKeyReusedError:
            raise
        except OmnigraphError as cause:  # the refusal is what the caller should hear of
            logger.debug("could not look again", extra={"why": cause.message})

    def _discard(self, prepared: Prepared) -> None:
        """Mutations write their rows anew each time; what was not armed is nobody's."""
        for staged in prepared.staged:
            try:
                self.rooms.tables.discard(staged)
            except OmnigraphError as cause:  # cleanup finds the files when they are old
                logger.warning(
                    "left files behind", extra={"table": staged.table_key, "why": cause.message}
                )

    def fork(self, branch: Branch, entry: TableEntry, *, leased: bool) -> Table:
        """Give the branch its own line of a table, at the version that it inherited."""
        with nullcontext() if leased else self._lease(branch):
            self.recovery.sweep_branch(branch)
            current = self.rooms.manifests.head(branch).entries.get(entry.table_key)
            if _pin(current) != _pin(entry):
                actual = current.version if current else 0
                raise _MovedError(entry.table_key, expected=entry.version, actual=actual)
            line = self._fork_line(branch, entry)
            self.rooms.world.steps.reach(Step.TABLE_FORKED)
        return self.rooms.tables.open(replace(entry, branch=line))

    def _fork_line(self, branch: Branch, entry: TableEntry) -> str:
        for life in range(1, FORK_LIVES_MAX + 1):
            line = branch.line(life)
            # A line with other content is an earlier life: old snapshots may need it.
            with suppress(AlreadyExistsError):
                self.rooms.tables.fork(
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

    def _lease(self, branch: Branch) -> AbstractContextManager[Lease]:
        return self.rooms.leases.hold(branch.id, wait_ms=LEASE_WAIT_MS_MAX)

    def _current(self, branch: Branch, *, leased: bool) -> Snapshot:
        """The head to prepare on, after the unfinished writes of others are dealt with."""
        if self.rooms.sidecars.operation_ids():
            with nullcontext() if leased else self._lease(branch):
                self.recovery.sweep_branch(branch)
        return self.rooms.manifests.head(branch)

    def _commit(self, intent: Intent, base: Snapshot, prepared: Prepared, lease: Lease) -> Snapshot:
        self.rooms.world.steps.reach(Step.WRITE_LEASED)
        branch = self.rooms.refs.get(intent.branch.name)
        if branch.id != intent.branch.id:
            raise ConflictError(f"branch '{branch.name}' was deleted and made again")
        stuck = self.recovery.sweep_branch(branch)
        fresh = self.rooms.manifests.head(branch)
        # Nobody else can publish here while we hold the lease, and what dead writers left is
        # settled: a key that is not there now cannot come to be there but by this very commit.
        require_new(self.rooms.manifests, branch, intent.request)
        _require_head(intent, fresh)
        self._require_unmoved(base, fresh, prepared)
        self._require_no_drift(fresh, prepared, stuck)
        return self._land(intent, fresh, prepared, lease)

    def _require_unmoved(self, base: Snapshot, fresh: Snapshot, prepared: Prepared) -> None:
        if fresh.head.graph_commit_id == base.head.graph_commit_id:
            return
        keys = {staged.table_key for staged in prepared.staged}
        keys |= {update.table_key for update in prepared.repoints}
        keys |= prepared.relied_on
        if prepared.rely_on_head:
            keys |= base.entries.keys() | fresh.entries.keys()
        for key in sorted(keys):
            before, now = base.entries.get(key), fresh.entries.get(key)
            if _pin(before) == _pin(now):
                continue
            expected, actual = before.version if before else 0, now.version if now else 0
            if prepared.strict and not self._only_maintenance(base, fresh):
                raise ExpectedVersionMismatchError(table_key=key, expected=expected, actual=actual)
            raise _MovedError(key, expected=expected, actual=actual)
        if base.schema.hash != fresh.schema.hash:
            raise _MovedError("schema", expected=0, actual=0)

    def _only_maintenance(self, base: Snapshot, fresh: Snapshot) -> bool:
        """Whether all commits since changed no content, so that a strict write may try again."""
        commit = fresh.head
        kinds = {kind.value for kind in MAINTENANCE}
        for _ in range(REPREPARES_MAX):
            if commit.graph_commit_id == base.head.graph_commit_id:
                return True
            if commit.properties.get(WRITER_KIND_PROPERTY) not in kinds:
                return False
            parent = commit.parent_commit_id
            found = self.rooms.manifests.find_commit(fresh.branch, parent) if parent else None
            if found is None:
                return False
            commit = found
        return False

    def _require_no_drift(
        self, fresh: Snapshot, prepared: Prepared, stuck: tuple[Stuck, ...]
    ) -> None:
        """A head ahead of its pin is poison: what lies there was never published."""
        for staged in prepared.staged:
            covered = [s for s in stuck if staged.table_key in s.tables]
            if covered and covered[0].graph_branch == fresh.branch.name:
                raise _recovery_required(staged.table_key, covered[0])
            tables = self.rooms.tables
            if tables.is_head(staged.location, staged.branch, staged.pinned_version):
                continue
            head = tables.head_version(staged.location, staged.branch)
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

    def _land(self, intent: Intent, fresh: Snapshot, prepared: Prepared, lease: Lease) -> Snapshot:
        world = self.rooms.world
        sidecar = self._sidecar(intent, fresh, prepared)
        self.rooms.sidecars.arm(sidecar)
        world.steps.reach(Step.SIDECAR_WRITTEN)
        try:
            updates = self._apply_all(prepared, sidecar)
            lease.check()
            changeset = sidecar.changeset(
                updates,
                actor_id=intent.actor_id,
                expects=(HeadIs(commit_id=fresh.head.graph_commit_id),),
            )
            snapshot = self.rooms.publisher.publish(fresh.branch, changeset)
            world.steps.reach(Step.WRITE_PUBLISHED)
        except ConflictError:
            # A definite no: nothing of this write may stay.
            self.recovery.undo(sidecar)
            raise
        except Exception as cause:  # noqa: BLE001 - whatever happened, the outcome must be known
            return self._after_doubt(sidecar, fresh.branch, cause)
        self._disarm(sidecar)
        return snapshot

    def _sidecar(self, intent: Intent, fresh: Snapshot, prepared: Prepared) -> Sidecar:
        world = self.rooms.world
        commit_id = world.ids.ulid()
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
                **prepared.properties,
                **(intent.request.properties if intent.request else {}),
                WRITER_KIND_PROPERTY: intent.kind.value,
            },
        )

    def _apply_all(self, prepared: Prepared, sidecar: Sidecar) -> tuple[TableUpdate, ...]:
        commit_id = sidecar.graph_commit_id
        writes = sorted(
            (staged.for_commit(commit_id) for staged in prepared.staged),
            key=lambda staged: staged.table_key,
        )
        if len(writes) <= 1:
            updates = [self._apply(staged) for staged in writes]
        else:
            # All are awaited before an error is raised: none may land behind our back.
            futures = [self.pool.submit(self._apply, staged) for staged in writes]
            errors = [error for future in futures if (error := future.exception()) is not None]
            if errors:
                raise errors[0]
            updates = [future.result() for future in futures]
        self.rooms.world.steps.reach(Step.TABLES_APPLIED)
        return tuple(updates)

    def _apply(self, staged: StagedWrite) -> TableUpdate:
        update = self.rooms.tables.apply(staged)
        self.rooms.world.steps.reach(Step.TABLE_APPLIED)
        return update

    def close(self) -> None:
        """Let go of the threads; a write in progress is awaited."""
        if "_pool" in self.__dict__:
            self.pool.shutdown()

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max_workers=WRITE_THREADS_MAX, thread_name_prefix="omnigraph")

    def _after_doubt(self, sidecar: Sidecar, branch: Branch, cause: Exception) -> Snapshot:
        """Something failed after arming. Settle it now if the store lets us: either the write is
        published after all, or all of it is undone; else say that we do not know."""
        try:
            verdict = self.recovery.settle(sidecar.operation_id)
            landed = self.rooms.manifests.find_commit(branch, sidecar.graph_commit_id)
        except Exception as second:  # noqa: BLE001 - the first failure is the one to report
            logger.warning("recovery is due", extra={"operation": sidecar.operation_id})
            raise OutcomeUnknownError(
                f"commit {sidecar.graph_commit_id} may or may not have landed: {cause}",
                graph_commit_id=sidecar.graph_commit_id,
                operation_id=sidecar.operation_id,
                second_failure=str(second),
            ) from cause
        if landed is not None and isinstance(verdict, RollForward | Finish | None):
            return self.rooms.manifests.head(branch)
        raise cause

    def _disarm(self, sidecar: Sidecar) -> None:
        try:
            self.rooms.sidecars.disarm(sidecar.operation_id)
        except OmnigraphError as cause:
            # The commit is published; recovery will find that and finish.
            logger.warning(
                "sidecar stays", extra={"operation": sidecar.operation_id, "why": cause.message}
            )
            return
        self.rooms.world.steps.reach(Step.SIDECAR_DELETED)


def _pin(entry: TableEntry | None) -> tuple[str, str | None, int] | None:
    return None if entry is None else (entry.location, entry.branch, entry.version)


def _require_head(intent: Intent, snapshot: Snapshot) -> None:
    actual = snapshot.head.graph_commit_id
    if intent.if_commit is not None and intent.if_commit != actual:
        raise PreconditionFailedError(expected=intent.if_commit, actual=actual)


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
