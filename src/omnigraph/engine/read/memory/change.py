"""What happened between two versions of a frame, for everything that is derived from it."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from omnigraph.engine.arrow import Array, ArrowTable, flat, pa
from omnigraph.engine.read.memory.arrays import Positions
from omnigraph.model.graph import Pin

FOLLOWED_ROWS_MAX: Final = 16_384  # of more changed rows, what rests on a frame is built anew
FOLLOWED_CHANGES_MAX: Final = 16


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """How a frame came from an older one: what everything derived from that one needs to follow."""

    origin: Pin  # the table version before
    added: ArrowTable
    added_at: Positions  # ascending, like their rows
    updated_at: Positions
    updated: ArrowTable
    deleted_at: Positions
    length: int  # of the frame after it
    nbytes: int  # of its rows

    @property
    def rows(self) -> int:
        return self.added.num_rows + self.updated.num_rows + len(self.deleted_at)

    @property
    def touched(self) -> Positions:
        """Every position that is not what it was."""
        return np.concatenate([self.updated_at, self.deleted_at, self.added_at])

    def values(self, name: str) -> tuple[Positions, Array] | None:
        """The positions that have another value, updated ones first, and these values; None if the
        column was not compared."""
        if name not in self.added.column_names:
            return None
        values = pa.concat_arrays([flat(self.updated[name]), flat(self.added[name])])
        return np.concatenate([self.updated_at, self.added_at]), values


def last_changes(changes: list[Change]) -> tuple[Change, ...]:
    """As many of the last ones as something derived from before them would follow."""
    rows = np.cumsum([change.rows for change in reversed(changes)])
    kept = int(np.count_nonzero(rows <= FOLLOWED_ROWS_MAX))
    return tuple(changes[len(changes) - min(kept, FOLLOWED_CHANGES_MAX) :])
