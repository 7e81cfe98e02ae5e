"""The commits of `aging.py` on one bare lancedb table; run by the interpreter that has lancedb.

    python benches/aging_lancedb.py FOLDER COMMITS

Prints JSON. Needs nothing of this repository but `measure.py`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from datetime import timedelta
from typing import Any

import lancedb

from measure import milliseconds

EVERY_UPDATE, LOOKUPS = 5, 40


def size(folder: str) -> int:
    """Bytes of all files below."""
    return sum(
        os.path.getsize(os.path.join(parent, name))
        for parent, _, names in os.walk(folder)
        for name in names
    )


def name_of(number: int) -> str:
    """The row that a commit writes: a new one, or every fifth time one that is there."""
    if number % EVERY_UPDATE == EVERY_UPDATE - 1:
        number = number // 2 // EVERY_UPDATE * EVERY_UPDATE
    return f"p{number:06}"


def median(took: list[float]) -> float:
    return round(statistics.median(took), 2)


def asked(table: Any) -> dict[str, float]:
    """Lookups and upserts of rows that are there."""

    def upsert(age: int) -> None:
        put(table, "p000000", age)

    def lookup(number: int) -> None:
        table.search().where(f"id = 'p{number * EVERY_UPDATE:06}'").limit(1).to_list()

    lookup(0), upsert(0)
    return {
        "point lookup ms": median([milliseconds(lambda n=n: lookup(n)) for n in range(LOOKUPS)]),
        "keyed upsert ms": median([milliseconds(lambda n=n: upsert(n)) for n in range(LOOKUPS)]),
    }


def put(table: Any, name: str, age: int) -> None:
    """One row by its id."""
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute([{"id": name, "age": age}])


def run(folder: str, commits: int) -> dict[str, Any]:
    """The whole story as one value."""
    table = lancedb.connect(folder).create_table("p", [{"id": "p", "age": 5}])
    table.create_scalar_index("id")
    took = [milliseconds(lambda n=n: put(table, name_of(n), 5)) for n in range(commits)]
    tenth = max(1, commits // 10)
    result = {
        "version": lancedb.__version__,
        "first_tenth_ms": median(took[:tenth]),
        "last_tenth_ms": median(took[-tenth:]),
        "aged": {"bytes": size(folder), **asked(table)},
    }
    table.optimize(cleanup_older_than=timedelta(0))
    result["after optimize and cleanup"] = {"bytes": size(folder), **asked(table)}
    return result


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2])), indent=2))
