"""Control objects below a graph root: small files that are not Lance datasets.

`Root.parse` turns what a user typed into a place; `open_store` gives the `ObjectStore` for it.
Local writes are atomic and reach the disk before they return; on S3 every condition is the
server's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final, Literal

import msgspec

from omnigraph.errors import InputError
from omnigraph.model.addresses import local_path
from omnigraph.model.limits import STORE_CONNECT_MS_MAX, STORE_RETRIES_MAX, STORE_RETRY_MS_MAX
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.structs import HidingStruct
from omnigraph.storage.objects.local import LocalObjects
from omnigraph.storage.objects.s3 import S3Objects

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
            return cls._local(path)
        match scheme.lower():
            case "s3":
                return cls._s3(rest, environ, uri=uri)
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

    @classmethod
    def _local(cls, path: str) -> Root:
        absolute = os.path.abspath(path)
        return cls(uri=absolute, scheme="file", local_path=absolute)

    @classmethod
    def _s3(cls, rest: str, environ: Mapping[str, str], *, uri: str) -> Root:
        bucket, _, prefix = rest.partition("/")
        parts = [part for part in prefix.split("/") if part]
        if not bucket or any(part in (".", "..") for part in parts):
            raise InputError(f"'{uri}' needs a bucket and plain folder names", uri=uri)
        return cls(
            uri="s3://" + "/".join([bucket, *parts]),
            scheme="s3",
            s3=MappingProxyType(_s3_settings(environ)),
        )

    def child(self, location: str) -> str:
        """The absolute address of a folder or file below the root."""
        return f"{self.uri}/{location}" if location else self.uri

    @property
    def bucket_and_prefix(self) -> tuple[str, str]:
        """The bucket of an S3 root and the folder in it (may be empty)."""
        assert self.scheme == "s3", "only S3 roots have buckets"
        bucket, _, prefix = self.uri.removeprefix("s3://").partition("/")
        return bucket, prefix

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
        by_path = path_style in _TRUE if path_style else True
        settings["virtual_hosted_style_request"] = "false" if by_path else "true"
    return settings


def open_store(root: Root, world: World) -> ObjectStore:
    """The store of control objects below the root."""
    if root.local_path is not None:
        return LocalObjects(Path(root.local_path), world)
    bucket, prefix = root.bucket_and_prefix
    return S3Objects(bucket=bucket, prefix=prefix, settings=root.s3)


def forget_empty_root(root: Root) -> None:
    """Remove the folders of a graph that did not come to be; folders with files in them stay."""
    if root.local_path is None:
        return
    for folder in ("nodes", "edges", "_refs", "__locks", ""):
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
