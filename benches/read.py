"""Reading side by side with other engines: each in its own process, on the same data.

    python benches/read.py [--sizes 100k/1M 1M/4M 5M/20M] [--variants regular shuffled]
                           [--parts walks tables searches stages ours budget] [--keep FOLDER]
                           [--before SRC] [--out FILE]

Every engine gets two threads and the same random parameters, and they take turns; answers are
checked against each other. Figures are milliseconds through the whole path from query text to
Python rows: `first`, the first time that the process is asked; warm, the median when it has
answered for a while. The result also has `cpu`, the time of the processors, which a busy machine
distorts less. `best` is ours divided by the best peer, `duckdb` ours divided by DuckDB, and
`growth` what a row takes compared with the size before. `cold` is a new process to its first
two-hop answer, with the operating system's file cache warm. Engines that are not installed are left
out; `--peer-python` names an interpreter that has them (group `bench`). With `--keep` the graphs
are left behind for the next run; `--before` names the `src` folder of another checkout, which is
measured beside ours.
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
import time
from pathlib import Path
from typing import Any

from read_data import VARIANTS, Graph, short
from read_questions import GROUPS, QUESTIONS, SEARCHES, STAGES, TABLES, WALKS
from run import about

OURS = "omnigraph"
BEFORE = "before"
BUDGETED = "omnigraph, 1 GB"
ENGINES = (OURS, "duckdb", "kuzu", "ladybug", "lancedb")
PARTS = (*GROUPS, "ours", "budget")
SIZES = ("100k/1M", "1M/4M", "5M/20M")
HERE = Path(__file__).parent
THREADS = "2"
COLD_RUNS = 3
WARMING_MIN, WARMING_QUICK_MIN = 3, 12
WARMING_MS_MAX = 2_000  # of answers that are slower than QUICK_MS
QUICK_MS = 20
ROUNDS_MIN = 3
WARM_MS_MAX = 4_000  # of one engine's measured answers to one question
TURN_MAX, TURN_MS = 5, 50
MAKING_SECONDS, MAKING_SECONDS_MAX = 0.2, 60  # between answers, while something is made beside
NOT_INSTALLED = 3
BUDGET_BYTES = 1 << 30
NO_PEER = -1.0


class Bench:
    """One graph in one folder, and how an engine is called about it."""

    def __init__(self, graph: Graph, *, rounds: int, peer_python: str, before: Path | None) -> None:
        self.graph, self.rounds, self.peer_python = graph, rounds, peer_python
        self.before = before

    def line(self, engine: str, verb: str, folder: Path | None = None) -> list[str]:
        python = sys.executable if engine.startswith((OURS, BEFORE)) else self.peer_python
        named = OURS if engine.startswith((OURS, BEFORE)) else engine
        place = str(folder or self.graph.folder)
        return [python, str(HERE / "read_engines.py"), named, verb, place, str(self.rounds)]

    def environment(self, engine: str, **changed: str) -> dict[str, str]:
        """The same number of threads for all, and a home of its own for what an engine keeps."""
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LANCE_CPU_THREADS", "LANCE_IO_THREADS")
        home = self.graph.folder / f"home-{engine.replace(' ', '-')}"
        home.mkdir(exist_ok=True)
        found = {**os.environ, **dict.fromkeys(names, THREADS), "HOME": str(home)}
        # An installed package has its bytecode, whatever this shell says of it.
        found.pop("PYTHONDONTWRITEBYTECODE", None)
        found["PYTHONPYCACHEPREFIX"] = str(self.graph.folder / "bytecode")
        if engine == BEFORE:
            found["PYTHONPATH"] = str(self.before)
        if engine == BUDGETED:
            found["OMNIGRAPH_CACHE_BYTES"] = str(BUDGET_BYTES)
        return found | changed

    def call(
        self, engine: str, verb: str, *, folder: Path | None = None, **changed: str
    ) -> dict[str, Any] | None:
        """One engine in a fresh process; None if it is not installed there."""
        done = subprocess.run(
            self.line(engine, verb, folder),
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment(engine, **changed),
            check=False,
        )
        if done.returncode == NOT_INSTALLED:
            return None
        if done.returncode != 0:
            raise SystemExit(f"{engine} {verb} failed on {self.graph.name}")
        body: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return body

    def loaded(self, engine: str) -> dict[str, Any] | None:
        """Facts of the load, which is done once a folder; None if the engine is not installed."""
        if engine in (BEFORE, BUDGETED):
            return {"version": engine, "seconds": None}  # ours has loaded the graph
        facts = self.graph.folder / f"{engine}.json"
        if not facts.exists():
            done = self.call(engine, "load")
            if done is None:
                return None
            facts.write_text(json.dumps(done))
        found: dict[str, Any] = json.loads(facts.read_text())
        return found

    def cold(self, engine: str, *, home: str | None = None) -> int:
        """The first two-hop answer of a new process; with `home`, in one that has kept nothing."""
        runs = []
        for number in range(COLD_RUNS):
            changed = {} if home is None else {"HOME": f"{home}/{number}"}
            run = self.call(engine, "cold", **changed)
            assert run is not None, "it has loaded the graph"
            runs.append(run["ms"])
        return round(statistics.median(runs))

    def ours(self) -> dict[str, Any]:
        """What only ours is asked; writes go to a copy."""
        found: dict[str, Any] = {"cold with a cache file": self.cold(OURS)}
        with tempfile.TemporaryDirectory(prefix="omnigraph-home-") as empty:
            found["cold without"] = self.cold(OURS, home=empty)
        found |= self.call(OURS, "readers") or {}
        for verb in ("commit", "lookup"):
            copy = self.graph.folder / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            copy.mkdir()
            shutil.copy(self.graph.folder / "graph.json", copy)
            shutil.copytree(self.graph.folder / "graph.omni", copy / "graph.omni")
            found |= self.call(OURS, verb, folder=copy) or {}
            shutil.rmtree(copy)
        del found["version"]
        return found


class Engine:
    """One engine that waits for questions, in a process of its own."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            bench.line(name, "serve"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=bench.environment(name),
        )
        self.has = self._heard()["has"]
        self.rows: dict[str, dict[str, float]] = {}
        self.answers: dict[str, Any] = {}
        self.resident_mb = 0
        self.making = False

    def ask(self, question: str, number: int, count: int) -> dict[str, Any]:
        """How long the answers of so many rounds took, by the clock and of the processors."""
        assert self.process.stdin is not None, "a pipe"
        self.process.stdin.write(f"{question} {number} {count}\n")
        self.process.stdin.flush()
        body = self._heard()
        self.resident_mb, self.making = body["resident_mb"], body["making"]
        if number == 0:
            self.answers[question] = body["rows"]
        return body

    def _heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None, "a pipe"
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} died")
        body: dict[str, Any] = json.loads(line)
        return body

    def close(self) -> None:
        assert self.process.stdin is not None, "a pipe"
        self.process.stdin.close()
        self.process.wait()


class Asked:
    """How long one engine took for one question, answer by answer."""

    def __init__(self, engine: Engine, question: str, rounds: int) -> None:
        self.engine, self.question, self.rounds = engine, question, rounds
        self.ms: list[float] = []
        self.cpu: list[float] = []
        self.warm_from = 0
        self.began = time.monotonic()

    def turn(self) -> bool:
        """One more turn, which is some answers where they are quick, for a process that was just
        woken up is slow; False when there are enough."""
        warm = self.ms[self.warm_from :]
        if len(warm) >= self.rounds or (len(warm) >= ROUNDS_MIN and sum(warm) > WARM_MS_MAX):
            return False
        self._ask(TURN_MAX if self.ms[-1] * TURN_MAX < TURN_MS else 1)
        return True

    def warms(self) -> bool:
        """One more answer on the way to be warm; False when it is. Three fill what is kept; slow
        ones get time for more, quick ones are more, and what is made beside is waited for."""
        made = len(self.ms) >= WARMING_MIN and not self.engine.making
        quick = made and max(self.ms[-WARMING_QUICK_MIN:]) < QUICK_MS
        many = quick and len(self.ms) >= WARMING_QUICK_MIN
        spent = time.monotonic() - self.began
        if spent > MAKING_SECONDS_MAX or many or (made and sum(self.ms) > WARMING_MS_MAX):
            self.warm_from = len(self.ms)
            return False
        if self.engine.making:
            time.sleep(MAKING_SECONDS)
        self._ask(1)
        return True

    def _ask(self, count: int) -> None:
        body = self.engine.ask(self.question, len(self.ms), count)
        self.ms += body["ms"]
        self.cpu += body["cpu"]

    def row(self) -> dict[str, float]:
        found = {"first": self.ms[0]}
        found["warm"] = statistics.median(self.ms[self.warm_from :])
        found["cpu"] = statistics.median(self.cpu[self.warm_from :])
        return {name: round(ms, 3) for name, ms in found.items()}


def ask_all(engines: list[Engine], question: str, rounds: int) -> None:
    """The first answer of each engine and the median of its warm ones. All take turns, so that a
    noisy second meets all alike."""
    asked = [Asked(engine, question, rounds) for engine in engines]
    for step in (Asked.warms, Asked.turn):  # nobody is measured while another still makes something
        waiting = asked
        while waiting:
            waiting = [each for each in waiting if step(each)]
    for each in asked:
        each.engine.rows[question] = each.row()


# --- one graph ---------------------------------------------------------------------------------


def measure(bench: Bench, engines: list[str], parts: list[str]) -> dict[str, Any]:
    """Everything about one graph, as one value."""
    graph = bench.graph
    graph.write()
    results: dict[str, dict[str, Any]] = {}
    for name in engines:
        load = bench.loaded(name)
        if load is not None:
            facts = {"version": load["version"], "load_seconds": load["seconds"]}
            results[name] = {**facts, "cold": bench.cold(name), "rows": {}, "answers": {}}
    # Searches by themselves: what they keep in memory is not what the others keep.
    for part in ((WALKS, TABLES, STAGES), (SEARCHES,)):
        names = [each.name for each in QUESTIONS if each.group in part and each.group in parts]
        if names:
            asked(bench, results, names, "resident_mb" if WALKS in part else "searching_mb")
    wrong = disagreements(results)
    for result in results.values():
        del result["answers"]
    extra = bench.ours() if "ours" in parts and OURS in results else {}
    size = {"nodes": graph.nodes, "edges": graph.edges, "variant": graph.variant}
    return {"graph": graph.name, **size, "engines": results, "ours": extra, "disagreements": wrong}


def asked(bench: Bench, results: dict[str, Any], names: list[str], memory: str) -> None:
    """Put these questions to all engines, and what they said into the results."""
    engines = [Engine(bench, name) for name in results]
    for name in names:
        able = [engine for engine in engines if name in engine.has]
        ask_all(able, name, bench.rounds)
        shown = "  ".join(
            f"{e.name} {e.rows[name]['warm']} (cpu {e.rows[name]['cpu']})" for e in able
        )
        print(f"{bench.graph.name}: {name}: {shown}", file=sys.stderr)
    for engine in engines:
        engine.close()
        results[engine.name]["rows"] |= engine.rows
        results[engine.name]["answers"] |= engine.answers
        results[engine.name][memory] = engine.resident_mb


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
    peers = [rows for name, rows in engines.items() if not name.startswith((OURS, BEFORE))]
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
    for name in ("cold", "resident_mb", "searching_mb", "load_seconds"):
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
    parser.add_argument("--before", type=Path, help="the `src` folder of another checkout of ours")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(words)
    engines = [*chosen.engines, *([BEFORE] if chosen.before else [])]
    engines += [BUDGETED] if "budget" in chosen.parts else []
    with tempfile.TemporaryDirectory(prefix="omnigraph-read-") as made:
        results = []
        for variant in chosen.variants:
            smaller = None
            for size in chosen.sizes:
                nodes, edges = (count_of(part) for part in size.split("/"))
                folder = chosen.keep or Path(made)
                folder = folder.resolve() / f"{short(nodes)}-{short(edges)}-{variant}"
                graph = Graph(folder, nodes=nodes, edges=edges, variant=variant)
                bench = Bench(
                    graph,
                    rounds=chosen.rounds,
                    peer_python=chosen.peer_python,
                    before=chosen.before and chosen.before.resolve(),
                )
                result = measure(bench, engines, chosen.parts)
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
