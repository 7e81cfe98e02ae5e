"""A process that runs one story and kills itself at a step: `child.py URI STORY STEP NTH`."""

from __future__ import annotations

import sys

from harness import CrashAt, world
from stories import BY_NAME

from omnigraph import Graph
from omnigraph.model.steps import Step

if __name__ == "__main__":
    uri, story, step, nth = sys.argv[1:]
    plan = CrashAt(Step(step), int(nth), kill=True)
    with Graph.open(uri, world=world(plan)) as graph:
        BY_NAME[story].act(graph)
