"""Random queries over random small graphs answer as the naive reader does, in every way of reading.

The number of queries is `OMNIGRAPH_RANDOM_QUERIES`; every graph is asked fifty. Each is asked in
all ways, or in so many that are picked at random as `OMNIGRAPH_RANDOM_WAYS` says.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import random
from collections import Counter

import pytest
from graph_cases import SCHEMA, GraphCases, lines, naive_nodes, random_graph
from naive_reader import Naive, Overflow
from path_cases import PathCases
from ways import WAYS, opened, way

from inside import core_of
from omnigraph import Graph
from omnigraph.compiler.query import bind_params, compile_query
from omnigraph.errors import InputError, TypeCheckError
from omnigraph.model.values import EPOCH_MOMENT

QUERIES = int(os.environ.get("OMNIGRAPH_RANDOM_QUERIES", "300"))
SEED = int(os.environ.get("OMNIGRAPH_RANDOM_SEED", "1"))
WAYS_ASKED = int(os.environ.get("OMNIGRAPH_RANDOM_WAYS", len(WAYS)))
A_GRAPH = 50
REFUSED: Counter[str] = Counter()


def plain(value):
    """A value as both readers show it."""
    match value:
        case dt.datetime():
            return (value - EPOCH_MOMENT) // dt.timedelta(milliseconds=1)
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value


def legal_case(rng, graph):
    """A query that compiles: a walk may start at a variable that only an optional block binds."""
    catalog = core_of(graph).catalog(graph.snapshot())
    for _ in range(20):
        case = rng.choice([GraphCases, PathCases])(rng).case()
        try:
            compile_query(case.text, catalog, "q")
        except TypeCheckError as error:
            REFUSED[str(error)[:60]] += 1
            continue
        return case
    raise AssertionError("hardly any query is legal")


def expected_of(case, graph, nodes, edges):
    catalog = core_of(graph).catalog(graph.snapshot())
    compiled = compile_query(case.text, catalog, "q")
    bound = bind_params(compiled.params, case.params)
    try:
        ends = {edge.name: (edge.from_type, edge.to_type) for edge in catalog.edges.values()}
        naive = Naive(nodes, edges, bound, ends=ends)
        return [plain(row) for row in naive.run(compiled.plan)]
    except Overflow:
        return "overflow"


def answer_of(case, graph):
    try:
        found = graph.query(case.text, params=case.params)
    except InputError as error:
        return "overflow" if "fit into" in str(error) else repr(error)
    assert found.row_count == len(found.to_pylist())
    return [plain(list(row.values())) for row in found.to_pylist()]


def ask(folder, rng, queries):
    """One graph: each query in one way after another, the graph optimized half-way."""
    nodes, edges = random_graph(rng)
    graph = Graph.init(str(folder / f"{rng.random()}.omni"), SCHEMA, durability="process")
    if text := lines(nodes, edges):
        graph.load(text, mode="overwrite")
    naive = naive_nodes(nodes)
    for half in range(2):
        chosen = random.Random(rng.random()).sample(sorted(WAYS), WAYS_ASKED)
        handles = {name: opened(graph.uri, name) for name in WAYS if name in chosen}
        for _ in range(queries // 2):
            case = legal_case(rng, graph)
            expected = expected_of(case, graph, naive, edges)
            assert answer_of(case, graph) == expected, case
            for name, handle in handles.items():
                with way(name):
                    assert answer_of(case, handle) == expected, (name, case)
        for handle in handles.values():
            handle.close()
        if not half:
            graph.optimize()
    graph.close()


@pytest.mark.timeout(0)
def test_random_queries_answer_as_the_naive_reader(tmp_path):
    for number in range(max(1, QUERIES // A_GRAPH)):
        ask(tmp_path, random.Random(f"{SEED}:{number}"), A_GRAPH)
