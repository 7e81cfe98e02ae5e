"""The sidecar: what a writer means to do, on disk before it does it.

A sidecar exists from step A (arm) to step D (disarm) of a write. Finding one under the branch's
lease means that its writer died; `recovery.py` decides what to do about it.

The fields below are the file's format, under the names that the file has for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import orjson

from omnigraph.model.graph import (
    Changeset,
    Expectation,
    Lineage,
    Registration,
    SchemaRecord,
    TableUpdate,
    Tombstone,
    WriterKind,
)
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.objects.root import RECOVERY, is_id, is_line, is_location

SIDECAR_VERSION = 10


def _require(holds: bool, problem: str) -> None:  # noqa: FBT001 - a condition, like an assert's
    # Not an assertion: the file comes from outside, so a lie in it is a value error, not a defect.
    if not holds:
        raise ValueError(problem)


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One table commit that belongs to the write, recognisable by its transaction uuid."""

    table_key: str
    location: str = msgspec.field(name="table_path")
    branch: str | None = msgspec.field(name="table_branch")
    expected_version: int
    version_to_be: int = msgspec.field(name="post_commit_pin")
    transaction_uuid: str
    row_count: int

    def __post_init__(self) -> None:
        # What a sidecar names becomes a path to restore or to fence: it is checked, not trusted.
        _require(is_location(self.location), f"{self.location!r} is no place of a table")
        _require(is_line(self.branch), f"{self.branch!r} is no branch of a table")
        # Recovery compares versions: one that does not grow would make it undo somebody else's.
        _require(
            self.version_to_be > self.expected_version >= 0,
            f"version {self.version_to_be} cannot follow {self.expected_version}",
        )


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """Everything recovery needs to finish or undo one write."""

    operation_id: str
    created_at: int = msgspec.field(name="started_at")
    writer_kind: WriterKind
    actor_id: str | None
    graph_branch: str = msgspec.field(name="branch")
    branch_id: str | None
    graph_commit_id: str
    rollback_commit_id: str
    parent_commit_id: str
    merged_parent_commit_id: str | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    effects: tuple[Effect, ...] = msgspec.field(name="tables")
    repoints: tuple[TableUpdate, ...] = ()
    registrations: tuple[Registration, ...] = msgspec.field(
        name="additional_registrations", default=()
    )
    tombstones: tuple[Tombstone, ...] = ()
    schema: SchemaRecord | None = None

    def __post_init__(self) -> None:
        # The operation and the branch become the names of a file and of a lock.
        _require(is_id(self.operation_id), f"{self.operation_id!r} is no operation id")
        known = self.branch_id is None or is_id(self.branch_id)
        _require(known, f"{self.branch_id!r} is no id of a branch")
        for told in (
            self.graph_branch,
            self.graph_commit_id,
            self.rollback_commit_id,
            self.parent_commit_id,
        ):
            _require(bool(told), "an id or a name is empty")
        # Two commits of one id could not be told apart: which of them landed decides everything.
        ids = {self.graph_commit_id, self.rollback_commit_id, self.parent_commit_id}
        _require(len(ids) == 3, "the commit, its undoing and its parent are one")
        for update in self.repoints:
            _require(is_line(update.branch), f"{update.branch!r} is no branch of a table")
        for new in self.registrations:
            _require(is_location(new.location), f"{new.location!r} is no place of a table")

    @property
    def problem(self) -> str | None:
        """A readable sidecar has none; see `UnreadableSidecar`."""
        return None

    def changeset(
        self,
        updates: tuple[TableUpdate, ...],
        *,
        actor_id: str | None,
        expects: tuple[Expectation, ...],
    ) -> Changeset:
        """The publish that the writer meant to make, with the versions its tables reached."""
        return Changeset(
            updates=(*updates, *self.repoints),
            registrations=self.registrations,
            tombstones=self.tombstones,
            schema=self.schema,
            lineage=Lineage(
                commit_id=self.graph_commit_id,
                actor_id=actor_id,
                created_at=self.created_at,
                merged_parent_commit_id=self.merged_parent_commit_id,
                properties=self.properties,
            ),
            expects=expects,
        )

    def to_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = msgspec.to_builtins(self)
        return {"schema_version": SIDECAR_VERSION, **facts, "started_at": str(self.created_at)}


class UnreadableSidecar(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the recovery folder that we cannot understand; it is named, kept and reported."""

    operation_id: str
    problem: str
    body: bytes

    def to_json(self) -> dict[str, Any]:
        return {
            "operation_id": self.operation_id,
            "problem": self.problem,
            "body": self.body.decode("utf-8", "replace"),
        }


def encode(sidecar: Sidecar) -> bytes:
    return orjson.dumps(sidecar.to_json(), option=orjson.OPT_INDENT_2)


def decode(operation_id: str, body: bytes) -> Sidecar | UnreadableSidecar:
    """Read a sidecar; whatever is wrong with it comes back as a value, never as an exception."""
    try:
        data = orjson.loads(body)
        # The version first: what a newer release means by a field is not ours to guess.
        if (version := data["schema_version"]) != SIDECAR_VERSION:
            problem = f"unknown sidecar schema_version {version!r}"
        else:
            # Not strict, because the file says when the write began in text.
            sidecar = msgspec.convert(data, Sidecar, strict=False)
            if sidecar.operation_id == operation_id:
                return sidecar
            # A copied or renamed file would be settled under one id and disarmed under another.
            problem = f"names another operation, {sidecar.operation_id!r}"
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as cause:
        problem = f"not a sidecar: {type(cause).__name__}: {cause}"
    return UnreadableSidecar(operation_id=operation_id, problem=problem, body=body)


class Sidecars:
    """The recovery folder of one graph; empty in the steady state."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def arm(self, sidecar: Sidecar) -> None:
        body = encode(sidecar)
        # What we cannot read back nobody can finish: better no write than a stuck one.
        assert decode(sidecar.operation_id, body) == sidecar, "a sidecar survives the disk"
        # If absent: two writers of one id could undo each other's tables.
        made = self._store.put_if_absent(_key(sidecar.operation_id), body)
        assert made, "operation ids are never reused"

    def disarm(self, operation_id: str) -> bool:
        """True if the file was there."""
        return self._store.delete(_key(operation_id))

    def operation_ids(self) -> tuple[str, ...]:
        """In the order of their making: ULIDs sort by time. Other files are none of ours."""
        # One listing without reading: in the steady state this is all that a write pays.
        keys = self._store.list_keys(RECOVERY)
        names = (key.rsplit("/", 1)[-1] for key in keys)
        return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))

    def read(self, operation_id: str) -> Sidecar | UnreadableSidecar | None:
        """None = gone, so somebody else dealt with it."""
        stored = self._store.read(_key(operation_id))
        return None if stored is None else decode(operation_id, stored.body)

    def follows(self, branch_id: str | None, commit_id: str) -> bool:
        """Whether an unfinished write of the branch means to come right after the commit."""
        return any(
            isinstance(sidecar, Sidecar)
            and sidecar.branch_id == branch_id
            and sidecar.parent_commit_id == commit_id
            for sidecar in self.pending()
        )

    def pending(self) -> Iterator[Sidecar | UnreadableSidecar]:
        """Those that are there when their turn comes, oldest first."""
        found = (self.read(operation_id) for operation_id in self.operation_ids())
        return (sidecar for sidecar in found if sidecar is not None)


def _key(operation_id: str) -> str:
    return f"{RECOVERY}/{operation_id}.json"
