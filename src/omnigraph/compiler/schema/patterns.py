"""Which regular expressions a `@check` may use: those that run in time linear in the value.

The accepted language is what the two linear-time engines in use (RE2, and the regex crate of the
reference system) read in the same way. Look-around and back-references are outside of it: they need
backtracking, and then one value could stop a load for years. Everything accepted here compiles in
RE2; a test holds the two together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from omnigraph.model.limits import (
    SCHEMA_PATTERN_LENGTH_MAX,
    SCHEMA_PATTERN_NESTING_MAX,
    SCHEMA_PATTERN_REPEATS_MAX,
    SCHEMA_PATTERN_SIZE_MAX,
)

_REPEAT = re.compile(r"\{([0-9]{1,6})(,([0-9]{0,6}))?\}", re.ASCII)
_HEX = re.compile(r"x(?:[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]{1,6}\})", re.ASCII)
_UNICODE = re.compile(r"[pP](?:([A-Z])|\{([A-Za-z_]{1,32})\})", re.ASCII)
_GROUP_NAME = re.compile(r"P?<([A-Za-z_][A-Za-z0-9_]*)>", re.ASCII)
_FLAGS = re.compile(r"(?:[imsU]+(?:-[imsU]+)?|-[imsU]+)([:)])", re.ASCII)
_POSIX = re.compile(
    r"\[:\^?(?:alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]",
    re.ASCII,
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
_PUNCTUATION = frozenset(r"""\.+*?()|[]{}^$#&-~/"'!%,:;<=>@_`""")
_CONTROLS = frozenset("nrtfva")
_CLASSES = frozenset("dDwWsS")
_PLACES = frozenset("bBAz")
_CODE_POINT_MAX = 0x10FFFF

# Rough numbers of machine instructions, for the bound on a compiled pattern.
_SIZE_LITERAL, _SIZE_CLASS, _SIZE_UNICODE_CLASS = 2, 15, 350


@dataclass(frozen=True, slots=True)
class PatternProblem:
    """Why a pattern is refused; the message goes on after "the pattern of T.p"."""

    message: str
    hint: str | None = None


class _RefusedError(Exception):
    """Leaves the scan; never leaves this file."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.problem = PatternProblem(message, hint)


@dataclass(slots=True)
class _Group:
    """An open group: how deep its repeats multiply, and how large it compiles."""

    start: int
    repeats: int = 1
    size: int = 0


@dataclass(slots=True)
class _Atom:
    """The last thing read, which a repetition would apply to."""

    repeats: int
    size: int


def pattern_problem(pattern: str) -> PatternProblem | None:
    """What is wrong with a pattern, or None."""
    if len(pattern) > SCHEMA_PATTERN_LENGTH_MAX:
        return PatternProblem(f"is longer than {SCHEMA_PATTERN_LENGTH_MAX} characters")
    try:
        _Scan(pattern).run()
    except _RefusedError as refused:
        return refused.problem
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
            self._step(self._text[self._at])
        self._settle()
        if len(self._groups) > 1:
            raise self._refused("has an unclosed `(`", at=self._groups[-1].start)
        if self._groups[0].size > SCHEMA_PATTERN_SIZE_MAX:
            raise self._refused("is too large when its repetitions are written out", at=0)

    def _step(self, char: str) -> None:
        match char:
            case "(":
                self._open()
            case ")":
                self._close()
            case "[":
                self._settle()
                self._atom = _Atom(1, self._class())
            case "*" | "+" | "?":
                self._repeat(1, self._at + 1)
            case "{":
                self._counted()
            case "|" | "^" | "$":
                self._settle()
                self._at += 1
            case "\\":
                self._settle()
                size = self._escape(in_class=False)
                self._atom = _Atom(1, size) if size else None
            case "}":
                raise self._refused("has an unescaped `}`", hint="write `\\\\}` for a brace")
            case _:
                self._settle()
                self._atom = _Atom(1, _SIZE_CLASS if char == "." else _SIZE_LITERAL)
                self._at += 1

    def _settle(self) -> None:
        """Count the last atom into its group: no repetition follows it."""
        if self._atom is not None:
            group = self._groups[-1]
            group.repeats = max(group.repeats, self._atom.repeats)
            group.size += self._atom.size
            self._atom = None

    # --- groups -------------------------------------------------------------------------------

    def _open(self) -> None:
        self._settle()
        start = self._at
        if len(self._groups) > SCHEMA_PATTERN_NESTING_MAX:
            raise self._refused(f"nests more than {SCHEMA_PATTERN_NESTING_MAX} groups")
        self._at += 1
        if self._text.startswith("?", self._at):
            self._at += 1
            if not self._group_kind(start):
                return
        self._groups.append(_Group(start=start))

    def _group_kind(self, start: int) -> bool:
        """Read what follows `(?`; False when it was a bare setting of flags."""
        rest = self._text
        for word in ("=", "!", "<=", "<!"):
            if rest.startswith(word, self._at):
                raise self._refused(
                    "uses look-around, which cannot run in linear time",
                    at=start,
                    hint="say it without `(?=`, `(?!`, `(?<=` and `(?<!`, or with a second @check",
                )
        if rest.startswith(("P=", "P>"), self._at):
            raise self._backreference(start)
        if rest.startswith(":", self._at):
            self._at += 1
            return True
        name = _GROUP_NAME.match(rest, self._at)
        if name is not None:
            if name.group(1) in self._names:
                raise self._refused(f"names two groups `{name.group(1)}`", at=start)
            self._names.add(name.group(1))
            self._at = name.end()
            return True
        flags = _FLAGS.match(rest, self._at)
        if flags is not None:
            self._at = flags.end()
            return flags.group(1) == ":"
        raise self._refused(
            "has an unknown group form",
            at=start,
            hint="the forms are `(…)` `(?:…)` `(?P<name>…)` `(?i)` `(?i:…)` with flags i, m, s, U",
        )

    def _close(self) -> None:
        self._settle()
        if len(self._groups) == 1:
            raise self._refused("has an unmatched `)`", hint="write `\\\\)` for a bracket")
        group = self._groups.pop()
        self._atom = _Atom(group.repeats, group.size + _SIZE_LITERAL)
        self._at += 1

    # --- repetitions --------------------------------------------------------------------------

    def _counted(self) -> None:
        match = _REPEAT.match(self._text, self._at)
        if match is None:
            raise self._refused(
                "has a `{` that is no repetition",
                hint="write `{3}`, `{3,}` or `{3,5}`, and `\\\\{` for a brace",
            )
        low = int(match.group(1))
        high = int(match.group(3)) if match.group(3) else low
        if match.group(3) and high < low:
            raise self._refused(f"repeats from {low} to {high}")
        self._repeat(max(high, 1), match.end())

    def _repeat(self, times: int, end: int) -> None:
        if self._atom is None:
            raise self._refused(
                "has nothing to repeat here",
                hint="write `\\\\*`, `\\\\+` or `\\\\?` for the character itself",
            )
        repeats, size = self._atom.repeats * times, self._atom.size * times + _SIZE_LITERAL
        if repeats > SCHEMA_PATTERN_REPEATS_MAX:
            raise self._refused(f"repeats more than {SCHEMA_PATTERN_REPEATS_MAX} times")
        if size > SCHEMA_PATTERN_SIZE_MAX:
            raise self._refused("is too large when its repetitions are written out")
        self._at = end
        if self._text.startswith("?", self._at):  # as few as possible
            self._at += 1
        self._atom = _Atom(repeats, size)
        self._settle()

    # --- classes and escapes ------------------------------------------------------------------

    def _class(self) -> int:
        start = self._at
        self._at += 2 if self._text.startswith("[^", self._at) else 1
        size, first = _SIZE_CLASS, True
        while True:
            if self._at >= len(self._text):
                raise self._refused("has an unclosed `[`", at=start)
            if self._text[self._at] == "]" and not first:
                self._at += 1
                return size
            size += self._class_item(first=first)
            first = False

    def _class_item(self, *, first: bool) -> int:
        posix = _POSIX.match(self._text, self._at)
        if posix is not None:
            self._at = posix.end()
            return _SIZE_CLASS
        low, size = self._class_char(first=first)
        at_range = self._text.startswith("-", self._at) and not self._text.startswith(
            "-]", self._at
        )
        if not at_range:
            return size
        if low is None:
            raise self._refused("has a class inside a range", hint="write `\\\\-` for a hyphen")
        self._at += 1
        high, more = self._class_char(first=False)
        if high is None or high < low:
            raise self._refused("has a range that ends before it begins")
        return size + more + _SIZE_CLASS

    def _class_char(self, *, first: bool) -> tuple[int | None, int]:
        """A character of a class as its code point (None for `\\d` and its like), and its size."""
        if self._at >= len(self._text):
            raise self._refused("has an unclosed `[`")
        char = self._text[self._at]
        doubled = self._text.startswith(("&&", "--", "~~"), self._at)
        if char == "[" or doubled or (char == "-" and not first and not self._ends_class()):
            raise self._refused(
                f"has an unescaped `{char}` inside `[…]`", hint=f"write `\\\\{char}` there"
            )
        if char != "\\":
            self._at += 1
            return ord(char), _SIZE_LITERAL
        start = self._at
        size = self._escape(in_class=True)
        return _code_point(self._text[start + 1 : self._at]), size

    def _ends_class(self) -> bool:
        return self._text.startswith("-]", self._at)

    def _escape(self, *, in_class: bool) -> int:
        """Read an escape; its size, 0 for one that matches a place and no character."""
        start = self._at
        self._at += 1
        if self._at >= len(self._text):
            raise self._refused("ends with a lone backslash", at=start)
        char = self._text[self._at]
        if char in "123456789" or char in "kg":
            raise self._backreference(start)
        for form in (_HEX, _UNICODE):
            match = form.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
                return self._check_code(match, start)
        self._at += 1
        if char in _PUNCTUATION or char in _CONTROLS:
            return _SIZE_LITERAL
        if char in _CLASSES:
            return _SIZE_CLASS
        if char in _PLACES and not in_class:
            return 0
        raise self._refused(
            f"has an unknown escape `\\{char}`",
            at=start,
            hint="known are \\d \\w \\s \\b \\A \\z \\n \\r \\t \\f \\v \\a \\x41 \\p{L} and "
            "punctuation; in a schema each backslash is written twice",
        )

    def _check_code(self, match: re.Match[str], start: int) -> int:
        if match.re is _HEX:
            if int(match.group()[1:].strip("{}"), 16) > _CODE_POINT_MAX:
                raise self._refused("has a code point beyond Unicode", at=start)
            return _SIZE_LITERAL
        name = match.group(1) or match.group(2)
        if name not in _UNICODE_NAMES:
            raise self._refused(
                f"has an unknown class `\\{match.group()}`",
                at=start,
                hint="use a general category (`\\p{L}`, `\\p{Nd}`) or a script (`\\p{Greek}`)",
            )
        return _SIZE_UNICODE_CLASS

    # --- refusals -----------------------------------------------------------------------------

    def _refused(
        self, message: str, *, at: int | None = None, hint: str | None = None
    ) -> Exception:
        place = (self._at if at is None else at) + 1
        return _RefusedError(f"{message} (character {place})", hint)

    def _backreference(self, at: int) -> Exception:
        return self._refused(
            "uses a back-reference, which cannot run in linear time",
            at=at,
            hint="patterns cannot refer to what a group matched",
        )


def _code_point(escape: str) -> int | None:
    if escape[0] == "x":
        return int(escape[1:].strip("{}"), 16)
    if escape[0] in "pP" or escape[0] in _CLASSES:
        return None
    return ord(
        {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}.get(escape, escape)
    )
