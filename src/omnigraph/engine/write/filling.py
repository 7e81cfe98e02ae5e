"""`embed`: make the vectors that stored entities lack, from their texts.

Each commit fills some thousand, so that work that was paid for stays when a later text fails: who
runs it again goes on where it stopped. A row that another writer changes meanwhile is looked at
again by the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from omnigraph.compiler.query import ir
from omnigraph.engine.arguments import TEXTS_OR_NONE, require, require_message
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.core import Core
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.expr.sql import push_down
from omnigraph.engine.load.vectors import has_text
from omnigraph.engine.read.search.coded import absent_rows
from omnigraph.engine.rows.parts import Stored
from omnigraph.engine.write.mutate import checked
from omnigraph.engine.write.pending import Pending
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import MAIN, Snapshot, WriterKind
from omnigraph.model.limits import EMBED_COMMIT_ROWS
from omnigraph.model.schema import Catalog, Property
from omnigraph.model.structs import JsonStruct
from omnigraph.storage.commit.prepared import Intent, Prepared
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.table.read import texts
from omnigraph.storage.table.table import Table

TAKEN_ROWS: Final = 1 << 16  # whose texts are read together
_NO_PARAMS: Final = Constants(params={}, now_ms=0)


class FilledProperty(JsonStruct, frozen=True, kw_only=True):
    """A Vector property, how many entities lacked its vector, and how many got one."""

    type_name: str
    property: str
    missing: int
    filled: int


class EmbedReport(JsonStruct, frozen=True, kw_only=True):
    """What `embed` did; each commit is one step of it."""

    uri: str
    branch: str
    properties: tuple[FilledProperty, ...]
    graph_commit_ids: tuple[str, ...] = ()

    @property
    def filled(self) -> int:
        return sum(one.filled for one in self.properties)


def fillable(catalog: Catalog, types: Sequence[str] | None = None) -> Iterator[Entity]:
    """The types that have a vector which may be missing and can be made."""
    for name in types or ():
        if name not in catalog.nodes and catalog.edge_named(name) is None:
            raise NotFoundError(f"unknown type '{name}'", kind="type", name=name)
    for entity in catalog.types():
        if (types is None or entity.name in types) and any(_may_lack(entity)):
            yield entity


def missing_vectors(table: Table, entity: Entity) -> dict[str, list[str]]:
    """The ids of the entities that have a text and lack its vector, by property."""
    found: dict[str, list[str]] = {}
    for prop in _may_lack(entity):
        assert prop.embed is not None, "only embedded properties can be filled"
        found[prop.name] = []
        for rows in _lacking(table, entity, prop):
            told = rows.filter(pa.array(has_text(rows[prop.embed.source])))
            found[prop.name] += texts(told["id"])
    return found


def _lacking(table: Table, entity: Entity, prop: Property) -> Iterator[pa.Table]:
    """The ids and texts of the rows without a vector: by the numbers that stand for the vectors,
    where these are stored, and otherwise by the vectors themselves, which takes far longer."""
    assert prop.embed is not None, "only embedded properties can be filled"
    columns = ["id", prop.embed.source]
    rows, others = absent_rows(table, prop.name)
    for first in range(0, len(rows), TAKEN_ROWS):
        yield table.take(rows[first : first + TAKEN_ROWS], columns)
    if others:
        where = push_down(_lacks(entity, prop), _NO_PARAMS).where
        yield table.read(columns=columns, where=where, fragments=others)


def _may_lack(entity: Entity) -> Iterator[Property]:
    return (prop for prop in entity.properties if prop.embed is not None and prop.type.nullable)


def _lacks(entity: Entity, prop: Property) -> tuple[ir.Expr, ...]:
    assert prop.embed is not None, "only embedded properties can be filled"
    source = entity.by_name[prop.embed.source]
    return (
        ir.IsNull(item=ir.PropertyRef(var=ir.SELF, prop=prop.name, type=prop.type)),
        ir.IsNull(
            item=ir.PropertyRef(var=ir.SELF, prop=source.name, type=source.type), negated=True
        ),
    )


def fill_vectors(
    core: Core,
    *,
    branch: str = MAIN,
    types: Sequence[str] | None = None,
    actor_id: str | None = None,
    message: str | None = None,
    then: Callable[[Snapshot | None], None] | None = None,
) -> EmbedReport:
    """Make every vector that entities of a branch lack and have a text for."""
    core.require_writable()
    require(TEXTS_OR_NONE, types=types)
    require_message(message)
    if core.world.embedder is None:
        raise InputError(
            "there is no embedder to make vectors with",
            hint="open the graph with embedder=…: a callable, an EmbedConfig, or True",
        )
    snapshot = core.head(branch)
    intent = Intent(
        branch=core.branch(branch), kind=WriterKind.MUTATION, actor_id=actor_id, message=message
    )
    report: list[FilledProperty] = []
    commits: list[str] = []
    for entity in fillable(core.catalog(snapshot), types):
        lacking = missing_vectors(core.table(snapshot, entity.table_key), entity)
        ids = list(dict.fromkeys(one for some in lacking.values() for one in some))
        for first in range(0, len(ids), EMBED_COMMIT_ROWS):
            chosen = ids[first : first + EMBED_COMMIT_ROWS]
            after, _ = core.write(intent, _filling(core, entity, chosen), then=then)
            if after is not None and after.graph_commit_id is not None:
                commits.append(after.graph_commit_id)
        left = missing_vectors(core.table(core.head(branch), entity.table_key), entity)
        report += [
            FilledProperty(
                type_name=entity.name,
                property=name,
                missing=len(some),
                filled=len(set(some) - set(left[name])),
            )
            for name, some in lacking.items()
        ]
    return EmbedReport(
        uri=core.root.uri,
        branch=branch,
        properties=tuple(report),
        graph_commit_ids=tuple(commits),
    )


def _filling(
    core: Core, entity: Entity, ids: Sequence[str]
) -> Callable[[WriteContext], tuple[Prepared | None, None]]:
    def prepare(context: WriteContext) -> tuple[Prepared | None, None]:
        catalog = core.catalog(context.snapshot)
        stored = Stored(context.snapshot, context.table)
        pending = Pending(catalog, stored, embeds=True)
        if entity.table_key not in context.snapshot.entries:
            return None, None
        table = pending.table(catalog.type_of(entity.table_key))
        # An empty patch: the row is written as it is, and what it lacks is made.
        for entity_id in ids:
            table.patch(entity_id, {})
        if not pending.fill_vectors(core.world.embedder):
            return None, None
        changes = pending.changes()
        staged = checked(changes, pending, context, stored)
        relied_on = frozenset(stored.relied_on)
        return Prepared(staged=staged, relied_on=relied_on, strict=True), None

    return prepare
