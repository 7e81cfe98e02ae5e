"""What the engine answers to writes, as frozen values with the JSON that users see.

A request with an idempotency key is answered again from its commit: `already_applied` says so, and
is the only difference, so that it does not count when answers are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from omnigraph.engine.load.report import PipelineReport
from omnigraph.model.graph import Commit
from omnigraph.model.requests import KeyedRequest, result_of, result_property
from omnigraph.model.structs import HidingStruct
from omnigraph.storage.commit.prepared import Prepared


def remembering(
    prepared: Prepared | None, request: KeyedRequest | None, result: Mapping[str, Any]
) -> Prepared | None:
    """The write with its result told in the commit, for when a keyed request is repeated."""
    if prepared is None or request is None:
        return prepared
    return replace(prepared, properties={**prepared.properties, **result_property(result)})


class MutationResult(HidingStruct, frozen=True, kw_only=True):
    """What a mutation did. `commit` is None when nothing changed."""

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"already_applied"})

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: Commit | None
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
            already_applied=True,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            **({"already_applied": True} if self.already_applied else {}),
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": _commit_json(self.commit),
        }


class LoadResult(HidingStruct, frozen=True, kw_only=True):
    """What a load did, by type name. `commit` is None when nothing changed."""

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
    already_applied: bool = False

    @classmethod
    def of(cls, report: PipelineReport) -> LoadResult:
        """What a report says of the graph."""
        return cls(
            uri=report.uri,
            branch=report.branch,
            mode=report.mode or "",
            nodes=report.nodes,
            edges=report.edges,
            actor_id=report.actor_id,
            commit=report.commit,
            base_branch=report.base_branch,
            branch_created=report.branch_created,
            rejected=report.rejected,
            quarantine=report.quarantine,
            already_applied=report.already_applied,
        )

    @property
    def total_entities(self) -> int:
        return sum(self.nodes.values()) + sum(self.edges.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "branch": self.branch,
            "mode": self.mode,
            **({"base_branch": self.base_branch} if self.base_branch else {}),
            "branch_created": self.branch_created,
            "nodes": _counts(self.nodes),
            "edges": _counts(self.edges),
            "total_entities": self.total_entities,
            **({"rejected": dict(self.rejected)} if self.rejected else {}),
            **({"quarantine": self.quarantine} if self.quarantine else {}),
            **({"already_applied": True} if self.already_applied else {}),
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": _commit_json(self.commit),
        }


def _counts(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "entities_loaded": n} for name, n in sorted(counts.items())]


def _commit_json(commit: Commit | None) -> dict[str, Any] | None:
    return None if commit is None else commit.to_json()
