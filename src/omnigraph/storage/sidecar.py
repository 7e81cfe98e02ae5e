"""The sidecar: what a writer means to do, on disk before it does it.

A sidecar exists from step A (arm) to step D (disarm) of a write. Finding one under the branch's
lease means that its writer died; `recovery.py` decides what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from omnigraph.model.changeset import (
    Changeset,
    Expectation,
    Lineage,
    Registration,
    TableUpdate,
    Tombstone,
    WriterKind,
)
from omnigraph.model.graph import SchemaRecord
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.layout import RECOVERY, is_id, is_line, is_location

SIDECAR_VERSION = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One table commit that belongs to the write, recognisable by its transaction uuid."""

    table_key: str
    location: str
    branch: str | None
    expected_version: int
    version_to_be: int
    transaction_uuid: str
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """Everything recovery needs to finish or undo one write."""

    operation_id: str
    writer_kind: WriterKind
    actor_id: str | None
    graph_branch: str
    branch_id: str | None
    graph_commit_id: str
    rollback_commit_id: str
    parent_commit_id: str
    created_at: int
    effects: tuple[Effect, ...]
    repoints: tuple[TableUpdate, ...] = ()
    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    schema: SchemaRecord | None = None
    merged_parent_commit_id: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

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
        return {
            "schema_version": SIDECAR_VERSION,
            "operation_id": self.operation_id,
            "started_at": str(self.created_at),
            "writer_kind": self.writer_kind.value,
            "actor_id": self.actor_id,
            "branch": self.graph_branch,
            "branch_id": self.branch_id,
            "graph_commit_id": self.graph_commit_id,
            "rollback_commit_id": self.rollback_commit_id,
            "parent_commit_id": self.parent_commit_id,
            "merged_parent_commit_id": self.merged_parent_commit_id,
            "properties": dict(self.properties),
            "tables": [
                {
                    "table_key": effect.table_key,
                    "table_path": effect.location,
                    "table_branch": effect.branch,
                    "expected_version": effect.expected_version,
                    "post_commit_pin": effect.version_to_be,
                    "transaction_uuid": effect.transaction_uuid,
                    "row_count": effect.row_count,
                }
                for effect in self.effects
            ],
            "repoints": [_update_json(update) for update in self.repoints],
            "additional_registrations": [
                {"table_key": item.table_key, "table_path": item.location}
                for item in self.registrations
            ],
            "tombstones": [
                {"table_key": item.table_key, "tombstone_version": item.version}
                for item in self.tombstones
            ],
            "schema": None
            if self.schema is None
            else {"source": self.schema.source, "ir": self.schema.ir, "hash": self.schema.hash},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableSidecar:
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
        version = data["schema_version"]
        if version != SIDECAR_VERSION:
            problem = f"unknown sidecar schema_version {version!r}"
            return UnreadableSidecar(operation_id=operation_id, problem=problem, body=body)
        sidecar = _from_json(data)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as cause:
        problem = f"not a sidecar: {type(cause).__name__}: {cause}"
        return UnreadableSidecar(operation_id=operation_id, problem=problem, body=body)
    if sidecar.operation_id != operation_id:
        problem = f"names another operation, {sidecar.operation_id!r}"
        return UnreadableSidecar(operation_id=operation_id, problem=problem, body=body)
    return sidecar


def _from_json(data: Mapping[str, Any]) -> Sidecar:
    schema = data["schema"]
    return Sidecar(
        operation_id=_operation_id(data["operation_id"]),
        writer_kind=WriterKind(data["writer_kind"]),
        actor_id=data["actor_id"],
        graph_branch=_text(data["branch"]),
        branch_id=_branch_id(data["branch_id"]),
        graph_commit_id=_text(data["graph_commit_id"]),
        rollback_commit_id=_text(data["rollback_commit_id"]),
        parent_commit_id=_text(data["parent_commit_id"]),
        created_at=int(data["started_at"]),
        effects=tuple(_effect(item) for item in data["tables"]),
        repoints=tuple(_update(item) for item in data["repoints"]),
        registrations=tuple(
            Registration(table_key=_text(item["table_key"]), location=_location(item["table_path"]))
            for item in data["additional_registrations"]
        ),
        tombstones=tuple(
            Tombstone(table_key=item["table_key"], version=int(item["tombstone_version"]))
            for item in data["tombstones"]
        ),
        schema=None
        if schema is None
        else SchemaRecord(source=schema["source"], ir=schema["ir"], hash=schema["hash"]),
        merged_parent_commit_id=data["merged_parent_commit_id"],
        properties=dict(data["properties"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected text, found {value!r}")
    return value


# What a sidecar names becomes a path: a lock, a dataset to restore. It is checked, not trusted.


def _operation_id(value: Any) -> str:
    if not is_id(value):
        raise ValueError(f"{value!r} is no operation id")
    return str(value)


def _branch_id(value: Any) -> str | None:
    if value is not None and not is_id(value):
        raise ValueError(f"{value!r} is no id of a branch")
    return None if value is None else str(value)


def _location(value: Any) -> str:
    if not is_location(value):
        raise ValueError(f"{value!r} is no place of a table")
    return str(value)


def _line(value: Any) -> str | None:
    if not is_line(value):
        raise ValueError(f"{value!r} is no branch of a table")
    return None if value is None else str(value)


def _effect(item: Mapping[str, Any]) -> Effect:
    return Effect(
        table_key=_text(item["table_key"]),
        location=_location(item["table_path"]),
        branch=_line(item["table_branch"]),
        expected_version=int(item["expected_version"]),
        version_to_be=int(item["post_commit_pin"]),
        transaction_uuid=str(item["transaction_uuid"]),
        row_count=int(item["row_count"]),
    )


def _update(item: Mapping[str, Any]) -> TableUpdate:
    return TableUpdate(
        table_key=_text(item["table_key"]),
        version=int(item["version"]),
        branch=_line(item["branch"]),
        row_count=int(item["row_count"]),
    )


def _update_json(update: TableUpdate) -> dict[str, Any]:
    return {
        "table_key": update.table_key,
        "version": update.version,
        "branch": update.branch,
        "row_count": update.row_count,
    }


class Sidecars:
    """The recovery folder of one graph; empty in the steady state."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def arm(self, sidecar: Sidecar) -> None:
        made = self._store.put_if_absent(_key(sidecar.operation_id), encode(sidecar))
        assert made, "operation ids are never reused"

    def disarm(self, operation_id: str) -> bool:
        """True if the file was there."""
        return self._store.delete(_key(operation_id))

    def operation_ids(self) -> tuple[str, ...]:
        """In the order of their making: ULIDs sort by time. Other files are none of ours."""
        keys = self._store.list_keys(RECOVERY)
        names = (key.rsplit("/", 1)[-1] for key in keys)
        return tuple(sorted(name.removesuffix(".json") for name in names if name.endswith(".json")))

    def read(self, operation_id: str) -> Sidecar | UnreadableSidecar | None:
        """None = gone, so somebody else dealt with it."""
        stored = self._store.read(_key(operation_id))
        return None if stored is None else decode(operation_id, stored.body)

    def pending(self) -> list[Sidecar | UnreadableSidecar]:
        found = (self.read(operation_id) for operation_id in self.operation_ids())
        return [sidecar for sidecar in found if sidecar is not None]


def _key(operation_id: str) -> str:
    return f"{RECOVERY}/{operation_id}.json"
