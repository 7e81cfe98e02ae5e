"""What a write is to do: who asked for it, what was prepared, and whether it was done before.

A request with a key is carried out once. A key that is new is the usual case, so that is what must
be cheap: the newest commits are in memory anyway, and of each older fragment one column is read
once in the life of a handle. A key that is found costs a walk along the branch's commits, which
says for sure.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from omnigraph.model.graph import (
    Branch,
    Commit,
    Registration,
    SchemaRecord,
    TableUpdate,
    Tombstone,
    TypeCounts,
    WriterKind,
    counts_property,
)
from omnigraph.model.limits import IDEMPOTENCY_COMMITS_MAX
from omnigraph.model.requests import KeyedRequest, key_of, result_property
from omnigraph.storage.manifest.store import Known, ManifestStore
from omnigraph.storage.table.stage import StagedWrite


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What a prepared write will do, and what it relied on.

    `relied_on` names the tables that were read for decisions beside those that are staged; the
    versions are those of the snapshot. `strict` refuses a moved table, otherwise the write is
    prepared again. `rely_on_head` extends the reliance to the whole branch.
    """

    # What is staged moves a table; a re-pointing only says at which version it is to be seen.
    staged: tuple[StagedWrite, ...] = ()
    repoints: tuple[TableUpdate, ...] = ()
    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    schema: SchemaRecord | None = None
    relied_on: frozenset[str] = frozenset()
    # A strict write would overwrite what it has not seen; others add to whatever is there.
    strict: bool = False
    rely_on_head: bool = False
    merged_parent_commit_id: str | None = None
    # By table; for a write that brings rows by re-pointing, which what is staged does not count.
    counts: Mapping[str, TypeCounts] | None = None
    note: str | None = None  # what the write itself has to say, after its caller's message
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def told_properties(self) -> dict[str, str]:
        """What its commit says of it, beside who made it and why."""
        counts = self.counts
        if counts is None:
            counts = {staged.table_key: staged.counts for staged in self.staged}
        return {**counts_property(counts.items()), **self.properties}

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


def remembering(
    prepared: Prepared | None, request: KeyedRequest | None, result: Mapping[str, Any]
) -> Prepared | None:
    """The write with its result told in the commit, for when a keyed request is repeated."""
    if prepared is None or request is None:
        return prepared
    return replace(prepared, properties={**prepared.properties, **result_property(result)})


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes what kind of change to which branch, and the head it insists on, if any.

    A `request` with a key is carried out once: if the branch has its commit, also by a submission
    that lands while this one is prepared, the write raises `AppliedBeforeError`.
    """

    branch: Branch
    kind: WriterKind
    actor_id: str | None = None
    message: str | None = None
    if_commit: str | None = None
    request: KeyedRequest | None = None


class AppliedBeforeError(Exception):
    """The branch has the commit of this very request. It never leaves the engine.

    `maybe_ours` says that this write may have made the commit itself, so that nothing which it
    staged may be deleted.
    """

    def __init__(self, commit: Commit, *, maybe_ours: bool = False) -> None:
        assert key_of(commit.properties) is not None, "only keyed commits are found again"
        super().__init__(commit.graph_commit_id)
        self.commit, self.maybe_ours = commit, maybe_ours


def find_applied(
    manifests: ManifestStore, branch: Branch, request: KeyedRequest | None
) -> Commit | None:
    """The request's commit, if the branch as last seen has it; `IdempotencyKeyReusedError` if the
    key is known from another request."""
    if request is None:
        return None
    # As last seen, not fresh: the writer asks again under the lease, when the head stands still.
    known = manifests.last_known(branch.id)
    # Never a wrong no: a key that was seen costs a walk, one that is overlooked a second commit.
    if not _may_hold(manifests, known, request.key):
        return None
    for commit in islice(manifests.line(known), IDEMPOTENCY_COMMITS_MAX):
        if key_of(commit.properties) == request.key:
            # The key is the caller's word that it is the same request; the digest proves it.
            request.require_same(commit)
            return commit
    return None


def _may_hold(manifests: ManifestStore, known: Known, key: str) -> bool:
    """Whether the key is anywhere among the newest commits; never a wrong no."""
    if any(key_of(row.commit.properties) == key for row in known.tail.commits):
        return True
    # Fragments are walked from the newest on, so that the bound cuts off the oldest commits.
    seen = len(known.tail.commits)
    for fragment in known.sealed:
        if seen >= IDEMPOTENCY_COMMITS_MAX:
            return False
        if key in manifests.keys(known, fragment):
            return True
        seen += int(fragment.metadata.physical_rows)
    return False
