"""Showing people why a text was found: `highlight` marks the words, `snippet` cuts out the best
place.

A word is marked if it has the stem of a word of the query; a phrase if its words stand in a row.
The text itself is not changed: marks are put around parts of it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
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
    places = range(len(units) - words + 1)
    best = max(places, key=lambda at: (_worth(units, ranges, at, words), -at))
    start = 0 if best == 0 else units[best][0]
    last = best + words == len(units)
    stop = len(text) if last else units[best + words - 1][1]
    inside = [one for one in ranges if one[0] < stop and one[1] > start]
    found = _marked(text, inside, marks, start, stop)
    return (GAP if start else "") + found + ("" if last else GAP)


_Range = tuple[int, int, Shown]


def _worth(
    units: Sequence[tuple[int, int]], ranges: Sequence[_Range], at: int, words: int
) -> tuple[int, int]:
    start, stop = units[at][0], units[at + words - 1][1]
    inside = [one for one in ranges if one[0] >= start and one[1] <= stop]
    return len({one[2] for one in inside}), len(inside)


def _marked(
    text: str, ranges: Sequence[_Range], marks: tuple[str, str], start: int, stop: int
) -> str:
    pieces: list[str] = []
    at = start
    for first, last in _merged(ranges):
        first, last = max(first, start), min(last, stop)
        pieces += [text[at:first], marks[0], text[first:last], marks[1]]
        at = last
    return "".join([*pieces, text[at:stop]])


def _merged(ranges: Sequence[_Range]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, stop, _ in sorted(ranges, key=lambda one: one[:2]):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def _ranges(text: str, query: str, analysis: Analysis) -> list[_Range]:
    """The parts of the text that are meant, by what of the query they are meant."""
    runs, wanted = [*_runs(text, analysis)], shown(analysis, query)
    found: list[_Range] = []
    for one in wanted:
        if one.terms[0][0] == "within":
            found += _within(runs, one)
            continue
        for at in range(len(runs) - len(one.terms) + 1):
            here = runs[at : at + len(one.terms)]
            if all(_is_meant(run, *term, analysis) for run, term in zip(here, one.terms)):  # noqa: B905
                found.append((here[0].start, here[-1].stop, one))
    return found


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
    for run in _runs(text, analysis):
        if analysis.gram_size(run.folded) is None:
            yield run.start, run.stop
        else:
            for at in range(run.start, run.stop, _GRAMS_PER_UNIT):
                yield at, min(at + _GRAMS_PER_UNIT, run.stop)


def _runs(text: str, analysis: Analysis) -> Iterator[_Run]:
    """The words of a text with their places. A piece that folds to several words counts for its
    first."""
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
            found = analysis.runs(text[first:last])
            if found:
                yield _Run(first, last, found[0])


@lru_cache(maxsize=65_536)
def _kind(letter: str, analysis: Analysis) -> str:
    category = unicodedata.category(letter)
    if analysis.is_plain:
        return "word" if category[0] in "LNM" else ""
    if category == "So":
        return "flag" if _FLAGS[0] <= letter <= _FLAGS[1] else "sign"
    if category[0] not in "LNM":
        return ""
    if analysis.tokenizer != "cjk" or category[0] == "M":
        return "word"
    return "cjk" if is_cjk(unicodedata.normalize("NFKC", letter)[:1]) else "word"
