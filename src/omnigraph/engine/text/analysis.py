"""How the texts of a property are cut into words, and by what these are compared.

A property has an *analysis*: the plain one (`words.py`), or the one that its `@index(language=…,
tokenizer=…)` asks for. Stored words carry the analysis in their name, so that a change of it, in
the schema or here, never meets words that were cut otherwise.

With a language, words are folded (`Straße` is `strasse`) and keep their accents, because stems
depend on them; stems lose them. A sign of So (☃, 🎉) is a word of its own. The tokenizers "cjk"
and "ngram" cut a run of letters into grams that begin at each of its letters: pairs for Chinese,
Japanese and Korean, threes for what has no spaces either. So a run in a text is found by the grams
of a query in a row, and one that is shorter than a gram as the beginning of grams.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, pa, pc
from omnigraph.engine.text import words as plain
from omnigraph.engine.text.stop_words import stop_words
from omnigraph.engine.text.words import folded
from omnigraph.model.schema import Indexing, Tokenizer

VERSION: Final = 1  # of everything here and in `words.py` that stored words depend on
_CJK: Final = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}々〆ー"  # the last is a mark of length
)
_FLAG: Final = r"[\x{1F1E6}-\x{1F1FF}]{2}"  # two letters that are shown as one flag
_PASSED: Final = r"[\x{FE0E}\x{FE0F}]"  # how a sign is to be drawn
_NOT_WORD: Final = r"[^\p{L}\p{N}\p{M}\p{So}]+"
_LONE_MARKS: Final = r"(^|\s)\p{M}+"
_SIGN: Final = rf"({_FLAG}|\p{{So}})"
_CJK_RUN: Final = rf"([{_CJK}]+)"
_GRAM: Final = {"cjk": 2, "ngram": 3}
_TURKISH: Final = (("İ", "i"), ("I", "ı"))  # noqa: RUF001

Codes = npt.NDArray[Any]


class Cut(msgspec.Struct, frozen=True):
    """Texts as words: the different ones, the number of each word in turn, and how many words each
    text has."""

    names: Array
    codes: Codes
    lengths: Codes


class Analysis(msgspec.Struct, frozen=True, dict=True):
    """The analysis of a property. Equal ones cut and compare in the same way."""

    language: str | None = None
    tokenizer: Tokenizer = "words"

    _stemmers: ClassVar[threading.local] = threading.local()  # they may not be shared

    @classmethod
    def of(cls, indexing: Indexing) -> Analysis:
        return cls(indexing.language, indexing.tokenizer)

    @property
    def is_plain(self) -> bool:
        return self.language is None and self.tokenizer == "words"

    @property
    def compares_stems(self) -> bool:
        """Whether matching compares stems, as ranking always does."""
        return self.language is not None

    @property
    def kind(self) -> str:
        """What the name of a stored file says of it."""
        if self.is_plain:
            return f"words{VERSION}"
        return f"words{VERSION}-{self.language or 'any'}-{self.tokenizer}"

    @cached_property
    def stop_words(self) -> frozenset[str]:
        return plain.STOP_WORDS if self.is_plain else stop_words(self.language)

    # --- words ---

    def cut(self, texts: Array) -> Cut:
        """The words of texts, in order; there must be no null. An empty word is none."""
        lists = plain.cut(texts) if self.is_plain else self._runs(texts)
        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        coded = pc.list_flatten(lists).dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        cut = Cut(coded.dictionary, codes, lengths)
        return cut if self.is_plain else self._in_grams(cut)

    def runs(self, text: str) -> tuple[str, ...]:
        """The words of one text before they are cut into grams."""
        return plain.words(text) if self.is_plain else _runs_of(self, text)

    def grams(self, run: str) -> tuple[str, ...]:
        """What stands for a run in a text: a gram that begins at each of its letters."""
        size = self.gram_size(run)
        if size is None:
            return (run,)
        return tuple(run[at : at + size] for at in range(len(run)))

    def gram_size(self, run: str) -> int | None:
        """How long the grams of a run are; None if it is a word."""
        if self.tokenizer == "ngram":
            return _GRAM["ngram"] if any(map(str.isalpha, run)) else None
        if self.tokenizer == "cjk":
            return _GRAM["cjk"] if is_cjk(run[:1]) else None
        return None

    # --- stems ---

    def stem(self, word: str) -> str:
        if self.is_plain:
            return plain.stem(word)
        return self.stems([word])[0]

    def stems(self, words: Sequence[str]) -> list[str]:
        """What ranking compares, for each of the words."""
        if self.is_plain:
            return [plain.stem(word) for word in words]
        if self.language is not None:
            words = self._stemmer(self.language).stemWords(list(words))
        return [without_marks(word) for word in words]

    def _stemmer(self, language: str) -> Any:
        known = self._stemmers.__dict__
        found = known.get(language)
        if found is None:
            # The stemmers of all languages take 20 ms to load, and most properties need none.
            import Stemmer  # noqa: PLC0415

            found = known[language] = Stemmer.Stemmer(language, 0)
        return found

    # --- the ways of `cut` ---

    def _runs(self, texts: Array) -> Array:
        plain_texts = pc.utf8_normalize(texts, form="NFKC")
        if self.language == "turkish":
            for upper, lower in _TURKISH:
                plain_texts = pc.replace_substring(plain_texts, upper, lower)
        found = pc.utf8_lower(plain_texts)
        for pattern, instead in ((_PASSED, ""), (_NOT_WORD, " "), (_LONE_MARKS, r"\1")):
            found = pc.replace_substring_regex(found, pattern=pattern, replacement=instead)
        found = pc.replace_substring_regex(found, pattern=_SIGN, replacement=r" \1 ")
        if self.tokenizer == "cjk":
            found = pc.replace_substring_regex(found, pattern=_CJK_RUN, replacement=r" \1 ")
        return pc.split_pattern_regex(pc.utf8_trim(found, characters=" "), pattern=" +")

    def _in_grams(self, cut: Cut) -> Cut:
        """Fold the different words, then cut them into grams: each of them once."""
        pieces = [self.grams(folded(word)) if word else () for word in cut.names.to_pylist()]
        counts = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        coded = pa.array([gram for some in pieces for gram in some], pa.string())
        coded = coded.dictionary_encode()
        grams = coded.indices.to_numpy(zero_copy_only=False)
        own = counts[cut.codes]
        first = np.append(0, np.cumsum(counts))[:-1]
        ends = np.cumsum(own)
        at = np.arange(int(ends[-1]) if len(ends) else 0)
        at += np.repeat(first[cut.codes] - (ends - own), own)
        of_text = np.append(0, np.cumsum(cut.lengths))
        lengths = np.diff(np.append(0, ends)[of_text])
        return Cut(coded.dictionary, grams[at], lengths)


PLAIN: Final = Analysis()


@lru_cache(maxsize=1024)
def _runs_of(analysis: Analysis, text: str) -> tuple[str, ...]:
    found = analysis._runs(pa.array([text], pa.string()))[0].as_py()  # noqa: SLF001
    return tuple(folded(word) for word in found if word)


def without_marks(word: str) -> str:
    """Without accents; the vowels of Indian and Thai writing stay, which are letters to readers."""
    if word.isascii():
        return word
    letters = unicodedata.normalize("NFD", word)
    kept = "".join(one for one in letters if not _is_accent(one))
    return unicodedata.normalize("NFC", kept)


def _is_accent(letter: str) -> bool:
    # The combining marks of Latin, Greek and Cyrillic, and the vowel signs of Arabic and Hebrew.
    return unicodedata.combining(letter) != 0 and letter < "\u0900"


@lru_cache(maxsize=65_536)
def is_cjk(letter: str) -> bool:
    """Whether a letter is Chinese, Japanese or Korean: then all of its run are."""
    found = pc.match_substring_regex(pa.array([letter]), pattern=_CJK_RUN)
    return bool(found[0].as_py())
