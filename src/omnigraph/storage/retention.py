"""Letting go of old table versions. Which ones nobody needs is for the caller to know."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from omnigraph.storage.faults import steadily, translated
from omnigraph.storage.handles import Handles

# Asked for a version that never was, Lance still sweeps up files that were never committed.
_NO_VERSION: Final = 1 << 62


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


def preview(
    handles: Handles, location: str, branch: str | None, unwanted: Collection[int]
) -> Collected:
    """What `collect` would remove."""
    head = handles.head(location, branch)
    old = sorted(version for version in unwanted if version < int(head.version))
    with translated(handles.uri(location, branch), doing="look at versions of table"):
        told = steadily(
            lambda: head.explain_cleanup_old_versions(
                versions=old or [_NO_VERSION],
                delete_unverified=False,
                error_if_tagged_old_versions=False,
            )
        ).stats
    return Collected(
        versions=int(told.old_versions),
        bytes=int(told.bytes_removed),
        data_files=int(told.data_files_removed),
    )


def last_written_us(handles: Handles, location: str) -> int:
    """When the newest version of a table's own line was made, by the machine that made it."""
    head = handles.head(location, None)
    with translated(handles.uri(location, None), doing="read age of table"):
        moment: datetime = head.get_version()["timestamp"]
    return round(moment.timestamp() * 1_000_000)


def collect(
    handles: Handles, location: str, branch: str | None, unwanted: Collection[int]
) -> Collected:
    """Remove these versions and the files that only they use.

    The head and versions that a branch starts from stay. Files that no version ever had go when
    they are a week old; writes that are still being staged have younger ones.
    """
    head = handles.head(location, branch)
    old = sorted(version for version in unwanted if version < int(head.version))
    with translated(handles.uri(location, branch), doing="collect versions of table"):
        done = steadily(
            lambda: head.cleanup_old_versions(
                versions=old or [_NO_VERSION],
                delete_unverified=False,
                error_if_tagged_old_versions=False,
            )
        )
    handles.forget_versions(location, branch, old)
    return Collected(
        versions=int(done.old_versions),
        bytes=int(done.bytes_removed),
        data_files=int(done.data_files_removed),
        failed_deletes=int(done.failed_deletes),
    )
