"""Spark Connect: the same calls through a server that PySpark starts on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.spark
def test_loads_reads_writes_and_exports_work_over_connect(tmp_path):
    pytest.importorskip("grpc", reason="Spark Connect needs the extras of pyspark[connect]")
    pytest.importorskip("grpc_status", reason="Spark Connect needs the extras of pyspark[connect]")
    # A process of its own: PySpark serves Connect or a classic session in one process, not both.
    child = Path(__file__).with_name("connect_child.py")
    done = subprocess.run(
        [sys.executable, str(child), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert seen == {
        "session": "pyspark.sql.connect.session",
        "files": 21,
        "frame": {"P": 1},
        "refused": f"{tmp_path / 'in.jsonl'}:1",
        "read": 2,
        "read_after_write": 22,
        "exported": 23,
    }
