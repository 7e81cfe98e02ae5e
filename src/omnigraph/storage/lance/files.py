"""The files of a Lance dataset on disk: their names, whether they are whole, what they say, and
asking the disk to keep them.

*Torn versions.* Lance names a new version before its bytes are on the disk; we ask the disk
afterwards, only then acknowledge, and only after that delete the write's sidecar. So a version file
that is not whole was never acknowledged if the sidecar of its write is still there, and is damage
if it is not. The look at the sidecars is the caller's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from glob import escape, glob
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
from lance.bitmap import Bitmap

from omnigraph.errors import CorruptGraphError, NotFoundError, StorageUnavailableError
from omnigraph.model.limits import BRANCH_LISTING_TRIES_MAX, WRITE_THREADS_MAX
from omnigraph.model.ports import ObjectStore, World, ulid_us
from omnigraph.storage.lance import digests, pylance
from omnigraph.storage.lance.pylance import translated
from omnigraph.storage.objects.root import Root

_MAGIC: Final = b"LANC"
_MAGICS: Final = {".lance": _MAGIC, ".arrow": b"ARROW1"}
_LENGTH: Final = struct.Struct("<I")
_FOOTER: Final = struct.Struct("<QHH4s")  # where the last section starts, format numbers, magic
_SECTIONS_MAX: Final = 64
_HINT: Final = "latest_version_hint.json"
_NAME: Final = re.compile(r"(\d{20})\.manifest")
_TOP: Final = (1 << 64) - 1
PARTS: Final = ("_versions", "_transactions", "_deletions", "_indices", "data", digests.FOLDER)


# --- lines -----------------------------------------------------------------------------------


def stored_lines(store: ObjectStore, location: str) -> set[str]:
    """The branches of a dataset that have files."""
    folder, found = f"{location}/tree", set[str]()
    for name in store.folders(folder):
        if ulid_us(name.partition("__")[0]) is None:
            keys = store.list_keys(f"{folder}/{name}")
            found.update(owner(key.removeprefix(f"{folder}/")) for key in keys)
        else:
            found.add(name)  # an id of ours, so that no other branch lies in its folder
    return found


def owner(path: str) -> str:
    """The branch that a file below `tree/` belongs to. Ids of ours are one word; the branches of a
    migrated graph have the names that users gave them, `a` and `a/b` at once."""
    parts = path.split("/")
    end = next((at for at, part in enumerate(parts) if at and part in PARTS), 1)
    return "/".join(parts[:end])


# --- version files ---------------------------------------------------------------------------


def version_file(version: int) -> str:
    """The file name of a version: newer versions sort first."""
    return f"{_TOP - version:020d}.manifest"


def version_of(name: str) -> int | None:
    """The version that a file of this name is of; None for other files."""
    match = _NAME.fullmatch(name)
    return None if match is None else _TOP - int(match.group(1))


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The newest whole version (None = there is none) and the torn ones above it."""

    version: int | None
    torn: tuple[int, ...]


def newest_whole(versions_folder: str) -> Found:
    """Look at the version files of a local dataset, newest first."""
    torn: list[int] = []
    try:
        names = sorted(os.listdir(versions_folder))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as cause:
        raise _unread(versions_folder, cause) from cause
    for name in names:
        version = version_of(name)
        if version is None:
            continue
        if is_whole(versions_folder, version):
            return Found(version=version, torn=tuple(torn))
        torn.append(version)
    return Found(version=None, torn=tuple(torn))


def is_there(versions_folder: str, version: int) -> bool:
    """Whether the version has a file, whole or not."""
    return os.path.exists(f"{versions_folder}/{version_file(version)}")


def is_whole(versions_folder: str, version: int) -> bool:
    """Whether the version's file is built as Lance builds it, from its first byte to its last."""
    path = os.path.join(versions_folder, version_file(version))
    try:
        with open(path, "rb") as file:
            return _is_whole(file)
    except (FileNotFoundError, IsADirectoryError):
        return False
    except OSError as cause:
        raise _unread(path, cause) from cause


def _unread(path: str, cause: OSError) -> StorageUnavailableError:
    return StorageUnavailableError(f"cannot read '{path}': {cause.strerror or cause}")


def hinted(versions_folder: str) -> tuple[int, bool] | None:
    """The version that Lance would open first, and whether it is whole: it trusts its own hint, and
    would panic over some of what it finds. None if there is no such version."""
    try:
        with open(os.path.join(versions_folder, _HINT), "rb") as file:
            version = int(json.loads(file.read())["version"])
        if not is_there(versions_folder, version):
            return None
        return version, is_whole(versions_folder, version)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a hint that makes no sense leads nowhere


def _is_whole(file: BinaryIO) -> bool:
    """Sections, each behind its length, follow each other without a gap up to the footer, which
    says where the last of them starts. Lance trusts these numbers and panics over wrong ones."""
    size = file.seek(0, os.SEEK_END)
    if size < _FOOTER.size + _LENGTH.size:
        return False
    footer_at = file.seek(size - _FOOTER.size)
    last_at, _, _, magic = _FOOTER.unpack(file.read(_FOOTER.size))
    if magic != _MAGIC:
        return False
    at, seen_last = 0, False
    for _ in range(_SECTIONS_MAX):
        if at >= footer_at:
            break
        seen_last = seen_last or at == last_at
        file.seek(at)
        length = file.read(_LENGTH.size)
        if len(length) < _LENGTH.size:
            return False
        at += _LENGTH.size + _LENGTH.unpack(length)[0]
    return seen_last and at == footer_at


def remove_torn(versions_folder: str) -> tuple[int, ...]:
    """Remove torn files above the newest whole version, so that their numbers can be used.

    Only for whoever has seen the sidecar of the write that they belong to: without one they are
    damaged versions that had been acknowledged, and evidence.
    """
    found = newest_whole(versions_folder)
    if found.version is None:
        return ()  # nothing whole to go on from: leave the evidence
    for version in found.torn:
        assert version > found.version, "only what lies above a whole version was never told"
        os.remove(os.path.join(versions_folder, version_file(version)))
    return found.torn


# --- data files ------------------------------------------------------------------------------


class FragmentKey(msgspec.Struct, frozen=True, kw_only=True):
    """What makes two fragments the same: their files and their deletions."""

    files: tuple[str, ...]
    deletions: str | None


def fragment_key(fragment: Any) -> FragmentKey:
    """The identity of a fragment, from its metadata. Names of files are never used again."""
    deletions = fragment.deletion_file
    return FragmentKey(
        files=pylance.file_names(fragment),
        deletions=None if deletions is None else str(deletions.path(fragment.id)),
    )


def fragment_keys(dataset: Any, numbers: Iterable[int] | None = None) -> dict[int, FragmentKey]:
    """The identity of each fragment, or of those with these numbers, by number."""
    handles = dataset.get_fragments() if numbers is None else map(dataset.get_fragment, numbers)
    found = (fragment.metadata for fragment in handles)
    return {fragment.id: fragment_key(fragment) for fragment in found}


def data_paths(folder: str, fragments: Iterable[Any], *, last_only: bool = False) -> Iterator[str]:
    """The data files of fragments (or only their newest ones), with the blobs beside them."""
    for fragment in fragments:
        for name in pylance.file_names(fragment)[-1 if last_only else 0 :]:
            path = f"{folder}/data/{name}"
            yield path
            yield from glob(f"{escape(path.removesuffix('.lance'))}/*")


def index_paths(folder: str, names: Iterable[str]) -> list[str]:
    """The files of index segments in the folder of a line."""
    found = (path for name in names for path in glob(f"{escape(folder)}/_indices/{name}/*"))
    return [path for path in found if os.path.isfile(path)]  # Lance leaves folders of drafts


def transaction_paths(folder: str, dataset: Any, since: int) -> list[str]:
    """The transaction files of the versions after `since`."""
    paths: list[str] = []
    for version in range(since + 1, int(dataset.version) + 1):
        made = pylance.transaction(dataset, version)
        if made.uuid is not None:
            paths.append(f"{folder}/_transactions/{made.read_version}-{made.uuid}.txn")
        else:
            # A compaction that moved indexes does not tell its name.
            for read in range(since, version):
                paths.extend(glob(f"{escape(folder)}/_transactions/{read}-*.txn"))
    return paths


def delete_data(store: ObjectStore, folder: str, names: Iterable[str]) -> int:
    """Delete data files with the blobs beside them; how many files were there."""
    removed = 0
    for name in names:
        key = f"{folder}/data/{name}".lstrip("/")
        removed += int(store.delete(key))
        store.delete_prefix(key.removesuffix(".lance"))
    return removed


# --- damage ----------------------------------------------------------------------------------


def blamed(dataset: Any, folder: str, root: str) -> str | None:
    """The file to blame for a read that has failed, relative to the graph where it lies there; None
    if nothing can be told."""
    try:
        path = _damaged_file(dataset, folder)
    except (OSError, ValueError, RuntimeError):
        return None
    return None if path is None else path.removeprefix(f"{root}/")


def _damaged_file(dataset: Any, folder: str) -> str | None:
    """The first file of a local dataset that is gone, has another size than was recorded or ends
    wrongly; None if they all look well, as one with a flipped bit inside does."""
    bases = {number: base.path for number, base in dataset.base_paths().items()}
    for fragment in dataset.get_fragments():
        for file in fragment.metadata.files:
            path = os.path.join(str(bases.get(file.base_id, folder)), "data", file.path)
            if not _looks_well(path, file.file_size_bytes):
                return path
        deletions = fragment.deletion_file()
        if deletions is not None:
            places = [os.path.join(str(place), deletions) for place in (folder, *bases.values())]
            if not any(_looks_well(path, None) for path in places):
                return next((path for path in places if os.path.exists(path)), places[0])
    return None


def _looks_well(path: str, size: int | None) -> bool:
    magic = _MAGICS.get(os.path.splitext(path)[1], b"")
    try:
        with open(path, "rb") as file:
            actual = file.seek(0, os.SEEK_END)
            file.seek(max(0, actual - len(magic)))
            return (size is None or actual == size) and file.read() == magic
    except OSError:
        return False


def bases_of(dataset: Any) -> list[str]:
    """The folders of lines that a dataset reads from beside its own."""
    return [str(base.path) for base in dataset.base_paths().values()]


def require_home(bases: Iterable[str], root: Root, folder: str) -> None:
    """Nothing may read another graph's files: branches hold absolute paths, so those of a graph
    that was moved or copied point to where it was made."""
    other = next((path for path in bases if root.below(path) is None), None)
    if other is not None:
        raise moved(root, folder, other)


def moved(root: Root, folder: str, other: str) -> CorruptGraphError:
    """What is said about a line that reads from outside of the graph."""
    return CorruptGraphError(
        f"the graph was moved or copied: '{folder}' still reads from '{other}'",
        hint=f"`omnigraph relocate {root.uri}` makes it whole where it is now",
        part=folder,
        made_at=other,
    )


# --- deletion files --------------------------------------------------------------------------


def deleted_offsets(kind: str, body: bytes) -> Any:
    """The offsets that a deletion file of Lance's kind "array" or "bitmap" names, as a set.

    Few deletions are an Arrow file with one column of offsets, many are a roaring bitmap in its
    portable form (the specification is public and does not change).
    """
    if kind == "array":
        table = pa.ipc.open_file(pa.py_buffer(body)).read_all()
        return Bitmap(table.column(0))
    return pylance.bitmap(body)


# --- keeping files ---------------------------------------------------------------------------
#
# Lance writes local files without asking the disk to keep them; we ask.

_THREADED_BYTES_MIN: Final = 1 << 20
_LANCE_DRAFT: Final = ".tmp"  # a file that Lance is still writing; it is renamed when it is whole


class Flusher:
    """Syncs files and the folders that name them, each once per call; does nothing on object
    stores and under durability "process". Digests of local files it takes in either case; on an
    object store that would mean to fetch what was just sent."""

    def __init__(self, root: Root, world: World) -> None:
        local = root.scheme == "file" and world.durability == "power"
        self._disk = world.disk if local else None
        self._is_local = root.scheme == "file"
        self._top = root.local_path or ""
        self._known: set[str] = set()

    @property
    def active(self) -> bool:
        return self._disk is not None

    def flush(self, paths: Iterable[str]) -> None:
        """Make the files survive a power cut: their bytes and their names."""
        if self._disk is not None:
            self._await(self._syncs(sorted(set(paths))))

    def keep(self, folder: str, paths: Iterable[str]) -> dict[str, str]:
        """The same, and the SHA-256 of each file by its path in the folder. Their bytes are still
        in memory, so that it is taken while the disk works."""
        if not self._is_local:
            return {}
        files = sorted(set(paths))
        syncs = self._syncs(files)
        with translated(folder, doing="read back what was written to"):
            # To hand a small file to a thread takes longer than to read it.
            many = sum(map(os.path.getsize, files)) > _THREADED_BYTES_MIN
            told = _threads(os.getpid()).map(sha256, files) if many else map(sha256, files)
            names = [os.path.relpath(path, folder) for path in files]
            digests = dict(zip(names, told, strict=True))
        self._await(syncs)
        return digests

    def _syncs(self, files: Sequence[str]) -> list[Future[None]]:
        if self._disk is None:
            return []
        # Syncs that wait side by side share one turn of the file system's journal.
        pool = _threads(os.getpid())
        waits = [pool.submit(self._disk.fsync_file, path) for path in files]
        waits += [pool.submit(self._disk.fsync_folder, path) for path in self._folders(files)]
        return waits

    def _await(self, syncs: Sequence[Future[None]]) -> None:
        with translated(self._top, doing="sync"):
            for sync in syncs:
                sync.result()

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


@cache
def _threads(_process: int) -> ThreadPoolExecutor:
    """The threads that wait for the disk; a forked process needs its own."""
    return ThreadPoolExecutor(WRITE_THREADS_MAX, thread_name_prefix="fsync")


def sha256(path: str) -> str:
    """The digest of a local file's bytes."""
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files_below(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            if not name.startswith(_LANCE_DRAFT):
                yield os.path.join(parent, name)
