"""`omnigraph demo` tells its whole story, and its report stands by itself."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest

from omnigraph import Graph
from omnigraph.cli.main import entry

CHAPTERS = [
    "a graph of this machine",
    "Spark starts",
    "one load, one commit",
    "all that comes with one package",
    "who needs each other",
    "full text and traversal",
    "what is relied on most",
    "the core, drawn",
    "a branch, a change, a preview, a merge",
    "time travel",
    "two writers are killed in the middle",
    "optimize",
    "the same search again, with nothing in memory",
    "the history",
]


@pytest.mark.spark
def test_the_demo_tells_its_story_and_writes_its_report(spark, tmp_path, capsys):
    folder = tmp_path / "demo"
    assert entry(["demo", "--size", "small", "--data", "python", "--out", str(folder)]) == 0
    told = capsys.readouterr().out
    titles = [line[3:].partition(":")[0] for line in told.splitlines() if line.startswith("== ")]
    assert titles == CHAPTERS
    assert "merged review/successor into main: merged" in told
    killed = [line.split() for line in told.splitlines() if line.startswith("   write.")]
    assert killed == [
        ["write.sidecar-written", "no", "1", "RolledBack", "no"],
        ["write.tables-applied", "no", "1", "RolledForward", "yes"],
    ]
    check_report((folder / "report.html").read_text(encoding="utf-8"))
    with Graph.open(folder / "packages.omni") as graph:
        assert graph.pending_recoveries() == []

    # Once more, as JSON: an earlier demo is replaced.
    words = ["demo", "--size", "small", "--data", "python", "--out", str(folder), "--json"]
    assert entry(words) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["packages"] == 300
    assert len(facts["chapters"]) == len(CHAPTERS)


def check_report(page: str) -> None:
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == 4  # the load's steps, the core, the history, the times
    for picture in pictures:
        ET.fromstring(picture)
    # Self-contained: nothing in it is fetched from anywhere.
    assert not re.search(r"<(?:script|link|img|iframe)|\b(?:src|href)=|url\(|@import", page)


def test_a_folder_that_is_no_earlier_demo_is_left_alone(tmp_path, capsys):
    (tmp_path / "precious").write_text("mine")
    assert entry(["demo", "--out", str(tmp_path)]) == 1
    assert "is not an earlier demo" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
