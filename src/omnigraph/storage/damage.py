"""Which file is to blame for a read that has failed, and whose files a dataset reads."""

from __future__ import annotations

import os
from typing import Any, Final

from omnigraph.errors import CorruptGraphError
from omnigraph.storage.objects import Root

_MAGIC: Final = {".lance": b"LANC", ".arrow": b"ARROW1"}


def blamed(dataset: Any, folder: str, root: str) -> str | None:
    """What to point at, relative to the graph where it lies there; None if nothing can be told."""
    try:
        path = _damaged_file(dataset, folder)
    except (OSError, ValueError, RuntimeError):
        return None
    return None if path is None else path.removeprefix(f"{root}/")


def _damaged_file(dataset: Any, folder: str) -> str | None:
    """The first file of a local dataset that is gone, has another size than was recorded or ends
    wrongly; None if they all look well, as one with a flipped bit inside does."""
    bases = {number: base.path for number, base in dataset.base_paths().items()}
    for fragment in dataset.get_fragments():
        for file in fragment.metadata.files:
            path = os.path.join(str(bases.get(file.base_id, folder)), "data", file.path)
            if not _looks_well(path, file.file_size_bytes):
                return path
        deletions = fragment.deletion_file()
        if deletions is not None:
            places = [os.path.join(str(place), deletions) for place in (folder, *bases.values())]
            if not any(_looks_well(path, None) for path in places):
                return next((path for path in places if os.path.exists(path)), places[0])
    return None


def require_home(dataset: Any, root: Root, folder: str) -> None:
    """Nothing may read another graph's files: branches of a copy point to where it was made."""
    other = _foreign_base(dataset, root.local_path or root.uri)
    if other is not None:
        raise CorruptGraphError(
            f"the graph was moved or copied: '{folder}' still reads from '{other}'",
            hint="open it where it was made; only a graph without branches can be moved or copied",
            part=folder,
            made_at=other,
        )


def _foreign_base(dataset: Any, root: str) -> str | None:
    """A folder outside the graph that the dataset reads from; None if there is none.

    Branches hold absolute paths, so those of a graph that was moved or copied point away from it.
    """
    bases = (str(base.path) for base in dataset.base_paths().values())
    return next((path for path in bases if not _is_below(path, root)), None)


def _is_below(path: str, root: str) -> bool:
    if "://" in root:
        return path.startswith(f"{root}/")
    return os.path.realpath(path).startswith(os.path.realpath(root) + os.sep)


def _looks_well(path: str, size: int | None) -> bool:
    magic = _MAGIC.get(os.path.splitext(path)[1], b"")
    try:
        with open(path, "rb") as file:
            actual = file.seek(0, os.SEEK_END)
            file.seek(max(0, actual - len(magic)))
            return (size is None or actual == size) and file.read() == magic
    except OSError:
        return False
