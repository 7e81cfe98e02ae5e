"""Input and output files by address: local paths, `file:`, `s3://` and what else Arrow opens.

Settings for object stores travel in the task payload, because executors have their own
environment; they are the driver's, taken through the one door that storage has for them.
"""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyarrow import fs

from omnigraph.errors import InputError, NotFoundError, StorageUnavailableError
from omnigraph.model.machine import FOREIGN_PACKINGS, PACKINGS, local_path
from omnigraph.model.structs import HidingStruct
from omnigraph.storage.objects.root import Root

_arrow: Any = pa  # its stubs want the names of packings as literals
_WILD = frozenset("*?[")
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

Partitions = tuple[tuple[str, str | None], ...]  # names and values, as folder names tell them


class InputFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be read: its address as the user may know it, and its length.

    `partitions` are the Hive-style folders (`day=2024-01-31`) between what was asked for and the
    file; `above` are those that the question itself named.
    """

    address: str
    size: int
    partitions: Partitions = ()
    above: Partitions = ()

    @property
    def packing(self) -> str | None:
        return packing_of(self.address)


def packing_of(address: str) -> str | None:
    """How the file is compressed, by its name; None if it is not. `InputError` if we cannot."""
    suffix = os.path.splitext(address)[1].lower()
    packing = PACKINGS.get(suffix)
    if suffix in FOREIGN_PACKINGS or (packing and not _arrow.Codec.is_available(packing)):
        raise InputError(
            f"cannot unpack '{address}'",
            hint="unpack it first; .gz, .bz2, .zst and .lz4 files are read as they are",
            uri=address,
        )
    return packing


class FileAccess(HidingStruct, frozen=True, kw_only=True):
    """How to reach files; a value, so that it can travel to executors."""

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"environ"})

    environ: Mapping[str, str] = msgspec.field(default_factory=dict)  # may hold secrets

    def system(self, address: str) -> tuple[fs.FileSystem, str]:
        """The file system of an address and the path in it."""
        local = local_path(address)
        if local is not None:
            return fs.LocalFileSystem(), os.path.abspath(local)
        if address.startswith("s3://"):
            return self._s3(address)
        try:
            return fs.FileSystem.from_uri(address)
        except (ValueError, OSError) as cause:
            raise InputError(f"cannot read '{address}': {cause}", uri=address) from cause

    def _s3(self, address: str) -> tuple[fs.FileSystem, str]:
        settings = Root.parse(address, self.environ).s3
        options: dict[str, Any] = {
            "region": settings["region"],
            "request_timeout": 30,
            "connect_timeout": 2,
        }
        if "endpoint" in settings:
            options["endpoint_override"] = settings["endpoint"]
            options["scheme"] = settings["endpoint"].partition("://")[0]
            virtual = settings.get("virtual_hosted_style_request") == "true"
            options["force_virtual_addressing"] = virtual
        for ours, theirs in (
            ("access_key_id", "access_key"),
            ("secret_access_key", "secret_key"),
            ("session_token", "session_token"),
        ):
            if ours in settings:
                options[theirs] = settings[ours]
        return fs.S3FileSystem(**options), address.removeprefix("s3://").rstrip("/")

    def open(self, address: str) -> Any:
        """The file for reading at random places."""
        system, path = self.system(address)
        try:
            return system.open_input_file(path)
        except FileNotFoundError as cause:
            raise NotFoundError(f"no file '{address}'", kind="file", name=address) from cause
        except OSError as cause:
            raise StorageUnavailableError(f"cannot read '{address}': {cause}") from cause

    @contextmanager
    def unpacked(self, address: str) -> Iterator[Any]:
        """The content from its start, unpacked if the name says that it is packed.

        Reading on raises `OSError` only for what cannot be unpacked: if the store fails, that is
        `StorageUnavailableError`.
        """
        packing = packing_of(address)
        with self.open(address) as file:
            yield (
                file
                if packing is None
                else _arrow.CompressedInputStream(
                    pa.PythonFile(_PackedBytes(file, address), mode="r"), packing
                )
            )

    def write(self, address: str, content: bytes | pa.Buffer) -> None:
        """Make or replace a file, with the folders above it."""
        system, path = self.system(address)
        system.create_dir(os.path.dirname(path), recursive=True)
        with system.open_output_stream(path, compression=None) as stream:
            stream.write(content)

    def remove(self, address: str) -> None:
        """Delete a file; none is fine too."""
        system, path = self.system(address)
        if system.get_file_info(path).type == fs.FileType.File:
            system.delete_file(path)

    def remove_folder(self, address: str) -> None:
        """Delete a folder and all in it; none is fine too."""
        system, path = self.system(address)
        if system.get_file_info(path).type == fs.FileType.Directory:
            system.delete_dir(path)

    def found(self, address: str) -> list[InputFile]:
        """The files of a path, folder or pattern, sorted; `NotFoundError` if there is none.

        In folders, names that begin with `.` or `_` are left out, as Spark has it.
        """
        system, path = self.system(address)
        try:
            infos = _infos(system, path)
        except OSError as cause:
            raise StorageUnavailableError(f"cannot list '{address}': {cause}") from cause
        base = _base(path, infos)
        above = _partitions(base.split("/"))
        files = [
            InputFile(
                address=_address_like(address, info.path),
                size=info.size,
                partitions=_partitions(info.path[len(base) :].split("/")[:-1]),
                above=above,
            )
            for info in infos
            if info.type == fs.FileType.File
        ]
        if not files and not any(info.type == fs.FileType.Directory for info in infos):
            raise NotFoundError(f"no file matches '{address}'", kind="file", name=address)
        return sorted(files, key=lambda file: file.address)


class _PackedBytes(io.RawIOBase):
    """The bytes of a packed file for Arrow, which would close the file when it is done with it."""

    def __init__(self, file: Any, address: str) -> None:
        self._file, self._address = file, address

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(self._file.read(size))
        except OSError as cause:
            raise StorageUnavailableError(f"cannot read '{self._address}': {cause}") from cause


def _plain(path: str) -> str:
    """The folder above the first wild card; the whole path if it has none."""
    return "/".join(takewhile(lambda part: not _WILD & set(part), path.split("/")))


def _base(path: str, infos: Sequence[fs.FileInfo]) -> str:
    """The folder that the question names: folders below it say something about their files."""
    plain = _plain(path)
    if plain == path and any(info.path == path and info.type == fs.FileType.File for info in infos):
        return path.rpartition("/")[0]
    return plain


def _partitions(folders: Sequence[str]) -> Partitions:
    """What folders that are named `name=value` say, as Hive and Spark write them."""
    pairs = (folder.partition("=") for folder in folders)
    return tuple(
        (unquote(name), None if value == _HIVE_NULL else unquote(value))
        for name, sign, value in pairs
        if sign and name
    )


def _infos(system: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    plain = _plain(path)
    if plain == path:
        matched = [system.get_file_info(path)]
    elif isinstance(system, fs.LocalFileSystem):
        matched = list(system.get_file_info(sorted(glob.glob(path, recursive=True))))
    else:
        selector = fs.FileSelector(plain, recursive=True, allow_not_found=True)
        matched = [one for one in system.get_file_info(selector) if fnmatchcase(one.path, path)]
    return [one for info in matched for one in _expanded(system, info)]


def _expanded(system: fs.FileSystem, info: fs.FileInfo) -> list[fs.FileInfo]:
    if info.type != fs.FileType.Directory:
        return [info]
    inside = system.get_file_info(fs.FileSelector(info.path, recursive=True))
    visible = [
        one
        for one in inside
        if not any(
            part.startswith((".", "_")) for part in one.path[len(info.path) :].strip("/").split("/")
        )
    ]
    return [info, *visible]


def _address_like(asked: str, path: str) -> str:
    """The found path in the spelling of the question: relative stays relative."""
    local = local_path(asked)
    if local is None:
        return f"{asked.partition('://')[0]}://{path}"
    if local != asked:
        return f"file://{path.replace('%', '%25')}"
    if os.path.isabs(asked):
        return path
    return os.path.relpath(path)
