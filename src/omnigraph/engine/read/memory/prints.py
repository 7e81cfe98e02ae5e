"""Fingerprints of a column of texts: 32 bits a row, kept of one scan.

Before a big table is worth keeping in memory, its rows are looked up in storage by a text. Without
an index there each look reads the whole column; with fingerprints only the first does, and others
read the few rows that may be meant. Equal texts have equal fingerprints, so none is missed; whoever
asks compares the texts.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, as_mask, flat, pa, pc
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    Column,
    Positions,
    RowIds,
    array_bytes,
    distinct_sorted,
)
from omnigraph.engine.read.memory.compressed import Checkpoint, no_checkpoint
from omnigraph.engine.read.memory.counted import CountedTable
from omnigraph.engine.read.memory.ids import end_words
from omnigraph.engine.read.memory.threads import in_parallel
from omnigraph.model.schema import ROW_ID

Marks = npt.NDArray[np.uint32]

PRINT_BYTES: Final = 4  # a row
MEANT_ROWS_MAX: Final = 4096  # of more rows that may be meant, a scan is better than a look at each
COMPARED_MAX: Final = 8  # so few fingerprints are compared with all others one by one
_BATCH_ROWS: Final = 1 << 15  # what is computed of so many fits the processor's cache
_SEARCHED_ROWS: Final = 1 << 20


class Prints(msgspec.Struct, frozen=True):
    """The fingerprint of each row of a table version without gaps, by row id."""

    marks: Marks

    @staticmethod
    def can_be(table: CountedTable, column: str) -> bool:
        """Whether they can be made and are of use: storage has no index, and row ids are places
        because no row was ever deleted."""
        return table.row_ids_without_gaps() is not None and not table.has_index(column)

    @classmethod
    def of(cls, table: CountedTable, column: str, checkpoint: Checkpoint = no_checkpoint) -> Prints:
        """By one scan of the column; `checkpoint` is called between its batches."""
        marks = np.empty(table.entry.row_count, dtype=np.uint32)
        count = 0
        for batch in table.batches([column], batch_rows=_BATCH_ROWS):
            checkpoint()
            row_ids = flat(batch[ROW_ID]).to_numpy(zero_copy_only=False)
            made = _marks(batch[column])
            count += len(made)
            if (np.diff(row_ids) == 1).all():
                marks[int(row_ids[0]) :][: len(made)] = made
            else:
                marks[row_ids] = made
        assert count == len(marks), "a version has as many rows as its entry says"
        return cls(marks)

    @classmethod
    def of_texts(cls, column: Column) -> Prints:
        """Of a column in memory, by position."""
        numbers = range(column.chunk_count)
        made = in_parallel(lambda number: _marks(column.chunk(number)), numbers, column.length)
        return cls(np.concatenate([np.empty(0, dtype=np.uint32), *made]))

    def buffers(self) -> dict[int, int]:
        """The size of each buffer that is held, by its address."""
        return array_bytes(self.marks)

    def meant(self, texts: Array) -> RowIds | None:
        """The rows that may hold one of the texts; None if they are too many."""
        wanted = distinct_sorted(_marks(texts.drop_null()).astype(np.int64)).astype(np.uint32)
        starts = range(0, len(self.marks), _SEARCHED_ROWS)

        def places(start: int) -> Positions:
            here = self.marks[start : start + _SEARCHED_ROWS]
            return np.flatnonzero(_is_one_of(here, wanted)) + start

        found = np.concatenate([NO_POSITIONS, *in_parallel(places, starts, len(self.marks))])
        return None if len(found) > MEANT_ROWS_MAX else found.astype(np.uint64)


def _marks(texts: Array) -> Marks:
    """The upper half of a number of each text: the better mixed one."""
    return (end_words(flat(texts)) >> np.uint64(32)).astype(np.uint32)


def _is_one_of(marks: Marks, wanted: Marks) -> npt.NDArray[np.bool_]:
    if len(wanted) > COMPARED_MAX:
        return as_mask(pc.is_in(pa.array(marks), value_set=pa.array(wanted)))
    found = np.zeros(len(marks), dtype=np.bool_)
    for mark in wanted:
        found |= marks == mark
    return found
