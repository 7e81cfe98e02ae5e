"""Merging, differences, the change feed, blame and undoing, on the command line."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.cli.main import entry

SCHEMA = """node Person {
    name: String @key
    age: I32?
}
"""
SET = "query s($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
ADD = "query s($n: String, $a: I32) { insert Person { name: $n, age: $a } }"


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    """A graph with one person, and a way to run commands on it: JSON out, or the lines."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA) as graph:
        graph.load('{"type":"Person","data":{"name":"Ada","age":36}}', mode="append", actor="eve")

    def run(*words, code=0, human=False):
        capsys.readouterr()
        flags = ["--quiet"] if human else ["--quiet", "--json"]
        assert entry([*map(str, words), "--store", uri, *flags]) == code
        out, err = capsys.readouterr()
        if human:
            return (out or err).splitlines()
        return json.loads(out if code == 0 else err.splitlines()[-1])

    def write(query, name, age, branch="main"):
        params = json.dumps({"n": name, "a": age})
        done = run("mutate", "-e", query, "--params", params, "--branch", branch)
        return done["commit"]["graph_commit_id"]

    run.write, run.folder = write, tmp_path
    return run


def test_a_merge_can_be_looked_at_before_it_is_made(desk):
    desk("branch", "create", "side")
    desk.write(ADD, "Grace", 45, branch="side")
    seen = desk("branch", "merge", "side", "--preview")
    assert (seen["outcome"], seen["changes"]["node:Person"]["inserted"]) == ("fast_forward", 1)
    assert desk("branch", "merge", "side", "--preview", human=True) == [
        "would merge side into main: fast_forward",
        "  node type 'Person': 1 inserted",
    ]
    done = desk("branch", "merge", "side", "--delete-branch")
    assert (done["outcome"], done["branch_deleted"]) == ("fast_forward", True)
    assert desk("branch", "list") == {"branches": ["main"]}


def test_conflicts_are_all_listed_and_can_be_settled_by_a_strategy(desk):
    desk("branch", "create", "side")
    desk.write(SET, "Ada", 37, branch="side")
    desk.write(SET, "Ada", 38)
    refused = desk("branch", "merge", "side", code=1)
    assert refused["code"] == "merge-conflicts"
    assert [(one["kind"], one["entity_id"]) for one in refused["conflicts"]] == [
        ("divergent_update", "Ada")
    ]
    preview = desk("branch", "merge", "side", "--preview", human=True)
    assert preview[-1].endswith("node Person Ada  age       36    38    37")
    assert desk("branch", "merge", "side", "--strategy", "theirs")["outcome"] == "merged"
    assert desk("diff", "side", "main")["changes"] == []


def test_a_difference_is_shown_entity_by_entity(desk):
    desk("branch", "create", "side")
    desk.write(SET, "Ada", 37, branch="side")
    desk.write(ADD, "Grace", 45, branch="side")
    assert desk("diff", "main", "side", human=True) == [
        "~ node Person Ada",
        "    age: 36 → 37",
        "+ node Person Grace",
    ]
    only = desk("diff", "main", "side", "--op", "insert")
    assert [change["id"] for change in only["changes"]] == ["Grace"]
    assert desk("diff", "main", "main", human=True) == ["no difference"]


def test_what_a_commit_did_comes_with_its_images_and_in_pages(desk):
    commit = desk.write(SET, "Ada", 37)
    found = desk("commit", "changes", commit)
    assert found["cause"]["graph_commit_id"] == commit
    assert [(one["op"], one["before"]["properties"]["age"]) for one in found["changes"]] == [
        ("update", 36)
    ]
    lines = '{"type":"Person","data":{"name":"B"}}\n{"type":"Person","data":{"name":"C"}}'
    (desk.folder / "two.jsonl").write_text(lines)
    loaded = desk("load", "--data", desk.folder / "two.jsonl", "--mode", "append")
    two = loaded["commit"]["graph_commit_id"]
    first = desk("commit", "changes", two, "--limit", "1")
    rest = desk("commit", "changes", two, "--page-token", first["next_page_token"])
    assert [one["id"] for page in (first, rest) for one in page["changes"]] == ["B", "C"]


def test_a_follower_starts_from_a_baseline_and_misses_nothing(desk):
    out = desk.folder / "base.jsonl"
    start = desk("changes", "baseline", "--out", out)
    assert [json.loads(line)["data"]["id"] for line in out.read_text().splitlines()] == ["Ada"]
    commit = desk.write(ADD, "Grace", 45)
    page = desk("changes", "poll", "--cursor", start["resume_cursor"])
    assert page["caught_up"] is True
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == [commit]
    assert desk("changes", "poll", "--cursor", page["cursor"])["blocks"] == []
    refused = desk("changes", "poll", "--cursor", "nonsense", code=1)
    assert "change cursor rejected" in refused["error"]


def test_an_entity_tells_who_made_it_what_it_is(desk):
    desk.write(SET, "Ada", 37)
    versions = desk("entity", "history", "node", "Person", "Ada")["versions"]
    assert [(one["op"], one["actor_id"]) for one in versions] == [
        ("update", None),
        ("insert", "eve"),
    ]
    assert desk("entity", "history", "node", "Person", "Nobody", code=1)["code"] == "not-found"


def test_a_commit_can_be_undone_by_another(desk):
    commit = desk.write(SET, "Ada", 37)
    assert desk("commit", "revert", commit)["changes"]["node:Person"]["updated"] == 1
    query = "query q() { match { $p: Person } return { $p.age } }"
    assert desk("query", "-e", query)["rows"] == [{"p.age": 36}]


def test_a_write_with_a_key_happens_once(desk):
    desk("branch", "create", "side")
    desk.write(ADD, "Grace", 45, branch="side")
    data, schema = desk.folder / "d.jsonl", desk.folder / "s.pg"
    data.write_text('{"type":"Person","data":{"name":"Alan"}}\n')
    schema.write_text(SCHEMA + "node Robot { name: String @key }\n")
    params = json.dumps({"n": "Edsger", "a": 72})
    writes = (
        ("mutate", "-e", ADD, "--params", params),
        ("load", "--mode", "append", "--data", data),
        ("branch", "merge", "side", "--delete-branch"),
        ("schema", "apply", "--schema", schema),
    )
    for number, words in enumerate(writes):
        first = desk(*words, "--idempotency-key", f"k{number}")
        again = desk(*words, "--idempotency-key", f"k{number}")
        assert again == {**first, "already_applied": True}
        lines = desk(*words, "--idempotency-key", f"k{number}", human=True)
        assert any("already applied" in line for line in lines)
    refused = desk("mutate", "-e", ADD, "--idempotency-key", "k1", code=1)
    assert refused["code"] == "idempotency-key-reused"
    assert len(desk("commit", "list")["commits"]) == 2 + len(writes)
