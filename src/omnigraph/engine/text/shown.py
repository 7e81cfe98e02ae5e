"""Showing people why a text was found: `highlight` marks the words, `snippet` cuts out the best
place.

A word is marked if it has the stem of a word of the query; a phrase if its words stand in a row.
The text itself is not changed: marks are put around parts of it.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, groupby
from typing import Final

import msgspec

from omnigraph.engine.text.analysis import Analysis, is_cjk
from omnigraph.engine.text.asked import Shown, shown

GAP: Final = "…"
_GRAMS_PER_UNIT: Final = 2  # letters of a run without spaces that count as a word
_SIGNS: Final = {"sign": 1, "flag": 2}  # how many of them are one
_FLAGS: Final = ("\U0001f1e6", "\U0001f1ff")


class _Run(msgspec.Struct, frozen=True):
    """Letters of a text that are a word, from one place to another, and what they are folded to."""

    start: int
    stop: int
    folded: str


def highlight(text: str, query: str, marks: tuple[str, str], analysis: Analysis) -> str:
    """The text with the marks before and behind every part that the query found."""
    return _marked(text, _ranges(text, query, analysis), marks, 0, len(text))


def snippet(text: str, query: str, words: int, marks: tuple[str, str], analysis: Analysis) -> str:
    """About so many words of the text, with marks: those among which most of the query's different
    words stand, the first of several such places. `…` stands for what was left out."""
    units = [*_units(text, analysis)]
    if len(units) <= words:
        return highlight(text, query, marks, analysis)
    ranges = _ranges(text, query, analysis)
    worth = _worth(units, ranges, words)
    best = worth.index(max(worth))
    start = 0 if best == 0 else units[best][0]
    last = best + words == len(units)
    stop = len(text) if last else units[best + words - 1][1]
    inside = [one for one in ranges if one[0] < stop and one[1] > start]
    found = _marked(text, inside, marks, start, stop)
    return (GAP if start else "") + found + ("" if last else GAP)


_Range = tuple[int, int, Shown]


def _worth(
    units: Sequence[tuple[int, int]], ranges: Sequence[_Range], words: int
) -> list[tuple[int, int]]:
    """Of each place where a snippet may begin: how much of the query stands whole in so many words
    from there, and how often. One pass over the text: it may be a book."""
    starts, stops = [start for start, _ in units], [stop for _, stop in units]
    places = len(units) - words + 1
    inside: dict[Shown, list[tuple[int, int]]] = {}  # the places that see a range, last excluded
    for start, stop, one in ranges:
        first = max(0, bisect_left(stops, stop) - words + 1)
        last = min(places, bisect_right(starts, start))
        if first < last:
            inside.setdefault(one, []).append((first, last))
    often = _covered(places, chain.from_iterable(inside.values()))
    different = _covered(places, chain.from_iterable(map(_joined, inside.values())))
    return list(zip(different, often, strict=True))


def _covered(places: int, spans: Iterable[tuple[int, int]]) -> Iterator[int]:
    """How many of the spans each place is in."""
    change = [0] * (places + 1)
    for first, last in spans:
        change[first] += 1
        change[last] -= 1
    return accumulate(change[:places])


def _marked(
    text: str, ranges: Sequence[_Range], marks: tuple[str, str], start: int, stop: int
) -> str:
    pieces: list[str] = []
    at = start
    for first, last in _joined((start, stop) for start, stop, _ in ranges):
        first, last = max(first, start), min(last, stop)
        pieces += [text[at:first], marks[0], text[first:last], marks[1]]
        at = last
    return "".join([*pieces, text[at:stop]])


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same in ascending order, those that overlap made one."""
    found: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def _ranges(text: str, query: str, analysis: Analysis) -> list[_Range]:
    """The parts of the text that are meant, by what of the query they are meant."""
    runs = [*_runs(text, analysis)]
    places = _Places(runs, analysis)
    found: list[_Range] = []
    for one in shown(analysis, query):
        if one.terms[0][0] == "within":
            found += _within(runs, one)
            continue
        for at in places.of(*one.terms[0]):
            here = runs[at : at + len(one.terms)]
            if len(here) < len(one.terms):
                continue
            if all(_is_meant(run, *term, analysis) for run, term in zip(here, one.terms)):  # noqa: B905
                found.append((here[0].start, here[-1].stop, one))
    return found


class _Places:
    """Where each word of a text stands, so that words are not all compared with the whole query."""

    def __init__(self, runs: Sequence[_Run], analysis: Analysis) -> None:
        self._words: dict[str, list[int]] = {}
        for at, run in enumerate(runs):
            self._words.setdefault(run.folded, []).append(at)
        self._stems: dict[str, list[int]] = {}
        for word, places in self._words.items():
            self._stems.setdefault(_stem(analysis, word), []).extend(places)

    def of(self, kind: str, said: str) -> Sequence[int]:
        if kind == "stem":
            return self._stems.get(said, ())
        if kind == "word":
            return self._words.get(said, ())
        return [at for word, some in self._words.items() if word.startswith(said) for at in some]


def _is_meant(run: _Run, kind: str, said: str, analysis: Analysis) -> bool:
    if kind == "stem":
        return _stem(analysis, run.folded) == said
    return run.folded.startswith(said) if kind == "prefix" else run.folded == said


@lru_cache(maxsize=65_536)
def _stem(analysis: Analysis, word: str) -> str:
    return analysis.stem(word)


def _within(runs: Sequence[_Run], one: Shown) -> Iterator[_Range]:
    said = one.terms[0][1]
    for run in runs:
        same_length = len(run.folded) == run.stop - run.start
        at = run.folded.find(said)
        while at >= 0:
            if not same_length:  # folding has moved the letters: the whole run is marked
                yield run.start, run.stop, one
                break
            yield run.start + at, run.start + at + len(said), one
            at = run.folded.find(said, at + 1)


def _units(text: str, analysis: Analysis) -> Iterator[tuple[int, int]]:
    """What counts as a word of a snippet."""
    at = 0
    for run in _runs(text, analysis):
        if run.start < at:  # another word of the same piece
            continue
        at = run.stop
        if analysis.gram_size(run.folded) is None:
            yield run.start, run.stop
        else:
            for start in range(run.start, run.stop, _GRAMS_PER_UNIT):
                yield start, min(start + _GRAMS_PER_UNIT, run.stop)


def _runs(text: str, analysis: Analysis) -> Iterator[_Run]:
    """The words of a text with their places. A piece may fold to several words (`½` to 1 and 2):
    each of them has the place of all."""
    at = 0
    for kind, letters in groupby(text, key=lambda one: _kind(one, analysis)):
        size = len("".join(letters))
        start, at = at, at + size
        if kind in _SIGNS:
            step = _SIGNS[kind]
            pieces = [(one, min(one + step, at)) for one in range(start, at, step)]
        else:
            pieces = [(start, at)] if kind else []
        for first, last in pieces:
            for word in analysis.runs(text[first:last]):
                yield _Run(first, last, word)


@lru_cache(maxsize=65_536)
def _kind(letter: str, analysis: Analysis) -> str:
    category = unicodedata.category(letter)
    if analysis.is_plain:  # a sign like `™` stands for letters
        letters = unicodedata.normalize("NFKD", letter)
        return "word" if any(unicodedata.category(one)[0] in "LNM" for one in letters) else ""
    if category == "So":
        return "flag" if _FLAGS[0] <= letter <= _FLAGS[1] else "sign"
    if category[0] not in "LNM":
        return ""
    if analysis.tokenizer != "cjk" or category[0] == "M":
        return "word"
    return "cjk" if is_cjk(unicodedata.normalize("NFKC", letter)[:1]) else "word"
