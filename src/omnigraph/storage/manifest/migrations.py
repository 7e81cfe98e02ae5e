"""The one place that brings old graphs to the format we write. Look before you leap.

Everything is read and checked first: a graph that is refused was not touched. Then the new form of
every line is built beside the old one, as Lance branches that nobody looks at, read back and
compared; then one commit on main sets our stamp, which is what makes the graph ours; only after
that, and after another look, the old files go. A crash before the stamp leaves the old graph, with
leftovers that the next run clears away; a crash after it leaves ours, and the next run removes the
rest. One process at a time does it; the strict commit on main decides should that ever fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.errors import (
    CorruptGraphError,
    IntegrityError,
    NotFoundError,
    OmnigraphError,
    RecoveryRequiredError,
    UnavailableError,
)
from omnigraph.model.graph import MAIN, Branch, Lineage, TableEntry
from omnigraph.model.limits import INTERNAL_SCHEMA_VERSION, LEASE_WAIT_MS_MAX, MIGRATION_ROUNDS_MAX
from omnigraph.model.ports import World
from omnigraph.model.schema import Catalog
from omnigraph.model.steps import Step
from omnigraph.storage.lance.columns import arrow_schema, standard_schema
from omnigraph.storage.lance.files import (
    FragmentKey,
    bases_of,
    fragment_keys,
    require_home,
    version_file,
)
from omnigraph.storage.manifest.dataset import LostRaceError, Opened
from omnigraph.storage.manifest.legacy import (
    ACTORS,
    COMMITS,
    IR_FILE,
    RUN_PREFIX,
    RUNS,
    SCHEMA_FILES,
    SCHEMA_LOCK_BRANCH,
    SOURCE_FILE,
    STAGING,
    STATE_FILE,
    adopted_id,
    dataset_at,
    is_adopted,
    reading,
)
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH, encode_ref, ref_key
from omnigraph.storage.manifest.rows import MIGRATED_KEY, PRIMARY_KEY, Tail, new_commit, tail_table
from omnigraph.storage.manifest.store import Known, ManifestStore, check_stamp
from omnigraph.storage.objects.lease import Lease, Leases
from omnigraph.storage.objects.root import RECOVERY, REFS, Root, branch_folder

logger = logging.getLogger(__name__)

MIGRATION_ACTOR: Final = "omnigraph:recovery"
_LEASE: Final = "migration"
_OLD_DATASETS: Final = (COMMITS, ACTORS, RUNS)
# The IR goes first: once it is gone all was compared. The source goes last: as long as it is there,
# something may be left to remove.
_FIRST_FILES: Final = (IR_FILE, STATE_FILE, *(name + STAGING for name in SCHEMA_FILES))


def is_due(manifests: ManifestStore) -> bool:
    """Whether a migration is to be made or finished; a graph that never had one costs nothing.

    A graph of ours whose main branch is damaged is opened as it is: its other branches can still be
    used, and reading main says what is wrong. An old one is refused: `CorruptGraphError`.
    """
    try:
        main = manifests.last_known(None)
    except CorruptGraphError:
        if any(manifests.store.read(name) is not None for name in SCHEMA_FILES):
            raise
        return False
    if not main.current or main.opened.stamp != INTERNAL_SCHEMA_VERSION:
        return True
    return _is_cut_short(manifests, main.opened)


def migrate(manifests: ManifestStore, world: World) -> None:
    """Bring the graph to the current format. A current one costs a look.

    `UpgradeRequiredError` if a release wrote it that we cannot read after, `CorruptGraphError` if
    a part is damaged or not understood; then nothing was changed.
    """
    _Migration(manifests, world).run()


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """An old line and what it will be: main, or a branch under an id of ours.

    Ids must be ours because names may hold what paths must not: `a` and `a/b` would share a folder.
    """

    opened: Opened
    tail: Tail
    branch: Branch  # its id names the Lance branch that is built beside; main's is a draft


class _Migration:
    def __init__(self, manifests: ManifestStore, world: World) -> None:
        self._manifests = manifests
        self._datasets = manifests.datasets
        self._legacy = manifests.legacy
        self._store = manifests.store
        self._leases = Leases(manifests.root, manifests.store, world)
        self._world = world

    def run(self) -> None:
        for _ in range(MIGRATION_ROUNDS_MAX):
            main = self._datasets.open_latest(None)
            check_stamp(main)
            try:
                if self._round(main):
                    return
            except LostRaceError:
                continue  # another process does the same: see how far it came
            except OmnigraphError:
                # It may have removed a file under our hands, which is no fault of the graph.
                if self._datasets.newest(main).version == main.version:
                    raise
        raise UnavailableError("other processes keep changing the graph that is to be migrated")

    def _round(self, main: Opened) -> bool:
        """Take the graph one step further; True if nothing is left to do."""
        if self._manifests.read_ours(main) is None:
            plan = self._planned(main)
            _OldTables(self._manifests).check([line.opened for line in plan])
            self._alone(lambda lease: self._leap(plan, lease))
            return False
        if main.stamp != INTERNAL_SCHEMA_VERSION:
            self._alone(lambda _: self._restamp(main))
            return False
        if _is_cut_short(self._manifests, main):
            self._alone(lambda _: self._finish(main))
        return True

    def _alone(self, work: Callable[[Lease], None]) -> None:
        self._leases.holding(_LEASE, work, wait_ms=LEASE_WAIT_MS_MAX)

    # --- looking -----------------------------------------------------------------------------

    def _planned(self, main: Opened) -> list[_Line]:
        """Every line as it will be, main last; raises if anything is not understood."""
        self._check_settled()
        _check_key(main)
        lines: list[_Line] = []
        for name, old in self._legacy.branches(main.stamp).items():
            branch = replace(self._legacy.branch(name, old), id=adopted_id(self._world.ids.ulid()))
            opened = self._datasets.open_latest(name)
            lines.append(_Line(opened=opened, tail=self._whole(opened, branch), branch=branch))
        tail = self._settled(self._whole(main, MAIN_BRANCH))
        draft = replace(MAIN_BRANCH, id=adopted_id(self._world.ids.ulid()))
        return [*lines, _Line(opened=main, tail=tail, branch=draft)]

    def _check_settled(self) -> None:
        """A write that its release has not finished can be finished by that release only."""
        pending = [key for key in self._store.list_keys(RECOVERY) if key.endswith(".json")]
        if pending:
            operation = pending[0].rpartition("/")[2].removesuffix(".json")
            raise RecoveryRequiredError(
                f"the release that wrote this graph left a write unfinished ('{pending[0]}'): "
                "open the graph for writing with that release once, then open it here",
                operation_id=operation,
            )

    def _whole(self, opened: Opened, branch: Branch) -> Tail:
        """The line's tail, with a commit for a publish that v3 had lost."""
        tail = self._legacy.tail(opened)
        if not self._lost_a_commit(opened, tail):
            return tail
        lineage = Lineage(
            commit_id=self._world.ids.ulid(),
            actor_id=MIGRATION_ACTOR,
            created_at=self._world.clock.now_us(),
            properties={"message": "a publish whose commit format v3 had lost"},
        )
        found = new_commit(lineage, branch, parent=tail.head.id, version=opened.version + 1)
        return replace(tail, commits=(*tail.commits, found))

    def _settled(self, tail: Tail) -> Tail:
        """Main goes on writing its tables' own lines; a branch makes lines of its own."""
        root = self._manifests.root
        entries = {key: _settled(root, entry) for key, entry in tail.entries.items()}
        return replace(tail, entries=entries)

    def _lost_a_commit(self, old: Opened, tail: Tail) -> bool:
        """Whether tables moved past the last commit: v3 could die between its two writes."""
        last = tail.head
        at = last.commit.graph_manifest_version
        if at >= old.version or last.branch_id != old.branch_id:
            return False
        try:
            then = self._datasets.open_version(old.branch_id, at)
        except NotFoundError:
            return False  # cleaned up: nothing to compare with
        return self._legacy.entries(then) != tail.entries

    # --- leaping -----------------------------------------------------------------------------

    def _leap(self, plan: Sequence[_Line], lease: Lease) -> None:
        main = plan[-1]
        self._check_unmoved(plan)
        self._clear_leftovers()
        try:
            for line in plan:
                self._datasets.fork(line.opened, line.branch.line())
                self._world.steps.reach(Step.MIGRATION_FORKED)
                self._fold(self._datasets.open_latest(line.branch.id), line.tail)
                self._world.steps.reach(Step.MIGRATION_FOLDED)
            self._compare(plan)
            for line in plan[:-1]:  # main needs no reference
                self._name(line.branch)
            self._check_unmoved(plan)
            lease.check()
        except Exception:
            self._clear_leftovers()
            raise
        self._stamp(main)
        stamped = self._datasets.open_version(None, main.opened.version + 1)
        self._world.steps.reach(Step.MIGRATION_STAMPED)
        logger.info("migrated", extra={"from": main.opened.stamp, "to": stamped.stamp})

    def _fold(self, opened: Opened, tail: Tail) -> None:
        """Replace the rows of the opened version by the tail, under our stamp."""
        rows = tail_table(tail)
        mark = {MIGRATED_KEY.encode(): str(opened.version + 1).encode()}
        metadata = {**(rows.schema.metadata or {}), **mark}
        self._datasets.overwrite(opened, rows.cast(rows.schema.with_metadata(metadata)))

    def _compare(self, plan: Sequence[_Line]) -> None:
        """Read everything back from the disk, as whoever opens the graph next would."""
        cold = self._cold()
        for line in plan:
            built = cold.read_ours(cold.datasets.open_latest(line.branch.id))
            _must_equal(built, line.tail, line.branch.name)
        self._world.steps.reach(Step.MIGRATION_COMPARED)

    def _name(self, branch: Branch) -> None:
        if not self._store.put_if_absent(ref_key(branch.name), encode_ref(branch)):
            raise LostRaceError("another process migrates the graph")
        self._world.steps.reach(Step.MIGRATION_REF_WRITTEN)

    def _stamp(self, main: _Line) -> None:
        """The leap itself. If the store does not say whether it landed, a look at it does; if even
        that fails nothing is cleared away, because the graph may be ours already."""
        try:
            self._fold(main.opened, main.tail)
        except Exception:
            if self._datasets.open_latest(None).version != main.opened.version:
                raise LostRaceError("somebody else followed the version we read") from None
            self._clear_leftovers()
            raise

    def _check_unmoved(self, plan: Iterable[_Line]) -> None:
        """A writer of the old release may be at work: what was read must still be the newest."""
        for line in plan:
            if self._datasets.newest(line.opened).version != line.opened.version:
                raise LostRaceError("a writer of another release is at work")

    def _clear_leftovers(self) -> None:
        """Remove what a migration before the stamp has made: the old format knows none of it."""
        for key in self._store.list_keys(REFS):
            self._store.delete(key)
        built = [line for line in sorted(self._datasets.branch_ids()) if is_adopted(line)]
        if built:
            # A stamp that did not land; only as long as these lines are there they explain it.
            self._datasets.forget_attempts(self._datasets.open_latest(None))
        for line in built:
            self._datasets.drop(line)
            self._world.steps.reach(Step.MIGRATION_LEFTOVER_REMOVED)

    def _cold(self) -> ManifestStore:
        """A store that knows nothing yet, so that what it says comes from the disk."""
        known = self._manifests
        return ManifestStore(
            known.root,
            self._world,
            known.store,
            old_schemas=known.old_schemas,
            unfinished=known.unfinished,
        )

    # --- after the stamp ---------------------------------------------------------------------

    def _finish(self, main: Opened) -> None:
        """Compare once more, with the old version of main that is still there; then tidy up."""
        if self._store.read(SOURCE_FILE) is None:
            return  # another process was faster
        self._compare_stamped(main)
        named = {branch.id for branch in self._cold().refs.others()}
        for line in sorted(self._datasets.branch_ids()):
            run = line.startswith(RUN_PREFIX) and self._stamp_before(main) < 3
            if line == SCHEMA_LOCK_BRANCH or run or (is_adopted(line) and line not in named):
                self._datasets.drop(line)
                self._world.steps.reach(Step.MIGRATION_LINE_DROPPED)
        for key in _FIRST_FILES:
            if self._store.delete(key):
                self._world.steps.reach(Step.MIGRATION_OLD_FILE_REMOVED)
        for location in _OLD_DATASETS:
            if self._store.delete_prefix(location):
                self._world.steps.reach(Step.MIGRATION_OLD_FILE_REMOVED)
        self._store.delete(SOURCE_FILE)
        self._world.steps.reach(Step.MIGRATION_OLD_FILE_REMOVED)

    def _stamp_before(self, main: Opened) -> int:
        return self._datasets.open_version(None, (main.migrated_at or 0) - 1).stamp

    def _compare_stamped(self, main: Opened) -> None:
        at = main.migrated_at
        assert at is not None, "a stamp by migration says where it was set"
        if self._store.read(IR_FILE) is None:
            return  # an earlier run compared, and died while it was removing
        cold = self._cold()
        ours = cold.read_ours(cold.datasets.open_version(None, at))
        old = self._settled(self._legacy.tail(self._datasets.open_version(None, at - 1)))
        if ours is not None and len(ours.tail.commits) == len(old.commits) + 1:
            old = replace(old, commits=(*old.commits, ours.tail.head))  # the one that v3 had lost
        _must_equal(ours, old, MAIN)

    def _restamp(self, main: Opened) -> None:
        """Our first landing stamped its graphs 4, as the reference's 0.8 does. Main comes last, so
        that whoever finds our stamp there finds it everywhere."""
        for branch in self._cold().refs.others():
            try:
                opened = self._datasets.open_latest(branch.id)
                if opened.stamp != INTERNAL_SCHEMA_VERSION:
                    self._datasets.restamp(opened)
            except OmnigraphError as cause:  # the next publish on it sets the stamp as well
                logger.warning("not stamped", extra={"branch": branch.name, "why": str(cause)})
        self._datasets.restamp(main)
        self._world.steps.reach(Step.MIGRATION_STAMPED)


def _must_equal(built: Known | None, wanted: Tail, name: str) -> None:
    """Danger: whatever differs here is lost once the old files are gone."""
    if built is None or built.tail != wanted:
        raise IntegrityError(
            f"branch '{name}' reads back differently than it was before the migration",
            hint="the graph was left as it was; please report this",
            branch=name,
        )


def _is_cut_short(manifests: ManifestStore, main: Opened) -> bool:
    """Whether something is left to remove of a graph that has our stamp by migration."""
    return main.migrated_at is not None and manifests.store.read(SOURCE_FILE) is not None


def _check_key(main: Opened) -> None:
    marked = [
        field.name
        for field in main.dataset.schema
        if (field.metadata or {}).get(PRIMARY_KEY.encode()) == b"true"
    ]
    if marked not in ([], ["object_id"]):
        raise CorruptGraphError(
            f"the manifest has another primary key already: {', '.join(marked)}", part="__manifest"
        )


# --- the tables of an old graph --------------------------------------------------------------


def _settled(root: Root, entry: TableEntry) -> TableEntry:
    """The same table, at its newest version if that has the very same rows and columns.

    0.7 leaves such versions behind, unpublished (a delete that met no row): to a writer of ours
    they would look like somebody else's unfinished work. Real ones stay, for repair to judge.
    """
    folder = branch_folder(entry.location, entry.branch)
    with reading(root, folder):
        pinned = dataset_at(root, folder, version=entry.version)
        newest = dataset_at(root, folder)
    same = newest.schema.equals(pinned.schema, check_metadata=True) and (
        fragment_keys(newest) == fragment_keys(pinned)
    )
    return replace(entry, version=int(newest.version)) if same else entry


class _OldTables:
    """Whether the tables of an old graph are whole and fit its schema, looked at beforehand.

    A migration does not touch tables, but it takes the graph from the release that could have
    repaired it. So every row of every version that a commit names is read once, each file only
    once.
    """

    def __init__(self, manifests: ManifestStore) -> None:
        self._manifests = manifests
        self._root = manifests.root
        self._pins: set[tuple[str, str | None, int]] = set()
        self._files: set[tuple[str, FragmentKey]] = set()

    def check(self, heads: Sequence[Opened]) -> None:
        """`CorruptGraphError` names the first table that is damaged or does not fit."""
        for head in heads:
            self._check_head(head)
        for head in heads:
            self._check_past(head)

    def _check_head(self, head: Opened) -> None:
        tail = self._manifests.legacy.tail(head)
        catalog = self._manifests.old_schemas.read(tail.schema.ir, tail.schema.source)
        _check_keys(catalog, tail.entries)
        for entity in catalog.types():
            entry = tail.entries[entity.table_key]
            stored = self._read(entry, needed=True)
            assert stored is not None, "a table of a head is there or it is an error"
            _check_columns(entry, stored, arrow_schema(entity))

    def _check_past(self, head: Opened) -> None:
        datasets = self._manifests.datasets
        for row in self._manifests.legacy.tail(head).commits:
            try:
                then = datasets.open_version(row.branch_id, row.commit.graph_manifest_version)
                entries = self._manifests.legacy.entries(then)
            except NotFoundError:
                continue  # cleaned up
            for entry in entries.values():
                self._read(entry, needed=False)

    def _read(self, entry: TableEntry, *, needed: bool) -> pa.Schema | None:
        """Read what was not read yet of the version; its columns, or None if it is gone."""
        folder = branch_folder(entry.location, entry.branch)
        file = f"{folder}/_versions/{version_file(entry.version)}"
        if not needed and not self._manifests.store.keys_beginning(file):
            return None
        with reading(self._root, folder):
            dataset = dataset_at(self._root, folder, version=entry.version)
            require_home(bases_of(dataset), self._root, folder)
            schema: pa.Schema = dataset.schema
            if entry.pin not in self._pins:
                self._pins.add(entry.pin)
                self._read_rows(entry, dataset)
        return schema

    def _read_rows(self, entry: TableEntry, dataset: Any) -> None:
        rows = int(dataset.count_rows())
        if rows != entry.row_count:
            raise CorruptGraphError(
                f"'{entry.table_key}' has {rows} rows at version {entry.version}, the manifest "
                f"says {entry.row_count}",
                part=entry.location,
            )
        for number, key in fragment_keys(dataset).items():
            if (entry.location, key) not in self._files:
                self._files.add((entry.location, key))
                for _ in dataset.get_fragment(number).to_batches():
                    pass


def _check_keys(catalog: Catalog, entries: Mapping[str, TableEntry]) -> None:
    wanted = {entity.table_key for entity in catalog.types()}
    for key in sorted(wanted ^ entries.keys()):
        told = "has no table" if key in wanted else "has a table, but the schema does not have it"
        raise CorruptGraphError(f"'{key}' {told}", part="__manifest", table_key=key)


def _check_columns(entry: TableEntry, stored: pa.Schema, wanted: pa.Schema) -> None:
    found = {column.name: column.type for column in standard_schema(stored)}
    for column in wanted:
        kind = found.pop(column.name, None)
        if kind is None or not kind.equals(column.type):
            told = "is missing" if kind is None else f"is {kind}"
            raise CorruptGraphError(
                f"column '{column.name}' of '{entry.table_key}' {told}, expected {column.type}",
                part=entry.location,
            )
    if found:
        raise CorruptGraphError(
            f"'{entry.table_key}' has the column '{min(found)}', which the schema does not know",
            part=entry.location,
        )
