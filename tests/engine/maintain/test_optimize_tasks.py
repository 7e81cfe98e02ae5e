"""The long part of optimize in pieces, each carried out by somebody who has only an address."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from maintain_world import SCHEMA

from inside import core_of, table_of
from omnigraph import Graph
from omnigraph.engine.maintain.optimize import Work, optimize
from omnigraph.storage.table.fragments import run_upkeep
from omnigraph.storage.table.index import IndexBuild, IndexSpec, IndexTask, tasks

ADD = """
query add($name: String, $bio: String, $spot: Vector(2)) {
  insert Person { name: $name, bio: $bio, spot: $spot }
  insert Knows { from: $name, to: $name }
}
query spoken($word: String) {
  match { $p: Person  search($p.bio, $word) } return { $p.name } order { $p.name asc }
}
query near($spot: Vector(2)) {
  match { $p: Person } return { $p.name } order { nearest($p.spot, $spot) } limit 2
}
query named($name: String) { match { $p: Person { name: $name } } return { $p.bio } }
"""
BIOS = ("long walks", "short walks", "long talks", "no talks", "walks and talks", "silence")


def grown(path) -> Graph:
    graph = Graph.init(str(path), SCHEMA, durability="process")
    for number, bio in enumerate(BIOS):
        params = {"name": f"p{number}", "bio": bio, "spot": [1.0, float(number)]}
        graph.mutate(ADD, "add", params=params)
    return graph


def elsewhere(seen):
    """What an executor does: nothing but values go there and come back."""

    def run(table, wanted):
        folder, options = table._pinned.dataset.uri, {}
        seen.extend(wanted)
        packed = [pickle.dumps((folder, options, table.version, task)) for task in wanted]
        return [pickle.loads(pickle.dumps(run_upkeep(*pickle.loads(one)))) for one in packed]

    return run


def answers(graph):
    return (
        sorted(graph.export()),
        [graph.query(ADD, "spoken", params={"word": w}).to_pylist() for w in ("walks", "talks")],
        graph.query(ADD, "near", params={"spot": [1.0, 3.1]}).to_pylist(),
        [graph.query(ADD, "named", params={"name": n}).to_pylist() for n in ("p0", "p5", "p9")],
    )


def coverage(graph, key):
    found = table_of(graph, key, "main").indexes()
    return {one.name: (one.segments, one.rows_indexed, one.rows_unindexed) for one in found}


def index_folders(graph, key):
    entry = graph.snapshot("main").entries[key]
    return list((Path(graph.uri) / entry.location / "_indices").iterdir())


def test_pieces_built_elsewhere_come_to_the_same_as_segments_built_here(tmp_path):
    seen: list[object] = []
    with grown(tmp_path / "here") as here, grown(tmp_path / "there") as there:
        before = answers(there)
        here.optimize()
        optimize(core_of(there), how=Work(run_tasks=elsewhere(seen), index_task_rows=2))
        assert answers(there) == before
        assert answers(there)[1:] == answers(here)[1:]  # edges have ids of their own
        for key in ("node:Person", "edge:Knows"):
            assert coverage(there, key) == coverage(here, key)
            # The pieces themselves are gone.
            assert len(index_folders(there, key)) == len(index_folders(here, key))
    pieces = [one.spec.name for one in seen if isinstance(one, IndexTask)]
    assert pieces.count("bio_inverted") == 3
    assert pieces.count("src_btree") == 3
    assert pieces.count("spot_vector") == 1
    assert any(isinstance(one, str) for one in seen)


@pytest.mark.parametrize(
    ("kind", "rows_max", "runs"),
    [
        ("btree", None, ((0, 1, 2, 5),)),
        ("btree", 10, ((0, 1), (2,), (5,))),
        ("btree", 1, ((0,), (1,), (2,), (5,))),
        ("inverted", 1_000, ((0, 1, 2, 5),)),
        ("vector", 1, ((0, 1, 2, 5),)),
    ],
)
def test_a_segment_is_cut_between_fragments(kind, rows_max, runs):
    spec = IndexSpec(name=f"a_{kind}", column="a", kind=kind)
    wanted = IndexBuild(spec=spec, fragments=(0, 1, 2, 5))
    sizes = {0: 4, 1: 6, 2: 50, 5: 3, 7: 1}
    assert tuple(one.fragments for one in tasks(wanted, sizes, rows_max=rows_max)) == runs
