"""All checks across rows, as one distributed job: plan the tasks, run them, read the findings.

The rules come from the same description as the in-process evaluator's, and so do the words. Key
spaces are cut into ranges of bounded size; no keys come to the driver, only what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph.engine.write.constraints import Unique, rules_of
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.limits import CHECK_LOOKUP_KEYS_MAX, CHECK_RANGE_KEYS, SAMPLES_PER_CHUNK
from omnigraph.model.schema import Catalog, NodeType
from omnigraph.pipeline.fanout import fan_out
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.idchecks import check_ids
from omnigraph.pipeline.idtasks import Degree, End, IdAnswer, IdTask
from omnigraph.pipeline.parts import GraphAccess, KeyRange, Part, ranges_of, scratch_folder
from omnigraph.pipeline.progress import Listener
from omnigraph.pipeline.sorting import with_sorted_keys
from omnigraph.pipeline.uniquechecks import (
    UniqueAnswer,
    UniqueTask,
    absent_ids,
    check_unique_range,
)

_SPREAD_KEYS = 500_000  # fewer than this are not worth a second task


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The staged side of a load: parts by table key, and the types it replaces as a whole."""

    mode: str
    parts: Mapping[str, tuple[Part, ...]]
    mentioned: frozenset[str]
    ghosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids of refused records
    incomplete: frozenset[str] = frozenset()  # tables of which records were refused

    def of(self, table_key: str) -> tuple[Part, ...]:
        return self.parts.get(table_key, ())

    def replaces(self, table_key: str) -> bool:
        return self.mode == "overwrite" and table_key in self.mentioned

    def rows(self, table_key: str) -> int:
        return sum(part.rows for part in self.of(table_key))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """Everything the checks of one load need to know."""

    access: GraphAccess
    catalog: Catalog
    snapshot: Snapshot
    staged: Staged
    parallelism: int
    list_all: bool

    def stored(self, table_key: str) -> TableEntry | None:
        """The stored rows that stay beside the staged ones; None if there are none."""
        if self.staged.replaces(table_key):
            return None
        entry = self.snapshot.entries.get(table_key)
        return entry if entry is not None and entry.row_count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswers:
    """What all tasks found, by table; unique answers by table and rule."""

    ids: tuple[tuple[str, IdAnswer], ...] = ()
    unique: tuple[tuple[str, Unique, UniqueAnswer], ...] = ()
    tasks: int = 0
    losers: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)
    refused: Mapping[str, Mapping[int, Any]] = field(default_factory=dict)

    def matched(self, table_key: str) -> int:
        """How many staged ids of the table are stored already."""
        return sum(answer.matched for key, answer in self.ids if key == table_key)


def run_checks(
    spark: SparkSession | None, plan: CheckPlan, listener: Listener | None = None
) -> CheckAnswers:
    """Check the staged rows against each other and against the stored ones."""
    folder = scratch_folder(plan.access.uri)
    ids = with_sorted_keys(spark, list(_id_tasks(plan)), folder)
    unique = list(_unique_tasks(plan))
    tasks: list[Any] = [*ids, *(task for _, task in unique)]
    try:
        answers = fan_out(spark, tasks, _checked, stage="check", listener=listener)
    finally:
        FileAccess(environ=plan.access.environ).remove_folder(folder)
    by_table = tuple(
        (task.table_key, answer) for task, answer in zip(ids, answers[: len(ids)], strict=True)
    )
    by_rule = tuple(
        (task.table_key, rule, answer)
        for (rule, task), answer in zip(unique, answers[len(ids) :], strict=True)
    )
    return CheckAnswers(
        ids=by_table,
        unique=_unshadowed(spark, plan, by_rule),
        tasks=len(tasks),
        losers=_gathered((key, answer.losers) for key, answer in by_table),
        refused=_gathered((key, answer.refused) for key, answer in by_table),
    )


def _checked(task: Any) -> Any:
    return check_ids(task) if isinstance(task, IdTask) else check_unique_range(task)


def _gathered(
    answers: Iterable[tuple[str, Sequence[tuple[int, Any]]]],
) -> dict[str, dict[int, Any]]:
    """Rows that have to go, of all ranges together: table → part → ordinals."""
    gone: dict[str, dict[int, Any]] = {}
    for key, some in answers:
        for number, ordinals in some:
            parts = gone.setdefault(key, {})
            known = parts.get(number)
            parts[number] = ordinals if known is None else np.concatenate([known, ordinals])
    return gone


# --- ids, ends and degrees --------------------------------------------------------------------


def _id_tasks(plan: CheckPlan) -> Iterator[IdTask]:
    for entity in plan.catalog.types():
        key = entity.table_key
        parts = plan.staged.of(key)
        if isinstance(entity, NodeType):
            ends, degrees = tuple(_ends(plan, entity)), tuple(_degree_rules(plan, entity))
            if not parts and not ends and not degrees:
                continue
        else:
            ends, degrees = (), ()
            parts = tuple(part for part in parts if not part.fresh_ids)
            if not parts:
                continue
        stored = plan.stored(key)
        incoming = sum(part.rows for part in parts)
        incoming += sum(part.rows for end in ends for part in end.parts)
        whole = IdTask(
            access=plan.access,
            table_key=key,
            within=KeyRange(),
            parts=parts,
            stored=stored,
            unique=plan.staged.mode != "merge",
            fresh_only=plan.staged.mode == "append",
            ends=ends,
            degrees=degrees,
            list_all=plan.list_all,
            locate=plan.staged.mode == "merge" and stored is not None,
            ghosts=plan.staged.ghosts.get(key, ()),
            lookup=incoming <= CHECK_LOOKUP_KEYS_MAX and not any(end.kept for end in ends),
        )
        held = sum(part.rows for part in parts)
        if not whole.lookup:
            held += stored.row_count if stored else 0
        for within in _ranges(plan, "id", parts, stored, held=held, passing=incoming):
            yield replace(whole, within=within)


def _ends(plan: CheckPlan, node: NodeType) -> Iterator[End]:
    for edge in plan.catalog.edges_touching(node.name):
        parts = plan.staged.of(edge.table_key)
        kept = plan.stored(edge.table_key) if plan.staged.replaces(node.table_key) else None
        for rule in rules_of(edge).endpoints:
            if rule.node_type == node.name and (parts or kept):
                yield End(
                    table_key=edge.table_key,
                    column=rule.column,
                    parts=parts,
                    kept=kept,
                )


def _degree_rules(plan: CheckPlan, node: NodeType) -> Iterator[Degree]:
    for edge in plan.catalog.edges_touching(node.name):
        rule = rules_of(edge).out_degree
        parts = plan.staged.of(edge.table_key)
        if rule is not None and edge.from_type == node.name and parts:
            yield Degree(
                table_key=edge.table_key,
                parts=parts,
                stored=plan.stored(edge.table_key),
                shadowing=plan.staged.mode == "merge",
                # Where records were refused, too few edges prove nothing.
                minimum=0 if edge.table_key in plan.staged.incomplete else rule.minimum,
                maximum=rule.maximum,
            )


# --- uniqueness -------------------------------------------------------------------------------


def _unique_tasks(plan: CheckPlan) -> Iterator[tuple[Unique, UniqueTask]]:
    for entity in plan.catalog.types():
        parts = plan.staged.of(entity.table_key)
        if not parts:
            continue
        stored = plan.stored(entity.table_key)
        held = sum(part.rows for part in parts) + (stored.row_count if stored else 0)
        for rule in rules_of(entity).unique:
            whole = UniqueTask(
                access=plan.access,
                table_key=entity.table_key,
                columns=rule.columns,
                within=KeyRange(),
                parts=parts,
                stored=stored,
                list_all=plan.list_all,
            )
            for within in _ranges(plan, rule.label, parts, None, held=held, passing=0):
                yield rule, replace(whole, within=within)


def _unshadowed(
    spark: SparkSession | None, plan: CheckPlan, answers: Sequence[tuple[str, Unique, UniqueAnswer]]
) -> tuple[tuple[str, Unique, UniqueAnswer], ...]:
    """The answers without clashes with stored rows that the load itself replaces."""
    if plan.staged.mode != "merge":
        return tuple(answers)
    kept: list[tuple[str, Unique, UniqueAnswer]] = []
    for key, rule, answer in answers:
        holders = sorted({clash.holder_id for clash in answer.stored})
        if holders:
            asked = (plan.access, plan.staged.of(key), pa.array(holders, pa.string()))
            staying = set(fan_out(spark, [asked], absent_ids, stage="check")[0].to_pylist())
            clashes = tuple(clash for clash in answer.stored if clash.holder_id in staying)
            answer = replace(answer, stored=clashes)
        kept.append((key, rule, answer))
    return tuple(kept)


# --- ranges -----------------------------------------------------------------------------------


def _ranges(
    plan: CheckPlan,
    label: str,
    parts: Sequence[Part],
    stored: TableEntry | None,
    *,
    held: int,
    passing: int,
) -> Iterator[KeyRange]:
    """Ranges of about equal size: enough of them for memory, and for all cores if it pays."""
    wanted = max(
        -(-held // CHECK_RANGE_KEYS), min(plan.parallelism, (held + passing) // _SPREAD_KEYS)
    )
    if wanted <= 1:
        yield KeyRange()
        return
    samples = [key for part in parts for key in part.samples.get(label, ())]
    if stored is not None:
        samples += _stored_samples(plan.access, stored, wanted * SAMPLES_PER_CHUNK)
    ordered = sorted(samples)
    cuts = {ordered[len(ordered) * i // wanted] for i in range(1, wanted)} if ordered else set()
    yield from ranges_of(sorted(cuts))


def _stored_samples(access: GraphAccess, entry: TableEntry, wanted: int) -> list[str]:
    table = access.table(entry)
    step = max(1, entry.row_count // wanted)
    return [
        str(key)
        for offset in range(0, entry.row_count, step)
        for key in table.read(columns=["id"], offset=offset, limit=1)["id"].to_pylist()
    ]
