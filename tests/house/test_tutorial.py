"""The tour and the tutorial are executed: every step runs, and prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
# A block to run or to compare; with a file name, one to save. Other fences are for the eye.
BLOCK = re.compile(r"^```(sh|python|text)(?: file=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(kind: str, text: str, folder: Path) -> str:
    words = (
        ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
    )
    binaries = str(Path(sys.executable).parent)
    done = subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "OMNIGRAPH_HOME": str(folder / "home"),
        },
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/index.md",
        "docs/coming-from/lancedb.md",
        "docs/coming-from/networkx.md",
        "docs/guide/agents-cookbook.md",
        "docs/guide/integrations.md",
        "docs/guide/schemas-from-python.md",
        "docs/tutorial.md",
        "docs/guide/modelling.md",
        "docs/guide/notebooks.md",
        "docs/guide/once.md",
        "docs/guide/transactions.md",
        "docs/guide/backups.md",
        "docs/guide/recovery.md",
        "docs/guide/search.md",
    ],
)
def test_every_step_of_the_page_does_what_it_says(page, tmp_path):
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    printed: str | None = None
    compared = 0
    for kind, file_name, text in BLOCK.findall((REPOSITORY / page).read_text(encoding="utf-8")):
        if file_name:
            (tmp_path / file_name).write_text(text, encoding="utf-8")
        elif kind in ("sh", "python"):
            printed = run(kind, text, tmp_path)
        elif kind == "text" and printed is not None:
            assert printed == text
            printed, compared = None, compared + 1
    assert compared > 0
