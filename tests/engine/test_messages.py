"""What users read names types, branches and commits, never how they are stored."""

from __future__ import annotations

import json
import re

import lance
import pytest

from omnigraph import Graph
from omnigraph.errors import OmnigraphError

SCHEMA = "node P { k: String @key  v: I32? }\nnode Q { k: String @key }\nedge E: P -> Q"
READ = "query q() { match { $p: P } return { $p.k } }"
WRITE = 'query w() { insert P { k: "z" } }'
STORAGE_WORDS = re.compile(
    r"\b(tables?|manifest|dataset|fragments?|lance|version \d+|nodes/|edges/|[0-9a-f]{16})\b",
    re.IGNORECASE,
)


def row(key, kind="P"):
    return json.dumps({"type": kind, "data": {"k": key}})


@pytest.fixture
def graph(tmp_path):
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process", maintenance=None) as graph:
        for key in "abcd":
            graph.load(row(key), mode="append")
        yield graph


def cleaned(graph):
    commits = [commit.graph_commit_id for commit in graph.commits()]
    graph.cleanup(keep_versions=1)
    return commits[2]


def dropped(graph):
    graph.load(row("q", "Q"), mode="append")
    before = graph.snapshot().graph_commit_id
    graph.apply_schema("node P { k: String @key  v: I32? }", allow_data_loss=True)
    return before


def drifted(graph):
    entry = graph.snapshot().entries["node:P"]
    lance.dataset(f"{graph.uri}/{entry.dataset_path}").delete("k = 'a'")
    return "node:P"


def stale(graph):
    commit = graph.snapshot().graph_commit_id
    graph.load(row("e"), mode="append")
    return commit


# what was done before, what is asked for, and whether the message names what `before` returns
CASES = {
    "query": (cleaned, lambda g, commit: g.query(READ, snapshot=commit), True),
    "export": (cleaned, lambda g, commit: list(g.export(snapshot=commit)), True),
    "diff": (cleaned, lambda g, commit: g.diff(commit, "main"), True),
    "changes": (cleaned, lambda g, commit: g.commit_changes(commit), True),
    "revert": (cleaned, lambda g, commit: g.revert(commit), True),
    "feed": (cleaned, lambda g, commit: g.changes(start=f"after:{commit}"), False),
    "blame": (cleaned, lambda g, _: g.entity_history("node", "P", "a"), False),
    "dropped type": (dropped, lambda g, commit: list(g.export(snapshot=commit)), False),
    "drift": (drifted, lambda g, _: g.load(row("z"), mode="append"), True),
    "no such commit": (stale, lambda g, _: g.query(READ, snapshot="0" * 26), False),
    "moved": (stale, lambda g, commit: g.mutate(WRITE, if_commit=commit), True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_message_speaks_of_the_graph_and_not_of_its_storage(graph, case):
    before, ask, named = CASES[case]
    found = before(graph)
    with pytest.raises(OmnigraphError) as caught:
        ask(graph, found)
    error = caught.value
    assert not STORAGE_WORDS.search(error.message), error.message
    assert not STORAGE_WORDS.search(error.hint or ""), error.hint
    assert error.hint
    if named:
        assert found in error.message
