"""The blobs of a table: found by row, read in parts, and known by where their bytes lie."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Final

from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.storage.lance.files import fragment_keys
from omnigraph.storage.lance.pylance import translated
from omnigraph.storage.table.pinned import OFFSET_BITS, Pinned

_EXTERNAL: Final = 3  # Lance's kind of a blob that lies at a URI


class StoredBlob:
    """One stored blob. Its bytes are read when asked for, and only those asked for."""

    def __init__(
        self,
        find: Callable[[], Any],
        *,
        uri: str | None,
        folder: str,
        identify: Callable[[], str],
    ) -> None:
        self._find = find
        self._identify = identify
        self.uri = uri  # where the bytes are, None when they are the graph's own
        self._place = folder if uri is None else uri

    @property
    def size(self) -> int:
        with translated(self._place, doing="read blob of"):
            return int(self._file.size())

    @property
    def identity(self) -> str:
        """Equal only for equal bytes. It tells where they lie, so it is the same on every branch
        that shares the row; compaction moves rows and makes it another."""
        with translated(self._place, doing="read blob of"):
            return self._identify()

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to but not including `stop`; both within the blob."""
        if stop <= start:
            return b""
        with translated(self._place, doing="read blob of"):
            return bytes(self._file.read_range(start, stop - start))

    def read(self) -> bytes:
        return self.read_range(0, self.size)

    @cached_property
    def _file(self) -> Any:
        return self._find()


def stored_blobs(pinned: Pinned, column: str, row_ids: Sequence[int]) -> list[StoredBlob | None]:
    """The blobs of the rows with these row ids, in that order; None for null."""
    if not row_ids:
        return []
    dataset = pinned.dataset
    listed = ", ".join(str(one) for one in row_ids)
    with pinned.translated(doing="read blobs of"):
        scanner = dataset.scanner(
            columns=[column],
            filter=f"{ROW_ID} IN ({listed})",
            with_row_id=True,
            with_row_address=True,
        )
        described = scanner.to_table().to_pylist()
        uris = {
            row[ROW_ID]: row[column]["blob_uri"]
            for row in described
            if row[column] is not None and row[column]["kind"] == _EXTERNAL
        }
        own = [one for one in row_ids if one not in uris]
        files = dataset.take_blobs(column, ids=own) if own else []
    found = dict(zip(own, files, strict=True))
    addresses: dict[int, int] = {row[ROW_ID]: row[ROW_ADDRESS] for row in described}

    def blob(row_id: int) -> StoredBlob | None:
        identify = partial(_identity, dataset, column, addresses.get(row_id, 0))
        if row_id in uris:
            # What lies elsewhere is looked for when its bytes are wanted: it is not the
            # graph's, and one that is gone must not keep the others from being read.
            def find() -> Any:
                return dataset.take_blobs(column, ids=[row_id])[0]

            return StoredBlob(find, uri=uris[row_id], folder=pinned.folder, identify=identify)
        file = found[row_id]
        if file is None:
            return None
        return StoredBlob(lambda: file, uri=None, folder=pinned.folder, identify=identify)

    return [blob(row_id) for row_id in row_ids]


def _identity(dataset: Any, column: str, address: int) -> str:
    """A digest of the data files that hold the row, its place in them, and the column. Names of
    files are never used again, and their bytes never change."""
    number, offset = divmod(address, 1 << OFFSET_BITS)
    files = fragment_keys(dataset, [number])[number].files
    return hashlib.sha256(repr((files, offset, column)).encode()).hexdigest()
