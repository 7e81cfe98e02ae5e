"""Arguments of the wrong kind are told by name, and nothing of them gets into the graph."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from omnigraph import Graph, OpenMode, errors

SCHEMA = "node Note { title: String @key  body: Blob? }"
READ = "query q() { match { $n: Note } return { $n.title } }"
WRITE = 'query w() { insert Note { title: "b" } }'
ROW = '{"type":"Note","data":{"title":"a","body":"base64:aGk="}}'

# case -> what the error must name: the call and its argument
WRONG = {
    "query source": ("query: source", lambda g: g.query(None)),
    "query bytes": ("query: source", lambda g: g.query(READ.encode())),
    "query name": ("query: name", lambda g: g.query(READ, 1)),
    "query params": ("query: params", lambda g: g.query(READ, params=[])),
    "query branch": ("query: branch", lambda g: g.query(READ, branch=None)),
    "query snapshot": ("query: snapshot", lambda g: g.query(READ, snapshot=1.5)),
    "query limits": ("query: limits", lambda g: g.query(READ, limits=5)),
    "query explain": ("query: explain", lambda g: g.query(READ, explain="no")),
    "branch beside a commit": (
        "snapshot: branch",
        lambda g: g.snapshot(5, g.commits()[0].graph_commit_id),
    ),
    "load from_branch": ("load: from_branch", lambda g: g.load(ROW, mode="merge", from_branch=5)),
    "load of nothing": ("load: actor", lambda g: g.load("", mode="merge", actor=["me"])),
    "load quarantine": (
        "load: quarantine",
        lambda g: g.load(ROW, mode="merge", on_error="quarantine", quarantine=5),
    ),
    "page of a commit": (
        "commit_changes: page_token",
        lambda g: g.commit_changes(g.commits()[0].graph_commit_id, page_token=5),
    ),
    "optimize concurrency": ("optimize: concurrency", lambda g: g.optimize(concurrency="2")),
    "optimize progress": ("optimize: progress", lambda g: g.optimize(progress=True)),
    "indices concurrency": (
        "ensure_indices: concurrency",
        lambda g: g.ensure_indices(concurrency=None),
    ),
    "cleanup age": ("cleanup: older_than", lambda g: g.cleanup(older_than="30d")),
    "cleanup no age": ("older_than", lambda g: g.cleanup(older_than=float("nan"))),
    "cleanup no end": ("grace", lambda g: g.cleanup(1, grace=10**30)),
    "cleanup grace": ("cleanup: grace", lambda g: g.cleanup(1, grace=[1])),
    "cleanup preview": ("cleanup: preview", lambda g: g.cleanup(1, preview=0)),
    "cleanup concurrency": ("cleanup: concurrency", lambda g: g.cleanup(1, concurrency=1.5)),
    "merge source": ("merge: source", lambda g: g.merge(5)),
    "merge into": ("merge_preview: into", lambda g: g.merge_preview("x", into=None)),
    "merge delete": ("merge: delete_branch", lambda g: g.merge("x", delete_branch="no")),
    "delete actor": ("delete_branch: actor", lambda g: g.delete_branch("x", actor=5)),
    "maintenance": ("open: maintenance", lambda g: Graph.open(g.uri, maintenance=5)),
    "mutate source": ("mutate: source", lambda g: g.mutate(WRITE.encode())),
    "mutate name": ("mutate: name", lambda g: g.mutate(WRITE, 1)),
    "actor": ("mutate: actor", lambda g: g.mutate(WRITE, actor=["me"])),
    "actor text": ("mutate: actor", lambda g: g.mutate(WRITE, actor="\ud800")),
    "if_commit": ("mutate: if_commit", lambda g: g.mutate(WRITE, if_commit=7)),
    "load data": ("load: data", lambda g: g.load(None, mode="merge")),
    "load mode": ("load: mode", lambda g: g.load(ROW, mode=None)),
    "types as one text": ("export: types", lambda g: g.export(types="Note")),
    "type of a type": ("export: types", lambda g: g.export(types=[1])),
    "limit": ("commits: limit", lambda g: g.commits(limit=True)),
    "kinds": ("diff: kinds", lambda g: g.diff("main", "main", kinds={"node": 1})),
    "moment": ("diff: from_ref", lambda g: g.diff(dt.date(2020, 1, 1), "main")),
    "schema": ("plan_schema: source", lambda g: g.plan_schema(b"node A { a: I32 }")),
    "strategy": ("strategy", lambda g: g.merge("main", strategy="mine")),
    "mode": ("open: mode", lambda g: Graph.open(g.uri, 5)),
    "uri": ("open: uri", lambda _: Graph.open(None)),
    "explain": ("explain: source", lambda g: g.explain(1)),
    "snapshot at": ("snapshot: at", lambda g: g.snapshot("main", 1.5)),
    "branch from": ("create_branch: from_branch", lambda g: g.create_branch("x", 5)),
    "revert commit": ("revert: commit_id", lambda g: g.revert(5)),
    "range": (
        "read_range: stop",
        lambda g: g.read_blob("node", "Note", "a", "body").read_range(0, None),
    ),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    place = tmp_path_factory.mktemp("arguments") / "graph.omni"
    with Graph.init(place, SCHEMA, durability="process") as graph:
        graph.load(ROW, mode="append")
        yield graph


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named_and_nothing_happens(graph, case):
    named, ask = WRONG[case]
    call, _, argument = named.rpartition(": ")
    head = graph.snapshot().graph_commit_id
    with pytest.raises(errors.InputError) as caught:
        ask(graph)
    assert caught.value.argument == argument
    assert caught.value.facts.get("call", "") == call
    assert named in str(caught.value)
    assert graph.snapshot().graph_commit_id == head


def test_a_negative_limit_is_refused(graph):
    with pytest.raises(errors.InputError, match="limit must be 0 or more"):
        graph.commits(limit=-1)


def test_a_limit_may_be_larger_than_any_machine_counts(graph):
    assert graph.commits(limit=10**30) == graph.commits()


def test_code_without_a_module_is_told_its_wrong_argument(graph):
    with pytest.raises(errors.InputError, match="query: source must be str, got int"):
        exec("graph.query(5)", {"graph": graph})


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


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (Path("s.pg"), "path.read_text()"),
        (b"node P {}", "decode()"),
        ([Path], "schema.from_classes("),
        (Path, "schema.from_classes("),
        (5, None),
    ],
)
def test_what_is_no_text_of_a_schema_may_be_made_one(tmp_path, given, advice):
    with pytest.raises(errors.InputError, match="schema_text must be str") as caught:
        Graph.init(tmp_path / "g.omni", given)
    assert caught.value.hint is None if advice is None else advice in caught.value.hint
    assert not (tmp_path / "g.omni").exists()
