"""What every test of the suite shares: one Spark session (`spark`), hypothesis without surprises,
and places to keep a graph in (`local_root`, `s3_root`) whose requests can be counted
(`request_counter`)."""

from __future__ import annotations

import os
import uuid

import pytest
from hypothesis import HealthCheck, settings

from places import Place
from s3_server import BUCKET, S3Server

# Tests run on busy two-core machines: a slow example is no failure, and a run must be repeatable.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", parent=settings.get_profile("suite"), max_examples=2000)
settings.load_profile(os.environ.get("OMNIGRAPH_HYPOTHESIS", "suite"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Keep all Spark tests on one worker, so that the suite pays for one JVM only."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        group = item.get_closest_marker("xdist_group")
        # xdist 3.8 writes the group into `_nodeid`, which pytest 9.2 no longer reads: without this
        # a group is spread over all workers, each of which starts a server or a JVM of its own.
        if (
            group is not None
            and getattr(config.option, "loadgroup", False)
            and hasattr(item, "_id")
        ):
            item._id = type(item._id).parse(f"{item.nodeid}@{group.args[0]}")


@pytest.fixture
def local_root(tmp_path):
    """A folder that does not exist yet."""
    return Place(uri=str(tmp_path / "graph.omni"), environ={})


@pytest.fixture(scope="session")
def s3_server():
    server = S3Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def s3_root(s3_server, monkeypatch):
    """An empty folder of a bucket on the loopback server; the AWS_* variables are set."""
    for name, value in s3_server.environ().items():
        monkeypatch.setenv(name, value)
    place = f"s3://{BUCKET}/{uuid.uuid4().hex}/graph.omni"
    return Place(uri=place, environ=s3_server.environ())


@pytest.fixture
def request_counter(s3_server):
    """What the S3 server was asked in this test: `.count`, `.by_verb()`, `.counted()`."""
    s3_server.log.clear()
    return s3_server.log


@pytest.fixture(scope="session")
def spark():
    """The one session of this process, small and quick to start."""
    from omnigraph.pipeline.sessions import session

    return session(
        master="local[2,4]",
        config={
            "omnigraph.jvm.profile": "quick",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.memory": "1g",
        },
    )
