"""Walks through commits: one branch's line, ancestors, merge bases."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from omnigraph.model.graph import Branch, Commit
from omnigraph.storage.manifest import ManifestStore
from omnigraph.storage.manifest_rows import CommitRow
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
        return ancestor in _distances(descendant, self._log())

    def merge_base(self, a: str, b: str) -> Commit | None:
        """The nearest common ancestor of two commits, or None.

        Nearest by the sum of both distances; of equals the one with the highest manifest version.
        A commit that went with its deleted branch cannot be a base.
        """
        log = self._log()
        from_a, from_b = _distances(a, log), _distances(b, log)
        common = [
            (from_a[each] + from_b[each], -row.commit.graph_manifest_version, each)
            for each in from_a.keys() & from_b.keys()
            if (row := log.get(each)) is not None
        ]
        if not common:
            return None
        best = log.get(min(common)[2])
        return best.commit if best is not None else None

    def _log(self) -> _Log:
        return _Log(self._manifests.every_chunk(self._refs.list()))


class _Log:
    """Commits by id over all live branches, each branch read backwards as far as needed."""

    def __init__(self, chunks: Iterator[tuple[CommitRow, ...]]) -> None:
        self._known: dict[str, CommitRow] = {}
        self._chunks = chunks

    def get(self, commit_id: str) -> CommitRow | None:
        while commit_id not in self._known:
            chunk = next(self._chunks, None)
            if chunk is None:
                return None
            self._known.update((row.id, row) for row in chunk)
        return self._known[commit_id]


def _distances(start: str, log: _Log) -> dict[str, int]:
    """How far each commit lies behind the start, over both parents."""
    distances = {start: 0}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        row = log.get(here)
        if row is None:
            continue
        for parent in (row.commit.parent_commit_id, row.commit.merged_parent_commit_id):
            if parent is not None and parent not in distances:
                distances[parent] = distances[here] + 1
                waiting.append(parent)
    return distances
