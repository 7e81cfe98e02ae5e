"""Every case of `exec.jsonl`: load, query, mutate, branch, look back, on a real graph."""

from __future__ import annotations

import pytest
from casebook import cases
from runner import World


@pytest.mark.parametrize("case", cases("exec.jsonl"))
def test_the_graph_answers_as_the_case_says(case, tmp_path):
    world = World(tmp_path, case["schema"])
    try:
        world.load_base(case["data"])
        for step in case["steps"]:
            world.run(step)
    finally:
        world.close()
