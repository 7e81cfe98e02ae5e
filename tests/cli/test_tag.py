"""`omnigraph tag`, and `branch delete` and `restore`."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.cli.main import entry


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    """A graph of two commits, and a way to run commands on it."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, "node P { k: String @key }") as graph:
        graph.load('{"type":"P","data":{"k":"a"}}', mode="append")
        head = graph.load('{"type":"P","data":{"k":"b"}}', mode="append").commit.graph_commit_id

    def run(*words, code=0):
        capsys.readouterr()
        assert entry([*words, "--store", uri, "--quiet"]) == code
        out, err = capsys.readouterr()
        text = out if code == 0 else err
        return json.loads(text) if "--json" in words else text.splitlines()

    run.head, run.folder = head, tmp_path
    return run


def test_tags_are_made_listed_used_and_deleted(desk):
    made = desk(
        "tag", "create", "v1", "--at", "main~1", "-m", "first\nmore", "--as", "ada", "--json"
    )
    assert (made["name"], made["message"], made["actor_id"]) == ("v1", "first\nmore", "ada")
    assert desk("tag", "create", "v2") == [f"created tag v2 at {desk.head}"]
    listed = desk("tag", "list", "--json")["tags"]
    assert [(one["name"], one["graph_commit_id"]) for one in listed] == [
        ("v1", made["graph_commit_id"]),
        ("v2", desk.head),
    ]
    lines = desk("tag", "list")
    assert lines[0].startswith(f"v1  {made['graph_commit_id']}  ")
    assert lines[0].endswith("  ada  first …")
    query = "query q() { match { $p: P } return { $p.k } }"
    rows = desk("query", "-e", query, "--snapshot", "v1", "--json")
    assert rows["rows"] == [{"p.k": "a"}]
    assert desk("tag", "delete", "v1", "--json")["name"] == "v1"
    assert [one["name"] for one in desk("tag", "list", "--json")["tags"]] == ["v2"]


def test_what_is_wrong_with_a_tag_is_said(desk):
    desk("tag", "create", "v1")
    desk("tag", "create", "release")
    assert desk("tag", "create", "v1", "--json", code=1)["code"] == "already-exists"
    assert desk("tag", "delete", "relaese", code=1) == [
        "error: tag 'relaese' does not exist",
        "hint: did you mean 'release'?",
    ]
    assert desk("branch", "create", "v1", code=1)[0].startswith("error: there is a tag 'v1'")
    (desk.folder / "g.omni/_refs/tags/odd.json").write_text("[]")
    listed = desk("tag", "list", "--json")
    assert [one["name"] for one in listed["unreadable"]] == ["odd"]
    assert "odd  (unreadable" in desk("tag", "list")[-1]
    desk("tag", "delete", "odd")
    assert "unreadable" not in desk("tag", "list", "--json")


def test_unmerged_work_is_deleted_by_force_only_and_can_be_brought_back(desk):
    desk("branch", "create", "side")
    query = 'query q() { insert P { k: "s" } }'
    desk("mutate", "-e", query, "--branch", "side")
    refused = desk("branch", "delete", "side", "--json", code=1)
    assert (refused["code"], refused["commits"]) == ("unmerged-branch", 1)
    assert desk("branch", "delete", "side", code=1)[-1].endswith("(`--force`)")
    desk("branch", "delete", "side", "--force", "--as", "ada")
    (found,) = desk("branch", "list", "--deleted", "--json")["deleted"]
    assert (found["name"], found["actor_id"]) == ("side", "ada")
    (line,) = desk("branch", "list", "--deleted")
    assert line.startswith(f"side  {found['branch_id']}  {found['head_commit_id']}  ")
    done = desk("branch", "restore", "side", "--name", "back", "--json")
    assert (done["name"], done["head_commit_id"]) == ("back", found["head_commit_id"])
    assert desk("branch", "list") == ["back", "main"]
    assert desk("branch", "restore", "side", code=1)[0].startswith("error: there is no deleted")
