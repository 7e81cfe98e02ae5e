"""`optimize`, `cleanup` and `repair`."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import click

from omnigraph.cli.call import Call
from omnigraph.cli.output import type_words
from omnigraph.cli.scope import Capability
from omnigraph.cli.spark import engine_options, spark_session
from omnigraph.cli.verbs import verb
from omnigraph.errors import InputError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
RECOVERY_FLOOR = 3


@verb("optimize", capability=Capability.DIRECT, positional="uri", writes=True)
@engine_options
def optimize(
    call: Call, *, engine: str, spark_master: str | None, spark_remote: str | None
) -> None:
    """Compact every table and bring its indexes up to date, in one commit."""
    uri = call.target.uri
    call.announce()
    if engine == "spark":
        from omnigraph import pipeline

        spark = spark_session(spark_master, spark_remote)
        report = pipeline.optimize(spark, uri)
    else:
        with call.graph(write=True) as graph:
            report = graph.optimize()
    datasets = [one.to_json() for one in report.datasets]
    lines = [f"optimize {uri} — {len(datasets)} tables"]
    for one in datasets:
        lines += _optimize_lines(one)
    call.emit({"uri": uri, "datasets": datasets}, human=lines)


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


@verb("cleanup", capability=Capability.DIRECT, positional="uri", writes=True)
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="versions to keep per table")
@click.option("--older-than", metavar="AGE", help="only versions older than 30s, 5m, 12h, 7d, 2w")
@click.option("--confirm", is_flag=True, help="really do it")
def cleanup(call: Call, keep: int | None, older_than: str | None, *, confirm: bool) -> None:
    """Collect the versions that no branch, snapshot or unfinished write needs."""
    age = None if older_than is None else duration(older_than)
    if keep is None and age is None:
        raise InputError(
            "cleanup requires at least one of keep_versions or older_than",
            hint="pass --keep N and/or --older-than AGE",
        )
    uri = call.target.uri
    if keep is not None and keep < RECOVERY_FLOOR:
        call.note(f"warning: --keep {keep} is below the recovery floor of {RECOVERY_FLOOR}")
    if not confirm:
        policy = _policy(keep, older_than)
        click.echo(f"cleanup would {policy} at {uri}; pass --confirm to do it", err=True)
        return
    call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        report = graph.cleanup(keep_versions=keep, older_than=age)
    datasets = [one.to_json() for one in report.datasets]
    payload = {
        "uri": uri,
        "keep_versions": keep,
        "older_than_secs": None if age is None else int(age.total_seconds()),
        "datasets": datasets,
    }
    call.emit(payload, human=_cleanup_lines(datasets))


def _policy(keep: int | None, older_than: str | None) -> str:
    parts = []
    if keep is not None:
        parts.append(f"keep the newest {keep} versions of each table")
    if older_than is not None:
        parts.append(f"collect only what is older than {older_than}")
    return " and ".join(parts)


def _cleanup_lines(datasets: list[dict[str, Any]]) -> list[str]:
    versions = sum(one["old_versions_removed"] for one in datasets)
    size = sum(one["bytes_removed"] for one in datasets)
    lines = [f"removed {versions} versions, {size} bytes across {len(datasets)} datasets"]
    failed = [one for one in datasets if one.get("error")]
    lines += [f"  {type_words(one['type_key'])}: {one['error']}" for one in failed]
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


@verb("repair", capability=Capability.DIRECT, positional="uri", writes=True)
@click.option("--confirm", is_flag=True, help="heal what is known to be harmless")
@click.option("--force", is_flag=True, help="with --confirm: publish everything else as it is, too")
def repair(call: Call, *, confirm: bool, force: bool) -> None:
    """Explain tables whose head is ahead of the manifest, and heal them if told to."""
    if force and not confirm:
        raise InputError("repair --force requires --confirm")
    uri = call.target.uri
    call.announce()
    with call.graph(write=confirm) as graph:
        report = graph.repair(confirm=confirm, force=force)
    datasets = [one.to_json() for one in report.datasets]
    payload = {
        "uri": uri,
        "confirm": confirm,
        "force": force,
        "graph_manifest_version": report.graph_manifest_version,
        "datasets": datasets,
    }
    mode = "forced repair" if force else "repair" if confirm else "preview"
    lines = [f"repair {uri} — {mode} mode, {len(datasets)} datasets"]
    lines += [_repair_line(one) for one in datasets]
    call.emit(payload, human=lines)
    if any(one["action"] == "refused" for one in datasets):
        click.get_current_context().exit(1)


def _repair_line(one: dict[str, Any]) -> str:
    text = f"  {type_words(one['type_key'])}: {one['classification']}, {one['action']}"
    operations = ", ".join(one.get("operations") or ())
    error = one.get("error")
    return text + (f" ({operations})" if operations else "") + (f": {error}" if error else "")
