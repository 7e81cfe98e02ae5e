"""Work over what is stored, spread over executors: `export` and `optimize`.

An export is of one pinned snapshot, in formats that a load takes back exactly.
"""

from __future__ import annotations

import gzip
import os
import uuid
from collections.abc import Sequence
from contextlib import closing, nullcontext
from functools import partial
from itertools import islice
from typing import Any, Literal

import msgspec
import orjson
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from omnigraph.engine.access import Gate, PolicySource
from omnigraph.engine.arguments import CALL_OR_NONE, INT, PATH, TEXT_OR_NONE, TEXTS_OR_NONE, require
from omnigraph.engine.arrow import Column
from omnigraph.engine.core import OpenMode, open_core
from omnigraph.engine.load.report import Listener, PipelineReport, Stopwatch
from omnigraph.engine.maintain.optimize import OptimizeReport, Work
from omnigraph.engine.maintain.optimize import optimize as optimize_branch
from omnigraph.engine.read.export import export_types, table_lines
from omnigraph.engine.rows.parts import FragmentGroup, GraphAccess, fragment_groups
from omnigraph.errors import AlreadyExistsError, InputError
from omnigraph.model.graph import MAIN, Snapshot, TableEntry
from omnigraph.model.limits import INDEX_TASK_ROWS
from omnigraph.model.schema import ROW_ID, Catalog, EdgeType, NodeType, Scalar
from omnigraph.pipeline.progress import listening
from omnigraph.pipeline.runner import SparkRunner, access_to
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.table.table import Table
from omnigraph.storage.table.upkeep import UpkeepTask, run_at

ExportFormat = Literal["ndjson", "parquet"]
SUMMARY_FILE = "_omnigraph.json"  # written last: a folder without it is not a whole export

_LINES_PER_WRITE = 4_096
_BLOB = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])


class ExportJob(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of an export share."""

    graph: GraphAccess
    files: FileAccess
    catalog: Catalog
    out: str
    format: ExportFormat
    compression: str | None

    @property
    def packs(self) -> bool:
        """Whether lines are packed."""
        return self.compression in ("gzip", "gz")


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """One file that was written."""

    table_key: str
    path: str
    rows: int
    size: int


def export(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: ExportFormat = "ndjson",  # noqa: A002  (the name is fixed by the API)
    branch: str = MAIN,
    snapshot: str | None = None,
    types: Sequence[str] | None = None,
    compression: str | None = None,
    progress: Listener | bool | None = None,
    actor: str | None = None,
    policy: PolicySource | None = None,
) -> PipelineReport:
    """Write the graph as it is at one commit into the folder `out`, one folder a type.

    NDJSON files hold the lines that a load takes back (`compression="gzip"` packs them); Parquet
    files hold one type's columns each. The folder must not hold anything yet. A `policy` must allow
    the export to the actor.

    Examples:
        >>> pipeline.export(spark, "people.omni", "out", format="parquet").status
        'exported'
    """
    if format not in ("ndjson", "parquet"):
        raise InputError(f"unknown export format '{format}'", hint="use ndjson or parquet")
    require(PATH, uri=uri, out=out)
    require(TEXTS_OR_NONE, types=types)
    require(TEXT_OR_NONE, compression=compression)
    with closing(open_core(os.fspath(uri), mode=OpenMode.READ_ONLY)) as core:
        target = core.snapshot(branch, snapshot)
        Gate.of(policy, actor).require("export", branch=target.graph_branch)
        catalog = core.catalog(target)
        chosen = export_types(catalog, types)
        access = access_to(core.root.uri)
        job = ExportJob(
            graph=access,
            files=FileAccess(environ=access.environ),
            catalog=catalog,
            out=os.fspath(out).rstrip("/"),
            format=format,
            compression=compression,
        )
        _require_empty(job)
        groups = [
            group
            for entity in chosen
            for group in fragment_groups(core.table(target, entity.table_key))
        ]
    with listening(progress) as listener:
        watch = Stopwatch(listener)
        with watch.step("export") as step:
            tasks, run = list(enumerate(groups)), partial(run_export, job)
            written = SparkRunner(spark, listener).run(tasks, run, stage="export")
            step.tasks, step.records = len(tasks), sum(one.rows for one in written)
    return _report(job, target, chosen, written, watch)


def _require_empty(job: ExportJob) -> None:
    system, path = job.files.system(job.out)
    kind = system.get_file_info(path).type.name
    inside = pa.fs.FileSelector(path, recursive=False)
    if kind == "File" or (kind == "Directory" and system.get_file_info(inside)):
        raise AlreadyExistsError(
            f"'{job.out}' is there already", kind="export", name=job.out, hint="use a new folder"
        )


def _report(
    job: ExportJob,
    target: Snapshot,
    chosen: Sequence[NodeType | EdgeType],
    written: Sequence[Exported],
    watch: Stopwatch,
) -> PipelineReport:
    counts = {entity.table_key: 0 for entity in chosen}
    for one in written:
        counts[one.table_key] += one.rows
    report = PipelineReport(
        status="exported",
        uri=job.graph.uri,
        branch=target.graph_branch,
        nodes={key[5:]: n for key, n in counts.items() if key.startswith("node:")},
        edges={key[5:]: n for key, n in counts.items() if key.startswith("edge:")},
        files=len(written),
        records=sum(counts.values()),
        bytes_written=sum(one.size for one in written),
        steps=watch.steps,
        commit=target.head,
        output=tuple(one.path for one in written),
    )
    job.files.write(f"{job.out}/{SUMMARY_FILE}", orjson.dumps(report.to_json()))
    return report


def run_export(job: ExportJob, task: tuple[int, FragmentGroup]) -> Exported:
    """Write some fragments of one type as one file, which appears under its name only when it is
    whole."""
    number, group = task
    entity = job.catalog.type_of(group.entry.table_key)
    table = job.graph.table(group.entry)
    suffix = ".parquet" if job.format == "parquet" else ".jsonl.gz" if job.packs else ".jsonl"
    path = f"{job.out}/{entity.kind}s/{entity.name}/part-{number:05d}{suffix}"
    system, place = job.files.system(path)
    folder = os.path.dirname(place)
    system.create_dir(folder, recursive=True)
    temporary = f"{folder}/_{uuid.uuid4().hex}"
    write = _write_lines if job.format == "ndjson" else _write_parquet
    with system.open_output_stream(temporary, compression=None) as stream:
        rows = write(job, stream, table, entity, group.fragments)
    size = system.get_file_info(temporary).size or 0
    system.move(temporary, place)
    return Exported(table_key=entity.table_key, path=path, rows=rows, size=size)


def _write_lines(
    job: ExportJob,
    stream: Any,
    table: Table,
    entity: NodeType | EdgeType,
    fragments: Sequence[int],
) -> int:
    lines, rows = table_lines(table, entity, fragments=fragments), 0
    packed = gzip.GzipFile(fileobj=stream, mode="wb") if job.packs else nullcontext(stream)
    with packed as sink:
        while some := list(islice(lines, _LINES_PER_WRITE)):
            sink.write("\n".join(some).encode() + b"\n")
            rows += len(some)
    return rows


def _write_parquet(
    job: ExportJob,
    stream: Any,
    table: Table,
    entity: NodeType | EdgeType,
    fragments: Sequence[int],
) -> int:
    blobs = [p.name for p in entity.properties if p.type.scalar is Scalar.BLOB]
    names = [*entity.identity, *entity.by_name]
    plain = [name for name in names if name not in blobs]
    writer: parquet.ParquetWriter | None = None
    rows = 0
    try:
        for batch in table.scan(columns=plain, with_row_id=bool(blobs), fragments=fragments):
            columns: dict[str, Column] = {name: batch.column(name) for name in plain}
            for name in blobs:
                columns[name] = _blob_column(table, name, batch.column(ROW_ID).to_pylist())
            some = pa.table([columns[name] for name in names], names=names)
            if writer is None:
                codec: Any = job.compression or "zstd"
                writer = parquet.ParquetWriter(stream, some.schema, compression=codec)
            writer.write_table(some)
            rows += some.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows


def _blob_column(table: Table, name: str, row_ids: Sequence[Any]) -> Column:
    cells = [
        None
        if blob is None
        else {"data": None if blob.uri is not None else blob.read(), "uri": blob.uri}
        for blob in table.blobs(name, row_ids)
    ]
    return pa.array(cells, type=_BLOB)


# --- optimize ---------------------------------------------------------------------------------


class TableTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a table's upkeep: fragments to compact, or a piece of an index to build."""

    access: GraphAccess
    entry: TableEntry
    task: UpkeepTask


def optimize(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    listener: Listener | None = None,
    index_task_rows: int = INDEX_TASK_ROWS,
    actor: str | None = None,
    policy: PolicySource | None = None,
) -> OptimizeReport:
    """The same as `Graph.optimize()`: same plan, same one commit, tasks run by executors.

    An index is built in pieces of about `index_task_rows` rows, which are joined here. A `policy`
    must allow it to the actor.

    Examples:
        >>> report = pipeline.optimize(spark, "people.omni")
    """
    require(PATH, uri=uri)
    require(CALL_OR_NONE, listener=listener)
    require(INT, index_task_rows=index_task_rows)
    Gate.of(policy, actor).require("optimize")
    runner = SparkRunner(spark, listener)
    with closing(open_core(os.fspath(uri), mode=OpenMode.READ_WRITE)) as core:
        access = access_to(core.root.uri)

        def run_tasks(table: Table, tasks: Sequence[UpkeepTask]) -> Sequence[Any]:
            payloads = [TableTask(access=access, entry=table.entry, task=task) for task in tasks]
            return runner.run(payloads, run_table_task, stage="optimize")

        how = Work(run_tasks=run_tasks, index_task_rows=index_task_rows, runner=runner)
        return optimize_branch(core, branch, how)


def run_table_task(task: TableTask) -> Any:
    """Carry out one task into new files; nothing is visible until the driver commits."""
    folder = task.access.folder(task.entry)
    return run_at(folder, task.access.options, task.entry.version, task.task)
