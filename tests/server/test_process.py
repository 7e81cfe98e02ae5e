"""The server as a process: how it starts, reloads, loses workers and ends."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from serving import serving

from omnigraph import Graph

SCHEMA = "node Person { name: String @key  age: I32? }"
ADD = "query add($n: String) { insert Person { name: $n } }"
ALL = "query everybody() { match { $p: Person } return { $p.name } }"
OLD = "query all() { match { $p: Person } return { $p.name } }"


def made(path):
    Graph.init(path, SCHEMA, durability="process").close()
    return path


def until(look, seconds=30):
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)
    return found


def big_load(count=60_000):
    return "\n".join(
        json.dumps({"type": "Person", "data": {"name": f"n{n}"}}) for n in range(count)
    )


class Loading(threading.Thread):
    """A load that is under way while the test goes on."""

    def __init__(self, served):
        super().__init__()
        self.served, self.reply, self.problem = served, None, None

    def run(self):
        try:
            self.reply = self.served.post("/graphs/g/load", {"data": big_load()})
        except Exception as problem:  # noqa: BLE001 - the server may hang up
            self.problem = problem


def is_writing(served):
    return 'omnigraph_inflight{kind="write"} 1.0' in served.get("/metrics").body.decode()


def test_a_write_under_way_is_answered_before_the_server_ends(tmp_path):
    with serving([made(tmp_path / "g.omni")], folder=tmp_path) as served:
        load = Loading(served)
        load.start()
        until(lambda: is_writing(served))
        assert served.stop() == 0
        load.join()
        assert load.reply is not None, load.problem
        assert load.reply.status == 200
    with Graph.open(tmp_path / "g.omni") as graph:
        commit = load.reply.json["commit"]["graph_commit_id"]
        assert graph.commits(limit=1)[0].graph_commit_id == commit


def test_at_the_deadline_the_server_ends_with_2_and_the_graph_is_whole(tmp_path):
    with serving(
        [made(tmp_path / "g.omni")], "--shutdown-grace-seconds", "0.01", folder=tmp_path
    ) as served:
        load = Loading(served)
        load.start()
        until(lambda: is_writing(served))
        assert served.stop() == 2
        load.join()
    with Graph.open(tmp_path / "g.omni") as graph:
        assert graph.verify().ok
        assert graph.query(ALL).row_count in (0, 60_000)


def test_a_graph_that_cannot_be_opened_is_put_aside_and_tried_again(tmp_path):
    good = made(tmp_path / "good.omni")
    with serving([good, tmp_path / "late.omni"], folder=tmp_path) as served:
        assert served.get("/graphs").json["quarantined"] == ["late"]
        assert served.get("/graphs/late/schema").status == 404
        assert "late" in served.get("/readyz").json["problems"]
        made(tmp_path / "late.omni")
        until(lambda: served.get("/graphs/late/schema").status == 200)
        assert served.get("/graphs").json["quarantined"] == []


@pytest.mark.parametrize("words", [[], ["good.omni", "--require-all-graphs"]])
def test_without_a_graph_it_needs_the_server_ends_with_1(tmp_path, words):
    if words:
        made(tmp_path / "good.omni")
        words[0] = str(tmp_path / words[0])
    with serving([*words, tmp_path / "none.omni"], folder=tmp_path, ready=False) as served:
        assert served.process.wait(60) == 1


def test_stored_queries_are_reloaded_and_broken_ones_are_not(tmp_path):
    file = tmp_path / "q.gq"
    file.write_text(OLD)
    with serving([made(tmp_path / "g.omni")], "--queries", str(file), folder=tmp_path) as served:

        def names():
            return [one["name"] for one in served.get("/graphs/g/queries").json["queries"]]

        assert names() == ["all"]
        file.write_text(OLD + ALL)
        served.process.send_signal(signal.SIGHUP)
        until(lambda: names() == ["all", "everybody"])
        file.write_text("query all() { match { $p: Nobody } return { $p.name } }")
        until(lambda: "problems" in served.get("/readyz").json)  # noticed by itself
        assert names() == ["all", "everybody"]
        assert served.post("/graphs/g/queries/all").status == 200


@pytest.mark.parametrize("workers", ["1", "2"])
def test_signals_that_come_early_do_no_harm(tmp_path, workers):
    graph = made(tmp_path / "g.omni")
    with serving([graph], "--workers", workers, folder=tmp_path, ready=False) as served:
        served.process.send_signal(signal.SIGHUP)
        until(lambda: served.get("/readyz").status == 200)
    with serving([graph], "--workers", workers, folder=tmp_path, ready=False) as served:
        assert served.stop() == 0


def test_a_server_that_only_reads_says_where_to_write(tmp_path):
    options = ["--read-only", "--writer-url", "http://writer:8080"]
    with serving([made(tmp_path / "g.omni")], *options, folder=tmp_path) as served:
        assert served.post("/graphs/g/query", {"query": ALL}).status == 200
        reply = served.post("/graphs/g/mutate", {"query": ADD, "params": {"n": "x"}})
        assert reply.status == 503
        assert "http://writer:8080" in reply.json["error"]


def test_one_actor_may_not_have_too_much_under_way(tmp_path):
    env = {"OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "1"}
    with serving([made(tmp_path / "g.omni")], folder=tmp_path, env=env) as served:
        load = Loading(served)
        load.start()
        until(lambda: is_writing(served))
        reply = served.post("/graphs/g/mutate", {"query": ADD, "params": {"n": "x"}})
        assert (reply.status, reply.headers["retry-after"]) == (429, "1")
        assert reply.json["error"] == "actor in-flight count cap 1 exceeded"
        load.join()
        assert load.reply.status == 200


def children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_workers_see_each_others_commits_and_a_killed_one_comes_back(tmp_path):
    rounds = int(os.environ.get("OMNIGRAPH_WORKER_ROUNDS", "10"))
    with serving([made(tmp_path / "g.omni")], "--workers", "2", folder=tmp_path) as served:
        pid = served.process.pid
        until(lambda: len(children(pid)) == 2)
        for number in range(rounds):
            # Each connection is one worker's: a new one is anybody's.
            wrote = served.post(
                "/graphs/g/mutate",
                {"query": ADD, "params": {"n": f"n{number}"}},
                headers={"connection": "close"},
            )
            seen = served.post("/graphs/g/query", {"query": ALL}, headers={"connection": "close"})
            assert seen.json["graph_commit_id"] == wrote.json["commit"]["graph_commit_id"]
        before = children(pid)
        os.kill(before[0], signal.SIGKILL)
        until(lambda: len(children(pid)) == 2 and set(children(pid)) != set(before))
        found = served.post("/graphs/g/query", {"query": ALL}, headers={"connection": "close"})
        assert found.json["row_count"] == rounds
        assert served.stop() == 0
