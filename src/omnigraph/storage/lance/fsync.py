"""Lance writes local files without asking the disk to keep them; we ask.

`Flusher` does nothing on object stores and under durability "process".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from omnigraph.errors import NotFoundError
from omnigraph.model.limits import BRANCH_LISTING_TRIES_MAX, WRITE_THREADS_MAX
from omnigraph.model.ports import World
from omnigraph.storage.lance.pylance import translated
from omnigraph.storage.objects.root import Root

_LANCE_DRAFT: Final = ".tmp"  # a file that Lance is still writing; it is renamed when it is whole


@cache
def _threads(_process: int) -> ThreadPoolExecutor:
    """The threads that wait for the disk; a forked process needs its own."""
    return ThreadPoolExecutor(WRITE_THREADS_MAX, thread_name_prefix="fsync")


def _files_below(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            if not name.startswith(_LANCE_DRAFT):
                yield os.path.join(parent, name)


class Flusher:
    """Syncs files and the folders that name them, each once per call."""

    def __init__(self, root: Root, world: World) -> None:
        local = root.scheme == "file" and world.durability == "power"
        self._disk = world.disk if local else None
        self._top = root.local_path or ""
        self._known: set[str] = set()

    @property
    def active(self) -> bool:
        return self._disk is not None

    def flush(self, paths: Iterable[str]) -> None:
        """Make the files survive a power cut: their bytes and their names."""
        if self._disk is None:
            return
        files = sorted(set(paths))
        # Syncs that wait side by side share one turn of the file system's journal.
        pool = _threads(os.getpid())
        waits = [pool.submit(self._disk.fsync_file, path) for path in files]
        waits += [pool.submit(self._disk.fsync_folder, path) for path in self._folders(files)]
        with translated(os.path.dirname(files[0]) if files else self._top, doing="sync"):
            for wait in waits:
                wait.result()

    def flush_tree(self, folder: str) -> None:
        """Everything below a folder, for what was just made as a whole.

        Others may be at work there already: what they are about to rename or have removed is not
        what was made, and they sync their own.
        """
        if self._disk is None:
            return
        for left in reversed(range(BRANCH_LISTING_TRIES_MAX)):
            try:
                self.flush(_files_below(folder))
            except NotFoundError:
                self.forget(folder)
                if not left or not os.path.isdir(folder):
                    raise
            else:
                return

    def forget(self, folder: str) -> None:
        """The folder was removed: if it comes back its name must be synced again."""
        self._known = {known for known in self._known if not known.startswith(folder)}

    def _folders(self, files: Iterable[str]) -> set[str]:
        """The folders of the files, and above each folder that is new to us its parent."""
        folders: set[str] = set()
        for folder in {os.path.dirname(path) for path in files}:
            folders.add(folder)
            while folder not in self._known and folder.startswith(self._top):
                self._known.add(folder)
                folder = os.path.dirname(folder)
                folders.add(folder)
        return folders
