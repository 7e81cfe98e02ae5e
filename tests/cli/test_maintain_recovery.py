"""`omnigraph recovery`: a person deals with what recovery left in place."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.cli.main import entry

SCHEMA = "node Person { name: String @key }\n"
JUNK = "01JUNK"


@pytest.fixture
def graph(tmp_path):
    """A graph with one sidecar that nobody can read."""
    uri = tmp_path / "g.omni"
    Graph.init(str(uri), SCHEMA).close()
    folder = uri / "__recovery"
    folder.mkdir(exist_ok=True)
    (folder / f"{JUNK}.json").write_text("{ not json")
    return str(uri)


def said(capsys, *words, code=0):
    capsys.readouterr()
    assert entry([*words, "--json"]) == code
    out, err = capsys.readouterr()
    return json.loads(out if code == 0 else err.splitlines()[-1])


def test_an_unreadable_sidecar_is_listed_and_shown(graph, capsys):
    listed = said(capsys, "recovery", "list", graph)
    assert [one["operation_id"] for one in listed["pending"]] == [JUNK]
    assert listed["recoveries"] == []
    shown = said(capsys, "recovery", "show", JUNK, "--uri", graph)
    assert shown["body"] == "{ not json"


def test_it_is_only_dropped_when_told_to_and_that_is_on_record(graph, capsys):
    refused = said(capsys, "recovery", "resolve", JUNK, "--uri", graph, code=1)
    assert refused["code"] == "recovery-required"
    assert refused["operation_id"] == JUNK
    done = said(capsys, "recovery", "resolve", JUNK, "--discard", "--uri", graph)
    assert (done["operation_id"], done["recovery_kind"]) == (JUNK, "Discarded")
    listed = said(capsys, "recovery", "list", graph)
    assert listed["pending"] == []
    assert [one["operation_id"] for one in listed["recoveries"]] == [JUNK]


def test_resolving_twice_tells_how_it_was_resolved(graph, capsys):
    first = said(capsys, "recovery", "resolve", JUNK, "--discard", "--uri", graph)
    assert said(capsys, "recovery", "resolve", JUNK, "--uri", graph) == first


@pytest.mark.parametrize("name", ["01NOPE", "../__manifest/x", "../../g.omni/__recovery/01JUNK"])
def test_an_operation_id_is_a_name_and_never_a_path(graph, capsys, name):
    refused = said(capsys, "recovery", "resolve", name, "--discard", "--uri", graph, code=1)
    assert refused["code"] == "not-found"


def test_reads_go_on_while_it_is_there(graph, capsys):
    assert said(capsys, "branch", "list", "--uri", graph) == {"branches": ["main"]}
