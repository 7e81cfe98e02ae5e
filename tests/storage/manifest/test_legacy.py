"""Old graphs under the whole engine: read as they are, then migrated, queried and written to."""

from __future__ import annotations

import pytest
from old_graphs import SOURCE, OldGraph

from omnigraph import Graph, OpenMode

PEOPLE = "query people() { match { $p: Person } return { $p.name as name } order { $p.name } }"
ADD = 'query add() { insert Person { name: "zoe" } }'


def names(graph, **where):
    return [row["name"] for row in graph.query(PEOPLE, **where).to_pylist()]


@pytest.mark.parametrize("stamp", [1, 2, 3])
def test_an_old_graph_opens_and_goes_on(local_root, stamp):
    old = OldGraph(local_root.uri, stamp).told()
    before = {"main": ["alice", "carl"], "feature": ["alice", "bob"], "feature/deep": ["alice"]}
    with Graph.open(local_root.uri, mode=OpenMode.READ_ONLY) as graph:
        assert {branch: names(graph, branch=branch) for branch in graph.branches()} == before
    with Graph.open(local_root.uri) as graph:
        assert graph.schema_source() == SOURCE
        for branch, people in before.items():
            assert names(graph, branch=branch) == people
            graph.mutate(ADD, branch=branch)
            assert names(graph, branch=branch) == [*people, "zoe"]
        assert names(graph, snapshot=old.commits[1]["graph_commit_id"]) == ["alice"]
        assert names(graph, snapshot=old.commits[2]["graph_commit_id"]) == ["alice", "bob"]
        assert [commit.actor_id for commit in graph.commits()] == [None, "bob", "ann", None]
