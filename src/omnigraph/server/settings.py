"""How a server is to run, as one value that travels to its worker processes."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, Literal

import msgspec

from omnigraph.errors import InputError, InvalidNameError
from omnigraph.model.limits import (
    SERVER_ACTOR_BYTES_MAX,
    SERVER_ACTOR_WRITES_MAX,
    SERVER_QUERY_MS_MAX,
)

GRAPH_ID: Final = re.compile(r"[a-zA-Z0-9-]{1,64}")
RESERVED_IDS: Final = frozenset({"policies", "healthz", "openapi", "graphs"})
_NAMED: Final = re.compile(r"([a-zA-Z0-9-]{1,64})=(.+)", re.DOTALL)
_LOOPBACK: Final = re.compile(r"127(\.\d{1,3}){1,3}")
_OFF: Final = frozenset({"", "0", "false"})


class GraphSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A graph to serve, and the name it has in paths."""

    graph_id: str
    uri: str

    @classmethod
    def of(cls, text: str) -> GraphSpec:
        """`URI`, whose last part without its ending is the name, or `NAME=URI`."""
        named = _NAMED.fullmatch(text)
        if named is not None:
            graph_id, uri = named.groups()
        else:
            uri = text
            graph_id = PurePosixPath(uri.partition("://")[2] or uri).stem
        if not is_graph_id(graph_id):
            raise InvalidNameError(
                f"'{graph_id}' cannot be the name of a served graph",
                kind="graph",
                name=graph_id,
                hint=f"letters, digits and - only; give it another name: NAME={uri}",
            )
        return cls(graph_id=graph_id, uri=uri)


def is_graph_id(text: str) -> bool:
    return GRAPH_ID.fullmatch(text) is not None and text not in RESERVED_IDS


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a worker needs to know; secrets are read from the environment, not from here."""

    graphs: tuple[GraphSpec, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    queries: str | None = None
    policy: str | None = None  # of every graph
    server_policy: str | None = None
    unauthenticated: Literal["no", "yes", "public"] = "no"
    require_all_graphs: bool = False
    read_only: bool = False
    writer_url: str | None = None
    shutdown_grace_seconds: float = 25.0
    query_timeout_ms: int = SERVER_QUERY_MS_MAX
    cors_origins: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    trusted_proxies: tuple[str, ...] = ()
    metrics: str | None = None  # an address of their own; None: a path of the server
    access_log: bool = False
    blob_bases: tuple[str, ...] = ()  # below which blobs of others may lie; none: nowhere
    actor_writes_max: int = SERVER_ACTOR_WRITES_MAX
    actor_bytes_max: int = SERVER_ACTOR_BYTES_MAX

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


class Sockets(msgspec.Struct):
    """What a server listens on: for requests, and for metrics if they have an address."""

    requests: socket.socket
    metrics: socket.socket | None = None

    @property
    def numbers(self) -> dict[str, int]:
        """The open files, as a worker process inherits them."""
        found = {"requests": self.requests.fileno()}
        return found if self.metrics is None else {**found, "metrics": self.metrics.fileno()}

    @classmethod
    def inherited(cls, numbers: Mapping[str, int]) -> Sockets:
        return cls(**{name: socket.socket(fileno=number) for name, number in numbers.items()})


def is_loopback(host: str) -> bool:
    """Whether only this machine can come in there."""
    return host in ("localhost", "::1") or _LOOPBACK.fullmatch(host) is not None


def graph_specs(uris: Sequence[str]) -> tuple[GraphSpec, ...]:
    """The graphs that the words name; two of one name, or of one place, are refused."""
    if not uris:
        raise InputError("serve needs a graph", hint="omnigraph serve graph.omni")
    specs = tuple(GraphSpec.of(uri) for uri in uris)
    for kind, names in (
        ("name", [spec.graph_id for spec in specs]),
        ("place", [normalised(spec.uri) for spec in specs]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"two graphs have the {kind} '{twice[0]}'", hint="NAME=URI names one")
    return specs


def normalised(uri: str) -> str:
    """The same text for two spellings of one place."""
    if "://" in uri and not uri.startswith("file://"):
        return uri.rstrip("/")
    return os.path.realpath(uri.removeprefix("file://"))


def split_address(bind: str) -> tuple[str, int]:
    """`host:port`; the port may be 0, which lets the system choose."""
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise InputError(f"'{bind}' is no address", hint="write HOST:PORT, such as 127.0.0.1:8080")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


# --- the environment ----------------------------------------------------------------------------


def told(name: str) -> str | None:
    """An environment variable that says something."""
    return os.environ.get(name) or None


def switched_on(name: str) -> bool:
    """Whether a variable is set to anything but nothing, 0 or false."""
    return os.environ.get(name, "").lower() not in _OFF


def number(name: str, default: int) -> tuple[int, str | None]:
    """A positive number from the environment, and a warning if it is none."""
    text = os.environ.get(name)
    if not text:
        return default, None
    if text.isdecimal() and int(text) > 0:
        return int(text), None
    return default, f"{name} is '{text}', which is no positive number; using {default}"
