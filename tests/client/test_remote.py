"""One graph of this machine and the same graph behind a server: the same calls, values, errors,
and the same output of the command line."""

from __future__ import annotations

import json
import re
import shutil
import socketserver
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving import serving

from omnigraph import Graph, errors
from omnigraph.cli.main import entry
from omnigraph.client.http import Address, refusal
from omnigraph.client.sending import DIRECT, ndjson

# What the tests share is made once, by one worker.
pytestmark = pytest.mark.xdist_group("remote")

SCHEMA = """node Person { name: String @key  age: I32?  born: Date?  photo: Blob? }
edge Knows: Person -> Person { since: Date? }"""
DATA = """{"type":"Person","data":{"name":"ada","age":36,"born":"1990-01-31","photo":"PHOTO"}}
{"type":"Person","data":{"name":"bob","age":40}}
{"edge":"Knows","from":"ada","to":"bob","data":{"since":"2020-02-29"}}
""".replace("PHOTO", "base64:AAECAwQ=")
READ = """query all($n: I32) {
  match { $p: Person  $p.age > $n } return { $p.name, $p.born } order { $p.name }
}"""
ADD = "query add($n: String) { insert Person { name: $n, age: 1 } }"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The same graph twice: its own files, and a copy that is served."""
    folder = tmp_path_factory.mktemp("remote")
    with Graph.init(folder / "near.omni", SCHEMA, durability="process", maintenance=None) as graph:
        graph.load(DATA, mode="append", message="first")
        graph.create_branch("topic")
        graph.mutate(ADD, params={"n": "cyd"}, branch="topic", message="add cyd")
        graph.backup(folder / "far.omni")
    (folder / "q.gq").write_text(READ + "\n")
    options = ("--queries", str(folder / "q.gq"))
    with serving([folder / "far.omni"], *options, folder=folder) as served:
        yield folder, served


@pytest.fixture(scope="module", params=["near", "far"])
def graph(request, places):
    folder, served = places
    if request.param == "near":
        shutil.copytree(folder / "near.omni", folder / "own.omni")
        with Graph.open(_moved(folder / "own.omni"), maintenance=None) as found:
            yield found
    else:
        with Graph.connect(served.url) as found:
            yield found


def _moved(path: Path) -> Path:
    from omnigraph import relocate

    relocate(str(path))
    return path


# --- one suite, run twice -------------------------------------------------------------------------


def test_a_query_gives_typed_rows(graph):
    result = graph.query(READ, params={"n": 10})
    assert result.columns == ["p.name", "p.born"]
    assert [row["p.name"] for row in result] == ["ada", "bob"]
    assert str(result[0]["p.born"]) == "1990-01-31"
    assert result.graph_commit_id == graph.commit("main").graph_commit_id
    assert graph.query(READ, params={"n": 0}, snapshot="topic").row_count == 3
    assert "Person" in str(graph.explain(READ, params={"n": 10}))


def test_the_body_of_a_query_needs_no_name(graph):
    names = "match { $p: Person }\nreturn { $p.name }\norder { $p.name }"
    assert graph.query(names).column("p.name") == ["ada", "bob"]
    assert graph.query(names, "q", snapshot="topic").row_count == 3
    assert "Person" in str(graph.explain(names))
    graph.create_branch("body")
    done = graph.mutate('insert Person { name: "eve" } returning { count(*) as n }', branch="body")
    assert done.affected_nodes == 1
    with pytest.raises(errors.ParseError) as wrong:
        graph.query("match { $p: Person }\nreturn { $p.name } limit 1 }")
    assert (wrong.value.line, wrong.value.column) == (2, 28)
    with pytest.raises(errors.TypeCheckError) as wrong:
        graph.query("match { $p: Person }\nreturn { $p.nam }")
    assert wrong.value.line == 2
    graph.delete_branch("body", force=True)


def test_writes_tell_what_they_did(graph):
    made = graph.create_branch("own")
    assert (made.name, made.parent) == ("own", "main")
    assert made.fork_commit_id == graph.commit("main").graph_commit_id
    assert made.id is not None
    assert abs(made.created_at / 1e6 - time.time()) < 3600
    done = graph.mutate(ADD, params={"n": "dan"}, branch="own", message="dan")
    assert (done.affected_nodes, done.ids, done.commit.message) == (1, ("dan",), "dan")
    loaded = graph.load([{"type": "Person", "data": {"name": "eve"}}], mode="merge", branch="own")
    assert (dict(loaded.nodes), loaded.total_entities) == ({"Person": 1}, 1)
    again = graph.load(
        {"Knows": [{"from": "dan", "to": "eve"}]}, mode="append", branch="made", from_branch="own"
    )
    assert (again.branch_created, again.base_branch) == (True, "own")
    assert [one.id for one in graph.diff("main", "own").changes] == ["dan", "eve"]
    page = graph.commit_changes(done.commit.graph_commit_id)
    assert [(one.op, one.type_name, one.id) for one in page.changes] == [
        ("insert", "Person", "dan")
    ]
    undone = graph.revert(done.commit.graph_commit_id, branch="own")
    assert undone.commit.graph_branch == "own"
    graph.delete_branch("made", force=True)
    merged = graph.merge("own", delete_branch=True)
    assert (merged.outcome, merged.branch_deleted) == ("fast_forward", True)
    assert graph.branches() == ["main", "topic"]


def test_a_key_makes_a_write_happen_once(graph):
    first = graph.mutate(ADD, params={"n": "fay"}, branch="topic", idempotency_key="k1")
    again = graph.mutate(ADD, params={"n": "fay"}, branch="topic", idempotency_key="k1")
    assert first.commit == again.commit
    assert (first.already_applied, again.already_applied) == (False, True)
    with pytest.raises(errors.IdempotencyKeyReusedError):
        graph.mutate(ADD, params={"n": "gus"}, branch="topic", idempotency_key="k1")


def test_history_and_state_are_told(graph):
    commits = graph.commits("topic")
    assert commits[-1].parent_commit_id is None
    assert graph.commits("topic", limit=1) == commits[:1]
    assert graph.commit(commits[0].graph_commit_id) == commits[0]
    sizes = {one.type_name: one.entity_count for one in graph.snapshot("main").datasets}
    assert set(sizes) == {"Person", "Knows"}
    assert graph.entity("node", "Person", "ada").image.properties["age"] == 36
    history = graph.entity_history("node", "Person", "ada")
    assert [one.op for one in history] == ["insert"]
    feed = graph.changes(branch="topic", start="beginning")
    assert feed.caught_up
    assert graph.changes(branch="topic", cursor=feed.cursor).blocks == ()
    assert graph.schema_source() == SCHEMA
    assert graph.lint("query x() { nonsense }").errors == 1
    lines = list(graph.export(types=["Knows"]))
    assert json.loads(lines[0])["edge"] == "Knows"
    baseline = graph.changes_baseline(branch="topic")
    assert len(list(baseline.lines)) >= 4


def test_blobs_are_read_in_ranges(graph):
    blob = graph.read_blob("node", "Person", "ada", "photo")
    assert (blob.size, blob.read(), blob.read_range(1, 3)) == (5, b"\0\1\2\3\4", b"\1\2")
    with pytest.raises(errors.InputError):
        blob.read_range(0, 6)
    with pytest.raises(errors.NotFoundError, match="'nobody'"):
        graph.read_blob("node", "Person", "nobody", "photo")
    with pytest.raises(errors.InputError, match="not a Blob"):
        graph.read_blob("node", "Person", "ada", "name")


FAILURES = {
    "a bad query": (lambda g: g.query("query x() { nonsense }"), errors.ParseError),
    "an unknown type": (
        lambda g: g.query("query x() { match { $p: Nope } return { $p.id } }"),
        errors.TypeCheckError,
    ),
    "a missing parameter": (lambda g: g.query(READ), errors.MissingParameterError),
    "a branch that is not there": (
        lambda g: g.query(READ, params={"n": 1}, branch="gone"),
        errors.NotFoundError,
    ),
    "a tag as a branch": (lambda g: g.mutate(ADD, branch="main~0"), errors.NotFoundError),
    "a commit that is not there": (lambda g: g.commit("0" * 26), errors.NotFoundError),
    "a branch that is there": (lambda g: g.create_branch("topic"), errors.AlreadyExistsError),
    "a stale head": (
        lambda g: g.mutate(ADD, params={"n": "x"}, if_commit="0" * 26),
        errors.PreconditionFailedError,
    ),
    "a record that is there": (lambda g: g.load(DATA, mode="append"), errors.KeyConflictError),
    "a line that is no record": (lambda g: g.load("{", mode="append"), errors.RecordError),
    "an unmerged branch": (lambda g: g.delete_branch("topic"), errors.UnmergedBranchError),
    "a merge with itself": (lambda g: g.merge("main"), errors.InputError),
    "an unknown mode": (lambda g: g.load(DATA, mode="some"), errors.InputError),
    "a blank branch": (lambda g: g.create_branch(" "), errors.InvalidNameError),
    "a key of nothing": (
        lambda g: g.mutate(ADD, params={"n": "x"}, idempotency_key=""),
        errors.InvalidNameError,
    ),
    "a query that the text has not": (lambda g: g.query(READ, "none"), errors.NotFoundError),
    "a history of nothing": (lambda g: g.commits("gone"), errors.NotFoundError),
    "a start that is not there": (lambda g: g.changes(start="after:gone"), errors.NotFoundError),
    "a blob of no type": (lambda g: g.read_blob("node", "No", "a", "b"), errors.NotFoundError),
    "an edge from nobody": (
        lambda g: g.mutate('query q() { insert Knows { from: "x", to: "ada" } }'),
        errors.ConstraintViolationError,
    ),
    "a schema that cannot be": (
        lambda g: g.apply_schema(SCHEMA.replace("born: Date?", "born: Bool?")),
        errors.SchemaUnsupportedError,
    ),
    "an unknown kind": (lambda g: g.diff("main", "topic", kinds=["x"]), errors.InputError),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_of_the_same_class(graph, case):
    deed, kind = FAILURES[case]
    with pytest.raises(kind) as caught:
        deed(graph)
    assert type(caught.value) is kind or kind in (errors.InputError, errors.NotFoundError)
    assert json.loads(json.dumps(caught.value.to_json()))["error"] == caught.value.message
    for one in getattr(caught.value, "violations", ()):
        assert (one.type_name, one.property, one.value) == ("Knows", "src", "x")


def test_conflicts_of_a_merge_are_told_one_by_one(graph):
    edit = 'query e($a: I32) { update Person set { age: $a } where name = "ada" }'
    for branch, age in (("left", 1), ("right", 2)):
        graph.create_branch(branch)
        graph.mutate(edit, params={"a": age}, branch=branch)
    preview = graph.merge_preview("left", "right")
    assert [one.entity_id for one in preview.conflicts] == ["ada"]
    with pytest.raises(errors.MergeConflictsError) as caught:
        graph.merge("left", "right")
    (conflict,) = caught.value.conflicts
    assert (conflict.type_key, conflict.entity_id) == ("node:Person", "ada")
    settled = graph.merge("left", "right", resolutions={("node:Person", "ada"): "theirs"})
    assert settled.outcome == "merged"
    for branch in ("left", "right"):
        graph.delete_branch(branch, force=True)


# --- what only a server's graph has ---------------------------------------------------------------


def test_what_needs_storage_says_so(places):
    with Graph.connect(places[1].url) as graph:
        for name in DIRECT:
            with pytest.raises(errors.InputError, match="needs the graph's own storage"):
                getattr(graph, name)
        with pytest.raises(errors.InputError, match="by your token"):
            graph.mutate(ADD, params={"n": "x"}, actor="ada")
        with pytest.raises(AttributeError):
            _ = graph.no_such_name
        names = [one["name"] for one in graph.stored_queries()]
        assert names == ["all"]
        assert graph.invoke("all", {"n": 10}).row_count >= 2


def test_addresses():
    assert Address.of("http://h:1/graphs/a", None) == Address(server="http://h:1", graph_id="a")
    assert Address.of("https://h/x/", "b") == Address(server="https://h/x", graph_id="b")
    for url, graph in (("ftp://h", None), ("h:1", None), ("http://u:p@h", None)):
        with pytest.raises(errors.InputError):
            Address.of(url, graph)
    with pytest.raises(errors.InputError, match="names the graph"):
        Address.of("http://h/graphs/a", "b")


def test_a_server_that_is_not_there_is_unavailable_and_a_lost_write_unknown():
    with pytest.raises(errors.ServerUnavailableError) as caught:
        Graph.connect("http://127.0.0.1:9", graph="g").branches()
    assert caught.value.retryable
    assert str(caught.value).endswith("127.0.0.1:9: connection refused")


@contextmanager
def somebody_else(said):
    """Whoever answers everything with the same bytes, and what tells that the caller hung up."""
    gone = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            self.request.recv(65_536)
            self.wfile.write(said)
            while self.request.recv(65_536):
                pass
            gone.set()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address
        yield Graph.connect(f"http://{host}:{port}", graph="a", timeout=10), gone
        server.shutdown()


@pytest.mark.parametrize(
    ("said", "read", "written"),
    [
        (b"301 Moved\r\nLocation: https://a.example/", errors.InputError, errors.InputError),
        (b"302 Found\r\nLocation: /login", errors.InputError, errors.InputError),
        (
            b"200 OK\r\nContent-Type: text/html",
            errors.ServerUnavailableError,
            errors.OutcomeUnknownError,
        ),
        (b"204 No Content", errors.ServerUnavailableError, errors.OutcomeUnknownError),
    ],
)
def test_what_somebody_else_answers_is_neither_data_nor_a_write_that_was_done(said, read, written):
    calls = (lambda g: g.branches(), lambda g: list(g.export()), lambda g: g.query(READ))
    for call in (*calls, lambda g: g.delete_branch("topic"), lambda g: g.mutate(ADD)):
        with somebody_else(b"HTTP/1.1 " + said + b"\r\nContent-Length: 0\r\n\r\n") as (graph, _):
            with pytest.raises(read if call in calls else written) as caught:
                call(graph)
            assert "it is no OmniGraph" in str(caught.value) or "elsewhere" in str(caught.value)


def test_an_export_that_is_given_up_ends_at_the_server_too():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked"
    with somebody_else(head + b"\r\n\r\n3\r\na\nb\r\n") as (graph, gone):
        lines = graph.export()
        assert next(lines) == "a"
        lines.close()
        assert gone.wait(5)


def test_data_becomes_lines():
    assert ndjson("a\nb") == b"a\nb"
    assert ndjson(["a\n", b"b"]) == b"a\nb"
    assert ndjson({"P": [{"x": 1}]}) == b'{"type":"P","data":{"x":1}}'
    assert ndjson({"E": [{"src": 7, "dst": "b"}]}) == (
        b'{"edge":"E","from":"7","to":"b","data":{}}'
    )
    with pytest.raises(errors.InputError):
        ndjson(7)


def test_a_write_whose_answer_a_proxy_lost_may_have_been_made():
    assert type(refusal(504, b"<html>", reads=False)) is errors.OutcomeUnknownError
    assert type(refusal(504, b"<html>", reads=True)) is errors.ServerUnavailableError
    assert type(refusal(404, b"<html>", reads=False)) is errors.NotFoundError


@pytest.mark.parametrize("token", ["", " ", "a\nb"])
def test_a_token_that_no_header_can_carry_is_refused(token):
    with pytest.raises(errors.InputError, match="token"):
        Graph.connect("http://127.0.0.1:9", graph="g", token=token)


def test_a_stored_query_is_listed_and_has_an_alias(places, tmp_path, capfd, monkeypatch):
    _, served = places
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    told = {"server": "far", "query": "all", "args": ["n"], "format": "jsonl"}
    config = {"servers": {"far": {"url": served.url}}, "aliases": {"people": told, "odd": {}}}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    assert entry(["alias", "people", "38"]) == 0
    assert '{"p.name":"bob"' in capfd.readouterr().out.replace(" ", "")
    assert entry(["queries", "list", "--server", "far", "--json"]) == 0
    (one,) = json.loads(capfd.readouterr().out)["queries"]
    assert (one["name"], one["mcp_expose"], one["mutation"]) == ("all", True, False)
    wrong = (["nobody"], 1), (["odd"], 1), (["people", "1", "2"], 2), (["people", "x"], 1)
    assert [entry(["alias", *words]) for words, _ in wrong] == [code for _, code in wrong]


# --- the command line, twice ----------------------------------------------------------------------

SCRUBBED = re.compile(
    r'"(\w*commit_id|snapshot_commit_id|resolved_snapshot|created_at|authored_at|uri|cursor|'
    r"resume_cursor|next_page_token|graph_manifest_version|manifest_version|took_ms|dataset_path|"
    r"published_dataset_version|native_dataset_branch|expected|actual|idempotency_key|"
    r'merged_parent_commit_id)": ("[^"]*"|[0-9.]+|null)'
)
COMMIT = re.compile(r"\b0[0-9A-HJKMNP-TV-Z]{25}\b")

VERBS = [
    ["query", "-e", READ, "-p", "n=10"],
    ["query", "-e", READ, "-p", "n=10", "--branch", "topic"],
    ["query", "-e", READ, "--snapshot", "main~1", "-p", "n=1"],
    ["schema", "show"],
    ["snapshot"],
    ["snapshot", "--branch", "topic"],
    ["branch", "list"],
    ["branch", "create", "b1"],
    ["mutate", "-e", ADD, "-p", "n=zed", "--branch", "b1", "-m", "zed"],
    ["mutate", "-e", ADD, "-p", "n=zed2", "--branch", "b1", "--idempotency-key", "kk"],
    ["mutate", "-e", ADD, "-p", "n=zed2", "--branch", "b1", "--idempotency-key", "kk"],
    ["load", "--data", "FILE", "--mode", "merge", "--branch", "b1"],
    ["load", "--data", "FILE", "--mode", "merge", "--branch", "b2", "--from", "b1"],
    ["commit", "list", "--branch", "b1"],
    ["commit", "list", "--limit", "1"],
    ["commit", "show", "b1"],
    ["commit", "changes", "b1~1"],
    ["diff", "main", "b1"],
    ["diff", "main", "b1", "--kind", "node"],
    ["changes", "poll", "--branch", "b1", "--start", "beginning"],
    ["entity", "history", "node", "Person", "ada"],
    ["export", "--branch", "b1"],
    ["export", "--type", "Knows"],
    ["blob", "stat", "node", "Person", "ada", "photo"],
    ["blob", "get", "node", "Person", "ada", "photo", "--offset", "1", "--length", "2"],
    ["branch", "merge", "b1", "--into", "b2", "--preview"],
    ["branch", "merge", "b1", "--into", "main"],
    ["schema", "apply", "--schema", "PG"],
    ["lint", "--query", "GQ"],
    ["queries", "list", "--queries", "GQ"],
    ["queries", "validate", "--queries", "GQ"],
    ["branch", "delete", "b1", "--yes"],
    ["branch", "delete", "b2", "--force", "--yes"],
    ["commit", "revert", "main", "--branch", "topic"],
    # failures
    ["query", "-e", "query x() { nonsense }"],
    ["query", "-e", READ],
    ["query", "-e", READ, "-p", "n=1", "--branch", "gone"],
    ["mutate", "-e", ADD, "-p", "n=x", "--if-commit", "0" * 26],
    ["branch", "delete", "gone", "--yes"],
    ["branch", "create", "topic"],
    ["load", "--data", "FILE", "--mode", "append"],
    ["commit", "show", "0" * 26],
    ["diff", "main", "gone"],
    ["schema", "apply", "--schema", "BAD"],
    ["queries", "validate", "--queries", "BROKEN"],
    ["queries", "validate"],
]


def scrubbed(text: str, *places: str) -> str:
    for place in places:
        text = text.replace(place, "PLACE")
    return COMMIT.sub("COMMIT", SCRUBBED.sub(r'"\1": ?', text))


def test_the_command_line_says_the_same_of_both(places, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    folder, _ = places
    with Graph.open(folder / "near.omni", maintenance=None) as graph:
        graph.backup(tmp_path / "one.omni")
        graph.backup(tmp_path / "two.omni")
    files = {
        "FILE": (tmp_path / "data.jsonl", '{"type":"Person","data":{"name":"ada","age":37}}\n'),
        "PG": (tmp_path / "new.pg", SCHEMA.replace("age: I32?", "age: I32?  nick: String?")),
        "BAD": (tmp_path / "bad.pg", "node {"),
        "GQ": (tmp_path / "x.gq", READ),
        "BROKEN": (tmp_path / "broken.gq", READ + READ.replace("all", "b").replace("age", "old")),
    }
    for path, text in files.values():
        path.write_text(text)
    wrong = []
    with serving([tmp_path / "two.omni"], folder=tmp_path) as far:
        for words in VERBS:
            words = [str(files[word][0]) if word in files else word for word in words]
            said = []
            for scope in (
                ["--store", str(tmp_path / "one.omni")],
                ["--server", far.url, "--graph", "two"],
            ):
                json_flag = (
                    [] if words[0] == "export" or words[:2] == ["blob", "get"] else ["--json"]
                )
                code = entry([*scope, *words, *json_flag, "--quiet"])
                told = capfd.readouterr()
                out = scrubbed(
                    told.out, str(tmp_path / "one.omni"), f"{far.url}/graphs/two", far.url
                )
                said.append((code, out))
            if said[0] != said[1]:
                wrong.append((words, *said))
    assert len(VERBS) >= 20
    assert wrong == []
