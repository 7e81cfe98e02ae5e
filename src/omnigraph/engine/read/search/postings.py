"""Who holds which words: the postings of some texts of a column, made in memory.

`stored.py` has the same answers from a file. Both number their texts, know the position of each,
and answer by *codes*: the places of words in their ascending vocabulary.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, as_mask, pa, pc, picked
from omnigraph.engine.read.memory.arrays import Mask, Positions, SmallPositions, places_among
from omnigraph.engine.text.analysis import Analysis
from omnigraph.engine.text.asked import Term
from omnigraph.engine.text.words import STEM_CUT_MAX, STEM_END, stem

TextNumbers = npt.NDArray[np.int32]  # by part
Numbers = npt.NDArray[Any]
_AFTER: Final = b"\xff"  # sorts behind every letter of UTF-8


class Counted(msgspec.Struct, frozen=True):
    """Different texts, ascending, how often each holds some words, and how many ranked words it
    has."""

    texts: TextNumbers
    often: Numbers
    weights: Numbers


class Words(Protocol):
    """The words of some texts, wherever they are."""

    @property
    def count(self) -> int:
        """How many texts there are."""
        ...

    @property
    def weight(self) -> int:
        """How many ranked words they have."""
        ...

    @property
    def nbytes(self) -> int: ...

    @property
    def positions(self) -> SmallPositions:
        """The position of each text, by its number."""
        ...

    def names(self) -> Array:
        """All different words; the code of each is its place."""
        ...

    def codes_of(self, term: Term) -> Sequence[int]: ...

    def holders(self, codes: Sequence[int]) -> TextNumbers:
        """The texts that hold any of the words, some of them perhaps repeatedly."""
        ...

    def counted(self, codes: Sequence[int]) -> Counted: ...

    def placed(self, codes: Sequence[int]) -> Positions:
        """Where the words stand: the number of the text, times 2^32, and the place in it."""
        ...

    def weights_at(self, texts: Numbers) -> Numbers:
        """How many ranked words these texts have."""
        ...

    def numbers_at(self, positions: SmallPositions) -> Positions:
        """The texts at these ascending positions; positions without one are left out."""
        ...

    def told(self) -> Mask | None:
        """Which numbers are those of texts; None: all."""
        ...


class Postings(msgspec.Struct, frozen=True):
    """Occurrences sorted by (word, text, place): `starts[w]` to `starts[w + 1]` are word w's."""

    vocabulary: Vocabulary
    positions: SmallPositions  # of the texts, ascending
    starts: Positions
    texts: TextNumbers  # index into `positions`, by occurrence
    places: Numbers  # by occurrence
    weights: Numbers  # ranked words per text: all but stop words
    analysis: Analysis
    stems: Stems | None  # None: they are found among the words

    @classmethod
    def build(cls, values: Array, positions: Positions, analysis: Analysis) -> Postings:
        """From the texts at these positions (values in the same order).

        A null is no text: it counts neither among the texts nor in their mean length.
        """
        if values.null_count:
            positions = positions[values.is_valid().to_numpy(zero_copy_only=False)]
            values = values.drop_null()
        if len(positions) > 1 and not (positions[1:] > positions[:-1]).all():
            order = np.argsort(positions)
            positions, values = positions[order], picked(values, order)
        found = analysis.cut(values)
        lengths = found.lengths
        texts = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        ends = np.cumsum(lengths, dtype=np.int64)
        places = np.arange(len(found.codes)) - np.repeat(ends - lengths, lengths)
        return cls.of(found.names, found.codes, texts, places, positions, analysis)

    @classmethod
    def of(
        cls,
        names: Array,
        codes: Numbers,
        texts: TextNumbers,
        places: Numbers,
        positions: Numbers,
        analysis: Analysis,
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
        common = pa.array(sorted(analysis.stop_words), pa.string())
        ranked = ~as_mask(pc.is_in(vocabulary.names, value_set=common))
        weights = np.bincount(texts[ranked[codes]], minlength=len(positions))
        return cls(
            vocabulary,
            positions.astype(np.int32),
            starts,
            texts[order],
            narrow(places[order]),
            narrow(weights),
            analysis,
            None if analysis.is_plain else Stems.of(vocabulary.names, analysis),
        )

    @property
    def count(self) -> int:
        return len(self.positions)

    @property
    def weight(self) -> int:
        return int(self.weights.sum())

    @property
    def nbytes(self) -> int:
        arrays = (self.positions, self.starts, self.texts, self.places, self.weights)
        stems = 0 if self.stems is None else self.stems.nbytes
        return self.vocabulary.nbytes + stems + sum(array.nbytes for array in arrays)

    def names(self) -> Array:
        return self.vocabulary.names

    def codes(self) -> npt.NDArray[np.int64]:
        """The word of every occurrence."""
        return np.repeat(np.arange(len(self.vocabulary.names)), np.diff(self.starts))

    def codes_of(self, term: Term) -> Sequence[int]:
        match term.kind:
            case "word":
                code = self.vocabulary.find(term.text)
                return [code] if code >= 0 else []
            case "prefix":
                return self.vocabulary.beginning(term.text)
            case _:
                if self.stems is not None:
                    return self.stems.words_of(term.text)
                return self.vocabulary.of_stem(term.text)

    def occurrences(self, codes: Sequence[int]) -> list[slice]:
        return [slice(int(self.starts[code]), int(self.starts[code + 1])) for code in codes]

    def holders(self, codes: Sequence[int]) -> TextNumbers:
        return joined([self.texts[some] for some in self.occurrences(codes)], np.int32)

    def counted(self, codes: Sequence[int]) -> Counted:
        texts = self.holders(codes)
        if len(codes) > 1:
            texts = np.sort(texts)
        first = np.flatnonzero(np.append(True, texts[1:] != texts[:-1])[: len(texts)])
        at = texts[first]
        return Counted(at, np.diff(np.append(first, len(texts))), self.weights[at])

    def placed(self, codes: Sequence[int]) -> Positions:
        found = [
            (self.texts[some].astype(np.int64) << 32) + self.places[some]
            for some in self.occurrences(codes)
        ]
        return joined(found, np.int64)

    def weights_at(self, texts: Numbers) -> Numbers:
        return self.weights[texts]

    def numbers_at(self, positions: SmallPositions) -> Positions:
        own = self.positions
        if not len(own) or positions[-1] < own[0] or positions[0] > own[-1]:
            return np.zeros(0, dtype=np.int64)
        found = places_among(own, positions)
        return found[found >= 0]

    def told(self) -> Mask | None:
        return None


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
        """The places of all words that have this plain stem."""
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

    def beginning(self, prefix: str) -> range:
        """The places of all words that begin so."""
        said = prefix.encode()
        return range(self._first(said), self._first(said + _AFTER))

    def _first(self, said: bytes) -> int:
        """The first place whose word is not before this one: UTF-8 has the order of letters."""
        return bisect_left(range(len(self.names)), said, key=self._bytes)

    def _bytes(self, at: int) -> bytes:
        assert self._ends is not None, "there are words"
        return bytes(self._letters[self._ends[at] : self._ends[at + 1]])


class Stems(msgspec.Struct, frozen=True):
    """The words of every stem: `words[starts[s]]` to before `words[starts[s + 1]]` are stem s's."""

    vocabulary: Vocabulary
    starts: Positions
    words: npt.NDArray[np.int32]

    @classmethod
    def of(cls, names: Array, analysis: Analysis) -> Stems:
        found = pa.array(analysis.stems(names.to_pylist()), pa.string()).dictionary_encode()
        by_name = pc.array_sort_indices(found.dictionary).to_numpy(zero_copy_only=False)
        number = np.zeros(len(by_name), dtype=np.int64)
        number[by_name] = np.arange(len(by_name))
        codes = number[found.indices.to_numpy(zero_copy_only=False)]
        starts = np.append(0, np.cumsum(np.bincount(codes, minlength=len(by_name))))
        words = np.argsort(codes, kind="stable").astype(np.int32)
        return cls(Vocabulary(picked(found.dictionary, by_name)), starts.astype(np.int64), words)

    @property
    def nbytes(self) -> int:
        return self.vocabulary.nbytes + self.starts.nbytes + self.words.nbytes

    def words_of(self, stemmed: str) -> list[int]:
        at = self.vocabulary.find(stemmed)
        if at < 0:
            return []
        found: list[int] = self.words[self.starts[at] : self.starts[at + 1]].tolist()
        return found


def joined(arrays: Sequence[Numbers], kind: type[Any]) -> Numbers:
    """All of them, one behind the other."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=kind)


def _stable_order(codes: Numbers) -> Positions:
    if codes.dtype.itemsize <= 2:  # numpy counts these instead of comparing them
        return np.argsort(codes, kind="stable")
    keys = (codes.astype(np.int64) << 32) + np.arange(len(codes), dtype=np.int64)
    keys.sort()
    return keys & 0xFFFF_FFFF


def narrow(numbers: Numbers) -> Numbers:
    """The same in as few bytes as the greatest needs; none is negative."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
