"""Type errors are collected, not thrown: a query is checked to its end and all of them are told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph.compiler.diagnostics import SourceText, did_you_mean
from omnigraph.errors import TypeCheckError
from omnigraph.model.limits import (
    QUERY_CANDIDATES_MAX,
    QUERY_PROBLEMS_MAX,
    QUERY_SUGGESTIONS_MAX,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding of the checker. `t_code` is T1 to T24, or None."""

    t_code: str | None
    message: str
    line: int
    column: int
    excerpt: str
    hint: str | None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "message": self.message,
            "t_code": self.t_code,
            "line": self.line,
            "column": self.column,
            "excerpt": self.excerpt,
        }
        if self.hint:
            body["hint"] = self.hint
        return body


class Problems:
    """The problems of one query, in the order in which they were found, each place and text once.

    `unplannable` keeps those that do not concern types: the query is well typed, but no order of
    its clauses can answer it.
    """

    def __init__(self, source: SourceText) -> None:
        self._source = source
        self._found: dict[tuple[int, str], Problem] = {}
        self._unplannable: list[Problem] = []
        self._advice: list[str] = []
        self._suggested = 0

    def report(
        self, at: int, message: str, *, code: str | None = None, hint: str | None = None
    ) -> None:
        """Keep a type error; the code becomes part of its text. The first hundred are enough."""
        if len(self._found) >= QUERY_PROBLEMS_MAX:
            return
        text = f"type error: {code}: {message}" if code else f"type error: {message}"
        if (at, text) not in self._found:
            self._found[at, text] = self._problem(at, text, code, hint)

    def suggest(self, name: str, candidates: Iterable[str]) -> str | None:
        """A hint for an unknown name. Looking for near names is slow, so only the first few get
        one: a text made of unknown names must not take long to refuse."""
        self._suggested += 1
        if self._suggested > QUERY_SUGGESTIONS_MAX:
            return None
        return did_you_mean(name, _likeliest(name, candidates))

    def report_unplannable(self, at: int, message: str, *, hint: str) -> None:
        self._unplannable.append(self._problem(at, f"type error: {message}", None, hint))

    def advise(self, at: int, message: str) -> None:
        """Keep a remark about a sound query, for lint."""
        line, column = self._source.place(at)
        self._advice.append(f"{message} (line {line}, column {column})")

    def advice(self) -> tuple[str, ...]:
        return tuple(self._advice)

    def _problem(self, at: int, message: str, code: str | None, hint: str | None) -> Problem:
        line, column = self._source.place(at)
        excerpt = self._source.excerpt(line, column)
        return Problem(
            t_code=code, message=message, line=line, column=column, excerpt=excerpt, hint=hint
        )

    def found(self) -> tuple[Problem, ...]:
        return tuple(self._found.values())

    def unplannable(self) -> tuple[Problem, ...]:
        return tuple(self._unplannable)


def _likeliest(name: str, candidates: Iterable[str]) -> Sequence[str]:
    """The candidates worth a close look: all, or those with the same first letter and about the
    same length when there are many."""
    known = sorted(set(candidates))
    if len(known) <= QUERY_CANDIDATES_MAX:
        return known
    first = name[:1].casefold()

    def unlikeness(candidate: str) -> tuple[bool, int]:
        return candidate[:1].casefold() != first, abs(len(candidate) - len(name))

    return sorted(known, key=unlikeness)[:QUERY_CANDIDATES_MAX]


def as_error(problems: Sequence[Problem]) -> TypeCheckError:
    """The first problem as an error whose `errors` list all of them."""
    first = problems[0]
    return TypeCheckError(
        first.message,
        t_code=first.t_code,
        hint=first.hint,
        line=first.line,
        column=first.column,
        excerpt=first.excerpt,
        errors=[problem.to_json() for problem in problems],
    )
