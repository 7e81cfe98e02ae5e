"""The one place that brings old graphs to the format we write.

v1 → v2 annotates `object_id` as the primary key, v2 → v3 sweeps `__run__*` branches, v3 → v4 folds
the commit datasets and the schema files into the manifest. Each step commits strictly on what it
read and is decided by the stamp alone, so several processes may run them at once and any of them
may die anywhere: the next run goes on from there.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from omnigraph.errors import CorruptGraphError, NotFoundError, OmnigraphError, UnavailableError
from omnigraph.model.graph import MAIN, Commit
from omnigraph.model.limits import INTERNAL_SCHEMA_VERSION, MIGRATION_ROUNDS_MAX
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.steps import Step
from omnigraph.storage.legacy import (
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
    LegacyGraph,
    OldBranch,
    adopted_id,
    old_branches,
    old_entries,
)
from omnigraph.storage.manifest import check_stamp
from omnigraph.storage.manifest_dataset import LostRaceError, ManifestDatasets, Opened
from omnigraph.storage.manifest_rows import MIGRATED_KEY, PRIMARY_KEY, CommitRow, Tail, tail_table
from omnigraph.storage.objects import Root
from omnigraph.storage.ref_files import RefFiles, encode_ref, ref_key

logger = logging.getLogger(__name__)

MIGRATION_ACTOR: Final = "omnigraph:recovery"
_OLD_DATASETS: Final = (COMMITS, ACTORS, RUNS)
# The source goes last: as long as it is there, something may be left to remove.
_OLD_FILES: Final = (*(name + STAGING for name in SCHEMA_FILES), IR_FILE, STATE_FILE, SOURCE_FILE)


def migrate(root: Root, world: World, store: ObjectStore) -> int:
    """Bring the graph to the current format; gives the stamp it had. A current one costs a look.

    `UpgradeRequiredError` if a newer OmniGraph wrote it.
    """
    return _Migration(root, world, store).run()


class _Migration:
    def __init__(self, root: Root, world: World, store: ObjectStore) -> None:
        self._datasets = ManifestDatasets(root, world, store)
        self._legacy = LegacyGraph(root, store)
        self._refs = RefFiles(store, dict)
        self._world = world
        self._store = store

    def run(self) -> int:
        found: int | None = None
        for _ in range(MIGRATION_ROUNDS_MAX):
            main = self._datasets.open_latest(None)
            stamp = check_stamp(main)
            found = stamp if found is None else found
            if stamp == INTERNAL_SCHEMA_VERSION:
                self._remove_old_files(main)
                return found
            try:
                self._step(main, stamp)
            except LostRaceError:
                continue  # another process does the same: see how far it came
            except OmnigraphError:
                # It may have removed a file under our hands, which is no fault of the graph.
                if self._datasets.newest(main).version == main.version:
                    raise
        raise UnavailableError("other processes keep changing the graph that is to be migrated")

    def _step(self, main: Opened, stamp: int) -> None:
        match stamp:
            case 1:
                self._annotate(main)
            case 2:
                self._sweep(main)
            case 3:
                self._fold_all(main)
            case _:
                raise CorruptGraphError(
                    f"there never was an internal schema version {stamp}", part="__manifest"
                )
        logger.info("migrated", extra={"from": stamp, "to": stamp + 1})

    # --- v1 to v2 ----------------------------------------------------------------------------

    def _annotate(self, main: Opened) -> None:
        marked = [
            field.name
            for field in main.dataset.schema
            if (field.metadata or {}).get(PRIMARY_KEY.encode()) == b"true"
        ]
        if marked not in ([], ["object_id"]):
            raise CorruptGraphError(
                f"the manifest has another primary key already: {', '.join(marked)}",
                part="__manifest",
            )
        key = _field_id(main) if not marked else None
        self._datasets.annotate(main, stamp=2, primary_key=key)
        self._world.steps.reach(Step.MIGRATION_ANNOTATED)
        self._world.steps.reach(Step.MIGRATION_STAMPED)

    # --- v2 to v3 ----------------------------------------------------------------------------

    def _sweep(self, main: Opened) -> None:
        for name in sorted(self._datasets.branch_ids()):
            if name.startswith(RUN_PREFIX):
                self._datasets.drop(name)
                self._world.steps.reach(Step.MIGRATION_RUN_BRANCH_SWEPT)
        self._datasets.annotate(main, stamp=3)
        self._world.steps.reach(Step.MIGRATION_STAMPED)

    # --- v3 to v4 ----------------------------------------------------------------------------

    def _fold_all(self, main: Opened) -> None:
        """Every branch first; folding main is what makes the graph v4."""
        listed = self._datasets.branch_ids()
        if SCHEMA_LOCK_BRANCH in listed:  # the writer that held it is gone, and so is its format
            self._datasets.drop(SCHEMA_LOCK_BRANCH)
        known = {branch.name for branch in self._refs.others()}
        for old in old_branches(listed, stamp=main.stamp):
            if old.name not in known:
                self._fold_branch(old, main)
        self._fold(main, main)
        self._world.steps.reach(Step.MIGRATION_STAMPED)

    def _fold_branch(self, old: OldBranch, main: Opened) -> None:
        """Go on from the old branch under an id of ours; the old one keeps the past.

        Ids must be ours because names may hold what paths must not: `a` and `a/b` would share a
        folder. Of several processes that do this the first reference wins.
        """
        opened = self._datasets.open_latest(old.name)
        if check_stamp(opened) == INTERNAL_SCHEMA_VERSION:
            return  # made by a v4 writer: another process has migrated the graph meanwhile
        branch = replace(self._legacy.branch(old), id=adopted_id(self._world.ids.ulid()))
        assert branch.id is not None, "only main has no id"
        self._datasets.fork(opened, branch.id)
        self._world.steps.reach(Step.BRANCH_MANIFEST_FORKED)
        self._fold(self._datasets.open_latest(branch.id), opened)
        outrun = self._datasets.newest(main).version != main.version
        if outrun or not self._store.put_if_absent(ref_key(branch.name), encode_ref(branch)):
            self._datasets.drop(branch.id)
        if outrun:  # whoever migrated it may have deleted the branch by now
            raise LostRaceError("another process has migrated the graph")
        self._world.steps.reach(Step.BRANCH_REF_WRITTEN)

    def _fold(self, opened: Opened, old: Opened) -> None:
        """Replace the rows of the opened version by what the old one says in v4's words."""
        rows = self._datasets.all_rows(old)
        tail = self._legacy.tail(rows, branch_id=old.branch_id, version=old.version)
        if self._lost_a_commit(old, tail):
            tail = replace(tail, commits=(*tail.commits, self._found_commit(opened, old, tail)))
        table = tail_table(tail)
        metadata: dict[bytes, bytes] = dict(table.schema.metadata or {})
        metadata[MIGRATED_KEY.encode()] = str(opened.version + 1).encode()
        self._datasets.overwrite(opened, table.cast(table.schema.with_metadata(metadata)))
        self._world.steps.reach(Step.MIGRATION_FOLDED)

    def _lost_a_commit(self, old: Opened, tail: Tail) -> bool:
        """Whether tables moved past the last commit: v3 could die between its two writes."""
        last = tail.head
        at = last.commit.graph_manifest_version
        if at >= old.version or last.branch_id != old.branch_id:
            return False
        try:
            then = self._datasets.all_rows(self._datasets.open_version(old.branch_id, at))
        except NotFoundError:
            return False  # cleaned up: nothing to compare with
        return old_entries(then) != tail.entries

    def _found_commit(self, opened: Opened, old: Opened, tail: Tail) -> CommitRow:
        return CommitRow(
            commit=Commit(
                graph_commit_id=self._world.ids.ulid(),
                parent_commit_id=tail.head.id,
                merged_parent_commit_id=None,
                graph_branch=old.branch_id or MAIN,
                graph_manifest_version=opened.version + 1,
                actor_id=MIGRATION_ACTOR,
                created_at=self._world.clock.now_us(),
                properties={"message": "a publish whose commit format v3 had lost"},
            ),
            branch_id=opened.branch_id,
        )

    def _remove_old_files(self, main: Opened) -> None:
        if MIGRATED_KEY.encode() not in (main.dataset.schema.metadata or {}):
            return
        if self._store.read(SOURCE_FILE) is None:
            return
        for location in _OLD_DATASETS:
            if self._store.delete_prefix(location):
                self._world.steps.reach(Step.MIGRATION_OLD_FILE_REMOVED)
        for key in _OLD_FILES:
            if self._store.delete(key):
                self._world.steps.reach(Step.MIGRATION_OLD_FILE_REMOVED)


def _field_id(main: Opened) -> int | None:
    """The id of `object_id`; None if it may hold nulls, which Lance takes for no key."""
    if main.dataset.schema.field("object_id").nullable:
        return None
    fields = main.dataset.lance_schema.fields()
    return next(int(field.id()) for field in fields if field.name() == "object_id")
