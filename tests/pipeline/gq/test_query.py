"""`.gq` on Spark: every form of a read gives the answer that the engine gives in process."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pytest

from omnigraph import Graph, pipeline
from omnigraph.errors import InputError, ParseError

pytestmark = pytest.mark.spark

SCHEMA = """
node Person { name: String @key  age: I32?  score: F64?  born: Date?  seen: DateTime?  ratio: F32?
              tags: [String]?  big: U64?  nAme: String? }
node Company { name: String @key  city: String? }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge WorksAt: Person -> Company
edge Owns: Company -> Company
"""

SCORES = (None, float("nan"), 0.5, -0.0, 1e300, 0.0, float("inf"))


def records(seed: int = 7, people: int = 24):
    rng = random.Random(seed)
    names = [f"p{number}" for number in range(people)]
    for number, name in enumerate(names):
        yield {
            "type": "Person",
            "data": {
                "name": name,
                "age": None if number % 7 == 0 else number % 9,
                "ratio": number % 9 / 10,
                "score": SCORES[number % len(SCORES)],
                "born": f"19{50 + number}-01-0{1 + number % 9}",
                "seen": f"2020-02-03T04:05:0{number % 10}.00{number % 10}Z",
                "tags": [None, [], ["a"], ["b", "a", "a"]][number % 4],
                "big": 2**64 - 1 - number,
                "nAme": name.upper(),
            },
        }
    for name, city in (("x", "Bern"), ("y", "Bern"), ("p1", None)):  # an id of a person, too
        yield {"type": "Company", "data": {"name": name, "city": city}}
    for number in range(people * 2):
        ends = {"from": rng.choice(names), "to": rng.choice(names)}
        data = {"since": f"20{10 + number % 10}-02-03", "weight": float(number % 7)}
        yield {"edge": "Knows", **ends, "data": data}
    yield {"edge": "Knows", "from": "p2", "to": "p2", "data": {"weight": 1.0}}
    for name in names[::2]:
        yield {"edge": "WorksAt", "from": name, "to": rng.choice(["x", "y", "p1"]), "data": {}}
    yield {"edge": "Owns", "from": "x", "to": "y", "data": {}}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("asked") / "graph.omni")
    with Graph.init(uri, SCHEMA) as graph:
        graph.load(records(), mode="append")
        yield graph


def plain(value):
    """A value as both engines would print it."""
    match value:
        case Decimal():
            return int(value)
        case dt.datetime():
            return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
        case float():
            return repr(value)
        case list():
            return [plain(item) for item in value]
        case _:
            return value


QUERIES = {
    "filters and order": """match { $p: Person  $p.age > 3 }
        return { $p.name, $p.age, $p.score, $p.nAme, $p.big, $p.seen } order { $p.score desc }""",
    "NaN in comparisons": """match { $p: Person  $p.score != 0.5 or $p.score >= 0.0 }
        return { $p.name, $p.score < 1.0 as low, $p.score = $p.score as same }""",
    "constants beside F32": """match { $p: Person } with { $p, $p.ratio as r }
        match { $q: Person  $q.ratio = r  r <= 0.2 }
        return { $p.name, count($q) as n, max($q.ratio) as most, r = 0.1 + 0.1 as two, r in [0.1] as
                 one } having { most > 0.0 or n = 1 } order { two desc }""",
    "one hop, parallel edges once": "match { $p: Person  $p knows $q } return { $p.name, $q.name }",
    "edges by name": """match { $p: Person  $p $w:knows $q  $w.since > date("2015-01-01") }
        return { $p.name, $q.name, $w.since, $w.weight * 2 as twice }""",
    "groups": """match { $p: Person  $p knows $q  $q.age >= 2 }
        return { $p.name, count($q) as n, avg($q.age) as a, sum($q.score) as s }
        order { n desc }""",
    "all aggregates": """match { $p: Person } return { $p.age, count(*) as n, min($p.score) as lo,
        max($p.score) as hi, collect($p.name) as who, collect(distinct $p.score) as which,
        median($p.age) as m, stddev($p.age) as d, percentile($p.age, 0.3) as q,
        count(distinct $p.tags) as t, min($p.born) as b, max($p.name) as last }""",
    "nothing to group": """match { $p: Person  $p.age > 99 }
        return { count(*) as n, sum($p.age) as s }""",
    "several hops": 'match { $p: Person  $p.name = "p3"  $p knows{1,3} $q } return { $q.name }',
    "hops backwards": 'match { $p: Person  $p.name = "p2"  $q knows{0,2} $p } return { $q.name }',
    "hops without end": 'match { $p: Person  $p.name = "p3"  $p knows{2,} $q } return { $q.name }',
    "not": 'match { $p: Person  not { $p worksAt $c  $c.city = "Bern" } } return { $p.name }',
    "optional": """match { $p: Person  optional { $p worksAt $c } }
        return { $p.name, $c.name, $c.city }""",
    "blocks as values": """match { $p: Person }
        return { $p.name, degree($p, knows) as d, exists { $p worksAt $c } as w,
                 count { $p <knows> $f } as c } order { d desc } limit 7 offset 2""",
    "any edge": "match { $p: Person  $p any $x } return { $p.name, $x }",
    "both ways": "match { $p: Person  $p <knows|worksAt> $x } return { $p.name, $x }",
    "types of edges": "match { $p: Person  $p $w:any $x } return { type($w) as t, count(*) as n }",
    "paths": """match { $a: Person  $a.name = "p1"  $b: Person  $a $path:knows{1,4} $b }
        return { $b.name, length($path) as l, nodes($path) as n, edges($path) as e }""",
    "shortest": """match { $a: Person  $a.name = "p1"  $b: Person  $b.name in ["p2", "p5", "p9"] }
        return { $b.name, length(shortest($a, $b, knows)) as l,
                 nodes(shortest($a, $b, knows, weight)) as n }""",
    "stages": """match { $p: Person  $p worksAt $c } with { $c, count($p) as n } having { n > 2 }
        match { $q worksAt $c } return { $c.name, n, $q.name }""",
    "union": """match { $p: Person  $p.age < 3 } return { $p.name as x }
        union match { $c: Company } return { $c.name as x } order { x desc } limit 5""",
    "unwind": "match { $p: Person  unwind $p.tags as $t } return { $t, count(*) as n }",
    "zeros of one sign": """match { $p: Person } with { $p, -0.0 as z, [-0.0] as l }
        match { $p: Person } return { z, l, count($p) as n } union all
        match { $p: Person } with { -0.0 as z, [-0.0] as l } match { $p: Person  $p.age = 3 }
        return distinct { z, l, 24 as n }""",
    "zeros of both signs": """match { $p: Person  $p.score < 0.5 }
        with { $p.score as s, [1.0] + $p.score as l }
        match { $q: Person  $q.age = 2  optional { $q knows $x  unwind l as $y } }
        return { to_string(s) as s, $q, $x, to_string($y) as y,
                 exists { $q knows $z  to_string(s) = "-0.0" } as e,
                 count { $q knows $z  $z.score >= s } as n } order { s }""",
    "distinct": "match { $p: Person } return distinct { $p.age, $p.score }",
    "joined by value": """match { $p: Person  $q: Person  $p.age = $q.age  $p.name < $q.name }
        return { $p.name, $q.name } limit 10""",
    "functions": """match { $p: Person }
        return { $p.*, upper($p.name) as u, year($p.born) as y, $p.tags[0] as t,
                 case when $p.age > 4 then "old" else "young" end as c }""",
    "no rows": "match { $p: Person } return { $p.name } limit 0",
    "a limit of more rows than Spark counts": """match { $p: Person } with { $p }
        order { $p.age desc } limit 9223372036854775807 offset 4
        match { $p knows $q } return { $p, $q } order { $q desc } limit 2147483647 offset 1""",
    "an offset of more rows than Spark counts": """match { $p: Person } return distinct { $p.age }
        limit 2 offset 3000000000 union all
        match { $p: Person } return { $p.age } limit 3000000000 offset 20""",
}


# A JVM plans each for seconds; `make test-all` asks them all.
SHORT = {"groups", "all aggregates", "optional", "any edge", "stages", "functions"}
SHORT |= {"a limit of more rows than Spark counts", "constants beside F32", "zeros of one sign"}
SHORT |= {"zeros of both signs"}


@pytest.mark.parametrize(
    "name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.slow) for n in QUERIES]
)
def test_spark_answers_as_the_engine_does(spark, graph, name):
    source = f"query q() {{ {QUERIES[name]} }}"
    here = graph.query(source)
    frame = pipeline.query(spark, graph.uri, source)
    assert frame.columns == list(here.columns)
    there = [[plain(value) for value in row] for row in frame.collect()]
    assert there == [[plain(value) for value in row.values()] for row in here.to_pylist()]


def test_parameters_branches_and_snapshots_are_those_of_the_call(spark, graph):
    source = """query q($n: I32, $rows: [{name: String, by: I32?}]) {
        match { $p: Person  unwind $rows as $r  $p.name = $r.name  $p.age < $n }
        return { $p.name, $r.by } }"""
    params = {"n": 5, "rows": [{"name": "p1", "by": 3}, {"name": "p2"}, {"name": "p8"}]}
    graph.create_branch("other")
    first = graph.commits()[0].graph_commit_id
    graph.mutate('query m() { update Person set { age: 1 } where name = "p8" }', branch="other")
    for place in ({}, {"branch": "other"}, {"snapshot": first, "branch": "other"}):
        here = graph.query(source, params=params, **place).to_pylist()
        there = pipeline.query(spark, graph.uri, source, params=params, **place).collect()
        assert [row.asDict() for row in there] == here


def test_a_mutation_is_refused(spark, graph):
    with pytest.raises(InputError, match="is a mutation"):
        pipeline.query(spark, graph.uri, "query m() { delete Person where age > 3 }")


# --- types as DataFrames -------------------------------------------------------------------------


def test_a_type_is_read_with_the_columns_and_rows_that_are_wanted(spark, graph):
    found = pipeline.read(
        spark, graph.uri, "Person", columns=["nAme", "id"], where='age >= 7 and name != "p8"'
    )
    assert found.columns == ["nAme", "id"]
    want = graph.query(
        'query q() { match { $p: Person  $p.age >= 7  $p.name != "p8" } return { $p.nAme, $p } }'
    )
    assert sorted(map(tuple, found.collect())) == sorted(tuple(r.values()) for r in want)


def test_two_reads_of_a_type_do_not_share_their_conditions(spark, graph):
    young = pipeline.read(spark, graph.uri, "Person", columns=["id"], where="age < 4")
    old = pipeline.read(spark, graph.uri, "Person", columns=["id"], where="age >= 4")
    ages = pipeline.read(spark, graph.uri, "Person").where("age is not null").count()
    assert young.unionAll(old).count() == ages
    assert young.join(old, "id").count() == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"columns": ["nmae"]}, InputError),
        ({"where": "age >"}, ParseError),
        ({"where": "age > 3 } query x() { delete Person where age > 1"}, InputError),
    ],
)
def test_a_read_that_makes_no_sense_is_refused_at_once(spark, graph, options, error):
    with pytest.raises(error):
        pipeline.read(spark, graph.uri, "Person", **options)


def test_a_graph_is_vertices_and_edges(spark, graph):
    vertices, edges = pipeline.frames(spark, graph.uri)
    assert vertices.columns[:2] == ["id", "type"]
    assert edges.columns[:6] == ["id", "src", "dst", "type", "src_type", "dst_type"]
    assert dict(vertices.groupBy("type").count().collect()) == {"Person": 24, "Company": 3}
    assert edges.where("type = 'Knows'").where("src = dst").count() >= 1


def test_types_are_views_for_sql(spark, graph):
    assert pipeline.register_views(spark, graph.uri, prefix="asked_") == [
        "asked_Person", "asked_Company", "asked_Knows", "asked_WorksAt", "asked_Owns"
    ]  # fmt: skip
    total = spark.sql(
        "SELECT count(*) FROM asked_Person p JOIN asked_WorksAt w ON w.src = p.id WHERE p.age > 1"
    ).first()[0]
    here = """query q() {
        match { $p: Person  $p $w:worksAt $c  $p.age > 1 } return { count(*) as n } }"""
    assert total == graph.query(here).scalar()
