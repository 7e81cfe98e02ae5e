"""Walks through commits: one branch's line, ancestors, the bases of merges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from omnigraph.model.graph import Branch, Commit
from omnigraph.storage.ancestry import contained
from omnigraph.storage.descent import Descent
from omnigraph.storage.manifest import ManifestStore
from omnigraph.storage.refs import Refs


class History:
    """The commits of a graph. Reads only as far back as the question needs."""

    def __init__(self, manifests: ManifestStore, refs: Refs) -> None:
        self._manifests = manifests
        self._refs = refs

    def commits(
        self, branch: Branch, *, actor: str | None = None, limit: int | None = None
    ) -> list[Commit]:
        """The branch's line, newest first; the last one is the genesis commit.

        A merge's other parent is named by its commit but not walked into. `actor` keeps only that
        actor's commits, `limit` stops after so many of them (None = all).
        """
        found: list[Commit] = []
        for commit in self._manifests.line(self._manifests.fresh(branch.id)):
            if limit is not None and len(found) >= limit:
                break
            if actor is None or commit.actor_id == actor:
                found.append(commit)
        return found

    def commit(self, commit_id: str) -> Commit:
        """The commit of any live branch; `NotFoundError` if none knows it."""
        return self._manifests.commit_row(commit_id).commit

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether the first commit is the second or lies behind it, over both parents."""
        return ancestor in contained([descendant], self.descent().parents)

    def descent(self, *, first: Sequence[Branch] = ()) -> Descent:
        """Who descends from whom, read as far as it is asked for; the first branches' lines first.

        A branch's own manifest knows every commit of its line, so that others have to be read only
        for what was merged from them.
        """
        return Descent(self._manifests, chain(first, self._others(first)))

    def _others(self, first: Sequence[Branch]) -> Iterator[Branch]:
        seen = {branch.id for branch in first}
        yield from (branch for branch in self._refs.list() if branch.id not in seen)
        # After the live ones: a branch that is deleted meanwhile is in one of the two listings.
        yield from (one for one in self._manifests.retired.branches() if one.id not in seen)
