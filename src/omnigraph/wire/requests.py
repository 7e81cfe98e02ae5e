"""The JSON that clients send. Members that we do not know are ignored unless the class is strict;
an optional member may be null."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Mode = Literal["append", "merge", "overwrite"]
Strategy = Literal["fail", "ours", "theirs", "property"]
Kind = Literal["node", "edge"]
Op = Literal["insert", "update", "delete"]


class QueryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A read query: its text, which query of the text, its parameters, and what it reads."""

    query: str
    name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A read query as older clients spell it."""

    query_source: str
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None

    def modern(self) -> QueryRequest:
        return QueryRequest(
            query=self.query_source,
            name=self.query_name,
            params=self.params,
            branch=self.branch,
            snapshot=self.snapshot,
        )


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation query; `query_source` and `query_name` are older spellings."""

    query: str | None = None
    query_source: str | None = None
    name: str | None = None
    query_name: str | None = None
    params: dict[str, Any] | None = None
    branch: str | None = None
    message: str | None = None

    @property
    def source(self) -> str | None:
        return self.query if self.query is not None else self.query_source

    @property
    def chosen(self) -> str | None:
        return self.name if self.name is not None else self.query_name


class LoadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Graph NDJSON inside a JSON body; `from` makes the branch if it is not there."""

    data: str
    branch: str | None = None
    from_branch: str | None = msgspec.field(default=None, name="from")
    mode: Mode | None = None
    message: str | None = None


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which branch, and which types of it; no type named means all."""

    branch: str | None = None
    snapshot: str | None = None
    type_names: list[str] | None = None


class BranchCreateRequest(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    from_branch: str | None = msgspec.field(default=None, name="from")


class ResolutionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of one entity that both sides changed: a side, or values by property."""

    type_key: str
    entity_id: str
    take: Literal["ours", "theirs"] | dict[str, Any]


class BranchMergeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`target` is main unless it is given; `resolutions` count more than the strategy."""

    source: str
    target: str | None = None
    delete_branch: bool | None = None
    strategy: Strategy | None = None
    resolutions: list[ResolutionEntry] | None = None
    message: str | None = None


class MergePreviewRequest(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    target: str | None = None
    strategy: Strategy | None = None
    resolutions: list[ResolutionEntry] | None = None


class BaselineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` and `type` narrow the snapshot, `op` only the feed that follows."""

    branch: str | None = None
    kind: list[Kind] | None = None
    type: list[str] | None = None
    op: list[Op] | None = None


class SchemaApplyRequest(msgspec.Struct, frozen=True, kw_only=True):
    schema_source: str
    allow_data_loss: bool | None = None
    branch: str | None = None
    message: str | None = None


class InvokeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How a stored query is to run; an empty body means all defaults."""

    params: dict[str, Any] | None = None
    branch: str | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = None
    message: str | None = None


class LintRequest(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    branch: str | None = None


class RevertRequest(msgspec.Struct, frozen=True, kw_only=True):
    branch: str | None = None
    message: str | None = None
