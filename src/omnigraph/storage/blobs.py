"""Blobs: cells of bytes or a URI on their way in, readers of stored bytes on their way out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from lance.blob import BlobType

from omnigraph.storage.faults import translated
from omnigraph.storage.handles import Pinned

_EXTERNAL: Final = 3  # Lance's kind of a blob that lies at a URI


class StoredBlob:
    """One stored blob. Its bytes are read when asked for, and only those asked for."""

    def __init__(self, find: Callable[[], Any], *, uri: str | None, folder: str) -> None:
        self._find, self._found = find, None
        self.uri = uri  # where the bytes are, None when they are the graph's own
        self._place = folder if uri is None else uri

    @property
    def size(self) -> int:
        with translated(self._place, doing="read blob of"):
            return int(self._file.size())

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to but not including `stop`; both within the blob."""
        if stop <= start:
            return b""
        with translated(self._place, doing="read blob of"):
            return bytes(self._file.read_range(start, stop - start))

    def read(self) -> bytes:
        return self.read_range(0, self.size)

    @property
    def _file(self) -> Any:
        if self._found is None:
            self._found = self._find()
        return self._found


def is_blob(kind: pa.DataType) -> bool:
    """Whether a stored column of this type holds blobs."""
    return isinstance(kind, BlobType)


def open_blobs(pinned: Pinned, column: str, row_ids: Sequence[int]) -> list[StoredBlob | None]:
    """The blobs of the rows with these row ids, in that order; None for null."""
    if not row_ids:
        return []
    listed = ", ".join(str(one) for one in row_ids)
    with pinned.translated(doing="read blobs of"):
        described = pinned.dataset.scanner(
            columns=[column], filter=f"_rowid IN ({listed})", with_row_id=True
        ).to_table()
        uris = {
            row["_rowid"]: row[column]["blob_uri"]
            for row in described.to_pylist()
            if row[column] is not None and row[column]["kind"] == _EXTERNAL
        }
        own = [one for one in row_ids if one not in uris]
        files = pinned.dataset.take_blobs(column, ids=own) if own else []
    found = dict(zip(own, files, strict=True))

    def blob(row_id: int) -> StoredBlob | None:
        if row_id in uris:
            # What lies elsewhere is looked for when its bytes are wanted: it is not the graph's,
            # and one that is gone must not keep the others from being read.
            def find() -> Any:
                return pinned.dataset.take_blobs(column, ids=[row_id])[0]

            return StoredBlob(find, uri=uris[row_id], folder=pinned.folder)
        file = found[row_id]
        return None if file is None else StoredBlob(lambda: file, uri=None, folder=pinned.folder)

    return [blob(row_id) for row_id in row_ids]


def seal(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows as the table wants them: its columns in its order, blob cells in its blob type.

    Blob columns come as structs of `data`, `uri`, `position` and `size`, or are sealed already.
    """
    columns = [_sealed(rows.column(field.name), field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _sealed(column: Any, field: pa.Field[Any]) -> Any:
    if not is_blob(field.type) or is_blob(column.type):
        return column if column.type == field.type else column.cast(field.type)
    chunks = [pa.ExtensionArray.from_storage(field.type, chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=field.type)
