"""Lance branches of tables: made on the first write of a graph branch, dropped with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from omnigraph.errors import AlreadyExistsError, CorruptGraphError, NotFoundError
from omnigraph.model.graph import TableEntry
from omnigraph.storage.faults import steadily, translated
from omnigraph.storage.handles import Handles
from omnigraph.storage.layout import branch_folder

_PARTS: Final = ("_versions", "_transactions", "_deletions", "_indices", "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A branch of a table. One without a reference was left behind half made or half dropped."""

    parent: str | None = None
    parent_version: int | None = None
    created_at: int | None = None  # microseconds; None = it has no reference


class Forks:
    """Makes and drops branches so that both can be repeated after a crash."""

    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._store = handles.store

    def fork(
        self, location: str, *, source_branch: str | None, version: int, branch_id: str
    ) -> None:
        """Have a branch that starts at (source_branch, version).

        A fork that is there already and has not moved is fine. One that moved raises
        AlreadyExistsError: the caller knows whether anybody refers to it.
        """
        # Lance locks the handle meanwhile, and others are reading through the shared one.
        source = self._handles.unshared(location, source_branch, version)
        uri = self._handles.uri(location, branch_id)
        with translated(uri, doing="fork table"):
            try:
                source.create_branch(branch_id)
            except OSError:
                # Lance has one message for a branch that exists and for a half-made one.
                known = self._base(location, branch_id)
                if known is None:
                    if not self._sweep_orphan(location, branch_id):
                        raise
                    source.create_branch(branch_id)
                else:
                    self._require_untouched(location, branch_id, known, (source_branch, version))
        self._flush(location, branch_id)

    def descends(self, newer: TableEntry, older: TableEntry) -> bool:
        """Whether the walk from the newer pin down its forks meets the older one."""
        line, version = newer.branch, newer.version
        while line != older.branch:
            if line is None:
                return False
            base = self._base(newer.location, line)
            if base is None:
                return False
            line, version = base
        return older.version <= version

    def drop(self, location: str, branch_id: str) -> bool:
        """Remove a branch and all that only it holds; False if there was nothing."""
        self._handles.forget(location, branch_id)
        try:
            trunk = self._handles.whole_head(location, None)
        except NotFoundError:
            return self._sweep_orphan(location, branch_id)
        known = self._base(location, branch_id) is not None
        with translated(self._handles.uri(location, branch_id), doing="drop branch of table"):
            if known:
                steadily(lambda: trunk.branches.delete(branch_id))
        return self._sweep_orphan(location, branch_id) or known

    def names(self, location: str) -> list[str]:
        """Every branch that has a ref or files, also half-made ones."""
        trunk = self._handles.whole_head(location, None)
        with translated(self._handles.uri(location, None), doing="list branches of table"):
            known = set(steadily(trunk.branches.list))
        return sorted(known | self._stored(location))

    def lines(self, location: str) -> dict[str, Line]:
        """Every branch that has a ref or files, with what its ref says."""
        refs = self._store.list_keys(f"{location}/_refs/branches")
        named = {unquote(key.rsplit("/", 1)[-1].removesuffix(".json")) for key in refs}
        every = sorted(self._stored(location) | named)
        return {name: self._line(location, name) for name in every}

    def _stored(self, location: str) -> set[str]:
        """Every branch that has files."""
        prefix = f"{location}/tree/"
        keys = self._store.list_keys(prefix.rstrip("/"))
        return {_owner(key.removeprefix(prefix)) for key in keys}

    def _line(self, location: str, branch_id: str) -> Line:
        found = self._reference(location, branch_id)
        if found is None:
            return Line()
        return Line(
            parent=found["parentBranch"],
            parent_version=int(found["parentVersion"]),
            created_at=int(found["createAt"]) * 1_000_000,
        )

    def _require_untouched(
        self,
        location: str,
        branch_id: str,
        found: tuple[str | None, int],
        wanted: tuple[str | None, int],
    ) -> None:
        try:
            head = int(self._handles.head(location, branch_id).version)
        except CorruptGraphError:
            head = None  # half a line of a power cut, or a damaged one: nothing to go on from
        if found != wanted or head != wanted[1]:
            raise AlreadyExistsError(
                f"branch '{branch_id}' of table '{location}' is there with other content",
                kind="table-branch",
                name=branch_id,
            )

    def _base(self, location: str, branch_id: str) -> tuple[str | None, int] | None:
        """The line and version that a branch was made from; None if there is no such branch.

        Read from Lance's own reference file: asking Lance means reading those of all branches.
        """
        found = self._reference(location, branch_id)
        return None if found is None else (found["parentBranch"], int(found["parentVersion"]))

    def _reference(self, location: str, branch_id: str) -> dict[str, Any] | None:
        key = _reference_key(location, branch_id)
        found = self._store.read(key)
        if found is None:
            return None
        try:
            body = json.loads(found.body)
            return {name: body[name] for name in ("parentBranch", "parentVersion", "createAt")}
        except (ValueError, KeyError, TypeError) as cause:
            raise CorruptGraphError(
                f"the branch reference '{key}' cannot be read", part=key
            ) from cause

    def _sweep_orphan(self, location: str, branch_id: str) -> bool:
        """Delete the files of a branch without a ref; Lance can neither list nor delete them."""
        self._handles.forget(location, branch_id)
        folder = branch_folder(location, branch_id)
        if any(name.startswith(f"{branch_id}/") for name in self._stored(location)):
            # Lines of migrated graphs nest: the folder of `a` holds the folder of `a/b`.
            return sum(self._store.delete_prefix(f"{folder}/{part}") for part in _PARTS) > 0
        return self._store.delete_prefix(folder) > 0

    def _flush(self, location: str, branch_id: str) -> None:
        flusher = self._handles.flusher
        if flusher.active:
            flusher.flush_tree(self._handles.uri(location, branch_id))
            flusher.flush([self._handles.root.child(_reference_key(location, branch_id))])


def _reference_key(location: str, branch_id: str) -> str:
    return f"{location}/_refs/branches/{quote(branch_id, safe='')}.json"


def _owner(path: str) -> str:
    """The branch that a file below `tree/` belongs to. Ids of ours are one word; the branches of a
    migrated graph have the names that users gave them, `a` and `a/b` at once."""
    parts = path.split("/")
    end = next((at for at, part in enumerate(parts) if at and part in _PARTS), 1)
    return "/".join(parts[:end])
