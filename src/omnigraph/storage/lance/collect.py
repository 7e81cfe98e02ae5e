"""Removing old versions of a line that nothing else stands on.

Lance's own clean-up asks every branch of a dataset whether it needs a file, for each line anew: a
thousand branches are a million questions. Of a line that no branch was made from and no tag names,
the line itself knows everything: what only the unwanted versions name can go. Their files are read
here, since asking Lance costs ten times as much for a line of two versions. Lines that others stand
on are left to Lance. A test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from omnigraph.errors import CorruptGraphError
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.lance import versions
from omnigraph.storage.lance.files import version_of
from omnigraph.storage.lance.versions import NotAVersionError, VersionFacts

PUBLISHED: Final = re.compile(r"\d+\.manifest")  # what a transaction shows has another name
_VERSIONS: Final = "_versions"
_TRANSACTIONS: Final = "_transactions"
_OWNED: Final = ("data", "_deletions", "_indices", _TRANSACTIONS)


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a line, by its path in the line's folder."""

    path: str
    bytes: int
    written_us: int

    @property
    def part(self) -> str:
        return part_of(self.path)


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection removed. `failed_deletes` counts files that will be tried again."""

    versions: int = 0
    bytes: int = 0
    failed_deletes: int = 0

    @classmethod
    def of(cls, told: Any, *, preview: bool) -> Collected:
        """What Lance's own clean-up tells."""
        return cls(
            versions=int(told.old_versions),
            bytes=int(told.bytes_removed),
            failed_deletes=0 if preview else int(told.failed_deletes),
        )


class Leaf(msgspec.Struct, frozen=True, kw_only=True):
    """A line that nothing else stands on: what each of its versions names, and what is there."""

    named: Mapping[int, frozenset[str]]  # parts by version; the version's own file is one
    stored: tuple[Stored, ...]
    bases: frozenset[str] = frozenset()  # folders of lines that its versions read from


class Doomed(msgspec.Struct, frozen=True, kw_only=True):
    """What may go: versions, their own files, and then all else that only they named."""

    versions: tuple[int, ...]
    version_files: tuple[Stored, ...]
    others: tuple[Stored, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in (*self.version_files, *self.others))


def part_of(path: str) -> str:
    """What goes or stays as a whole: an index, or a data file with the blobs beside it."""
    folder, _, rest = path.partition("/")
    name = rest.partition("/")[0]
    if folder == "data":
        return f"{folder}/{name.removesuffix('.lance')}"
    return f"{folder}/{name}" if folder == "_indices" else path


def listed(store: ObjectStore, folder: str) -> tuple[Stored, ...]:
    """What lies in the folder of a line."""
    start = len(folder) + 1
    return tuple(
        Stored(path=key[start:], bytes=file.bytes, written_us=file.written_us)
        for key, file in store.listed(folder).items()
    )


def look(store: ObjectStore, folder: str, stored: Iterable[Stored], *, doing: str) -> Leaf:
    """Read what the line's versions name: nothing if somebody else has removed the line meanwhile.

    `stored` was listed before: a file that a write adds in between, or that it named in between, is
    in no danger.
    """
    named: dict[int, frozenset[str]] = {}
    bases: set[str] = set()
    start = len(folder) + 1
    for key in store.keys_beginning(f"{folder}/{_VERSIONS}/"):
        name = key.rpartition("/")[2]
        if PUBLISHED.fullmatch(name) and (found := store.read(key)) is not None:
            try:
                facts = versions.read(found.body)
            except NotAVersionError as cause:
                raise CorruptGraphError.at(key, doing=doing, reason=str(cause)) from cause
            version = version_of(name)
            if facts.version != (int(name.partition(".")[0]) if version is None else version):
                # Danger: what the version that the file should hold names is not known.
                raise CorruptGraphError.at(key, doing=doing, reason="it is another version")
            named[facts.version] = frozenset((key[start:], *_named(facts)))
            bases.update(facts.bases.values())
    return Leaf(named=named, stored=tuple(stored) if named else (), bases=frozenset(bases))


def _named(facts: VersionFacts) -> Iterator[str]:
    """The parts that lie in the version's own line. What is of a base belongs to that line."""
    if facts.transaction is not None:
        yield f"{_TRANSACTIONS}/{facts.transaction}"
    yield from facts.indexes
    yield from (part_of(part.path) for part in facts.parts if part.base is None)


def may_be_lost(stored: Iterable[Stored], lost_before_us: int) -> bool:
    """Whether there is a file so old that it is lost if no version names it."""
    return any(
        file.written_us < lost_before_us and file.path.partition("/")[0] in _OWNED
        for file in stored
    )


def doomed(leaf: Leaf, unwanted: Collection[int], lost_before_us: int) -> Doomed:
    """What goes with the unwanted versions, and what no version ever named and was written before
    that moment: nobody is still staging it."""
    if not leaf.named:
        return Doomed(versions=(), version_files=(), others=())
    newest = max(leaf.named)
    going = {version for version in unwanted if version in leaf.named and version != newest}
    kept = _parts(leaf, leaf.named.keys() - going)
    assert kept, "the newest version stays"
    free = _parts(leaf, going) - kept
    young = {file.part for file in leaf.stored if file.written_us >= lost_before_us}
    known = kept | free | young
    version_files: list[Stored] = []
    others: list[Stored] = []
    for file in leaf.stored:
        folder = file.path.partition("/")[0]
        if file.part in free:
            (version_files if folder == _VERSIONS else others).append(file)
        elif file.part not in known and folder in _OWNED:
            others.append(file)
    return Doomed(
        versions=tuple(sorted(going)), version_files=tuple(version_files), others=tuple(others)
    )


def _parts(leaf: Leaf, versions: Iterable[int]) -> set[str]:
    return {part for version in versions for part in leaf.named[version]}


def remove(store: ObjectStore, folder: str, going: Doomed) -> None:
    """A version goes before its files: it is whole or not there. What a crash leaves of the files
    is lost by then and goes a week later."""
    for file in (*going.version_files, *going.others):
        store.delete(f"{folder}/{file.path}")
