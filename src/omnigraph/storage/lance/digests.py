"""What the files of a line were when they were written: the SHA-256 of each.

A digest is taken while the file is synced and travels with the transaction that makes the file
visible, as one of its properties: no further file, and as many bytes as the commit has files. Two
things cannot travel like that and are *notes*, small files in the line's folder `_digests`: those
of a compaction, whose transaction is Lance's own, and those that cleanup saves from the
transactions of versions that it takes away, while others still have their files.

Names of files are never used again, so a digest is right whoever told it, and told twice it is the
same. One that is missing makes nobody refuse a file: `verify` counts it.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
import orjson

from omnigraph.model.limits import WRITE_THREADS_MAX
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.lance.wire import fields

Digests = Mapping[str, str]  # SHA-256 in hex by the file's path in the line's folder
NONE: Final[Digests] = {}
PROPERTY: Final = "omnigraph.sha256"
FOLDER: Final = "_digests"
_TRANSACTIONS: Final = "_transactions"
_FILES: Final = ("data", "_deletions", "_indices")
_PROPERTIES: Final = 4  # field of a transaction's protocol buffer: a map of texts


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Uncommitted fragments, and the digests of the files that they bring."""

    fragments: list[Any]
    digests: Digests = NONE


def as_properties(digests: Digests) -> dict[str, str]:
    """The property that a transaction carries; none if there is nothing to tell."""
    return {PROPERTY: _encoded(digests).decode()} if digests else {}


def of_line(store: ObjectStore, folder: str) -> dict[str, str]:
    """Every digest that is known of the line in that folder."""
    return _told(store, [*_keys(store, folder, FOLDER), *_keys(store, folder, _TRANSACTIONS)])


def note(store: ObjectStore, folder: str, digests: Digests) -> str | None:
    """Write digests down in a file of their own; its key, None if there are none."""
    if not digests:
        return None
    key = f"{folder}/{FOLDER}/{uuid.uuid4()}.json"
    store.put(key, _encoded(digests))
    return key


def save(store: ObjectStore, folder: str, going: Collection[int]) -> None:
    """Write down what the transactions of versions that are about to go tell of files that others
    may have, together with the notes so far, as one note.

    Danger: the new note is on disk before the old ones go, and they before any version does: a
    crash leaves a digest once or twice, never less often.
    """
    notes = _keys(store, folder, FOLDER)
    leaving = [key for key in _keys(store, folder, _TRANSACTIONS) if _made_version(key) in going]
    told = _told(store, leaving)
    if not told and len(notes) <= 1:
        return
    known = {**_told(store, notes), **told}
    start = len(folder) + 1
    there = {key[start:] for part in _FILES for key in store.list_keys(f"{folder}/{part}")}
    made = note(store, folder, {path: one for path, one in known.items() if path in there})
    for key in notes:
        assert key != made, "a note has a name of its own"
        store.delete(key)


def _keys(store: ObjectStore, folder: str, part: str) -> list[str]:
    return list(store.keys_beginning(f"{folder}/{part}/"))


def _made_version(key: str) -> int:
    """The version that a transaction was to make: the one after that which its name tells."""
    number = key.rsplit("/", 1)[-1].partition("-")[0]
    return int(number) + 1 if number.isdigit() else 0


def _told(store: ObjectStore, keys: Collection[str]) -> dict[str, str]:
    if not keys:
        return {}
    found: dict[str, str] = {}
    with ThreadPoolExecutor(WRITE_THREADS_MAX, thread_name_prefix="digests") as pool:
        for key, stored in zip(keys, pool.map(store.read, keys), strict=True):
            if stored is not None:  # cleanup may be at work
                bodies = [stored.body] if key.endswith(".json") else properties(stored.body)
                for body in bodies:
                    found.update(_decoded(body))
    return found


def properties(transaction: bytes) -> Iterator[bytes]:
    """What a transaction file of Lance's carries as our property; nothing if it makes no sense."""
    try:
        for number, value in fields(transaction):
            if number == _PROPERTIES and isinstance(value, bytes):
                pair = dict(fields(value))
                if pair.get(1) == PROPERTY.encode() and isinstance(told := pair.get(2), bytes):
                    yield told
    except (IndexError, ValueError):
        return


def _encoded(digests: Digests) -> bytes:
    return orjson.dumps(dict(sorted(digests.items())))


def _decoded(body: bytes) -> dict[str, str]:
    """The digests of a note or property; one that makes no sense tells nothing."""
    try:
        return msgspec.json.decode(body, type=dict[str, str])
    except (msgspec.MsgspecError, ValueError):
        return {}


def of_files(digests: Digests, names: Sequence[Collection[str]]) -> list[dict[str, str]]:
    """The digests of data files and of the blobs beside them, by groups of names of files."""
    groups = {
        name.removesuffix(".lance"): number for number, group in enumerate(names) for name in group
    }
    found: list[dict[str, str]] = [{} for _ in names]
    for path, digest in digests.items():
        stem = path.split("/")[1].removesuffix(".lance")
        found[groups[stem]][path] = digest
    return found


def joined(parts: Iterable[Digests]) -> dict[str, str]:
    """All of them as one."""
    return {path: digest for part in parts for path, digest in part.items()}
