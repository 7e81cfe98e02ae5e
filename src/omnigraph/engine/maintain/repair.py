"""`repair`: tables whose head is ahead of what is published, explained and, if told to, healed.

An unfinished write leaves a sidecar, and recovery settles it; so drift is somebody else's work, or
a write of ours that landed on the table after it had been given up. What a table's own history says
happened since decides which: harmless drift is published, a given up write is undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.engine.arguments import FLAG, require
from omnigraph.engine.check.findings import Findings, Violation
from omnigraph.engine.check.rules import Entity, endpoint_rules
from omnigraph.engine.check.validate import dangling, repeated_id
from omnigraph.engine.core import Core, OpenMode
from omnigraph.engine.maintain.optimize import head_of, require_settled
from omnigraph.errors import InputError, OmnigraphError, UnfitColumnsError
from omnigraph.model.graph import Branch, Snapshot, TableEntry, TableUpdate, WriterKind
from omnigraph.model.schema import EdgeType
from omnigraph.model.structs import JsonStruct
from omnigraph.storage.commit.prepared import Intent, Prepared
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.lance.pylance import VersionTransaction
from omnigraph.storage.table.stage import COMMIT_PROPERTY
from omnigraph.storage.table.table import Table

Classification = Literal[
    "no_drift", "verified_maintenance", "unpublished_write", "suspicious", "unverifiable"
]
Action = Literal["no_op", "preview", "healed", "undone", "restored", "refused", "forced"]

REPAIR_ACTOR: Final = "omnigraph:repair"
FORCE_ACTOR: Final = "omnigraph:repair:force"
# These change how rows are stored and found, never which rows there are.
_HARMLESS: Final = frozenset({"Rewrite", "ReserveFragments", "CreateIndex"})
_UNTOLD: Final = frozenset({"Unknown", "Unreadable"})
_PUBLISHING: Final = frozenset({"healed", "forced"})
_PUTTING_BACK: Final = frozenset({"undone", "restored"})


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair may do: nothing, what is safe, publish the rest too, or put the rest back."""

    confirm: bool = False
    force: bool = False
    restore: bool = False

    def check(self) -> None:
        """`InputError` if the orders contradict each other."""
        require(FLAG, confirm=self.confirm, force=self.force, restore=self.restore)
        if self.force and self.restore:
            raise InputError(
                "repair takes --force or --restore, not both",
                hint="--force publishes what lies there, --restore puts back what is published",
            )
        if self.force and not self.confirm:
            raise InputError("repair --force requires --confirm")


class RepairStats(JsonStruct, frozen=True, kw_only=True):
    """One table: where it stands, what that means and what was done about it."""

    type_key: str
    published_dataset_version: int
    lance_head_version: int
    classification: Classification
    action: Action
    operations: tuple[str, ...] = ()
    error: str | None = None


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """All tables of a branch; `graph_manifest_version` is None if nothing was published.

    `violations` are what `force` would break, or has broken, and `violations_total` how many they
    are: ids that stand twice, edges without an end.
    """

    uri: str
    branch: str
    confirm: bool
    force: bool
    restore: bool
    graph_manifest_version: int | None
    datasets: tuple[RepairStats, ...]
    violations: tuple[Violation, ...] = ()
    violations_total: int = 0

    @property
    def refused(self) -> bool:
        return any(one.action == "refused" for one in self.datasets)

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "uri": self.uri,
            "confirm": self.confirm,
            "force": self.force,
            "restore": self.restore,
            "graph_manifest_version": self.graph_manifest_version,
            "datasets": [one.to_json() for one in self.datasets],
        }
        if self.violations_total:
            body["violations"] = [one.to_json() for one in self.violations]
            body["violations_total"] = self.violations_total
        return body


def repair(core: Core, branch: str, orders: Orders) -> RepairReport:
    """Explain every table of the branch; with `confirm` publish harmless heads and undo writes of
    ours that were given up, with `force` publish everything else too, with `restore` put every
    table that drifted back to what is published.

    Only the branch's own tables can drift; those it inherits are looked at where they belong.
    """
    orders.check()
    if core.mode is OpenMode.READ_WRITE:
        require_settled(core, "repair")
    snapshot = core.head(branch)
    found = _explained(core, snapshot, orders)
    broken = Findings() if orders.restore else broken_by(core, snapshot, found)
    after: Snapshot | None = None
    if any(one.action in _PUBLISHING | _PUTTING_BACK for one in found):
        forced = any(one.action == "forced" for one in found)
        intent = Intent(
            branch=core.branch(branch),
            kind=WriterKind.REPAIR,
            actor_id=FORCE_ACTOR if forced else REPAIR_ACTOR,
        )
        after, found = core.write(intent, partial(_prepare, core, orders))
    return RepairReport(
        uri=core.root.uri,
        branch=branch,
        confirm=orders.confirm,
        force=orders.force,
        restore=orders.restore,
        graph_manifest_version=after.manifest_version if after is not None else None,
        datasets=found,
        violations=tuple(broken.listed),
        violations_total=broken.total,
    )


def _prepare(
    core: Core, orders: Orders, context: WriteContext
) -> tuple[Prepared, tuple[RepairStats, ...]]:
    found = _explained(core, context.snapshot, orders)
    entries = context.snapshot.entries
    shown = [one for one in found if one.action in _PUBLISHING]
    back = [one for one in found if one.action in _PUTTING_BACK]
    assert not {one.type_key for one in back} & {one.type_key for one in shown}, "one fate each"
    for one in shown:
        _require_fitting(core, context.snapshot, one)
    prepared = Prepared(
        # What is published becomes the newest version again.
        staged=tuple(
            core.store.tables.stage_restore(entries[one.type_key], over=one.lance_head_version)
            for one in back
        ),
        repoints=tuple(_repoint(core, entries[one.type_key], one) for one in shown),
        strict=True,
    )
    return prepared, found


def _repoint(core: Core, entry: TableEntry, stats: RepairStats) -> TableUpdate:
    head = replace(entry, version=stats.lance_head_version)
    return TableUpdate.pointing_to(replace(head, row_count=core.store.tables.open(head).count()))


def _explained(core: Core, snapshot: Snapshot, orders: Orders) -> tuple[RepairStats, ...]:
    own = [entry for entry in snapshot.datasets if snapshot.branch.owns(entry.branch)]
    return tuple(_explain(core, entry, snapshot, orders) for entry in own)


def _explain(core: Core, entry: TableEntry, snapshot: Snapshot, orders: Orders) -> RepairStats:
    head = head_of(core.store.tables, entry)
    made, problem = _between(core, entry, head)
    ours = [one for one in made if _is_unpublished(core, snapshot.branch, one)]
    operations = [one.operation for one in made if one not in ours]
    classification = classify(operations, problem, given_up=len(ours))
    if classification == "suspicious":
        wrong = _misfit(core, snapshot, entry.table_key, head)
        problem = f"its columns do not fit the schema ({wrong})" if wrong else None
    return RepairStats(
        type_key=entry.table_key,
        published_dataset_version=entry.version,
        lance_head_version=head,
        classification=classification,
        action=action_for(classification, orders),
        operations=tuple(one.operation for one in made),
        error=problem,
    )


def _between(
    core: Core, entry: TableEntry, head: int
) -> tuple[Sequence[VersionTransaction], str | None]:
    """What made each version since the published one, and the first one that does not tell."""
    found: list[VersionTransaction] = []
    problem: str | None = None
    for version in range(entry.version + 1, head + 1):
        try:
            (made,) = core.store.tables.transactions(
                entry.location, entry.branch, after=version - 1, upto=version
            )
            found.append(made)
            told = made.operation not in _UNTOLD
            why = "its transaction is missing"
        except OmnigraphError as cause:
            told, why = False, cause.message
        if not told and problem is None:
            problem = f"version {version}: {why}"
    return found, problem


def _is_unpublished(core: Core, branch: Branch, made: VersionTransaction) -> bool:
    """Whether a write of ours made the version and no commit of the branch knows about it.

    A commit publishes its tables all at once, so one that is not in the history never happened.
    """
    commit_id = made.properties.get(COMMIT_PROPERTY)
    if commit_id is None:
        return False
    return core.store.manifests.find_commit(branch, commit_id) is None


def classify(operations: Iterable[str], problem: str | None, *, given_up: int) -> Classification:
    """What drift means, from what happened in between beside `given_up` versions of our own."""
    if problem is not None:
        return "unverifiable"
    happened = set(operations)
    if not happened and not given_up:
        return "no_drift"
    if not happened <= _HARMLESS:
        return "suspicious"
    # Its callers were told that nothing happened: publishing it now would make that a lie.
    return "unpublished_write" if given_up else "verified_maintenance"


def action_for(classification: Classification, orders: Orders) -> Action:
    """What to do about it."""
    if classification == "no_drift":
        return "no_op"
    if not orders.confirm:
        return "preview"
    if classification == "unpublished_write":
        return "undone"
    if orders.restore:
        return "restored"
    if classification == "verified_maintenance":
        return "healed"
    return "forced" if orders.force else "refused"


# --- what publishing a drifted table would do --------------------------------------------------

# Columns that do not fit the schema would shut every reader or writer out, so not even `force`
# publishes them. Ids that stand twice and edges without an end are told, before and after: whoever
# forces them in can mend them, or put the table back.


class ColumnMisfit(msgspec.Struct, frozen=True, kw_only=True):
    """How the columns of a table differ from what its type declares."""

    missing: list[str]
    unexpected: list[str]
    changed: list[str]

    def __str__(self) -> str:
        told = (
            ("missing", self.missing),
            ("not declared", self.unexpected),
            ("of another type", self.changed),
        )
        return ", ".join(f"{what}: {', '.join(map(repr, names))}" for what, names in told if names)


def _misfit(core: Core, snapshot: Snapshot, key: str, head: int) -> ColumnMisfit | None:
    """How the columns of a table at its head differ from its type's; None if they fit.

    The published columns say how a type lies in this graph: older releases made other choices.
    """
    tables, entry = core.store.tables, snapshot.entries[key]
    declared = arrow_schema(core.catalog(snapshot).type_of(key))
    known = {one.name: one for one in (*declared, *tables.open(entry).schema)}
    there = {one.name: one for one in tables.open(replace(entry, version=head)).schema}
    wrong = ColumnMisfit(
        missing=sorted(set(declared.names) - there.keys()),
        unexpected=sorted(there.keys() - known.keys()),
        changed=sorted(
            name
            for name in there.keys() & known.keys()
            if (there[name].type, there[name].nullable) != (known[name].type, known[name].nullable)
        ),
    )
    return wrong if str(wrong) else None


def _require_fitting(core: Core, snapshot: Snapshot, stats: RepairStats) -> None:
    """`UnfitColumnsError` if the columns of a table at its head do not fit its type."""
    wrong = _misfit(core, snapshot, stats.type_key, stats.lance_head_version)
    if wrong is not None:
        raise UnfitColumnsError(
            f"'{stats.type_key}' cannot be published: its columns do not fit the schema ({wrong})",
            hint="put it back with `omnigraph repair --restore --confirm`",
            type_key=stats.type_key,
            **msgspec.structs.asdict(wrong),
        )


def broken_by(core: Core, snapshot: Snapshot, found: Iterable[RepairStats]) -> Findings:
    """The ids that stand twice and the edges that lose an end if force publishes these heads."""
    findings = Findings()
    heads = {
        one.type_key: one.lance_head_version
        for one in found
        if one.classification == "suspicious" and one.error is None
    }
    if not heads:
        return findings
    catalog = core.catalog(snapshot)
    tables = {
        key: core.store.tables.open(replace(entry, version=heads.get(key, entry.version)))
        for key, entry in snapshot.entries.items()
    }
    for key in heads:
        findings.add(_repeated(catalog.type_of(key), tables[key]))
    for edge in catalog.edges.values():
        findings.add(_dangling(edge, tables, heads))
    return findings


def _repeated(entity: Entity, table: Table) -> Iterable[Violation]:
    counted = table.read(columns=["id"])["id"].value_counts()
    again = counted.filter(pc.greater(counted.field("counts"), pa.scalar(1)))
    return [repeated_id(entity, str(one), ()) for one in again.field("values").to_pylist()]


def _dangling(
    edge: EdgeType, tables: Mapping[str, Table], heads: Mapping[str, int]
) -> Iterable[Violation]:
    for rule in endpoint_rules(edge):
        nodes = f"node:{rule.node_type}"
        if not {edge.table_key, nodes} & heads.keys():
            continue
        rows = tables[edge.table_key].read(columns=["id", rule.column])
        known = tables[nodes].read(columns=["id"])["id"].combine_chunks()
        lost = rows.filter(pc.invert(pc.is_in(rows[rule.column], value_set=known)))
        for one in lost.to_pylist():
            yield dangling(edge, rule, one[rule.column], one["id"], None)
