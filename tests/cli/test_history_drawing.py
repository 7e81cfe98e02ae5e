"""The drawn history: lanes part and meet where branches do."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from omnigraph import Graph
from omnigraph.cli.history import draw
from omnigraph.cli.main import entry
from omnigraph.model.pictures.commits import in_order


@dataclass(frozen=True)
class Commit:
    graph_commit_id: str
    parent_commit_id: str | None = None
    merged_parent_commit_id: str | None = None
    created_us: int = 0


def history(text):
    """`c < b + x` is a commit c with parent b and merged parent x, one a line, newest first."""
    commits = []
    for at, line in enumerate(text.split("\n")):
        name, _, parents = line.replace(" ", "").partition("<")
        first, _, second = parents.partition("+")
        commits.append(Commit(name, first or None, second or None, 1000 - at))
    return commits


DRAWINGS = [
    ("c<b\nb<a\na", "* c\n* b\n* a"),
    ("d<b+c\nc<a\nb<a\na", "* d\n|\\\n| * c\n* | b\n|/\n* a"),
    ("m<a\ns<a\na", "* m\n| * s\n|/\n* a"),
    ("e<b+gone\nb<a\na", "* e\n* b\n* a"),
    ("x<b\nm<b\ny<a\nb<a\na", "* x\n| * m\n| | * y\n|/ /\n* | b\n|/\n* a"),
    ("x<a\ny<b\nz<a\nb\na", "* x\n| * y\n| | * z\n| * | b\n|/\n* a"),
    ("x<a\ny<b\nz<a\na\nb", "* x\n| * y\n| | * z\n|_|/\n* | a\n* b"),
]


@pytest.mark.parametrize(("text", "drawing"), DRAWINGS)
def test_a_history_is_drawn_in_lanes(text, drawing):
    commits = history(text)
    labels = {one.graph_commit_id: one.graph_commit_id for one in commits}
    assert "\n".join(draw(commits, labels)) == drawing


def test_no_commit_stands_before_its_child_even_if_clocks_disagree():
    commits = [Commit("a", None, None, 9), Commit("b", "a", None, 5), Commit("c", "b", "x", 1)]
    assert [one.graph_commit_id for one in in_order(commits)] == ["c", "b", "a"]


def test_commit_list_draws_all_branches(tmp_path, capsys):
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, "node P { k: String @key }", durability="process") as graph:
        graph.create_branch("side")
        graph.mutate('query q() { insert P { k: "s" } }', branch="side", actor="act-s")
        graph.mutate('query q() { insert P { k: "m" } }')
        graph.merge("side")
    capsys.readouterr()
    assert entry(["commit", "list", uri, "--graph", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" 01")[0] for line in lines] == ["*", "|\\", "* |", "| *", "|/", "*"]
    assert "(main)" in lines[0]
    assert "(side)" in lines[3]
    assert "act-s" in lines[3]
    assert entry(["commit", "list", uri, "--graph", "--json", "--limit", "2"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert len(body["commits"]) == 2
    assert set(body["heads"]) == {"main", "side"}
    assert entry(["commit", "list", "--graph", uri, "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_a_word_behind_graph_names_the_graph_of_a_server(capsys):
    server = ("--server", "http://127.0.0.1:9")
    for words in (("--graph", "a"), ("--graph", "a", "--svg")):
        assert entry(["commit", "list", *server, *words]) == 75  # nobody is there
        assert "cannot reach the server" in capsys.readouterr().err
    assert entry(["commit", "list", "a.omni", "--graph", "b"]) == 2
