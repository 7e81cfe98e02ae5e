"""From text to tokens, with one regular expression and in linear time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from omnigraph.compiler.diagnostics import SourceText
from omnigraph.errors import LimitExceededError, ParseError
from omnigraph.model.limits import QUERY_SOURCE_BYTES_MAX

# Possessive quantifiers keep the expression from ever backtracking.
_TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t\r\n]++|//[^\n]*+|/\*(?s:.*?)\*/)++)
  | (?P<variable>\$[a-z_][A-Za-z0-9_]*+)
  | (?P<ident>[a-z_][A-Za-z0-9_]*+)
  | (?P<type>[A-Z][A-Za-z0-9_]*+)
  | (?P<float>[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?+|[eE][+-]?[0-9]++))
  | (?P<int>[0-9]++)
  | (?P<string>"(?:[^"\\]++|\\(?s:.))*+")
  | (?P<mark><=|>=|!=|/(?!\*)|[{}()\[\],:.<>=@?*+%-])
    """,
    re.VERBOSE,
)

_COMMENT = re.compile(r"//[^\n]*+|/\*(?s:.*?)\*/")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)

# What people write by habit from other languages, and what they meant.
_SLIPS = {
    "'": "strings take double quotes",
    ";": "nothing ends a clause; a new line or a space is enough",
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not` before a condition, or `!=` between two values",
    "$": "a variable is `$` and a name that starts with a lower-case letter or `_`",
    "#": "a comment starts with `//`",
    "~": "write `contains`, `starts_with` or one of the search functions",
    "^": "there is no power operator",
    "`": "names are written without quotes",
}


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `kind` is variable, ident, type, int, float, string, end, or the mark itself."""

    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the file"
        shown = self.text if len(self.text) <= 40 else self.text[:37] + "..."
        return shown if self.kind == "string" else f"`{shown}`"


def tokenize(source: SourceText) -> list[Token]:
    """Every token of the text and one of kind `end`; raises ParseError at a stray character."""
    text = source.text
    # Four bytes a character at most, so that the common case needs no encoding.
    if len(text) * 4 > QUERY_SOURCE_BYTES_MAX:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > QUERY_SOURCE_BYTES_MAX:
            raise LimitExceededError(
                resource="query source (bytes)", limit=QUERY_SOURCE_BYTES_MAX, actual=size
            )
    tokens: list[Token] = []
    at = 0
    scan = _TOKEN.match
    while found := scan(text, at):
        kind = found.lastgroup
        assert kind is not None, "every alternative of the token expression has a name"
        if kind != "space":
            word = found.group()
            tokens.append(Token(word if kind == "mark" else kind, word, at))
        at = found.end()
    if at < len(text):
        _refuse(source, at)
    tokens.append(Token("end", "", at))
    return tokens


def comments(source: SourceText) -> list[Token]:
    """Every comment of a text that `tokenize` accepts, in order."""
    found: list[Token] = []
    for token in _TOKEN.finditer(source.text):
        if token.lastgroup == "space":
            found.extend(
                Token("comment", comment.group(), token.start() + comment.start())
                for comment in _COMMENT.finditer(token.group())
            )
    return found


def _refuse(source: SourceText, at: int) -> NoReturn:
    text = source.text
    if text[at] == '"':
        fail(source, at, "unterminated string", hint='close it with `"`')
    if text.startswith("/*", at):
        fail(source, at, "unterminated comment", hint="close it with `*/`")
    fail(source, at, f"unexpected character {text[at]!r}", hint=_SLIPS.get(text[at]))


def fail(source: SourceText, at: int, message: str, *, hint: str | None = None) -> NoReturn:
    """Raise a ParseError at a character offset."""
    raise problem(source, at, message, hint=hint)


def problem(source: SourceText, at: int, message: str, *, hint: str | None = None) -> ParseError:
    """A ParseError at a character offset."""
    line, column = source.place(at)
    return ParseError(
        f"parse error: {message}",
        line=line,
        column=column,
        hint=hint,
        excerpt=source.excerpt(line, column),
    )


def unquote(source: SourceText, token: Token) -> str:
    """The text that a string token stands for."""
    body = token.text[1:-1]
    if "\\" not in body:
        return body
    for escape in _ESCAPE.finditer(body):
        if escape.group(1) not in _ESCAPES:
            at = token.at + 1 + escape.start()
            message = f"unsupported escape sequence {escape.group()!r}"
            hint = 'the escapes are \\" \\\\ \\n \\r \\t'
            fail(source, at, message, hint=hint)
    return _ESCAPE.sub(lambda escape: _ESCAPES[escape.group(1)], body)
