"""Cutting a stored table into pieces of about equal size, one a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import GROUP_ROWS
from omnigraph.storage.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentGroup:
    """Some fragments of a stored table."""

    entry: TableEntry
    fragments: tuple[int, ...]


def fragment_groups(table: Table, *, rows: int = GROUP_ROWS) -> Iterator[FragmentGroup]:
    """The table's fragments in runs that hold about so many rows each; none for an empty table."""
    numbers = table.fragment_ids
    if not numbers or not table.entry.row_count:
        return
    tasks = max(1, min(len(numbers), -(-table.entry.row_count // rows)))
    for task in range(tasks):
        start, end = len(numbers) * task // tasks, len(numbers) * (task + 1) // tasks
        yield FragmentGroup(entry=table.entry, fragments=numbers[start:end])
