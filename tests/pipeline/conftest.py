"""One Spark session for all tests of the room: small, quick to start, never stopped in between."""

from __future__ import annotations

import pytest

from omnigraph.pipeline.sessions import session


@pytest.fixture(scope="session")
def spark():
    return session(
        master="local[2,4]",
        config={
            "omnigraph.jvm.profile": "quick",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.memory": "1g",
        },
    )
