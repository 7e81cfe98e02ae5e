"""Control objects on local disk: every write is whole or absent, and on disk before it returns."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from omnigraph.errors import CorruptGraphError, StorageUnavailableError
from omnigraph.model.ports import StoredObject, World
from omnigraph.storage.layout import LOCKS, OBJECTS_LOCK
from omnigraph.storage.objects.lock_files import LockFile

_DRAFT: Final = ".draft-"
# Folders of tables, where Lance keeps many files and we write none.
_NO_DRAFTS: Final = frozenset({"data", "_versions", "_transactions", "_indices", "_deletions"})


class LocalObjects:
    """The `ObjectStore` of a folder. The folder itself is made by the first write."""

    def __init__(self, folder: Path, world: World) -> None:
        self._folder = folder
        self._disk = world.disk if world.durability == "power" else None

    def read(self, key: str) -> StoredObject | None:
        path = self._path(key)
        with self._faults(key, "read"):
            try:
                body = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return StoredObject(key=key, body=body, tag=_tag(body))

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
        with self._faults(key, "write"), self._lock():
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
                names = os.listdir(self._path(folder))
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(f"{folder}/{one}" for one in names if one.startswith(name))

    def delete(self, key: str) -> bool:
        path = self._path(key)
        with self._faults(key, "delete"):
            try:
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return False
            self._settle(path.parent)
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

    # --- inside ---

    def _path(self, key: str) -> Path:
        parts = key.strip("/").split("/")
        assert all(part not in ("", ".", "..") for part in parts), f"not a key: {key!r}"
        return self._folder.joinpath(*parts)

    def _walk(self, folder: Path) -> Iterator[str]:
        for parent, _, names in os.walk(folder):
            base = Path(parent).relative_to(self._folder)
            yield from ((base / name).as_posix() for name in names if not name.startswith(_DRAFT))

    @contextmanager
    def _draft(self, path: Path, body: bytes) -> Iterator[Path]:
        """A complete, synced file next to `path`; it is gone when the block ends."""
        self._make_folder(path.parent)
        draft = path.parent / f"{_DRAFT}{secrets.token_hex(8)}"
        try:
            draft.write_bytes(body)
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

    def _settle(self, folder: Path) -> None:
        if self._disk is not None:
            self._disk.fsync_folder(str(folder))

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self._make_folder(self._folder / LOCKS)
        file = LockFile(self._folder / LOCKS / OBJECTS_LOCK)
        try:
            file.lock()
            yield
        finally:
            file.close()

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


def _tag(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _ignore_missing(_function: Callable[..., object], _path: str, failure: object) -> None:
    # Two cleaners may remove the same folder at once; what is gone is gone.
    cause = failure[1] if isinstance(failure, tuple) else failure
    if isinstance(cause, BaseException) and not isinstance(cause, FileNotFoundError):
        raise cause
