"""The rows of a match as a DataFrame, and what the steps of one plan share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from pyspark.sql.pandas.types import from_arrow_schema

from omnigraph.compiler.query import ir
from omnigraph.engine.expr.evaluate import Constants, needs_whole
from omnigraph.engine.rows.parts import GraphAccess
from omnigraph.model.graph import Snapshot
from omnigraph.model.schema import Catalog, EdgeType, EntityKind, NodeType, PropertyType
from omnigraph.pipeline.gq.layout import Layout, carried_type
from omnigraph.pipeline.gq.scan import TYPE, Scan, scanned, together
from omnigraph.pipeline.gq.values import Values
from omnigraph.pipeline.runner import is_classic

BROADCAST_ROWS_MAX: Final = 200_000  # of a table whose rows every executor may hold
PARTITION_ROWS: Final = 125_000  # pairs of ids that a task compares in little memory
_NEVER_NULL: Final = frozenset({"id", "src", "dst", TYPE})


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a match. `variables` are there, entities and values that came along; `made` has the
    columns of what was computed for the rows; `narrow` are those that began with a condition."""

    frame: DataFrame
    variables: frozenset[str]
    made: Mapping[ir.Expr, str] = {}
    narrow: bool = False

    def with_frame(self, frame: DataFrame, *more: str) -> Found:
        return replace(self, frame=frame, variables=self.variables | {*more})


class Reading:
    """One plan on one snapshot: its tables, its columns and its constants."""

    def __init__(
        self,
        spark: SparkSession,
        access: GraphAccess,
        snapshot: Snapshot,
        catalog: Catalog,
        constants: Constants,
        plan: ir.ReadPlan,
    ) -> None:
        self.spark, self.access, self.snapshot, self.catalog = spark, access, snapshot, catalog
        self.constants, self.layout, self.variables = constants, Layout(plan), plan.variables
        self.reads: dict[str, list[str]] = {}  # the columns that were asked for, by table key
        self._fresh = count()

    def fresh(self, what: str = "x") -> str:
        """A column name that nothing else has."""
        return f"{what}_{next(self._fresh)}"

    def kept(self, frame: DataFrame) -> DataFrame:
        """The same rows, computed now and held by the executors: what is made of them does not
        compute them again, and plans of many steps stay short. Spark lets go of them by itself.

        With a checkpoint folder they are written there; otherwise two executors hold them, so that
        one may be lost. (`persist` would keep how they came about, but Spark 4.3 waits for ever for
        plans that cache what was cached.)
        """
        if not is_classic(self.spark):
            return frame.localCheckpoint(eager=True)
        if self._has_folder:
            return frame.checkpoint(eager=True)
        return frame.localCheckpoint(eager=True, storageLevel=self._level)

    def counted(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """The same rows, kept, and how many they are."""
        if not is_classic(self.spark) or self._has_folder:
            frame = self.kept(frame)
        else:  # what counts them is the work that holds them
            frame = frame.localCheckpoint(eager=False, storageLevel=self._level)
        return frame, frame.count()

    @property
    def _has_folder(self) -> bool:
        return self.spark.sparkContext.getCheckpointDir() is not None

    @property
    def _level(self) -> StorageLevel:
        alone = str(self.spark.sparkContext.master).startswith("local")
        return StorageLevel.MEMORY_AND_DISK if alone else StorageLevel.MEMORY_AND_DISK_2

    def values(self, rows: Found) -> Values:
        return Values(self.layout, self.constants, rows.made)

    # --- tables ---

    def row_count(self, kind: EntityKind, types: Iterable[str]) -> int:
        return sum(self.snapshot.entries[f"{kind}:{name}"].row_count for name in types)

    def scan(
        self,
        kind: EntityKind,
        type_name: str,
        columns: Mapping[str, str],
        kinds: Mapping[str, PropertyType],
        conditions: Sequence[ir.Expr] = (),
    ) -> DataFrame:
        """The stored columns of a type under new names; those without a kind are texts."""
        entity = self.entity(kind, type_name)
        stored = frozenset({*entity.identity, *entity.by_name})
        known = self.reads.setdefault(entity.table_key, [])
        known += sorted({name for name in columns.values() if name in stored} - {*known})
        scan = Scan(
            access=self.access,
            type_name=type_name,
            stored=stored,
            columns=columns,
            schema=_schema(columns, kinds),
            conditions=tuple(conditions),
            constants=self.constants,
        )
        return scanned(self.spark, scan, self.snapshot.entries[f"{kind}:{type_name}"])

    def nothing(self, columns: Iterable[str], kinds: Mapping[str, PropertyType]) -> DataFrame:
        """No row of such columns; those without a kind are texts."""
        schema = _schema(dict.fromkeys(columns, ""), kinds)
        return self.spark.createDataFrame([], from_arrow_schema(schema))

    def entity(self, kind: EntityKind, type_name: str) -> NodeType | EdgeType:
        return self.catalog.nodes[type_name] if kind == "node" else self.catalog.edges[type_name]

    def entities(
        self, var: str, conditions: Sequence[ir.Expr] = (), *, names: Mapping[str, str] = {}
    ) -> DataFrame:
        """All entities that a variable may be, with its columns; `names` gives some of these other
        names. Of the conditions, those that look at one table's rows are asked where it is read."""
        variable = self.variables[var]
        columns, kinds = self.entity_columns(var)
        renamed = {names.get(name, name): stored for name, stored in columns.items()}
        kinds = {names.get(name, name): kind for name, kind in kinds.items()}
        return together(
            [self.scan(variable.kind, name, renamed, kinds, conditions) for name in variable.types]
        )

    def entity_columns(self, var: str) -> tuple[dict[str, str], dict[str, PropertyType]]:
        """The columns of a variable with the stored ones that they hold, and their kinds."""
        layout = self.layout
        columns, kinds = {layout.id(var): "id"}, {}
        if layout.is_open(var):
            columns[layout.type(var)] = TYPE
        for prop, kind in layout.properties(var).items():
            columns[layout.property(var, prop)] = prop
            kinds[layout.property(var, prop)] = kind
        columns |= {layout.end(var, side): side for side in layout.ends(var)}
        return columns, kinds

    def pushed(
        self, var: str, conditions: Sequence[ir.Expr]
    ) -> tuple[list[ir.Expr], list[ir.Expr]]:
        """The conditions on a variable that its scan can judge, and the others."""
        if self.layout.is_open(var):  # a type may lack a property that is asked about
            return [], list(conditions)
        inside: list[ir.Expr] = []
        outside: list[ir.Expr] = []
        for condition in conditions:
            beyond = needs_whole(condition) or any(
                isinstance(part, ir.TypeRef) for part in ir.walk(condition)
            )
            (outside if beyond else inside).append(condition)
        return inside, outside

    # --- joins ---

    def small(self, frame: DataFrame, rows: int) -> DataFrame:
        """The frame, sent to all executors if the table that it is of has few rows."""
        return F.broadcast(frame) if rows <= BROADCAST_ROWS_MAX else frame

    def by(self, frame: DataFrame, column: str, rows: int) -> DataFrame:
        """So many rows, those with the same value in a column in one partition, none of which has
        too many for a small executor to hold."""
        setting = str(self.spark.conf.get("spark.sql.shuffle.partitions"))
        wanted = rows // PARTITION_ROWS
        if setting.isdecimal() and wanted <= int(setting):
            return frame.repartition(F.col(column))  # which Spark may make fewer
        return frame.repartition(wanted or 1, F.col(column))

    def is_type(self, var: str, column: str) -> Column:
        """Whether a column names the type that the variable's entity has."""
        if self.layout.is_open(var):
            return F.col(self.layout.type(var)) == F.col(column)
        return F.col(column) == F.lit(self.variables[var].types[0])


def _schema(columns: Mapping[str, str], kinds: Mapping[str, PropertyType]) -> pa.Schema:
    """What Spark is told of stored columns under new names. That what makes an identity is never
    null spares it from carrying such a column along only to count it."""
    types = {name: carried_type(kind) for name, kind in kinds.items()}
    return pa.schema(
        [
            pa.field(name, types.get(name, pa.string()), nullable=stored not in _NEVER_NULL)
            for name, stored in columns.items()
        ]
    )
