"""The words of one text column: who holds which word, how often and where.

An index is a big part and a small newer one, so that a commit of a few rows costs a few rows. Its
answers depend only on the texts that live at its version, never on how it came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, pa, pc
from omnigraph.engine.read.column import Mask, Positions
from omnigraph.engine.read.text import STOP_WORDS, cut, stem, within_edits, words

K1: Final = 1.2  # BM25: how fast repetition saturates
B: Final = 0.75  # BM25: how much long texts are held back
NEWER_TEXTS_MAX: Final = 16_384

Scores = npt.NDArray[np.float64]


@dataclass(slots=True)
class Postings:
    """Occurrences sorted by (word, text, place): `starts[w]` to `starts[w + 1]` are word w's."""

    vocabulary: Array
    positions: Positions  # of the texts, ascending
    starts: Positions
    texts: npt.NDArray[np.int32]  # index into `positions`, by occurrence
    places: npt.NDArray[np.int32]
    weights: npt.NDArray[np.int32]  # ranked words per text: all but stop words
    _codes: dict[str, int] = field(default_factory=dict)
    _stems: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def build(cls, values: Array, positions: Positions) -> Postings:
        """From the texts at these positions (values in the same order).

        A null is no text: it counts neither among the texts nor in their mean length.
        """
        if values.null_count:
            positions = positions[values.is_valid().to_numpy(zero_copy_only=False)]
            values = values.drop_null()
        lists = cut(values)
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        coded = pc.list_flatten(lists).dictionary_encode()
        vocabulary = coded.dictionary
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        texts = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        ends = np.cumsum(lengths)
        places = (np.arange(len(codes)) - np.repeat(ends - lengths, lengths)).astype(np.int32)
        order = np.argsort(codes, kind="stable")
        starts = np.zeros(len(vocabulary) + 1, dtype=np.int64)
        np.cumsum(np.bincount(codes, minlength=len(vocabulary)), out=starts[1:])
        names = vocabulary.to_pylist()
        ranked = np.fromiter(
            (bool(name) and name not in STOP_WORDS for name in names), np.bool_, len(names)
        )
        weights = np.bincount(texts, weights=ranked[codes], minlength=len(lengths))
        made = cls(
            vocabulary,
            positions,
            starts,
            texts[order],
            places[order],
            weights.astype(np.int32),
        )
        made._codes = {name: code for code, name in enumerate(names) if name}
        return made

    @property
    def nbytes(self) -> int:
        arrays = (self.positions, self.starts, self.texts, self.places, self.weights)
        return sum(array.nbytes for array in arrays) + 200 * len(self._codes)

    def occurrences(self, code: int) -> slice:
        return slice(int(self.starts[code]), int(self.starts[code + 1]))

    def code_of(self, word: str) -> int | None:
        return self._codes.get(word)

    def codes_of_stem(self, wanted: str) -> list[int]:
        if not self._stems:
            for name, code in self._codes.items():
                self._stems.setdefault(stem(name), []).append(code)
        return self._stems.get(wanted, [])


@dataclass(slots=True)
class TextIndex:
    """All words of a column at one version. Answers are by position."""

    parts: tuple[Postings, ...]
    gone: tuple[Mask | None, ...]  # per part, by text: no longer in the table, or changed since

    @classmethod
    def build(cls, values: Array, positions: Positions) -> TextIndex:
        """From a whole column; only texts at the living positions count."""
        if len(positions) != len(values):
            values = values.take(pa.array(positions))
        return cls((Postings.build(values, positions),), (None,))

    def moved(self, *, gone: Positions, values: Array, positions: Positions) -> TextIndex | None:
        """The next version: texts at `gone` are out, `values` are in. None: build anew."""
        newer = sum(len(part.positions) for part in self.parts[1:])
        if newer + len(positions) > NEWER_TEXTS_MAX or len(self.parts) > 64:
            return None
        marks = tuple(
            _marked(part, mark, gone) for part, mark in zip(self.parts, self.gone, strict=True)
        )
        if not len(positions):
            return TextIndex(self.parts, marks)
        order = np.argsort(positions)
        part = Postings.build(values.take(pa.array(order)), positions[order])
        return TextIndex((*self.parts, part), (*marks, None))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    # --- matching ---

    def any_word(self, query: str, size: int) -> Mask:
        """Which positions hold any of the query's words.

        Very common words count only when the query has no others.
        """
        asked = words(query)
        wanted = [word for word in asked if word not in STOP_WORDS] or asked
        found = np.zeros(size, dtype=np.bool_)
        for part, gone in zip(self.parts, self.gone, strict=True):
            for word in wanted:
                code = part.code_of(word)
                if code is not None:
                    _mark(found, part, gone, part.texts[part.occurrences(code)])
        return found

    def close_word(self, query: str, edits: int, size: int) -> Mask:
        """Which positions hold a word within `edits` of any of the query's words."""
        found = np.zeros(size, dtype=np.bool_)
        for part, gone in zip(self.parts, self.gone, strict=True):
            for word in words(query):
                near = within_edits(part.vocabulary, word, edits)
                for code in np.flatnonzero(near).tolist():
                    _mark(found, part, gone, part.texts[part.occurrences(code)])
        return found

    def phrase(self, query: str, size: int) -> Mask:
        """Which positions hold the query's words in a row."""
        wanted = words(query)
        found = np.zeros(size, dtype=np.bool_)
        for part, gone in zip(self.parts, self.gone, strict=True):
            texts = _phrase(part, wanted)
            if texts is not None:
                _mark(found, part, gone, texts)
        return found

    # --- ranking ---

    def bm25(self, query: str, size: int) -> Scores:
        """Relevance by position, NaN where no word of the query occurs."""
        stems = list(dict.fromkeys(stem(word) for word in words(query) if word not in STOP_WORDS))
        living = [
            np.ones(len(part.positions), dtype=np.bool_) if gone is None else ~gone
            for part, gone in zip(self.parts, self.gone, strict=True)
        ]
        texts = sum(int(np.count_nonzero(alive)) for alive in living)
        total = sum(
            int(part.weights[alive].sum()) for part, alive in zip(self.parts, living, strict=True)
        )
        mean = total / texts if total else 1.0
        scores = np.full(size, np.nan)
        for one in stems:
            counts = [
                _counts(part, part.codes_of_stem(one), alive)
                for part, alive in zip(self.parts, living, strict=True)
            ]
            holders = sum(len(at) for at, _ in counts)
            rarity = np.log(1.0 + (texts - holders + 0.5) / (holders + 0.5))
            for part, (at, often) in zip(self.parts, counts, strict=True):
                if len(at):
                    length = K1 * (1.0 - B + B * part.weights[at] / mean)
                    gain = rarity * often * (K1 + 1.0) / (often + length)
                    where = part.positions[at]
                    scores[where] = np.where(np.isnan(scores[where]), 0.0, scores[where]) + gain
        return scores


def _marked(part: Postings, mark: Mask | None, gone: Positions) -> Mask | None:
    at = np.searchsorted(part.positions, gone)
    at[at == len(part.positions)] = 0
    if not len(part.positions):
        return mark
    hit = at[part.positions[at] == gone]
    if not len(hit):
        return mark
    mark = np.zeros(len(part.positions), dtype=np.bool_) if mark is None else mark.copy()
    mark[hit] = True
    return mark


def _mark(found: Mask, part: Postings, gone: Mask | None, texts: npt.NDArray[np.int32]) -> None:
    if gone is not None:
        texts = texts[~gone[texts]]
    found[part.positions[texts]] = True


def _phrase(part: Postings, wanted: Sequence[str]) -> npt.NDArray[np.int32] | None:
    """The texts with these words in a row: intersect (text, place of the first word) keys."""
    keys: Positions | None = None
    for offset, word in enumerate(wanted):
        code = part.code_of(word)
        if code is None:
            return None
        spot = part.occurrences(code)
        first = part.places[spot].astype(np.int64) - offset
        here = (part.texts[spot].astype(np.int64) << 32) + first
        here = here[first >= 0]
        keys = here if keys is None else np.intersect1d(keys, here, assume_unique=True)
        if not len(keys):
            return None
    return None if keys is None else np.unique(keys >> 32).astype(np.int32)


def _counts(part: Postings, codes: Sequence[int], alive: Mask) -> tuple[Positions, Positions]:
    """Which living texts hold any of these words, and how often altogether."""
    if not codes:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing
    texts = np.concatenate([part.texts[part.occurrences(code)] for code in codes])
    at, often = np.unique(texts[alive[texts]], return_counts=True)
    return at.astype(np.int64), often.astype(np.int64)
