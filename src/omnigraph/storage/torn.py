"""Version files that a power cut left torn.

Lance names a new version before its bytes are on the disk; we ask the disk afterwards and only
then acknowledge. A version file that is not whole was therefore never acknowledged, and counts as
not written.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

_MAGIC: Final = b"LANC"
_NAME: Final = re.compile(r"(\d{20})\.manifest")
_TOP: Final = (1 << 64) - 1


def version_file(version: int) -> str:
    """The file name of a version: newer versions sort first."""
    return f"{_TOP - version:020d}.manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The newest whole version (None = there is none) and the torn ones above it."""

    version: int | None
    torn: tuple[int, ...]


def newest_whole(versions_folder: str) -> Found:
    """Look at the version files of a local dataset, newest first."""
    torn: list[int] = []
    try:
        names = sorted(os.listdir(versions_folder))
    except FileNotFoundError:
        names = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        version = _TOP - int(match.group(1))
        if is_whole(versions_folder, version):
            return Found(version=version, torn=tuple(torn))
        torn.append(version)
    return Found(version=None, torn=tuple(torn))


def is_whole(versions_folder: str, version: int) -> bool:
    """Whether the version's file ends as Lance ends it."""
    try:
        with open(os.path.join(versions_folder, version_file(version)), "rb") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() < len(_MAGIC):
                return False
            file.seek(-len(_MAGIC), os.SEEK_END)
            return file.read() == _MAGIC
    except FileNotFoundError:
        return False


def remove_torn(versions_folder: str) -> tuple[int, ...]:
    """Remove torn files above the newest whole version, so that their numbers can be used."""
    found = newest_whole(versions_folder)
    if found.version is None:
        return ()  # nothing whole to go on from: leave the evidence
    for version in found.torn:
        os.remove(os.path.join(versions_folder, version_file(version)))
    return found.torn
