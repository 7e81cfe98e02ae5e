"""Addresses of files and folders: which lie on this machine, and how their names say that they
are packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from omnigraph.errors import InputError

PACKINGS: Final[Mapping[str, str]] = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
}
FOREIGN_PACKINGS: Final = frozenset({".7z", ".lzo", ".rar", ".snappy", ".tgz", ".xz", ".zip"})
PACKED_SUFFIXES: Final = frozenset(PACKINGS) | FOREIGN_PACKINGS


def local_path(address: str) -> str | None:
    """The path that an address on this machine names; None if it names something elsewhere.

    `file:/x` is how Hadoop and Spark spell `file:///x`.
    """
    if address[:5].lower() != "file:":
        return None if "://" in address else address
    # `#` and `?` are plain letters in the name of a file; only `%xx` is read as an escape.
    parts = urlsplit(address.replace("#", "%23").replace("?", "%3F"))
    if parts.netloc not in ("", "localhost"):
        raise InputError(
            f"'{address}' names another machine", hint="write file:///path", uri=address
        )
    return unquote(parts.path)
