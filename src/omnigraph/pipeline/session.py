"""The Spark session: quiet, tuned for one machine, started once per process and then reused."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph.errors import InputError, SparkUnavailableError
from omnigraph.pipeline.archive import ArchivePlan, plan_archive
from omnigraph.pipeline.java import find_java
from omnigraph.pipeline.launcher import LaunchOrder, class_path, launch

DEFAULT_MASTER = "local[*,4]"  # the 4: a failed task is tried again, as on a cluster
DEFAULT_HEAP = "2g"  # rows travel as Arrow in the Python workers; the JVM only schedules
JAVA_HOME_KEY = "omnigraph.java.home"
CACHE_FOLDER_KEY = "omnigraph.cache.folder"

_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "omnigraph",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.warehouse.dir": "spark-warehouse",
    "spark.python.worker.reuse": "true",
}
_LOOPBACK: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# The parallel collector for throughput, and a late second compiler: our jobs are short for a JVM,
# and a compiler thread that wakes up early takes a core away from them.
_JVM_OPTIONS = (
    "-XX:+UseParallelGC",
    "-XX:Tier4InvocationThreshold=20000",
    "-XX:Tier4MinInvocationThreshold=10000",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=160000",
    "-XX:TieredStopAtLevel=4",
    "-XX:-UsePerfData",
)

_lock = threading.Lock()


def session(
    master: str | None = None,
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The process's Spark session, started if need be.

    `master` is any Spark master (default: this machine's cores, with task retries); `remote` is a
    Spark Connect address instead. `config` holds Spark settings, which win over ours, and
    `omnigraph.java.home` / `omnigraph.cache.folder`. A session that runs already is returned as it
    is, whoever made it; asking it to move to another master is an `InputError`.
    """
    settings = dict(config or {})
    if master is not None and remote is not None:
        raise InputError("give a Spark master or a Spark Connect address, not both")
    with _lock:
        if remote is not None:
            return _connect(remote, settings)
        running = SparkSession.getActiveSession()
        if running is not None:
            return _reused(running, master, settings)
        return _launched(master or settings.pop("spark.master", DEFAULT_MASTER), settings)


def _reused(running: SparkSession, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    if master is not None and running.conf.get("spark.master", None) != master:
        raise InputError(
            f"Spark runs already on '{running.conf.get('spark.master', '?')}' and one process has "
            f"one session; it cannot move to '{master}'",
            hint="stop that session first, or pass it to the call instead of a master",
        )
    for name, value in settings.items():
        if name.startswith("spark.sql.") and running.conf.isModifiable(name):
            running.conf.set(name, value)
    return running


def _connect(remote: str, settings: Mapping[str, str]) -> SparkSession:
    try:
        builder = SparkSession.builder.remote(remote)
        for name, value in {"spark.sql.session.timeZone": "UTC", **settings}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except (PySparkException, ImportError) as cause:
        raise SparkUnavailableError(
            f"cannot reach Spark Connect at '{remote}': {cause}",
            hint='Spark Connect needs the extras of "pyspark[connect]" and a running server',
        ) from cause


def _launched(master: str, settings: dict[str, str]) -> SparkSession:
    # The one place of this room that touches the environment: PySpark takes its gateway from
    # there, and Java's home is a matter of the machine.
    environment = os.environ
    java = find_java(named_home=settings.pop(JAVA_HOME_KEY, None), environment=environment)
    folder = Path(settings.pop(CACHE_FOLDER_KEY, "") or _cache_folder(environment))
    heap = settings.pop("spark.driver.memory", DEFAULT_HEAP)
    extra = settings.pop("spark.driver.extraJavaOptions", "").split()
    conf = {"spark.master": master, **_DEFAULTS, **(_LOOPBACK if _is_local(master) else {})}
    conf["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    conf.update(settings)
    with resources.as_file(resources.files(__package__) / "log4j2.properties") as logging_file:
        order = LaunchOrder(
            java=java,
            conf=conf,
            heap=heap,
            jvm_options=(
                *_JVM_OPTIONS,
                f"-Dlog4j2.configurationFile={logging_file.as_uri()}",
                *extra,
            ),
            archive=_archive(folder, java=java),
            environment={
                "PYSPARK_PYTHON": sys.executable,
                **environment,
                # Workers inherit this: a warning per worker and library is noise to the user.
                "PYTHONWARNINGS": "ignore",
                "JAVA_HOME": str(java.home),
            },
        )
        gateway = launch(order)
    environment["PYSPARK_GATEWAY_PORT"] = str(gateway.port)
    environment["PYSPARK_GATEWAY_SECRET"] = gateway.secret
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return SparkSession.builder.getOrCreate()
    except Exception as cause:
        raise SparkUnavailableError(
            f"Spark on '{master}' did not start: {_first_line(cause)}"
        ) from cause
    finally:
        # Child processes of ours must find their own JVM, not ours.
        del environment["PYSPARK_GATEWAY_PORT"], environment["PYSPARK_GATEWAY_SECRET"]
