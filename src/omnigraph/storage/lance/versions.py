"""What a version file of Lance's says, read and rewritten without Lance.

A version file is a row of *sections*, each behind its length: the transaction that made it, its
indexes, and at last the version itself, a protocol buffer. `verify` reads it here because Lance
panics over some damaged files, `backup` and `cleanup` to learn which files a version needs, and
`relocate` to write other places into it. `tests/storage/lance/test_versions.py` holds this file to
what Lance itself tells.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from omnigraph.storage.lance.wire import field, fields, raw_fields

_LENGTH: Final = struct.Struct("<I")
_FOOTER: Final = struct.Struct("<QHH4s")
_MAGIC: Final = b"LANC"
_FRAGMENTS_MAX: Final = 1 << 14  # that are remembered as they were read

# Fields of protocol buffers, by number.
_FIELD, _FIELD_ID = 1, 3
_FRAGMENT, _VERSION, _INDEX_AT, _TRANSACTION_FILE, _BASE = 2, 3, 6, 12, 18
_FILES, _DELETIONS, _ROWS = 2, 3, 4  # of a fragment
_PATH, _COLUMNS, _SIZE, _FILE_BASE = 1, 2, 6, 7  # of a data file
_KIND, _READ, _ID, _DELETED, _DELETIONS_BASE = 1, 2, 3, 4, 7  # of a deletion file
_BASE_ID, _BASE_PATH = 1, 4  # of a base
_INDEX, _UUID, _INDEX_BASE, _INDEX_FILES = 1, 1, 9, 10  # of the index section and its entries


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a version needs: its path in the folder of a base, None = of its own line."""

    path: str
    base: int | None = None
    size: int | None = None  # None = not recorded
    # Whether a column of the version lies in it. One that holds only dropped columns is never read,
    # and Lance's cleanup may take it from a version that stays because a branch starts from it.
    is_read: bool = True


class VersionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One version: its files, how many rows it has, and where its bases are."""

    version: int
    transaction: str | None  # the name of the file of the transaction that made it
    bases: Mapping[int, str]
    parts: tuple[Part, ...]
    indexes: tuple[Part, ...]  # folders: some versions name no files of their indexes
    rows: int


class NotAVersionError(ValueError):
    """The bytes are no version file. It never leaves `storage`."""


class OtherVersionError(NotAVersionError):
    """The file holds another version than it is named for: what that one names is not known."""

    def __init__(self, found: int) -> None:
        self.found = found
        super().__init__("it is another version")


def read_as(version: int, body: bytes) -> VersionFacts:
    """What the file of that version says; `NotAVersionError` if it makes no sense there."""
    facts = read(body)
    if facts.version != version:
        raise OtherVersionError(facts.version)
    return facts


def read(body: bytes) -> VersionFacts:
    """What the version file says; `NotAVersionError` if it makes no sense."""
    try:
        return _read(body)
    except (IndexError, TypeError, ValueError, struct.error) as cause:
        raise NotAVersionError(str(cause) or "it makes no sense") from cause


def _read(body: bytes) -> VersionFacts:
    last_at = _last_at(body)
    bases: dict[int, str] = {}
    parts: list[Part] = []
    rows, version, indexes, transaction = 0, 0, b"", None
    said = tuple(fields(_section(body, last_at)))
    columns = frozenset(
        _number(dict(fields(_bytes(value))).get(_FIELD_ID, 0))
        for number, value in said
        if number == _FIELD
    )
    for number, value in said:
        if number == _FRAGMENT:
            more, files = _fragment(_bytes(value), columns)
            rows += more
            parts += files
        elif number == _VERSION:
            version = _number(value)
        elif number == _INDEX_AT:
            indexes = _section(body, _number(value))
        elif number == _TRANSACTION_FILE:
            transaction = _bytes(value).decode()
        elif number == _BASE:
            base, path = _base(_bytes(value))
            bases[base] = path
    folders: list[Part] = []
    for folder, named in _indexes(indexes):
        folders.append(folder)
        parts += named
    return VersionFacts(
        version=version,
        transaction=transaction,
        bases=bases,
        parts=tuple(parts),
        indexes=tuple(folders),
        rows=rows,
    )


def files_of_fragment(body: bytes, columns: Collection[int] | None = None) -> Iterator[Part]:
    """The data files of a fragment; `columns` are those that the version has, None = any."""
    for number, value in fields(body):
        if number == _FILES:
            file = dict(fields(_bytes(value)))
            yield Part(
                path=f"data/{_bytes(file[_PATH]).decode()}",
                base=_optional(file.get(_FILE_BASE)),
                size=_optional(file.get(_SIZE)),
                is_read=columns is None
                or _COLUMNS not in file
                or any(one in columns for one in _numbers(_bytes(file[_COLUMNS]))),
            )


# Most fragments of a version are those of the version before, and of the line that a branch is of.
@lru_cache(maxsize=_FRAGMENTS_MAX)
def _fragment(body: bytes, columns: frozenset[int]) -> tuple[int, tuple[Part, ...]]:
    """How many rows the fragment has, and its files."""
    rows, parts = 0, [*files_of_fragment(body, columns)]
    for number, value in fields(body):
        if number == _ROWS:
            rows += _number(value)
        elif number == _DELETIONS:
            file = dict(fields(_bytes(value)))
            rows -= _number(file.get(_DELETED, 0))
            parts.append(_deletions(dict(fields(body)), file))
    return rows, tuple(parts)


@lru_cache(maxsize=_FRAGMENTS_MAX)
def _base(body: bytes) -> tuple[int, str]:
    """The number of a base and where it is. A branch at depth d has d of them in every version."""
    base = dict(fields(body))
    return _number(base.get(_BASE_ID, 0)), _bytes(base[_BASE_PATH]).decode()


def _numbers(packed: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0


def _deletions(fragment: Mapping[int, Any], file: Mapping[int, Any]) -> Part:
    ending = "bin" if _number(file.get(_KIND, 0)) else "arrow"
    number, read, name = (
        _number(one) for one in (fragment.get(1, 0), file.get(_READ, 0), file.get(_ID, 0))
    )
    return Part(
        path=f"_deletions/{number}-{read}-{name}.{ending}",
        base=_optional(file.get(_DELETIONS_BASE)),
    )


def _indexes(section: bytes) -> Iterator[tuple[Part, list[Part]]]:
    """The folder of each index, and its files."""
    for number, value in fields(section):
        if number != _INDEX:
            continue
        folder, base, files = "", None, []
        for key, inner in fields(_bytes(value)):
            if key == _UUID:
                name = uuid.UUID(bytes=_bytes(dict(fields(_bytes(inner)))[1]))
                folder = f"_indices/{name}"
            elif key == _INDEX_BASE:
                base = _number(inner)
            elif key == _INDEX_FILES:
                files.append(dict(fields(_bytes(inner))))
        parts = [
            Part(
                path=f"{folder}/{_bytes(file[1]).decode()}",
                base=base,
                size=_optional(file.get(2)),
            )
            for file in files
        ]
        yield Part(path=folder, base=base), parts


def moved(body: bytes, place: Callable[[str], str]) -> bytes:
    """The same version with its bases at other places; the very same bytes if none changes."""
    read(body)
    last_at = _last_at(body)
    # The version is the last section: what comes before it keeps its place in the file.
    written = b"".join(_moved_field(*one, place) for one in raw_fields(_section(body, last_at)))
    footer = body[len(body) - _FOOTER.size :]
    return body[:last_at] + _LENGTH.pack(len(written)) + written + footer


def _moved_field(number: int, value: bytes | int, raw: bytes, place: Callable[[str], str]) -> bytes:
    if number != _BASE:
        return raw
    inner = b""
    for key, old, kept in raw_fields(_bytes(value)):
        inner += kept if key != _BASE_PATH else field(key, place(_bytes(old).decode()).encode())
    return field(_BASE, inner)


# --- Lance's bytes ---------------------------------------------------------------------------


def _last_at(body: bytes) -> int:
    """Where the last section begins; sections follow each other without a gap up to the footer."""
    end = len(body) - _FOOTER.size
    last_at, _, _, magic = _FOOTER.unpack_from(body, max(end, 0))
    at, found = 0, False
    while at < end:
        found = found or at == last_at
        at += _LENGTH.size + _LENGTH.unpack_from(body, at)[0]
    if magic != _MAGIC or at != end or not found:
        raise ValueError("it is not whole")
    return int(last_at)


def _section(body: bytes, at: int) -> bytes:
    length = _LENGTH.unpack_from(body, at)[0]
    start = at + _LENGTH.size
    if start + length > len(body) - _FOOTER.size:
        raise ValueError("a section ends behind the file")
    return body[start : start + length]


def _bytes(value: bytes | int) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("bytes were expected")
    return value


def _number(value: bytes | int) -> int:
    if not isinstance(value, int):
        raise TypeError("a number was expected")
    return value


def _optional(value: bytes | int | None) -> int | None:
    return None if value is None else _number(value)


# --- data files ------------------------------------------------------------------------------

_DATA_FOOTER: Final = struct.Struct("<QQQIIHH4s")  # three places, two counts, format, magic
DATA_FOOTER_BYTES: Final = _DATA_FOOTER.size
_ENTRY_BYTES: Final = 16  # of the two tables that stand before the footer: a place and a length


def ends_well(end: bytes, size: int) -> bool:
    """Whether the last bytes of a data file of that size fit together. Lance trusts the counts in
    them, and asks for as much memory as they say."""
    if size < _DATA_FOOTER.size or len(end) < _DATA_FOOTER.size:
        return False
    found = _DATA_FOOTER.unpack(end[-_DATA_FOOTER.size :])
    metadata_at, columns_at, buffers_at, buffers, columns, _, _, magic = found
    tables_end = size - _DATA_FOOTER.size
    return bool(
        magic == _MAGIC
        and metadata_at <= columns_at
        and columns_at + columns * _ENTRY_BYTES == buffers_at
        and buffers_at + buffers * _ENTRY_BYTES == tables_end
    )
