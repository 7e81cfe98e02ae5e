"""Which regular expressions a `@check` may use: those that run in time linear in the value.

The accepted language is what the two linear-time engines in use (RE2, and the regex crate of the
reference system) read in the same way. Look-around and back-references are outside of it: they need
backtracking, and then one value could stop a load for years. Everything accepted here compiles in
RE2; a test holds the two together. Why RE2 itself is not asked is told in decision 0012.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from omnigraph.compiler.text import MisfitError
from omnigraph.model.limits import (
    SCHEMA_PATTERN_LENGTH_MAX,
    SCHEMA_PATTERN_NESTING_MAX,
    SCHEMA_PATTERN_REPEATS_MAX,
    SCHEMA_PATTERN_SIZE_MAX,
)

_UNICODE_NAMES = frozenset({
    "C", "Cc", "Cf", "Co", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd",
    "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z",
    "Zl", "Zp", "Zs",
    "Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek",
    "Gujarati", "Gurmukhi", "Han", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer",
    "Lao", "Latin", "Malayalam", "Mongolian", "Myanmar", "Sinhala", "Tamil", "Telugu", "Thai",
    "Tibetan",
})  # fmt: skip
_ESCAPE = r"""
    (?P<back>\\[1-9kg])
  | (?P<hex>\\x(?:(?P<two>[0-9A-Fa-f]{2})|\{(?P<six>[0-9A-Fa-f]{1,6})\}))
  | (?P<unicode>\\[pP](?:(?P<letter>[A-Z])|\{(?P<name>[A-Za-z_]{1,32})\}))
  | (?P<set>\\[dDwWsS])
  | (?P<char>\\[nrtfva\\.+*?()|\[\]{}^$\#&\-~/"'!%,:;<=>@_`])
"""
_PIECE = re.compile(
    _ESCAPE
    + r"""
  | (?P<place>[|^$]|\\[bBAz])
  | (?P<any>\.)
  | (?P<close>\))
  | (?P<look>\(\?(?:<?[=!]))
  | (?P<again>\(\?P[=>])
  | (?P<named>\(\?P?<(?P<group>[A-Za-z_][A-Za-z0-9_]*)>)
  | (?P<flags>\(\?(?:[imsU]+(?:-[imsU]+)?|-[imsU]+)(?P<scope>[:)]))
  | (?P<open>\((?:\?:|(?!\?)))
  | (?P<class>\[\^?)
  | (?P<repeat>[*+?]|\{(?P<low>[0-9]{1,6})(?:,(?P<high>[0-9]{0,6}))?\})
  | (?P<plain>[^\\({}])
""",
    re.ASCII | re.VERBOSE | re.DOTALL,
)
_CLASS_PIECE = re.compile(
    _ESCAPE + r"|(?P<unescaped>\[|&&|--|~~)|(?P<plain>[^\\])", re.ASCII | re.VERBOSE | re.DOTALL
)
_POSIX = re.compile(
    r"\[:\^?(?:alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]"
)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
# Rough numbers of machine instructions, for the bound on a compiled pattern.
_SIZE_LITERAL, _SIZE_CLASS, _SIZE_UNICODE_CLASS = 2, 15, 350
_SIZES = {"set": _SIZE_CLASS, "any": _SIZE_CLASS, "unicode": _SIZE_UNICODE_CLASS, "place": 0}
_LOOK_HINT = "say it without `(?=`, `(?!`, `(?<=` and `(?<!`, or with a second @check"
_GROUP_HINT = "the forms are `(…)` `(?:…)` `(?P<name>…)` `(?i)` `(?i:…)` with flags i, m, s, U"
_ESCAPE_HINT = (
    "known are \\d \\w \\s \\b \\A \\z \\n \\r \\t \\f \\v \\a \\x41 \\p{L} and punctuation; in a "
    "schema each backslash is written twice"
)
_BRACE_HINT = "write `{3}`, `{3,}` or `{3,5}`, and `\\\\{` for a brace"
_UNKNOWN = {
    "(": ("has an unknown group form", _GROUP_HINT),
    "{": ("has a `{` that is no repetition", _BRACE_HINT),
    "}": ("has an unescaped `}`", "write `\\\\}` for a brace"),
}


def _refused(message: str, at: int, hint: str | None = None) -> MisfitError:
    return MisfitError(f"{message} (character {at + 1})", hint=hint)


class _Atom(NamedTuple):
    """The last thing read, which a repetition would apply to: how its repeats multiply, and how
    large it compiles."""

    repeats: int
    size: int


class _Group(msgspec.Struct):
    """An open group and the atoms in it."""

    start: int
    repeats: int = 1
    size: int = 0


def pattern_problem(pattern: str) -> MisfitError | None:
    """What is wrong with a pattern, or None; the message goes on after "the pattern of T.p"."""
    if len(pattern) > SCHEMA_PATTERN_LENGTH_MAX:
        return MisfitError(f"is longer than {SCHEMA_PATTERN_LENGTH_MAX} characters")
    try:
        _Scan(pattern).run()
    except MisfitError as refused:
        return refused
    return None


class _Scan:
    """One pass over a pattern, with an explicit stack of open groups."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._groups = [_Group(start=0)]
        self._atom: _Atom | None = None
        self._names: set[str] = set()

    def run(self) -> None:
        while self._at < len(self._text):
            found = _PIECE.match(self._text, self._at)
            if self._text[self._at] == "(" and len(self._groups) > SCHEMA_PATTERN_NESTING_MAX:
                raise _refused(f"nests more than {SCHEMA_PATTERN_NESTING_MAX} groups", self._at)
            if found is None:
                raise self._unknown()
            self._step(found)
        self._settle()
        if len(self._groups) > 1:
            raise _refused("has an unclosed `(`", self._groups[-1].start)
        if self._groups[0].size > SCHEMA_PATTERN_SIZE_MAX:
            raise _refused("is too large when its repetitions are written out", 0)

    def _step(self, found: re.Match[str]) -> None:
        kind = found.lastgroup
        if kind == "repeat":
            self._repeat(found)
            return
        self._settle()
        match kind:
            case "look":
                message = "uses look-around, which cannot run in linear time"
                raise _refused(message, self._at, _LOOK_HINT)
            case "named" | "open" | "flags":
                self._open(found)
            case "close":
                self._close()
            case "class":
                self._at = found.end()
                self._atom = _Atom(1, self._class(found.start()))
            case _:
                size = self._size(found)
                self._atom = _Atom(1, size) if size else None
                self._at = found.end()

    def _settle(self) -> None:
        """Count the last atom into its group: no repetition follows it."""
        if self._atom is not None:
            group = self._groups[-1]
            group.repeats = max(group.repeats, self._atom.repeats)
            group.size += self._atom.size
            self._atom = None

    def _open(self, found: re.Match[str]) -> None:
        name = found.group("group")
        if name is not None and name in self._names:
            raise _refused(f"names two groups `{name}`", self._at)
        self._names.add(name)
        if found.group("scope") != ")":  # else the flags hold for the rest of the group
            self._groups.append(_Group(start=self._at))
        self._at = found.end()

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise _refused("has an unmatched `)`", self._at, "write `\\\\)` for a bracket")
        group = self._groups.pop()
        self._atom = _Atom(group.repeats, group.size + _SIZE_LITERAL)
        self._at += 1

    def _repeat(self, found: re.Match[str]) -> None:
        low, high = (int(found.group(name) or 0) for name in ("low", "high"))
        if found.group("high") and high < low:
            raise _refused(f"repeats from {low} to {high}", self._at)
        if self._atom is None:
            hint = "write `\\\\*`, `\\\\+` or `\\\\?` for the character itself"
            raise _refused("has nothing to repeat here", self._at, hint)
        times = max(low, high, 1)
        repeats, size = self._atom.repeats * times, self._atom.size * times + _SIZE_LITERAL
        if repeats > SCHEMA_PATTERN_REPEATS_MAX:
            raise _refused(f"repeats more than {SCHEMA_PATTERN_REPEATS_MAX} times", self._at)
        if size > SCHEMA_PATTERN_SIZE_MAX:
            raise _refused("is too large when its repetitions are written out", self._at)
        self._at = found.end()
        if self._text.startswith("?", self._at):  # as few as possible
            self._at += 1
        self._atom = _Atom(repeats, size)
        self._settle()

    # --- classes ------------------------------------------------------------------------------

    def _class(self, start: int) -> int:
        """Read a class up to its bracket; its size."""
        size, first = _SIZE_CLASS, True
        while self._at < len(self._text):
            if self._text[self._at] == "]" and not first:
                self._at += 1
                return size
            posix = _POSIX.match(self._text, self._at)
            if posix is not None:
                self._at, size, first = posix.end(), size + _SIZE_CLASS, False
                continue
            low, more = self._class_char(first=first)
            size, first = size + more, False
            rest = self._text[self._at : self._at + 2]
            if not rest.startswith("-") or rest == "-]":
                continue
            if low is None:
                hint = "write `\\\\-` for a hyphen"
                raise _refused("has a class inside a range", self._at, hint)
            self._at += 1
            high, more = self._class_char(first=False)
            if high is None or high < low:
                raise _refused("has a range that ends before it begins", self._at)
            size += more + _SIZE_CLASS
        raise _refused("has an unclosed `[`", start)

    def _class_char(self, *, first: bool) -> tuple[int | None, int]:
        """A character of a class as its code point (None for `\\d` and its like), and its size."""
        if self._at >= len(self._text):
            raise _refused("has an unclosed `[`", self._at)
        found = _CLASS_PIECE.match(self._text, self._at)
        char = self._text[self._at]
        if found is None:
            raise self._unknown()
        lone = char == "-" and not first and not self._text.startswith("-]", self._at)
        if found.lastgroup == "unescaped" or lone:
            message = f"has an unescaped `{char}` inside `[…]`"
            raise _refused(message, self._at, f"write `\\\\{char}` there")
        size = self._size(found)
        self._at = found.end()
        match found.lastgroup:
            case "hex":
                return int(found.group("two") or found.group("six"), 16), size
            case "char":
                return ord(_CONTROLS.get(found.group()[1], found.group()[1])), size
            case "plain":
                return ord(char), size
            case _:
                return None, size

    # --- escapes ------------------------------------------------------------------------------

    def _size(self, found: re.Match[str]) -> int:
        """The size of a single character or set; 0 for what matches a place and no character."""
        kind = found.lastgroup
        if kind in ("back", "again"):
            message = "uses a back-reference, which cannot run in linear time"
            hint = "patterns cannot refer to what a group matched"
            raise _refused(message, self._at, hint)
        if kind == "hex" and int(found.group("two") or found.group("six"), 16) > 0x10FFFF:
            raise _refused("has a code point beyond Unicode", self._at)
        if kind == "unicode" and (found["letter"] or found["name"]) not in _UNICODE_NAMES:
            hint = "use a general category (`\\p{L}`, `\\p{Nd}`) or a script (`\\p{Greek}`)"
            raise _refused(f"has an unknown class `{found.group()}`", self._at, hint)
        return _SIZES.get(kind or "", _SIZE_LITERAL)

    def _unknown(self) -> MisfitError:
        char = self._text[self._at]
        if char != "\\":
            return _refused(_UNKNOWN[char][0], self._at, _UNKNOWN[char][1])
        if self._at + 1 == len(self._text):
            return _refused("ends with a lone backslash", self._at)
        escape = self._text[self._at : self._at + 2]
        return _refused(f"has an unknown escape `{escape}`", self._at, _ESCAPE_HINT)
