"""Which keyed requests a branch has carried out already.

A key that is new is the usual case, so that is what must be cheap: the newest commits are in memory
anyway, and of each older fragment one column is read once in the life of a handle. A key that is
found costs a walk along the branch's line, which says for sure.
"""

from __future__ import annotations

from itertools import islice

from omnigraph.model.graph import Branch, Commit
from omnigraph.model.limits import IDEMPOTENCY_COMMITS_MAX
from omnigraph.model.requests import KeyedRequest, key_of
from omnigraph.storage.manifest import Known, ManifestStore


class AppliedBeforeError(Exception):
    """The branch has the commit of this very request. It never leaves the engine.

    `maybe_ours` says that this write may have made the commit itself, so that nothing which it
    staged may be deleted.
    """

    def __init__(self, commit: Commit, *, maybe_ours: bool = False) -> None:
        super().__init__(commit.graph_commit_id)
        self.commit, self.maybe_ours = commit, maybe_ours


def find_applied(
    manifests: ManifestStore, branch: Branch, request: KeyedRequest | None
) -> Commit | None:
    """The request's commit, if the branch as last seen has it; `IdempotencyKeyReusedError` if the
    key is known from another request."""
    if request is None:
        return None
    known = manifests.last_known(branch.id)
    if not _may_hold(manifests, known, request.key):
        return None
    for commit in islice(manifests.line(known), IDEMPOTENCY_COMMITS_MAX):
        if key_of(commit.properties) == request.key:
            request.require_same(commit)
            return commit
    return None


def _may_hold(manifests: ManifestStore, known: Known, key: str) -> bool:
    """Whether the key is anywhere among the newest commits; never a wrong no."""
    if any(key_of(row.commit.properties) == key for row in known.tail.commits):
        return True
    seen = len(known.tail.commits)
    for fragment in known.sealed:
        if seen >= IDEMPOTENCY_COMMITS_MAX:
            return False
        if key in manifests.keys(known, fragment):
            return True
        seen += int(fragment.metadata.physical_rows)
    return False
