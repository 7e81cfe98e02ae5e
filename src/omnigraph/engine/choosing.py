"""Where a query should be answered: in this process, or by executors that share its data."""

from __future__ import annotations

import os
from contextlib import closing
from typing import Literal

import msgspec

from omnigraph.compiler.query import ir
from omnigraph.engine.core import OpenMode, compiled_as, open_core
from omnigraph.engine.read.estimate import held_bytes
from omnigraph.engine.read.memory.cache import usual_budget
from omnigraph.engine.refs import At
from omnigraph.model.graph import MAIN


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Where to ask, because of what the query would hold and what reading may keep."""

    engine: Literal["local", "spark"]
    held_bytes: int
    budget_bytes: int


def choose_engine(
    uri: str | os.PathLike[str],
    source: str,
    name: str | None = None,
    *,
    branch: str = MAIN,
    snapshot: At | None = None,
) -> Choice:
    """In process while what the query looks at fits what reading may keep; no row is read."""
    with closing(open_core(os.fspath(uri), mode=OpenMode.READ_ONLY)) as core:
        target = core.snapshot(branch, snapshot)
        catalog = core.catalog(target)
        plan = compiled_as("read", source, name, catalog).plan
        assert not isinstance(plan, ir.MutationPlan), "a mutation is no read"
        budget = core.world.cache_bytes
    held = held_bytes(plan, catalog, target)
    budget = usual_budget() if budget is None else budget
    return Choice(
        engine="local" if held <= budget else "spark", held_bytes=held, budget_bytes=budget
    )
