"""How an error reaches a person: what, where, and what to do about it; never a traceback."""

from __future__ import annotations

import json
from typing import Any

import click

from omnigraph.cli.output import fitted_style
from omnigraph.cli.resolve import conflict_lines
from omnigraph.errors import (
    ConstraintViolationError,
    ExpectedVersionMismatchError,
    IntegrityError,
    MergeConflictsError,
    OmnigraphError,
    PreconditionFailedError,
    RowLevelCasContentionError,
)
from omnigraph.storage.commit.outcome import last_commit_made, outcome_told

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_LOST_RACE = 4
EXIT_RETRY = 75  # nothing happened, and the same may work in a moment
EXIT_INTERRUPTED = 130

_LOST_RACES = (PreconditionFailedError, ExpectedVersionMismatchError, RowLevelCasContentionError)
_SHOWN_MAX = 10


def report(error: OmnigraphError, *, as_json: bool) -> int:
    """Print the error and return the exit code it means."""
    if as_json:
        if isinstance(error, PreconditionFailedError):
            failure = {"expected": error.facts["expected"], "actual": error.facts["actual"]}
            click.echo(json.dumps({"precondition_failure": failure}, indent=2))
        click.echo(json.dumps(error_json(error), ensure_ascii=False, default=str), err=True)
    else:
        for line in error_lines(error):
            click.echo(line, err=True)
    if isinstance(error, _LOST_RACES):
        return EXIT_LOST_RACE
    return EXIT_RETRY if error.retryable else EXIT_ERROR


def interrupted_line(interrupt: BaseException) -> str:
    """What to tell somebody who pressed Ctrl-C: whether the change was made."""
    # The library that reads the command line wraps the interrupt in one of its own.
    told = outcome_told(interrupt.__cause__ or interrupt)
    if told is None and (made := last_commit_made()) is not None:
        told = f"the last commit was {made}"  # it struck behind the write, as the answer was shown
    return f"interrupted; {told or 'nothing was committed'}"


def error_json(error: OmnigraphError) -> dict[str, Any]:
    """The error as one JSON object: message, code, hint and every fact that JSON can carry."""
    body = error.to_json()
    body["retryable"] = error.retryable
    for name in ("violations", "conflicts", "errors"):
        items = error.facts.get(name)
        if items:
            body[name] = [item_json(item) for item in items]
    return body


def item_json(item: Any) -> Any:
    """One listed fact (a violation, a conflict) in JSON, as its own class says."""
    if isinstance(item, dict | str):
        return item
    to_json = getattr(item, "to_json", None)
    return to_json() if callable(to_json) else str(item)


def error_lines(error: OmnigraphError) -> list[str]:
    """The error for people: the message, the place in the source, what is listed, the hint."""
    lines = [click.style("error:", fg="red", bold=True) + f" {error.message}"]
    excerpt = error.facts.get("excerpt")
    if excerpt and str(excerpt) not in error.message:
        lines.extend(f"  {line}" for line in str(excerpt).splitlines())
    elif "line" in error.facts and not excerpt:
        column = error.facts.get("column")
        place = f"line {error.facts['line']}" + (f", column {column}" if column else "")
        if place not in error.message and f"line {error.facts['line']}" not in error.message:
            lines.append(f"  at {place}")
    lines.extend(_conflicts(error) if isinstance(error, MergeConflictsError) else _listed(error))
    if error.hint:
        lines.append(click.style("hint:", fg="cyan") + f" {error.hint}")
    return lines


def _listed(error: OmnigraphError) -> list[str]:
    """What the message alone does not say: all that is wrong, when it is more than one thing."""
    if isinstance(error, ConstraintViolationError):
        items, total = list(error.violations), error.total
    elif "offenders" in error.facts:
        items = [f"{one['place']}: {one['message']}" for one in error.facts["offenders"]]
        total = error.facts["total"]
    else:
        items = list(error.facts.get("errors") or ())
        total = len(items)
    if total < 2:
        return []
    shown = [f"  - {_item_line(item)}" for item in items[:_SHOWN_MAX]]
    if total > len(shown):
        shown.append(f"  … and {total - len(shown)} more")
    return shown


def _conflicts(error: MergeConflictsError) -> list[str]:
    """What each side says, property by property."""
    shown = list(error.conflicts)[:_SHOWN_MAX]
    lines = [f"  {line}" for line in conflict_lines(shown, fitted_style())]
    more = len(error.conflicts) - len(shown)
    return [*lines, f"  … and {more} more"] if more else lines


def _item_line(item: Any) -> str:
    facts = item if isinstance(item, dict) else {}
    text = str(facts.get("message") or getattr(item, "message", item))
    line, column = (facts.get(name) or getattr(item, name, None) for name in ("line", "column"))
    return f"{text} (line {line}, column {column})" if line and column else text


def is_panic(problem: BaseException) -> bool:
    """Whether the storage library gave up; its class is no `Exception` and cannot be imported."""
    return type(problem).__name__ == "PanicException"


def report_defect(problem: BaseException, *, as_json: bool) -> int:
    """Print an error nobody expected: ours to mend, but still one line and a way to say more."""
    if is_panic(problem):
        damage = IntegrityError(
            f"the storage library gave up: {str(problem).splitlines()[0] if str(problem) else '?'}",
            hint="`omnigraph health` looks for damaged files",
        )
        return report(damage, as_json=as_json)
    reason = f"{type(problem).__name__}: {problem}"
    hint = "this is a defect; run again with OMNIGRAPH_TRACEBACK=1 and report what it prints"
    if as_json:
        body = {"error": reason, "code": "internal", "hint": hint, "retryable": False}
        click.echo(json.dumps(body, ensure_ascii=False), err=True)
    else:
        click.echo(click.style("error:", fg="red", bold=True) + f" internal: {reason}", err=True)
        click.echo(click.style("hint:", fg="cyan") + f" {hint}", err=True)
    return EXIT_ERROR
