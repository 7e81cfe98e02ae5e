"""A graph at another place: where its branches say that it is, and how that is changed.

Lance writes the absolute path of a branch's parent, a *base*, into every version of the branch.
Nothing else in a graph is absolute. One version file tells for all of them where the graph is: the
newest one of the manifest's first branch. `relocate` rewrites it last, so that a graph is refused
until everything else is done, and a relocation that died is simply begun again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import msgspec

from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.inspection import Place
from omnigraph.storage.lance import versions
from omnigraph.storage.lance.files import moved, version_file
from omnigraph.storage.lance.versions import NotAVersionError
from omnigraph.storage.objects.root import MANIFEST, UNFINISHED, Root, branch_folder, is_line


class Stale(msgspec.Struct, frozen=True, kw_only=True):
    """A version file that names places outside of the graph."""

    key: str
    location: str
    made_at: str  # one of them


def require_home(root: Root, store: ObjectStore) -> None:
    """Refuse a graph whose branches were made elsewhere, and a backup that did not come to its end.
    A graph without branches is at home everywhere."""
    folder = f"{MANIFEST}/_refs/branches/"
    keys = store.keys_beginning(folder)
    if UNFINISHED in keys:
        raise NotFoundError(
            f"there is no graph at '{root.uri}', only a backup that did not finish",
            kind="graph",
            name=root.uri,
            hint="make the backup again",
        )
    witness = _witness(store)
    if witness is not None:
        body = store.read(witness)
        bases = () if body is None else _bases(witness, body.body)
        other = next((path for path in bases if root.below(path) is None), None)
        if other is not None:
            raise moved(root, MANIFEST, other.partition(f"/{MANIFEST}")[0])


def _witness(store: ObjectStore) -> str | None:
    """The version file that tells where the graph is; None if no branch ever tells."""
    folder = f"{MANIFEST}/_refs/branches/"
    for key in store.keys_beginning(folder):
        name = key[len(folder) :].removesuffix(".json")
        found = store.keys_beginning(f"{branch_folder(MANIFEST, name)}/_versions/")
        newest = min((one for one in found if one.endswith(".manifest")), default=None)
        if newest is not None and is_line(name):  # newer versions sort first
            return newest
    return None


def stale(root: Root, store: ObjectStore, places: Sequence[str]) -> Iterator[Stale]:
    """Every version file to rewrite, in the order in which that must happen. Nothing is changed,
    and whatever cannot be rewritten is told before anything is."""
    witness = _witness(store)
    below = cache(root.below)  # the disk is asked once a place: a deep branch names them all
    last: Stale | None = None
    for location in sorted(places, key=lambda one: one == MANIFEST):
        place = Place(root, store, location)
        lines = set(place.lines())
        for line in place.lines():
            for version in place.stored(line) if line is not None else ():
                key = f"{branch_folder(location, line)}/_versions/{version_file(version)}"
                found = _stale(below, store, key, location, lines)
                if found is None:
                    continue
                if key == witness:
                    last = found
                else:
                    yield found
    if last is not None:
        yield last


def _stale(
    below: Callable[[str], str | None],
    store: ObjectStore,
    key: str,
    location: str,
    lines: set[str | None],
) -> Stale | None:
    stored = store.read(key)
    bases = () if stored is None else _bases(key, stored.body)
    outside = [path for path in bases if below(path) is None]
    for path in outside:
        line = _line_of(path, location)
        if line not in lines:
            raise CorruptGraphError(
                f"'{key}' reads from '{path}', which did not come along",
                hint="copy the whole graph",
                part=key,
            )
    return Stale(key=key, location=location, made_at=outside[0]) if outside else None


def _bases(key: str, body: bytes) -> tuple[str, ...]:
    try:
        return tuple(versions.read(body).bases.values())
    except NotAVersionError as cause:
        raise CorruptGraphError.at(key, doing="read", reason=str(cause)) from cause


def _line_of(path: str, location: str) -> str | None:
    """Which line of the dataset a base is; `CorruptGraphError` if it is none."""
    if path.endswith(f"/{location}"):
        return None
    _, found, line = path.rpartition(f"/{location}/tree/")
    if not found or not is_line(line):
        raise CorruptGraphError(
            f"a branch of '{location}' reads from '{path}', which is no place of a graph",
            part=location,
        )
    return line


def rewritten(body: bytes, root: Root, location: str) -> bytes:
    """A version file of a line of the dataset, with all its bases below that root."""

    def here(path: str) -> str:
        return root.child(branch_folder(location, _line_of(path, location)))

    return versions.moved(body, here)
