"""A process that relocates or backs up a graph and kills itself at a step: argv is what to do, the
graph, where to, the step, and how often it is reached before."""

from __future__ import annotations

import sys

from harness import CrashAt

from omnigraph import Graph, relocate
from omnigraph.model.ports import World
from omnigraph.model.steps import Step

what, uri, dest, step, nth = sys.argv[1:]
world = World(steps=CrashAt(Step(step), int(nth), kill=True), durability="process")
if what == "relocate":
    relocate(uri, world=world)
else:
    with Graph.open(uri, world=world, maintenance=None) as graph:
        graph.backup(dest)
