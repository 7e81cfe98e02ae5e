"""Indexes of a table: what there is, what it covers, and staging what is missing.

An index is made of segments, each covering some fragments. Rows that came later are found by
scanning until a new segment covers them; when segments become many, or the uncovered part big, the
index is built anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import lance
from lance import LanceOperation as Op
from lance.bitmap import Bitmap

from omnigraph.model.limits import INDEX_SEGMENTS_MAX, VECTOR_PARTITIONS_MAX
from omnigraph.storage import sql
from omnigraph.storage.faults import translated
from omnigraph.storage.handles import Pinned
from omnigraph.storage.staged import StagedWrite
from omnigraph.storage.staging import staged

IndexKind = Literal["btree", "bitmap", "inverted", "ngram", "label_list", "vector"]

_LANCE_KINDS: Final[Mapping[IndexKind, str]] = {
    "btree": "BTREE",
    "bitmap": "BITMAP",
    "inverted": "INVERTED",
    "ngram": "NGRAM",
    "label_list": "LABEL_LIST",
    "vector": "IVF_FLAT",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSpec:
    """An index that should be there. `parameters` go to Lance as they are."""

    name: str
    column: str
    kind: IndexKind
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexInfo:
    """An index that is there, and how much of the table it covers."""

    name: str
    columns: tuple[str, ...]
    kind: str
    rows_indexed: int
    rows_unindexed: int
    segments: int
    fragments: frozenset[int]  # those that a segment covers


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingIndex:
    """An index that cannot be built yet."""

    name: str
    column: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedIndexes:
    """What came of a request for indexes; `write` is None if nothing had to be built."""

    write: StagedWrite | None
    built: tuple[str, ...]
    pending: tuple[PendingIndex, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    """One segment to build, and the segments that it replaces."""

    spec: IndexSpec
    fragments: tuple[int, ...]
    replaces: tuple[Any, ...]


def describe(pinned: Pinned) -> tuple[IndexInfo, ...]:
    """Every index of the table, by name."""
    rows = int(pinned.dataset.count_rows())
    return tuple(
        _info(index, rows) for index in sorted(_descriptions(pinned), key=lambda one: one.name)
    )


def stage(pinned: Pinned, specs: Sequence[IndexSpec]) -> StagedIndexes:
    """Build whatever the specs ask for and the table lacks, without showing it to anybody."""
    known = {index.name: index for index in _descriptions(pinned)}
    sizes = _fragment_sizes(pinned)
    new: list[Any] = []
    removed: list[Any] = []
    built: list[str] = []
    pending: list[PendingIndex] = []
    for spec in specs:
        build = _decide(spec, known.get(spec.name), sizes)
        if build is None:
            continue
        reason = _untrainable(pinned, spec)
        if reason is not None:
            pending.append(PendingIndex(name=spec.name, column=spec.column, reason=reason))
            continue
        new.append(_segment(pinned, build))
        removed.extend(_identity(pinned, spec, segment) for segment in build.replaces)
        built.append(spec.name)
    write = staged(pinned, "index", Op.CreateIndex(new, removed)) if new else None
    return StagedIndexes(write=write, built=tuple(built), pending=tuple(pending))


def stage_drop(pinned: Pinned, names: Sequence[str]) -> StagedWrite | None:
    """Take indexes away; None if none of them is there."""
    removed = [
        _identity(pinned, IndexSpec(name=index.name, column=column, kind="btree"), segment)
        for index in _descriptions(pinned)
        if index.name in names
        for column in index.field_names[:1]
        for segment in index.segments
    ]
    return staged(pinned, "index", Op.CreateIndex([], removed)) if removed else None


def _decide(spec: IndexSpec, known: Any | None, sizes: Mapping[int, int]) -> _Build | None:
    """Nothing, one more segment, or all anew."""
    if not sizes:
        return None
    if known is None:
        return _Build(spec=spec, fragments=tuple(sizes), replaces=())
    covered = _covered(known) & sizes.keys()
    missing = tuple(number for number in sizes if number not in covered)
    if not missing:
        return None
    rows_missing = sum(sizes[number] for number in missing)
    rows_covered = sum(sizes[number] for number in covered)
    segments = tuple(known.segments)
    if len(segments) >= INDEX_SEGMENTS_MAX or rows_missing * 2 >= rows_covered:
        return _Build(spec=spec, fragments=tuple(sizes), replaces=segments)
    return _Build(spec=spec, fragments=missing, replaces=())


def _untrainable(pinned: Pinned, spec: IndexSpec) -> str | None:
    """Why the index cannot be built yet, or None."""
    if spec.kind != "vector":
        return None
    present = pinned.dataset.count_rows(f"{sql.column(spec.column)} IS NOT NULL")
    return None if present else "no row has a vector yet"


def _segment(pinned: Pinned, build: _Build) -> Any:
    spec = build.spec
    parameters = dict(spec.parameters)
    if spec.kind == "vector" and "num_partitions" not in parameters:
        rows = sum(_fragment_sizes(pinned)[number] for number in build.fragments)
        parameters["num_partitions"] = max(1, min(VECTOR_PARTITIONS_MAX, math.isqrt(rows)))
    with translated(pinned.folder, doing=f"build index '{spec.name}' of table"):
        segment = pinned.dataset.create_index_uncommitted(
            spec.column,
            _LANCE_KINDS[spec.kind],
            name=spec.name,
            replace=True,
            fragment_ids=list(build.fragments),
            **parameters,
        )
        if spec.kind == "inverted":
            # A raw full-text segment holds drafts only; merging makes it complete.
            segment = pinned.dataset.merge_existing_index_segments([segment])
    pinned.flusher.flush(
        f"{pinned.folder}/_indices/{segment.uuid}/{file.path}" for file in segment.files or ()
    )
    return segment


def _identity(pinned: Pinned, spec: IndexSpec, segment: Any) -> Any:
    """A segment in the form in which Lance takes it out again."""
    number = pinned.dataset.lance_schema.field(spec.column).id()
    return lance.Index(
        uuid=str(segment.uuid),
        name=spec.name,
        fields=[number],
        dataset_version=segment.dataset_version_at_last_update,
        fragment_ids=Bitmap(segment.fragment_ids),
        index_version=segment.index_version,
    )


def _descriptions(pinned: Pinned) -> Sequence[Any]:
    with translated(pinned.folder, doing="list indexes of table"):
        found: Sequence[Any] = pinned.dataset.describe_indices()
        return found


def _info(index: Any, rows: int) -> IndexInfo:
    indexed = min(rows, int(index.num_rows_indexed))
    return IndexInfo(
        name=index.name,
        columns=tuple(index.field_names),
        kind=str(index.index_type),
        rows_indexed=indexed,
        rows_unindexed=rows - indexed,
        segments=len(index.segments),
        fragments=_covered(index),
    )


def _covered(index: Any) -> frozenset[int]:
    return frozenset(number for segment in index.segments for number in segment.fragment_ids)


def _fragment_sizes(pinned: Pinned) -> Mapping[int, int]:
    return {one.fragment_id: one.count_rows() for one in pinned.dataset.get_fragments()}
