"""Notes of the files that a load writes into the tables' folders, made by whoever wrote them.

Spark keeps one answer of each task. Attempts that failed later, ran twice or lost their executor
have written files that no answer names, and so have all tasks of a job that fails as a whole. Each
write is therefore noted below the load's scratch folder, and when the load is over its driver
deletes what was noted and did not become part of the commit. What a process wrote and could not
note any more is left for `cleanup`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
import orjson

from omnigraph.engine.rows.parts import GraphAccess
from omnigraph.errors import NotFoundError
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.table.fragments import data_files, delete_files

_SUFFIX: Final = ".note"
_READERS: Final = 8


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Fragments in the folder of one table that nobody sees yet."""

    folder: str
    receipts: tuple[str, ...]


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of one load; a value that travels to its tasks."""

    graph: GraphAccess
    scratch: str

    def add(self, written: Written) -> str:
        """Note what has just been written; the note's name."""
        name = f"{uuid.uuid4().hex}{_SUFFIX}"
        content = {"folder": written.folder, "receipts": written.receipts}
        self._files.write(f"{self.scratch}/notes/{name}", orjson.dumps(content))
        return name

    def sweep(
        self, known: Sequence[Written], *, named: Collection[str], used: Iterable[Written]
    ) -> int:
        """Delete every file that was noted, or is known, and is not `used`; how many there were.

        `named` are notes about what is known already, which need not be read.
        """
        strays = {(one.folder, r) for one in (*known, *self._read(named)) for r in one.receipts}
        # What a commit refers to, or may still come to refer to, is not ours to delete: `used` is
        # compared file by file, because two receipts may tell of one file.
        kept = {file for one in used for file in data_files(one.folder, one.receipts)}
        deleted = 0
        for folder, receipt in sorted(strays):
            if not kept & data_files(folder, [receipt]):
                deleted += delete_files(folder, self.graph.options, [receipt])
        return deleted

    @property
    def _files(self) -> FileAccess:
        return FileAccess(environ=self.graph.environ)

    def _read(self, named: Collection[str]) -> list[Written]:
        try:
            found = self._files.found(f"{self.scratch}/notes")
        except NotFoundError:
            return []
        names = (file.address for file in found if file.address.endswith(_SUFFIX))
        unknown = [one for one in names if one.rpartition("/")[2] not in named]
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(self._note, unknown))

    def _note(self, address: str) -> Written:
        with self._files.open(address) as file:
            told = orjson.loads(bytes(file.read()))
        return Written(folder=told["folder"], receipts=tuple(told["receipts"]))
