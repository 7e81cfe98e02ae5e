"""Reading side by side with other engines: each in its own process, on the same data.

    python benches/read.py [--nodes N] [--edges M] [--rounds R] [--peer-python PATH] [--out FILE]

Every engine gets two threads and the same random parameters; answers are checked against each
other. Figures are medians in milliseconds through the whole path from query text to Python rows:
warm, after the engine has seen each query; `cold`, from the start of a process to its first two-hop
answer; `after a commit`, the two-hop read right after a one-row write (ours only). Engines that are
not installed are left out; `--peer-python` names an interpreter that has them (the group `bench`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ENGINES = ("omnigraph", "kuzu", "ladybug", "duckdb", "lancedb")
HERE = Path(__file__).parent
THREADS = "2"


def environment() -> dict[str, str]:
    """The same number of threads for every engine and every library below it."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LANCE_CPU_THREADS", "LANCE_IO_THREADS")
    return {**os.environ, **dict.fromkeys(names, THREADS)}


def call(python: str, engine: str, verb: str, folder: Path, rounds: int) -> dict[str, Any] | None:
    """One engine in a fresh process; None if it is not installed there."""
    words = [python, str(HERE / "read_engines.py"), engine, verb, str(folder), str(rounds)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(), check=False)
    if done.returncode == 3:
        return None
    if done.returncode != 0:
        print(f"{engine} {verb} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        return None
    body: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return body


def measure(python: str, engine: str, folder: Path, rounds: int) -> dict[str, Any] | None:
    if call(python, engine, "load", folder, rounds) is None:
        return None
    cold = []
    for _ in range(3):
        began = time.perf_counter()
        if call(python, engine, "cold", folder, rounds) is None:
            return None
        cold.append((time.perf_counter() - began) * 1000)
    warm = call(python, engine, "warm", folder, rounds)
    return None if warm is None else {**warm, "cold": sorted(cold)[1]}


def disagreements(results: dict[str, dict[str, Any]]) -> list[str]:
    """Queries for which an engine's answers are not those of the first engine that has them."""
    found = []
    for engine, result in results.items():
        for name, answer in result["answers"].items():
            first = next(r["answers"][name] for r in results.values() if name in r["answers"])
            if answer != first:
                found.append(f"{engine}: {name}")
    return found


def as_table(results: dict[str, dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for r in results.values() for name in r["ms"]))
    lines = [f"{'':22}" + "".join(f"{engine:>12}" for engine in results)]
    for name in [*names, "cold"]:
        cells = [r["cold"] if name == "cold" else r["ms"].get(name) for r in results.values()]
        shown = "".join(f"{'-' if cell is None else format(cell, '.3f'):>12}" for cell in cells)
        lines.append(f"{name:22}{shown}")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Compare reads with other engines.")
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--engines", nargs="*", default=ENGINES)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="omnigraph-read-") as made:
        folder = Path(made)
        (folder / "size.json").write_text(json.dumps([chosen.nodes, chosen.edges]))
        results: dict[str, dict[str, Any]] = {}
        for engine in chosen.engines:
            python = sys.executable if engine == "omnigraph" else chosen.peer_python
            result = measure(python, engine, folder, chosen.rounds)
            if result is not None:
                results[engine] = result
    wrong = disagreements(results)
    print(as_table(results), file=sys.stderr)
    print(f"answers: {'all agree' if not wrong else 'DIFFER ' + ', '.join(wrong)}", file=sys.stderr)
    body = json.dumps(
        {
            "nodes": chosen.nodes,
            "edges": chosen.edges,
            "threads": int(THREADS),
            "engines": {e: {"cold": r["cold"], **r["ms"]} for e, r in results.items()},
            "disagreements": wrong,
        },
        indent=2,
    )
    if chosen.out is None:
        print(body)
    else:
        chosen.out.write_text(body + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
