"""The tools with which both languages are read and printed.

A source text and the places in it, names that were probably meant, problems that are collected,
tokens and a cursor over them, the escapes of strings, and comments that survive printing. What the
two languages say by themselves is in `schema/` and `query/`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from omnigraph.errors import ParseError
from omnigraph.model.limits import NAMES_COMPARED_MAX, NAMES_SUGGESTED_MAX, PROBLEMS_LISTED_MAX
from omnigraph.model.structs import HidingStruct

# A longer line is cut to a window around the caret: an excerpt is for eyes.
EXCERPT_COLUMNS_MAX = 100
_CUT = "..."
# Comparing two names takes time that grows with the product of their lengths; nobody mistypes a
# name of a thousand letters.
NAME_COMPARED_CHARS_MAX = 64
NAME_LIKENESS_MIN = 0.6  # of difflib: 1 is the same name
_A = TypeVar("_A")
_T = TypeVar("_T")


class Node(HidingStruct, frozen=True):
    """A node of a syntax tree: two are equal wherever in a text they stand."""

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset(
        {"at", "type_at", "edge_at", "bounds_at", "end"}
    )


# --- places ------------------------------------------------------------------------------------


class SourceText(msgspec.Struct, frozen=True, dict=True):
    """A source text and the name under which errors speak of it.

    Lines end at a line feed, as in the tokenizers; a carriage return before it is not part of the
    line. Lines and columns count from 1, columns count characters.
    """

    text: str
    name: str

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return 0, *(found.end() for found in re.finditer("\n", self.text))

    def place(self, offset: int) -> tuple[int, int]:
        """The line and column of a character offset; one outside is moved to the nearest end."""
        offset = min(max(offset, 0), len(self.text))
        row = bisect_right(self._starts, offset) - 1
        return row + 1, offset - self._starts[row] + 1

    def offset(self, line: int, column: int) -> int:
        """The character offset of a place; the opposite of `place`."""
        return self._starts[line - 1] + column - 1

    def line(self, line: int) -> str:
        """The text of a line without its end; empty when there is no such line."""
        if not 1 <= line <= len(self._starts):
            return ""
        start = self._starts[line - 1]
        end = self._starts[line] - 1 if line < len(self._starts) else len(self.text)
        return self.text[start:end].removesuffix("\r")

    def excerpt(self, line: int, column: int) -> str:
        """The place, the source line and a caret below the column, in three lines.

        schema:2:8
        2 |   name Strin
          |        ^
        """
        text = self.line(line)
        at = min(max(column, 1), len(text) + 1) - 1
        text, at = _window(text, at)
        # One display cell a character keeps the caret in place: tabs and controls become blanks.
        shown = "".join(char if char.isprintable() else " " for char in text)
        gutter = " " * len(str(line))
        return f"{self.name}:{line}:{column}\n{line} | {shown}\n{gutter} | {' ' * at}^"


def _window(text: str, at: int) -> tuple[str, int]:
    """The part of a long line around `at`, and where `at` is in it."""
    if len(text) <= EXCERPT_COLUMNS_MAX:
        return text, at
    width = EXCERPT_COLUMNS_MAX - 2 * len(_CUT)
    start = min(max(at - width // 2, 0), len(text) - width)
    head = _CUT if start else ""
    tail = _CUT if start + width < len(text) else ""
    return f"{head}{text[start : start + width]}{tail}", at - start + len(head)


# --- names -------------------------------------------------------------------------------------


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` is most likely a slip of, or None when none is near.

    Letter case costs nothing. Any two names of one letter are near.
    """
    if len(name) > NAME_COMPARED_CHARS_MAX:
        return None
    written = {candidate.casefold(): candidate for candidate in sorted(candidates, reverse=True)}
    near = get_close_matches(name.casefold(), written, n=1, cutoff=NAME_LIKENESS_MIN)
    if not near and len(name) <= 1:
        near = sorted(each for each in written if len(each) == 1)
    return written[near[0]] if near else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint for an unknown name: the closest one, else the few choices there are, else None."""
    known = sorted(set(candidates))
    near = closest(name, known)
    if near is not None:
        return f"did you mean `{near}`?"
    if 0 < len(known) <= 12:
        return "one of: " + ", ".join(f"`{choice}`" for choice in known)
    return None


def _likeliest(name: str, candidates: Iterable[str]) -> Sequence[str]:
    """The candidates worth a close look: all, or those with the same first letter and about the
    same length when there are many."""
    known = sorted(set(candidates))
    if len(known) <= NAMES_COMPARED_MAX:
        return known
    first = name[:1].casefold()
    known.sort(key=lambda each: (each[:1].casefold() != first, abs(len(each) - len(name))))
    return known[:NAMES_COMPARED_MAX]


# --- problems ----------------------------------------------------------------------------------

# "parse": the text is wrong by itself. "catalog": declarations do not fit together. "type": a
# query does not fit the schema.
Stage: TypeAlias = Literal["parse", "catalog", "type"]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and where. `t_code` is T1 to T24 for some type errors."""

    stage: Stage
    message: str
    line: int
    column: int
    excerpt: str
    hint: str | None = None
    t_code: str | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"message": self.message}
        if self.stage == "type":
            body["t_code"] = self.t_code
        body |= {"line": self.line, "column": self.column, "excerpt": self.excerpt}
        return body | ({"hint": self.hint} if self.hint else {})


class RefusedError(Exception):
    """Leaves the check of something that makes no sense, once its problem is kept. Whoever can go
    on with other checks catches it, so that one mistake does not hide the next."""


class MisfitError(Exception):
    """What is wrong, for someone who knows the place to report it; `code` is the T-code that it
    deserves, if that is fixed."""

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.hint = message, code, hint

    def at(self, at: int, problems: Problems, *, code: str | None = None) -> RefusedError:
        """Report it at a place of a query."""
        return problems.refused(at, self.message, code=code or self.code, hint=self.hint)


class _Report(NamedTuple):
    at: int
    message: str
    stage: Stage
    hint: str | None
    code: str | None


class Problems:
    """What is wrong with a text, each place and message once; reporting never stops the checks.

    `unplannable` keeps those that do not concern types: the query is well typed, but no order of
    its clauses can answer it. `advice` keeps remarks about a sound query, for lint.
    """

    def __init__(self, source: SourceText, *, stage: Stage) -> None:
        self.source = source
        self.advice: list[tuple[int, str]] = []  # places and words
        self._stage = stage
        self._found: dict[tuple[int, str], _Report] = {}
        self._unplannable: list[_Report] = []
        self._suggested = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def report(
        self,
        at: int,
        message: str,
        *,
        code: str | None = None,
        hint: str | None = None,
        stage: Stage | None = None,
    ) -> None:
        """Keep a problem; its code becomes part of its text."""
        report = _Report(at, message, stage or self._stage, hint, code)
        self._found.setdefault((at, message), report)

    def refused(
        self, at: int, message: str, *, code: str | None = None, hint: str | None = None
    ) -> RefusedError:
        """Keep a problem; what cannot be checked any further raises the result."""
        self.report(at, message, code=code, hint=hint)
        return RefusedError()

    def report_unplannable(self, at: int, message: str, *, hint: str) -> None:
        self._unplannable.append(_Report(at, message, self._stage, hint, None))

    def advise(self, at: int, message: str) -> None:
        line, column = self.source.place(at)
        self.advice.append((at, f"{message} (line {line}, column {column})"))

    def suggest(self, name: str, candidates: Iterable[str]) -> str | None:
        """A hint for an unknown name. Looking for near names is slow, so only the first few get
        one: a text made of unknown names must not take long to refuse."""
        self._suggested += 1
        if self._suggested > NAMES_SUGGESTED_MAX:
            return None
        return did_you_mean(name, _likeliest(name, candidates))

    def found(self, *, ordered: bool = False) -> tuple[Problem, ...]:
        """The first problems, as found; `ordered`: wrong texts before misfits, as in the text."""
        reports = list(self._found.values())
        if ordered:
            reports.sort(key=lambda report: (report.stage != "parse", report.at))
        return self._told(reports)

    def unplannable(self) -> tuple[Problem, ...]:
        return self._told(self._unplannable)

    def _told(self, reports: Sequence[_Report]) -> tuple[Problem, ...]:
        return tuple(_told(report, self.source) for report in reports[:PROBLEMS_LISTED_MAX])


def _told(report: _Report, source: SourceText) -> Problem:
    line, column = source.place(report.at)
    prefix = f"{report.stage} error: " + (f"{report.code}: " if report.code else "")
    return Problem(
        stage=report.stage,
        message=prefix + report.message,
        line=line,
        column=column,
        excerpt=source.excerpt(line, column),
        hint=report.hint,
        t_code=report.code,
    )


def parents_first(root: _T, children: Callable[[_T], Sequence[_T]]) -> Iterator[_T]:
    """The root of a tree and everything inside it, in the order written."""
    pending = [root]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(children(current)))


def each_checked(check: Callable[[_A], _T], items: Iterable[_A]) -> tuple[_T, ...]:
    """What the check gives for every item; raises only when all of them had their turn."""
    waiting = iter(items)
    try:
        return tuple(map(check, waiting))
    except RefusedError:
        for item in waiting:
            with suppress(RefusedError):
                check(item)
        raise


def facts_of(problems: Sequence[Problem], source: SourceText) -> dict[str, Any]:
    """What an error says about problems: the place of the first, and all of them."""
    first = problems[0]
    return {
        "hint": first.hint,
        "line": first.line,
        "column": first.column,
        "excerpt": first.excerpt,
        "source_name": source.name,
        "errors": [problem.to_json() for problem in problems],
    }


def parse_error(
    source: SourceText, at: int, message: str, *, hint: str | None = None
) -> ParseError:
    """A text that the grammar refuses at a character offset."""
    problem = _told(_Report(at, message, "parse", hint, None), source)
    return ParseError(problem.message, **facts_of([problem], source))


# --- tokens ------------------------------------------------------------------------------------

# Possessive repetitions keep the expressions from ever going back: reading is linear.
_COMMENT = r"//[^\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/"
_STRING = r'"(?:[^"\\]++|\\(?s:.))*+"'
BLANK = rf"(?:[ \t\r\n]++|{_COMMENT})*+"
_SKIP = re.compile(BLANK)
NO_LISTS: Final[Mapping[str, re.Pattern[str]]] = {}
_COMMENT_OR_STRING = re.compile(rf"{_STRING}|(?P<comment>{_COMMENT})")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE_HINT = 'the escapes are `\\"` `\\\\` `\\n` `\\r` `\\t`; write a backslash as `\\\\`'
_ESCAPED = str.maketrans({plain: f"\\{short}" for short, plain in _ESCAPES.items()})


class Token(NamedTuple):
    """A piece of text. `kind` is the name of a token expression, the mark itself for marks, "end"
    behind the last token, or "stray" at a character that begins no token."""

    kind: str
    text: str
    at: int

    @property
    def end(self) -> int:
        return self.at + len(self.text)

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the file"
        shown = self.text if len(self.text) <= 40 else self.text[:37] + "..."
        return shown if self.kind == "string" else f"`{shown}`"


def token_expression(names: str, marks: str) -> re.Pattern[str]:
    """The expression of a language: blanks and comments, then one of the named tokens, a string, or
    a mark."""
    return re.compile(f"{BLANK}(?:{names}|(?P<string>{_STRING})|(?P<mark>{marks}))", re.ASCII)


def tokenize(
    text: str, expression: re.Pattern[str], *, lists: Mapping[str, re.Pattern[str]] = NO_LISTS
) -> list[Token]:
    """Every token of a text; the last one is "end", or the first "stray".

    A word of `lists` is followed by a bracketed list with a token expression of its own.
    """
    tokens: list[Token] = []
    scan, at = expression.match, 0
    while found := scan(text, at):
        kind = found.lastgroup
        assert kind is not None, "every alternative of a token expression has a name"
        word, at = found.group(kind), found.end()
        if kind == "mark":
            kind = word
            if word == "(" and tokens and tokens[-1].text in lists:
                scan = lists[tokens[-1].text].match
            elif word == ")":
                scan = expression.match
        tokens.append(Token(kind, word, at - len(word)))
    blank = _SKIP.match(text, at)
    assert blank is not None, "skipping nothing is a match"
    at = blank.end()
    tokens.append(Token("stray", text[at], at) if at < len(text) else Token("end", "", at))
    return tokens


class Cursor:
    """A place among the tokens of a text. Names are tokens of the kinds `ident`, which begin in
    lower case, and `type`."""

    # What people write by habit from other languages, and what they meant.
    SLIPS: ClassVar[dict[str, str]] = {}

    def __init__(self, source: SourceText, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.next = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token `ahead` places from here; past the end it is the last token."""
        return self.tokens[min(self.next + ahead, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.tokens[self.next]
        if self.next < len(self.tokens) - 1:
            self.next += 1
        return token

    def at(self, kind: str) -> bool:
        return self.tokens[self.next].kind == kind

    def at_word(self, word: str, ahead: int = 0) -> bool:
        token = self.peek(ahead)
        return token.text == word and token.kind == "ident"

    def skip(self, kind: str) -> bool:
        """Take the next token if it is of this kind."""
        if self.tokens[self.next].kind != kind:
            return False
        self.next += 1
        return True

    def skip_word(self, word: str) -> bool:
        if not self.at_word(word):
            return False
        self.next += 1
        return True

    def expect(self, kind: str, what: str | None = None, *, hint: str | None = None) -> Token:
        """Take a token of this kind, or fail and say what was expected."""
        if self.tokens[self.next].kind != kind:
            raise self.refusal(what or f"`{kind}`", hint=hint)
        return self.take()

    def expect_word(self, word: str) -> Token:
        if not self.at_word(word):
            raise self.refusal(f"`{word}`", words=(word,))
        return self.take()

    def listed(self, item: Callable[[], _T]) -> tuple[_T, ...]:
        """One item or more, with commas between them."""
        items = [item()]
        while self.skip(","):
            items.append(item())
        return tuple(items)

    def refusal(
        self, what: str, *, hint: str | None = None, words: Collection[str] = ()
    ) -> ParseError:
        """The error that `what` was expected here; `words` are possible keywords."""
        token = self.peek()
        if hint is None and token.kind in {"ident", "type"} and words:
            near = closest(token.text, words)
            if near is not None and near != token.text:
                hint = f"did you mean `{near}`?"
        return self.error(f"expected {what}, found {token}", hint=hint)

    def error(self, message: str, *, at: int | None = None, hint: str | None = None) -> ParseError:
        """An error at the next token, or elsewhere; what cannot be read is told first."""
        token = self.peek()
        if token.kind == "stray" and at is None:
            return self.unreadable(token)
        return parse_error(self.source, token.at if at is None else at, message, hint=hint)

    def unreadable(self, token: Token) -> ParseError:
        """The error about a character that begins no token."""
        char, hint = token.text, None
        if char == '"':
            message = "unterminated string"
            hint = 'close it with `"`; write `\\"` for a quote inside'
        elif self.source.text.startswith("/*", token.at):
            message, hint = "unterminated comment", "close it with `*/`"
        else:
            message, hint = f"unexpected character {char!r}", self.SLIPS.get(char)
            if hint is None and not char.isascii():
                hint = "names are made of ASCII letters, digits and `_`"
        return parse_error(self.source, token.at, message, hint=hint)

    def unquoted(self, token: Token) -> str:
        """The text that a string token stands for."""
        body = token.text[1:-1]
        if "\\" not in body:
            return body
        for escape in _ESCAPE.finditer(body):
            if escape.group(1) not in _ESCAPES:
                raise self.error(
                    f"unsupported escape sequence `{escape.group()}` in a string",
                    at=token.at + 1 + escape.start(),
                    hint=_ESCAPE_HINT,
                )
        return _ESCAPE.sub(lambda escape: _ESCAPES[escape.group(1)], body)


def quoted(text: str) -> str:
    """The string literal that stands for a text."""
    return f'"{text.translate(_ESCAPED)}"'


# --- printing ----------------------------------------------------------------------------------

_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")


class _Comment(NamedTuple):
    text: str
    at: int
    end: int
    behind: bool  # whether code stands before it on its line


class Lines:
    """Printed lines that take along the comments of their source.

    A comment waits until the first thing after it is printed. One that stands behind code stays
    behind the line that was printed last, all others get a line of their own.
    """

    def __init__(self, source: str) -> None:
        self.lines: list[str] = []
        self.ends_in_comment = False  # the last line is a comment of its own
        self._source = source
        self._waiting = list(_comments(source))
        self._waiting.reverse()
        self._last = 0  # where in the source the text printed so far ends
        self._takes_more = False  # the last line may take a comment behind it

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def add(self, line: str, *, end: int = 0) -> None:
        """Print a line; `end` is where its text ends in the source."""
        self.lines.append(line)
        self._last = max(self._last, end)
        self.ends_in_comment, self._takes_more = False, True

    def behind(self, *, before: int) -> None:
        """Print the comments before an offset that belong behind the last line."""
        while self._takes_more and self.has_comment(before):
            comment = self._waiting[-1]
            if not comment.behind or "\n" in comment.text:
                break
            self.lines[-1] += f" {self._taken().text}"
            self._takes_more = not comment.text.startswith("//")

    def comments(self, *, before: int, indent: str, gaps: bool = False) -> None:
        """Print the comments that stand before an offset; `gaps` keeps blank lines above them."""
        self.behind(before=before)
        while self.has_comment(before):
            if gaps and self.lines and self.lines[-1] and self.has_gap(self._waiting[-1].at):
                self.lines.append("")
            first, *others = self._taken().text.split("\n")
            self.lines += [indent + first.rstrip("\r"), *(part.rstrip("\r") for part in others)]
            self.ends_in_comment, self._takes_more = True, False

    def _taken(self) -> _Comment:
        comment = self._waiting.pop()
        self._last = comment.end
        return comment

    def has_comment(self, before: int) -> bool:
        return bool(self._waiting) and self._waiting[-1].at < before

    def has_gap(self, end: int) -> bool:
        """Whether the source has a blank line between the text printed last and an offset."""
        return _BLANK_LINE.search(self._source, self._last, end) is not None


def _comments(source: str) -> Iterator[_Comment]:
    end, behind = 0, False
    for match in _COMMENT_OR_STRING.finditer(source):
        text = match.group("comment")
        if text is None:
            continue
        start = source.rfind("\n", 0, match.start()) + 1
        before = source[max(start, end) : match.start()].strip()
        behind = bool(before) or (behind and start < end)
        end = match.end()
        yield _Comment(text=text.rstrip(), at=match.start(), end=end, behind=behind)
