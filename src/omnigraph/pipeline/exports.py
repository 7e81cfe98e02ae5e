"""Export in parallel from one pinned snapshot, in formats that a load takes back exactly."""

from __future__ import annotations

import gzip
import os
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
import orjson
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from omnigraph.engine.arrow import Column
from omnigraph.engine.core import OpenMode, open_core
from omnigraph.engine.load.report import Listener, PipelineReport, Stopwatch
from omnigraph.engine.read.export import export_types, table_lines
from omnigraph.engine.rows.parts import FragmentGroup, GraphAccess, fragment_groups
from omnigraph.errors import AlreadyExistsError, InputError
from omnigraph.model.graph import MAIN, Snapshot
from omnigraph.model.schema import ROW_ID, Catalog, EdgeType, NodeType, Scalar
from omnigraph.pipeline.progress import RichListener
from omnigraph.pipeline.runner import fan_out
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.objects.root import aws_environment
from omnigraph.storage.table.table import Table

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


class ExportTask(msgspec.Struct, frozen=True, kw_only=True):
    """Some fragments of one type, to be written as one file."""

    number: int
    group: FragmentGroup


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
) -> PipelineReport:
    """Write the graph as it is at one commit into the folder `out`, one folder a type.

    NDJSON files hold the lines that a load takes back (`compression="gzip"` packs them); Parquet
    files hold one type's columns each. The folder must not hold anything yet.
    """
    if format not in ("ndjson", "parquet"):
        raise InputError(f"unknown export format '{format}'", hint="use ndjson or parquet")
    if progress is True:
        with RichListener() as bars:
            return export(
                spark, uri, out, format=format, branch=branch, snapshot=snapshot, types=types,
                compression=compression, progress=bars,
            )  # fmt: skip
    listener = progress or None
    core = open_core(os.fspath(uri), mode=OpenMode.READ_ONLY)
    try:
        target = core.snapshot(branch, snapshot)
        catalog = core.catalog(target)
        chosen = export_types(catalog, types)
        environ = dict(aws_environment())
        job = ExportJob(
            graph=GraphAccess(uri=core.root.uri, environ=environ),
            files=FileAccess(environ=environ),
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
    finally:
        core.close()
    watch = Stopwatch(listener)
    tasks = [ExportTask(number=number, group=group) for number, group in enumerate(groups)]
    with watch.step("export") as step:
        written = fan_out(spark, tasks, partial(run_export, job), stage="export", listener=listener)
        step.tasks, step.records = len(tasks), sum(one.rows for one in written)
    return _report(job, target, chosen, written, watch)


def _require_empty(job: ExportJob) -> None:
    system, path = job.files.system(job.out)
    info = system.get_file_info(path)
    if info.type.name == "File" or (
        info.type.name == "Directory" and system.get_file_info(_inside(path))
    ):
        raise AlreadyExistsError(
            f"'{job.out}' is there already", kind="export", name=job.out, hint="use a new folder"
        )


def _inside(path: str) -> Any:
    return pa.fs.FileSelector(path, recursive=False)


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


# --- tasks ------------------------------------------------------------------------------------


def run_export(job: ExportJob, task: ExportTask) -> Exported:
    """Write one file. It appears under its name only when it is whole."""
    entity = job.catalog.type_of(task.group.entry.table_key)
    table = job.graph.table(task.group.entry)
    folder = f"{job.out}/{'nodes' if isinstance(entity, NodeType) else 'edges'}/{entity.name}"
    path = f"{folder}/part-{task.number:05d}{_suffix(job)}"
    system, place = job.files.system(path)
    system.create_dir(os.path.dirname(place), recursive=True)
    temporary = f"{os.path.dirname(place)}/_{uuid.uuid4().hex}"
    with system.open_output_stream(temporary, compression=None) as stream:
        if job.format == "ndjson":
            rows = _write_lines(job, stream, table, entity, task.group.fragments)
        else:
            rows = _write_parquet(job, stream, table, entity, task.group.fragments)
    size = system.get_file_info(temporary).size or 0
    system.move(temporary, place)
    return Exported(table_key=entity.table_key, path=path, rows=rows, size=size)


def _suffix(job: ExportJob) -> str:
    if job.format == "parquet":
        return ".parquet"
    return ".jsonl.gz" if job.compression in ("gzip", "gz") else ".jsonl"


def _write_lines(
    job: ExportJob,
    stream: Any,
    table: Table,
    entity: NodeType | EdgeType,
    fragments: Sequence[int],
) -> int:
    packed = gzip.GzipFile(fileobj=stream, mode="wb") if job.compression in ("gzip", "gz") else None
    sink = packed or stream
    rows = 0
    waiting: list[str] = []
    for line in table_lines(table, entity, fragments=fragments):
        waiting.append(line)
        rows += 1
        if len(waiting) >= _LINES_PER_WRITE:
            sink.write("\n".join(waiting).encode() + b"\n")
            waiting = []
    if waiting:
        sink.write("\n".join(waiting).encode() + b"\n")
    if packed is not None:
        packed.close()
    return rows


def _write_parquet(
    job: ExportJob,
    stream: Any,
    table: Table,
    entity: NodeType | EdgeType,
    fragments: Sequence[int],
) -> int:
    blobs = [p.name for p in entity.properties if p.type.scalar is Scalar.BLOB]
    plain = [p.name for p in entity.properties if p.type.scalar is not Scalar.BLOB]
    ends = ["src", "dst"] if isinstance(entity, EdgeType) else []
    names = ["id", *ends, *(prop.name for prop in entity.properties)]
    writer: parquet.ParquetWriter | None = None
    rows = 0
    try:
        for batch in table.scan(
            columns=["id", *ends, *plain], with_row_id=bool(blobs), fragments=fragments
        ):
            columns: dict[str, Column] = {
                name: batch.column(name) for name in ["id", *ends, *plain]
            }
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
