"""Class-data archives: what makes the second start of Spark's JVM three times faster.

The first JVM of a machine records the classes it loaded while it exits; later ones map that file.
Archives live in the user's cache folder, one per (Spark, Java, class path), and appear by rename,
so that a reader never meets half of one. An archive that does not fit is ignored by the JVM: it
can only cost time.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from omnigraph.pipeline.java import Java

_BASE_DUMP_SECONDS_MAX = 60
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off", "-Xshare:auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan:
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
