"""Blame: every version of one entity, with the commit and the actor that made it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from omnigraph.engine.changes import Image, Op, blob_image
from omnigraph.engine.core import Core
from omnigraph.engine.difference import blob_names
from omnigraph.engine.write.columns import batch_schema
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import Commit, Snapshot, TableEntry
from omnigraph.model.schema import EdgeType, NodeType
from omnigraph.storage import sql


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityVersion:
    """What one commit made of the entity; `image` is None when it was deleted."""

    commit: Commit
    op: Op
    image: Image | None

    def to_json(self) -> dict[str, Any]:
        return {
            "graph_commit_id": self.commit.graph_commit_id,
            "actor_id": self.commit.actor_id,
            "created_at": self.commit.created_at,
            "op": self.op,
            "image": self.image.to_json() if self.image else None,
        }


def entity_history(
    core: Core, kind: str, type_name: str, entity_id: str, *, branch: str
) -> list[EntityVersion]:
    """Newest first, as far back as versions are kept; `NotFoundError` if there never was one."""
    if kind not in ("node", "edge"):
        raise InputError(f"unknown kind '{kind}'", hint="use node or edge")
    found = list(_versions(core, f"{kind}:{type_name}", entity_id, branch))
    if not found:
        name = f"{kind} {type_name} '{entity_id}'"
        raise NotFoundError(f"{name} is not in the history", kind="entity", name=entity_id)
    return found


def _versions(core: Core, table_key: str, entity_id: str, branch: str) -> Iterator[EntityVersion]:
    steps = pairwise(core.history.commits(core.branch(branch)))
    for commit, parent in steps:
        try:
            after = core.rooms.manifests.at_commit(commit.graph_commit_id)
            before = core.rooms.manifests.at_commit(parent.graph_commit_id)
            earlier_key = _earlier_key(before, after.entries.get(table_key), table_key)
            if _pin(after.entries.get(table_key)) == _pin(before.entries.get(earlier_key)):
                table_key = earlier_key
                continue
            new = _image(core, after, table_key, entity_id)
            old = _image(core, before, earlier_key, entity_id)
        except NotFoundError:
            return  # cleanup took what lies further back
        table_key = earlier_key
        if new != old:
            op: Op = "insert" if old is None else "delete" if new is None else "update"
            yield EntityVersion(commit=commit, op=op, image=new)


def _earlier_key(before: Snapshot, entry: TableEntry | None, table_key: str) -> str:
    """What the type was called before: a renamed one keeps its table's place."""
    if entry is not None:
        for key, earlier in before.entries.items():
            if earlier.location == entry.location:
                return key
    return table_key


def _pin(entry: TableEntry | None) -> tuple[str, str | None, int] | None:
    return None if entry is None else (entry.location, entry.branch, entry.version)


def _image(core: Core, snapshot: Snapshot, table_key: str, entity_id: str) -> Image | None:
    if table_key not in snapshot.entries:
        return None
    entity = core.catalog(snapshot).type_of(table_key)
    table = core.table(snapshot, table_key)
    blobs = blob_names(entity)
    rows = table.read(
        columns=[name for name in batch_schema(entity).names if name not in blobs],
        where=f"id = {sql.literal(entity_id)}",
        with_row_id=True,
    ).to_pylist()
    if not rows:
        return None
    row = rows[0]
    for name in blobs:
        row[name] = blob_image(table.blobs(name, [row["_rowid"]])[0])
    return _as_image(entity, row)


def _as_image(entity: NodeType | EdgeType, row: dict[str, Any]) -> Image:
    return Image(
        properties={prop.name: row[prop.name] for prop in entity.properties},
        endpoints={"from": row["src"], "to": row["dst"]} if entity.kind == "edge" else None,
    )
