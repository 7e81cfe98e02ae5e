"""When rows were last changed: Lance's note of it in every version of a table, made short.

The *stamp* of a row is the version that last changed it. Lance writes the stamps of a fragment as
runs of equal ones into each version file, so that ten thousand commits of one row each are ten
thousand runs, written again with every further commit. Differences need to know which rows were
touched after some version, and old stamps may be told less finely without reading much more.

The notes are protocol buffers of Lance's format: `repeated Run {1: span, 2: version}`. A span is a
segment as in the notes of row ids (`row_ids.py`), of which only the number of its rows counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from omnigraph.storage.lance.row_ids import rows_of
from omnigraph.storage.lance.wire import field, fields, number_field

# Of every so many rows that changed after a version, a difference may read one more for nothing.
FINENESS: Final = 4


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """So many neighbours that the same version changed last."""

    rows: int
    version: int


def coarser(runs: Sequence[Run]) -> list[Run]:
    """The same rows with later stamps, in few runs. No stamp is ever lowered: a difference may
    take a row for changed that was not, never the other way round.

    Versions next to each other become one if together they changed few rows, compared with all
    that changed later. So the number of different stamps grows like the digits of a number.
    """
    changed: dict[int, int] = {}
    for run in runs:
        changed[run.version] = changed.get(run.version, 0) + run.rows
    told: dict[int, int] = {}
    later = grouped = 0
    top: int | None = None
    for version in sorted(changed, reverse=True):
        rows = changed[version]
        if top is None or (grouped + rows) * FINENESS > later:
            later, grouped, top = later + grouped, 0, version
        told[version] = top
        grouped += rows
    assert all(told[version] >= version for version in changed), "a stamp may only be raised"
    return list(_joined(Run(rows=run.rows, version=told[run.version]) for run in runs))


def _joined(runs: Iterator[Run]) -> Iterator[Run]:
    for version, same in groupby(runs, key=lambda run: run.version):
        yield Run(rows=sum(run.rows for run in same), version=version)


# --- Lance's bytes ---------------------------------------------------------------------------


def shortened(note: bytes) -> bytes:
    """The note of the same rows with coarser stamps; what is not understood stays as it is."""
    runs = decode(note)
    return note if runs is None else encode(coarser(runs))


def encode(runs: Sequence[Run]) -> bytes:
    """The runs as Lance notes them."""
    return b"".join(
        field(1, field(1, field(1, number_field(2, run.rows))) + number_field(2, run.version))
        for run in runs
    )


def decode(note: bytes) -> list[Run] | None:
    """The runs of a note; None if it is written in a way that we do not know."""
    try:
        return [_run(body) for body in _messages(note)]
    except (LookupError, TypeError, ValueError):
        return None


def _run(body: bytes) -> Run:
    found = dict(fields(body))
    span, version = found.get(1, 0), found.get(2, 0)
    if not isinstance(span, bytes) or not isinstance(version, int):
        raise TypeError("a span and a number were expected")
    rows = rows_of(span)
    if not rows or not version:
        raise ValueError("an empty run")
    return Run(rows=rows, version=version)


def _messages(body: bytes) -> Iterator[bytes]:
    for number, value in fields(body):
        if number != 1 or not isinstance(value, bytes):
            raise ValueError("only runs were expected")
        yield value
