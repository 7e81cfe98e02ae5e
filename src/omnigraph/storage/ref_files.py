"""Branch references: one small file per graph branch. Reading them needs nothing but the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import orjson

from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.graph import MAIN, Branch
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.layout import REFS

REF_FORMAT: Final = 1
MAIN_BRANCH: Final = Branch(
    name=MAIN, id=None, parent=None, fork_commit_id=None, created_by=None, created_at=0
)
_FILE_NAME_BYTES_MAX: Final = 200  # file systems stop at 255, and drafts need room too


def ref_key(name: str) -> str:
    """The key of a branch's reference: its name, url-encoded, or a hash where that is too long."""
    encoded = quote(name, safe="").replace(".", "%2E")
    if len(encoded) > _FILE_NAME_BYTES_MAX:
        # "%s" begins no url escape, so no name can be spelled like this.
        encoded = f"%sha256-{hashlib.sha256(name.encode()).hexdigest()}"
    return f"{REFS}/{encoded}.json"


def _encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_ref(branch: Branch) -> bytes:
    """The reference as stored."""
    return orjson.dumps(
        {
            "format_version": REF_FORMAT,
            "name": branch.name,
            "id": branch.id,
            "parent": branch.parent,
            "fork_commit_id": branch.fork_commit_id,
            "created_by": branch.created_by,
            "created_at": branch.created_at,
        },
        option=orjson.OPT_INDENT_2,
    )


def decode_ref(key: str, body: bytes) -> Branch:
    """The branch that a reference names; `CorruptGraphError` if it makes no sense."""
    try:
        facts: dict[str, Any] = orjson.loads(body)
        if facts["format_version"] != REF_FORMAT:
            raise CorruptGraphError(
                f"branch reference '{key}' has unknown format {facts['format_version']}", part=key
            )
        return Branch(
            name=str(facts["name"]),
            id=str(facts["id"]),
            parent=facts["parent"],
            fork_commit_id=facts["fork_commit_id"],
            created_by=facts["created_by"],
            created_at=int(facts["created_at"]),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as cause:
        raise CorruptGraphError(
            f"branch reference '{key}' is unreadable: {cause!r}", part=key
        ) from cause


class RefFiles:
    """The references below a graph root.

    `inherited` gives the branches of a graph so old that it has no references yet.
    """

    def __init__(self, store: ObjectStore, inherited: Callable[[], Mapping[str, Branch]]) -> None:
        self._store = store
        self._inherited = inherited

    def get(self, name: str) -> Branch:
        """The branch of that name; `NotFoundError` if there is none."""
        branch = self.find(name)
        if branch is None:
            raise NotFoundError(f"branch '{name}' does not exist", kind="branch", name=name)
        return branch

    def find(self, name: str) -> Branch | None:
        """The branch of that name, or None."""
        if name == MAIN:
            return MAIN_BRANCH
        if not name or not _encodable(name):
            return None
        key = ref_key(name)
        found = self._store.read(key)
        return decode_ref(key, found.body) if found is not None else self._inherited().get(name)

    def all(self) -> Iterator[Branch]:
        """Main, then every other branch."""
        yield MAIN_BRANCH
        yield from self.others()

    def others(self) -> Iterator[Branch]:
        """Every branch but main, in no order that means anything."""
        inherited = dict(self._inherited())
        for key in self._store.list_keys(REFS):
            found = self._store.read(key) if key.endswith(".json") else None
            if found is not None:  # it may have been deleted since the listing
                branch = decode_ref(key, found.body)
                inherited.pop(branch.name, None)
                yield branch
        yield from inherited.values()

    def of_id(self, branch_id: str | None) -> Branch | None:
        """The live branch that carries the id, or None."""
        if branch_id is None:
            return MAIN_BRANCH
        return next((branch for branch in self.others() if branch.id == branch_id), None)
