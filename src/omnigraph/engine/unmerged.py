"""What a branch holds that no other branch has."""

from __future__ import annotations

from itertools import chain
from typing import Final

import msgspec

from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.graph import MAIN, Branch, Commit, WriterKind
from omnigraph.storage.commit.recovery import RECOVERY_ACTOR
from omnigraph.storage.manifest.history import Descent, contained
from omnigraph.storage.store import Store

# Commits that change how the graph is stored, and not what it says.
_UPKEEP: Final = frozenset({WriterKind.OPTIMIZE, WriterKind.ENSURE_INDICES})


class Unmerged(msgspec.Struct, frozen=True, kw_only=True):
    """How many commits of a branch hold work that no other live branch contains."""

    head_commit_id: str
    commits: int = 0


def is_work(commit: Commit) -> bool:
    """Whether somebody would miss the commit. Upkeep is nobody's work, and neither is the commit by
    which recovery takes half a write back."""
    if commit.writer_kind is None:
        return commit.actor_id != RECOVERY_ACTOR
    return commit.writer_kind not in _UPKEEP


def unmerged_work(store: Store, branch: Branch) -> Unmerged:
    """Look for the newest work of the branch in the others, its parent and main first.

    Whoever contains that commit contains everything behind it. A branch that cannot be read is
    `CorruptGraphError`: nobody knows what it holds. Of the others what cannot be read has nothing.
    """
    head = store.manifests.fresh(branch.id).tail.head
    newest = next((one for one in store.history.line(branch) if is_work(one)), head.commit)
    others = _others(store, branch)
    # After the live ones: a branch that is deleted meanwhile is in one of the two listings.
    descent = Descent(store.manifests, chain((branch, *others), store.manifests.retired.branches()))
    parents = descent.parents
    elsewhere: set[str] = set()
    for other in others:
        try:
            start = store.manifests.fresh(other.id).tail.head.id
        except (NotFoundError, CorruptGraphError):
            continue  # deleted since the listing, or damaged
        # Every commit is walked over once, however many branches have it.
        elsewhere |= contained((start,), parents, but=elsewhere)
        if newest.graph_commit_id in elsewhere:
            # Should that branch be deleted at this very moment, then its own work, of which ours is
            # a part, is in a third one or was deleted by force: no two branches contain each other.
            return Unmerged(head_commit_id=head.id)
    own = contained((head.id,), parents, but=elsewhere)
    rows = map(descent.row, own)
    work = sum(row is not None and is_work(row.commit) for row in rows)
    return Unmerged(head_commit_id=head.id, commits=max(work, 1))


def _others(store: Store, branch: Branch) -> list[Branch]:
    """Every other live branch; the parent and main first."""
    rank = {branch.parent: 0, MAIN: 1}
    others = (other for other in store.manifests.refs.all() if other.id != branch.id)
    return sorted(others, key=lambda other: rank.get(other.name, len(rank)))
