"""The change feed: what happened on a branch, commit by commit, from a cursor on.

At least once: a consumer stores the cursor after it has applied the blocks, and applies each commit
idempotently. The feed keeps nothing about its consumers: a cursor and a page's place travel as
tokens, which are base64url of JSON and its SHA-256, so that one which was cut or edited is refused.
They are no secret and prove nothing about who holds them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson

from omnigraph.engine.arguments import INT_OR_NONE, REF, TEXT_OR_NONE, require
from omnigraph.engine.core import Core
from omnigraph.engine.history.changes import ChangeFilter, commit_images, require_none
from omnigraph.engine.read.export import table_lines
from omnigraph.engine.refs import Ref
from omnigraph.errors import ChangeFeedGapError, InputError, NotFoundError
from omnigraph.model.graph import Branch, Commit, Snapshot
from omnigraph.model.limits import (
    CHANGES_PER_PAGE_DEFAULT,
    CHANGES_PER_PAGE_MAX,
    FEED_COMMITS_PER_POLL,
    TOKEN_BYTES_MAX,
)
from omnigraph.results.changes import Baseline, ChangePage, FeedPage

_TOKEN_VERSION: Final = 1
_DIGEST_BYTES: Final = 32


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
    require(TEXT_OR_NONE, start=start, cursor=cursor, page_token=page_token)
    if sum(given is not None for given in (start, cursor, page_token)) > 1:
        raise InputError("give only one of start, cursor and page_token")
    target = core.branch(branch)
    line = core.store.history.commits(target)
    bond = _bond(target, wanted, line[-1])
    skip = 0
    if cursor is not None:
        after = _told(bond, _unsealed("feed-cursor", cursor))["after"]
    elif page_token is not None:
        told = _told(bond, _unsealed("feed-page", page_token))
        after, skip = told["after"], int(told["skip"])
    else:
        after = _start(core, target, line, "now" if start is None else start)
    return _filled(core, wanted, bond, (after, skip), _ahead(line, after), _page_size(limit))


def _bond(branch: Branch, wanted: ChangeFilter, genesis: Commit) -> dict[str, str]:
    """What a cursor is tied to: this graph, this life of the branch, this filter."""
    identity = f"{genesis.graph_commit_id}/{branch.name}/{branch.id}"
    return {
        "graph": hashlib.sha256(identity.encode()).hexdigest()[:32],
        "filter": wanted.digest,
    }


def _start(core: Core, branch: Branch, line: Sequence[Commit], start: str) -> str:
    """The commit after which a poll starts that nothing was read before."""
    if start == "now":
        return line[0].graph_commit_id
    if start == "beginning":
        return line[-1].graph_commit_id
    word, _, ref = start.partition(":")
    if word != "after" or not ref:
        raise InputError(f"unknown start '{start}'", hint="use now, beginning or after:<commit>")
    if any(ref == commit.graph_commit_id for commit in line):
        return ref
    try:
        return core.commit(ref, branch=branch.name).graph_commit_id
    except NotFoundError as cause:
        if cause.facts["kind"] == "ref":
            raise
        raise ChangeFeedGapError(commit_id=ref) from cause  # it was one, once


def _told(bond: dict[str, str], facts: dict[str, Any]) -> dict[str, Any]:
    for name, expected in bond.items():
        if facts.get(name) != expected:
            what = "filter" if name == "filter" else "graph or branch"
            raise InputError(f"change cursor rejected: it belongs to another {what}")
    return facts


def _ahead(line: Sequence[Commit], after: str) -> Sequence[Commit]:
    """The commits after that one, oldest first, up to the head as it is now."""
    for at, commit in enumerate(line):
        if commit.graph_commit_id == after:
            return line[:at][::-1]
    raise ChangeFeedGapError(commit_id=after)


def _filled(
    core: Core,
    wanted: ChangeFilter,
    bond: dict[str, str],
    place: tuple[str, int],
    ahead: Sequence[Commit],
    size: int,
) -> FeedPage:
    """A page from the place on: after a commit, so many changes into the next one."""
    blocks: list[ChangePage] = []
    left, (after, skip) = size, place
    unknown = wanted.types or frozenset()
    for commit in ahead[:FEED_COMMITS_PER_POLL]:
        try:
            found = commit_images(core, commit, wanted)
        except ChangeFeedGapError:
            if not blocks:
                raise
            break  # what lies before it is delivered first
        # A type may have come later, or be gone by now: only one that no commit knows is wrong.
        unknown &= found.unknown_types
        changes = found.changes[skip:]
        if len(changes) > left and blocks:
            break
        blocks.append(ChangePage(cause=commit, changes=tuple(changes[:left])))
        if len(changes) > left:
            token = _sealed("feed-page", {**bond, "after": after, "skip": skip + left})
            return FeedPage(
                blocks=tuple(blocks), cursor=None, caught_up=None, next_page_token=token
            )
        left, after, skip = left - len(changes), commit.graph_commit_id, 0
    head = ahead[-1].graph_commit_id if ahead else after
    if unknown and ahead:
        newest = core.store.manifests.at_commit(head)
        catalog = core.catalog(newest)
        require_none(unknown & wanted.unknown_types(catalog), catalog)
    return FeedPage(
        blocks=tuple(blocks),
        cursor=_sealed("feed-cursor", {**bond, "after": after}),
        caught_up=after == head,
        next_page_token=None,
    )


# --- one commit, page by page ------------------------------------------------------------------


def commit_changes(
    core: Core,
    ref: Ref,
    wanted: ChangeFilter,
    *,
    limit: int | None = None,
    page_token: str | None = None,
) -> ChangePage:
    """A page of what one commit did."""
    require(REF, commit_id=ref)
    require(TEXT_OR_NONE, page_token=page_token)
    size = _page_size(limit)
    commit = core.commit(ref)
    commit_id = commit.graph_commit_id
    start = 0
    if page_token is not None:
        told = _unsealed("commit-page", page_token)
        if (told.get("commit"), told.get("filter")) != (commit_id, wanted.digest):
            raise InputError("change cursor rejected: it belongs to another commit or filter")
        start = int(told["next"])
    images = commit_images(core, commit, wanted)
    if images.unknown_types:
        require_none(images.unknown_types, core.catalog(core.store.manifests.at_commit(commit_id)))
    found = images.changes
    more = start + size < len(found)
    token = {"commit": commit_id, "filter": wanted.digest, "next": start + size}
    return ChangePage(
        cause=commit,
        changes=tuple(found[start : start + size]),
        next_page_token=_sealed("commit-page", token) if more else None,
    )


def _page_size(limit: int | None) -> int:
    """How many changes a page holds at most."""
    require(INT_OR_NONE, limit=limit)
    if limit is None:
        return CHANGES_PER_PAGE_DEFAULT
    if not 1 <= limit <= CHANGES_PER_PAGE_MAX:
        raise InputError(f"limit must be between 1 and {CHANGES_PER_PAGE_MAX}, got {limit}")
    return limit


# --- where a consumer starts: the whole state, and the cursor that follows it ------------------


def baseline(core: Core, branch: str, wanted: ChangeFilter) -> Baseline:
    """The head of the branch, as far as the filter's kinds and types want it."""
    target = core.branch(branch)
    snapshot = core.store.manifests.head(target)
    bond = _bond(target, wanted, core.store.history.commits(target)[-1])
    return Baseline(
        snapshot_commit_id=snapshot.graph_commit_id,
        resume_cursor=_sealed("feed-cursor", {**bond, "after": snapshot.graph_commit_id}),
        lines=_lines(core, snapshot, wanted),
    )


def _lines(core: Core, snapshot: Snapshot, wanted: ChangeFilter) -> Iterator[str]:
    for one in filter(wanted.wants, core.catalog(snapshot).types()):
        entry = snapshot.entries[one.table_key]
        if entry.row_count:
            yield from table_lines(core.store.tables.open(entry), one)


# --- tokens ------------------------------------------------------------------------------------


def _sealed(kind: str, facts: dict[str, Any]) -> str:
    """The facts as a token of that kind."""
    body = orjson.dumps({"kind": kind, "version": _TOKEN_VERSION, **facts})
    sealed = body + hashlib.sha256(body).digest()
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def _unsealed(kind: str, token: str) -> dict[str, Any]:
    """The facts of a token of that kind, or `InputError`."""
    if len(token) > TOKEN_BYTES_MAX:
        raise _rejected("it is too long")
    try:
        sealed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        body, digest = sealed[:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
        intact = hashlib.sha256(body).digest() == digest
        facts = orjson.loads(body) if intact else None
    except (binascii.Error, ValueError) as cause:
        raise _rejected("it is not a token") from cause
    if not isinstance(facts, dict):
        raise _rejected("it is damaged")
    if facts.get("kind") != kind or facts.get("version") != _TOKEN_VERSION:
        raise _rejected(f"it is not a {kind}")
    return facts


def _rejected(why: str) -> InputError:
    return InputError(f"change cursor rejected: {why}")
