"""Running a read query on the executors of a session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from omnigraph.compiler.query import ir
from omnigraph.compiler.query.params import bind_params
from omnigraph.engine.access import OPEN, Gate, PolicySource
from omnigraph.engine.arguments import MAPPING_OR_NONE, PATH, require
from omnigraph.engine.arrow import flat
from omnigraph.engine.core import OpenMode, compiled_as, open_core
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.refs import At
from omnigraph.model.graph import MAIN
from omnigraph.pipeline.gq.explained import explanation
from omnigraph.pipeline.gq.rows import Reading
from omnigraph.pipeline.gq.scan import carried
from omnigraph.pipeline.gq.stages import answered, united
from omnigraph.pipeline.runner import SESSION, access_to, in_our_words
from omnigraph.results.rows import Explanation, QueryResult
from omnigraph.storage.lance.columns import value_type


def query(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    source: str,
    name: str | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    branch: str = MAIN,
    snapshot: At | None = None,
    actor: str | None = None,
    policy: PolicySource | None = None,
) -> DataFrame:
    """Run a read query on the session's executors: the answer that `Graph.query` gives, as a
    DataFrame with the same columns.

    It reads one snapshot, which is settled by this call; rows are read when the DataFrame is asked
    for them. A walk of many hops is begun here, because it ends where nothing new is found. Dates
    and numbers have Spark's types: U32 is a long, U64 a decimal, a Vector an array. A `policy` must
    allow the actor to read the branch.

    Examples:
        >>> text = "query q() { match { $p: Person  $p knows $f } return { $p.name, $f.name } }"
        >>> pipeline.query(spark, "people.omni", text).write.parquet("friends")
    """
    state: Any = {"branch": branch, "snapshot": snapshot, "gate": Gate.of(policy, actor)}
    return planned(spark, uri, source, name, params=params, **state).frame


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A query on its snapshot, ready to be run."""

    frame: DataFrame
    columns: tuple[ir.ColumnInfo, ...]
    graph_commit_id: str
    reads: Mapping[str, list[str]]  # the columns of each table that is read

    def result(self) -> QueryResult:
        """The rows, fetched: what `Graph.query` gives, in its types."""
        with in_our_words("query"):
            table = self.frame.toArrow()
        columns = [
            carried(flat(values), value_type(column.type))
            for values, column in zip(table.columns, self.columns, strict=True)
        ]
        rows = pa.Table.from_arrays(columns, names=[column.name for column in self.columns])
        return QueryResult.of_table(rows, graph_commit_id=self.graph_commit_id)

    def explanation(self) -> Explanation:
        """The plan as it ran, which fetches the rows. What was done before there was a plan (walks
        of many hops, rows that are crossed, counts of words) is not in it."""
        self.result()
        return explanation(self.frame, self.reads)


def planned(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    source: str,
    name: str | None,
    *,
    params: Mapping[str, Any] | None,
    branch: str,
    snapshot: At | None,
    gate: Gate = OPEN,
) -> Planned:
    """The query on the state that is read, which this call settles."""
    require(SESSION, spark=spark)
    require(PATH, uri=uri)
    require(MAPPING_OR_NONE, params=params)
    with closing(open_core(os.fspath(uri), mode=OpenMode.READ_ONLY)) as core:
        target = gate.state(core, "query", branch, snapshot)
        catalog = core.catalog(target)
        compiled = compiled_as("read", source, name, catalog)
        bound = bind_params(compiled.params, params or {})
        constants = Constants(params=bound, now_ms=core.world.clock.now_us() // 1000)
        access = access_to(core.root.uri)
    plan = compiled.plan
    assert not isinstance(plan, ir.MutationPlan), "a mutation is no read"
    parts = [
        (Reading(spark, access, target, catalog, constants, part), part)
        for part in ir.plans_of(plan)
    ]
    with in_our_words("query"):  # walks of many hops are run while they are planned
        frame = united(parts, plan) if isinstance(plan, ir.UnionPlan) else answered(*parts[0])
    reads = {key: names for reading, _ in parts for key, names in reading.reads.items()}
    return Planned(
        frame=frame,
        columns=plan.columns,
        graph_commit_id=target.graph_commit_id,
        reads=reads,
    )
