"""What people call a state of the graph, and which commit that is.

A *ref* is, in this order: the id of a commit, a branch, a tag, any ref with steps back (`main~2`,
`v1^`), the beginning of a commit's id, or a moment on a branch. A name therefore wins over what it
may look like: a branch may be called `main~2` or `2026-01-31`. Two more forms name a version of a
branch's manifest: a number, and `manifest:<branch>:v<number>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from itertools import chain, islice
from typing import Final, TypeVar

from omnigraph.compiler.text import closest
from omnigraph.errors import AmbiguousRefError, NotFoundError
from omnigraph.model.graph import MAIN, Branch, Commit, Snapshot, Tag
from omnigraph.model.limits import COMMIT_PREFIX_CHARS_MIN, REF_CANDIDATES_LISTED_MAX, REF_STEPS_MAX
from omnigraph.model.values import microseconds, moment_text, parse_iso
from omnigraph.storage.store import Store

Ref = str | datetime
At = Ref | int
_Found = TypeVar("_Found")

_COMMIT_ID: Final = re.compile(r"[0-9A-Za-z]{26}")
_PREFIX: Final = re.compile(rf"[0-9A-Za-z]{{{COMMIT_PREFIX_CHARS_MIN},25}}")
_STEP_BACK: Final = re.compile(r"(?P<base>.+)(?P<sign>[~^])(?P<number>\d{0,9})", re.DOTALL)
_MANIFEST_VERSION: Final = re.compile(r"manifest:(?P<branch>.+):v(?P<version>\d+)(?::.*)?")


def snapshot_at(store: Store, at: At, branch: str) -> Snapshot:
    """The graph as the ref names it; moments and bare numbers are those of the branch."""
    if isinstance(at, int):
        return store.manifests.at_version(branch_named(store, branch), at)
    if isinstance(at, str):
        if version := _MANIFEST_VERSION.fullmatch(at):
            owner = branch_named(store, version["branch"])
            return store.manifests.at_version(owner, int(version["version"]))
        if (state := _by_id(store, at, store.manifests.at_commit)) is not None:
            return state
        if (found := store.refs.find(at)) is not None:
            with store.meanwhile(found):
                return store.manifests.head(found)
    return store.manifests.at_commit(commit_at(store, at, branch).graph_commit_id)


def commit_at(store: Store, at: Ref, branch: str) -> Commit:
    """The commit that the ref names, also one whose data cleanup has taken."""
    if isinstance(at, datetime):
        return _at_moment(store, at, branch)
    found = _named(store, at) or _steps_back(store, at, branch) or _by_prefix(store, at)
    if found is not None:
        return found
    moment = parse_iso(at)
    if moment is not None:
        return _at_moment(store, moment, branch)
    if _MANIFEST_VERSION.fullmatch(at):
        return snapshot_at(store, at, branch).head
    return _by_odd_id(store, at)


def branch_named(store: Store, name: str) -> Branch:
    """The branch of that name; `NotFoundError` says what may have been meant."""
    found = store.refs.find(name)
    if found is not None:
        return found
    hint = _meant(name, store.manifests.refs.names())
    if store.manifests.tags.find(name) is not None:
        hint = f"'{name}' is a tag: what it names can be read, not written"
    elif store.manifests.retired.of_name(name) is not None:
        hint = "it was deleted, and `branch restore` brings it back until cleanup takes it"
    raise NotFoundError(f"branch '{name}' not found", kind="branch", name=name, hint=hint)


def parent_named(store: Store, name: str) -> Branch:
    """The branch that a new one is made from; what names an older state is told what to do."""
    try:
        return branch_named(store, name)
    except NotFoundError as cause:
        with suppress(NotFoundError, AmbiguousRefError):
            commit_id = commit_at(store, name, MAIN).graph_commit_id
            cause.advise(
                f"'{name}' names the commit {commit_id}, and a branch is made from the head of a "
                f"branch: make it from one that has the commit, and `revert` on it what came later"
            )
        raise


def tag_named(store: Store, name: str) -> Tag:
    """The tag of that name; `NotFoundError` says what may have been meant."""
    found = store.manifests.tags.find(name)
    if found is None:
        hint = _meant(name, store.manifests.tags.names())
        raise NotFoundError(f"tag '{name}' does not exist", kind="tag", name=name, hint=hint)
    return found


# --- the forms, each: the commit, or None if the text is not of that form ----------------------


def _named(store: Store, text: str) -> Commit | None:
    """By its whole id, or as what a branch or a tag names."""
    if (commit := _by_id(store, text, store.history.commit)) is not None:
        return commit
    branch = store.refs.find(text)
    if branch is not None:
        return store.manifests.head(branch).head
    tag = store.manifests.tags.find(text)
    return None if tag is None else store.history.commit(tag.graph_commit_id)


def _by_id(store: Store, text: str, look: Callable[[str], _Found]) -> _Found | None:
    """What is found by the whole id of a commit; None for what does not look like one, or is a
    name after all."""
    if not _COMMIT_ID.fullmatch(text):
        return None
    try:
        return look(text)
    except NotFoundError as cause:
        named = store.refs.find(text) is not None or store.manifests.tags.find(text) is not None
        if not named or "manifest_version" in cause.facts:  # a commit whose data is gone is one
            raise
        return None


def _steps_back(store: Store, text: str, branch: str) -> Commit | None:
    """`~n` goes back n first parents; `^` is the first parent, `^2` the one that was merged."""
    found = _STEP_BACK.fullmatch(text)
    if found is None or sum(text.count(sign) for sign in "~^") > REF_STEPS_MAX:
        return None
    # One step at a time, from the right: what is left of it may be a name that ends like a step.
    commit = commit_at(store, found["base"], branch)
    number = int(found["number"] or 1)
    back: Commit | None = commit
    if found["sign"] == "~" or number == 1:
        back = next(islice(store.history.line(commit), number, None), None)
    elif number > 1:
        merged = commit.merged_parent_commit_id if number == 2 else None
        back = store.history.commit(merged) if merged is not None else None
    if back is None:
        what = f"commit '{commit.graph_commit_id}' has not so many before it"
        if found["sign"] == "^":
            what = f"commit '{commit.graph_commit_id}' has no parent number {number}"
        raise NotFoundError(f"there is no '{text}': {what}", kind="ref", name=text)
    return back


def _by_prefix(store: Store, text: str) -> Commit | None:
    if not _PREFIX.fullmatch(text):
        return None
    begin = text.upper()
    known = store.history.descent().rows()
    found = sorted(one for one in known if one.upper().startswith(begin))
    if len(found) > 1:
        raise AmbiguousRefError(
            name=text, candidates=found[:REF_CANDIDATES_LISTED_MAX], total=len(found)
        )
    return known[found[0]].commit if found else None


def _at_moment(store: Store, moment: datetime, branch: str) -> Commit:
    cut = microseconds(moment)
    for commit in store.history.commits(branch_named(store, branch)):
        if commit.created_us <= cut:
            return commit
    told = moment_text(moment, timespec="seconds")
    raise NotFoundError(
        f"branch '{branch}' has no commit at or before {told}", kind="commit", name=told
    )


def _by_odd_id(store: Store, text: str) -> Commit:
    """A commit of an older format may have an id that looks like nothing else."""
    try:
        return store.history.commit(text)
    except NotFoundError as cause:
        names = chain(store.manifests.refs.names(), store.manifests.tags.names())
        raise NotFoundError(
            f"'{text}' is neither a branch, a tag nor a commit",
            kind="ref",
            name=text,
            hint=_meant(text, names),
        ) from cause


def _meant(name: str, known: Iterable[str]) -> str | None:
    near = closest(name, known)
    return f"did you mean '{near}'?" if near else None
