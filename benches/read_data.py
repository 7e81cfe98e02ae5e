"""The graph of `read.py`: people, and who knows whom, as two Parquet files.

The same seed gives the same graph. `regular` is the data of `pipeline.py`: values that repeat in
step, rows in the order of their keys, every degree the same. `shuffled` has rows in no order,
random values, and a few people whom very many know. Neither has two edges between the same two
people, so that a join and a walk mean the same rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from read_questions import DIMENSION

VARIANTS = ("regular", "shuffled")
AGES = 100
CITIES = 200
YEARS = (1990, 2020)
WORDS = 3000
BIO_WORDS = 6
PART_ROWS = 1 << 20  # made and written at once
KEY_DIGITS = 9


class Graph:
    """One graph's size, kind and files; `write` makes the files if they are not there yet."""

    def __init__(self, folder: Path, *, nodes: int, edges: int, variant: str) -> None:
        assert variant in VARIANTS, variant
        self.folder, self.nodes, self.edges, self.variant = folder, nodes, edges, variant
        self.people, self.friendships = folder / "person.parquet", folder / "knows.parquet"

    @classmethod
    def of(cls, folder: Path) -> Graph:
        """The graph that was described in this folder."""
        return cls(folder, **json.loads((folder / "graph.json").read_text()))

    @property
    def name(self) -> str:
        return f"{short(self.nodes)}/{short(self.edges)} {self.variant}"

    def write(self) -> None:
        if self.friendships.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        about = {"nodes": self.nodes, "edges": self.edges, "variant": self.variant}
        (self.folder / "graph.json").write_text(json.dumps(about))
        rng = np.random.default_rng(7)
        who = np.arange(self.nodes) if self.regular else rng.permutation(self.nodes)
        write_parts(self.people, self.nodes, lambda at: self._people(who[at], rng))
        ends = self._regular_ends() if self.regular else self._shuffled_ends(rng)
        draft = self.friendships.with_suffix(".draft")
        write_parts(draft, self.edges, lambda at: self._friendships(ends, at, rng))
        draft.replace(self.friendships)  # so that half a graph is never taken for one

    @property
    def regular(self) -> bool:
        return self.variant == "regular"

    def _people(self, who: Any, rng: Any) -> pa.Table:
        count = len(who)
        chosen = who if self.regular else rng.integers(0, 1 << 31, count)
        vectors = rng.normal(size=count * DIMENSION).astype(np.float32)
        return pa.table(
            {
                "name": key(who),
                "age": pa.array((chosen % AGES).astype(np.int32)),
                "city": numbered("c", chosen % CITIES, 3),
                "email": pc.binary_join_element_wise("p", text(who), "@example.org", ""),
                "score": pa.array(
                    who * 0.5 if self.regular else rng.random(count) * self.nodes / 2
                ),
                "bio": pc.binary_join_element_wise(
                    *(numbered("w", rng.integers(0, WORDS, count), 4) for _ in range(BIO_WORDS)),
                    " ",
                ),
                "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION),
            }
        )

    def _friendships(self, ends: tuple[Any, Any], at: slice, rng: Any) -> pa.Table:
        first, last = YEARS
        rows = np.arange(at.start, at.stop)
        year = rows % (last - first) if self.regular else rng.integers(0, last - first, len(rows))
        return pa.table(
            {
                "a": key(ends[0][at]),
                "b": key(ends[1][at]),
                "since": pa.array((first + year).astype(np.int32)),
            }
        )

    def _regular_ends(self) -> tuple[Any, Any]:
        step = np.arange(self.edges)
        again = step // self.nodes  # one further each time round: no pair comes twice
        return step * 7_919 % self.nodes, (step * 104_729 + again) % self.nodes

    def _shuffled_ends(self, rng: Any) -> tuple[Any, Any]:
        pairs = np.empty(0, np.int64)
        while len(pairs) < self.edges:
            missing = self.edges - len(pairs)
            ends = [self._popular(rng, missing + missing // 8 + 64) for _ in range(2)]
            pairs = np.unique(np.concatenate([pairs, ends[0] * self.nodes + ends[1]]))
            pairs = pairs[pairs // self.nodes != pairs % self.nodes]
        pairs = rng.permutation(pairs)[: self.edges]
        return pairs // self.nodes, pairs % self.nodes

    def _popular(self, rng: Any, count: int) -> Any:
        """People drawn so that the n-th most popular is drawn about 1/sqrt(n) as often."""
        rank = (rng.random(count) ** 2 * self.nodes).astype(np.int64)
        return rank * 7_919 % self.nodes  # the popular ones are not the first ones


def write_parts(path: Path, rows: int, made: Any) -> None:
    writer = None
    for first in range(0, rows, PART_ROWS):
        part = made(slice(first, min(rows, first + PART_ROWS)))
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
    assert writer is not None, "a graph has rows"
    writer.close()


def text(numbers: Any) -> Any:
    return pa.array(numbers).cast(pa.string())


def numbered(letter: str, numbers: Any, digits: int) -> Any:
    return pc.binary_join_element_wise(letter, pc.utf8_lpad(text(numbers), digits, "0"), "")


def key(numbers: Any) -> Any:
    return numbered("person-", numbers, KEY_DIGITS)


def short(count: int) -> str:
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def parameters(graph: Graph, rounds: int) -> dict[str, list[Any]]:
    """What the questions ask about, a value a round; questions without one are not here."""
    rng = np.random.default_rng(9)
    people = [f"person-{n:0{KEY_DIGITS}}" for n in rng.integers(0, graph.nodes, rounds)]
    vectors = [[round(float(x), 4) for x in rng.normal(size=DIMENSION)] for _ in range(rounds)]
    words = [f"w{n:04}" for n in rng.integers(0, WORDS, rounds)]
    return {
        "person": people,
        "city": [f"c{n:03}" for n in rng.integers(0, CITIES, rounds)],
        "score": [graph.nodes * 0.15] * rounds,
        "vector": vectors,
        "word": words,
        "vector and word": list(zip(vectors, words, strict=True)),
        "nothing": [None] * rounds,
    }
