"""Lock files: OS locks that die with their process and that its forked children do not keep.

A lock belongs to an open file, and a forked child has the same files open: it would hold the lock
until it ends. So every lock file is known here, and a child closes its copies first of all.
"""

from __future__ import annotations

import fcntl
import os
import threading


class LockFile:
    """A file opened to be locked. Closing it frees the lock; repeating that is fine."""

    def __init__(self, path: str | os.PathLike[str], flags: int = os.O_RDWR | os.O_CREAT) -> None:
        self.path = os.fspath(path)
        with _files.guard:
            self._descriptor = os.open(self.path, flags | os.O_CLOEXEC, 0o644)
            _files.open.add(self)

    def lock(self, kind: int = fcntl.LOCK_EX) -> None:
        """Wait for the lock, however long."""
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
