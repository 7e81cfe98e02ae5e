"""How long compiling takes: a 30-line query against a 60-type schema, and the schema itself.

Run `python benches/compile.py`; prints JSON. `run()` gives the same as a value.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from omnigraph.compiler.query import compile as compiler
from omnigraph.compiler.query import lint_source
from omnigraph.compiler.query.parse import parse_file
from omnigraph.compiler.schema import compile_schema

NODES, EDGES, ROUNDS = 40, 20, 300

SCHEMA = "".join(
    f"""node T{i} {{
    name: String @key
    age: I32?
    title: String?
    born: Date?
    tags: [String]?
    score: F64?
}}
"""
    for i in range(NODES)
) + "".join(f"edge E{i}: T{i} -> T{i + 1} {{ since: Date? }}\n" for i in range(EDGES))

QUERY = """
query big($name: String, $age: I32, $tags: [String], $n: I64) {
    match {
        $a: T0 { name: $name }
        $a e0 $b
        $b $w:e1 $c
        $w.since >= date("2020-01-01")
        $c e2 $d
        $d: T3 { title: "x" }
        $a.age > $age
        $b.age + 1 < $c.age * 2
        $c.name in $tags or $c.title is null
        not {
            $d e3 $e
            $e.name starts_with "A"
            not { $e.age > 30 }
        }
        optional {
            $d e3 $f
            $f.age >= 18 and $f.title != "boss"
        }
        $a.tags contains "x"
    }
    return {
        $a.name, $b.name as bname
        $c.age, $w.since, count($f) as n, sum($f.age) as total
        avg($d.score) as mean
    }
    order { n desc, bname, total desc }
    limit $n offset 10
}
"""


def run() -> dict[str, Any]:
    """Median milliseconds of each step, caches emptied before every round."""
    catalog = compile_schema(SCHEMA)
    texts = iter(range(10**9))

    def compiled() -> None:
        # A comment makes each text new to the caches and costs the tokenizer next to nothing.
        compiler.compile_query(f"{QUERY}//{next(texts)}", catalog)

    def parsed() -> None:
        parse_file(f"{QUERY}//{next(texts)}")

    compiler.compile_query(QUERY, catalog)
    return {
        "schema_types": NODES + EDGES,
        "query_lines": QUERY.strip().count("\n") + 1,
        "compile_query_ms": _median_ms(compiled),
        "parse_query_ms": _median_ms(parsed),
        "compile_query_cached_ms": _median_ms(lambda: compiler.compile_query(QUERY, catalog)),
        "lint_query_ms": _median_ms(lambda: lint_source(QUERY, catalog)),
        "compile_schema_ms": _median_ms(
            lambda: compile_schema(f"{SCHEMA}//{next(texts)}"), rounds=ROUNDS // 10
        ),
    }


def _median_ms(step: Callable[[], object], rounds: int = ROUNDS) -> float:
    taken: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        step()
        taken.append(time.perf_counter() - started)
    return round(statistics.median(taken) * 1000, 4)


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
