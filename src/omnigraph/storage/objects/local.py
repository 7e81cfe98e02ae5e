"""Local disk: control objects, and OS locks that die with their process.

Every write of an object is whole or absent, and on disk before it returns.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from omnigraph.errors import CorruptGraphError, NotFoundError, StorageUnavailableError
from omnigraph.model.ports import Listed, StoredObject, World

LOCKS: Final = "__locks"
OBJECTS_LOCK: Final = "objects.lock"
PRESENCE_LOCK: Final = "present.lock"
_DRAFT: Final = ".draft-"
_NO_PARTS: Final = frozenset({"", ".", ".."})  # of a key
_CHUNK_BYTES: Final = 1 << 20
# Folders of tables, where Lance keeps many files and we write none.
_NO_DRAFTS: Final = frozenset({"data", "_versions", "_transactions", "_indices", "_deletions"})


class LocalObjects:
    """The `ObjectStore` of a folder. The folder itself is made by the first write."""

    def __init__(self, folder: Path, world: World) -> None:
        self._folder = folder
        self._disk = world.disk if world.durability == "power" else None

    def read(self, key: str) -> StoredObject | None:
        place = self._place(key)
        with self._faults(key, "read"):
            try:
                with open(place, "rb", buffering=0) as file:
                    body = file.readall()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return StoredObject(key=key, body=body, tag=hashlib.sha256(body).hexdigest())

    def put(self, key: str, body: bytes) -> None:
        path = self._path(key)
        with self._faults(key, "write"), self._draft(path, body) as draft:
            # The bytes are on disk before the name is; the name is before the call returns.
            os.replace(draft, path)
            self._settle(path.parent)

    def put_if_absent(self, key: str, body: bytes) -> bool:
        path = self._path(key)
        with self._faults(key, "write"), self._draft(path, body) as draft:
            try:
                os.link(draft, path)
            except FileExistsError:
                return False
            except OSError:
                # Some file systems have no hard links; there an exclusive create must do.
                if not self._create_exclusively(path, body):
                    return False
            self._settle(path.parent)
        return True

    def put_if_match(self, key: str, body: bytes, *, tag: str) -> bool:
        with self._faults(key, "write"):
            self._make_folder(self._folder / LOCKS)
            with closing(LockFile(self._folder / LOCKS / OBJECTS_LOCK)) as file:
                file.lock()
                found = self.read(key)
                if found is None or found.tag != tag:
                    return False
                self.put(key, body)
                return True

    def list_keys(self, prefix: str) -> Sequence[str]:
        with self._faults(prefix, "list"):
            return sorted(self._walk(self._path(prefix) if prefix else self._folder))

    def keys_beginning(self, start: str) -> Sequence[str]:
        folder, _, name = start.rpartition("/")
        with self._faults(folder, "list"):
            try:
                names = os.listdir(self._place(folder))
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(f"{folder}/{one}" for one in names if one.startswith(name))

    def folders(self, prefix: str) -> Sequence[str]:
        with self._faults(prefix, "list"):
            try:
                with os.scandir(self._place(prefix)) as found:
                    return sorted(one.name for one in found if one.is_dir())
            except (FileNotFoundError, NotADirectoryError):
                return []

    def listed(self, prefix: str) -> dict[str, Listed]:
        found: dict[str, Listed] = {}
        with self._faults(prefix, "list"):
            for key in self._walk(self._path(prefix)):
                with suppress(FileNotFoundError):  # removed since it was listed
                    file = os.stat(f"{self._folder}/{key}")
                    found[key] = Listed(bytes=file.st_size, written_us=file.st_mtime_ns // 1000)
        return found

    def chunks(self, key: str) -> Iterator[bytes]:
        with self._faults(key, "read"):
            try:
                with self._path(key).open("rb", buffering=0) as file:
                    while piece := file.read(_CHUNK_BYTES):
                        yield piece
            except (FileNotFoundError, NotADirectoryError) as cause:
                raise _gone(key) from cause

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        with self._faults(key, "read"):
            try:
                with self._path(key).open("rb", buffering=0) as file:
                    return [os.pread(file.fileno(), end - at, at) for at, end in ranges]
            except (FileNotFoundError, NotADirectoryError):
                return None

    def delete(self, key: str) -> bool:
        place = self._place(key)
        with self._faults(key, "delete"):
            try:
                os.unlink(place)
            except (FileNotFoundError, NotADirectoryError):
                return False
            self._settle(os.path.dirname(place))
        return True

    def delete_prefix(self, prefix: str) -> int:
        assert prefix.strip("/"), "refusing to delete a whole graph root"
        path = self._path(prefix)
        with self._faults(prefix, "delete"):
            count = sum(1 for _ in self._walk(path))
            if path.is_dir():
                shutil.rmtree(path, onerror=_ignore_missing)
                self._settle(path.parent)
        return count

    def _path(self, key: str) -> Path:
        return Path(self._place(key))

    def _place(self, key: str) -> str:
        parts = key.strip("/").split("/")
        assert not _NO_PARTS.intersection(parts), f"not a key: {key!r}"
        return os.path.join(self._folder, *parts)

    def _walk(self, folder: Path) -> Iterator[str]:
        top = str(self._folder)
        for parent, _, names in os.walk(folder):
            # By hand: a listing of a graph with many branches is mostly this line.
            base = parent[len(top) :].lstrip(os.sep).replace(os.sep, "/")
            start = f"{base}/" if base else ""
            yield from (start + name for name in names if not name.startswith(_DRAFT))

    def put_chunks(self, key: str, pieces: Iterator[bytes]) -> None:
        path = self._path(key)
        with self._faults(key, "write"), self._draft(path, pieces) as draft:
            os.replace(draft, path)
            self._settle(path.parent)

    @contextmanager
    def _draft(self, path: Path, body: bytes | Iterator[bytes]) -> Iterator[Path]:
        """A complete, synced file next to `path`; it is gone when the block ends."""
        self._make_folder(path.parent)
        draft = path.parent / f"{_DRAFT}{secrets.token_hex(8)}"
        try:
            with draft.open("wb", buffering=0) as file:
                for piece in [body] if isinstance(body, bytes) else body:
                    file.write(piece)
            if self._disk is not None:
                self._disk.fsync_file(str(draft))
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def _create_exclusively(self, path: Path, body: bytes) -> bool:
        try:
            with path.open("xb") as file:
                file.write(body)
        except FileExistsError:
            return False
        if self._disk is not None:
            self._disk.fsync_file(str(path))
        return True

    def _make_folder(self, folder: Path) -> None:
        missing: list[Path] = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for one in reversed(missing):
            one.mkdir(exist_ok=True)
            self._settle(one.parent)

    def _settle(self, folder: str | Path) -> None:
        if self._disk is not None:
            self._disk.fsync_folder(str(folder))

    @contextmanager
    def _faults(self, key: str, verb: str) -> Iterator[None]:
        try:
            yield
        except IsADirectoryError as cause:
            raise CorruptGraphError.at(key, doing=verb, reason="it is a folder") from cause
        except OSError as cause:
            uri = str(self._folder / key)
            reason = cause.strerror or str(cause)
            raise StorageUnavailableError(
                f"cannot {verb} '{uri}': {reason}", uri=uri, reason=reason
            ) from cause


def collect_drafts(folder: Path, *, before_us: int) -> int:
    """Remove what writers that were killed in the middle of a `put` have left below a graph's
    folder, if it is older than that; says how many files it was."""
    gone = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NO_DRAFTS]
        for name in names:
            if name.startswith(_DRAFT):
                with suppress(FileNotFoundError):  # it was a live one and is done
                    path = os.path.join(parent, name)
                    if os.stat(path).st_mtime_ns < before_us * 1000:
                        os.unlink(path)
                        gone += 1
    return gone


def _gone(key: str) -> NotFoundError:
    return NotFoundError(f"'{key}' is not there", kind="object", name=key)


def _ignore_missing(
    _function: object, _path: str, failure: tuple[object, BaseException, object]
) -> None:
    # Two cleaners may remove the same folder at once; what is gone is gone.
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]


# --- locks -----------------------------------------------------------------------------------
#
# A lock belongs to an open file, and a forked child has the same files open: it would hold the lock
# until it ends. So every lock file is known here, and a child closes its copies first of all.


class LockFile:
    """A file opened to be locked. Closing it frees the lock; repeating that is fine."""

    def __init__(self, path: str | os.PathLike[str], flags: int = os.O_RDWR | os.O_CREAT) -> None:
        self.path = os.fspath(path)
        with _files.guard:
            self._descriptor = os.open(self.path, flags | os.O_CLOEXEC, 0o644)
            _files.open.add(self)

    def lock(self, kind: int = fcntl.LOCK_EX) -> None:
        """Wait for the lock, however long."""
        assert self.is_open, "a closed file cannot be locked"
        fcntl.flock(self._descriptor, kind)

    def try_lock(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    @property
    def is_current(self) -> bool:
        """Whether the path still names this file: a lock on one that was removed keeps nobody
        out. Also False once it is closed."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        except OSError:
            return False

    def close(self) -> None:
        with _files.guard:
            _files.open.discard(self)
            self.let_go()

    def let_go(self) -> None:
        """Close it without a word to the others, as a forked child does."""
        # The number goes first: closing twice could close a file that has got it since.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class _Files:
    """Every lock file that this process has open."""

    def __init__(self) -> None:
        self.guard = threading.Lock()  # no fork falls between the opening and the noting
        self.open: set[LockFile] = set()

    def in_child(self) -> None:
        for file in self.open:
            file.let_go()
        self.open = set()
        self.guard = threading.Lock()


_files = _Files()
os.register_at_fork(
    before=lambda: _files.guard.acquire(),
    after_in_parent=lambda: _files.guard.release(),
    after_in_child=_files.in_child,
)


class Presence:
    """One open handle's mark: who else has the graph open.

    Cleanup may throw away what an older head refers to, and somebody may be reading it right now.
    On local disk every open handle holds a shared lock, so a handle can find out that it is the
    only one: a lock of a dead process is gone. On object stores nobody ever knows. `touch` it with
    every call, so that threads count as well.
    """

    def __init__(self, graph_folder: str | None, *, writable: bool) -> None:
        self._file = _open(graph_folder, writable=writable)
        self._lock = threading.Lock()
        self._seen: dict[int, float] = {}
        if self._file is not None:
            self._file.lock(fcntl.LOCK_SH)

    def touch(self) -> None:
        """The calling thread uses the handle."""
        self._seen[threading.get_ident()] = time.monotonic()

    def is_alone(self, *, quiet_ms: int) -> bool:
        """Whether no other handle is open and no other thread used this one for so long."""
        # One at a time: for a moment the mark is an exclusive lock, which would look like another.
        with self._lock:
            since = time.monotonic() - quiet_ms / 1000
            me = threading.get_ident()
            others = any(seen > since for one, seen in list(self._seen.items()) if one != me)
            return not others and self._is_only_handle()

    def close(self) -> None:
        """Let the mark go; repeating it is fine."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _is_only_handle(self) -> bool:
        # A forked child has no mark of its own and never knows.
        if self._file is None or not self._file.is_open:
            return False
        try:
            return self._file.try_lock()
        except OSError:
            return False
        finally:
            # A failed change of a lock loses it, and an exclusive one would keep others out.
            self._file.lock(fcntl.LOCK_SH)


def _open(graph_folder: str | None, *, writable: bool) -> LockFile | None:
    if graph_folder is None:
        return None
    path = os.path.join(graph_folder, LOCKS, PRESENCE_LOCK)
    try:
        if not writable:
            return LockFile(path, os.O_RDONLY)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return LockFile(path)
    except OSError:
        return None  # a place that cannot be marked is one where nobody knows
