"""Runs the Cypher texts of docs/reference/coming-from-cypher.md on Kùzu and tells where its column
is wrong. Each text gets a process of its own: some end one.

    python benches/cypher_page.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "coming-from-cypher.md"
SCHEMA = [
    (
        "CREATE NODE TABLE Person(name STRING PRIMARY KEY, age INT64, born DATE, seen TIMESTAMP, "
        "tags STRING[])"
    ),
    "CREATE NODE TABLE Event(id INT64 PRIMARY KEY, kind STRING)",
    "CREATE NODE TABLE Company(name STRING PRIMARY KEY, city STRING)",
    "CREATE REL TABLE Knows(FROM Person TO Person, since DATE, weight DOUBLE)",
    "CREATE REL TABLE WorksAt(FROM Person TO Company)",
    'CREATE (:Person {name: "Ann", age: 3, born: date("1990-01-01"), tags: ["a"]})',
    'CREATE (:Person {name: "Bob", age: 40})',
    "MATCH (a:Person), (b:Person) WHERE a.name < b.name CREATE (a)-[:Knows {weight: 1.0}]->(b)",
]
PARAMS = {"name": "Ann", "other": "Bob", "list": ["Ann"], "rows": [{"name": "Zed"}]}


def run(text: str) -> None:
    """Run one text on a small graph in memory."""
    import kuzu

    connection = kuzu.Connection(kuzu.Database(""))
    for statement in SCHEMA:
        connection.execute(statement)
    used = {name: value for name, value in PARAMS.items() if f"${name}" in text}
    connection.execute(text, used)


def main() -> int:
    wrong = 0
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) != 6 or cells[0] in {"feature", "---"} or not cells[1].startswith("`"):
            continue
        made = subprocess.run(
            [sys.executable, __file__, cells[1].strip("`")], capture_output=True, check=False
        )
        found = "yes" if made.returncode == 0 else "no" if made.returncode > 0 else "crashed"
        if found != cells[4]:
            wrong += 1
            print(f"{cells[0]}: the page says {cells[4]}, Kùzu {found}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        sys.exit(main())
