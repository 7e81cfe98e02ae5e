"""How long a command takes from the shell's point of view, beside a bare interpreter.

    python benches/startup.py [rounds]

Prints JSON: for each command the median and best wall time in seconds, and the ratio of its median
to that of `python -c pass`. The bars are 0.3 s for help and 0.8 s for a query of a small graph.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEOPLE = Path(__file__).resolve().parents[1] / "examples/people"
OMNIGRAPH = (sys.executable, "-m", "omnigraph")
BARS = {"help": 0.3, "query": 0.8}


def seconds(words: tuple[str, ...]) -> float:
    started = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def commands(graph: str) -> dict[str, tuple[str, ...]]:
    query = ("query", "--store", graph, "--query", str(PEOPLE / "people.gq"), "friends_of")
    return {
        "bare": (sys.executable, "-c", "pass"),
        "help": (*OMNIGRAPH, "--help"),
        "version": (*OMNIGRAPH, "version"),
        "snapshot": (*OMNIGRAPH, "snapshot", graph),
        "query": (*OMNIGRAPH, *query, "--params", '{"name": "Ada"}'),
    }


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Each command in turn, round after round, so that a noisy minute hits all alike."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-startup-") as folder:
        graph = str(Path(folder) / "people.omni")
        seconds((*OMNIGRAPH, "init", "--schema", str(PEOPLE / "people.pg"), graph))
        data = ("--data", str(PEOPLE / "people.jsonl"))
        seconds((*OMNIGRAPH, "load", "--mode", "overwrite", *data, graph))
        took: dict[str, list[float]] = {name: [] for name in commands(graph)}
        for _ in range(rounds):
            for name, words in commands(graph).items():
                took[name].append(seconds(words))
    bare = statistics.median(took["bare"])
    return {
        name: {
            "median_s": round(statistics.median(times), 3),
            "best_s": round(min(times), 3),
            "ratio_to_bare": round(statistics.median(times) / bare, 1),
            **({"bar_s": BARS[name]} if name in BARS else {}),
        }
        for name, times in took.items()
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 7), indent=2))
