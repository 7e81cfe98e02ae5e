"""`verify`, `backup`, `relocate`: whether a graph is whole, a copy of it, and another place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from omnigraph.cli.call import Call, verb
from omnigraph.cli.maintain import progress_bars, size_words
from omnigraph.cli.scope import Capability
from omnigraph.errors import NotFoundError
from omnigraph.model.graph import type_words


@verb("verify", capability=Capability.DIRECT)
@click.option("--deep", is_flag=True, help="read all rows too: ids, keys, values, ends of edges")
def verify(call: Call, *, deep: bool) -> None:
    """Compare files, sizes, digests and row counts with what commits promised. Changes nothing.

    Exits with 1 if something is wrong."""
    from omnigraph.engine.maintain.verify import verify_at

    with progress_bars(call) as advance:
        report = verify_at(call.target.uri, deep=deep, progress=advance)
    call.emit(report.to_json(), human=list(_verify_lines(report.to_json())))
    if not report.ok:
        click.get_current_context().exit(1)


@verb("backup", capability=Capability.DIRECT)
@click.argument("dest", metavar="DEST")
def backup(call: Call, dest: str) -> None:
    """Copy the graph with all branches, tags and history to DEST, an empty or new place."""
    try:
        with call.graph(write=True) as graph, progress_bars(call) as advance:
            report = graph.backup(dest, progress=advance)
    except NotFoundError as error:
        if error.facts.get("name") == call.target.uri:
            error.advise("the graph comes last: omnigraph backup DEST URI")
        raise
    many = f"{report.files} files, {size_words(report.bytes)}, {report.commits} commits"
    call.emit(report.to_json(), human=f"copied {many} to {report.dest}")


@verb("relocate", capability=Capability.DIRECT, writes=True)
def relocate(call: Call) -> None:
    """Make a graph whole at the place where it is, after it was moved or copied there."""
    from omnigraph.engine.maintain.relocate import relocate as relocated

    call.announce()
    report = relocated(call.target.uri)
    words = f"{report.uri} is at home: nothing to do"
    if report.versions_rewritten:
        count = report.versions_rewritten
        words = f"moved from {report.made_at} to {report.uri}: rewrote {count} versions"
    call.emit(report.to_json(), human=words)


def _verify_lines(body: dict[str, Any]) -> Iterator[str]:
    for one in body["problems"]:
        where = [type_words(one["type_key"])] if one["type_key"] else []
        where += [f"branch {one['branch']}"] if one["branch"] else []
        where += [f"commit {one['graph_commit_id']}"] if one["graph_commit_id"] else []
        yield f"{one['kind']}: {one['message']}" + (f" ({', '.join(where)})" if where else "")
    looked = f"{body['files']} files, {size_words(body['bytes'])}, {body['commits']} commits"
    rows = f", {body['rows']} rows" if body["deep"] else ""
    yield f"looked at {looked} of {body['branches']} branches and {body['tags']} tags{rows}"
    if body["files_without_digest"]:
        yield f"{body['files_without_digest']} files have no digest: their bytes were not compared"
    count = len(body["problems"])
    yield "all is well" if body["ok"] else f"{count} problem{'s' * (count != 1)}"
