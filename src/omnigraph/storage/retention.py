"""Letting go of old table versions. Which ones nobody needs is for the caller to know."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from omnigraph.storage.faults import translated
from omnigraph.storage.handles import Handles


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a collection removed. `failed_deletes` counts files that will be tried again."""

    versions: int = 0
    bytes: int = 0
    data_files: int = 0
    failed_deletes: int = 0


def versions(handles: Handles, location: str, branch: str | None) -> tuple[int, ...]:
    """Every version that is still stored, ascending; the last one is the head."""
    head = handles.head(location, branch)
    with translated(handles.uri(location, branch), doing="list versions of table"):
        return tuple(sorted(int(one["version"]) for one in head.version_refs()))


def collect(
    handles: Handles, location: str, branch: str | None, unwanted: Collection[int]
) -> Collected:
    """Remove these versions and the files that only they use.

    The head and versions that a branch starts from stay. Files of writes that are still being
    staged are younger than Lance's week of grace and stay too.
    """
    head = handles.head(location, branch)
    old = sorted(version for version in unwanted if version < int(head.version))
    if not old:
        return Collected()
    with translated(handles.uri(location, branch), doing="collect versions of table"):
        done = head.cleanup_old_versions(
            versions=old, delete_unverified=False, error_if_tagged_old_versions=False
        )
    handles.forget_versions(location, branch, old)
    return Collected(
        versions=int(done.old_versions),
        bytes=int(done.bytes_removed),
        data_files=int(done.data_files_removed),
        failed_deletes=int(done.failed_deletes),
    )
