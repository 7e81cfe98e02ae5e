"""Everything that is read in process is read on Spark, with the same answer in the same order: the
conformance cases, the examples of the language's page, the example questions, random queries.

A JVM plans each for a second or more, so most of them are asked by `make test-all` only;
`OMNIGRAPH_SPARK_QUERIES` is the number of random ones.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from both_engines import both
from casebook import cases
from graph_cases import SCHEMA as RANDOM_SCHEMA
from graph_cases import lines, random_graph
from query_texts import BLOCKS, EXAMPLES
from runner import World
from test_questions import ASKED, QUESTIONS
from test_questions import graphs as graphs
from test_random_queries import legal_case

from omnigraph import Graph
from omnigraph.compiler.query import ast, parse_file
from omnigraph.pipeline.gq import rows, walk

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RANDOM = int(os.environ.get("OMNIGRAPH_SPARK_QUERIES", "20"))
SEED = os.environ.get("OMNIGRAPH_SPARK_SEED", "1")
A_GRAPH = 25


# --- the conformance cases -----------------------------------------------------------------------


class TwoEngines(World):
    """A world in which every query is asked twice."""

    spark: object

    def do_query(self, query, step):
        at = query.get("at")
        state = {
            "params": query.get("params"),
            "branch": query.get("branch", "main"),
            "snapshot": None if at is None else self.resolve(at),
        }
        here, there = both(self.spark, self.graph, query["source"], query.get("name"), **state)
        assert there == here
        super().do_query(query, step)


def reads(case):
    return any("query" in step for step in case["steps"])


ASKING = [one for one in cases("exec.jsonl") if one.values[0] is None or reads(one.values[0])]


@pytest.mark.parametrize("case", ASKING)
def test_conformance_cases_are_answered_alike(spark, case, tmp_path):
    world = TwoEngines(tmp_path, case["schema"])
    world.spark = spark
    try:
        world.load_base(case["data"])
        for step in case["steps"]:
            world.run(step)
    finally:
        world.close()


# --- the examples of the language's page ---------------------------------------------------------

WORDS = ["graph", "graphs and nodes", "the node", "alpha", None]
GIVEN = {
    **dict.fromkeys(("I32", "I64", "U32", "U64"), 3),
    **dict.fromkeys(("F32", "F64"), 0.5),
    "String": "graph",
    "Date": "2015-06-01",
    "DateTime": "2020-02-03T04:05:06Z",
    "Bool": True,
    "Vector": [1.0, 0.0, 0.5, 0.0],
}


def people():
    rng = random.Random(5)
    names = [f"p{number}" for number in range(12)] + ["Ada", "Ben"]
    for number, name in enumerate(names):
        data = {
            "name": name,
            "age": [None, 17, 30, 41][number % 4],
            "email": f"{name}@x.org" if number % 3 else None,
            "role": ["admin", "user", None][number % 3],
            "bio": WORDS[number % 5],
            "vec": [1.0, float(number % 3), 0.5, 0.0] if number % 4 else None,
            "tags": [None, [], ["a", "b"], ["b"]][number % 4],
            "born": f"19{60 + number}-05-0{1 + number % 9}",
            "seen": f"2020-02-03T04:05:0{number % 10}Z",
            "active": [True, False, None][number % 3],
        }
        yield {"type": "Person", "data": data}
    for name, founded in (("Acme", 1990), ("Beta", None), ("p1", 2001)):
        yield {"type": "Company", "data": {"name": name, "founded": founded}}
    for number in range(30):
        ends = {"from": rng.choice(names), "to": rng.choice(names)}
        data = {"since": f"20{10 + number % 10}-02-03", "note": [None, "met"][number % 2]}
        yield {"edge": "Knows", **ends, "data": data}
    for number, name in enumerate(names[::2]):
        ends = {"from": name, "to": ["Acme", "Beta", "p1"][number % 3]}
        yield {"edge": "WorksAt", **ends, "data": {"title": ["boss", None][number % 2]}}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    schema = next(body for kind, _, body in BLOCKS if kind == "pg")
    uri = str(tmp_path_factory.mktemp("page") / "graph.omni")
    with Graph.init(uri, schema, durability="process") as graph:
        graph.load("\n".join(map(json.dumps, people())), mode="append")
        yield graph


def examples():
    for code, body in EXAMPLES:
        if code:
            continue
        for query in parse_file(body).queries:
            if query.kind == "read":
                yield pytest.param(body, query, id=query.name)


def made_up(kind):
    """A value for a parameter of that kind."""
    if isinstance(kind, ast.RecordDecl):
        record = {one.name: made_up(one.type) for one in kind.fields}
        return [record] if kind.is_list else record
    if isinstance(kind, ast.TypeOf):
        return "admin"
    value = GIVEN[kind.scalar.value]
    return [value] if kind.is_list else value


@pytest.mark.parametrize(("body", "query"), [*examples()])
def test_examples_of_the_language_are_answered_alike(spark, page, body, query):
    params = {one.name: made_up(one.type) for one in query.params}
    here, there = both(spark, page, body, query.name, params=params)
    assert there == here


# --- the questions -------------------------------------------------------------------------------


@pytest.mark.parametrize(("graph", "name", "params"), [one[:3] for one in ASKED])
def test_questions_are_answered_alike(spark, graphs, graph, name, params):
    here, there = both(spark, graphs[graph], QUESTIONS[name], name, params=params)
    assert there == here


# --- random queries ------------------------------------------------------------------------------


@pytest.mark.timeout(0)
def test_random_queries_are_answered_alike(spark, tmp_path, monkeypatch):
    for number in range(-(-RANDOM // A_GRAPH)):
        for module in (rows, walk) if number % 2 else ():  # tables of three rows are large
            monkeypatch.setattr(module, "BROADCAST_ROWS_MAX", 2)
        ask_at_random(spark, tmp_path, random.Random(f"{SEED}:{number}"), min(RANDOM, A_GRAPH))
        monkeypatch.undo()


def ask_at_random(spark, folder: Path, rng: random.Random, queries: int) -> None:
    """One small graph, and many questions."""
    uri = str(folder / f"{rng.random()}.omni")
    with Graph.init(uri, RANDOM_SCHEMA, durability="process") as graph:
        if text := lines(*random_graph(rng)):
            graph.load(text, mode="overwrite")
        for _ in range(queries):
            case = legal_case(rng, graph)
            here, there = both(spark, graph, case.text, params=case.params)
            assert there == here, case
