"""`format("omnigraph")`: a type of the graph as a DataFrame, and a DataFrame as a graph commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace
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
from pyspark.sql.types import StringType, StructField, StructType

from omnigraph.compiler.text import closest
from omnigraph.engine.access import Gate
from omnigraph.engine.arguments import require
from omnigraph.engine.arrow import nulls, picked
from omnigraph.engine.core import Core, OpenMode, open_core
from omnigraph.engine.history.difference import difference
from omnigraph.engine.history.lift import Seen, lift
from omnigraph.engine.load.inputs.sources import Mapped, type_named
from omnigraph.engine.load.intake import staged_intake
from omnigraph.engine.load.order import checked_order
from omnigraph.engine.load.run import run_load
from omnigraph.engine.load.stage import StageAnswer, StageJob
from omnigraph.engine.refs import At
from omnigraph.engine.rows.parts import FragmentGroup, GraphAccess, fragment_groups, scratch_folder
from omnigraph.engine.runner import Inline
from omnigraph.errors import (
    ChangeFeedGapError,
    CorruptGraphError,
    InputError,
    NotFoundError,
    StorageUnavailableError,
)
from omnigraph.model.graph import MAIN, Snapshot
from omnigraph.model.limits import GROUP_ROWS
from omnigraph.model.ports import World
from omnigraph.model.schema import Catalog, EdgeType, NodeType, Scalar
from omnigraph.pipeline.gq.layout import carried_type
from omnigraph.pipeline.gq.scan import carried
from omnigraph.pipeline.runner import SESSION, access_to
from omnigraph.pipeline.staged_frames import staged_rows
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.table.read import TableReader

FORMAT = "omnigraph"
_OWNER: Final = "owner"  # Spark tells it of a table of its catalog; it looks like `where`
_OPTIONS: Final = (
    *("path", "type", "branch", "snapshot", "where", "readChanges", "start", "startingCommit"),
    *("end", "endingCommit", "mode", "actor", "policy", "rowsPerPartition"),
)


def register(spark: SparkSession) -> None:
    """Make `format("omnigraph")` known to the session, for reading, writing and streams.

    Examples:
        >>> pipeline.register(spark)
        >>> people = spark.read.format("omnigraph").option("type", "Person").load("people.omni")
    """
    require(SESSION, spark=spark)
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
    policy: str | None = None
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
        for name in sorted(known.keys() - {name.lower() for name in _OPTIONS} - {_OWNER}):
            # There are options of Spark's, but a branch or policy that is misspelled would be
            # passed over.
            near = closest(name, _OPTIONS)
            if near:
                raise InputError(
                    f"format(\"{FORMAT}\") has no option '{name}'", hint=f"did you mean '{near}'?"
                )
        return cls(
            uri=known["path"],
            type_name=known["type"],
            branch=known.get("branch", MAIN),
            snapshot=known.get("snapshot"),
            where=known.get("where"),
            changes=_flag(known.get("readchanges", "false")),
            start=known.get("start") or known.get("startingcommit"),
            end=known.get("end") or known.get("endingcommit"),
            mode=known.get("mode"),
            actor=known.get("actor"),
            policy=known.get("policy"),
            rows_per_partition=_row_count(known.get("rowsperpartition", str(GROUP_ROWS))),
        )

    def opened(self) -> closing[Core]:
        """The graph, for reading, as long as the `with` block lasts."""
        return closing(open_core(self.uri, mode=OpenMode.READ_ONLY))

    @property
    def gate(self) -> Gate:
        return Gate.of(self.policy, self.actor)

    def state(self, core: Core, at: At | None) -> Snapshot:
        """The state at a commit, a moment or a version of the branch, if it may be read."""
        return self.gate.state(core, "query", self.branch, at)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InputError(f"readChanges is true or false, not '{text}'")
    return text.lower() == "true"


def _row_count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"rowsPerPartition must be a number of rows, at least 1, not '{text}'")
    return int(text)


class OmnigraphSource(DataSource):
    """A node or edge type of a graph.

    Options: `type` (required), `branch`, `snapshot` (a commit id or a moment), `readChanges` with
    `start` and `end` commits, `rowsPerPartition`; for writes `branch`, `mode` ("merge"). With a
    `policy` (its file, which executors need not see) the `actor` must be allowed what is done.
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
        with options.opened() as core:
            catalog = core.catalog(options.state(core, options.snapshot))
            found = spark_schema(type_named(options.type_name, catalog))
        return StructType([*_CHANGE_FIELDS, *found.fields]) if options.changes else found

    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.parse(self.options)
        return ChangeReader(options, schema) if options.changes else TypeReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return ChangeStreamReader(SourceOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002, FBT001
        options = SourceOptions.parse(self.options)
        mode = "overwrite" if overwrite else options.mode or "append"
        return TypeWriter(options, mode)


# --- reading ----------------------------------------------------------------------------------


class TypeReader(DataSourceReader):
    """Reads one type at one snapshot, a partition per group of fragments."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._schema = schema
        self._where = options.where
        with options.opened() as core:
            target = options.state(core, options.snapshot)
            self._entity = type_named(options.type_name, core.catalog(target))
            self._access = access_to(core.root.uri)
            table = core.table(target, self._entity.table_key)
            if options.where is not None:
                _require_condition(table, options.where)
            self._groups = list(fragment_groups(table, rows=options.rows_per_partition))
        _require_columns(self._entity, schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(group) for group in self._groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        group: FragmentGroup | None = partition.value
        if group is None:  # Spark's partition of a type without rows
            return
        names = [field.name for field in self._schema.fields]
        properties = [self._entity.by_name.get(name) for name in names]
        blobs = any(prop is not None and prop.type.scalar is Scalar.BLOB for prop in properties)
        batches = self._access.table(group.entry).scan(
            columns=names,
            where=self._where,
            fragments=group.fragments,
            blobs="bytes" if blobs else "descriptors",
        )
        for batch in batches:
            if batch.num_rows:
                yield for_spark(batch, self._schema)


def _require_condition(table: TableReader, where: str) -> None:
    """Refuse what the store does not understand before any task begins, which would try again and
    then tell of storage that cannot be read."""
    try:
        table.read(columns=["id"], where=where, limit=0)
    except (StorageUnavailableError, CorruptGraphError) as cause:
        _, invalid, told = str(cause).rpartition("Invalid user input: ")
        if not invalid:
            raise
        raise InputError(f"the store does not understand where '{where}': {told}") from cause


# --- changes ----------------------------------------------------------------------------------

# What happened to one type between two states of the graph, as rows with the kind of change. An
# entity is judged by what it was and what it is, as the change feed in process judges it: one that
# was replaced is one update, one that was touched without a change is none. Every entity occurs at
# most once, so the rows of a span can be applied in any order.
CHANGE_TYPE, COMMIT_ID = "_change_type", "_commit_id"
_CHANGE_FIELDS: Final = tuple(
    StructField(name, StringType(), nullable=False) for name in (CHANGE_TYPE, COMMIT_ID)
)
_BATCH_ROWS: Final = 65_536


class ChangeReader(DataSourceReader):
    """What happened to a type between two commits: `start` (not included) to `end` (included)."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._schema = schema
        with options.opened() as core:
            newer = options.state(core, options.end)
            older = options.state(core, options.start) if options.start else None
            self._spans = _spans(core, options, older, newer, schema)

    def partitions(self) -> Sequence[InputPartition]:
        return self._spans

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _changes(partition, self._schema)


class ChangeStreamReader(DataSourceStreamReader):
    """The change feed as a stream. An offset is a version of the branch's manifest."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first commit, or at the commit named `start`."""
        with self._opened() as core:
            if self._options.start is None:
                return {"manifest_version": 0}
            started = self._options.state(core, self._options.start)
            return {"manifest_version": started.manifest_version}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        with self._opened() as core:
            return {"manifest_version": self._options.state(core, None).manifest_version}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["manifest_version"], end["manifest_version"]
        if last <= first:
            return []
        with self._opened() as core:
            older = self._options.state(core, first) if first else None
            newer = self._options.state(core, last)
            return _spans(core, self._options, older, newer, self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _changes(partition, self._schema)

    def _opened(self) -> closing[Core]:
        # Not where the reader is made: of an error there, PySpark 4.3 tells one of its own.
        if not self._options.changes:
            # Without the kind of change, a row that went could not be told from one that came.
            raise InputError(
                f'a stream of format("{FORMAT}") is the change feed of a type',
                hint='add .option("readChanges", "true")',
            )
        return self._options.opened()

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget: the history is the graph's."""


class ChangeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Two states of one type. `older` is None when everything counts as inserted; then the work
    can be cut, and `fragments` says which part of it this is."""

    access: GraphAccess
    entity: NodeType | EdgeType
    older: Seen | None
    newer: Seen
    commit_id: str
    fragments: tuple[int, ...] | None = None


def _spans(
    core: Core, options: SourceOptions, older: Snapshot | None, newer: Snapshot, schema: StructType
) -> Sequence[InputPartition]:
    """What changed between two states of the type: one span, or as many as its rows deserve.
    `ChangeFeedGapError` if the older state is gone."""
    catalog, entity = _shown(core, options, newer, schema)
    before, after = (_same_type(core, state, entity, catalog) for state in (older, newer))
    if after is None:  # the type came later
        return []
    access = access_to(core.root.uri)
    span = ChangeSpan(
        access=access, entity=entity, older=before, newer=after, commit_id=newer.graph_commit_id
    )
    if before is None:
        groups = fragment_groups(access.table(after.entry), rows=options.rows_per_partition)
        return [InputPartition(replace(span, fragments=group.fragments)) for group in groups]
    try:
        access.table(before.entry)
    except NotFoundError as cause:
        raise ChangeFeedGapError(commit_id=span.commit_id) from cause
    return [InputPartition(span)]


def _shown(
    core: Core, options: SourceOptions, newer: Snapshot, schema: StructType
) -> tuple[Catalog, NodeType | EdgeType]:
    """The type that rows are told as: as it is by now, for a query that starts again behind a new
    schema repeats what it had planned before; else as it was in the newer state."""
    now = core.catalog(options.state(core, options.snapshot))
    with suppress(InputError, NotFoundError):
        entity = type_named(options.type_name, now)
        _require_columns(entity, schema)
        return now, entity
    then = core.catalog(newer)
    entity = type_named(options.type_name, then)
    _require_columns(entity, schema)
    return then, entity


def _same_type(
    core: Core, state: Snapshot | None, entity: NodeType | EdgeType, catalog: Catalog
) -> Seen | None:
    """The type's table in a state, whatever it was called there; None = it was not."""
    if state is None:
        return None
    then = core.catalog(state)
    twin = then.by_type_id.get(catalog.identities.type_id(entity.table_key))
    if twin is None:
        return None
    lifted = lift(then, twin.table_key, entity, catalog)
    return Seen(entry=state.entries[twin.table_key], lift=lifted)


def _changes(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    if partition.value is not None:  # else Spark's partition of a type without rows
        for batch in change_batches(partition.value):
            yield for_spark(batch, schema)


def change_batches(span: ChangeSpan) -> Iterator[pa.RecordBatch]:
    """Deleted rows as they were, updated and inserted rows as they are now."""
    if span.older is None:
        names, newer = _names(span.entity), span.newer
        table = span.access.table(newer.entry)
        for batch in table.scan(columns=newer.lift.stored(names), fragments=span.fragments):
            rows = newer.lift.rows(pa.Table.from_batches([batch]), names)
            yield from _marked(rows, "insert", span)
        return
    if span.older.entry.pin == span.newer.entry.pin:
        return
    found = difference(span.access.tables, span.older, span.newer)
    yield from _marked(picked(found.before.rows, found.deleted), "delete", span)
    yield from _marked(picked(found.after.rows, found.updated_after), "update", span)
    yield from _marked(picked(found.after.rows, found.inserted), "insert", span)


def _names(entity: NodeType | EdgeType) -> list[str]:
    plain = (p.name for p in entity.properties if p.type.scalar is not Scalar.BLOB)
    return [*entity.identity, *plain]


def _marked(rows: pa.Table, kind: str, span: ChangeSpan) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches(_BATCH_ROWS):
        count = batch.num_rows
        if not count:
            continue
        columns: dict[str, Any] = {
            CHANGE_TYPE: pa.repeat(pa.scalar(kind), count),
            COMMIT_ID: pa.repeat(pa.scalar(span.commit_id), count),
            **{name: batch.column(name) for name in _names(span.entity)},
        }
        for prop in span.entity.properties:  # blobs are not part of the feed
            if prop.type.scalar is Scalar.BLOB:
                columns[prop.name] = nulls(count, pa.binary())
        yield pa.RecordBatch.from_pydict(columns)


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


class StagedMessage(WriterCommitMessage):
    """What one task staged."""

    def __init__(self, answer: StageAnswer) -> None:
        self.answer = answer


class TypeWriter(DataSourceArrowWriter):
    """Writes rows of one type as one graph commit. Checks run in the process that commits, so this
    is for what fits one machine; `pipeline.load` distributes them and takes many types at once."""

    def __init__(self, options: SourceOptions, mode: str) -> None:
        self._order = checked_order(
            uri=options.uri,
            sources=None,
            mode=mode,
            branch=options.branch,
            actor=options.actor,
            idempotency_key=None,
        )
        options.gate.require("load", branch=options.branch)
        with closing(open_core(options.uri, mode=OpenMode.READ_WRITE)) as core:
            branch = core.branch(options.branch)
            snapshot = core.head(options.branch)
            catalog = core.catalog(snapshot)
            self._table_key = type_named(options.type_name, catalog).table_key
            self._schema_fingerprint = snapshot.schema.fingerprint
            context = WriteContext(core.writer, branch, snapshot)
            access = access_to(core.root.uri)
            self._job = StageJob(
                graph=access,
                files=FileAccess(environ=access.environ),
                catalog=catalog,
                entries={self._table_key: context.writable(self._table_key).entry},
                keep_all=False,
                scratch=scratch_folder(core.root.uri),
                keeps_blobs=mode == "merge",
            )

    def write(  # type: ignore[override]
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        return StagedMessage(staged_rows(self._job, self._table_key, Mapped(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        answers = [one.answer for one in messages if isinstance(one, StagedMessage)]
        mentioned = frozenset({self._table_key})
        intake = staged_intake(self._job, answers, self._schema_fingerprint, mentioned)
        run_load(Inline(), self._order, listener=None, world=World(), stage_input=lambda *_: intake)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        del messages  # tasks that failed have sent none, but noted what they wrote
        self._job.notes.sweep([], named=(), used=())
        self._job.files.remove_folder(self._job.scratch)


# --- rows as Spark has them ---------------------------------------------------------------------


def spark_schema(entity: NodeType | EdgeType) -> StructType:
    """The schema of a type's rows as they are given to Spark."""
    fields = [
        # Null in a row that is written is an id to be made: INSERT may leave it out.
        *(pa.field(name, pa.string(), nullable=name == "id") for name in entity.identity),
        *(pa.field(p.name, carried_type(p.type), nullable=True) for p in entity.properties),
    ]
    return from_arrow_schema(pa.schema(fields))


def for_spark(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """The batch in exactly the Arrow types that Spark expects of the schema."""
    target = to_arrow_schema(schema, timezone="UTC")
    columns = [carried(batch.column(field.name), field.type) for field in target]
    return pa.record_batch(columns, schema=target)
