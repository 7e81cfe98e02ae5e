"""From ids to positions: a hash table over the column of ids, which holds no text of its own.

A slot is one 64-bit number: the lower half of a hash, and a position + 1; 0 is free. An id whose
slot is taken stands in the next one that was free. Whatever the hashes say, an answer is believed
only after the text in the column was compared: a collision costs time and never an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, as_mask, pa, pc, picked
from omnigraph.engine.read.memory.arrays import (
    CHUNK_ROWS,
    NO_POSITIONS,
    Column,
    Mask,
    Positions,
    array_bytes,
)
from omnigraph.engine.read.memory.compressed import Checkpoint, no_checkpoint
from omnigraph.engine.read.memory.threads import in_parallel

Hashes = npt.NDArray[np.uint64]

ADDED_IDS_MAX: Final = 4096  # newer ids stand in a dict beside the table, which is copied
ONE_BY_ONE_MAX: Final = 64  # so few ids are looked up faster without arrays
FEW_IDS: Final = 4  # so few ids are looked for one by one
_LOAD_MAX: Final = 0.65  # of the slots
_SLOTS_MIN: Final = 16
_WORD: Final = 8  # bytes that are hashed at once
_LONG_BYTES: Final = 256  # longer ids are hashed one by one, by Python
_ALL_BITS: Final = (1 << 64) - 1
_LOW_BITS: Final = (1 << 32) - 1
_MULTIPLIER: Final = 0x9E3779B97F4A7C15
# Another one in each process, so that nobody can choose ids that all collide.
_SEED: Final = hash("ids of nodes") & _ALL_BITS


class IdTable(msgspec.Struct, frozen=True, kw_only=True):
    """The position of every id of a column of different ids."""

    ids: Column
    slots: Hashes
    tabled: int  # ids before this position stand in the slots, the others in `added`
    added: dict[str, int]

    @classmethod
    def of(cls, ids: Column, checkpoint: Checkpoint = no_checkpoint) -> IdTable:
        """`checkpoint` is called between chunks and may raise to give it up."""
        size = _SLOTS_MIN
        while ids.length > size * _LOAD_MAX:
            size *= 2
        assert ids.length < _LOW_BITS, "a position has 32 bits"
        slots = np.zeros(size, dtype=np.uint64)
        numbers = range(ids.chunk_count)
        codes = in_parallel(lambda number: hashes(ids.chunk(number)), numbers, ids.length)
        for number in numbers:
            checkpoint()
            _insert(slots, codes[number], first=number * CHUNK_ROWS)
        return cls(ids=ids, slots=slots, tabled=ids.length, added={})

    def buffers(self) -> dict[int, int]:
        """The size of each buffer that is held, by its address."""
        added = {id(self.added): 150 * len(self.added)}  # an entry with its text, roughly
        return self.ids.buffers() | array_bytes(self.slots) | added

    def extended(self, ids: Column) -> IdTable:
        """With a longer column of ids, of which these are the first."""
        new = ids.take(np.arange(self.ids.length, ids.length, dtype=np.int64))
        named = dict(zip(new.to_pylist(), range(self.ids.length, ids.length), strict=True))
        added = {**self.added, **named}
        if len(added) <= ADDED_IDS_MAX:
            return IdTable(ids=ids, slots=self.slots, tabled=self.tabled, added=added)
        if ids.length > len(self.slots) * _LOAD_MAX:
            return IdTable.of(ids)
        slots = self.slots.copy()  # older versions go on with theirs
        rows = np.arange(self.tabled, ids.length, dtype=np.int64)
        _insert(slots, hashes(ids.take(rows)), first=self.tabled)
        return IdTable(ids=ids, slots=slots, tabled=ids.length, added={})

    def get(self, entity_id: str) -> int:
        """The position of one id, -1 if it is unknown."""
        code = hash_of(entity_id)
        slot, mark, last = code >> _shift(self.slots), code & _LOW_BITS, len(self.slots) - 1
        while entry := int(self.slots[slot]):
            at = (entry & _LOW_BITS) - 1
            if entry >> 32 == mark and self.ids.value(at) == entity_id:
                return at
            slot = (slot + 1) & last
        return self.added.get(entity_id, -1)

    def find(self, ids: Array) -> Positions:
        """The positions of many ids, -1 for unknown ones."""
        if len(ids) <= ONE_BY_ONE_MAX:
            few = (-1 if one is None else self.get(one) for one in ids.to_pylist())
            return np.fromiter(few, dtype=np.int64, count=len(ids))
        slices = [ids.slice(start, CHUNK_ROWS) for start in range(0, len(ids), CHUNK_ROWS)]
        return np.concatenate(in_parallel(self._find, slices, len(ids)))

    def _find(self, ids: Array) -> Positions:
        found = _marked(self.slots, hashes(ids))
        same = pc.equal(self.ids.take(found), ids)
        if not (same.null_count or same.false_count):
            return found
        unlike = np.flatnonzero(~as_mask(same))
        # Nearly all of them met a free slot, and are new or unknown; another id with the same mark
        # stands in the way of the others.
        blocked = unlike[found[unlike] >= 0]
        found[unlike] = -1
        if self.added:
            names = pa.array(list(self.added), ids.type)
            new = pc.index_in(picked(ids, unlike), value_set=names, skip_nulls=True)
            places = np.asarray(list(self.added.values()), dtype=np.int64)
            there = as_mask(new.is_valid())
            found[unlike[there]] = places[new.drop_null().to_numpy()]
        for row, one in zip(blocked.tolist(), picked(ids, blocked).to_pylist(), strict=True):
            found[row] = -1 if one is None else self.get(one)
        return found


def id_array(ids: Sequence[str]) -> Array:
    """The ids as a column; null for what no column can hold."""
    try:
        return pa.array(ids, pa.string())
    except UnicodeEncodeError:
        return pa.array([one if _is_text(one) else None for one in ids], pa.string())


def _is_text(said: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in said)


def places_of(column: Column, ids: Array) -> Positions:
    """Where the column of different ids has one of these, by a look at all of them."""
    found = []
    for number in range(column.chunk_count):
        chunk = column.chunk(number)
        if len(ids) <= FEW_IDS:
            at = [pc.index(chunk, one).as_py() for one in ids]
            here = np.asarray([place for place in at if place >= 0], dtype=np.int64)
        else:
            here = np.flatnonzero(pc.is_in(chunk, value_set=ids).to_numpy(zero_copy_only=False))
        found.append(here + number * CHUNK_ROWS)
    return np.concatenate([NO_POSITIONS, *found])


def _shift(slots: Hashes) -> int:
    """The upper bits of a hash say where to look first: everything below them is shifted out."""
    return 64 - (len(slots).bit_length() - 1)


def _insert(slots: Hashes, codes: Hashes, *, first: int) -> None:
    """Write down new ids at the positions from `first` on."""
    slot = (codes >> np.uint64(_shift(slots))).astype(np.int64)
    places = np.arange(first + 1, first + 1 + len(codes), dtype=np.uint64)
    entries = (codes << np.uint64(32)) | places
    while len(slot):
        free = slots[slot] == 0
        slots[slot[free]] = entries[free]
        # Of several that wanted one slot the last has it; the others go on to the next.
        lost = slots[slot] != entries
        slot = (slot[lost] + 1) & (len(slots) - 1)
        entries = entries[lost]


def _marked(slots: Hashes, codes: Hashes) -> Positions:
    """The first position with the lower half of each hash, -1 where a free slot comes before it."""
    slot = (codes >> np.uint64(_shift(slots))).astype(np.int64)
    marks = codes.astype(np.uint32)
    entries = slots.take(slot)
    found = (entries & np.uint64(_LOW_BITS)).astype(np.int64) - 1
    left = np.flatnonzero((entries >> np.uint64(32)).astype(np.uint32) != marks)
    while len(left):
        free = found[left] < 0
        left = left[~free]
        slot[left] = (slot[left] + 1) & (len(slots) - 1)
        entries = slots[slot[left]]
        found[left] = (entries & np.uint64(_LOW_BITS)).astype(np.int64) - 1
        left = left[(entries >> np.uint64(32)).astype(np.uint32) != marks[left]]
    return found


# --- hashes ------------------------------------------------------------------------------------


def hash_of(text: str) -> int:
    """The hash of one text."""
    said = text.encode("utf-8", "surrogatepass")  # what no column can hold is found nowhere
    size = len(said)
    if size > _LONG_BYTES:
        return hash(said) & _ALL_BITS
    code = (size * _MULTIPLIER ^ _SEED) & _ALL_BITS
    last = size - _WORD if size > _WORD else 0
    for start in (*range(0, last, _WORD), last):
        code ^= int.from_bytes(said[start : start + _WORD], "little")
        code = code * _MULTIPLIER & _ALL_BITS
        code ^= code >> 32
    return code


def hashes(texts: Array) -> Hashes:
    """The hash of each text, word by word through all of them; of a null any number."""
    text = _Texts.of(texts)
    sizes = text.sizes
    codes = sizes.astype(np.uint64) * np.uint64(_MULTIPLIER) ^ np.uint64(_SEED)
    if not len(codes):
        return codes
    least, most = int(sizes.min()), int(sizes.max())
    for start in range(0, min(most, _LONG_BYTES), _WORD):
        rows = None if least >= max(start + 1, _WORD) else sizes >= max(start + 1, _WORD)
        _mix(codes, rows, text.words(start, rows))
    if least < _WORD:
        _mix(codes, sizes < _WORD, text.short_words(sizes < _WORD))
    for row in np.flatnonzero(sizes > _LONG_BYTES).tolist() if most > _LONG_BYTES else ():
        codes[row] = hash(text.bytes_of(row)) & _ALL_BITS
    return codes


def end_words(texts: Array) -> Hashes:
    """A number of the first and the last eight bytes of each text: quicker than a hash, and the
    same for texts that differ in between only."""
    alike = _alike(texts)
    if alike is not None:
        return _both(*alike)
    text = _Texts.of(texts)
    if not len(text.sizes):
        return text.sizes.astype(np.uint64)
    least, most = int(text.sizes.min()), int(text.sizes.max())
    rows = None if least >= _WORD else text.sizes >= _WORD
    words = _both(text.words(0, rows), text.words(most, rows))
    if rows is None:
        return words
    found = np.empty(len(rows), dtype=np.uint64)
    found[rows], found[~rows] = words, text.short_words(~rows) * np.uint64(_MULTIPLIER)
    return found


def _both(first: Hashes, last: Hashes) -> Hashes:
    """A number of two words."""
    words = first * np.uint64(_MULTIPLIER)
    words ^= last
    words *= np.uint64(_MULTIPLIER)
    return words


def _mix(codes: Hashes, rows: Mask | None, words: Hashes) -> None:
    """Mix a word into the hash of each of these rows, or of all."""
    mixed = codes if rows is None else codes[rows]
    mixed ^= words
    mixed *= np.uint64(_MULTIPLIER)
    mixed ^= mixed >> np.uint64(32)
    if rows is not None:
        codes[rows] = mixed


def _alike(texts: Array) -> tuple[Hashes, Hashes] | None:
    """The first and the last eight bytes of texts that all have the same size, as views; None if
    they have not, or fewer bytes."""
    ends = _ends(texts)
    sizes = np.diff(ends) if len(ends) > 1 else ends[:0]
    if not len(sizes) or int(sizes.min()) < _WORD or int(sizes.min()) != int(sizes.max()):
        return None
    size, begin = int(sizes[0]), int(ends[0])
    data = np.frombuffer(texts.buffers()[2], dtype=np.uint8).data
    first, last = (
        np.ndarray(len(sizes), "<u8", data, begin + start, (size,)) for start in (0, size - _WORD)
    )
    return first, last


def _ends(texts: Array) -> npt.NDArray[Any]:
    """Where each text begins, and where the last one ends; nothing of a column without rows."""
    wide = pa.types.is_large_string(texts.type)
    assert wide or pa.types.is_string(texts.type), f"ids are texts, not {texts.type}"
    offsets = texts.buffers()[1]
    kind, first, count = np.dtype(np.int64 if wide else np.int32), texts.offset, len(texts)
    if offsets is None or offsets.size < kind.itemsize * (first + count + 1):
        assert not count, "only a column without rows may be without offsets"
        return np.empty(0, dtype=kind)
    return np.frombuffer(offsets, kind, count + 1, first * kind.itemsize)


class _Texts(NamedTuple):
    """The bytes of a column of text, eight or more; where each text begins, and its size."""

    data: npt.NDArray[np.uint8]
    starts: Positions
    sizes: Positions

    @classmethod
    def of(cls, texts: Array) -> _Texts:
        ends, data = _ends(texts).astype(np.int64), texts.buffers()[2]
        if not len(ends):
            return cls(np.zeros(_WORD, dtype=np.uint8), *[np.empty(0, dtype=np.int64)] * 2)
        held = np.frombuffer(b"" if data is None else data, dtype=np.uint8)
        if len(held) < _WORD:
            held = np.concatenate([held, np.zeros(_WORD, dtype=np.uint8)])
        return cls(held, ends[:-1], np.diff(ends))

    def bytes_of(self, row: int) -> bytes:
        start = int(self.starts[row])
        return self.data[start : start + int(self.sizes[row])].tobytes()

    def words(self, start: int, rows: Mask | None) -> Hashes:
        """The eight bytes from `start` on, of texts that have as many; where a text ends within
        them, its last eight. Never a byte outside of the text."""
        at, sizes = (
            (self.starts, self.sizes) if rows is None else (self.starts[rows], self.sizes[rows])
        )
        return _unaligned(self.data)[at + np.minimum(start, sizes - _WORD)]

    def short_words(self, rows: Mask) -> Hashes:
        """All bytes of texts with less than eight, and zeros."""
        # Near the end of the data the eight bytes before the end are read, and shifted.
        at = np.minimum(self.starts[rows], len(self.data) - _WORD)
        skipped = (self.starts[rows] - at) * 8
        kept = (np.uint64(1) << (self.sizes[rows] * 8).astype(np.uint64)) - np.uint64(1)
        # A shift by all 64 bits is not defined; it happens only where nothing is kept.
        found = _unaligned(self.data)[at] >> np.minimum(skipped, 63).astype(np.uint64)
        return found & kept


def _unaligned(data: npt.NDArray[np.uint8]) -> Hashes:
    """The eight bytes from each byte on, as numbers: a view, for which no byte is copied."""
    assert len(data) >= _WORD, "eight bytes can be read"
    return np.ndarray(len(data) - _WORD + 1, "<u8", data.data, strides=(1,))
