"""The bulk load: stage → validate → publish, as one commit of kind Load.

Staging writes fragments that nobody sees; checks run over key columns; then the one writer commits
everything at once. If the graph moved on meanwhile, the checks run again on what is staged already:
the input is read once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import SparkSession

from omnigraph.engine.core import Core, OpenMode, open_core
from omnigraph.engine.embed import EmbedConfig, environment_config
from omnigraph.engine.write.violations import Findings
from omnigraph.errors import ConflictError, InputError, OmnigraphError
from omnigraph.model.changeset import WriterKind
from omnigraph.model.graph import MAIN, Branch, Commit, Snapshot
from omnigraph.model.limits import CHECK_ROUNDS_MAX, OFFENDERS_SHOWN_MAX
from omnigraph.model.ports import World
from omnigraph.model.requests import KeyedRequest, result_of, result_property
from omnigraph.model.schema import Catalog
from omnigraph.pipeline.checks import CheckAnswers, CheckPlan, Staged, run_checks
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.findings import (
    Places,
    Reader,
    refuse_failed_embedding,
    staging_findings,
)
from omnigraph.pipeline.intake import Intake, take_in
from omnigraph.pipeline.notes import Notes, Written
from omnigraph.pipeline.parts import GraphAccess, Part, scratch_folder, staging_folder
from omnigraph.pipeline.progress import Listener, RichListener
from omnigraph.pipeline.quarantine import Quarantine, bad_rows, ordinals_of
from omnigraph.pipeline.report import PipelineReport
from omnigraph.pipeline.restage import replacing, without_rows
from omnigraph.pipeline.sources import declared
from omnigraph.pipeline.stopwatch import Stopwatch
from omnigraph.pipeline.vectors import EmbedPlan, kept_folder
from omnigraph.storage.applied import AppliedBeforeError
from omnigraph.storage.objects import aws_environment
from omnigraph.storage.staged import StagedWrite
from omnigraph.storage.writer import Intent, Prepared, WriteContext

logger = logging.getLogger(__name__)

LOAD_MODES = ("append", "merge", "overwrite")
OnError = Literal["fail", "quarantine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """What was asked for, checked."""

    uri: str
    sources: Any
    mode: str
    branch: str = MAIN
    from_branch: str | None = None
    actor: str | None = None
    quarantine: str | None = None  # None: fail on the first kind of badness
    request: KeyedRequest | None = None  # None: it may be repeated freely
    message: str | None = None
    properties: Mapping[str, str] | None = None
    embed: EmbedConfig | None = None  # None: vectors that the input lacks stay null

    def of_batch(
        self, sources: Any, request: KeyedRequest, properties: Mapping[str, str]
    ) -> LoadOrder:
        """The same order for one micro-batch of a stream."""
        return replace(self, sources=sources, request=request, properties=properties)


def load(  # noqa: PLR0913  (the names are fixed by the API)
    spark: SparkSession,
    uri: str | os.PathLike[str],
    sources: Any,
    *,
    mode: str,
    branch: str = MAIN,
    from_branch: str | None = None,
    actor: str | None = None,
    on_error: OnError = "fail",
    quarantine: str | os.PathLike[str] | None = None,
    progress: Listener | bool | None = None,
    idempotency_key: str | None = None,
    message: str | None = None,
    durability: Literal["power", "process"] = "power",
    embed: EmbedConfig | bool | None = None,
) -> PipelineReport:
    """Load any amount of data as one commit, or change nothing.

    `sources` is graph NDJSON (paths, folders, patterns) or a mapping from type names to paths,
    `Source`s or DataFrames. `on_error="quarantine"` writes bad records to the folder `quarantine`
    (default: beside the graph, `<graph>.quarantine`) and loads the rest. A load with an
    `idempotency_key` lands once, however often and however many times at once it is submitted; the
    same key with another mode or other sources raises `IdempotencyKeyReusedError`. `progress` is a
    listener, or True for bars on the terminal.

    With `embed`, executors make the vectors of `@embed` properties that records leave out from
    their text: by the embedder that an `EmbedConfig` describes, or (True) by the one that this
    process's environment names (`OMNIGRAPH_EMBED_PROVIDER`, `OMNIGRAPH_EMBEDDINGS_MOCK` and so
    on). A text that cannot be embedded after the embedder's own retries fails the load with
    `EmbeddingError`, also under a quarantine. Finished vectors of a load with an
    `idempotency_key` are kept until it lands, so that submitting it again asks for the rest only.
    """
    order = checked_order(
        uri=os.fspath(uri),
        sources=sources,
        mode=mode,
        branch=branch,
        from_branch=from_branch,
        actor=actor,
        on_error=on_error,
        quarantine=quarantine,
        idempotency_key=idempotency_key,
        message=message,
        embed=environment_config() if embed is True else embed or None,
    )
    if progress is True:
        with RichListener() as bars:
            return run_load(spark, order, listener=bars, world=World(durability=durability))
    return run_load(spark, order, listener=progress or None, world=World(durability=durability))


def checked_order(
    *, on_error: str, quarantine: Any, idempotency_key: str | None, **facts: Any
) -> LoadOrder:
    """The order that the caller's words mean, or `InputError`."""
    if facts["mode"] not in LOAD_MODES:
        raise InputError(
            f"unknown load mode '{facts['mode']}'", hint=f"use {', '.join(LOAD_MODES)}"
        )
    if idempotency_key is not None:
        facts["request"] = KeyedRequest.of(
            idempotency_key, "bulk load", mode=facts["mode"], sources=declared(facts["sources"])
        )
    if on_error not in ("fail", "quarantine"):
        raise InputError(f"unknown on_error '{on_error}'", hint="use fail or quarantine")
    if on_error == "fail":
        if quarantine is not None:
            raise InputError(
                "a quarantine folder is of no use to a load that fails on bad records",
                hint='pass on_error="quarantine" with it',
            )
        return LoadOrder(quarantine=None, **facts)
    folder = f"{facts['uri'].rstrip('/')}.quarantine" if quarantine is None else quarantine
    return LoadOrder(quarantine=os.fspath(folder), **facts)


StageInput = Callable[[WriteContext, Catalog, GraphAccess, str], Intake]


def run_load(
    spark: SparkSession | None,
    order: LoadOrder,
    *,
    listener: Listener | None,
    world: World,
    stage_input: StageInput | None = None,
) -> PipelineReport:
    """Carry out an order in a world. `stage_input` brings input that is staged in another way."""
    core = open_core(order.uri, mode=OpenMode.READ_WRITE, world=world)
    try:
        target, created = core.load_target(order.branch, order.from_branch, actor_id=order.actor)
        try:
            return _LoadRun(
                spark, core, order, target, listener, stage_input, made_branch=created
            ).run()
        except BaseException:
            if created:
                core.abandon_branch(target)
            raise
    finally:
        core.close()


class _LoadRun:
    """One load from staging to commit. Staging happens once, preparing as often as it must."""

    def __init__(
        self,
        spark: SparkSession | None,
        core: Core,
        order: LoadOrder,
        target: Branch,
        listener: Listener | None,
        stage_input: StageInput | None,
        *,
        made_branch: bool,
    ) -> None:
        self._made_branch = made_branch
        self._spark, self._core, self._order = spark, core, order
        self._target, self._listener = target, listener
        self._stage_input = stage_input or self._from_sources
        self._watch = Stopwatch(listener)
        self._access = GraphAccess(uri=core.root.uri, environ=dict(aws_environment()))
        self._intake: Intake | None = None
        self._parts: dict[str, tuple[Part, ...]] = {}
        self._scratch = scratch_folder(core.root.uri)
        self._made: list[Part] = []  # everything that tasks have answered with, used or not
        self._used: list[Written] = []  # what the write that was prepared last refers to
        self._found = Findings()  # by staging; more makes the load fail in the end
        self._incomplete: set[str] = set()  # tables of which records were refused
        self._quarantine = Quarantine(order.quarantine, self._access) if order.quarantine else None
        self._updated: dict[str, int] = {}
        self._handed_over = False
        self._embed = self._embed_plan()

    def run(self) -> PipelineReport:
        order = self._order
        intent = Intent(
            branch=self._target,
            kind=WriterKind.LOAD,
            actor_id=order.actor,
            request=order.request,
        )
        try:
            after = self._core.write(intent, self._prepare)
        except AppliedBeforeError as before:
            if not before.maybe_ours:
                self._withdraw()
            self._forget_vectors()
            return self._told_again(before.commit)
        except BaseException:
            # Once a write was handed over, recovery may still finish it: its files stay.
            if not self._handed_over:
                self._sweep(used=())
            raise
        else:
            self._sweep(used=self._used if after is not None else ())
        finally:
            self._clear()
        self._forget_vectors()
        return self._report("loaded" if after else "unchanged", after.head if after else None)

    def _withdraw(self) -> None:
        """Another submission of this load has landed: what this one made is nobody's."""
        self._sweep(used=())
        if self._quarantine is not None:
            self._quarantine.withdraw()

    def _embed_plan(self) -> EmbedPlan | None:
        order = self._order
        if order.embed is None:
            return None
        kept = None
        if order.request is not None:
            kept = kept_folder(
                staging_folder(self._core.root.uri),
                branch=order.branch,
                idempotency_key=order.request.key,
            )
        return EmbedPlan(config=order.embed, kept=kept)

    def _forget_vectors(self) -> None:
        """The load has landed: nobody will ask for its vectors again."""
        if self._embed is not None and self._embed.kept is not None:
            FileAccess(environ=self._access.environ).remove_folder(self._embed.kept)

    # --- preparing ---------------------------------------------------------------------------

    def _prepare(self, context: WriteContext) -> Prepared | None:
        self._handed_over = False
        catalog = self._core.catalog(context.snapshot)
        if self._intake is None:
            self._stage(context, catalog)
        elif self._intake.schema_hash != context.snapshot.schema.hash:
            raise ConflictError("the schema changed during the load", hint="load again")
        self._used = []
        plan, answers = self._checked(context.snapshot, catalog)
        with self._watch.step("stage writes"):
            staged = tuple(self._staged_writes(context, plan, answers))
        prepared = Prepared(
            staged=staged,
            relied_on=_relied_on(plan),
            strict=self._order.mode == "overwrite",
            properties=self._properties(),
        )
        self._watch.start("commit")
        self._handed_over = not prepared.is_empty
        return prepared

    def _stage(self, context: WriteContext, catalog: Catalog) -> None:
        with self._watch.step("stage") as step:
            self._intake = self._stage_input(context, catalog, self._access, self._scratch)
            step.tasks, step.records = len(self._intake.answers), self._intake.records
        self._parts = self._intake.parts
        self._made = self._all_parts()
        places = Places(answers=self._intake.answers)
        refuse_failed_embedding(self._intake.answers, places)
        if self._quarantine is None:
            self._found = staging_findings(self._intake.answers, places)
            self._incomplete = {p.table_key for p in self._all_parts() if p.lost}
            if self._found.any_unreadable:
                self._incomplete = {entity.table_key for entity in catalog.types()}
        else:
            self._quarantine.take_problems(self._intake.answers, places)

    def _from_sources(
        self, context: WriteContext, catalog: Catalog, access: GraphAccess, scratch: str
    ) -> Intake:
        return take_in(
            self._spark,
            sources=self._order.sources,
            catalog=catalog,
            context=context,
            access=access,
            scratch=scratch,
            keep_all=self._quarantine is not None,
            rewrites=self._quarantine is not None or self._order.mode == "merge",
            listener=self._listener,
            embed=self._embed,
        )

    def _checked(self, snapshot: Snapshot, catalog: Catalog) -> tuple[CheckPlan, CheckAnswers]:
        """Checks until nothing has to be taken out any more; raises if something may not be.

        What is wrong is told all at once, so a load that must fail goes on to the end: rows whose
        ids are not sound are told, and taken out before the others are judged.
        """
        assert self._intake is not None, "staging comes first"
        places = Places(answers=self._intake.answers)
        found = self._found.copy()
        for _ in range(CHECK_ROUNDS_MAX):
            plan = self._plan(snapshot, catalog)
            with self._watch.step("check") as step:
                answers = run_checks(self._spark, plan, self._listener)
                step.tasks = answers.tasks
            dropped = answers.losers
            if not dropped and self._quarantine is not None:
                reasons = bad_rows(catalog, answers)
                self._quarantine.take_rows(plan, reasons, places)
                dropped = ordinals_of(reasons)
            elif not dropped and answers.refused:
                Reader(plan, answers, places).add_identity(found)
                self._leave_out(answers.refused)
                continue
            if not dropped:
                Reader(plan, answers, places).add_rows(found)
                found.raise_if_any()
                left_out = any(part.left_out for part in self._all_parts())
                assert not left_out, "rows that no check has seen would land"
                return plan, answers
            with self._watch.step("rewrite"):
                self._without(catalog, dropped)
        raise ConflictError(f"still bad rows after {CHECK_ROUNDS_MAX} rounds of taking them out")

    def _plan(self, snapshot: Snapshot, catalog: Catalog) -> CheckPlan:
        assert self._intake is not None, "staging comes first"
        parts = {
            key: tuple(part for part in some if part.rows) for key, some in self._parts.items()
        }
        return CheckPlan(
            access=self._access,
            catalog=catalog,
            snapshot=snapshot,
            staged=Staged(
                mode=self._order.mode,
                parts={key: some for key, some in parts.items() if some},
                mentioned=self._intake.mentioned,
                ghosts={
                    key: tuple(ghost for part in some for ghost in part.ghosts)
                    for key, some in self._parts.items()
                },
                incomplete=frozenset(self._incomplete),
            ),
            parallelism=_parallelism(self._spark),
            list_all=self._quarantine is not None,
        )

    def _leave_out(self, refused: Mapping[str, Mapping[int, Any]]) -> None:
        """Judge the other rows without these. Nothing is written again: the load will fail."""
        self._incomplete |= refused.keys()
        self._parts = {
            key: tuple(
                part.without(refused[key][part.number])
                if part.number in refused.get(key, {})
                else part
                for part in some
            )
            for key, some in self._parts.items()
        }

    def _without(self, catalog: Catalog, dropped: Mapping[str, Mapping[int, Any]]) -> None:
        entities = {entity.table_key: entity for entity in catalog.types()}
        before = self._parts
        self._parts = without_rows(self._spark, self._notes, entities, before, dropped)
        self._made += self._all_parts()

    def _staged_writes(
        self, context: WriteContext, plan: CheckPlan, answers: CheckAnswers
    ) -> list[StagedWrite]:
        writes: list[StagedWrite | None] = []
        for key in sorted(plan.staged.mentioned | plan.staged.parts.keys()):
            parts = plan.staged.of(key)
            receipts = [receipt for part in parts for receipt in part.receipts]
            self._used += [self._written(part) for part in parts]
            if plan.staged.mode == "overwrite":
                writes.append(context.writable(key).stage_overwrite_fragments(receipts))
            elif not parts:
                continue
            elif plan.staged.mode == "merge" and answers.matched(key):
                writes.append(self._merged(context, plan, answers, key))
            else:
                writes.append(context.writable(key).stage_append_fragments(receipts))
        return [write for write in writes if write is not None]

    def _merged(
        self, context: WriteContext, plan: CheckPlan, answers: CheckAnswers, key: str
    ) -> StagedWrite:
        table = context.writable(key)
        replacement = replacing(
            self._spark,
            self._notes,
            plan.catalog.type_of(key),
            table.entry,
            plan.staged.of(key),
            [match for k, answer in answers.ids if k == key for match in answer.matches],
        )
        self._made += replacement.made
        rewritten = {part.number for part in replacement.made}
        originals = [self._written(p) for p in plan.staged.of(key) if p.number in rewritten]
        self._used = [one for one in self._used if one not in originals]
        self._used += [self._written(part) for part in replacement.made]
        self._updated[plan.catalog.type_of(key).name] = replacement.rows_updated
        return table.stage_upsert_fragments(
            replacement.added,
            reduced=replacement.reduced,
            removed=replacement.removed,
            rows_updated=replacement.rows_updated,
        )

    def _properties(self) -> dict[str, str]:
        facts = dict(self._order.properties or {})
        if self._order.request is not None:
            facts |= result_property(self._told())
        message = self._order.message
        if self._quarantine is not None and self._quarantine.total:
            note = f"{self._quarantine.total} records quarantined"
            message = f"{message}; {note}" if message else note
        if message:
            facts["message"] = message
        return facts

    def _told(self) -> dict[str, Any]:
        """What the commit says of the load's result, for when the load is submitted again."""
        quarantine = self._quarantine
        nodes, edges = self._counts()
        return {
            "nodes": nodes,
            "edges": edges,
            "updated": self._updated,
            "rejected": dict(quarantine.by_kind) if quarantine else {},
            "quarantine": quarantine.address if quarantine and quarantine.total else None,
            "base_branch": self._order.from_branch,
            "branch_created": self._made_branch,
        }

    def _told_again(self, commit: Commit) -> PipelineReport:
        """The report of the submission that made the commit, as far as it is about the graph."""
        self._watch.finish()
        return PipelineReport(
            status="already_loaded",
            uri=self._core.root.uri,
            branch=self._target.name,
            mode=self._order.mode,
            steps=self._watch.steps,
            actor_id=commit.actor_id,
            commit=commit,
            **result_of(commit),
        )

    # --- afterwards --------------------------------------------------------------------------

    def _all_parts(self) -> list[Part]:
        return [part for some in self._parts.values() for part in some]

    def _counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many nodes and how many edges there are of each type."""
        counts = {key: sum(part.rows for part in some) for key, some in self._parts.items()}
        return _named(counts, "node"), _named(counts, "edge")

    @property
    def _notes(self) -> Notes:
        """Where the tasks of this load note what they write."""
        scratch = self._intake.scratch if self._intake is not None else self._scratch
        return Notes(graph=self._access, scratch=scratch)

    def _written(self, part: Part) -> Written:
        return Written(folder=self._access.folder(part.entry), receipts=part.receipts)

    def _sweep(self, *, used: Sequence[Written]) -> None:
        """Delete what this load wrote and no commit of it refers to. What is left over is nobody's
        and `cleanup` will find it, so a failure here is none of the load's."""
        known = [self._written(part) for part in self._made]
        named = {note for part in self._made for note in part.notes}
        try:
            self._notes.sweep(known, named=named, used=used)
        except (OmnigraphError, OSError) as cause:
            logger.warning("staged files stay", extra={"scratch": self._scratch, "why": str(cause)})

    def _clear(self) -> None:
        """Remove what was only needed while the load ran; `cleanup` does it if this cannot."""
        try:
            FileAccess(environ=self._access.environ).remove_folder(self._notes.scratch)
        except (OmnigraphError, OSError) as cause:
            logger.warning("scratch stays", extra={"scratch": self._scratch, "why": str(cause)})

    def _report(self, status: Any, commit: Commit | None) -> PipelineReport:
        self._watch.finish()
        order, intake, quarantine = self._order, self._intake, self._quarantine
        nodes, edges = self._counts()
        return PipelineReport(
            status=status,
            uri=self._core.root.uri,
            branch=self._target.name,
            mode=order.mode,
            base_branch=order.from_branch,
            branch_created=self._made_branch,
            nodes=nodes,
            edges=edges,
            updated=self._updated,
            rejected=dict(quarantine.by_kind) if quarantine else {},
            offenders=tuple(quarantine.offenders[:OFFENDERS_SHOWN_MAX]) if quarantine else (),
            quarantine=quarantine.address if quarantine and quarantine.total else None,
            files=intake.files if intake else 0,
            records=intake.records if intake else 0,
            bytes_read=intake.bytes_read if intake else 0,
            fragments=sum(len(part.receipts) for part in self._all_parts()),
            vectors=intake.vectors if intake else 0,
            steps=self._watch.steps,
            actor_id=order.actor,
            commit=commit,
        )


def _relied_on(plan: CheckPlan) -> frozenset[str]:
    """Every table whose content the checks relied upon."""
    keys = set(plan.staged.mentioned) | set(plan.staged.parts)
    for key in tuple(keys):
        entity = plan.catalog.type_of(key)
        if entity.kind == "edge":
            edge = plan.catalog.edges[entity.name]
            keys |= {f"node:{edge.from_type}", f"node:{edge.to_type}"}
        elif plan.staged.replaces(key):
            keys |= {edge.table_key for edge in plan.catalog.edges_touching(entity.name)}
    return frozenset(keys)


def _named(counts: Mapping[str, int], kind: str) -> dict[str, int]:
    return {
        key.partition(":")[2]: count
        for key, count in sorted(counts.items())
        if key.partition(":")[0] == kind
    }


def _parallelism(spark: SparkSession | None) -> int:
    context = getattr(spark, "sparkContext", None)
    return int(context.defaultParallelism) if context is not None else 4
