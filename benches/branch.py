"""What branches cost: making one, its first write, differences, previews and merges.

    python benches/branch.py [rows of main ...] [--durability process|power]      default: 100000
    python benches/branch.py --branches 10 100 1000 | --commits 100 1000 10000 | --optimized 1000000
    python benches/branch.py --chain 50 100 200 400

For each size of main: branch create; the first and the second write on a branch; diff, preview and
merge of 1, 1,000 and 100,000 changed entities (into a main that moved on, so that the merge is
three-way, and again as a fast-forward); and the merge of one entity after 1,000 more commits, as
they left the table and after `optimize`. Upkeep by itself is off: no figure depends on luck.

`--branches`: what calls cost beside so many other branches, each with a commit of its own.
`--chain`: beside so many branches of which each was made from the one before, with two commits.
`--commits`: what they cost after so many one-row commits. `--optimized`: the merge of ten changed
rows a side, as they are and after `optimize` of one side since the fork.
Prints JSON with milliseconds, medians over fresh branches; `run()` gives the value.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person { since: I32? }
"""
CHANGED = (1, 1_000, 100_000)
ROUNDS = {1: 9, 1_000: 5, 100_000: 2}
COMMITS = 1_000
AIMS_MS = {"create": 5, "merge 1": 30, "merge 1000": 300, "merge 100000": 5_000}


class Bench:
    """One graph with so many people; each measurement works on a branch of its own."""

    def __init__(self, folder: Path, rows: int, durability: str) -> None:
        self.graph = Graph.init(folder / "g.omni", SCHEMA, durability=durability, maintenance=None)
        self.rows, self.number = rows, 0
        self.load("main", range(rows), age=0)

    def load(self, branch: str, numbers: Any, *, age: int) -> None:
        lines = (
            f'{{"type":"Person","data":{{"name":"p{n}","age":{age},"city":"Ulm"}}}}'
            for n in numbers
        )
        self.graph.load(lines, mode="merge", branch=branch)

    def branch(self) -> str:
        self.number += 1
        name = f"b{self.number}"
        self.graph.create_branch(name)
        return name

    def spread(self, count: int) -> range:
        """Entities all over the table, as real changes are."""
        count = min(count, self.rows)
        return range(0, self.rows, self.rows // count)[:count]


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began) / 1e6


def median(values: list[float]) -> float:
    return round(statistics.median(values), 1)


def branch_costs(bench: Bench) -> dict[str, float]:
    """Making a branch, and the first (forking) and second write on it."""
    took: dict[str, list[float]] = {"create": [], "first write": [], "second write": []}
    for at in range(12):
        name = f"create{at}"
        took["create"].append(milliseconds(lambda n=name: bench.graph.create_branch(n)))
        for word, age in (("first write", 1), ("second write", 2)):
            source = f'query q() {{ update Person set {{ age: {age} }} where name = "p{at}" }}'
            took[word].append(
                milliseconds(lambda s=source, n=name: bench.graph.mutate(s, branch=n))
            )
        bench.graph.delete_branch(name, force=True)
    return {name: median(values[2:]) for name, values in took.items()}


def merge_costs(bench: Bench, count: int) -> Iterator[tuple[str, float]]:
    """Diff, preview, three-way merge and fast-forward of so many changed entities."""
    graph = bench.graph
    took: dict[str, list[float]] = {}
    for at in range(ROUNDS[count]):
        for outcome in ("merged", "fast_forward"):
            name = bench.branch()
            bench.load(name, bench.spread(count), age=100 + bench.number)
            if outcome == "merged":
                graph.mutate(f'query q() {{ insert Person {{ name: "m{count}-{at}" }} }}')
                work = {
                    "diff": lambda n=name: graph.diff("main", n),
                    "preview": lambda n=name: graph.merge_preview(n),
                }
                for word, deed in work.items():
                    took.setdefault(word, []).append(milliseconds(deed))
            word = "merge" if outcome == "merged" else "fast-forward"
            took.setdefault(word, []).append(milliseconds(lambda n=name: graph.merge(n)))
            assert graph.commits(limit=1)[0].merged_parent_commit_id is not None
            graph.delete_branch(name)
    for word, values in took.items():
        yield f"{word} {count}", median(values)


def run(rows: int, durability: str) -> dict[str, float]:
    """Every figure for one size of main, in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-branch-") as folder:
        bench = Bench(Path(folder), rows, durability)
        found = branch_costs(bench)
        for count in CHANGED:
            if count <= rows:
                found.update(merge_costs(bench, count))
        for number in range(COMMITS):
            bench.graph.mutate(f'query q() {{ insert Person {{ name: "late{number}" }} }}')
        for state in ("", " and optimize"):
            if state:
                bench.graph.optimize()
            later = dict(merge_costs(bench, 1))
            found[f"merge 1 after {COMMITS} commits{state}"] = later["merge 1"]
        bench.graph.close()
        return found


# --- many branches, many commits, big tables ---------------------------------------------------


def timed(work: Callable[[], object], rounds: int = 1) -> dict[str, float]:
    """Wall and processor milliseconds, medians."""
    wall, cpu = [], []
    for _ in range(rounds):
        began = time.process_time_ns()
        wall.append(milliseconds(work))
        cpu.append((time.process_time_ns() - began) / 1e6)
    return {"ms": median(wall), "cpu ms": median(cpu)}


def merge_of_ten(bench: Bench, *, between: Callable[[], object] = lambda: None) -> dict[str, float]:
    """The merge of ten changed rows into a main that changed ten others, on a warm handle."""
    found = []
    for _ in range(5):
        name = bench.branch()
        bench.load(name, bench.spread(10), age=bench.number)
        bench.load("main", [n + 1 for n in bench.spread(10)], age=bench.number)
        between()
        found.append(timed(lambda n=name: bench.graph.merge(n)))
        bench.graph.delete_branch(name)
    return {word: median([one[word] for one in found[1:]]) for word in ("ms", "cpu ms")}


def many_branches(count: int) -> dict[str, Any]:
    """What calls cost beside so many branches."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-branch-") as folder:
        bench = Bench(Path(folder), 1_000, "process")
        graph = bench.graph
        for number in range(count):
            graph.create_branch(f"other{number}")
            graph.mutate(
                f'query q() {{ insert Person {{ name: "o{number}" }} }}', branch=f"other{number}"
            )
        return beside(bench, "main", keep_versions=3)


def chain(length: int) -> dict[str, Any]:
    """What calls cost at the end of so many branches, each made from the one before."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-branch-") as folder:
        bench = Bench(Path(folder), 1_000, "process")
        last = "main"
        for number in range(length):
            bench.graph.create_branch(f"other{number}", from_branch=last)
            last = f"other{number}"
            for one in range(2):
                insert = f'query q() {{ insert Person {{ name: "o{number}-{one}" }} }}'
                took = timed(lambda q=insert, b=last: bench.graph.mutate(q, branch=b))
        found = {"one-row commit on the last": took, "verify": timed(bench.graph.verify)}
        target = Path(folder) / "copy.omni"
        found["backup"] = timed(lambda: bench.graph.backup(target))
        return found | beside(bench, last, keep_versions=1)


def beside(bench: Bench, parent: str, *, keep_versions: int) -> dict[str, Any]:
    """What calls cost, those on a branch on one that is made from that parent."""
    graph = bench.graph

    def made() -> str:
        bench.number += 1
        graph.create_branch(f"b{bench.number}", from_branch=parent)
        return f"b{bench.number}"

    found: dict[str, Any] = {
        "create": timed(made, 9),
        "list": timed(graph.branches, 9),
        "merge of 10": merge_of_ten(bench),
        "tag": timed(lambda: graph.create_tag(f"t{time.perf_counter_ns()}"), 9),
        "health": timed(graph.health, 3),
    }
    name = made()
    graph.mutate('query q() { insert Person { name: "mine" } }', branch=name)
    unknown = graph.commit(f"{name}").graph_commit_id

    def cold() -> None:
        with Graph.open(graph.uri) as fresh:
            fresh.commit(unknown)

    found["unknown commit, cold"] = timed(cold)
    found["delete of one with unmerged work"] = timed(lambda: graph.delete_branch(name, force=True))

    def cleanup(**how: bool) -> None:
        graph.cleanup(keep_versions=keep_versions, **how)

    found["cleanup preview"] = timed(lambda: cleanup(preview=True))
    found["cleanup"] = timed(cleanup)
    found["cleanup, nothing left"] = timed(cleanup)
    graph.close()
    return found


def many_commits(count: int) -> dict[str, Any]:
    """What calls cost after so many one-row commits."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-branch-") as folder:
        bench = Bench(Path(folder), 1_000, "process")
        bench.graph.close()
        with Graph.open(Path(folder) / "g.omni", durability="process") as graph:  # upkeep is on
            bench.graph = graph
            began = time.perf_counter()
            for number in range(count):
                graph.mutate(f'query q() {{ insert Person {{ name: "c{number}" }} }}')
            each = round((time.perf_counter() - began) * 1000 / count, 1)
            old = graph.commits()[count // 2].graph_commit_id
            moment = graph.commit(old).created_at
            count_all = "query q() { match { $p: Person } return { count($p) as n } }"

            def cold() -> None:
                with Graph.open(graph.uri) as fresh:
                    fresh.query(count_all)

            return {
                "a commit": {"ms": each},
                "list all": timed(graph.commits, 5),
                "list 10": timed(lambda: graph.commits(limit=10), 5),
                "open and count": timed(cold, 3),
                "snapshot by time": timed(lambda: graph.snapshot(at=moment), 3),
                "main~100": timed(lambda: graph.commit("main~99"), 3),
                "diff of the last commit": timed(lambda: graph.diff("main~1", "main"), 3),
                "history of a one-version entity": timed(
                    lambda: graph.entity_history("node", "Person", "p7"), 3
                ),
                "merge of 10": merge_of_ten(bench),
            }


def optimized(rows: int) -> dict[str, Any]:
    """The merge of ten changed rows a side, before and after `optimize` of main since the fork."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-branch-") as folder:
        bench = Bench(Path(folder), rows, "process")
        before = merge_of_ten(bench)
        after = merge_of_ten(bench, between=bench.graph.optimize)
        bench.graph.close()
        return {"before optimize": before, "after optimize": after}


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure branches.")
    parser.add_argument("rows", nargs="*", type=int, default=[100_000])
    parser.add_argument("--durability", choices=["process", "power"], default="process")
    sizes = {
        "branches": many_branches,
        "chain": chain,
        "commits": many_commits,
        "optimized": optimized,
    }
    for word in sizes:
        parser.add_argument(f"--{word}", nargs="+", type=int, default=[], metavar="N")
    chosen = parser.parse_args(words)
    asked = {word: getattr(chosen, word) for word in sizes}
    if any(asked.values()):
        for word, counts in asked.items():
            for count in counts:
                print(json.dumps({f"{count} {word}": sizes[word](count)}, indent=2), flush=True)
        return
    result = {f"{rows} rows": run(rows, chosen.durability) for rows in chosen.rows}
    print(json.dumps({"durability": chosen.durability, "aims": AIMS_MS, **result}, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
