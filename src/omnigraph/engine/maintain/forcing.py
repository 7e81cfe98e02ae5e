"""What publishing a drifted table would do to the graph.

Columns that do not fit the schema would shut every reader or writer out, so not even `force`
publishes them. Ids that stand twice and edges without an end are told, before and after: whoever
forces them in can mend them, or put the table back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from omnigraph.engine.core import Core
from omnigraph.engine.write.constraints import dangling, endpoint_rules, repeated_id
from omnigraph.engine.write.violations import Findings, Violation
from omnigraph.errors import UnfitColumnsError
from omnigraph.model.graph import Snapshot
from omnigraph.model.schema import EdgeType, NodeType
from omnigraph.storage.arrow_schema import arrow_schema
from omnigraph.storage.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMisfit:
    """How the columns of a table differ from what its type declares."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    changed: tuple[str, ...]

    def __str__(self) -> str:
        told = (
            ("missing", self.missing),
            ("not declared", self.unexpected),
            ("of another type", self.changed),
        )
        return ", ".join(
            f"{what}: {', '.join(repr(name) for name in names)}" for what, names in told if names
        )


def misfit(entity: NodeType | EdgeType, *, found: Table, published: Table) -> ColumnMisfit | None:
    """How the columns found differ from the type's; None if they fit.

    The published columns say how a type lies in this graph: older releases made other choices.
    """
    known = {one.name: one for one in (*arrow_schema(entity), *published.schema)}
    there = {one.name: one for one in found.schema}
    declared = frozenset(arrow_schema(entity).names)
    told = ColumnMisfit(
        missing=tuple(sorted(declared - there.keys())),
        unexpected=tuple(sorted(there.keys() - known.keys())),
        changed=tuple(
            name
            for name, one in sorted(there.items())
            if name in known
            and (one.type, one.nullable) != (known[name].type, known[name].nullable)
        ),
    )
    return told if told.missing or told.unexpected or told.changed else None


def require_fitting(core: Core, snapshot: Snapshot, heads: Mapping[str, int]) -> None:
    """`UnfitColumnsError` if the columns of a table at its head do not fit its type."""
    catalog = core.catalog(snapshot)
    for key, table in _at_heads(core, snapshot, heads).items():
        if key not in heads:
            continue
        published = core.rooms.tables.open(snapshot.entries[key])
        wrong = misfit(catalog.type_of(key), found=table, published=published)
        if wrong is not None:
            raise UnfitColumnsError(
                f"'{key}' cannot be published: its columns do not fit the schema ({wrong})",
                hint="put it back with `omnigraph repair --restore --confirm`",
                type_key=key,
                missing=list(wrong.missing),
                unexpected=list(wrong.unexpected),
                changed=list(wrong.changed),
            )


def broken_by(core: Core, snapshot: Snapshot, heads: Mapping[str, int]) -> Findings:
    """The ids that stand twice and the edges that lose an end with these tables at their heads."""
    findings = Findings()
    if not heads:
        return findings
    catalog, tables = core.catalog(snapshot), _at_heads(core, snapshot, heads)
    for key in heads:
        findings.add(_repeated(catalog.type_of(key), tables[key]))
    for edge in catalog.edges.values():
        findings.add(_dangling(edge, tables, heads))
    return findings


def _at_heads(core: Core, snapshot: Snapshot, heads: Mapping[str, int]) -> dict[str, Table]:
    return {
        key: core.rooms.tables.open(replace(entry, version=heads.get(key, entry.version)))
        for key, entry in snapshot.entries.items()
    }


def _repeated(entity: NodeType | EdgeType, table: Table) -> Iterable[Violation]:
    counted = Counter(table.read(columns=["id"])["id"].to_pylist())
    for entity_id, count in counted.items():
        if count > 1:
            yield repeated_id(entity, str(entity_id), ())


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
