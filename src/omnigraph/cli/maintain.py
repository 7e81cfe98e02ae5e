"""`optimize`, `cleanup`, `retention`, `repair`, `health`, `recovery`: what keeps a graph well."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.call import (
    Call,
    CommandGroup,
    branch_option,
    engine_options,
    exclusive,
    spark_session,
    verb,
)
from omnigraph.cli.scope import Capability
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import type_words
from omnigraph.model.limits import MAINTENANCE_CONCURRENCY
from omnigraph.model.tables import TableStyle, cell, table_lines

if TYPE_CHECKING:
    from omnigraph.storage.commit.recovery import Resolution

retention = CommandGroup("retention", help="How much of the past each branch keeps.")
recovery = CommandGroup("recovery", help="Unfinished writes, and what became of earlier ones.")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHOWN_MAX = 5
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def concurrency(call: Call) -> int:
    """How many tables are worked on at once: `OMNIGRAPH_MAINTENANCE_CONCURRENCY`, else 8."""
    text = call.environ.get("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "").strip()
    if not text:
        return MAINTENANCE_CONCURRENCY
    if not text.isdigit() or int(text) < 1:
        raise InputError(
            f"OMNIGRAPH_MAINTENANCE_CONCURRENCY must be a whole number of 1 or more, got '{text}'"
        )
    return int(text)


def size_words(count: int) -> str:
    """A number of bytes as people say it."""
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


# --- optimize --------------------------------------------------------------------------------


@verb("optimize", capability=Capability.DIRECT, writes=True)
@branch_option
@engine_options
def optimize(
    call: Call,
    *,
    branch: str,
    engine: str,
    spark_master: str | None,
    spark_remote: str | None,
) -> None:
    """Compact every table and bring its indexes up to date, in one commit."""
    at_once = concurrency(call)
    uri = call.target.uri
    call.announce()
    if engine == "spark":
        from omnigraph import pipeline

        report = pipeline.optimize(
            spark_session(call, spark_master, spark_remote), uri, branch=branch
        )
    else:
        with call.graph(write=True) as graph, progress_bars(call) as advance:
            report = graph.optimize(branch, concurrency=at_once, progress=advance)
    body = report.to_json()
    lines = [f"optimize {uri} — {len(body['datasets'])} tables"]
    for one in body["datasets"]:
        lines += _optimize_lines(one)
    call.emit({**body, "uri": uri}, human=lines)


@contextmanager
def progress_bars(call: Call) -> Iterator[Any]:
    """Something to call with (what, done, total), or None when no bar is wanted."""
    with call.bars() as draw:
        if draw is None:
            yield None
            return
        from omnigraph.engine.load.report import Tick

        yield lambda what, done, total: draw(
            Tick(stage=what, tasks_done=done, tasks_total=total, seconds=0.0)
        )


def _optimize_lines(one: dict[str, Any]) -> list[str]:
    name = type_words(one["type_key"])
    if one.get("skipped"):
        lines = [f"  {name}: skipped ({one['skipped']})"]
    elif one["committed"]:
        removed, added = one["fragments_removed"], one["fragments_added"]
        lines = [f"  {name}: frags {removed} → {added} ✓"]
    else:
        lines = [f"  {name}: no-op"]
    lines += [
        f"    ↳ index pending on '{pending['property']}': {pending['reason']}"
        for pending in one.get("pending_indexes") or ()
    ]
    return lines


# --- cleanup ---------------------------------------------------------------------------------


@verb("cleanup", capability=Capability.DIRECT, writes=True)
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="snapshots to keep a branch")
@click.option("--older-than", metavar="AGE", help="only what is older than 30s, 5m, 12h, 7d or 2w")
@click.option("--confirm", is_flag=True, help="really do it; without, only say what would go")
def cleanup(call: Call, keep: int | None, older_than: str | None, *, confirm: bool) -> None:
    """Collect the versions that no branch, snapshot or unfinished write needs.

    Without --keep and --older-than the graph's own retention decides (`retention set`)."""
    age = None if older_than is None else duration(older_than)
    at_once = concurrency(call)
    uri = call.target.uri
    if confirm:
        call.consent()
        call.announce()
    else:
        policy = _policy(keep, older_than)
        click.echo(f"cleanup would {policy} at {uri}; pass --confirm to do it", err=True)
    with call.graph(write=confirm) as graph:
        report = graph.cleanup(
            keep_versions=keep, older_than=age, preview=not confirm, concurrency=at_once
        )
    for warning in report.warnings:
        call.note(f"warning: {warning}")
    body = report.to_json()
    call.emit({**body, "uri": uri}, human=_cleanup_lines(body))


def _policy(keep: int | None, older_than: str | None) -> str:
    parts = []
    if keep is not None:
        parts.append(f"keep the newest {keep} snapshots of each branch")
    if older_than is not None:
        parts.append(f"collect only what is older than {older_than}")
    return " and ".join(parts) or "go by the retention of the graph"


def _cleanup_lines(body: dict[str, Any]) -> list[str]:
    datasets = body["datasets"]
    versions = sum(one["old_versions_removed"] for one in datasets)
    size = sum(one["bytes_removed"] for one in (*datasets, body["manifest"]))
    done = "would remove" if body["preview"] else "removed"
    where = f"across {len(datasets)} datasets"
    lines = [f"{done} {versions} versions, {size_words(size)} {where}"]
    lines += [f"  forgotten fork of {one['owner']}" for one in body["reclaimed"]]
    failed = [one for one in datasets if one.get("error")]
    lines += [f"  {type_words(one['type_key'])}: {one['error']}" for one in failed]
    lines += [f"  {type_words(one['owner'])}: {one['error']}" for one in body["failures"]]
    if failed:
        lines.append(f"{len(failed)} datasets failed and will be tried again by the next cleanup")
    return lines


def duration(text: str) -> dt.timedelta:
    """An age like `90s`, `15m`, `12h`, `7d` or `2w`."""
    match = re.fullmatch(r"(\d+)([smhdw])", text.strip())
    if match is None:
        raise InputError(f"'{text}' is not an age", hint="write 90s, 15m, 12h, 7d or 2w")
    try:
        return dt.timedelta(seconds=int(match[1]) * _SECONDS[match[2]])
    except OverflowError as cause:
        raise InputError(f"'{text}' is longer than we can count") from cause


# --- retention -------------------------------------------------------------------------------


@verb("retention show", capability=Capability.DIRECT)
def show_retention(call: Call) -> None:
    """Show how much of the past each branch keeps when `cleanup` goes by the graph itself."""
    with call.graph() as graph:
        body = graph.retention().to_json()
    call.emit(body, human=_retention_lines(body))


@verb("retention set", capability=Capability.DIRECT, writes=True)
@click.argument("pattern", metavar="PATTERN")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="snapshots to keep a branch")
@click.option("--older-than", metavar="AGE", help="only what is older than 30s, 5m, 12h, 7d or 2w")
@click.option("--automatic/--manual", default=None, help="whether upkeep cleans up by itself")
def set_retention(
    call: Call, pattern: str, keep: int | None, older_than: str | None, *, automatic: bool | None
) -> None:
    """Set what branches with names like PATTERN keep; '*' is every branch."""
    given = {
        "keep_versions": keep,
        "older_than": None if older_than is None else duration(older_than),
    }
    _change_retention(call, lambda rules: {**rules, pattern: given}, automatic=automatic)


@verb("retention remove", capability=Capability.DIRECT, writes=True)
@click.argument("pattern", metavar="PATTERN")
def remove_retention(call: Call, pattern: str) -> None:
    """Forget what was set for PATTERN; branches that no other pattern fits keep everything."""

    def without(rules: dict[str, Any]) -> dict[str, Any]:
        if pattern not in rules:
            raise NotFoundError(
                f"no retention is set for '{pattern}'",
                kind="retention",
                name=pattern,
                hint="`omnigraph retention show` lists what is set",
            )
        return {name: bounds for name, bounds in rules.items() if name != pattern}

    _change_retention(call, without, automatic=None)


def _change_retention(
    call: Call,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    automatic: bool | None,
) -> None:
    call.announce()
    with call.graph(write=True) as graph:
        now = graph.retention()
        rules = {
            name: {"keep_versions": bounds.keep_versions, "older_than": bounds.older_than}
            for name, bounds in now.branches.items()
        }
        rules = change(rules)
        wanted = now.automatic if automatic is None else automatic
        body = graph.set_retention(rules, automatic=wanted and bool(rules)).to_json()
    call.emit(body, human=_retention_lines(body))


def _retention_lines(body: dict[str, Any]) -> list[str]:
    if not body["branches"]:
        return ["no retention is set: branches keep everything until `cleanup` is given bounds"]
    rows = [
        {
            "branches": pattern,
            "keep": cell(one["keep_versions"]),
            "older than": "" if one["older_than_secs"] is None else f"{one['older_than_secs']}s",
        }
        for pattern, one in body["branches"].items()
    ]
    lines = list(table_lines(tuple(rows[0]), rows, style=TableStyle()))
    applied = "by upkeep, now and then" if body["automatic"] else "by `omnigraph cleanup`"
    return [*lines, f"applied {applied}"]


# --- repair ----------------------------------------------------------------------------------


@verb("repair", capability=Capability.DIRECT, writes=True)
@branch_option
@click.option(
    "--confirm",
    is_flag=True,
    help="heal what is known to be harmless, undo writes that were given up",
)
@click.option("--force", is_flag=True, help="with --confirm: publish everything else as it is, too")
@click.option(
    "--restore",
    is_flag=True,
    help="with --confirm: put every table that drifted back to what is published",
)
def repair(call: Call, *, branch: str, confirm: bool, force: bool, restore: bool) -> None:
    """Explain tables that something else has written to, and heal them if told to."""
    uri = call.target.uri
    call.announce()
    with call.graph(write=confirm) as graph:
        report = graph.repair(confirm, force, restore, branch=branch)
    body = report.to_json()
    mode = "preview"
    if confirm:
        mode = "forced repair" if force else "restore" if restore else "repair"
    lines = [f"repair {uri} — {mode} mode, {len(body['datasets'])} datasets"]
    lines += [_repair_line(one) for one in body["datasets"]]
    if report.violations_total:
        word = "broken by it" if force else "--force would break"
        lines.append(f"  {word}: {report.violations_total} times, for instance:")
        lines += [f"    {one.message}" for one in report.violations[:_SHOWN_MAX]]
    call.emit({**body, "uri": uri}, human=lines)
    if report.refused:
        click.get_current_context().exit(1)


def _repair_line(one: dict[str, Any]) -> str:
    text = f"  {type_words(one['type_key'])}: {one['classification']}, {one['action']}"
    operations = ", ".join(one.get("operations") or ())
    error = one.get("error")
    return text + (f" ({operations})" if operations else "") + (f": {error}" if error else "")


# --- health ----------------------------------------------------------------------------------


@verb("health", capability=Capability.DIRECT)
@branch_option
def health(call: Call, *, branch: str) -> None:
    """Show fragments, index coverage, versions and bytes, with advice."""
    with call.graph() as graph:
        body = graph.health(branch).to_json()
    rows = [
        {
            "table": type_words(one["type_key"]),
            "entities": one["entity_count"],
            "fragments": one["fragments"],
            "small": one["small_fragments"],
            "versions": one["versions"],
            "live": size_words(one["bytes_live"]),
            "reclaimable": size_words(one["bytes_reclaimable"]),
            "missing indexes": ", ".join(one["missing_indexes"]),
        }
        for one in body["datasets"]
    ]
    columns = tuple(rows[0]) if rows else ("table",)
    lines = list(table_lines(columns, rows, style=TableStyle()))
    lines += [f"unfinished write {name}" for name in body["pending_recoveries"]]
    lines += [f"advice: {text}" for text in body["advice"]] or ["healthy"]
    call.emit(body, human=lines)


# --- recovery -------------------------------------------------------------------------------------


@verb("recovery list", capability=Capability.DIRECT)
def list_recoveries(call: Call) -> None:
    """List the unfinished writes and the recoveries on record."""
    with call.graph() as graph:
        pending = [one.to_json() for one in graph.pending_recoveries()]
        done = [one.to_json() for one in graph.recoveries()]
        problems = graph.recovery_log_problems()
    lines = [f"pending   {_recovery_line(one)}" for one in pending]
    lines += [f"recovered {_recovery_line(one)}" for one in done]
    lines += [f"unreadable {problem}" for problem in problems]
    payload: dict[str, Any] = {"pending": pending, "recoveries": done}
    if problems:
        payload["unreadable"] = problems
    call.emit(payload, human=lines or ["no unfinished writes and no recoveries"])


def _recovery_line(one: dict[str, Any]) -> str:
    names = ("operation_id", "writer_kind", "recovery_kind", "branch", "graph_branch", "problem")
    return "  ".join(cell(one[name]) for name in names if one.get(name) is not None)


@verb("recovery show", capability=Capability.DIRECT)
@click.argument("operation_id", metavar="ID")
def show_recovery(call: Call, operation_id: str) -> None:
    """Show one unfinished write or one recovery, by its operation id."""
    with call.graph() as graph:
        pending = [one.to_json() for one in graph.pending_recoveries()]
        done = [one.to_json() for one in graph.recoveries()]
    found = [one for one in (*pending, *done) if one["operation_id"] == operation_id]
    if not found:
        raise NotFoundError(
            f"no unfinished write and no recovery has the operation id '{operation_id}'",
            kind="operation",
            name=operation_id,
            hint="`omnigraph recovery list` shows them",
        )
    call.emit(found[0], human=_recovery_block(found[0]))


def _recovery_block(one: dict[str, Any]) -> list[str]:
    return [f"{name:24} {cell(value) or '-'}" for name, value in one.items()]


@verb("recovery resolve", capability=Capability.DIRECT, writes=True)
@click.argument("operation_id", metavar="ID")
@click.option("--roll-back", is_flag=True, help="restore the tables, whatever had landed")
@click.option("--discard", is_flag=True, help="forget the write; the tables stay as they are")
def resolve(call: Call, operation_id: str, *, roll_back: bool, discard: bool) -> None:
    """Finish or undo one unfinished write; without a flag, as recovery itself would."""
    exclusive({"--roll-back": roll_back or None, "--discard": discard or None})
    if roll_back or discard:
        call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        how: Resolution = "roll-back" if roll_back else "discard" if discard else "auto"
        record = graph.resolve_recovery(operation_id, how).to_json()
    call.emit(record, human=_recovery_block(record))


@verb("recovery clear-log", capability=Capability.DIRECT, writes=True)
def clear_log(call: Call) -> None:
    """Remove a damaged record of recoveries; the graph is not touched and a new one is begun."""
    call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        graph.clear_recovery_log()
    call.emit({"uri": call.target.uri, "cleared": True}, human="removed the record of recoveries")


for _command in (show_retention, set_retention, remove_retention):
    retention.add_command(_command)
for _command in (list_recoveries, show_recovery, resolve, clear_log):
    recovery.add_command(_command)
