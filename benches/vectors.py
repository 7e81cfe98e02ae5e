"""Vectors: exact and approximate `nearest`, beside numpy's matrix product and lancedb.

    python benches/vectors.py make FOLDER [ROWS [DATA]]   a graph, and a lancedb table of the same
    python benches/vectors.py index FOLDER [--spark]      the approximate index (and lancedb's own)
    python benches/vectors.py ask FOLDER                  times, recall and memory, side by side

DATA is `clouds` (1,000 of them, well apart), `folded` (300 clouds that overlap in 24 dimensions,
turned into 128 and with some noise: about what embeddings of texts are like) or `even` (no
structure at all, which no index can use). lancedb has the same kind of index with as many
partitions; it is asked with more and more probes, until it finds as much as we did, and then both
are asked in turns, so that a noisy second meets both alike (`ann in turns`, `lancedb in turns`).

Times are of one process that does nothing else; the first answer is that of a new process.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

os.environ.setdefault("LANCE_LOG", "error")

from omnigraph import Graph

WIDTH = 128
CLOUDS = (1000, WIDTH, 0.7, 0.0)  # how many, in how many dimensions, how wide, and noise
FOLDED = (300, 24, 0.8, 0.1)
PROBES = (5, 10, 25, 50, 100, 200, 400, 1000)
SLICE = 250_000
ASKED = 40
TURNS = 5
SCHEMA = """
node Doc {
    slug: String @key
    num: I32 @index
    vec: Vector(128) @index(ann=true)
}
"""
QUERY = """
query near($v: Vector(128)) {
    match { $d: Doc FILTER }
    return { $d.slug as slug }
    order { nearest($d.vec, $v HOW) }
    limit 10
}
"""


def drawn(data: str, count: int, rng: Any) -> Any:
    """So many vectors of a kind of data."""
    if data == "even":
        return rng.standard_normal((count, WIDTH), dtype=np.float32)
    clouds, width, spread, noise = {"clouds": CLOUDS, "folded": FOLDED}[data]
    fixed = np.random.default_rng(1)
    centres = fixed.standard_normal((clouds, width), dtype=np.float32)
    turned = fixed.standard_normal((width, WIDTH), dtype=np.float32)
    cloud = spread * rng.standard_normal((count, width), dtype=np.float32)
    found = centres[rng.integers(0, clouds, count)] + cloud
    if width < WIDTH:
        found = found @ turned + noise * rng.standard_normal((count, WIDTH), dtype=np.float32)
    return found


def vectors(data: str, rows: int) -> Iterator[tuple[int, Any]]:
    rng = np.random.default_rng(2)
    for first in range(0, rows, SLICE):
        yield first, drawn(data, min(SLICE, rows - first), rng)


def questions(data: str) -> list[Any]:
    """Others of the same kind."""
    return [*drawn(data, ASKED, np.random.default_rng(5)).astype(np.float64)]


def make(folder: Path, rows: int, data: str) -> None:
    import lancedb

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data").write_text(data)
    table = None
    other = lancedb.connect(str(folder / "lancedb"))
    with Graph.init(folder / "graph", SCHEMA, durability="process", maintenance=None) as graph:
        for first, some in vectors(data, rows):
            column = pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), WIDTH)
            numbers = np.arange(first, first + len(some))
            new = pa.table(
                {
                    "slug": pa.array([f"d{number:08}" for number in numbers]),
                    "num": pa.array((numbers % 1000).astype(np.int32)),
                    "vec": column,
                }
            )
            graph.load({"Doc": new}, mode="append")
            if rows <= 4 * SLICE:
                if table is None:
                    table = other.create_table("docs", new)
                else:
                    table.add(new)
            say(f"{first + len(some)} rows")


def index(folder: Path, *, spark: bool) -> None:
    began = time.perf_counter()
    if spark:
        from omnigraph import pipeline

        pipeline.optimize(pipeline.session(), folder / "graph")
    else:
        with Graph.open(folder / "graph", durability="process", maintenance=None) as graph:
            graph.ensure_indices()
    say(f"our indexes: {time.perf_counter() - began:.1f} s")
    if (folder / "lancedb" / "docs.lance").exists():
        import lancedb
        from lancedb.index import IvfSq

        began = time.perf_counter()
        table = lancedb.connect(str(folder / "lancedb")).open_table("docs")
        sort = IvfSq(distance_type="cosine", num_partitions=math.isqrt(table.count_rows()))
        table.create_index("vec", config=sort)
        say(f"lancedb's index: {time.perf_counter() - began:.1f} s")


def ask(folder: Path) -> None:
    data = (folder / "data").read_text()
    asked, found = questions(data), dict[str, Any]()
    began = time.perf_counter()
    with Graph.open(folder / "graph", durability="process", maintenance=None) as graph:
        rows = graph.snapshot().entries["node:Doc"].row_count

        def ours(how: str, where: str = "") -> Callable[[Any], list[str]]:
            text = QUERY.replace("HOW", how).replace("FILTER", where)
            return lambda vector: graph.query(text, params={"v": vector.tolist()}).column("slug")

        ours(", exact")(asked[0])
        found["first exact answer, with opening"] = (time.perf_counter() - began) * 1000
        truth = told(found, "exact", ours(", exact"), asked)
        found["rss after exact, MB"] = memory()
        told(found, "exact, 30 % of rows", ours(", exact", "$d.num < 300"), asked)
        near = told(found, "ann", ours(""), asked)
        found["ann recall@10"] = recall(truth, near)
        wide = told(found, "ann, 30 % of rows", ours("", "$d.num < 300"), asked)
        some = [ours(", exact", "$d.num < 300")(vector) for vector in asked]
        found["ann recall@10, 30 % of rows"] = recall(some, wide)
        found["rss, MB"] = memory()
        if (folder / "lancedb" / "docs.lance").exists():
            beside(found, folder, asked, truth, ours(""))
    if (folder / "lancedb" / "docs.lance").exists():
        whole = np.concatenate([some for _, some in vectors(data, rows)])
        query = asked[0].astype(np.float32)
        told(found, "numpy's matrix @ vector", lambda _: whole @ query, asked)
    print(
        json.dumps(
            {"data": data, "rows": rows, **{name: round(one, 3) for name, one in found.items()}}
        )
    )


def beside(
    found: dict[str, Any],
    folder: Path,
    asked: list[Any],
    truth: list[Any],
    ours: Callable[[Any], Any],
) -> None:
    import lancedb

    table = lancedb.connect(str(folder / "lancedb")).open_table("docs")

    def theirs(vector: Any, probes: int) -> list[str]:
        search = table.search(vector.astype(np.float32), vector_column_name="vec")
        search = search.distance_type("cosine").nprobes(probes).refine_factor(4)
        return search.select(["slug", "_distance"]).limit(10).to_arrow()["slug"].to_pylist()

    for probes in PROBES:
        answers = told(found, "lancedb", partial(theirs, probes=probes), asked)
        found["lancedb probes"], found["lancedb recall@10"] = probes, recall(truth, answers)
        if found["lancedb recall@10"] >= found["ann recall@10"]:
            break
    calls = {"ann in turns": ours, "lancedb in turns": partial(theirs, probes=probes)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for vector in asked * TURNS:
        for name, call in calls.items():
            began = time.perf_counter()
            call(vector)
            times[name].append((time.perf_counter() - began) * 1000)
    for name, some in times.items():
        found[f"{name}, p50 ms"], found[f"{name}, least ms"] = float(np.median(some)), min(some)


def told(
    found: dict[str, Any], name: str, call: Callable[[Any], Any], asked: list[Any]
) -> list[Any]:
    """The answers; the median and the best time go into the table."""
    answers, times = [], []
    for vector in (asked[0], *asked):
        began = time.perf_counter()
        answers.append(call(vector))
        times.append((time.perf_counter() - began) * 1000)
    found[f"{name}, p50 ms"] = float(np.median(times[1:]))
    found[f"{name}, least ms"] = min(times[1:])
    return answers[1:]


def recall(truth: list[Any], found: list[Any]) -> float:
    hits = sum(len({*one} & {*other}) for one, other in zip(truth, found, strict=True))
    return hits / sum(map(len, truth))


def memory() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    word, place, *rest = sys.argv[1:]
    if word == "make":
        make(Path(place), int(rest[0]) if rest else 1_000_000, rest[1] if rest[1:] else "clouds")
    elif word == "index":
        index(Path(place), spark="--spark" in rest)
    else:
        ask(Path(place))
