"""Types of a graph as DataFrames: one with the columns and rows that are wanted, or all at once.

Every call makes a new relation over one pinned snapshot. Columns and the condition travel with it
to the tasks that read the store, so nothing rests on Spark's own push-down for Python sources,
which mixes the filters of two uses of one DataFrame (Spark 4.3).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from omnigraph.compiler.query import compile_query, ir
from omnigraph.compiler.text import closest
from omnigraph.engine.access import Gate, PolicySource
from omnigraph.engine.arguments import PATH, TEXT, TEXT_OR_NONE, TEXTS_OR_NONE, require
from omnigraph.engine.core import OpenMode, open_core
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.load.inputs.sources import type_named
from omnigraph.engine.refs import At
from omnigraph.engine.rows.parts import GraphAccess
from omnigraph.errors import InputError
from omnigraph.model.graph import MAIN, Snapshot
from omnigraph.model.schema import Catalog, EdgeType, NodeType, PropertyType
from omnigraph.pipeline.gq.layout import carried_type, spark_type
from omnigraph.pipeline.gq.scan import Scan, scanned, together
from omnigraph.pipeline.runner import SESSION, access_to

Entity = NodeType | EdgeType


def read(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    type_name: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    branch: str = MAIN,
    snapshot: At | None = None,
    actor: str | None = None,
    policy: PolicySource | None = None,
) -> DataFrame:
    """The entities of a type as a DataFrame: `id` (of edges also `src` and `dst`) and properties.

    `columns` names those that are wanted. `where` is a condition of the query language over the
    type's own properties, as in the `where` of a mutation: `age >= 18 and name starts_with "A"`.
    Both are pushed down to the store. The snapshot is the one at the time of the call. A `policy`
    must allow the actor to read the branch, here and in the other calls of this kind. `count()` of
    all of a type is known without reading.

    Examples:
        >>> grown = pipeline.read(spark, "people.omni", "Person", where="age >= 18")
        >>> grown.groupBy("age").count().show()
    """
    require(TEXT, type_name=type_name)
    require(TEXTS_OR_NONE, columns=columns)
    require(TEXT_OR_NONE, where=where)
    reading = _Types(spark, uri, branch, snapshot, Gate.of(policy, actor))
    entity = type_named(type_name, reading.catalog)
    known = {**dict.fromkeys(entity.identity, ir.ID), **{p.name: p.type for p in entity.properties}}
    wanted = list(known) if columns is None else list(columns)
    for name in wanted:
        if name not in known:
            near = closest(name, known)
            hint = f"did you mean '{near}'?" if near else f"it has {', '.join(known)}"
            raise InputError(f"{entity.name} has no column '{name}'", hint=hint)
    conditions = () if where is None else (_condition(where, entity, reading.catalog),)
    frame = reading.frame(entity, {name: known[name] for name in wanted}, conditions)
    if not conditions:  # what the manifest says need not be counted
        rows = reading.snapshot.entries[entity.table_key].row_count
        frame.count = lambda: rows  # type: ignore[method-assign]
    return frame


def frames(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    snapshot: At | None = None,
    actor: str | None = None,
    policy: PolicySource | None = None,
) -> tuple[DataFrame, DataFrame]:
    """The whole graph as two DataFrames, in the shape that GraphFrames takes.

    Vertices have `id`, `type` and the properties of all node types; edges `id`, `src`, `dst`,
    `type`, the types of their ends (`src_type`, `dst_type`) and the properties of all edge types. A
    property that a type does not have is null; one that types declare differently is text, and one
    that is called like one of these columns has a number behind its name (`type_2`). Ids are those
    of the graph: nodes of two types may share one, and the types then tell them apart.

    Examples:
        >>> vertices, edges = pipeline.frames(spark, "people.omni", branch="main")
    """
    reading = _Types(spark, uri, branch, snapshot, Gate.of(policy, actor))
    vertices = reading.together(list(reading.catalog.nodes.values()), {})
    ends = {"src": ir.ID, "dst": ir.ID}
    edges = reading.together(list(reading.catalog.edges.values()), ends)
    return vertices, edges


def register_views(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    *,
    prefix: str = "",
    branch: str = MAIN,
    snapshot: At | None = None,
    actor: str | None = None,
    policy: PolicySource | None = None,
) -> list[str]:
    """Make a temporary view of every type, for SQL: `SELECT name FROM Person`. Returns their names.

    A view shows the snapshot at the time of the call; call again to see later commits. `prefix`
    goes in front of the names, for two graphs or two moments side by side.

    Examples:
        >>> pipeline.register_views(spark, "people.omni")
        ['Person', 'Knows']
        >>> spark.sql("SELECT name FROM Person").show()
    """
    require(TEXT, prefix=prefix)
    reading = _Types(spark, uri, branch, snapshot, Gate.of(policy, actor))
    names: list[str] = []
    entities: list[Entity] = [*reading.catalog.nodes.values(), *reading.catalog.edges.values()]
    _refuse_twins(spark, [entity.name for entity in entities])
    for entity in entities:
        known = dict.fromkeys(entity.identity, ir.ID)
        known |= {prop.name: prop.type for prop in entity.properties}
        name = f"{prefix}{entity.name}"
        reading.frame(entity, known, ()).createOrReplaceTempView(name)
        names.append(name)
    return names


def _refuse_twins(spark: SparkSession, names: Sequence[str]) -> None:
    """Refuse names that the session takes for one: the second view would replace the first."""
    setting = "spark.sql.caseSensitive"
    if str(spark.conf.get(setting)).lower() == "true":
        return
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(name.lower(), name)
        if other != name:
            raise InputError(
                f"'{other}' and '{name}' would be one view: Spark does not tell them apart",
                hint=f'spark.conf.set("{setting}", True), or read them with pipeline.read',
            )


class _Types:
    """The types of one snapshot."""

    def __init__(
        self,
        spark: SparkSession,
        uri: str | os.PathLike[str],
        branch: str,
        at: At | None,
        gate: Gate,
    ) -> None:
        require(SESSION, spark=spark)
        require(PATH, uri=uri)
        with closing(open_core(os.fspath(uri), mode=OpenMode.READ_ONLY)) as core:
            self.snapshot: Snapshot = gate.state(core, "query", branch, at)
            self.catalog: Catalog = core.catalog(self.snapshot)
            self._constants = Constants(params={}, now_ms=core.world.clock.now_us() // 1000)
            self._access: GraphAccess = access_to(core.root.uri)
        self._spark = spark

    def frame(
        self,
        entity: Entity,
        columns: Mapping[str, PropertyType],
        conditions: Sequence[ir.Expr],
        names: Mapping[str, str] = {},
    ) -> DataFrame:
        """Stored columns of a type; `names` gives some of them other names."""
        shown = {names.get(name, name): name for name in columns}
        fields = [pa.field(name, carried_type(columns[stored])) for name, stored in shown.items()]
        scan = Scan(
            access=self._access,
            type_name=entity.name,
            stored=frozenset({*entity.identity, *entity.by_name}),
            columns=shown,
            schema=pa.schema(fields),
            conditions=tuple(conditions),
            constants=self._constants,
        )
        return scanned(self._spark, scan, self.snapshot.entries[entity.table_key])

    def together(self, entities: Sequence[Entity], ends: Mapping[str, PropertyType]) -> DataFrame:
        """The entities of several types, with the properties of all."""
        kinds: dict[str, set[str]] = {}
        for entity in entities:
            for prop in entity.properties:
                kinds.setdefault(prop.name, set()).add(spark_type(prop.type).simpleString())
        # Spark does not tell `name` from `Name`, so nothing is looked up by such a name.
        numbered = {name: f"p{number}" for number, name in enumerate(kinds)}
        parts = []
        for entity in entities:
            own = {"id": ir.ID, **ends, **{p.name: p.type for p in entity.properties}}
            frame = self.frame(entity, own, (), numbered)
            told = {"type": F.lit(entity.name)}
            if isinstance(entity, EdgeType):
                told |= {"src_type": F.lit(entity.from_type), "dst_type": F.lit(entity.to_type)}
            shown = [*(F.col(name) for name in ("id", *ends))]
            shown += [column.alias(name) for name, column in told.items()]
            ours = {"id", *ends, *told}
            for name, found in kinds.items():
                target = next(iter(found)) if len(found) == 1 else "string"
                column = F.col(numbered[name]) if name in entity.by_name else F.lit(None)
                shown.append(column.cast(target).alias(_free(name, ours, kinds)))
            parts.append(frame.select(*shown))
        if not parts:
            names = ["id", *ends, "type", *(["src_type", "dst_type"] if ends else [])]
            return self._spark.createDataFrame([], ", ".join(f"{name} string" for name in names))
        return together(parts)


def _free(name: str, ours: Collection[str], properties: Collection[str]) -> str:
    """The name of a property, with a number behind it if a column of ours is called so."""
    if name.lower() not in ours:
        return name
    numbered = (f"{name}_{number}" for number in range(2, len(properties) + 3))
    return next(one for one in numbered if one not in properties)


def _condition(where: str, entity: Entity, catalog: Catalog) -> ir.Expr:
    """The condition, over the entity that a row is."""
    # It is what a mutation says behind `where`, and is checked as such; nothing is deleted.
    text = f"query where() {{ delete {entity.name} where\n{where}\n}}"
    plan = compile_query(text, catalog, None).plan
    alone = isinstance(plan, ir.MutationPlan) and len(plan.statements) == 1
    statement = plan.statements[0] if isinstance(plan, ir.MutationPlan) and alone else None
    if not isinstance(statement, ir.Delete):
        raise InputError(
            "`where` takes one condition", hint='as in `age >= 18 and name starts_with "A"`'
        )
    return statement.where
