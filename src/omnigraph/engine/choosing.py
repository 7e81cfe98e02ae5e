"""Where a query should be answered: in this process, or by executors that share its data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Final, Literal

import msgspec

from omnigraph.compiler.query import ir
from omnigraph.engine.core import OpenMode, compiled_as, open_core
from omnigraph.engine.read.memory.cache import usual_budget
from omnigraph.engine.refs import At
from omnigraph.model.graph import MAIN, Snapshot
from omnigraph.model.schema import Catalog, PropertyType, Scalar

EDGE_BYTES: Final = 24  # of a topology (docs/internals/reading.md)
NODE_BYTES: Final = 8  # and of each of its ends, both ways
ID_BYTES: Final = 36  # an id as a text, and what finds it
TEXT_BYTES: Final = 40  # of a text or a list, as nobody has looked at it
VALUE_BYTES: Final = 8


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


def held_bytes(plan: ir.ReadPlan | ir.UnionPlan, catalog: Catalog, snapshot: Snapshot) -> int:
    """About how many bytes of columns and edges the query looks at. Conditions are not weighed: a
    column is held as a whole."""
    total = 0
    for part in ir.plans_of(plan):
        asked = {
            (e.var, e.prop): e.type for e in ir.parts_of(part) if isinstance(e, ir.PropertyRef)
        }
        for var, variable in part.variables.items():
            rows = sum(_rows(snapshot, f"{variable.kind}:{name}") for name in variable.types)
            width = sum(_width(kind) for (of, _), kind in asked.items() if of == var)
            total += rows * (width + (ID_BYTES if variable.kind == "node" else 0))
    for name in {*_walked(plan)}:
        edge = catalog.edges[name]
        ends = {f"node:{edge.from_type}", f"node:{edge.to_type}"}
        total += _rows(snapshot, f"edge:{name}") * EDGE_BYTES
        total += sum(_rows(snapshot, end) for end in ends) * NODE_BYTES
    return total


def _walked(plan: ir.ReadPlan | ir.UnionPlan) -> Iterator[str]:
    """The edge types that the query walks along or counts."""
    for block in ir.blocks_of(plan):
        for step in block.traversals:
            yield from (leg.edge_type for leg in step.legs)
    for part in ir.parts_of(plan):
        if isinstance(part, ir.Degree):
            yield part.edge_type
        elif isinstance(part, ir.PathPart):
            yield from (leg.edge_type for leg in part.way.legs)


def _rows(snapshot: Snapshot, table_key: str) -> int:
    return snapshot.entries[table_key].row_count


def _width(kind: PropertyType) -> int:
    if kind.scalar is Scalar.VECTOR and kind.dimension is not None and not kind.is_list:
        return 4 * kind.dimension
    return TEXT_BYTES if kind.is_list or kind.scalar is Scalar.STRING else VALUE_BYTES
