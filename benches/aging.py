"""A graph after thousands of single-row commits, beside a fresh graph of the same content.

    python benches/aging.py [commits]        default: 5000

Everything with default settings, so upkeep runs by itself. Point lookup and keyed upsert are timed
in turns on both; then the aged graph is optimized and cleaned up, and both are timed and weighed
again. If lancedb is installed it does the same commits on one table. Prints JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import milliseconds, side_by_side
from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: Date? }
"""
INSERT = "query q($n: String) { insert Person { name: $n, age: 5 } }"
UPDATE = "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
LOOKUP = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
EVERY_UPDATE, ROUNDS = 5, 40


def age(graph: Graph, commits: int) -> dict[str, float]:
    """Make the commits; how long they took at the beginning and at the end."""
    took: list[float] = []
    for number in range(commits):
        name = f"p{number:06}"
        if number % EVERY_UPDATE == EVERY_UPDATE - 1:
            earlier = f"p{number // 2 // EVERY_UPDATE * EVERY_UPDATE:06}"
            params: dict[str, Any] = {"n": earlier, "a": number % 90}
            took.append(milliseconds(lambda params=params: graph.mutate(UPDATE, params=params)))
        else:
            took.append(milliseconds(lambda name=name: graph.mutate(INSERT, params={"n": name})))
    tenth = max(1, commits // 10)
    return {
        "first_tenth_ms": round(statistics.median(took[:tenth]), 2),
        "last_tenth_ms": round(statistics.median(took[-tenth:]), 2),
        "p99_ms": round(sorted(took)[int(len(took) * 0.99)], 2),
        "slowest_ms": round(max(took), 2),
    }


def size(folder: str) -> int:
    """Bytes of all files below."""
    return sum(
        os.path.getsize(os.path.join(parent, name))
        for parent, _, names in os.walk(folder)
        for name in names
    )


def compare(aged: Graph, fresh: Graph, rounds: int) -> dict[str, Any]:
    """Both graphs side by side, hot and as first asked."""
    turn = iter(range(10**9))

    def lookup(graph: Graph) -> Callable[[], object]:
        return lambda: graph.query(LOOKUP, params={"n": f"p{next(turn) * 5:06}"}).to_pylist()

    def upsert(graph: Graph) -> Callable[[], object]:
        return lambda: graph.mutate(UPDATE, params={"n": "p000000", "a": next(turn) % 100})

    found = [
        side_by_side("point lookup", ours=lookup(aged), raw=lookup(fresh), rounds=rounds),
        side_by_side("keyed upsert", ours=upsert(aged), raw=upsert(fresh), rounds=rounds),
    ]
    return {
        one.name: {"aged_ms": one.ours_ms, "fresh_ms": one.raw_ms, "ratio": one.ratio}
        for one in found
    }


def shape(graph: Graph) -> dict[str, Any]:
    """What is on disk."""
    health = graph.health()
    manifest = graph._core.rooms.manifests.fresh(None)  # noqa: SLF001
    return {
        "bytes": size(graph.uri),
        "fragments": {one.type_key: one.fragments for one in health.datasets},
        "versions": {one.type_key: one.versions for one in health.datasets},
        "manifest_fragments": len(manifest.opened.fragments),
        "manifest_versions": health.manifest_versions,
    }


def lancedb_beside(folder: Path, commits: int) -> dict[str, Any] | None:
    """The same commits on one bare table; None if lancedb is not there."""
    if importlib.util.find_spec("lancedb") is None:
        return None
    import lancedb

    table = lancedb.connect(str(folder / "lancedb")).create_table("p", [{"id": "p", "age": 5}])
    table.create_scalar_index("id")
    took = []
    for number in range(commits):
        row = [{"id": f"p{number:06}", "age": 5}]
        took.append(
            milliseconds(
                lambda row=row: (
                    table.merge_insert("id")
                    .when_matched_update_all()
                    .when_not_matched_insert_all()
                    .execute(row)
                )
            )
        )
    lookups = [
        milliseconds(lambda n=n: table.search().where(f"id = 'p{n:06}'").limit(1).to_list())
        for n in range(0, min(commits, 200), 5)
    ]
    return {
        "last_tenth_ms": round(statistics.median(took[-max(1, commits // 10) :]), 2),
        "point lookup ms": round(statistics.median(lookups), 2),
        "bytes": size(str(folder / "lancedb")),
    }


def run(folder: Path, commits: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """The whole story as one value."""
    began = time.perf_counter()
    with Graph.init(str(folder / "aged"), SCHEMA) as aged:
        result: dict[str, Any] = {"commits": commits, "writing": age(aged, commits)}
        result["took_s"] = round(time.perf_counter() - began, 1)
        with Graph.init(str(folder / "fresh"), SCHEMA) as fresh:
            fresh.load(aged.export(), mode="append")
            fresh.optimize()
            fresh.cleanup(keep_versions=1, grace=0)
            result["fresh"] = shape(fresh)
            result["aged"] = {**shape(aged), **compare(aged, fresh, rounds)}
            aged.optimize()
            aged.cleanup(keep_versions=1, grace=0)
            result["after optimize and cleanup"] = shape(aged)
            ratio = size(aged.uri) / result["fresh"]["bytes"]
            result["after optimize and cleanup"]["bytes ratio"] = round(ratio, 2)
            result["after optimize and cleanup"] |= compare(aged, fresh, rounds)
    result["lancedb"] = lancedb_beside(folder, commits)
    return result


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="omnigraph-aging-") as place:
        chosen = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
        print(json.dumps(run(Path(place), chosen), indent=2))
