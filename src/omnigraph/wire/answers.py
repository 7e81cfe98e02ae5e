"""The JSON that servers answer, as values. A member of type `Maybe` is left out when there is
nothing to say; every other member is always there, null if need be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.model.graph import Commit, Snapshot
from omnigraph.model.limits import INTERNAL_SCHEMA_VERSION

MaybeText: TypeAlias = str | UnsetType
MaybeFlag: TypeAlias = bool | UnsetType


def maybe(value: Any) -> Any:
    """Nothing to say instead of None."""
    return UNSET if value is None else value


# --- the server ---------------------------------------------------------------------------------


class HealthOutput(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    version: str
    internal_schema_version: int
    source_version: MaybeText = UNSET


class ReadyOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the server takes requests; `problems` are graphs or files it goes on without."""

    ready: bool
    status: Literal["starting", "serving", "draining"]
    served_graph_count: int
    quarantined_graph_count: int
    shutdown_grace_seconds: float
    booted_serving_digest: MaybeText = UNSET
    state_revision: int | UnsetType = UNSET
    problems: dict[str, str] | UnsetType = UNSET


class GraphInfo(msgspec.Struct, frozen=True, kw_only=True):
    graph_id: str
    uri: str


class GraphListOutput(msgspec.Struct, frozen=True, kw_only=True):
    graphs: list[GraphInfo]
    quarantined: list[str]


# --- commits and snapshots ------------------------------------------------------------------------


class CommitOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the history; `created_at` counts microseconds since 1970."""

    graph_commit_id: str
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    graph_branch: str | None
    graph_manifest_version: int
    actor_id: str | None
    created_at: int
    message: MaybeText = UNSET
    properties: dict[str, str] | UnsetType = UNSET

    @classmethod
    def of(cls, commit: Commit) -> CommitOutput:
        return cls(
            graph_commit_id=commit.graph_commit_id,
            parent_commit_id=commit.parent_commit_id,
            merged_parent_commit_id=commit.merged_parent_commit_id,
            graph_branch=commit.graph_branch,
            graph_manifest_version=commit.graph_manifest_version,
            actor_id=commit.actor_id,
            created_at=commit.created_us,
            message=maybe(commit.message),
            properties=dict(commit.properties) if commit.properties else UNSET,
        )

    def commit(self) -> Commit:
        """The commit that it tells of."""
        return Commit(
            graph_commit_id=self.graph_commit_id,
            parent_commit_id=self.parent_commit_id,
            merged_parent_commit_id=self.merged_parent_commit_id,
            graph_branch="main" if self.graph_branch is None else self.graph_branch,
            graph_manifest_version=self.graph_manifest_version,
            actor_id=self.actor_id,
            created_us=self.created_at,
            properties=self.properties or {},
        )


class CommitListOutput(msgspec.Struct, frozen=True, kw_only=True):
    commits: list[CommitOutput]
    next_page_token: MaybeText = UNSET


class DatasetOutput(msgspec.Struct, frozen=True, kw_only=True):
    entity_kind: Literal["node", "edge"]
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


class SnapshotOutput(msgspec.Struct, frozen=True, kw_only=True):
    graph_branch: str
    graph_manifest_version: int
    internal_schema_version: int
    graph_commit_id: str
    datasets: list[DatasetOutput]

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotOutput:
        return cls(
            graph_branch=snapshot.graph_branch,
            graph_manifest_version=snapshot.graph_manifest_version,
            internal_schema_version=INTERNAL_SCHEMA_VERSION,
            graph_commit_id=snapshot.graph_commit_id,
            datasets=[
                DatasetOutput(
                    entity_kind="node" if entry.entity_kind == "node" else "edge",
                    type_name=entry.type_name,
                    dataset_path=entry.dataset_path,
                    published_dataset_version=entry.published_dataset_version,
                    native_dataset_branch=entry.native_dataset_branch,
                    entity_count=entry.entity_count,
                )
                for entry in sorted(snapshot.datasets, key=lambda one: one.table_key)
            ],
        )


# --- reading and writing --------------------------------------------------------------------------


class ReadTarget(msgspec.Struct, frozen=True, kw_only=True):
    branch: str | None
    snapshot: str | None


class ReadOutput(msgspec.Struct, frozen=True, kw_only=True):
    query_name: str
    target: ReadTarget
    row_count: int
    columns: list[str] | UnsetType = UNSET
    rows: list[dict[str, Any]]
    graph_commit_id: MaybeText = UNSET


class ChangeOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a mutation did; no commit means that nothing changed."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    ids: list[str] | UnsetType = UNSET
    rows: list[dict[str, Any]] | UnsetType = UNSET
    actor_id: str | None
    commit: CommitOutput | None


class TypeLoad(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    entities_loaded: int

    @classmethod
    def listed(cls, counts: Mapping[str, int]) -> list[TypeLoad]:
        return [cls(name=name, entities_loaded=n) for name, n in sorted(counts.items())]


class GraphBatchLoadOutput(msgspec.Struct, frozen=True, kw_only=True):
    branch: str
    base_branch: str | None
    branch_created: bool
    mode: Literal["append", "merge", "overwrite"]
    nodes: list[TypeLoad]
    edges: list[TypeLoad]
    total_entities: int
    actor_id: str | None
    commit: CommitOutput | None


class IngestOutput(GraphBatchLoadOutput, frozen=True, kw_only=True):
    uri: str


class SchemaOutput(msgspec.Struct, frozen=True, kw_only=True):
    schema_source: str


class SchemaApplyOutput(msgspec.Struct, frozen=True, kw_only=True):
    uri: str
    supported: bool
    applied: bool
    step_count: int
    graph_manifest_version: int
    steps: list[dict[str, Any]]
    actor_id: str | None
    commit: CommitOutput | None


# --- branches -------------------------------------------------------------------------------------


class BranchListOutput(msgspec.Struct, frozen=True, kw_only=True):
    branches: list[str]
    next_page_token: MaybeText = UNSET


class BranchCreateOutput(msgspec.Struct, frozen=True, kw_only=True):
    uri: str
    from_branch: str = msgspec.field(name="from")
    name: str
    actor_id: str | None
    branch_id: str
    fork_commit_id: str
    created_at: int  # microseconds since the epoch


class BranchDeleteOutput(msgspec.Struct, frozen=True, kw_only=True):
    uri: str
    name: str
    actor_id: str | None


class BranchMergeOutput(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    target: str
    outcome: Literal["already_up_to_date", "fast_forward", "merged"]
    actor_id: str | None
    branch_deleted: MaybeFlag = UNSET
    branch_delete_error: MaybeText = UNSET
    commit: CommitOutput | None
    changes: dict[str, Any]


class RevertOutput(msgspec.Struct, frozen=True, kw_only=True):
    reverted_commit_id: str
    branch: str
    actor_id: str | None
    commit: CommitOutput | None
    changes: dict[str, Any]


# --- changes --------------------------------------------------------------------------------------


class ChangeType(msgspec.Struct, frozen=True, kw_only=True):
    """A type by its name and by an id that stays when it is renamed."""

    id: str
    name: str


class ChangeImage(msgspec.Struct, frozen=True, kw_only=True):
    properties: dict[str, Any]
    endpoints: dict[str, str] | UnsetType = UNSET


class ChangeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one entity: an insert has no `before`, a delete no `after`."""

    kind: Literal["node", "edge"]
    type: ChangeType
    id: str
    op: Literal["insert", "update", "delete"]
    before: ChangeImage | UnsetType = UNSET
    after: ChangeImage | UnsetType = UNSET


class ChangeCause(msgspec.Struct, frozen=True, kw_only=True):
    """The commit behind changes; `authored_at` counts microseconds since 1970."""

    graph_commit_id: str
    parent_commit_id: MaybeText = UNSET
    merged_parent_commit_id: MaybeText = UNSET
    authored_branch: str
    actor_id: MaybeText = UNSET
    authored_at: int

    @classmethod
    def of(cls, commit: Commit) -> ChangeCause:
        return cls(
            graph_commit_id=commit.graph_commit_id,
            parent_commit_id=maybe(commit.parent_commit_id),
            merged_parent_commit_id=maybe(commit.merged_parent_commit_id),
            authored_branch=commit.graph_branch,
            actor_id=maybe(commit.actor_id),
            authored_at=commit.created_us,
        )


class CommitChangesOutput(msgspec.Struct, frozen=True, kw_only=True):
    cause: ChangeCause
    changes: list[ChangeEntry]
    next_page_token: MaybeText = UNSET


class ChangeBlock(msgspec.Struct, frozen=True, kw_only=True):
    cause: ChangeCause
    changes: list[ChangeEntry]


class ChangesOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A page that ends inside a commit has a `next_page_token`, any other a `cursor`."""

    blocks: list[ChangeBlock]
    next_page_token: MaybeText = UNSET
    cursor: MaybeText = UNSET
    caught_up: MaybeFlag = UNSET


class DiffOutput(msgspec.Struct, frozen=True, kw_only=True):
    from_commit_id: str
    to_commit_id: str
    changes: list[ChangeEntry]
    stats: dict[str, int]
    next_page_token: MaybeText = UNSET


class EntityOutput(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["node", "edge"]
    type_name: str
    id: str
    image: ChangeImage
    graph_commit_id: str


class EntityVersionOutput(msgspec.Struct, frozen=True, kw_only=True):
    op: Literal["insert", "update", "delete"]
    image: ChangeImage | None
    commit: CommitOutput


class EntityHistoryOutput(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["node", "edge"]
    type_name: str
    id: str
    versions: list[EntityVersionOutput]


# --- stored queries -------------------------------------------------------------------------------

ParamKind = Literal[
    "string",
    "bool",
    "int",
    "bigint",
    "float",
    "date",
    "datetime",
    "blob",
    "vector",
    "list",
    "record",
]


class QueryParam(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: ParamKind
    item_kind: ParamKind | UnsetType = UNSET
    vector_dim: int | UnsetType = UNSET
    choices: list[str] | UnsetType = UNSET  # of an enum, also of a list of them
    nullable: bool


class StoredQueryOutput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tool_name: str
    description: MaybeText = UNSET
    instruction: MaybeText = UNSET
    mutation: bool
    params: list[QueryParam]


class QueriesOutput(msgspec.Struct, frozen=True, kw_only=True):
    queries: list[StoredQueryOutput]
