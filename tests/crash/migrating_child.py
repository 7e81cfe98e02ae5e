"""A process that opens an old graph and kills itself at a step: `migrating_child.py URI STEP`."""

from __future__ import annotations

import sys

from harness import CrashAt, world

from omnigraph import Graph
from omnigraph.model.steps import Step

if __name__ == "__main__":
    uri, step = sys.argv[1:]
    with Graph.open(uri, world=world(CrashAt(Step(step), kill=True))) as graph:
        graph.branches()
