"""Upkeep of one table: which fragments to compact, and which index parts that needs.

Upkeep is planned and carried out on one version, which may take long, and staged on whatever
version is current then, which is quick: what other writers changed meanwhile is left out, the rest
still holds. An index segment covers whole fragments, and Lance compacts fragments only if every
segment covers all or none of them. Segments that stand in the way of compaction are built anew over
everything they cover.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, Final, get_args

import msgspec
import numpy as np
from lance.optimize import Compaction, CompactionTask

from omnigraph.model.limits import AUTO_RUN_FRAGMENTS_MAX, TARGET_FRAGMENT_ROWS
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.storage.lance import pylance, stamps
from omnigraph.storage.lance.digests import NONE, Digests
from omnigraph.storage.lance.files import FragmentKey, fragment_key, index_paths
from omnigraph.storage.lance.pylance import translated
from omnigraph.storage.objects.root import branch_folder
from omnigraph.storage.table import index as indexes
from omnigraph.storage.table.index import IndexBuild, IndexKind, IndexSpec, Segment
from omnigraph.storage.table.pinned import OFFSET_BITS, Pinned
from omnigraph.storage.table.stage import Rewrites, StagedWrite, staged, staged_on, u64

_DELETED_SHARE_MAX: Final = 0.1
_FORMER_KINDS: Final = ("inverted",)  # of indexes that earlier versions built, and nobody reads
_COMPACTION_VERSIONS: Final = 2  # Lance commits the fragment numbers first, then the rewrite
_ROW_NOTES: Final = frozenset(
    {"row_id_meta", "created_at_version_meta", "last_updated_at_version_meta"}
)

UpkeepTask = str | IndexBuild  # Lance's own JSON for compaction, ours for indexes


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One fragment as far as upkeep cares. `identity` names its files, `rows` live rows only."""

    number: int
    rows: int
    deleted: int
    identity: FragmentKey
    bytes: int = 0

    @property
    def worn(self) -> bool:
        return self.deleted > _DELETED_SHARE_MAX * (self.rows + self.deleted)


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """How to look after a table. `tiered` compacts only small fragments, so that frequent upkeep
    stays cheap; without `compact` indexes alone are looked after. `check_indexes` also reads them
    to find damaged ones, and `drop_undeclared` takes indexes of ours away that no spec asks for any
    more. Segments are built in pieces of `index_task_rows`, None = in one."""

    tiered: bool = False
    compact: bool = True
    check_indexes: bool = False
    drop_undeclared: bool = False
    index_task_rows: int | None = None


class UpkeepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to a table: fragments to compact, and index segments to build in pieces."""

    compactions: tuple[str, ...]
    builds: tuple[tuple[IndexBuild, tuple[IndexBuild, ...]], ...]
    drops: tuple[str, ...]
    pending: tuple[tuple[IndexSpec, str], ...]  # what cannot be built yet, and why

    @property
    def is_empty(self) -> bool:
        return not (self.compactions or self.builds or self.drops)

    @property
    def tasks(self) -> tuple[UpkeepTask, ...]:
        """All that takes long, in no particular order; each may run in another process."""
        return (*self.compactions, *(task for _, pieces in self.builds for task in pieces))


class UpkeepWork(msgspec.Struct, frozen=True, kw_only=True):
    """What was done on the side: rewritten fragments and index segments, not visible yet."""

    location: str
    branch: str | None
    results: tuple[str, ...]
    segments: tuple[tuple[IndexBuild, Any], ...]
    drops: tuple[str, ...]
    identities: Mapping[int, FragmentKey]
    digests: Digests = NONE


class StagedUpkeep(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the work that still fits, as one write."""

    write: StagedWrite
    fragments_removed: int = 0
    fragments_added: int = 0
    used: frozenset[str] = frozenset()  # results, and names of segments, that are part of it


def parts(pinned: Pinned) -> tuple[Part, ...]:
    """The fragments of the table, in table order."""
    found: list[Part] = []
    for fragment in pinned.dataset.get_fragments():
        metadata = fragment.metadata
        deleted = int(fragment.num_deletions) if metadata.deletion_file is not None else 0
        part = Part(
            number=int(metadata.id),
            rows=int(metadata.physical_rows) - deleted,
            deleted=deleted,
            identity=fragment_key(metadata),
            bytes=sum(int(file.file_size_bytes or 0) for file in metadata.files),
        )
        found.append(part)
    return tuple(found)


class Fragmentation(msgspec.Struct, frozen=True, kw_only=True):
    """How fragmented a table is: what upkeep would find to do, and how big it is."""

    rows: int
    deleted: int
    fragments: int
    small_fragments: int
    bytes: int


def fragmentation(pinned: Pinned) -> Fragmentation:
    """How fragmented the table is, from what its version says alone: no data is read."""
    found = parts(pinned)
    tier = tier_rows(found)
    return Fragmentation(
        rows=sum(part.rows for part in found),
        deleted=sum(part.deleted for part in found),
        fragments=len(found),
        small_fragments=sum(1 for part in found if part.rows < tier),
        bytes=sum(part.bytes for part in found),
    )


# --- deciding --------------------------------------------------------------------------------


def compaction_groups(
    found: Sequence[Part],
    *,
    target_rows: int,
    parts_max: int | None = None,
    first_row_ids: Mapping[int, int] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Runs of neighbours that become fewer, or lose many deleted rows, when written anew.

    A run stands or falls as a whole: shorter ones (`parts_max`) lose less to a writer who changes
    one of their fragments meanwhile.

    What others commit while upkeep works has smaller fragment numbers than what comes out of it,
    so that neighbours need not be what was made one after the other. With `first_row_ids` (of the
    small fragments) those are neighbours whose row ids are: ascending row ids take next to no room,
    and those of all fragments are written into every later version. Where rows are changed rather
    than added, row ids go up and down all the time; then nothing is gained, and numbers decide.
    """
    by_number = _runs(found, target_rows=target_rows, parts_max=parts_max)
    if not first_row_ids:
        return by_number
    small = [part for part in found if part.number in first_row_ids]
    small.sort(key=lambda part: first_row_ids[part.number])
    by_row_id = _runs(small, target_rows=target_rows, parts_max=parts_max)
    more = max(1, len(small) // AUTO_RUN_FRAGMENTS_MAX)
    return by_row_id if _spared(by_row_id) + more >= _spared(by_number) else by_number


def _spared(groups: Sequence[Sequence[int]]) -> int:
    """How many fragments fewer there are after compaction."""
    return sum(len(group) - 1 for group in groups)


def _runs(
    found: Iterable[Part], *, target_rows: int, parts_max: int | None
) -> tuple[tuple[int, ...], ...]:
    groups: list[tuple[int, ...]] = []
    run: list[Part] = []

    def close() -> None:
        rows = sum(part.rows for part in run)
        fewer = math.ceil(rows / target_rows) < len(run)
        if fewer or any(part.worn for part in run):
            groups.append(tuple(part.number for part in run))
        run.clear()

    for part in found:
        if part.rows >= target_rows and not part.worn:
            close()
            continue
        if run and part.number < run[-1].number:
            close()  # Lance takes the fragments of a run in the order of their numbers only
        run.append(part)
        if sum(one.rows for one in run) >= target_rows or len(run) == parts_max:
            close()
    close()
    return tuple(groups)


def tier_rows(found: Sequence[Part]) -> int:
    """The fragment size up to which compaction is worth it, growing like the digits of a counter.

    Smaller fragments are taken first and a bigger one joins only if it is no bigger than all the
    smaller ones together. So each row is rewritten O(log n) times however many commits come.
    """
    total = 0
    for rows in sorted(part.rows for part in found):
        if rows > max(total, 1):
            break
        total += rows
    return max(2, min(TARGET_FRAGMENT_ROWS, total + 1))


def compactable(
    groups: Iterable[Collection[int]], coverage: Mapping[int, frozenset[str]]
) -> tuple[tuple[int, ...], ...]:
    """The groups, cut where neighbours are covered by different segments."""
    return tuple(tuple(run) for group in groups for _, run in groupby(group, key=coverage.get))


def _undeclared(
    known: Mapping[str, Sequence[Segment]], specs: Sequence[IndexSpec]
) -> tuple[str, ...]:
    """The indexes of ours that nobody asks for any more; those of other names are not ours."""
    declared = {spec.name for spec in specs}
    kinds = tuple(f"_{kind}" for kind in (*get_args(IndexKind), *_FORMER_KINDS))
    return tuple(name for name in known if name not in declared and name.endswith(kinds))


# --- doing -----------------------------------------------------------------------------------


def plan(pinned: Pinned, specs: Sequence[IndexSpec], how: Upkeep) -> UpkeepPlan:
    """What the table needs."""
    found = parts(pinned)
    by_number = {part.number: part for part in found}
    sizes = {part.number: part.rows for part in found}
    target_rows = tier_rows(found) if how.tiered else TARGET_FRAGMENT_ROWS
    parts_max = AUTO_RUN_FRAGMENTS_MAX if how.tiered else None
    groups: tuple[tuple[int, ...], ...] = ()
    if how.compact:
        first = _first_row_ids(pinned, found, target_rows=target_rows) if how.tiered else {}
        groups = compaction_groups(
            found, target_rows=target_rows, parts_max=parts_max, first_row_ids=first
        )
    known = indexes.segments(pinned, check=how.check_indexes)
    specs = indexes.resolved(pinned, specs)
    drops = _undeclared(known, specs) if how.drop_undeclared else ()
    builds: list[IndexBuild] = []
    pending: list[tuple[IndexSpec, str]] = []
    grouped = {number for group in groups for number in group}
    settled = [
        part.number for part in found if part.rows >= target_rows and part.number not in grouped
    ]
    for build in indexes.decide_builds(specs, known, sizes, groups, settled):
        reason = indexes.untrainable(pinned, build.spec)
        if reason is None:
            builds.append(build)
        else:
            pending.append((build.spec, reason))
    cut = compactable(groups, indexes.coverage(known, builds, drops))
    useful = [group for group in cut if len(group) > 1 or by_number[group[0]].worn]
    return UpkeepPlan(
        compactions=_compaction_tasks(pinned, useful, target_fragment_rows=target_rows),
        builds=tuple(
            (build, indexes.tasks(build, sizes, rows_max=how.index_task_rows)) for build in builds
        ),
        drops=drops,
        pending=tuple(pending),
    )


def run(dataset: Any, task: UpkeepTask, uri: str) -> Any:
    """Carry out one task into new files that nobody sees yet; the answer is for `done`."""
    if isinstance(task, IndexBuild):
        return indexes.build(dataset, task, uri)
    return _execute(dataset, task, uri)


def run_at(uri: str, storage_options: Mapping[str, str], version: int, task: UpkeepTask) -> Any:
    """The same for an executor that has nothing but the table's address."""
    with translated(uri, doing="open table"):
        dataset = pylance.opened(uri, storage_options, version=version)
    return run(dataset, task, uri)


def done(pinned: Pinned, planned: UpkeepPlan, answers: Sequence[Any]) -> UpkeepWork:
    """The plan carried out: the answers to its tasks in their order, index pieces joined."""
    results = answers[: len(planned.compactions)]
    pieces = iter(answers[len(planned.compactions) :])
    # Whoever ran the tasks wrote without asking the disk to keep it.
    paths = [path for one in results for path in _new_files(pinned.folder, one)]
    segments = tuple(
        (build, indexes.joined(pinned, build, list(islice(pieces, len(tasks)))))
        for build, tasks in planned.builds
    )
    names = [str(segment.uuid) for _, segment in segments]
    digests = pinned.lines.flusher.keep(pinned.folder, [*paths, *index_paths(pinned.folder, names)])
    return UpkeepWork(
        location=pinned.entry.location,
        branch=pinned.entry.branch,
        results=tuple(results),
        segments=segments,
        drops=planned.drops,
        identities={part.number: part.identity for part in parts(pinned)},
        digests=digests,
    )


def stage(pinned: Pinned, work: UpkeepWork) -> StagedUpkeep | None:
    """The work as one write on this version; None if nothing of it fits any more."""
    entry = pinned.entry
    if (entry.location, entry.branch) != (work.location, work.branch):
        return None
    current = {part.number: part for part in parts(pinned)}
    known = indexes.segments(pinned, check=False)
    kept = [one for one in work.segments if _still_builds(one[0], known, current, work)]
    drops = [name for name in work.drops if name in known]
    coverage = indexes.coverage(known, [build for build, _ in kept], drops)
    elsewhere = {one.uuid for there in known.values() for one in there if one.elsewhere}
    results = [
        one for one in work.results if _still_compacts(one, current, work, coverage, elsewhere)
    ]
    operation = indexes.operation(pinned, kept, drops)
    index_write = (
        None if operation is None else staged(pinned, "index", operation, digests=work.digests)
    )
    used = frozenset([*results, *(str(segment.uuid) for _, segment in kept)])
    if not results:
        return None if index_write is None else StagedUpkeep(write=index_write, used=used)
    metrics = [json.loads(one)["metrics"] for one in results]
    first = None if index_write is None else index_write.transaction
    write = staged_on(
        entry,
        "compaction",
        Rewrites(results=tuple(results), first=first, uuid=str(uuid.uuid4())),
        rows=sum(part.rows for part in current.values()),
        versions=_COMPACTION_VERSIONS + (first is not None),
    )
    write = msgspec.structs.replace(write, digests=work.digests)
    return StagedUpkeep(
        write=write,
        fragments_removed=sum(int(one["fragments_removed"]) for one in metrics),
        fragments_added=sum(int(one["fragments_added"]) for one in metrics),
        used=used,
    )


def discard(pinned: Pinned, work: UpkeepWork, staged: StagedUpkeep | None) -> None:
    """Delete the files of work that did not fit: no version will ever name them."""
    used = frozenset() if staged is None else staged.used
    folder = branch_folder(work.location, work.branch)
    for result in work.results:
        if result not in used:
            for path in _new_files(folder, result):
                pinned.lines.store.delete(path)
    for _, segment in work.segments:
        if str(segment.uuid) not in used:
            indexes.discard(pinned, segment)


def _still_builds(
    build: IndexBuild,
    known: Mapping[str, tuple[Segment, ...]],
    current: Mapping[int, Part],
    work: UpkeepWork,
) -> bool:
    """Whether the segment says as much about this version as about the one it was built on.

    A fragment that is gone does no harm, as with an index that was there before its rows were
    deleted or changed: row ids are stable, and a row that moved is found in its new fragment.
    Otherwise a table whose rows change all the time would never get its first index.
    """
    there = {segment.uuid: segment for segment in known.get(build.spec.name, ())}
    if not there.keys() >= set(build.replaces):
        return False
    others = [one for uid, one in there.items() if uid not in build.replaces]
    if any(set(one.fragments) & set(build.fragments) for one in others):
        return False
    there_still = [number for number in build.fragments if number in current]
    return bool(there_still) and all(
        current[number].identity.files == work.identities[number].files for number in there_still
    )


def _still_compacts(
    result: str,
    current: Mapping[int, Part],
    work: UpkeepWork,
    coverage: Mapping[int, frozenset[str]],
    elsewhere: set[str],
) -> bool:
    """Whether the fragments that the result replaces are as they were, and covered alike, by no
    segment that another line has."""
    numbers = [int(one["id"]) for one in json.loads(result)["original_fragments"]]
    if any(
        number not in current or current[number].identity != work.identities.get(number)
        for number in numbers
    ):
        return False
    covering = {coverage.get(number, frozenset()) for number in numbers}
    return len(covering) == 1 and elsewhere.isdisjoint(*covering)


# --- compaction ------------------------------------------------------------------------------
#
# Tasks and results are Lance's own JSON, so that tasks can run in other processes.


def _compaction_tasks(
    pinned: Pinned, groups: Sequence[Sequence[int]], *, target_fragment_rows: int
) -> tuple[str, ...]:
    """One task per group of fragment numbers, whatever Lance itself would have planned."""
    if not groups:
        return ()
    with pinned.translated(doing="plan compaction of"):
        # Lance's own plan tells the full set of options that its tasks carry.
        drafted: Any = Compaction.plan(
            pinned.dataset, {"target_rows_per_fragment": target_fragment_rows}
        )
        template = json.loads(drafted.json())  # a method that its stub forgets
    fragments = {one.fragment_id: one.metadata for one in pinned.dataset.get_fragments()}
    return tuple(
        json.dumps(
            {
                "task": {"fragments": [fragments[number].to_json() for number in group]},
                "read_version": pinned.entry.version,
                "options": {**template["options"], "has_eager_remappable_index": True},
            }
        )
        for group in groups
    )


def _first_row_ids(pinned: Pinned, found: Sequence[Part], *, target_rows: int) -> dict[int, int]:
    """The smallest row id of each fragment that may be compacted; no data is read for it."""
    numbers = [part.number for part in found if part.rows < target_rows or part.worn]
    first = dict.fromkeys(numbers, 0)
    with pinned.translated(doing="plan compaction of"):
        rows = pinned.dataset.scanner(
            columns=[ROW_ID, ROW_ADDRESS],
            fragments=[pinned.dataset.get_fragment(number) for number in numbers],
            scan_stats_callback=pinned.meter.add,
        ).to_table()
    if rows.num_rows:
        fragments = u64(rows[ROW_ADDRESS]) >> OFFSET_BITS
        starts = np.flatnonzero(np.r_[True, fragments[1:] != fragments[:-1]])
        least = np.minimum.reduceat(u64(rows[ROW_ID]), starts)
        first |= dict(zip(fragments[starts].tolist(), least.tolist(), strict=True))
    return first


def on_version(result: str, version: int, *, indexed: bool) -> str:
    """The same result, to be committed on a version in which its sources are unchanged.

    Where rows moved to is told for the sake of indexes. On a version without any (a writer may have
    taken away what the first one was built on) Lance would put that aside for later, and refuses.
    """
    fitted = {**json.loads(result), "read_version": version}
    return json.dumps(fitted if indexed else {**fitted, "row_addrs": None})


def _new_files(folder: str, result: str) -> list[str]:
    """The data files that a task wrote."""
    fragments = json.loads(result)["new_fragments"]
    return [f"{folder}/data/{file['path']}" for one in fragments for file in one["files"]]


def _execute(dataset: Any, task: str, uri: str) -> str:
    decode: Any = CompactionTask  # its stub forgets `from_json`
    with translated(uri, doing="compact table"):
        result = json.loads(decode.from_json(task).execute(dataset).json())
    for fragment in result["new_fragments"]:
        # Both are written into every later version. When a row was made nobody asks for; when it
        # was last changed stays, as finely as differences need it.
        fragment["created_at_version_meta"] = None
        stamped = fragment.get("last_updated_at_version_meta") or {}
        if "inline" in stamped:
            note = stamps.shortened(bytes(stamped["inline"]))
            fragment["last_updated_at_version_meta"] = {"inline": list(note)}
    for fragment in result["original_fragments"]:
        # Lance finds them by number, and would copy all else into the new version for ever.
        fragment.update(dict.fromkeys(_ROW_NOTES & fragment.keys()))
    return json.dumps(result)
