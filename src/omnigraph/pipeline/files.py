"""Input and output files by address: local paths, `file://`, `s3://` and what else Arrow opens.

Settings for object stores travel in the task payload, because executors have their own
environment; they are the driver's, taken through the one door that storage has for them.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from omnigraph.errors import InputError, NotFoundError, StorageUnavailableError
from omnigraph.storage.objects import Root

_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file to be read: its address as the user may know it, and its length."""

    address: str
    size: int

    @property
    def is_gzip(self) -> bool:
        return self.address.endswith(".gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccess:
    """How to reach files; a value, so that it can travel to executors."""

    environ: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets

    def system(self, address: str) -> tuple[fs.FileSystem, str]:
        """The file system of an address and the path in it."""
        scheme, separator, _ = address.partition("://")
        if not separator:
            return fs.LocalFileSystem(), os.path.abspath(address)
        if scheme == "file":
            return fs.LocalFileSystem(), unquote(urlsplit(address).path)
        if scheme == "s3":
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

    def write(self, address: str, content: bytes) -> None:
        """Make or replace a file, with the folders above it."""
        system, path = self.system(address)
        system.create_dir(os.path.dirname(path), recursive=True)
        with system.open_output_stream(path, compression=None) as stream:
            stream.write(content)

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
        files = [
            InputFile(address=_address_like(address, info.path), size=info.size)
            for info in infos
            if info.type == fs.FileType.File
        ]
        if not files and not any(info.type == fs.FileType.Directory for info in infos):
            raise NotFoundError(f"no file matches '{address}'", kind="file", name=address)
        return sorted(files, key=lambda file: file.address)


def _infos(system: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    if _WILD & set(path):
        matched = _matches(system, path)
        return [one for info in matched for one in _expanded(system, info)]
    return _expanded(system, system.get_file_info(path))


def _matches(system: fs.FileSystem, pattern: str) -> Iterable[fs.FileInfo]:
    if isinstance(system, fs.LocalFileSystem):
        paths = sorted(glob.glob(pattern, recursive=True))
        return list(system.get_file_info(paths)) if paths else []
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if _WILD & set(part))
    base = "/".join(parts[:first])
    selector = fs.FileSelector(base, recursive=True, allow_not_found=True)
    return [info for info in system.get_file_info(selector) if fnmatchcase(info.path, pattern)]


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
    scheme, separator, _ = asked.partition("://")
    if separator:
        return f"{scheme}://{path}" if scheme != "file" else f"file://{path}"
    if os.path.isabs(asked):
        return path
    return os.path.relpath(path)
