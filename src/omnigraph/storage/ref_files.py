"""Branch references: one small file per graph branch. Reading them needs nothing but the store."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

import orjson

from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.graph import MAIN, Branch
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.layout import REFS, is_id

logger = logging.getLogger(__name__)

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
        branch = Branch(
            name=str(facts["name"]),
            id=facts["id"],
            parent=facts["parent"],
            fork_commit_id=facts["fork_commit_id"],
            created_by=facts["created_by"],
            created_at=int(facts["created_at"]),
        )
        _check(key, branch, form=facts["format_version"])
    except (KeyError, TypeError, ValueError, UnicodeError) as cause:
        name = name_of(key)
        raise CorruptGraphError(
            f"the reference of branch '{name}' cannot be read: {cause}",
            hint=f"put '{key}' back from a copy, or `omnigraph branch delete {name} --force`",
            part=key,
            branch=name,
            reason=str(cause),
        ) from cause
    return branch


def _check(key: str, branch: Branch, *, form: object) -> None:
    """Raise ValueError for a reference that must not be followed."""
    if form != REF_FORMAT:
        raise ValueError(f"unknown format {form!r}")
    # The id becomes a path, and the name must lead back to this very file.
    if not is_id(branch.id):
        raise ValueError(f"{branch.id!r} is no id of a branch")
    if key.startswith(f"{REFS}/") and ref_key(branch.name) != key:
        raise ValueError(f"it names another branch, {branch.name!r}")
    if branch.parent is not None and not isinstance(branch.parent, str):
        raise ValueError(f"{branch.parent!r} is no name of a branch")
    if branch.parent == branch.name:
        raise ValueError("it names itself as its parent")


def name_of(key: str) -> str:
    """The name of the branch as its file is called: all that an unreadable reference tells."""
    return unquote(key.rsplit("/", 1)[-1].removesuffix(".json"))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRef:
    """A reference that cannot be understood. The branch is there, but its id is not known."""

    name: str
    key: str
    problem: str

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "part": self.key, "problem": self.problem}


class RefFiles:
    """The references below a graph root.

    `inherited` gives the branches of a graph of an older format, and None for one of ours. What
    references an old one has belong to a migration that did not come to its end: they do not count.
    """

    def __init__(
        self, store: ObjectStore, inherited: Callable[[], Mapping[str, Branch] | None]
    ) -> None:
        self._store = store
        self._inherited = inherited
        self._warned: set[str] = set()

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
        # Without the reference it may be a branch of an older format. If that cannot be found out,
        # nobody may say that there is no such branch.
        inherited = self._of_old_graph([key] if found is not None else [])
        if inherited is not None:
            return inherited.get(name)
        return decode_ref(key, found.body) if found is not None else None

    def all(self) -> Iterator[Branch]:
        """Main, then every other branch."""
        yield MAIN_BRANCH
        yield from self.others()

    def others(self) -> Iterator[Branch]:
        """Every branch but main that can be read, in no order that means anything.

        An unreadable reference never hides the others; `unreadable` tells which there are.
        """
        yield from (ref for ref in self._stored() if isinstance(ref, Branch))

    def unreadable(self) -> list[UnreadableRef]:
        """The references that make no sense, by name."""
        found = [ref for ref in self._stored() if isinstance(ref, UnreadableRef)]
        return sorted(found, key=lambda ref: ref.name)

    def remove_unreadable(self, name: str) -> bool:
        """Delete the reference of that name if it cannot be read; False if it can, or is gone."""
        if not name or name == MAIN or not _encodable(name):
            return False
        key = ref_key(name)
        found = self._store.read(key)
        if found is None or isinstance(self._decoded(key, found.body), Branch):
            return False
        return self._store.delete(key)

    def _stored(self) -> Iterator[Branch | UnreadableRef]:
        keys = [key for key in self._store.list_keys(REFS) if key.endswith(".json")]
        inherited = self._of_old_graph(keys)
        if inherited is not None:
            yield from inherited.values()
            return
        for key in keys:
            found = self._store.read(key)
            if found is not None:  # it may have been deleted since the listing
                yield self._decoded(key, found.body)

    def _of_old_graph(self, keys: Sequence[str]) -> Mapping[str, Branch] | None:
        """The branches of a graph of an older format; None for one of ours."""
        try:
            return self._inherited()
        except CorruptGraphError:
            # Main cannot be read. A graph that has references has no other branches than those.
            if not keys:
                raise
            return None

    def of_id(self, branch_id: str | None) -> Branch | None:
        """The live branch that carries the id, or None."""
        if branch_id is None:
            return MAIN_BRANCH
        return next((branch for branch in self.others() if branch.id == branch_id), None)

    def _decoded(self, key: str, body: bytes) -> Branch | UnreadableRef:
        try:
            return decode_ref(key, body)
        except CorruptGraphError as cause:
            if key not in self._warned:
                self._warned.add(key)
                logger.warning("%s", cause.message)
            return UnreadableRef(name=name_of(key), key=key, problem=cause.facts["reason"])
