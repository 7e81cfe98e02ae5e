"""Keys of a big load on their way from the tasks that stage rows to the tasks that check them.

Each task that has rows writes one file for each key, with a batch for each bucket; a check task
reads its own batches of every file. So every key is written once and read once, and what a check
task is told does not grow with the load.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import ArrowTable, Column, Ints, Mask, flat, pa, pc
from omnigraph.engine.check.bucket import NO_IDS, NewRows, gathered
from omnigraph.engine.check.rules import Entity, rules_of
from omnigraph.engine.rows.parts import FragmentGroup, GraphAccess, KeyFile, row_number, unpacked
from omnigraph.model.limits import (
    CHECK_BUCKET_KEYS,
    CHECK_BUCKETS_MAX,
    CHECK_BUCKETS_UNSIZED,
    CHECK_LOOKUP_BYTES_MAX,
)
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID, EdgeType
from omnigraph.storage.lance.columns import equal_floats
from omnigraph.storage.objects.files import FileAccess

_ROW: Final = "_row"  # the column that numbers new rows
_KEY_BYTES: Final = 8  # of input, for each key that it may hold
PLACED: Final = (ROW_ID, ROW_ADDRESS)

LEFT: Final[tuple[str, ...]] = ()

Space = tuple[str, tuple[str, ...]]  # a table and the columns of a key of it


def bucket_count(input_bytes: int | None, stored_rows: int) -> int:
    """Into how many buckets the keys of a load are cut; 1 keeps them in memory. The size of
    DataFrames (None) is not known beforehand."""
    if input_bytes is None:
        return CHECK_BUCKETS_UNSIZED
    if input_bytes <= CHECK_LOOKUP_BYTES_MAX:
        return 1
    keys = input_bytes // _KEY_BYTES + stored_rows
    if keys <= CHECK_BUCKET_KEYS:
        return 1
    # A quarter of what one task can hold, so that all processors find something to do.
    return min(CHECK_BUCKETS_MAX, 4 * -(-keys // CHECK_BUCKET_KEYS))


def key_columns(entity: Entity) -> list[tuple[str, ...]]:
    """The keys by which rows of the type meet others: id, ends, unique columns."""
    ends = [("src",), ("dst",)] if isinstance(entity, EdgeType) else []
    return list(dict.fromkeys([("id",), *ends, *_unique(entity)]))


def _unique(entity: Entity) -> list[tuple[str, ...]]:
    return [rule.columns for rule in rules_of(entity).unique]


def key_names(entity: Entity) -> list[str]:
    """The columns of all keys."""
    return list(dict.fromkeys(name for by in key_columns(entity) for name in by))


def write_keys(
    files: FileAccess,
    folder: str,
    entity: Entity,
    rows: ArrowTable,
    *,
    first: int,
    fresh: bool,
    count: int,
) -> tuple[KeyFile, ...]:
    """Write every key of new rows, which are numbered from `first` on."""
    numbers = np.arange(first, first + rows.num_rows, dtype=np.int64)
    written = []
    for by in key_columns(entity):
        if by == ("id",) and fresh and isinstance(entity, EdgeType):
            continue  # nothing refers to an edge, and ids that we made are met once
        # What may be there once is told with the ids of those that have it; also an end may be.
        names = list(dict.fromkeys((*by, "id"))) if by in _unique(entity) else list(by)
        keys = rows.select(names).append_column(_ROW, pa.array(numbers))
        address = write_cut(files, folder, keys, by, count)
        written.append(KeyFile(by=by, address=address, count=count))
    return tuple(written)


def write_cut(
    files: FileAccess, folder: str, rows: ArrowTable, by: Sequence[str], count: int
) -> str:
    """Write rows with a batch for each bucket; the address of the file."""
    # Without what their schema says about nulls, in which staged and rewritten rows differ.
    rows = pa.table(dict(zip(rows.column_names, rows.columns, strict=True)))
    sink = pa.BufferOutputStream()
    empty = pa.RecordBatch.from_pylist([], schema=rows.schema)
    with pa.ipc.new_file(sink, rows.schema) as writer:
        for bucket in cut(rows, by, count):
            batches = bucket.to_batches()
            assert len(batches) <= 1, "a bucket of one task is one batch"
            writer.write_batch(batches[0] if batches else empty)
    address = f"{folder}/{uuid.uuid4().hex}.arrow"
    files.write(address, sink.getvalue())
    return address


def read_cut(files: FileAccess, address: str, buckets: range | None = None) -> Any:
    """The rows of these buckets, or of all."""
    with files.open(address) as file, pa.ipc.open_file(file) as reader:
        numbers = range(reader.num_record_batches) if buckets is None else buckets
        batches = [reader.get_batch(number) for number in numbers]
        return pa.Table.from_batches(batches, reader.schema)


class KeyIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Which files hold the keys of a load. `left_out` are new rows that no check looks at any
    more; of `stored`, `LEFT` are the sources of edges that new ones replace."""

    new: Mapping[Space, tuple[str, ...]]
    stored: Mapping[Space, tuple[str, ...]]
    refused: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, tuple[tuple[int, bytes], ...]]

    def write(self, files: FileAccess, folder: str) -> str:
        address = f"{folder}/{uuid.uuid4().hex}.index"
        files.write(address, pickle.dumps(self))
        return address

    @staticmethod
    def read(files: FileAccess, address: str) -> KeyIndex:
        with files.open(address) as file:
            index = pickle.loads(file.read())  # noqa: S301  (our own bytes)
        assert isinstance(index, KeyIndex), "the file was written by us"
        return index

    def without(self, table_key: str) -> Ints:
        """The numbers of the table's rows that are left out."""
        none = np.empty(0, dtype=np.int64)
        packed = self.left_out.get(table_key, ())
        return np.concatenate(
            [none, *(row_number(part, unpacked(ordinals)) for part, ordinals in packed)]
        )


class FileBucket:
    """Some buckets of a load's key files, judged together (the port `Bucket`)."""

    asks = False

    def __init__(self, files: FileAccess, index: KeyIndex, buckets: range) -> None:
        self._files, self._index, self._buckets = files, index, buckets

    def new_rows(self, table_key: str, by: Sequence[str], also: Sequence[str]) -> Iterator[NewRows]:
        del also  # the files hold what is needed
        left_out = self._index.without(table_key)
        waiting: list[NewRows] = []
        for address in self._index.new.get((table_key, tuple(by)), ()):
            waiting.append(self._read(address, left_out))
            if sum(len(piece.numbers) for piece in waiting) >= CHECK_BUCKET_KEYS:
                yield from filter(None, [gathered(iter(waiting))])
                waiting = []
        yield from filter(None, [gathered(iter(waiting))])

    def _read(self, address: str, left_out: Ints) -> NewRows:
        rows = read_cut(self._files, address, self._buckets)
        numbers = np.asarray(flat(rows[_ROW]))
        if len(self._buckets) > 1:
            order = np.argsort(numbers)
            rows, numbers = rows.take(order), numbers[order]
        if len(left_out):
            stays: Mask = np.isin(numbers, left_out, invert=True)
            rows, numbers = rows.filter(pa.array(stays)), numbers[stays]
        return NewRows(rows.select([name for name in rows.column_names if name != _ROW]), numbers)

    def stored_rows(
        self,
        table_key: str,
        by: Sequence[str],
        also: Sequence[str],
        asked: Mapping[str, Column] | None,
    ) -> ArrowTable:
        del asked  # looking at the whole bucket costs less
        names = list(dict.fromkeys(("id", *by, *also)))
        addresses = self._index.stored.get((table_key, tuple(by)), ())
        none: ArrowTable = pa.table(dict.fromkeys(names, NO_IDS))
        found = [read_cut(self._files, address, self._buckets) for address in addresses]
        return pa.concat_tables(found) if found else none

    def stored_ids(self, table_key: str, asked: Column, *, located: bool) -> ArrowTable:
        del asked
        return self.stored_rows(table_key, ("id",), PLACED if located else (), None)

    def left_sources(self, table_key: str) -> Column:
        return self._strings(self._index.stored.get((table_key, LEFT), ()), "src")

    def refused_ids(self, table_key: str) -> Column:
        return self._strings(self._index.refused.get(table_key, ()), "id")

    def deleted_ids(self, table_key: str) -> Column:
        del table_key  # a load deletes nothing
        return NO_IDS

    def _strings(self, addresses: Sequence[str], name: str) -> Column:
        found = [flat(read_cut(self._files, one, self._buckets)[name]) for one in addresses]
        return pa.concat_arrays([NO_IDS, *found])


# --- stored rows ------------------------------------------------------------------------------


class StoredTask(msgspec.Struct, frozen=True, kw_only=True):
    """Some fragments of a stored table, to be cut by several keys in one pass.

    `replaced` is a file with the addresses of rows that the load replaces, which do not count;
    `left` asks for the sources of those.
    """

    access: GraphAccess
    group: FragmentGroup
    keys: tuple[tuple[str, ...], ...]
    located: bool
    replaced: str | None
    left: bool
    count: int
    folder: str


def write_addresses(files: FileAccess, folder: str, addresses: Ints) -> str | None:
    """Write the addresses of stored rows; None if there are none."""
    if not len(addresses):
        return None
    address = f"{folder}/{uuid.uuid4().hex}.rows"
    files.write(address, addresses.astype(np.uint64).tobytes())
    return address


def cut_stored(task: StoredTask) -> dict[tuple[str, ...], str]:
    """Read the stored rows once and write their keys; a file for each, and one for `LEFT`."""
    files = FileAccess(environ=task.access.environ)
    placed = task.located or task.replaced is not None
    names = list(dict.fromkeys(("id", *(name for by in task.keys for name in by))))
    if task.left and "src" not in names:
        names.append("src")
    rows: Any = task.access.table(task.group.entry).read(
        columns=names,
        fragments=task.group.fragments,
        with_row_id=placed,
        with_row_address=placed,
    )
    written: dict[tuple[str, ...], str] = {}
    if task.replaced is not None:
        with files.open(task.replaced) as file:
            replaced = np.frombuffer(file.read(), dtype=np.uint64)
        gone = pc.is_in(rows[ROW_ADDRESS], value_set=pa.array(replaced))
        if task.left:
            sources = rows.filter(gone).select(["src"])
            written[LEFT] = write_cut(files, task.folder, sources, ("src",), task.count)
        rows = rows.filter(pc.invert(gone))
    for by in task.keys:
        also = PLACED if task.located and by == ("id",) else ()
        kept = rows.select(list(dict.fromkeys((*by, "id", *also))))
        written[by] = write_cut(files, task.folder, kept, by, task.count)
    return written


# --- cutting by a hash ------------------------------------------------------------------------
#
# The hash only spreads the keys, so that all rows of one key meet in one bucket: equal values have
# equal hashes, and nothing else is asked of it. How many buckets there are never changes an answer.

Hashes = npt.NDArray[np.uint64]

_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_WORD_BYTES: Final = 8
_WORDS_MAX: Final = 32  # of a text that are hashed; of a longer one, its head and length count too
_FACTORS: Final = np.cumprod(np.full(_WORDS_MAX, _PRIME))


def cut(rows: ArrowTable, by: Sequence[str], count: int) -> list[ArrowTable]:
    """The rows of each bucket, in their order. Rows with a null among the columns are in none."""
    assert 1 <= count <= 1 << 16, "bucket numbers have 16 bits"
    for name in by:
        if rows[name].null_count:
            rows = rows.filter(pc.is_valid(rows[name]))
    if count == 1:
        return [rows]
    numbers = bucket_numbers([rows[name] for name in by], count)
    # NumPy sorts numbers of 16 bits by counting, and keeps the order of equal ones.
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=count))
    sorted_rows = rows.combine_chunks().take(order)
    return [
        sorted_rows.slice(start, end - start)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def bucket_numbers(columns: Sequence[Any], count: int) -> npt.NDArray[np.uint16]:
    """The bucket of each row: the same for rows that are equal in all the columns."""
    assert columns, "a key has at least one column"
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashes = _mixed(hashes, hashes_of(column))
    return ((hashes >> _HALF) * np.uint64(count) >> _HALF).astype(np.uint16)


def hashes_of(values: Any) -> Hashes:
    """A number for each value, the same for values that are equal in a group."""
    if isinstance(values, pa.ChunkedArray):
        chunks = [hashes_of(chunk) for chunk in values.chunks]
        return np.concatenate([np.empty(0, dtype=np.uint64), *chunks])
    kind = values.type
    if pa.types.is_floating(kind):
        bits = np.asarray(equal_floats(values.cast(pa.float64())).fill_null(0)).view(np.uint64)
        return _mixed(np.zeros(len(values), dtype=np.uint64), bits)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text_hashes(values)
    if pa.types.is_temporal(kind):
        values = values.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        return np.zeros(len(values), dtype=np.uint64)
    whole = np.asarray(values.fill_null(0))
    return _mixed(np.zeros(len(values), dtype=np.uint64), whole.astype(np.uint64))


def _mixed(hashes: Hashes, words: Hashes | np.uint64) -> Hashes:
    mixed = (hashes ^ words) * _PRIME
    mixed ^= mixed >> _HALF
    mixed *= _PRIME
    return mixed


def _text_hashes(values: Any) -> Hashes:
    """Eight bytes of all texts at a time, from their ends on, as far as the longest one goes."""
    if not len(values):
        return np.empty(0, dtype=np.uint64)
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    text = np.zeros(_WORD_BYTES + last - first, dtype=np.uint8)
    if last > first:
        text[_WORD_BYTES:] = np.frombuffer(data, dtype=np.uint8)[first:last]
    # The word that ends before any byte; unaligned, which NumPy can read.
    words: Any = np.ndarray(last - first + 1, dtype="<u8", buffer=text, strides=(1,))
    ends, left = offsets[1:] - first, np.diff(offsets)
    hashes = left.astype(np.uint64) * _PRIME
    at: Any = slice(None)
    for factor in _FACTORS:
        word = words[ends]
        if (left < _WORD_BYTES).any():  # then it begins with bytes of the text before
            word >>= (8 * (_WORD_BYTES - np.minimum(left, _WORD_BYTES))).astype(np.uint64)
        hashes[at] += word * factor
        longer = left > _WORD_BYTES
        if not longer.all():
            at = np.flatnonzero(longer) if isinstance(at, slice) else at[longer]
            ends, left = ends[longer], left[longer]
        if not len(left):
            break
        ends, left = ends - _WORD_BYTES, left - _WORD_BYTES
    else:
        hashes[at] += words[ends - left + _WORD_BYTES]
    return _mixed(hashes, np.uint64(0))
