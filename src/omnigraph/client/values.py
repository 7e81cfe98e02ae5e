"""The values of the engine, put together again from what the wire says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from omnigraph.model.graph import Branch, Commit, SchemaRecord, Snapshot, TableEntry, TypeCounts
from omnigraph.results.changes import ChangePage, EntityChange, Image
from omnigraph.results.merging import MergeConflict, MergePreview, PropertyConflict
from omnigraph.wire.answers import CommitOutput


def commit_of(body: Mapping[str, Any] | None) -> Commit | None:
    return None if body is None else msgspec.convert(body, CommitOutput).commit()


def the_commit(body: Mapping[str, Any]) -> Commit:
    return msgspec.convert(body, CommitOutput).commit()


def snapshot_of(body: Mapping[str, Any]) -> Snapshot:
    """The snapshot as far as the wire tells of it: its schema is not said."""
    name, version = body["graph_branch"], body["graph_manifest_version"]
    entries = {
        key: TableEntry(
            table_key=key,
            location=one["dataset_path"],
            version=one["published_dataset_version"],
            branch=one.get("native_dataset_branch"),
            row_count=one["entity_count"],
        )
        for one in body["datasets"]
        for key in [f"{one['entity_kind']}:{one['type_name']}"]
    }
    return Snapshot(
        branch=_named(name),
        manifest_version=version,
        head=Commit(
            graph_commit_id=body["graph_commit_id"],
            parent_commit_id=None,
            merged_parent_commit_id=None,
            graph_branch=name,
            graph_manifest_version=version,
            actor_id=None,
            created_us=0,
        ),
        schema=SchemaRecord(source="", ir="", hash=""),
        entries=entries,
    )


def _named(name: str) -> Branch:
    """A branch of which only the name is told."""
    return Branch(
        name=name, id=None, parent=None, fork_commit_id=None, created_by=None, created_at=0
    )


def branch_of(body: Mapping[str, Any]) -> Branch:
    """The branch that was made; a server of the reference tells less of it."""
    return Branch(
        name=body["name"],
        id=body.get("branch_id"),
        parent=body["from"],
        fork_commit_id=body.get("fork_commit_id"),
        created_by=body["actor_id"],
        created_at=body.get("created_at", 0),
    )


def image_of(body: Mapping[str, Any] | None) -> Image | None:
    if body is None:
        return None
    return Image(properties=body["properties"], endpoints=body.get("endpoints"))


def change_of(body: Mapping[str, Any]) -> EntityChange:
    return EntityChange(
        kind=body["kind"],
        type_name=body["type"]["name"],
        type_id=body["type"]["id"],
        id=body["id"],
        op=body["op"],
        before=image_of(body.get("before")),
        after=image_of(body.get("after")),
    )


def page_of(body: Mapping[str, Any]) -> ChangePage:
    cause = body["cause"]
    return ChangePage(
        cause=Commit(
            graph_commit_id=cause["graph_commit_id"],
            parent_commit_id=cause.get("parent_commit_id"),
            merged_parent_commit_id=cause.get("merged_parent_commit_id"),
            graph_branch=cause["authored_branch"],
            graph_manifest_version=0,
            actor_id=cause.get("actor_id"),
            created_us=cause["authored_at"],
        ),
        changes=tuple(map(change_of, body["changes"])),
        next_page_token=body.get("next_page_token"),
    )


def counts_of(body: Mapping[str, Any]) -> dict[str, TypeCounts]:
    return {key: msgspec.convert(counts, TypeCounts) for key, counts in body.items()}


class Told(msgspec.Struct, frozen=True):
    """A value that is shown and passed on, such as a step of a schema's change: what the server
    said of it, by name."""

    body: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.body[name]
        except KeyError:
            raise AttributeError(name) from None

    def to_json(self) -> dict[str, Any]:
        return self.body


def steps_of(body: list[dict[str, Any]]) -> tuple[Any, ...]:
    return tuple(map(Told, body))


def conflict_of(body: Mapping[str, Any]) -> MergeConflict:
    told = {name: body[name] for name in MergeConflict.__struct_fields__ if name in body}
    for name in ("step_ours", "step_theirs"):
        if told.get(name) is not None:
            told[name] = Told(told[name])
    told["properties"] = [_property(one) for one in told.get("properties") or ()]
    return MergeConflict(**told)


def _property(one: Any) -> PropertyConflict:
    return PropertyConflict(**one) if isinstance(one, dict) else PropertyConflict(*one)


def preview_of(body: Mapping[str, Any]) -> MergePreview:
    told = {name: body[name] for name in ("source", "target", "base_commit_id")}
    return MergePreview(
        **told,
        # What stands against a merge says so by itself.
        outcome="merged" if body["outcome"] == "conflict" else body["outcome"],
        changes=counts_of(body["changes"]),
        conflicts=tuple(map(conflict_of, body["conflicts"])),
    )
