"""The strict load cases of `exec.jsonl` once more, loaded by the tasks of the Spark pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from casebook import cases
from runner import World

from omnigraph.engine.load.order import checked_order
from omnigraph.engine.load.run import run_load
from omnigraph.engine.runner import Inline
from omnigraph.model import ports


class BulkWorld(World):
    """The same world; strict loads go through the pipeline, without a JVM."""

    def do_load_strict(self, load: Mapping[str, Any], step: Mapping[str, Any]) -> None:
        path = self.folder / "load.jsonl"
        path.write_text(load["text"], encoding="utf-8")
        order = checked_order(
            uri=self.graph.uri,
            sources=str(path),
            mode=load["mode"],
            branch=load.get("branch", "main"),
            from_branch=None,
            actor=None,
            on_error="fail",
            quarantine=None,
            idempotency_key=None,
            message=None,
        )
        try:
            result = run_load(Inline(held_bytes=0), order, listener=None, world=ports.World())
        finally:
            self.graph.refresh()
        self.check_load(result, step)


def bulk_cases() -> list[Any]:
    found = cases("exec.jsonl")
    return [
        one
        for one in found
        if one.values[0] is None or any("load_strict" in step for step in one.values[0]["steps"])
    ]


@pytest.mark.parametrize("case", bulk_cases())
def test_the_pipeline_loads_as_the_case_says(case, tmp_path):
    world = BulkWorld(tmp_path, case["schema"])
    try:
        world.load_base(case["data"])
        for step in case["steps"]:
            world.run(step)
    finally:
        world.close()
