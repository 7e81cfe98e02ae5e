"""Search in words: the first answer of a new process, warm answers, after a commit, and hybrid.

    python benches/search.py [--texts 500000] [--people 100000] [--edges 1000000] [--keep FOLDER]

Milliseconds of the clock, and of the processors in brackets, which a busy machine distorts less.
`first` is a new process from its start to the ten best rows, with the operating system's file cache
warm, and what of that is imports; `without files` is the same without the stored words.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph import Graph

TOP = """
query top($q: String) {
  match { $d: Doc } return { $d.k, bm25($d.text, $q) as score } order { score desc } limit 10 }
query found($q: String) { match { $d: Doc  search($d.text, $q) } return { count($d) as n } }
query more($k: String, $t: String) { insert Doc { k: $k, text: $t } }
"""
HYBRID = """
query hybrid($q: String, $v: Vector(64)) {
  match { $p: Person  $p knows $q2 } return { $p.name, $q2.name }
  order { rrf(nearest($p.vec, $v), bm25($p.bio, $q)) } limit 10 }
"""
WORDS = 60_000
ROUNDS = 15


def vocabulary() -> list[str]:
    draw = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return ["".join(draw.choice(letters, int(size))) for size in draw.integers(3, 11, WORDS)]


def texts(count: int, words: list[str]) -> list[str]:
    draw = np.random.default_rng(2)
    share = 1 / np.arange(1, len(words) + 1) ** 0.9
    lengths = draw.integers(6, 20, count)
    chosen = draw.choice(len(words), int(lengths.sum()), p=share / share.sum())
    ends = np.cumsum(lengths)
    return [" ".join(words[at] for at in some) for some in np.split(chosen, ends[:-1])]


def build_texts(uri: str, count: int, words: list[str]) -> None:
    with Graph.init(uri, "node Doc { k: String @key  text: String? @index }") as graph:
        rows = {"k": [f"d{n:07d}" for n in range(count)], "text": texts(count, words)}
        graph.load({"Doc": pa.table(rows)}, mode="append")


def build_people(uri: str, people: int, edges: int, words: list[str]) -> None:
    draw = np.random.default_rng(3)
    names = [f"p{n:07d}" for n in range(people)]
    vectors = draw.standard_normal((people, 64), dtype=np.float32)
    rows = {
        "name": pa.array(names),
        "bio": pa.array(texts(people, words)),
        "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 64),
    }
    ends = {end: pa.array(names).take(pa.array(draw.integers(0, people, edges))) for end in "ab"}
    schema = """
    node Person { name: String @key  bio: String? @index  vec: Vector(64)? @index }
    edge Knows: Person -> Person
    """
    with Graph.init(uri, schema) as graph:
        graph.load({"Person": pa.table(rows)}, mode="append")
        graph.load({"Knows": pa.table({"from": ends["a"], "to": ends["b"]})}, mode="append")


def timed(work: Any) -> tuple[float, float]:
    clock, processors = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - clock) * 1e3, (time.process_time() - processors) * 1e3


def warm(work: Any) -> str:
    work(), work(), work()
    took = [timed(work) for _ in range(ROUNDS)]
    clock, processors = (statistics.median(each) for each in zip(*took, strict=True))
    return f"{clock:.1f} ({processors:.1f})"


FIRST = """
import json, sys, time
from omnigraph import Graph
imported = time.monotonic()
uri, text, asked = sys.argv[1:]
with Graph.open(uri) as graph:
    found = graph.query(text, "top", params=json.loads(asked)).to_pylist()
    print(len(found), imported, time.monotonic(), time.process_time(), flush=True)
"""


def first(uri: str, asked: dict[str, str]) -> str:
    took = []
    for _ in range(9):
        begun = time.monotonic()
        command = [sys.executable, "-c", FIRST, uri, TOP, json.dumps(asked)]
        told = subprocess.run(command, check=True, capture_output=True).stdout.split()
        count, imported, answered, processors = map(float, told)
        assert count == 10
        took.append((answered - begun, imported - begun, processors))
    whole, imports, processors = (statistics.median(each) * 1e3 for each in zip(*took, strict=True))
    return f"{whole:.0f} ({processors:.0f}), of which starting and importing {imports:.0f}"


def main(options: argparse.Namespace) -> None:
    folder = Path(options.keep or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    docs, people, words = str(folder / "docs.omni"), str(folder / "people.omni"), vocabulary()
    if not Path(docs).exists():
        build_texts(docs, options.texts, words)
    if not Path(people).exists():
        build_people(people, options.people, options.edges, words)
    asked = {"q": f"{words[500]} {words[3000]}"}
    stored = sum(file.stat().st_size for file in Path(docs, "_derived").rglob("*.words1"))
    print(f"stored words: {stored / 1e6:.0f} MB")
    print(f"first top 10 of a new process: {first(docs, asked)}")
    with Graph.open(docs) as graph:
        print(f"top 10: {warm(lambda: graph.query(TOP, 'top', params=asked).to_pylist())}")
        print(f"search, count: {warm(lambda: graph.query(TOP, 'found', params=asked).to_pylist())}")
        after = []
        for number in range(5):
            new = {"k": f"new{number}-{time.time_ns()}", "t": "a new text"}
            graph.mutate(TOP, "more", params=new)
            after.append(timed(lambda: graph.query(TOP, "top", params=asked).to_pylist()))
        clock, processors = (statistics.median(each) for each in zip(*after, strict=True))
        print(f"top 10 after a commit of one row: {clock:.1f} ({processors:.1f})")
    vector = np.random.default_rng(4).standard_normal(64).tolist()
    with Graph.open(people) as graph:
        both = {**asked, "v": vector}
        work = warm(lambda: graph.query(HYBRID, "hybrid", params=both).to_pylist())
        print(f"hybrid, 1 hop: {work}")
    aside = folder / "aside"
    shutil.move(Path(docs, "_derived"), aside)
    print(f"first top 10 without files: {first(docs, asked)}")
    shutil.move(aside, Path(docs, "_derived"))
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=500_000)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--keep")
    main(parser.parse_args())
