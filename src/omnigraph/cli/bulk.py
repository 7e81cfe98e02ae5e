"""Loads and exports on Spark: from the words of the command line to those of the pipeline."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.cli.call import Call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.pipeline import PipelineReport


def sources_of(paths: Sequence[str], type_name: str | None) -> Sequence[str] | Mapping[str, Any]:
    """Graph NDJSON as it is; with a type, the files are rows of that type in their own format."""
    if type_name is None:
        return list(paths)
    return {type_name: paths[0] if len(paths) == 1 else list(paths)}


def wants_progress(call: Call) -> bool:
    """Bars are for people who look: a terminal, no JSON, not told to be quiet."""
    return sys.stderr.isatty() and not call.as_json and not call.quiet


def load_on_spark(
    call: Call, spark: SparkSession, *, sources: Any, options: Mapping[str, Any]
) -> PipelineReport:
    """Run one load through the pipeline and return its report."""
    from omnigraph import pipeline

    given = {name: value for name, value in options.items() if value is not None}
    if "quarantine" in given:
        given["on_error"] = "quarantine"
    return pipeline.load(
        spark, call.target.uri, sources, actor=call.actor, progress=wants_progress(call), **given
    )


def export_on_spark(
    call: Call, spark: SparkSession, *, out: str, options: Mapping[str, Any]
) -> PipelineReport:
    """Run one export through the pipeline and return its report."""
    from omnigraph import pipeline

    return pipeline.export(spark, call.target.uri, out, progress=wants_progress(call), **options)
