"""A small graph whose branches are merged, and short words for what merges are about."""

from __future__ import annotations

import json

from omnigraph import Graph


class MergeWorld:
    """A graph with a node type `P` whose key is `k`."""

    def __init__(self, uri, schema, **options):
        self.graph = Graph.init(uri, schema, durability="process", **options)

    def load(self, branch, *records):
        self.graph.load("\n".join(map(json.dumps, records)), mode="merge", branch=branch)

    def drop(self, branch, *keys):
        lines = " ".join(f'delete P where k = "{key}"' for key in keys)
        self.graph.mutate(f"query q() {{ {lines} }}", branch=branch)

    def all(self, branch="main", type_name="P"):
        """The data of every entity of the type, by id."""
        lines = map(json.loads, self.graph.export(branch=branch, types=[type_name]))
        return {line["data"]["id"]: line["data"] for line in lines}


def p(key, **data):
    return {"type": "P", "data": {"k": key, **data}}


def edge(key, source, target, kind="E"):
    return {"edge": kind, "from": source, "to": target, "data": {"id": key}}


def kinds(error):
    return sorted((one.kind, one.entity_id) for one in error.conflicts)
