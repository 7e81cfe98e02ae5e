"""Making a graph: claim the place, make the tables, and let the manifest make it exist."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from omnigraph.compiler.schema import compile_schema
from omnigraph.engine.core import Core, OpenMode, assemble
from omnigraph.errors import AlreadyExistsError
from omnigraph.model.changeset import Lineage
from omnigraph.model.graph import SchemaRecord, TableEntry
from omnigraph.model.limits import LEASE_WAIT_MS_MAX
from omnigraph.model.ports import World
from omnigraph.model.schema import Catalog
from omnigraph.model.steps import Step
from omnigraph.storage.arrow_schema import arrow_schema
from omnigraph.storage.layout import INIT_CLAIM, LOCKS, type_folder
from omnigraph.storage.objects import Root, aws_environment, forget_empty_root
from omnigraph.storage.unbroken import stop_if_asked


def init_core(
    uri: str,
    schema_text: str,
    *,
    actor_id: str | None = None,
    world: World | None = None,
    environ: Mapping[str, str] | None = None,
) -> Core:
    """Make an empty graph with this schema; nothing is left behind if that fails."""
    catalog = compile_schema(schema_text)
    root = Root.parse(uri, aws_environment() if environ is None else environ)
    core = assemble(root, world or World(), OpenMode.READ_WRITE)
    _require_absent(core)
    try:
        core.store.put_if_absent(INIT_CLAIM, _claim(core))
        core.world.steps.reach(Step.INIT_CLAIMED)
        core.rooms.leases.holding(
            None, lambda _: _create(core, catalog, actor_id), wait_ms=LEASE_WAIT_MS_MAX
        )
        core.store.delete(INIT_CLAIM)
        core.world.steps.reach(Step.INIT_CLAIM_RELEASED)
    except BaseException:
        _withdraw(core)
        raise
    return core


def _claim(core: Core) -> bytes:
    return orjson.dumps({"claimed_at": str(core.world.clock.now_us())})


def _require_absent(core: Core) -> None:
    if core.rooms.manifests.exists():
        raise AlreadyExistsError(
            f"graph already initialized at '{core.root.uri}'",
            kind="graph",
            name=core.root.uri,
            hint="open it, or choose another place",
        )


def _create(core: Core, catalog: Catalog, actor_id: str | None) -> None:
    _require_absent(core)
    steps = core.world.steps
    made: list[TableEntry] = []
    try:
        for entity in catalog.types():
            stop_if_asked()
            location = type_folder(entity.kind, entity.name)
            # No manifest refers to it: what lies here is left over from an init that died.
            core.store.delete_prefix(location)
            version = core.rooms.tables.create(location, arrow_schema(entity))
            made.append(TableEntry(table_key=entity.table_key, location=location, version=version))
            steps.reach(Step.INIT_TABLE_CREATED)
        steps.reach(Step.INIT_TABLES_CREATED)
        core.rooms.manifests.create(
            schema=SchemaRecord(source=catalog.source, ir=catalog.ir, hash=catalog.hash),
            entries=tuple(made),
            genesis=Lineage(
                commit_id=core.world.ids.ulid(),
                actor_id=actor_id,
                created_at=core.world.clock.now_us(),
            ),
        )
    except Exception:
        for entry in made:
            core.store.delete_prefix(entry.location)
        raise
    steps.reach(Step.INIT_MANIFEST_CREATED)


def _withdraw(core: Core) -> None:
    """Remove what a failed init made, unless somebody else's graph is there by now."""
    core.store.delete(INIT_CLAIM)
    if not core.rooms.manifests.exists():
        core.store.delete_prefix(LOCKS)
        forget_empty_root(core.root)
