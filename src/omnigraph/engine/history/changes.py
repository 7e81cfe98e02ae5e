"""Differences as users see them: one change per entity, with its images before and after.

Between states of different schemas, types and properties are matched by identity and both images
are told under the later schema: a rename, a wider number, or a property that came with a default or
went is no change of any entity. The entities of a type that is gone count as deleted, and are told
under the schema that they had.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Any

import msgspec

from omnigraph.compiler.text import did_you_mean
from omnigraph.engine.arguments import REF, TEXTS_OR_NONE, require
from omnigraph.engine.arrow import picked
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.core import Core
from omnigraph.engine.history.difference import (
    Blob,
    Places,
    Side,
    TableDifference,
    blob_names,
    difference,
    ids_at,
    one_sided,
)
from omnigraph.engine.history.lift import Seen, comparable, lift
from omnigraph.engine.refs import Ref
from omnigraph.errors import (
    ChangeFeedGapError,
    InputError,
    NotFoundError,
    ParentlessCommitError,
)
from omnigraph.model.graph import Commit, Snapshot
from omnigraph.model.schema import Catalog
from omnigraph.results.changes import KINDS, OPS, ChangeSet, EntityChange, Image, Op


class ChangeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which changes are wanted; None = all of them."""

    kinds: frozenset[str] | None = None
    types: frozenset[str] | None = None
    ops: frozenset[str] | None = None

    @classmethod
    def of(
        cls,
        kinds: Sequence[str] | None,
        types: Sequence[str] | None,
        ops: Sequence[str] | None,
    ) -> ChangeFilter:
        require(TEXTS_OR_NONE, kinds=kinds, types=types, ops=ops)
        for given, known, what in ((kinds, KINDS, "kind"), (ops, OPS, "op")):
            unknown = sorted(set(given or ()) - set(known))
            if unknown:
                raise InputError(f"unknown {what} '{unknown[0]}'", hint=f"use {', '.join(known)}")
        return cls(
            kinds=None if kinds is None else frozenset(kinds),
            types=None if types is None else frozenset(types),
            ops=None if ops is None else frozenset(ops),
        )

    @property
    def digest(self) -> str:
        parts = [None if one is None else sorted(one) for one in (self.kinds, self.types, self.ops)]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def unknown_types(self, *catalogs: Catalog) -> frozenset[str]:
        """The wanted types that none of the schemas has."""
        known = {entity.name for catalog in catalogs for entity in catalog.types()}
        return (self.types or frozenset()) - known

    def require_known(self, *catalogs: Catalog) -> None:
        """Refuse a type that none of the schemas has."""
        require_none(self.unknown_types(*catalogs), *catalogs)

    def wants(self, *names: Entity) -> bool:
        """Whether changes of the type, under any of the names it had, are wanted, as far as kinds
        and types tell."""
        of_kind = self.kinds is None or names[0].kind in self.kinds
        return of_kind and (self.types is None or any(one.name in self.types for one in names))


def require_none(unknown: frozenset[str], *catalogs: Catalog) -> None:
    """Refuse types that nobody knows; the schemas tell what may be meant."""
    for name in sorted(unknown)[:1]:
        known = {entity.name for catalog in catalogs for entity in catalog.types()}
        hint = did_you_mean(name, known)
        raise NotFoundError(f"unknown type '{name}'", kind="type", name=name, hint=hint)


# --- diff ------------------------------------------------------------------------------------


def diff(core: Core, from_ref: Ref, to_ref: Ref, wanted: ChangeFilter) -> ChangeSet:
    """What is different at `to_ref`, seen from `from_ref`."""
    require(REF, from_ref=from_ref, to_ref=to_ref)
    before, after = core.snapshot(at=from_ref), core.snapshot(at=to_ref)
    wanted.require_known(core.catalog(before), core.catalog(after))
    return ChangeSet(
        from_commit_id=before.graph_commit_id,
        to_commit_id=after.graph_commit_id,
        changes=tuple(changes_between(core, before, after, wanted)),
    )


def changes_between(
    core: Core, before: Snapshot, after: Snapshot, wanted: ChangeFilter
) -> Iterator[EntityChange]:
    """The changes in their frozen order."""
    # A type that is gone and a new one may have the same name: their changes are told as one.
    pairs = sorted(_pairs(core, before, after, wanted), key=lambda one: one.place)
    for _, group in groupby(pairs, key=lambda one: one.place):
        found = [change for pair in group for change in _changes(pair, core, wanted)]
        yield from sorted(found, key=lambda change: change.position)


class _Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One type in two states; in one of them it may not be."""

    entity: Entity
    type_id: str
    before: Seen | None
    after: Seen | None

    @property
    def place(self) -> tuple[int, str]:
        return KINDS.index(self.entity.kind), self.entity.name

    def compared(self, core: Core) -> TableDifference:
        tables = core.store.tables
        if self.before is not None and self.after is not None:
            return difference(tables, self.before, self.after)
        return one_sided(tables, before=self.before, after=self.after)


def _pairs(core: Core, before: Snapshot, after: Snapshot, wanted: ChangeFilter) -> Iterator[_Pair]:
    """The types of both states that may differ."""
    older, newer = core.catalog(before), core.catalog(after)
    for type_id, entity in newer.by_type_id.items():
        twin = older.by_type_id.get(type_id)
        if not wanted.wants(entity, twin or entity):
            continue
        entry = after.entries[entity.table_key]
        if twin is None:
            after_only = Seen.plain(entity, entry)
            yield _Pair(entity=entity, type_id=type_id, before=None, after=after_only)
        elif (old := before.entries[twin.table_key]).pin != entry.pin:
            seen = comparable(entity, newer, older)
            yield _Pair(
                entity=seen,
                type_id=type_id,
                before=Seen(entry=old, lift=lift(older, twin.table_key, seen, newer)),
                after=Seen(entry=entry, lift=lift(newer, entity.table_key, seen, newer)),
            )
    for type_id, entity in older.by_type_id.items():
        if type_id not in newer.by_type_id and wanted.wants(entity):
            gone = Seen.plain(entity, before.entries[entity.table_key])
            yield _Pair(entity=entity, type_id=type_id, before=gone, after=None)


def _changes(pair: _Pair, core: Core, wanted: ChangeFilter) -> Iterator[EntityChange]:
    """The changes of one type, without an order."""
    found = pair.compared(core)
    entity, none = found.entity, found.inserted[:0]
    cases: tuple[tuple[Op, Places, Places], ...] = (
        ("insert", none, found.inserted),
        ("update", found.updated_before, found.updated_after),
        ("delete", found.deleted, none),
    )
    for op, at_before, at_after in cases:
        if wanted.ops is not None and op not in wanted.ops:
            continue
        ids = ids_at(found.after, at_after) or ids_at(found.before, at_before)
        before = images(found.before, at_before, entity)
        after = images(found.after, at_after, entity)
        for entity_id, (old, new) in zip(ids, zip_longest(before, after), strict=True):
            yield EntityChange(
                kind=entity.kind,
                type_name=entity.name,
                type_id=pair.type_id,
                id=entity_id,
                op=op,
                before=old,
                after=new,
            )


def images(side: Side, places: Places, entity: Entity) -> Iterator[Image]:
    """The entities at these places of the side."""
    blobs = {name: side.blobs(name, places) for name in blob_names(entity)}
    for at, row in enumerate(picked(side.rows, places).to_pylist()):
        properties = {
            prop.name: blob_image(blobs[prop.name][at]) if prop.name in blobs else row[prop.name]
            for prop in entity.properties
        }
        ends = {"from": row["src"], "to": row["dst"]} if entity.kind == "edge" else None
        yield Image(properties=properties, endpoints=ends)


def blob_image(blob: Blob | None) -> dict[str, Any] | None:
    """What stands for a blob in an image."""
    if blob is None:
        return None
    if blob.uri:
        return {"uri": blob.uri}
    body = blob.read()
    return {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}


# --- one commit ------------------------------------------------------------------------------


class CommitImages(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a commit did to its first parent, and the wanted types that neither knows."""

    changes: list[EntityChange]
    unknown_types: frozenset[str]


def commit_images(core: Core, commit: Commit, wanted: ChangeFilter) -> CommitImages:
    """`ChangeFeedGapError` if the data of one of the two is not kept."""
    if commit.parent_commit_id is None:
        raise ParentlessCommitError(commit_id=commit.graph_commit_id)
    manifests = core.store.manifests
    try:
        before = manifests.at_commit(commit.parent_commit_id)
        after = manifests.at_commit(commit.graph_commit_id)
        return CommitImages(
            changes=list(changes_between(core, before, after, wanted)),
            unknown_types=wanted.unknown_types(core.catalog(before), core.catalog(after)),
        )
    except NotFoundError as cause:
        raise ChangeFeedGapError(commit_id=commit.graph_commit_id) from cause
