"""Tokens of the schema language: one regular expression, tried once at each place.

Its long repetitions are possessive: matching never goes back over them, so reading costs time
linear in the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from omnigraph.compiler.diagnostics import SourceText
from omnigraph.errors import ParseError
from omnigraph.model.limits import SCHEMA_NAME_LENGTH_MAX, SCHEMA_NUMBER_LENGTH_MAX

_BLANK = r"(?:[ \t\r\n]++|//[^\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/)*+"
_SKIP = re.compile(_BLANK, re.ASCII)
_TOKEN = re.compile(
    _BLANK.replace(" ", r"\ ")
    + r"""(?:
      (?P<upper>[A-Z][A-Za-z0-9_]*)
    | (?P<lower>[a-z_][A-Za-z0-9_]*)
    | (?P<float>-?[0-9]+\.[0-9]+)
    | (?P<integer>-?[0-9]+)
    | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
    | (?P<mark>->|\.\.|[{}()\[\]:,@?=])
    )""",
    re.ASCII | re.VERBOSE | re.DOTALL,
)
_ENUM_VALUE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


class Token(NamedTuple):
    """A piece of text. `kind` is the mark itself for marks, "end" after the last token."""

    kind: str
    text: str
    offset: int

    @property
    def end(self) -> int:
        return self.offset + len(self.text)


@dataclass(slots=True)
class Lexer:
    """Reads tokens one after another; the parser says when an enum value is due."""

    source: SourceText
    position: int = 0

    def next(self) -> Token:
        """The next token; "end" again and again at the end of the text."""
        match = _TOKEN.match(self.source.text, self.position)
        if match is None:
            self.skip()
            if self.position < len(self.source.text):
                raise self._unreadable()
            return Token("end", "", self.position)
        kind = match.lastgroup or ""
        text = match.group(kind)
        self.position = match.end()
        token = Token(text if kind == "mark" else kind, text, self.position - len(text))
        if len(text) > SCHEMA_NUMBER_LENGTH_MAX:
            self._check_length(token)
        return token

    def enum_value_at(self, offset: int) -> Token | None:
        """The enum value that begins at the offset; reading goes on behind it."""
        match = _ENUM_VALUE.match(self.source.text, offset)
        if match is None:
            return None
        token = Token("lower", match.group(), offset)
        self._check_length(token)
        self.position = match.end()
        return token

    def error(self, message: str, *, offset: int, hint: str | None = None) -> ParseError:
        """A parse error at the offset."""
        line, column = self.source.place(offset)
        text = f"parse error: {message}"
        entry = {"line": line, "column": column, "message": text, "hint": hint}
        return ParseError(
            text,
            line=line,
            column=column,
            hint=hint,
            source_name=self.source.name,
            excerpt=self.source.excerpt(line, column),
            errors=[entry],
        )

    def skip(self) -> None:
        match = _SKIP.match(self.source.text, self.position)
        assert match is not None, "skipping nothing is a match"
        self.position = match.end()

    def _check_length(self, token: Token) -> None:
        if token.kind in ("float", "integer") and len(token.text) > SCHEMA_NUMBER_LENGTH_MAX:
            raise self.error(
                f"numbers are limited to {SCHEMA_NUMBER_LENGTH_MAX} characters",
                offset=token.offset,
            )
        if token.kind in ("upper", "lower") and len(token.text) > SCHEMA_NAME_LENGTH_MAX:
            raise self.error(
                f"names are limited to {SCHEMA_NAME_LENGTH_MAX} characters", offset=token.offset
            )

    def _unreadable(self) -> ParseError:
        char = self.source.text[self.position]
        hint = None
        if char == '"':
            message = "this string has no closing quote"
            hint = 'close it with `"`; write `\\"` for a quote inside'
        elif self.source.text.startswith("/*", self.position):
            message = "this comment has no end"
            hint = "close it with `*/`"
        elif char == "'":
            message = "unexpected character `'`"
            hint = 'strings are written in double quotes: `"…"`'
        elif not char.isascii():
            message = f"unexpected character {char!r}"
            hint = "names are made of ASCII letters, digits and `_`"
        else:
            message = f"unexpected character {char!r}"
        return self.error(message, offset=self.position, hint=hint)


def decoded(lexer: Lexer, token: Token) -> str:
    """The text that a string token stands for."""

    def replaced(match: re.Match[str]) -> str:
        char = match.group(1)
        if char not in _ESCAPES:
            raise lexer.error(
                f"unknown escape sequence `\\{char}` in a string",
                offset=token.offset + 1 + match.start(),
                hint='the escapes are `\\"` `\\\\` `\\n` `\\r` `\\t`; write a backslash as `\\\\`',
            )
        return _ESCAPES[char]

    body = token.text[1:-1]
    return _ESCAPE.sub(replaced, body) if "\\" in body else body


def encoded(value: str) -> str:
    """The string literal that stands for a text."""
    for plain, escape in (
        ("\\", "\\\\"),
        ('"', '\\"'),
        ("\n", "\\n"),
        ("\r", "\\r"),
        ("\t", "\\t"),
    ):
        value = value.replace(plain, escape)
    return f'"{value}"'
