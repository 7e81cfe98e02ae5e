"""`make demo` tells its whole story."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_demo_tells_its_story_and_leaves_nothing_behind(tmp_path):
    done = subprocess.run(
        [sys.executable, "examples/demo.py"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        env={"TMPDIR": str(tmp_path), "PATH": "", "OMNIGRAPH_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done.stderr
    titles = [line[3:] for line in done.stdout.splitlines() if line.startswith("== ")]
    assert titles[0] == "one load, one commit"
    assert titles[-1] == "the history"
    assert "fast_forward" in done.stdout
    assert list(tmp_path.iterdir()) == []
