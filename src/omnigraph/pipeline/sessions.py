"""The Spark session: quiet, tuned for one machine, started once per process and then reused."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph.engine.arguments import MAPPING_OR_NONE, TEXT_OR_NONE, require
from omnigraph.errors import InputError, SparkUnavailableError
from omnigraph.pipeline.launcher import LaunchOrder, find_java, launch, plan_archive

DEFAULT_MASTER = "local[*,4]"  # the 4: a failed task is tried again, as on a cluster
DEFAULT_HEAP = "2g"  # rows travel as Arrow in the Python workers; the JVM only schedules
JAVA_HOME_KEY = "omnigraph.java.home"
JVM_PROFILE_KEY = "omnigraph.jvm.profile"
CACHE_FOLDER_KEY = "omnigraph.cache.folder"

_DEFAULTS: Mapping[str, str] = {
    "spark.app.name": "omnigraph",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.worker.reuse": "true",
}
_LOOPBACK: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# "full" keeps both of Java's compilers, the second one late: a compiler thread that wakes up early
# takes a core away from the work. "quick" stops at the first compiler: a second less to start, but
# twice as slow on heavy SQL; right for tests and for work that only schedules Python tasks.
_JVM_PROFILES: Mapping[str, tuple[str, ...]] = {
    "full": (
        "-XX:+UseParallelGC",
        "-XX:Tier4InvocationThreshold=20000",
        "-XX:Tier4MinInvocationThreshold=10000",
        "-XX:Tier4CompileThreshold=60000",
        "-XX:Tier4BackEdgeThreshold=160000",
        "-XX:-UsePerfData",
    ),
    "quick": ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
}

CANCEL_SECONDS_MAX = 5.0
_lock = threading.Lock()


def session(
    master: str | None = None,
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The process's Spark session, started if need be.

    `master` is any Spark master (default: this machine's cores, with task retries); `remote` is a
    Spark Connect address instead. `config` holds Spark settings, which win over ours, and the keys
    `omnigraph.java.home`, `omnigraph.cache.folder` and `omnigraph.jvm.profile` (full or quick).
    A session that runs already is returned as it is, whoever made it; asking it to move from this
    machine to a cluster or back is an `InputError`, and a Java that is missing or does not start
    `JavaUnavailableError` or `SparkUnavailableError`.

    Examples:
        >>> spark = pipeline.session("local[4]", config={"spark.driver.memory": "4g"})
    """
    require(TEXT_OR_NONE, master=master, remote=remote)
    require(MAPPING_OR_NONE, config=config)
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
    current = str(running.conf.get("spark.master", ""))
    moves = master is not None and current != master
    # How many threads a local session has is no reason to refuse it.
    if moves and not (_is_local(str(master)) and _is_local(current)):
        raise InputError(
            f"Spark runs already on '{current}' and one process has "
            f"one session; it cannot move to '{master}'",
            hint="stop that session first, or pass it to the call instead of a master",
        )
    for name, value in settings.items():
        if name.startswith("spark.sql.") and running.conf.isModifiable(name):
            running.conf.set(name, value)
    return running


def _connect(remote: str, settings: dict[str, str]) -> SparkSession:
    if _is_local(remote):
        # PySpark starts the server on this machine itself: with our Java and for our Python.
        environment = os.environ
        java = find_java(named_home=settings.pop(JAVA_HOME_KEY, None), environment=environment)
        environment["JAVA_HOME"] = str(java.home)
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        conf: dict[str, Any] = {"spark.sql.session.timeZone": "UTC", **settings}
        return SparkSession.builder.remote(remote).config(map=conf).getOrCreate()
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
    base = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(settings.pop(CACHE_FOLDER_KEY, "") or base / "omnigraph")
    profile = _profile(settings.pop(JVM_PROFILE_KEY, "full"))
    heap = settings.pop("spark.driver.memory", DEFAULT_HEAP)
    extra = settings.pop("spark.driver.extraJavaOptions", "").split()
    conf = {"spark.master": master, **_DEFAULTS, **(_LOOPBACK if _is_local(master) else {})}
    conf["spark.sql.warehouse.dir"] = str(folder / "warehouse")
    conf.update(settings)
    # PySpark has no public word for either: a stopped session leaves its JVM, use it again.
    if pyspark.SparkContext._gateway is not None:  # noqa: SLF001
        return _created(conf, master=master)
    with resources.as_file(resources.files(__package__) / "log4j2.properties") as logging_file:
        order = LaunchOrder(
            java=java,
            conf=conf,
            heap=heap,
            jvm_options=(*profile, f"-Dlog4j2.configurationFile={logging_file.as_uri()}", *extra),
            archive=plan_archive(folder, java),
            environment={
                "PYSPARK_PYTHON": sys.executable,
                **environment,
                # Workers inherit this: a warning per worker and library is noise to the user.
                "PYTHONWARNINGS": "ignore",
                "JAVA_HOME": str(java.home),
            },
        )
        port, secret = launch(order)
    environment["PYSPARK_GATEWAY_PORT"], environment["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    # Runs before the launcher lets the JVM go, so that PySpark's threads end with their partner.
    atexit.register(_stop_active)
    try:
        return _created({}, master=master)
    finally:
        # Child processes of ours must find their own JVM, not this one.
        del environment["PYSPARK_GATEWAY_PORT"], environment["PYSPARK_GATEWAY_SECRET"]


def _created(conf: Mapping[str, str], *, master: str) -> SparkSession:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = SparkSession.builder.config(map=dict(conf)).getOrCreate()
    except (PySparkException, Py4JError) as cause:
        lines = str(cause).strip().splitlines() or [type(cause).__name__]
        hint = None
        if not _is_local(master):
            hint = "is the cluster there, and does it reach this machine? Spark's log may say more"
        raise SparkUnavailableError(
            f"Spark on '{master}' did not start: {_reason(lines)}",
            output="\n".join(lines),
            hint=hint,
        ) from cause
    _cancel_on_interrupt(made.sparkContext)
    return made


def _cancel_on_interrupt(context: pyspark.SparkContext) -> None:
    """Let Ctrl-C cancel what runs. PySpark's own handler asks for that over the connection on which
    the interrupted thread waits, which fails: tasks go on, and a traceback is logged."""
    if threading.current_thread() is not threading.main_thread():
        return  # nobody else may set a handler, and PySpark has set none

    def cancel() -> None:
        with suppress(Exception):  # the JVM may be gone; the interrupt counts in any case
            context.cancelAllJobs()

    def interrupted(_number: int, _frame: Any) -> None:
        # The connection may be left in the middle of an answer, and the thread at its other end
        # interrupted: the JVM then stops by itself when its launcher lets it go.
        atexit.unregister(_stop_active)
        asking = threading.Thread(target=cancel, daemon=True)
        asking.start()
        asking.join(CANCEL_SECONDS_MAX)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupted)


# What Java says where Spark gave up waiting for a master.
_NOBODY: Final = "Cannot call methods on a stopped SparkContext."


def _reason(lines: Sequence[str]) -> str:
    """The line that says why: Py4J begins with what it was calling, and Java puts the cause, and
    the cause of the cause, on lines of their own."""
    causes = [line.strip() for line in lines if line.strip().startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    told = (line.strip() for line in lines if not line.startswith("An error occurred while"))
    reason = next((line.removeprefix(": ") for line in told if line), lines[0])
    return "no master took the application" if reason.endswith(_NOBODY) else reason


def _profile(name: str) -> tuple[str, ...]:
    if name not in _JVM_PROFILES:
        raise InputError(f"{JVM_PROFILE_KEY} is one of {', '.join(_JVM_PROFILES)}, not '{name}'")
    return _JVM_PROFILES[name]


def _stop_active() -> None:
    context = pyspark.SparkContext._active_spark_context  # noqa: SLF001
    if context is not None:
        context.stop()


def _is_local(master: str) -> bool:
    return master.startswith("local")
