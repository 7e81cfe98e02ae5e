"""A writer that stops at a step and waits to be killed: `python -m … URI STEP NAME NEEDS`.

It says `at STEP` when it is there. Nothing in it ends well: either it is killed, or its parent is
gone and it leaves.
"""

from __future__ import annotations

import os
import sys
from importlib import resources

from omnigraph import Graph
from omnigraph.model.ports import World
from omnigraph.model.steps import Step


class StopAt:
    """Stops the writer at one step, as if the machine had frozen there."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def reach(self, step: Step) -> None:
        if step is self._step:
            sys.stdout.write(f"at {step}\n")
            sys.stdout.flush()
            sys.stdin.read()  # ends when the parent is gone
            os._exit(1)


def main(uri: str, step: str, name: str, needs: str) -> None:
    """Add one package to the graph, up to the step."""
    queries = (resources.files(__package__) / "packages.gq").read_text(encoding="utf-8")
    with Graph.open(uri, world=World(steps=StopAt(Step(step)))) as graph:
        params = {"name": name, "summary": "written by a process that was killed", "needs": needs}
        graph.mutate(queries, "add", params=params, actor="victim")


if __name__ == "__main__":
    main(*sys.argv[1:])
