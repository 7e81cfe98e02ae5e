"""A snapshot with changes that are not committed, as reads see it.

What is pending is staged as it would be for a commit, and each staged write is shown as a version
of its table that is in no history. So every kind of read works on it as on any snapshot, through
the same tables, and nobody else can see it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import PendingEntry, Snapshot
from omnigraph.storage.table.stage import StagedWrite
from omnigraph.storage.table.table import Tables

logger = logging.getLogger(__name__)


class Overlay:
    """The versions that show what is pending, until they are taken back."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._shown: list[tuple[StagedWrite, PendingEntry]] = []

    def over(self, snapshot: Snapshot, staged: Sequence[StagedWrite]) -> Snapshot:
        """The snapshot as it would be with the writes; what was shown before goes."""
        entries = dict(snapshot.entries)
        for write in staged:
            entry = self._tables.show(write)
            self._shown.append((write, entry))
            entries[write.table_key] = entry
        return replace(snapshot, entries=entries)

    def take_back(self, *, discard: bool) -> None:
        """Hide everything; `discard` also deletes the rows, of writes that nobody will apply."""
        shown, self._shown = self._shown, []
        for write, entry in shown:
            try:
                self._tables.hide(entry)
                if discard:
                    self._tables.discard(write)
            except OmnigraphError as cause:  # cleanup finds the files when they are old
                logger.warning(
                    "left files behind", extra={"table": write.table_key, "why": cause.message}
                )
