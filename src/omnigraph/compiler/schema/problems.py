"""Collecting what is wrong with a schema, so that one compile reports all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from omnigraph.compiler.diagnostics import SourceText
from omnigraph.errors import InputError, ParseError, SchemaError
from omnigraph.model.limits import SCHEMA_ERRORS_LISTED_MAX

# "parse": a declaration is wrong by itself. "catalog": declarations do not fit together.
Stage = Literal["parse", "catalog"]
# Searching for a close name costs time, so such a hint is a function, called for few problems only.
Hint = str | Callable[[], str | None] | None
_SEARCHED_HINTS_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, and where."""

    stage: Stage
    offset: int
    message: str
    hint: Hint = None


@dataclass(slots=True)
class Problems:
    """A growing list of problems; reporting never stops the checks."""

    found: list[Problem] = field(default_factory=list)

    def report(
        self, message: str, *, offset: int, hint: Hint = None, stage: Stage = "parse"
    ) -> None:
        self.found.append(Problem(stage=stage, offset=offset, message=message, hint=hint))

    def error(self, source: SourceText) -> InputError | None:
        """The problems as one error: wrong declarations before misfits, each in source order."""
        if not self.found:
            return None
        ordered = sorted(self.found, key=lambda problem: (problem.stage != "parse", problem.offset))
        entries = [
            _entry(problem, source, may_search=rank < _SEARCHED_HINTS_MAX)
            for rank, problem in enumerate(ordered[:SCHEMA_ERRORS_LISTED_MAX])
        ]
        first, entry = ordered[0], entries[0]
        line, column = source.place(first.offset)
        family = ParseError if first.stage == "parse" else SchemaError
        return family(
            str(entry["message"]),
            hint=None if entry["hint"] is None else str(entry["hint"]),
            line=line,
            column=column,
            source_name=source.name,
            excerpt=source.excerpt(line, column),
            errors=entries,
        )


def _entry(
    problem: Problem, source: SourceText, *, may_search: bool
) -> dict[str, str | int | None]:
    line, column = source.place(problem.offset)
    hint = problem.hint
    if callable(hint):
        hint = hint() if may_search else None
    return {
        "line": line,
        "column": column,
        "message": f"{problem.stage} error: {problem.message}",
        "hint": hint,
    }
