"""One of several writers at work on one graph: `many_child.py URI WRITER COUNT`.

Each write's actor is its name, so the history says which write each commit was. What a write does
follows from its name alone (`operation`), so the history can be replayed in a plain dict.
"""

from __future__ import annotations

import random
import sys

from omnigraph import Graph
from omnigraph.errors import ConflictError, ConstraintViolationError

SCHEMA = """
node Person { name: String @key  age: I32? }
node Twin { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
QUERIES = """
query upsert($name: String, $age: I32) { insert Person { name: $name, age: $age } }
query twins($age: I32) {
  insert Person { name: "left", age: $age }
  insert Twin { name: "right", age: $age }
}
query update($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query delete($name: String) { delete Person where name = $name }
query know($name: String, $other: String) { insert Knows { from: $name, to: $other } }
"""


def operation(actor: str) -> tuple[str, dict]:
    """What the write of that name does."""
    chance = random.Random(actor)
    kind = chance.choices(["upsert", "twins", "update", "delete", "know"], [5, 3, 2, 1, 3])[0]
    name, other = (f"p{chance.randrange(8)}" for _ in range(2))
    age = chance.randrange(1000)
    match kind:
        case "upsert" | "update":
            return kind, {"name": name, "age": age}
        case "twins":
            return kind, {"age": age}
        case "delete":
            return kind, {"name": name}
        case _:
            return kind, {"name": name, "other": other}


def main(uri: str, writer: str, count: int) -> None:
    with Graph.open(uri, durability="process") as graph:
        for number in range(count):
            actor = f"{writer}-{number}"
            kind, params = operation(actor)
            try:
                graph.mutate(QUERIES, kind, params=params, actor=actor)
            except (ConflictError, ConstraintViolationError):
                continue  # a strict write lost, or an endpoint is gone: nothing landed


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
