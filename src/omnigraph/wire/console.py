"""The JSON of what the console asks for: completions, neighbours, permissions, the schema."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.wire.answers import MaybeText


class CompleteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What can be written at a place of a query text; `at` counts characters."""

    source: str
    at: int
    branch: str | None = None


class NodesOfType(msgspec.Struct, frozen=True, kw_only=True):
    type_name: str
    ids: list[str]


class NeighboursRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What lies around nodes; `among` leaves out every edge that leads to another node."""

    nodes: list[NodesOfType]
    among: bool = False
    limit: int | None = None  # edges of each type and direction
    branch: str | None = None
    snapshot: str | None = None


# --- answers -------------------------------------------------------------------------------------


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether somebody may do something, and why not."""

    allowed: bool
    reason: MaybeText = UNSET


class PermissionsOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What the asking actor may do, by action."""

    actor_id: str | None
    actions: dict[str, Permission]


class TagOutput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    graph_commit_id: str
    message: str | None
    created_by: str | None
    created_at: int


class TagListOutput(msgspec.Struct, frozen=True, kw_only=True):
    tags: list[TagOutput]


class PropertyOutput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    type: str
    description: MaybeText = UNSET


class NodeTypeOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A node type; `label` is the property that people know its nodes by."""

    name: str
    properties: list[PropertyOutput]
    key: list[str]
    label: str
    description: MaybeText = UNSET


class EdgeTypeOutput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    from_type: str = msgspec.field(name="from")
    to_type: str = msgspec.field(name="to")
    properties: list[PropertyOutput]
    description: MaybeText = UNSET


class CatalogOutput(msgspec.Struct, frozen=True, kw_only=True):
    nodes: list[NodeTypeOutput]
    edges: list[EdgeTypeOutput]
    schema_source: str
    graph_commit_id: str


class ColumnOutput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    node_types: list[str] | UnsetType = UNSET


class DescribeOutput(msgspec.Struct, frozen=True, kw_only=True):
    query_name: str
    kind: str
    columns: list[ColumnOutput]


class CompletionOutput(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    kind: str
    detail: str
    says: str


class CompletionsOutput(msgspec.Struct, frozen=True, kw_only=True):
    completions: list[CompletionOutput]


class DrawnNode(msgspec.Struct, frozen=True, kw_only=True):
    type_name: str
    id: str
    label: str


class DrawnEdge(msgspec.Struct, frozen=True, kw_only=True):
    type_name: str
    id: str
    from_type: str
    from_id: str = msgspec.field(name="from")
    to_type: str
    to_id: str = msgspec.field(name="to")


class NeighboursOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are there, and edges between them; `truncated` if a limit left out some."""

    nodes: list[DrawnNode]
    edges: list[DrawnEdge]
    truncated: bool


class RecoveriesOutput(msgspec.Struct, frozen=True, kw_only=True):
    pending: list[dict[str, Any]]
    records: list[dict[str, Any]]
