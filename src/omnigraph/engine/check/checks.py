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

from omnigraph.engine.arrow import ArrowTable, Ints, pa
from omnigraph.engine.check.bucket import MemoryBucket, Offences
from omnigraph.engine.check.change import TableChange, Terms
from omnigraph.engine.check.decide import Identity, Kind, decide
from omnigraph.engine.check.keyfiles import (
    FileBucket,
    KeyIndex,
    Space,
    StoredKeys,
    StoredTask,
    cut_stored,
    key_columns,
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

ALL_KINDS: Final[tuple[Kind, ...]] = ("ids", "unique", "ends", "degrees")
_NONE: Final = np.empty(0, dtype=np.int64)


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """The staged side of a load: parts by table key, and the types it replaces as a whole."""

    mode: str
    parts: Mapping[str, tuple[Part, ...]]
    mentioned: frozenset[str]
    # Ids of refused records
    ghosts: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    incomplete: frozenset[str] = frozenset()  # tables of which records were refused
    once: frozenset[str] = frozenset()  # tables that refuse repeated ids also in a merge
    buckets: int = 1  # into which the keys were cut; 1: there are no key files

    def of(self, table_key: str) -> tuple[Part, ...]:
        return self.parts.get(table_key, ())

    def part(self, table_key: str, number: int) -> Part:
        return next(part for part in self.of(table_key) if part.number == number)

    def replaces(self, table_key: str) -> bool:
        return self.mode == "overwrite" and table_key in self.mentioned

    def fresh(self, table_key: str) -> bool:
        """Whether no id of the table's new rows can be met a second time."""
        return all(part.fresh_ids for part in self.of(table_key))

    @property
    def tables(self) -> frozenset[str]:
        return self.mentioned | self.parts.keys()


class CheckPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the checks of one load need to know."""

    access: GraphAccess
    catalog: Catalog
    snapshot: Snapshot
    staged: Staged
    list_all: bool

    def stored(self, table_key: str) -> TableEntry | None:
        """The stored rows that stay beside the staged ones; None if there are none."""
        if self.staged.replaces(table_key):
            return None
        entry = self.snapshot.entries.get(table_key)
        return entry if entry is not None and entry.row_count else None

    def terms(self) -> dict[str, Terms]:
        staged = self.staged
        merges = staged.mode == "merge"
        return {
            key: Terms(
                entity=self.catalog.type_of(key),
                fresh=staged.fresh(key),
                replaces_all=staged.replaces(key),
                last_counts=merges and key not in staged.once,
                strictly_new=staged.mode == "append",
                locates=merges and self.stored(key) is not None,
                incomplete=key in staged.incomplete,
            )
            for key in staged.tables
        }

    def offences(self) -> Offences:
        return Offences(None if self.list_all else VIOLATIONS_LISTED_MAX)


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Staged rows of one part that are new images of stored rows: where each of those is."""

    part: int
    ordinals: Ints
    row_ids: Ints
    addresses: Ints


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
                numbers = part_of(rows)
                found[key] = {
                    int(number): ordinal_of(rows[numbers == number])
                    for number in np.unique(numbers)
                }
        return found

    def matches(self, table_key: str) -> Iterator[Match]:
        """Which staged rows of the table replace which stored ones."""
        for identity in self.identities.get(table_key, ()):
            if (located := identity.located) is None:
                continue
            numbers = part_of(located.rows)
            for number in np.unique(numbers):
                here = numbers == number
                yield Match(
                    part=int(number),
                    ordinals=ordinal_of(located.rows[here]),
                    row_ids=located.row_ids[here],
                    addresses=located.addresses[here],
                )


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
    if plan.staged.buckets == 1:
        return True
    parts = [part for some in plan.staged.parts.values() for part in some]
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
    terms = plan.terms()
    for key, one in terms.items():
        rows, numbers[key] = _new_rows(plan, key)
        changes[key] = TableChange(
            entity=one.entity,
            rows=rows,
            fresh=one.fresh,
            replaces_all=one.replaces_all,
            refused=_ghost_ids(plan, key),
            incomplete=one.incomplete,
        )
    offences = plan.offences()
    bucket = MemoryBucket(
        changes,
        Stored(plan.snapshot, lambda key: plan.access.table(plan.snapshot.entries[key])),
        numbers,
    )
    identities = decide(bucket, terms, plan.catalog, ALL_KINDS, offences)
    return CheckAnswers(
        offences=offences, identities={key: (one,) for key, one in identities.items()}
    )


def _new_rows(plan: CheckPlan, key: str) -> tuple[ArrowTable, Ints]:
    """The key columns of the table's staged rows that checks look at, and their numbers."""
    entity = plan.catalog.type_of(key)
    names = list(dict.fromkeys(name for by in key_columns(entity) for name in by))
    tables: list[ArrowTable] = []
    numbers = [_NONE]
    for part in plan.staged.of(key):
        ordinals = np.arange(part.rows, dtype=np.int64)
        stays = part.judged(ordinals)
        tables.append(part.columns(plan.access, names).filter(pa.array(stays)))
        numbers.append(row_number(part.number, ordinals[stays]))
    none = batch_schema(entity).empty_table().select(names)
    return pa.concat_tables(tables) if tables else none, np.concatenate(numbers)


def _ghost_ids(plan: CheckPlan, key: str) -> frozenset[str]:
    files = FileAccess(environ=plan.access.environ)
    ghosts = plan.staged.ghosts.get(key, ())
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


class BucketAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one task found."""

    offences: Offences
    identities: Mapping[str, Identity]


def check_buckets(job: BucketJob, buckets: range) -> BucketAnswer:
    """Everything that is wrong in some buckets."""
    index = KeyIndex.read(job.files, job.index)
    bucket = FileBucket(job.files, index, buckets, keys_at_once=CHECK_BUCKET_KEYS)
    offences = Offences(job.listed_max)
    identities = decide(bucket, job.terms, job.catalog, job.kinds, offences)
    return BucketAnswer(offences=offences, identities=identities)


class _Buckets:
    """The checks of one load whose keys lie in files."""

    def __init__(self, runner: Runner, plan: CheckPlan, folder: str) -> None:
        self._runner, self._plan, self._folder = runner, plan, folder
        self._files = FileAccess(environ=plan.access.environ)
        self._tasks = 0

    def answers(self) -> CheckAnswers:
        offences = self._plan.offences()
        if not self._replacing():
            identities = self._run(ALL_KINDS, offences, {})
            return self._answer(offences, identities)
        # Which stored rows stay is only known when all ids are.
        identities = self._run(("ids", "ends"), offences, {})
        answer = self._answer(offences, identities)
        if answer.losers:
            return answer  # these rows go, and everything is checked again
        replaced = {
            key: np.sort(np.concatenate([_NONE, *(m.addresses for m in answer.matches(key))]))
            for key in self._plan.staged.parts
        }
        self._run(("unique", "degrees"), offences, replaced)
        return self._answer(offences, identities)

    def _answer(
        self, offences: Offences, identities: Mapping[str, tuple[Identity, ...]]
    ) -> CheckAnswers:
        return CheckAnswers(offences=offences, identities=identities, tasks=self._tasks)

    def _replacing(self) -> bool:
        """Whether a rule about stored rows depends on which of them the load replaces."""
        staged = self._plan.staged
        if staged.mode != "merge":
            return False
        for key in staged.parts:
            rules = rules_of(self._plan.catalog.type_of(key))
            ruled = rules.unique or rules.out_degree
            if ruled and self._plan.stored(key) and not staged.fresh(key):
                return True
        return False

    def _run(
        self, kinds: tuple[Kind, ...], offences: Offences, replaced: Mapping[str, Ints]
    ) -> dict[str, tuple[Identity, ...]]:
        plan = self._plan
        wanted = {key: tuple(spaces) for key, spaces in self._stored_spaces(kinds).items()}
        job = BucketJob(
            files=self._files,
            catalog=plan.catalog,
            terms=plan.terms(),
            kinds=kinds,
            index=self._index(wanted, kinds, replaced).write(self._files, self._folder),
            listed_max=offences.listed_max,
        )
        tasks = list(self._ranges(wanted))
        self._tasks += len(tasks)
        found: dict[str, tuple[Identity, ...]] = {}
        for answer in self._runner.run(tasks, partial(check_buckets, job), stage="check"):
            offences.merge(answer.offences)
            for key, identity in answer.identities.items():
                found[key] = (*found.get(key, ()), identity)
        return found

    def _ranges(self, wanted: Mapping[str, Sequence[tuple[str, ...]]]) -> Iterator[range]:
        """Runs of buckets: enough of them for memory, and for all processors if it pays."""
        staged = self._plan.staged
        keys = 0
        for key, parts in staged.parts.items():
            columns = list(key_columns(self._plan.catalog.type_of(key)))
            keys += len(columns) * sum(part.rows for part in parts)
        for key, spaces in wanted.items():
            keys += len(spaces) * self._plan.snapshot.entries[key].row_count
        spread = min(self._runner.parallelism, keys // CHECK_SPREAD_KEYS)
        tasks = min(max(1, spread, -(-keys // CHECK_BUCKET_KEYS)), staged.buckets)
        for task in range(tasks):
            yield range(staged.buckets * task // tasks, staged.buckets * (task + 1) // tasks)

    def _index(
        self,
        wanted: Mapping[str, tuple[tuple[str, ...], ...]],
        kinds: Sequence[Kind],
        replaced: Mapping[str, Ints],
    ) -> KeyIndex:
        staged = self._plan.staged
        new: dict[Space, list[str]] = {}
        for key, parts in staged.parts.items():
            for part in parts:
                for one in part.keys or self._keys_of(part):
                    assert one.count == staged.buckets, "all keys of a load are cut alike"
                    new.setdefault((key, one.by), []).append(one.address)
        stored, left = self._cut_stored(wanted, kinds, replaced)
        return KeyIndex(
            new={space: tuple(some) for space, some in new.items()},
            stored={space: tuple(some) for space, some in stored.items()},
            left={key: tuple(some) for key, some in left.items()},
            refused=staged.ghosts,
            left_out={
                key: tuple((part.number, part.left_out) for part in parts if part.left_out)
                for key, parts in staged.parts.items()
            },
        )

    def _keys_of(self, part: Part) -> tuple[KeyFile, ...]:
        """The keys of rows that staging held in memory, also if they were written since then."""
        entity = self._plan.catalog.type_of(part.table_key)
        names = list(dict.fromkeys(name for by in key_columns(entity) for name in by))
        return write_keys(
            self._files,
            self._folder,
            entity,
            part.columns(self._plan.access, names),
            first=part.first_row,
            fresh=part.fresh_ids,
            count=self._plan.staged.buckets,
        )

    def _cut_stored(
        self,
        wanted: Mapping[str, tuple[tuple[str, ...], ...]],
        kinds: Sequence[Kind],
        replaced: Mapping[str, Ints],
    ) -> tuple[dict[Space, list[str]], dict[str, list[str]]]:
        tasks = [
            task
            for key in sorted(wanted)
            for task in self._stored_tasks(key, wanted[key], kinds, replaced.get(key, _NONE))
        ]
        self._tasks += len(tasks)
        stored: dict[Space, list[str]] = {}
        left: dict[str, list[str]] = {}
        answers: list[StoredKeys] = self._runner.run(tasks, cut_stored, stage="stored keys")
        for task, answer in zip(tasks, answers, strict=True):
            key = task.group.entry.table_key
            for by, address in answer.files.items():
                stored.setdefault((key, by), []).append(address)
            if answer.left is not None:
                left.setdefault(key, []).append(answer.left)
        return stored, left

    def _stored_tasks(
        self, key: str, spaces: tuple[tuple[str, ...], ...], kinds: Sequence[Kind], replaced: Ints
    ) -> Iterator[StoredTask]:
        entry = self._plan.snapshot.entries[key]
        fragments = replaced >> 32
        for group in fragment_groups(self._plan.access.table(entry)):
            yield StoredTask(
                access=self._plan.access,
                group=group,
                keys=spaces,
                located="ids" in kinds and self._plan.staged.mode == "merge",
                replaced=write_addresses(
                    self._files, self._folder, replaced[np.isin(fragments, group.fragments)]
                ),
                left="degrees" in kinds and isinstance(self._plan.catalog.type_of(key), EdgeType),
                count=self._plan.staged.buckets,
                folder=self._folder,
            )

    def _stored_spaces(self, kinds: Sequence[Kind]) -> dict[str, dict[tuple[str, ...], None]]:
        """The keys of stored rows that these checks look at, by table."""
        found: dict[str, dict[tuple[str, ...], None]] = {}
        for key, by in self._asked_of_stored(kinds):
            if self._plan.stored(key) is not None:
                found.setdefault(key, {})[by] = None
        return found

    def _asked_of_stored(self, kinds: Sequence[Kind]) -> Iterator[Space]:
        catalog, staged = self._plan.catalog, self._plan.staged
        for key in sorted(staged.tables):
            entity, rules = catalog.type_of(key), rules_of(catalog.type_of(key))
            if isinstance(entity, NodeType) and "ends" in kinds and staged.replaces(key):
                for edge in catalog.edges_touching(entity.name):
                    for end in rules_of(edge).endpoints:
                        if end.node_type == entity.name:
                            yield edge.table_key, (end.column,)
            if not staged.of(key):
                continue
            if "ids" in kinds and not staged.fresh(key):
                yield key, ("id",)
            for end in rules.endpoints if "ends" in kinds else ():
                yield f"node:{end.node_type}", ("id",)
            for unique in rules.unique if "unique" in kinds else ():
                yield key, unique.columns
            if rules.out_degree and "degrees" in kinds:
                yield key, ("src",)
