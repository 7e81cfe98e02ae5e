"""After a crash: find unfinished writes, decide, and carry the decision out.

Runs at read-write open, at refresh and at the start of each write, always under the lease of the
branch that the sidecar names, so a live writer's sidecar is never touched. Every deed may be
interrupted and done again.

Where leases can lapse, a write that is rolled back leaves a *fence* on each of its tables that had
not moved: a version without a change. Its writer may only have been asleep; when it goes on, its
late commit on the pinned version is refused by the table itself.

One unfinished write is also settled *out of turn*. A writer whose write failed after it was armed
is its own witness: whatever recovery would do later it does at once, under the lease. A person
deals with what recovery alone would leave in place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal, assert_never

import msgspec
from msgspec.structs import replace

from omnigraph.errors import (
    ConflictError,
    CorruptGraphError,
    LeaseUnavailableError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    RecoveryRequiredError,
)
from omnigraph.model.graph import (
    Branch,
    Changeset,
    HeadIs,
    Lineage,
    Snapshot,
    TableEntry,
    TableUpdate,
)
from omnigraph.model.limits import LEASE_WAIT_MS_MAX
from omnigraph.model.steps import Step
from omnigraph.storage.commit.audit import Audit, RecoveryRecord, TableOutcome
from omnigraph.storage.commit.judge import (
    Abort,
    Discard,
    Finish,
    RollBack,
    RollForward,
    TableFacts,
    TableState,
    Verdict,
    classify,
    judge,
)
from omnigraph.storage.commit.outcome import Outcome
from omnigraph.storage.commit.sidecar import Effect, Sidecar, Sidecars, UnreadableSidecar
from omnigraph.storage.objects.lease import Lease
from omnigraph.storage.store import Store

logger = logging.getLogger(__name__)

RECOVERY_ACTOR = "omnigraph:recovery"
Resolution = Literal["auto", "roll-back", "discard"]


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """An unfinished write that recovery left in place, and the tables it stands in the way of.

    No tables = unknown: every table whose head is ahead of its pin is under suspicion.
    """

    operation_id: str
    reason: str
    tables: frozenset[str]
    graph_branch: str | None


class _Deed(msgspec.Struct, frozen=True, kw_only=True):
    """A sidecar that is being settled, and the lease under which that is done."""

    sidecar: Sidecar
    lease: Lease


class Recovery:
    """Sweeps the recovery folder of one graph."""

    def __init__(self, store: Store, sidecars: Sidecars) -> None:
        self.store = store
        self.sidecars = sidecars
        self.audit = Audit(store.tables, store.objects)
        self.carried_out = 0  # unfinished writes that this handle settled

    def sweep(self, *, wait_ms: int) -> tuple[Stuck, ...]:
        """Deal with every sidecar of every branch, oldest first; say which ones stay and why."""

        def settled(sidecar: Sidecar) -> Verdict | None:
            work = partial(self._settled, sidecar)
            try:
                return self.store.leases.holding(sidecar.branch_id, work, wait_ms=wait_ms)
            except LeaseUnavailableError:
                # Never without the lease: what looks dead from outside may be between A and C.
                return None  # its writer is alive, or another recovery is at work

        return self._swept(settled)

    def sweep_branch(self, branch: Branch, lease: Lease) -> tuple[Stuck, ...]:
        """The same for one branch, whose lease the caller holds: one listing if all is well."""
        # Ours is the lease of this branch: a sidecar on it has no living writer.
        return self._swept(
            lambda one: self._settled(one, lease) if one.branch_id == branch.id else None
        )

    def _swept(self, settled: Callable[[Sidecar], Verdict | None]) -> tuple[Stuck, ...]:
        stuck: list[Stuck] = []
        # Oldest first: a later write stands on what the earlier one published.
        for sidecar in self.sidecars.pending():
            if isinstance(sidecar, UnreadableSidecar):
                # It may be of any branch, so that it counts against every one.
                stuck.append(_stuck(sidecar, sidecar.problem))
                continue
            verdict = settled(sidecar)
            if isinstance(verdict, Abort):
                stuck.append(_stuck(sidecar, verdict.reason))
        return tuple(stuck)

    def _settled(self, sidecar: Sidecar, lease: Lease) -> Verdict | None:
        """Settle, or say why that failed: a damaged table, a full disk or a store that is away
        keeps its sidecar and its tables, and nothing else."""
        try:
            return self.settle(sidecar.operation_id, lease)
        except LeaseUnavailableError:
            raise  # ours lapsed, or it is not ours: the caller must not go on
        except (OmnigraphError, OSError) as cause:
            logger.warning(
                "recovery is due", extra={"operation": sidecar.operation_id, "why": str(cause)}
            )
            # As if judged so: its tables are refused to writers until a later sweep gets through.
            tables = tuple(effect.table_key for effect in sidecar.effects)
            return Abort(reason=str(cause), tables=tables)

    def settle(
        self, operation_id: str, lease: Lease, *, how: Resolution = "auto"
    ) -> Verdict | None:
        """Decide about one sidecar and do it, under the lease that the caller holds.

        None = the file is gone. `how` lets a person overrule the decision: "roll-back" restores
        the tables whatever landed, "discard" forgets the sidecar and leaves the tables alone.
        """
        # Read again under the lease: what was listed before it may be settled by now.
        sidecar = self.sidecars.read(operation_id)
        if sidecar is None:
            return None
        assert sidecar.operation_id == operation_id, "a sidecar is filed under its own id"
        if isinstance(sidecar, UnreadableSidecar):
            # Nobody knows what it was about to do, so that only a person may let it go.
            if how != "discard":
                return Abort(reason=sidecar.problem, tables=())
            self._close(sidecar, kind="Discarded")
            return Discard()
        try:
            branch = self.branch_of(sidecar)
            verdict = self._verdict(sidecar, branch)
        except CorruptGraphError:
            if how != "discard":
                raise
            # What is damaged must not keep a person from letting go of it.
            self._close(sidecar, kind="Discarded")
            return Discard()
        # What is published stays so, whatever anybody asks for: others may have built on it.
        if how == "discard" and not isinstance(verdict, Finish):
            verdict = Discard()
        elif how == "roll-back" and isinstance(verdict, RollForward | Abort):
            # Every table is looked at again when it is rolled back; here it is only the order.
            verdict = RollBack(moved=sidecar.effects)
        self._carry_out(_Deed(sidecar=sidecar, lease=lease), branch, verdict)
        return verdict

    # --- finding out -----------------------------------------------------------------------

    def branch_of(self, sidecar: Sidecar) -> Branch | None:
        """The living branch that the sidecar means, or None."""
        try:
            branch = self.store.refs.get(sidecar.graph_branch)
        except NotFoundError:
            return None
        # The name may have been given to a younger branch: the id tells them apart.
        return branch if branch.id == sidecar.branch_id else None

    def _verdict(self, sidecar: Sidecar, branch: Branch | None) -> Verdict:
        if branch is None:
            return judge(sidecar, branch_exists=False, published=False, rolled_back=False, facts={})
        snapshot = self.store.manifests.head(branch)
        # Asked first: behind a publish the tables may have moved on, and mean nothing any more.
        find = self.store.manifests.find_commit
        published = find(branch, sidecar.graph_commit_id) is not None
        rolled_back = not published and find(branch, sidecar.rollback_commit_id) is not None
        done = published or rolled_back
        return judge(
            sidecar,
            branch_exists=True,
            published=published,
            rolled_back=rolled_back,
            facts={} if done else self._facts(sidecar.effects, snapshot),
        )

    def _facts(self, effects: Iterable[Effect], snapshot: Snapshot) -> dict[str, TableFacts]:
        return {effect.table_key: self._table_facts(effect, snapshot) for effect in effects}

    def _table_facts(self, effect: Effect, snapshot: Snapshot) -> TableFacts:
        pin = _pinned_version(effect, snapshot)
        assert pin >= 0, "versions count from 1, and 0 is a table that is not published"
        try:
            # The newest version that is whole: a torn one was never acknowledged.
            head = self.store.tables.whole_head_version(effect.location, effect.branch)
        except NotFoundError:
            # A first write on a branch dies before its fork is made: nothing moved.
            return TableFacts(pin=pin, head=pin, uuids={}, operations={})
        between = self.store.tables.transactions(
            effect.location, effect.branch, after=pin, upto=head
        )
        assert all(pin < item.version <= head for item in between), "only what came since the pin"
        return TableFacts(
            pin=pin,
            head=head,
            uuids={item.version: item.uuid for item in between},
            operations={item.version: item.operation for item in between},
        )

    # --- doing -----------------------------------------------------------------------------

    def _carry_out(self, deed: _Deed, branch: Branch | None, verdict: Verdict) -> None:
        sidecar = deed.sidecar
        self.carried_out += not isinstance(verdict, Abort)
        # Each deed may be cut off at any line and is done again by the next sweep: restoring twice
        # gives the same content, publishing twice is refused, and the audit knows operation ids.
        match verdict:
            case Finish(kind=kind):
                forward = kind == "RolledForward"
                commit_id = sidecar.graph_commit_id if forward else sidecar.rollback_commit_id
                # Published before its writer died: from what it expected to what it meant.
                outcomes = [
                    TableOutcome(
                        table_key=effect.table_key,
                        from_version=effect.expected_version,
                        to_version=effect.version_to_be,
                    )
                    for effect in sidecar.effects
                    if forward
                ]
                self._close(sidecar, kind=kind, commit_id=commit_id, outcomes=outcomes)
            case RollForward(updates=updates):
                assert branch is not None, "a branch that is gone is discarded"
                self._roll_forward(deed, branch, updates)
            case RollBack():
                assert branch is not None, "a branch that is gone is discarded"
                self._roll_back(deed, branch)
            case Discard():
                why = "OrphanedBranchDiscarded" if branch is None else "Discarded"
                self._close(sidecar, kind=why)
            case Abort(reason=reason):
                # The sidecar stays: its tables are refused to writers, and nothing else is.
                logger.error(
                    "recovery aborted", extra={"operation": sidecar.operation_id, "why": reason}
                )
            case _:
                assert_never(verdict)

    def _roll_forward(self, deed: _Deed, branch: Branch, updates: tuple[TableUpdate, ...]) -> None:
        sidecar, snapshot = deed.sidecar, self.store.manifests.head(branch)
        if deed.lease.can_lapse:
            # Maintenance takes several versions of a table: one that has not come to the last may
            # still be under way, so it is given up like those that have not moved.
            promised = {effect.table_key: effect.version_to_be for effect in sidecar.effects}
            updates = tuple(one for one in updates if one.version == promised[one.table_key])
        landed = {update.table_key for update in updates}
        assert landed <= {effect.table_key for effect in sidecar.effects}, "only its own tables"
        given_up = [effect for effect in sidecar.effects if effect.table_key not in landed]
        # Fences come before the publish: once the commit is there nobody looks at its tables again.
        fences = self._fenced(deed, given_up, snapshot)
        # Under the id that the writer promised: who lost the answer finds the commit by it.
        changeset = sidecar.changeset(
            (*updates, *fences),
            actor_id=RECOVERY_ACTOR,
            expects=(HeadIs(commit_id=snapshot.head.graph_commit_id),),
        )
        self._publish(deed, branch, changeset)
        expected = {effect.table_key: effect.expected_version for effect in sidecar.effects}
        outcomes = [
            TableOutcome(
                table_key=update.table_key,
                from_version=expected[update.table_key],
                to_version=update.version,
            )
            for update in updates
        ]
        commit_id = sidecar.graph_commit_id
        self._close(sidecar, kind="RolledForward", commit_id=commit_id, outcomes=outcomes)

    def _roll_back(self, deed: _Deed, branch: Branch) -> None:
        """Every table that moved gets its published content back, and every other one a fence."""
        sidecar, snapshot = deed.sidecar, self.store.manifests.head(branch)
        # While the sidecar is there it explains a torn version; without it that would be damage.
        for effect in sidecar.effects:
            pin = _pinned_version(effect, snapshot)
            self.store.tables.clear_torn(effect.location, effect.branch, above=pin)
        # Looked at anew: what a person orders back may never have been judged.
        facts = self._facts(sidecar.effects, snapshot)
        ahead = {key for key, found in facts.items() if found.head > found.pin}
        moved = [effect for effect in sidecar.effects if effect.table_key in ahead]
        still = [effect for effect in sidecar.effects if effect.table_key not in ahead]
        assert len(moved) + len(still) == len(sidecar.effects), "each table is dealt with once"
        updates = [self._restored(deed, effect, snapshot) for effect in moved]
        updates += self._fenced(deed, still, snapshot)
        if not updates:
            # No table moved and none can be late: there is nothing to make visible.
            self._close(sidecar, kind="RolledBack")
            return
        # A restore is a version of its own, so it has to be published like one: without that the
        # heads would be ahead of the manifest, and the next writer would take them for drift.
        lineage = Lineage(
            commit_id=sidecar.rollback_commit_id,
            actor_id=RECOVERY_ACTOR,
            created_at=self.store.world.clock.now_us(),
        )
        expects = (HeadIs(commit_id=snapshot.head.graph_commit_id),)
        changeset = Changeset(updates=tuple(updates), lineage=lineage, expects=expects)
        self._publish(deed, branch, changeset)
        outcomes = [
            TableOutcome(
                table_key=effect.table_key,
                from_version=facts[effect.table_key].head,
                to_version=facts[effect.table_key].pin,
            )
            for effect in moved
        ]
        commit_id = sidecar.rollback_commit_id
        self._close(sidecar, kind="RolledBack", commit_id=commit_id, outcomes=outcomes)

    def _publish(self, deed: _Deed, branch: Branch, changeset: Changeset) -> None:
        assert branch.id == deed.sidecar.branch_id, "only on the branch that the lease is for"
        assert any(isinstance(one, HeadIs) for one in changeset.expects), "nobody came between"
        deed.lease.check()
        self.store.publisher.publish(branch, changeset)
        self.store.world.steps.reach(Step.RECOVERY_PUBLISHED)

    def _fenced(
        self, deed: _Deed, effects: Iterable[Effect], snapshot: Snapshot
    ) -> tuple[TableUpdate, ...]:
        """A version without a change on each table, so that a late commit on its pin is refused.

        None where a lease cannot lapse: there the writer is dead, and nothing of it comes late.
        """
        if not deed.lease.can_lapse:
            return ()
        fences: list[TableUpdate] = []
        for effect in effects:
            # Only where somebody could commit on the pin: that is what a fence stands on.
            if _entry_of(effect, snapshot) is None:
                continue  # a table that is not published stands in nobody's way
            with suppress(NotFoundError):  # nor does a line that was never made
                fences.append(self._restored(deed, effect, snapshot, Step.RECOVERY_TABLE_FENCED))
        return tuple(fences)

    def _restored(
        self,
        deed: _Deed,
        effect: Effect,
        snapshot: Snapshot,
        step: Step = Step.RECOVERY_TABLE_RESTORED,
    ) -> TableUpdate:
        entry = _entry_of(effect, snapshot)
        pin = _pinned_version(effect, snapshot)
        # Whoever was asleep here for too long must not bury what others have committed since.
        deed.lease.check()
        version = self.store.tables.restore(
            effect.location, effect.branch, pin, commit_id=deed.sidecar.rollback_commit_id
        )
        assert version > pin, "a restore is a new version"
        self.store.world.steps.reach(step)
        return TableUpdate(
            table_key=entry.table_key if entry is not None else effect.table_key,
            version=version,
            branch=effect.branch,
            row_count=entry.row_count if entry is not None else 0,
        )

    def _close(
        self,
        sidecar: Sidecar | UnreadableSidecar,
        *,
        kind: str,
        commit_id: str | None = None,
        outcomes: Iterable[TableOutcome] = (),
    ) -> None:
        assert commit_id is not None or kind != "RolledForward", "what is forward has a commit"
        known = sidecar if isinstance(sidecar, Sidecar) else None
        if known is not None and commit_id is None and kind != "OrphanedBranchDiscarded":
            # Nothing was published in its place, and without its sidecar it would look like a loss.
            self.store.manifests.forget_attempt(
                known.branch_id, parent_commit_id=known.parent_commit_id
            )
        # Before the sidecar goes, and once per operation id: a crash behind it repeats the deed,
        # not the row.
        self.audit.record(
            RecoveryRecord(
                operation_id=sidecar.operation_id,
                recovery_kind=kind,
                graph_commit_id=commit_id,
                recovery_for_actor=known.actor_id if known else None,
                writer_kind=known.writer_kind.value if known else None,
                graph_branch=known.graph_branch if known else None,
                outcomes=tuple(outcomes),
                created_at=self.store.world.clock.now_us(),
            )
        )
        self.store.world.steps.reach(Step.RECOVERY_AUDITED)
        # Last of all: as long as the file is there, all of this can be found out and done again.
        self.disarm(sidecar.operation_id, Step.RECOVERY_SIDECAR_DELETED)

    def disarm(self, operation_id: str, step: Step) -> None:
        """Let go of a sidecar whose write is settled. One that stays costs only time: the next pass
        finds the commit or the audit row, and only has this left to do."""
        try:
            self.sidecars.disarm(operation_id)
        except OmnigraphError as cause:
            logger.warning("sidecar stays", extra={"operation": operation_id, "why": cause.message})
            return
        self.store.world.steps.reach(step)

    # --- out of turn -----------------------------------------------------------------------

    def resolve_doubt(
        self, sidecar: Sidecar, outcome: Outcome, lease: Lease, cause: BaseException
    ) -> Snapshot:
        """For the writer: something failed after arming. Settle it now if the store lets us: either
        the write is published after all, or all of it is undone; else say that we do not know."""
        self.store.world.steps.reach(Step.WRITE_IN_DOUBT)
        # A conflict is a definite no: nothing of this write may stay. Everything else is decided
        # by what landed.
        how: Resolution = "roll-back" if isinstance(cause, ConflictError) else "auto"
        try:
            lost = _loss_of(lease)
            with self._regained(sidecar.branch_id, lease) as held:
                landed = self._landed(sidecar, held, how)
            if landed:
                # Whatever failed, it failed behind the publish: the caller gets what it asked for.
                outcome.land()
                if isinstance(cause, Exception):
                    return self.store.manifests.at_commit(sidecar.graph_commit_id)
        except Exception as second:
            logger.warning("recovery is due", extra={"operation": sidecar.operation_id})
            if not isinstance(cause, Exception):
                raise cause from second  # its note says that the outcome is not known
            # Neither yes nor no was found out: nothing is deleted, and the caller can look it up.
            raise OutcomeUnknownError(
                f"commit {sidecar.graph_commit_id} may or may not have landed: {cause}",
                graph_commit_id=sidecar.graph_commit_id,
                operation_id=sidecar.operation_id,
                second_failure=str(second),
            ) from cause
        if not landed:
            outcome.come_to_nothing()
        if lost is not None and isinstance(cause, ConflictError):
            raise lost from cause  # what was in the way is the trace of whoever had the lease
        raise cause

    def _landed(self, sidecar: Sidecar, lease: Lease, how: Resolution) -> bool:
        """Settle our own sidecar, and whether the commit is in the history then."""
        verdict = self.settle(sidecar.operation_id, lease, how=how)
        forward = isinstance(verdict, RollForward)
        assert how == "auto" or not forward, "a definite no is never published"
        branch = self.branch_of(sidecar)
        if branch is None:
            return False
        # Asked of the history, not of the verdict: somebody else may have published it for us.
        landed = self.store.manifests.find_commit(branch, sidecar.graph_commit_id) is not None
        if verdict is None:
            # Somebody else settled the write while we were asleep; what we did since is not theirs.
            self._undo_late(sidecar, branch, lease)
        return landed

    @contextmanager
    def _regained(self, branch_id: str | None, lease: Lease) -> Iterator[Lease]:
        """The lease, taken again if it was lost: nobody settles anything without it."""
        if _loss_of(lease) is None:
            yield lease
            return
        # Another one may hold it and settle our write just now; we find that done when we get it.
        lease.release()
        with self.store.leases.hold(branch_id, wait_ms=LEASE_WAIT_MS_MAX) as again:
            assert _loss_of(again) is None, "what was just taken is held"
            yield again

    def _undo_late(self, sidecar: Sidecar, branch: Branch, lease: Lease) -> None:
        """Undo what landed on tables after somebody else had settled the write (lease held).

        That needs a sidecar of its own: this, too, may be interrupted.
        """
        facts = self._facts(sidecar.effects, self.store.manifests.head(branch))
        # Only what carries our identity: what others have committed since is not ours to undo.
        late = tuple(e for e in sidecar.effects if _is_late(e, facts[e.table_key], sidecar))
        if not late:
            return
        ids = self.store.world.ids
        # Under the commit's own id, so that what it undoes is known for ours, and with another id
        # for its undoing: the first one may be in the history already.
        again = replace(
            sidecar,
            operation_id=ids.ulid(),
            rollback_commit_id=ids.ulid(),
            effects=late,
            repoints=(),
            registrations=(),
            tombstones=(),
            schema=None,
        )
        logger.warning("undo a late write", extra={"commit": sidecar.graph_commit_id})
        self.sidecars.arm(again)
        self.store.world.steps.reach(Step.RECOVERY_LATE_WRITE_ARMED)
        self.settle(again.operation_id, lease, how="roll-back")

    def resolve_by_hand(self, operation_id: str, *, how: Resolution) -> RecoveryRecord:
        """For a person: settle one unfinished write, or tell how it was settled before.

        `RecoveryRequiredError` if the write can neither be finished nor undone as asked; then its
        sidecar stays where it is.
        """
        # Only names that are there: an operation id is never taken as a path.
        if operation_id in self.sidecars.operation_ids():
            sidecar = self.sidecars.read(operation_id)
            # What an unreadable sidecar belongs to is not known; main's lease keeps people apart.
            branch_id = sidecar.branch_id if isinstance(sidecar, Sidecar) else None
            work = partial(self.settle, operation_id, how=how)
            verdict = self.store.leases.holding(branch_id, work, wait_ms=LEASE_WAIT_MS_MAX)
            if isinstance(verdict, Abort):
                raise RecoveryRequiredError(
                    f"the unfinished write '{operation_id}' cannot be settled: {verdict.reason}",
                    operation_id=operation_id,
                    tables=list(verdict.tables),
                )
        for record in self.audit.records():
            if record.operation_id == operation_id:
                return record
        raise NotFoundError(
            f"no unfinished write and no recovery has the operation id '{operation_id}'",
            kind="operation",
            name=operation_id,
            hint="`omnigraph recovery list` shows them",
        )


def _entry_of(effect: Effect, snapshot: Snapshot) -> TableEntry | None:
    """The published table that the effect belongs to: found by its place, because a schema apply
    names the table as it will be called."""
    known = snapshot.entries.get(effect.table_key)
    # A key may have been given to a younger table: the place is what the effect belongs to.
    if known is not None and known.location == effect.location:
        return known
    return next((one for one in snapshot.datasets if one.location == effect.location), None)


def _is_late(effect: Effect, facts: TableFacts, sidecar: Sidecar) -> bool:
    # By its identity, which nobody else's transaction has.
    if effect.transaction_uuid in facts.uuids.values():
        return True
    state = classify(effect, facts, kind=sidecar.writer_kind)
    return state is TableState.ROLLED_PAST_EXPECTED


def _pinned_version(effect: Effect, snapshot: Snapshot) -> int:
    entry = _entry_of(effect, snapshot)
    return entry.version if entry is not None else effect.expected_version


def _loss_of(lease: Lease) -> LeaseUnavailableError | None:
    try:
        lease.check()
    except LeaseUnavailableError as lost:
        return lost
    return None


def _stuck(sidecar: Sidecar | UnreadableSidecar, reason: str) -> Stuck:
    assert reason, "whoever is stopped is told why"
    known = sidecar if isinstance(sidecar, Sidecar) else None
    return Stuck(
        operation_id=sidecar.operation_id,
        reason=reason,
        tables=frozenset(effect.table_key for effect in known.effects) if known else frozenset(),
        graph_branch=known.graph_branch if known else None,
    )
