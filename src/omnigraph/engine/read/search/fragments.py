"""The words of some fragments of a stored table, for a task that sees nothing but these.

Answers of tasks put together are those of the whole column: what relevance needs to know of all
texts is added up first (`text.seen`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, flat, pa, picked
from omnigraph.engine.read.memory.arrays import Positions
from omnigraph.engine.read.search.stored import StoredPostings
from omnigraph.engine.read.search.text import Part
from omnigraph.engine.text.analysis import Analysis
from omnigraph.storage.derived import DamagedError
from omnigraph.storage.table.table import Table

logger = logging.getLogger(__name__)

T = TypeVar("T")
IdsAt = Callable[[Positions], Array]


def over_fragments(
    table: Table,
    column: str,
    analysis: Analysis,
    fragments: Sequence[int],
    look: Callable[[Part], T],
) -> Iterator[tuple[T, IdsAt]]:
    """What a look at each part of the words gives, and how the ids at its positions are had. Words
    that are stored are taken from there; a damaged file counts as missing."""
    files = table.derived(column, analysis.kind)
    others: list[int] = []
    for number in fragments:
        if number not in files:
            others.append(number)
            continue
        whole = table.fragment_rows(number)
        found: list[tuple[T, IdsAt]] = []
        try:
            for some in files[number]:
                rows = some.of(whole)
                positions = np.arange(len(rows.row_ids), dtype=np.int32)
                told = look(Part.of(StoredPostings(some.file, positions), rows.alive))
                found.append((told, partial(_taken, table, rows.row_ids)))
        except DamagedError as cause:
            logger.warning("stored words are damaged", extra={"why": str(cause)})
            others.append(number)
        else:
            yield from found
    if not others:
        return
    for batch in table.scan(columns=sorted({"id", column}), fragments=others):
        values = flat(pa.chunked_array([batch.column(column)]))
        part = Part.build(values, np.arange(len(values)), analysis)
        yield look(part), partial(picked, batch.column("id"))


def _taken(table: Table, row_ids: npt.NDArray[np.uint64], positions: Positions) -> Array:
    if not len(positions):
        return pa.array([], pa.string())
    return flat(table.take(row_ids[positions], ["id"])["id"])
