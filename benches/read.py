"""Reading side by side with other engines: each in its own process, on the same data.

    python benches/read.py [--sizes 100k/1M 1M/4M 5M/20M] [--variants regular shuffled]
                           [--parts walks tables searches ours budget] [--keep FOLDER] [--out FILE]

Every engine gets two threads and the same random parameters; answers are checked against each
other. Figures are milliseconds through the whole path from query text to Python rows: `first`, the
first time that the process is asked; warm, the median after three rounds. `best` is ours divided by
the best peer, `duckdb` ours divided by DuckDB, and `growth` what a row takes compared with the size
before. `cold` is a new process to its first two-hop answer, with the operating system's file cache
warm. Engines that are not installed are left out; `--peer-python` names an interpreter that has
them (the group `bench`). With `--keep` the graphs are left behind for the next run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from read_data import VARIANTS, Graph, short
from read_questions import GROUPS
from run import about

OURS = "omnigraph"
ENGINES = (OURS, "duckdb", "kuzu", "ladybug", "lancedb")
PARTS = (*GROUPS, "ours", "budget")
SIZES = ("100k/1M", "1M/4M", "5M/20M")
HERE = Path(__file__).parent
THREADS = "2"
COLD_RUNS = 3
BUDGET_BYTES = 1 << 30
NO_PEER = -1.0


class Bench:
    """One graph in one folder: what every engine says about it."""

    def __init__(self, graph: Graph, *, peer_python: str, rounds: int) -> None:
        self.graph, self.peer_python, self.rounds = graph, peer_python, rounds
        self.home = graph.folder / "home"  # what we keep for the next process goes there

    def call(
        self, engine: str, verb: str, *words: str, folder: Path | None = None, **changed: str
    ) -> dict[str, Any] | None:
        """One engine in a fresh process; None if it is not installed there."""
        python = sys.executable if engine == OURS else self.peer_python
        place = folder or self.graph.folder
        line = [python, str(HERE / "read_engines.py"), engine, verb, str(place), str(self.rounds)]
        environment = {**os.environ, **limited(), "HOME": str(self.home), **changed}
        done = subprocess.run([*line, *words], stdout=subprocess.PIPE, text=True, env=environment)
        if done.returncode == 3:
            return None
        if done.returncode != 0:
            raise SystemExit(f"{engine} {verb} failed on {self.graph.name}")
        body: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return body

    def engine(self, name: str, groups: list[str]) -> dict[str, Any] | None:
        """The load, the first answer of a new process, and the questions, searches by themselves:
        what they keep in memory is not what the others keep."""
        loaded = self.graph.folder / f"{name}.json"
        if not loaded.exists():
            done = self.call(name, "load")
            if done is None:
                return None
            loaded.write_text(json.dumps(done))
        load = json.loads(loaded.read_text())
        found: dict[str, Any] = {"version": load["version"], "load_seconds": load["seconds"]}
        found |= {"rows": {}, "answers": {}, "resident_mb": 0, "cold": self.cold(name)}
        for part in (["walks", "tables"], ["searches"]):
            asked = [group for group in part if group in groups]
            warm = self.call(name, "warm", *asked) if asked else None
            if warm is not None:
                found["rows"] |= warm["rows"]
                found["answers"] |= warm["answers"]
                found["resident_mb"] = max(found["resident_mb"], warm["resident_mb"])
        return found

    def cold(self, name: str, **changed: str) -> int | None:
        runs = [self.call(name, "cold", **changed) for _ in range(COLD_RUNS)]
        return round(statistics.median(run["ms"] for run in runs if run is not None))

    def ours(self) -> dict[str, Any]:
        """What only ours is asked; writes go to a copy."""
        found: dict[str, Any] = {"cold with a cache file": self.cold(OURS)}
        with tempfile.TemporaryDirectory(prefix="omnigraph-home-") as empty:
            runs = []
            for number in range(COLD_RUNS):
                bare = Path(empty) / str(number)
                bare.mkdir()
                runs.append((self.call(OURS, "cold", HOME=str(bare)) or {})["ms"])
            found["cold without"] = round(statistics.median(runs))
        found |= self.call(OURS, "readers") or {}
        for verb in ("commit", "lookup"):
            copy = self.graph.folder / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            shutil.copy(self.graph.folder / "graph.json", copy)
            shutil.copytree(self.graph.folder / "graph.omni", copy / "graph.omni")
            found |= self.call(OURS, verb, folder=copy) or {}
            shutil.rmtree(copy)
        found.pop("version", None)
        return found

    def budget(self) -> dict[str, Any]:
        """The same questions within one gigabyte."""
        found = self.call(OURS, "warm", "walks", "tables", OMNIGRAPH_CACHE_BYTES=str(BUDGET_BYTES))
        assert found is not None, "ours is installed"
        return found


def limited() -> dict[str, str]:
    """The same number of threads for every engine and every library below it."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LANCE_CPU_THREADS", "LANCE_IO_THREADS")
    return dict.fromkeys(names, THREADS)


# --- one graph ---------------------------------------------------------------------------------


def measure(bench: Bench, engines: list[str], parts: list[str]) -> dict[str, Any]:
    """Everything about one graph, as one value."""
    bench.graph.write()
    bench.home.mkdir(exist_ok=True)
    results = {}
    groups = [part for part in parts if part in GROUPS]
    for name in engines:
        print(f"--- {bench.graph.name}: {name}", file=sys.stderr)
        result = bench.engine(name, groups)
        if result is not None:
            results[name] = result
    if "budget" in parts and OURS in results:
        results[f"{OURS}, 1 GB"] = bench.budget()
    wrong = disagreements(results)
    for result in results.values():
        del result["answers"]
    extra = bench.ours() if "ours" in parts and OURS in results else {}
    graph = bench.graph
    size = {"nodes": graph.nodes, "edges": graph.edges, "variant": graph.variant}
    return {"graph": graph.name, **size, "engines": results, "ours": extra, "disagreements": wrong}


def disagreements(results: dict[str, dict[str, Any]]) -> list[str]:
    """Questions to which an engine's answer is not that of the first engine that has one."""
    first: dict[str, Any] = {}
    found = []
    for engine, result in results.items():
        for name, answer in result["answers"].items():
            if not same(ordered(first.setdefault(name, answer)), ordered(answer)):
                found.append(f"{engine}: {name}")
    return found


def ordered(rows: list[list[Any]]) -> list[list[Any]]:
    """Rows in an order that rounding does not change."""
    return sorted(rows, key=lambda row: [str(c) for c in row if not isinstance(c, float)])


def same(left: Any, right: Any) -> bool:
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return math.isclose(left, right, rel_tol=1e-9)
    return bool(left == right)


# --- for people --------------------------------------------------------------------------------


def ratio(ours: float | None, theirs: list[float]) -> float:
    """Ours over the best of theirs; `NO_PEER` if there is nothing to compare."""
    return NO_PEER if ours is None or not theirs else round(ours / min(theirs), 2)


def ratios(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """For each question: ours over the best peer, and over DuckDB."""
    engines = {name: each["rows"] for name, each in result["engines"].items()}
    peers = [rows for name, rows in engines.items() if not name.startswith(OURS)]
    found = {}
    for name, row in engines.get(OURS, {}).items():
        best = [rows[name]["warm"] for rows in peers if name in rows]
        duck = [rows[name]["warm"] for rows in [engines.get("duckdb", {})] if name in rows]
        found[name] = {"best": ratio(row["warm"], best), "duckdb": ratio(row["warm"], duck)}
    return found


def growth(result: dict[str, Any], smaller: dict[str, Any] | None) -> dict[str, float]:
    """What ours takes for each question, compared with the size before."""
    if smaller is None or OURS not in smaller["engines"] or OURS not in result["engines"]:
        return {}
    before, after = (each["engines"][OURS]["rows"] for each in (smaller, result))
    return {n: round(after[n]["warm"] / before[n]["warm"], 2) for n in after if n in before}


def as_table(result: dict[str, Any]) -> str:
    engines = result["engines"]
    names = list(dict.fromkeys(name for each in engines.values() for name in each["rows"]))
    head = ["first", *engines, "best", "duckdb", "growth"]
    lines = [f"{result['graph']:30}" + "".join(f"{word[:12]:>13}" for word in head)]
    for name in names:
        rows = [each["rows"].get(name, {}) for each in engines.values()]
        cells = [rows[0].get("first"), *(row.get("warm") for row in rows)]
        compared = result["ratios"].get(name, {})
        cells += [compared.get("best"), compared.get("duckdb"), result["growth"].get(name)]
        lines.append(f"{name:30}" + "".join(f"{shown(cell):>13}" for cell in cells))
    for name in ("cold", "resident_mb", "load_seconds"):
        cells = [None, *(each.get(name) for each in engines.values())]
        lines.append(f"{name:30}" + "".join(f"{shown(cell):>13}" for cell in cells))
    for name, figures in result["ours"].items():
        lines.append(f"{name}: {json.dumps(figures)}")
    wrong = result["disagreements"]
    lines.append(f"answers: {'all agree' if not wrong else 'DIFFER ' + ', '.join(wrong)}")
    return "\n".join(lines)


def shown(cell: float | None) -> str:
    if cell is None or cell == NO_PEER:
        return "-"
    return f"{cell:.2f}" if cell < 100 else f"{cell:,.0f}"


def count_of(text: str) -> int:
    units = {"k": 1_000, "M": 1_000_000}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare reads with other engines.")
    parser.add_argument("--sizes", nargs="+", default=SIZES[:1], metavar="NODES/EDGES")
    parser.add_argument("--variants", nargs="+", default=["shuffled"], choices=VARIANTS)
    parser.add_argument("--parts", nargs="+", default=[*GROUPS, "ours"], choices=PARTS)
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--keep", type=Path, help="folder for graphs that the next run takes over")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="omnigraph-read-") as made:
        results = []
        for variant in chosen.variants:
            smaller = None
            for size in chosen.sizes:
                nodes, edges = (count_of(part) for part in size.split("/"))
                folder = chosen.keep or Path(made)
                folder = folder.resolve() / f"{short(nodes)}-{short(edges)}-{variant}"
                graph = Graph(folder, nodes=nodes, edges=edges, variant=variant)
                bench = Bench(graph, peer_python=chosen.peer_python, rounds=chosen.rounds)
                result = measure(bench, chosen.engines, chosen.parts)
                result |= {"ratios": ratios(result), "growth": growth(result, smaller)}
                print(as_table(result), file=sys.stderr)
                results.append(result)
                smaller = result
                if chosen.keep is None:
                    shutil.rmtree(folder)
    body = json.dumps({"about": about(), "threads": int(THREADS), "graphs": results}, indent=2)
    if chosen.out is None:
        print(body)
    else:
        chosen.out.write_text(body + "\n")
    return int(any(result["disagreements"] for result in results))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
