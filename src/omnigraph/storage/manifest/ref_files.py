"""The small files of branches: references of live ones, and what stays of deleted ones.

Reading them needs nothing but the store.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
import orjson
from msgspec.structs import asdict, replace

from omnigraph.errors import CorruptGraphError, NotFoundError, StorageUnavailableError
from omnigraph.model.graph import MAIN, Branch, Commit
from omnigraph.model.limits import DESCENT_WRITES_MAX
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.objects.root import DESCENT, REFS, RETIRED, is_id

logger = logging.getLogger(__name__)

REF_FORMAT: Final = 1
DESCENT_FORMAT: Final = 1
Kept = Mapping[str, tuple[str, ...]]  # parents by commit
MAIN_BRANCH: Final = Branch(
    name=MAIN, id=None, parent=None, fork_commit_id=None, created_by=None, created_at=0
)
_FILE_NAME_BYTES_MAX: Final = 200  # file systems stop at 255, and drafts need room too


def ref_key(name: str, *, folder: str = REFS) -> str:
    """The key of a branch's or tag's reference: its name, url-encoded, or a hash where that is too
    long."""
    encoded = quote(name, safe="").replace(".", "%2E")
    if len(encoded) > _FILE_NAME_BYTES_MAX:
        # "%s" begins no url escape, so no name can be spelled like this.
        encoded = f"%sha256-{hashlib.sha256(name.encode()).hexdigest()}"
    return f"{folder}/{encoded}.json"


def encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_ref(branch: Branch, **more: Any) -> bytes:
    """The reference as stored: a format and the fields of `Branch`, in their order."""
    facts = {"format_version": REF_FORMAT, **asdict(branch), **more}
    return orjson.dumps(facts, option=orjson.OPT_INDENT_2)


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


class UnreadableRef(msgspec.Struct, frozen=True, kw_only=True):
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
            raise NotFoundError(f"branch '{name}' not found", kind="branch", name=name)
        return branch

    def find(self, name: str) -> Branch | None:
        """The branch of that name, or None."""
        if name == MAIN:
            return MAIN_BRANCH
        if not name or not encodable(name):
            return None
        key = ref_key(name)
        found = self._store.read(key)
        # Without the reference it may be a branch of an older format. If that cannot be found out,
        # nobody may say that there is no such branch.
        inherited = self._of_old_graph([key] if found is not None else [])
        if inherited is not None:
            return inherited.get(name)
        return decode_ref(key, found.body) if found is not None else None

    def names(self) -> list[str]:
        """What the branches are called, readable or not, as far as their files tell it."""
        keys = [key for key in self._store.list_keys(REFS) if key.endswith(".json")]
        inherited = self._of_old_graph(keys)
        return [MAIN, *(inherited if inherited is not None else map(name_of, keys))]

    def is_alive(self, branch: Branch) -> bool:
        """Whether the branch is there, and not another that has its name by now."""
        living = self.find(branch.name)
        return living is not None and living.id == branch.id

    def all(self) -> Iterator[Branch]:
        """Main, then every other branch."""
        yield MAIN_BRANCH
        yield from self.others()

    def others(self) -> Iterator[Branch]:
        """Every branch but main that can be read, in no order that means anything.

        An unreadable reference never hides the others; `look` tells which there are.
        """
        yield from (ref for ref in self._stored() if isinstance(ref, Branch))

    def look(self) -> tuple[list[Branch], list[UnreadableRef]]:
        """Those that can be read and those that make no sense, by one reading."""
        found = [*self._stored()]
        branches = [ref for ref in found if isinstance(ref, Branch)]
        return branches, [ref for ref in found if isinstance(ref, UnreadableRef)]

    def remove_unreadable(self, name: str) -> bool:
        """Delete the reference of that name if it cannot be read; False if it can, or is gone."""
        if not name or name == MAIN or not encodable(name):
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


# --- what stays of deleted branches ----------------------------------------------------------
#
# A live branch that merged a deleted one still contains its commits. Two things may be needed of
# them. *Who descends from whom*: such commits are written down with their parents in one small
# object when their branch goes. And *what the graph was*, if the commit is a base of a merge that
# two live branches may still make: then the branch is retired. Its name is free and nobody sees it,
# but its manifest and the tables' lines stay until `cleanup` finds that no such pair is left.


class Retirement(msgspec.Struct, frozen=True, kw_only=True):
    """When a branch was deleted, and by whom, as far as that is known."""

    deleted_at: int | None = None
    deleted_by: str | None = None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What is written down of commits that have no manifest any more. Of some only the parents."""

    parents: Kept = msgspec.field(default_factory=dict)
    commits: Mapping[str, Commit] = msgspec.field(default_factory=dict)


class RetiredFiles:
    """References of retired branches, and the commits that have no manifest any more."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._seen: tuple[str | None, Written] | None = None  # as of the last look

    # --- retired branches --------------------------------------------------------------------

    def branches(self) -> Iterator[Branch]:
        """Every retired branch. Of one whose reference is unreadable the id is left, which is all
        that is needed to find its commits."""
        found = map(self._at, self._store.list_keys(RETIRED))
        yield from (branch for branch in found if branch is not None)

    def _at(self, key: str) -> Branch | None:
        found = self._store.read(key)
        if found is None:
            return None  # ended since it was listed
        try:
            branch = decode_ref(key, found.body)
        except CorruptGraphError as cause:
            logger.warning("unreadable retired branch", extra={"why": cause.message})
            branch_id = key.rsplit("/", 1)[-1].removesuffix(".json")
            branch = replace(MAIN_BRANCH, name=branch_id, id=branch_id)
        return branch if key == _retired_key(branch.id) else None

    def of_id(self, branch_id: str | None) -> Branch | None:
        """The retired branch that carried the id, or None."""
        return None if branch_id is None else self._at(_retired_key(branch_id))

    def of_name(self, name: str) -> Branch | None:
        """A retired branch that had the name, or None."""
        return next((branch for branch in self.branches() if branch.name == name), None)

    def retirement(self, branch: Branch) -> Retirement | None:
        """When the branch was deleted, and by whom; None if it is not retired."""
        found = self._store.read(_retired_key(branch.id))
        if found is None:
            return None
        try:
            return msgspec.json.decode(found.body, type=Retirement)
        except msgspec.MsgspecError:
            return Retirement()

    def retire(self, branch: Branch, *, at_us: int, by: str | None) -> None:
        """Remember a branch that is about to be deleted."""
        assert branch.id is not None, "main stays"
        key = _retired_key(branch.id)
        # A deletion that did not come to its end may have left one; the moment of this one counts.
        self._store.delete(key)
        self._store.put_if_absent(key, encode_ref(branch, deleted_at=at_us, deleted_by=by))

    def end(self, branch_id: str) -> None:
        """Forget a retired branch: its lines are orphans from here on."""
        self._store.delete(_retired_key(branch_id))

    # --- commits of forgotten branches -------------------------------------------------------

    def descent(self) -> Kept:
        """The parents that were written down."""
        return self._written().parents

    def commits(self) -> Mapping[str, Commit]:
        """The commits that were written down, by id."""
        return self._written().commits

    def _written(self) -> Written:
        """What is written down, looked up again if it changed."""
        found = self._store.read(DESCENT)
        if found is None:
            return Written()
        if self._seen is None or found.tag is None or self._seen[0] != found.tag:
            self._seen = (found.tag, _decode_descent(found.body))
        return self._seen[1]

    def change_descent(self, change: Callable[[Kept], Kept], commits: Mapping[str, Commit]) -> None:
        """Replace the parents that are written down by what the function makes of them, and write
        down these commits too, as far as their parents are.

        Deletions and a cleanup may do so at once, so it is tried again if another was faster.
        """
        for _ in range(DESCENT_WRITES_MAX):
            found = self._store.read(DESCENT)
            before = Written() if found is None else _decode_descent(found.body)
            parents = change(before.parents)
            known = {**before.commits, **commits}
            after = Written(
                parents=parents, commits={one: known[one] for one in known.keys() & parents.keys()}
            )
            if after == before:
                return
            body = _encode_descent(after)
            if found is None:
                done = self._store.put_if_absent(DESCENT, body)
            else:
                assert found.tag is not None, "every store that we write to has tags"
                done = self._store.put_if_match(DESCENT, body, tag=found.tag)
            if done:
                return
        raise StorageUnavailableError(
            f"'{DESCENT}' was changed by others {DESCENT_WRITES_MAX} times in a row", uri=DESCENT
        )


def _retired_key(branch_id: str | None) -> str:
    return f"{RETIRED}/{branch_id}.json"


def _encode_descent(written: Written) -> bytes:
    # The commits came later, and whoever does not know them loses nothing but their facts.
    facts = {"format_version": DESCENT_FORMAT, **msgspec.to_builtins(written)}
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)


def _decode_descent(body: bytes) -> Written:
    try:
        facts = orjson.loads(body)
        known = facts["format_version"] == DESCENT_FORMAT
        told = {"parents": facts["parents"], "commits": facts.get("commits", {})}
        written = msgspec.convert(told, Written)
    except (orjson.JSONDecodeError, KeyError, TypeError, msgspec.ValidationError) as cause:
        raise _unreadable(repr(cause)) from cause
    if not known:
        raise _unreadable(f"it has unknown format {facts['format_version']}")
    return written


def _unreadable(reason: str) -> CorruptGraphError:
    return CorruptGraphError(
        f"the record of merged and deleted branches '{DESCENT}' is unreadable: {reason}",
        part=DESCENT,
    )
