"""Looking at the files of a graph without reading rows, and without Lance: is each file there that
a version names, as long as it was and with the bytes that it had when it was written?

Lance panics over some damaged files, and asks for as much memory as a damaged file says. So what is
looked at here comes before anything that is read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import quote

import msgspec

from omnigraph.errors import NotFoundError, OmnigraphError
from omnigraph.model.limits import VERIFY_THREADS_MAX
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.lance import digests, versions
from omnigraph.storage.lance.files import moved, version_file, version_of
from omnigraph.storage.lance.versions import NotAVersionError, OtherVersionError, VersionFacts
from omnigraph.storage.objects.root import Root, branch_folder, is_line

_VERSIONS: Final = "_versions"
_END_BYTES: Final = versions.DATA_FOOTER_BYTES

Advance = Callable[[int], None]  # told how many bytes were looked at


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one file of a line, and the newest version that needs it."""

    kind: str
    part: str
    reason: str
    version: int | None
    expected: str | None = None
    actual: str | None = None


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """One line: its versions that make sense, what is wrong, and how much was looked at."""

    facts: Mapping[int, VersionFacts]
    troubles: tuple[Trouble, ...] = ()
    files: int = 0
    bytes: int = 0
    without_digest: int = 0


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A file that versions need: the newest of them, and what is known of the file."""

    key: str
    version: int
    size: int | None
    digest: str | None


class Place:
    """One dataset below the root: its lines, and what is stored of them, as of one listing."""

    def __init__(self, root: Root, store: ObjectStore, location: str) -> None:
        self._root, self._store, self.location = root, store, location
        self._sizes = {key: one.bytes for key, one in store.listed(location).items()}
        self._versions = _by_line(location, self._sizes)
        self._beside: dict[str, list[str]] = {}  # blobs by the data file that they lie beside
        for key in self._sizes:
            folder = key.rpartition("/")[0]
            if "/data/" in folder:
                self._beside.setdefault(folder, []).append(key)
        self._digests: dict[str, dict[str, dict[str, str]]] = {}
        self._seen: set[str] = set()  # a file that several lines share is looked at once

    @property
    def bytes(self) -> int:
        return sum(self._sizes.values())

    def lines(self) -> list[str | None]:
        """Every line that has a version, the main line first."""
        return sorted(self._versions, key=lambda line: line or "")

    def stored(self, line: str | None) -> tuple[int, ...]:
        """The versions of a line that have a file, newest first."""
        return tuple(sorted(self._versions.get(line, ()), reverse=True))

    def look(
        self,
        line: str | None,
        wanted: Collection[int] | None = None,
        advance: Advance | None = None,
    ) -> Looked:
        """Look at every stored version of a line up to the newest `wanted` one, None = at all."""
        troubles: list[Trouble] = []
        facts: dict[int, VersionFacts] = {}
        needed: dict[str, _Wanted] = {}
        for version in self.stored(line):
            if wanted and version > max(wanted):
                continue  # a write that is being made, or was given up: nobody sees it
            key = f"{branch_folder(self.location, line)}/{_VERSIONS}/{version_file(version)}"
            found = self._read(key, version)
            if isinstance(found, VersionFacts):
                facts[version] = found
                told = any(one.kind == "moved" for one in troubles)
                outside = self._parts(line, found, needed)
                troubles += [] if told else outside[:1]
            elif found is not None:
                troubles.append(found)
        files = [one for one in needed.values() if one.key not in self._seen]
        self._seen.update(one.key for one in files)
        with ThreadPoolExecutor(VERIFY_THREADS_MAX, thread_name_prefix="verify") as pool:
            for one, trouble in zip(files, pool.map(self._check, files), strict=True):
                if trouble is not None and self._is_kept(line, one.version):
                    troubles.append(trouble)
                if advance is not None:
                    advance(self._sizes.get(one.key, 0))
        return Looked(
            facts=facts,
            troubles=tuple(troubles),
            files=len(files),
            bytes=sum(self._sizes.get(one.key, 0) for one in files),
            without_digest=sum(one.digest is None for one in files),
        )

    # --- for copies --------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        return key in self._sizes

    def size(self, key: str) -> int:
        """How long a file was when it was listed; `NotFoundError` if it was not there."""
        if key not in self._sizes:
            raise NotFoundError(f"'{key}' is not there", kind="object", name=key)
        return self._sizes[key]

    def files(self, line: str | None, facts: VersionFacts) -> Iterator[str]:
        """The keys of all files that a version needs, with the blobs beside data files."""
        folders: dict[int | None, str] = {None: branch_folder(self.location, line)}
        for number, path in facts.bases.items():
            below = self._root.below(path)
            if below is None:
                raise moved(self._root, folders[None], path)
            folders[number] = below
        for part in facts.parts:
            key = f"{folders[part.base]}/{part.path}"
            if not part.is_read and not self.has(key):
                continue
            yield key
            yield from self._beside.get(key.removesuffix(".lance"), ())

    def references(self, line: str) -> list[str]:
        """Lance's own reference of the line."""
        key = f"{self.location}/_refs/branches/{quote(line, safe='')}.json"
        return [key] if key in self._sizes else []

    # --- looking -----------------------------------------------------------------------------

    def _read(self, key: str, version: int) -> VersionFacts | Trouble | None:
        stored = self._store.read(key)
        if stored is None:
            return None  # cleanup took it since the listing
        try:
            return versions.read_as(version, stored.body)
        except NotAVersionError as cause:
            actual = str(cause.found) if isinstance(cause, OtherVersionError) else None
            return Trouble(
                kind="version",
                part=key,
                reason=str(cause),
                version=version,
                expected=None if actual is None else str(version),
                actual=actual,
            )

    def _parts(
        self, line: str | None, facts: VersionFacts, needed: dict[str, _Wanted]
    ) -> list[Trouble]:
        """Add the files that the version needs; bases outside of the graph are a trouble."""
        folders: dict[int | None, str] = {None: branch_folder(self.location, line)}
        outside: list[Trouble] = []
        for number, path in facts.bases.items():
            below = self._root.below(path)
            if below is None:
                outside.append(
                    Trouble(
                        kind="moved",
                        part=f"{folders[None]}/{_VERSIONS}/{version_file(facts.version)}",
                        reason=f"it reads from '{path}': the graph was moved or copied",
                        version=facts.version,
                    )
                )
            else:
                folders[number] = below
        for part in facts.parts:
            if part.base not in folders or f"{folders[part.base]}/{part.path}" in needed:
                continue
            if not part.is_read and not self.has(f"{folders[part.base]}/{part.path}"):
                continue
            known = self._told(folders[part.base])
            stem = part.path.removesuffix(".lance")
            beside = (path for path in known.get(stem, {}) if path != part.path)
            for path in (part.path, *beside):
                key = f"{folders[part.base]}/{path}"
                needed[key] = _Wanted(
                    key=key,
                    version=facts.version,
                    size=part.size if path == part.path else None,
                    digest=known.get(stem, {}).get(path),
                )
        return outside

    def _told(self, folder: str) -> dict[str, dict[str, str]]:
        """The digests of a line, by the data file or other file that they belong to."""
        if folder not in self._digests:
            grouped: dict[str, dict[str, str]] = {}
            for path, digest in digests.of_line(self._store, folder).items():
                parts = path.split("/")
                whole = "/".join(parts[:2]) if parts[0] == "data" else path
                grouped.setdefault(whole.removesuffix(".lance"), {})[path] = digest
            self._digests[folder] = grouped
        return self._digests[folder]

    def _check(self, one: _Wanted) -> Trouble | None:
        size = self._sizes.get(one.key)
        try:
            if size is None:
                return _missing(one)
            if one.size is not None and one.size != size:
                return _differs("size", one, f"{one.size} bytes", f"{size} bytes")
            actual, end = _sha256(self._store, one.key)
        except NotFoundError:
            return _missing(one)
        except OmnigraphError as cause:
            return Trouble(
                kind="unreadable", part=one.key, reason=cause.message, version=one.version
            )
        if one.digest is not None and one.digest != actual:
            return _differs("digest", one, f"sha256 {one.digest}", f"sha256 {actual}")
        if one.digest is None and not _ends_well(one.key, end, size):
            return Trouble(
                kind="damaged", part=one.key, reason="its end makes no sense", version=one.version
            )
        return None

    def _is_kept(self, line: str | None, version: int) -> bool:
        """Whether the version is still there: cleanup removes it before its files."""
        key = f"{branch_folder(self.location, line)}/{_VERSIONS}/{version_file(version)}"
        return self._store.read(key) is not None


def _by_line(location: str, keys: Iterable[str]) -> dict[str | None, list[int]]:
    """The numbers of the version files below a dataset."""
    found: dict[str | None, list[int]] = {}
    for key in keys:
        folder, _, name = key[len(location) + 1 :].rpartition("/")
        version = version_of(name) if folder.endswith(_VERSIONS) else None
        line = folder.removesuffix(_VERSIONS).strip("/").removeprefix("tree/") or None
        if version is not None and is_line(line):
            found.setdefault(line, []).append(version)
    return found


def _missing(one: _Wanted) -> Trouble:
    return Trouble(kind="missing", part=one.key, reason="it is not there", version=one.version)


def _differs(kind: str, one: _Wanted, expected: str, actual: str) -> Trouble:
    return Trouble(
        kind=kind,
        part=one.key,
        reason=f"it has {actual}, not {expected}",
        version=one.version,
        expected=expected,
        actual=actual,
    )


def _sha256(store: ObjectStore, key: str) -> tuple[str, bytes]:
    """The digest of an object, and its last bytes."""
    digest, end = hashlib.sha256(), b""
    for piece in store.chunks(key):
        digest.update(piece)
        end = (end + piece)[-_END_BYTES:]
    return digest.hexdigest(), end


def _ends_well(key: str, end: bytes, size: int) -> bool:
    ending = os.path.splitext(key)[1]
    if ending == ".lance":
        return versions.ends_well(end, size)
    return ending != ".arrow" or end.endswith(b"ARROW1")
