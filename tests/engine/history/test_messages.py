"""What a commit says of itself: its message, its writer and its counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from omnigraph import Graph
from omnigraph.errors import InputError, LimitExceededError
from omnigraph.model.limits import COMMIT_MESSAGE_BYTES_MAX

SCHEMA = "node P { k: String @key  n: I32? } edge E: P -> P"
LOAD = (
    '{"type":"P","data":{"k":"a"}}\n{"type":"P","data":{"k":"b"}}\n{"edge":"E","from":"a","to":"b"}'
)
SET = 'query q() { update P set { n: 1 } where k = "a" }'
DROP = 'query q() { delete P where k = "a" }'


@pytest.fixture
def graph(tmp_path):
    with Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process") as graph:
        yield graph


def counts(commit):
    return {
        kind: (some.inserted, some.updated, some.deleted) for kind, some in commit.counts.items()
    }


def test_every_writer_takes_a_message_and_says_what_it_did(graph):
    graph.load(LOAD, mode="append", message="first people")
    graph.create_branch("side")
    graph.mutate(SET, branch="side", message="one update\n\nwith a reason")
    graph.merge("side", message="it was reviewed")
    graph.mutate(DROP, message="and away")
    graph.revert(graph.snapshot().graph_commit_id, message="no, stay")
    graph.delete_branch("side", force=True)
    graph.apply_schema(SCHEMA.replace("n: I32?", "n: I64?"), message="wider")
    told = [(c.message, c.writer_kind, counts(c)) for c in graph.commits()]
    assert told == [
        ("wider", "SchemaApply", {}),
        ("no, stay", "BranchMerge", {"nodes": (1, 0, 0), "edges": (1, 0, 0)}),
        ("and away", "Mutation", {"nodes": (0, 0, 1), "edges": (0, 0, 1)}),
        ("it was reviewed", "BranchMerge", {"nodes": (0, 1, 0)}),
        ("first people", "Load", {"nodes": (2, 0, 0), "edges": (1, 0, 0)}),
        (None, None, {}),
    ]
    assert graph.commits()[-2].to_json()["message"] == "first people"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("merge", (1, 1, 0)), ("overwrite", (2, 0, 2))],
)
def test_a_load_counts_what_it_replaces(graph, mode, expected):
    graph.load(LOAD, mode="append")
    lines = '{"type":"P","data":{"k":"a","n":7}}\n{"type":"P","data":{"k":"c"}}'
    if mode == "overwrite":
        graph.mutate('query q() { delete E where from = "a" }')
    graph.load(lines, mode=mode)
    assert counts(graph.commits()[0]) == {"nodes": expected}


@pytest.mark.parametrize("message", ["", " \n", 7, "\ud800"])
def test_a_message_is_text_that_says_something(graph, message):
    head = graph.snapshot().graph_commit_id
    writes = (
        lambda: graph.load(LOAD, mode="append", message=message),
        lambda: graph.mutate(SET, message=message),
        lambda: graph.apply_schema(SCHEMA, message=message),
    )
    for write in writes:
        with pytest.raises(InputError, match="message"):
            write()
    assert graph.snapshot().graph_commit_id == head


def test_a_message_has_a_length_that_every_publish_can_bear(graph):
    graph.load(LOAD, mode="append", message="x" * COMMIT_MESSAGE_BYTES_MAX)
    with pytest.raises(LimitExceededError):
        graph.load(LOAD, mode="merge", message="x" * (COMMIT_MESSAGE_BYTES_MAX + 1))


def test_a_message_does_not_make_another_request_of_a_keyed_one(graph):
    first = graph.load(LOAD, mode="append", message="one", idempotency_key="k")
    again = graph.load(LOAD, mode="append", message="two", idempotency_key="k")
    assert again.commit == first.commit
    assert again.commit.message == "one"


def test_a_quarantine_is_told_after_the_message(graph, tmp_path):
    bad = LOAD + '\n{"type":"P","data":{"k":"c","n":"seven"}}'
    loaded = graph.load(
        bad, mode="append", message="nightly", on_error="quarantine", quarantine=tmp_path / "q"
    )
    assert loaded.commit.message == "nightly; 1 records quarantined"


def test_a_commit_knows_when_it_was_made(graph):
    commit = graph.commits()[0]
    assert abs(commit.created_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert commit.to_json()["created_at"] == commit.created_us


def test_counts_of_another_release_say_nothing(graph):
    odd = replace(graph.commits()[0], properties={"counts": '["later"]'})
    assert odd.counts == {}
