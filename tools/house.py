"""Counts what the plan of the code promises: files, lines, importers, names, cycles, comments.

    python tools/house.py                    print one table for this checkout
    python tools/house.py --against REV      the same numbers of another revision beside them
    python tools/house.py --collect          ask pytest too how many cases it collects (slow)
    python tools/house.py --list             name the modules with one importer, and the largest

Everything is read off the source text; nothing of the package is imported. A house test asserts
the limits that `measured` is held to.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "omnigraph"
# Where a commit was made before that folder was there.
FLAT_COMMIT = ("applied", "audit", "doubt", "judge", "outcome", "recovery", "sidecar", "writer")
Graph = Mapping[str, frozenset[str]]


class House:
    """The source files of one checkout, parsed once, by dotted module name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = root / "src" / PACKAGE
        self.paths = {self._name(path): path for path in sorted(self.package.rglob("*.py"))}
        self.texts = {name: path.read_text("utf-8") for name, path in self.paths.items()}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}

    def _name(self, path: Path) -> str:
        parts = path.relative_to(self.package.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def is_package(self, name: str) -> bool:
        return self.paths[name].name == "__init__.py"

    def lines(self) -> dict[str, int]:
        return {name: text.count("\n") for name, text in self.texts.items()}

    def commit_modules(self) -> list[str]:
        """The modules in which a commit is made: a folder now, files of `storage` before."""
        folder = f"{PACKAGE}.storage.commit"
        inside = [name for name in self.paths if name.startswith(folder + ".")]
        return inside or [
            name
            for name in self.paths
            if name.rpartition(".")[0] == f"{PACKAGE}.storage" and name.endswith(FLAT_COMMIT)
        ]

    def imports(self, *, late: bool) -> Graph:
        """Which module imports which; with `late`, also inside functions and for types only."""
        return {name: frozenset(self._imported(name, late=late)) - {name} for name in self.paths}

    def _imported(self, name: str, *, late: bool) -> Iterator[str]:
        for node in ast.walk(self.trees[name]) if late else _at_import(self.trees[name].body):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.paths)
            elif isinstance(node, ast.ImportFrom) and node.module in self.paths:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in self.paths else node.module


def _at_import(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when the module is imported."""
    for node in body:
        if isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.dump(node.test):
                yield from _at_import([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _at_import([*node.body, *node.orelse, *node.finalbody])
        else:
            yield node


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of modules that import each other round and round (Tarjan), smallest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return sorted(found, key=len)


def without_fronts(house: House, graph: Graph) -> Graph:
    """The graph without packages' own `__init__`, which name their modules for others."""
    return {
        name: frozenset(other for other in others if not house.is_package(other))
        for name, others in graph.items()
        if not house.is_package(name)
    }


def single_importer(house: House) -> dict[str, str]:
    """Modules that exactly one other module imports, with it; packages' fronts not counted."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name, others in house.imports(late=True).items():
        for other in others:
            importers[other].add(name)
    return {
        name: next(iter(importers[name]))
        for name in house.paths
        if not house.is_package(name) and len(importers[name]) == 1
    }


def public_names(tree: ast.Module) -> Iterator[str]:
    """The classes and functions of a module that carry no underscore."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name


def front_names(tree: ast.Module) -> list[str]:
    """What `__all__` of the package offers."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            return [name for name in names if not name.startswith("__")]
    return []


def comment_lines(text: str) -> int:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    own = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not re.match(r"# (noqa|type:|pragma)", comment) for comment in own)


def nodes(trees: Iterable[ast.AST], kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> int:
    return sum(isinstance(node, kind) for tree in trees for node in ast.walk(tree))


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_functions(root: Path) -> int:
    return sum(
        isinstance(node, FUNCTIONS) and node.name.startswith("test_")
        for path in (root / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )


def collected_cases(root: Path) -> int | str:
    """How many cases pytest finds; a parametrised test counts once for each set of values."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    found = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    told = re.search(r"^(\d+) tests collected", found.stdout, re.MULTILINE)
    return int(told.group(1)) if told else "cannot collect"


def measured(root: Path = REPOSITORY, *, collect: bool = False) -> dict[str, int | float | str]:
    """Every number of the table, by its name."""
    house = House(root)
    lines = house.lines()
    largest = max(lines, key=lambda name: lines[name])
    folders = Counter(path.parent for path in house.paths.values())
    commit = [house.trees[name] for name in house.commit_modules()]
    commit_texts = [house.texts[name] for name in house.commit_modules()]
    commit_lines = sum(text.count("\n") for text in commit_texts)
    every = list(house.trees.values())
    return {
        "files": len(lines),
        "lines": sum(lines.values()),
        "lines of the largest file": lines[largest],
        "files in the fullest folder": max(folders.values()),
        "modules with one importer": len(single_importer(house)),
        "public classes and functions": sum(len(list(public_names(tree))) for tree in every),
        "names at the package's front": len(front_names(house.trees[PACKAGE])),
        "import cycles": len(cycles(without_fronts(house, house.imports(late=False)))),
        "import cycles, late ones too": len(
            cycles(without_fronts(house, house.imports(late=True)))
        ),
        "dataclasses": sum(
            line.startswith("@dataclass") for t in house.texts.values() for line in t.splitlines()
        ),
        "asserts a function": round(nodes(every, ast.Assert) / nodes(every, FUNCTIONS), 2),
        "storage/commit: lines": commit_lines,
        "storage/commit: comments in 100 lines": round(
            100 * sum(map(comment_lines, commit_texts)) / commit_lines, 1
        ),
        "storage/commit: asserts a function": round(
            nodes(commit, ast.Assert) / nodes(commit, FUNCTIONS), 2
        ),
        "test files": len(list((root / "tests").rglob("test_*.py"))),
        "test functions": test_functions(root),
        **({"test cases": collected_cases(root)} if collect else {}),
    }


def unpacked(revision: str, folder: Path) -> Path:
    """The files of a revision, in a folder of their own."""
    archive = subprocess.run(
        ["git", "archive", revision], cwd=REPOSITORY, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def table(columns: Mapping[str, Mapping[str, int | float | str]]) -> str:
    """The numbers as a Markdown table, a column for each checkout."""
    head = ["", *columns]
    rows = [
        [name, *(str(numbers.get(name, "")) for numbers in columns.values())]
        for name in next(iter(columns.values()))
    ]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    rule = [f"{'-' * (widths[0])}", *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in [head, rule, *rows]
    )


def listing(house: House) -> Iterator[str]:
    for name, importer in single_importer(house).items():
        yield f"{house.lines()[name]:4}  {name}  only for  {importer}"
    for folder, count in Counter(path.parent for path in house.paths.values()).most_common(8):
        yield f"{count:4}  files in {folder.relative_to(house.package.parent)}"
    for name, count in Counter(house.lines()).most_common(8):
        yield f"{count:4}  lines in {name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="REV", help="an older revision to stand beside")
    parser.add_argument("--collect", action="store_true", help="count pytest's cases too")
    parser.add_argument("--list", action="store_true", help="name what is counted")
    options = parser.parse_args()
    if options.list:
        sys.stdout.write("\n".join(listing(House(REPOSITORY))) + "\n")
        return 0
    columns = {}
    if options.against:
        with tempfile.TemporaryDirectory(prefix="omnigraph-house-") as folder:
            older = unpacked(options.against, Path(folder))
            columns[options.against] = measured(older, collect=options.collect)
    columns["now"] = measured(REPOSITORY, collect=options.collect)
    sys.stdout.write(table(columns) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
