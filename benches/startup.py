"""How long a process takes, beside one that imports numpy and pyarrow only.

    python benches/startup.py [rounds]

Prints JSON: for each process the best and the median wall time and the best processor time in
seconds, and the ratio of its best processor time to that of the baseline, which busy neighbours
disturb least. The bars are for a quiet machine. Sources are compiled first, as an installation
would, whatever the environment says.
"""

from __future__ import annotations

import compileall
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PEOPLE = REPOSITORY / "examples/people"
OMNIGRAPH = (sys.executable, "-m", "omnigraph")
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
TWO_HOPS = """query hops($name: String) {
    match {
        $p: Person { name: $name }
        $p knows $friend
        $friend knows $other
    }
    return { $other.name }
}"""
# A process that has what it came for goes at once: taking itself apart is no part of a start.
LEAVE = "; import os; os._exit(0)"
ANSWER = """
import os, sys
from omnigraph import Graph
with Graph.open(sys.argv[1]) as graph:
    rows = graph.query(sys.argv[2], params={"name": "Ada"}).to_pylist()
    assert rows, "nobody is known"
    os._exit(0)
"""
BASELINE = "numpy + pyarrow"
# Wall seconds for commands and answers, a ratio to the baseline's processor time for the import.
BARS = {"help": 0.3, "query": 0.35, "two hops, Python": 0.55}
RATIO_BARS = {"Graph": 2.7}


def seconds(words: tuple[str, ...]) -> tuple[float, float]:
    """Wall and processor time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run(
        words,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
        cwd=REPOSITORY,
    )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def processes(graph: str) -> dict[str, tuple[str, ...]]:
    python = (sys.executable, "-c")
    query = ("query", "--store", graph, "--query", str(PEOPLE / "people.gq"), "friends_of")
    return {
        "bare": (*python, "pass"),
        BASELINE: (*python, "import numpy, pyarrow" + LEAVE),
        "lance": (*python, "import lance" + LEAVE),
        "Graph": (*python, "from omnigraph import Graph" + LEAVE),
        "two hops, Python": (*python, ANSWER, graph, TWO_HOPS),
        "help": (*OMNIGRAPH, "--help"),
        "version": (*OMNIGRAPH, "version"),
        "snapshot": (*OMNIGRAPH, "snapshot", graph),
        "query": (*OMNIGRAPH, *query, "--params", '{"name": "Ada"}'),
    }


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Each process in turn, round after round, so that a noisy minute hits all alike."""
    compileall.compile_dir(REPOSITORY / "src", quiet=1)
    with tempfile.TemporaryDirectory(prefix="omnigraph-startup-") as folder:
        graph = str(Path(folder) / "people.omni")
        seconds((*OMNIGRAPH, "init", "--schema", str(PEOPLE / "people.pg"), graph))
        data = ("--data", str(PEOPLE / "people.jsonl"))
        seconds((*OMNIGRAPH, "load", "--mode", "overwrite", *data, graph))
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in processes(graph)}
        for _ in range(rounds):
            for name, words in processes(graph).items():
                took[name].append(seconds(words))
    return {name: summary(name, times, took[BASELINE]) for name, times in took.items()}


def summary(
    name: str, times: list[tuple[float, float]], baseline: list[tuple[float, float]]
) -> dict[str, float]:
    walls, busy = zip(*times, strict=True)
    least = min(cpu for _, cpu in baseline)
    return {
        "best_s": round(min(walls), 3),
        "median_s": round(statistics.median(walls), 3),
        "cpu_s": round(min(busy), 3),
        "ratio_to_baseline": round(min(busy) / least, 2),
        **({"bar_s": BARS[name]} if name in BARS else {}),
        **({"bar_ratio": RATIO_BARS[name]} if name in RATIO_BARS else {}),
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 7), indent=2))
