"""Staging: one task's input becomes rows that wait for the checks, and for being committed.

In process a task may hold its rows in memory. On Spark, and when there are too many of them, it
writes them as uncommitted fragments into the tables' folders. Nothing that is written here is
visible, and nothing is lost if the task runs twice: only the receipts of the attempt that counts
are ever used.
"""

from __future__ import annotations

import gc
import threading
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.engine.arrow import Column, Ints, picked
from omnigraph.engine.check.checks import CheckPlan
from omnigraph.engine.check.decide import Located
from omnigraph.engine.check.findings import Findings, Offender, Place, PlaceWord, Unreadable
from omnigraph.engine.check.keyfiles import write_cut, write_keys
from omnigraph.engine.load.reading import Input, Problem, Reading, ShapedRows
from omnigraph.engine.load.vectors import EmbedPlan, VectorFiller, no_vector
from omnigraph.engine.rows.blobs import BlobBases
from omnigraph.engine.rows.columns import batch_schema
from omnigraph.engine.rows.parts import (
    GraphAccess,
    Part,
    ordinal_of,
    packed,
    part_of,
    write_spill,
)
from omnigraph.errors import EmbeddingError, LimitExceededError, NotFoundError
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import STAGE_FLUSH_BYTES
from omnigraph.model.ports import Runner
from omnigraph.model.schema import Catalog, EdgeType, NodeType, Scalar
from omnigraph.storage.lance.columns import arrow_schema, seal
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.table.stage import (
    StagedWrite,
    data_files,
    delete_files,
    row_count,
    take_out,
    write_fragments,
    write_images,
)
from omnigraph.storage.table.table import Table


class StageJob(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of one staging share."""

    graph: GraphAccess
    files: FileAccess
    catalog: Catalog
    entries: Mapping[str, TableEntry]  # by table key, on the lines that will be written
    keep_all: bool  # every problem with its text, for a quarantine
    scratch: str  # a folder for files that are only needed while the load runs
    keeps_blobs: bool = False  # keep rows with blobs there: they cannot be read back from fragments
    embed: EmbedPlan | None = None  # None: vectors that the input lacks stay null
    bases: BlobBases | None = None  # of blobs outside the graph; None: anywhere
    buckets: int = 1  # into which keys are cut for the checks; 1: no key files are written
    held_bytes: int = 0  # of rows that a task may hold in memory instead of writing them
    tasks_at_once: int = 1  # that share the memory of one process

    @property
    def notes(self) -> Notes:
        return Notes(graph=self.graph, scratch=self.scratch)

    def reading(self) -> Reading:
        """What one task reads with."""
        filler = None if self.embed is None else VectorFiller(self.embed, self.files)
        return Reading(self.catalog, self.files, keep_all=self.keep_all, filler=filler)


class StageTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task. Its number orders its rows among those of the others."""

    number: int
    source: Input


class StageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a task did. `lines` is how many lines its split has (None: it has rows, not lines)."""

    number: int
    address: str
    word: PlaceWord
    first: int  # of the numbers in problems: 0 for splits, which the driver counts up
    lines: int | None
    records: int
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...]
    by_kind: Mapping[str, int] = {}
    vectors: int = 0  # made from text

    @property
    def bad(self) -> int:
        return sum(self.by_kind.values())


def run_stage(job: StageJob, task: StageTask) -> StageAnswer:
    """Read, shape, check and stage one task's input."""
    source, reading = task.source, job.reading()
    with _unhurried_collector:
        parts = _staged(job, task.number, source.shaped(reading))
    return StageAnswer(
        number=task.number,
        address=source.address,
        word=source.word,
        first=source.first,
        lines=reading.lines if source.word == "line" else None,
        records=reading.records,
        parts=parts,
        problems=tuple(reading.problems.listed),
        by_kind=dict(reading.problems.by_kind),
        vectors=reading.filler.made if reading.filler else 0,
    )


class _UnhurriedCollector:
    """Python's cycle collector costs half of the time when millions of lines are alive. It rests
    while any task runs, in whichever thread."""

    def __init__(self) -> None:
        self._lock, self._tasks, self._was_on = threading.Lock(), 0, False

    def __enter__(self) -> None:
        with self._lock:
            if not self._tasks:
                self._was_on = gc.isenabled()
                gc.disable()
            self._tasks += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._tasks -= 1
            if not self._tasks and self._was_on:
                gc.enable()


_unhurried_collector = _UnhurriedCollector()


def _staged(
    job: StageJob, number: int, shaped: Iterable[tuple[str, ShapedRows]]
) -> tuple[Part, ...]:
    """Stage the rows by table. They are staged also if the load has failed already, because the
    checks across rows will want to see them."""
    parts: dict[str, Part] = {}
    waiting: dict[str, list[ShapedRows]] = {}
    size, holds = 0, job.held_bytes > 0
    for key, rows in shaped:
        if job.keep_all and not rows.rows.num_rows:
            continue  # a type whose records are all put aside is not part of the load
        if job.bases is not None:
            job.bases.admit_rows(job.catalog.type_of(key), rows.rows)
        part = parts.get(key) or Part(number=number, table_key=key)
        parts[key] = replace(
            part,
            fresh_ids=part.fresh_ids and rows.fresh_ids,
            numbers=(*part.numbers, packed(rows.numbers)),
            lost=part.lost + rows.lost,
        )
        waiting.setdefault(key, []).append(rows)
        size += rows.rows.nbytes + sum(map(len, rows.refused))
        # More than its share a task holds only while it runs.
        holds = holds and size < job.held_bytes
        if size >= STAGE_FLUSH_BYTES // job.tasks_at_once and not holds:
            parts.update(_settled(job, parts, waiting, hold=False))
            waiting, size = {}, 0
    parts.update(_settled(job, parts, waiting, hold=holds))
    return tuple(part for _, part in sorted(parts.items()))


def _settled(
    job: StageJob,
    parts: Mapping[str, Part],
    waiting: Mapping[str, list[ShapedRows]],
    *,
    hold: bool,
) -> Iterator[tuple[str, Part]]:
    """The parts with the rows that waited, held or written."""
    for key, some in waiting.items():
        part = _with_ghosts(job, parts[key], some)
        tables = tuple(one.rows for one in some if one.rows.num_rows)
        if hold:
            part = replace(part, held=tables, rows=sum(table.num_rows for table in tables))
        elif tables:
            part = write_part(
                job.notes,
                job.catalog.type_of(key),
                job.entries[key],
                part,
                pa.concat_tables(tables),
                buckets=job.buckets,
                keeps_blobs=job.keeps_blobs,
            )
        yield key, part


def write_part(
    notes: Notes,
    entity: NodeType | EdgeType,
    entry: TableEntry,
    part: Part,
    rows: pa.Table,
    *,
    buckets: int,
    keeps_blobs: bool,
    row_ids: Sequence[int] = (),
) -> Part:
    """The part with these rows added, as fragments of the table at `entry`; beside them whatever
    checks and rewrites will ask for. The first rows are new images of those with `row_ids`."""
    schema = arrow_schema(entity)
    folder, options = notes.graph.folder(entry), notes.graph.options
    files = FileAccess(environ=notes.graph.environ)
    if buckets > 1:
        first = part.first_row + part.rows
        keys = write_keys(
            files, notes.scratch, entity, rows, first=first, fresh=part.fresh_ids, count=buckets
        )
        part = replace(part, keys=(*part.keys, *keys))
    sealed = seal(rows, schema)
    receipts = (
        write_images(folder, options, sealed, row_ids)
        if row_ids
        else write_fragments(folder, options, sealed, schema)
    )
    note = notes.add(Written(folder=folder, receipts=tuple(receipts)))
    if keeps_blobs and any(prop.type.scalar is Scalar.BLOB for prop in entity.properties):
        part = replace(part, spills=(*part.spills, write_spill(files, notes.scratch, rows)))
    return replace(
        part,
        entry=entry,
        notes=(*part.notes, note),
        receipts=(*part.receipts, *receipts),
        rows=part.rows + sum(row_count(receipt) for receipt in receipts),
    )


def _with_ghosts(job: StageJob, part: Part, some: Sequence[ShapedRows]) -> Part:
    """The part with a file of the ids that were refused. A quarantine wants none: there an edge
    goes with its node."""
    refused = [entity_id for one in some for entity_id in one.refused]
    if not refused or job.keep_all:
        return part
    ids = pa.table({"id": pa.array(refused, pa.string())})
    spill = write_cut(job.files, job.scratch, ids, ("id",), job.buckets)
    return replace(part, ghosts=(*part.ghosts, spill))


# --- notes of what was written ----------------------------------------------------------------
#
# Spark keeps one answer of each task. Attempts that failed later, ran twice or lost their executor
# have written files that no answer names, and so have all tasks of a job that fails as a whole.
# Each write is therefore noted below the load's scratch folder, and when the load is over its
# driver deletes what was noted and did not become part of the commit. What a process wrote and
# could not note any more is left for `cleanup`.

_SUFFIX: Final = ".note"
_READERS: Final = 8


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Fragments in the folder of one table that nobody sees yet."""

    folder: str
    receipts: tuple[str, ...]


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of one load; a value that travels to its tasks."""

    graph: GraphAccess
    scratch: str

    def add(self, written: Written) -> str:
        """Note what has just been written; the note's name."""
        name = f"{uuid.uuid4().hex}{_SUFFIX}"
        self._files.write(f"{self.scratch}/notes/{name}", msgspec.json.encode(written))
        return name

    def sweep(
        self, known: Sequence[Written], *, named: Collection[str], used: Iterable[Written]
    ) -> int:
        """Delete every file that was noted, or is known, and is not `used`; how many there were.

        `named` are notes about what is known already, which need not be read.
        """
        strays = {(one.folder, r) for one in (*known, *self._read(named)) for r in one.receipts}
        # What a commit refers to, or may still come to refer to, is not ours to delete: `used` is
        # compared file by file, because two receipts may tell of one file.
        kept = {file for one in used for file in data_files(one.folder, one.receipts)}
        deleted = 0
        for folder, receipt in sorted(strays):
            if not kept & data_files(folder, [receipt]):
                deleted += delete_files(folder, self.graph.options, [receipt])
        return deleted

    @property
    def _files(self) -> FileAccess:
        return FileAccess(environ=self.graph.environ)

    def _read(self, named: Collection[str]) -> list[Written]:
        try:
            found = self._files.found(f"{self.scratch}/notes")
        except NotFoundError:
            return []
        names = (file.address for file in found if file.address.endswith(_SUFFIX))
        unknown = [one for one in names if one.rpartition("/")[2] not in named]
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(self._note, unknown))

    def _note(self, address: str) -> Written:
        with self._files.open(address) as file:
            return msgspec.json.decode(bytes(file.read()), type=Written)


# --- where rows came from, and what is wrong with them ------------------------------------------


class Places(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Where records came from, in words: file and line, or file and row."""

    answers: Sequence[StageAnswer]

    @cached_property
    def _by_number(self) -> Mapping[int, StageAnswer]:
        return {answer.number: answer for answer in self.answers}

    @cached_property
    def _lines_before(self) -> Mapping[int, int]:
        """How many lines of the same file lie before each split."""
        before: dict[int, int] = {}
        seen: dict[str, int] = {}
        for answer in sorted(self.answers, key=lambda one: one.number):
            before[answer.number] = seen.get(answer.address, 0)
            seen[answer.address] = before[answer.number] + (answer.lines or 0)
        return before

    def of(self, task: int, number: int) -> Place:
        """The place of a record by the task that read it and its number there."""
        origin = self._by_number[task]
        before = self._lines_before[task] if origin.word == "line" else origin.first
        return Place(
            word=origin.word, number=before + number + 1, source=origin.address, at=(task, number)
        )


class PartNames:
    """The staged rows of a load by their numbers (the port `RowNames`)."""

    def __init__(self, plan: CheckPlan, places: Places) -> None:
        self._plan, self._places = plan, places
        self._numbers: dict[tuple[str, int], Ints] = {}
        self._ids: dict[tuple[str, int], Column] = {}

    def place(self, table_key: str, row: int) -> Place:
        part, ordinal = self._row(table_key, row)
        key = (table_key, part.number)
        if key not in self._numbers:
            self._numbers[key] = part.record_numbers()
        return self._places.of(part.number, int(self._numbers[key][ordinal]))

    def entity_id(self, table_key: str, row: int) -> str:
        part, ordinal = self._row(table_key, row)
        key = (table_key, part.number)
        if key not in self._ids:
            self._ids[key] = part.columns(self._plan.access, ["id"])["id"]
        return str(self._ids[key][ordinal].as_py())

    def left(self, table_key: str, source: str) -> None:
        """A load takes no edge away."""

    def _row(self, table_key: str, row: int) -> tuple[Part, int]:
        parts = (part for part in self._plan.of(table_key) if part.number == part_of(row))
        return next(parts), ordinal_of(row)


def offenders_of(answers: Sequence[StageAnswer], places: Places) -> list[Offender]:
    """The problems of reading and shaping, in the order of the input."""
    return [
        Offender(
            place=str(places.of(answer.number, problem.number)),
            kind=problem.kind,
            message=problem.text,
            hint=problem.hint,
            raw=problem.raw,
        )
        for answer in answers
        for problem in answer.problems
    ]


def refuse_failures(answers: Sequence[StageAnswer], places: Places, *, quarantined: bool) -> None:
    """Raise for what is more than a record's fault: a vector that could not be made, and, where
    records are not put aside, one that is longer than a record may be."""
    failed = [
        (answer, one)
        for answer in answers
        for one in answer.problems
        if one.error and not (quarantined and isinstance(one.error, LimitExceededError))
    ]
    if not failed:
        return
    answer, problem = failed[0]
    assert problem.error is not None, "chosen by it"
    place = places.of(answer.number, problem.number)
    if isinstance(problem.error, LimitExceededError):
        limits = {name: problem.error.facts[name] for name in ("limit", "actual")}
        raise LimitExceededError(resource=f"{place} of a load, in bytes,", **limits)
    if not isinstance(problem.error, EmbeddingError):
        raise problem.error
    raise no_vector(
        problem.error,
        type_name=(problem.table_key or "").partition(":")[2],
        prop=str(problem.property),
        where=str(place),
        place=str(place),
    ) from problem.error


def staging_findings(answers: Sequence[StageAnswer], places: Places) -> Findings:
    """What reading and shaping found: records that cannot be read, and values that are wrong."""
    found = Findings()
    for answer in answers:
        uncounted = dict(answer.by_kind)
        for problem in answer.problems:
            place = places.of(answer.number, problem.number)
            uncounted[problem.kind] -= 1
            if problem.violation is not None:
                found.add([replace(problem.violation, place=place)])
                continue
            kind: Literal["file", "record"] = "file" if problem.kind == "file" else "record"
            found.refuse(Unreadable(text=problem.text, place=place, hint=problem.hint, kind=kind))
        for kind_, more in uncounted.items():
            if more:
                found.count(kind_, more)
    return found


# --- writing parts again --------------------------------------------------------------------------

# Without the rows that are given up, or with the rows that replace stored ones in front, carrying
# their row ids.

_NONE: Ints = np.empty(0, dtype=np.int64)
_TAKEN_AT_ONCE = 8  # fragments, by one task


class RewriteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Write the part again: `dropped` rows left out, `leading` rows first with these row ids."""

    notes: Notes
    entity: NodeType | EdgeType
    part: Part
    dropped: Ints
    leading: Ints
    row_ids: Ints


def rewrite(task: RewriteTask) -> Part:
    """The part as it was written again; the old files are left for the driver to delete."""
    old, leads = task.part, len(task.leading) > 0
    rows = old.all_rows(task.notes.graph, batch_schema(task.entity).names)
    stays = np.ones(rows.num_rows, dtype=bool)
    stays[task.dropped] = False
    stays[task.leading] = False
    order = np.concatenate([task.leading, np.flatnonzero(stays)])
    chosen: pa.Table = picked(rows, order)
    # Numbers are packed growing; a part with leading rows is never asked for places again.
    numbers = () if leads else (packed(old.record_numbers()[order]),)
    part = replace(old, receipts=(), held=(), rows=0, numbers=numbers, keys=(), spills=(), notes=())
    if old.entry is None:
        assert not leads, "rows that replace others are put in front when written"
        return replace(part, held=(chosen,) if chosen.num_rows else (), rows=chosen.num_rows)
    return write_part(
        task.notes,
        task.entity,
        old.entry,
        part,
        chosen,
        buckets=old.keys[0].count if old.keys and not leads else 1,
        keeps_blobs=bool(old.spills) and not leads,
        row_ids=task.row_ids.tolist(),
    )


def without_rows(
    runner: Runner,
    notes: Notes,
    catalog: Catalog,
    parts: Mapping[str, tuple[Part, ...]],
    dropped: Mapping[str, Mapping[int, Ints]],
) -> dict[str, tuple[Part, ...]]:
    """The parts without the dropped rows (table → part → ordinals); other parts as they are."""
    tasks = [
        RewriteTask(
            notes=notes,
            entity=catalog.type_of(key),
            part=part,
            dropped=dropped[key][part.number],
            leading=_NONE,
            row_ids=_NONE,
        )
        for key in sorted(dropped)
        for part in parts[key]
        if part.number in dropped[key]
    ]
    written = runner.run(tasks, rewrite, stage="rewrite")
    again = {(part.table_key, part.number): part for part in written}
    return {
        key: tuple(again.get((key, part.number), part) for part in some)
        for key, some in parts.items()
    }


def replacing(
    runner: Runner,
    notes: Notes,
    table: Table,
    entity: NodeType | EdgeType,
    parts: Sequence[Part],
    matches: Mapping[int, Located],
) -> tuple[StagedWrite, list[Part]]:
    """The upsert of the parts, and those of them that were written again for it; `matches` say
    which rows of each part replace which."""
    rewrites = [
        RewriteTask(
            notes=notes,
            entity=entity,
            part=part,
            dropped=_NONE,
            leading=matches[part.number].rows,
            row_ids=matches[part.number].row_ids,
        )
        for part in parts
        if part.number in matches
    ]
    written = runner.run(rewrites, rewrite, stage="merge")
    again = {part.number: part for part in written}
    addresses = np.concatenate([_NONE, *(match.addresses for match in matches.values())])
    reduced, removed = _taken_out(runner, notes.graph, table.entry, addresses)
    staged = table.stage_upsert_fragments(
        [receipt for part in parts for receipt in again.get(part.number, part).receipts],
        reduced=reduced,
        removed=removed,
        rows_updated=len(addresses),
    )
    return staged, written


def _taken_out(
    runner: Runner, access: GraphAccess, target: TableEntry, addresses: Ints
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The receipts of stored fragments without these rows, and which fragments have none left."""
    fragments = addresses >> 32
    losing = [
        (int(number), addresses[fragments == number] & 0xFFFFFFFF)
        for number in np.unique(fragments)
    ]
    tasks = [losing[at : at + _TAKEN_AT_ONCE] for at in range(0, len(losing), _TAKEN_AT_ONCE)]
    found = runner.run(tasks, partial(take_rows_out, access, target), stage="merge")
    answers = [one for some in found for one in some]
    reduced = tuple(receipt for _, receipt in answers if receipt is not None)
    return reduced, tuple(number for number, receipt in answers if receipt is None)


def take_rows_out(
    access: GraphAccess, entry: TableEntry, losing: Sequence[tuple[int, Ints]]
) -> list[tuple[int, str | None]]:
    """Each fragment without the rows at its offsets: number, and receipt or None if it is empty."""
    folder, version = access.folder(entry), entry.version
    return [
        (number, take_out(folder, access.options, version, number, offsets.tolist()))
        for number, offsets in losing
    ]
