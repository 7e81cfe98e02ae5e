"""A graph of a server has the names and arguments of a graph of this machine, or says why not."""

from __future__ import annotations

import inspect

import pytest

from omnigraph import Graph
from omnigraph.client.graph import RemoteGraph
from omnigraph.client.sending import DIRECT

MAKES_ONE = {"init", "open"}
SERVED_ONLY = {"invoke", "stored_queries"}


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments(kind, name):
    found = inspect.signature(getattr(kind, name)).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


def test_every_name_of_a_graph_is_served_or_says_what_to_do_instead():
    assert public(Graph) - public(RemoteGraph) == set(DIRECT) | MAKES_ONE
    assert public(RemoteGraph) - public(Graph) == SERVED_ONLY


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in public(Graph) & public(RemoteGraph)
        if callable(getattr(Graph, name, None)) and name != "uri"
    ),
)
def test_both_take_the_same_arguments(name):
    assert arguments(Graph, name) == arguments(RemoteGraph, name)
