"""Version files that are not whole: torn by a power cut, or damaged later.

Lance names a new version before its bytes are on the disk; we ask the disk afterwards, only then
acknowledge, and only after that delete the write's sidecar. So a version file that is not whole was
never acknowledged if the sidecar of its write is still there, and is damage if it is not. The look
at the sidecars is the caller's.
"""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import dataclass
from typing import BinaryIO, Final

_MAGIC: Final = b"LANC"
_LENGTH: Final = struct.Struct("<I")
_FOOTER: Final = struct.Struct("<QHH4s")  # where the last section starts, format numbers, magic
_SECTIONS_MAX: Final = 64
_HINT: Final = "latest_version_hint.json"
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
    """Whether the version's file is built as Lance builds it, from its first byte to its last."""
    try:
        with open(os.path.join(versions_folder, version_file(version)), "rb") as file:
            return _is_whole(file)
    except FileNotFoundError:
        return False


def hinted_torn(versions_folder: str) -> bool:
    """Whether the version that Lance would open first is there and not whole: it trusts its own
    hint, and would panic over some of what it finds."""
    try:
        with open(os.path.join(versions_folder, _HINT), "rb") as file:
            version = int(json.loads(file.read())["version"])
        there = os.path.exists(os.path.join(versions_folder, version_file(version)))
        return there and not is_whole(versions_folder, version)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # a hint that makes no sense leads nowhere


def _is_whole(file: BinaryIO) -> bool:
    """Sections, each behind its length, follow each other without a gap up to the footer, which
    says where the last of them starts. Lance trusts these numbers and panics over wrong ones."""
    size = file.seek(0, os.SEEK_END)
    if size < _FOOTER.size + _LENGTH.size:
        return False
    footer_at = file.seek(size - _FOOTER.size)
    last_at, _, _, magic = _FOOTER.unpack(file.read(_FOOTER.size))
    if magic != _MAGIC:
        return False
    at, seen_last = 0, False
    for _ in range(_SECTIONS_MAX):
        if at >= footer_at:
            break
        seen_last = seen_last or at == last_at
        file.seek(at)
        length = file.read(_LENGTH.size)
        if len(length) < _LENGTH.size:
            return False
        at += _LENGTH.size + _LENGTH.unpack(length)[0]
    return seen_last and at == footer_at


def remove_torn(versions_folder: str) -> tuple[int, ...]:
    """Remove torn files above the newest whole version, so that their numbers can be used.

    Only for whoever has seen the sidecar of the write that they belong to: without one they are
    damaged versions that had been acknowledged, and evidence.
    """
    found = newest_whole(versions_folder)
    if found.version is None:
        return ()  # nothing whole to go on from: leave the evidence
    for version in found.torn:
        os.remove(os.path.join(versions_folder, version_file(version)))
    return found.torn
