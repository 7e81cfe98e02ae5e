"""A write that is on disk but not yet visible: `Table` stages it, `Tables.apply` lands it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

COMMIT_PROPERTY: Final = "omnigraph.commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrites:
    """The results of compaction tasks (Lance's own JSON), to be committed together.

    `first` is an index transaction that they rely on and that lands right before them.
    """

    results: tuple[str, ...]
    first: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWrite:
    """One uncommitted Lance transaction, pinned to the version it was made on.

    The head of the table has not moved. `transaction_uuid` is what recovery looks for, and
    `version_after` the version that the table will have if the write lands. `operation` says
    "append", "upsert", "overwrite", "delete", "index", "compaction", "schema" or "restore".
    """

    table_key: str
    location: str
    branch: str | None
    pinned_version: int
    version_after: int
    transaction_uuid: str
    operation: str
    row_count_after: int
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    commit_id: str | None = None
    transaction: Any = field(repr=False, compare=False)  # opaque: only `Tables.apply` looks inside

    def for_commit(self, commit_id: str) -> StagedWrite:
        """The same write, to be landed in the name of a graph commit."""
        return replace(self, commit_id=commit_id)
