"""Starting Spark's JVM ourselves: one process, no shell scripts, no second JVM to build a command.

`spark-submit` starts a JVM only to compose the command of the real one, and always asks for a Java
module that small runtimes lack. We start the same main class directly, wait until its gateway tells
its port, and leave port and secret where PySpark looks for a gateway that runs already.
"""

from __future__ import annotations

import atexit
import shlex
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec
import pyspark

from omnigraph.errors import SparkUnavailableError
from omnigraph.pipeline.launcher import ArchivePlan, Java

START_SECONDS_MAX = 120
_POLL_SECONDS = 0.01
_OUTPUT_LINES_MAX = 60

# What Spark's own launcher opens for its serializers and off-heap memory, minus the vector module.
_OPENED_PACKAGES = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
_FIXED_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


class LaunchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a start depends on, as a value: the same order gives the same command."""

    java: Java
    conf: Mapping[str, str]
    heap: str
    jvm_options: Sequence[str]
    archive: ArchivePlan
    environment: Mapping[str, str]


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """A running JVM that waits for PySpark."""

    port: int
    secret: str
    process: subprocess.Popen[bytes]


def spark_home() -> Path:
    """The folder of the installed PySpark, which holds Spark's jars."""
    return Path(pyspark.__file__).parent


def class_path() -> str:
    """The class path as the JVM gets it; an archive only fits the very same text."""
    return f"{spark_home()}/jars/*"


def command(order: LaunchOrder) -> list[str]:
    """The command line of the JVM."""
    java = [
        str(order.java.executable),
        "-cp",
        class_path(),
        f"-Xmx{order.heap}",
        *order.archive.options,
        *order.jvm_options,
        *_FIXED_OPTIONS,
        "org.apache.spark.deploy.SparkSubmit",
    ]
    for name, value in order.conf.items():
        java += ["--conf", f"{name}={value}"]
    java.append("pyspark-shell")
    if order.archive.recorded is None or order.archive.final is None:
        return java
    # A shell that outlives us renames the archive once the JVM has written and closed it.
    moved = shlex.join(["mv", "-f", str(order.archive.recorded), str(order.archive.final)])
    return ["/bin/sh", "-c", f"{shlex.join(java)}; test -s {order.archive.recorded} && {moved}"]


def launch(order: LaunchOrder) -> Gateway:
    """Start the JVM and wait for its gateway; `SparkUnavailableError` holds its last words."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-spark-") as folder:
        info = Path(folder) / "gateway"
        try:
            process = _start(order, info)
        except OSError as cause:
            raise SparkUnavailableError(
                f"cannot start Java '{order.java.executable}': {cause.strerror or cause}",
                hint="set JAVA_HOME to a working Java 17 or newer",
            ) from cause
        assert process.stderr is not None
        output: deque[str] = deque(maxlen=_OUTPUT_LINES_MAX)
        pump = threading.Thread(target=_pump, args=(process.stderr, output), daemon=True)
        pump.start()
        port, secret = _await_gateway(process, info, output, pump)
    atexit.register(_stop, process)
    return Gateway(port=port, secret=secret, process=process)


def _start(order: LaunchOrder, info: Path) -> subprocess.Popen[bytes]:
    environment = {
        **order.environment,
        "SPARK_HOME": str(spark_home()),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_ENV_LOADED": "1",
        "SPARK_SCALA_VERSION": "2.13",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
    }
    # A new session keeps Ctrl-C away from the JVM without a function between fork and exec, which
    # Lance would warn about. The JVM ends when its standard input does, so it never outlives us.
    return subprocess.Popen(  # noqa: S603  (a Java that was found, not user text)
        command(order),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )


def _await_gateway(
    process: subprocess.Popen[bytes], info: Path, output: deque[str], pump: threading.Thread
) -> tuple[int, str]:
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        found = _read_gateway(info)
        if found is not None:
            return found
        time.sleep(_POLL_SECONDS)
    ended = process.poll() is not None
    if not ended:
        process.kill()
        process.wait()
    pump.join(timeout=1)
    for stream in (process.stdin, process.stderr):
        if stream is not None:
            stream.close()
    said = "\n".join(output)
    what = f"exited with code {process.returncode}" if ended else "did not answer in time"
    last = f": {output[-1]}" if output else ""
    raise SparkUnavailableError(f"Spark's Java process {what}{last}", output=said)


def _read_gateway(info: Path) -> tuple[int, str] | None:
    """Port and secret, or None while the file is missing or still being written."""
    try:
        content = info.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < 8:
        return None
    port, length = struct.unpack("!ii", content[:8])
    secret = content[8 : 8 + length]
    return (port, secret.decode()) if len(secret) == length else None


def _pump(stream: IO[bytes], output: deque[str]) -> None:
    """Keep the last lines for an error message and pass all of them on."""
    for raw in stream:
        line = raw.decode(errors="replace").rstrip("\n")
        output.append(line)
        sys.stderr.write(line + "\n")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let the JVM go when Python ends. It is not waited for: it cleans up after itself."""
    if process.stdin is not None:
        process.stdin.close()
