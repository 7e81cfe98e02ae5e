"""What mutations, loads and schema changes did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from omnigraph.model.graph import Commit
from omnigraph.model.plan import SchemaStep
from omnigraph.model.requests import result_of
from omnigraph.model.structs import HidingStruct, html_facts, html_table
from omnigraph.model.values import json_value


class MutationResult(HidingStruct, frozen=True, kw_only=True):
    """What a mutation did. `commit` is None when nothing changed. `ids` are those of inserted
    entities in order, `rows` what its `returning` gave.

    A request with an idempotency key is answered again from its commit: `already_applied` says so,
    and does not count when answers are compared. Its `rows` then have the values of JSON; of a big
    answer neither rows nor ids are kept.
    """

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"already_applied"})

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: Commit | None
    ids: tuple[str, ...] = ()
    rows: list[dict[str, Any]] = msgspec.field(default_factory=list)
    already_applied: bool = False

    @classmethod
    def told_again(cls, commit: Commit, *, branch: str) -> MutationResult:
        """The answer to the first submission of the commit's request."""
        told = result_of(commit)
        return cls(
            branch=branch,
            query_name=str(told.get("query_name", "")),
            affected_nodes=int(told.get("affected_nodes", 0)),
            affected_edges=int(told.get("affected_edges", 0)),
            actor_id=commit.actor_id,
            commit=commit,
            ids=tuple(told.get("ids", ())),
            rows=list(told.get("rows", ())),
            already_applied=True,
        )

    def __str__(self) -> str:
        landed = self.commit.graph_commit_id if self.commit is not None else "nothing changed"
        counts = f"{self.affected_nodes:,} nodes, {self.affected_edges:,} edges"
        return f"{self.query_name} on {self.branch}: {counts}; {landed}"

    def _repr_html_(self) -> str:
        """For notebooks: what it did, what it returned, and the commit."""
        landed = self.commit.graph_commit_id if self.commit is not None else "nothing changed"
        facts = {"nodes": self.affected_nodes, "edges": self.affected_edges, "commit": landed}
        columns = tuple(self.rows[0]) if self.rows else ()
        rows = [tuple(row.values()) for row in self.rows]
        return html_facts(facts) + (html_table(columns, rows) if rows else "")

    def to_json(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            **({"ids": list(self.ids)} if self.ids else {}),
            **({"rows": json_rows(self.rows)} if self.rows else {}),
            **({"already_applied": True} if self.already_applied else {}),
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": None if self.commit is None else self.commit.to_json(),
        }


def json_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows as JSON has them."""
    return [{name: json_value(value) for name, value in row.items()} for row in rows]


class LoadResult(HidingStruct, frozen=True, kw_only=True):
    """What a load did, by type name. `commit` is None when nothing changed.

    `already_applied` does not count when answers are compared: an answer that is given again is
    otherwise the first one.
    """

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"already_applied"})

    uri: str
    branch: str
    mode: str
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    actor_id: str | None
    commit: Commit | None
    base_branch: str | None = None
    branch_created: bool = False
    rejected: Mapping[str, int] = {}  # records that a quarantine took, by what was wrong with them
    quarantine: str | None = None  # where they are
    vectors: int = 0  # made from text
    already_applied: bool = False

    @classmethod
    def of(cls, report: object) -> LoadResult:
        """What a report says of the graph."""
        return cls(**{name: getattr(report, name) for name in cls.__struct_fields__})

    @property
    def total_entities(self) -> int:
        return sum(self.nodes.values()) + sum(self.edges.values())

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {n:,}" for name, n in {**self.nodes, **self.edges}.items())
        landed = self.commit.graph_commit_id if self.commit is not None else "nothing changed"
        return f"{self.mode} into {self.branch}: {counts or 'no entities'}; {landed}"

    def _repr_html_(self) -> str:
        """For notebooks: how many of each type, and the commit."""
        landed = self.commit.graph_commit_id if self.commit is not None else "nothing changed"
        return html_facts({**self.nodes, **self.edges, "commit": landed})

    def to_json(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "branch": self.branch,
            "mode": self.mode,
            **({"base_branch": self.base_branch} if self.base_branch else {}),
            "branch_created": self.branch_created,
            "nodes": entity_counts(self.nodes),
            "edges": entity_counts(self.edges),
            "total_entities": self.total_entities,
            **({"rejected": dict(self.rejected)} if self.rejected else {}),
            **({"quarantine": self.quarantine} if self.quarantine else {}),
            **({"vectors": self.vectors} if self.vectors else {}),
            **({"already_applied": True} if self.already_applied else {}),
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": None if self.commit is None else self.commit.to_json(),
        }


def entity_counts(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """How many of each type, as JSON has it."""
    return [{"name": name, "entities_loaded": n} for name, n in sorted(counts.items())]


class SchemaApplyResult(HidingStruct, frozen=True, kw_only=True):
    """What an apply did. `commit` is None when the graph had the schema already."""

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"already_applied"})

    supported: bool
    applied: bool
    steps: tuple[SchemaStep, ...]
    graph_manifest_version: int
    actor_id: str | None
    commit: Commit | None
    already_applied: bool = False

    @property
    def step_count(self) -> int:
        return len(self.steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "supported": self.supported,
            "applied": self.applied,
            "step_count": self.step_count,
            "graph_manifest_version": self.graph_manifest_version,
            "steps": [step.to_json() for step in self.steps],
            **({"already_applied": True} if self.already_applied else {}),
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": self.commit.to_json() if self.commit else None,
        }
