"""The flags that choose where bulk work runs, and the session behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
