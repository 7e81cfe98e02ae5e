"""Pictures are well-formed, harmless and the same every time."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from omnigraph.demo.story import draw_bars, draw_history
from omnigraph.model.graph import Commit

NASTY = "<script>alert('&')</script>\x00\x1b"


def texts(svg: str) -> str:
    return "".join(ET.fromstring(svg).itertext())


def commit(commit_id, parent, *, branch="main", merged=None, at=0):
    return Commit(
        graph_commit_id=commit_id,
        parent_commit_id=parent,
        merged_parent_commit_id=merged,
        graph_branch=branch,
        graph_manifest_version=1,
        actor_id=NASTY,
        created_us=at,
    )


def test_a_history_links_every_commit_to_both_its_parents():
    commits = [
        commit("m", "b", merged="c", at=4),
        commit("c", "a", branch="draft", at=3),
        commit("b", "a", at=2),
        commit("a", None, at=1),
    ]
    svg = draw_history(commits, labels={"m": NASTY})
    assert svg.count("<path") == 4
    assert "draft" in texts(svg)
    assert "<script" not in svg


def test_a_history_without_its_oldest_commits_is_still_drawn():
    assert draw_history([commit("b", "gone")]).count("<path") == 0
    assert draw_history([]).startswith("<svg")


def test_bars_name_their_values():
    shown = texts(draw_bars([("load", 2.5), (NASTY, 0.0)], unit="s"))
    assert "load2.50 s" in shown
    assert "0.00 s" in shown
    assert draw_bars([], unit="s").startswith("<svg")
