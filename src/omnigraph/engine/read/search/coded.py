"""Vectors in a quarter of their size, with a bound on how wrong they are.

Each vector, scaled to length one, is written as whole numbers from -127 to 127 and one scale; how
far that is from the vector itself is computed when it is made, and kept. So a cosine that is
computed from the numbers has a least and a greatest value that it may be, and a comparison of all
rows leaves out exactly those that cannot be among the nearest: the rest is compared by the vectors
themselves. The numbers of a data file are kept in a derived file beside the table, and mapped; rows
that no such file tells of are read and coded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, pa
from omnigraph.engine.read.memory.arrays import Positions, RowIds, array_bytes, places_among
from omnigraph.engine.read.memory.change import Change
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.memory.threads import in_parallel
from omnigraph.engine.read.search.vectors import Floats, Singles, doubt, matrix_of, pages
from omnigraph.storage.derived import DamagedError, DerivedFile, Sections
from omnigraph.storage.table.fragments import DerivedRows, FragmentRows
from omnigraph.storage.table.table import Table

KIND: Final = "int8v1"  # of derived files
_MOST: Final = 127
_CODED_NUMBERS: Final = 1 << 20  # of vectors that are coded together
_BLOCK_NUMBERS: Final = 3 << 17  # made floats at once; BLAS uses no threads of its own for them
_SHARE_ROWS: Final = 1 << 16  # of one thread
_RUN_ROWS: Final = 1024  # of which the greatest tells whether any of them has to be looked at
_ROUNDED: Final = 4e-7  # how far a scaled vector may be from its rounding to single precision
PATCHED_SHARE_MAX: Final = 8  # more than this part of the rows changed: begin anew

Numbers = npt.NDArray[np.int8]


class Coded(msgspec.Struct, frozen=True):
    """Vectors as numbers: `numbers * scales` is at most `doubts` away from the vector of length
    one. The doubt is NaN where there is no vector, and infinite where numbers say nothing."""

    numbers: Numbers
    scales: Singles
    doubts: Singles

    @classmethod
    def of(cls, vectors: Array) -> Coded:
        width, count = vectors.type.list_size, len(vectors)
        numbers = np.zeros((count, width), dtype=np.int8)
        scales, doubts = np.zeros(count, np.float32), np.zeros(count, np.float32)
        step = max(1, _CODED_NUMBERS // max(1, width))
        for first in range(0, count, step):
            some = slice(first, min(count, first + step))
            with np.errstate(over="ignore", invalid="ignore"):
                _code(matrix_of(vectors)[some], numbers[some], scales[some], doubts[some])
        if vectors.null_count:
            absent = vectors.is_null().to_numpy(zero_copy_only=False)
            numbers[absent], scales[absent], doubts[absent] = 0, 0.0, np.nan
        return cls(numbers, scales, doubts)

    def sections(self) -> Sections:
        """What a derived file holds."""
        return {
            "numbers": [self.numbers.reshape(-1).data],
            "scales": [self.scales.data],
            "doubts": [self.doubts.data],
        }

    @classmethod
    def stored(cls, file: DerivedFile, *, rows: int, width: int) -> Coded:
        """What a derived file holds; `DamagedError` if that is something else."""
        numbers = np.frombuffer(file.read("numbers"), np.int8)
        scales = np.frombuffer(file.read("scales"), np.float32)
        doubts = np.frombuffer(file.read("doubts"), np.float32)
        if len(numbers) != rows * width or not len(scales) == len(doubts) == rows:
            raise DamagedError("it has another number of rows than its data file")
        return cls(numbers.reshape(rows, width), scales, doubts)


def _code(rows: Singles, numbers: Numbers, scales: Singles, doubts: Singles) -> None:
    """Fill in the numbers of some vectors."""
    size = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    sound = np.isfinite(size)
    there = sound & (size > 0)
    unit = np.divide(rows, size[:, None], out=np.zeros(rows.shape), where=there[:, None])
    single = unit.astype(np.float32)
    scales[:] = np.abs(single).max(axis=1, initial=0.0) / np.float32(_MOST)
    shares = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
    single *= shares[:, None]
    np.rint(single, out=single)
    np.clip(single, -_MOST, _MOST, out=single)
    numbers[:] = single
    unit -= single * scales[:, None].astype(np.float64)
    away = np.sqrt(np.einsum("ij,ij->i", unit, unit)) + _ROUNDED
    doubts[:] = np.where(
        sound,
        np.where(size > 0, np.nextafter(away.astype(np.float32), np.float32(np.inf)), 0.0),
        np.inf,
    )


class CodedPart(msgspec.Struct, frozen=True):
    """The numbers of some rows, and where these are: at the positions in `at` (-1: nowhere), or
    one after the other from `start` on."""

    coded: Coded
    start: int
    at: Positions | None = None

    @classmethod
    def placed(cls, coded: Coded, at: Positions) -> CodedPart:
        run = len(at) > 0 and at[0] >= 0 and bool((np.diff(at) == 1).all())
        return cls(coded, int(at[0])) if run else cls(coded, 0, at)

    def buffers(self) -> dict[int, int]:
        held = array_bytes(self.coded.numbers) | array_bytes(self.coded.scales)
        held |= array_bytes(self.coded.doubts)
        return held if self.at is None else held | array_bytes(self.at)


class Closeness(msgspec.Struct, frozen=True):
    """About the cosine with a query by position, and by how much it may be wrong; -inf where there
    is no vector."""

    close: Singles
    doubts: Singles

    @classmethod
    def unknown(cls, length: int) -> Closeness:
        return cls(np.full(length, -np.inf, np.float32), np.zeros(length, np.float32))

    def add(self, part: CodedPart, unit: Singles) -> None:
        """Put in what a part says."""
        coded, rows = part.coded, len(part.coded.scales)
        allowed = np.float32(doubt(len(unit)))

        def share(first: int) -> None:
            some = slice(first, min(first + _SHARE_ROWS, rows))
            found = _products(coded.numbers[some], unit)
            found *= coded.scales[some]
            wrong = coded.doubts[some] + allowed
            absent = np.flatnonzero(np.isnan(wrong))
            found[absent], wrong[absent] = -np.inf, 0.0
            if part.at is None:
                here = slice(part.start + some.start, part.start + some.stop)
                self.close[here], self.doubts[here] = found, wrong
            else:
                at = part.at[some]
                there = at >= 0
                self.close[at[there]], self.doubts[at[there]] = found[there], wrong[there]

        in_parallel(share, range(0, rows, _SHARE_ROWS), rows)

    def at(self, positions: Positions) -> Closeness:
        return Closeness(self.close[positions], self.doubts[positions])

    def may_be_first(self, wanted: int) -> Positions | None:
        """The rows that may be among the `wanted` nearest; None if too few have a vector."""
        length = len(self.close)
        if length < wanted:
            return None

        def greatest(first: int) -> list[Singles]:
            some = slice(first, first + _SHARE_ROWS)
            close, doubts = self.close[some], self.doubts[some]
            runs = np.arange(0, len(close), _RUN_ROWS)
            return [np.maximum.reduceat(ends, runs) for ends in (close - doubts, close + doubts)]

        shares = in_parallel(greatest, range(0, length, _SHARE_ROWS), length)
        least, most = map(np.concatenate, zip(*shares, strict=True))
        # So many rows of different runs reach this at least: in runs below it is none of the first.
        bound = np.partition(least, -wanted)[-wanted] if wanted < len(least) else -np.inf
        rows = self._rows(least >= bound)
        edge = np.partition(self.close[rows] - self.doubts[rows], -wanted)[-wanted]
        if edge == -np.inf:
            return None
        rows = self._rows(most >= edge)
        found: Positions = rows[self.close[rows] + self.doubts[rows] >= edge]
        return found

    def _rows(self, runs: npt.NDArray[np.bool_]) -> Positions:
        """All rows of some runs, in their order."""
        starts = np.flatnonzero(runs) * _RUN_ROWS
        rows: Positions = (starts[:, None] + np.arange(_RUN_ROWS)).reshape(-1)
        return rows[rows < len(self.close)]


def _products(numbers: Numbers, unit: Singles) -> Singles:
    found = np.empty(len(numbers), dtype=np.float32)
    step = max(1, _BLOCK_NUMBERS // max(1, numbers.shape[1]))
    block = np.empty((min(step, len(numbers)), numbers.shape[1]), dtype=np.float32)
    for first in range(0, len(numbers), step):
        some = numbers[first : first + step]
        np.copyto(block[: len(some)], some)
        np.dot(block[: len(some)], unit, out=found[first : first + len(some)])
    return found


def unit_of(query: Floats) -> Singles:
    size = float(np.sqrt((query * query).sum()))
    found: Singles = (query / size if size > 0 else query).astype(np.float32)
    return found


# --- the numbers of a column -------------------------------------------------------------------


class VectorCodes(msgspec.Struct, frozen=True):
    """The numbers of a column by position: parts, and what has changed since they were made."""

    parts: tuple[CodedPart, ...]
    length: int
    patch: CodedPart | None = None

    @classmethod
    def build(cls, frame: Frame, name: str, dimension: int) -> VectorCodes:
        return cls(tuple(coded_parts(frame, name, dimension)), frame.length)

    def buffers(self) -> Mapping[int, int]:
        held: dict[int, int] = {}
        for part in (*self.parts, *([] if self.patch is None else [self.patch])):
            held |= part.buffers()
        return held

    def moved(self, change: Change, name: str) -> VectorCodes | None:
        """With what the change says of the column."""
        changed = change.values(name)
        if changed is None:
            return None
        at, vectors = changed
        missing = np.setdiff1d(np.arange(self.length, change.length), at)
        if len(missing):
            at = np.concatenate([at, missing])
            vectors = pa.concat_arrays([vectors, pa.nulls(len(missing), vectors.type)])
        if not len(at):
            return VectorCodes(self.parts, change.length, self.patch)
        coded = Coded.of(vectors)
        if self.patch is not None:
            assert self.patch.at is not None, "what changed is anywhere"
            kept = np.flatnonzero(places_among(np.sort(at), self.patch.at) < 0)
            before = self.patch.coded
            coded = Coded(
                np.concatenate([before.numbers[kept], coded.numbers]),
                np.concatenate([before.scales[kept], coded.scales]),
                np.concatenate([before.doubts[kept], coded.doubts]),
            )
            at = np.concatenate([self.patch.at[kept], at])
        if len(at) * PATCHED_SHARE_MAX > change.length:
            return None
        return VectorCodes(self.parts, change.length, CodedPart(coded, 0, at))

    def closeness(self, query: Floats, check: Callable[[], None]) -> Closeness:
        check()
        found, unit = Closeness.unknown(self.length), unit_of(query)
        in_parallel(lambda part: found.add(part, unit), self.parts, self.length)
        if self.patch is not None:  # it counts where a part tells of the same row
            found.add(self.patch, unit)
        return found


def closeness_of(
    parts: Iterable[CodedPart],
    length: int,
    query: Floats,
    check: Callable[[], None],
) -> Closeness:
    """What parts say that come one at a time, and are let go of."""
    found, unit = Closeness.unknown(length), unit_of(query)
    for part in parts:
        check()
        found.add(part, unit)
    return found


def coded_parts(frame: Frame, name: str, dimension: int) -> Iterator[CodedPart]:
    """The numbers of a whole column, fragment by fragment where a derived file has them."""
    table = frame.table.stored
    files = {} if frame.part else table.derived(name, KIND)
    left: list[int] = []
    for number in table.fragment_ids:
        parts = _stored(frame, number, files.get(number, ()), dimension)
        if parts:
            yield from parts
        else:
            left.append(number)
    some = left if len(left) < len(table.fragment_ids) else None
    if left:
        for positions, vectors in pages(frame, name, dimension, fragments=some):
            yield CodedPart.placed(Coded.of(vectors), positions)


def _stored(
    frame: Frame, fragment: int, files: Sequence[DerivedRows], dimension: int
) -> list[CodedPart]:
    """What the files of a fragment tell; nothing if one of them is damaged."""
    whole = frame.table.stored.fragment_rows(fragment) if files else None
    found: list[CodedPart] = []
    for some in files:
        assert whole is not None, "it was asked for"
        told = some.of(whole)
        try:
            coded = Coded.stored(some.file, rows=len(told.row_ids), width=dimension)
        except DamagedError:
            return []
        at = frame.at_row_ids(told.row_ids)
        if told.alive is not None:
            at = np.where(told.alive, at, -1)
        found.append(CodedPart.placed(coded, at))
    return found


def absent_rows(table: Table, column: str) -> tuple[RowIds, list[int]]:
    """The living rows that have no vector, as far as derived files tell, and the fragments of which
    none does."""
    files = table.derived(column, KIND)
    found: list[RowIds] = [np.zeros(0, np.uint64)]
    others: list[int] = []
    for number in table.fragment_ids:
        try:
            whole = table.fragment_rows(number) if number in files else None
            some = [] if whole is None else [_absent(one, whole) for one in files[number]]
        except DamagedError:
            some = []
        found += some
        if not some:
            others.append(number)
    return np.concatenate(found), others


def _absent(some: DerivedRows, whole: FragmentRows) -> RowIds:
    rows = some.of(whole)
    doubts = np.frombuffer(some.file.read("doubts"), np.float32)
    if len(doubts) != len(rows.row_ids):
        raise DamagedError("it has another number of rows than its data file")
    absent = np.isnan(doubts)
    found: RowIds = rows.row_ids[absent if rows.alive is None else absent & rows.alive]
    return found
