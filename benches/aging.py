"""A graph after thousands of single-row commits, beside a fresh graph of the same content.

    python benches/aging.py [COMMITS] [--row-bytes N] [--peer-python PATH]

Everything with default settings, so upkeep runs by itself. Point lookup and keyed upsert are timed
in turns on both; then both graphs are optimized and cleaned up, and timed and weighed again: a
graph that has taken writes since answers from memory and not from its indexes, so the two must be
in the same state to be compared. lancedb does the same commits on one table, if `--peer-python`
names an interpreter that has it. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import milliseconds
from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32?  about: String? }
edge Knows: Person -> Person { since: Date? }
"""
INSERT = "query q($n: String, $t: String) { insert Person { name: $n, age: 5, about: $t } }"
UPDATE = "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
LOOKUP = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
EVERY_UPDATE, ROUNDS, ROW_BYTES = 5, 40, 500
LETTERS = "abcdefghijklmnopqrstuvwxyz      "


def age(graph: Graph, commits: int, row_bytes: int) -> dict[str, float]:
    """Make the commits; how long they took at the beginning and at the end."""
    took: list[float] = []
    chance = random.Random(7)
    for number in range(commits):
        name = f"p{number:06}"
        if number % EVERY_UPDATE == EVERY_UPDATE - 1:
            earlier = f"p{number // 2 // EVERY_UPDATE * EVERY_UPDATE:06}"
            params: dict[str, Any] = {"n": earlier, "a": number % 90}
            took.append(milliseconds(lambda params=params: graph.mutate(UPDATE, params=params)))
        else:
            params = {"n": name, "t": "".join(chance.choices(LETTERS, k=row_bytes))}
            took.append(milliseconds(lambda params=params: graph.mutate(INSERT, params=params)))
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
    """Both graphs in turns, each going first every other time."""
    os.sync()  # else the first one waits for the disk to forget what a cleanup deleted
    turn = iter(range(10**9))

    def lookup(graph: Graph) -> Callable[[], object]:
        return lambda: graph.query(LOOKUP, params={"n": f"p{next(turn) * 5:06}"}).to_pylist()

    def upsert(graph: Graph) -> Callable[[], object]:
        return lambda: graph.mutate(UPDATE, params={"n": "p000000", "a": next(turn) % 100})

    return {
        "point lookup": in_turns(lookup(aged), lookup(fresh), rounds),
        "keyed upsert": in_turns(upsert(aged), upsert(fresh), rounds),
    }


def in_turns(
    aged: Callable[[], object], fresh: Callable[[], object], rounds: int
) -> dict[str, float]:
    """Medians after one unmeasured turn each."""
    aged(), fresh()
    pair: tuple[tuple[Callable[[], object], list[float]], ...] = ((aged, []), (fresh, []))
    for number in range(rounds):
        for work, into in pair[:: -1 if number % 2 else 1]:
            into.append(milliseconds(work))
    aged_ms, fresh_ms = (statistics.median(took) for _, took in pair)
    return {
        "aged_ms": round(aged_ms, 3),
        "fresh_ms": round(fresh_ms, 3),
        "ratio": round(aged_ms / fresh_ms, 2),
    }


def shape(graph: Graph) -> dict[str, Any]:
    """What is on disk."""
    health = graph.health()
    manifest = graph._core.store.manifests.fresh(None)  # noqa: SLF001
    return {
        "bytes": size(graph.uri),
        "fragments": {one.type_key: one.fragments for one in health.datasets},
        "versions": {one.type_key: one.versions for one in health.datasets},
        "manifest_fragments": len(manifest.opened.fragments),
        "manifest_versions": health.manifest_versions,
    }


def lancedb_beside(python: str, folder: Path, commits: int) -> dict[str, Any] | None:
    """The same commits on one bare table; None if the interpreter has no lancedb."""
    if subprocess.run([python, "-c", "import lancedb"], capture_output=True).returncode:
        return None
    script = str(Path(__file__).with_name("aging_lancedb.py"))
    command = [python, script, str(folder / "lancedb"), str(commits)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(told)
    return found


def weight(folder: str) -> dict[str, int]:
    """Bytes by what they are for: rows, indexes, the newest versions, the commit history."""
    found: dict[str, int] = {}
    for parent, _, names in os.walk(folder):
        place = Path(parent).relative_to(folder).parts
        top = place[0] if place else ""
        kind = place[2] if top in ("nodes", "edges") and len(place) > 2 else top
        for name in names:
            found[kind] = found.get(kind, 0) + os.path.getsize(os.path.join(parent, name))
    return {kind: count for kind, count in sorted(found.items()) if count}


def tidy(graph: Graph) -> None:
    """As small and as fast as it gets."""
    graph.optimize()
    graph.cleanup(keep_versions=1, grace=0)


def run(
    folder: Path,
    commits: int,
    *,
    rounds: int = ROUNDS,
    row_bytes: int = ROW_BYTES,
    peer: str = sys.executable,
) -> dict[str, Any]:
    """The whole story as one value."""
    began = time.perf_counter()
    with Graph.init(str(folder / "aged"), SCHEMA) as aged:
        result: dict[str, Any] = {"commits": commits, "row_bytes": row_bytes}
        result["writing"] = age(aged, commits, row_bytes)
        result["took_s"] = round(time.perf_counter() - began, 1)
        with Graph.init(str(folder / "fresh"), SCHEMA) as fresh:
            fresh.load(aged.export(), mode="append")
            tidy(fresh)
            result["fresh"] = {**shape(fresh), "weight": weight(fresh.uri)}
            result["aged"] = {**shape(aged), **compare(aged, fresh, rounds)}
            tidy(aged)
            tidied = {**shape(aged), "weight": weight(aged.uri)}
            ratio = tidied["bytes"] / result["fresh"]["bytes"]
            more = tidied["bytes"] - result["fresh"]["bytes"]
            tidied["bytes ratio"] = round(ratio, 2)
            tidied["more bytes per commit"] = round(more / commits)
            tidy(fresh)
            result["after optimize and cleanup"] = tidied | compare(aged, fresh, rounds)
    result["lancedb"] = lancedb_beside(peer, folder, commits)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How a graph ages.")
    parser.add_argument("commits", type=int, nargs="?", default=5_000)
    parser.add_argument("--row-bytes", type=int, default=ROW_BYTES)
    parser.add_argument("--peer-python", default=sys.executable)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="omnigraph-aging-") as place:
        told = run(Path(place), chosen.commits, row_bytes=chosen.row_bytes, peer=chosen.peer_python)
    print(json.dumps(told, indent=2))
