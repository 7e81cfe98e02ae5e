"""The half of `Graph` that names commits: branches, history, differences, the change feed, and
writes that did not finish."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from omnigraph.engine.access import OPEN, Gate
from omnigraph.engine.arguments import (
    AT_OR_NONE,
    FLAG,
    INT_OR_NONE,
    REF,
    TEXT,
    TEXT_OR_NONE,
    require,
)
from omnigraph.engine.core import Core, OpenMode
from omnigraph.engine.refs import At, Ref
from omnigraph.errors import InputError, OmnigraphError, PolicyDeniedError
from omnigraph.model.graph import MAIN, Branch, Commit, DeletedBranch, Snapshot, Tag
from omnigraph.model.machine import Later
from omnigraph.model.pictures.commits import Commits
from omnigraph.storage.manifest.ref_files import UnreadableRef
from omnigraph.storage.objects.local import Presence

if TYPE_CHECKING:
    from omnigraph.engine import naming
    from omnigraph.engine.history import changes as changing
    from omnigraph.engine.history import entity as entities
    from omnigraph.engine.history import feed
    from omnigraph.engine.merge import run as merging
    from omnigraph.engine.merge import settle
    from omnigraph.results.changes import (
        Baseline,
        ChangePage,
        ChangeSet,
        EntityState,
        EntityVersion,
        FeedPage,
    )
    from omnigraph.results.merging import MergePreview, MergeResult, RevertResult, Strategy
else:
    naming = Later("omnigraph.engine.naming")
    changing = Later("omnigraph.engine.history.changes")
    entities = Later("omnigraph.engine.history.entity")
    feed = Later("omnigraph.engine.history.feed")
    merging = Later("omnigraph.engine.merge.run")
    settle = Later("omnigraph.engine.merge.settle")


class Timeline:
    """What an open graph tells of its branches and commits, finished or not, and does to them."""

    def __init__(self, core: Core, gate: Gate = OPEN) -> None:
        """Use `Graph.init` or `Graph.open`."""
        self._core = core
        self._gate = gate
        self._presence = Presence(core.root.local_path, writable=core.mode is OpenMode.READ_WRITE)
        self._ended = threading.Event()  # one for all handles that `acting_as` makes of this one
        self._is_borrowed = False  # by `acting_as`: another handle ends it

    @property
    def uri(self) -> str:
        return self._core.root.uri

    # --- what every call begins with ---------------------------------------------------------

    def _alive(self) -> Core:
        if self._ended.is_set():
            raise InputError(f"the graph '{self.uri}' is closed", hint="open it again")
        self._presence.touch()
        return self._core

    def _allowed(
        self,
        call: str,
        *,
        branch: str | None = None,
        target: str | None = None,
        actor: str | None = None,
    ) -> Core:
        """The parts of the graph, for a call that `RIGHTS` names, if whoever acts may make it."""
        core = self._alive()
        if self._gate.policy is not None:
            self._gate.require(call, branch=branch, target=target, actor=actor)
        return core

    def _state(self, call: str, branch: str, at: At | None) -> tuple[Core, Snapshot]:
        """The same for a call that reads one state, and that state."""
        core = self._alive()
        return core, self._gate.state(core, call, branch, at)

    def _told_by(self, call: str, *refs: Ref) -> Core:
        """The same for a call that tells of commits: those that the refs name."""
        core = self._alive()
        if self._gate.policy is None:
            return core
        for ref in refs:
            require(REF, ref=ref)
            try:
                named = core.store.refs.find(ref) if isinstance(ref, str) else None
                branch = named.name if named is not None else core.commit(ref).graph_branch
            except OmnigraphError:
                self._gate.require(call, branch=str(ref))
                raise
            self._gate.require(call, branch=branch)
        return core

    # --- branches and history ----------------------------------------------------------------

    def branches(self) -> list[str]:
        """The names of the branches: `main` first, then the others by name.

        Examples:
            >>> graph.branches()
            ['main']
        """
        return [branch.name for branch in self._allowed("branches").store.refs.list()]

    def require_branch(self, name: str) -> None:
        """`NotFoundError` unless there is a branch of exactly this name; a tag or a commit is
        none."""
        self._allowed("require_branch").branch(name)

    def unreadable_branches(self) -> list[UnreadableRef]:
        """The branches whose reference is damaged: they are in no list and stop nobody else."""
        return list(self._allowed("unreadable_branches").store.refs.unreadable())

    def create_branch(self, name: str, from_branch: str = MAIN, actor: str | None = None) -> Branch:
        """Fork the whole graph as it is at the head of `from_branch`; no table is copied.

        `NotFoundError` if there is no such branch, `AlreadyExistsError` if the name is taken.

        Examples:
            >>> graph.create_branch("draft").parent
            'main'
        """
        core = self._allowed("create_branch", branch=from_branch, target=name, actor=actor)
        return core.create_branch(name, from_branch, actor_id=self._gate.acting(actor))

    def delete_branch(
        self,
        name: str,
        actor: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002 - the API fixes it
    ) -> None:
        """End a branch; what was merged stays.

        `UnmergedBranchError` if it has work that no other branch contains; a tag does not count.
        `force` deletes it all the same, and `restore_branch` brings it back until cleanup takes it.
        `force` also ends a branch whose reference cannot be read.

        Examples:
            >>> _ = graph.create_branch("draft")
            >>> graph.delete_branch("draft")
        """
        core = self._allowed("delete_branch", target=name, actor=actor)
        core.delete_branch(name, actor_id=self._gate.acting(actor), force=force)

    def deleted_branches(self) -> list[DeletedBranch]:
        """The deleted branches that can still be brought back, the newest deletion first.

        Examples:
            >>> _ = graph.create_branch("draft")
            >>> graph.delete_branch("draft")
            >>> graph.deleted_branches()
            []
        """
        return naming.deleted_branches(self._allowed("deleted_branches"))

    def restore_branch(self, name: str, *, as_name: str | None = None) -> Branch:
        """Bring a deleted branch back with all its commits, under its name or another. `name` may
        be the id of the branch; of several that had the name the one deleted last is meant.

        Examples:
            >>> _ = graph.create_branch("draft")
            >>> _ = graph.mutate(ADD, params={"name": "Eve"}, branch="draft")
            >>> graph.delete_branch("draft", force=True)
            >>> graph.restore_branch("draft").name
            'draft'
        """
        core = self._allowed("restore_branch", target=name if as_name is None else as_name)
        return naming.restore_branch(core, name, as_name=as_name)

    def create_tag(
        self,
        name: str,
        at: At | None = None,
        *,
        actor: str | None = None,
        message: str | None = None,
    ) -> Tag:
        """Name a commit for good: the one that `at` is (any ref), by default main's head.

        A tag never moves, and cleanup keeps what it names, also after its branch is deleted.
        `AlreadyExistsError` if a tag or a branch has the name.

        Examples:
            >>> graph.create_tag("v1", message="first release").name
            'v1'
            >>> graph.query(NAMES, snapshot="v1").row_count
            3
        """
        core = self._alive()
        if self._gate.policy is not None:
            owner = core.snapshot(MAIN, at).graph_branch
            self._gate.require("create_tag", branch=owner, target=name, actor=actor)
        return naming.create_tag(core, name, at, actor_id=self._gate.acting(actor), message=message)

    def tags(self) -> list[Tag]:
        """Every tag, by name.

        Examples:
            >>> graph.tags()
            []
        """
        return naming.tags(self._allowed("tags"))

    def delete_tag(self, name: str) -> None:
        """Take a tag away, also one that cannot be read; what only it named goes with the next
        cleanup. `NotFoundError` if there is no such tag.

        Examples:
            >>> _ = graph.create_tag("v1")
            >>> graph.delete_tag("v1")
        """
        naming.delete_tag(self._allowed("delete_tag", target=name), name)

    def unreadable_tags(self) -> list[UnreadableRef]:
        """The tags whose file is damaged: they are in no list and stop nobody else. While there is
        one, cleanup lets nothing of the past go."""
        return self._allowed("unreadable_tags").store.manifests.tags.unreadable()

    def merge(
        self,
        source: str,
        into: str = MAIN,
        actor: str | None = None,
        *,
        strategy: Strategy = "fail",
        resolutions: Mapping[tuple[str, str], settle.Decision] | None = None,
        delete_branch: bool = False,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Merge a branch into another as one commit; `MergeConflictsError` and nothing otherwise.

        `strategy` settles entities that both sides changed: "ours" keeps the target's, "theirs"
        takes the source's, "property" merges what each side changed. `resolutions` settle them one
        by one, by (type key, id), and count more than the strategy: "ours", "theirs", or values by
        property; properties that a resolution leaves out are merged if only one side changed them.
        With an `idempotency_key` the merge is made once, however often it is submitted.

        Examples:
            >>> _ = graph.create_branch("draft")
            >>> _ = graph.mutate(ADD, params={"name": "Eve"}, branch="draft")
            >>> graph.merge("draft", message="Eve joins").outcome
            'fast_forward'
        """
        require(FLAG, delete_branch=delete_branch)
        core = self._allowed("merge", branch=source, target=into, actor=actor)
        refused = self._deletion_refused(source, actor) if delete_branch else None
        result = merging.merge(
            core,
            source,
            into,
            actor_id=self._gate.acting(actor),
            settling=settle.Settling.of(strategy, resolutions),
            delete_branch=delete_branch and refused is None,
            message=message,
            idempotency_key=idempotency_key,
        )
        if refused is None:
            return result
        return replace(result, branch_deleted=False, branch_delete_error=refused)

    def _deletion_refused(self, name: str, actor: str | None) -> str | None:
        """Why a merge may not delete its source, if it may not; the merge itself stands."""
        try:
            self._allowed("delete_branch", target=name, actor=actor)
        except PolicyDeniedError as cause:
            return cause.message
        return None

    def merge_preview(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: Strategy = "fail",
        resolutions: Mapping[tuple[str, str], settle.Decision] | None = None,
    ) -> MergePreview:
        """What `merge` would do now, conflicts included, without writing anything.

        Examples:
            >>> _ = graph.create_branch("draft")
            >>> graph.merge_preview("draft").conflicts
            ()
        """
        settling = settle.Settling.of(strategy, resolutions)
        return merging.preview(self._told_by("merge_preview", source, into), source, into, settling)

    def commits(
        self, branch: str = MAIN, *, actor: str | None = None, limit: int | None = None
    ) -> list[Commit]:
        """The history of a branch, newest first; the last one is the genesis commit.

        `actor` keeps only this actor's commits, `limit` only the newest. The list draws itself in
        a notebook.

        Examples:
            >>> [commit.writer_kind for commit in graph.commits()]
            ['Load', None]
        """
        require(TEXT, branch=branch)
        core = self._told_by("commits", branch)
        require(TEXT_OR_NONE, actor=actor)
        require(INT_OR_NONE, limit=limit)
        if limit is not None and limit < 0:
            raise InputError(f"limit must be 0 or more, got {limit}")
        start = core.store.refs.find(branch) or core.commit(branch)
        return Commits(core.store.history.commits(start, actor=actor, limit=limit))

    def commit(self, commit_id: Ref) -> Commit:
        """The commit that an id, the beginning of one, or any other ref names.

        `NotFoundError` if nothing is called so, `InputError` if the beginning fits several.

        Examples:
            >>> graph.commit("main").graph_branch
            'main'
            >>> graph.commit("main~1").parent_commit_id is None
            True
        """
        require(REF, commit_id=commit_id)
        return self._allowed("commit").commit(commit_id)

    def snapshot(self, branch: str = MAIN, at: At | None = None) -> Snapshot:
        """Which version of which dataset makes up the graph, now or `at` a commit or moment.

        Examples:
            >>> {one.type_key: one.entity_count for one in graph.snapshot().datasets}
            {'edge:Knows': 2, 'node:Person': 3}
        """
        require(AT_OR_NONE, at=at)
        _, found = self._state("snapshot", branch, at)
        return found

    # --- differences and the change feed -----------------------------------------------------

    def diff(
        self,
        from_ref: Ref,
        to_ref: Ref,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> ChangeSet:
        """What is different at `to_ref`, seen from `from_ref`: branches, tags, commits or
        moments on main.

        `kinds` ("node", "edge"), `types` and `ops` ("insert", "update", "delete") narrow it.

        Examples:
            >>> changes = graph.diff("main~1", "main", kinds=["node"])
            >>> [(one.op, one.id) for one in changes.changes]
            [('insert', 'Ada'), ('insert', 'Bob'), ('insert', 'Cem')]
        """
        wanted = changing.ChangeFilter.of(kinds, types, ops)
        return changing.diff(self._told_by("diff", from_ref, to_ref), from_ref, to_ref, wanted)

    def commit_changes(
        self,
        commit_id: Ref,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ChangePage:
        """What one commit did to its first parent, with images, page by page.

        Examples:
            >>> graph.commit_changes("main", ops=["insert"]).changes[0].op
            'insert'
        """
        wanted = changing.ChangeFilter.of(kinds, types, ops)
        core = self._told_by("commit_changes", commit_id)
        return feed.commit_changes(core, commit_id, wanted, limit=limit, page_token=page_token)

    def changes(
        self,
        *,
        branch: str = MAIN,
        cursor: str | None = None,
        start: str | None = None,
        page_token: str | None = None,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> FeedPage:
        """The change feed of a branch after a cursor or a start ("now", "beginning",
        "after:<commit>"): store the cursor once its blocks are applied, and pass it next time.

        Examples:
            >>> page = graph.changes(start="now")
            >>> _ = graph.mutate(ADD, params={"name": "Eve"})
            >>> later = graph.changes(cursor=page.cursor)
            >>> [change.id for block in later.blocks for change in block.changes]
            ['Eve']
        """
        require(TEXT, branch=branch)
        return feed.poll(
            self._allowed("changes", branch=branch),
            branch,
            changing.ChangeFilter.of(kinds, types, ops),
            start=start,
            cursor=cursor,
            page_token=page_token,
            limit=limit,
        )

    def changes_baseline(
        self,
        *,
        branch: str = MAIN,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> Baseline:
        """The whole state as NDJSON, and the cursor that polls go on from: for a new consumer, or
        one whose cursor fell into a gap.

        Examples:
            >>> len(list(graph.changes_baseline().lines))
            5
        """
        require(TEXT, branch=branch)
        core = self._allowed("changes_baseline", branch=branch)
        return feed.baseline(core, branch, changing.ChangeFilter.of(kinds, types, ops))

    def entity(
        self,
        kind: str,
        type_name: str,
        id: str,  # noqa: A002 - the name that users know
        *,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> EntityState:
        """One entity as it is, or was: its properties and, of an edge, its ends. `NotFoundError` if
        there is none.

        Examples:
            >>> graph.entity("node", "Person", "Ada").image.properties["age"]
            36
        """
        core, state = self._state("entity", branch, snapshot)
        return entities.entity_at(core, state, kind, type_name, id)

    def entity_history(
        self,
        kind: str,
        type_name: str,
        id: str,  # noqa: A002 - the name that users know
        *,
        branch: str = MAIN,
    ) -> list[EntityVersion]:
        """Every version of one entity, newest first, with the commit that made it.

        `kind` is "node" or "edge"; the id of a node with a single String key is that key.

        Examples:
            >>> [one.op for one in graph.entity_history("node", "Person", "Ada")]
            ['insert']
        """
        core = self._told_by("entity_history", branch)
        return entities.entity_history(core, kind, type_name, id, branch=branch)

    def revert(
        self,
        commit_id: Ref,
        *,
        branch: str = MAIN,
        actor: str | None = None,
        message: str | None = None,
    ) -> RevertResult:
        """Undo one commit by a new one; `MergeConflictsError` if later commits stand against it.

        Examples:
            >>> added = graph.mutate(ADD, params={"name": "Eve"})
            >>> _ = graph.revert(added.commit.graph_commit_id, message="not yet")
            >>> graph.query(NAMES).row_count
            3
        """
        require(REF, commit_id=commit_id)
        core = self._allowed("revert", branch=branch, actor=actor)
        return merging.revert(
            core, commit_id, branch, actor_id=self._gate.acting(actor), message=message
        )
