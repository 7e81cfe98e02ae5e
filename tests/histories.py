"""Graphs with a past: random histories, all that they answer, and whether life goes on."""

from __future__ import annotations

import json
import random
from contextlib import suppress

from omnigraph import Graph, OpenMode
from omnigraph.engine.maintain.verify import verify_at
from omnigraph.errors import ConflictError, NotFoundError
from omnigraph.model.graph import Tag
from omnigraph.model.ports import World
from omnigraph.storage.manifest.tags import TagFiles
from omnigraph.storage.objects.root import Root, open_store

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""


def insert(graph, name, branch="main"):
    graph.mutate(f'query q() {{ insert Person {{ name: "{name}" }} }}', branch=branch)


def some_history(uri, seed, steps=22):
    """A graph with branches, branches of branches, merges, deletions, upkeep and tags."""
    chance, tagged = random.Random(seed), False
    with Graph.init(uri, SCHEMA, maintenance=None, durability="process") as graph:
        insert(graph, "first")
        for n in range(steps):
            branches = graph.branches()
            branch = chance.choice(branches)
            match chance.choice(
                ["insert"] * 4
                + [
                    "edge",
                    "delete",
                    "branch",
                    "branch",
                    "merge",
                    "optimize",
                    "cleanup",
                    "drop",
                    "tag",
                ]
            ):
                case "insert":
                    insert(graph, f"p{n}", branch)
                case "edge":
                    line = json.dumps({"edge": "Knows", "from": "first", "to": "first"})
                    graph.load(line, mode="append", branch=branch)
                case "delete":
                    graph.mutate(
                        f'query q() {{ delete Person where name = "p{n - 1}" }}', branch=branch
                    )
                case "branch":
                    graph.create_branch(f"b{n}", branch)
                case "merge" if branch != "main":
                    graph.merge(branch, strategy="ours")
                case "optimize":
                    graph.optimize(branch=branch)
                case "cleanup" if not tagged:
                    graph.cleanup(keep_versions=4)
                case "drop" if branch != "main":
                    with suppress(ConflictError):
                        graph.delete_branch(branch, force=True)
                case "tag":
                    commit = graph.commits(branch, limit=1)[0]
                    tag(uri, f"t{n}", commit.graph_commit_id)
                    tagged = True
        if len(graph.branches()) == 1:
            graph.create_branch("last")
            insert(graph, "of the last", "last")


def tag(uri, name, commit_id):
    files = TagFiles(open_store(Root.parse(uri, {}), World()))
    files.put(
        Tag(
            name=name,
            graph_commit_id=commit_id,
            branch_id=None,
            message=None,
            created_by=None,
            created_us=1,
        )
    )


def told(uri):
    """Everything that a graph answers: every branch and every commit that is still kept."""
    answers = {}
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as graph:
        for branch in graph.branches():
            answers[branch] = sorted(graph.export(branch=branch))
            for commit in graph.commits(branch):
                answers[branch, commit.graph_commit_id] = _at(graph, commit.graph_commit_id)
        for one in TagFiles(open_store(Root.parse(uri, {}), World())).all():
            answers["tag", one.name] = _at(graph, one.graph_commit_id)
    return answers


def _at(graph, commit_id):
    try:
        return sorted(graph.export(snapshot=commit_id))
    except NotFoundError as gone:  # cleanup took it
        return gone.code


def works(uri):
    """Writes, branches, merges and upkeep go on."""
    tags = TagFiles(open_store(Root.parse(uri, {}), World()))
    for one in tags.names():
        tags.remove(one)
    with Graph.open(uri) as graph:
        for branch in graph.branches():
            insert(graph, f"new on {branch}", branch)
        graph.create_branch("later", graph.branches()[-1])
        insert(graph, "much later", "later")
        graph.merge("later", strategy="ours")
        graph.optimize()
        graph.cleanup(keep_versions=2)
    report = verify_at(uri, deep=True)
    assert report.problems == ()
