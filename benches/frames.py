"""Loads of a million rows from data frames, in process: how many rows a second.

    python benches/frames.py [rows]

Names are Python objects in a pandas frame and Arrow text in a Polars one; both have a number, a
date and a flag beside them. The best of three loads, each into a new graph, upkeep off.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

from omnigraph import Graph

SCHEMA = "node Person { name: String @key  age: I32?  score: F64?  active: Bool }"
ROUNDS = 3


def frames(rows: int) -> dict[str, object]:
    numbers = np.arange(rows)
    columns = {
        "name": [f"person-{number}" for number in range(rows)],
        "age": (numbers % 90).astype(np.int32),
        "score": numbers / 7,
        "active": numbers % 2 == 0,
    }
    return {"pandas": pd.DataFrame(columns), "polars": pl.DataFrame(columns)}


def main(rows: int) -> None:
    for name, frame in frames(rows).items():
        best = cpu = float("inf")
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "g.omni"
                with Graph.init(path, SCHEMA, maintenance=None) as graph:
                    began, used = time.perf_counter(), time.process_time()
                    graph.load({"Person": frame}, mode="append")
                    best = min(best, time.perf_counter() - began)
                    cpu = min(cpu, time.process_time() - used)
        print(f"{name:8} {rows:,} rows  {best:.2f} s  {rows / best:,.0f} rows/s  {cpu:.2f} s CPU")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
