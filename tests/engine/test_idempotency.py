"""A request with an idempotency key is carried out once, however often it is submitted."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph, errors
from omnigraph.model.ports import World
from omnigraph.model.requests import digest
from omnigraph.model.steps import Step
from omnigraph.storage.commit import prepared
from omnigraph.storage.manifest import store as manifest

SCHEMA = """
node Person { name: String @key  age: I32? }
node Note { text: String }
edge Knows: Person -> Person
"""
WIDER = SCHEMA + "\nnode Tag { name: String @key }\n"
ADD = "query add($text: String) { insert Note { text: $text } }"
AGE = 'query older() { update Person set { age: 99 } where name = "ada" }'
NOTE = '{"type": "Note", "data": {"text": "hello"}}\n'


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process", maintenance=None) as graph:
        graph.load('{"type": "Person", "data": {"name": "ada", "age": 1}}', mode="append")
        yield graph


def forked(graph):
    """A branch that has something to merge."""
    graph.create_branch("dev")
    graph.mutate(ADD, params={"text": "from dev"}, branch="dev")


def mutate(graph, key="k"):
    return graph.mutate(ADD, params={"text": "hello"}, actor="ann", idempotency_key=key)


def update(graph, key="k"):
    return graph.mutate(AGE, idempotency_key=key)


def load(graph, key="k"):
    return graph.load(NOTE, mode="append", idempotency_key=key)


def overwrite(graph, key="k"):
    return graph.load(NOTE, mode="overwrite", idempotency_key=key)


def load_into_a_new_branch(graph, key="k"):
    return graph.load(NOTE, mode="append", branch="b", from_branch="main", idempotency_key=key)


def merge(graph, key="k"):
    return graph.merge("dev", idempotency_key=key)


def merge_and_delete(graph, key="k"):
    return graph.merge("dev", delete_branch=True, idempotency_key=key)


def merge_of_the_same(graph, key="k"):
    return graph.merge("twin", idempotency_key=key)


def apply_schema(graph, key="k"):
    return graph.apply_schema(WIDER, idempotency_key=key)


WRITES = (
    mutate,
    update,
    load,
    overwrite,
    load_into_a_new_branch,
    merge,
    merge_and_delete,
    merge_of_the_same,
    apply_schema,
)


def prepared_for(write, graph):
    if write in (merge, merge_and_delete):
        forked(graph)
    if write is merge_of_the_same:  # both sides did the same: a commit that moves no table
        graph.create_branch("twin")
        for branch in ("main", "twin"):
            graph.mutate(AGE, branch=branch)


def history(graph):
    return {
        branch: [c.graph_commit_id for c in graph.commits(branch)] for branch in graph.branches()
    }


def notes(graph, branch="main"):
    return sorted(
        json.loads(line)["data"]["text"] for line in graph.export(branch=branch, types=["Note"])
    )


@pytest.mark.parametrize("write", WRITES)
def test_the_second_submission_gets_the_first_answer_and_makes_no_commit(graph, write):
    prepared_for(write, graph)
    first = write(graph)
    before = history(graph)
    with Graph.open(graph.uri) as other:
        again = [write(graph), write(other)]
    assert again == [first, first]
    assert not first.already_applied
    assert all(one.already_applied for one in again)
    assert again[0].to_json() == {**first.to_json(), "already_applied": True}
    assert history(graph) == before


@pytest.mark.parametrize("write", WRITES)
def test_a_submission_that_lands_while_another_is_prepared_is_the_only_one(tmp_path, write):
    """The rival lands when the write is staged and about to take the lease: the last moment."""
    uri = str(tmp_path / "g.omni")
    answers = []

    class Rival:
        armed = False

        def reach(self, step):
            if self.armed and step is Step.WRITE_STAGED:
                self.armed = False
                with Graph.open(uri, durability="process") as other:
                    answers.append(write(other))

    rival = Rival()
    with Graph.init(uri, SCHEMA, world=World(steps=rival, durability="process")) as graph:
        graph.load('{"type": "Person", "data": {"name": "ada", "age": 1}}', mode="append")
        prepared_for(write, graph)
        rival.armed = True
        answers.append(write(graph))
        assert answers[0] == answers[1]
        assert [one.already_applied for one in answers] == [False, True]
        commits = [c for branch in graph.branches() for c in graph.commits(branch)]
        keyed = {c.graph_commit_id for c in commits if c.properties.get("idempotency_key") == "k"}
        assert keyed == {answers[0].commit.graph_commit_id}
        if write is mutate:
            assert notes(graph) == ["hello"]
        graph.mutate(ADD, params={"text": "later"})  # and the graph takes further writes


def test_the_files_of_the_losing_submission_are_taken_off_the_disk(tmp_path):
    uri = str(tmp_path / "g.omni")

    class Rival:
        armed = False

        def reach(self, step):
            if self.armed and step is Step.WRITE_STAGED:
                self.armed = False
                with Graph.open(uri, durability="process") as other:
                    load(other)

    rival = Rival()
    with Graph.init(uri, SCHEMA, world=World(steps=rival, durability="process")) as graph:
        rival.armed = True
        assert load(graph).already_applied
        entry = next(one for one in graph.snapshot().datasets if one.type_key == "node:Note")
    data = tmp_path / "g.omni" / entry.dataset_path / "data"
    assert len(list(data.glob("*.lance"))) == 1


OTHER_REQUESTS = {
    "other parameters": lambda g: g.mutate(ADD, params={"text": "x"}, idempotency_key="k"),
    "other text": lambda g: g.mutate(ADD + " ", params={"text": "hello"}, idempotency_key="k"),
    "other query": lambda g: g.mutate(ADD, "add", params={"text": "hello"}, idempotency_key="k"),
    "another kind of write": load,
    "a merge": merge,
    "a schema": apply_schema,
}


@pytest.mark.parametrize("what", OTHER_REQUESTS)
def test_a_key_of_another_request_is_refused(graph, what):
    forked(graph)
    first = mutate(graph)
    before = history(graph)
    with pytest.raises(errors.ConflictError) as caught:
        OTHER_REQUESTS[what](graph)
    assert isinstance(caught.value, errors.IdempotencyKeyReusedError)
    assert caught.value.code == "idempotency-key-reused"
    assert caught.value.graph_commit_id == first.commit.graph_commit_id
    assert history(graph) == before


def test_a_load_is_known_by_its_lines_however_they_are_given(graph, tmp_path):
    lines = [NOTE.strip(), '{"type": "Note", "data": {"text": "ünd"}}']
    text = "\n".join(lines)
    path = tmp_path / "in.jsonl"
    path.write_text(text + "\r\n", encoding="utf-8")
    first = graph.load(text, mode="append", idempotency_key="k")
    for data in (text.encode(), path, iter(lines), [line.encode() + b"\n" for line in lines]):
        assert graph.load(data, mode="append", idempotency_key="k") == first
    for data, mode in ((text + "\n" + NOTE, "append"), (text, "merge")):
        with pytest.raises(errors.IdempotencyKeyReusedError):
            graph.load(data, mode=mode, idempotency_key="k")
    assert notes(graph) == ["hello", "ünd"]


def test_the_key_is_looked_up_before_the_precondition(graph):
    head = graph.snapshot().graph_commit_id
    params = {"text": "hello"}
    first = graph.mutate(ADD, params=params, if_commit=head, idempotency_key="k")
    again = graph.mutate(ADD, params=params, if_commit=head, idempotency_key="k")
    assert again == first
    with pytest.raises(errors.PreconditionFailedError):
        graph.mutate(ADD, params=params, if_commit=head, idempotency_key="another")


def test_a_repeated_request_is_answered_although_it_could_not_run_any_more(graph):
    first = graph.mutate(ADD, params={"text": "hello"}, idempotency_key="m")
    loaded = graph.load(NOTE, mode="append", idempotency_key="l")
    graph.apply_schema(SCHEMA.replace("text: String", 'words: String @rename_from("text")'))
    assert graph.mutate(ADD, params={"text": "hello"}, idempotency_key="m") == first
    assert graph.load(NOTE, mode="append", idempotency_key="l") == loaded


def test_a_failed_write_leaves_no_key(graph):
    with pytest.raises(errors.InputError):
        graph.load('{"type": "Nobody", "data": {}}', mode="append", idempotency_key="k")
    with pytest.raises(errors.NotFoundError):
        graph.merge("nowhere", idempotency_key="k")
    assert not mutate(graph).already_applied


def test_a_write_that_changes_nothing_is_not_remembered(graph):
    nothing = 'query q() { update Person set { age: 3 } where name = "nobody" }'
    assert graph.mutate(nothing, idempotency_key="k").commit is None
    graph.load('{"type": "Person", "data": {"name": "nobody"}}', mode="append")
    assert graph.mutate(nothing, idempotency_key="k").affected_nodes == 1


def test_branches_have_keys_of_their_own_and_those_from_before_their_fork(graph):
    graph.create_branch("before")
    first = mutate(graph)
    graph.create_branch("after")
    params = {"text": "hello"}
    own = graph.mutate(ADD, params=params, branch="before", idempotency_key="k")
    inherited = graph.mutate(ADD, params=params, branch="after", idempotency_key="k")
    assert own.commit.graph_branch == "before"
    assert inherited.commit == first.commit
    assert inherited.branch == "after"
    assert [notes(graph, branch) for branch in ("main", "before", "after")] == [["hello"]] * 3


@pytest.mark.parametrize("key", ["", " \t", "k" * 256, "é" * 128])
def test_a_key_is_text_of_a_bounded_length(graph, key):
    for write in WRITES:
        with pytest.raises(errors.InvalidNameError) as caught:
            write(graph, key)
        assert caught.value.kind == "idempotency key"
    assert mutate(graph, "é" * 127).commit is not None


def test_a_merge_that_is_told_again_deletes_no_work_that_was_not_merged(graph):
    forked(graph)
    merge_and_delete(graph)
    graph.create_branch("dev")
    graph.mutate(ADD, params={"text": "new work"}, branch="dev")
    again = merge_and_delete(graph)
    assert again.branch_deleted is False
    assert "changed since" in again.branch_delete_error
    assert "new work" in notes(graph, "dev")


# --- how far back, and at what cost ------------------------------------------------------------


def test_keys_are_remembered_among_the_newest_commits_only(graph, monkeypatch):
    monkeypatch.setattr(prepared, "IDEMPOTENCY_COMMITS_MAX", 200)
    monkeypatch.setattr(manifest, "IDEMPOTENCY_COMMITS_MAX", 200)
    oldest = mutate(graph, "oldest")
    for number in range(199):
        graph.mutate(ADD, params={"text": str(number)}, idempotency_key=f"k{number}")
    for opened in (graph, Graph.open(graph.uri, durability="process")):
        again = mutate(opened, "oldest")
        assert again == oldest
    graph.mutate(ADD, params={"text": "one more"})
    for opened in (graph, Graph.open(graph.uri, durability="process")):
        sure = opened.mutate(ADD, params={"text": "0"}, idempotency_key="k0")
        assert sure.already_applied
    assert not mutate(graph, "oldest").already_applied


def test_a_new_key_reads_no_old_commit_twice(graph, monkeypatch):
    for number in range(160):
        graph.mutate(ADD, params={"text": str(number)}, idempotency_key=f"k{number}")
    reads, parsed = [], []
    datasets = manifest.ManifestDatasets
    read, rows = datasets.newest_metadata, datasets.commit_rows
    monkeypatch.setattr(datasets, "newest_metadata", lambda *args: reads.append(1) or read(*args))
    monkeypatch.setattr(datasets, "commit_rows", lambda *args: parsed.append(1) or rows(*args))
    with Graph.open(graph.uri, durability="process") as cold:
        mutate(cold, "new")
        fragments = len(reads)
        assert 1 <= fragments <= 4
        for number in range(5):
            mutate(cold, f"newer{number}")
        assert len(reads) == fragments
    assert not parsed


def test_a_key_of_a_bulk_load_of_the_first_release_still_counts(graph, monkeypatch):
    """Such a commit has the key under another name, and neither a digest nor a result."""
    from omnigraph.model import requests

    monkeypatch.setattr(
        requests.KeyedRequest, "properties", property(lambda self: {"load_id": self.key})
    )
    first = load(graph)
    monkeypatch.undo()
    again = load(graph)
    assert again.already_applied
    assert again.commit == first.commit


def test_the_digest_folds_nothing_together():
    values = [None, 0, 0.0, False, "", "0", float("nan"), "nan", [], {}, [0], ["0"], b"0", [[0]]]
    digests = {digest("q", {"v": value}) for value in values}
    assert len(digests) == len(values)
    assert digest("q", {"a": 1, "b": 2}) == digest("q", {"b": 2, "a": 1})
    assert digest("q", {}) != digest("p", {})
