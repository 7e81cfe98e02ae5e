"""Submits what it is told, when it is told: `same_key_child.py URI`, one order a line of stdin.

An order is `WRITE NUMBER`; the answer is a line with the commit that it got.
"""

from __future__ import annotations

import sys
from typing import Any

from omnigraph import Graph

SCHEMA = "node P { k: String @key  n: I32? }\nnode N { text: String }\nedge E: P -> P"
QUERIES = """
query add($text: String) { insert N { text: $text } }
query count($n: I32) { update P set { n: $n } where k = "p" }
"""


def submit(graph: Graph, write: str, number: int) -> Any:
    """One write, the same for everybody who is told the same."""
    key = f"{write}-{number}"
    match write:
        case "insert":
            return graph.mutate(QUERIES, "add", params={"text": key}, idempotency_key=key)
        case "update":
            return graph.mutate(QUERIES, "count", params={"n": number}, idempotency_key=key)
        case "load":
            line = f'{{"type":"N","data":{{"text":"{key}"}}}}'
            return graph.load(line, mode="append", idempotency_key=key)
        case "merge":
            return graph.merge(f"b{number}", idempotency_key=key)
        case _:
            raise AssertionError(write)


if __name__ == "__main__":
    with Graph.open(sys.argv[1], durability="process") as opened:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for order in sys.stdin:
            write, number = order.split()
            answer = submit(opened, write, int(number))
            sys.stdout.write(f"{answer.commit.graph_commit_id} {int(answer.already_applied)}\n")
            sys.stdout.flush()
