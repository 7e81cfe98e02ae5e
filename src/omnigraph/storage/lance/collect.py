"""Removing old versions from the lines of a dataset, and every file that none needs any more.

A version names files of its own line and of the lines that this one was made from. Lance's own
clean-up looks at one line and asks all branches about it: a chain of branches costs its length
squared. Here the version files are read once, children before what they stand on, and answer for
all lines. There is one way for main, for branches, for branches of branches and for what is from
before a migration.

The promise: **a version that stays has every file that it names**, in whatever folder. So

- a version goes only if the caller does not want it, it is not the newest of its line, no tag of
  Lance's names it, and no line that was made from it reads a file of this one;
- a file goes only if a version named it that goes, and none that stays does; or if none names it
  and it is so old that nobody is still staging it;
- of a line nothing goes if a version of it, or of one that stands on it, cannot be read: what that
  one names is not known. If nobody knows what the unreadable one stands on, nothing goes at all;
- all version files go before the first of the other files: a version is whole or not there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Final, TypeVar

import msgspec
import orjson

from omnigraph.errors import CorruptGraphError, OmnigraphError, StorageUnavailableError
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.lance import versions
from omnigraph.storage.lance.files import moved, owner, version_of
from omnigraph.storage.lance.versions import NotAVersionError, Part, VersionFacts
from omnigraph.storage.objects.root import Root, branch_folder

T = TypeVar("T")
R = TypeVar("R")

Name = str | None  # of a line: None is the main line
Base = tuple[Name, int]  # the line and version that a line was made from
Choose = Callable[[Name, Sequence[int]], Collection[int]]  # of the stored versions those unwanted

_DOING: Final = "collect versions of table"
_PUBLISHED: Final = re.compile(r"\d+\.manifest")  # what a transaction shows has another name
_VERSIONS: Final = "_versions"
_TRANSACTIONS: Final = "_transactions"
_OWNED: Final = ("data", "_deletions", "_indices", _TRANSACTIONS)
_DRAFT: Final = f"{_VERSIONS}/.tmp"  # a version file that Lance was writing
_TREE: Final = "tree/"
_ANYWHERE: Final = "*"  # in the place of a folder


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How to go about it. `reached` is called wherever a crash would leave something half done."""

    preview: bool = False
    threads: int = 1  # to wait for the store with
    reached: Callable[[], None] = lambda: None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a line, by its path in the line's folder."""

    path: str
    bytes: int
    written_us: int

    @property
    def part(self) -> str:
        return _part_of(self.path)


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection removed. `failed_deletes` counts files that will be tried again."""

    versions: int = 0
    bytes: int = 0
    failed_deletes: int = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """By line: what went, or why nothing could."""

    done: Mapping[Name, Collected] = {}
    problems: Mapping[Name, OmnigraphError] = {}

    def of(self, line: Name) -> Collected:
        """What went of the line; raises what kept it."""
        if line in self.problems:
            raise self.problems[line]
        return self.done.get(line, Collected())


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """Where the lines of a dataset are."""

    root: Root
    store: ObjectStore
    location: str

    def folder(self, line: Name) -> str:
        return branch_folder(self.location, line)


class Kinship(msgspec.Struct, frozen=True, kw_only=True):
    """What each branch was made from, None if it has no reference; and the versions that tags of
    Lance's name."""

    bases: Mapping[str, Base | None]
    tagged: Mapping[Name, frozenset[int]]

    def children_first(self) -> list[Name]:
        """Every line, the main line at last, each after all that were made from it."""
        return children_first({one: base[0] if base else None for one, base in self.bases.items()})


class Doomed(msgspec.Struct, frozen=True, kw_only=True):
    """What goes of one line: versions, their own files, and all else that nothing needs."""

    versions: tuple[int, ...] = ()
    version_files: tuple[Stored, ...] = ()
    others: tuple[Stored, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in (*self.version_files, *self.others))


# --- names -----------------------------------------------------------------------------------


def _part_of(path: str) -> str:
    """What goes or stays as a whole: an index, or a data file with the blobs beside it."""
    folder, _, rest = path.partition("/")
    name = rest.partition("/")[0]
    if folder == "data":
        return f"{folder}/{name.removesuffix('.lance')}"
    return f"{folder}/{name}" if folder == "_indices" else path


def _published(name: str) -> int | None:
    """The version that a file in `_versions` is of, by its name; None for other files. Lance named
    them by their plain number once."""
    if _PUBLISHED.fullmatch(name) is None:
        return None
    version = version_of(name)
    return int(name.partition(".")[0]) if version is None else version


def _is_version(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder == _VERSIONS and _published(name) is not None


def _is_ours(path: str) -> bool:
    """Whether a file of this path may be taken for one that a write left behind."""
    return path.partition("/")[0] in _OWNED or path.startswith(_DRAFT)


def children_first(parents: Mapping[str, Name]) -> list[Name]:
    """The lines, the main line at last, each after all that were made from it."""
    children: dict[Name, list[str]] = defaultdict(list)
    for name in sorted(parents):
        children[parents[name]].append(name)
    # What was made from a line that is gone begins anew.
    found: list[Name] = [None, *sorted(one for one in children if one and one not in parents)]
    for line in found:
        found += children.get(line, ())  # the loop goes on over what is added
    known = [line for line in reversed(found) if line is None or line in parents]
    if len(known) <= len(parents):
        raise CorruptGraphError("branches of a table were made from each other", doing=_DOING)
    return known


# --- looking ---------------------------------------------------------------------------------


def listed(dataset: Dataset, lines: Collection[Name]) -> dict[Name, tuple[Stored, ...]]:
    """What lies in the folders of the lines. The main line's holds all the others."""
    found: dict[Name, list[Stored]] = {line: [] for line in lines}
    start = len(dataset.location) + 1
    for place in (None,) if None in found else lines:
        files = dataset.store.listed(dataset.folder(place))
        split = _splitting(key[start:] for key in files)
        for key, file in files.items():
            line, path = split(key[start:])
            if line in found:
                found[line].append(Stored(path=path, bytes=file.bytes, written_us=file.written_us))
    return {line: tuple(files) for line, files in found.items()}


def _splitting(paths: Iterable[str]) -> Callable[[str], tuple[Name, str]]:
    """Tells which line a file of a dataset belongs to, and its path there.

    Danger: lines of migrated graphs have the names that users gave them and nest, `a` and `a/data`
    at once. So a file is of the longest line that has versions; where none has, its path tells.
    """
    versions = (path.removeprefix(_TREE).partition(f"/{_VERSIONS}/") for path in paths)
    lines = {line for line, found, _ in versions if found}

    @cache
    def line_of(folder: str) -> str | None:
        while folder and folder not in lines:
            folder = folder.rpartition("/")[0]
        return folder or None

    def split(path: str) -> tuple[Name, str]:
        if not path.startswith(_TREE):
            return None, path
        below = path.removeprefix(_TREE)
        line = line_of(below.rpartition("/")[0]) or owner(below)
        return line, below[len(line) + 1 :]

    return split


def versions_in(paths: Iterable[str]) -> tuple[int, ...]:
    """The versions of a line that have a file, ascending."""
    names = (path.rpartition("/") for path in paths)
    found = (_published(name) for folder, _, name in names if folder == _VERSIONS)
    return tuple(sorted(version for version in found if version is not None))


def may_be_lost(stored: Iterable[Stored], lost_before_us: int) -> bool:
    """Whether there is a file so old that it is lost if no version names it."""
    return any(file.written_us < lost_before_us and _is_ours(file.path) for file in stored)


def tagged(store: ObjectStore, location: str) -> dict[Name, frozenset[int]]:
    """The versions of a dataset that tags of Lance's name, by line."""
    found: dict[Name, set[int]] = {}
    for key in store.list_keys(f"{location}/_refs/tags"):
        stored = store.read(key)
        if stored is None:
            continue  # it was deleted since it was listed
        try:
            tag = orjson.loads(stored.body)
            found.setdefault(tag.get("branch"), set()).add(int(tag["version"]))
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise CorruptGraphError(f"the tag '{key}' cannot be read", part=key) from cause
    return {line: frozenset(versions) for line, versions in found.items()}


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a line, its own file, and the folders that its parts lie in, by base."""

    number: int
    file: Part
    facts: VersionFacts
    folders: Mapping[int | None, str]

    def named(self) -> Iterator[tuple[str, str]]:
        """All that the version names, itself too, each by its folder and its path there.

        Danger: an index that a compaction on a branch carried over lies in the branch's folder, and
        Lance still says that it lies in the base's. So an index is needed wherever it is found;
        its name is a UUID.
        """
        for part in (self.file, *self.facts.parts):
            yield self.folders[part.base], part.path
        for part in self.facts.indexes:
            yield _ANYWHERE, part.path
        if self.facts.transaction is not None:
            yield self.folders[None], f"{_TRANSACTIONS}/{self.facts.transaction}"

    def read(self) -> set[str]:
        """The folders of other lines that it reads from. It knows more bases than it uses."""
        used = {part.base for part in (*self.facts.parts, *self.facts.indexes)}
        return {self.folders[base] for base in used if base is not None}


def _read(
    dataset: Dataset, below: Callable[[str], str | None], line: Name
) -> list[_Version] | OmnigraphError:
    """The versions of a line, or why one of them cannot be read: none if somebody else has removed
    the line meanwhile."""
    folder, found = dataset.folder(line), list[_Version]()
    try:
        for key in dataset.store.keys_beginning(f"{folder}/{_VERSIONS}/"):
            number = _published(key.rpartition("/")[2])
            if number is None or (stored := dataset.store.read(key)) is None:
                continue
            try:
                facts = versions.read_as(number, stored.body)
            except NotAVersionError as cause:
                raise CorruptGraphError.at(key, doing=_DOING, reason=str(cause)) from cause
            folders: dict[int | None, str] = {None: folder}
            for base, address in facts.bases.items():
                place = below(address)
                if place is None:
                    raise moved(dataset.root, folder, address)
                folders[base] = place
            if not {part.base for part in (*facts.parts, *facts.indexes)} <= folders.keys():
                raise CorruptGraphError.at(key, doing=_DOING, reason="it lacks a base")
            file = Part(path=key[len(folder) + 1 :])
            found.append(_Version(number=number, file=file, facts=facts, folders=folders))
    except OmnigraphError as cause:
        return cause
    return found


# --- deciding --------------------------------------------------------------------------------


class Plan:
    """What goes of lines whose files were listed before: a file that a write adds or names in
    between is in no danger. Learns line by line, children first."""

    def __init__(self, dataset: Dataset, kin: Kinship) -> None:
        self._dataset, self._kin = dataset, kin
        self.problems: dict[Name, OmnigraphError] = {}
        self._going: dict[Name, tuple[int, ...]] = {}  # of the lines that have versions
        self._kept: set[tuple[str, str]] = set()  # what versions name that stay
        self._freed: set[tuple[str, str]] = set()  # what versions name that go
        self._roots: dict[Name, set[int]] = defaultdict(set)  # versions that children read from
        self._read_by: dict[Name, set[str]] = defaultdict(set)  # folders that children read

    def learn(
        self, line: Name, found: Sequence[_Version] | OmnigraphError, unwanted: Collection[int]
    ) -> None:
        """Take in one line, after all that were made from it."""
        base = None if line is None else self._kin.bases[line]
        if isinstance(found, OmnigraphError):
            self.problems.setdefault(line, found)
        if line in self.problems:
            # Danger: what it needs of the lines that it was made from is not known.
            above = [] if line is None else [base[0]] if base else [None, *self._kin.bases]
            for name in above:
                self.problems.setdefault(name, self.problems[line])
            return
        assert not isinstance(found, OmnigraphError), "an error is a problem"
        # Danger: the newest version is what a writer goes on from, wanted or not.
        numbers = {one.number for one in found}
        staying = {max(numbers, default=0), *self._kin.tagged.get(line, ()), *self._roots[line]}
        going = numbers.intersection(unwanted) - staying
        assert going < numbers or not numbers, "the newest version stays"
        read = self._read_by.pop(line, set())
        for one in found:
            if one.number in going:
                self._freed.update(one.named())
            else:
                self._kept.update(one.named())
                read.update(one.read())
        if found:
            self._going[line] = tuple(sorted(going))
        if base is not None:
            if self._dataset.folder(base[0]) in read:
                self._roots[base[0]].add(base[1])
            self._read_by[base[0]] |= read

    def doomed(
        self, stored: Mapping[Name, Sequence[Stored]], lost_before_us: int
    ) -> dict[Name, Doomed]:
        """What goes of each of the lines whose files these are; nothing of one without versions."""
        lines = {
            self._dataset.folder(line): line
            for line in stored
            if line in self._going and line not in self.problems
        }
        kept, freed = (_parts(named, lines) for named in (self._kept, self._freed))
        found: dict[Name, Doomed] = {}
        for place, line in lines.items():
            there = {file.part for file in stored[line]}
            staying = there & kept[place] | there & kept[_ANYWHERE]
            free = (there & freed[place] | there & freed[_ANYWHERE]) - staying
            leaving = _leaving(stored[line], staying, free, lost_before_us)
            found[line] = Doomed(
                versions=self._going[line],
                version_files=tuple(file for file in leaving if _is_version(file.path)),
                others=tuple(file for file in leaving if not _is_version(file.path)),
            )
        return found


def _parts(named: Iterable[tuple[str, str]], folders: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {folder: set() for folder in (*folders, _ANYWHERE)}
    for folder, path in named:
        if folder in found:
            found[folder].add(_part_of(path))
    return found


def _leaving(
    stored: Sequence[Stored], kept: set[str], free: set[str], lost_before_us: int
) -> list[Stored]:
    """The files that are free, and those that no version ever named and that were written before
    that moment: nobody is still staging them."""
    known = {file.part for file in stored if file.written_us >= lost_before_us} | kept | free
    leaving = [
        file
        for file in stored
        if file.part in free or (file.part not in known and _is_ours(file.path))
    ]
    assert kept.isdisjoint(file.part for file in leaving), "a version that stays has its files"
    return leaving


def planned(
    dataset: Dataset,
    kin: Kinship,
    unwanted: Mapping[Name, Collection[int]],
    *,
    threads: int = 1,
) -> Plan:
    """Read the versions of these lines and of all that stand on them, and decide."""
    order = kin.children_first()
    # Danger: what a line without a reference stands on is not known, so that each of them counts.
    reading = {*unwanted, *(line for line, base in kin.bases.items() if base is None)}
    for line in reversed(order):
        base = None if line is None else kin.bases[line]
        if base is not None and base[0] in reading:
            reading.add(line)
    lines = [line for line in order if line in reading]
    plan = Plan(dataset, kin)
    read = partial(_read, dataset, cache(dataset.root.below))
    for line, found in zip(lines, _side_by_side(read, lines, threads), strict=True):
        plan.learn(line, found, unwanted.get(line, ()))
    return plan


def _side_by_side(work: Callable[[T], R], items: Sequence[T], threads: int) -> Iterable[R]:
    """The work on each of the items, in their order, by so many threads."""
    if threads <= 1:
        return map(work, items)
    with ThreadPoolExecutor(threads, thread_name_prefix="collect") as pool:
        return list(pool.map(work, items))


# --- doing -----------------------------------------------------------------------------------


def remove(dataset: Dataset, doomed: Mapping[Name, Doomed], how: How) -> dict[Name, int]:
    """Remove it all; how many files of each line could not be. What a crash leaves of the files is
    lost by then and goes a week later.

    Danger: all version files first. A file of one line may be free because a version of another
    goes, and if a version file cannot be removed this ends before anything else is.
    """

    def versions(line: Name) -> None:
        for file in doomed[line].version_files:
            dataset.store.delete(f"{dataset.folder(line)}/{file.path}")
        if doomed[line].version_files:
            how.reached()

    def others(line: Name) -> int:
        folder, failed = dataset.folder(line), 0
        # An index, or the blobs beside a data file, fill a folder of their own.
        nested = {file.part for file in doomed[line].others if file.path.count("/") > 1}
        for file in doomed[line].others:
            if file.path.count("/") == 1:
                failed += not _tried(partial(dataset.store.delete, f"{folder}/{file.path}"))
        for part in sorted(nested):
            failed += not _tried(partial(dataset.store.delete_prefix, f"{folder}/{part}"))
        return failed

    lines = [line for line in doomed if doomed[line].version_files or doomed[line].others]
    for _ in _side_by_side(versions, lines, how.threads):
        pass
    failed = dict(zip(lines, _side_by_side(others, lines, how.threads), strict=True))
    if lines:
        how.reached()
    return failed


def _tried(deed: Callable[[], Any]) -> bool:
    try:
        deed()
    except StorageUnavailableError:
        return False
    return True
