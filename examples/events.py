"""An event stream: one side writes events, the other follows them and keeps a sum up to date.

python examples/events.py
"""

import datetime as dt
import json
import tempfile
from pathlib import Path

from omnigraph import Graph

SCHEMA = """
node Sensor { name: String @key }
node Reading { at: DateTime  value: F64 }
edge From: Reading -> Sensor
"""
WRITE = """
query write($sensor: String, $at: DateTime, $value: F64) {
    insert Reading { at: $at, value: $value } as $r
    insert From { from: $r, to: $sensor }
}
"""


def produce(graph: Graph, minute: int) -> None:
    """Each reading is one commit; one that is sent again is not written again."""
    at = dt.datetime(2026, 1, 1, 0, minute, tzinfo=dt.UTC)
    for sensor in ("door", "roof"):
        params = {"sensor": sensor, "at": at, "value": minute + 0.5}
        graph.mutate(WRITE, params=params, idempotency_key=f"{sensor}-{minute}")


def consume(graph: Graph, state: Path) -> tuple[int, float]:
    """Follow the feed from where the last call ended; the cursor is kept with the result."""
    cursor, count, total = json.loads(state.read_text()) if state.exists() else (None, 0, 0.0)
    while True:
        where = {"cursor": cursor} if cursor else {"start": "beginning"}
        page = graph.changes(**where, types=["Reading"])
        changes = [change for block in page.blocks for change in block.changes]
        total += sum(change.after.properties["value"] for change in changes)
        count, cursor = count + len(changes), page.cursor
        state.write_text(json.dumps((cursor, count, total)))
        if page.caught_up:
            return count, total


def main(folder: Path) -> None:
    with Graph.init(folder / "events.omni", SCHEMA) as graph:
        graph.load({"Sensor": [{"name": "door"}, {"name": "roof"}]}, mode="append")
        for minute in range(3):
            produce(graph, minute)
            produce(graph, minute)  # the network hiccuped
            count, total = consume(graph, folder / "consumer.state")
            print(f"{count} readings, sum {total:.1f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
