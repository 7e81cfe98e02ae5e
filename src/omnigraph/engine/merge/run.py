"""A merge from beginning to end, and its preview: the same work without the commit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
from msgspec.structs import replace

from omnigraph.engine.arguments import FLAG, TEXT, require
from omnigraph.engine.check.bucket import TableChange
from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.validate import find_orphans, validate_rows, validate_values
from omnigraph.engine.core import Core
from omnigraph.engine.history.lift import Seen
from omnigraph.engine.merge.combine import (
    Base,
    Combined,
    State,
    adopt,
    base_state,
    combine,
    readable,
    state_difference,
)
from omnigraph.engine.merge.conflicts import rule_conflict, schema_conflict
from omnigraph.engine.merge.landing import Landing
from omnigraph.engine.merge.schemas import SeenRows, Sight, check_new_rules, merged_schema
from omnigraph.engine.merge.settle import Settling
from omnigraph.engine.refs import Ref
from omnigraph.engine.rows.blobs import BlobBases
from omnigraph.errors import (
    ConflictError,
    ConstraintViolationError,
    InputError,
    MergeConflictsError,
    NotFoundError,
    OmnigraphError,
    ParentlessCommitError,
)
from omnigraph.model.graph import (
    UNCHANGED,
    Branch,
    Snapshot,
    TableEntry,
    TypeCounts,
    WriterKind,
)
from omnigraph.model.limits import MERGE_CONFLICTS_LISTED_MAX
from omnigraph.model.requests import KeyedRequest
from omnigraph.results.merging import (
    MergeConflict,
    MergePreview,
    MergeResult,
    Outcome,
    RevertResult,
)
from omnigraph.storage.commit.prepared import AppliedBeforeError, Intent, Prepared, remembering
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.manifest.history import best_common


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """One merge, worked out against one head of the target."""

    source: Snapshot
    target: Snapshot
    base: Base
    outcome: Outcome
    combined: Mapping[str, Combined] = msgspec.field(default_factory=dict)
    sight: Sight | None = None  # of the merged schema; None: there was nothing to merge
    shared: Mapping[str, TableEntry] = msgspec.field(default_factory=dict)  # tables to point to
    conflicts: tuple[MergeConflict, ...] = ()

    @property
    def counts(self) -> dict[str, TypeCounts]:
        return {key: one.counts for key, one in self.combined.items() if one.counts != UNCHANGED}


def merge(
    core: Core,
    source: str,
    target: str,
    *,
    actor_id: str | None,
    settling: Settling,
    delete_branch: bool = False,
    message: str | None = None,
    idempotency_key: str | None = None,
) -> MergeResult:
    """Bring everything the source has and the target lacks into the target, as one commit."""
    require(FLAG, delete_branch=delete_branch)
    _require_mergeable(source, target)
    request = KeyedRequest.of(
        idempotency_key,
        "merge",
        source=source,
        strategy=settling.strategy,
        delete_branch=delete_branch,
        **settling.resolutions.facts,
    )
    intent = Intent(
        branch=core.branch(target),
        kind=WriterKind.BRANCH_MERGE,
        actor_id=actor_id,
        message=message,
        request=request,
    )

    def prepare(context: WriteContext) -> tuple[Prepared | None, Merge]:
        worked = work_out(core, source, context, settling)
        if worked.conflicts:
            raise MergeConflictsError(source=source, target=target, conflicts=worked.conflicts)
        changes = {key: one.to_json() for key, one in worked.counts.items()}
        told = {"outcome": worked.outcome, "changes": changes}
        prepared = None
        if worked.outcome != "already_up_to_date":
            prepared = replace(
                prepared_changes(worked, context),
                merged_parent_commit_id=worked.source.graph_commit_id,
                counts=worked.counts,
                properties={"merged_branch": worked.source.graph_branch},
            )
        return remembering(prepared, request, told), worked

    try:
        after, worked = core.write(intent, prepare)
    except AppliedBeforeError as before:
        result = MergeResult.told_again(before.commit, source=source, target=target)
        return _with_merged_branch_deleted(core, result) if delete_branch else result
    result = MergeResult(
        source=source,
        target=target,
        outcome=worked.outcome,
        actor_id=actor_id,
        commit=after.head if after else None,
        changes=worked.counts,
    )
    return _with_branch_deleted(core, result) if delete_branch else result


def preview(core: Core, source: str, target: str, settling: Settling) -> MergePreview:
    """What `merge` would do right now. Nothing is written, not even a table fork."""
    _require_mergeable(source, target)
    core.branch(source)
    branch = core.branch(target)
    context = WriteContext(core.writer, branch, core.store.manifests.head(branch))
    worked = work_out(core, source, context, settling)
    return MergePreview(
        source=source,
        target=target,
        outcome=worked.outcome,
        base_commit_id=worked.base.commit_ids[0] if worked.base.commit_ids else None,
        changes=worked.counts,
        conflicts=worked.conflicts,
    )


def _require_mergeable(source: str, target: str) -> None:
    require(TEXT, source=source, into=target)
    if source == target:
        raise InputError("branch_merge requires distinct source and target branches")


def _with_branch_deleted(core: Core, result: MergeResult) -> MergeResult:
    """The merge stands whether or not the source can be deleted now."""
    try:
        core.delete_branch(result.source)
    except OmnigraphError as cause:
        return replace(result, branch_deleted=False, branch_delete_error=cause.message)
    return replace(result, branch_deleted=True)


def _with_merged_branch_deleted(core: Core, result: MergeResult) -> MergeResult:
    """The same for a merge that was made earlier. A branch that has gone on since, or another one
    of that name, holds work that was never merged: it stays."""
    assert result.commit is not None, "a merge that is told again has a commit"
    try:
        head = core.head(result.source)
    except NotFoundError:
        return replace(result, branch_deleted=True)
    if head.graph_commit_id != result.commit.merged_parent_commit_id:
        problem = f"branch '{result.source}' has changed since it was merged"
        return replace(result, branch_deleted=False, branch_delete_error=problem)
    return _with_branch_deleted(core, result)


# --- working out -----------------------------------------------------------------------------


def work_out(core: Core, source: str, context: WriteContext, settling: Settling) -> Merge:
    """Compare both heads with their base and decide about every type."""
    branch = core.branch(source)
    with core.store.meanwhile(branch, context.branch):
        return _worked_out(core, branch, context, settling)


def _worked_out(core: Core, branch: Branch, context: WriteContext, settling: Settling) -> Merge:
    ours = context.snapshot
    theirs = core.store.manifests.head(branch)
    descent = core.store.history.descent(first=(theirs.branch, ours.branch))
    heads = (ours.graph_commit_id, theirs.graph_commit_id)
    found = best_common(heads[:1], heads[1:], descent.parents)
    if theirs.graph_commit_id in found.best:
        base = Base(snapshots=(theirs,))
        return Merge(source=theirs, target=ours, base=base, outcome="already_up_to_date")
    if ours.graph_commit_id in found.best:
        return three_way(core, Base(snapshots=(ours,)), theirs, context, settling)
    if not (found.best or found.unknown):
        for one in (theirs.branch, ours.branch):
            core.store.refs.require_alive(one)
        raise ConflictError("branches have no common ancestor")
    if found.unknown and descent.damage is not None:
        raise descent.damage
    # Behind a commit that nobody knows there may be a better ancestor than those found.
    certain = () if found.unknown else found.best
    base = Base(snapshots=readable(core, certain), parents=descent.parents)
    return three_way(core, base, theirs, context, settling)


def three_way(
    core: Core, base: Base, theirs: Snapshot, context: WriteContext, settling: Settling
) -> Merge:
    """Bring what differs from `base` in `theirs` to the context's snapshot."""
    ours = context.snapshot
    catalog, at_odds = merged_schema(core, base, ours, theirs)
    sight = Sight(core=core, schema=catalog)
    fast = base.commit_ids == (ours.graph_commit_id,)
    merge = Merge(
        source=theirs,
        target=ours,
        base=base,
        outcome="fast_forward" if fast else "merged",
        sight=sight,
        conflicts=tuple(map(schema_conflict, at_odds)),
    )
    if merge.conflicts:
        return merge  # rows of a schema that nobody has decided about cannot be compared
    settling.resolutions.require_known(catalog)
    bases = BlobBases.of(core.world.blob_bases)
    if bases is not None:
        settling.resolutions.require_admitted(catalog, bases)
    merge = _combine_all(merge, sight, context, settling)
    settling.resolutions.require_used({key: one.clashing for key, one in merge.combined.items()})
    if merge.conflicts:
        return merge
    changes = {key: one.change for key, one in merge.combined.items()}
    return replace(merge, conflicts=_broken_rules(changes, sight, context))


def _combine_all(merge: Merge, sight: Sight, context: WriteContext, settling: Settling) -> Merge:
    core = sight.core
    tables = core.store.tables
    combined: dict[str, Combined] = {}
    shared: dict[str, TableEntry] = {}
    for entity in sight.schema.types():
        key = entity.table_key
        see = partial(sight.of, entity=entity)
        ours, theirs = see(merge.target), see(merge.source)
        if theirs is None or State(seen=ours).is_at(theirs):
            continue
        base = base_state(core, merge.base, see, (ours, theirs), settling.strategy)
        if base.is_at(theirs):
            continue
        found = state_difference(tables, base, State(seen=theirs))
        if base.is_at(ours):
            combined[key] = adopt(found)
            fits = sight.fits(merge.source, entity)
            if fits and _may_repoint(context, ours, theirs):
                shared[key] = theirs.entry
        else:
            mine = state_difference(tables, base, State(seen=ours))
            combined[key] = combine(
                mine,
                found,
                strategy=settling.strategy,
                disputed=base.disputed,
                decisions=settling.resolutions.by_type.get(key, {}),
            )
    conflicts = [conflict for one in combined.values() for conflict in one.conflicts]
    return replace(merge, combined=combined, shared=shared, conflicts=tuple(conflicts))


def _may_repoint(context: WriteContext, ours: Seen | None, theirs: Seen) -> bool:
    """A branch may share a version of main's line, which is never dropped; main owns its tables,
    and any other line ends with its branch."""
    if context.branch.id is None or theirs.entry.branch is not None:
        return False
    if ours is None:
        return True
    same_table = theirs.entry.location == ours.entry.location
    return same_table and theirs.entry.version > ours.entry.version


def _broken_rules(
    changes: Mapping[str, TableChange], sight: Sight, context: WriteContext
) -> tuple[MergeConflict, ...]:
    """What the merged graph would break, looked for only around the changed entities, and in all
    of ours for what is new in the schema."""
    found = Findings(listed_max=MERGE_CONFLICTS_LISTED_MAX)
    catalog, stored = sight.schema, SeenRows(sight, context)
    try:
        validate_values(changes, catalog, found)
        validate_rows(changes, catalog, stored, found)
    except ConstraintViolationError:
        pass  # what was found is listed
    find_orphans(changes, catalog, stored, found)
    check_new_rules(sight, changes, stored, found)
    # What is new in the schema may be broken around a changed entity too.
    listed = {(one.ids, one.message): rule_conflict(one) for one in found.listed}
    return tuple(listed.values())


def prepared_changes(merge: Merge, context: WriteContext) -> Prepared:
    """The staged tables of a merge without conflicts."""
    assert merge.sight is not None, "a merge that brings something was worked out"
    return Landing(
        sight=merge.sight,
        target=merge.target,
        changes={key: one.change for key, one in merge.combined.items()},
        shared=merge.shared,
    ).prepared(context)


# --- undoing a commit: a merge whose base is the commit and whose source its parent ------------


def revert(
    core: Core, ref: Ref, branch: str, *, actor_id: str | None, message: str | None = None
) -> RevertResult:
    """Undo what the commit did to its first parent; `MergeConflictsError` if later commits of the
    branch touched the same entities."""
    target = core.branch(branch)
    commit_id = core.commit(ref, branch=branch).graph_commit_id
    commit = core.store.manifests.find_commit(target, commit_id)
    if commit is None:
        raise NotFoundError(
            f"commit '{commit_id}' is not in the history of branch '{branch}'",
            kind="commit",
            name=commit_id,
        )
    if commit.parent_commit_id is None:
        raise ParentlessCommitError(commit_id=commit_id)
    done = core.store.manifests.at_commit(commit_id)
    undone = core.store.manifests.at_commit(commit.parent_commit_id)
    if done.schema.fingerprint != undone.schema.fingerprint:
        raise ConflictError(
            f"commit '{commit_id}' changed the schema, which cannot be undone by a revert",
            hint="apply the earlier schema",
            commit_id=commit_id,
        )

    def prepare(context: WriteContext) -> tuple[Prepared, Merge]:
        worked = three_way(core, Base(snapshots=(done,)), undone, context, Settling())
        if worked.conflicts:
            raise MergeConflictsError(
                source=f"revert of {commit_id}", target=branch, conflicts=worked.conflicts
            )
        prepared = prepared_changes(replace(worked, shared={}), context)
        return replace(prepared, properties={"reverts": commit_id}), worked

    intent = Intent(branch=target, kind=WriterKind.BRANCH_MERGE, actor_id=actor_id, message=message)
    after, worked = core.write(intent, prepare)
    return RevertResult(
        reverted_commit_id=commit_id,
        branch=branch,
        actor_id=actor_id,
        commit=after.head if after else None,
        changes=worked.counts,
    )
