"""Indexes of a table: what there is, what it covers, and staging what is missing.

An index is made of segments, each covering some fragments. Rows that came later are found by
scanning until a new segment covers them; when segments become many, or the uncovered part big, the
index is built anew.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import lance
import msgspec
import numpy as np
import pyarrow as pa
from lance import LanceOperation as Op
from lance.bitmap import Bitmap
from msgspec.structs import replace

from omnigraph.model.limits import INDEX_SEGMENTS_MAX, VECTOR_PARTITIONS_MAX
from omnigraph.model.schema import ROW_ID
from omnigraph.storage.lance import sql
from omnigraph.storage.lance.files import version_file
from omnigraph.storage.lance.pylance import FOREIGN, reason_of, translated
from omnigraph.storage.lance.versions import NotAVersionError, read_as
from omnigraph.storage.table.pinned import Pinned

logger = logging.getLogger(__name__)

IndexKind = Literal["btree", "vector"]

_LANCE_KINDS: Final[Mapping[IndexKind, str]] = {
    "btree": "BTREE",
    "vector": "IVF_SQ",
}


class IndexSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An index that should be there. `parameters` go to Lance as they are."""

    name: str
    column: str
    kind: IndexKind
    parameters: Mapping[str, Any] = {}


class IndexInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An index that is there, and how much of the table it covers."""

    name: str
    columns: tuple[str, ...]
    kind: str
    rows_indexed: int
    rows_unindexed: int
    segments: int


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an index that is there, and the fragments it covers; `broken` = unreadable,
    `elsewhere` = in the folder of a line that this one was made from."""

    uuid: str
    fragments: frozenset[int]
    broken: bool = False
    elsewhere: bool = False


class IndexBuild(msgspec.Struct, frozen=True, kw_only=True):
    """One segment to build over some fragments, and the segments that it replaces; or a piece of
    one, as a value that may travel to another process."""

    spec: IndexSpec
    fragments: tuple[int, ...]
    replaces: tuple[str, ...] = ()


def describe(pinned: Pinned) -> tuple[IndexInfo, ...]:
    """Every index of the table, by name."""
    rows = int(pinned.dataset.count_rows())
    infos: list[IndexInfo] = []
    for index in sorted(_descriptions(pinned), key=lambda one: one.name):
        indexed = min(rows, int(index.num_rows_indexed))
        infos.append(
            IndexInfo(
                name=index.name,
                columns=tuple(index.field_names),
                kind=str(index.index_type),
                rows_indexed=indexed,
                rows_unindexed=rows - indexed,
                segments=len(index.segments),
            )
        )
    return tuple(infos)


class Neighbours(msgspec.Struct, frozen=True, kw_only=True):
    """A question to a vector index: so many rows near a vector, from so many partitions of it."""

    column: str
    vector: Sequence[float]
    count: int
    probes: int


def neighbours(pinned: Pinned, asked: Neighbours) -> pa.Array[Any]:
    """The row ids of about the nearest rows. Rows that the index does not cover, or that were
    changed since, are compared by their vectors; deleted ones are left out."""
    rows = pinned.dataset.scanner(
        columns=["_distance"],
        with_row_id=True,
        nearest={
            "column": asked.column,
            "q": np.asarray(asked.vector, dtype=np.float32),
            "k": asked.count,
            "nprobes": asked.probes,
            "metric": "cosine",
            "use_index": True,
        },
        scan_stats_callback=pinned.meter.add,
    ).to_table()
    found: pa.ChunkedArray[Any] = rows[ROW_ID]
    return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], pa.uint64())


# --- deciding --------------------------------------------------------------------------------


def decide_builds(
    specs: Sequence[IndexSpec],
    known: Mapping[str, Sequence[Segment]],
    sizes: Mapping[int, int],
    groups: Sequence[Collection[int]] = (),
    settled: Collection[int] = (),
) -> tuple[IndexBuild, ...]:
    """The segments to build so that every index covers all fragments.

    Segments that cannot be read, those that cover only a part of one of the groups, and those of
    another line that cover one of them, are replaced. `sizes` are rows by fragment number.
    Fragments that will stay as they are for long (`settled`) are never in one segment with others:
    those are compacted again soon, and then a segment over them all would be built again over all
    the rows of a table.
    """
    return tuple(
        build
        for spec in specs
        for build in _decide(spec, known.get(spec.name, ()), sizes, groups, frozenset(settled))
    )


def _decide(
    spec: IndexSpec,
    there: Sequence[Segment],
    sizes: Mapping[int, int],
    groups: Sequence[Collection[int]],
    settled: frozenset[int],
) -> list[IndexBuild]:
    """Nothing, one more segment (or two, of which one is for settled fragments), or all anew."""
    replaced = {one.uuid for one in there if one.broken}
    owner = {number: one.uuid for one in there if not one.broken for number in one.fragments}
    elsewhere = {one.uuid for one in there if one.elsewhere}
    for group in groups:
        owners = {owner.get(number) for number in group}
        # Danger: Lance writes a segment that a compaction moves into the folder of this line, and
        # notes that it lies where it was. Nobody would find it there.
        in_the_way = owners if len(owners) > 1 else owners & elsewhere
        replaced |= {one for one in in_the_way if one is not None}
    wanted = {number for number in sizes if owner.get(number) in (None, *replaced)}
    kept = [one for one in there if one.uuid not in replaced]
    too_many = bool(wanted) and len(kept) >= INDEX_SEGMENTS_MAX
    builds: list[IndexBuild] = []
    for of_kind, is_settled in ((wanted & settled, True), (wanted - settled, False)):
        if not of_kind and not too_many:
            continue
        chosen, rows = set(of_kind), sum(sizes[number] for number in of_kind)
        # Like the digits of a counter: a segment joins if it is no bigger than twice what is built
        # anyway, so that few segments stay and no row is indexed again more than a few times.
        for one in sorted(kept, key=lambda one: _rows(one, sizes)):
            alike = settled.issuperset(one.fragments & sizes.keys()) == is_settled
            if alike and (too_many or _rows(one, sizes) <= 2 * rows):
                replaced.add(one.uuid)
                chosen |= one.fragments & sizes.keys()
                rows += _rows(one, sizes)
        if chosen:
            builds.append(IndexBuild(spec=spec, fragments=tuple(sorted(chosen))))
    going = [one for one in there if one.uuid in replaced]
    return [
        replace(build, replaces=tuple(sorted(_replaced_by(build, builds, going))))
        for build in builds
    ]


def _replaced_by(
    build: IndexBuild, builds: Sequence[IndexBuild], going: Sequence[Segment]
) -> Iterator[str]:
    """Which of the segments that go are replaced by a build: those whose fragments it covers, and
    by the first also those that cover nothing any more."""
    everything = {number for one in builds for number in one.fragments}
    for one in going:
        unused = build is builds[0] and one.fragments.isdisjoint(everything)
        if unused or not one.fragments.isdisjoint(build.fragments):
            yield one.uuid


def _rows(segment: Segment, sizes: Mapping[int, int]) -> int:
    return sum(sizes.get(number, 0) for number in segment.fragments)


def untrainable(pinned: Pinned, spec: IndexSpec) -> str | None:
    """Why the index cannot be built yet, or None."""
    if spec.kind != "vector":
        return None
    present = pinned.dataset.count_rows(f"{sql.column(spec.column)} IS NOT NULL")
    return None if present else "no row has a vector yet"


def resolved(pinned: Pinned, specs: Sequence[IndexSpec]) -> tuple[IndexSpec, ...]:
    """The specs, each under the name that its index has already: a renamed column keeps it."""
    known = {(index.field_names[0], _kind(index)): index.name for index in _descriptions(pinned)}
    return tuple(
        replace(spec, name=known.get((spec.column, spec.kind), spec.name)) for spec in specs
    )


def coverage(
    known: Mapping[str, Sequence[Segment]], builds: Sequence[IndexBuild], drops: Sequence[str] = ()
) -> dict[int, frozenset[str]]:
    """The segments that cover each fragment once the builds have landed."""
    replaced = {uid for one in builds for uid in one.replaces}
    covering: dict[int, set[str]] = {}
    for name, there in known.items():
        for one in there:
            if one.uuid not in replaced and name not in drops:
                for number in one.fragments:
                    covering.setdefault(number, set()).add(one.uuid)
    for at, wanted in enumerate(builds):
        for number in wanted.fragments:
            covering.setdefault(number, set()).add(f"new {at} {wanted.spec.name}")
    return {number: frozenset(names) for number, names in covering.items()}


# --- doing -----------------------------------------------------------------------------------


def segments(pinned: Pinned, *, check: bool) -> dict[str, tuple[Segment, ...]]:
    """The segments of every index by its name; `check` reads them through to find damage."""
    found: dict[str, tuple[Segment, ...]] = {}
    described = _descriptions(pinned)
    own = _own_segments(pinned) if described else None
    for index in described:
        broken = check and _is_broken(pinned, index.name)
        found[index.name] = tuple(
            Segment(
                uuid=str(one.uuid),
                fragments=frozenset(one.fragment_ids),
                broken=broken,
                elsewhere=own is not None and str(one.uuid) not in own,
            )
            for one in index.segments
        )
    return found


def _own_segments(pinned: Pinned) -> frozenset[str] | None:
    """The segments that lie in the folder of this line, as the version says; None: all of them.
    None that is known to, where that cannot be read."""
    if pinned.entry.branch is None:
        return None
    key = f"{pinned.place}/_versions/{version_file(pinned.entry.version)}"
    stored = pinned.lines.store.read(key)
    try:
        facts = None if stored is None else read_as(pinned.entry.version, stored.body)
    except NotAVersionError:
        facts = None
    parts = () if facts is None else facts.indexes
    return frozenset(part.path.rpartition("/")[2] for part in parts if part.base is None)


def tasks(
    wanted: IndexBuild, sizes: Mapping[int, int], *, rows_max: int | None = None
) -> tuple[IndexBuild, ...]:
    """The segment in pieces of about `rows_max` rows, for `build`; None = in one.

    A vector index is always one piece: pieces trained apart from each other do not join.
    """
    spec = wanted.spec
    if spec.kind == "vector":
        rows = sum(sizes[number] for number in wanted.fragments)
        partitions = max(1, min(VECTOR_PARTITIONS_MAX, math.isqrt(rows)))
        spec = replace(spec, parameters={"num_partitions": partitions, **spec.parameters})
    if spec.kind == "vector" or rows_max is None:
        return (IndexBuild(spec=spec, fragments=wanted.fragments),)
    runs: list[list[int]] = [[]]
    for number in wanted.fragments:
        if runs[-1] and sum(sizes[one] for one in runs[-1]) + sizes[number] > rows_max:
            runs.append([])
        runs[-1].append(number)
    return tuple(IndexBuild(spec=spec, fragments=tuple(run)) for run in runs)


def build(dataset: Any, task: IndexBuild, uri: str) -> Any:
    """Build one piece into new files; nobody uses it before it is `joined`."""
    spec = task.spec
    with translated(uri, doing=f"build index '{spec.name}' of table"):
        return dataset.create_index_uncommitted(
            spec.column,
            _LANCE_KINDS[spec.kind],
            name=spec.name,
            replace=True,
            fragment_ids=list(task.fragments),
            **spec.parameters,
        )


def joined(pinned: Pinned, wanted: IndexBuild, pieces: Sequence[Any]) -> Any:
    """One segment of all the pieces, whoever built them; their own files go. Whoever uses it asks
    the disk to keep it."""
    (segment, *more), spec = pieces, wanted.spec
    if more:
        with pinned.translated(doing=f"join index '{spec.name}' of"):
            segment = pinned.dataset.merge_existing_index_segments(list(pieces))
    for piece in pieces:
        if piece.uuid != segment.uuid:
            discard(pinned, piece)
    return segment


def discard(pinned: Pinned, segment: Any) -> None:
    """Delete the files of a segment, or of a piece of one, that no version names."""
    pinned.lines.store.delete_prefix(f"{pinned.place}/_indices/{segment.uuid}")


def operation(
    pinned: Pinned, built: Sequence[tuple[IndexBuild, Any]], drops: Sequence[str]
) -> Any | None:
    """The Lance operation that shows the built segments and takes others away; None = no change."""
    replaced = {uid for one, _ in built for uid in one.replaces}
    removed = [
        _identity(pinned, index, segment)
        for index in _descriptions(pinned)
        for segment in index.segments
        if index.name in drops or str(segment.uuid) in replaced
    ]
    if not built and not removed:
        return None
    return Op.CreateIndex([segment for _, segment in built], removed)


def broken(pinned: Pinned) -> list[str]:
    """The names of indexes that cannot be read through."""
    return [one.name for one in _descriptions(pinned) if _is_broken(pinned, one.name)]


def _is_broken(pinned: Pinned, name: str) -> bool:
    """Whether the index cannot be read through."""
    try:
        pinned.dataset.prewarm_index(name)
    except FOREIGN as cause:
        logger.warning(
            "index is unreadable",
            extra={"table": pinned.entry.table_key, "index": name, "why": reason_of(cause)},
        )
        return True
    return False


def _identity(pinned: Pinned, index: Any, segment: Any) -> Any:
    """A segment in the form in which Lance takes it out again."""
    number = pinned.dataset.lance_schema.field(index.field_names[0]).id()
    return lance.Index(
        uuid=str(segment.uuid),
        name=index.name,
        fields=[number],
        dataset_version=segment.dataset_version_at_last_update,
        fragment_ids=Bitmap(segment.fragment_ids),
        index_version=segment.index_version,
    )


def _kind(index: Any) -> str:
    name = str(index.index_type).lower()
    return "vector" if name.startswith("ivf") else name


def _descriptions(pinned: Pinned) -> Sequence[Any]:
    with pinned.translated(doing="list indexes of"):
        found: Sequence[Any] = pinned.dataset.describe_indices()
        return found
