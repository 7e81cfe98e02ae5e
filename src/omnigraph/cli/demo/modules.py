"""The modules of Python's own library as packages: a real graph that every machine has."""

from __future__ import annotations

import ast
import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from omnigraph.cli.demo.packages import DataSet, Package

# Tests and tools that no program imports.
_LEFT_OUT: Final = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "turtledemo"}
)
# The fields in which a statement keeps other statements.
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")

Import = ast.Import | ast.ImportFrom


def python_modules(library: Path | None = None) -> DataSet:
    """Every module, what it imports at once (needs) and what it imports later (likes)."""
    folder = library or Path(sysconfig.get_path("stdlib"))
    return DataSet(
        title="Python's library",
        origin=f"the modules of Python {platform.python_version()} in {folder}",
        packages=tuple(_modules(folder)),
        search_words="parse parser parsing",
    )


def _modules(folder: Path) -> Iterator[Package]:
    for path in sorted(_sources(folder)):
        parts = path.relative_to(folder).with_suffix("").parts
        if all(part.isidentifier() for part in parts):
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError, OSError):
                continue
            yield _module(path, parts, tree)


def _sources(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        yield from (Path(place, name) for name in names if name.endswith(".py"))


def _module(path: Path, parts: tuple[str, ...], tree: ast.Module) -> Package:
    is_package = parts[-1] == "__init__"
    parts = parts[:-1] if is_package else parts
    inside = parts if is_package else parts[:-1]
    imports = list(_imports(tree.body))
    return Package(
        name=".".join(parts),
        version=platform.python_version(),
        summary=(ast.get_docstring(tree) or "").strip().partition("\n")[0] or None,
        section=parts[0] if is_package or len(parts) > 1 else "modules",
        size_kib=path.stat().st_size // 1024,
        needs=tuple(name for one, late in imports if not late for name in _names(one, inside)),
        likes=tuple(name for one, late in imports if late for name in _names(one, inside)),
    )


def _imports(statements: list[ast.stmt]) -> Iterator[tuple[Import, bool]]:
    """Every import, and whether it waits for a function to be called."""
    waiting: list[tuple[ast.AST, bool]] = [(one, False) for one in reversed(statements)]
    while waiting:
        node, late = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, late
        inner_late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for field in _BLOCKS:
            inner = getattr(node, field, ())
            waiting.extend((one, inner_late) for one in reversed(inner))


def _names(node: Import, inside: tuple[str, ...]) -> Iterator[str]:
    """Every name that an import may mean: a name that is no module falls away later."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    above = inside[: len(inside) - node.level + 1] if node.level else ()
    base = ".".join((*above, *([node.module] if node.module else [])))
    if base:
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
