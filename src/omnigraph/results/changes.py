"""Differences and the change feed: what happened to which entity, and where a reader stands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from omnigraph.model.graph import Commit
from omnigraph.model.schema import EntityKind
from omnigraph.model.structs import ROWS_SHOWN_MAX, html_block, html_table, html_text
from omnigraph.model.values import json_value

Op = Literal["insert", "update", "delete"]


KINDS: tuple[EntityKind, ...] = ("node", "edge")


OPS: tuple[Op, ...] = ("insert", "update", "delete")


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An entity as it was. A blob shows as its size and either its SHA-256 or its URI."""

    properties: dict[str, Any]
    endpoints: dict[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "properties": {name: json_value(value) for name, value in self.properties.items()}
        }
        if self.endpoints is not None:
            body["endpoints"] = self.endpoints
        return body


class EntityChange(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one entity between two states."""

    kind: EntityKind
    type_name: str
    type_id: str = ""  # stays when the type is renamed
    id: str
    op: Op
    before: Image | None
    after: Image | None

    @property
    def position(self) -> tuple[int, str, str, int]:
        """The frozen order: nodes before edges, type, id. An id has two changes only if its type is
        gone and another one has the name: what is gone goes first, so that whoever repeats the
        changes in this order ends with what is there."""
        return KINDS.index(self.kind), self.type_name, self.id, int(self.op != "delete")

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "type_name": self.type_name,
            "id": self.id,
            "op": self.op,
            "before": self.before.to_json() if self.before else None,
            "after": self.after.to_json() if self.after else None,
        }


class ChangeSet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that differs between two states of the graph."""

    from_commit_id: str
    to_commit_id: str
    changes: tuple[EntityChange, ...]

    @property
    def stats(self) -> dict[str, int]:
        return {op: sum(change.op == op for change in self.changes) for op in OPS}

    def to_json(self) -> dict[str, Any]:
        return {
            "from_commit_id": self.from_commit_id,
            "to_commit_id": self.to_commit_id,
            "changes": [change.to_json() for change in self.changes],
            "stats": self.stats,
        }

    def _repr_html_(self) -> str:
        """For notebooks: the counts, and the first changes with what is different."""
        stats = ", ".join(f"{count:,} {op}" for op, count in self.stats.items())
        return html_block(
            f"{len(self.changes):,} changes from {self.from_commit_id} to {self.to_commit_id}",
            html_text(stats),
            html_table(
                ("op", "kind", "type", "id", "before", "after"),
                [
                    (one.op, one.kind, one.type_name, one.id, *_unlike(one))
                    for one in self.changes[:ROWS_SHOWN_MAX]
                ],
                total=len(self.changes),
            ),
        )


def _unlike(change: EntityChange) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Both images without what is the same in them."""
    before, after = (
        None if image is None else {**image.properties, **(image.endpoints or {})}
        for image in (change.before, change.after)
    )
    if before is None or after is None:
        return before, after
    unlike = [name for name in before | after if before.get(name) != after.get(name)]
    return {n: before.get(n) for n in unlike}, {n: after.get(n) for n in unlike}


class ChangePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some or all of what one commit did; `next_page_token` is None on the last page."""

    cause: Commit
    changes: tuple[EntityChange, ...]
    next_page_token: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "cause": {
                "graph_commit_id": self.cause.graph_commit_id,
                "parent_commit_id": self.cause.parent_commit_id,
                "merged_parent_commit_id": self.cause.merged_parent_commit_id,
                "authored_branch": self.cause.graph_branch,
                "actor_id": self.cause.actor_id,
                "authored_at": self.cause.created_us,
            },
            "changes": [change.to_json() for change in self.changes],
            "next_page_token": self.next_page_token,
        }


class EntityVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit made of the entity; `image` is None when it was deleted."""

    commit: Commit
    op: Op
    image: Image | None

    def to_json(self) -> dict[str, Any]:
        return {
            "graph_commit_id": self.commit.graph_commit_id,
            "actor_id": self.commit.actor_id,
            "created_at": self.commit.created_us,
            "op": self.op,
            "image": self.image.to_json() if self.image else None,
        }


class EntityState(msgspec.Struct, frozen=True, kw_only=True):
    """An entity in one state of the graph."""

    graph_commit_id: str
    image: Image


class FeedPage(msgspec.Struct, frozen=True, kw_only=True):
    """One poll's answer.

    A page that ends on a commit boundary has a `cursor`, and `caught_up` says whether it reached
    the head; one that stops inside a commit has only a `next_page_token`.
    """

    blocks: tuple[ChangePage, ...]
    cursor: str | None
    caught_up: bool | None
    next_page_token: str | None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "blocks": [
                {name: part for name, part in block.to_json().items() if name != "next_page_token"}
                for block in self.blocks
            ]
        }
        if self.cursor is not None:
            body |= {"cursor": self.cursor, "caught_up": self.caught_up}
        if self.next_page_token is not None:
            body["next_page_token"] = self.next_page_token
        return body


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot as NDJSON lines. Apply them all, then poll from `resume_cursor`."""

    snapshot_commit_id: str
    resume_cursor: str
    lines: Iterator[str]
