"""The plan of the code keeps the numbers it has reached; `tools/house.py` counts them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MOST = {
    "files": 395,
    "lines": 95_300,
    "lines of the largest file": 600,
    "files in the fullest folder": 25,
    "modules with one importer": 90,
    "public classes and functions": 2_240,
    "names at the package's front": 25,
    "import cycles": 0,
    "import cycles, late ones too": 0,
    "dataclasses": 0,
}
LEAST = {
    "storage/commit: comments in 100 lines": 8.0,
    "storage/commit: asserts a function": 0.3,
    "test functions": 2_050,
}


@pytest.fixture(scope="module")
def numbers() -> dict[str, float]:
    return runpy.run_path(str(REPOSITORY / "tools/house.py"))["measured"]()


@pytest.mark.parametrize("name", MOST)
def test_the_plan_has_at_most(numbers, name):
    assert numbers[name] <= MOST[name]


@pytest.mark.parametrize("name", LEAST)
def test_the_plan_has_at_least(numbers, name):
    assert numbers[name] >= LEAST[name]
