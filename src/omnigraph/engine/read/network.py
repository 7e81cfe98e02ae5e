"""Rows seen as a graph: which two columns are the ends of edges, and what the others belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from omnigraph.errors import InputError
from omnigraph.model.drawing import NODES_DRAWN_MAX, SmallGraph, small_graph

# Columns with these names say themselves that they are ends; `w.src` and `w.dst` are an edge's.
_ENDS: Final = (("src", "dst"), ("from", "to"), ("source", "target"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The columns that hold the two ends of each row's edge."""

    source: str
    target: str


def ends_of(columns: Sequence[str]) -> Ends | None:
    """The ends that the column names speak of, or None if the rows are no edges.

    Either two columns are called `src` and `dst`, `from` and `to`, or `source` and `target` (also
    behind the same variable), or two variables show the same property: `a.name` and `b.name`.
    """
    for one, other in combinations(columns, 2):
        first, second = one.rpartition("."), other.rpartition(".")
        for source, target in _ENDS:
            if first[0] == second[0] and {first[2], second[2]} == {source, target}:
                return (
                    Ends(source=one, target=other)
                    if first[2] == source
                    else Ends(source=other, target=one)
                )
    for one, other in combinations(columns, 2):
        first, second = one.rpartition("."), other.rpartition(".")
        if first[0] and second[0] and first[0] != second[0] and first[2] == second[2]:
            return Ends(source=one, target=other)
    return None


def chosen_ends(columns: Sequence[str], source: str | None, target: str | None) -> Ends:
    """The columns the caller named, or those that speak for themselves; else `InputError`."""
    if source is None and target is None:
        found = ends_of(columns)
        if found is None:
            raise InputError(
                f"the columns {list(columns)} do not say which two are the ends of an edge",
                hint="pass source= and target=, or return the same property of two variables",
            )
        return found
    if source is None or target is None:
        raise InputError("source and target go together", hint="pass both, or neither")
    for name in (source, target):
        if name not in columns:
            raise InputError(f"there is no column '{name}'", hint=f"use {', '.join(columns)}")
    return Ends(source=source, target=target)


def drawable(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> SmallGraph | None:
    """The rows as a graph to draw, if they are edges and few."""
    ends = ends_of(columns)
    # Each row brings at most two nodes; many rows can still be few nodes, very many cannot.
    if ends is None or not 0 < len(rows) <= NODES_DRAWN_MAX**2:
        return None
    graph = small_graph((_name(row[ends.source]), _name(row[ends.target])) for row in rows)
    return graph if graph.is_small else None


def _name(value: Any) -> str | None:
    return None if value is None else str(value)


def fill_network(network: Any, ends: Ends, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Add every row to a networkx graph as an edge.

    Columns of an end's own variable become that node's attributes, all others the edge's.
    """
    owners = {side.rpartition(".")[0]: side for side in (ends.source, ends.target)}
    same = len(owners) == 1  # `w.src` and `w.dst`: the other columns of `w` are the edge's
    for row in rows:
        source, target = row[ends.source], row[ends.target]
        attributes: dict[str, dict[str, Any]] = {ends.source: {}, ends.target: {}, "": {}}
        for name, value in row.items():
            if name in (ends.source, ends.target):
                continue
            variable, dot, property_name = name.rpartition(".")
            owner = owners[variable] if dot and not same and variable in owners else ""
            attributes[owner][property_name if dot else name] = value
        for end, side in ((source, ends.source), (target, ends.target)):
            if end is not None:
                network.add_node(end, **attributes[side])
        if source is not None and target is not None:
            network.add_edge(source, target, **attributes[""])
    return network
