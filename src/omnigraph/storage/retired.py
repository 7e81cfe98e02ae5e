"""What stays of deleted branches: enough for the merges of those that live on.

A live branch that merged a deleted one still contains its commits. Two things may be needed of
them. *Who descends from whom*: the parents of such commits are written down in one small object
when their branch goes. And *what the graph was*, if the commit is a base of a merge that two live
branches may still make: then the branch is retired. Its name is free and nobody sees it, but its
manifest and the tables' lines stay until `cleanup` finds that no such pair is left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from omnigraph.errors import CorruptGraphError, StorageUnavailableError
from omnigraph.model.graph import Branch
from omnigraph.model.limits import DESCENT_WRITES_MAX
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.layout import DESCENT, RETIRED
from omnigraph.storage.ref_files import decode_ref, encode_ref

logger = logging.getLogger(__name__)

DESCENT_FORMAT: Final = 1
Kept = Mapping[str, tuple[str, ...]]  # parents by commit


class RetiredFiles:
    """References of retired branches, and the parents of commits that have no manifest any more."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._seen: tuple[str | None, Kept] | None = None  # as of the last look

    # --- retired branches --------------------------------------------------------------------

    def branches(self) -> Iterator[Branch]:
        """Every retired branch. Of one whose reference is unreadable the id is left, which is all
        that is needed to find its commits."""
        for key in self._store.list_keys(RETIRED):
            found = self._store.read(key)
            if found is None:
                continue  # ended since the listing
            try:
                branch = decode_ref(key, found.body)
            except CorruptGraphError as cause:
                logger.warning("unreadable retired branch", extra={"why": cause.message})
                branch = _nameless(key.rsplit("/", 1)[-1].removesuffix(".json"))
            if key == _retired_key(branch.id):
                yield branch

    def of_id(self, branch_id: str | None) -> Branch | None:
        """The retired branch that carried the id, or None."""
        return next((branch for branch in self.branches() if branch.id == branch_id), None)

    def of_name(self, name: str) -> Branch | None:
        """A retired branch that had the name, or None."""
        return next((branch for branch in self.branches() if branch.name == name), None)

    def retire(self, branch: Branch) -> None:
        """Remember a branch that is about to be deleted."""
        assert branch.id is not None, "main stays"
        self._store.put_if_absent(_retired_key(branch.id), encode_ref(branch))

    def end(self, branch_id: str) -> None:
        """Forget a retired branch: its lines are orphans from here on."""
        self._store.delete(_retired_key(branch_id))

    # --- parents of forgotten commits --------------------------------------------------------

    def descent(self) -> Kept:
        """The parents that were written down, looked up again if they changed."""
        found = self._store.read(DESCENT)
        if found is None:
            return {}
        if self._seen is None or found.tag is None or self._seen[0] != found.tag:
            self._seen = (found.tag, _decode(found.body))
        return self._seen[1]

    def change_descent(self, change: Callable[[Kept], Kept]) -> None:
        """Replace what is written down by what the function makes of it.

        Deletions and a cleanup may do so at once, so it is tried again if another was faster.
        """
        for _ in range(DESCENT_WRITES_MAX):
            found = self._store.read(DESCENT)
            before = {} if found is None else _decode(found.body)
            after = change(before)
            if after == before or self._replace(found, _encode(after)):
                return
        raise StorageUnavailableError(
            f"'{DESCENT}' was changed by others {DESCENT_WRITES_MAX} times in a row", uri=DESCENT
        )

    def _replace(self, found: Any, body: bytes) -> bool:
        if found is None:
            return self._store.put_if_absent(DESCENT, body)
        assert found.tag is not None, "every store that we write to has tags"
        return self._store.put_if_match(DESCENT, body, tag=found.tag)


def _retired_key(branch_id: str | None) -> str:
    return f"{RETIRED}/{branch_id}.json"


def _nameless(branch_id: str) -> Branch:
    return Branch(
        name=branch_id,
        id=branch_id,
        parent=None,
        fork_commit_id=None,
        created_by=None,
        created_at=0,
    )


def _encode(kept: Kept) -> bytes:
    parents = {commit_id: list(kept[commit_id]) for commit_id in sorted(kept)}
    return orjson.dumps({"format_version": DESCENT_FORMAT, "parents": parents})


def _decode(body: bytes) -> Kept:
    try:
        facts = orjson.loads(body)
        known, listed = facts["format_version"] == DESCENT_FORMAT, facts["parents"].items()
        kept = {str(one): tuple(str(parent) for parent in parents) for one, parents in listed}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as cause:
        raise _unreadable(repr(cause)) from cause
    if not known:
        raise _unreadable(f"it has unknown format {facts['format_version']}")
    return kept


def _unreadable(reason: str) -> CorruptGraphError:
    return CorruptGraphError(
        f"the record of merged and deleted branches '{DESCENT}' is unreadable: {reason}",
        part=DESCENT,
    )
