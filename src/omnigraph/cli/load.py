"""`load`, `ingest` and `export`: data in and out, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from omnigraph.cli.call import (
    Call,
    RemoteTarget,
    embed_option,
    engine_options,
    exclusive,
    landed_words,
    message_option,
    once_option,
    read_text,
    spark_session,
    state_options,
    unreadable,
    verb,
    write_lines,
)
from omnigraph.cli.scope import ScopeFlags
from omnigraph.errors import InputError
from omnigraph.model.graph import LOAD_MODES
from omnigraph.model.machine import PACKED_SUFFIXES, is_installed, local_path
from omnigraph.model.tables import cell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.pipeline import PipelineReport

# Up to this much NDJSON, starting a JVM costs more than it saves.
LOCAL_BYTES_MAX = 16 * 1024 * 1024
TABULAR_SUFFIXES = frozenset({".parquet", ".csv", ".orc"})


@verb("load", writes=True)
@click.option(
    "--data", "paths", multiple=True, metavar="FILE", help="NDJSON (- is stdin); repeatable"
)
@click.option("--job", "job_path", metavar="FILE", help="a YAML file that describes the sources")
@click.option(
    "--type", "type_name", metavar="TYPE", help="the type of a Parquet, CSV or ORC source"
)
@click.option("--mode", type=click.Choice(LOAD_MODES), help="what happens to stored entities")
@click.option("--branch", metavar="BRANCH", help="the branch to load into  [default: main]")
@click.option("--from", "from_branch", metavar="BRANCH", help="make the branch from this one first")
@click.option("--quarantine", metavar="DIR", help="put bad records here instead of failing")
@message_option
@once_option
@embed_option
@engine_options
def load(
    call: Call,
    *,
    paths: tuple[str, ...],
    job_path: str | None,
    type_name: str | None,
    engine: str,
    spark_master: str | None,
    spark_remote: str | None,
    embed: bool,
    **options: str | None,
) -> None:
    """Load data into a branch in one commit: all of it, or nothing."""
    exclusive({"--data": paths, "--job": job_path})
    exclusive({"--type": type_name, "--job": job_path})
    if not paths and job_path is None:
        raise click.UsageError("load needs data: pass --data <FILE> or --job <FILE>")
    if job_path is not None:
        call, job = read_job(call, job_path)
        options["mode"] = options["mode"] or job.get("mode")
    if options["mode"] is None:
        raise click.UsageError(f"load needs --mode, one of: {', '.join(LOAD_MODES)}")
    call.require_target()
    tabular = [path for path in paths if Path(path).suffix.lower() in TABULAR_SUFFIXES]
    if tabular and type_name is None:
        raise InputError(
            f"'{tabular[0]}' holds the rows of one type, and it is not said of which",
            hint="pass --type TYPE",
        )
    choice = EngineChoice(
        engine=engine,
        paths=paths,
        needs_spark=job_path is not None,
        plain=type_name is None and options["quarantine"] is None,
    )
    served = isinstance(call.target, RemoteTarget)
    if served:
        choice.require_lines(options["quarantine"], type_name)
    chosen = "local" if served else choice.engine_for_load()
    if options["mode"] == "overwrite":
        call.consent()
    call.announce()
    if chosen == "local":
        _load_here(call, local_sources(paths, type_name), options, embed=embed)
        return
    report = load_on_spark(
        call,
        spark_session(call, spark_master, spark_remote),
        sources=None if job_path is not None else spark_sources(paths, type_name),
        job_path=job_path,
        options={**options, "embed": embed or None},
    )
    call.emit(report.to_json(), human=report.to_text().splitlines())


def _load_here(call: Call, sources: Any, options: Mapping[str, str | None], *, embed: bool) -> None:
    """The load in this process."""
    mode, quarantine = options["mode"], options["quarantine"]
    assert mode is not None, "a load has a mode"
    with call.graph(write=True, embed=embed) as graph, call.bars() as draw:
        watched: dict[str, Any] = {} if draw is None else {"progress": draw}
        result = graph.load(
            sources,
            **watched,
            mode=mode,
            branch=options["branch"] or "main",
            from_branch=options["from_branch"],
            actor=call.actor,
            message=options["message"],
            idempotency_key=options["idempotency_key"],
            on_error="fail" if quarantine is None else "quarantine",
            quarantine=quarantine,
        )
    call.emit(result.to_json(), human=_load_line(result))


class EngineChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What decides where a load runs. `plain` loads are graph NDJSON without a quarantine."""

    engine: str
    paths: tuple[str, ...]
    needs_spark: bool
    plain: bool

    def require_lines(self, quarantine: str | None, type_name: str | None) -> None:
        """Refuse what a server does not take: everything but graph NDJSON, as it is."""
        given = {
            "--engine spark": self.engine == "spark" or None,
            "--job or --embed": self.needs_spark or None,
            "--quarantine": quarantine,
            "--type": type_name,
        }
        for name, value in given.items():
            if value is not None:
                raise InputError(
                    f"a server loads graph NDJSON only: {name} does not apply",
                    hint="pass the graph's storage with --store <uri>",
                )
        if not all(map(_is_plain_file, self.paths)):
            raise InputError(
                "a server loads plain files of graph NDJSON",
                hint="pass the graph's storage with --store <uri>",
            )

    def engine_for_load(self) -> str:
        """Plain loads of small files run in this process; the others on Spark, if it is there."""
        if self.engine == "local" and self.needs_spark:
            raise InputError(
                "this load needs Spark: jobs are not done in process",
                hint="leave out --engine local",
            )
        if self.engine != "auto" or self.needs_spark:
            return "spark" if self.needs_spark else self.engine
        if not is_installed("pyspark"):
            return "local"
        if not self.plain or not all(map(_is_plain_file, self.paths)):
            return "spark"
        small = sum(map(_size, self.paths)) <= LOCAL_BYTES_MAX
        return "local" if small else "spark"


def _is_plain_file(path: str) -> bool:
    """Whether a source is one plain file of lines (or stdin), as far as its name tells."""
    if path == "-":
        return True
    remote = local_path(path) != path
    pattern = any(char in path for char in "*?[")
    if remote or (pattern and not Path(path).exists()):
        return False
    suffix = Path(path).suffix.lower()
    return not Path(path).is_dir() and suffix not in TABULAR_SUFFIXES | PACKED_SUFFIXES


def spark_sources(paths: tuple[str, ...], type_name: str | None) -> Any:
    """Graph NDJSON as it is; with a type, the files are rows of that type in their own format."""
    if type_name is None:
        return list(paths)
    return {type_name: paths[0] if len(paths) == 1 else list(paths)}


def local_sources(paths: tuple[str, ...], type_name: str | None) -> Any:
    """The same as `Graph.load` takes it: one plain file as itself, several as one run of lines."""
    if type_name is not None:
        return spark_sources(paths, type_name)
    if all(map(_is_plain_file, paths)):
        return local_lines(paths)
    if "-" in paths or any(local_path(path) != path for path in paths):
        raise InputError(
            "in process, graph NDJSON is read from files of this machine",
            hint="leave out --engine local",
        )
    return [Path(path) for path in paths]


def _size(path: str) -> int:
    if path == "-":
        return 0
    try:
        return Path(path).stat().st_size
    except OSError as cause:
        raise unreadable(path, cause, what="data file") from cause


def local_lines(paths: tuple[str, ...]) -> Any:
    """The data as `Graph.load` takes it: one file as itself, several as one run of lines."""
    for path in paths:
        _size(path)
    if len(paths) == 1 and paths[0] != "-":
        return Path(paths[0])
    return "\n".join(read_text(path, what="data file") for path in paths)


def _load_line(result: Any) -> str:
    landed = landed_words(result, nothing="nothing changed")
    return (
        f"loaded into branch {result.branch} with {result.mode}: {result.total_entities} entities "
        f"across {len(result.nodes)} node types and {len(result.edges)} edge types; {landed}"
    )


@verb("ingest", writes=True, hidden=True)
@click.option("--data", "path", required=True, metavar="FILE", help="JSON records")
@click.option("--branch", required=True, metavar="BRANCH", help="the branch to load into")
@click.option(
    "--from",
    "from_branch",
    default="main",
    show_default=True,
    metavar="BRANCH",
    help="the other branch",
)
@click.option(
    "--mode",
    type=click.Choice(LOAD_MODES),
    default="merge",
    show_default=True,
    help="what happens to stored entities",
)
def ingest(call: Call, *, path: str, branch: str, from_branch: str, mode: str) -> None:
    """Load records by the older, forgiving rules, into a branch that is made if missing."""
    click.echo("warning: `omnigraph ingest` is a deprecated loader command; use load", err=True)
    call.announce()
    with call.graph(write=True) as graph:
        result = graph.load(
            local_lines((path,)),
            mode=mode,
            branch=branch,
            from_branch=from_branch,
            actor=call.actor,
            strict=False,
        )
    lines = [f"ingested into branch {branch} with {mode}"]
    for kind, counts in (("node", result.nodes), ("edge", result.edges)):
        lines += [
            f"{kind} type '{name}': {n} entities loaded" for name, n in sorted(counts.items())
        ]
    call.emit({"base_branch": from_branch, **result.to_json()}, human=lines)


@verb("export")
@state_options
@click.option("--type", "types", multiple=True, metavar="TYPE", help="only this type; repeatable")
@click.option("--jsonl", is_flag=True, help="NDJSON on stdout, as without it")
@click.option("--out", "out_path", metavar="PATH", help="a file, or with Spark a folder")
@click.option(
    "--format",
    "form",
    type=click.Choice(["ndjson", "parquet"]),
    default="ndjson",
    help="what to write",
)
@engine_options
def export(
    call: Call,
    *,
    branch: str | None,
    snapshot: str | None,
    types: tuple[str, ...],
    jsonl: bool,
    out_path: str | None,
    form: str,
    engine: str,
    spark_master: str | None,
    spark_remote: str | None,
) -> None:
    """Write the graph as NDJSON that `load` takes back, nodes first."""
    exclusive({"--branch": branch, "--snapshot": snapshot})
    if jsonl and form != "ndjson":
        raise click.UsageError(f"the option '--jsonl' cannot be used with '--format {form}'")
    target = call.target
    if isinstance(target, RemoteTarget) and (engine == "spark" or form != "ndjson"):
        raise InputError(
            "a server exports NDJSON only", hint="pass the graph's storage with --store <uri>"
        )
    if engine == "spark" or (engine == "auto" and form == "parquet"):
        if out_path is None:
            raise click.UsageError("an export on Spark needs --out <PATH>")
        report = export_on_spark(
            call,
            spark_session(call, spark_master, spark_remote),
            out=out_path,
            options={
                "format": form,
                "branch": branch or "main",
                "snapshot": snapshot,
                "types": types or None,
            },
        )
        call.emit(report.to_json(), human=report.to_text().splitlines())
        return
    if form != "ndjson":
        raise click.UsageError(f"the format '{form}' needs Spark: leave out --engine local")
    with call.graph() as graph:
        lines = graph.export(branch=branch or "main", snapshot=snapshot, types=types or None)
        count = write_lines(out_path, lines)
    if out_path is not None:
        payload = {"uri": target.uri, "out": out_path, "records": count}
        call.emit(payload, human=f"wrote {count} records to {cell(out_path)}")


# --- on Spark -------------------------------------------------------------------------------------


def read_job(call: Call, path: str) -> tuple[Call, dict[str, Any]]:
    """What a job file says, and the call with the file's graph if it names none itself."""
    from omnigraph.model.yaml_text import read_yaml

    facts = read_yaml(read_text(path, what="job file"), path=path)
    if not isinstance(facts, dict):
        raise InputError(f"job file '{path}' must be a mapping")
    if call.flags == ScopeFlags() and facts.get("graph"):
        call = replace(call, flags=ScopeFlags(uri=str(facts["graph"])))
    return call, facts


def load_on_spark(
    call: Call,
    spark: SparkSession,
    *,
    sources: Any,
    job_path: str | None,
    options: Mapping[str, Any],
) -> PipelineReport:
    """Run one load through the pipeline and return its report."""
    from omnigraph import pipeline

    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "quarantine" in given:
        given["on_error"] = "quarantine"
    given |= {"actor": call.actor, "progress": call.wants_progress}
    if job_path is not None:
        return pipeline.load_job(spark, job_path, uri=call.target.uri, **given)
    return pipeline.load(spark, call.target.uri, sources, **given)


def export_on_spark(
    call: Call, spark: SparkSession, *, out: str, options: Mapping[str, Any]
) -> PipelineReport:
    """Run one export through the pipeline and return its report."""
    from omnigraph import pipeline

    return pipeline.export(spark, call.target.uri, out, progress=call.wants_progress, **options)
