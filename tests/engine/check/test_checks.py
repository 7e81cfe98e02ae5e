"""Checks of big loads: what a task is told stays small, and every stored row is read once."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from pathlib import Path

import pytest
from twins import Twins, bulk_load, content, cut_into, edge, ndjson, node, verdict_of

from omnigraph import Graph
from omnigraph.engine.check.keyfiles import bucket_count
from omnigraph.engine.load.order import checked_order
from omnigraph.engine.load.run import run_load
from omnigraph.engine.runner import Inline
from omnigraph.errors import OmnigraphError
from omnigraph.model.ports import World
from omnigraph.storage.table.table import Table

SCHEMA = "node P { k: String @key  e: String? @unique }\nedge E: P -> P @card(0..9)"


class Counting(Inline):
    """Runs tasks here and counts the bytes that each would take to another machine."""

    def __init__(self) -> None:
        super().__init__(held_bytes=0)
        self.told: dict[str, list[int]] = {}

    def run(self, tasks, function, *, stage):
        sizes = [len(pickle.dumps((function, task))) for task in tasks]
        self.told.setdefault(stage, []).extend(sizes)
        return super().run(tasks, function, stage=stage)


def people(count: int, first: int = 0) -> list[object]:
    rows: list[object] = [node("P", k=f"p{i}", e=f"e{i}") for i in range(first, first + count)]
    return rows + [edge("E", f"p{first}", f"p{i}") for i in range(first + 1, first + 4)]


def test_what_a_check_task_is_told_does_not_grow_with_the_load(tmp_path, monkeypatch):
    cut_into(monkeypatch, 16)
    monkeypatch.setattr(
        "omnigraph.engine.load.inputs.sources.plan_splits.__kwdefaults__", {"split_bytes": 2_000}
    )
    told = []
    for count in (100, 800):
        uri = str(tmp_path / str(count))
        Graph.init(uri, SCHEMA, durability="process").close()
        path = tmp_path / f"{count}.jsonl"
        path.write_text(ndjson(people(count)))
        runner = Counting()
        for mode in ("append", "merge"):
            order = checked_order(
                uri=uri, sources=str(path), mode=mode, on_error="fail", quarantine=None,
                idempotency_key=None,
            )  # fmt: skip
            run_load(runner, order, listener=None, world=World(durability="process"))
        assert len(runner.told["check"]) == 3 * 16  # a merge that replaces rows takes two rounds
        told.append(runner)
    assert len(told[1].told["stage"]) >= 6 * len(told[0].told["stage"])
    for stage, more in (("check", 16), ("stored keys", 100)):  # numbers of fragments
        small, big = (max(runner.told[stage]) for runner in told)
        assert big <= small + more, stage


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("buckets", [2, 16])
def test_a_unique_rule_reads_each_stored_row_once(tmp_path, monkeypatch, mode, buckets):
    twins = Twins(tmp_path, SCHEMA)
    bulk_load(twins.bulk_uri, str(twins.write(ndjson(people(500)))), mode="append")
    more = people(500, first=500 if mode == "append" else 250)
    cut_into(monkeypatch, buckets)
    seen: Counter[str] = Counter()
    read = Table.read

    def counted(table, *given, **options):
        rows = read(table, *given, **options)
        seen.update({name: rows.num_rows for name in rows.column_names if name == "e"})
        return rows

    monkeypatch.setattr(Table, "read", counted)
    monkeypatch.setattr(Table, "lookup", None)
    monkeypatch.setattr(Table, "scan", None)
    bulk_load(twins.bulk_uri, str(twins.write(ndjson(more[:500]))), mode=mode)
    assert seen == {"e": 500}


def test_small_loads_are_one_bucket_and_big_ones_are_many():
    assert bucket_count(1_000, 0) == 1
    assert bucket_count(1_000, 10**9) == 1  # stored rows are looked up
    assert bucket_count(20 * 2**20, 0) == 1
    assert bucket_count(20 * 2**20, 10**8) > 16
    assert bucket_count(2**30, 0) > 16
    assert bucket_count(2**50, 0) == 1_024
    assert bucket_count(None, 0) > 1


RULES = """
node P { k: String @key  e: String? @unique  a: I32?  b: F64?  @unique(a, b) }
node Q { n: I32? }
edge E: P -> P @card(1..2) { u: String? @unique }
edge F: P -> Q
"""


def any_record(rng: random.Random) -> object:
    name = f"p{rng.randrange(12)}"
    match rng.randrange(6):
        case 0 | 1 | 2:
            return node(
                "P",
                k=name,
                e=rng.choice([None, f"e{rng.randrange(14)}"]),
                a=rng.choice([None, rng.randrange(3)]),
                b=rng.choice([None, 0.0, -0.0, 1.5]),
            )
        case 3:
            return node("Q", id=f"q{rng.randrange(5)}", n=1)
        case 4:
            given = {"id": f"x{rng.randrange(12)}"} if rng.random() < 0.7 else {}
            shared = rng.choice([None, None, f"u{rng.randrange(20)}"])
            return edge("E", name, f"p{rng.randrange(13)}", u=shared, **given)
        case _:
            return edge("F", name, f"q{rng.randrange(6)}", id=f"y{rng.randrange(9)}")


@pytest.mark.parametrize("seed", range(5))
def test_any_loads_end_alike_in_one_bucket_and_in_many(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(
        "omnigraph.engine.load.inputs.sources.plan_splits.__kwdefaults__", {"split_bytes": 400}
    )
    graphs = {1: tmp_path / "one", rng.choice([2, 3, 7]): tmp_path / "many"}
    for uri in graphs.values():
        Graph.init(uri, RULES, durability="process").close()
    landed = 0
    for number in range(14):
        mode = rng.choice(["append", "merge", "merge", "merge", "overwrite"])
        on_error = rng.choice(["fail", "quarantine", "quarantine"])
        lines = [any_record(rng) for _ in range(rng.choice([2, 6, 25]))]
        path = tmp_path / f"{number}.jsonl"
        path.write_text(ndjson(lines))
        ends = []
        for buckets, uri in graphs.items():
            with monkeypatch.context() as patched:
                cut_into(patched, buckets)
                ends.append(_end_of(uri, path, mode, on_error))
        assert ends[0] == ends[1], (mode, on_error, lines)
        landed += ends[0][0] is None
    assert landed


def _end_of(uri: Path, path: Path, mode: str, on_error: str) -> object:
    told = None
    try:
        report = bulk_load(str(uri), str(path), mode=mode, on_error=on_error)
        counts = (report.nodes, report.edges, report.updated, report.rejected)
    except OmnigraphError as error:
        told, counts = verdict_of(error), ()
    assert not list(uri.glob("__staging/*")), "scratch files stay"
    with Graph.open(uri) as graph:
        return told, counts, content(graph)
