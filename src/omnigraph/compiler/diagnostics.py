"""How both languages point at a place in their source, and guess what name was meant."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

# A longer line is cut to a window around the caret: an excerpt is for eyes.
EXCERPT_COLUMNS_MAX = 100
_CUT = "..."
# Comparing two names takes time that grows with the product of their lengths; nobody mistypes a
# name of a thousand letters.
NAME_COMPARED_CHARS_MAX = 64


@dataclass(frozen=True)
class SourceText:
    """A source text and the name under which errors speak of it.

    Lines end at a line feed, as in the tokenizers; a carriage return before it is not part of the
    line. Lines and columns count from 1, columns count characters.
    """

    text: str
    name: str

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        starts = [0]
        at = self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return tuple(starts)

    @property
    def line_count(self) -> int:
        return len(self._starts)

    def place(self, offset: int) -> tuple[int, int]:
        """The line and column of a character offset; one outside is moved to the nearest end."""
        offset = min(max(offset, 0), len(self.text))
        row = bisect_right(self._starts, offset) - 1
        return row + 1, offset - self._starts[row] + 1

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


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` is most likely a slip of, or None when none is near.

    Letter case costs nothing; otherwise about one slip (insert, drop, replace, swap of
    neighbours) is forgiven per three letters. Ties go to the alphabetically first.
    """
    if len(name) > NAME_COMPARED_CHARS_MAX:
        return None
    folded = name.casefold()
    allowed = max(1, len(folded) // 3)
    best: tuple[int, str] | None = None
    for candidate in sorted(set(candidates)):
        other = candidate.casefold()
        if other == folded:
            return candidate
        if abs(len(other) - len(folded)) > allowed:
            continue
        distance = _distance(folded, other, limit=allowed)
        if distance <= allowed and (best is None or distance < best[0]):
            best = (distance, candidate)
    return best[1] if best else None


def _distance(left: str, right: str, *, limit: int) -> int:
    """Edit distance with swaps of neighbours; anything above `limit` may come back as limit + 1."""
    older: list[int] = []
    previous = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        row = [i]
        for j, b in enumerate(right, start=1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
        older, previous = previous, row
    return previous[-1]


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint for an unknown name: the closest one, else the few choices there are, else None."""
    known = sorted(set(candidates))
    near = closest(name, known)
    if near is not None:
        return f"did you mean `{near}`?"
    if 0 < len(known) <= 12:
        return "one of: " + ", ".join(f"`{choice}`" for choice in known)
    return None
