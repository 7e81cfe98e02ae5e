"""After a hard drop: the past of what was dropped goes too.

The drop itself is published before anything is removed. If this is interrupted the rest of the past
stays readable until `cleanup` takes it; nothing that a branch still shows is ever touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from omnigraph.engine.core import Core
from omnigraph.engine.evolve_tables import Evolution
from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import Snapshot
from omnigraph.storage.layout import dropped_mark

logger = logging.getLogger(__name__)

Pin = tuple[str, str | None, int]


def collect_dropped(core: Core, evolution: Evolution, before: Snapshot, after: Snapshot) -> None:
    """Remove dropped types altogether, and of tables that lost a property all older versions."""
    if core.rooms.refs.unreadable():
        logger.warning("the past stays", extra={"why": "what a branch shows cannot be read"})
        return
    live = _live_pins(core)
    for key in evolution.dropped:
        entry = before.entries[key]
        if not any(location == entry.location for location, _, _ in live):
            _quietly(entry.location, partial(_forget, core, entry.location))
    for one in evolution.kept:
        if not one.hard:
            continue
        entry = after.entries[one.entity.table_key]
        kept = {version for at, branch, version in live if (at, branch) == (entry.location, None)}
        kept.add(entry.version)
        _quietly(entry.location, partial(_collect, core, entry.location, kept))


def _live_pins(core: Core) -> set[Pin]:
    """What any branch shows now: somebody may have made one since the plan was checked."""
    heads = (core.rooms.manifests.head(branch) for branch in core.rooms.refs.list())
    return {
        (entry.location, entry.branch, entry.version) for head in heads for entry in head.datasets
    }


def _collect(core: Core, location: str, kept: set[int]) -> None:
    versions = set(core.rooms.tables.versions(location, None))
    core.rooms.tables.collect(location, None, versions - kept)


def _forget(core: Core, location: str) -> None:
    # The mark comes first and stays: a later type of this name must not take the place, or old
    # snapshots would show its entities as theirs.
    core.store.put_if_absent(dropped_mark(location), b"")
    core.rooms.tables.forget(location)
    core.store.delete_prefix(location)


def _quietly(location: str, deed: Callable[[], None]) -> None:
    """The schema is applied whether or not the past can be removed now."""
    try:
        deed()
    except OmnigraphError as cause:
        logger.warning("the past stays", extra={"location": location, "why": cause.message})
