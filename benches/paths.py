"""Paths, edges of several types and other forms of the language beside their plain counterparts, in
other engines too, each in a process of its own.

    python benches/paths.py [--people 100000] [--peer-python PYTHON] [--rounds 30]

People know ten others each at random, like two, and work somewhere. Figures are the medians of warm
answers in milliseconds, from query text to Python rows, with other people each time; answers are
checked against each other. Two threads each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ANSWERS_MS_MAX = 5_000  # of one engine to one question
KNOWN, LIKED, PEOPLE_PER_COMPANY = 10, 2, 100
ENGINES = ("omnigraph", "duckdb", "kuzu", "ladybug")
SCHEMA = """
node Person { name: String @key  age: I32 }
node Company { name: String @key }
edge Knows: Person -> Person { weight: F64 }
edge Likes: Person -> Person
edge WorksAt: Person -> Company
"""
_REACHED = (
    "WITH RECURSIVE met(name, depth) AS (SELECT $1, 0 UNION "
    "SELECT k.b, depth + 1 FROM met JOIN knows k ON k.a = met.name WHERE depth < {depth}) "
)
# name: ours, SQL, Cypher
QUESTIONS: dict[str, tuple[str, str | None, str | None]] = {
    "shortest path, length": (
        (
            "match { $a: Person { name: $x }  $b: Person { name: $y } } "
            "return { length(shortest($a, $b, knows)) as n }"
        ),
        _REACHED.format(depth=7) + "SELECT min(depth) FROM met WHERE name = $2",
        (
            "MATCH p = (a:Person {name: $x})-[:Knows* SHORTEST 1..20]->(b:Person {name: $y}) "
            "RETURN length(p)"
        ),
    ),
    "shortest path, both ways": (
        (
            "match { $a: Person { name: $x }  $b: Person { name: $y } } "
            "return { length(shortest($a, $b, <knows|likes>)) as n }"
        ),
        None,
        (
            "MATCH p = (a:Person {name: $x})-[:Knows|:Likes* SHORTEST 1..20]-(b:Person {name: $y}) "
            "RETURN length(p)"
        ),
    ),
    "1 to 3 hops, filter, count": (
        (
            "match { $a: Person { name: $x }  $a knows{1,3} $b  $b.age > 60 } "
            "return { count($b) as n }"
        ),
        _REACHED.format(depth=3) + "SELECT count(DISTINCT met.name) FROM met "
        "JOIN person p ON p.name = met.name WHERE depth > 0 AND p.age > 60 AND met.name != $1",
        (
            "MATCH (a:Person {name: $x})-[:Knows* SHORTEST 1..3]->(b:Person) "
            "WHERE b.age > 60 AND b.name <> $x RETURN count(DISTINCT b.name)"
        ),
    ),
    "any edge, neighbours": (
        "match { $a: Person { name: $x }  $a any $b } return { type($b) as kind, $b.name }",
        (
            "SELECT DISTINCT * FROM (SELECT 'Person', b FROM knows WHERE a = $1 UNION ALL "
            "SELECT 'Person', b FROM likes WHERE a = $1 UNION ALL "
            "SELECT 'Company', b FROM worksat WHERE a = $1)"
        ),
        "MATCH (a:Person {name: $x})-[]->(b) RETURN DISTINCT label(b), b.name",
    ),
    "neighbours of one edge type": (
        "match { $a: Person { name: $x }  $a knows $b } return { $b.name }",
        "SELECT DISTINCT b FROM knows WHERE a = $1",
        "MATCH (a:Person {name: $x})-[:Knows]->(b) RETURN DISTINCT b.name",
    ),
    "count per group": (
        "match { $a: Person  $a worksAt $c } return { $c.name, count($a) as n }",
        "SELECT b, count(*) FROM worksat GROUP BY b",
        "MATCH (a:Person)-[:WorksAt]->(c:Company) RETURN c.name, count(a)",
    ),
    "collect per group": (
        "match { $a: Person  $a worksAt $c } return { $c.name, collect($a.age) as ages }",
        "SELECT w.b, list(p.age) FROM worksat w JOIN person p ON p.name = w.a GROUP BY w.b",
        "MATCH (a:Person)-[:WorksAt]->(c:Company) RETURN c.name, collect(a.age)",
    ),
    "filter behind a hop, count": (
        "match { $a: Person  $a likes $b  $b.age > 90 } return { count(distinct $a) as n }",
        ("SELECT count(DISTINCT l.a) FROM likes l JOIN person p ON p.name = l.b WHERE p.age > 90"),
        "MATCH (a:Person)-[:Likes]->(b:Person) WHERE b.age > 90 RETURN count(DISTINCT a)",
    ),
    "exists filter, count": (
        (
            "match { $a: Person  exists { $a likes $b  $b.age > 90 } or $a.age = 1 } "
            "return { count($a) as n }"
        ),
        (
            "SELECT count(*) FROM person a WHERE a.age = 1 OR EXISTS (SELECT 1 FROM likes l "
            "JOIN person p ON p.name = l.b WHERE l.a = a.name AND p.age > 90)"
        ),
        (
            "MATCH (a:Person) WHERE a.age = 1 OR EXISTS "
            "{ MATCH (a)-[:Likes]->(b:Person) WHERE b.age > 90 } RETURN count(a)"
        ),
    ),
    "group by a case": (
        (
            'match { $a: Person } return { case when $a.age > 60 then "old" else "young" end as k, '
            "count($a) as n }"
        ),
        (
            "SELECT CASE WHEN age > 60 THEN 'old' ELSE 'young' END AS k, count(*) "
            "FROM person GROUP BY k"
        ),
        "MATCH (a:Person) RETURN CASE WHEN a.age > 60 THEN 'old' ELSE 'young' END AS k, count(a)",
    ),
    "lightest path": (
        (
            "match { $a: Person { name: $x }  $b: Person { name: $y } } "
            "return { length(shortest($a, $b, knows, weight)) as n }"
        ),
        None,
        None,  # Kuzu 0.11 says: cannot evaluate expression with type PROPERTY
    ),
}


def make(folder: Path, people: int) -> None:
    """The graph as Parquet files."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(5)
    companies = max(1, people // PEOPLE_PER_COMPANY)

    def names(letter: str, numbers: Any) -> Any:
        return pa.array([f"{letter}{number:07d}" for number in numbers.tolist()])

    everyone = np.arange(people)
    ages = pa.array(rng.integers(0, 100, people).astype(np.int32))
    tables = {
        "person": {"name": names("p", everyone), "age": ages},
        "company": {"name": names("c", np.arange(companies))},
        "worksat": {
            "a": names("p", everyone),
            "b": names("c", rng.integers(0, companies, people)),
        },
    }
    for edge, each in (("knows", KNOWN), ("likes", LIKED)):
        keys = np.unique(
            np.repeat(everyone, each) * people + rng.integers(0, people, people * each)
        )
        found = {"a": names("p", keys // people), "b": names("p", keys % people)}
        if edge == "knows":
            found["weight"] = pa.array(rng.random(len(keys)))
        tables[edge] = found
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


class Omnigraph:
    def __init__(self, folder: Path) -> None:
        from omnigraph import Graph
        from omnigraph.pipeline import Source

        graph = Graph.init(str(folder / "graph.omni"), SCHEMA)
        ends = {"a": "from", "b": "to"}
        data = {
            name: Source.parquet(folder / f"{name.lower()}.parquet")
            for name in ("Person", "Company")
        }
        for name in ("Knows", "Likes", "WorksAt"):
            data[name] = Source.parquet(folder / f"{name.lower()}.parquet", columns=ends)
        graph.load(data, mode="append")
        self.graph = graph

    def ask(self, number: int, params: dict[str, str]) -> list[tuple[Any, ...]] | None:
        text = [*QUESTIONS.values()][number][0]
        used = {name: value for name, value in params.items() if f"${name}" in text}
        declared = ", ".join(f"${name}: String" for name in used)
        found = self.graph.query(f"query q({declared}) {{ {text} }}", params=used)
        return [tuple(row.values()) for row in found.to_pylist()]


class DuckDb:
    def __init__(self, folder: Path) -> None:
        import duckdb

        self.connection = duckdb.connect(config={"threads": 2})
        for name in ("person", "company", "knows", "likes", "worksat"):
            self.connection.execute(f"CREATE TABLE {name} AS FROM '{folder}/{name}.parquet'")
        for name in ("knows", "likes", "worksat"):
            self.connection.execute(f"CREATE INDEX {name}_a ON {name}(a)")

    def ask(self, number: int, params: dict[str, str]) -> list[tuple[Any, ...]] | None:
        text = [*QUESTIONS.values()][number][1]
        if text is None:
            return None
        given = [params[name] for name, mark in (("x", "$1"), ("y", "$2")) if mark in text]
        return self.connection.execute(text, given).fetchall()


class Cypher:
    def __init__(self, folder: Path, module: str) -> None:
        kuzu = __import__(module)
        self.connection = kuzu.Connection(
            kuzu.Database(str(folder / module), max_num_threads=2), num_threads=2
        )
        run = self.connection.execute
        run("CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT32)")
        run("CREATE NODE TABLE Company(name STRING PRIMARY KEY)")
        run("CREATE REL TABLE Knows(FROM Person TO Person, weight DOUBLE)")
        run("CREATE REL TABLE Likes(FROM Person TO Person)")
        run("CREATE REL TABLE WorksAt(FROM Person TO Company)")
        for name in ("Person", "Company", "Knows", "Likes", "WorksAt"):
            run(f"COPY {name} FROM '{folder}/{name.lower()}.parquet'")

    def ask(self, number: int, params: dict[str, str]) -> list[tuple[Any, ...]] | None:
        text = [*QUESTIONS.values()][number][2]
        if text is None:
            return None
        used = {name: value for name, value in params.items() if f"${name}" in text}
        return [tuple(row) for row in self.connection.execute(text, used).get_all()]


def serve(name: str, folder: Path, people: int, rounds: int) -> None:
    """Load, ask, and print medians and the answers of the first rounds as one line of JSON."""
    import random

    engine: Any
    if name == "omnigraph":
        engine = Omnigraph(folder)
    elif name == "duckdb":
        engine = DuckDb(folder)
    else:
        engine = Cypher(folder, "kuzu" if name == "kuzu" else "real_ladybug")
    told: dict[str, Any] = {}
    for number, question in enumerate(QUESTIONS):
        rng, took, rows = random.Random(11), [], []
        for turn in range(rounds):
            one, other = (f"p{rng.randrange(people):07d}" for _ in range(2))
            began = time.perf_counter()
            found = engine.ask(number, {"x": one, "y": other})
            took.append((time.perf_counter() - began) * 1000)
            if found is None:
                break
            if turn < 5:
                rows.append(sorted(map(_plain, found)))
            if sum(took) > ANSWERS_MS_MAX:
                break
        if found is not None:
            told[question] = {
                "ms": round(statistics.median(took[len(took) // 3 :]), 3),
                "rows": rows,
            }
    print(json.dumps(told), flush=True)


def _plain(row: Any) -> list[Any]:
    """A row as all engines give it: what they collect is in no common order."""
    return [sorted(cell) if isinstance(cell, list) else cell for cell in row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--serve", nargs=2)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve[0], Path(asked.serve[1]), asked.people, asked.rounds)
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="omnigraph-paths-") as place:
        make(Path(place), asked.people)
        for engine in ENGINES:
            python = sys.executable if engine == "omnigraph" else asked.peer_python
            size = ["--people", str(asked.people), "--rounds", str(asked.rounds)]
            line = [python, __file__, *size, "--serve", engine, place]
            done = subprocess.run(
                line,
                stdout=subprocess.PIPE,
                text=True,
                check=False,
                env={**os.environ, "OMP_NUM_THREADS": "2"},
            )
            if done.returncode == 0:
                found[engine] = json.loads(done.stdout.splitlines()[-1])
    print(f"{'ms':28}" + "".join(f"{engine:>12}" for engine in found))
    for question in QUESTIONS:
        cells = [each.get(question) for each in found.values()]
        print(f"{question:28}" + "".join(f"{c['ms'] if c else '-':>12}" for c in cells))
        answers = {json.dumps(cell["rows"]) for cell in cells if cell}
        if len(answers) > 1:
            print("   answers differ:", *(a[:100] for a in answers), sep="\n     ")


if __name__ == "__main__":
    main()
