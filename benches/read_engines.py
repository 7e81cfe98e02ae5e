"""One engine of `read.py`, in a process of its own, on the graph of a folder.

    python benches/read_engines.py ENGINE VERB FOLDER ROUNDS

`load` loads it; `cold` answers one two-hop; `serve` answers the questions on standard input. The
verbs `commit`, `lookup` and `readers` are for ours only (`read_ours.py`). Prints lines of JSON.
Exit code 3: the engine is not installed.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from read_questions import BY_NAME, DIMENSION, QUESTIONS, TYPES, Question

Rows = list[tuple[Any, ...]]


class Omnigraph:
    """Ours, through `Graph`."""

    package = "omnigraph"
    SCHEMA = f"""
    node Person {{ name: String @key  age: I32  city: String @index  email: String?  score: F64?
      bio: String @index  vec: Vector({DIMENSION}) @index  @range(age, 0..150) }}
    edge Knows: Person -> Person {{ since: I32 }}
    """

    def __init__(self, folder: Path) -> None:
        from omnigraph import Graph

        self.kind = Graph
        self.uri = str(folder / "graph.omni")
        self.graph: Any = None
        self.branch = "main"

    def load(self, people: Path, friendships: Path) -> None:
        from omnigraph.pipeline import Source

        ends = {"a": "from", "b": "to"}
        data = {
            "Person": Source.parquet(people),
            "Knows": Source.parquet(friendships, columns=ends),
        }
        with self.kind.init(self.uri, self.SCHEMA) as graph:
            graph.load(data, mode="append")

    def open(self) -> None:
        budget = os.environ.get("OMNIGRAPH_CACHE_BYTES")
        options = {} if budget is None else {"cache_bytes": int(budget)}
        self.graph = self.kind.open(self.uri, maintenance=None, **options)

    def has(self, question: Question) -> bool:
        return bool(question.ours)

    def ask(self, question: Question, value: Any) -> Rows:
        text = f"query q({TYPES[question.about]}) {{ {question.ours} }}"
        params = {} if value is None else {"x": value}
        if isinstance(value, tuple):
            params = dict(zip("xy", value, strict=True))
        found = self.graph.query(text, params=params, branch=self.branch)
        return [tuple(row.values()) for row in found.to_pylist()]


class Cypher:
    """Kuzu and its successor: the same language, the same Python surface; prepared statements."""

    def __init__(self, folder: Path, module: str) -> None:
        self.module = importlib.import_module(module)
        self.package = module
        self.path = str(folder / f"{module}.db")
        self.connection: Any = None
        self.prepared: dict[str, Any] = {}

    def open(self) -> None:
        database = self.module.Database(self.path, max_num_threads=threads())
        self.connection = self.module.Connection(database, num_threads=threads())

    def load(self, people: Path, friendships: Path) -> None:
        self.open()
        self.connection.execute(
            "CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT32, city STRING, "
            f"email STRING, score DOUBLE, bio STRING, vec FLOAT[{DIMENSION}])"
        )
        self.connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since INT32)")
        self.connection.execute(f"COPY Person FROM '{people}'")
        self.connection.execute(f"COPY Knows FROM '{friendships}'")

    def has(self, question: Question) -> bool:
        return question.cypher is not None

    def ask(self, question: Question, value: Any) -> Rows:
        if question.name not in self.prepared:
            with warnings.catch_warnings(action="ignore"):  # the one call that prepares is old
                self.prepared[question.name] = self.connection.prepare(question.cypher)
        params = {} if value is None else {"x": value}
        found = self.connection.execute(self.prepared[question.name], params)
        return [tuple(row) for row in found.get_all()]


class DuckDb:
    """Tables with an index on the keys and on both ends of the edges; prepared statements."""

    package = "duckdb"

    def __init__(self, folder: Path) -> None:
        self.module = importlib.import_module("duckdb")
        self.path = str(folder / "duck.db")
        self.connection: Any = None
        self.prepared: dict[str, str] = {}

    def open(self) -> None:
        self.connection = self.module.connect(self.path, config={"threads": threads()})

    def load(self, people: Path, friendships: Path) -> None:
        self.open()
        run = self.connection.execute
        vector = f"vec::FLOAT[{DIMENSION}] AS vec"
        run(f"CREATE TABLE person AS SELECT * REPLACE ({vector}) FROM '{people}'")
        run(f"CREATE TABLE knows AS SELECT * FROM '{friendships}'")
        run("CREATE INDEX person_name ON person(name)")
        run("CREATE INDEX knows_a ON knows(a)")
        run("CREATE INDEX knows_b ON knows(b)")

    def has(self, question: Question) -> bool:
        return question.sql is not None

    def ask(self, question: Question, value: Any) -> Rows:
        if question.name not in self.prepared:
            self.prepared[question.name] = f"q{len(self.prepared)}"
            name = self.prepared[question.name]
            self.connection.execute(f"PREPARE {name} AS {question.sql}")
        words = "" if value is None else f"({value!r})"
        called = f"EXECUTE {self.prepared[question.name]}{words}"
        found: Rows = self.connection.execute(called).fetchall()
        return found


class LanceDb:
    """One table, for the searches: exact vectors, and its own full-text index."""

    package = "lancedb"
    QUESTIONS = ("point lookup", "vector top 10, filter", "text top 10")

    def __init__(self, folder: Path) -> None:
        self.module = importlib.import_module("lancedb")
        self.path = str(folder / "lancedb")
        self.table: Any = None

    def open(self) -> None:
        self.table = self.module.connect(self.path).open_table("person")

    def load(self, people: Path, _: Path) -> None:
        import pyarrow.parquet as pq

        table = self.module.connect(self.path).create_table("person", pq.read_table(people))
        table.create_scalar_index("name")
        table.create_fts_index("bio", replace=True)

    def has(self, question: Question) -> bool:
        return question.name in self.QUESTIONS

    def ask(self, question: Question, value: Any) -> Rows:
        if question.name == "point lookup":
            found = self.table.search().where(f"name = '{value}'").select(["name", "age"])
            return [(row["name"], row["age"]) for row in found.to_list()]
        if question.about == "vector":
            asked = self.table.search(value, vector_column_name="vec").distance_type("cosine")
            asked = asked.where("age > 45", prefilter=True)
        else:
            asked = self.table.search(value, query_type="fts")
        return [(row["name"],) for row in asked.select(["name"]).limit(10).to_list()]


def engine_named(name: str, folder: Path) -> Any:
    match name:
        case "omnigraph":
            return Omnigraph(folder)
        case "kuzu":
            return Cypher(folder, "kuzu")
        case "ladybug":
            return Cypher(folder, "real_ladybug")
        case "duckdb":
            return DuckDb(folder)
        case "lancedb":
            return LanceDb(folder)
    raise SystemExit(f"no such engine: {name}")


def threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


# --- measuring ---------------------------------------------------------------------------------


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def since_start_ms() -> int:
    """The age of this process, to ten milliseconds: a first answer pays for imports too."""
    started = int(Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19])
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    return round(seconds * 1000)


def resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


def makes_beside() -> bool:
    """Whether ours is making something for later questions in a thread."""
    return any(thread.name in ("topology", "ids") for thread in threading.enumerate())


def serve(engine: Any, values: dict[str, list[Any]]) -> None:
    """Answer the lines of standard input, `NAME ROUND COUNT`: how long the answers of so many
    rounds took, by the clock and of the processors, and the answer itself if it is that of round 0
    alone."""
    for line in sys.stdin:
        name, number, count = line.strip().rsplit(" ", 2)
        question, rounds = BY_NAME[name], values[BY_NAME[name].about]
        took, worked, found = [], [], []
        for turn in range(int(number), int(number) + int(count)):
            began, before = time.perf_counter(), time.process_time()
            found = engine.ask(question, rounds[turn % len(rounds)])
            worked.append((time.process_time() - before) * 1000)
            took.append((time.perf_counter() - began) * 1000)
        shown = (number, count) == ("0", "1") and not question.rows_only
        rows = found if shown else []
        facts = {"resident_mb": resident_mb(), "making": makes_beside()}
        say({"ms": took, "cpu": worked, "rows": rows, **facts})


def say(body: dict[str, Any]) -> None:
    print(json.dumps(body, default=float), flush=True)  # a Decimal is a number too


def main(engine_name: str, verb: str, folder: Path, rounds: int) -> int:
    try:
        engine = engine_named(engine_name, folder)
    except ImportError:
        return 3
    if verb == "cold":
        engine.open()
        question = BY_NAME["2 hops" if engine_name != "lancedb" else "point lookup"]
        engine.ask(question, "person-000000001")
        say({"ms": since_start_ms()})
        return 0
    # After `cold`: what follows is no engine's cost.
    from importlib.metadata import version

    from read_data import Graph, parameters

    result: dict[str, Any] = {"version": version(engine.package)}

    graph = Graph.of(folder)
    if verb == "load":
        result["seconds"] = milliseconds(lambda: engine.load(graph.people, graph.friendships)) / 1e3
    else:
        engine.open()
        values = parameters(graph, rounds)
        if verb == "serve":
            say(result | {"has": [each.name for each in QUESTIONS if engine.has(each)]})
            serve(engine, values)
            return 0
        ours = importlib.import_module("read_ours")
        result |= ours.VERBS[verb](engine, values)
    say(result)
    return 0


if __name__ == "__main__":
    engine_name, verb, folder, rounds = sys.argv[1:]
    raise SystemExit(main(engine_name, verb, Path(folder), int(rounds)))
