"""Blame: every version of one entity, with the commit and the actor that made it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from omnigraph.engine.arguments import TEXT, require
from omnigraph.engine.core import Core
from omnigraph.engine.history.changes import Image, Op, blob_image
from omnigraph.engine.history.difference import blob_names, same
from omnigraph.engine.rows.columns import batch_schema
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import Commit, Pin, Snapshot, TableEntry
from omnigraph.model.schema import ROW_ID, EdgeType, NodeType
from omnigraph.storage.lance import sql


class EntityVersion(msgspec.Struct, frozen=True, kw_only=True):
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
    require(TEXT, kind=kind, type_name=type_name, id=entity_id)
    if kind not in ("node", "edge"):
        raise InputError(f"unknown kind '{kind}'", hint="use node or edge")
    found = list(_versions(core, f"{kind}:{type_name}", entity_id, branch))
    if not found:
        name = f"{kind} {type_name} '{entity_id}'"
        now = _Place(snapshot=core.head(branch), table_key=f"{kind}:{type_name}")
        if _image(core, now, entity_id) is not None:
            raise NotFoundError(
                f"what happened to {name} is not kept any more",
                hint="it is there; cleanup removed the data of the commits that made it",
                kind="entity",
                name=entity_id,
            )
        raise NotFoundError(f"{name} is not in the history", kind="entity", name=entity_id)
    return found


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """A commit on the way back, and what the type was called there."""

    snapshot: Snapshot
    table_key: str


class _Trail(msgspec.Struct, frozen=True, kw_only=True):
    """A merge that brought a version from its source, and the way on if the source does not tell
    who made it."""

    version: EntityVersion
    before: _Place


def _versions(core: Core, table_key: str, entity_id: str, branch: str) -> Iterator[EntityVersion]:
    """Walk back over first parents; where a merge took the entity as its source had it, go on
    there, because its author is."""
    here = _Place(snapshot=core.head(branch), table_key=table_key)
    trail: _Trail | None = None
    while True:
        before = _earlier(core, here, here.snapshot.head.parent_commit_id)
        version = None
        try:
            version = _version(core, here, before, entity_id) if before is not None else None
        except NotFoundError:
            before = None  # the snapshot is there, but a hard drop took the type's past
        if before is None:
            if trail is None:
                return
            # Cleanup took what the source would tell: the merge is the best that is known.
            yield trail.version
            here, trail = trail.before, None
        elif version is None:
            here = before
        elif (source := _source_of(core, here, version, entity_id)) is not None:
            here, trail = source, _Trail(version=version, before=before)
        else:
            yield version
            here, trail = before, None


def _earlier(core: Core, here: _Place, commit_id: str | None) -> _Place | None:
    """The place of an earlier commit; None if there is none or its snapshot is not kept."""
    if commit_id is None:
        return None
    try:
        snapshot = core.store.manifests.at_commit(commit_id)
    except NotFoundError:
        return None
    entry = here.snapshot.entries.get(here.table_key)
    return _Place(snapshot=snapshot, table_key=_earlier_key(snapshot, entry, here.table_key))


def _version(core: Core, here: _Place, before: _Place, entity_id: str) -> EntityVersion | None:
    """What the commit made of the entity; None if it left it as it was."""
    if _pin(here) == _pin(before):
        return None
    new, old = (_image(core, one, entity_id) for one in (here, before))
    if _same_image(new, old):
        return None
    op: Op = "insert" if old is None else "delete" if new is None else "update"
    return EntityVersion(commit=here.snapshot.head, op=op, image=new)


def _source_of(core: Core, here: _Place, version: EntityVersion, entity_id: str) -> _Place | None:
    """The merged commit, if it had the entity as the merge left it."""
    source = _earlier(core, here, here.snapshot.head.merged_parent_commit_id)
    try:
        if source is None or not _same_image(_image(core, source, entity_id), version.image):
            return None
    except NotFoundError:
        return None
    return source


def _same_image(one: Image | None, other: Image | None) -> bool:
    if one is None or other is None:
        return one is other
    return (
        one.endpoints == other.endpoints
        and one.properties.keys() == other.properties.keys()
        and all(same(value, other.properties[name]) for name, value in one.properties.items())
    )


def _earlier_key(before: Snapshot, entry: TableEntry | None, table_key: str) -> str:
    """What the type was called before: a renamed one keeps its table's place."""
    if entry is not None:
        for key, earlier in before.entries.items():
            if earlier.location == entry.location:
                return key
    return table_key


def _pin(place: _Place) -> Pin | None:
    entry = place.snapshot.entries.get(place.table_key)
    return None if entry is None else entry.pin


def _image(core: Core, place: _Place, entity_id: str) -> Image | None:
    snapshot, table_key = place.snapshot, place.table_key
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
        row[name] = blob_image(table.blobs(name, [row[ROW_ID]])[0])
    return _as_image(entity, row)


def _as_image(entity: NodeType | EdgeType, row: dict[str, Any]) -> Image:
    return Image(
        properties={prop.name: row[prop.name] for prop in entity.properties},
        endpoints={"from": row["src"], "to": row["dst"]} if entity.kind == "edge" else None,
    )
