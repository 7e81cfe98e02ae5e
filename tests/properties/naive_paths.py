"""Slow and obvious walks: every shortest way is listed, and the first of them chosen."""

from __future__ import annotations

import itertools
import math


def name_of(node):
    """What tells one node from all others."""
    return node["#type"], node["id"]


def steps(naive, legs, *, undirected):
    """Every hop as (node, edge, node); an undirected self loop is one."""
    for leg in legs:
        for edge in naive.edges[leg.edge_type]:
            one, other = (leg.from_type, edge["src"]), (leg.to_type, edge["dst"])
            yield one, edge, other
            if undirected and one != other:
                yield other, edge, one


def next_to(hops):
    found: dict = {}
    for one, _, other in hops:
        found.setdefault(one, set()).add(other)
    return found


def reached(naive, step, start):
    """The nodes at which a walk from the start may end."""
    if step.min_hops > step.max_hops:
        return set()
    beside = next_to(steps(naive, step.legs, undirected=step.undirected))
    found = {start} if step.min_hops == 0 else set()
    visited, frontier, hop = {start}, {start}, 0
    while frontier and hop < step.max_hops:
        hop += 1
        following = set()
        for node in frontier:
            for other in beside.get(node, ()):
                if other == node:
                    if hop >= step.min_hops:
                        found.add(node)
                elif other not in visited:
                    following.add(other)
        visited |= following
        if hop >= step.min_hops:
            found |= following
        frontier = following
    return found


def path(naive, way, start, end):
    """(nodes, edges) of the path, or None."""
    hops = list(steps(naive, way.legs, undirected=way.undirected))
    if way.weight is not None:
        hops = _lightest(hops, way.weight, start)
    ways = _fewest(next_to(hops), start, end)
    if not ways:
        return None
    nodes = min(ways, key=lambda way: [(name, kind) for kind, name in reversed(way)])
    if len(nodes) == way.min_hops:  # one edge too few: a self loop at the end makes up for it
        nodes = [*nodes, end]
    if len(nodes) - 1 > way.max_hops:
        return None
    edges = []
    for one, other in itertools.pairwise(nodes):
        between = [edge for a, edge, b in hops if (a, b) == (one, other)]
        if way.weight is not None:
            least = min(edge[way.weight] for edge in between)
            between = [edge for edge in between if edge[way.weight] == least]
        edges.append(min(edge["id"] for edge in between))
    return [name for _, name in nodes], edges


def _fewest(beside, start, end):
    """Every way of the fewest hops."""
    ways, seen = [[start]], {start}
    while ways:
        there = [way for way in ways if way[-1] == end]
        if there:
            return there
        ways = [[*way, other] for way in ways for other in beside.get(way[-1], ())]
        ways = [way for way in ways if way[-1] not in seen]
        seen |= {way[-1] for way in ways}
    return []


def _lightest(hops, weight, start):
    """The hops that lightest ways from the start are made of."""
    known = [hop for hop in hops if hop[1][weight] is not None and hop[1][weight] < math.inf]
    far = {start: 0.0}
    changed = True
    while changed:
        changed = False
        for one, edge, other in known:
            if one in far and far[one] + edge[weight] < far.get(other, math.inf):
                far[other] = far[one] + edge[weight]
                changed = True
    return [
        (one, edge, other)
        for one, edge, other in known
        if one in far and far[one] + edge[weight] == far[other]
    ]
