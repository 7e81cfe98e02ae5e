"""The bulk load: stage → validate → publish, as one commit of kind Load.

Staging writes fragments that nobody sees; checks run over key columns; then the one writer commits
everything at once. If the graph moved on meanwhile, the checks run again on what is staged already:
the input is read once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.engine.access import OPEN, Gate
from omnigraph.engine.arguments import CALL_OR_NONE, require
from omnigraph.engine.arrow import picked
from omnigraph.engine.check.checks import (
    CheckAnswers,
    CheckPlan,
    run_checks,
)
from omnigraph.engine.check.decide import Kind
from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.rules import rules_of
from omnigraph.engine.check.validate import describe
from omnigraph.engine.core import Core, OpenMode, open_core
from omnigraph.engine.derive import derive
from omnigraph.engine.load.inputs.sources import declared
from omnigraph.engine.load.intake import Frames, Intake, take_in
from omnigraph.engine.load.order import LoadOrder
from omnigraph.engine.load.quarantine import Quarantine, bad_rows, ordinals_of
from omnigraph.engine.load.report import Listener, PipelineReport, Status, Stopwatch, teller
from omnigraph.engine.load.stage import (
    Notes,
    PartNames,
    Places,
    Written,
    refuse_failures,
    replacing,
    staging_findings,
    without_rows,
    write_part,
)
from omnigraph.engine.load.vectors import EmbedPlan, kept_folder
from omnigraph.engine.rows.columns import batch_schema
from omnigraph.engine.rows.parts import GraphAccess, Part, scratch_folder, staging_folder
from omnigraph.engine.runner import Inline
from omnigraph.errors import ConflictError, OmnigraphError
from omnigraph.model.graph import Branch, Commit, Snapshot, TableEntry, WriterKind
from omnigraph.model.limits import CHECK_ROUNDS_MAX, OFFENDERS_SHOWN_MAX
from omnigraph.model.ports import Runner, World
from omnigraph.model.requests import result_of, result_property
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID, Catalog
from omnigraph.storage.commit.prepared import AppliedBeforeError, Intent, Prepared
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.lance.columns import seal
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.objects.root import aws_environment
from omnigraph.storage.table.stage import StagedWrite

logger = logging.getLogger(__name__)

Then = Callable[[Snapshot | None], None]
StageInput = Callable[[WriteContext, Catalog, GraphAccess, str], Intake]


def run_load(
    runner: Runner,
    order: LoadOrder,
    *,
    listener: Listener | None,
    world: World,
    stage_input: StageInput | None = None,
    frames: Frames | None = None,
    gate: Gate = OPEN,
) -> PipelineReport:
    """Carry out an order in a world. `stage_input` brings input that is staged in another way."""
    core = open_core(order.uri, mode=OpenMode.READ_WRITE, world=world)
    try:
        gate.require_load(
            core, branch=order.branch, from_branch=order.from_branch, actor=order.actor
        )
        means = Means(
            core=core, runner=runner, frames=frames, stage_input=stage_input, listener=listener
        )
        return load_into(means, order)
    finally:
        core.close()


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What a load is carried out with. `then` is told what came of the write, right after it."""

    core: Core
    runner: Runner
    frames: Frames | None = None
    stage_input: StageInput | None = None
    listener: Listener | None = None
    then: Then | None = None


def load_here(
    core: Core, order: LoadOrder, *, then: Then, listener: Listener | None = None
) -> PipelineReport:
    """Carry out an order in this process."""
    require(CALL_OR_NONE, progress=listener)
    runner = _inline(order, None if listener is None else teller(listener))
    return load_into(Means(core=core, runner=runner, listener=listener, then=then), order)


def _inline(order: LoadOrder, heard: Callable[[str, int, int], None] | None) -> Inline:
    # Whoever makes vectors is asked by one task at a time: providers count what comes at once.
    return Inline(heard=heard) if order.embed is None else Inline(threads=1, heard=heard)


def load_into(means: Means, order: LoadOrder) -> PipelineReport:
    """Carry out an order on an open graph. A branch that is made for it goes if the load fails."""
    core = means.core
    core.require_writable()
    target, created = core.load_target(order.branch, order.from_branch, actor_id=order.actor)
    try:
        return _LoadRun(means, order, target, made_branch=created).run()
    except BaseException:
        if created:
            core.abandon_branch(target)
        raise


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a load by table, and the tables whose other rows go."""

    rows: Mapping[str, pa.Table]
    replaced: frozenset[str]
    report: PipelineReport


def gather(core: Core, order: LoadOrder, target: Branch, context: WriteContext) -> Gathered:
    """Read an order that is a part of a bigger write."""
    runner = _inline(order, None)
    means = Means(core=core, runner=runner)
    return _LoadRun(means, order, target, made_branch=False).gather(context)


class _LoadRun:
    """One load from staging to commit. Staging happens once, preparing as often as it must."""

    def __init__(
        self, means: Means, order: LoadOrder, target: Branch, *, made_branch: bool
    ) -> None:
        self._made_branch = made_branch
        self._means, self._order, self._target = means, order, target
        self._core, self._runner = means.core, means.runner
        self._stage_input = means.stage_input or self._from_sources
        self._watch = Stopwatch(means.listener)
        self._access = GraphAccess(uri=self._core.root.uri, environ=dict(aws_environment()))
        self._access.sharing(self._core.store.tables)
        self._intake: Intake | None = None
        self._parts: dict[str, tuple[Part, ...]] = {}
        self._scratch = scratch_folder(self._core.root.uri)
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
            message=order.message,
            request=order.request,
        )
        try:
            after, _ = self._core.write(intent, self._prepare, then=self._means.then)
        except AppliedBeforeError as before:
            if not before.maybe_ours:
                # Another submission of this load has landed: what this one made is nobody's.
                self._sweep(used=())
                if self._quarantine is not None:
                    self._quarantine.withdraw()
            self._forget_vectors()
            commit, told = before.commit, result_of(before.commit)
            return self._report("already_loaded", commit, actor_id=commit.actor_id, **told)
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
        self._derive(after)
        status: Status = "loaded" if after else "unchanged"
        told = self._told() | self._counted()
        return self._report(status, after.head if after else None, actor_id=order.actor, **told)

    def _derive(self, after: Snapshot | None) -> None:
        """Make what searches need of big tables. Small loads leave that to `optimize`."""
        least = self._core.world.derived_rows_min
        big = [
            key for key, parts in self._parts.items() if sum(part.rows for part in parts) >= least
        ]
        if after is not None and big:
            with self._watch.step("derive") as step:
                step.tasks = derive(self._core, self._runner, after, big)

    def _embed_plan(self) -> EmbedPlan | None:
        order = self._order
        if order.embed is None:
            return None
        folder = staging_folder(self._core.root.uri)
        # A load without a key is known again by what it loads.
        known = order.request.key if order.request else [declared(order.sources)]
        told_by = msgspec.json.encode(known).decode()
        kept = kept_folder(folder, branch=order.branch, told_by=told_by)
        return EmbedPlan(source=order.embed, kept=kept)

    def _forget_vectors(self) -> None:
        """The load has landed: nobody will ask for its vectors again."""
        if self._embed is not None and self._embed.kept is not None:
            FileAccess(environ=self._access.environ).remove_folder(self._embed.kept)

    # --- preparing ---------------------------------------------------------------------------

    def _prepare(self, context: WriteContext) -> tuple[Prepared, None]:
        self._handed_over = False
        catalog = self._core.catalog(context.snapshot)
        if self._intake is None:
            self._stage(context, catalog)
        elif self._intake.schema_fingerprint != context.snapshot.schema.fingerprint:
            raise ConflictError("the schema changed during the load", hint="load again")
        self._used = []
        plan, answers = self._checked(context.snapshot, catalog)
        with self._watch.step("stage writes"):
            staged = tuple(self._staged_writes(context, plan, answers))
        prepared = Prepared(
            staged=staged,
            relied_on=relied_on(plan),
            strict=self._order.mode == "overwrite",
            note=self._note(),
            properties=self._properties(),
        )
        self._watch.start("commit")
        self._handed_over = not prepared.is_empty
        return prepared, None

    def gather(self, context: WriteContext) -> Gathered:
        """The rows of the load, for a write that holds more than them: read, shaped and told apart
        by their ids. What else the schema demands is checked with the whole write."""
        catalog = self._core.catalog(context.snapshot)
        try:
            self._stage(context, catalog)
            assert self._intake is not None, "it was staged right now"
            found, places = self._found.copy(), Places(answers=self._intake.answers)
            plan, answers = self._told_apart(context.snapshot, catalog)
            describe(answers.offences, catalog, PartNames(plan, places), ("ids",), found)
            found.raise_if_any()
            rows = {
                key: self._rows(catalog, key)
                for key, parts in self._parts.items()
                if any(part.rows for part in parts)
            }
            report = self._report(
                "loaded", None, actor_id=self._order.actor, **self._told(), **self._counted()
            )
            replaced = plan.tables if self._order.mode == "overwrite" else ()
            return Gathered(rows=rows, replaced=frozenset(replaced), report=report)
        finally:
            self._sweep(used=())
            self._clear()

    def _told_apart(self, snapshot: Snapshot, catalog: Catalog) -> tuple[CheckPlan, CheckAnswers]:
        """The checks of a load without the rows that others of the same id replace."""
        plan = self._plan(snapshot, catalog)
        answers = run_checks(self._runner, plan)
        if not answers.losers:
            return plan, answers
        losers = answers.losers
        self._parts = without_rows(self._runner, self._notes, catalog, self._parts, losers)
        self._made += self._all_parts()
        plan = self._plan(snapshot, catalog)
        return plan, run_checks(self._runner, plan)

    def _rows(self, catalog: Catalog, table_key: str) -> pa.Table:
        names = batch_schema(catalog.type_of(table_key)).names
        parts = [part for part in self._parts[table_key] if part.rows]
        return pa.concat_tables([part.all_rows(self._access, names) for part in parts])

    def _stage(self, context: WriteContext, catalog: Catalog) -> None:
        with self._watch.step("stage") as step:
            self._intake = self._stage_input(context, catalog, self._access, self._scratch)
            step.tasks, step.records = len(self._intake.answers), self._intake.records
        self._parts = self._intake.parts
        self._made = self._all_parts()
        places = Places(answers=self._intake.answers)
        refuse_failures(self._intake.answers, places, quarantined=self._quarantine is not None)
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
            self._runner,
            self._means.frames,
            sources=self._order.sources,
            catalog=catalog,
            context=context,
            access=access,
            scratch=scratch,
            keep_all=self._quarantine is not None,
            rewrites=self._rewrites,
            embed=self._embed,
        )

    @property
    def _rewrites(self) -> bool:
        """Whether rows that are written may have to be read back and written again."""
        return self._quarantine is not None or self._order.mode == "merge"

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
                answers = run_checks(self._runner, plan)
                step.tasks = answers.tasks
            dropped = answers.losers
            if not dropped and self._quarantine is not None:
                reasons = bad_rows(catalog, answers)
                self._quarantine.take_rows(plan, reasons, places)
                dropped = ordinals_of(reasons)
            elif not dropped and answers.refused:
                describe(answers.offences, catalog, PartNames(plan, places), ("ids",), found)
                self._leave_out(answers.refused)
                continue
            if not dropped:
                kinds: tuple[Kind, ...] = ("unique", "ends", "degrees")
                describe(answers.offences, catalog, PartNames(plan, places), kinds, found)
                found.raise_if_any()
                left_out = any(part.left_out for part in self._all_parts())
                assert not left_out, "rows that no check has seen would land"
                return plan, answers
            with self._watch.step("rewrite"):
                self._parts = without_rows(self._runner, self._notes, catalog, self._parts, dropped)
                self._made += self._all_parts()
        raise ConflictError(f"still bad rows after {CHECK_ROUNDS_MAX} rounds of taking them out")

    def _plan(self, snapshot: Snapshot, catalog: Catalog) -> CheckPlan:
        assert self._intake is not None, "staging comes first"
        parts = {key: tuple(one for one in some if one.rows) for key, some in self._parts.items()}
        once = catalog.nodes.values() if self._order.keys_once else ()
        return CheckPlan(
            access=self._access,
            catalog=catalog,
            snapshot=snapshot,
            mode=self._order.mode,
            parts={key: some for key, some in parts.items() if some},
            mentioned=self._intake.mentioned,
            ghosts={
                key: tuple(ghost for part in some for ghost in part.ghosts)
                for key, some in self._parts.items()
            },
            incomplete=frozenset(self._incomplete),
            once=frozenset(node.table_key for node in once if node.key),
            buckets=self._intake.buckets,
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

    def _staged_writes(
        self, context: WriteContext, plan: CheckPlan, answers: CheckAnswers
    ) -> list[StagedWrite]:
        keys = sorted(plan.tables)
        if plan.mode != "overwrite":
            keys = [key for key in keys if plan.of(key)]
        for key in keys:
            if plan.mode == "merge" and answers.matched(key):
                self._updated[plan.catalog.type_of(key).name] = answers.matched(key)
        written = [key for key in keys if any(part.entry for part in plan.of(key))]
        held = [key for key in keys if key not in written]
        writes: list[StagedWrite | None] = []
        writes += [self._of_fragments(context, plan, answers, key) for key in written]
        writes += context.each(lambda key: _of_held(context, plan, answers, key), held)
        return [write for write in writes if write is not None]

    def _of_fragments(
        self, context: WriteContext, plan: CheckPlan, answers: CheckAnswers, key: str
    ) -> StagedWrite | None:
        table = context.writable(key)
        parts = self._all_written(plan, key, table.entry)
        receipts = [receipt for part in parts for receipt in part.receipts]
        if plan.mode == "merge" and answers.matched(key):
            matches, entity = answers.matches(key), plan.catalog.type_of(key)
            staged, made = replacing(self._runner, self._notes, table, entity, parts, matches)
            self._made += made
            rewritten = {part.number for part in made}
            kept = [part for part in parts if part.number not in rewritten]
            self._used += [self._written(part) for part in (*kept, *made)]
            return staged
        self._used += [self._written(part) for part in parts]
        if plan.mode == "overwrite":
            return table.stage_overwrite(receipts)
        return table.stage_append(receipts)

    def _all_written(self, plan: CheckPlan, key: str, entry: TableEntry) -> tuple[Part, ...]:
        """The parts of a table that is too big for memory, with those written too that fitted."""
        entity = plan.catalog.type_of(key)
        parts = tuple(
            write_part(
                self._notes,
                entity,
                entry,
                replace(part, held=(), rows=0),
                pa.concat_tables(part.held),
                buckets=1,  # the checks have seen them
                keeps_blobs=self._rewrites,
            )
            if part.entry is None
            else part
            for part in self._parts[key]
            if part.rows
        )
        self._made += parts
        self._parts[key] = parts
        return parts

    def _properties(self) -> dict[str, str]:
        facts = dict(self._order.properties or {})
        if self._order.request is not None:
            facts |= result_property(self._told())
        return facts

    def _note(self) -> str | None:
        refused = self._quarantine.total if self._quarantine is not None else 0
        return f"{refused} records quarantined" if refused else None

    def _told(self) -> dict[str, Any]:
        """What the commit says of the load's result, for when the load is submitted again."""
        quarantine = self._quarantine
        return {
            "nodes": self._counts("node"),
            "edges": self._counts("edge"),
            "updated": self._updated,
            "rejected": dict(quarantine.by_kind) if quarantine else {},
            "quarantine": quarantine.address if quarantine and quarantine.total else None,
            "base_branch": self._order.from_branch,
            "branch_created": self._made_branch,
        }

    def _counted(self) -> dict[str, Any]:
        """What only this run knows of the load."""
        assert self._intake is not None, "staging comes first"
        quarantine, intake = self._quarantine, self._intake
        return {
            "offenders": tuple(quarantine.offenders[:OFFENDERS_SHOWN_MAX]) if quarantine else (),
            "files": intake.files,
            "records": intake.records,
            "bytes_read": intake.bytes_read,
            "fragments": sum(len(part.receipts) for part in self._all_parts()),
            "vectors": intake.vectors,
        }

    def _report(self, status: Status, commit: Commit | None, **told: Any) -> PipelineReport:
        self._watch.finish()
        return PipelineReport(
            status=status,
            uri=self._core.root.uri,
            branch=self._target.name,
            mode=self._order.mode,
            steps=self._watch.steps,
            commit=commit,
            **told,
        )

    # --- afterwards --------------------------------------------------------------------------

    def _all_parts(self) -> list[Part]:
        return [part for some in self._parts.values() for part in some]

    def _counts(self, kind: str) -> dict[str, int]:
        """How many nodes, or edges, there are of each type."""
        return {
            key.partition(":")[2]: sum(part.rows for part in some)
            for key, some in sorted(self._parts.items())
            if key.partition(":")[0] == kind
        }

    @property
    def _notes(self) -> Notes:
        """Where the tasks of this load note what they write."""
        scratch = self._intake.scratch if self._intake is not None else self._scratch
        return Notes(graph=self._access, scratch=scratch)

    def _written(self, part: Part) -> Written:
        assert part.entry is not None, "rows in memory have no files"
        return Written(folder=self._access.folder(part.entry), receipts=part.receipts)

    @property
    def _wrote(self) -> bool:
        """Whether there may be files of this load that are not part of its commit."""
        if self._intake is None or not self._runner.held_bytes:
            return True
        return any(part.entry is not None or part.ghosts for part in self._made)

    def _sweep(self, *, used: Sequence[Written]) -> None:
        """Delete what this load wrote and no commit of it refers to. What is left over is nobody's
        and `cleanup` will find it, so a failure here is none of the load's."""
        if not self._wrote:
            return
        known = [self._written(part) for part in self._made if part.entry is not None]
        named = {note for part in self._made for note in part.notes}
        try:
            self._notes.sweep(known, named=named, used=used)
        except (OmnigraphError, OSError) as cause:
            logger.warning("staged files stay", extra={"scratch": self._scratch, "why": str(cause)})

    def _clear(self) -> None:
        """Remove what was only needed while the load ran; `cleanup` does it if this cannot."""
        if not self._wrote:
            return
        try:
            FileAccess(environ=self._access.environ).remove_folder(self._notes.scratch)
        except (OmnigraphError, OSError) as cause:
            logger.warning("scratch stays", extra={"scratch": self._scratch, "why": str(cause)})


def relied_on(plan: CheckPlan) -> frozenset[str]:
    """Every table whose stored rows the checks relied upon."""
    keys = set[str]()
    for key in plan.tables:
        entity, rules = plan.catalog.type_of(key), rules_of(plan.catalog.type_of(key))
        if plan.replaces(key) or not plan.fresh(key) or rules.unique or rules.out_degree:
            keys.add(key)
        if plan.of(key):
            keys |= {f"node:{end.node_type}" for end in rules.endpoints}
        if entity.kind == "node" and plan.replaces(key):
            keys |= {edge.table_key for edge in plan.catalog.edges_touching(entity.name)}
    return frozenset(keys)


def _of_held(
    context: WriteContext, plan: CheckPlan, answers: CheckAnswers, key: str
) -> StagedWrite | None:
    """The write of rows that are in memory."""
    table, parts, entity = context.writable(key), plan.of(key), plan.catalog.type_of(key)
    tables = [rows for part in parts for rows in part.held]
    rows = pa.concat_tables(tables) if tables else batch_schema(entity).empty_table()
    rows = seal(rows, table.schema)
    if plan.mode == "overwrite":
        return table.stage_overwrite(rows)
    if plan.mode == "merge" and answers.matched(key):
        return table.stage_change(rows, existing=_located(parts, key, answers))
    return table.stage_append(rows)


def _located(parts: Sequence[Part], table_key: str, answers: CheckAnswers) -> pa.Table:
    """Where the stored rows are that rows of these parts replace, by id."""
    matches, found = answers.matches(table_key), []
    for part in parts:
        if (match := matches.get(part.number)) is not None:
            ids = pa.concat_tables([table.select(["id"]) for table in part.held])["id"]
            places = {ROW_ID: pa.array(match.row_ids), ROW_ADDRESS: pa.array(match.addresses)}
            found.append(pa.table({"id": picked(ids, match.rows), **places}))
    return pa.concat_tables(found)
