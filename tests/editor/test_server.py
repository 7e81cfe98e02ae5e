"""A real session with `omnigraph lsp` over standard input and output."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys

import pytest

from omnigraph.cli.main import entry

SCHEMA = "node Person {\n    name: String @key\n    age: I32?\n}\nedge Knows: Person -> Person\n"
QUERY = 'query q() { match { $p: Person  $p.name = "ünï" and $p.nam = "x" } return { $p.age } }\n'


class Session:
    """A client that sends one message after the other and remembers what it was told."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "omnigraph", "lsp", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.number = 0
        self.told: list[dict] = []

    def send(self, method: str, params: object, **more: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def read(self) -> dict:
        size = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        return json.loads(self.process.stdout.read(size))

    def ask(self, method: str, params: object) -> object:
        self.number += 1
        self.send(method, params, id=self.number)
        while True:
            message = self.read()
            if message.get("id") == self.number and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            self.told.append(message)

    def problems(self, uri: str) -> list[dict]:
        """What the server says next about a document."""
        while True:
            message = self.told.pop(0) if self.told else self.read()
            if message.get("method") == "textDocument/publishDiagnostics":
                params = message["params"]
                if params["uri"] == uri:
                    return params["diagnostics"]


@pytest.fixture
def session():
    made = Session()
    made.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    made.send("initialized", {})
    yield made
    made.ask("shutdown", None)
    made.send("exit", None)
    assert made.process.wait(timeout=20) == 0
    made.process.stdin.close()
    made.process.stdout.close()


def opened(session: Session, path, text: str) -> str:
    document = {"uri": path.as_uri(), "languageId": "gq", "version": 1, "text": text}
    session.send("textDocument/didOpen", {"textDocument": document})
    return path.as_uri()


def test_an_editor_is_served_from_opening_to_formatting(session, tmp_path):
    (tmp_path / "s.pg").write_text(SCHEMA)
    uri = opened(session, tmp_path / "q.gq", QUERY)
    (problem,) = session.problems(uri)
    assert (problem["code"], problem["source"]) == ("T6", "omnigraph")
    assert "did you mean `name`?" in problem["message"]
    column = QUERY.index("$p.nam =")
    assert problem["range"]["start"] == {"line": 0, "character": column}

    better = QUERY.replace("$p.nam =", "$p.name =").replace('"ünï" and', '"x" and')
    change = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": better}]}
    session.send("textDocument/didChange", change)
    assert session.problems(uri) == []

    place = {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 35}}
    found = session.ask("textDocument/completion", place)
    assert {item["label"] for item in found["items"]} == {"name", "age", "id"}
    place["position"]["character"] = better.index("Person") + 1
    assert "node Person" in session.ask("textDocument/hover", place)["contents"]["value"]

    options = {"tabSize": 4, "insertSpaces": True}
    (edit,) = session.ask(
        "textDocument/formatting", {"textDocument": {"uri": uri}, "options": options}
    )
    assert edit["newText"].startswith("query q() {\n    match {\n        $p: Person\n")


def test_queries_follow_the_schema_that_is_being_edited(session, tmp_path):
    (tmp_path / "s.pg").write_text(SCHEMA)
    query = "query q() { match { $p: Person } return { $p.city } }"
    uri = opened(session, tmp_path / "q.gq", query)
    assert [each["code"] for each in session.problems(uri)] == ["T6"]
    schema = opened(session, tmp_path / "s.pg", SCHEMA.replace("age: I32?", "city: String?"))
    assert session.problems(schema) == []
    assert session.problems(uri) == []
    wrong = {"uri": schema, "version": 2}
    session.send(
        "textDocument/didChange",
        {"textDocument": wrong, "contentChanges": [{"text": "node Person { name: Strin }"}]},
    )
    (problem,) = session.problems(schema)
    assert "Strin" in problem["message"]


def test_what_needs_the_extra_says_which_install_brings_it(monkeypatch, capsys):
    imported = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.partition(".")[0] in {"pygls", "lsprotocol"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return imported(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "omnigraph.editor.server", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    assert entry(["lsp"]) == 1
    assert "pip install 'omnigraph[lsp]'" in capsys.readouterr().err


def test_the_grammars_can_be_taken_out(tmp_path, capsys):
    assert entry(["lsp", "--grammars", str(tmp_path / "g")]) == 0
    assert (
        json.loads((tmp_path / "g" / "gq.tmLanguage.json").read_text())["scopeName"] == "source.gq"
    )
