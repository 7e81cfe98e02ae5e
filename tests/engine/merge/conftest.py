"""The graph of each story: the `World` that its module tells of."""

from __future__ import annotations

import pytest


@pytest.fixture
def world(request, tmp_path):
    world = request.module.World(tmp_path / "g.omni")
    yield world
    world.graph.close()
