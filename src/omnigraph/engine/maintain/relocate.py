"""`relocate`: make a graph whole where it is, after its folder was moved or copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from omnigraph.engine.arguments import TEXT, require
from omnigraph.errors import ConflictError, NotFoundError
from omnigraph.model.limits import LEASE_WAIT_MS_MAX
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.steps import Step
from omnigraph.model.structs import JsonStruct
from omnigraph.storage.lance.files import moved
from omnigraph.storage.moving import Stale, rewritten, stale
from omnigraph.storage.objects.lease import Leases
from omnigraph.storage.objects.local import LOCKS, PRESENCE_LOCK, LockFile
from omnigraph.storage.objects.root import (
    AUDIT,
    MANIFEST,
    UNFINISHED,
    Root,
    aws_environment,
    open_store,
    stored_tables,
)


class RelocateReport(JsonStruct, frozen=True, kw_only=True):
    """Where the graph is and was, and how many version files were rewritten: 0 = it was at home."""

    uri: str
    made_at: str | None
    versions_rewritten: int


def relocate(uri: str | os.PathLike[str], *, world: World | None = None) -> RelocateReport:
    """Rewrite the places that the branches of the graph at `uri` name, so that all of it answers
    there. Repeat it after a crash. Refused while another handle has the graph open."""
    address = os.fspath(uri)
    require(TEXT, uri=address)
    world = world or World()
    root = Root.parse(address, aws_environment())
    store = open_store(root, world)
    _require_graph(root, store)
    found = list(stale(root, store, places(store)))
    if not found:
        return RelocateReport(uri=root.uri, made_at=None, versions_rewritten=0)
    with _alone(root):
        Leases(root, store, world).holding(
            None, lambda _: _rewrite(root, store, world), wait_ms=LEASE_WAIT_MS_MAX
        )
    first = found[-1]
    made_at = first.made_at.partition(f"/{first.location}")[0]
    return RelocateReport(uri=root.uri, made_at=made_at, versions_rewritten=len(found))


def _rewrite(root: Root, store: ObjectStore, world: World) -> None:
    # Looked at again: another relocation may have been at work until a moment ago.
    for one in list(stale(root, store, places(store))):
        _rewrite_one(root, store, one)
        world.steps.reach(Step.RELOCATE_VERSION_REWRITTEN)
    world.steps.reach(Step.RELOCATE_DONE)


def _rewrite_one(root: Root, store: ObjectStore, one: Stale) -> None:
    stored = store.read(one.key)
    if stored is None:
        raise moved(root, one.key, one.made_at)
    body = rewritten(stored.body, root, one.location)
    # Danger: replaced as a whole. Half a version file would be a damaged branch.
    assert body != stored.body, "what is stale changes"
    store.put(one.key, body)


def places(store: ObjectStore) -> list[str]:
    """Every dataset below the root."""
    audit = [AUDIT] if store.keys_beginning(f"{AUDIT}/_versions/") else []
    return [*stored_tables(store), *audit, MANIFEST]


def _require_graph(root: Root, store: ObjectStore) -> None:
    begun = store.read(UNFINISHED) is not None
    if begun or not store.keys_beginning(f"{MANIFEST}/_versions/"):
        raise NotFoundError(
            f"there is no graph at '{root.uri}'" + ", only a backup that did not finish" * begun,
            kind="graph",
            name=root.uri,
        )


@contextmanager
def _alone(root: Root) -> Iterator[None]:
    """Nobody else has the graph open, nor can open it meanwhile. On an object store nobody can
    tell, but a graph that is elsewhere is refused at open."""
    if root.local_path is None:
        yield
        return
    folder = os.path.join(root.local_path, LOCKS)
    os.makedirs(folder, exist_ok=True)
    with closing(LockFile(os.path.join(folder, PRESENCE_LOCK))) as file:
        if not file.try_lock():
            raise ConflictError(
                f"'{root.uri}' is in use by another process or handle",
                hint="close it there and try again",
                uri=root.uri,
            )
        yield
