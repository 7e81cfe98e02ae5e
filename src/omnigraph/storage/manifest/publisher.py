"""The one call that makes a change visible.

A publish checks what the write relied on against the fresh head, then commits `__manifest` once:
table pins, lineage and schema together. Of two racing publishers exactly one lands; the other
looks again, up to `PUBLISHER_RETRY_BUDGET` times.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    RowLevelCasContentionError,
)
from omnigraph.model.changeset import Changeset, Lineage
from omnigraph.model.graph import Branch, Snapshot
from omnigraph.model.limits import PUBLISHER_RETRY_BUDGET
from omnigraph.model.ports import World
from omnigraph.storage.lance.pylance import reason_of
from omnigraph.storage.manifest.dataset import LostRaceError
from omnigraph.storage.manifest.migrations import migrate
from omnigraph.storage.manifest.plan import (
    check_expectations,
    is_empty,
    next_commit,
    sealing,
    successor,
)
from omnigraph.storage.manifest.rows import Tail, commits_table, tail_table
from omnigraph.storage.manifest.store import Known, ManifestStore


class Publisher:
    """Publishes changesets. Safe to share by threads; other processes may publish too."""

    def __init__(self, manifests: ManifestStore, world: World) -> None:
        self._manifests = manifests
        self._world = world
        # Threads of one process would only steal each other's tries.
        self._turns: defaultdict[str | None, threading.Lock] = defaultdict(threading.Lock)

    def publish(self, branch: Branch, changeset: Changeset) -> Snapshot:
        """Make the changeset visible at once, or raise and leave nothing visible.

        The new snapshot's `head` is the commit. `ExpectedVersionMismatchError` and
        `PreconditionFailedError` say what moved, `RowLevelCasContentionError` that every try was
        lost, `OutcomeUnknownError` that the store did not say whether the commit landed.
        A changeset without changes only checks its expectations.
        """
        self._check_alive(branch)
        if is_empty(changeset):
            known = self._manifests.fresh(branch.id)
            check_expectations(known.tail, changeset.expects)
            return known.snapshot(branch)
        assert changeset.lineage is not None, "every change is a commit"
        with self._turns[branch.id]:
            return self._race(branch, changeset, changeset.lineage)

    def _race(self, branch: Branch, changeset: Changeset, lineage: Lineage) -> Snapshot:
        publish_id = self._world.ids.ulid()
        # The caller has usually just looked, so the first try spares the probe: a commit on an
        # outdated head is refused, and so is every later one.
        known = self._manifests.last_known(branch.id)
        if not known.current:
            migrate(self._manifests, self._world)
            branch = self._manifests.refs.get(branch.name)  # it goes on under an id of ours
            known = self._manifests.fresh(branch.id)
        for _ in range(PUBLISHER_RETRY_BUDGET):
            known, tail = self._admitted(known, branch, changeset, lineage, publish_id)
            try:
                return self._write(known, tail).snapshot(branch)
            except LostRaceError:
                # Definitely not landed, unless a repeated request lost against itself: see below.
                known = self._manifests.fresh(branch.id)
            except (OSError, ValueError, RuntimeError) as cause:
                if self._manifests.datasets.remove_torn(branch.id):
                    continue  # half a version stood where ours belongs
                known = self._after_silence(known, lineage, cause)
            # A try may land although the answer was lost or a repeated request was refused.
            row = self._manifests.find_row(known, lineage.commit_id)
            if row is not None and row.publish_id == publish_id:
                return known.snapshot(branch)
        raise RowLevelCasContentionError(branch=branch.name, attempts=PUBLISHER_RETRY_BUDGET)

    def _admitted(
        self,
        known: Known,
        branch: Branch,
        changeset: Changeset,
        lineage: Lineage,
        publish_id: str,
    ) -> tuple[Known, Tail]:
        """What to follow and by what; a refusal counts only if we know the newest version."""
        try:
            return known, self._planned(known, branch, changeset, lineage, publish_id)
        except ConflictError:
            fresh = self._manifests.fresh(branch.id)
            if fresh.version == known.version:
                raise
            return fresh, self._planned(fresh, branch, changeset, lineage, publish_id)

    def _planned(
        self,
        known: Known,
        branch: Branch,
        changeset: Changeset,
        lineage: Lineage,
        publish_id: str,
    ) -> Tail:
        check_expectations(known.tail, changeset.expects)
        if self._manifests.find_row(known, lineage.commit_id) is not None:
            raise AlreadyExistsError(
                f"commit '{lineage.commit_id}' is in the history already",
                kind="commit",
                name=lineage.commit_id,
            )
        commit = next_commit(
            known.tail, branch, lineage, version=known.version + 1, publish_id=publish_id
        )
        return successor(known.tail, changeset, commit)

    def _write(self, known: Known, tail: Tail) -> Known:
        assert tail.head.commit.graph_manifest_version == known.version + 1, (
            "a commit names the manifest version that it makes"
        )
        kept = known.sealed  # newest first
        sealed = None
        plan = sealing(tail, [one.metadata.physical_rows for one in kept])
        if plan is not None:
            tail = plan.tail
            folded, kept = kept[: plan.folded], kept[plan.folded :]
            older = [row for one in reversed(folded) for row in self._manifests.chunk(known, one)]
            sealed = commits_table([*older, *plan.commits])
        opened = self._manifests.datasets.replace_tail(
            known.opened, kept=kept[::-1], sealed=sealed, tail=tail_table(tail)
        )
        return self._manifests.remember(opened, tail)

    def _after_silence(self, known: Known, lineage: Lineage, cause: Exception) -> Known:
        """What the store says after a commit that failed in a way which decides nothing."""
        unknown = OutcomeUnknownError(
            f"the store did not say whether commit '{lineage.commit_id}' landed: "
            f"{reason_of(cause)}",
            graph_commit_id=lineage.commit_id,
        )
        try:
            fresh = self._manifests.fresh(known.opened.branch_id)
        except OmnigraphError:
            raise unknown from cause
        # If nobody took the next version our request may still be on its way to it.
        if fresh.version == known.version:
            raise unknown from cause
        return fresh

    def _check_alive(self, branch: Branch) -> None:
        """A deleted branch takes no more commits, though Lance would still write them."""
        if branch.id is None:
            return
        living = self._manifests.refs.find(branch.name)
        if living is None or living.id != branch.id:
            raise NotFoundError(
                f"branch '{branch.name}' does not exist", kind="branch", name=branch.name
            )
