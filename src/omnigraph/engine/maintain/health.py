"""`health`: what shape a graph is in, and what would help. Reads little and writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from omnigraph.engine.check.rules import Entity
from omnigraph.engine.core import Core
from omnigraph.engine.maintain.optimize import index_specs
from omnigraph.engine.maintain.retention import Policy, Survey, side_by_side, survey
from omnigraph.engine.maintain.stored_retention import Bounds, Retention
from omnigraph.engine.write.filling import missing_vectors
from omnigraph.errors import CorruptGraphError, NotFoundError, OmnigraphError
from omnigraph.model.graph import MAIN, Branch, TableEntry
from omnigraph.model.limits import AUTO_FRAGMENTS_MAX
from omnigraph.model.structs import JsonStruct, html_block, html_table
from omnigraph.storage.lance.collect import How
from omnigraph.storage.table.index import IndexSpec
from omnigraph.storage.table.table import Table

_UNINDEXED_SHARE_MAX = 0.1
_DELETED_SHARE_MAX = 0.1
_RECLAIMABLE_SHARE_MAX = 0.5
# Below these nobody would notice: such tables are read whole in no time, whatever indexes say.
_WORTH_ROWS_MIN = 10_000
_WORTH_BYTES_MIN = 16 * 2**20


class IndexHealth(JsonStruct, frozen=True, kw_only=True):
    """One index of a table: how many rows it does not cover, and in how many parts it is."""

    name: str
    property: str
    kind: str
    rows_unindexed: int
    segments: int


class TableHealth(JsonStruct, frozen=True, kw_only=True):
    """One table. `bytes_reclaimable` is what a cleanup that keeps only heads would free."""

    type_key: str
    entity_count: int
    deleted_rows: int
    fragments: int
    small_fragments: int
    indexes: tuple[IndexHealth, ...]
    missing_indexes: tuple[str, ...]
    versions: int
    bytes_live: int
    bytes_reclaimable: int
    published_dataset_version: int
    lance_head_version: int
    missing_vectors: Mapping[str, int] = {}  # entities with a text and no vector, by property


class HealthReport(JsonStruct, frozen=True, kw_only=True):
    """A branch's tables, the manifest's versions, unfinished writes, and advice in words."""

    uri: str
    branch: str
    datasets: tuple[TableHealth, ...]
    manifest_versions: int
    pending_recoveries: tuple[str, ...]
    damage: tuple[str, ...] = ()  # what cannot be read, in words
    advice: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        return not self.advice

    def _repr_html_(self) -> str:
        """For notebooks: advice, then a row a table."""
        columns = (
            *("type", "entities", "deleted", "fragments", "indexes", "missing indexes"),
            *("versions", "bytes", "bytes reclaimable"),
        )
        rows = [
            (
                *(one.type_key, one.entity_count, one.deleted_rows, one.fragments),
                *(len(one.indexes), ", ".join(one.missing_indexes), one.versions),
                *(one.bytes_live, one.bytes_reclaimable),
            )
            for one in self.datasets
        ]
        verdict = "healthy" if self.healthy else "; ".join(self.advice)
        return html_block(f"{self.uri}, branch {self.branch}: {verdict}", html_table(columns, rows))

    def to_json(self) -> dict[str, Any]:
        first = {"uri": self.uri, "branch": self.branch, "healthy": self.healthy}
        return first | super().to_json()


def health(core: Core, branch: str = MAIN) -> HealthReport:
    """Look at every table of a branch."""
    snapshot = core.head(branch)
    catalog = core.catalog(snapshot)
    pending = core.recovery.sidecars.operation_ids()
    found = _needs(core)
    datasets: list[TableHealth] = []
    branches, unread = core.store.refs.look()
    damage = [f"branch '{ref.name}': {ref.problem}" for ref in unread]
    damage += [f"tag '{tag.name}': {tag.problem}" for tag in core.store.manifests.tags.unreadable()]
    damage += [*_damaged_branches(core, branches), *core.recovery.audit.problems()]
    for key, entry in snapshot.entries.items():
        try:
            table = _table(core, entry, catalog.type_of(key))
        except CorruptGraphError as cause:
            damage.append(f"{key}: {cause.message}")
            continue
        try:
            table = replace(table, bytes_reclaimable=_reclaimable(core, entry, found))
        except CorruptGraphError as cause:  # perhaps of another branch, and nothing may go for it
            damage.append(f"{key}: {cause.message}")
        datasets.append(table)
    return HealthReport(
        uri=core.root.uri,
        branch=branch,
        datasets=tuple(datasets),
        manifest_versions=len(core.store.manifests.datasets.versions(snapshot.branch.id)),
        pending_recoveries=pending,
        advice=(*(f"damaged: {one}" for one in damage), *_advice(datasets, pending)),
        damage=tuple(damage),
    )


def _damaged_branches(core: Core, branches: Iterable[Branch]) -> Iterator[str]:
    for branch in branches:
        try:
            core.store.manifests.head(branch)
        except CorruptGraphError as cause:
            yield f"branch '{branch.name}': {cause.message}"
        except NotFoundError:
            continue  # deleted since it was listed


def _needs(core: Core) -> Survey | None:
    """What a cleanup that keeps only heads would have to leave; None if nobody can tell now."""
    now = core.world.clock.now_us()
    heads_only = Retention(branches={"*": Bounds(keep_versions=1)})
    try:
        return survey(core, Policy(retention=heads_only, now_us=now, superseded_us=now))
    except OmnigraphError:
        return None


def _reclaimable(core: Core, entry: TableEntry, found: Survey | None) -> int:
    """How many bytes of the entry's line a cleanup that keeps only heads would free."""
    if found is None:
        return 0
    line = (entry.location, entry.branch)
    pinned = found.pinned(line)
    stored = core.store.tables.versions(*line)
    unwanted = [one for one in stored if one < entry.version and one not in pinned]
    how = How(preview=True, threads=side_by_side(core))
    return core.store.tables.collect(*line, unwanted, how).bytes


def _table(core: Core, entry: TableEntry, entity: Entity) -> TableHealth:
    table = core.store.tables.open(entry)
    fragmentation = table.fragmentation()
    indexes = table.indexes()
    stored = core.store.tables.versions(entry.location, entry.branch)
    return TableHealth(
        type_key=entry.table_key,
        entity_count=fragmentation.rows,
        deleted_rows=fragmentation.deleted,
        fragments=fragmentation.fragments,
        small_fragments=fragmentation.small_fragments,
        indexes=tuple(
            IndexHealth(
                name=one.name,
                property=one.columns[0],
                kind=one.kind,
                rows_unindexed=one.rows_unindexed,
                segments=one.segments,
            )
            for one in indexes
        ),
        missing_indexes=_missing(table, index_specs(entity), {one.name for one in indexes}),
        versions=len(stored),
        bytes_live=fragmentation.bytes,
        bytes_reclaimable=0,  # which takes a look at other lines
        published_dataset_version=entry.version,
        lance_head_version=stored[-1],
        missing_vectors={
            name: len(ids) for name, ids in missing_vectors(table, entity).items() if ids
        },
    )


def _missing(table: Table, declared: Sequence[IndexSpec], there: set[str]) -> tuple[str, ...]:
    """Declared indexes that are not there although they could be built."""
    if not table.fragment_ids:
        return ()
    missing = [spec for spec in declared if spec.name not in there]
    return tuple(spec.name for spec in missing if table.why_untrainable(spec) is None)


def _advice(datasets: Sequence[TableHealth], pending: Sequence[str]) -> Iterator[str]:
    if pending:
        yield f"{len(pending)} unfinished writes: see `omnigraph recovery list`"
    drifted = [
        one.type_key for one in datasets if one.lance_head_version > one.published_dataset_version
    ]
    if drifted:
        yield f"`omnigraph repair`: {', '.join(drifted)} moved past what is published"
    worn = [one.type_key for one in datasets if _worn(one)]
    if worn:
        yield f"`omnigraph optimize`: {', '.join(worn)} would be read faster"
    gaps = {one.type_key: one.missing_vectors for one in datasets if one.missing_vectors}
    if gaps:
        names = (
            f"{key}.{name} ({count})" for key, some in gaps.items() for name, count in some.items()
        )
        yield f"`omnigraph embed`: texts without a vector: {', '.join(names)}"
    live = sum(one.bytes_live for one in datasets)
    free = sum(one.bytes_reclaimable for one in datasets)
    if free > max(_RECLAIMABLE_SHARE_MAX * live, _WORTH_BYTES_MIN):
        yield f"`omnigraph cleanup`: {free} bytes belong to the past, {live} to the present"


def _worn(one: TableHealth) -> bool:
    rows = one.entity_count
    if one.small_fragments > AUTO_FRAGMENTS_MAX:
        return True
    return rows + one.deleted_rows >= _WORTH_ROWS_MIN and (
        one.deleted_rows > _DELETED_SHARE_MAX * (rows + one.deleted_rows)
        or bool(one.missing_indexes)
        or any(index.rows_unindexed > _UNINDEXED_SHARE_MAX * rows for index in one.indexes)
    )
