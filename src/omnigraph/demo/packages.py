"""Packages of this machine: Debian's own lists, or the modules of Python's library.

A demo takes the part of them that its size asks for, as NDJSON.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.model.machine import PACKINGS


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """One package and the names of those it needs or likes."""

    name: str
    version: str | None = None
    summary: str | None = None
    section: str | None = None
    size_kib: int | None = None
    needs: tuple[str, ...] = ()
    likes: tuple[str, ...] = ()


class DataSet(msgspec.Struct, frozen=True, kw_only=True):
    """Where packages were found, and words worth searching for in their summaries."""

    title: str
    origin: str
    packages: tuple[Package, ...]
    search_words: str

    @property
    def dependencies(self) -> int:
        return sum(len(one.needs) for one in self.packages)


def reduced(data: DataSet, count: int | None) -> DataSet:
    """The packages that most others need, at most `count` of them, and what joins those."""
    demand = Counter(name for one in data.packages for name in one.needs)
    ranked = sorted(data.packages, key=lambda one: (-demand[one.name], one.name))
    kept = {one.name: one for one in (ranked if count is None else ranked[:count])}
    return replace(data, packages=tuple(_inside(one, kept) for one in kept.values()))


def _inside(one: Package, kept: Mapping[str, Package]) -> Package:
    """The package without names that are not there, and without itself."""
    needs = _known(one.needs, kept, other_than={one.name})
    return replace(one, needs=needs, likes=_known(one.likes, kept, other_than={one.name, *needs}))


def _known(
    names: Sequence[str], kept: Mapping[str, Package], *, other_than: set[str]
) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name in kept and name not in other_than)


def records(data: DataSet) -> Iterator[str]:
    """The data set as the lines that a load takes."""
    for section in sorted({one.section for one in data.packages if one.section}):
        yield _line({"type": "Section", "data": {"name": section}})
    for one in data.packages:
        facts = {
            "name": one.name,
            "version": one.version,
            "summary": one.summary,
            "size_kib": one.size_kib,
        }
        yield _line({"type": "Package", "data": facts})
    for one in data.packages:
        if one.section:
            yield _line({"edge": "InSection", "from": one.name, "to": one.section})
        for name in one.needs:
            yield _line({"edge": "DependsOn", "from": one.name, "to": name})
        for name in one.likes:
            yield _line({"edge": "Recommends", "from": one.name, "to": name})


def _line(record: Mapping[str, object]) -> str:
    return orjson.dumps(record).decode()


# --- what Debian (or Ubuntu) knows about, read from its own lists ---------------------------------


LISTS: Final = Path("/var/lib/apt/lists")
INSTALLED: Final = Path("/var/lib/dpkg/status")
_FIELD: Final = re.compile(
    rb"^(Package|Version|Section|Installed-Size|Description|Depends|Pre-Depends|Recommends"
    rb"|Provides):[ \t]*(.*?)[ \t\r]*$",
    re.MULTILINE,
)
_BLANK_LINE: Final = re.compile(rb"\n[ \t\r]*\n")
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9+.-]+")

Stanza = dict[str, str]


def debian_packages(lists: Path = LISTS, installed: Path = INSTALLED) -> DataSet | None:
    """What the package lists say, else what is installed; None where there is neither."""
    files = sorted(_list_files(lists), key=_freshness)
    origin = f"{len(files)} package lists in {lists}"
    if not files and installed.is_file():
        files, origin = [installed], f"the packages installed here, from {installed}"
    stanzas: dict[str, Stanza] = {}
    for path in files:
        stanzas.update((one["Package"], one) for one in _stanzas(_unpacked(path)))
    if not stanzas:
        return None
    return DataSet(
        title="Debian's packages",
        origin=origin,
        packages=tuple(packages_of(stanzas)),
        search_words="compression",
    )


def _list_files(lists: Path) -> Iterator[Path]:
    if not lists.is_dir():
        return
    for path in lists.iterdir():
        name, sign, packing = path.name.rpartition("_Packages")
        if sign and name and packing in ("", *PACKINGS) and path.is_file():
            yield path


def _freshness(path: Path) -> tuple[bool, bool, str]:
    """Security fixes replace updates, and those the release: they are read in that order."""
    return "-security_" in path.name, "-updates_" in path.name, path.name


def _unpacked(path: Path) -> bytes:
    """A list's bytes; Arrow can unpack what apt packs."""
    packing: Any = PACKINGS.get(path.suffix)
    with pa.input_stream(str(path), compression=packing) as packed:
        return bytes(packed.read())


def _stanzas(text: bytes) -> Iterator[Stanza]:
    """Blocks of `Field: value` lines; only the first line of the fields that we use."""
    for block in _BLANK_LINE.split(text):
        stanza = {
            name.decode(): value.decode("utf-8", errors="replace")
            for name, value in _FIELD.findall(block)
        }
        if stanza.get("Package"):
            yield stanza


def packages_of(stanzas: Mapping[str, Stanza]) -> Iterator[Package]:
    """Each stanza as a package whose needs are names of other stanzas."""
    providers: dict[str, str] = {}
    for name, stanza in sorted(stanzas.items()):
        for virtual in _NAME.findall(re.sub(r"\([^)]*\)", "", stanza.get("Provides", ""))):
            providers.setdefault(virtual, name)

    def resolved(value: str) -> tuple[str, ...]:
        return tuple(_chosen(group, stanzas, providers) for group in value.split(",") if group)

    for name, stanza in stanzas.items():
        size = stanza.get("Installed-Size", "")
        needs = resolved(stanza.get("Pre-Depends", "")) + resolved(stanza.get("Depends", ""))
        yield Package(
            name=name,
            version=stanza.get("Version"),
            summary=stanza.get("Description") or None,
            section=stanza.get("Section", "").rpartition("/")[2] or None,
            size_kib=int(size) if size.isdecimal() else None,
            needs=needs,
            likes=resolved(stanza.get("Recommends", "")),
        )


def _chosen(group: str, stanzas: Mapping[str, Stanza], providers: Mapping[str, str]) -> str:
    """Of `a | b`, the first that exists; a virtual package is whoever provides it first."""
    names = [found[0] for one in group.split("|") if (found := _NAME.match(one.strip()))]
    for name in names:
        if name in stanzas:
            return name
    return next((providers[name] for name in names if name in providers), "")


# --- the modules of Python's own library: a real graph that every machine has ---------------------


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
