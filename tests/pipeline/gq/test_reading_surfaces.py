"""Around queries on Spark: who may read, what SQL may write, and Spark's push-down for sources."""

from __future__ import annotations

import pytest
from both_engines import both
from pyspark.errors import AnalysisException

from omnigraph import Graph, pipeline
from omnigraph.errors import InputError, PolicyDeniedError, SparkUnavailableError

pytestmark = pytest.mark.spark

SCHEMA = "node P { k: String @key  b: I32? }  edge Knows: P -> P"
READ = "query q() { match { $p: P } return { $p.k } }"
RULES = """
version: 1
groups: {team: [ann]}
protected_branches: [main]
rules:
  - {id: r, allow: {actors: {group: team}, actions: [read], branch_scope: unprotected}}
"""


@pytest.fixture
def graph(tmp_path):
    with Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process") as graph:
        graph.load(
            [{"type": "P", "data": {"k": f"k{n}", "b": n % 8}} for n in range(56)], mode="append"
        )
        yield graph


READS = {
    "query": lambda spark, uri, **who: pipeline.query(spark, uri, READ, **who).collect(),
    "read": lambda spark, uri, **who: pipeline.read(spark, uri, "P", **who).collect(),
    "frames": lambda spark, uri, **who: pipeline.frames(spark, uri, **who)[0].collect(),
    "views": lambda spark, uri, **who: pipeline.register_views(spark, uri, prefix="may_", **who),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_asks_the_policy_for_the_branch_that_it_reads(spark, graph, tmp_path, name):
    read, policy = READS[name], tmp_path / "rules.yaml"
    policy.write_text(RULES)
    graph.create_branch("open")
    assert read(spark, graph.uri, branch="open", actor="ann", policy=policy)
    head = graph.commits(limit=1)[0].graph_commit_id
    for refused in (
        {"actor": "ann"},
        {"actor": "bob", "branch": "open"},
        {"branch": "open"},
        {"actor": "ann", "branch": "open", "snapshot": head},
    ):
        with pytest.raises(PolicyDeniedError):
            read(spark, graph.uri, policy=policy, **refused)


def test_a_blob_is_its_bytes_wherever_types_are_read(spark, tmp_path):
    uri = str(tmp_path / "b.omni")
    with Graph.init(uri, "node D { k: String @key  b: Blob? }", durability="process") as graph:
        rows = [{"k": "a", "b": "base64:SGk="}, {"k": "c"}]
        graph.load([{"type": "D", "data": row} for row in rows], mode="append")
    expected = {"a": b"Hi", "c": None}
    pipeline.register_views(spark, uri, prefix="blobs_")
    for found in (
        pipeline.read(spark, uri, "D", where='k != "x"'),
        pipeline.frames(spark, uri)[0],
        spark.table("blobs_D"),
    ):
        assert {row["k"]: row["b"] for row in found.collect()} == expected


@pytest.mark.slow
def test_a_source_asks_the_policy_for_what_it_does(spark, graph, tmp_path):
    pipeline.register(spark)
    policy = tmp_path / "rules.yaml"
    policy.write_text(RULES)
    graph.create_branch("open")
    options = {"type": "P", "policy": str(policy), "actor": "ann", "branch": "open"}
    people = spark.read.format("omnigraph").options(**options).load(graph.uri)
    assert people.count() == 56
    with pytest.raises(Exception, match="PolicyDenied"):
        spark.read.format("omnigraph").options(**options | {"branch": "main"}).load(graph.uri)
    with pytest.raises(Exception, match="PolicyDenied"):
        people.write.format("omnigraph").options(**options).mode("append").save(graph.uri)


@pytest.mark.slow
def test_rows_without_an_id_are_inserted_by_sql(spark, graph):
    pipeline.register(spark)
    for kind in ("P", "Knows"):
        options = f"path '{graph.uri}', type '{kind}'"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW in_{kind} USING omnigraph OPTIONS ({options})")
    spark.sql("INSERT INTO in_P (k, b) VALUES ('new', 3), ('newer', NULL)")
    spark.sql("INSERT INTO in_Knows (src, dst) VALUES ('new', 'newer')")
    found = graph.query(
        "query q() { match { $p: P  $p knows $q } return { $p.k as k, $p.b as b, $q.k as o } }"
    )
    assert found.to_pylist() == [{"k": "new", "b": 3, "o": "newer"}]


def test_conditions_of_one_use_of_a_frame_do_not_reach_another(spark, graph):
    """Spark 4.3 keeps what it has pushed to a Python source for all uses of the DataFrame."""
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "true")
    try:
        pipeline.register(spark)
        source = spark.read.format("omnigraph").option("type", "P").load(graph.uri)
        for frame in (pipeline.read(spark, graph.uri, "P"), source):
            assert frame.where("b = 3").union(frame).count() == 63
            assert (frame.where("b = 3").count(), frame.count()) == (7, 56)
            assert frame.where("b = 3").join(frame.where("b = 4"), "b").count() == 0
    finally:
        spark.conf.set(setting, before)


def test_what_cannot_be_answered_is_our_own_error(spark, graph):
    from omnigraph.pipeline.gq.run import planned

    source = "query q() { match { $p: P } return { $p.b + 9223372036854775807 as x } }"
    state = {"params": None, "branch": "main", "snapshot": None}
    with pytest.raises(InputError) as here:
        graph.query(source)
    with pytest.raises(InputError) as there:
        planned(spark, graph.uri, source, None, **state).result()
    assert (type(there.value), str(there.value)) == (type(here.value), str(here.value))
    assert there.value.hint == here.value.hint


def test_spark_is_told_how_large_a_type_is(spark, graph):
    """What looks small is sent to all executors: a type of many rows must not."""
    graph.load([{"type": "P", "data": {"k": f"m{n}"}} for n in range(2_000)], mode="append")
    plan = pipeline.read(spark, graph.uri, "P")._jdf.queryExecution().optimizedPlan()
    assert plan.stats().sizeInBytes() >= 2_000 * 20


def test_all_rows_of_a_type_are_counted_without_a_job(spark, graph):
    graph.mutate('query m() { delete P where k = "k3" }')
    everything = pipeline.read(spark, graph.uri, "P")
    spark.sparkContext.setJobGroup("counted", "")
    try:
        assert everything.count() == 55
        assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("counted")) == []
        assert everything.where("b = 3").count() == 6
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert pipeline.read(spark, graph.uri, "P", where="b = 4").count() == 7


def test_the_plan_on_spark_is_a_tree_of_steps(spark, graph):
    from omnigraph.pipeline.gq.run import planned

    graph.load([{"edge": "Knows", "from": "k1", "to": "k2", "data": {}}], mode="append")
    source = """query q() { match { $p: P { b: 1 }  $p $w:knows $q } return { $p.k, $q.b }
        order { $q.b } limit 3 }"""
    state = {"params": None, "branch": "main", "snapshot": None}
    told = planned(spark, graph.uri, source, None, **state).explanation()
    assert told.columns_read == {"node:P": ["b", "id", "k"], "edge:Knows": ["dst", "id", "src"]}
    assert "read Knows  [1 rows]" in str(told)
    assert "read P" in str(told)
    assert "[0 rows]" not in str(told).partition("read")[0]  # Spark does not count the first rows
    assert told.to_svg().startswith("<svg")


@pytest.mark.parametrize("day", ["0001-01-01", "0999-12-31", "1582-10-10", "9999-12-31"])
def test_a_day_of_any_year_is_a_constant(spark, tmp_path, day):
    schema = "node Day { k: String @key  on: Date }"
    source = """query q($d: Date) {
        match { $x: Day } with { $x } match { $x.on = $d } return { $x.k, $d as d } }"""
    with Graph.init(str(tmp_path / "days.omni"), schema, durability="process") as graph:
        graph.load([{"type": "Day", "data": {"k": "it", "on": day}}], mode="append")
        here, there = both(spark, graph, source, params={"d": day})
    assert there == here
    assert len(here[1]) == 1


def test_an_error_of_spark_that_says_nothing_is_named_by_its_kind():
    from pyspark.errors import PySparkException

    from omnigraph.pipeline.runner import in_our_words

    with pytest.raises(SparkUnavailableError, match="PySparkException"), in_our_words("query"):
        raise PySparkException("")


TWINS = """
node Thing { k: String @key  type: String?  type_2: I32? }  node THING { k: String @key }
edge Of: Thing -> THING { type: String? }
"""


def test_properties_and_types_that_spark_would_mix_up_are_told_apart(spark, tmp_path):
    with Graph.init(str(tmp_path / "twins.omni"), TWINS) as twins:
        twins.load([{"type": "Thing", "data": {"k": "a", "type": "x", "type_2": 4}}], mode="append")
        nodes, edges = pipeline.frames(spark, twins.uri)
        assert nodes.columns == ["id", "type", "k", "type_3", "type_2"]
        found = nodes.where("type = 'Thing'").select("type_3", "type_2").collect()
        assert [tuple(row) for row in found] == [("x", 4)]
        assert edges.columns[3:] == ["type", "src_type", "dst_type", "type_2"]
        with pytest.raises(InputError, match="'Thing' and 'THING' would be one view"):
            pipeline.register_views(spark, twins.uri)
        spark.conf.set("spark.sql.caseSensitive", "true")
        try:
            names = pipeline.register_views(spark, twins.uri, prefix="twin_")
            totals = [spark.table(name).count() for name in names]
            assert totals == [1, 0, 0]
        finally:
            spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"brnch": "main"}, "no option 'brnch'\nhint: did you mean 'branch'?"),
        ({"readChanges": "yes"}, "readChanges is true or false, not 'yes'"),
    ],
)
def test_an_option_that_is_a_slip_is_refused(spark, graph, options, told):
    pipeline.register(spark)
    source = spark.read.format("omnigraph").option("type", "P").options(**options)
    with pytest.raises(AnalysisException) as caught:
        source.load(graph.uri)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("agee > 2", "No field named agee"),
        ("age >", "Expected: an expression"),
        ("name > 3", "name > 3"),
    ],
)
def test_a_condition_that_the_store_does_not_understand_is_refused(spark, graph, where, told):
    pipeline.register(spark)
    source = spark.read.format("omnigraph").option("type", "P").option("where", where)
    with pytest.raises(AnalysisException, match="the store does not understand") as caught:
        source.load(graph.uri).count()
    assert told in str(caught.value)
