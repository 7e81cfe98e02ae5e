"""Several processes write to one graph, some are killed: one history, one truth."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
from many_child import SCHEMA, operation

from omnigraph import Graph, OpenMode

WRITERS, WRITES, KILLED = 4, 25, 4
TWINS = """
query twins() {
  match { $l: Person { name: "left" } $r: Twin { name: "right" } }
  return { $l.age as left, $r.age as right }
}
"""


def start(uri: str, writer: str, count: int) -> subprocess.Popen:
    child = Path(__file__).with_name("many_child.py")
    command = [sys.executable, str(child), uri, writer, str(count)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def replay(graph: Graph) -> tuple[dict, dict, list]:
    """The graph that the history says there must be."""
    landed = {
        record.graph_commit_id: record.recovery_for_actor
        for record in graph.recoveries()
        if record.recovery_kind == "RolledForward"
    }
    people: dict[str, int | None] = {}
    twins: dict[str, int | None] = {}
    edges: list[tuple[str, str]] = []
    for commit in reversed(graph.commits()):
        actor = landed.get(commit.graph_commit_id, commit.actor_id)
        if actor is None or actor.startswith("omnigraph:"):
            continue
        kind, params = operation(actor)
        match kind:
            case "upsert":
                people[params["name"]] = params["age"]
            case "twins":
                people["left"] = twins["right"] = params["age"]
            case "update":
                assert params["name"] in people, "an update without a match made a commit"
                people[params["name"]] = params["age"]
            case "delete":
                people.pop(params["name"])
                edges = [edge for edge in edges if params["name"] not in edge]
            case "know":
                assert params["name"] in people, "an edge from nowhere was committed"
                assert params["other"] in people, "an edge to nowhere was committed"
                edges.append((params["name"], params["other"]))
    return people, twins, sorted(edges)


def found(graph: Graph) -> tuple[dict, dict, list]:
    records = [orjson.loads(line) for line in graph.export()]
    nodes = [(r["type"], r["data"]["name"], r["data"].get("age")) for r in records if "type" in r]
    assert len({node[:2] for node in nodes}) == len(nodes), "a key is there twice"
    return (
        {name: age for kind, name, age in nodes if kind == "Person"},
        {name: age for kind, name, age in nodes if kind == "Twin"},
        sorted((r["from"], r["to"]) for r in records if "edge" in r),
    )


def test_replaying_the_history_gives_the_graph(tmp_path):
    uri = str(tmp_path / "g.omni")
    Graph.init(uri, SCHEMA, durability="process").close()
    chance = random.Random(7)
    writers = [start(uri, f"w{number}", WRITES) for number in range(WRITERS)]
    reader = Graph.open(uri, mode=OpenMode.READ_ONLY)
    for kill in range(KILLED):
        victim = start(uri, f"victim{kill}", 10_000)
        deadline = time.monotonic() + chance.uniform(0.8, 1.6)
        while time.monotonic() < deadline:
            for row in reader.query(TWINS).to_pylist():
                assert row["left"] == row["right"], "a reader saw half of a commit"
        victim.send_signal(signal.SIGKILL)
        victim.communicate(timeout=30)
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors.decode()
    reader.close()
    with Graph.open(uri, durability="process") as graph:
        assert found(graph) == replay(graph)
        commits = graph.commits()
        ids = [commit.graph_commit_id for commit in commits]
        assert len(set(ids)) == len(ids)
        assert [commit.parent_commit_id for commit in commits] == [*ids[1:], None]
