"""Who else has the graph open.

Cleanup may throw away what an older head refers to, and somebody may be reading it right now. On
local disk every open handle holds a shared file lock, so a handle can find out that it is the only
one: a lock of a dead process is gone. On object stores nobody ever knows.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time

from omnigraph.storage.layout import LOCKS, PRESENCE_LOCK
from omnigraph.storage.lock_files import LockFile
from omnigraph.storage.objects import Root


class Presence:
    """One open handle's mark. `touch` it with every call, so that threads count as well."""

    def __init__(self, root: Root, *, writable: bool) -> None:
        self._file = _open(root, writable=writable)
        self._lock = threading.Lock()
        self._seen: dict[int, float] = {}
        if self._file is not None:
            self._file.lock(fcntl.LOCK_SH)

    def touch(self) -> None:
        """The calling thread uses the handle."""
        self._seen[threading.get_ident()] = time.monotonic()

    def is_alone(self, *, quiet_ms: int) -> bool:
        """Whether no other handle is open and no other thread used this one for so long."""
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


def _open(root: Root, *, writable: bool) -> LockFile | None:
    if root.local_path is None:
        return None
    folder = os.path.join(root.local_path, LOCKS)
    try:
        if not writable:
            return LockFile(os.path.join(folder, PRESENCE_LOCK), os.O_RDONLY)
        os.makedirs(folder, exist_ok=True)
        return LockFile(os.path.join(folder, PRESENCE_LOCK))
    except OSError:
        return None  # a place that cannot be marked is one where nobody knows
