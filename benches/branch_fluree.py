"""What `branch.py` measures of branches, on fluree (PyPI), for figures side by side.

    /opt/peers/bin/python benches/branch_fluree.py [rows of main]       default: 100000

It runs in an environment of its own that has `fluree` and nothing of ours. The ledger lies on
disk, as our graph does, and is indexed before it is measured. The strategy is "abort", which looks
for conflicts as ours does. Prints JSON with milliseconds, medians over fresh branches.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import fluree

VOCAB = "http://example.org/"
ROUNDS = {1: 9, 1_000: 5, 100_000: 2}


def rows(numbers: Any, age: int) -> list[dict[str, Any]]:
    return [{"id": f"p{n}", "age": age, "city": "Ulm"} for n in numbers]


def put(ledger: Any, numbers: Any, *, age: int) -> None:
    ledger.upsert_rows(rows(numbers, age), id=VOCAB + "{id}", type="Person", vocab=VOCAB)


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began) / 1e6


def measured(main: Any, size: int) -> Iterator[tuple[str, float]]:
    """Branch create, preview and merge of 1, 1,000 and 100,000 changed entities."""
    number = 0
    for count, rounds in ROUNDS.items():
        took: dict[str, list[float]] = {}
        for _ in range(rounds if count <= size else 0):
            number += 1
            name = f"b{number}"
            took.setdefault("create", []).append(milliseconds(lambda n=name: main.branch(n)))
            branch = main.branch(f"w{number}")
            put(branch, range(0, size, size // count)[:count], age=100 + number)
            main.insert_rows([{"id": f"m{number}", "age": 1}], id=VOCAB + "{id}", vocab=VOCAB)
            for word, deed in (
                ("preview", lambda b=branch: main.merge_preview(b, strategy="abort")),
                ("merge", lambda b=branch: main.merge(b, strategy="abort")),
            ):
                took.setdefault(f"{word} {count}", []).append(milliseconds(deed))
        for word, values in took.items():
            yield word, round(statistics.median(values), 1)


def main(size: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fluree-") as folder, fluree.connect(folder) as db:
        ledger = db.create("people")
        for start in range(0, size, 50_000):
            put(ledger, range(start, min(start + 50_000, size)), age=0)
        ledger.index()
        found = dict(measured(ledger, size))
    print(json.dumps({"fluree": fluree.__version__, f"{size} rows": found}, indent=2))


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 100_000)
