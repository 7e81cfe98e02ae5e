"""Which texts of a column are found, and how relevant they are (BM25).

The words of a column are a list of parts, each with some of its texts: those of a data file come
from the file that is stored beside it, others are made in memory, so that a commit of a few rows
costs a few rows; many small parts are put together. Where they would not fit in memory, the parts
are made for each question and dropped. Answers depend only on the texts of the version, never on
where their words come from or how they are split into parts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, flat, pa
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
from omnigraph.engine.read.memory.change import Change
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.search.postings import Counted, Postings, TextNumbers, Words
from omnigraph.engine.read.search.stored import StoredPostings
from omnigraph.engine.text.analysis import Analysis, without_marks
from omnigraph.engine.text.asked import Question, Row, Term, question, ranked_terms, row_of
from omnigraph.engine.text.words import within_edits
from omnigraph.errors import InputError
from omnigraph.storage.derived import DamagedError, DerivedFile
from omnigraph.storage.table.fragments import FragmentRows

logger = logging.getLogger(__name__)

K1: Final = 1.2  # BM25: how fast repetition saturates
B: Final = 0.75  # BM25: how much long texts are held back
PART_TEXTS: Final = 1 << 17  # of a part, at most
PART_BYTES: Final = 32 << 20  # of the texts of a part, about
LIKE_PARTS_MAX: Final = 8  # of more parts of about the same size, one is made
DENSE_SHARE: Final = 16  # for a smaller part of all positions, no array of all is made
TEXT_BYTES_MIN: Final = 4  # what a text takes here, at least: its position

Scores = npt.NDArray[np.float64]
Find = Callable[["Part"], Iterable[TextNumbers]]


# --- a part ------------------------------------------------------------------------------------


class Part(msgspec.Struct, frozen=True):
    """Words, and which of their texts are still in the table and unchanged since."""

    words: Words
    alive: Mask | None  # None: all of them
    count: int  # texts that are alive
    weight: int  # ranked words of these

    @classmethod
    def of(cls, words: Words, alive: Mask | None = None) -> Part:
        part = cls(words, None, words.count, words.weight)
        if alive is None:
            return part
        gone = np.flatnonzero(~alive)
        told = words.told()
        return part.losing(gone if told is None else gone[told[gone]], alive)

    @classmethod
    def build(cls, values: Array, positions: Positions, analysis: Analysis) -> Part:
        return cls.of(Postings.build(values, positions, analysis))

    def without(self, gone: SmallPositions) -> Part:
        """Without the texts at these ascending positions, if they are here."""
        hit = self.words.numbers_at(gone)
        if self.alive is not None:
            hit = hit[self.alive[hit]]
        if not len(hit):
            return self
        alive = _alive(self).copy()
        alive[hit] = False
        return self.losing(hit, alive)

    def losing(self, texts: Positions, alive: Mask) -> Part:
        """Without these texts, which were alive."""
        lost = int(self.words.weights_at(texts).sum()) if len(texts) else 0
        return Part(self.words, alive, self.count - len(texts), self.weight - lost)

    def living(self, texts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return texts if self.alive is None else texts[self.alive[texts]]

    def counted(self, codes: Sequence[int]) -> Counted:
        """Which living texts hold any of these words, and how often altogether."""
        found = self.words.counted(codes)
        if self.alive is None:
            return found
        kept = self.alive[found.texts]
        return Counted(found.texts[kept], found.often[kept], found.weights[kept])

    def positions(self) -> SmallPositions:
        """Where there is a text."""
        at, told = self.words.positions, self.words.told()
        if told is None:
            return at if self.alive is None else at[self.alive]
        return at[told if self.alive is None else told & self.alive]


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
        for texts in find(part):
            found[part.words.positions[part.living(texts)]] = True
        if told is not None:
            told[part.positions()] = True
    return Matches(found, told)


def finder(kind: ir.TextMatchKind, query: str, edits: int, analysis: Analysis) -> Find:
    """The texts that a predicate of the language finds."""
    if edits < 0:
        raise InputError(f"fuzzy: the number of edits must be 0 or more, got {edits}")
    match kind:
        case ir.TextMatchKind.SEARCH:
            return asked(query, analysis)
        case ir.TextMatchKind.PHRASE:
            return phrase(query, analysis)
        case ir.TextMatchKind.FUZZY:
            return close_word(query, edits, analysis)


def matched(values: Array, find: Find, analysis: Analysis) -> Array:
    """Which of some texts are found; null where there is none."""
    count = len(values)
    part = Part.build(values, np.arange(count), analysis)
    hit = matches([part], find, count, all_told=not values.null_count)
    unknown = None if hit.told is None else ~hit.told[:count]
    return pa.array(hit.found[:count], mask=unknown)


def asked(query: str, analysis: Analysis) -> Find:
    """The texts that `search` finds (`asked.py`)."""
    wanted = question(analysis, query)
    return lambda part: _answered(part, wanted)


def _answered(part: Part, wanted: Question) -> Iterable[TextNumbers]:
    words = part.words
    found: npt.NDArray[Any]
    if not wanted.required and not wanted.excluded:
        return (_in_row(words, row) for row in wanted.optional)
    if wanted.required:
        found = reduce(np.intersect1d, [_in_row(words, row) for row in wanted.required])
    elif wanted.optional:
        found = np.unique(np.concatenate([_in_row(words, row) for row in wanted.optional]))
    else:
        told = words.told()
        found = np.arange(len(words.positions)) if told is None else np.flatnonzero(told)
    for row in wanted.excluded:
        found = np.setdiff1d(found, _in_row(words, row))
    return [found.astype(np.int32)]


def close_word(query: str, edits: int, analysis: Analysis) -> Find:
    """The texts with a word within `edits` of any of the query's words."""
    wanted = analysis.runs(query)

    def close(part: Part) -> Iterator[TextNumbers]:
        names = part.words.names()
        if not analysis.is_plain:  # plain words have no accents
            names = pa.array([without_marks(name) for name in names.to_pylist()], pa.string())
        for word in wanted:
            said = word if analysis.is_plain else without_marks(word)
            near = np.flatnonzero(within_edits(names, said, edits))
            yield part.words.holders(near.tolist())

    return close


def phrase(query: str, analysis: Analysis) -> Find:
    """The texts with the query's words in a row."""
    row = row_of(analysis, analysis.runs(query))
    return lambda part: [_in_row(part.words, row)]


def _in_row(words: Words, row: Row) -> TextNumbers:
    """The texts that hold terms in a row; a text may be named repeatedly."""
    if len(row) == 1:
        return words.holders(words.codes_of(row[0][1]))
    none: TextNumbers = np.zeros(0, dtype=np.int32)
    codes = [words.codes_of(term) for _, term in row]
    if not all(map(len, codes)):
        return none
    # The text and the place of the first word, told by each of the words.
    keys = NO_POSITIONS
    for number, ((offset, _), some) in enumerate(zip(row, codes, strict=True)):
        here = words.placed(some)
        here = here[(here & 0xFFFF_FFFF) >= offset] - offset
        keys = np.intersect1d(keys, here) if number else here
    return distinct_sorted(np.sort(keys >> 32)).astype(np.int32)


class _Found(msgspec.Struct, frozen=True):
    """The texts of one part that hold a term, how often, and how many ranked words they have."""

    positions: npt.NDArray[Any]
    often: npt.NDArray[Any]
    weights: npt.NDArray[Any]


class Seen(msgspec.Struct, frozen=True):
    """What relevance needs to know of all texts: how many there are, how many ranked words they
    have, and how many of them hold each term of the question."""

    texts: int
    weight: int
    holders: tuple[int, ...]

    def plus(self, other: Seen) -> Seen:
        both = zip(self.holders, other.holders, strict=True)
        return Seen(
            self.texts + other.texts, self.weight + other.weight, tuple(a + b for a, b in both)
        )


def seen(parts: Iterable[Part], query: str, analysis: Analysis) -> Seen:
    """What the relevance of any text needs to know of these."""
    return _looked(parts, ranked_terms(analysis, query))[0]


def bm25(
    parts: Iterable[Part], query: str, size: int, analysis: Analysis, everything: Seen | None = None
) -> Hits:
    """Relevance of all texts with any word of the query; one pass over the parts. If they are but
    some of the texts, `everything` tells of all."""
    here, found = _looked(parts, ranked_terms(analysis, query))
    told = here if everything is None else everything
    mean = told.weight / told.texts if told.weight else 1.0
    where, gains = [NO_POSITIONS], [np.zeros(0)]
    for holders, so_far in zip(told.holders, found, strict=True):
        rarity = np.log(1.0 + (told.texts - holders + 0.5) / (holders + 0.5))
        for some in so_far:
            length = K1 * (1.0 - B + B * some.weights / mean)
            gains.append(rarity * some.often * (K1 + 1.0) / (some.often + length))
            where.append(some.positions)
    return _added(where, gains, size)


def _looked(parts: Iterable[Part], terms: Sequence[Term]) -> tuple[Seen, list[list[_Found]]]:
    """What is to be known of the texts, and by term those that hold it."""
    found: list[list[_Found]] = [[] for _ in terms]
    texts = total = 0
    for part in parts:
        texts, total = texts + part.count, total + part.weight
        for term, so_far in zip(terms, found, strict=True):
            codes = part.words.codes_of(term)
            if len(codes):
                here = part.counted(codes)
                at = part.words.positions[here.texts]
                so_far.append(_Found(at, here.often, here.weights))
    holders = tuple(sum(len(some.positions) for some in so_far) for so_far in found)
    return Seen(texts, total, holders), found


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


# --- the words of one column -------------------------------------------------------------------


class TextIndex(msgspec.Struct, frozen=True):
    """All words of a column at one version."""

    parts: tuple[Part, ...]
    analysis: Analysis

    @classmethod
    def build(cls, values: Array, positions: Positions, analysis: Analysis) -> TextIndex:
        """From the texts at these positions."""
        return cls((Part.build(values, positions, analysis),), analysis)

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
            here = slice(first, first + PART_TEXTS)
            parts.append(Part.build(values[here], positions[here], self.analysis))
        return TextIndex(tuple(_few(part for part in parts if part.count)), self.analysis)

    def buffers(self) -> dict[int, int]:
        """What is held: versions share all but who is still there."""
        held = {id(part.words): part.words.nbytes for part in self.parts}
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
    if not isinstance(part.words, Postings):
        return _SIZES  # what is in a file stays there
    return next((n for n in range(_SIZES) if part.count < 16 ** (n + 1)), _SIZES)


def _joined(parts: Sequence[Part]) -> Part:
    """One part with the living texts of all."""
    postings = [part.words for part in parts if isinstance(part.words, Postings)]
    assert len(postings) == len(parts), "what is in a file stays there"
    names = pa.concat_arrays([own.vocabulary.names for own in postings])
    coded = names.dictionary_encode()
    number = coded.indices.to_numpy(zero_copy_only=False)
    codes, texts, places, first, words_before = [], [], [], 0, 0
    for part, own in zip(parts, postings, strict=True):
        kept = slice(None) if part.alive is None else part.alive[own.texts]
        codes.append(number[words_before + own.codes()[kept]])
        texts.append(own.texts[kept].astype(np.int64) + first)
        places.append(own.places[kept].astype(np.int64))
        first, words_before = first + len(own.positions), words_before + len(own.vocabulary.names)
    positions = np.concatenate([own.positions for own in postings])
    living = np.concatenate([_alive(part) for part in parts])
    order = np.flatnonzero(living)
    order = order[np.argsort(positions[order])]
    place = np.zeros(len(positions), dtype=np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    text, spot, code = place[np.concatenate(texts)], np.concatenate(places), np.concatenate(codes)
    by_text = np.lexsort((spot, text))
    return Part.of(
        Postings.of(
            flat(coded.dictionary),
            code[by_text],
            text[by_text],
            spot[by_text],
            positions[order],
            postings[0].analysis,
        )
    )


def _alive(part: Part) -> Mask:
    every = np.ones(len(part.words.positions), dtype=np.bool_)
    return every if part.alive is None else part.alive


# --- from storage ------------------------------------------------------------------------------


def text_index(caches: Caches, frame: Frame, column: str, analysis: Analysis) -> TextIndex | None:
    """The words of one column of a frame, kept and moved with it; None if they would not fit."""

    def build() -> TextIndex | None:
        stored, others = stored_parts(frame, column, analysis)
        parts: list[Part] = [*stored]
        seen = held = 0
        told = sum(len(part.words.positions) for part in stored)
        for rows, part in _made_parts(frame, column, analysis, others):
            parts.append(part)
            seen, held = seen + rows, held + part.words.nbytes
            # As if all texts were like those so far: the next parts will tell.
            expected = held * max(frame.length - told, 0) // max(seen, 1)
            if not caches.can_keep(expected):
                caches.note_size(_cached_as(analysis), frame, column, expected)
                return None
        return TextIndex(tuple(part for part in parts if part.count), analysis)

    def move(older: TextIndex, change: Change) -> TextIndex | None:
        changed = change.values(column)
        if changed is None:
            return None
        gone = np.concatenate([change.deleted_at, change.updated_at])
        return older.moved(gone=gone, positions=changed[0], values=changed[1])

    least = frame.length * TEXT_BYTES_MIN
    return caches.of_column(
        _cached_as(analysis), frame, column, nbytes=least, build=build, move=move
    )


def forget(caches: Caches, frame: Frame, column: str, analysis: Analysis) -> None:
    """Drop the words of a column, of all versions: one of their files is damaged."""
    caches.forget_column(_cached_as(analysis), frame, column)


def _cached_as(analysis: Analysis) -> str:
    return "text" if analysis.is_plain else f"text {analysis.kind}"


def streamed_parts(frame: Frame, column: str, analysis: Analysis) -> Iterator[Part]:
    """The words of a column, part by part; nothing is kept."""
    stored, others = stored_parts(frame, column, analysis)
    yield from stored
    for _, part in _made_parts(frame, column, analysis, others):
        yield part


def stored_parts(
    frame: Frame, column: str, analysis: Analysis
) -> tuple[list[Part], list[int] | None]:
    """The parts whose words are in files, and the fragments that have none; None: all of them."""
    if frame.part:
        return [], None
    table = frame.table.stored
    parts: list[Part] = []
    files = table.derived(column, analysis.kind)
    for number, some in [*files.items()]:
        whole = table.fragment_rows(number)
        try:
            parts += [_stored_part(frame, each.file, each.of(whole)) for each in some]
        except DamagedError as cause:
            logger.warning("stored words are damaged", extra={"why": str(cause)})
            del files[number]
    if not parts:
        return [], None
    return parts, [number for number in table.fragment_ids if number not in files]


def _stored_part(frame: Frame, file: DerivedFile, rows: FragmentRows) -> Part:
    positions = frame.at_row_ids(rows.row_ids).astype(np.int32)
    if rows.alive is not None:
        positions[~rows.alive] = -1
    return Part.of(StoredPostings(file, positions), rows.alive)


def _made_parts(
    frame: Frame, column: str, analysis: Analysis, fragments: Sequence[int] | None
) -> Iterator[tuple[int, Part]]:
    """Every part with the number of rows that it is of; as many at once as there are cores."""
    if fragments is not None and not fragments:
        return
    slices = frame.slices(column, rows=PART_TEXTS, nbytes=PART_BYTES, fragments=fragments)
    while some := [*islice(slices, pa.cpu_count())]:
        counts = [len(positions) for positions, _ in some]
        parts = threads.in_parallel(
            lambda each: Part.build(each[1], each[0], analysis), some, sum(counts)
        )
        yield from zip(counts, parts, strict=True)
