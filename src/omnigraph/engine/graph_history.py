"""The part of `Graph` that answers about the past: differences, changes, blame, undoing."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine.baseline import Baseline, baseline
from omnigraph.engine.changes import ChangeFilter, ChangePage, ChangeSet, commit_changes, diff
from omnigraph.engine.core import Core
from omnigraph.engine.entity_history import EntityVersion, entity_history
from omnigraph.engine.feed import FeedPage, poll
from omnigraph.engine.merge.revert import RevertResult, revert
from omnigraph.model.graph import MAIN


class HistoryCalls:
    """Mixed into `Graph`."""

    def _opened(self) -> Core:
        raise AssertionError("Graph says what is open")

    def diff(
        self,
        from_ref: str,
        to_ref: str,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> ChangeSet:
        """What is different at `to_ref`, seen from `from_ref`; branches, commits or moments."""
        return diff(self._opened(), from_ref, to_ref, ChangeFilter.of(kinds, types, ops))

    def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ChangePage:
        """What one commit did to its first parent, with images, page by page."""
        wanted = ChangeFilter.of(kinds, types, ops)
        return commit_changes(self._opened(), commit_id, wanted, limit=limit, page_token=page_token)

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
        "after:<commit>"): store the cursor once its blocks are applied, and pass it next time."""
        return poll(
            self._opened(),
            branch,
            ChangeFilter.of(kinds, types, ops),
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
        one whose cursor fell into a gap."""
        return baseline(self._opened(), branch, ChangeFilter.of(kinds, types, ops))

    def entity_history(
        self,
        kind: str,
        type_name: str,
        id: str,  # noqa: A002 - the name that users know
        *,
        branch: str = MAIN,
    ) -> list[EntityVersion]:
        """Every version of one entity, newest first, with the commit that made it."""
        return entity_history(self._opened(), kind, type_name, id, branch=branch)

    def revert(
        self, commit_id: str, *, branch: str = MAIN, actor: str | None = None
    ) -> RevertResult:
        """Undo one commit by a new one; `MergeConflictsError` if later commits stand against it."""
        return revert(self._opened(), commit_id, branch, actor_id=actor)
