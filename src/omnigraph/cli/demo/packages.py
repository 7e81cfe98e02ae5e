"""Packages as plain values, the part of them that a demo of some size takes, and their NDJSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package and the names of those it needs or likes."""

    name: str
    version: str | None = None
    summary: str | None = None
    section: str | None = None
    size_kib: int | None = None
    needs: tuple[str, ...] = ()
    likes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
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
