"""An open graph's parts, put together once and shared by everything that works on it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final, Literal, TypeVar, get_args

import msgspec
import orjson
from msgspec.structs import replace

from omnigraph.compiler.query import CompiledQuery, compile_query
from omnigraph.compiler.schema import OldSchemas, catalog_from_ir, compile_schema
from omnigraph.engine.arguments import (
    AT_OR_NONE,
    FLAG,
    INT_OR_NONE,
    REF,
    TEXT,
    TEXT_OR_NONE,
    Kind,
    require,
    require_message,
)
from omnigraph.engine.embed import CachingEmbedder, embedder_for
from omnigraph.engine.refs import At, Ref, branch_named, commit_at, parent_named, snapshot_at
from omnigraph.engine.rows.blobs import BlobBases
from omnigraph.engine.unmerged import is_work, unmerged_work
from omnigraph.errors import (
    AlreadyExistsError,
    CorruptGraphError,
    InputError,
    NotFoundError,
    UnmergedBranchError,
)
from omnigraph.model.graph import MAIN, Branch, Commit, Lineage, SchemaRecord, Snapshot, TableEntry
from omnigraph.model.limits import LEASE_WAIT_MS_MAX
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.schema import Catalog, Identities
from omnigraph.model.steps import Step
from omnigraph.storage.commit.audit import RecoveryRecord
from omnigraph.storage.commit.prepared import Intent
from omnigraph.storage.commit.recovery import Recovery, Resolution, Stuck
from omnigraph.storage.commit.sidecar import Sidecars
from omnigraph.storage.commit.writer import Prepare, Writer
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.manifest.migrations import is_due, migrate
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH
from omnigraph.storage.moving import require_home
from omnigraph.storage.objects.lease import Lease, stop_if_asked
from omnigraph.storage.objects.local import LOCKS
from omnigraph.storage.objects.root import (
    INIT_CLAIM,
    MANIFEST,
    UNFINISHED,
    Root,
    aws_environment,
    forget_empty_root,
    open_store,
    type_folder,
)
from omnigraph.storage.store import Store
from omnigraph.storage.table.table import Table

_HOW: Final = Kind("'auto', 'roll-back' or 'discard'", lambda v: v in get_args(Resolution))
_Told = TypeVar("_Told")


class OpenMode(StrEnum):
    """Read-write opens migrate and recover; read-only opens write nothing at all."""

    READ_WRITE = "read-write"
    READ_ONLY = "read-only"


class Core(msgspec.Struct, frozen=True, kw_only=True):
    """The parts. `writer` is there in either mode; `require_writable` guards its use."""

    store: Store
    recovery: Recovery
    writer: Writer
    mode: OpenMode

    # --- what every operation starts with --------------------------------------------------

    @property
    def root(self) -> Root:
        return self.store.root

    @property
    def world(self) -> World:
        return self.store.world

    def branch(self, name: str) -> Branch:
        require(TEXT, branch=name)
        return branch_named(self.store, name)

    def head(self, branch: str = MAIN) -> Snapshot:
        found = self.branch(branch)
        with self.store.meanwhile(found):
            return self.store.manifests.head(found)

    def snapshot(self, branch: str = MAIN, at: At | None = None) -> Snapshot:
        """The branch head, or the graph as it was `at` a ref; a ref may stand for the branch too
        (`refs.py` says what a ref is)."""
        if at is None and type(branch) is str and branch == MAIN:
            return self.store.manifests.head(MAIN_BRANCH)  # what nearly all ask for, and never ends
        require(TEXT, branch=branch)
        require(AT_OR_NONE, snapshot=at)
        if at is not None:
            return snapshot_at(self.store, at, branch)
        try:
            return snapshot_at(self.store, branch, MAIN)
        except NotFoundError as cause:
            if (cause.facts["kind"], cause.facts["name"]) == ("ref", branch):
                self.branch(branch)  # says the same of a branch
            raise

    def commit(self, at: Ref, *, branch: str = MAIN) -> Commit:
        """The commit that a ref names."""
        require(REF, commit_id=at)
        return commit_at(self.store, at, branch)

    def catalog(self, snapshot: Snapshot) -> Catalog:
        """The schema that the snapshot was written under."""
        return catalog_of(snapshot.schema)

    def table(self, snapshot: Snapshot, table_key: str) -> Table:
        return self.store.tables.open(snapshot.entries[table_key])

    def write(
        self,
        intent: Intent,
        prepare: Prepare[_Told],
        *,
        then: Callable[[Snapshot | None], None] | None = None,
    ) -> tuple[Snapshot | None, _Told]:
        """Commit what `prepare` makes of the branch head; `then` is told what came of it."""
        self.require_writable()
        require(TEXT_OR_NONE, actor=intent.actor_id, if_commit=intent.if_commit)
        require_message(intent.message)
        return self.writer.write(intent, prepare, then=then)

    def require_writable(self) -> None:
        if self.mode is not OpenMode.READ_WRITE:
            raise InputError(f"'{self.root.uri}' is open read-only", hint="open it read-write")

    def recover(self, *, wait_ms: int = LEASE_WAIT_MS_MAX) -> tuple[Stuck, ...]:
        """Settle unfinished writes of dead writers; read-only graphs leave them alone."""
        if self.mode is OpenMode.READ_ONLY:
            return ()
        return self.recovery.sweep(wait_ms=wait_ms)

    def resolve(self, operation_id: str, how: Resolution) -> RecoveryRecord:
        """Settle one unfinished write by hand."""
        self.require_writable()
        require(TEXT, operation_id=operation_id)
        require(_HOW, how=how)
        return self.recovery.resolve_by_hand(operation_id, how=how)

    def create_branch(self, name: str, from_branch: str, *, actor_id: str | None) -> Branch:
        """Fork a branch at its parent's head.

        Under the parent's lease and after its unfinished writes: a schema that is being applied,
        or whose apply died half way, would leave the new branch behind with the old one.
        """
        self.require_writable()
        require(TEXT, name=name, from_branch=from_branch)
        require(TEXT_OR_NONE, actor=actor_id)
        parent = parent_named(self.store, from_branch)

        def create(lease: Lease) -> Branch:
            self.recovery.sweep_branch(parent, lease)
            return self.store.refs.create(name, from_branch, actor_id=actor_id)

        return self.store.leases.holding(parent.id, create, wait_ms=LEASE_WAIT_MS_MAX)

    def delete_branch(self, name: str, *, actor_id: str | None = None, force: bool = False) -> None:
        """End a branch; a writer at work on it finishes first.

        `UnmergedBranchError` if it holds work that no other branch has; `force` ends it in any case
        and keeps that work aside until cleanup. `force` also ends a branch that cannot be read.
        """
        self.require_writable()
        require(TEXT, name=name)
        require(TEXT_OR_NONE, actor=actor_id)
        require(FLAG, force=force)
        if force and self.store.refs.delete_unreadable(name):
            return
        branch = self.branch(name)

        def delete(_: Lease) -> None:
            own = unmerged_work(self.store, branch)
            if own.commits and not force:
                raise UnmergedBranchError(
                    branch=name, head_commit_id=own.head_commit_id, commits=own.commits
                )
            self.store.refs.delete(name, actor_id=actor_id, unmerged=bool(own.commits))

        if branch.id is None:
            self.store.refs.delete(name)  # refuses main
        self.store.leases.holding(branch.id, delete, wait_ms=LEASE_WAIT_MS_MAX)

    def load_target(
        self, name: str, from_branch: str | None, *, actor_id: str | None
    ) -> tuple[Branch, bool]:
        """The branch to load into, and whether it had to be made for this load."""
        require(TEXT, branch=name)
        found = self.store.refs.find(name)
        if found is not None or from_branch is None:
            return found or self.branch(name), False
        try:
            return self.create_branch(name, from_branch, actor_id=actor_id), True
        except AlreadyExistsError:
            return self.branch(name), False  # another load has made it since we looked

    def abandon_branch(self, made: Branch) -> None:
        """Delete a branch that was made for a load which failed. What somebody else has written to
        it meanwhile stays, and so does the branch then."""
        assert made.id is not None, "main is never made for a load"

        def abandon(_: Lease) -> None:
            if self.branch(made.name).id != made.id:
                return
            own = takewhile(
                lambda commit: commit.graph_commit_id != made.fork_commit_id,
                self.store.history.commits(made),
            )
            if not any(is_work(commit) for commit in own):
                self.store.refs.delete(made.name)

        self.store.leases.holding(made.id, abandon, wait_ms=LEASE_WAIT_MS_MAX)

    def close(self) -> None:
        self.writer.close()


def catalog_of(record: SchemaRecord) -> Catalog:
    """The catalog that a graph stored."""
    global _newest  # one pair, replaced at one blow: every read asks for it
    newest = _newest
    if newest is not None and newest[0] is record:
        return newest[1]
    found = _catalog(record.ir, record.source, msgspec.json.encode(record.identities))
    _newest = (record, found)
    return found


_newest: tuple[SchemaRecord, Catalog] | None = None


@lru_cache(maxsize=64)
def _catalog(ir: str, source: str, identities: bytes) -> Catalog:
    try:
        found = catalog_from_ir(ir, source)
        return replace(found, identities=msgspec.json.decode(identities, type=Identities))
    except CorruptGraphError as cause:
        # The compiler does not know where it came from: every schema is a row of the manifest.
        raise CorruptGraphError.at(
            MANIFEST, doing="read the schema", reason=cause.message
        ) from cause


# --- opening and making ----------------------------------------------------------------------


def assemble(
    root: Root, world: World, mode: OpenMode, *, objects: ObjectStore | None = None
) -> Core:
    """Put the parts together; `objects` of one's own is how tests make control objects fail."""
    objects = objects or open_store(root, world)
    sidecars = Sidecars(objects)
    store = Store.over(root, world, objects, old_schemas=OldSchemas(), unfinished=sidecars.follows)
    recovery = Recovery(store, sidecars)
    return Core(store=store, recovery=recovery, writer=Writer(store, recovery), mode=mode)


def open_core(uri: str, *, mode: OpenMode | str, world: World | None = None) -> Core:
    """Open the graph at `uri`, or raise `NotFoundError`."""
    require(TEXT, mode=mode)
    try:
        mode = OpenMode(mode)
    except ValueError as cause:
        known = " or ".join(f'"{one}"' for one in OpenMode)
        raise InputError(f"unknown mode '{mode}'", hint=f"use {known}") from cause
    core = assemble(Root.parse(uri, aws_environment()), world or World(), mode)
    try:
        is_there = core.store.manifests.exists()
    except CorruptGraphError:
        require_home(core.root, core.store.objects)  # what a backup that died left is no damage
        raise
    if not is_there:
        require_home(core.root, core.store.objects)
        begun = core.store.objects.read(INIT_CLAIM) is not None
        raise NotFoundError(
            f"there is no graph at '{uri}'" + (", only an init that did not finish" * begun),
            kind="graph",
            name=uri,
            hint="make one with `Graph.init` or `omnigraph init`",
        )
    due = is_due(core.store.manifests)  # refuses a damaged old graph in either mode
    if not due:  # graphs of others hold the places of whoever made them, and migrate all the same
        require_home(core.root, core.store.objects)
    if mode is OpenMode.READ_WRITE:
        if due:
            migrate(core.store.manifests, core.world)
        core.recover()
    return core


def world_of(options: dict[str, Any]) -> World:
    """The world that keyword options ask for: `durability`, `cache_bytes`, `blob_bases`,
    `embedder`, or a whole `world` for tests."""
    world = options.pop("world", None) or World()
    durability = options.pop("durability", world.durability)
    cache_bytes = options.pop("cache_bytes", world.cache_bytes)
    bases = BlobBases.of(options.pop("blob_bases", world.blob_bases))
    embedder = embedder_for(options.pop("embedder", None))
    if options:
        raise InputError(
            f"unknown option '{next(iter(options))}'",
            hint="there are actor, blob_bases, cache_bytes, durability, embedder, maintenance and "
            "policy",
        )
    if durability not in ("power", "process"):
        raise InputError(f"unknown durability '{durability}'", hint='use "power" or "process"')
    require(INT_OR_NONE, cache_bytes=cache_bytes)
    if cache_bytes is not None and cache_bytes < 0:
        raise InputError(f"cache_bytes must not be negative, got {cache_bytes}")
    return replace(
        world,
        durability=durability,
        cache_bytes=cache_bytes,
        blob_bases=None if bases is None else bases.bases,
        embedder=world.embedder if embedder is None else CachingEmbedder(embedder),
    )


def init_core(uri: str, schema_text: str, *, actor_id: str | None, world: World) -> Core:
    """Make an empty graph with this schema; nothing is left behind if that fails."""
    require(TEXT, schema_text=schema_text)
    require(TEXT_OR_NONE, actor=actor_id)
    catalog = compile_schema(schema_text)
    core = assemble(Root.parse(uri, aws_environment()), world, OpenMode.READ_WRITE)
    _require_absent(core)
    try:
        claim = orjson.dumps({"claimed_at": str(world.clock.now_us())})
        core.store.objects.put_if_absent(INIT_CLAIM, claim)
        core.world.steps.reach(Step.INIT_CLAIMED)
        core.store.leases.holding(
            None, lambda _: _create(core, catalog, actor_id), wait_ms=LEASE_WAIT_MS_MAX
        )
        core.store.objects.delete(INIT_CLAIM)
        core.world.steps.reach(Step.INIT_CLAIM_RELEASED)
    except BaseException:
        _withdraw(core)
        raise
    return core


def _require_absent(core: Core) -> None:
    if core.store.objects.read(UNFINISHED) is not None or core.store.manifests.exists():
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
            core.store.objects.delete_prefix(location)
            version = core.store.tables.create(location, arrow_schema(entity))
            made.append(TableEntry(table_key=entity.table_key, location=location, version=version))
            steps.reach(Step.INIT_TABLE_CREATED)
        steps.reach(Step.INIT_TABLES_CREATED)
        core.store.manifests.create(
            schema=SchemaRecord.of(catalog),
            entries=tuple(made),
            genesis=Lineage(
                commit_id=core.world.ids.ulid(),
                actor_id=actor_id,
                created_at=core.world.clock.now_us(),
            ),
        )
    except Exception:
        for entry in made:
            core.store.objects.delete_prefix(entry.location)
        raise
    steps.reach(Step.INIT_MANIFEST_CREATED)


def _withdraw(core: Core) -> None:
    """Remove what a failed init made, unless somebody else's graph is there by now."""
    core.store.objects.delete(INIT_CLAIM)
    if not core.store.manifests.exists():
        core.store.objects.delete_prefix(LOCKS)
        forget_empty_root(core.root)


def compiled_as(
    kind: Literal["read", "mutation"], source: str, name: str | None, catalog: Catalog
) -> CompiledQuery:
    """The query, or `InputError` if it is of the other kind."""
    if type(source) is not str or name is not None or not source.isascii():
        require(TEXT, source=source)
        require(TEXT_OR_NONE, name=name)
    compiled = compile_query(source, catalog, name)
    if compiled.kind == kind:
        return compiled
    verb = "mutate" if kind == "read" else "query"
    what = "a mutation" if kind == "read" else "a read query"
    raise InputError(
        f"query '{compiled.name}' is {what}", hint=f"run it with `{verb}`", query=compiled.name
    )
