"""Bulk work on Spark: the flags that choose it, its session, and its loads and exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from omnigraph.cli.call import Call, read_text
from omnigraph.cli.scope import ScopeFlags
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.pipeline import PipelineReport

ENGINES = ("auto", "local", "spark")


def engine_options(command: Any) -> Any:
    """`--engine`, `--spark-master` and `--spark-remote`."""
    for option in (
        click.option(
            "--spark-remote", metavar="URL", help="a Spark Connect server (sc://host:port)"
        ),
        click.option("--spark-master", metavar="MASTER", help="a Spark master, such as local[4]"),
        click.option(
            "--engine",
            type=click.Choice(ENGINES),
            default="auto",
            show_default=True,
            help="work in this process or on Spark",
        ),
    ):
        command = option(command)
    return command


def spark_session(master: str | None, remote: str | None) -> SparkSession:
    """The session of this process, started if there is none."""
    from omnigraph import pipeline

    if master is not None and remote is not None:
        raise click.UsageError("the option '--spark-master' cannot be used with '--spark-remote'")
    return pipeline.session(master=master, remote=remote)


def read_job(call: Call, path: str) -> tuple[Call, dict[str, Any]]:
    """What a job file says, and the call with the file's graph if it names none itself."""
    import yaml

    try:
        facts = yaml.safe_load(read_text(path, what="job file"))
    except yaml.YAMLError as cause:
        raise InputError(f"job file '{path}' is not valid YAML: {cause}") from cause
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
