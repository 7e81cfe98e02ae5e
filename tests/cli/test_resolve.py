"""Conflicts of a merge on the command line: shown, written to a file, resolved, asked about."""

from __future__ import annotations

import json

import pytest
import yaml

from omnigraph import Graph
from omnigraph.cli.main import entry

SCHEMA = "node P { k: String @key  a: I32?  b: String?  day: Date? }"


def lines(*records):
    return "\n".join(json.dumps({"type": "P", "data": record}) for record in records)


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    """Main and `side` disagree about x (a, b) and z, which `side` has deleted."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with Graph.init("g.omni", SCHEMA, durability="process") as graph:
        graph.load(lines({"k": "x", "a": 1}, {"k": "z", "a": 1}), mode="append")
        graph.create_branch("side")
        graph.load(lines({"k": "x", "a": 3, "b": "t"}), mode="merge", branch="side")
        graph.mutate('query q() { delete P where k = "z" }', branch="side")
        graph.load(lines({"k": "x", "a": 2, "b": "o"}, {"k": "z", "a": 2}), mode="merge")

    def run(*words, code=0):
        capsys.readouterr()
        assert entry([*words, "--store", "g.omni", "--quiet"]) == code
        out, err = capsys.readouterr()
        text = out if code == 0 else err
        return json.loads(text) if "--json" in words else text.splitlines()

    def rows():
        with Graph.open("g.omni") as graph:
            found = [json.loads(line)["data"] for line in graph.export()]
        return {row["k"]: (row["a"], row["b"]) for row in found}

    run.folder, run.rows = tmp_path, rows
    return run


TABLE = [
    "conflict          entity    property  base  ours  theirs",
    "----------------  --------  --------  ----  ----  ---------",
    "divergent_update  node P x  a         1     2     3",
    "                            b         null  o     t",
    "delete_vs_update  node P z  a         1     2     (deleted)",
]


def test_conflicts_are_a_table_in_a_preview_and_when_a_merge_fails(desk):
    assert desk("branch", "merge", "side", "--preview") == [
        "would merge side into main: conflict",
        *TABLE,
    ]
    told = desk("branch", "merge", "side", code=1)
    assert told[1:-1] == [f"  {line}" for line in TABLE]
    assert told[-1].startswith("hint: settle them with --interactive")
    body = desk("branch", "merge", "side", "--json", code=1)
    assert body["conflicts"][0]["properties"][0] == {
        "property": "a",
        "base": 1,
        "ours": 2,
        "theirs": 3,
    }


@pytest.mark.parametrize("name", ["c.json", "c.yaml"])
def test_a_file_of_conflicts_is_filled_in_and_merged_with(desk, name):
    assert desk("branch", "merge", "side", "--write-conflicts", name)[-1] == (
        f"wrote 2 conflicts to {name}"
    )
    path = desk.folder / name
    facts = yaml.safe_load(path.read_text())
    assert [one["resolve"] for one in facts["conflicts"]] == [None, None]
    desk("branch", "merge", "side", "--resolve", name, code=1)
    facts["conflicts"][0]["resolve"] = {"a": 40, "b": {"take": "theirs"}}
    facts["conflicts"][1]["resolve"] = "ours"
    path.write_text(json.dumps(facts) if name == "c.json" else yaml.safe_dump(facts))
    shown = desk("branch", "merge", "side", "--resolve", name, "--preview", "--json")
    assert (shown["outcome"], shown["conflicts"]) == ("merged", [])
    assert desk.rows()["x"] == (2, "o")
    done = desk("branch", "merge", "side", "--resolve", name, "--delete-branch", "--json")
    assert (done["outcome"], done["branch_deleted"]) == ("merged", True)
    assert desk.rows() == {"x": (40, "t"), "z": (2, None)}


def test_what_was_decided_is_kept_in_the_file_of_what_is_left(desk):
    facts = [{"entity_kind": "node", "type_name": "P", "entity_id": "x", "resolve": {"a": 4}}]
    (desk.folder / "r.json").write_text(json.dumps(facts))
    desk("branch", "merge", "side", "--resolve", "r.json", "--write-conflicts", "w.json")
    left = json.loads((desk.folder / "w.json").read_text())["conflicts"]
    assert [(one["entity_id"], one["resolve"]) for one in left] == [("x", {"a": 4}), ("z", None)]


ITEM = '{"entity_kind": "node", "type_name": "P", "entity_id": "x", "resolve": "ours"}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON"),
        ("a: [", "is not valid YAML"),
        ("a: 2026-13-45", "is not valid YAML"),  # no such day
        ("7", "holds no list of conflicts"),
        ('{"conflicts": {}}', "holds no list of conflicts"),
        ("[7]", "item 1: an item needs"),
        (ITEM.replace("node", "nodes").join("[]"), "item 1: an item needs"),
        (ITEM.replace("resolve", "solve").join("[]"), "'resolve: null' leaves"),
        (f"[{ITEM}, {ITEM}]", "item 2: the entity 'x' is there twice"),
        (ITEM.replace('"x"', '"y"').join("[]"), "node P 'y', which is in no conflict"),
        (ITEM.replace('"ours"', '"mine"').join("[]"), "must be 'ours', 'theirs' or values"),
    ],
)
def test_what_is_wrong_with_a_file_of_resolutions_is_said(desk, text, words):
    (desk.folder / "r").write_text(text)
    assert words in desk("branch", "merge", "side", "--resolve", "r", code=1)[0]


def test_a_missing_file_and_contradicting_options_are_said(desk):
    assert (
        "cannot read resolutions" in desk("branch", "merge", "side", "--resolve", "no", code=1)[0]
    )
    for more in (["--interactive"], ["--delete-branch"], ["-m", "why"]):
        told = desk("branch", "merge", "side", "--preview", *more, code=2)
        assert "cannot be used with" in told[-1]


# --- asked ---


@pytest.fixture
def asked(desk, monkeypatch):
    """Merge with these answers typed at a terminal."""

    def run(*answers, code=0):
        typed = iter(answers)
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: next(typed))
        told = desk("branch", "merge", "side", "--interactive", code=code)
        assert list(typed) == []
        return told

    return run


@pytest.mark.parametrize(
    ("answers", "rows"),
    [
        (["o", "t", "o"], {"x": (2, "t"), "z": (2, None)}),
        (["e", "41", "e", "plain text", "?", "", "t"], {"x": (41, "plain text")}),
        (["THEIRS", "ours", "ours"], {"x": (3, "o"), "z": (2, None)}),
    ],
)
def test_each_conflict_is_asked_about(desk, asked, answers, rows):
    told = asked(*answers)
    assert any("1 of 2: divergent update for id 'x'" in line for line in told)
    assert desk.rows() == rows


def test_what_is_skipped_stays_a_conflict_and_leaving_merges_nothing(desk, asked):
    told = asked("s", "o", code=1)
    assert "divergent update for id 'x'" in told[0]
    asked("o", "q", code=130)
    assert desk.rows() == {"x": (2, "o"), "z": (2, None)}


def test_nobody_is_asked_without_a_terminal(desk):
    told = desk("branch", "merge", "side", "--interactive", code=1)
    assert told[0] == "error: --interactive needs a terminal"
