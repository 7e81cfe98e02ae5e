"""Taking a load's input in: find it, cut it into tasks, stage it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from omnigraph.engine.check.keyfiles import bucket_count
from omnigraph.engine.load.inputs.lines import GraphLines
from omnigraph.engine.load.inputs.sources import (
    Inputs,
    Source,
    TypedSource,
    plan_columns,
    plan_splits,
    read_chunks,
    resolve,
)
from omnigraph.engine.load.inputs.tables import plan_pieces
from omnigraph.engine.load.reading import Input
from omnigraph.engine.load.stage import StageAnswer, StageJob, StageTask, run_stage
from omnigraph.engine.load.vectors import EmbedPlan
from omnigraph.engine.rows.blobs import BlobBases
from omnigraph.engine.rows.parts import GraphAccess, Part
from omnigraph.errors import InputError
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import LOAD_SHORT_VECTOR_MAX
from omnigraph.model.ports import Runner
from omnigraph.model.schema import Catalog
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.objects.files import FileAccess


class Intake(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was staged, and under which schema."""

    answers: tuple[StageAnswer, ...]
    schema_fingerprint: str
    mentioned: frozenset[str]
    files: int
    bytes_read: int
    scratch: str
    buckets: int  # into which the keys were cut

    @property
    def records(self) -> int:
        return sum(answer.records for answer in self.answers)

    @property
    def vectors(self) -> int:
        return sum(answer.vectors for answer in self.answers)

    @property
    def parts(self) -> dict[str, tuple[Part, ...]]:
        """The staged parts by table key, in the order of the input."""
        parts: dict[str, list[Part]] = {}
        for answer in self.answers:
            for part in answer.parts:
                parts.setdefault(part.table_key, []).append(part)
        return {key: tuple(some) for key, some in sorted(parts.items())}


class Frames(Protocol):
    """DataFrames and tables of a Spark session, for loads that run on one."""

    def columns(self, source: Source) -> Sequence[str]:
        """The names of the frame's columns."""
        ...

    def stage(self, source: TypedSource, job: StageJob, *, first: int) -> list[StageAnswer]:
        """Stage every row of the frame; `first` is the number of its first part."""
        ...


def take_in(
    runner: Runner,
    frames: Frames | None,
    *,
    sources: Any,
    catalog: Catalog,
    context: WriteContext,
    access: GraphAccess,
    scratch: str,
    keep_all: bool,
    rewrites: bool,
    embed: EmbedPlan | None = None,
) -> Intake:
    """Stage all input. Problems with records come back as data; unreadable sources raise."""
    files = FileAccess(environ=access.environ)
    inputs = resolve(sources, catalog, files)
    if embed is not None:
        inputs = replace(inputs, typed=tuple(map(_filling, inputs.typed)))
    found = [file for address in inputs.graph_files for file in files.found(address)]
    framed = [one for one in inputs.typed if one.source.format in ("frame", "table")]
    filed = [one for one in inputs.typed if one.source.format not in ("frame", "table")]
    pieces: list[Input] = []
    for one in filed:
        pieces += plan_pieces(catalog.type_of(one.table_key), one.source, files)
    for one in framed:
        _check_columns(frames, one, catalog)
    lines = (
        GraphLines(chunks=partial(read_chunks, split), address=split.address)
        for split in plan_splits(found)
    )
    units: list[Input] = [*inputs.ready, *lines, *pieces]
    bytes_read = sum(file.size for file in found) + _sizes(inputs, files)
    stored_rows = sum(entry.row_count for entry in context.snapshot.entries.values())
    job = StageJob(
        graph=access,
        files=files,
        catalog=catalog,
        buckets=bucket_count(None if framed or inputs.ready else bytes_read, stored_rows),
        entries=entries_of(inputs, catalog, context, lazily=runner.held_bytes > 0),
        keep_all=keep_all,
        scratch=scratch,
        keeps_blobs=rewrites,
        embed=embed,
        bases=BlobBases.of(context.world.blob_bases),
        held_bytes=runner.held_bytes // max(len(units), 1),
        tasks_at_once=max(1, min(runner.parallelism, len(units))) if runner.held_bytes else 1,
    )
    tasks = [StageTask(number=number, source=one) for number, one in enumerate(units)]
    answers = _staged(runner, job, tasks)
    for one in framed:
        first = 1 + max((answer.number for answer in answers), default=-1)
        answers += _needed(frames, one.source).stage(one, job, first=first)
    return staged_intake(
        job,
        answers,
        context.snapshot.schema.fingerprint,
        frozenset(one.table_key for one in inputs.typed),
        files=len({answer.address for answer in answers if answer.address}),
        bytes_read=bytes_read,
    )


def staged_intake(
    job: StageJob,
    answers: Sequence[StageAnswer],
    schema_fingerprint: str,
    mentioned: frozenset[str] = frozenset(),
    *,
    files: int = 0,
    bytes_read: int = 0,
) -> Intake:
    """What tasks have staged, as an intake."""
    named = {part.table_key for answer in answers for part in answer.parts}
    return Intake(
        answers=tuple(answers),
        schema_fingerprint=schema_fingerprint,
        mentioned=mentioned | named,
        files=files,
        bytes_read=bytes_read,
        scratch=job.scratch,
        buckets=job.buckets,
    )


def _staged(runner: Runner, job: StageJob, tasks: Sequence[StageTask]) -> list[StageAnswer]:
    run, properties = (
        partial(run_stage, job),
        (p for t in job.catalog.types() for p in t.properties),
    )
    wide = any((prop.type.dimension or 0) > LOAD_SHORT_VECTOR_MAX for prop in properties)
    if not wide or not runner.held_bytes:
        return runner.run(tasks, run, stage="stage")
    # In one process, tasks with long vectors would take too much memory side by side.
    return [answer for task in tasks for answer in runner.run([task], run, stage="stage")]


def _sizes(inputs: Inputs, files: FileAccess) -> int:
    sources = [one.source for one in inputs.typed if one.source.format != "table"]
    return sum(file.size for one in sources for path in one.paths for file in files.found(path))


def _filling(one: TypedSource) -> TypedSource:
    """The source, which may now leave out required vectors that will be made."""
    mapped = replace(one.source.mapped, fills_vectors=True)
    return replace(one, source=replace(one.source, mapped=mapped))


def _check_columns(frames: Frames | None, one: TypedSource, catalog: Catalog) -> None:
    """A mapping that cannot work is refused here, not by every task."""
    columns = _needed(frames, one.source).columns(one.source)
    entity = catalog.type_of(one.table_key)
    plan_columns(entity, columns, one.source.mapped, place=f"source of {entity.name}")


def _needed(frames: Frames | None, source: Source) -> Frames:
    if frames is None:
        name = f"table '{source.paths[0]}'" if source.paths else "DataFrame"
        raise InputError(f"the {name} can only be read with Spark")
    return frames


def entries_of(
    inputs: Inputs, catalog: Catalog, context: WriteContext, *, lazily: bool = False
) -> Mapping[str, TableEntry]:
    """The tables that may be written, on the branch's own line. Which types graph NDJSON holds is
    not known before it is read, so all of them are made ready, or each when it is needed."""
    if lazily:
        return _LazyEntries(context)
    if inputs.any_type:
        keys = [entity.table_key for entity in catalog.types()]
    else:
        keys = sorted({one.table_key for one in inputs.typed})
    return {key: context.writable(key).entry for key in keys}


class _LazyEntries(dict[str, TableEntry]):
    """The same, each made ready when it is asked for: most loads in process hold their rows."""

    def __init__(self, context: WriteContext) -> None:
        self._context, self._lock = context, threading.Lock()

    def __missing__(self, table_key: str) -> TableEntry:
        with self._lock:
            return self._context.writable(table_key).entry
