"""Works on a graph until a file appears: `maintenance_child.py URI ROLE NUMBER STOP`.

Prints one line of JSON when it is done: what it wrote, or the error that it met.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from functools import partial
from pathlib import Path

from omnigraph import Graph
from omnigraph.errors import ExpectedVersionMismatchError, RowLevelCasContentionError

QUERIES = """
query add($name: String) {
  insert Person { name: $name, age: 0 }
  insert Knows { from: $name, to: "root" }
}
query age($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query all() { match { $p: Person } return { $p.name, $p.age } }
"""


def insist(deed):
    """Two writers that change what exists may be told that nothing landed; then one tries again."""
    for _ in range(50):
        try:
            return deed()
        except (ExpectedVersionMismatchError, RowLevelCasContentionError):
            continue
    return deed()


def write(graph, me, turns):
    ages: dict[str, int] = {}
    for turn in turns:
        name = f"{me}-{turn}"
        graph.mutate(QUERIES, "add", params={"name": name})
        ages[name] = 0
        if turn % 3 == 2:
            older = f"{me}-{turn // 2}"
            params = {"name": older, "age": turn}
            insist(partial(graph.mutate, QUERIES, "age", params=params))
            ages[older] = turn
    return ages


def read(graph, turns):
    for _ in turns:
        for commit in graph.commits(limit=4):
            rows = graph.query(QUERIES, "all", snapshot=commit.graph_commit_id).to_pylist()
            assert len({row["p.name"] for row in rows}) == len(rows)
        lines = sum(1 for _ in graph.export())
        assert lines > 0
    return {}


def branch(graph, me, turns):
    ages: dict[str, int] = {}
    for turn in turns:
        side, name = f"{me}/{turn}", f"{me}-{turn}"
        graph.create_branch(side)
        graph.mutate(QUERIES, "add", params={"name": name}, branch=side)
        insist(partial(graph.merge, side))
        graph.delete_branch(side)
        ages[name] = 0
    return ages


def main() -> None:
    uri, role, number, stop = sys.argv[1:]
    turns = itertools.takewhile(lambda _: not os.path.exists(stop), itertools.count())
    try:
        with Graph.open(uri, durability="process") as graph:
            Path(f"{stop}.{number}-is-here").touch()
            me = f"{role}{number}"
            deeds = {
                "write": lambda: write(graph, me, turns),
                "read": lambda: read(graph, turns),
                "branch": lambda: branch(graph, me, turns),
            }
            found = {"ages": deeds[role]()}
    except Exception:  # noqa: BLE001 - whatever it is, the parent wants to see it
        found = {"error": traceback.format_exc()}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
