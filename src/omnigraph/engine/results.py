"""What the engine answers to writes, as frozen values with the JSON that users see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.model.graph import Commit


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationResult:
    """What a mutation did. `commit` is None when nothing changed."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: Commit | None

    def to_json(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": _commit_json(self.commit),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a load did, by type name. `commit` is None when nothing changed."""

    uri: str
    branch: str
    mode: str
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    actor_id: str | None
    commit: Commit | None
    base_branch: str | None = None
    branch_created: bool = False

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
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": _commit_json(self.commit),
        }


def _counts(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "entities_loaded": n} for name, n in sorted(counts.items())]


def _commit_json(commit: Commit | None) -> dict[str, Any] | None:
    return None if commit is None else commit.to_json()
