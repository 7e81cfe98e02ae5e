"""Protocol buffers as Lance writes them: fields of numbers and of bytes, read and written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_VARINT: Final = 0
_BYTES: Final = 2
_ONE_BYTE: Final = 0x80  # a smaller number takes a single byte


def fields(body: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a message, by number; ValueError for another kind of field."""
    for number, value, _, _ in _spans(body):
        yield number, value


def raw_fields(body: bytes) -> Iterator[tuple[int, bytes | int, bytes]]:
    """The same, each with the very bytes that it is written in."""
    for number, value, start, end in _spans(body):
        yield number, value, body[start:end]


def _spans(body: bytes) -> Iterator[tuple[int, bytes | int, int, int]]:
    at, size = 0, len(body)
    while at < size:
        start = at
        # Most numbers are small, and a table of many fragments has very many of them.
        key, at = (body[at], at + 1) if body[at] < _ONE_BYTE else _varint(body, at)
        value, at = (body[at], at + 1) if body[at] < _ONE_BYTE else _varint(body, at)
        if key & 7 == _VARINT:
            yield key >> 3, value, start, at
        elif key & 7 == _BYTES and at + value <= size:
            at += value
            yield key >> 3, body[at - value : at], start, at
        else:
            raise ValueError("a field of another kind")


def field(number: int, body: bytes) -> bytes:
    """A field that holds bytes, a text or a message."""
    return _encoded(number << 3 | _BYTES) + _encoded(len(body)) + body


def number_field(number: int, value: int) -> bytes:
    """A field that holds a whole number."""
    return _encoded(number << 3 | _VARINT) + _encoded(value)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while body[at] & 0x80:
        value |= (body[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | body[at] << shift, at + 1


def _encoded(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
