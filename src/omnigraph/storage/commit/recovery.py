"""After a crash: find unfinished writes, decide, and carry the decision out.

Runs at read-write open, at refresh and at the start of each write, always under the lease of the
branch that the sidecar names, so a live writer's sidecar is never touched. Every deed may be
interrupted and done again.

Where leases can lapse, a write that is rolled back leaves a *fence* on each of its tables that had
not moved: a version without a change. Its writer may only have been asleep; when it goes on, its
late commit on the pinned version is refused by the table itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Literal, assert_never

import msgspec
from msgspec.structs import replace

from omnigraph.errors import (
    CorruptGraphError,
    LeaseUnavailableError,
    NotFoundError,
    OmnigraphError,
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

    def sweep(self, *, wait_ms: int) -> tuple[Stuck, ...]:
        """Deal with every sidecar of every branch, oldest first; say which ones stay and why."""
        stuck: list[Stuck] = []
        # Oldest first: a later write stands on what the earlier one published.
        for operation_id in self.sidecars.operation_ids():
            sidecar = self.sidecars.read(operation_id)
            if sidecar is None:
                continue  # settled by somebody else since we listed it
            if isinstance(sidecar, UnreadableSidecar):
                stuck.append(_unreadable(sidecar))
                continue
            try:
                verdict = self.store.leases.holding(
                    sidecar.branch_id, partial(self._settled, sidecar), wait_ms=wait_ms
                )
            except LeaseUnavailableError:
                # Never without the lease: what looks dead from outside may be between A and C.
                continue  # its writer is alive, or another recovery is at work
            if isinstance(verdict, Abort):
                stuck.append(_stuck(sidecar, verdict))
        return tuple(stuck)

    def sweep_branch(self, branch: Branch, lease: Lease) -> tuple[Stuck, ...]:
        """The same for one branch, whose lease the caller holds: one listing if all is well."""
        stuck: list[Stuck] = []
        for operation_id in self.sidecars.operation_ids():
            sidecar = self.sidecars.read(operation_id)
            if isinstance(sidecar, UnreadableSidecar):
                # It may be of any branch, so that it counts against this one too.
                stuck.append(_unreadable(sidecar))
            elif sidecar is not None and sidecar.branch_id == branch.id:
                # Ours is the lease of this branch: a sidecar on it has no living writer.
                verdict = self._settled(sidecar, lease)
                if isinstance(verdict, Abort):
                    stuck.append(_stuck(sidecar, verdict))
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
            return self._settle_unreadable(sidecar, how=how)
        try:
            branch = self.branch_of(sidecar)
            verdict = self._verdict(sidecar, branch)
        except CorruptGraphError:
            if how != "discard":
                raise
            # What is damaged must not keep a person from letting go of it.
            self._close(sidecar, kind="Discarded", commit_id=None, outcomes=())
            return Discard()
        # What is published stays so, whatever anybody asks for: others may have built on it.
        if how == "discard" and not isinstance(verdict, Finish):
            verdict = Discard()
        elif how == "roll-back" and isinstance(verdict, RollForward | Abort):
            # Every table is looked at again when it is rolled back; here it is only the order.
            verdict = RollBack(moved=sidecar.effects)
        self._carry_out(_Deed(sidecar=sidecar, lease=lease), branch, verdict)
        return verdict

    def undo_late(self, sidecar: Sidecar, lease: Lease) -> None:
        """Undo what landed on tables after somebody else had settled the write (lease held).

        That needs a sidecar of its own: this, too, may be interrupted.
        """
        branch = self.branch_of(sidecar)
        if branch is None:
            return  # the tables' lines go with the branch
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
        # Each deed may be cut off at any line and is done again by the next sweep: restoring twice
        # gives the same content, publishing twice is refused, and the audit knows operation ids.
        match verdict:
            case Finish(kind=kind):
                self._close(sidecar, kind=kind, commit_id=_promised(sidecar, kind), outcomes=())
            case RollForward(updates=updates):
                assert branch is not None, "a branch that is gone is discarded"
                self._roll_forward(deed, branch, updates)
            case RollBack():
                assert branch is not None, "a branch that is gone is discarded"
                self._roll_back(deed, branch)
            case Discard():
                why = "OrphanedBranchDiscarded" if branch is None else "Discarded"
                self._close(sidecar, kind=why, commit_id=None, outcomes=())
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
        outcomes = tuple(
            TableOutcome(
                table_key=update.table_key,
                from_version=expected[update.table_key],
                to_version=update.version,
            )
            for update in updates
        )
        self._close(
            sidecar,
            kind="RolledForward",
            commit_id=sidecar.graph_commit_id,
            outcomes=outcomes,
        )

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
            self._close(sidecar, kind="RolledBack", commit_id=None, outcomes=())
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
        outcomes = tuple(
            TableOutcome(
                table_key=effect.table_key,
                from_version=facts[effect.table_key].head,
                to_version=facts[effect.table_key].pin,
            )
            for effect in moved
        )
        self._close(
            sidecar,
            kind="RolledBack",
            commit_id=sidecar.rollback_commit_id,
            outcomes=outcomes,
        )

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

    def _settle_unreadable(self, sidecar: UnreadableSidecar, *, how: Resolution) -> Verdict:
        # Nobody knows what it was about to do, so that only a person may let it go.
        if how != "discard":
            return Abort(reason=sidecar.problem, tables=())
        self._record(sidecar.operation_id, kind="Discarded", sidecar=None)
        self._disarm(sidecar.operation_id)
        return Discard()

    def _close(
        self,
        sidecar: Sidecar,
        *,
        kind: str,
        commit_id: str | None,
        outcomes: tuple[TableOutcome, ...],
    ) -> None:
        assert commit_id is not None or kind != "RolledForward", "what is forward has a commit"
        if commit_id is None and kind != "OrphanedBranchDiscarded":
            # Nothing was published in its place, and without its sidecar it would look like a loss.
            self.store.manifests.forget_attempt(
                sidecar.branch_id, parent_commit_id=sidecar.parent_commit_id
            )
        self._record(
            sidecar.operation_id,
            kind=kind,
            sidecar=sidecar,
            commit_id=commit_id,
            outcomes=outcomes or _finished_outcomes(sidecar, kind, commit_id),
        )
        # Last of all: as long as the file is there, all of this can be found out and done again.
        self._disarm(sidecar.operation_id)

    def _record(
        self,
        operation_id: str,
        *,
        kind: str,
        sidecar: Sidecar | None,
        commit_id: str | None = None,
        outcomes: tuple[TableOutcome, ...] = (),
    ) -> None:
        # Before the sidecar goes, and once per operation id: a crash behind it repeats the deed,
        # not the row.
        self.audit.record(
            RecoveryRecord(
                operation_id=operation_id,
                recovery_kind=kind,
                graph_commit_id=commit_id,
                recovery_for_actor=sidecar.actor_id if sidecar else None,
                writer_kind=sidecar.writer_kind.value if sidecar else None,
                graph_branch=sidecar.graph_branch if sidecar else None,
                outcomes=outcomes,
                created_at=self.store.world.clock.now_us(),
            )
        )
        self.store.world.steps.reach(Step.RECOVERY_AUDITED)

    def _disarm(self, operation_id: str) -> None:
        try:
            self.sidecars.disarm(operation_id)
        except OmnigraphError as cause:
            # The next pass finds the audit row and only has this left to do.
            logger.warning("sidecar stays", extra={"operation": operation_id, "why": cause.message})
            return
        self.store.world.steps.reach(Step.RECOVERY_SIDECAR_DELETED)


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


def _promised(sidecar: Sidecar, kind: str) -> str:
    return sidecar.graph_commit_id if kind == "RolledForward" else sidecar.rollback_commit_id


def _finished_outcomes(
    sidecar: Sidecar, kind: str, commit_id: str | None
) -> tuple[TableOutcome, ...]:
    """A write that had been published before its writer died: from expected to published."""
    if kind != "RolledForward" or commit_id is None:
        return ()
    assert commit_id == sidecar.graph_commit_id, "rolled forward as what was promised"
    return tuple(
        TableOutcome(
            table_key=effect.table_key,
            from_version=effect.expected_version,
            to_version=effect.version_to_be,
        )
        for effect in sidecar.effects
    )


def _unreadable(sidecar: UnreadableSidecar) -> Stuck:
    return Stuck(
        operation_id=sidecar.operation_id,
        reason=sidecar.problem,
        tables=frozenset(),
        graph_branch=None,
    )


def _stuck(sidecar: Sidecar, verdict: Abort) -> Stuck:
    assert verdict.reason, "whoever is stopped is told why"
    return Stuck(
        operation_id=sidecar.operation_id,
        reason=verdict.reason,
        tables=frozenset(effect.table_key for effect in sidecar.effects),
        graph_branch=sidecar.graph_branch,
    )
