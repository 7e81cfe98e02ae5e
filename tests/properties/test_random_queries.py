"""Random queries over random small graphs answer as the naive reader does, in every way of reading.

The number of queries is `OMNIGRAPH_RANDOM_QUERIES`; every graph is asked fifty. Each is asked in
all ways, or in so many that are picked at random as `OMNIGRAPH_RANDOM_WAYS` says.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import random
import re
from collections import Counter

import pytest
from graph_cases import SCHEMA, GraphCases, lines, naive_nodes, random_graph
from naive_reader import Naive, Overflow
from path_cases import PathCases
from query_cases import Values
from search_cases import SearchCases
from ways import WAYS, opened, way

from inside import core_of
from omnigraph import Graph
from omnigraph.compiler.query import bind_params, compile_query
from omnigraph.compiler.query.functions import FUNCTIONS
from omnigraph.errors import InputError, TypeCheckError
from omnigraph.model.values import EPOCH_MOMENT

QUERIES = int(os.environ.get("OMNIGRAPH_RANDOM_QUERIES", "300"))
SEED = int(os.environ.get("OMNIGRAPH_RANDOM_SEED", "1"))
WAYS_ASKED = int(os.environ.get("OMNIGRAPH_RANDOM_WAYS", len(WAYS)))
A_GRAPH = 50
_SCORED = re.compile(r"\b(bm25|nearest|rrf)\(")
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
        case = rng.choice([GraphCases, PathCases, SearchCases])(rng).case()
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
        now = (dt.datetime.now(dt.UTC) - EPOCH_MOMENT) // dt.timedelta(milliseconds=1)
        naive = Naive(nodes, edges, bound, now_ms=now, ends=ends)
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


def alike(case, found, expected):
    """Whether two answers are equal; scores may differ in their last digits."""
    if found == expected or not _SCORED.search(case.text):
        return found == expected
    match found, expected:
        case list(), list():
            pairs = zip(found, expected, strict=False)
            return len(found) == len(expected) and all(alike(case, a, b) for a, b in pairs)
        case float(), float():
            return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)
        case _:
            return False


def agree(case, graph, expected, name=""):
    found = answer_of(case, graph)
    assert alike(case, found, expected), (name, case, found, expected)


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
            agree(case, graph, expected)
            for name, handle in handles.items():
                with way(name):
                    agree(case, handle, expected, name)
        for handle in handles.values():
            handle.close()
        if not half:
            graph.optimize()
    graph.close()


FORMS = {
    "stages": r"\bwith \{",
    "different rows of a stage": r"\bwith distinct",
    "unions": r"\bunion match",
    "unions with doubles": r"\bunion all match",
    "unwinding": r"\bunwind ",
    "any edge": r"\$\w+ <?any\b",
    "several edge types": r"\b\w+\|\w+",
    "from no hop on": r"\{0,",
    "any number of hops": r"\{\d,\}",
    "a path's parts": r"\b(nodes|edges|length)\(\$v",
    "shortest paths": r"shortest\(",
    "lightest paths": r"shortest\(.*, cost\)",
    "whole entities": r"\.\*",
    "blocks as values": r"(exists|count) \{",
    "degrees": r"degree\(",
    "cases": r"case (when|\S+ when)",
    "enum parameters": r": P\.c\b",
    "conditions in a binding": r": (P|C|Ghost) \{",
    "capital letters": r"\bRETURN\b",
    "groups by a condition": r"having",
    "full text": r"\b(search|match_text|fuzzy)\(",
    "relevance": r"order \{ bm25\(",
    "fused ranks": r"\brrf\(",
    "a ranking for each row": r"with \{ \$\w+ \} match .* nearest\(\$\w+\.vec, \$\w+\.vec\)",
    "marks": r"\b(highlight|snippet)\(",
}


def test_random_queries_are_of_every_form():
    rng = random.Random(SEED)
    makers = [GraphCases, PathCases, SearchCases]
    texts = [rng.choice(makers)(rng).case().text for _ in range(2000)]
    texts += [Values(rng).of(rng.choice("SNRDTB")) for _ in range(2000)]
    text = "\n".join(texts)
    missing = [form for form, pattern in FORMS.items() if len(re.findall(pattern, text)) < 5]
    called = [name for name, one in FUNCTIONS.items() if one.kind != "operator"]
    missing += [name for name in called if not re.search(rf"\b{name}\(", text)]
    assert not missing


@pytest.mark.timeout(0)
def test_random_queries_answer_as_the_naive_reader(tmp_path):
    for number in range(max(1, QUERIES // A_GRAPH)):
        ask(tmp_path, random.Random(f"{SEED}:{number}"), A_GRAPH)
