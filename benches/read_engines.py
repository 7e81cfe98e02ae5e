"""One engine of `read.py`: load the data, answer cold, or answer warm and measure.

    python benches/read_engines.py ENGINE load|cold|warm FOLDER ROUNDS

Prints one line of JSON. Exit code 3: the engine is not installed.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

DIMENSION = 32
CITIES = 200
WORDS = 3000
Rows = list[tuple[Any, ...]]


# --- the data, the same for all ----------------------------------------------------------------


def people(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(7)
    for number in range(count):
        yield {
            "name": f"p{number:06}",
            "age": rng.randrange(90),
            "city": f"c{rng.randrange(CITIES):03}",
            "bio": " ".join(f"w{rng.randrange(WORDS):04}" for _ in range(8)),
            "vec": [round(rng.gauss(0, 1), 4) for _ in range(DIMENSION)],
        }


def friendships(nodes: int, count: int) -> list[tuple[int, int]]:
    """Different pairs without loops, so that joins and walks mean the same rows."""
    rng = random.Random(8)
    pairs: dict[tuple[int, int], None] = {}
    while len(pairs) < count:
        a, b = rng.randrange(nodes), rng.randrange(nodes)
        if a != b:
            pairs[a, b] = None
    return list(pairs)


def parameters(nodes: int, rounds: int) -> dict[str, list[Any]]:
    rng = random.Random(9)
    names = [f"p{rng.randrange(nodes):06}" for _ in range(rounds)]
    vectors = [[round(rng.gauss(0, 1), 4) for _ in range(DIMENSION)] for _ in range(rounds)]
    cities = [f"c{rng.randrange(CITIES):03}" for _ in range(rounds)]
    words = [f"w{rng.randrange(WORDS):04}" for _ in range(rounds)]
    return {
        "point lookup": names,
        "1 hop": names,
        "2 hops": names,
        "3 hops, count": names,
        "filtered 2 hops, count": cities,
        "top 10 by degree": [None] * rounds,
        "group by": [None] * rounds,
        "vector top 10, filter": vectors,
        "text top 10": words,
        "hybrid + 1 hop": list(zip(vectors, words, strict=True)),
    }


# --- the engines -------------------------------------------------------------------------------


class Omnigraph:
    """Ours, through `Graph`."""

    SCHEMA = f"""
    node Person {{ name: String @key  age: I32  city: String @index
                   bio: String @index  vec: Vector({DIMENSION}) @index }}
    edge Knows: Person -> Person
    """
    QUERIES = f"""
    query point($x: String) {{ match {{ $p: Person {{ name: $x }} }} return {{ $p.name, $p.age }} }}
    query one($x: String) {{
      match {{ $p: Person {{ name: $x }}  $p knows $q }} return {{ $q.name }} }}
    query two($x: String) {{
      match {{ $p: Person {{ name: $x }}  $p knows $m  $m knows $q }} return {{ $q.name }} }}
    query three($x: String) {{
      match {{ $p: Person {{ name: $x }}  $p knows $m  $m knows $r  $r knows $q }}
      return {{ count($q) as n }} }}
    query filtered($x: String) {{
      match {{ $p: Person {{ city: $x }}  $p knows $m  $m knows $q  $q.age > 60 }}
      return {{ count($q) as n }} }}
    query degree() {{
      match {{ $p: Person  $p knows $q }} return {{ $p.name, count($q) as n }}
      order {{ n desc }} limit 10 }}
    query grouped() {{
      match {{ $p: Person }} return {{ $p.city, count($p) as n, avg($p.age) as a }} }}
    query near($x: Vector({DIMENSION})) {{
      match {{ $p: Person  $p.age > 45 }} return {{ $p.name }}
      order {{ nearest($p.vec, $x) }} limit 10 }}
    query text($x: String) {{
      match {{ $p: Person }} return {{ $p.name }} order {{ bm25($p.bio, $x) }} limit 10 }}
    query hybrid($v: Vector({DIMENSION}), $t: String) {{
      match {{ $p: Person  $p knows $q }} return {{ $p.name, $q.name }}
      order {{ rrf(nearest($p.vec, $v), bm25($p.bio, $t)) }} limit 10 }}
    """
    NAMES: ClassVar = {
        "point lookup": "point",
        "1 hop": "one",
        "2 hops": "two",
        "3 hops, count": "three",
        "filtered 2 hops, count": "filtered",
        "top 10 by degree": "degree",
        "group by": "grouped",
        "vector top 10, filter": "near",
        "text top 10": "text",
        "hybrid + 1 hop": "hybrid",
    }

    def __init__(self, folder: Path) -> None:
        from omnigraph import Graph

        self.kind = Graph
        self.uri = str(folder / "graph.omni")
        self.graph: Any = None

    def load(self, nodes: int, edges: int) -> None:
        lines = [json.dumps({"type": "Person", "data": one}) for one in people(nodes)]
        lines += [
            f'{{"edge":"Knows","from":"p{a:06}","to":"p{b:06}","data":{{"id":"k{n:07}"}}}}'
            for n, (a, b) in enumerate(friendships(nodes, edges))
        ]
        with self.kind.init(self.uri, self.SCHEMA) as graph:
            graph.load("\n".join(lines), mode="append")

    def open(self) -> None:
        self.graph = self.kind.open(self.uri)

    def ask(self, name: str, value: Any) -> Rows:
        params = {} if value is None else {"x": value}
        if name == "hybrid + 1 hop":
            params = {"v": value[0], "t": value[1]}
        found = self.graph.query(self.QUERIES, self.NAMES[name], params=params)
        return [tuple(row.values()) for row in found.to_pylist()]

    def write(self, number: int) -> None:
        line = f'{{"edge":"Knows","from":"p{number:06}","to":"p{number + 1:06}"}}'
        self.graph.load(line, mode="append")


class Cypher:
    """Kuzu and its successor: the same language, the same Python surface."""

    QUERIES: ClassVar = {
        "point lookup": "MATCH (p:Person {name: $x}) RETURN p.name, p.age",
        "1 hop": "MATCH (p:Person {name: $x})-[:Knows]->(q) RETURN q.name",
        "2 hops": "MATCH (p:Person {name: $x})-[:Knows]->(m)-[:Knows]->(q) RETURN q.name",
        "3 hops, count": (
            "MATCH (p:Person {name: $x})-[:Knows]->(m)-[:Knows]->(r)-[:Knows]->(q) RETURN count(*)"
        ),
        "filtered 2 hops, count": (
            "MATCH (p:Person {city: $x})-[:Knows]->(m)-[:Knows]->(q) WHERE q.age > 60 "
            "RETURN count(*)"
        ),
        "top 10 by degree": (
            "MATCH (p:Person)-[:Knows]->(q) RETURN p.name, count(*) AS n "
            "ORDER BY n DESC, p.name LIMIT 10"
        ),
        "group by": "MATCH (p:Person) RETURN p.city, count(*), avg(p.age)",
        "vector top 10, filter": (
            "MATCH (p:Person) WHERE p.age > 45 RETURN p.name ORDER BY "
            f"array_cosine_similarity(p.vec, CAST($x, 'FLOAT[{DIMENSION}]')) DESC LIMIT 10"
        ),
    }

    def __init__(self, folder: Path, module: Any) -> None:
        self.module = module
        self.path = str(folder / f"{module.__name__}.db")
        self.folder = folder
        self.connection: Any = None

    def open(self) -> None:
        database = self.module.Database(self.path, max_num_threads=2)
        self.connection = self.module.Connection(database, num_threads=2)

    def load(self, nodes: int, edges: int) -> None:
        node_file, edge_file = parquet_files(self.folder, nodes, edges)
        self.open()
        self.connection.execute(
            "CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT32, city STRING, "
            f"bio STRING, vec FLOAT[{DIMENSION}])"
        )
        self.connection.execute("CREATE REL TABLE Knows(FROM Person TO Person)")
        self.connection.execute(f"COPY Person FROM '{node_file}'")
        self.connection.execute(f"COPY Knows FROM '{edge_file}'")

    def ask(self, name: str, value: Any) -> Rows:
        params = {} if value is None else {"x": value}
        found = self.connection.execute(self.QUERIES[name], params)
        return [tuple(row) for row in found.get_all()]


class DuckDb:
    """Tables with an index on both ends of the edges."""

    HOP = "SELECT b FROM knows WHERE a = ?"
    QUERIES: ClassVar = {
        "point lookup": "SELECT name, age FROM person WHERE name = ?",
        "1 hop": HOP,
        "2 hops": "SELECT k2.b FROM knows k1 JOIN knows k2 ON k1.b = k2.a WHERE k1.a = ?",
        "3 hops, count": (
            "SELECT count(*) FROM knows k1 JOIN knows k2 ON k1.b = k2.a "
            "JOIN knows k3 ON k2.b = k3.a WHERE k1.a = ?"
        ),
        "filtered 2 hops, count": (
            "SELECT count(*) FROM person p JOIN knows k1 ON k1.a = p.name JOIN knows k2 "
            "ON k1.b = k2.a JOIN person q ON q.name = k2.b WHERE p.city = ? AND q.age > 60"
        ),
        "top 10 by degree": (
            "SELECT a, count(*) AS n FROM knows GROUP BY a ORDER BY n DESC, a LIMIT 10"
        ),
        "group by": "SELECT city, count(*), avg(age) FROM person GROUP BY city",
        "vector top 10, filter": (
            "SELECT name FROM person WHERE age > 45 ORDER BY "
            f"array_cosine_distance(vec, ?::FLOAT[{DIMENSION}]) LIMIT 10"
        ),
    }

    def __init__(self, folder: Path) -> None:
        import duckdb

        self.module = duckdb
        self.folder = folder
        self.path = str(folder / "duck.db")
        self.connection: Any = None

    def open(self) -> None:
        self.connection = self.module.connect(self.path, config={"threads": 2})

    def load(self, nodes: int, edges: int) -> None:
        node_file, edge_file = parquet_files(self.folder, nodes, edges)
        self.open()
        run = self.connection.execute
        run(
            f"CREATE TABLE person AS SELECT name, age, city, bio, vec::FLOAT[{DIMENSION}] AS vec "
            f"FROM '{node_file}'"
        )
        run(f"CREATE TABLE knows AS SELECT * FROM '{edge_file}'")
        run("CREATE INDEX person_name ON person(name)")
        run("CREATE INDEX knows_a ON knows(a)")

    def ask(self, name: str, value: Any) -> Rows:
        words = [] if value is None else [value]
        found: Rows = self.connection.execute(self.QUERIES[name], words).fetchall()
        return found


class LanceDb:
    """One table, for the searches: exact vectors, and its own full-text index."""

    def __init__(self, folder: Path) -> None:
        import lancedb

        self.module = lancedb
        self.folder = folder
        self.table: Any = None

    def open(self) -> None:
        self.table = self.module.connect(str(self.folder / "lancedb")).open_table("person")

    def load(self, nodes: int, edges: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pq.read_table(parquet_files(self.folder, nodes, edges)[0])
        vectors = rows["vec"].combine_chunks()
        fixed = pa.FixedSizeListArray.from_arrays(vectors.values.cast(pa.float32()), DIMENSION)
        rows = rows.set_column(rows.schema.get_field_index("vec"), "vec", fixed)
        table = self.module.connect(str(self.folder / "lancedb")).create_table("person", rows)
        table.create_scalar_index("name")
        table.create_fts_index("bio", replace=True)

    def ask(self, name: str, value: Any) -> Rows:
        if name == "point lookup":
            found = self.table.search().where(f"name = '{value}'").select(["name", "age"])
            return [(row["name"], row["age"]) for row in found.to_list()]
        if name == "vector top 10, filter":
            asked = self.table.search(value, vector_column_name="vec").distance_type("cosine")
            asked = asked.where("age > 45", prefilter=True)
        else:
            asked = self.table.search(value, query_type="fts")
        return [(row["name"],) for row in asked.select(["name"]).limit(10).to_list()]

    QUERIES: ClassVar = {"point lookup": "", "vector top 10, filter": "", "text top 10": ""}


def parquet_files(folder: Path, nodes: int, edges: int) -> tuple[Path, Path]:
    """The data as files, written once for all engines that want files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    node_file, edge_file = folder / "person.parquet", folder / "knows.parquet"
    if not edge_file.exists():
        rows = pa.Table.from_pylist(list(people(nodes)))
        age = rows.schema.get_field_index("age")
        rows = rows.set_column(age, "age", rows["age"].cast(pa.int32()))
        vec = rows.schema.get_field_index("vec")
        rows = rows.set_column(vec, "vec", rows["vec"].cast(pa.list_(pa.float32())))
        pq.write_table(rows, node_file)
        pairs = friendships(nodes, edges)
        ends = {"a": [f"p{a:06}" for a, _ in pairs], "b": [f"p{b:06}" for _, b in pairs]}
        pq.write_table(pa.table(ends), edge_file)
    return node_file, edge_file


def engine_named(name: str, folder: Path) -> Any:
    if name == "omnigraph":
        return Omnigraph(folder)
    if name == "kuzu":
        import kuzu

        return Cypher(folder, kuzu)
    if name == "ladybug":
        import real_ladybug

        return Cypher(folder, real_ladybug)
    return DuckDb(folder) if name == "duckdb" else LanceDb(folder)


# --- measuring ---------------------------------------------------------------------------------


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def normal(rows: Rows) -> Any:
    """An answer that engines can agree on: rows in any order, floats to six digits."""
    return sorted(
        [round(cell, 6) if isinstance(cell, float) else cell for cell in row] for row in rows
    )


def warm(engine: Any, nodes: int, rounds: int) -> dict[str, Any]:
    has = engine.NAMES if isinstance(engine, Omnigraph) else engine.QUERIES
    figures: dict[str, float] = {}
    answers: dict[str, Any] = {}
    for name, values in parameters(nodes, rounds).items():
        if name not in has:
            continue
        for value in values[:3]:
            engine.ask(name, value)
        if "text" not in name and "hybrid" not in name:
            answers[name] = normal(engine.ask(name, values[0]))
        took = [milliseconds(partial(engine.ask, name, value)) for value in values]
        figures[name] = round(statistics.median(took), 3)
    if isinstance(engine, Omnigraph):
        after = []
        for number, value in enumerate(parameters(nodes, rounds)["2 hops"]):
            engine.write(number)
            after.append(milliseconds(partial(engine.ask, "2 hops", value)))
        figures["2 hops after a commit"] = round(statistics.median(after), 3)
    return {"ms": figures, "answers": answers}


def main(engine_name: str, verb: str, folder: Path, rounds: int) -> int:
    try:
        engine = engine_named(engine_name, folder)
    except ImportError:
        return 3
    nodes, edges = json.loads((folder / "size.json").read_text())
    result: dict[str, Any] = {}
    if verb == "load":
        engine.load(nodes, edges)
    else:
        engine.open()
        if verb == "cold":
            name = "2 hops" if engine_name != "lancedb" else "point lookup"
            engine.ask(name, "p000001")
        else:
            result = warm(engine, nodes, rounds)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
