"""What is kept: under a budget, made once, and on disk for the next process."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from omnigraph import Graph, MaintenancePolicy
from omnigraph.engine.read import run
from omnigraph.engine.read.memory import cache, change, files, frame, ids, topology
from omnigraph.engine.read.memory.topology import Bulk
from omnigraph.engine.read.search import search, text, vectors
from omnigraph.errors import InputError
from omnigraph.model.limits import READ_CACHE_VERSIONS_MAX

SCHEMA = "node N { name: String @key }\nedge E: N -> N { w: I32? }"
WALK = 'query q() { match { $a: N { name: "n0" }  $a e{1,9} $b } return { $b.name } }'
HOP = 'query q() { match { $a: N { name: "n0" }  $a e $b } return { $b.name } }'
EDGES = 'query q() { match { $a: N { name: "n1" }  $a $w:e $b } return { $w.w, $b.name } }'


def lines(order):
    made = [f'{{"type": "N", "data": {{"name": "n{n}"}}}}' for n in range(8)]
    for number, (a, b) in enumerate(itertools.pairwise(order)):
        made.append(f'{{"edge": "E", "from": "n{a}", "to": "n{b}", "data": {{"w": {number}}}}}')
    return "\n".join(made)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(files, "TOPOLOGY_FILE_EDGES_MIN", 1)
    return tmp_path


def made(home, order):
    uri = str(home / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load(lines(order), mode="append")
        return uri, answers(graph)


def answers(graph):
    return graph.query(WALK).to_pylist(), graph.query(EDGES).to_pylist()


def stored():
    return sorted(files.user_topology_folder().glob("*"))


def test_a_second_process_does_not_read_the_ends_of_the_edges(home):
    uri, expected = made(home, [0, 1, 2, 3, 4])
    assert len(stored()) == 1
    with Graph.open(uri) as graph:
        told = graph.explain(WALK)
        assert "edge:E" not in told.columns_read
        assert answers(graph) == expected


def test_after_a_commit_the_taken_over_topology_moves_on(home):
    uri, _ = made(home, [0, 1, 2, 3])
    with Graph.open(uri, durability="process") as graph:
        answers(graph)
        graph.load('{"edge": "E", "from": "n3", "to": "n7"}', mode="append")
        assert {row["b.name"] for row in graph.query(WALK).to_pylist()} == {"n1", "n2", "n3", "n7"}


def test_a_graph_that_says_so_stores_topologies_when_it_is_loaded_and_optimized(home, monkeypatch):
    monkeypatch.setattr(run, "TOPOLOGY_FILE_EDGES_MIN", 1)
    uri, policy = str(home / "g.omni"), MaintenancePolicy(topologies=True)
    with Graph.init(uri, SCHEMA, durability="process", maintenance=policy) as graph:
        graph.load(lines([0, 1, 2, 3]), mode="append")
        assert len(stored()) == 1
        assert graph.explain(WALK).columns_read.keys() == {"node:N"}
        graph.mutate("query q() { delete E where w = 1 }")  # positions have a hole here
        expected = answers(graph)
        assert len(stored()) == 1
        graph.optimize()
        assert len(stored()) == 2
        assert answers(graph) == expected
    with Graph.open(uri) as graph:
        assert "edge:E" not in graph.explain(WALK).columns_read
        assert answers(graph) == expected


def test_topologies_that_cannot_be_stored_do_not_fail_a_load(home, monkeypatch):
    def fails(*_):
        raise InputError("no")

    monkeypatch.setattr(run.Reader, "store_topologies", fails)
    uri, policy = str(home / "g.omni"), MaintenancePolicy(topologies=True)
    with Graph.init(uri, SCHEMA, durability="process", maintenance=policy) as graph:
        assert graph.load(lines([0, 1]), mode="append").nodes == {"N": 8}


def test_a_file_outlives_compacting_and_indexing(home):
    uri, _ = made(home, [0, 1, 2, 3, 4])
    with Graph.open(uri, durability="process", maintenance=None) as graph:
        graph.load('{"edge": "E", "from": "n3", "to": "n7"}', mode="append")
    with Graph.open(uri) as graph:
        expected = answers(graph)
        before = stored()
        report = graph.optimize()
        assert any(one.fragments_removed for one in report.datasets)
    with Graph.open(uri) as graph:
        assert "edge:E" not in graph.explain(WALK).columns_read
        assert answers(graph) == expected
        assert stored() == before


@pytest.mark.parametrize("damage", ["half", "byte", "head", "empty", "long", "other format"])
def test_a_damaged_file_costs_a_rebuild_and_no_answer(home, damage):
    uri, expected = made(home, [0, 1, 2, 3, 4])
    (file,) = stored()
    body = file.read_bytes()
    damaged = {
        "half": body[: len(body) // 2],
        "byte": body[:-1],
        "head": body[:30],
        "empty": b"",
        "long": body + b"x",
        "other format": body.replace(b"topology 3", b"topology 2"),
    }
    file.write_bytes(damaged[damage])
    with Graph.open(uri) as graph:
        assert answers(graph) == expected


def test_whatever_byte_is_flipped_the_answers_stay(home):
    uri, expected = made(home, [0, 1, 2, 3, 0, 1])
    (file,) = stored()
    body = file.read_bytes()
    for at in range(0, len(body), 16):
        file.write_bytes(body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :])
        with Graph.open(uri) as graph:
            assert answers(graph) == expected


def test_another_graph_at_the_same_place_does_not_take_it_over(home):
    uri, _ = made(home, [0, 1, 2, 3, 4])
    shutil.rmtree(uri)
    uri, expected = made(home, [0, 4, 3, 2, 1])
    with Graph.open(uri) as graph:
        assert answers(graph) == expected
        assert {row["b.name"] for row in expected[0]} == {"n1", "n2", "n3", "n4"}


def test_a_folder_that_cannot_be_written_stops_nothing(home):
    (home / ".cache").write_text("not a folder")
    _, expected = made(home, [0, 1, 2])
    assert len(expected[0]) == 2


def test_the_folder_keeps_to_its_size(home, monkeypatch):
    monkeypatch.setattr(files, "TOPOLOGY_FILES_BYTES_MAX", 1)
    uri, _ = made(home, [0, 1, 2])
    with Graph.open(uri, durability="process") as graph:
        graph.load('{"edge": "E", "from": "n2", "to": "n3"}', mode="append")
    with Graph.open(uri) as graph:
        answers(graph)
    assert len(stored()) == 1


# --- fingerprints of ids in a file -------------------------------------------------------------

BY_NAME = 'query q() { match { $a: N { name: "n3" } } return { $a.name } }'


@pytest.fixture
def big(home, monkeypatch):
    """Every table is big, as far as the settings say, and ids are looked for in storage."""
    monkeypatch.setattr(cache, "IDS_AT_ONCE_ROWS", 0)
    monkeypatch.setattr(frame, "PRINTED_ROWS_MIN", 0)
    monkeypatch.setattr(frame, "SMALL_TABLE_ROWS", 0)
    monkeypatch.setattr(frame, "SEARCHED_IDS_MAX", 1)
    monkeypatch.setattr(frame, "WHOLE_SHARE", 0)
    return home


def of_ids():
    return [file for file in stored() if file.suffix == ".ids"]


def test_a_second_process_finds_an_id_without_reading_all_of_them(big):
    uri, _ = made(big, [0, 1, 2, 3, 4])
    assert len(of_ids()) == 1
    with Graph.open(uri) as graph:
        found = graph.query(HOP.replace("n0", "n3"), explain=True)
        assert found.column("b.name") == ["n4"]
        assert found.explanation.rows_read < 8


def test_fingerprints_of_one_version_are_not_taken_for_those_of_another(big):
    uri, _ = made(big, [0, 1, 2, 3, 4])
    with Graph.open(uri, durability="process") as graph:
        graph.load('{"type": "N", "data": {"name": "n9"}}', mode="append")
    with Graph.open(uri) as graph:
        found = graph.query(BY_NAME.replace("n3", "n9"))
        assert found.column("a.name") == ["n9"]


def test_whatever_byte_of_the_fingerprints_is_flipped_the_answers_stay(big):
    uri, expected = made(big, [0, 1, 2, 3, 4])
    (file,) = of_ids()
    body = file.read_bytes()
    for damaged in (body[:-1], body[:30], b"", body + b"x"):
        file.write_bytes(damaged)
        with Graph.open(uri) as graph:
            assert answers(graph) == expected
    for at in range(0, len(body), 16):
        file.write_bytes(body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :])
        with Graph.open(uri) as graph:
            assert graph.query(BY_NAME).column("a.name") == ["n3"]


# --- the budget --------------------------------------------------------------------------------


def test_a_column_goes_by_itself_and_is_read_again(home):
    uri, expected = made(home, [0, 1, 2, 3, 4])
    with Graph.open(uri) as graph:
        assert answers(graph) == expected
        kept = graph._reader._caches._kept
        frames = kept.matching(lambda key: key[0] == "frame")
        (edges,) = [one for one in frames if one.table.entry.entity_kind == "edge"]
        held = kept.held_bytes()
        assert [*edges.parts()] == ["w"]
        edges.shed("w")
        assert (edges.parts(), kept.held_bytes() < held) == ({}, True)
        assert answers(graph) == expected
        assert [*edges.parts()] == ["w"]


@pytest.mark.parametrize("given", ["1", 1.5, True, -1])
def test_a_budget_is_a_number_of_bytes(home, given):
    uri, _ = made(home, [0, 1])
    with pytest.raises(InputError, match="cache_bytes"):
        Graph.open(uri, cache_bytes=given)


@pytest.mark.parametrize("cache_bytes", [0, 100, 10_000])
def test_answers_do_not_depend_on_the_budget(home, cache_bytes):
    uri, expected = made(home, [0, 1, 2, 3, 4])
    with Graph.open(uri, cache_bytes=cache_bytes) as graph:
        assert [answers(graph) for _ in range(4)] == [expected] * 4


# --- built beside ------------------------------------------------------------------------------


@pytest.fixture
def beside(monkeypatch):
    monkeypatch.setattr(files, "TOPOLOGY_FILE_EDGES_MIN", 1 << 60)
    monkeypatch.setattr(cache, "LOOKUP_EDGES_MIN", 0)
    monkeypatch.setattr(cache, "BACKGROUND_EDGES_MIN", 0)
    monkeypatch.setattr(cache, "SLICE_ROWS", 1)
    monkeypatch.setattr(cache, "IDS_AT_ONCE_ROWS", 0)


def test_while_a_topology_is_built_few_nodes_are_looked_up(home, beside, monkeypatch):
    uri, expected = made(home, [0, 1, 2, 3, 4])
    go_on, building = threading.Event(), threading.Event()
    read = cache._Ends.both

    def slow(self):
        building.set()
        assert go_on.wait(30)
        return read(self)

    monkeypatch.setattr(cache._Ends, "both", slow)
    with Graph.open(uri) as graph:
        walks = [graph.query(HOP).to_pylist() for _ in range(cache.LOOKUP_WALKS + 2)]
        assert walks == [[{"b.name": "n1"}]] * len(walks)
        assert building.wait(30)
        assert "src" in graph.explain(HOP).columns_read["edge:E"]  # looked up
        go_on.set()
        assert graph.query(EDGES).to_pylist() == expected[1]  # waits for the whole
        assert "edge:E" not in graph.explain(HOP).columns_read


@pytest.fixture
def ids_beside(home, beside, monkeypatch):
    """A graph whose table of ids is not made before the second event; the first says when."""
    uri, _ = made(home, [0, 1, 2, 3, 4])
    monkeypatch.setattr(frame, "SEARCHED_IDS_MAX", 4)
    monkeypatch.setattr(frame, "BESIDE_IDS_MIN", 0)
    making, go_on = threading.Event(), threading.Event()
    make = ids.IdTable.of

    def slow(column, checkpoint):
        making.set()
        assert go_on.wait(30)
        checkpoint()
        return make(column)

    monkeypatch.setattr(ids.IdTable, "of", slow)
    with Graph.open(uri, durability="process") as graph:
        yield graph, making, go_on
        go_on.set()


def found(graph, name):
    source = "query q($n: String) { match { $a: N { name: $n } } return { $a.name } }"
    return graph.query(source, params={"n": name}).column("a.name")


def test_while_the_table_of_ids_is_made_they_are_searched_for(ids_beside):
    graph, making, go_on = ids_beside
    assert graph.query(HOP).column("b.name") == ["n1"]
    assert [found(graph, f"n{at}") for at in range(9)] == [[f"n{at}"] for at in range(8)] + [[]]
    assert making.wait(30)
    (nodes,) = [
        one
        for one in graph._reader._caches._kept.matching(lambda key: key[0] == "frame")
        if one.table.entry.entity_kind == "node"
    ]
    go_on.set()
    nodes._wait_for_ids()
    before = graph._reader._caches.cost.reads
    assert [found(graph, f"n{at}") for at in range(9)] == [[f"n{at}"] for at in range(8)] + [[]]
    assert graph._reader._caches.cost.reads == before


def test_a_table_of_ids_that_is_being_made_follows_the_next_commit(ids_beside):
    graph, making, go_on = ids_beside
    for _ in range(3):
        assert found(graph, "n3") == ["n3"]
    assert making.wait(30)
    graph.load('{"type": "N", "data": {"name": "new"}}', mode="append")
    threading.Timer(0.2, go_on.set).start()
    assert [found(graph, name) for name in ("new", "n3", "no")] == [["new"], ["n3"], []]


def test_closing_stops_a_table_of_ids_that_is_being_made(ids_beside):
    graph, making, go_on = ids_beside
    for _ in range(3):
        assert found(graph, "n3") == ["n3"]
    assert making.wait(30)
    threading.Timer(0.2, go_on.set).start()
    graph.close()
    assert not [one for one in threading.enumerate() if one.name == "ids"]


def test_closing_stops_a_build_between_two_slices(home, beside, monkeypatch):
    uri, _ = made(home, [0, 1, 2, 3, 4])
    building, closing, slices = threading.Event(), threading.Event(), []
    put_slice = cache._Ends._places

    def counted(self, row_ids):
        slices.append(row_ids)
        building.set()
        closing.wait(30)
        return put_slice(self, row_ids)

    monkeypatch.setattr(cache._Ends, "_places", counted)
    graph = Graph.open(uri)
    for _ in range(cache.LOOKUP_WALKS + 1):
        graph.query(HOP)
    assert building.wait(30)
    threading.Timer(0.2, closing.set).start()
    graph.close()
    assert len(slices) == 1
    assert not [one for one in threading.enumerate() if one.name == "topology"]


ENDS_EARLY = """
import sys, time
from omnigraph import Graph
from omnigraph.engine.read.memory import cache, files, frame
from omnigraph.engine.read.memory.topology import Bulk
from omnigraph.engine.read.search import search, text, vectors
files.TOPOLOGY_FILE_EDGES_MIN = 1 << 60
cache.LOOKUP_EDGES_MIN = cache.BACKGROUND_EDGES_MIN = cache.IDS_AT_ONCE_ROWS = 0
cache.SLICE_ROWS = 1
places = cache._Ends._places
cache._Ends._places = lambda *args: (time.sleep(0.2), places(*args))[1]
graph = Graph.open(sys.argv[1])
for _ in range(cache.LOOKUP_WALKS + 1):
    graph.query(sys.argv[2])
print("end")
"""


def test_a_program_that_ends_while_building_ends_well(home):
    uri, _ = made(home, [*range(8)] * 20)
    done = subprocess.run(
        [sys.executable, "-c", ENDS_EARLY, uri, HOP],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_rows_that_are_not_one_range_are_stored_with_their_ids(home):
    uri, _ = made(home, [0, 1, 2, 3, 4])
    with Graph.open(uri, durability="process") as graph:
        graph.mutate("query q() { delete E where w = 1 }")
    with Graph.open(uri) as graph:
        expected = answers(graph)
        frames = graph._reader._caches._kept.matching(lambda key: key[0] == "frame")
        assert [one.row_ids.first_of_range is None for one in frames].count(True) == 1
    with Graph.open(uri) as graph:
        assert "edge:E" not in graph.explain(WALK).columns_read
        assert answers(graph) == expected
    ids = np.array([0, 2, 3], np.uint64).tobytes()
    for file in (one for one in stored() if ids in one.read_bytes()):
        body = file.read_bytes()
        at = body.rindex(ids)
        file.write_bytes(body[:at] + b"x" + body[at + 1 :])
    with Graph.open(uri) as graph:
        assert answers(graph) == expected


# --- branches ----------------------------------------------------------------------------------


def test_the_first_commit_on_a_branch_moves_what_is_known_of_its_parent(home):
    uri, expected = made(home, [0, 1, 2, 3])
    with Graph.open(uri, durability="process") as graph:
        assert answers(graph) == expected
        graph.create_branch("b")
        assert graph.explain(EDGES, branch="b").reads == 0
        graph.load('{"edge": "E", "from": "n1", "to": "n7"}', mode="append", branch="b")
        told = graph.explain(EDGES, branch="b")
        assert told.rows_read <= 2  # the new edge, and its property
        found = graph.query(EDGES, branch="b").to_pylist()
        assert [row["b.name"] for row in found] == ["n2", "n7"]
        assert answers(graph) == expected
    with Graph.open(uri) as graph:
        assert graph.query(EDGES, branch="b").to_pylist() == found


def test_another_branch_is_not_moved_from(home):
    uri, _ = made(home, [0, 1, 2, 3])
    with Graph.open(uri, durability="process") as graph:
        for name in "ab":
            graph.create_branch(name)
            line = f'{{"edge": "E", "from": "n1", "to": "n{ord(name) - 92}"}}'
            graph.load(line, mode="append", branch=name)
        for name in "abab":
            found = graph.query(EDGES, branch=name).to_pylist()
            assert [row["b.name"] for row in found] == ["n2", f"n{ord(name) - 92}"]


def test_after_optimize_nothing_is_read_again(home):
    uri, expected = made(home, [0, 1, 2, 3])
    with Graph.open(uri, durability="process", maintenance=None) as graph:
        graph.load('{"edge": "E", "from": "n1", "to": "n7"}', mode="append")
        expected = answers(graph)
        graph.optimize()
        told = graph.explain(EDGES)
        assert told.rows_read == 0
        assert answers(graph) == expected


def test_a_topology_that_must_be_built_anew_is_built_beside(home, beside, monkeypatch):
    monkeypatch.setattr(topology, "NEW_EDGES_MAX", 1)
    uri, _ = made(home, [0, 1, 2, 3, 4])
    go_on, begun = threading.Event(), []
    read = cache._Ends.both

    def slow(self):
        begun.append(self)
        assert len(begun) < 2 or go_on.wait(30)
        return read(self)

    monkeypatch.setattr(cache._Ends, "both", slow)
    with Graph.open(uri, durability="process") as graph:
        graph.query(EDGES)
        assert "edge:E" not in graph.explain(HOP).columns_read
        more = [f'{{"edge": "E", "from": "n0", "to": "n{n}"}}' for n in (5, 6)]
        graph.load("\n".join(more), mode="append")
        walks = [graph.query(HOP).to_pylist() for _ in range(cache.LOOKUP_WALKS + 2)]
        go_on.set()
        graph.query(EDGES)
        assert "edge:E" not in graph.explain(HOP).columns_read
        walks.append(graph.query(HOP).to_pylist())
    assert {tuple(row["b.name"] for row in one) for one in walks} == {("n1", "n5", "n6")}
    assert len(begun) == 2


# --- many commits ------------------------------------------------------------------------------

TEXTS = "node N { name: String @key  said: String?  at: Vector(2)? }\nedge E: N -> N { w: I32? }"
ASKED = {
    "said": 'match { $n: N } return { $n.name } order { bm25($n.said, "hello") } limit 9',
    "walk": 'match { $a: N { name: "n0" }  $a e{1,9} $b } return { $b.name }',
    "near": "match { $n: N } return { $n.name } order { nearest($n.at, [1.0, 0.5]) } limit 2",
    "group": "match { $n: N } return { $n.said, count(*) as n }",
    "edges": "match { $a: N  $a $e:e $b  $e.w > 1 } return { count(*) as n }",
}


def a_few(graph, first, last):
    made = []
    for n in range(first, last):
        said = {"name": f"n{n}", "said": f"hello {n}", "at": [float(n), 1.0]}
        made.append(json.dumps({"type": "N", "data": said}))
        made.append(json.dumps({"edge": "E", "from": f"n{n}", "to": f"n{n // 2}"}))
        made.append(json.dumps({"edge": "E", "from": f"n{n // 2}", "to": f"n{n}"}))
    graph.load("\n".join(made), mode="append")


def told(graph, name):
    return graph.query(f"query q() {{ {ASKED[name]} }}").to_pylist()


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "NEAR_ROWS_MIN", 1)
    with Graph.init(str(tmp_path / "t.omni"), TEXTS, durability="process") as graph:
        a_few(graph, 0, 12)
        yield graph


def test_after_many_commits_no_more_is_kept_than_after_a_few(texts):
    counts = []
    for turn in range(12, 12 + 2 * READ_CACHE_VERSIONS_MAX):
        a_few(texts, turn, turn + 1)
        for name in ASKED:
            told(texts, name)
        counts.append(len(texts._reader._caches._kept.matching(lambda _: True)))
    things = 5  # two frames, a topology, words, vectors
    assert counts[READ_CACHE_VERSIONS_MAX:] == [things * READ_CACHE_VERSIONS_MAX] * (
        READ_CACHE_VERSIONS_MAX
    )


def test_what_was_not_asked_for_since_some_commits_still_follows_them(texts, monkeypatch):
    for name in ASKED:
        told(texts, name)
    built = []
    for kind, make in ((vectors.Vectors, "build"), (Bulk, "of")):
        monkeypatch.setattr(kind, make, lambda *_, kind=kind: built.append(kind))
    monkeypatch.setattr(text, "_made_parts", lambda *_: built.append("words"))
    for turn in range(12, 18):
        a_few(texts, turn, turn + 1)
        for name in ("group", "edges"):  # the frames move, and what rests on them does not yet
            told(texts, name)
    texts.optimize()
    found = {name: told(texts, name) for name in ASKED}
    monkeypatch.undo()
    assert built == []
    with Graph.open(texts.uri) as fresh:
        assert found == {name: told(fresh, name) for name in ASKED}


def test_words_and_vectors_follow_over_more_commits_than_a_frame_remembers(texts, monkeypatch):
    for name in ASKED:
        told(texts, name)
    built = []
    monkeypatch.setattr(vectors.Vectors, "build", lambda *_: built.append("vectors"))
    monkeypatch.setattr(text, "_made_parts", lambda *_: built.append("words"))
    monkeypatch.setattr(change, "FOLLOWED_CHANGES_MAX", 2)
    for turn in range(12, 20):
        a_few(texts, turn, turn + 1)
        if turn % 2:  # added, and gone again before anybody searched
            gone = f'query q() {{ delete N where name = "n{turn}" }}'
            texts.mutate(gone)
        texts.mutate(
            f'query q() {{ update N set {{ said: "hello you {turn}" }} where name = "n3" }}'
        )
        told(texts, "group")
    texts.optimize()
    found = {name: told(texts, name) for name in ASKED}
    assert built == []
    monkeypatch.undo()
    with Graph.open(texts.uri) as fresh:
        assert found == {name: told(fresh, name) for name in ASKED}


def test_words_follow_also_when_their_column_was_let_go_of(texts):
    told(texts, "said")
    kept = texts._reader._caches._kept
    (frame,) = kept.matching(lambda key: key[0] == "frame")
    frame.shed("said")
    a_few(texts, 12, 13)
    assert len(told(texts, "said")) == 9
    assert len(kept.matching(lambda key: key[0] == "text")[0].value.parts) == 2


def test_what_rests_on_a_frame_goes_with_it(texts):
    for name in ASKED:
        told(texts, name)
    kept = texts._reader._caches._kept
    kept.budget_bytes = 0
    kept.trim()
    assert kept.matching(lambda key: key[0] != "frame") == []
    assert kept.held_bytes() == 0


def test_one_build_at_a_time_serves_the_versions_that_come_meanwhile(home, beside, monkeypatch):
    uri, _ = made(home, [0, 1, 2, 3, 4])
    go_on, begun = threading.Event(), []
    read = cache._Ends.both

    def slow(self):
        begun.append(self)
        assert go_on.wait(30)
        return read(self)

    monkeypatch.setattr(cache._Ends, "both", slow)
    with Graph.open(uri, durability="process") as graph:
        for turn in range(3):
            for _ in range(cache.LOOKUP_WALKS + 1):
                graph.query(HOP)
            graph.load(f'{{"edge": "E", "from": "n0", "to": "n{turn + 5}"}}', mode="append")
        found = [row["b.name"] for row in graph.query(HOP).to_pylist()]
        go_on.set()
        assert [row["b.name"] for row in graph.query(HOP).to_pylist()] == found
        graph.query(EDGES)
        assert sorted(found) == ["n1", "n5", "n6", "n7"]
        assert "edge:E" not in graph.explain(HOP).columns_read
        assert [row["b.name"] for row in graph.query(HOP).to_pylist()] == found
    assert len(begun) == 1
