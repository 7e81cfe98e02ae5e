"""Taking a load's input in: find it, cut it into tasks, stage it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from omnigraph.errors import InputError
from omnigraph.model.graph import TableEntry
from omnigraph.model.schema import Catalog
from omnigraph.pipeline.fanout import fan_out
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.framestage import stage_frame, stage_text_frame
from omnigraph.pipeline.mapping import plan_columns
from omnigraph.pipeline.parts import GraphAccess, Part
from omnigraph.pipeline.progress import Listener
from omnigraph.pipeline.sources import Inputs, TypedSource, resolve
from omnigraph.pipeline.splits import plan_splits
from omnigraph.pipeline.stage import StageAnswer, StageJob, StageTask, run_stage
from omnigraph.pipeline.tablestage import plan_pieces
from omnigraph.pipeline.vectors import EmbedPlan
from omnigraph.storage.writer import WriteContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Everything that was staged, and under which schema."""

    answers: tuple[StageAnswer, ...]
    schema_hash: str
    mentioned: frozenset[str]
    files: int
    bytes_read: int
    scratch: str
    access: FileAccess

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


def take_in(
    spark: SparkSession | None,
    *,
    sources: Any,
    catalog: Catalog,
    context: WriteContext,
    access: GraphAccess,
    scratch: str,
    keep_all: bool,
    rewrites: bool,
    listener: Listener | None,
    embed: EmbedPlan | None = None,
) -> Intake:
    """Stage all input. Problems with records come back as data; unreadable sources raise."""
    files = FileAccess(environ=access.environ)
    inputs = resolve(sources, catalog, files)
    if embed is not None:
        inputs = _filling(inputs)
    found = [file for address in inputs.graph_files for file in files.found(address)]
    frames, pieces = _typed(inputs, catalog, files)
    _check_frames(spark, frames, catalog)
    job = StageJob(
        graph=access,
        files=files,
        catalog=catalog,
        entries=_entries(inputs, catalog, context),
        keep_all=keep_all,
        scratch=scratch,
        keeps_blobs=rewrites,
        embed=embed,
    )
    units = [*plan_splits(found), *pieces]
    tasks = [StageTask(number=number, source=unit) for number, unit in enumerate(units)]
    answers = fan_out(spark, tasks, partial(run_stage, job), stage="stage", listener=listener)
    for one in frames:
        frame = _frame(spark, one)
        answers += stage_frame(
            frame,
            job,
            table_key=one.table_key,
            mapped=one.source.mapped,
            first=1 + max((answer.number for answer in answers), default=-1),
        )
    named = {part.table_key for answer in answers for part in answer.parts}
    return Intake(
        answers=tuple(answers),
        schema_hash=context.snapshot.schema.hash,
        mentioned=frozenset(named | {one.table_key for one in inputs.typed}),
        files=len({answer.address for answer in answers}),
        bytes_read=sum(file.size for file in found) + _sizes(inputs, files),
        scratch=scratch,
        access=files,
    )


def take_in_lines(
    frame: Any,
    context: WriteContext,
    catalog: Catalog,
    access: GraphAccess,
    scratch: str,
    *,
    keep_all: bool,
    mode: str,
) -> Intake:
    """Stage a DataFrame of one text column that holds lines of graph NDJSON."""
    files = FileAccess(environ=access.environ)
    job = StageJob(
        graph=access,
        files=files,
        catalog=catalog,
        entries=_entries(Inputs(graph_files=("lines",)), catalog, context),
        keep_all=keep_all,
        scratch=scratch,
        keeps_blobs=keep_all or mode == "merge",
    )
    return staged_intake(job, stage_text_frame(frame, job), context.snapshot.schema.hash)


def staged_intake(
    job: StageJob,
    answers: Sequence[StageAnswer],
    schema_hash: str,
    mentioned: frozenset[str] = frozenset(),
) -> Intake:
    """What tasks of another making have staged, as an intake."""
    named = {part.table_key for answer in answers for part in answer.parts}
    return Intake(
        answers=tuple(answers),
        schema_hash=schema_hash,
        mentioned=mentioned | named,
        files=0,
        bytes_read=0,
        scratch=job.scratch,
        access=job.files,
    )


def _filling(inputs: Inputs) -> Inputs:
    """The sources, which may now leave out required vectors that will be made."""
    return replace(
        inputs,
        typed=tuple(
            replace(
                one,
                source=replace(one.source, mapped=replace(one.source.mapped, fills_vectors=True)),
            )
            for one in inputs.typed
        ),
    )


def _typed(
    inputs: Inputs, catalog: Catalog, files: FileAccess
) -> tuple[list[TypedSource], list[Any]]:
    frames = [one for one in inputs.typed if one.source.format in ("frame", "table")]
    pieces = [
        piece
        for one in inputs.typed
        if one.source.format not in ("frame", "table")
        for piece in plan_pieces(catalog.type_of(one.table_key), one.source, files)
    ]
    return frames, pieces


def _frame(spark: SparkSession | None, one: TypedSource) -> Any:
    if one.source.frame is not None:
        return one.source.frame
    if spark is None:
        raise InputError(f"the table '{one.source.paths[0]}' can only be read with Spark")
    return spark.read.table(one.source.paths[0])


def _check_frames(
    spark: SparkSession | None, frames: Sequence[TypedSource], catalog: Catalog
) -> None:
    """A mapping that cannot work is refused here, not by every task."""
    for one in frames:
        columns = _frame(spark, one).columns
        entity = catalog.type_of(one.table_key)
        plan_columns(entity, columns, one.source.mapped, place=f"source of {entity.name}")


def _entries(inputs: Inputs, catalog: Catalog, context: WriteContext) -> dict[str, TableEntry]:
    """The tables that may be written, on the branch's own line. Which types graph NDJSON holds is
    not known before it is read, so all of them are made ready."""
    if inputs.graph_files:
        keys = [entity.table_key for entity in catalog.types()]
    else:
        keys = sorted({one.table_key for one in inputs.typed})
    return {key: replace(context.writable(key).entry) for key in keys}


def _sizes(inputs: Inputs, files: FileAccess) -> int:
    return sum(
        file.size
        for one in inputs.typed
        if one.source.format not in ("frame", "table")
        for path in one.source.paths
        for file in files.found(path)
    )
