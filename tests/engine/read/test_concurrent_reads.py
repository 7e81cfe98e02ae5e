"""Several threads read one handle while commits come: every answer is that of its snapshot."""

from __future__ import annotations

import json
import threading

import pytest

from omnigraph import Graph
from omnigraph.engine.read.match import candidates
from omnigraph.engine.read.memory import cache, files, frame

SCHEMA = "node N { name: String @key  kind: String?  said: String? }\nedge E: N -> N { w: I32? }"
# Each counts the nodes that were added to the hub, one way or the other.
QUESTIONS = (
    'match { $h: N { name: "hub" }  $h e $n } return { count(*) as n }',
    "match { $n: N  $n e $h } return { count(*) as n }",
    'match { $h: N { name: "hub" }  $h $e:e $n  $e.w >= 0 } return { count(*) as n }',
    'match { $n: N  $n.kind = "leaf" } return { count(*) as n }',
    "match { $n: N } return { $n.kind, count(*) as n } order { $n.kind desc } limit 1",
    'match { $n: N  search($n.said, "hello") } return { count(*) as n }',
)
READERS = 4
COMMITS = 12
SETTINGS = {
    "everything is kept": {},
    "nothing is kept": {"cache_bytes": 0},
    "little is kept": {"cache_bytes": 8_000, "SMALL_TABLE_ROWS": 0, "IDS_AT_ONCE_ROWS": 0},
    "built beside": {
        "LOOKUP_EDGES_MIN": 0,
        "BACKGROUND_EDGES_MIN": 0,
        "SLICE_ROWS": 3,
        "IDS_AT_ONCE_ROWS": 0,
        "TOPOLOGY_FILE_EDGES_MIN": 1,
    },
}


def leaf(number):
    node = {"name": f"n{number}", "kind": "leaf", "said": f"hello {number}"}
    ends = ((f"n{number}", "hub"), ("hub", f"n{number}"))
    edges = [{"edge": "E", "from": a, "to": b, "data": {"w": number}} for a, b in ends[1:]]
    return "\n".join(json.dumps(one) for one in [{"type": "N", "data": node}, *edges])


@pytest.fixture(params=SETTINGS)
def options(request, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    chosen = dict(SETTINGS[request.param])
    kept = {"cache_bytes": chosen.pop("cache_bytes")} if "cache_bytes" in chosen else {}
    for name, value in chosen.items():
        for module in (cache, files, frame, candidates):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    return kept


def test_every_answer_is_that_of_its_snapshot(tmp_path, options):
    leaves = {}  # how many there are, by commit
    wrong, done = [], threading.Event()
    with Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process", **options) as graph:
        graph.load(json.dumps({"type": "N", "data": {"name": "hub", "kind": "a"}}), mode="append")
        graph.load(leaf(0), mode="append")
        leaves[graph.query(f"query q() {{ {QUESTIONS[0]} }}").graph_commit_id] = 1
        told = threading.Lock()

        def read(first):
            asked = 0
            while not done.is_set() or asked < len(QUESTIONS):
                question = QUESTIONS[(first + asked) % len(QUESTIONS)]
                asked += 1
                try:
                    found = graph.query(f"query q() {{ {question} }}")
                    answer = (found.graph_commit_id, found.to_pylist()[0]["n"], question)
                except Exception as cause:  # noqa: BLE001 - whatever it is, it is wrong
                    answer = (None, repr(cause), question)
                with told:
                    answers.append(answer)

        answers = []
        readers = [threading.Thread(target=read, args=(number,)) for number in range(READERS)]
        for reader in readers:
            reader.start()
        try:
            for number in range(1, COMMITS):
                if number == COMMITS // 2:
                    graph.optimize()
                commit = graph.load(leaf(number), mode="append").commit
                leaves[commit.graph_commit_id] = number + 1
        finally:
            done.set()
            for reader in readers:
                reader.join()
        # A commit of `optimize` has the leaves of the one before: it is asked like the others.
        wrong = [one for one in answers if one[0] is None]
        wrong += [one for one in answers if one[0] in leaves and one[1] != leaves[one[0]]]
    assert wrong == []
    assert len(answers) >= READERS * len(QUESTIONS)
