"""Candidates from an approximate index, where the schema wishes for one (`@index(ann=true)`).

The index gives somewhat more rows than are wanted, those near the query in the partitions that it
looks into; rows that it does not cover are compared by storage itself. Whoever asks then orders the
candidates by their own vectors, so that only what the index overlooked can be missing. Conditions
hold before the cut: where the index gives too few rows that satisfy them, it is asked for more, and
in the end every row is compared.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.memory.arrays import Positions, places_among
from omnigraph.engine.read.search.coded import unit_of
from omnigraph.engine.read.search.vectors import Floats
from omnigraph.storage.table.index import IndexInfo, Neighbours

INDEX_SHARE: Final = 8  # of the rows must satisfy the conditions: of fewer, all are compared
UNCOVERED_SHARE: Final = 4  # more rows than this part outside the index: all are compared
PROBES_MIN: Final = 20  # partitions that are looked into
PROBES_SHARE: Final = 40  # the same as a part of all
MORE: Final = 4  # times as many candidates as are wanted
CANDIDATES_MIN: Final = 40
CANDIDATES_MAX: Final = 8192


def indexed_positions(
    run: Run, expr: ir.Nearest, query: Floats, entities: Positions | None, wanted: int
) -> Positions | None:
    """The ascending positions of about the nearest entities, `wanted` at least; None if there is
    no index that could tell. `entities` are those that satisfy the conditions, None: all."""
    frame, name = run.frame_of(expr.field.var), expr.field.prop
    index = vector_index(frame.table.indexes, name)
    if frame.part or index is None:
        return None
    if index.rows_unindexed * UNCOVERED_SHARE > frame.length:
        return None
    # The index squares in single precision, where no length but about one is safe.
    unit = unit_of(query)
    if not unit.any():  # zeros are equally far from all: none is nearer
        return None
    partitions = max(1, int(np.sqrt(index.rows_indexed / max(1, index.segments))))
    probes = max(PROBES_MIN, partitions // PROBES_SHARE)
    share = 1.0 if entities is None else len(entities) / frame.length
    count = max(CANDIDATES_MIN, int(MORE * wanted / share))
    while count <= CANDIDATES_MAX:
        asked = Neighbours(column=name, vector=unit.tolist(), count=count, probes=probes)
        with run.trace.step(
            "search", f"${expr.field.var}.{name} by index, {probes} partitions"
        ) as step:
            at = np.unique(frame.at_row_ids(frame.table.neighbours(asked)))
            at = at[at >= 0]
            found = at if entities is None else entities[_known(places_among(entities, at))]
            step.rows = len(found)
        if len(found) >= wanted:
            return found
        count, probes = count * MORE, probes * MORE
    return None


def _known(places: Positions) -> Positions:
    return places[places >= 0]


def vector_index(indexes: tuple[IndexInfo, ...], column: str) -> IndexInfo | None:
    """The index of a column of vectors, if there is one."""
    return next(
        (one for one in indexes if one.columns == (column,) and one.kind.lower().startswith("ivf")),
        None,
    )
