"""What a search asks for: a text of the user's, as terms that the words of a column can answer.

`search` understands a little more than words: `"graph data*"` is words in a row, of which the last
begins so; `+a` must be there, and `-b` must not. Ranking and highlighting read the same text: they
take all of it but what must not be there. Nothing in such a text is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from omnigraph.engine.text.analysis import Analysis

_PIECE: Final = re.compile(r'(?P<sign>[+-]?)(?:"(?P<phrase>[^"]*)"|(?P<word>\S+))')
_STARRED: Final = re.compile(r"\w\*$")


class Term(msgspec.Struct, frozen=True):
    """Words of a column: one, all of a stem, or all that begin so."""

    kind: Literal["word", "stem", "prefix"]
    text: str


Row = tuple[tuple[int, Term], ...]  # terms that stand in a row, each so far from the first


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What `search` asks for: all of `required`, none of `excluded`, and where nothing is required
    one of `optional`."""

    required: tuple[Row, ...] = ()
    optional: tuple[Row, ...] = ()
    excluded: tuple[Row, ...] = ()


class _Piece(msgspec.Struct, frozen=True):
    """A word or phrase of the user's text, by its runs of letters."""

    sign: str
    runs: tuple[str, ...]
    starred: bool  # the last run is only a beginning
    phrase: bool


def _pieces(analysis: Analysis, query: str) -> Iterator[_Piece]:
    for found in _PIECE.finditer(query):
        phrase, text = found["phrase"] is not None, found["phrase"] or found["word"] or ""
        runs = analysis.runs(text)
        if runs:
            starred = _STARRED.search(text.rstrip()) is not None
            yield _Piece(found["sign"], runs, starred, phrase)


@lru_cache(maxsize=1024)
def question(analysis: Analysis, query: str) -> Question:
    """The texts with any of the query's words, as its signs and quotes have it. Very common words
    count only where there are no others."""
    found: dict[str, list[Row]] = {"+": [], "": [], "-": []}
    common: list[Row] = []
    for piece in _pieces(analysis, query):
        if piece.sign or piece.phrase:
            found[piece.sign].append(row_of(analysis, piece.runs, starred=piece.starred))
            continue
        for at, run in enumerate(piece.runs):
            starred = piece.starred and at == len(piece.runs) - 1
            is_common = run in analysis.stop_words and not starred
            row = row_of(analysis, [run], starred=starred)
            (common if is_common else found[""]).append(row)
    return Question(
        required=tuple(found["+"]),
        optional=tuple(found[""]) or (() if found["+"] else tuple(common)),
        excluded=tuple(found["-"]),
    )


def row_of(analysis: Analysis, runs: Sequence[str], *, starred: bool = False) -> Row:
    """The runs one behind the other."""
    terms: list[tuple[int, Term]] = []
    at = 0
    for number, run in enumerate(runs):
        size = analysis.gram_size(run)
        last = starred and number == len(runs) - 1
        if size is None:
            terms.append((at, Term("prefix", run) if last else _matched(analysis, run)))
            at += 1
        elif len(run) < size:
            terms.append((at, Term("prefix", run)))
            at += len(run)
        else:
            grams = range(len(run) - size + 1)
            terms += [(at + one, Term("word", run[one : one + size])) for one in grams]
            at += len(run)
    return tuple(terms)


def _matched(analysis: Analysis, run: str) -> Term:
    if analysis.compares_stems:
        return Term("stem", analysis.stem(run))
    return Term("word", run)


@lru_cache(maxsize=1024)
def ranked_terms(analysis: Analysis, query: str) -> tuple[Term, ...]:
    """What ranking counts of a query, each once."""
    found: dict[Term, None] = {}
    for piece in _pieces(analysis, query):
        if piece.sign == "-":
            continue
        for number, run in enumerate(piece.runs):
            last = piece.starred and number == len(piece.runs) - 1
            size = analysis.gram_size(run)
            if size is not None or last:
                terms = [term for _, term in row_of(analysis, [run], starred=last)]
                found |= dict.fromkeys(terms)
            elif run not in analysis.stop_words:
                found[Term("stem", analysis.stem(run))] = None
    return tuple(found)


class Shown(msgspec.Struct, frozen=True):
    """Words to be marked in a text, one behind the other: by stem, as they are, by their beginning,
    or by a part of a run that is cut into grams."""

    terms: tuple[tuple[Literal["word", "stem", "prefix", "within"], str], ...]


@lru_cache(maxsize=1024)
def shown(analysis: Analysis, query: str) -> tuple[Shown, ...]:
    """What is marked in a text that is shown for a query: its phrases, and each other word by its
    stem, as ranking has it."""
    found: dict[Shown, None] = {}
    for piece in _pieces(analysis, query):
        if piece.sign == "-":
            continue
        terms: list[tuple[Any, str]] = []
        for number, run in enumerate(piece.runs):
            if analysis.gram_size(run) is not None:
                found[Shown((("within", run),))] = None
            elif piece.starred and number == len(piece.runs) - 1:
                terms.append(("prefix", run))
            elif piece.phrase and not analysis.compares_stems:
                terms.append(("word", run))
            elif piece.phrase or run not in analysis.stop_words:
                terms.append(("stem", analysis.stem(run)))
        rows = [tuple(terms)] if piece.phrase and terms else [(term,) for term in terms]
        found |= dict.fromkeys(map(Shown, rows))
    return tuple(found)
