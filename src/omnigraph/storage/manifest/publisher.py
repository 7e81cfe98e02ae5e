"""The one call that makes a change visible.

A publish checks what the write relied on against the fresh head, then commits `__manifest` once:
table pins, lineage and schema together. Of two racing publishers exactly one lands; the other
looks again, up to `PUBLISHER_RETRY_BUDGET` times.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpectedVersionMismatchError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
    PreconditionFailedError,
    RowLevelCasContentionError,
)
from omnigraph.model.graph import (
    Branch,
    Changeset,
    Expectation,
    HeadIs,
    Lineage,
    Snapshot,
    TableEntry,
    TableIs,
    TableUpdate,
)
from omnigraph.model.limits import (
    MANIFEST_SEALED_ROWS_MAX,
    MANIFEST_TAIL_COMMITS_MAX,
    MANIFEST_TAIL_COMMITS_MIN,
    PUBLISHER_RETRY_BUDGET,
)
from omnigraph.model.ports import World
from omnigraph.storage.lance.pylance import reason_of
from omnigraph.storage.manifest.dataset import LostRaceError
from omnigraph.storage.manifest.migrations import migrate
from omnigraph.storage.manifest.rows import CommitRow, Tail, commits_table, new_commit, tail_table
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
        # A deleted branch takes no more commits, though Lance would still write them.
        if branch.id is not None and not self._manifests.refs.is_alive(branch):
            raise NotFoundError(
                f"branch '{branch.name}' not found", kind="branch", name=branch.name
            )
        if changeset == Changeset(expects=changeset.expects):
            known = self._manifests.fresh(branch.id)
            check_expectations(known.tail, changeset.expects, branch=branch.name)
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

        def follow(known: Known) -> Tail:
            check_expectations(known.tail, changeset.expects, branch=branch.name)
            if self._manifests.find_row(known, lineage.commit_id) is not None:
                raise AlreadyExistsError(
                    f"commit '{lineage.commit_id}' is in the history already",
                    kind="commit",
                    name=lineage.commit_id,
                )
            parent, version = known.tail.head.id, known.version + 1
            commit = new_commit(
                lineage, branch, parent=parent, version=version, publish_id=publish_id
            )
            return successor(known.tail, changeset, commit)

        for _ in range(PUBLISHER_RETRY_BUDGET):
            known, tail = self._admitted(known, follow)
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

    def _admitted(self, known: Known, follow: Callable[[Known], Tail]) -> tuple[Known, Tail]:
        """What to follow and by what; a refusal counts only if we know the newest version."""
        try:
            return known, follow(known)
        except ConflictError:
            fresh = self._manifests.fresh(known.opened.branch_id)
            if fresh.version == known.version:
                raise
            return fresh, follow(fresh)

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


# --- what a publish would write, decided from facts alone ------------------------------------


def check_expectations(tail: Tail, expects: Iterable[Expectation], *, branch: str) -> None:
    """Raise for the first thing that no longer is as the write relied on."""
    for expected in expects:
        match expected:
            case TableIs(table_key=key, version=version):
                entry = tail.entries.get(key)
                found = (0, expected.branch) if entry is None else (entry.version, entry.branch)
                if found != (version, expected.branch):
                    raise _moved(tail, key, version)
            case HeadIs(commit_id=commit_id):
                if tail.head.id != commit_id:
                    raise PreconditionFailedError(
                        expected=commit_id, actual=tail.head.id, branch=branch
                    )
            case _:
                assert_never(expected)


def successor(tail: Tail, changeset: Changeset, commit: CommitRow) -> Tail:
    """The tail after the changeset, or an error if a row would be doubled or go backwards."""
    entries = dict(tail.entries)
    tombstones = dict(tail.tombstones)
    for gone in changeset.tombstones:
        entry = tail.entries.get(gone.table_key)
        if entry is None or gone.version < entry.version:
            raise _moved(tail, gone.table_key, gone.version)
        del entries[gone.table_key]
        tombstones[gone.table_key] = gone.version
    locations: dict[str, str] = {}
    for new in changeset.registrations:
        if new.table_key in entries:
            raise AlreadyExistsError(
                f"table '{new.table_key}' is registered already", kind="table", name=new.table_key
            )
        locations[new.table_key] = new.location
    for update in changeset.updates:
        location = locations.pop(update.table_key, None)
        if location is None:
            location = _next_location(tail, entries, update)
        entries[update.table_key] = TableEntry(
            table_key=update.table_key,
            location=location,
            version=update.version,
            branch=update.branch,
            row_count=update.row_count,
        )
        tombstones.pop(update.table_key, None)  # a name's next life begins
    assert not locations, f"registered without a version: {sorted(locations)}"
    return replace(
        tail,
        schema=changeset.schema or tail.schema,
        entries=dict(sorted(entries.items())),
        tombstones=tombstones,
        commits=(*tail.commits, commit),
    )


def _next_location(tail: Tail, entries: dict[str, TableEntry], update: TableUpdate) -> str:
    entry = entries.get(update.table_key)
    if entry is None:
        raise _moved(tail, update.table_key, update.version)
    handed_over = entry.branch != update.branch and (
        update.version > entry.version
        # The same rows under another owner, as when a merge adopts a table.
        or (update.version == entry.version and update.row_count == entry.row_count)
    )
    if not handed_over and update.version <= entry.version:
        # The version row is there already, or a later one.
        raise _moved(tail, update.table_key, update.version - 1)
    return entry.location


def _moved(tail: Tail, table_key: str, expected: int) -> ExpectedVersionMismatchError:
    return ExpectedVersionMismatchError(
        table_key=table_key, expected=expected, actual=tail.version_of(table_key)
    )


# --- sealing ---------------------------------------------------------------------------------


class Sealing(msgspec.Struct, frozen=True, kw_only=True):
    """Older commits that leave the tail, and how many of the newest fragments join them."""

    tail: Tail
    commits: tuple[CommitRow, ...]
    folded: int


def sealing(tail: Tail, sealed_rows: Sequence[int]) -> Sealing | None:
    """What to seal, given the sizes of the history fragments, newest first; None = nothing yet.

    Fragments fold like the digits of a binary counter: each commit is rewritten O(log n) times and
    O(log n) fragments stay, while nearly every publish writes the tail alone.
    """
    if len(tail.commits) <= MANIFEST_TAIL_COMMITS_MAX:
        return None
    leaving = tail.commits[:-MANIFEST_TAIL_COMMITS_MIN]
    rows, folded = len(leaving), 0
    for size in sealed_rows:
        if size > rows or rows + size > MANIFEST_SEALED_ROWS_MAX:
            break
        rows, folded = rows + size, folded + 1
    newest = max(row.id for row in leaving)
    return Sealing(
        tail=replace(
            tail,
            commits=tail.commits[-MANIFEST_TAIL_COMMITS_MIN:],
            sealed_through=max(newest, tail.sealed_through or newest),
        ),
        commits=leaving,
        folded=folded,
    )
