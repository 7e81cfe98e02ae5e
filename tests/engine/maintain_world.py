"""A small graph that many little commits have worn, and ways to look at it."""

from __future__ import annotations

from collections.abc import Callable

from inside import table_of
from omnigraph import Graph
from omnigraph.model.ports import World
from omnigraph.model.steps import Step

SCHEMA = """
node Person { name: String @key  bio: String? @index  age: I32?  spot: Vector(2)? @index(ann=true) }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
"""

WRITES = """
query add($name: String) {
  insert Person { name: $name, bio: "likes long walks", age: 1 }
  insert Knows { from: $name, to: $name }
}
query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query drop($name: String) { delete Person where name = $name }
query names() { match { $p: Person } return { $p.name } order { $p.name asc } }
query one($name: String) { match { $p: Person { name: $name } } return { $p.age } }
"""


class At:
    """Does something once when a step is reached for the first time."""

    def __init__(self, step: Step, deed: Callable[[], object]) -> None:
        self._step, self._deed, self._done = step, deed, False

    def reach(self, step: Step) -> None:
        if step is self._step and not self._done:
            self._done = True
            self._deed()


class Stopped(BaseException):
    """The process is gone."""


class StopAt:
    """Ends the process when a step is reached for the nth time."""

    def __init__(self, step: Step, nth: int) -> None:
        self._step, self._left = step, nth

    def reach(self, step: Step) -> None:
        if step is self._step:
            self._left -= 1
            if self._left == 0:
                raise Stopped


def make(path, **options) -> Graph:
    return Graph.init(str(path), SCHEMA, durability="process", **options)


def reopened(graph: Graph, **options) -> Graph:
    return Graph.open(graph.uri, **{"durability": "process", **options})


def stepping(graph: Graph, steps) -> Graph:
    return Graph.open(graph.uri, world=World(steps=steps, durability="process"))


def add(graph: Graph, *names: str, branch: str = "main") -> None:
    for name in names:
        graph.mutate(WRITES, "add", params={"name": name}, branch=branch)


def names(graph: Graph, **where) -> list[str]:
    return [row["p.name"] for row in graph.query(WRITES, "names", **where).to_pylist()]


def age(graph: Graph, name: str, **where) -> int | None:
    found = graph.query(WRITES, "one", params={"name": name}, **where).to_pylist()
    return found[0]["p.age"] if found else None


def fragments(graph: Graph, key: str = "node:Person", branch: str = "main") -> int:
    return len(table_of(graph, key, branch).fragment_ids)


def stats(report, key: str):
    return next(one for one in report.datasets if one.type_key == key)
