"""Who holds which words of a column, and how relevant that is (BM25).

The words of a column are a list of parts, each with some of its texts, so that a commit of a few
rows costs a few rows; many small parts are put together. Where they would not fit in memory, the
parts are made from a scan for each question and dropped. Answers depend only on the texts of the
version, never on how they are split into parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, as_mask, flat, pa, pc, picked
from omnigraph.engine.read.memory import threads
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    Mask,
    Positions,
    SmallPositions,
    distinct_sorted,
    places_among,
)
from omnigraph.engine.read.memory.cache import Caches
from omnigraph.engine.read.memory.frame import Change, Frame
from omnigraph.engine.read.search.words import (
    STEM_CUT_MAX,
    STEM_END,
    STOP_WORDS,
    cut,
    stem,
    within_edits,
    words,
)

K1: Final = 1.2  # BM25: how fast repetition saturates
B: Final = 0.75  # BM25: how much long texts are held back
PART_TEXTS: Final = 1 << 17  # of a part, at most
PART_BYTES: Final = 32 << 20  # of the texts of a part, about
LIKE_PARTS_MAX: Final = 8  # of more parts of about the same size, one is made
DENSE_SHARE: Final = 16  # for a smaller part of all positions, no array of all is made
TEXT_BYTES_MIN: Final = 8  # what a text takes here, at least
_STOP_WORDS: Final = pa.array(sorted(STOP_WORDS))

Scores = npt.NDArray[np.float64]
TextNumbers = npt.NDArray[np.int32]  # by part
Find = Callable[["Postings"], Iterable[TextNumbers]]


# --- a part ------------------------------------------------------------------------------------


class Postings(msgspec.Struct, frozen=True):
    """Occurrences sorted by (word, text, place): `starts[w]` to `starts[w + 1]` are word w's."""

    vocabulary: Vocabulary
    positions: SmallPositions  # of the texts, ascending
    starts: Positions
    texts: TextNumbers  # index into `positions`, by occurrence
    places: npt.NDArray[Any]  # by occurrence
    weights: npt.NDArray[Any]  # ranked words per text: all but stop words

    @classmethod
    def build(cls, values: Array, positions: Positions) -> Postings:
        """From the texts at these positions (values in the same order).

        A null is no text: it counts neither among the texts nor in their mean length.
        """
        if values.null_count:
            positions = positions[values.is_valid().to_numpy(zero_copy_only=False)]
            values = values.drop_null()
        if len(positions) > 1 and not (positions[1:] > positions[:-1]).all():
            order = np.argsort(positions)
            positions, values = positions[order], picked(values, order)
        lists = cut(values)
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        coded = pc.list_flatten(lists).dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        texts = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        ends = np.cumsum(lengths, dtype=np.int64)
        places = np.arange(len(codes)) - np.repeat(ends - lengths, lengths)
        return cls.of(coded.dictionary, codes, texts, places, positions)

    @classmethod
    def of(
        cls,
        names: Array,
        codes: npt.NDArray[Any],
        texts: TextNumbers,
        places: npt.NDArray[Any],
        positions: npt.NDArray[Any],
    ) -> Postings:
        """From occurrences by (text, place): a word of `names` by its number each."""
        by_name = pc.array_sort_indices(names).to_numpy(zero_copy_only=False)
        if len(names) and names[int(by_name[0])].as_py() == "":  # an empty word is none
            there = codes != by_name[0]
            codes, texts, places, by_name = codes[there], texts[there], places[there], by_name[1:]
        vocabulary = Vocabulary(picked(names, by_name))
        number = np.zeros(len(names), dtype=np.min_scalar_type(len(names)))
        number[by_name] = np.arange(len(by_name))
        codes = number[codes]
        counts = np.bincount(codes, minlength=len(by_name))
        starts = np.zeros(len(by_name) + 1, dtype=np.int64)
        np.cumsum(counts, out=starts[1:])
        order = _stable_order(codes)
        ranked = ~as_mask(pc.is_in(vocabulary.names, value_set=_STOP_WORDS))
        weights = np.bincount(texts[ranked[codes]], minlength=len(positions))
        return cls(
            vocabulary,
            positions.astype(np.int32),
            starts,
            texts[order],
            _narrow(places[order]),
            _narrow(weights),
        )

    @property
    def nbytes(self) -> int:
        arrays = (self.positions, self.starts, self.texts, self.places, self.weights)
        return self.vocabulary.nbytes + sum(array.nbytes for array in arrays)

    def codes(self) -> npt.NDArray[np.int64]:
        """The word of every occurrence."""
        return np.repeat(np.arange(len(self.vocabulary.names)), np.diff(self.starts))

    def occurrences(self, code: int) -> slice:
        return slice(int(self.starts[code]), int(self.starts[code + 1]))

    def holders(self, codes: Iterable[int]) -> list[TextNumbers]:
        """The texts that hold each of the words, once for every time; -1 is no word."""
        return [self.texts[self.occurrences(code)] for code in codes if code >= 0]


class Vocabulary:
    """Different words in ascending order, each known by its place."""

    __slots__ = ("_ends", "_letters", "names", "nbytes")

    def __init__(self, names: Array) -> None:
        self.names = names
        self.nbytes = int(names.nbytes)
        _, ends, letters = names.buffers()
        wide = np.int64 if pa.types.is_large_string(names.type) else np.int32
        self._ends = np.frombuffer(ends, dtype=wide)[names.offset :] if len(names) else None
        self._letters = memoryview(letters or b"")

    def find(self, word: str) -> int:
        """The place of a word, -1 if it is not here."""
        said = word.encode()
        at = self._first(said)
        return at if at < len(self.names) and self._bytes(at) == said else -1

    def of_stem(self, wanted: str) -> list[int]:
        """The places of all words that have this stem."""
        # A stem begins like its word, so they stand near each other.
        begin, longest = wanted[:-STEM_END].encode(), len(wanted.encode()) + STEM_CUT_MAX
        found = []
        for at in range(self._first(begin), len(self.names)):
            word = self._bytes(at)
            if not word.startswith(begin):
                break
            if len(word) <= longest and stem(word.decode()) == wanted:
                found.append(at)
        return found

    def _first(self, said: bytes) -> int:
        """The first place whose word is not before this one: UTF-8 has the order of letters."""
        return bisect_left(range(len(self.names)), said, key=self._bytes)

    def _bytes(self, at: int) -> bytes:
        assert self._ends is not None, "there are words"
        return bytes(self._letters[self._ends[at] : self._ends[at + 1]])


def _stable_order(codes: npt.NDArray[Any]) -> Positions:
    if codes.dtype.itemsize <= 2:  # numpy counts these instead of comparing them
        return np.argsort(codes, kind="stable")
    keys = (codes.astype(np.int64) << 32) + np.arange(len(codes), dtype=np.int64)
    keys.sort()
    return keys & 0xFFFF_FFFF


def _narrow(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same in as few bytes as the greatest needs; none is negative."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


# --- all parts ---------------------------------------------------------------------------------


class Part(msgspec.Struct, frozen=True):
    """Postings, and which of their texts are still in the table and unchanged since."""

    postings: Postings
    alive: Mask | None  # None: all of them
    count: int  # texts that are alive
    weight: int  # ranked words of these

    @classmethod
    def of(cls, postings: Postings) -> Part:
        return cls(postings, None, len(postings.positions), int(postings.weights.sum()))

    @classmethod
    def build(cls, values: Array, positions: Positions) -> Part:
        return cls.of(Postings.build(values, positions))

    def without(self, gone: SmallPositions) -> Part:
        """Without the texts at these ascending positions, if they are here."""
        own = self.postings.positions
        if not len(own) or gone[-1] < own[0] or gone[0] > own[-1]:
            return self
        hit = places_among(self.postings.positions, gone)
        hit = hit[hit >= 0]
        if self.alive is not None:
            hit = hit[self.alive[hit]]
        if not len(hit):
            return self
        alive = _alive(self).copy()
        alive[hit] = False
        lost = int(self.postings.weights[hit].sum())
        return Part(self.postings, alive, self.count - len(hit), self.weight - lost)

    def living(self, texts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return texts if self.alive is None else texts[self.alive[texts]]

    def positions(self) -> SmallPositions:
        """Where there is a text."""
        at = self.postings.positions
        return at if self.alive is None else at[self.alive]


class Hits(msgspec.Struct, frozen=True):
    """What a question has found: ascending positions, and a score for each."""

    positions: Positions
    scores: Scores

    def at(self, positions: Positions, size: int) -> Scores:
        """The scores at these positions of a frame of `size`, NaN where there is none."""
        if len(positions) * DENSE_SHARE < size:
            return np.append(self.scores, np.nan)[places_among(self.positions, positions)]
        dense = np.full(size + 1, np.nan)  # the last cell stands for -1
        dense[self.positions] = self.scores
        found: Scores = dense[positions]
        return found


class Matches(msgspec.Struct, frozen=True):
    """By position: whether the text there matches, and whether there is one (None: everywhere)."""

    found: Mask
    told: Mask | None


def matches(parts: Iterable[Part], find: Find, size: int, *, all_told: bool) -> Matches:
    """Which texts are found in the parts."""
    found = np.zeros(size + 1, dtype=np.bool_)  # the last cell stands for -1
    told = None if all_told else np.zeros(size + 1, dtype=np.bool_)
    for part in parts:
        for texts in find(part.postings):
            found[part.postings.positions[part.living(texts)]] = True
        if told is not None:
            told[part.positions()] = True
    return Matches(found, told)


def any_word(query: str) -> Find:
    """The texts with any of the query's words. Very common ones count only without others."""
    asked = words(query)
    wanted = [word for word in asked if word not in STOP_WORDS] or asked
    return lambda part: part.holders(map(part.vocabulary.find, wanted))


def close_word(query: str, edits: int) -> Find:
    """The texts with a word within `edits` of any of the query's words."""

    def close(part: Postings) -> Iterator[TextNumbers]:
        for word in words(query):
            near = within_edits(part.vocabulary.names, word, edits)
            yield from part.holders(np.flatnonzero(near).tolist())

    return close


def phrase(query: str) -> Find:
    """The texts with the query's words in a row."""
    return lambda part: [_phrase(part, words(query))]


def _phrase(part: Postings, wanted: Sequence[str]) -> TextNumbers:
    """Intersect (text, place of the first word) keys."""
    keys = NO_POSITIONS
    for offset, word in enumerate(wanted):
        code = part.vocabulary.find(word)
        if code < 0:
            return keys[:0].astype(np.int32)
        spot = part.occurrences(code)
        first = part.places[spot].astype(np.int64) - offset
        here = (part.texts[spot].astype(np.int64) << 32) + first
        here = here[first >= 0]
        keys = np.intersect1d(keys, here, assume_unique=True) if offset else here
    return distinct_sorted(keys >> 32).astype(np.int32)


class _Found(msgspec.Struct, frozen=True):
    """The texts of one part that hold a stem, how often, and how many ranked words they have."""

    positions: npt.NDArray[Any]
    often: Positions
    weights: npt.NDArray[Any]


def bm25(parts: Iterable[Part], query: str, size: int) -> Hits:
    """Relevance of all texts with any word of the query; one pass over the parts."""
    stems = list(dict.fromkeys(stem(word) for word in words(query) if word not in STOP_WORDS))
    found: list[list[_Found]] = [[] for _ in stems]
    texts = total = 0
    for part in parts:
        texts, total = texts + part.count, total + part.weight
        for stemmed, so_far in zip(stems, found, strict=True):
            codes = part.postings.vocabulary.of_stem(stemmed)
            if codes:
                so_far.append(_counted(part, codes))
    mean = total / texts if total else 1.0
    where, gains = [NO_POSITIONS], [np.zeros(0)]
    for so_far in found:
        holders = sum(len(some.positions) for some in so_far)
        rarity = np.log(1.0 + (texts - holders + 0.5) / (holders + 0.5))
        for some in so_far:
            length = K1 * (1.0 - B + B * some.weights / mean)
            gains.append(rarity * some.often * (K1 + 1.0) / (some.often + length))
            where.append(some.positions)
    return _added(where, gains, size)


def _added(where: Sequence[npt.NDArray[Any]], gains: Sequence[Scores], size: int) -> Hits:
    """The sum of the gains at each position, added in the order given whatever way is taken: that
    of the query's words."""
    if sum(map(len, where)) * DENSE_SHARE < size:
        at, back = np.unique(np.concatenate(where), return_inverse=True)
        scores: Scores = np.bincount(back, np.concatenate(gains), len(at)).astype(np.float64)
        return Hits(at.astype(np.int64), scores)
    dense, hit = np.zeros(size), np.zeros(size, dtype=np.bool_)
    for some, gain in zip(where, gains, strict=True):
        dense[some] += gain  # of one word and part: every position once
        hit[some] = True
    found = np.flatnonzero(hit)
    return Hits(found, dense[found])


def _counted(part: Part, codes: Sequence[int]) -> _Found:
    """Which living texts hold any of these words, and how often altogether."""
    texts = np.concatenate(part.postings.holders(codes))
    if len(codes) > 1:
        texts.sort()
    texts = part.living(texts)
    first = np.flatnonzero(np.append(True, texts[1:] != texts[:-1])[: len(texts)])
    often = np.diff(np.append(first, len(texts)))
    at = texts[first]
    return _Found(part.postings.positions[at], often, part.postings.weights[at])


# --- the words of one column -------------------------------------------------------------------


class TextIndex(msgspec.Struct, frozen=True):
    """All words of a column at one version."""

    parts: tuple[Part, ...]

    @classmethod
    def build(cls, values: Array, positions: Positions) -> TextIndex:
        """From the texts at these positions."""
        return cls((Part.build(values, positions),))

    @property
    def count(self) -> int:
        """How many texts there are."""
        return sum(part.count for part in self.parts)

    def moved(self, *, gone: Positions, values: Array, positions: Positions) -> TextIndex:
        """The next version: texts at `gone` are out, `values` are in."""
        parts = [*self.parts]
        if len(gone):
            some = np.sort(gone).astype(np.int32)
            parts = [part.without(some) for part in parts]
        for first in range(0, len(positions), PART_TEXTS):
            part = Part.build(values[first:][:PART_TEXTS], positions[first:][:PART_TEXTS])
            parts.append(part)
        return TextIndex(tuple(_few(part for part in parts if part.count)))

    def buffers(self) -> dict[int, int]:
        """What is held: versions share all but who is still there."""
        held = {id(part.postings): part.postings.nbytes for part in self.parts}
        return held | {id(p.alive): p.alive.nbytes for p in self.parts if p.alive is not None}


def _few(parts: Iterable[Part]) -> list[Part]:
    """The same texts in fewer parts, where there are many of about the same size: however many
    commits come, their number grows like the logarithm of the texts."""
    like: dict[int, list[Part]] = {}
    for part in parts:
        like.setdefault(_size_class(part), []).append(part)
    for size in range(_SIZES):
        some = like.get(size, [])
        if len(some) > LIKE_PARTS_MAX:
            one = _joined(some)
            like[size] = []
            like.setdefault(_size_class(one), []).append(one)
    # The big ones first, as they were built.
    return [part for size in sorted(like, reverse=True) for part in like[size]]


_SIZES: Final = 4  # classes of parts that are put together; bigger ones stay as they are


def _size_class(part: Part) -> int:
    return next((n for n in range(_SIZES) if part.count < 16 ** (n + 1)), _SIZES)


def _joined(parts: Sequence[Part]) -> Part:
    """One part with the living texts of all."""
    names = pa.concat_arrays([part.postings.vocabulary.names for part in parts])
    coded = names.dictionary_encode()
    number = coded.indices.to_numpy(zero_copy_only=False)
    codes, texts, places, first, words_before = [], [], [], 0, 0
    for part in parts:
        own = part.postings
        kept = slice(None) if part.alive is None else part.alive[own.texts]
        codes.append(number[words_before + own.codes()[kept]])
        texts.append(own.texts[kept].astype(np.int64) + first)
        places.append(own.places[kept].astype(np.int64))
        first, words_before = first + len(own.positions), words_before + len(own.vocabulary.names)
    positions = np.concatenate([part.postings.positions for part in parts])
    living = np.concatenate([_alive(part) for part in parts])
    order = np.flatnonzero(living)
    order = order[np.argsort(positions[order])]
    place = np.zeros(len(positions), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    text, spot, code = place[np.concatenate(texts)], np.concatenate(places), np.concatenate(codes)
    by_text = np.lexsort((spot, text))
    return Part.of(
        Postings.of(
            flat(coded.dictionary), code[by_text], text[by_text], spot[by_text], positions[order]
        )
    )


def _alive(part: Part) -> Mask:
    return np.ones(part.count, dtype=np.bool_) if part.alive is None else part.alive


def text_index(caches: Caches, frame: Frame, column: str) -> TextIndex | None:
    """The words of one column of a frame, kept and moved with it; None if they would not fit."""

    def build() -> TextIndex | None:
        parts: list[Part] = []
        seen = held = 0
        for rows, part in _made_parts(frame, column):
            parts.append(part)
            seen, held = seen + rows, held + part.postings.nbytes
            # As if all texts were like those so far: the next parts will tell.
            expected = held * frame.length // max(seen, 1)
            if not caches.can_keep(expected):
                caches.note_size("text", frame, column, expected)
                return None
        return TextIndex(tuple(part for part in parts if part.count))

    def move(older: TextIndex, change: Change) -> TextIndex | None:
        changed = change.values(column)
        if changed is None:
            return None
        gone = np.concatenate([change.deleted_at, change.updated_at])
        return older.moved(gone=gone, positions=changed[0], values=changed[1])

    least = frame.length * TEXT_BYTES_MIN
    return caches.of_column("text", frame, column, nbytes=least, build=build, move=move)


def streamed_parts(frame: Frame, column: str) -> Iterator[Part]:
    """The words of a column, part by part; nothing is kept."""
    return (part for _, part in _made_parts(frame, column))


def _made_parts(frame: Frame, column: str) -> Iterator[tuple[int, Part]]:
    """Every part with the number of rows that it is of; as many at once as there are cores."""
    slices = frame.slices(column, rows=PART_TEXTS, nbytes=PART_BYTES)
    while some := [*islice(slices, pa.cpu_count())]:
        counts = [len(positions) for positions, _ in some]
        parts = threads.in_parallel(lambda each: Part.build(each[1], each[0]), some, sum(counts))
        yield from zip(counts, parts, strict=True)
