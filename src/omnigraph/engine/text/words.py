"""Words: how text is cut into them, their stems, and which of them are nearly the same.

One analysis serves every search function. A word is a run of letters and digits, lower-cased and
without accents. Ranking compares words by their stem and leaves out the most common English words;
matching compares the words themselves.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, Mask, pa, pc, picked

# The very common words of English.
COMMON: Final = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)
STOP_WORDS: Final = frozenset(COMMON.split())
_NOT_WORD: Final = r"[^\p{L}\p{N}]+"
_MARKS: Final = r"\p{M}+"
# Every byte of a text that has no other letters than ASCII's: lower case, and a space for a sign.
_PLAIN: Final = bytes(
    ord(chr(byte).lower()) if chr(byte).isalnum() and byte < 128 else 32 for byte in range(256)
)
STEM_CUT_MAX: Final = 5  # letters that a stem is shorter than its word, at most
STEM_END: Final = 1  # letters at its end that may differ from those of its word


def cut(texts: Array) -> Array:
    """Every text as the list of its words; there must be no null. An empty word is none."""
    plain = pc.string_is_ascii(texts)
    plain_count = plain.true_count
    if plain_count == len(texts):
        return _cut_plain(texts)
    if not plain_count:
        return _cut_any(texts)
    other = pc.invert(plain)
    both = pa.concat_arrays([_cut_plain(texts.filter(plain)), _cut_any(texts.filter(other))])
    order = pa.concat_arrays([pc.indices_nonzero(plain), pc.indices_nonzero(other)])
    return both.take(pc.array_sort_indices(order))


def _cut_plain(texts: Array) -> Array:
    """The same for ASCII: byte by byte, in a fifth of the time."""
    _, offsets, letters = texts.buffers()
    wide = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    if letters is None:
        return _cut_any(texts)
    ends: npt.NDArray[Any] = np.frombuffer(offsets, dtype=wide)
    ends = ends[texts.offset :][: len(texts) + 1]
    first, last = int(ends[0]), int(ends[-1])
    lower = letters.slice(first, last - first).to_pybytes().translate(_PLAIN)
    buffers = [None, pa.py_buffer((ends - first).astype(wide)), pa.py_buffer(lower)]
    return pc.ascii_split_whitespace(pa.Array.from_buffers(texts.type, len(texts), buffers))


def _cut_any(texts: Array) -> Array:
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


def folded(word: str) -> str:
    """Without letter case, in every language: `ß` is `ss`."""
    return word if word.isascii() else unicodedata.normalize("NFC", word.casefold())


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
