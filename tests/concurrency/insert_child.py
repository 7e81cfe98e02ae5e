"""Inserts nodes one by one while others work: `insert_child.py URI NAME COUNT`.

Prints each key that it was told is safe.
"""

from __future__ import annotations

import sys

from omnigraph import Graph

if __name__ == "__main__":
    uri, name, count = sys.argv[1:]
    with Graph.open(uri, durability="process") as graph:
        for number in range(int(count)):
            key = f"{name}-{number}"
            graph.mutate(
                "query q($k: String) { insert P { k: $k } insert E { from: $k, to: $k } }",
                params={"k": key},
                actor=name,
            )
            sys.stdout.write(f"{key}\n")
            sys.stdout.flush()
