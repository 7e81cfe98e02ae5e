"""`format("omnigraph")`: a type of the graph as a DataFrame, and a DataFrame as a graph commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.engine.core import Core, OpenMode, open_core
from omnigraph.engine.load.inputs.sources import Mapped, type_named
from omnigraph.engine.load.intake import Intake, staged_intake
from omnigraph.engine.load.order import checked_order
from omnigraph.engine.load.run import run_load
from omnigraph.engine.load.stage import StageAnswer, StageJob, StageTask, run_stage
from omnigraph.engine.rows.parts import FragmentGroup, GraphAccess, fragment_groups, scratch_folder
from omnigraph.engine.runner import Inline
from omnigraph.errors import InputError
from omnigraph.model.graph import MAIN, Snapshot, TableEntry
from omnigraph.model.limits import GROUP_ROWS
from omnigraph.model.ports import World
from omnigraph.model.schema import Catalog, EdgeType, NodeType, PropertyType, Scalar
from omnigraph.pipeline.datasource import (
    CHANGE_FIELDS,
    CHANGE_TYPE,
    COMMIT_ID,
    ChangeSpan,
    change_batches,
    entry_before,
)
from omnigraph.pipeline.frames import partition_rows
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.lance.columns import value_type
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.objects.root import aws_environment

FORMAT = "omnigraph"


def register(spark: SparkSession) -> None:
    """Make `format("omnigraph")` known to the session."""
    spark.dataSource.register(OmnigraphSource)


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one read or write, checked."""

    uri: str
    type_name: str
    branch: str = MAIN
    snapshot: str | None = None
    where: str | None = None
    changes: bool = False
    start: str | None = None
    end: str | None = None
    mode: str | None = None
    actor: str | None = None
    rows_per_partition: int = GROUP_ROWS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        known = {name.lower(): value for name, value in options.items()}
        if "path" not in known or "type" not in known:
            hint = '.option("type", "Person").load("<graph>")'
            if not known:
                # Spark 4.3 reads a table of its catalog without the options it was made with.
                hint = (
                    "Spark forgets the options of CREATE TABLE when it reads the table: use CREATE "
                    f"TEMPORARY VIEW … USING {FORMAT} OPTIONS (…), or name them with the table: "
                    "FROM name WITH (path '<graph>', type 'Person')"
                )
            raise InputError(f'format("{FORMAT}") needs a graph and a type; {hint}', hint=hint)
        return cls(
            uri=known["path"],
            type_name=known["type"],
            branch=known.get("branch", MAIN),
            snapshot=known.get("snapshot"),
            where=known.get("where"),
            changes=known.get("readchanges", "false").lower() == "true",
            start=known.get("start") or known.get("startingcommit"),
            end=known.get("end") or known.get("endingcommit"),
            mode=known.get("mode"),
            actor=known.get("actor"),
            rows_per_partition=int(known.get("rowsperpartition", GROUP_ROWS)),
        )


class OmnigraphSource(DataSource):
    """A node or edge type of a graph.

    Options: `type` (required), `branch`, `snapshot` (a commit id or a moment), `readChanges` with
    `start` and `end` commits, `rowsPerPartition`; for writes `branch`, `actor`, `mode` ("merge").
    Spark asks Python sources for all columns and rows; name the columns you need with
    `.schema(...)` and give the store a condition with `where` (`"age > 30 AND name = 'Ada'"`).
    Spark's own filter push-down is not offered: Spark 4.3 keeps the pushed filters in the source
    that all uses of one DataFrame share, so the second use would miss rows.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        options = SourceOptions.parse(self.options)
        core = open_core(options.uri, mode=OpenMode.READ_ONLY)
        try:
            catalog = core.catalog(core.snapshot(options.branch, options.snapshot))
            found = spark_schema(type_named(options.type_name, catalog))
        finally:
            core.close()
        if options.changes:
            return StructType([*CHANGE_FIELDS, *found.fields])
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.parse(self.options)
        return ChangeReader(options, schema) if options.changes else TypeReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = SourceOptions.parse(self.options)
        if not options.changes:
            # Without the kind of change, a row that went could not be told from one that came.
            raise InputError(
                f'a stream of format("{FORMAT}") is the change feed of a type',
                hint='add .option("readChanges", "true")',
            )
        return ChangeStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002, FBT001
        options = SourceOptions.parse(self.options)
        mode = "overwrite" if overwrite else options.mode or "append"
        return TypeWriter(options, mode)


# --- reading ----------------------------------------------------------------------------------


class GroupPartition(InputPartition):
    """Some fragments of the pinned table."""

    def __init__(self, group: FragmentGroup) -> None:
        self.group = group


class TypeReader(DataSourceReader):
    """Reads one type at one snapshot, a partition per group of fragments."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._schema = schema
        self._where = options.where
        environ = dict(aws_environment())
        core = open_core(options.uri, mode=OpenMode.READ_ONLY)
        try:
            target = core.snapshot(options.branch, options.snapshot)
            self._entity = type_named(options.type_name, core.catalog(target))
            self._access = GraphAccess(uri=core.root.uri, environ=environ)
            table = core.table(target, self._entity.table_key)
            self._groups = list(fragment_groups(table, rows=options.rows_per_partition))
        finally:
            core.close()
        _require_columns(self._entity, schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [GroupPartition(group) for group in self._groups]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, GroupPartition):
            return
        group = partition.group
        names = [field.name for field in self._schema.fields]
        blobs = any(_is_blob(self._entity, name) for name in names)
        batches = self._access.table(group.entry).scan(
            columns=names,
            where=self._where,
            fragments=group.fragments,
            blobs="bytes" if blobs else "descriptors",
        )
        for batch in batches:
            if batch.num_rows:
                yield for_spark(batch, self._schema)


def _is_blob(entity: NodeType | EdgeType, name: str) -> bool:
    prop = entity.by_name.get(name)
    return prop is not None and prop.type.scalar is Scalar.BLOB


# --- changes ----------------------------------------------------------------------------------


class SpanPartition(InputPartition):
    """Everything that changed between two states of the type."""

    def __init__(self, span: ChangeSpan) -> None:
        self.span = span


class ChangeReader(DataSourceReader):
    """What happened to a type between two commits: `start` (not included) to `end` (included)."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._schema = schema
        core = open_core(options.uri, mode=OpenMode.READ_ONLY)
        try:
            newer = core.snapshot(options.branch, options.end)
            older = core.snapshot(options.branch, options.start) if options.start else None
            span = _span(core, options, older, newer)
        finally:
            core.close()
        _require_columns(span.entity, schema)
        self._pieces = span.pieces(rows=options.rows_per_partition)

    def partitions(self) -> Sequence[InputPartition]:
        return [SpanPartition(piece) for piece in self._pieces]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for batch in change_batches(partition.span):
            yield for_spark(batch, self._schema)


class ChangeStreamReader(DataSourceStreamReader):
    """The change feed as a stream. An offset is a version of the branch's manifest."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first commit, or at the commit named `start`."""
        if self._options.start is None:
            return {"manifest_version": 0}
        with _opened(self._options) as core:
            started = core.snapshot(self._options.branch, self._options.start)
        return {"manifest_version": started.manifest_version}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        with _opened(self._options) as core:
            return {"manifest_version": core.head(self._options.branch).manifest_version}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["manifest_version"], end["manifest_version"]
        if last <= first:
            return []
        with _opened(self._options) as core:
            older = core.snapshot(self._options.branch, first) if first else None
            newer = core.snapshot(self._options.branch, last)
            span = _span(core, self._options, older, newer)
        _require_columns(span.entity, self._schema)
        pieces = span.pieces(rows=self._options.rows_per_partition)
        return [SpanPartition(piece) for piece in pieces]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for batch in change_batches(partition.span):
            yield for_spark(batch, self._schema)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget: the history is the graph's."""


class _opened:  # noqa: N801  (reads as a word: with _opened(options) as core)
    def __init__(self, options: SourceOptions) -> None:
        self._core = open_core(options.uri, mode=OpenMode.READ_ONLY)

    def __enter__(self) -> Core:
        return self._core

    def __exit__(self, *_: object) -> None:
        self._core.close()


def _span(
    core: Core, options: SourceOptions, older: Snapshot | None, newer: Snapshot
) -> ChangeSpan:
    entity = type_named(options.type_name, core.catalog(newer))
    entry = newer.entries[entity.table_key]
    return ChangeSpan(
        access=GraphAccess(uri=core.root.uri, environ=dict(aws_environment())),
        entity=entity,
        older=entry_before(older, entry),
        newer=entry,
        commit_id=newer.graph_commit_id,
    )


def _require_columns(entity: NodeType | EdgeType, schema: StructType) -> None:
    """Refuse a column that the type does not have: asked for by mistake, or gone since the query
    began. Tasks would find out too, each by itself and four times over."""
    known = {*spark_schema(entity).names, CHANGE_TYPE, COMMIT_ID}
    unknown = [field.name for field in schema.fields if field.name not in known]
    if unknown:
        raise InputError(
            f"{entity.name} has no column '{unknown[0]}'",
            hint="if the schema of the graph has changed, start the query again; "
            f"the type has {', '.join(spark_schema(entity).names)}",
        )


# --- writing ----------------------------------------------------------------------------------


@dataclass
class StagedMessage(WriterCommitMessage):
    """What one task staged."""

    answer: StageAnswer


class TypeWriter(DataSourceArrowWriter):
    """Writes rows of one type as one graph commit. Checks run in the process that commits, so this
    is for what fits one machine; `pipeline.load` distributes them and takes many types at once."""

    def __init__(self, options: SourceOptions, mode: str) -> None:
        self._options = options
        self._order = checked_order(
            uri=options.uri,
            sources=None,
            mode=mode,
            branch=options.branch,
            from_branch=None,
            actor=options.actor,
            on_error="fail",
            quarantine=None,
            idempotency_key=None,
            message=None,
        )
        core = open_core(options.uri, mode=OpenMode.READ_WRITE)
        try:
            branch = core.branch(options.branch)
            snapshot = core.head(options.branch)
            catalog = core.catalog(snapshot)
            entity = type_named(options.type_name, catalog)
            context = WriteContext(core.writer, branch, snapshot)
            self._schema_hash = snapshot.schema.hash
            entry = context.writable(entity.table_key).entry
            self._job = _job(core, catalog, entry, rewrites=mode == "merge")
            self._table_key = entity.table_key
        finally:
            core.close()

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        number = _partition_id()
        rows = partition_rows(self._table_key, Mapped(), iterator, number)
        answer = run_stage(self._job, StageTask(number=number, source=rows))
        return StagedMessage(answer=answer)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        answers = [one.answer for one in messages if isinstance(one, StagedMessage)]
        job, schema_hash = self._job, self._schema_hash
        mentioned = frozenset({self._table_key})

        def staged(
            context: WriteContext, catalog: Catalog, access: GraphAccess, scratch: str
        ) -> Intake:
            del context, catalog, access, scratch
            return staged_intake(job, answers, schema_hash, mentioned)

        run_load(Inline(), self._order, listener=None, world=World(), stage_input=staged)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        del messages  # tasks that failed have sent none, but noted what they wrote
        self._job.notes.sweep([], named=(), used=())
        self._job.files.remove_folder(self._job.scratch)


def _job(core: Core, catalog: Catalog, entry: TableEntry, *, rewrites: bool) -> StageJob:
    environ = dict(aws_environment())
    return StageJob(
        graph=GraphAccess(uri=core.root.uri, environ=environ),
        files=FileAccess(environ=environ),
        catalog=catalog,
        entries={entry.table_key: entry},
        keep_all=False,
        scratch=scratch_folder(core.root.uri),
        keeps_blobs=rewrites,
    )


def _partition_id() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else os.getpid()


_WIDER: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.timestamp("ms", tz="UTC"): pa.timestamp("us", tz="UTC"),
    pa.large_binary(): pa.binary(),
}


def spark_arrow_schema(entity: NodeType | EdgeType) -> pa.Schema:
    """The Arrow schema of a type's rows as they are given to Spark."""
    ends = ("src", "dst") if isinstance(entity, EdgeType) else ()
    return pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in ("id", *ends)),
            *(pa.field(p.name, _spark_type(p.type), nullable=True) for p in entity.properties),
        ]
    )


def spark_schema(entity: NodeType | EdgeType) -> StructType:
    """The same as Spark's schema."""
    return from_arrow_schema(spark_arrow_schema(entity))


def _spark_type(kind: PropertyType) -> pa.DataType:
    if kind.scalar is Scalar.VECTOR:
        return pa.list_(pa.float32())
    leaf = value_type(PropertyType(scalar=kind.scalar))
    leaf = _WIDER.get(leaf, leaf)
    return pa.list_(leaf) if kind.is_list else leaf


def for_spark(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """The batch in exactly the Arrow types that Spark expects of the schema."""
    target = to_arrow_schema(schema, timezone="UTC")
    columns = [_cast(batch.column(field.name), field.type) for field in target]
    return pa.record_batch(columns, schema=target)


def _cast(column: Any, to: pa.DataType) -> Any:
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    return column if column.type == to else column.cast(to)
