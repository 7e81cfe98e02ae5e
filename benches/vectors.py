"""Vectors: exact and approximate `nearest`, beside numpy's matrix product and lancedb.

    python benches/vectors.py make FOLDER [ROWS]        a graph, and a lancedb table of the same
    python benches/vectors.py index FOLDER [--spark]    the approximate index (and lancedb's own)
    python benches/vectors.py ask FOLDER                times, recall and memory, side by side

Times are of one process that does nothing else; the first answer is that of a new process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph import Graph

WIDTH = 128
CENTRES = 1000
SPREAD = 0.7
SLICE = 250_000
ASKED = 40
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


def vectors(rows: int) -> Iterator[tuple[int, Any]]:
    """Clouds around some centres, as embeddings of texts are."""
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((CENTRES, WIDTH), dtype=np.float32)
    for first in range(0, rows, SLICE):
        count = min(SLICE, rows - first)
        cloud = SPREAD * rng.standard_normal((count, WIDTH), dtype=np.float32)
        yield first, centres[rng.integers(0, CENTRES, count)] + cloud


def questions() -> list[Any]:
    centres = np.random.default_rng(1).standard_normal((CENTRES, WIDTH), dtype=np.float32)
    rng = np.random.default_rng(5)
    return [centres[at] + SPREAD * rng.standard_normal(WIDTH) for at in range(ASKED)]


def make(folder: Path, rows: int) -> None:
    import lancedb

    table = None
    other = lancedb.connect(str(folder / "lancedb"))
    with Graph.init(folder / "graph", SCHEMA, durability="process", maintenance=None) as graph:
        for first, some in vectors(rows):
            column = pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), WIDTH)
            numbers = np.arange(first, first + len(some))
            data = pa.table(
                {
                    "slug": pa.array([f"d{number:08}" for number in numbers]),
                    "num": pa.array((numbers % 1000).astype(np.int32)),
                    "vec": column,
                }
            )
            graph.load({"Doc": data}, mode="append")
            if rows <= 4 * SLICE:
                table = other.create_table("docs", data) if table is None else table
                if first:
                    table.add(data)
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
    if (folder / "lancedb").exists():
        import lancedb

        began = time.perf_counter()
        table = lancedb.connect(str(folder / "lancedb")).open_table("docs")
        table.create_index("cosine", vector_column_name="vec", index_type="IVF_PQ")
        say(f"lancedb's index: {time.perf_counter() - began:.1f} s")


def ask(folder: Path) -> None:
    asked, found = questions(), dict[str, Any]()
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
    if (folder / "lancedb").exists():
        beside(found, folder, asked, truth)
        whole = np.concatenate([some for _, some in vectors(rows)])
        query = asked[0].astype(np.float32)
        told(found, "numpy's matrix @ vector", lambda _: whole @ query, asked)
    print(json.dumps({"rows": rows, **{name: round(one, 3) for name, one in found.items()}}))


def beside(found: dict[str, Any], folder: Path, asked: list[Any], truth: list[Any]) -> None:
    import lancedb

    table = lancedb.connect(str(folder / "lancedb")).open_table("docs")

    def theirs(vector: Any) -> list[str]:
        search = table.search(vector.astype(np.float32), vector_column_name="vec")
        search = search.distance_type("cosine").nprobes(25).refine_factor(4)
        return search.select(["slug"]).limit(10).to_arrow()["slug"].to_pylist()

    found["lancedb recall@10"] = recall(truth, told(found, "lancedb", theirs, asked))


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
        make(Path(place), int(rest[0]) if rest else 1_000_000)
    elif word == "index":
        index(Path(place), spark="--spark" in rest)
    else:
        ask(Path(place))
