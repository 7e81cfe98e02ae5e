"""`verify`: is everything there that commits promised? Reads only, and changes nothing.

First the files, without Lance (`storage/inspection.py`): those of the manifest, then, as far as the
manifest can be read, those of the tables, each once. Every version that is still kept is looked at,
so that the past is proved too. With `deep` then all rows of every branch head and tag are read
(`deep.py`), but of no table whose files are damaged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from omnigraph.engine.arguments import FLAG, require
from omnigraph.engine.core import Core, OpenMode, assemble
from omnigraph.engine.maintain.deep import Row, check_rows
from omnigraph.errors import CorruptGraphError, NotFoundError, OmnigraphError
from omnigraph.model.graph import Branch, Pin, Snapshot, TableEntry
from omnigraph.model.ports import World
from omnigraph.model.structs import JsonStruct
from omnigraph.storage.inspection import Looked, Place, Trouble
from omnigraph.storage.objects.root import (
    AUDIT,
    DESCENT,
    MANIFEST,
    Root,
    aws_environment,
    dropped_mark,
    stored_tables,
)
from omnigraph.storage.table.table import Table

Progress = Callable[[str, int, int], None]  # what, done, total
_PROGRESS_MS = 200


class VerifyProblem(JsonStruct, frozen=True, kw_only=True):
    """One thing that is not as it was promised; what is not known of it is None."""

    kind: str
    message: str
    part: str | None = None  # a file, below the graph
    type_key: str | None = None
    branch: str | None = None
    graph_commit_id: str | None = None
    expected: str | None = None
    actual: str | None = None


class VerifyReport(JsonStruct, frozen=True, kw_only=True):
    """What was looked at, and what is wrong. `files_without_digest` were compared in all but their
    bytes: earlier releases and object stores have no digests."""

    uri: str
    deep: bool
    branches: int
    tags: int
    commits: int
    files: int
    bytes: int
    files_without_digest: int
    rows: int = 0  # that were read
    problems: tuple[VerifyProblem, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **super().to_json()}


class _Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a version of a table is: the newest commit that shows it."""

    entry: TableEntry
    branch: str
    commit_id: str
    is_head: bool  # of a branch, or tagged: what everybody may ask for


def verify(core: Core, *, deep: bool = False, progress: Progress | None = None) -> VerifyReport:
    """Look at everything that the graph's commits need."""
    require(FLAG, deep=deep)
    return _Verify(core, progress).report(deep=deep)


def verify_at(uri: str, *, deep: bool = False, progress: Progress | None = None) -> VerifyReport:
    """The same without opening the graph, which may be too damaged for that."""
    core = assemble(Root.parse(uri, aws_environment()), World(), OpenMode.READ_ONLY)
    if not core.store.objects.keys_beginning(f"{MANIFEST}/_versions/"):
        raise NotFoundError(
            f"there is no graph at '{uri}'",
            kind="graph",
            name=uri,
            hint="make one with `Graph.init` or `omnigraph init`",
        )
    return verify(core, deep=deep, progress=progress)


class _Verify:
    def __init__(self, core: Core, progress: Progress | None) -> None:
        self._core, self._progress = core, progress
        self._problems: list[VerifyProblem] = []
        self._looked: list[Looked] = []
        self._damaged: set[tuple[str, str | None]] = set()  # lines, and those that stand on them
        self._owners: dict[Pin, _Owner] = {}
        self._heads: dict[str, Snapshot] = {}  # by the name of a branch or tag
        self._blind = False  # whether there may be pins that are not known
        self._told_at = 0.0

    def report(self, *, deep: bool) -> VerifyReport:
        core = self._core
        branches = [*core.store.refs.list(), *core.store.manifests.retired.branches()]
        self._references()
        self._manifest({branch.id: branch.name for branch in branches})
        commits = self._snapshots(branches)
        tags = self._tags()
        for location in self._locations():
            self._table(location)
        rows = self._rows() if deep else 0
        return VerifyReport(
            uri=core.root.uri,
            deep=deep,
            branches=len(branches),
            tags=tags,
            commits=commits,
            files=sum(one.files for one in self._looked),
            bytes=sum(one.bytes for one in self._looked),
            files_without_digest=sum(one.without_digest for one in self._looked),
            rows=rows,
            problems=tuple(self._problems),
        )

    def _advance(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._progress is not None and (now - self._told_at) * 1000 >= _PROGRESS_MS:
            self._told_at = now
            self._progress(what, done, total)

    # --- small files -------------------------------------------------------------------------

    def _references(self) -> None:
        core = self._core
        for ref in core.store.refs.unreadable():
            self._blind = True
            self._problems.append(
                VerifyProblem(kind="reference", message=ref.problem, part=ref.key, branch=ref.name)
            )
        try:
            core.store.manifests.retired.descent()
        except CorruptGraphError as cause:
            self._problems.append(
                VerifyProblem(kind="reference", message=cause.message, part=DESCENT)
            )

    def _tags(self) -> int:
        tags = self._core.store.manifests.tags
        for ref in tags.unreadable():
            self._problems.append(
                VerifyProblem(kind="reference", message=ref.problem, part=ref.key)
            )
        count = 0
        for tag in tags.all():
            count += 1
            try:
                snapshot = self._core.store.manifests.at_commit(tag.graph_commit_id)
            except OmnigraphError as cause:
                if self._damaged:
                    continue  # the manifest that it is read from is told already
                self._problems.append(
                    VerifyProblem(
                        kind="tag",
                        message=f"tag '{tag.name}': {cause.message}",
                        graph_commit_id=tag.graph_commit_id,
                    )
                )
            else:
                self._own(snapshot, tag.name, is_head=True)
                self._heads[tag.name] = snapshot
        return count

    # --- the manifest ------------------------------------------------------------------------

    def _manifest(self, names: Mapping[str | None, str]) -> None:
        place = self._place(MANIFEST)
        pending = bool(self._core.recovery.sidecars.operation_ids())
        for line in place.lines():
            if line is not None and line not in names and not self._blind:
                continue  # left behind by a branch that is gone: cleanup takes it
            looked = place.look(line, advance=self._advancing(place))
            newest = max(place.stored(line), default=0)
            for trouble in looked.troubles:
                # A power cut while it was made left it torn: it was never acknowledged.
                if pending and trouble.kind == "version" and trouble.version == newest:
                    continue
                self._damaged.add((MANIFEST, line))
                self._tell(trouble, branch=names.get(line))
            self._looked.append(looked)
        self._spread(place)

    def _snapshots(self, branches: Iterable[Branch]) -> int:
        """Read every kept version of every branch's manifest whose files are well."""
        manifests = self._core.store.manifests
        seen: set[str] = set()
        for branch in branches:
            if (MANIFEST, branch.id) in self._damaged:
                self._blind = True
                continue
            try:
                known = manifests.fresh(branch.id)
                versions = manifests.datasets.kept(known.opened)
                self._heads[branch.name] = known.snapshot(branch)
                self._own(self._heads[branch.name], branch.name, is_head=True)
                for done, version in enumerate(reversed(versions)):
                    with suppress(NotFoundError):  # cleanup takes it meanwhile
                        snapshot = manifests.at_version(branch, version)
                        self._own(snapshot, branch.name)
                        seen.add(snapshot.head.graph_commit_id)
                    self._advance(f"commits of {branch.name}", done, len(versions))
            except OmnigraphError as cause:
                if (
                    not manifests.refs.is_alive(branch)
                    and manifests.retired.of_id(branch.id) is None
                ):
                    continue  # deleted meanwhile
                self._blind = True
                part = cause.facts.get("part")
                self._problems.append(
                    VerifyProblem(
                        kind="manifest",
                        message=cause.message,
                        part=part if isinstance(part, str) else MANIFEST,
                        branch=branch.name,
                    )
                )
        return len(seen)

    def _own(self, snapshot: Snapshot, name: str, *, is_head: bool = False) -> None:
        for entry in snapshot.datasets:
            known = self._owners.get(entry.pin)
            if known is None or (is_head and not known.is_head):
                self._owners[entry.pin] = _Owner(
                    entry=entry,
                    branch=name,
                    commit_id=snapshot.head.graph_commit_id,
                    is_head=is_head,
                )

    # --- tables ------------------------------------------------------------------------------

    def _locations(self) -> list[str]:
        found = {location for location, _, _ in self._owners}
        if self._blind:
            found |= {*stored_tables(self._core.store.objects)}
        if self._core.store.objects.keys_beginning(f"{AUDIT}/_versions/"):
            found.add(AUDIT)
        return sorted(found)

    def _table(self, location: str) -> None:
        place = self._place(location)
        lines = {line for at, line, _ in self._owners if at == location}
        if self._blind or location == AUDIT:
            lines |= set(place.lines())
        for line in sorted(lines, key=lambda one: one or ""):
            owners = {
                version: owner
                for (at, branch, version), owner in self._owners.items()
                if (at, branch) == (location, line)
            }
            wanted = None if self._blind else owners
            looked = place.look(line, wanted, self._advancing(place))
            self._looked.append(looked)
            for trouble in looked.troubles:
                self._damaged.add((location, line))
                owner = _nearest(owners, trouble.version)
                self._tell(trouble, owner)
            self._counts(place, line, looked, owners)
        self._spread(place)

    def _counts(
        self, place: Place, line: str | None, looked: Looked, owners: Mapping[int, _Owner]
    ) -> None:
        """Whether each published version is there and has as many rows as the manifest says."""
        stored = place.stored(line)
        for version, owner in sorted(owners.items()):
            facts = looked.facts.get(version)
            if facts is None:
                # Data may be dropped for good while older commits still name it.
                lost = owner.is_head or version > max(stored, default=0)
                gone = self._core.store.objects.read(dropped_mark(place.location)) is not None
                if version not in stored and lost and not gone:
                    self._damaged.add((place.location, line))
                    trouble = Trouble(
                        kind="missing",
                        part=f"{place.location} at version {version}",
                        reason="it is not there",
                        version=version,
                    )
                    self._tell(trouble, owner)
            elif facts.rows != owner.entry.row_count:
                expected = f"{owner.entry.row_count} rows"
                self._problems.append(
                    VerifyProblem(
                        kind="row-count",
                        message=(
                            f"'{owner.entry.table_key}' has {facts.rows} rows, the commit has "
                            f"{expected}"
                        ),
                        part=place.location,
                        type_key=owner.entry.table_key,
                        branch=owner.branch,
                        graph_commit_id=owner.commit_id,
                        expected=expected,
                        actual=f"{facts.rows} rows",
                    )
                )

    def _place(self, location: str) -> Place:
        return Place(self._core.root, self._core.store.objects, location)

    def _advancing(self, place: Place) -> Callable[[int], None]:
        done, total = 0, place.bytes

        def advance(more: int) -> None:
            nonlocal done
            done += more
            self._advance(place.location, done, total)

        return advance

    def _spread(self, place: Place) -> None:
        """A line that is made from a damaged one may read its files."""
        if any(location == place.location for location, _ in self._damaged):
            self._damaged |= {(place.location, line) for line in place.lines()}

    def _tell(
        self, trouble: Trouble, owner: _Owner | None = None, *, branch: str | None = None
    ) -> None:
        self._problems.append(
            VerifyProblem(
                kind=trouble.kind,
                message=f"'{trouble.part}': {trouble.reason}",
                part=trouble.part,
                type_key=None if owner is None else owner.entry.table_key,
                branch=branch if owner is None else owner.branch,
                graph_commit_id=None if owner is None else owner.commit_id,
                expected=trouble.expected,
                actual=trouble.actual,
            )
        )

    # --- rows --------------------------------------------------------------------------------

    def _rows(self) -> int:
        """Every row of every head and tag, of each version of a table once."""
        seen: set[Pin] = set()
        asked: set[tuple[Pin, ...]] = set()
        total = 0
        for name, snapshot in self._heads.items():
            tables = dict(self._readable(snapshot))
            try:
                catalog = self._core.catalog(snapshot)
                rows = check_rows(
                    catalog, tables, seen, asked, lambda what, n, m: self._advance(what, n, m)
                )
                for row in rows:
                    total += row.rows
                    self._problems += _told(row, name, snapshot)
            except OmnigraphError as cause:
                self._problems.append(
                    VerifyProblem(kind="unreadable", message=cause.message, branch=name)
                )
        return total

    def _readable(self, snapshot: Snapshot) -> Iterator[tuple[str, Table]]:
        for key, entry in snapshot.entries.items():
            if (entry.location, entry.branch) in self._damaged:
                continue
            with suppress(NotFoundError):  # cleanup, or a deletion, is at work
                yield key, self._core.store.tables.open(entry)


def _told(row: Row, name: str, snapshot: Snapshot) -> Iterator[VerifyProblem]:
    for kind, message in row.problems:
        yield VerifyProblem(
            kind=kind,
            message=message,
            part=snapshot.entries[row.table_key].location,
            type_key=row.table_key,
            branch=name,
            graph_commit_id=snapshot.head.graph_commit_id,
        )


def _nearest(owners: Mapping[int, _Owner], version: int | None) -> _Owner | None:
    """Whose a version is: of the commit that shows it, or the next one that does."""
    later = [one for one in owners if version is None or one >= version]
    found = min(later, default=max(owners, default=None))
    return None if found is None else owners[found]
