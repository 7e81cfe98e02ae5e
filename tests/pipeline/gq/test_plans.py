"""What Spark is given to do for a query, in counts: how often rows change their executors, and how
many of them. Times say little on a busy machine; these are the same everywhere.
"""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from both_engines import both

from omnigraph import Graph
from omnigraph.pipeline.gq import rows, scan, walk
from omnigraph.pipeline.gq.run import planned

pytestmark = pytest.mark.spark

PEOPLE = 40
SCHEMA = """
node Person { name: String @key  age: I32 }
edge Knows: Person -> Person
edge Likes: Person -> Person { @unique(src, dst) }
edge Leads: Person -> Person { @unique(dst) }
"""
JOBS_A_HOP = 4
STATE = {"params": None, "branch": "main", "snapshot": None}


class Work(msgspec.Struct, frozen=True):
    """How often rows are shuffled, how many in all, and how often they are grouped."""

    shuffles: int
    records: int
    groups: int


def records():
    names = [f"p{number:02}" for number in range(PEOPLE)]
    for number, name in enumerate(names):
        yield {"type": "Person", "data": {"name": name, "age": number % 4}}
        for step in (1, 2):
            other = names[(number + step) % PEOPLE]
            yield {"edge": "Knows", "from": name, "to": other, "data": {}}
            yield {"edge": "Likes", "from": name, "to": other, "data": {}}
        yield {"edge": "Leads", "from": name, "to": names[(number + 1) % PEOPLE], "data": {}}
    for name in names[:10]:  # parallel edges
        yield {"edge": "Knows", "from": name, "to": names[int(name[1:]) + 1], "data": {}}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("planned") / "graph.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        everything = [*records()]
        nodes = [one for one in everything if "type" in one]
        edges = [one for one in everything if "edge" in one]
        for part in (nodes[::2], nodes[1::2], edges[::2], edges[1::2]):  # two fragments a table
            graph.load(part, mode="append")
        yield graph


@pytest.fixture
def large(spark, monkeypatch):
    """Every table is too large for one task, and to be sent to all executors, by our count and by
    Spark's."""
    monkeypatch.setattr(rows, "scanned", partial(scan.scanned, rows=1))
    for module in (rows, walk):
        monkeypatch.setattr(module, "BROADCAST_ROWS_MAX", 2)
    setting = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "-1")
    yield
    spark.conf.set(setting, before)


def steps(step):
    yield step
    for child in step.children:
        yield from steps(child)


def explained(spark, graph, body):
    found = planned(spark, graph.uri, f"query q() {{ {body} }}", None, **STATE)
    return [*steps(found.explanation().root)]


def work(spark, graph, body):
    done = explained(spark, graph, body)
    shuffles = [step for step in done if step.name == "shuffle"]
    groups = [step for step in done if step.name.startswith("group")]
    return Work(len(shuffles), sum(step.rows for step in shuffles), len(groups))


# (shuffles, rows shuffled, groupings). Of groups Spark makes a part of each where the rows are.
COSTS = {
    "all edges by a property": (
        "match { $p: Person  $p knows $q } return { $p.age, count($q) as n } order { n }",
        Work(4, 142, 3),
    ),
    "all edges by a property, ends unique": (
        "match { $p: Person  $p likes $q } return { $p.age, count($q) as n } order { n }",
        Work(4, 132, 2),
    ),
    "2 hops from a few, to a few": (
        """match { $p: Person { age: 1 }  $p knows $m  $m knows $q  $q.age > 2 }
        return { count($q) as n }""",
        Work(7, 262, 4),
    ),
    "2 hops from a few, to a few, ends unique": (
        """match { $p: Person { age: 1 }  $p likes $m  $m likes $q  $q.age > 2 }
        return { count($q) as n }""",
        Work(7, 242, 2),
    ),
    "a filter and an order": (
        "match { $p: Person  $p.age > 2 } return { $p.name } order { $p.age } limit 3",
        Work(0, 0, 0),
    ),
    "those without": (
        "match { $p: Person  not { $p leads $q  $q.age = 1 } } return { count($p) as n }",
        Work(8, 192, 6),
    ),
}


@pytest.mark.parametrize("name", COSTS)
def test_a_query_shuffles_so_many_rows_so_often(spark, graph, large, name):
    body, expected = COSTS[name]
    assert work(spark, graph, body) == expected


@pytest.mark.parametrize("edge", ["knows", "likes", "leads"])
@pytest.mark.parametrize(
    "pattern", ["$p {} $q", "$p <{}> $q", "$q {} $p", "$p: Person { age: 1 }  $p {} $q"]
)
def test_edges_whose_ends_are_unique_are_walked_like_others(spark, graph, large, edge, pattern):
    walked = pattern.replace("{}", edge)
    body = f"match {{ $p: Person  $q: Person  {walked} }} return {{ $p.name, $q.name }}"
    body = body.replace("$p: Person  $q: Person  $p: Person", "$q: Person  $p: Person")
    here, there = both(spark, graph, f"query q() {{ {body} }}")
    assert there == here


def test_few_rows_are_found_once_before_they_are_crossed_with_others(spark, graph, large):
    both = 'match { $a: Person { name: "p01" }  $b: Person { name: "p07" } }'
    body = f"{both} return {{ $a.name, $b.name }}"
    done = [step.name for step in explained(spark, graph, body)]
    assert done.count("rows that are kept") == 2
    assert not {"read", "each with each"} & {*done}


def jobs_of(spark, graph, body):
    group = f"counted {body}"
    spark.sparkContext.setJobGroup(group, body)
    planned(spark, graph.uri, f"query q() {{ {body} }}", None, **STATE).result()
    spark.sparkContext.setJobGroup("others", "others")
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def test_a_hop_of_a_shortest_way_costs_as_many_jobs_as_the_one_before(spark, graph, large):
    far = [
        f"""match {{ $a: Person {{ name: "p00" }}  $b: Person {{ name: "p{2 * hops:02}" }} }}
        return {{ length(shortest($a, $b, likes)) as hops }}"""
        for hops in (3, 5, 7)
    ]
    first, second, third = (jobs_of(spark, graph, body) for body in far)
    assert third - second == second - first == 2 * JOBS_A_HOP
