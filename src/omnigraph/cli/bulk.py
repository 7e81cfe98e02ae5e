"""Loads and exports on Spark: from the words of the command line to those of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.cli.bars import wants_progress
from omnigraph.cli.call import Call, read_text
from omnigraph.cli.scope import ScopeFlags
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.pipeline import PipelineReport


def sources_of(paths: Sequence[str], type_name: str | None) -> Sequence[str] | Mapping[str, Any]:
    """Graph NDJSON as it is; with a type, the files are rows of that type in their own format."""
    if type_name is None:
        return list(paths)
    return {type_name: paths[0] if len(paths) == 1 else list(paths)}


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
    given |= {"actor": call.actor, "progress": wants_progress(call)}
    if job_path is not None:
        return pipeline.load_job(spark, job_path, uri=call.target.uri, **given)
    return pipeline.load(spark, call.target.uri, sources, **given)


def export_on_spark(
    call: Call, spark: SparkSession, *, out: str, options: Mapping[str, Any]
) -> PipelineReport:
    """Run one export through the pipeline and return its report."""
    from omnigraph import pipeline

    return pipeline.export(spark, call.target.uri, out, progress=wants_progress(call), **options)
