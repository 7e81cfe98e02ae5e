"""The end of a data file, looked at before Lance does: it trusts the counts there, asks for as much
memory as they say, and one flipped bit among them ends the process.

Local files only. On an object store it would be one more request per file, and the store compares
what it keeps with checksums of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Set
from typing import Any

from omnigraph.model.limits import TABLE_HANDLES_MAX
from omnigraph.model.structs import Recent
from omnigraph.storage.lance import pylance
from omnigraph.storage.lance.versions import DATA_FOOTER_BYTES, ends_well, files_of_fragment

_Line = tuple[str, str | None]


class Ends:
    """Remembers the fragments of the version of each line that was looked at last, so that every
    file is looked at once, and after a commit only what it has added."""

    def __init__(self) -> None:
        self._known: Recent[_Line, frozenset[bytes]] = Recent(TABLE_HANDLES_MAX)

    def bad_file(self, line: _Line, dataset: Any, folder: str) -> str | None:
        """A local data file of the version that has another length than was recorded, or ends
        wrongly. One that is gone is not looked for: what reads it knows more about that."""
        stored = pylance.stored_fragments(dataset)
        if stored is None:
            return None  # this release of Lance writes versions in another way
        bases: dict[int, str] = {}
        new = stored - (self._known.get(line) or frozenset())
        if new:
            bases = {number: str(base.path) for number, base in dataset.base_paths().items()}
        for path, size in _files(new, bases, folder):
            if not _fits(path, size):
                return path
        self._known.put(line, frozenset(stored))
        return None


def _files(
    fragments: Set[bytes], bases: dict[int, str], folder: str
) -> Iterator[tuple[str, int | None]]:
    for fragment in fragments:
        for file in files_of_fragment(fragment):
            place = folder if file.base is None else bases.get(file.base, folder)
            yield os.path.join(place, file.path), file.size


def _fits(path: str, size: int | None) -> bool:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return True
    try:
        actual = os.fstat(file).st_size
        end = os.pread(file, DATA_FOOTER_BYTES, max(0, actual - DATA_FOOTER_BYTES))
    finally:
        os.close(file)
    return (size is None or size == actual) and ends_well(end, actual)
