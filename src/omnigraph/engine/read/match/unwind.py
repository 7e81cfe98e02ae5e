"""Lists that become rows: a row for every element."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, int64_array, pa, pc
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.match.relation import MatchedRows, Relation
from omnigraph.engine.read.memory.arrays import Positions
from omnigraph.storage.lance.columns import value_type


def unwound(run: Run, relation: Relation, unwind: ir.Unwind) -> Relation:
    """Each row once for every element of its list, in the order of the list; a null list has none.

    The elements are kept beside the rows, which know them by their places.
    """
    if isinstance(unwind.items, ir.RecordParam):
        records = run.constants.params[unwind.items.name] or ()
        run.budget.reserve(relation.count * len(records), len(relation.columns) + 1)
        rows, places = _every_pair(relation.count, len(records))
        columns: Mapping[str, Array] = {
            field.name: pa.array([one[field.name] for one in records], value_type(field.type))
            for field in unwind.items.fields
        }
        ordinals = np.arange(len(records), dtype=np.int64)
    else:
        lists = MatchedRows(run, relation).values(unwind.items)
        lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
        total = int(lengths.sum())
        run.budget.reserve(total, len(relation.columns) + 1)
        rows = np.repeat(np.arange(relation.count, dtype=np.int64), lengths)
        places = np.arange(total, dtype=np.int64)
        first = np.cumsum(lengths, dtype=np.int64) - lengths
        ordinals = places - np.repeat(first, lengths)
        columns = {"": lists.flatten()}
    run.rows[unwind.var] = {**columns, ir.PLACE: int64_array(ordinals)}
    return relation.take(rows).with_column(unwind.var, places)


def _every_pair(rows: int, places: int) -> tuple[Positions, Positions]:
    return (
        np.repeat(np.arange(rows, dtype=np.int64), places),
        np.tile(np.arange(places, dtype=np.int64), rows),
    )
