"""Where a graph is, and where things lie below that root and under which names.

`Root.parse` turns what a user typed into a place; `open_store` gives the store of its control
objects: small files that are not Lance datasets. Local writes are atomic and reach the disk before
they return; on S3 every condition is the server's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final, Literal

import msgspec

from omnigraph.errors import InputError
from omnigraph.model.limits import STORE_CONNECT_MS_MAX, STORE_RETRIES_MAX, STORE_RETRY_MS_MAX
from omnigraph.model.machine import local_path
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.schema import EntityKind
from omnigraph.model.structs import HidingStruct
from omnigraph.storage.objects.local import LOCKS, LocalObjects

Scheme = Literal["file", "s3"]

_AWS: Final = "aws_"
_ALLOW_HTTP: Final = "allow_http"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_CREDENTIALS: Final = (
    ("AWS_ACCESS_KEY_ID", "access_key_id"),
    ("AWS_SECRET_ACCESS_KEY", "secret_access_key"),
    ("AWS_SESSION_TOKEN", "session_token"),
)


def aws_environment() -> Mapping[str, str]:
    """The process's AWS_* variables: the one place below `cli/` that looks at the environment."""
    return MappingProxyType({k: v for k, v in os.environ.items() if k.startswith("AWS_")})


class Root(HidingStruct, frozen=True, kw_only=True):
    """Where a graph is. `uri` has no trailing slash; `s3` holds the settings of an S3 place."""

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"s3"})

    uri: str
    scheme: Scheme
    local_path: str | None = None
    s3: Mapping[str, str] = msgspec.field(default_factory=dict)  # holds secrets

    @classmethod
    def parse(cls, uri: str, environ: Mapping[str, str]) -> Root:
        """The place that a path, `file:` or `s3://` address names; paths become absolute."""
        scheme, _, rest = uri.partition("://")
        if not uri.strip():
            raise InputError("the graph's address is empty", uri=uri)
        if "\0" in uri:
            raise InputError("the graph's address holds a zero byte", uri=uri)
        path = local_path(uri)
        if path is not None:
            absolute = os.path.abspath(path)
            return cls(uri=absolute, scheme="file", local_path=absolute)
        match scheme.lower():
            case "s3":
                bucket, *parts = rest.split("/")
                parts = [part for part in parts if part]
                if not bucket or any(part in (".", "..") for part in parts):
                    raise InputError(f"'{uri}' needs a bucket and plain folder names", uri=uri)
                settings = MappingProxyType(_s3_settings(environ))
                return cls(uri="s3://" + "/".join([bucket, *parts]), scheme="s3", s3=settings)
            case "http" | "https":
                raise InputError(
                    f"'{uri}' is a server, not a place where a graph is stored",
                    hint="use a path or an s3:// address",
                    uri=uri,
                )
            case _:
                raise InputError(
                    f"'{uri}': unknown scheme '{scheme}'",
                    hint="use a path, a file:// or an s3:// address",
                    uri=uri,
                )

    def child(self, location: str) -> str:
        """The absolute address of a folder or file below the root."""
        return f"{self.uri}/{location}" if location else self.uri

    def below(self, address: str) -> str | None:
        """The place below the root that an address of lance's means; None if it lies elsewhere."""
        start = f"{self.uri}/"
        if address.startswith(start) and os.pardir not in address:
            return address.removeprefix(start)  # named as we name it ourselves: see `child`
        if self.local_path is None:
            return None
        # The disk is asked only here: a branch of a branch of a branch names as many places.
        address = os.path.realpath(address)
        start = os.path.realpath(self.local_path) + os.sep
        return address.removeprefix(start) if address.startswith(start) else None

    @property
    def storage_options(self) -> dict[str, str]:
        """What lance needs to reach the place; empty on local disk."""
        if self.scheme == "file":
            return {}
        options = {
            "connect_timeout": f"{STORE_CONNECT_MS_MAX}ms",
            "client_max_retries": str(STORE_RETRIES_MAX),
            "client_retry_timeout": str(STORE_RETRY_MS_MAX // 1000),
        }
        for key, value in self.s3.items():
            options[key if key == _ALLOW_HTTP else f"{_AWS}{key}"] = value
        return options


def _s3_settings(environ: Mapping[str, str]) -> dict[str, str]:
    settings = {ours: environ[name] for name, ours in _CREDENTIALS if environ.get(name)}
    endpoint = next((environ[name] for name in _ENDPOINTS if environ.get(name)), None)
    region = next((environ[name] for name in _REGIONS if environ.get(name)), "us-east-1")
    settings["region"] = region
    if endpoint is not None:
        settings["endpoint"] = endpoint
    if environ.get("AWS_ALLOW_HTTP", "").lower() in _TRUE:
        settings[_ALLOW_HTTP] = "true"
    path_style = environ.get("AWS_S3_FORCE_PATH_STYLE", "").lower()
    # An endpoint of one's own rarely has a host name per bucket, so path style is its default.
    if endpoint is not None or path_style:
        by_host = bool(path_style) and path_style not in _TRUE
        settings["virtual_hosted_style_request"] = str(by_host).lower()
    return settings


def open_store(root: Root, world: World) -> ObjectStore:
    """The store of control objects below the root."""
    if root.local_path is not None:
        return LocalObjects(Path(root.local_path), world)
    # Few graphs lie in a bucket, and what talks to one takes 10 ms to load.
    from omnigraph.storage.objects.s3 import S3Objects  # noqa: PLC0415

    bucket, _, prefix = root.uri.removeprefix("s3://").partition("/")
    return S3Objects(bucket=bucket, prefix=prefix, settings=root.s3)


def forget_empty_root(root: Root) -> None:
    """Remove the folders of a graph that did not come to be; folders with files in them stay."""
    if root.local_path is None:
        return
    for folder in ("nodes", "edges", "_refs", LOCKS, ""):
        with suppress(OSError):
            os.rmdir(os.path.join(root.local_path, folder))


def store_at(uri: str, storage_options: Mapping[str, str]) -> ObjectStore:
    """The same for a process that only has an address and what lance needs to reach it."""
    if not uri.startswith("s3://"):
        return open_store(Root.parse(uri, {}), World())
    settings = {
        key.removeprefix(_AWS): value
        for key, value in storage_options.items()
        if key == _ALLOW_HTTP or key.startswith(_AWS)
    }
    return open_store(Root(uri=uri, scheme="s3", s3=settings), World())


# --- below the root --------------------------------------------------------------------------

MANIFEST: Final = "__manifest"
RECOVERY: Final = "__recovery"
REFS: Final = "_refs/branches"
TAGS: Final = "_refs/tags"
RETIRED: Final = "_refs/retired"  # branches that are deleted but still needed as bases
RETENTION: Final = "_refs/retention.json"  # how much of the past each branch keeps
DESCENT: Final = "_refs/descent.json"  # parents of commits whose branch is gone
HOLDS: Final = "_refs/holds"  # copies that are being made: cleanup waits for them
# Where an open graph looks anyway: a backup that has not come to its end is no graph.
UNFINISHED: Final = "__manifest/_refs/branches/unfinished"
DERIVED: Final = "_derived"  # what searches need of data files, below the places of the tables
INIT_CLAIM: Final = "__init_claim.json"
AUDIT: Final = "_graph_commit_recoveries.lance"
AUDIT_RECORDS: Final = "_graph_commit_recoveries"  # rows that the table could not take

# Names that come from files are untrusted: each is looked at before it becomes a path.
_ID: Final = re.compile(r"[0-9A-Za-z_-]+")
_LOCATION: Final = re.compile(r"(nodes|edges)/[0-9a-f]+(-\d+)?")
_LINE_PART: Final = re.compile(r"[0-9A-Za-z_.-]*[0-9A-Za-z_-][0-9A-Za-z_.-]*")  # not only dots

_FOLDERS: Final = {"node": "nodes", "edge": "edges"}
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_U64: Final = (1 << 64) - 1


def fnv1a64(text: str) -> int:
    """The 64-bit FNV-1a hash of the text's UTF-8 bytes."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _U64
    return value


def type_folder(kind: EntityKind, name: str, *, life: int = 1) -> str:
    """The folder of a type's table. A later life of the same name gets `-2`, `-3`, …"""
    assert life >= 1, "lives count from 1"
    suffix = f"-{life}" if life > 1 else ""
    return f"{_FOLDERS[kind]}/{fnv1a64(name):016x}{suffix}"


def dropped_mark(location: str) -> str:
    """A file beside the place of a table that was dropped for good: the place is never reused."""
    return f"{location}.dropped"


def stored_tables(store: ObjectStore) -> list[str]:
    """The places of all tables that have a folder, whether a snapshot knows them or not."""
    return sorted(f"{kind}/{name}" for kind in ("nodes", "edges") for name in store.folders(kind))


def branch_folder(location: str, branch: str | None) -> str:
    """Where Lance keeps a branch of the dataset at `location`; None is its main line."""
    return location if branch is None else f"{location}/tree/{branch}"


def is_id(text: object) -> bool:
    """Whether it can be the id of a branch or of an operation."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def is_location(text: object) -> bool:
    """Whether it can be the place of a type's table."""
    return isinstance(text, str) and _LOCATION.fullmatch(text) is not None


def is_line(text: object) -> bool:
    """Whether it can be the Lance branch of a table or of the manifest; None is the main line.

    Ours carry ids; those from before v4 carry names, which nest (`a/b`).
    """
    if text is None:
        return True
    parts = text.split("/") if isinstance(text, str) else ()
    return bool(parts) and all(_LINE_PART.fullmatch(part) for part in parts)
