"""Blobs that lie outside the graph: which addresses a write may name.

Where a graph is open to others (a server), an address could make it look at files and buckets that
are not theirs. There only what lies below named bases is admitted, and only if it is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from pyarrow import fs

from omnigraph.errors import ExternalBlobError, InputError, LimitExceededError, OmnigraphError
from omnigraph.model.limits import BLOB_PROBES_MAX, BLOB_URIS_MAX
from omnigraph.model.schema import EdgeType, NodeType, Scalar
from omnigraph.model.values import BlobCell
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.objects.root import aws_environment

_FILE: Final = "file://"


class BlobBases(msgspec.Struct, frozen=True, kw_only=True):
    """The places below which blobs of others may lie."""

    bases: tuple[str, ...]

    @classmethod
    def of(cls, bases: Sequence[str] | None) -> BlobBases | None:
        """The bases; None where every address is taken as it is."""
        if bases is None:
            return None
        for base in bases:
            if not base.startswith((_FILE + "/", "s3://")):
                raise InputError(
                    f"'{base}' is no base of blobs", hint="file:///folder/ or s3://bucket/prefix/"
                )
        return cls(bases=tuple(base.rstrip("/") + "/" for base in bases))

    def admit(self, uris: Iterable[str | None]) -> None:
        """Go on only if every address lies below a base, and something is there."""
        asked = list(dict.fromkeys(uri for uri in uris if uri is not None))
        if len(asked) > BLOB_URIS_MAX:
            raise LimitExceededError(
                resource="external_blobs", limit=BLOB_URIS_MAX, actual=len(asked)
            )
        for uri in asked:
            if not any(_lies_below(uri, base) for base in self.bases):
                raise ExternalBlobError(uri=uri, reason="it lies below no base that is allowed")
        if not asked:
            return
        files = FileAccess(environ=dict(aws_environment()))
        with ThreadPoolExecutor(min(BLOB_PROBES_MAX, len(asked))) as threads:
            for problem in threads.map(lambda uri: _probed(files, uri), asked):
                if problem is not None:
                    raise problem

    def admit_cells(self, cells: Iterable[Any]) -> None:
        """The same for fitted values, of which some may be blobs."""
        self.admit([one.uri for one in cells if isinstance(one, BlobCell)])

    def admit_rows(self, entity: NodeType | EdgeType, rows: Any) -> None:
        """The same for rows of a type before they are stored."""
        for prop in entity.properties:
            if prop.type.scalar is Scalar.BLOB:
                self.admit_column(rows[prop.name])

    def admit_column(self, column: Any) -> None:
        """The same for a column of blobs before they are stored."""
        for chunk in getattr(column, "chunks", [column]):
            self.admit(chunk.field("uri").to_pylist())

    def admit_given(self, entity: NodeType | EdgeType, values: Mapping[str, Any]) -> None:
        """The same for values by property, as somebody wrote them."""
        self.admit(
            one
            for name, one in values.items()
            if isinstance(one, str)
            and name in entity.by_name
            and entity.by_name[name].type.scalar is Scalar.BLOB
            and one.startswith((_FILE, "s3://"))
        )


def _lies_below(uri: str, base: str) -> bool:
    decoded = unquote(uri)
    if any(part in (".", "..") for part in decoded.split("/")):
        return False
    if not decoded.startswith(base) or not uri.startswith(base):
        return False
    if not base.startswith(_FILE):
        return True
    # A link below the base may lead out of it.
    place, below = (os.path.realpath(one.removeprefix(_FILE)) for one in (decoded, base))
    return place.startswith(below.rstrip("/") + "/")


def _probed(files: FileAccess, uri: str) -> ExternalBlobError | None:
    try:
        system, path = files.system(uri)
        found = system.get_file_info(path)
    except (OSError, OmnigraphError):
        return ExternalBlobError(uri=uri, reason="it cannot be reached")
    if found.type != fs.FileType.File:
        return ExternalBlobError(uri=uri, reason="nothing is there")
    return None
