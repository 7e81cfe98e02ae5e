"""Whole-graph algorithms answer as networkx does, on random graphs of several types."""

from __future__ import annotations

import json
import math
import random

import networkx as nx
import numpy as np
import pytest
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

from omnigraph import Graph
from omnigraph.engine.algorithms import kernels
from omnigraph.errors import InputError, NotFoundError

SCHEMA = """
node A { k: String @key }
node B { k: String @key }
edge Aa: A -> A { w: F64? }
edge Ab: A -> B { w: F64? }
"""


class World:
    """A graph and the same in networkx: nodes are (type, id); loops and parallel edges occur."""

    def __init__(self, folder, seed):
        rng = random.Random(seed)
        self.nodes = [(kind, f"n{n}") for kind in "AB" for n in range(rng.choice([1, 6, 25]))]
        self.network = nx.MultiDiGraph()
        self.network.add_nodes_from(self.nodes)
        lines = [{"type": kind, "data": {"k": name}} for kind, name in self.nodes]
        people = [name for kind, name in self.nodes if kind == "A"]
        others = [name for kind, name in self.nodes if kind == "B"]
        for number in range(rng.choice([0, 10, 80])):
            kind, ends = rng.choice([("Aa", people), ("Aa", people), ("Ab", others)])
            one, other = rng.choice(people), rng.choice(ends)
            weight = rng.choice([0.5, 1.0, 2.0])
            data = {"id": f"e{number:03d}", "w": weight}
            lines.append({"edge": kind, "from": one, "to": other, "data": data})
            ends = ("A", one), (kind[1].upper(), other)
            self.network.add_edge(*ends, key=data["id"], weight=weight)
        self.graph = Graph.init(str(folder / f"{seed}.omni"), SCHEMA, durability="process")
        self.graph.load("\n".join(map(json.dumps, lines)), mode="overwrite")
        if seed % 2 and self.network.number_of_edges():  # holes where something was deleted
            gone = next(iter(self.network.edges(keys=True)))
            kind = "Aa" if gone[1][0] == "A" else "Ab"
            self.graph.mutate(f'query q() {{ delete {kind} where id = "{gone[2]}" }}')
            self.network.remove_edge(*gone)

    def of(self, table, column):
        rows = table.to_pylist()
        assert [(row["type"], row["id"]) for row in rows] == sorted(self.nodes)
        return {(row["type"], row["id"]): row[column] for row in rows}


@pytest.fixture(scope="module", params=range(8))
def world(tmp_path_factory, request):
    return World(tmp_path_factory.mktemp("algorithms"), request.param)


@pytest.mark.parametrize("weight", [None, "w"])
def test_pagerank_is_that_of_networkx(world, weight):
    found = world.of(world.graph.algorithms.pagerank(weight=weight), "rank")
    named = "weight" if weight else None
    expected = _pagerank_python(world.network, weight=named, tol=1e-12, max_iter=500)
    assert found == pytest.approx(expected, abs=1e-8)
    assert math.fsum(found.values()) == pytest.approx(1.0)


def test_components_are_those_of_networkx(world):
    found = world.of(world.graph.algorithms.components(["aa", "Ab"]), "component")
    groups = {}
    for node, number in found.items():
        groups.setdefault(number, set()).add(node)
    expected = {frozenset(one) for one in nx.weakly_connected_components(world.network)}
    assert {frozenset(one) for one in groups.values()} == expected
    sizes = [len(groups[number]) for number in range(len(groups))]
    assert sizes == sorted(sizes, reverse=True)


def test_triangles_are_those_of_networkx(world):
    plain = nx.Graph((a, b) for a, b, _ in world.network.edges if a != b)
    plain.add_nodes_from(world.nodes)
    found = world.of(world.graph.algorithms.triangles("aa|ab"), "triangles")
    assert found == nx.triangles(plain)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("weight", [None, "w"])
def test_distances_are_those_of_networkx(world, weight, undirected):
    network = world.network.to_undirected() if undirected else world.network
    source = ("A", "n0")
    table = world.graph.algorithms.shortest_path(
        source=source, weight=weight, undirected=undirected
    )
    found = {(row["type"], row["id"]): row["distance"] for row in table.to_pylist()}
    named = "weight" if weight else None
    assert found == dict(nx.shortest_path_length(network, source, weight=named))


@pytest.mark.parametrize("weight", [None, "w"])
def test_a_path_is_as_long_as_that_of_networkx(world, weight):
    source, named = ("A", "n0"), "weight" if weight else None
    lengths = nx.shortest_path_length(world.network, source, weight=named)
    for target in world.nodes:
        rows = world.graph.algorithms.shortest_path(
            source=source, target=target, weight=weight
        ).to_pylist()
        if target not in lengths:
            assert not rows
            continue
        nodes = [(row["type"], row["id"]) for row in rows]
        assert (nodes[0], nodes[-1], rows[0]["edge"]) == (source, target, None)
        along = [
            world.network.edges[a, b, row["edge"]]["weight"]
            for a, b, row in zip(nodes, nodes[1:], rows[1:], strict=False)
        ]
        assert (sum(along) if weight else len(along)) == lengths[target]


def test_in_the_end_every_label_is_among_the_most_frequent_beside_it(world):
    found = world.of(world.graph.algorithms.communities(), "community")
    for node in world.nodes:
        beside = [b for a, b, _ in world.network.out_edges(node, keys=True) if a != b]
        beside += [a for a, b, _ in world.network.in_edges(node, keys=True) if a != b]
        votes = [found[one] for one in beside]
        assert not votes or votes.count(found[node]) == max(map(votes.count, votes))


def test_planted_communities_are_found():
    network = nx.planted_partition_graph(6, 60, 0.4, 0.01, seed=3)
    src, dst = np.asarray(network.edges, dtype=np.int64).T
    label = kernels.communities(360, src, dst, rounds_max=1000, checkpoint=lambda _: None)
    groups = [set(np.flatnonzero(label == one).tolist()) for one in set(label.tolist())]
    planted = nx.community.modularity(network, network.graph["partition"])
    assert nx.community.modularity(network, groups) > 0.9 * planted


def test_many_triangles_are_counted_in_pieces(monkeypatch):
    monkeypatch.setattr(kernels, "WEDGES_AT_ONCE", 5)
    network = nx.gnp_random_graph(40, 0.4, seed=1)
    src, dst = np.asarray(network.edges, dtype=np.int64).T
    found = kernels.triangles(40, src, dst, lambda _: None)
    assert dict(enumerate(found.tolist())) == nx.triangles(network)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda a: a.pagerank("knows"), NotFoundError, "knows"),
        (lambda a: a.pagerank([]), InputError, "edge type"),
        (lambda a: a.pagerank(damping=1.5), InputError, "damping"),
        (lambda a: a.pagerank(weight="nope"), InputError, "nope"),
        (lambda a: a.shortest_path(source="n0"), InputError, "A, B"),
        (lambda a: a.shortest_path(source=("C", "n0")), InputError, "'C'"),
        (lambda a: a.shortest_path(source="nobody"), NotFoundError, "nobody"),
        (lambda a: a.shortest_path(source=3), InputError, "source"),
        (lambda a: a.components(7), InputError, "edges"),
    ],
)
def test_bad_input_is_told_in_words(world, call, error, words):
    with pytest.raises(error, match=words):
        call(world.graph.algorithms)
