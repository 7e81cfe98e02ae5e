"""Graph branches: references that point a name at a Lance branch of `__manifest`.

The reference makes a branch exist and its deletion ends it; everything else is either made before
or dropped after, so that a crash leaves at most orphans that nobody can see.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Protocol

from msgspec.structs import replace

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptGraphError,
    InvalidNameError,
    NotFoundError,
    OmnigraphError,
)
from omnigraph.model.graph import MAIN, Branch, Tag
from omnigraph.model.limits import BRANCH_NAME_BYTES_MAX
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.steps import Step
from omnigraph.storage.manifest.history import Farewell, farewell
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH, UnreadableRef, encode_ref, ref_key
from omnigraph.storage.manifest.store import ManifestStore

logger = logging.getLogger(__name__)

RefKind = Literal["branch", "tag"]
RESERVED_NAMES: Final = frozenset({"__schema_apply_lock__"})
_JOINERS: Final = frozenset("\u200c\u200d")  # part of words and emoji, though not "printable"


class Forks(Protocol):
    """Where the tables' own branches can be dropped."""

    def drop_branch(self, location: str, branch_id: str) -> bool: ...


class Refs:
    """Create, find, list and delete branches. Deleting is for whoever holds the branch's lease."""

    def __init__(
        self, manifests: ManifestStore, tables: Forks, store: ObjectStore, world: World
    ) -> None:
        self._manifests = manifests
        self._tables = tables
        self._world = world
        self._store = store
        self._files = manifests.refs
        self._tags = manifests.tags

    def list(self) -> list[Branch]:
        """Main first, then all others by name."""
        return [*self.look()[0]]

    def unreadable(self) -> Sequence[UnreadableRef]:
        """The references that make no sense, by name; their branches are in no list."""
        return self.look()[1]

    def look(self) -> tuple[Sequence[Branch], Sequence[UnreadableRef]]:
        """Both of these by one reading."""
        branches, unread = self._files.look()
        by_name = [MAIN_BRANCH, *sorted(branches, key=lambda branch: branch.name)]
        return by_name, sorted(unread, key=lambda ref: ref.name)

    def find(self, name: str) -> Branch | None:
        """The branch of that name, or None."""
        if name in RESERVED_NAMES:
            validate_name(name)
        return self._files.find(name)

    def get(self, name: str) -> Branch:
        """The branch of that name; `NotFoundError` if there is none."""
        if name in RESERVED_NAMES:
            validate_name(name)
        return self._files.get(name)

    def require_alive(self, branch: Branch) -> None:
        """Raise `NotFoundError` if the branch was deleted, even if another has its name now."""
        if not self._files.is_alive(branch):
            raise NotFoundError(
                f"branch '{branch.name}' was deleted meanwhile", kind="branch", name=branch.name
            )

    def create(self, name: str, from_branch: str = MAIN, *, actor_id: str | None) -> Branch:
        """Fork a branch at its parent's head. Costs the same for one table and for a thousand."""
        validate_name(name)
        if self._files.find(name) is not None:
            raise _taken(name)
        parent = self._files.get(from_branch)
        known = self._manifests.fresh(parent.id)
        branch = Branch(
            name=name,
            id=self._world.ids.ulid(),
            parent=parent.name,
            fork_commit_id=known.tail.head.id,
            created_by=actor_id,
            created_at=self._world.clock.now_us(),
        )
        assert branch.id is not None, "only main has no id"
        self._manifests.datasets.fork(known.opened, branch.id)
        self._world.steps.reach(Step.BRANCH_MANIFEST_FORKED)
        if not self._store.put_if_absent(ref_key(name), encode_ref(branch)):
            self._drop_manifest(branch.id)
            raise _taken(name)
        self._world.steps.reach(Step.BRANCH_REF_WRITTEN)
        self._check_parent(branch, parent)
        if self._tags.is_there(name):
            self._withdraw(branch)
            raise _called_alike(name, kind="tag")
        return branch

    def delete(self, name: str, *, actor_id: str | None = None, unmerged: bool = False) -> Branch:
        """End the branch and drop what it alone used; gives back what it was. One with `unmerged`
        work keeps its files until cleanup.

        Refused for main, a missing branch, and one that another branch was made from. Once the
        reference is gone the branch is; whatever fails after that leaves orphans for cleanup. What
        the merges of other branches need of it is put aside before that.
        """
        if name == MAIN:
            raise InvalidNameError("cannot delete branch 'main'", kind="branch", name=name)
        branch = self._files.get(name)
        others, unread = self._files.look()
        child = _child_of(name, others)
        if child is not None:
            raise _needed(name, child)
        # A branch whose reference cannot be read may have been made from this one, or have merged
        # it: then this one stays for it, and cleanup decides once all references can be read.
        # The same goes for what a tag that cannot be read may name.
        blind = bool(unread or self._tags.unreadable())
        assert branch.id is not None, "only main has no id"
        forked = self._forked(branch)
        retired = self._put_aside(branch, others, whole=blind or unmerged, actor_id=actor_id)
        if not self._store.delete(ref_key(name)):
            self._files.get(name)
        child = _child_of(name, self._files.others())
        if child is not None:
            self._store.put_if_absent(ref_key(name), encode_ref(branch))
            raise _needed(name, child)
        self._world.steps.reach(Step.BRANCH_REF_DELETED)
        if retired or blind or unmerged:
            # Its files stay: for merges that need them, for a child that cannot be read, or for
            # whoever wants the branch back.
            self._manifests.forget(branch.id)
            return branch
        self._drop_manifest(branch.id)
        self._world.steps.reach(Step.BRANCH_MANIFEST_DROPPED)
        for location, line in forked:
            try:
                self._tables.drop_branch(location, line)
            except OmnigraphError as cause:  # an orphan that cleanup collects
                logger.warning(
                    "left a table branch behind",
                    extra={"table": location, "branch": line, "why": str(cause)},
                )
            self._world.steps.reach(Step.BRANCH_TABLE_DROPPED)
        return branch

    def _put_aside(
        self, branch: Branch, others: Iterable[Branch], *, whole: bool, actor_id: str | None
    ) -> bool:
        """Keep what merges of other branches need; True if that is the branch itself, or if it is
        to be kept `whole` in any case.

        All of it is true while the branch still lives, so that a crash right after does no harm.
        """
        try:
            self._manifests.fresh(branch.id)
        except OmnigraphError:
            return False  # what cannot be read now helps no merge later
        try:
            staying = (each for each in (MAIN_BRANCH, *others) if each.id != branch.id)
            tagged = {tag.graph_commit_id for tag in self._tags.all()}
            parting = farewell(self._manifests, branch, staying, tagged=tagged)
            if whole:
                parting = replace(parting, needed=True)
            elif parting.kept and not parting.needed:
                self._manifests.retired.change_descent(
                    lambda kept: {**kept, **parting.kept}, parting.commits
                )
                self._world.steps.reach(Step.BRANCH_DESCENT_KEPT)
        except OmnigraphError as cause:
            # Which commits others need cannot be told now: all stay, for cleanup to decide.
            logger.warning(
                "put a deleted branch aside", extra={"branch": branch.name, "why": str(cause)}
            )
            parting = Farewell(needed=True, kept={})
        if parting.needed:
            now = self._world.clock.now_us()
            self._manifests.retired.retire(branch, at_us=now, by=actor_id)
            self._world.steps.reach(Step.BRANCH_RETIRED)
        return parting.needed

    def restore(self, branch: Branch, name: str) -> Branch:
        """Give a deleted branch a name again. For whoever holds the leases of the past and of the
        branch, and has seen that it is retired and whole."""
        assert branch.id is not None, "main is never deleted"
        validate_name(name)
        alive = branch.parent is not None and self._has_branch(branch.parent)
        # Nobody can delete main, and the lines that the branch stands on are kept for its own sake.
        named = replace(branch, name=name, parent=branch.parent if alive else MAIN)
        if not self._store.put_if_absent(ref_key(name), encode_ref(named)):
            raise _taken(name)
        self._world.steps.reach(Step.BRANCH_RESTORED)
        if self._tags.is_there(name):
            self._store.delete(ref_key(name))
            raise _called_alike(name, kind="tag")
        # From here on it lives; a crash before this leaves a retired reference that cleanup ends.
        self._manifests.retired.end(branch.id)
        self._world.steps.reach(Step.BRANCH_RETIRED_ENDED)
        return named

    def delete_unreadable(self, name: str) -> bool:
        """Remove a reference that makes no sense, and with it the branch; its id is not known, so
        its files are left to cleanup. False if there is no such reference."""
        return self._files.remove_unreadable(name)

    def _forked(self, branch: Branch) -> tuple[tuple[str, str], ...]:
        """The tables that the branch has lines of its own of, and those lines: its id or, after an
        earlier life, the id and a number (`<id>__2`)."""
        try:
            entries = self._manifests.head(branch).entries.values()
        except OmnigraphError as cause:  # a damaged branch must be deletable
            logger.warning(
                "deleting an unreadable branch", extra={"branch": branch.name, "why": str(cause)}
            )
            return ()
        # Earlier lives go too; those of tables that the branch gave up are left to cleanup.
        return tuple(
            sorted(
                (each.location, branch.line(life))
                for each in entries
                for life in range(1, branch.life(each.branch) + 1)
            )
        )

    def _check_parent(self, branch: Branch, parent: Branch) -> None:
        """Undo a branch whose parent was deleted meanwhile.

        Creation writes the child and then looks for the parent; deletion removes the parent and
        then looks for children. Whatever the order, at least one of the two sees the other.
        """
        if self._files.is_alive(parent):
            return
        self._withdraw(branch)
        raise NotFoundError(f"branch '{parent.name}' not found", kind="branch", name=parent.name)

    def _withdraw(self, branch: Branch) -> None:
        """Take back a branch that was made a moment ago."""
        assert branch.id is not None, "only main has no id"
        self._store.delete(ref_key(branch.name))
        self._drop_manifest(branch.id)

    # --- tags --------------------------------------------------------------------------------

    def create_tag(self, tag: Tag) -> Tag:
        """Make the tag exist. For whoever holds the leases of the past and of the branch that the
        commit is of, and has seen that the commit is kept.

        A branch and a tag are each written and then look for one of the other kind that has the
        name. If both are made at once, at least one of the two is therefore taken back, perhaps
        both; never do both stay.
        """
        validate_name(tag.name, kind="tag")
        if self._has_branch(tag.name):
            raise _called_alike(tag.name, kind="branch")
        if not self._tags.put(tag):
            raise _taken(tag.name, kind="tag")
        self._world.steps.reach(Step.TAG_WRITTEN)
        if self._has_branch(tag.name):
            self._tags.remove(tag.name)
            raise _called_alike(tag.name, kind="branch")
        return tag

    def delete_tag(self, name: str) -> None:
        """End the tag, readable or not; `NotFoundError` if there is none."""
        self._tags.remove(name)
        self._world.steps.reach(Step.TAG_DELETED)

    def _has_branch(self, name: str) -> bool:
        try:
            return self._files.find(name) is not None
        except CorruptGraphError:
            return True  # it cannot be read, but it has the name

    def _drop_manifest(self, branch_id: str) -> None:
        self._manifests.forget(branch_id)
        try:
            self._manifests.datasets.drop(branch_id)
        except OmnigraphError as cause:  # an orphan that cleanup collects
            logger.warning(
                "left a manifest branch behind", extra={"branch": branch_id, "why": str(cause)}
            )


def _child_of(name: str, branches: Iterable[Branch]) -> Branch | None:
    children = (branch for branch in branches if branch.parent == name)
    return min(children, key=lambda branch: branch.name, default=None)


def validate_name(name: str, *, kind: RefKind = "branch") -> None:
    """Raise `InvalidNameError` for a name that no new branch or tag may have."""
    reason = _refusal(name, kind)
    if reason is not None:
        hint = "every graph has a branch 'main'" if name == MAIN else None
        raise InvalidNameError(reason, kind=kind, name=name, hint=hint)


def _refusal(name: str, kind: RefKind) -> str | None:
    if not name.strip():
        return f"a {kind} name must not be empty"
    if name == MAIN:
        return f"cannot create {kind} 'main'"
    if name in RESERVED_NAMES:
        return f"{kind} name '{name}' is reserved for internal system refs"
    odd = next((each for each in name if not each.isprintable() and each not in _JOINERS), None)
    if odd is not None:
        what = unicodedata.name(odd, f"U+{ord(odd):04X}").lower()
        return f"a {kind} name must be printable text, this one holds {what}"
    if name != name.strip():
        return f"{kind} name '{name}' begins or ends with a space"
    size = len(name.encode())
    if size > BRANCH_NAME_BYTES_MAX:
        return f"a {kind} name has at most {BRANCH_NAME_BYTES_MAX} bytes, this one {size}"
    return None


def _taken(name: str, *, kind: RefKind = "branch") -> AlreadyExistsError:
    return AlreadyExistsError(f"{kind} '{name}' already exists", kind=kind, name=name)


def _called_alike(name: str, *, kind: RefKind) -> AlreadyExistsError:
    """Something of the other kind, `kind`, has the name."""
    return AlreadyExistsError(
        f"there is a {kind} '{name}', and a branch and a tag cannot share a name",
        kind=kind,
        name=name,
        hint="choose another name",
    )


def _needed(name: str, child: Branch) -> ConflictError:
    return ConflictError(
        f"cannot delete branch '{name}' because descendant branch '{child.name}' "
        "still depends on it",
        hint=f"delete '{child.name}' first",
        branch=name,
        descendant=child.name,
    )
