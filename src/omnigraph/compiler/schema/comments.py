"""Comments find their way back into a printed file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Strings are matched only so that a `//` inside one is not taken for a comment.
_COMMENT_OR_STRING = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?P<comment>//[^\n]*+|/\*(?>[^*]++|\*(?!/))*+\*/)', re.DOTALL
)
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A printed line and the piece of source it stands for, from `start` on.

    `inside` is the indent for comments that stand before it.
    """

    text: str
    start: int
    end: int = -1
    opens: bool = False
    inside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comment:
    text: str
    start: int
    end: int
    own_line: bool


def woven(lines: list[Line], source: str) -> str:
    """The lines with the comments of the source: those on a line of their own before what follows
    them, the others behind what they follow. Blank lines of the source stay, one at a time."""
    comments = list(_comments(source))
    out: list[str] = []
    last = 0  # where in the source the text printed so far ends
    taken = 0
    for rank, line in enumerate(lines):
        following = lines[rank + 1].start if rank + 1 < len(lines) else len(source)
        while taken < len(comments) and comments[taken].start < line.start:
            last = _own_line(out, comments[taken], line.inside, source, last)
            taken += 1
        if out and (_gap(source, last, line.start) or _must_part(lines, rank, comments, taken)):
            _blank(out, before=line)
        behind: list[str] = []
        last = max(line.start, line.end)
        while taken < len(comments) and _stands_behind(comments[taken], following, behind):
            behind.append(comments[taken].text)
            last = comments[taken].end
            taken += 1
        out.append(" ".join([line.text, *behind]))
    for comment in comments[taken:]:
        last = _own_line(out, comment, "", source, last)
    return "".join(f"{line}\n" for line in out)


def _comments(source: str) -> Iterator[_Comment]:
    for match in _COMMENT_OR_STRING.finditer(source):
        text = match.group("comment")
        if text is None:
            continue
        before = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
        yield _Comment(
            text=text.rstrip(),
            start=match.start(),
            end=match.end(),
            own_line=not before.strip(),
        )


def _own_line(out: list[str], comment: _Comment, indent: str, source: str, last: int) -> int:
    if out and out[-1] != "" and _gap(source, last, comment.start):
        out.append("")
    out.append(indent + comment.text)
    return comment.end


def _stands_behind(comment: _Comment, following: int, behind: list[str]) -> bool:
    """A line comment ends its line, and a comment of several lines does not fit behind one."""
    if comment.start >= following or comment.own_line or "\n" in comment.text:
        return False
    return not (behind and behind[-1].startswith("//"))


def _gap(source: str, start: int, end: int) -> bool:
    return _BLANK_LINE.search(source, start, end) is not None


def _must_part(lines: list[Line], rank: int, comments: list[_Comment], taken: int) -> bool:
    """Declarations with a body stand apart, unless a comment above already belongs to the line."""
    if rank == 0 or not lines[rank].opens:
        return False
    line, before = lines[rank], lines[rank - 1]
    above = comments[taken - 1] if taken else None
    if above is not None and above.own_line and above.start > before.start:
        return False
    return before.text == "}" or line.text.endswith("{")


def _blank(out: list[str], *, before: Line) -> None:
    # No blank line right behind an opening brace, nor right before a closing one.
    if out[-1] != "" and not out[-1].endswith("{") and before.text != "}":
        out.append("")
