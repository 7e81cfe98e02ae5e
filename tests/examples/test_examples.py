"""The programs in examples/ are short, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LINES_MAX = 60
PRINTED = {
    "rag.py": "can items be returned? Returns, ask support@shop",
    "dependencies.py": "pytest brings ",
    "crm.py": "Acme.stage: lead became lost here and customer there",
    "etl.py": "sku-4    900.0",
    "events.py": "6 readings, sum 9.0",
}


def run(*words: str) -> str:
    ran = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=EXAMPLES
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_the_program_runs_and_prints(name):
    assert PRINTED[name] in run(name)


@pytest.mark.spark
@pytest.mark.slow
def test_the_load_from_parquet_gives_the_same_on_spark():
    assert run("etl.py", "--spark") == run("etl.py")


def test_there_are_five_programs_and_each_fits_a_screen():
    programs = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert set(programs) == set(PRINTED)
    assert {
        name: text.count("\n") for name, text in programs.items() if text.count("\n") > LINES_MAX
    } == {}
