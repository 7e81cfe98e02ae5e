"""One resolver for everything that a commit can be called, wherever one can be named."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from omnigraph import Graph
from omnigraph.errors import AmbiguousRefError, ChangeFeedGapError, NotFoundError
from omnigraph.model.ports import World

SCHEMA = "node P { k: String @key }"
ALL = "query q() { match { $p: P } return { $p.k } }"


class Ticking:
    """A clock that says a minute more each time it is asked."""

    def __init__(self):
        self.now = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000

    def now_us(self):
        self.now += 60_000_000
        return self.now


class Numbered:
    """Ids that count on, so that their beginnings are known."""

    def __init__(self):
        self.number = 0

    def ulid(self):
        self.number += 1
        return f"01{self.number // 4:06d}{self.number:018d}"


def load(graph, key, branch="main"):
    line = json.dumps({"type": "P", "data": {"k": key}})
    return graph.load(line, mode="append", branch=branch).commit.graph_commit_id


@pytest.fixture
def graph(tmp_path):
    """main: genesis, a, b, a merge of side (s), c."""
    world = World(clock=Ticking(), ids=Numbered(), durability="process")
    with Graph.init(str(tmp_path / "g.omni"), SCHEMA, world=world, maintenance=None) as graph:
        graph.ids = {"genesis": graph.snapshot().graph_commit_id, "a": load(graph, "a")}
        graph.create_branch("side")
        graph.ids["b"] = load(graph, "b")
        graph.ids["s"] = load(graph, "s", "side")
        graph.ids["m"] = graph.merge("side").commit.graph_commit_id
        graph.ids["c"] = load(graph, "c")
        yield graph


def keys(graph, **how):
    return {row["p.k"] for row in graph.query(ALL, **how).to_pylist()}


def test_a_ref_names_the_same_commit_wherever_one_can_be_named(graph):
    ids = graph.ids
    moment = graph.commit(ids["b"]).created_at
    meant = {
        "main": "c",
        "side": "s",
        "main~0": "c",
        "main~": "m",
        "main^": "m",
        "main~1": "m",
        "main^2": None,
        "main~1^2": "s",
        "main^^2": "s",
        "main^^2^": "a",
        "main~2": "b",
        "main~3": "a",
        "main~4": "genesis",
        "side~1": "a",
        ids["b"]: "b",
        f"{ids['b']}^": "a",
        ids["m"][:20]: None,
        ids["m"].lower(): None,
        moment.isoformat(): "b",
        moment.strftime("%Y-%m-%dT%H:%MZ"): "b",
    }
    for ref, name in meant.items():
        if name is None:
            continue
        assert graph.commit(ref).graph_commit_id == ids[name], ref
        assert graph.snapshot(at=ref).graph_commit_id == ids[name], ref
        assert graph.query(ALL, snapshot=ref).graph_commit_id == ids[name], ref
        assert graph.diff(ref, ids[name]).changes == (), ref
        exported = list(graph.export(snapshot=ref))
        assert exported == list(graph.export(snapshot=ids[name])), ref
        assert graph.query(ALL, branch=ref).graph_commit_id == ids[name], ref
        assert graph.commits(ref)[0].graph_commit_id == ids[name], ref
        assert graph.commits(ref)[-1].graph_commit_id == ids["genesis"], ref
    assert graph.snapshot(at=moment).graph_commit_id == ids["b"]
    assert graph.diff(moment, "main").from_commit_id == ids["b"]
    assert graph.schema_source("main~2") == SCHEMA


def test_changes_and_reverts_take_refs(graph):
    ids = graph.ids
    assert graph.commit_changes("main").cause.graph_commit_id == ids["c"]
    page = graph.changes(start="after:main~2")
    assert [block.cause.graph_commit_id for block in page.blocks] == [ids["m"], ids["c"]]
    assert graph.revert("main~2").reverted_commit_id == ids["b"]
    assert keys(graph) == {"a", "s", "c"}
    with pytest.raises(ChangeFeedGapError):
        graph.changes(start=f"after:{'0' * 26}")
    with pytest.raises(NotFoundError, match="neither a branch, a tag nor a commit"):
        graph.changes(start="after:nobody")


def test_the_beginning_of_an_id_stands_for_it_if_no_other_begins_like_it(graph):
    commits = [c.graph_commit_id for c in (*graph.commits(), *graph.commits("side"))]
    known = sorted(set(commits))
    for one in known:
        for length in (8, 12, 25):
            begin = one[:length]
            same = [other for other in known if other.startswith(begin)]
            if len(same) == 1:
                assert graph.commit(begin).graph_commit_id == one
                assert graph.commit(begin.lower()).graph_commit_id == one
                assert graph.snapshot(at=f"{begin}^0").graph_commit_id == one
                continue
            with pytest.raises(AmbiguousRefError) as caught:
                graph.commit(begin)
            assert caught.value.candidates == tuple(same[:10])
            assert caught.value.total == len(same)
            assert all(other in str(caught.value) for other in same[:10])
    with pytest.raises(NotFoundError):
        graph.commit(known[0][:7])


@pytest.mark.parametrize(
    ("ref", "told", "hint"),
    [
        ("mian", "'mian' is neither a branch, a tag nor a commit", "did you mean 'main'?"),
        ("sid~1", "'sid' is neither a branch, a tag nor a commit", "did you mean 'side'?"),
        ("main~9", "there is no 'main~9': ", None),
        ("main^2", "there is no 'main^2': ", None),
        ("main~1^3", "there is no 'main~1^3': ", None),
        ("2020-01-01", "branch 'main' has no commit at or before 2020-01-01T00:00:00Z", None),
        ("0" * 26, f"commit '{'0' * 26}' is not in the history of any branch", "deleted branch"),
        ("", "'' is neither a branch, a tag nor a commit", None),
        ("main" + "^" * 65, "is neither a branch, a tag nor a commit", None),
        ("~1", "'~1' is neither a branch, a tag nor a commit", None),
    ],
)
def test_what_names_nothing_is_told_with_what_may_be_meant(graph, ref, told, hint):
    for ask in (
        lambda: graph.commit(ref),
        lambda: graph.snapshot(at=ref),
        lambda: graph.diff(ref, "main"),
        lambda: list(graph.export(snapshot=ref)),
        lambda: graph.revert(ref),
    ):
        with pytest.raises(NotFoundError) as caught:
            ask()
        assert told in str(caught.value)
        assert hint is None or hint in caught.value.hint


def test_a_branch_that_is_written_must_be_one(graph):
    for ask in (
        lambda: load(graph, "z", "sid"),
        lambda: graph.create_branch("x", "sid"),
        lambda: graph.delete_branch("sid"),
        lambda: graph.merge("sid"),
        lambda: graph.changes(branch="sid"),
    ):
        with pytest.raises(NotFoundError, match="branch 'sid' not found") as caught:
            ask()
        assert caught.value.hint == "did you mean 'side'?"
    with pytest.raises(NotFoundError, match="branch 'main~1' not found"):
        load(graph, "z", "main~1")


def test_a_branch_is_not_made_from_an_older_state_and_what_to_do_is_said(graph):
    graph.create_tag("v1", "main~1")
    named = graph.commits()[1].graph_commit_id
    for ref in ("v1", named, named[:-1], "main~1"):
        for make in (
            lambda ref=ref: graph.create_branch("x", ref),
            lambda ref=ref: graph.load("", mode="append", branch="x", from_branch=ref),
        ):
            with pytest.raises(NotFoundError, match="not found") as caught:
                make()
            assert caught.value.hint.startswith(f"'{ref}' names the commit {named}, and a branch")
    assert "x" not in graph.branches()


def test_a_branch_that_was_deleted_by_force_is_known_as_such(graph):
    load(graph, "z", "side")
    graph.delete_branch("side", force=True)
    with pytest.raises(NotFoundError) as caught:
        graph.create_branch("x", "side")
    assert "`branch restore` brings it back" in caught.value.hint


def test_a_name_wins_over_what_it_looks_like(graph):
    for name in ("main~2", "2026-01-31", "01000001", "a^"):
        graph.create_branch(name)
        load(graph, f"on {name}", name)
        assert graph.snapshot(at=name).graph_branch == name
        assert graph.commit(f"{name}~1").graph_commit_id == graph.ids["c"]
    # but not over the id of a commit
    graph.create_branch(graph.ids["b"])
    load(graph, "odd", graph.ids["b"])
    assert graph.commit(graph.ids["b"]).graph_commit_id == graph.ids["b"]
