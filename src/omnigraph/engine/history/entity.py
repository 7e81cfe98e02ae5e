"""Every version of one entity, with the commit and the actor that made it.

The walk goes back over first parents and compares the entity before and after each commit. Most
commits leave it alone, and those are leapt over: a row knows when it was last changed, and a table
how many rows it ever lost, so that a search among the commits finds the one to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import asdict

from omnigraph.compiler.text import closest
from omnigraph.engine.arguments import TEXT, require
from omnigraph.engine.core import Core
from omnigraph.engine.history.changes import images
from omnigraph.engine.history.difference import same, stored_side
from omnigraph.engine.history.lift import comparable, lift
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import Pin, Snapshot, TableEntry, WriterKind
from omnigraph.results.changes import EntityState, EntityVersion, Image, Op
from omnigraph.storage.manifest.rows import CommitRow

# Commits of these kinds leave every row that they do not touch as it was. A schema apply may change
# all of them, and of a commit without a kind nothing is known.
_PLAIN: Final = frozenset(
    {
        WriterKind.MUTATION,
        WriterKind.LOAD,
        WriterKind.BRANCH_MERGE,
        WriterKind.ENSURE_INDICES,
        WriterKind.OPTIMIZE,
    }
)


_NOWHERE: Final = ""  # the key of no table


def entity_at(
    core: Core, snapshot: Snapshot, kind: str, type_name: str, entity_id: str
) -> EntityState:
    """The entity in that state; `NotFoundError` if it is not there."""
    require(TEXT, kind=kind, type_name=type_name, id=entity_id)
    if kind not in ("node", "edge"):
        raise InputError(f"unknown kind '{kind}'", hint="use node or edge")
    place = _place(core, snapshot, f"{kind}:{type_name}")
    found = _image(core, place, entity_id, seen_from=place)
    if found is None:
        raise NotFoundError(
            f"{kind} {type_name} '{entity_id}' does not exist",
            hint=_meant(core, kind, type_name, snapshot.branch.name),
            kind="entity",
            name=entity_id,
        )
    return EntityState(graph_commit_id=snapshot.graph_commit_id, image=found)


def _meant(core: Core, kind: str, type_name: str, branch: str) -> str | None:
    """The name of a type that is there, where there is none of this name."""
    catalog = core.catalog(core.head(branch))
    names = list(catalog.nodes if kind == "node" else catalog.edges)
    near = None if type_name in names else closest(type_name, names)
    return f"the schema has no {kind} type '{type_name}'; did you mean '{near}'?" if near else None


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
        now = _place(core, core.head(branch), f"{kind}:{type_name}")
        if _image(core, now, entity_id, seen_from=now) is not None:
            raise NotFoundError(
                f"what happened to {name} is not kept any more",
                hint="it is there; cleanup removed the data of the commits that made it",
                kind="entity",
                name=entity_id,
            )
        raise NotFoundError(
            f"{name} is not in the history",
            hint=_meant(core, kind, type_name, branch),
            kind="entity",
            name=entity_id,
        )
    return found


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """A commit on the way back, and what the type was called there."""

    snapshot: Snapshot
    table_key: str
    type_id: str | None  # None while no schema was met that has the type

    @property
    def entry(self) -> TableEntry | None:
        return self.snapshot.entries.get(self.table_key)

    @property
    def pin(self) -> Pin | None:
        return None if self.entry is None else self.entry.pin


def _versions(core: Core, table_key: str, entity_id: str, branch: str) -> Iterator[EntityVersion]:
    """Walk back over first parents; where a merge took the entity as its source had it, go on
    there, because its author is."""
    here = _place(core, core.head(branch), table_key)
    # A merge that brought a version from its source, and the way on if the source does not tell.
    trail: tuple[EntityVersion, _Place] | None = None
    while True:
        here = _leapt(core, here, entity_id)
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
            told, here = trail
            trail = None
            yield told
        elif version is None:
            here = before
        elif (source := _source_of(core, here, version, entity_id)) is not None:
            here, trail = source, (version, before)
        else:
            yield version
            here, trail = before, None


def _leapt(core: Core, here: _Place, entity_id: str) -> _Place:
    """The earliest place that is known to have the entity as it is here, without a look at the
    commits in between."""
    try:
        is_same = _unchanged_since(core, here, entity_id)
        return here if is_same is None else _farthest(core, here, is_same)
    except NotFoundError:
        return here  # something is not kept: step by step it is found out what


def _unchanged_since(
    core: Core, here: _Place, entity_id: str
) -> Callable[[TableEntry], bool] | None:
    """What tells whether an earlier version of the table has the entity as this one has it; True
    for all versions from some one on. None = nothing tells."""
    now = here.entry
    if now is None:
        return None
    tables = core.store.tables
    table = tables.open(now)
    stamp = table.changed_at(entity_id)
    if stamp is not None:
        return lambda entry: entry.version >= stamp
    # It is not there: so it was before, up to a version that lost rows.
    lost = table.rows_lost
    return None if lost is None else lambda entry: tables.open(entry).rows_lost == lost


def _farthest(core: Core, here: _Place, is_same: Callable[[TableEntry], bool]) -> _Place:
    """The last place on the way back of which it is true: by steps that double, then by halves."""
    rows: list[CommitRow] = []
    source = _behind(core, here)
    found, good = here, -1

    def reaches(at: int) -> bool:
        nonlocal found, good
        rows.extend(row for row, _ in zip(source, range(at + 1 - len(rows)), strict=False))
        if at >= len(rows):
            return False
        place = _named(core, here, core.store.manifests.at_row(rows[at]))
        now, then = here.entry, place.entry
        assert now is not None, "there is no way back from a place without the type"
        # On another line the numbers of versions, and stamps, mean something else.
        if then is None or core.store.tables.shared(now, then) != then.version:
            return False
        if is_same(then):
            found, good = place, at
        return good == at

    bad = 0
    while reaches(bad):
        bad = 2 * bad + 1
    bad = min(bad, len(rows))
    while bad - good > 1:
        middle = (good + bad) // 2
        if not reaches(middle):
            bad = middle
    return found


def _behind(core: Core, here: _Place) -> Iterator[CommitRow]:
    """The commits before this place, newest first, as far as they are kept and nothing but plain
    writes lies between."""
    manifests = core.store.manifests
    kept: dict[str | None, frozenset[int]] = {}
    line = manifests.line_rows(manifests.fresh(here.snapshot.branch.id), here.snapshot.head)
    later: CommitRow | None = None
    for row in line:
        if later is not None:
            if not _is_plain(later):
                return
            if row.branch_id not in kept:
                opened = manifests.fresh(row.branch_id).opened
                kept[row.branch_id] = frozenset(manifests.datasets.kept(opened))
            if row.commit.graph_manifest_version not in kept[row.branch_id]:
                return
            yield row
        later = row


def _is_plain(row: CommitRow) -> bool:
    # A merge into a branch may point it to another line of the table.
    may_repoint = row.branch_id is not None and row.commit.merged_parent_commit_id is not None
    return not may_repoint and row.commit.writer_kind in _PLAIN


def _earlier(core: Core, here: _Place, commit_id: str | None) -> _Place | None:
    """The place of an earlier commit; None if there is none or its snapshot is not kept."""
    if commit_id is None:
        return None
    try:
        snapshot = core.store.manifests.at_commit(commit_id)
    except NotFoundError:
        return None
    return _named(core, here, snapshot)


def _place(core: Core, snapshot: Snapshot, table_key: str) -> _Place:
    """The place of the type that has that name there."""
    known = table_key in snapshot.entries
    type_id = core.catalog(snapshot).identities.type_id(table_key) if known else None
    return _Place(snapshot=snapshot, table_key=table_key, type_id=type_id)


def _named(core: Core, here: _Place, snapshot: Snapshot) -> _Place:
    """The place of the same type in another snapshot, whatever it is called there."""
    if here.type_id is None:
        return _place(core, snapshot, here.table_key)
    found = core.catalog(snapshot).by_type_id.get(here.type_id)
    # Where it is not, another type may have its name: that one's entities are none of its.
    key = _NOWHERE if found is None else found.table_key
    return _Place(snapshot=snapshot, table_key=key, type_id=here.type_id)


def _version(core: Core, here: _Place, before: _Place, entity_id: str) -> EntityVersion | None:
    """What the commit made of the entity; None if it left it as it was."""
    if here.pin == before.pin:
        return None
    # Both under the schema of the later commit, which names what it left as it was.
    later = here if here.entry is not None else before
    new, old = (_image(core, one, entity_id, seen_from=later) for one in (here, before))
    if _same_image(new, old):
        return None
    op: Op = "insert" if old is None else "delete" if new is None else "update"
    return EntityVersion(commit=here.snapshot.head, op=op, image=new)


def _source_of(core: Core, here: _Place, version: EntityVersion, entity_id: str) -> _Place | None:
    """The merged commit, if it had the entity as the merge left it."""
    source = _earlier(core, here, here.snapshot.head.merged_parent_commit_id)
    try:
        if source is None:
            return None
        theirs = _image(core, source, entity_id, seen_from=here)
        if not _same_image(theirs, version.image):
            return None
    except NotFoundError:
        return None
    return source


def _same_image(one: Image | None, other: Image | None) -> bool:
    if one is None or other is None:
        return one is other
    return same(asdict(one), asdict(other))


def _image(core: Core, place: _Place, entity_id: str, *, seen_from: _Place) -> Image | None:
    """The entity at the place, under the schema of another one."""
    if place.entry is None or seen_from.entry is None:
        return None
    stored, shown = core.catalog(place.snapshot), core.catalog(seen_from.snapshot)
    entity = comparable(shown.type_of(seen_from.table_key), shown, stored)
    lifted = lift(stored, place.table_key, entity, shown)
    side = stored_side(core.store.tables.open(place.entry), lifted, [entity_id])
    return next(images(side, np.arange(side.rows.num_rows), entity), None)
