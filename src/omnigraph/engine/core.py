"""An open graph's parts, put together once and shared by everything that works on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from itertools import takewhile

from omnigraph.compiler.schema import OldSchemas, catalog_from_ir
from omnigraph.errors import (
    AlreadyExistsError,
    InputError,
    IntegrityError,
    NotFoundError,
    UnavailableError,
)
from omnigraph.model.graph import MAIN, Branch, SchemaRecord, Snapshot
from omnigraph.model.limits import LEASE_WAIT_MS_MAX
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.schema import Catalog
from omnigraph.storage.audit import Audit
from omnigraph.storage.history import History
from omnigraph.storage.layout import INIT_CLAIM
from omnigraph.storage.lease import Lease, Leases
from omnigraph.storage.manifest import ManifestStore
from omnigraph.storage.migrations import is_due, migrate
from omnigraph.storage.objects import Root, aws_environment, open_store
from omnigraph.storage.publisher import Publisher
from omnigraph.storage.recovery import Rooms, Stuck
from omnigraph.storage.refs import Refs
from omnigraph.storage.sidecar import Sidecars
from omnigraph.storage.table import Table, Tables
from omnigraph.storage.writer import WRITER_KIND_PROPERTY, Intent, Prepare, Writer

_MANIFEST_TARGET = re.compile(r"manifest:(?P<branch>.+):v(?P<version>\d+)(?::.*)?")


class OpenMode(Enum):
    """Read-write opens migrate and recover; read-only opens write nothing at all."""

    READ_WRITE = "read-write"
    READ_ONLY = "read-only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The parts. `writer` is there in either mode; `require_writable` guards its use."""

    root: Root
    store: ObjectStore
    rooms: Rooms
    history: History
    writer: Writer
    mode: OpenMode

    # --- what every operation starts with --------------------------------------------------

    @property
    def world(self) -> World:
        return self.rooms.world

    def branch(self, name: str) -> Branch:
        return self.rooms.refs.get(name)

    @contextmanager
    def meanwhile(self, *branches: Branch) -> Iterator[None]:
        """Run the body; what fails because a branch was deleted under it says so."""
        try:
            yield
        except (NotFoundError, IntegrityError, UnavailableError) as cause:
            for branch in branches:
                try:
                    self.rooms.refs.require_alive(branch)
                except NotFoundError as gone:
                    raise gone from cause
            raise

    def head(self, branch: str = MAIN) -> Snapshot:
        found = self.branch(branch)
        with self.meanwhile(found):
            return self.rooms.manifests.head(found)

    def snapshot(self, branch: str = MAIN, at: str | int | datetime | None = None) -> Snapshot:
        """The branch head, or the graph as it was `at` a commit id, a manifest version of the
        branch (a number, or `manifest:<branch>:v<n>`) or a moment (RFC 3339 text or datetime)."""
        if at is None:
            return self.head(branch)
        if isinstance(at, int):
            return self.rooms.manifests.at_version(self.branch(branch), at)
        if isinstance(at, datetime):
            return self._at_moment(branch, at)
        if target := _MANIFEST_TARGET.fullmatch(at):
            owner = self.branch(target["branch"])
            return self.rooms.manifests.at_version(owner, int(target["version"]))
        moment = _moment(at)
        return self._at_moment(branch, moment) if moment else self.rooms.manifests.at_commit(at)

    def _at_moment(self, branch: str, moment: datetime) -> Snapshot:
        cut = round(moment.timestamp() * 1_000_000)
        for commit in self.history.commits(self.branch(branch)):
            if commit.created_at <= cut:
                return self.rooms.manifests.at_commit(commit.graph_commit_id)
        raise NotFoundError(
            f"branch '{branch}' has no commit at or before {moment.isoformat()}",
            kind="commit",
            name=moment.isoformat(),
        )

    def catalog(self, snapshot: Snapshot) -> Catalog:
        """The schema that the snapshot was written under."""
        return _catalog(snapshot.schema)

    def table(self, snapshot: Snapshot, table_key: str) -> Table:
        return self.rooms.tables.open(snapshot.entries[table_key])

    def write(
        self,
        intent: Intent,
        prepare: Prepare,
        *,
        then: Callable[[Snapshot | None], None] | None = None,
    ) -> Snapshot | None:
        """Commit what `prepare` makes of the branch head; `then` is told what came of it."""
        self.require_writable()
        return self.writer.write(intent, prepare, then=then)

    def require_writable(self) -> None:
        if self.mode is not OpenMode.READ_WRITE:
            raise InputError(f"'{self.root.uri}' is open read-only", hint="open it read-write")

    def recover(self, *, wait_ms: int = LEASE_WAIT_MS_MAX) -> tuple[Stuck, ...]:
        """Settle unfinished writes of dead writers; read-only graphs leave them alone."""
        if self.mode is OpenMode.READ_ONLY:
            return ()
        return self.writer.recovery.sweep(wait_ms=wait_ms)

    def create_branch(self, name: str, from_branch: str, *, actor_id: str | None) -> Branch:
        """Fork a branch at its parent's head.

        Under the parent's lease and after its unfinished writes: a schema that is being applied,
        or whose apply died half way, would leave the new branch behind with the old one.
        """
        self.require_writable()
        parent = self.branch(from_branch)

        def create(lease: Lease) -> Branch:
            self.writer.recovery.sweep_branch(parent, lease)
            return self.rooms.refs.create(name, from_branch, actor_id=actor_id)

        return self.rooms.leases.holding(parent.id, create, wait_ms=LEASE_WAIT_MS_MAX)

    def delete_branch(self, name: str, *, force: bool = False) -> None:
        """End a branch; a writer at work on it finishes first. `force` also ends one whose
        reference cannot be read, and nothing else that would be refused."""
        self.require_writable()
        if force and self.rooms.refs.delete_unreadable(name):
            return
        branch = self.branch(name)
        if branch.id is None:
            self.rooms.refs.delete(name)  # refuses main
            return
        self.rooms.leases.holding(
            branch.id, lambda _: self.rooms.refs.delete(name), wait_ms=LEASE_WAIT_MS_MAX
        )

    def load_target(
        self, name: str, from_branch: str | None, *, actor_id: str | None
    ) -> tuple[Branch, bool]:
        """The branch to load into, and whether it had to be made for this load."""
        try:
            return self.branch(name), False
        except NotFoundError:
            if from_branch is None:
                raise
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
                self.history.commits(made),
            )
            # Taking back half a write leaves a commit too, but that one is nobody's work.
            if not any(WRITER_KIND_PROPERTY in commit.properties for commit in own):
                self.rooms.refs.delete(made.name)

        self.rooms.leases.holding(made.id, abandon, wait_ms=LEASE_WAIT_MS_MAX)

    def close(self) -> None:
        self.writer.close()


@lru_cache(maxsize=64)
def _catalog(record: SchemaRecord) -> Catalog:
    return catalog_from_ir(record.ir, record.source)


def _moment(text: str) -> datetime | None:
    """The moment that RFC 3339 text means, or None if it is no such text."""
    if not re.match(r"\d{4}-\d{2}-\d{2}", text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# --- opening and making ----------------------------------------------------------------------


def assemble(root: Root, world: World, mode: OpenMode, *, store: ObjectStore | None = None) -> Core:
    """Put the parts together; a `store` of one's own is how tests make control objects fail."""
    store = store or open_store(root, world)
    tables = Tables(root, world)
    manifests = ManifestStore(root, world, store, old_schemas=OldSchemas())
    refs = Refs(manifests, tables, store, world)
    rooms = Rooms(
        world=world,
        tables=tables,
        manifests=manifests,
        publisher=Publisher(manifests, world),
        refs=refs,
        leases=Leases(root, store, world),
        sidecars=Sidecars(store),
        audit=Audit(tables, store),
    )
    return Core(
        root=root,
        store=store,
        rooms=rooms,
        history=History(manifests, refs),
        writer=Writer(rooms),
        mode=mode,
    )


def open_core(
    uri: str,
    *,
    mode: OpenMode,
    world: World | None = None,
    environ: Mapping[str, str] | None = None,
) -> Core:
    """Open the graph at `uri`, or raise `NotFoundError`."""
    root = Root.parse(uri, aws_environment() if environ is None else environ)
    core = assemble(root, world or World(), mode)
    if not core.rooms.manifests.exists():
        begun = core.store.read(INIT_CLAIM) is not None
        raise NotFoundError(
            f"there is no graph at '{uri}'" + (", only an init that did not finish" * begun),
            kind="graph",
            name=uri,
            hint="make one with `omnigraph init`",
        )
    due = is_due(core.rooms.manifests)
    if mode is OpenMode.READ_WRITE:
        if due:
            migrate(core.rooms.manifests, core.world)
        core.recover()
    return core
