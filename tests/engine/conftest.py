"""A second handle of the graph of a story, into whose writes somebody meddles (`meddled`)."""

from __future__ import annotations

import threading

import pytest

from omnigraph import Graph
from omnigraph.model.ports import World
from omnigraph.model.steps import Step


class Meddler:
    """Does something once, in another thread, when a step is reached: by default right before the
    lease is taken."""

    def __init__(self):
        self.step, self.deed = Step.WRITE_STAGED, None

    def reach(self, step):
        if step is self.step and self.deed is not None:
            deed, self.deed = self.deed, None
            thread = threading.Thread(target=deed)
            thread.start()
            thread.join(60)


@pytest.fixture
def meddled(graph):
    steps = Meddler()
    with Graph.open(graph.uri, world=World(steps=steps, durability="process")) as other:
        yield steps, other
