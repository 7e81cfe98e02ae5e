"""Works on branches of its own and merges them into main: `merge_child.py URI NAME COUNT`.

Prints each key that it was told is in main.
"""

from __future__ import annotations

import sys

from omnigraph import Graph

if __name__ == "__main__":
    uri, name, count = sys.argv[1:]
    with Graph.open(uri, durability="process") as graph:
        for number in range(int(count)):
            branch, key = f"{name}/{number}", f"{name}-{number}"
            graph.create_branch(branch)
            graph.mutate(
                "query q($k: String) { insert P { k: $k } insert E { from: $k, to: $k } }",
                params={"k": key},
                branch=branch,
            )
            graph.merge(branch, actor=name, delete_branch=number % 2 == 0)
            sys.stdout.write(f"{key}\n")
            sys.stdout.flush()
