"""Who descends from whom, read from the manifests of many branches at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from omnigraph.errors import CorruptGraphError
from omnigraph.model.graph import Branch
from omnigraph.storage.ancestry import bases_of_all, contained
from omnigraph.storage.manifest import ManifestStore
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.retired import Kept


class Descent:
    """Commits by id over many branches, each branch read backwards as far as needed.

    Commits that only a deleted branch had are answered from what was written down of them, or from
    `kept` if the caller has that already. If that record is damaged they are unknown, and `damage`
    says why.
    """

    def __init__(
        self, manifests: ManifestStore, branches: Iterable[Branch], *, kept: Kept | None = None
    ) -> None:
        self._manifests = manifests
        self._known: dict[str, CommitRow] = {}
        self._parents: dict[str, tuple[str, ...]] = {}  # asked for several times in one walk
        self._chunks = manifests.every_chunk(branches)
        self._kept = kept
        self._given = kept is not None
        self.damage: CorruptGraphError | None = None

    def row(self, commit_id: str) -> CommitRow | None:
        """The commit, or None if no branch has it."""
        while commit_id not in self._known:
            chunk = next(self._chunks, None)
            if chunk is None:
                return None
            self._learn(chunk)
        return self._known[commit_id]

    def rows(self) -> Mapping[str, CommitRow]:
        """Every commit of the branches."""
        for chunk in self._chunks:
            self._learn(chunk)
        return self._known

    def _learn(self, chunk: Iterable[CommitRow]) -> None:
        for row in chunk:
            self._known[row.id] = row
            self._parents[row.id] = parents_of(row)

    def parents(self, commit_id: str) -> tuple[str, ...] | None:
        """The parents of the commit; None if nobody knows it."""
        known = self._parents.get(commit_id)
        if known is not None:
            return known
        if self._kept is None:
            self._kept = self._written_down()
        if commit_id in self._kept:
            return self._kept[commit_id]
        if self.row(commit_id) is not None:
            return self._parents[commit_id]
        if not self._given:
            # A branch that was deleted while we read was written down before it went.
            self._kept = self._written_down()
        return self._kept.get(commit_id)

    def _written_down(self) -> Kept:
        try:
            return self._manifests.retired.descent()
        except CorruptGraphError as cause:
            self.damage = cause
            return {}


def parents_of(row: CommitRow) -> tuple[str, ...]:
    """The commit that it followed, then the one that it merged."""
    both = (row.commit.parent_commit_id, row.commit.merged_parent_commit_id)
    return tuple(parent for parent in both if parent is not None)


# --- when a branch goes ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Farewell:
    """What has to stay of a branch that is deleted.

    `needed`: it holds the base of a merge that the others may still make. `kept`: the parents of
    its commits that the others contain.
    """

    needed: bool = False
    kept: Mapping[str, tuple[str, ...]]


def farewell(manifests: ManifestStore, going: Branch, others: Iterable[Branch]) -> Farewell:
    """Look at what the branches that stay have merged of the one that goes."""
    known = manifests.fresh(going.id)
    if known.tail.head.branch_id != going.id:
        return Farewell(kept={})  # it has no commit of its own
    staying = tuple(others)
    retired = tuple(each for each in manifests.retired.branches() if each.id != going.id)
    left = Descent(manifests, (*staying, *retired)).rows()
    facts = {**manifests.retired.descent(), **{one: parents_of(row) for one, row in left.items()}}
    gone = {row.id: row for chunk in manifests.commit_chunks(known) for row in chunk}
    every = {**{one: parents_of(row) for one, row in gone.items()}, **facts}
    merged = {parent for parents in facts.values() for parent in parents} - facts.keys()
    heads = [manifests.last_known(branch.id).tail.head.id for branch in staying]
    bases = bases_of_all(heads, every.get)
    return Farewell(
        # A base that no other manifest knows counts too: migrated branches have commits of an
        # older id.
        needed=any(
            one in gone and (gone[one].branch_id == going.id or one not in left) for one in bases
        )
        or any(each.parent in (going.name, None) for each in retired),
        kept={
            one: every[one]
            for one in contained(merged & gone.keys(), every.get)
            if one in gone and one not in facts
        },
    )
