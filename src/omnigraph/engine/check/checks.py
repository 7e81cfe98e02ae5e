"""All checks across the rows of a load: plan the tasks, run them, gather what they found.

A small load is one bucket in memory. A big one is cut into hash buckets by the tasks that staged
it, stored rows are cut in the same way, and one task judges one bucket: no keys come to the driver,
and no task reads what another one reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Final

import msgspec
import numpy as np
from msgspec import structs

from omnigraph.engine.arrow import ArrowTable, Ints, pa
from omnigraph.engine.check.bucket import MemoryBucket, Offences, TableChange, Terms
from omnigraph.engine.check.decide import Identity, Kind, Located, decide
from omnigraph.engine.check.keyfiles import (
    FileBucket,
    KeyIndex,
    Space,
    StoredTask,
    cut_stored,
    key_columns,
    key_names,
    read_cut,
    write_addresses,
    write_keys,
)
from omnigraph.engine.check.rules import rules_of
from omnigraph.engine.rows.columns import batch_schema
from omnigraph.engine.rows.parts import (
    GraphAccess,
    KeyFile,
    Part,
    Stored,
    fragment_groups,
    ordinal_of,
    part_of,
    row_number,
    scratch_folder,
)
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.limits import (
    CHECK_BUCKET_KEYS,
    CHECK_LOOKUP_ROWS_MAX,
    CHECK_SPREAD_KEYS,
    VIOLATIONS_LISTED_MAX,
)
from omnigraph.model.ports import Runner
from omnigraph.model.schema import Catalog, EdgeType, NodeType
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.table.table import Table

Wanted = Mapping[str, tuple[tuple[str, ...], ...]]  # by table: keys of stored rows to look at
ALL_KINDS: Final[tuple[Kind, ...]] = ("ids", "unique", "ends", "degrees")
_NONE: Final = np.empty(0, dtype=np.int64)


class CheckPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the checks of one load need to know: what is stored, the staged parts by table
    key, and the types that the load mentions, which an overwrite replaces as a whole."""

    access: GraphAccess
    catalog: Catalog
    snapshot: Snapshot
    mode: str
    parts: Mapping[str, tuple[Part, ...]]
    mentioned: frozenset[str]
    ghosts: Mapping[str, tuple[str, ...]]  # files with ids of refused records
    incomplete: frozenset[str]  # tables of which records were refused
    once: frozenset[str]  # tables that refuse repeated ids also in a merge
    buckets: int  # into which the keys were cut; 1: there are no key files
    list_all: bool

    def of(self, table_key: str) -> tuple[Part, ...]:
        return self.parts.get(table_key, ())

    def replaces(self, table_key: str) -> bool:
        return self.mode == "overwrite" and table_key in self.mentioned

    def fresh(self, table_key: str) -> bool:
        """Whether no id of the table's new rows can be met a second time."""
        return all(part.fresh_ids for part in self.of(table_key))

    @property
    def tables(self) -> frozenset[str]:
        return self.mentioned | self.parts.keys()

    def stored(self, table_key: str) -> TableEntry | None:
        """The stored rows that stay beside the staged ones; None if there are none."""
        if self.replaces(table_key):
            return None
        entry = self.snapshot.entries.get(table_key)
        return entry if entry is not None and entry.row_count else None

    def table(self, table_key: str) -> Table:
        """The stored table."""
        return self.access.table(self.snapshot.entries[table_key])

    def terms(self) -> dict[str, Terms]:
        merges = self.mode == "merge"
        return {
            key: Terms(
                entity=self.catalog.type_of(key),
                fresh=self.fresh(key),
                replaces_all=self.replaces(key),
                last_counts=merges and key not in self.once,
                strictly_new=self.mode == "append",
                locates=merges and self.stored(key) is not None,
                incomplete=key in self.incomplete,
            )
            for key in self.tables
        }

    def offences(self) -> Offences:
        return Offences(None if self.list_all else VIOLATIONS_LISTED_MAX)


class CheckAnswers(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What all buckets found together."""

    offences: Offences
    identities: Mapping[str, tuple[Identity, ...]]  # by table, one from each bucket
    tasks: int = 1

    def matched(self, table_key: str) -> int:
        """How many staged ids of the table are stored already."""
        return sum(one.matched for one in self.identities.get(table_key, ()))

    @cached_property
    def losers(self) -> dict[str, dict[int, Ints]]:
        """Rows that later ones of the same id overrule: table → part → ordinals."""
        return self._by_part(lambda one: one.losers)

    @cached_property
    def refused(self) -> dict[str, dict[int, Ints]]:
        """Rows that may not have their ids: table → part → ordinals."""
        return self._by_part(lambda one: one.refused)

    def _by_part(self, chosen: Callable[[Identity], Ints]) -> dict[str, dict[int, Ints]]:
        found = {}
        for key, identities in self.identities.items():
            rows = np.sort(np.concatenate([_NONE, *(chosen(one) for one in identities)]))
            if len(rows):
                found[key] = by_part(rows)
        return found

    def matches(self, table_key: str) -> dict[int, Located]:
        """Which staged rows of the table, by part and ordinal, replace which stored ones."""
        found = [one.located for one in self.identities.get(table_key, ()) if one.located]
        rows = np.concatenate([_NONE, *(one.rows for one in found)])
        row_ids = np.concatenate([_NONE, *(one.row_ids for one in found)])
        addresses = np.concatenate([_NONE, *(one.addresses for one in found)])
        numbers, ordinals = part_of(rows), ordinal_of(rows)
        return {
            int(one): Located(
                rows=ordinals[here := numbers == one],
                row_ids=row_ids[here],
                addresses=addresses[here],
            )
            for one in np.unique(numbers)
        }


def by_part(rows: Ints) -> dict[int, Ints]:
    """The rows of each part, by their ordinals."""
    numbers = part_of(rows)
    return {int(one): ordinal_of(rows[numbers == one]) for one in np.unique(numbers)}


def run_checks(runner: Runner, plan: CheckPlan) -> CheckAnswers:
    """Check the staged rows against each other and against the stored ones."""
    if _fits_in_memory(plan):
        return runner.run([plan], check_in_memory, stage="check")[0]
    folder = scratch_folder(plan.access.uri)
    try:
        return _Buckets(runner, plan, folder).answers()
    finally:
        FileAccess(environ=plan.access.environ).remove_folder(folder)


def _fits_in_memory(plan: CheckPlan) -> bool:
    """Whether one bucket will do: the load was cut into one, or is small enough to be held in
    memory, and does not make us read all of a big table."""
    if plan.buckets == 1:
        return True
    parts = [part for some in plan.parts.values() for part in some]
    if any(part.entry is not None for part in parts):
        return False
    stored = sum(entry.row_count for entry in plan.snapshot.entries.values())
    new = sum(part.rows for part in parts)
    return new <= CHECK_LOOKUP_ROWS_MAX or stored <= CHECK_BUCKET_KEYS


# --- one bucket -------------------------------------------------------------------------------


def check_in_memory(plan: CheckPlan) -> CheckAnswers:
    """All checks of a small load at once; stored rows are looked up."""
    changes: dict[str, TableChange] = {}
    numbers: dict[str, Ints] = {}
    for key, one in plan.terms().items():
        rows, numbers[key] = _new_rows(plan, key)
        refused = _ghost_ids(plan, key)
        changes[key] = TableChange(**structs.asdict(one), rows=rows, refused=refused)
    offences = plan.offences()
    bucket = MemoryBucket(changes, Stored(plan.snapshot, plan.table), numbers)
    identities = decide(bucket, changes, plan.catalog, ALL_KINDS, offences)
    found = {key: (one,) for key, one in identities.items()}
    return CheckAnswers(offences=offences, identities=found)


def _new_rows(plan: CheckPlan, key: str) -> tuple[ArrowTable, Ints]:
    """The key columns of the table's staged rows that checks look at, and their numbers."""
    entity = plan.catalog.type_of(key)
    names = key_names(entity)
    tables: list[ArrowTable] = []
    numbers = [_NONE]
    for part in plan.of(key):
        ordinals = np.arange(part.rows, dtype=np.int64)
        stays = part.judged(ordinals)
        tables.append(part.columns(plan.access, names).filter(pa.array(stays)))
        numbers.append(row_number(part.number, ordinals[stays]))
    none = batch_schema(entity).empty_table().select(names)
    return pa.concat_tables(tables) if tables else none, np.concatenate(numbers)


def _ghost_ids(plan: CheckPlan, key: str) -> frozenset[str]:
    files = FileAccess(environ=plan.access.environ)
    ghosts = plan.ghosts.get(key, ())
    found = [read_cut(files, address)["id"] for address in ghosts]
    return frozenset(str(one) for some in found for one in some.to_pylist())


# --- many buckets -----------------------------------------------------------------------------


class BucketJob(msgspec.Struct, frozen=True, kw_only=True):
    """What the check tasks of one load share; a task itself is a range of bucket numbers."""

    files: FileAccess
    catalog: Catalog
    terms: Mapping[str, Terms]
    kinds: tuple[Kind, ...]
    index: str  # the address of the `KeyIndex`
    listed_max: int | None


def check_buckets(job: BucketJob, buckets: range) -> tuple[Offences, dict[str, Identity]]:
    """Everything that is wrong in some buckets, and what is known of ids."""
    bucket = FileBucket(job.files, KeyIndex.read(job.files, job.index), buckets)
    offences = Offences(job.listed_max)
    return offences, decide(bucket, job.terms, job.catalog, job.kinds, offences)


class _Buckets:
    """The checks of one load whose keys lie in files."""

    def __init__(self, runner: Runner, plan: CheckPlan, folder: str) -> None:
        self._runner, self._plan, self._folder = runner, plan, folder
        self._files = FileAccess(environ=plan.access.environ)
        self._offences = plan.offences()
        self._tasks = 0

    def answers(self) -> CheckAnswers:
        if not self._replacing():
            return self._run(ALL_KINDS, {})
        # Which stored rows stay is only known when all ids are.
        first = self._run(("ids", "ends"), {})
        if first.losers:
            return first  # these rows go, and everything is checked again
        replaced = {
            key: np.sort(np.concatenate([_NONE, *(one.addresses for one in found)]))
            for key in self._plan.parts
            if (found := first.matches(key).values())
        }
        second = self._run(("unique", "degrees"), replaced)
        return structs.replace(second, identities=first.identities)

    def _replacing(self) -> bool:
        """Whether a rule about stored rows depends on which of them the load replaces."""
        plan = self._plan
        if plan.mode != "merge":
            return False
        for key in plan.parts:
            rules = rules_of(plan.catalog.type_of(key))
            ruled = rules.unique or rules.out_degree
            if ruled and plan.stored(key) and not plan.fresh(key):
                return True
        return False

    def _run(self, kinds: tuple[Kind, ...], replaced: Mapping[str, Ints]) -> CheckAnswers:
        plan, wanted = self._plan, self._wanted(kinds)
        job = BucketJob(
            files=self._files,
            catalog=plan.catalog,
            terms=plan.terms(),
            kinds=kinds,
            index=self._index(wanted, kinds, replaced).write(self._files, self._folder),
            listed_max=self._offences.listed_max,
        )
        tasks = list(self._ranges(wanted))
        self._tasks += len(tasks)
        found: dict[str, tuple[Identity, ...]] = {}
        answers = self._runner.run(tasks, partial(check_buckets, job), stage="check")
        for offences, identities in answers:
            self._offences.merge(offences)
            for key, identity in identities.items():
                found[key] = (*found.get(key, ()), identity)
        return CheckAnswers(offences=self._offences, identities=found, tasks=self._tasks)

    def _ranges(self, wanted: Wanted) -> Iterator[range]:
        """Runs of buckets: enough of them for memory, and for all processors if it pays."""
        plan = self._plan
        keys = 0
        for key, parts in plan.parts.items():
            columns = key_columns(self._plan.catalog.type_of(key))
            keys += len(columns) * sum(part.rows for part in parts)
        for key, spaces in wanted.items():
            keys += len(spaces) * self._plan.snapshot.entries[key].row_count
        spread = min(self._runner.parallelism, keys // CHECK_SPREAD_KEYS)
        tasks = min(max(1, spread, -(-keys // CHECK_BUCKET_KEYS)), plan.buckets)
        for task in range(tasks):
            yield range(plan.buckets * task // tasks, plan.buckets * (task + 1) // tasks)

    def _index(
        self,
        wanted: Wanted,
        kinds: Sequence[Kind],
        replaced: Mapping[str, Ints],
    ) -> KeyIndex:
        plan = self._plan
        new: dict[Space, tuple[str, ...]] = {}
        for key, parts in plan.parts.items():
            for part in parts:
                for one in part.keys or self._keys_of(part):
                    assert one.count == plan.buckets, "all keys of a load are cut alike"
                    new[key, one.by] = (*new.get((key, one.by), ()), one.address)
        return KeyIndex(
            new=new,
            stored=self._cut_stored(wanted, kinds, replaced),
            refused=plan.ghosts,
            left_out={
                key: tuple((part.number, part.left_out) for part in parts if part.left_out)
                for key, parts in plan.parts.items()
            },
        )

    def _keys_of(self, part: Part) -> tuple[KeyFile, ...]:
        """The keys of rows that staging held in memory, also if they were written since then."""
        entity = self._plan.catalog.type_of(part.table_key)
        return write_keys(
            self._files,
            self._folder,
            entity,
            part.columns(self._plan.access, key_names(entity)),
            first=part.first_row,
            fresh=part.fresh_ids,
            count=self._plan.buckets,
        )

    def _cut_stored(
        self, wanted: Wanted, kinds: Sequence[Kind], replaced: Mapping[str, Ints]
    ) -> dict[Space, tuple[str, ...]]:
        tasks = [
            task
            for key in sorted(wanted)
            for task in self._stored_tasks(key, wanted[key], kinds, replaced.get(key, _NONE))
        ]
        self._tasks += len(tasks)
        stored: dict[Space, tuple[str, ...]] = {}
        answers = self._runner.run(tasks, cut_stored, stage="stored keys")
        for task, answer in zip(tasks, answers, strict=True):
            for by, address in answer.items():
                space = (task.group.entry.table_key, by)
                stored[space] = (*stored.get(space, ()), address)
        return stored

    def _stored_tasks(
        self, key: str, spaces: tuple[tuple[str, ...], ...], kinds: Sequence[Kind], replaced: Ints
    ) -> Iterator[StoredTask]:
        fragments = replaced >> 32
        for group in fragment_groups(self._plan.table(key)):
            yield StoredTask(
                access=self._plan.access,
                group=group,
                keys=spaces,
                located="ids" in kinds and self._plan.mode == "merge",
                replaced=write_addresses(
                    self._files, self._folder, replaced[np.isin(fragments, group.fragments)]
                ),
                left="degrees" in kinds and isinstance(self._plan.catalog.type_of(key), EdgeType),
                count=self._plan.buckets,
                folder=self._folder,
            )

    def _wanted(self, kinds: Sequence[Kind]) -> Wanted:
        found: dict[str, tuple[tuple[str, ...], ...]] = {}
        for key, by in dict.fromkeys(self._asked_of_stored(kinds)):
            if self._plan.stored(key) is not None:
                found[key] = (*found.get(key, ()), by)
        return found

    def _asked_of_stored(self, kinds: Sequence[Kind]) -> Iterator[Space]:
        plan, catalog = self._plan, self._plan.catalog
        for key in sorted(plan.tables):
            entity, rules = catalog.type_of(key), rules_of(catalog.type_of(key))
            if isinstance(entity, NodeType) and "ends" in kinds and plan.replaces(key):
                for edge in catalog.edges_touching(entity.name):
                    for end in rules_of(edge).endpoints:
                        if end.node_type == entity.name:
                            yield edge.table_key, (end.column,)
            if not plan.of(key):
                continue
            if "ids" in kinds and not plan.fresh(key):
                yield key, ("id",)
            for end in rules.endpoints if "ends" in kinds else ():
                yield f"node:{end.node_type}", ("id",)
            for unique in rules.unique if "unique" in kinds else ():
                yield key, unique.columns
            if rules.out_degree and "degrees" in kinds:
                yield key, ("src",)
