"""A topology says the same as a list of edges, also after it followed changes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from omnigraph.engine.read.memory.topology import Bulk, Topology


def model_of(edges, alive):
    return [(a, b) for at, (a, b) in enumerate(edges) if alive[at]]


@pytest.mark.parametrize("seed", range(20))
def test_a_topology_that_followed_changes_is_like_a_new_one(seed):
    rng = random.Random(seed)
    nodes = 6
    edges = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(rng.randrange(12))]
    alive = [True] * len(edges)
    topology = built(edges, nodes)
    for _ in range(4):
        topology.neighbours(np.arange(nodes), rng.choice(["out", "in", "both"]))
        added = [(rng.randrange(nodes + 2), rng.randrange(nodes + 2)) for _ in range(2)]
        living = [at for at, one in enumerate(alive) if one]
        gone = rng.sample(living, min(len(living), rng.randrange(3)))
        nodes += 2
        edges += added
        alive += [True] * len(added)
        for at in gone:
            alive[at] = False
        sources, targets = ends(added)
        moved = topology.moved(sources, targets, np.array(gone, dtype=np.int64))
        assert moved is not None
        topology = moved
        check_topology(topology, model_of(edges, alive), nodes)


def ends(edges):
    pairs = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def built(edges, nodes):
    sources, targets = ends(edges)
    return Topology.of(Bulk.of(sources, targets, (nodes, nodes)))


def check_topology(topology, edges, nodes):
    everyone = np.arange(nodes)
    both = {(a, b) for a, b in edges} | {(b, a) for a, b in edges}
    pairs = {"out": set(edges), "in": {(b, a) for a, b in edges}, "both": both}
    for direction, expected in pairs.items():
        hits = topology.neighbours(everyone, direction)
        found = list(zip(hits.rows.tolist(), hits.targets.tolist(), strict=True))
        assert sorted(found) == sorted(expected)
        assert topology.degree_sum(everyone, direction) >= len(found)
        has = [any(a == node for a, _ in expected) for node in range(nodes)]
        assert topology.has_any(everyone, direction).tolist() == has
        counts = topology.counts(everyone, direction, per_edge=False)
        assert counts.tolist() == [sum(a == node for a, _ in expected) for node in range(nodes)]
    hits = topology.edges(everyone, "out")
    assert sorted(zip(hits.rows.tolist(), hits.targets.tolist(), strict=True)) == sorted(edges)
    undirected = topology.edges(everyone, "both")
    loops = sum(a == b for a, b in edges)
    assert len(undirected.rows) == 2 * len(edges) - loops
    looped = {a for a, b in edges if a == b}
    assert topology.has_loop(everyone).tolist() == [node in looped for node in range(nodes)]
