"""Lock files: OS locks that die with their process and that its forked children do not keep.

A lock belongs to an open file, and a forked child has the same files open: it would hold the lock
until it ends. So every lock file is known here, and a child closes its copies first of all.

`Presence` is one use of them: who else has the graph open. Cleanup may throw away what an older
head refers to, and somebody may be reading it right now. On local disk every open handle holds a
shared lock, so a handle can find out that it is the only one: a lock of a dead process is gone. On
object stores nobody ever knows.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time

from omnigraph.storage.layout import LOCKS, PRESENCE_LOCK


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

    def before_fork(self) -> None:
        self.guard.acquire()

    def after_fork(self) -> None:
        self.guard.release()

    def in_child(self) -> None:
        for file in self.open:
            file.let_go()
        self.open = set()
        self.guard = threading.Lock()


_files = _Files()
os.register_at_fork(
    before=_files.before_fork,
    after_in_parent=_files.after_fork,
    after_in_child=_files.in_child,
)


class Presence:
    """One open handle's mark. `touch` it with every call, so that threads count as well."""

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
    folder = os.path.join(graph_folder, LOCKS)
    try:
        if not writable:
            return LockFile(os.path.join(folder, PRESENCE_LOCK), os.O_RDONLY)
        os.makedirs(folder, exist_ok=True)
        return LockFile(os.path.join(folder, PRESENCE_LOCK))
    except OSError:
        return None  # a place that cannot be marked is one where nobody knows
