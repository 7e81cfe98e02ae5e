"""What every test of the suite shares: one Spark worker, and hypothesis without surprises."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

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
def pytest_collection_modifyitems(items):
    """Keep all Spark tests on one worker, so that the suite pays for one JVM only."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group("spark"))
