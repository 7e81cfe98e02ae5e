"""Where things lie below a graph root, and under which names."""

from __future__ import annotations

import re
from typing import Final

from omnigraph.model.schema import EntityKind

MANIFEST: Final = "__manifest"
RECOVERY: Final = "__recovery"
REFS: Final = "_refs/branches"
RETIRED: Final = "_refs/retired"  # branches that are deleted but still needed as bases
DESCENT: Final = "_refs/descent.json"  # parents of commits whose branch is gone
LOCKS: Final = "__locks"
OBJECTS_LOCK: Final = "objects.lock"
PRESENCE_LOCK: Final = "present.lock"
INIT_CLAIM: Final = "__init_claim.json"
AUDIT: Final = "_graph_commit_recoveries.lance"
AUDIT_RECORDS: Final = "_graph_commit_recoveries"  # rows that the table could not take

# Names that come from files are untrusted: each is looked at before it becomes a path.
_ID: Final = re.compile(r"[0-9A-Za-z_-]+")
_LOCATION: Final = re.compile(r"(nodes|edges)/[0-9a-f]+(-\d+)?")
_LINE_PART: Final = re.compile(r"[0-9A-Za-z_.-]*[0-9A-Za-z_-][0-9A-Za-z_.-]*")  # not only dots

_FOLDERS: Final = {"node": "nodes", "edge": "edges"}
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_U64: Final = (1 << 64) - 1


def fnv1a64(text: str) -> int:
    """The 64-bit FNV-1a hash of the text's UTF-8 bytes."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _U64
    return value


def type_folder(kind: EntityKind, name: str, *, life: int = 1) -> str:
    """The folder of a type's table. A later life of the same name gets `-2`, `-3`, …"""
    assert life >= 1, "lives count from 1"
    suffix = f"-{life}" if life > 1 else ""
    return f"{_FOLDERS[kind]}/{fnv1a64(name):016x}{suffix}"


def dropped_mark(location: str) -> str:
    """A file beside the place of a table that was dropped for good: the place is never reused."""
    return f"{location}.dropped"


def branch_folder(location: str, branch: str | None) -> str:
    """Where Lance keeps a branch of the dataset at `location`; None is its main line."""
    return location if branch is None else f"{location}/tree/{branch}"


def is_id(text: object) -> bool:
    """Whether it can be the id of a branch or of an operation."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def is_location(text: object) -> bool:
    """Whether it can be the place of a type's table."""
    return isinstance(text, str) and _LOCATION.fullmatch(text) is not None


def is_line(text: object) -> bool:
    """Whether it can be the Lance branch of a table or of the manifest; None is the main line.

    Ours carry ids; those from before v4 carry names, which nest (`a/b`).
    """
    if text is None:
        return True
    parts = text.split("/") if isinstance(text, str) else ()
    return bool(parts) and all(_LINE_PART.fullmatch(part) for part in parts)
