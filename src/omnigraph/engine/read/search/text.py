"""Words: how text is cut into them, who holds which of them, and how relevant that is (BM25).

One analysis serves every search function. A word is a run of letters and digits, lower-cased and
without accents. Ranking compares words by their stem and leaves out the most common English words;
matching compares the words themselves.

An index is a big part and a small newer one, so that a commit of a few rows costs a few rows. Its
answers depend only on the texts of its version, never on how it came about.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, pc, picked
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    Mask,
    Positions,
    array_bytes,
    distinct_sorted,
    places_among,
)
from omnigraph.engine.read.memory.cache import Caches
from omnigraph.engine.read.memory.frame import Change, Frame

_COMMON: Final = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)
STOP_WORDS: Final = frozenset(_COMMON.split())
_NOT_WORD: Final = r"[^\p{L}\p{N}]+"
_MARKS: Final = r"\p{M}+"
K1: Final = 1.2  # BM25: how fast repetition saturates
B: Final = 0.75  # BM25: how much long texts are held back
NEWER_TEXTS_MAX: Final = 16_384  # with more texts behind the first part, an index is built anew
NEWER_PARTS_MAX: Final = 16  # more parts behind the first are put together
WORD_BYTES: Final = 200  # of a word that is known by its number, about

Scores = npt.NDArray[np.float64]
TextNumbers = npt.NDArray[np.int32]  # by part


def cut(texts: Array) -> Array:
    """Every text as the list of its words; null stays null."""
    plain = pc.utf8_normalize(texts, form="NFKD")
    plain = pc.utf8_lower(pc.replace_substring_regex(plain, pattern=_MARKS, replacement=""))
    # Splitting leaves an empty word at either end of a text that starts or ends with a sign.
    plain = pc.replace_substring_regex(plain, pattern=_NOT_WORD, replacement=" ")
    return pc.split_pattern(pc.utf8_trim(plain, characters=" "), pattern=" ")


@lru_cache(maxsize=1024)
def words(text: str) -> tuple[str, ...]:
    """The words of one text, in order: the same as `cut`, without the cost of a kernel call."""
    plain = "".join(
        letter.lower() if kind in "LN" else " "
        for letter in unicodedata.normalize("NFKD", text)
        if (kind := unicodedata.category(letter)[0]) != "M"
    )
    return tuple(plain.split())


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The word without common English endings: a light stemmer, for ranking only.

    It unifies plurals, `-ing`, `-ed` and `-ly` forms; words of three letters or fewer stay.
    """
    if len(word) <= 3 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed", "ly"):
        cut_word = word.removesuffix(ending)
        if cut_word != word and len(cut_word) >= 3 and any(v in cut_word for v in "aeiouy"):
            last = cut_word[-1]
            doubled = len(cut_word) > 3 and last == cut_word[-2] and last not in "lsz"
            # `runn` is `run`; `fall` stays.
            return cut_word[:-1] if doubled and ending != "ly" else cut_word
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def within_edits(vocabulary: Array, word: str, edits: int) -> Mask:
    """Which words can be made from `word` by at most `edits` single-letter changes.

    A change puts in, takes out or replaces one letter. One dynamic programme runs over all words of
    the vocabulary at once.
    """
    lengths = pc.utf8_length(vocabulary).to_numpy(zero_copy_only=False).astype(np.int64)
    near = np.flatnonzero(np.abs(lengths - len(word)) <= edits)
    found = np.zeros(len(vocabulary), dtype=np.bool_)
    if not len(near):
        return found
    lengths = lengths[near]
    # Code points, a row per word, padded with zeros.
    fixed = np.asarray(picked(vocabulary, near).to_pylist(), dtype=f"<U{max(1, lengths.max())}")
    letters = fixed.view(np.uint32).reshape(len(near), -1)
    places = np.arange(letters.shape[1] + 1)
    distance = np.tile(places, (len(near), 1))
    for letter in word:
        replaced = distance[:, :-1] + (letters != ord(letter))
        dropped = distance + 1
        dropped[:, 1:] = np.minimum(dropped[:, 1:], replaced)
        # A letter put in adds one to the distance at the place before: the least of all before.
        distance = np.minimum.accumulate(dropped - places, axis=1) + places
    found[near[distance[np.arange(len(near)), lengths] <= edits]] = True
    return found


# --- the words of one column -------------------------------------------------------------------


def text_index(caches: Caches, frame: Frame, column: str) -> TextIndex:
    """The words of one column of a frame, kept and moved with it."""

    def build() -> TextIndex:
        return TextIndex.build(frame.column(column).whole(), frame.living().positions())

    def move(older: TextIndex, change: Change) -> TextIndex | None:
        changed = change.values(column)
        if changed is None:
            return None
        gone = np.concatenate([change.deleted_at, change.updated_at])
        moved = older.moved(gone=gone, positions=changed[0], values=changed[1])
        if moved is None or change is not frame.changes[-1]:
            return moved
        return moved.joined(lambda positions: frame.fetch(column, positions))

    frame.follow(column)
    return caches.derived("text", frame, column, build=build, move=move)


class Postings(msgspec.Struct):
    """Occurrences sorted by (word, text, place): `starts[w]` to `starts[w + 1]` are word w's."""

    vocabulary: Array
    positions: Positions  # of the texts, ascending
    starts: Positions
    texts: TextNumbers  # index into `positions`, by occurrence
    places: npt.NDArray[np.int32]
    weights: npt.NDArray[np.int32]  # ranked words per text: all but stop words
    codes: dict[str, int]  # by word
    _stems: dict[str, list[int]] = msgspec.field(default_factory=dict)

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
        return cls(
            vocabulary,
            positions,
            starts,
            texts[order],
            places[order],
            weights.astype(np.int32),
            {name: code for code, name in enumerate(names) if name},
        )

    def buffers(self) -> dict[int, int]:
        """What is held, by address; words are Python strings in two dicts."""
        held = {id(self.codes): WORD_BYTES * len(self.codes)}
        for array in (self.positions, self.starts, self.texts, self.places, self.weights):
            held |= array_bytes(array)
        return held

    def occurrences(self, code: int) -> slice:
        return slice(int(self.starts[code]), int(self.starts[code + 1]))

    def holders(self, codes: Iterable[int]) -> list[TextNumbers]:
        """The texts that hold each of the words."""
        return [self.texts[self.occurrences(code)] for code in codes]

    def codes_of_stem(self, wanted: str) -> list[int]:
        if not self._stems:
            for name, code in self.codes.items():
                self._stems.setdefault(stem(name), []).append(code)
        return self._stems.get(wanted, [])


class TextIndex(msgspec.Struct):
    """All words of a column at one version. Answers are by position."""

    # Each with its texts that are still in the table and unchanged since.
    parts: tuple[tuple[Postings, Mask], ...]

    @classmethod
    def build(cls, values: Array, positions: Positions) -> TextIndex:
        """From a whole column; only texts at the living positions count."""
        if len(positions) != len(values):
            values = picked(values, positions)
        return cls((_fresh(values, positions),))

    def moved(self, *, gone: Positions, values: Array, positions: Positions) -> TextIndex | None:
        """The next version: texts at `gone` are out, `values` are in. None: build anew."""
        newer = sum(len(part.positions) for part, _ in self.parts[1:])
        if newer + len(positions) > NEWER_TEXTS_MAX:
            return None
        parts = []
        for part, alive in self.parts:
            hit = places_among(part.positions, gone)
            hit = hit[hit >= 0]
            left = alive.copy() if len(hit) else alive
            left[hit] = False
            parts.append((part, left))
        if len(positions):
            order = np.argsort(positions)
            parts.append(_fresh(picked(values, order), positions[order]))
        return TextIndex(tuple(parts))

    def joined(self, texts_at: Callable[[Positions], Array]) -> TextIndex:
        """The same in two parts, where many commits have left many; `texts_at` gives the texts of
        this version by position."""
        if len(self.parts) <= NEWER_PARTS_MAX:
            return self
        first, *newer = self.parts
        at = np.sort(np.concatenate([part.positions[alive] for part, alive in newer]))
        return TextIndex((first, _fresh(texts_at(at), at)))

    def buffers(self) -> dict[int, int]:
        """What is held, by address: versions share all but who is still there."""
        held: dict[int, int] = {}
        for part, alive in self.parts:
            held |= part.buffers() | array_bytes(alive)
        return held

    # --- matching ---

    def any_word(self, query: str, size: int) -> Mask:
        """Which positions hold any of the query's words.

        Very common words count only when the query has no others.
        """
        asked = words(query)
        wanted = [word for word in asked if word not in STOP_WORDS] or asked
        return self._matching(
            size, lambda part: part.holders(part.codes[w] for w in wanted if w in part.codes)
        )

    def close_word(self, query: str, edits: int, size: int) -> Mask:
        """Which positions hold a word within `edits` of any of the query's words."""

        def close(part: Postings) -> Iterator[TextNumbers]:
            for word in words(query):
                near = within_edits(part.vocabulary, word, edits)
                yield from part.holders(np.flatnonzero(near).tolist())

        return self._matching(size, close)

    def phrase(self, query: str, size: int) -> Mask:
        """Which positions hold the query's words in a row."""
        return self._matching(size, lambda part: [_phrase(part, words(query))])

    def _matching(self, size: int, find: Callable[[Postings], Iterable[TextNumbers]]) -> Mask:
        found = np.zeros(size, dtype=np.bool_)
        for part, alive in self.parts:
            for texts in find(part):
                found[part.positions[texts[alive[texts]]]] = True
        return found

    # --- ranking ---

    def bm25(self, query: str, size: int) -> Scores:
        """Relevance by position, NaN where no word of the query occurs."""
        stems = list(dict.fromkeys(stem(word) for word in words(query) if word not in STOP_WORDS))
        texts = sum(int(np.count_nonzero(alive)) for _, alive in self.parts)
        total = sum(int(part.weights[alive].sum()) for part, alive in self.parts)
        mean = total / texts if total else 1.0
        scores = np.full(size, np.nan)
        for stemmed in stems:
            counts = [
                _counts(part, part.codes_of_stem(stemmed), alive) for part, alive in self.parts
            ]
            holders = sum(len(at) for at, _ in counts)
            rarity = np.log(1.0 + (texts - holders + 0.5) / (holders + 0.5))
            for (part, _), (at, often) in zip(self.parts, counts, strict=True):
                if len(at):
                    length = K1 * (1.0 - B + B * part.weights[at] / mean)
                    gain = rarity * often * (K1 + 1.0) / (often + length)
                    where = part.positions[at]
                    scores[where] = np.where(np.isnan(scores[where]), 0.0, scores[where]) + gain
        return scores


def _fresh(values: Array, positions: Positions) -> tuple[Postings, Mask]:
    part = Postings.build(values, positions)
    return part, np.ones(len(part.positions), dtype=np.bool_)


def _phrase(part: Postings, wanted: Sequence[str]) -> TextNumbers:
    """The texts with these words in a row: intersect (text, place of the first word) keys."""
    keys = NO_POSITIONS
    for offset, word in enumerate(wanted):
        if word not in part.codes:
            return keys[:0].astype(np.int32)
        spot = part.occurrences(part.codes[word])
        first = part.places[spot].astype(np.int64) - offset
        here = (part.texts[spot].astype(np.int64) << 32) + first
        here = here[first >= 0]
        keys = np.intersect1d(keys, here, assume_unique=True) if offset else here
    return distinct_sorted(keys >> 32).astype(np.int32)


def _counts(part: Postings, codes: Sequence[int], alive: Mask) -> tuple[Positions, Positions]:
    """Which living texts hold any of these words, and how often altogether."""
    if not codes:
        return NO_POSITIONS, NO_POSITIONS
    texts = np.concatenate(part.holders(codes))
    at, often = np.unique(texts[alive[texts]], return_counts=True)
    return at.astype(np.int64), often.astype(np.int64)
