"""The modules of Python's own library as packages: a real graph that every machine has."""

from __future__ import annotations

import ast
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
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        if _LEFT_OUT.intersection(parts) or not all(part.isidentifier() for part in parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError):
            continue
        yield _module(path, parts, tree)


def _module(path: Path, parts: tuple[str, ...], tree: ast.Module) -> Package:
    is_package = parts[-1] == "__init__"
    parts = parts[:-1] if is_package else parts
    inside = parts if is_package else parts[:-1]
    now = tuple(_imports(_top_level(tree), inside))
    return Package(
        name=".".join(parts),
        version=platform.python_version(),
        summary=(ast.get_docstring(tree) or "").strip().partition("\n")[0] or None,
        section=parts[0] if is_package or len(parts) > 1 else "modules",
        size_kib=path.stat().st_size // 1024,
        needs=now,
        likes=tuple(_imports(list(ast.walk(tree)), inside)),
    )


def _top_level(tree: ast.Module) -> list[ast.AST]:
    """Everything that runs when the module is imported: not the bodies of functions."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def _imports(nodes: list[ast.AST], inside: tuple[str, ...]) -> Iterator[str]:
    """Every name that these imports may mean: a name that is no module falls away later."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = inside[: len(inside) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)
