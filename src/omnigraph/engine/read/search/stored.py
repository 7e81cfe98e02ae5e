"""Postings in a derived file: the words of one column of one data file.

Texts are numbered by their row in the data file, so that the file serves every version that has it;
which rows are still there, and the position of each, the version tells. The vocabulary lies in
blocks of words, of which the first word of each is known at once; a question reads the blocks of
its words and the postings of these, and nothing else. Answers are those of `postings.py`.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from omnigraph.engine.arrow import Array, pa
from omnigraph.engine.read.memory.arrays import Mask, Positions, SmallPositions, places_among
from omnigraph.engine.read.search.postings import (
    Counted,
    Numbers,
    Postings,
    Stems,
    TextNumbers,
    Vocabulary,
    joined,
    narrow,
)
from omnigraph.engine.text.analysis import Analysis
from omnigraph.engine.text.asked import Term
from omnigraph.storage.derived import DamagedError, DerivedFile, Sections, Span

BLOCK_WORDS: Final = 256
BLOCKS_KEPT_MAX: Final = 1024  # of a file, in the form that is looked into
_HEAD: Final = struct.Struct("<III")  # words, bytes of numbers, bytes of letters
_AFTER: Final = b"\xff"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a file before anything else is read."""

    rows: int  # of the data file
    texts: int
    weight: int  # ranked words of all texts
    numbers: dict[str, str]  # the kind of the numbers of each section
    words: Directory
    stems: Directory


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """Where the blocks of a vocabulary begin, and the first word of each."""

    count: int
    firsts: list[bytes]
    starts: list[int]


# --- writing -----------------------------------------------------------------------------------


def made(values: Array, analysis: Analysis) -> tuple[Sections, Facts]:
    """The file of all values of a data file, nulls and deleted rows included."""
    postings = Postings.build(values, np.arange(len(values), dtype=np.int64), analysis)
    codes, count = postings.codes(), len(postings.vocabulary.names)
    texts = postings.texts
    changes = (codes[1:] != codes[:-1]) | (texts[1:] != texts[:-1])
    first = np.flatnonzero(np.append(True, changes)[: len(texts)])
    pairs = np.append(0, np.cumsum(np.bincount(codes[first], minlength=count))).astype("<i8")
    places = postings.starts.astype("<i8")
    stems = postings.stems or Stems.of(postings.vocabulary.names, analysis)
    weights = np.zeros(len(values), dtype=postings.weights.dtype)
    weights[postings.positions] = postings.weights
    by_section: dict[str, Numbers] = {
        "texts": postings.positions[texts[first]].astype("<i4"),
        "often": narrow(np.diff(np.append(first, len(texts)))),
        "pair_weights": postings.weights[texts[first]],
        "places": postings.places,
        "weights": weights,
    }
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False)
        by_section["nulls"] = np.packbits(missing, bitorder="little")

    def of_words(some: range) -> bytes:
        ends = slice(some.start, some.stop + 1)
        return bytes(pairs[ends].tobytes() + places[ends].tobytes())

    def of_stems(some: range) -> bytes:
        ends = stems.starts[some.start : some.stop + 1]
        words = stems.words[ends[0] : ends[-1]].astype("<u4")
        return bytes((ends - ends[0]).astype("<u4").tobytes() + words.tobytes())

    word_blocks, words = _blocks(postings.vocabulary, of_words)
    stem_blocks, stem_directory = _blocks(stems.vocabulary, of_stems)
    sections: dict[str, Sequence[bytes]] = {"words": word_blocks, "stems": stem_blocks}
    sections |= {name: [numbers.tobytes()] for name, numbers in by_section.items()}
    return sections, Facts(
        rows=len(values),
        texts=postings.count,
        weight=postings.weight,
        numbers={name: numbers.dtype.str for name, numbers in by_section.items()},
        words=words,
        stems=stem_directory,
    )


def _blocks(
    vocabulary: Vocabulary, numbers_of: Callable[[range], bytes]
) -> tuple[list[bytes], Directory]:
    names = vocabulary.names.to_pylist()
    blocks: list[bytes] = []
    firsts: list[bytes] = []
    starts: list[int] = [0]
    for begin in range(0, len(names), BLOCK_WORDS):
        some = [name.encode() for name in names[begin : begin + BLOCK_WORDS]]
        numbers = numbers_of(range(begin, begin + len(some)))
        ends = np.cumsum([len(one) for one in some]).astype("<u4").tobytes()
        letters = b"".join(some)
        head = _HEAD.pack(len(some), len(numbers), len(letters))
        blocks.append(head + numbers + ends + letters)
        firsts.append(some[0])
        starts.append(starts[-1] + len(blocks[-1]))
    return blocks, Directory(count=len(names), firsts=firsts, starts=starts)


# --- reading -----------------------------------------------------------------------------------


class _Block(msgspec.Struct, frozen=True):
    """Some words in ascending order, and what is told of them."""

    numbers: memoryview
    ends: Numbers
    letters: memoryview

    @classmethod
    def of(cls, body: memoryview) -> _Block:
        try:
            count, numbers, letters = _HEAD.unpack_from(body)
        except struct.error as cause:
            raise DamagedError("a block of words is too short") from cause
        ends_at = _HEAD.size + numbers
        letters_at = ends_at + 4 * count
        if letters_at + letters != len(body):
            raise DamagedError("a block of words is not whole")
        ends = np.frombuffer(body[ends_at:letters_at], dtype="<u4")
        return cls(body[_HEAD.size : ends_at], np.append(0, ends), body[letters_at:])

    def word(self, at: int) -> bytes:
        return bytes(self.letters[self.ends[at] : self.ends[at + 1]])

    def first(self, said: bytes) -> int:
        return bisect_left(range(len(self.ends) - 1), said, key=self.word)


class _Vocabulary:
    """The words of a section, read block by block."""

    def __init__(self, file: DerivedFile, section: str, directory: Directory) -> None:
        self._file, self._section, self._told = file, section, directory
        self._known: dict[int, _Block] = {}

    def find(self, said: bytes) -> int:
        """The place of a word, -1 if it is not here."""
        number = bisect_right(self._told.firsts, said) - 1
        if number < 0:
            return -1
        block = self.block(number)
        at = block.first(said)
        there = at < len(block.ends) - 1 and block.word(at) == said
        return number * BLOCK_WORDS + at if there else -1

    def first(self, said: bytes) -> int:
        """The place of the first word that is not before this one."""
        number = max(0, bisect_left(self._told.firsts, said) - 1)
        if not self._told.firsts:
            return 0
        return number * BLOCK_WORDS + self.block(number).first(said)

    def block(self, number: int) -> _Block:
        self.need([number])
        found = self._known.get(number)
        if found is None:  # another thread has made room
            self.need([number])
            found = self._known[number]
        return found

    def need(self, numbers: Sequence[int]) -> None:
        """Read the blocks that are not known, all together."""
        missing = [number for number in dict.fromkeys(numbers) if number not in self._known]
        if not missing:
            return
        if len(self._known) + len(missing) > BLOCKS_KEPT_MAX:
            self._known = {}
        starts = self._told.starts
        spans = [Span(self._section, starts[one], starts[one + 1]) for one in missing]
        for number, body in zip(missing, self._file.read_all(spans), strict=True):
            self._known[number] = _Block.of(body)

    def names(self) -> Array:
        """All words."""
        blocks = [_Block.of(body) for body in self._bodies()]
        lengths = [np.diff(block.ends) for block in blocks]
        ends = np.append(0, np.cumsum(joined(lengths, np.int64))).astype(np.int32)
        letters = b"".join(block.letters for block in blocks)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(letters)]
        return pa.Array.from_buffers(pa.string(), len(ends) - 1, buffers)

    def _bodies(self) -> Iterator[memoryview]:
        whole, starts = self._file.read(self._section), self._told.starts
        return (whole[a:b] for a, b in pairwise(starts))


class StoredPostings:
    """The words of the rows of a data file, at the positions that a version gives them."""

    def __init__(self, file: DerivedFile, positions: SmallPositions) -> None:
        facts = file.facts(Facts)
        if facts.rows != len(positions):
            raise DamagedError("it is of another number of rows")
        self._file, self._facts = file, facts
        self._words = _Vocabulary(file, "words", facts.words)
        self._stems = _Vocabulary(file, "stems", facts.stems)
        self.positions = positions
        self.count, self.weight = facts.texts, facts.weight
        self.nbytes = positions.nbytes
        self._order: Positions | None = None  # of the positions, where they do not ascend

    def names(self) -> Array:
        return self._words.names()

    def codes_of(self, term: Term) -> Sequence[int]:
        said = term.text.encode()
        match term.kind:
            case "word":
                code = self._words.find(said)
                return [code] if code >= 0 else []
            case "prefix":
                return range(self._words.first(said), self._words.first(said + _AFTER))
            case _:
                return self._words_of_stem(said)

    def _words_of_stem(self, said: bytes) -> list[int]:
        code = self._stems.find(said)
        if code < 0:
            return []
        block, at = self._stems.block(code // BLOCK_WORDS), code % BLOCK_WORDS
        numbers = np.frombuffer(block.numbers, dtype="<u4")
        first, words = numbers[: len(block.ends)], numbers[len(block.ends) :]
        found: list[int] = words[first[at] : first[at + 1]].tolist()
        return found

    def _ranges(self, codes: Sequence[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Of each word, from where to where its texts are told, and its places."""
        self._words.need([code // BLOCK_WORDS for code in codes])
        pairs, places = [], []
        for code in codes:
            block, at = self._words.block(code // BLOCK_WORDS), code % BLOCK_WORDS
            numbers = np.frombuffer(block.numbers, dtype="<i8")
            size = len(block.ends)
            pairs.append((int(numbers[at]), int(numbers[at + 1])))
            places.append((int(numbers[size + at]), int(numbers[size + at + 1])))
        return pairs, places

    def _numbers(self, wanted: Sequence[tuple[str, Sequence[tuple[int, int]]]]) -> list[Numbers]:
        """Numbers of some sections, those of each section in one array; read all together."""
        kinds = [np.dtype(self._facts.numbers[name]) for name, _ in wanted]
        spans = [
            Span(name, first * kind.itemsize, last * kind.itemsize)
            for (name, ranges), kind in zip(wanted, kinds, strict=True)
            for first, last in ranges
        ]
        bodies = iter(self._file.read_all(spans))
        return [
            joined([np.frombuffer(next(bodies), dtype=kind) for _ in ranges], kind.type)
            for (_, ranges), kind in zip(wanted, kinds, strict=True)
        ]

    def holders(self, codes: Sequence[int]) -> TextNumbers:
        pairs, _ = self._ranges(codes)
        return self._numbers([("texts", _runs(pairs))])[0]

    def counted(self, codes: Sequence[int]) -> Counted:
        pairs, _ = self._ranges(codes)
        ranges = _runs(pairs)
        wanted = [(name, ranges) for name in ("texts", "often", "pair_weights")]
        texts, often, weights = self._numbers(wanted)
        if len(codes) <= 1:
            return Counted(texts, often, weights)
        at, first, back = np.unique(texts, return_index=True, return_inverse=True)
        counts = np.bincount(back, often, len(at)).astype(np.int64)
        return Counted(at, counts, weights[first])

    def placed(self, codes: Sequence[int]) -> Positions:
        pairs, places = self._ranges(codes)
        wanted = [("texts", pairs), ("often", pairs), ("places", places)]
        texts, often, spots = self._numbers(wanted)
        if len(spots) != int(often.sum()):
            raise DamagedError("words have more places than they are often there")
        found: Positions = (np.repeat(texts, often).astype(np.int64) << 32) + spots
        return found

    def weights_at(self, texts: Numbers) -> Numbers:
        if self._file.is_local or len(texts) * 64 > self._facts.rows:
            return self._numbers([("weights", [(0, self._facts.rows)])])[0][texts]
        ranges = [(int(text), int(text) + 1) for text in texts]
        return self._numbers([("weights", ranges)])[0]

    def numbers_at(self, positions: SmallPositions) -> Positions:
        own = self.positions
        if self._order is None:
            ascending = len(own) < 2 or bool((own[1:] > own[:-1]).all())
            self._order = np.zeros(0, np.int64) if ascending else np.argsort(own, kind="stable")
        ordered = own if not len(self._order) else own[self._order]
        if not len(own) or positions[-1] < ordered[0] or positions[0] > ordered[-1]:
            return np.zeros(0, dtype=np.int64)
        found = places_among(ordered, positions)
        found = found[found >= 0]
        found = self._order[found] if len(self._order) else found
        told = self.told()
        return found if told is None else found[told[found]]

    def told(self) -> Mask | None:
        if "nulls" not in self._facts.numbers:
            return None
        bits = np.frombuffer(self._file.read("nulls"), dtype=np.uint8)
        missing = np.unpackbits(bits, count=self._facts.rows, bitorder="little")
        return ~missing.astype(np.bool_)


def _runs(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same with ranges that follow each other made one."""
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found
