"""`omnigraph query` and `mutate`: how they are asked, what they return, scripts of one commit."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.cli.main import entry

SCRIPT = """
query add($name: String) { insert Person { name: $name } as $p  returning { $p.name, $p.age } }
query all() { match { $p: Person } return { count(*) as n } }
query drop() { delete Person where name = "Ada" }
"""


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    uri = str(tmp_path / "g.omni")
    with Graph.init(
        uri, "node Person { name: String @key  age: I32?  @range(age, 0..9) }"
    ) as graph:
        graph.load('{"type":"Person","data":{"name":"Ada","age":3}}', mode="append")

    def go(*args, code=0, verb="mutate"):
        capsys.readouterr()
        assert entry([verb, "--store", uri, *args]) == code
        out, err = capsys.readouterr()
        return err if code else out

    go.uri = uri
    return go


def test_rows_and_ids_are_shown(run):
    text = 'query q() { upsert Person { name: "Eve", age: 1 } as $p returning { $p.name, $p.age } }'
    told = json.loads(run("-e", text, "--json"))
    assert (told["ids"], told["rows"]) == (["Eve"], [{"p.name": "Eve", "p.age": 1}])
    out = run("-e", text.replace("1", "2"))
    assert "p.name" in out
    assert "Eve" in out


def test_a_script_is_one_commit(run, tmp_path):
    script = tmp_path / "script.gq"
    script.write_text(SCRIPT)
    params = json.dumps({"name": "Eve"})
    args = ("--file", str(script), "--transaction", "--params", params, "-m", "why")
    told = json.loads(run(*args, "--json"))
    assert [one["query_name"] for one in told["results"]] == ["add", "all", "drop"]
    assert told["results"][1]["rows"] == [{"n": 2}]
    with Graph.open(run.uri) as graph:
        newest = graph.commits()[0]
        assert (newest.graph_commit_id, newest.message) == (
            told["commit"]["graph_commit_id"],
            "why",
        )
        assert len(graph.commits()) == 3


def test_a_script_that_fails_leaves_nothing(run, tmp_path):
    script = tmp_path / "script.gq"
    script.write_text(SCRIPT + 'query bad() {\n  insert Person { name: "Bob", age: 99 }\n}\n')
    params = json.dumps({"name": "Eve"})
    args = ("--file", str(script), "--transaction", "--params", params)
    err = run(*args, code=1)
    assert "Person.age" in err
    assert "statement 1 of mutation 3 (line 6)" in err
    with Graph.open(run.uri) as graph:
        assert len(graph.commits()) == 2


NAMED = (
    "query q($name: String, $age: I32?) "
    "{ match { $p: Person { name: $name } } return { $p.age, $age } }"
)


def test_parameters_may_be_given_one_by_one(run):
    rows = json.loads(run("-e", NAMED, "-p", "name=Ada", "-p", "$age=5", "--json", verb="query"))
    assert rows["rows"] == [{"p.age": 3, "age": 5}]
    params = json.dumps({"name": "Nobody", "age": 1})
    rows = json.loads(
        run("-e", NAMED, "--params", params, "-p", "name=Ada", "--json", verb="query")
    )
    assert rows["rows"] == [{"p.age": 3, "age": 1}]
    assert "-p takes NAME=VALUE, got 'name'" in run("-e", NAMED, "-p", "name", code=2, verb="query")


def test_a_text_need_not_be_called_a_query(run):
    rows = json.loads(run("-e", "MATCH { $p: Person } return { $p.name }", "--json", verb="query"))
    assert rows["rows"] == [{"p.name": "Ada"}]
    assert json.loads(run("-e", 'insert Person { name: "Eve" }', "--json"))["affected_nodes"] == 1


COUNT = "match { $p: Person } return { count(*) as n }"


@pytest.mark.parametrize(
    "words",
    [
        ("$G", "-e", COUNT),
        ("q", "$G", "-e", COUNT),
        ("$G", "q", "-e", COUNT),
        ("--store", "$G", "q", "-e", COUNT),
        ("-e", COUNT, "q", "--uri", "$G"),
    ],
)
def test_the_graph_may_stand_before_or_after_the_name(run, words, capsys):
    assert entry(["query", *(word.replace("$G", run.uri) for word in words), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"n": 1}]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("a.omni", "b.omni"), 2, "'a.omni' and 'b.omni' are two graphs"),
        (("a", "b", "c"), 2, "an argument too many: 'c'"),
        (("a.omni", "--uri", "b"), 2, "cannot be used with"),
        (("folder",), 1, "no graph addressed: 'folder' is taken for the name of a query"),
    ],
)
def test_words_that_cannot_be_told_apart_are_refused(
    tmp_path, monkeypatch, capsys, words, code, text
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    (tmp_path / "folder").mkdir()
    assert entry(["query", *words, "-e", COUNT]) == code
    assert text in capsys.readouterr().err


def test_every_command_on_a_graph_takes_it_as_its_last_argument(run, capsys):
    for words in (
        ("branch", "create", "b"),
        ("branch", "list"),
        ("tag", "create", "t"),
        ("diff", "main", "b"),
        ("commit", "show", "t"),
        ("entity", "history", "node", "Person", "Ada"),
        ("branch", "merge", "b"),
        ("branch", "delete", "b"),
        ("changes", "poll", "--start", "beginning"),
    ):
        assert entry([*words, run.uri, "--quiet"]) == 0, words
    assert "Ada" in capsys.readouterr().out
