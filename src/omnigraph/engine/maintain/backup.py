"""`backup`: a copy of a graph as it is at one moment, while others go on writing.

The state is read first: small files, the head of every branch, and every version of a table that a
kept commit shows. Then files are copied, each compared with its digest on the way. Version files
come last, up to the heads of the state and with the places of the copy written into them, so that
the copy never points to its original. A file that is gone meanwhile (a branch was deleted, a
cleanup was under way) means that the state is looked at anew; what is copied already stays.

Until it is done the copy carries a mark, and whoever opens it is told that it is no graph.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import msgspec
import orjson

from omnigraph.engine.arguments import TEXT, require
from omnigraph.engine.core import Core, OpenMode
from omnigraph.engine.maintain.relocate import places
from omnigraph.errors import (
    AlreadyExistsError,
    CorruptGraphError,
    InputError,
    NotFoundError,
    StorageUnavailableError,
)
from omnigraph.model.limits import BACKUP_HOLD_MS, BACKUP_THREADS_MAX, BACKUP_TRIES_MAX
from omnigraph.model.ports import ObjectStore, ulid_us
from omnigraph.model.steps import Step
from omnigraph.model.structs import JsonStruct
from omnigraph.storage.inspection import Place
from omnigraph.storage.lance import digests, versions
from omnigraph.storage.lance.files import version_file
from omnigraph.storage.lance.versions import NotAVersionError, VersionFacts
from omnigraph.storage.moving import rewritten
from omnigraph.storage.objects.root import (
    AUDIT_RECORDS,
    HOLDS,
    MANIFEST,
    REFS,
    TAGS,
    UNFINISHED,
    Root,
    aws_environment,
    branch_folder,
    open_store,
)

Progress = Callable[[str, int, int], None]
_SMALL = ("_refs", AUDIT_RECORDS)


class BackupReport(JsonStruct, frozen=True, kw_only=True):
    """What was copied, and where to. `commits` are those whose snapshots are in the copy."""

    uri: str
    dest: str
    files: int
    bytes: int
    branches: int
    tags: int
    commits: int


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """A graph at one moment: small files, and how far each line goes in it."""

    small: Mapping[str, bytes]
    ceilings: Mapping[tuple[str, str | None], int]
    commits: frozenset[str]


class _Files(msgspec.Struct, frozen=True, kw_only=True):
    """What to copy: keys by their sizes, and the version files of each dataset."""

    sizes: Mapping[str, int]
    versions: tuple[tuple[str, str], ...]  # (key, location)
    plain: tuple[str, ...]  # transactions, references of Lance's, marks


class _GoneError(Exception):
    """Something of the state is not there any more."""


def backup(
    core: Core, dest: str | os.PathLike[str], *, progress: Progress | None = None
) -> BackupReport:
    """Copy the graph to an empty place."""
    address = os.fspath(dest)
    require(TEXT, dest=address)
    root = Root.parse(address, aws_environment())
    _require_apart(core.root, root)
    target = open_store(root, core.world)
    _claim(root, target)
    core.world.steps.reach(Step.BACKUP_BEGUN)
    with _Hold(core) as hold:
        copy = _Copy(core, root, target, hold, progress)
        state = copy.run()
    target.delete(UNFINISHED)
    core.world.steps.reach(Step.BACKUP_DONE)
    return BackupReport(
        uri=core.root.uri,
        dest=root.uri,
        files=copy.files,
        bytes=copy.bytes,
        branches=1 + sum(key.startswith(f"{REFS}/") for key in state.small),
        tags=sum(key.startswith(f"{TAGS}/") for key in state.small),
        commits=len(state.commits),
    )


def _require_apart(source: Root, dest: Root) -> None:
    for one, other in ((source, dest), (dest, source)):
        if one.uri == other.uri or (
            one.scheme == other.scheme and one.below(other.uri) is not None
        ):
            raise InputError(
                f"'{dest.uri}' and the graph '{source.uri}' lie in each other",
                hint="choose another place for the copy",
            )


def _claim(root: Root, target: ObjectStore) -> None:
    """Mark the place; what a backup that died has left there goes."""
    if target.read(UNFINISHED) is not None:
        for key in target.list_keys(""):
            if key != UNFINISHED:
                target.delete(key)
    elif target.list_keys(""):
        raise AlreadyExistsError(
            f"'{root.uri}' is not empty", kind="place", name=root.uri, hint="choose another place"
        )
    target.put(UNFINISHED, b"")


class _Hold:
    """While it is held, no cleanup begins. One that a dead process left lapses by itself; without
    the right to write to the graph there is none, and files that go are looked for anew."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._key = f"{HOLDS}/{core.world.ids.ulid()}.json"
        self._until_us = 0

    def __enter__(self) -> _Hold:
        self.renew()
        return self

    def __exit__(self, *_: object) -> None:
        if self._core.mode is OpenMode.READ_WRITE:
            self._core.store.objects.delete(self._key)

    def renew(self) -> None:
        now = self._core.world.clock.now_us()
        if self._core.mode is OpenMode.READ_WRITE and self._until_us - now < BACKUP_HOLD_MS * 500:
            self._until_us = now + BACKUP_HOLD_MS * 1000
            self._core.store.objects.put(self._key, orjson.dumps({"until_us": self._until_us}))


class _Copy:
    def __init__(
        self, core: Core, root: Root, target: ObjectStore, hold: _Hold, progress: Progress | None
    ) -> None:
        self._core, self._root, self._target, self._hold = core, root, target, hold
        self._source = core.store.objects
        self._progress = progress
        self._done: dict[str, tuple[int, str]] = {}  # size and digest of what is copied, by key
        self._told: dict[str, dict[str, str]] = {}
        self.files = self.bytes = 0

    def run(self) -> _State:
        for _ in range(BACKUP_TRIES_MAX):
            written: list[str] = []
            try:
                state = _state(self._core)
                files = _needed(self._core, state)
                self._copy_files(files)
                self._core.world.steps.reach(Step.BACKUP_FILES_COPIED)
                self._copy_versions(state, files, written)
            except (_GoneError, NotFoundError):
                for key in written:
                    self._target.delete(key)
            else:
                self._core.world.steps.reach(Step.BACKUP_VERSIONS_COPIED)
                self.files += len(self._done)
                self.bytes += sum(size for size, _ in self._done.values())
                return state
        raise StorageUnavailableError(
            f"what was to be copied was taken away {BACKUP_TRIES_MAX} times in a row",
            hint="try again while no branches are deleted",
            uri=self._core.root.uri,
        )

    def _copy_files(self, files: _Files) -> None:
        missing = [key for key in files.sizes if key not in self._done]
        total, done = sum(files.sizes[key] for key in missing), 0
        with ThreadPoolExecutor(BACKUP_THREADS_MAX, thread_name_prefix="backup") as pool:
            for key, copied in zip(missing, pool.map(self._copied, missing), strict=True):
                self._done[key] = copied
                done += copied[0]
                self._hold.renew()
                self._core.world.steps.reach(Step.BACKUP_FILE_COPIED)
                if self._progress is not None:
                    self._progress("backup", done, total)

    def _copied(self, key: str) -> tuple[int, str]:
        digest, size = hashlib.sha256(), 0

        def pieces() -> Iterator[bytes]:
            nonlocal size
            for piece in self._source.chunks(key):
                digest.update(piece)
                size += len(piece)
                yield piece

        self._target.put_chunks(key, pieces())
        folder, _, path = _split(key)
        expected = self._digests(folder).get(path)
        if expected is not None and expected != digest.hexdigest():
            raise CorruptGraphError.at(
                key, doing="back up", reason="its bytes are not those that were written"
            )
        return size, digest.hexdigest()

    def _digests(self, folder: str) -> dict[str, str]:
        if folder not in self._told:
            self._told[folder] = digests.of_line(self._source, folder)
        return self._told[folder]

    def _copy_versions(self, state: _State, files: _Files, written: list[str]) -> None:
        """Everything small. The versions of the manifest's main line are the very last."""
        last = f"{MANIFEST}/_versions/"
        for key in files.plain:
            written.append(key)
            self._put(key, self._read(key))
        for folder, told in self._notes().items():
            digests.note(self._target, folder, told)
        for key, location in sorted(files.versions, key=lambda one: one[0].startswith(last)):
            written.append(key)
            self._put(key, rewritten(self._read(key), self._root, location))
        for key, body in state.small.items():
            self._put(key, body)

    def _notes(self) -> dict[str, dict[str, str]]:
        """The digests of all that was copied, by line."""
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for key, (_, digest) in self._done.items():
            folder, _, path = _split(key)
            found[folder][path] = digest
        return found

    def _read(self, key: str) -> bytes:
        stored = self._source.read(key)
        if stored is None:
            raise _GoneError(key)
        return stored.body

    def _put(self, key: str, body: bytes) -> None:
        self._target.put(key, body)
        self.files += 1
        self.bytes += len(body)


def _split(key: str) -> tuple[str, str, str]:
    """The folder of a line, and the path of one of its files in it."""
    for part in ("/data/", "/_deletions/", "/_indices/"):
        folder, found, _ = key.partition(part)
        if found:
            return folder, part, key[len(folder) + 1 :]
    raise AssertionError(f"no file of a line: {key}")


# --- what to copy ----------------------------------------------------------------------------


def _state(core: Core) -> _State:
    """The graph as it is now; nothing of it is newer than the heads."""
    objects, manifests = core.store.objects, core.store.manifests
    small: dict[str, bytes] = {}
    for part in _SMALL:
        for key in objects.list_keys(part):
            stored = None if key.startswith(HOLDS) else objects.read(key)
            if stored is not None:
                small[key] = stored.body
    unreadable = [*core.store.refs.unreadable(), *manifests.tags.unreadable()]
    if unreadable:
        raise CorruptGraphError.at(unreadable[0].key, doing="back up", reason=unreadable[0].problem)
    ceilings: dict[tuple[str, str | None], int] = {}
    commits: set[str] = set()
    branches = [*core.store.refs.list(), *manifests.retired.branches()]
    for branch in branches:
        if branch.id is not None and not _is_told(branch.id, small):
            continue  # made since
        known = manifests.fresh(branch.id)
        ceilings[MANIFEST, branch.id] = known.version
        for version in manifests.datasets.kept(known.opened):
            with suppress(NotFoundError):  # a cleanup that is under way takes it
                snapshot = manifests.at_version(branch, version)
                commits.add(snapshot.head.graph_commit_id)
                for entry in snapshot.datasets:
                    line = (entry.location, entry.branch)
                    ceilings[line] = max(ceilings.get(line, 0), entry.version)
    return _State(small=small, ceilings=ceilings, commits=frozenset(commits))


def _is_told(branch_id: str, small: Mapping[str, bytes]) -> bool:
    """Whether a small file names the branch, live or deleted."""
    return any(branch_id.encode() in body for body in small.values())


def _needed(core: Core, state: _State) -> _Files:
    """Every file that the state needs."""
    sizes: dict[str, int] = {}
    found: list[tuple[str, str]] = []
    plain: list[str] = [
        key
        for folder in ("nodes", "edges")
        for key in core.store.objects.list_keys(folder)
        if key.endswith(".dropped")
    ]
    for location in places(core.store.objects):
        place = Place(core.root, core.store.objects, location)
        for line in place.lines():
            ceiling = state.ceilings.get((location, line))
            if ceiling is None and _is_foreign(line, state):
                continue  # of a branch that was made or deleted meanwhile, or is left over
            for version in place.stored(line):
                if ceiling is not None and version > ceiling:
                    continue
                key = f"{branch_folder(location, line)}/_versions/{version_file(version)}"
                found.append((key, location))
                _add(core, place, line, key, sizes, plain)
            if line is not None:
                plain += place.references(line)
    return _Files(sizes=sizes, versions=tuple(found), plain=tuple(dict.fromkeys(plain)))


def _is_foreign(line: str | None, state: _State) -> bool:
    """Whether the line is one of ours, of a branch that the state does not have."""
    name = (line or "").partition("__")[0]
    return ulid_us(name) is not None and not _is_told(name, state.small)


def _add(
    core: Core, place: Place, line: str | None, key: str, sizes: dict[str, int], plain: list[str]
) -> None:
    stored = core.store.objects.read(key)
    if stored is None:
        raise _GoneError(key)
    try:
        facts: VersionFacts = versions.read(stored.body)
    except NotAVersionError as cause:
        raise CorruptGraphError.at(key, doing="back up", reason=str(cause)) from cause
    if facts.transaction is not None:
        name = f"{branch_folder(place.location, line)}/_transactions/{facts.transaction}"
        if place.has(name):
            plain.append(name)
    for part in place.files(line, facts):
        sizes[part] = place.size(part)
