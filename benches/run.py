"""Run benchmark scenarios and write what they measured as JSON.

    python benches/run.py [scenario …] [--rounds N] [--out FILE]

A scenario is a file beside this one with `run(folder, *, rounds)` that yields `Measure`s: medians
of ours and of the raw operations it cannot avoid, taken in turns, and their ratio. Compare two
results with `compare.py`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measure import Measure, as_text

SCENARIOS = ("publish", "branch_create")


def run_scenario(name: str, rounds: int) -> list[Measure]:
    """Every measure of the scenario, in a folder of its own that is gone afterwards."""
    scenario = importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix=f"omnigraph-{name}-") as folder:
        return list(scenario.run(Path(folder), rounds=rounds))


def about() -> dict[str, Any]:
    """Where and when the numbers were taken."""
    return {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "pylance": version("pylance"),
        "omnigraph": version("omnigraph"),
    }


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Run benchmark scenarios.")
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=", ".join(SCENARIOS))
    parser.add_argument("--rounds", type=int, default=30, help="measured turns a case (30)")
    parser.add_argument("--out", type=Path, help="file for the JSON (default: standard output)")
    chosen = parser.parse_args(words)
    unknown = sorted(set(chosen.scenarios) - set(SCENARIOS))
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}")
    results: dict[str, list[dict[str, Any]]] = {}
    for name in chosen.scenarios or SCENARIOS:
        measures = run_scenario(name, chosen.rounds)
        print(f"{name}\n{as_text(measures)}\n", file=sys.stderr)
        results[name] = [each.to_json() for each in measures]
    body = json.dumps({"about": about(), "scenarios": results}, indent=2)
    if chosen.out is None:
        print(body)
    else:
        chosen.out.write_text(body + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
