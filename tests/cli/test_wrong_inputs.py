"""Sixty ways to get it wrong: each has its exit code and its reason, and none a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from omnigraph.cli.main import entry

SCHEMA = """node Person {
    name: String @key
    age: I32?
}

edge Knows: Person -> Person
"""
QUERIES = """query all() { match { $p: Person } return { $p.name } }
query by($name: String) { match { $p: Person { name: $name } } return { $p.name } }
query add($name: String, $age: I32) { insert Person { name: $name, age: $age } }
"""
FILES = {
    "s.pg": SCHEMA,
    "q.gq": QUERIES,
    "one.gq": "query all() { match { $p: Person } return { $p.name } }\n",
    "bad.pg": "node Person {\n    name Strin\n}\n",
    "unknown.pg": "node Person { name: Strin @key }\n",
    "bad.gq": "query q() {\n    match { $p Person }\n}\n",
    "good.jsonl": '{"type":"Person","data":{"name":"Ada","age":36}}\n',
    "broken.jsonl": '{"type":"Person","data":{"name":"Ada"}}\n{oops\n',
    "type.jsonl": '{"type":"Robot","data":{"name":"R2"}}\n',
    "field.jsonl": '{"type":"Person","data":{"name":"Ada","height":2}}\n',
    "value.jsonl": '{"type":"Person","data":{"name":"Ada","age":"old"}}\n',
    "edge.jsonl": '{"edge":"Knows","from":"Ada","to":"Nobody"}\n',
    "twice.jsonl": '{"type":"Person","data":{"name":"A"}}\n{"type":"Person","data":{"name":"A"}}\n',
    "list.json": "[1]",
    "latin.gq": b"query caf\xe9() {}",
    "notes.txt": "hello",
    "home/config.yaml": "profiles:\n  broken: { server: a, store: b }\n",
    "badhome/config.yaml": "defaults: [1, 2\n",
    "badout/config.yaml": "defaults: { output: xml }\n",
    "empty/keep": "",
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with the files above and a graph that holds one person."""
    folder = tmp_path_factory.mktemp("desk")
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    graph = str(folder / "g.omni")
    assert entry(["init", "--schema", str(folder / "s.pg"), graph, "--quiet"]) == 0
    data = str(folder / "good.jsonl")
    assert entry(["load", "--data", data, "--mode", "append", graph, "--quiet"]) == 0
    return folder


# (words, exit code, what stderr says); $T is the folder, $G the graph in it.
WRONG = [
    # --- the command line itself ---
    ("", 2, "Usage: omnigraph"),
    ("frobnicate", 2, "No such command 'frobnicate'"),
    ("quer", 2, "No such command 'quer'. Did you mean 'query'?"),
    ("branch frobnicate", 2, "No such command 'frobnicate'"),
    ("snapshot $G --frobnicate", 2, "No such option"),
    ("snapshot $G extra", 2, "Got unexpected extra argument (extra)"),
    ("init $T/new.omni", 2, "Missing option '--schema'"),
    ("load $T/good.jsonl --mode append $G", 2, "Files of data are passed with --data"),
    ("load $G --mode append", 2, "load needs data: pass --data <FILE> or --job <FILE>"),
    ("load $G --data $T/good.jsonl", 2, "load needs --mode, one of: append, merge, overwrite"),
    ("load $G --data $T/good.jsonl --mode replace", 2, "'replace' is not one of"),
    ("query --store $G", 2, "query needs a query: pass --query <FILE> or -e <GQ>"),
    ("query --store $G --query $T/q.gq -e x all", 2, "cannot be used with"),
    ("query --store $G --query $T/q.gq all --branch a --snapshot b", 2, "cannot be used with"),
    ("query --store $G --query $T/q.gq all --json --format csv", 2, "cannot be used with"),
    ("query --store $G --query $T/q.gq all --format xml", 2, "'xml' is not one of"),
    ("commit list $G --limit 0", 2, "0 is not in the range x>=1"),
    ("commit list $G --filter age=3", 2, "'age=3' is not of the form actor=NAME"),
    ("commit show --uri $G", 2, "Missing argument 'REF'"),
    ("snapshot $G --store $G", 2, "cannot be used with"),
    ("fmt", 2, "Missing argument 'FILE...'"),
    ("embed", 2, "embed needs a graph, or --seed, or all of --input, --output and --spec"),
    # --- which graph ---
    ("snapshot", 1, "no graph addressed: `snapshot` needs one"),
    ("snapshot $T/nowhere.omni", 1, "there is no graph at"),
    ("snapshot $T/empty", 1, "there is no graph at"),
    ("snapshot $T/notes.txt", 1, "there is no graph at"),
    ("snapshot ftp://host/g", 1, "ftp"),
    ("snapshot http://localhost:1/g", 1, "is a remote server, not a storage URI"),
    ("snapshot --profile nope", 1, "no profile 'nope'"),
    ("snapshot $G --graph kb", 1, "is already a single graph"),
    ("optimize http://localhost:1/g", 1, "needs direct storage access"),
    ("branch delete x --store s3://bucket/g --json", 1, "refusing destructive `branch delete`"),
    ("cleanup --keep 3 --confirm --store s3://bucket/g --json", 1, "refusing destructive"),
    # --- files ---
    ("init --schema $T/none.pg $T/new.omni", 1, "none.pg': No such file or directory"),
    ("init --schema $T $T/new.omni", 1, "Is a directory"),
    ("load --data $T/none.jsonl --mode append $G", 1, "none.jsonl': No such file or directory"),
    ("query --store $G --query $T/none.gq", 1, "none.gq': No such file or directory"),
    ("query --store $G --query $T/latin.gq", 1, "it is not UTF-8 text"),
    ("query --store $G --query $T/q.gq by --params-file $T/none.json", 1, "No such file"),
    ("fmt $T/notes.txt", 1, "unknown kind of file '.txt'"),
    ("export $G --out $T/none/out.jsonl", 1, "cannot write"),
    # --- schemas and queries ---
    ("init --schema $T/bad.pg $T/new.omni", 1, "/bad.pg:2:10"),
    ("schema plan --schema $T/bad.pg $G", 1, "/bad.pg:2:10"),
    ("schema apply --schema $T/bad.pg $G", 1, "/bad.pg:2:10"),
    ("codegen python --schema $T/bad.pg", 1, "/bad.pg:2:10"),
    ("init --schema $T/unknown.pg $T/new.omni", 1, "Strin"),
    ("init --schema $T/s.pg $G", 1, "graph already initialized at"),
    ("query --store $G --query $T/bad.gq", 1, "bad.gq:2:"),
    ("query --store $G --query $T/q.gq", 1, "contains multiple queries"),
    ("query --store $G --query $T/q.gq nope", 1, "nope"),
    ("query --store $G --query $T/q.gq by", 1, "param 'name': required parameter is missing"),
    ("query --store $G --query $T/q.gq by --params {", 1, "the parameters are not valid JSON"),
    ("query --store $G --query $T/q.gq by --params 7", 1, "must be a JSON object"),
    ('query --store $G --query $T/q.gq by --params {"name":7}', 1, "param 'name': "),
    ('query --store $G --query $T/q.gq by --params {"nam":"x"}', 1, "no such parameter"),
    ("query --store $G --query $T/q.gq add --params {}", 1, "is a mutation"),
    ("mutate --store $G --query $T/one.gq", 1, "is a read query"),
    ("query --store $G -e query·x()·{·match·{·$r:·Robot·}·return·{·$r.name·}·}", 1, "Robot"),
    ("query --store $G --query $T/q.gq all --branch nope", 1, "nope"),
    ("query --store $G --query $T/q.gq all --snapshot 01JUNK", 1, "01JUNK"),
    ("lint --query $T/q.gq", 1, "no graph addressed"),
    ("lint --query $T/bad.gq --schema $T/s.pg", 1, ""),
    # --- data ---
    ("load --data $T/broken.jsonl --mode append $G", 1, "line 2"),
    ("load --data $T/type.jsonl --mode append $G", 1, "Robot"),
    ("load --data $T/rows.csv --mode append $G", 1, "holds the rows of one type"),
    ("query $G -e match·{·$p:·Person·}·return·{·$p.nam·}", 1, "query:1:31"),
    ("query $G -e match·{·$p:·Person·return·{·$p.nam·}", 1, "query:1:20"),
    ("backup $G $T/nowhere.omni", 1, "the graph comes last"),
    ("load --data $T/field.jsonl --mode append $G", 1, "unknown input field 'height'"),
    ("load --data $T/value.jsonl --mode append $G", 1, "age"),
    ("load --data $T/edge.jsonl --mode append $G", 1, "not found"),
    ("load --data $T/twice.jsonl --mode append $G", 1, "'A'"),
    ("load --data $T/good.jsonl --mode append $G", 1, "already exists"),
    ("load --data $T/good.jsonl --mode append --branch nope $G", 1, "nope"),
    # --- branches, commits, maintenance ---
    ("branch create main --uri $G", 1, "main"),
    ("branch create ok --from nope --uri $G", 1, "nope"),
    ("branch delete main --uri $G", 1, "cannot delete branch 'main'"),
    ("branch delete nope --uri $G", 1, "nope"),
    ("branch merge nope --uri $G", 1, "nope"),
    ("commit show 01JUNK --uri $G", 1, "01JUNK"),
    ("cleanup $G", 1, "cleanup requires at least one of keep_versions or older_than"),
    ("cleanup $G --older-than soon", 1, "'soon' is not an age"),
    ("repair $G --force", 1, "repair --force requires --confirm"),
    ("recovery show 01JUNK --uri $G", 1, "01JUNK"),
    ("profile show", 1, "no profile is active"),
]


def words_of(line, folder):
    graph = str(folder / "g.omni")
    return [
        word.replace("$T", str(folder)).replace("$G", graph).replace("·", " ")
        for word in line.split()
    ]


@pytest.mark.parametrize(("line", "code", "text"), WRONG, ids=[line for line, *_ in WRONG])
def test_a_wrong_call_is_refused_with_its_reason(line, code, text, desk, capsys, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_HOME", str(desk / "home"))
    capsys.readouterr()
    found = entry(words_of(line, desk))
    err = capsys.readouterr().err
    assert (found, text in err) == (code, True), err
    assert "Traceback" not in err
    assert "internal" not in err
    assert not (desk / "new.omni").exists()


@pytest.mark.parametrize(
    ("home", "text"),
    [("badhome", "is not valid YAML"), ("badout", "defaults.output is 'xml'")],
)
def test_a_broken_configuration_is_named(home, text, desk, capsys, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_HOME", str(desk / home))
    assert entry(words_of("query --store $G --query $T/one.gq", desk)) == 1
    assert text in capsys.readouterr().err


def test_an_error_in_json_is_one_line_with_its_code(desk, capsys):
    assert entry(words_of("commit show 01JUNK --uri $G --json", desk)) == 1
    out, err = capsys.readouterr()
    body = json.loads(err.splitlines()[-1])
    assert out == ""
    assert body["code"] == "not-found"
    assert body["retryable"] is False
    assert "01JUNK" in body["error"]


def test_a_defect_is_one_line_too(desk, capsys, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr("omnigraph.engine.graph.Graph.open", broken)
    assert entry(words_of("snapshot $G", desk)) == 1
    assert "internal: ZeroDivisionError: by hand" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused_and_left_alone(tmp_path, desk, capsys):
    sealed = tmp_path / "sealed"
    sealed.mkdir(mode=0o500)
    schema = str(desk / "s.pg")
    assert entry(["init", "--schema", schema, str(sealed / "g.omni")]) == 1
    assert "ermission denied" in capsys.readouterr().err
    assert list(sealed.iterdir()) == []


def test_an_interrupt_says_so_and_exits_130(desk, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("omnigraph.engine.graph.Graph.open", interrupted)
    assert entry(words_of("snapshot $G", desk)) == 130
    assert "interrupted" in capsys.readouterr().err


def test_the_graph_of_the_desk_is_as_it_was(desk, capsys):
    capsys.readouterr()
    assert entry(words_of("export $G", desk)) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert records == [{"type": "Person", "data": {"id": "Ada", "name": "Ada", "age": 36}}]
    assert Path(desk / "s.pg").read_text() == SCHEMA
