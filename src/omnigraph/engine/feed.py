"""The change feed: what happened on a branch, commit by commit, from a cursor on.

At least once: a consumer stores the cursor after it has applied the blocks, and applies each commit
idempotently. The feed keeps nothing about its consumers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from omnigraph.engine.changes import (
    ChangeFilter,
    ChangePage,
    commit_images,
    page_size,
)
from omnigraph.engine.core import Core
from omnigraph.engine.tokens import seal_token, unseal_token
from omnigraph.errors import ChangeFeedGapError, InputError, SchemaBoundaryError
from omnigraph.model.graph import Branch, Commit
from omnigraph.model.limits import FEED_COMMITS_PER_POLL


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """One poll's answer.

    A page that ends on a commit boundary has a `cursor`, and `caught_up` says whether it reached
    the head; one that stops inside a commit has only a `next_page_token`.
    """

    blocks: tuple[ChangePage, ...]
    cursor: str | None
    caught_up: bool | None
    next_page_token: str | None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "blocks": [
                {name: part for name, part in block.to_json().items() if name != "next_page_token"}
                for block in self.blocks
            ]
        }
        if self.cursor is not None:
            body |= {"cursor": self.cursor, "caught_up": self.caught_up}
        if self.next_page_token is not None:
            body["next_page_token"] = self.next_page_token
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a poll goes on: after a commit, `skip` changes into the next one."""

    after_commit_id: str
    skip: int = 0


def poll(
    core: Core,
    branch: str,
    wanted: ChangeFilter,
    *,
    start: str | None = None,
    cursor: str | None = None,
    page_token: str | None = None,
    limit: int | None = None,
) -> FeedPage:
    """The next blocks after a cursor, a page token or a start ("now", "beginning",
    "after:<commit>"); exactly one of the three, "now" if none is given."""
    if sum(given is not None for given in (start, cursor, page_token)) > 1:
        raise InputError("give only one of start, cursor and page_token")
    target = core.branch(branch)
    line = core.history.commits(target)
    bond = _bond(target, wanted, line[-1])
    place = _place(bond, line, start=start, cursor=cursor, page_token=page_token)
    ahead = _ahead(line, place)
    return _filled(core, wanted, bond, place, ahead, page_size(limit))


def cursor_after(core: Core, branch: Branch, wanted: ChangeFilter, commit_id: str) -> str:
    """The cursor from which a poll goes on right after this commit."""
    bond = _bond(branch, wanted, core.history.commits(branch)[-1])
    return seal_token("feed-cursor", {**bond, "after": commit_id})


def _bond(branch: Branch, wanted: ChangeFilter, genesis: Commit) -> dict[str, str]:
    """What a cursor is tied to: this graph, this life of the branch, this filter."""
    identity = f"{genesis.graph_commit_id}/{branch.name}/{branch.id}"
    return {
        "graph": hashlib.sha256(identity.encode()).hexdigest()[:32],
        "filter": wanted.digest,
    }


def _place(
    bond: dict[str, str],
    line: list[Commit],
    *,
    start: str | None,
    cursor: str | None,
    page_token: str | None,
) -> _Place:
    if cursor is not None:
        told = _told(bond, unseal_token("feed-cursor", cursor))
        return _Place(after_commit_id=told["after"])
    if page_token is not None:
        told = _told(bond, unseal_token("feed-page", page_token))
        return _Place(after_commit_id=told["after"], skip=int(told["skip"]))
    if start is None or start == "now":
        return _Place(after_commit_id=line[0].graph_commit_id)
    if start == "beginning":
        return _Place(after_commit_id=line[-1].graph_commit_id)
    word, _, commit_id = start.partition(":")
    if word != "after" or not commit_id:
        raise InputError(f"unknown start '{start}'", hint="use now, beginning or after:<commit>")
    return _Place(after_commit_id=commit_id)


def _told(bond: dict[str, str], facts: dict[str, Any]) -> dict[str, Any]:
    for name, expected in bond.items():
        if facts.get(name) != expected:
            what = "filter" if name == "filter" else "graph or branch"
            raise InputError(f"change cursor rejected: it belongs to another {what}")
    return facts


def _ahead(line: list[Commit], place: _Place) -> list[Commit]:
    """The commits after the place, oldest first, up to the head as it is now."""
    for at, commit in enumerate(line):
        if commit.graph_commit_id == place.after_commit_id:
            return line[:at][::-1]
    raise ChangeFeedGapError(commit_id=place.after_commit_id)


def _filled(
    core: Core,
    wanted: ChangeFilter,
    bond: dict[str, str],
    place: _Place,
    ahead: list[Commit],
    size: int,
) -> FeedPage:
    blocks: list[ChangePage] = []
    room, after, skip = size, place.after_commit_id, place.skip
    for commit in ahead[:FEED_COMMITS_PER_POLL]:
        try:
            changes = commit_images(core, commit, wanted)[skip:]
        except (ChangeFeedGapError, SchemaBoundaryError):
            if not blocks:
                raise
            break  # what lies before it is delivered first
        if len(changes) > room and blocks:
            break
        blocks.append(ChangePage(cause=commit, changes=tuple(changes[:room])))
        if len(changes) > room:
            token = seal_token("feed-page", {**bond, "after": after, "skip": skip + room})
            return FeedPage(
                blocks=tuple(blocks), cursor=None, caught_up=None, next_page_token=token
            )
        room, after, skip = room - len(changes), commit.graph_commit_id, 0
    head = ahead[-1].graph_commit_id if ahead else place.after_commit_id
    return FeedPage(
        blocks=tuple(blocks),
        cursor=seal_token("feed-cursor", {**bond, "after": after}),
        caught_up=after == head,
        next_page_token=None,
    )
