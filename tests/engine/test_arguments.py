"""Arguments of the wrong kind are told by name, and nothing of them gets into the graph."""

from __future__ import annotations

import datetime as dt

import pytest

from omnigraph import Graph, OpenMode, errors

SCHEMA = "node Note { title: String @key  body: Blob? }"
READ = "query q() { match { $n: Note } return { $n.title } }"
WRITE = 'query w() { insert Note { title: "b" } }'
ROW = '{"type":"Note","data":{"title":"a","body":"base64:aGk="}}'

# call -> the argument that the error must name
WRONG = {
    "query source": ("source", lambda g: g.query(None)),
    "query bytes": ("source", lambda g: g.query(READ.encode())),
    "query name": ("name", lambda g: g.query(READ, 1)),
    "query params": ("params", lambda g: g.query(READ, params=[])),
    "query branch": ("branch", lambda g: g.query(READ, branch=None)),
    "query snapshot": ("snapshot", lambda g: g.query(READ, snapshot=1.5)),
    "query limits": ("limits", lambda g: g.query(READ, limits=5)),
    "query explain": ("explain", lambda g: g.query(READ, explain="no")),
    "branch beside a commit": ("branch", lambda g: g.snapshot(5, g.commits()[0].graph_commit_id)),
    "load from_branch": ("from_branch", lambda g: g.load(ROW, mode="merge", from_branch=5)),
    "load of nothing": ("actor", lambda g: g.load("", mode="merge", actor=["me"])),
    "load quarantine": (
        "quarantine",
        lambda g: g.load(ROW, mode="merge", on_error="quarantine", quarantine=5),
    ),
    "page of a commit": (
        "page_token",
        lambda g: g.commit_changes(g.commits()[0].graph_commit_id, page_token=5),
    ),
    "optimize concurrency": ("concurrency", lambda g: g.optimize(concurrency="2")),
    "optimize progress": ("progress", lambda g: g.optimize(progress=True)),
    "indices concurrency": ("concurrency", lambda g: g.ensure_indices(concurrency=None)),
    "cleanup age": ("older_than", lambda g: g.cleanup(older_than="30d")),
    "cleanup no age": ("older_than", lambda g: g.cleanup(older_than=float("nan"))),
    "cleanup no end": ("grace", lambda g: g.cleanup(1, grace=10**30)),
    "cleanup grace": ("grace", lambda g: g.cleanup(1, grace=[1])),
    "cleanup preview": ("preview", lambda g: g.cleanup(1, preview=0)),
    "cleanup concurrency": ("concurrency", lambda g: g.cleanup(1, concurrency=1.5)),
    "merge source": ("source", lambda g: g.merge(5)),
    "merge into": ("into", lambda g: g.merge_preview("x", into=None)),
    "merge delete": ("delete_branch", lambda g: g.merge("x", delete_branch="no")),
    "delete actor": ("actor", lambda g: g.delete_branch("x", actor=5)),
    "maintenance": ("maintenance", lambda g: Graph.open(g.uri, maintenance=5)),
    "actor": ("actor", lambda g: g.mutate(WRITE, actor=["me"])),
    "actor text": ("actor", lambda g: g.mutate(WRITE, actor="\ud800")),
    "if_commit": ("if_commit", lambda g: g.mutate(WRITE, if_commit=7)),
    "load data": ("data", lambda g: g.load(None, mode="merge")),
    "load mode": ("mode", lambda g: g.load(ROW, mode=None)),
    "types as one text": ("types", lambda g: g.export(types="Note")),
    "type of a type": ("types", lambda g: g.export(types=[1])),
    "limit": ("limit", lambda g: g.commits(limit=True)),
    "kinds": ("kinds", lambda g: g.diff("main", "main", kinds={"node": 1})),
    "moment": ("from_ref", lambda g: g.diff(dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "main")),
    "schema": ("source", lambda g: g.plan_schema(b"node A { a: I32 }")),
    "strategy": ("strategy", lambda g: g.merge("main", strategy="mine")),
    "mode": ("mode", lambda g: Graph.open(g.uri, "read-only")),
    "uri": ("uri", lambda _: Graph.open(None)),
    "range": ("stop", lambda g: g.read_blob("node", "Note", "a", "body").read_range(0, None)),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    place = tmp_path_factory.mktemp("arguments") / "graph.omni"
    with Graph.init(place, SCHEMA, durability="process") as graph:
        graph.load(ROW, mode="append")
        yield graph


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named_and_nothing_happens(graph, case):
    argument, call = WRONG[case]
    head = graph.snapshot().graph_commit_id
    with pytest.raises(errors.InputError) as caught:
        call(graph)
    assert caught.value.argument == argument
    assert argument in str(caught.value)
    assert graph.snapshot().graph_commit_id == head


def test_a_negative_limit_is_refused(graph):
    with pytest.raises(errors.InputError, match="limit must be 0 or more"):
        graph.commits(limit=-1)


def test_an_address_with_a_zero_byte_is_refused():
    with pytest.raises(errors.InputError, match="zero byte"):
        Graph.open("a\0b", OpenMode.READ_ONLY)


def test_half_a_surrogate_pair_is_no_parameter_value(graph):
    query = "query q($t: String) { match { $n: Note { title: $t } } return { $n.title } }"
    with pytest.raises(errors.ParameterError, match="param 't'"):
        graph.query(query, params={"t": "\udc00"})


def test_signatures_and_names_stay_as_written():
    assert Graph.query.__name__ == "query"
    assert Graph.load.__doc__.startswith("Load data as one commit")


def test_what_would_be_right_is_named_in_full(graph):
    with pytest.raises(errors.InputError, match=r"must be Mapping\[str, Any\] or None, got list"):
        graph.query(READ, params=[1])
