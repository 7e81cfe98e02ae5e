"""How text is cut into words: one analysis for every search function, index or not.

A word is a run of letters and digits, lower-cased and without accents. Ranking compares words by
their stem and leaves out the most common English words; matching compares the words themselves.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

import numpy as np

from omnigraph.engine.arrow import Array, pa, pc
from omnigraph.engine.read.column import Mask, Positions

_COMMON: Final = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)
STOP_WORDS: Final = frozenset(_COMMON.split())
_NOT_WORD: Final = r"[^\p{L}\p{N}]+"
_MARKS: Final = r"\p{M}+"


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
            return _undoubled(cut_word) if ending != "ly" else cut_word
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def _undoubled(word: str) -> str:
    """`runn` is `run`; `fall` stays."""
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        return word[:-1]
    return word


def within_edits(vocabulary: Array, word: str, edits: int) -> Mask:
    """Which words can be made from `word` by at most `edits` single-letter changes.

    A change puts in, takes out or replaces one letter. One dynamic programme runs over all words of
    the vocabulary at once.
    """
    count = len(vocabulary)
    lengths = pc.utf8_length(vocabulary).to_numpy(zero_copy_only=False).astype(np.int64)
    near = np.flatnonzero(np.abs(lengths - len(word)) <= edits)
    found = np.zeros(count, dtype=np.bool_)
    if not len(near):
        return found
    lengths = lengths[near]
    letters = _letters(vocabulary.take(pa.array(near)), int(lengths.max(initial=0)))
    distance = _edit_distance(letters, lengths, [ord(letter) for letter in word])
    found[near[distance <= edits]] = True
    return found


def _letters(some: Array, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    """Code points, a row per word, padded with zeros."""
    if width == 0:
        return np.zeros((len(some), 0), dtype=np.uint32)
    fixed = np.asarray(some.to_pylist(), dtype=f"<U{width}")
    return fixed.view(np.uint32).reshape(len(some), width)


def _edit_distance(
    letters: np.ndarray[tuple[int, int], np.dtype[np.uint32]], lengths: Positions, word: list[int]
) -> Positions:
    rows, width = letters.shape
    before = np.tile(np.arange(width + 1, dtype=np.int32), (rows, 1))
    for at, letter in enumerate(word, start=1):
        now = np.empty_like(before)
        now[:, 0] = at
        replaced = before[:, :-1] + (letters != letter)
        dropped = before[:, 1:] + 1
        best = np.minimum(replaced, dropped)
        for place in range(1, width + 1):
            now[:, place] = np.minimum(best[:, place - 1], now[:, place - 1] + 1)
        before = now
    return before[np.arange(rows), lengths].astype(np.int64)
