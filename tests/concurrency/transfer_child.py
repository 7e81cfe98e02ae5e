"""Moves money between accounts in transactions for a while: `transfer_child.py URI SEED SECONDS`.

Prints how many transfers it made, and how often it had to try again.
"""

from __future__ import annotations

import json
import random
import sys
import time

from omnigraph import Graph
from omnigraph.errors import ConflictError

SCHEMA = """
node Account { name: String @key  money: I64  moves: I64  @range(money, 0..1000000) }
node Log { what: String }
edge Moved: Account -> Account { amount: I64 }
"""
ACCOUNTS = 6
QUERIES = """
query money($a: String) {
  match { $x: Account { name: $a } }
  return { $x.money as m, $x.moves as n }
}
query put($a: String, $money: I64, $moves: I64) {
  update Account set { money: $money, moves: $moves } where name = $a
}
query add($a: String, $b: String, $by: I64) {
  match { $x: Account { name: $a } }
  update $x set { money: money + $by, moves: moves + 1 }
}
query note($a: String, $b: String, $by: I64) { insert Moved { from: $a, to: $b, amount: $by } }
query open($a: String) { upsert Account { name: $a, money: 0, moves: 0 } }
query close($a: String) { delete Account where name = $a }
"""


def transfer(graph: Graph, chance: random.Random) -> None:
    """Read, compute in Python, write; some of it by a query that computes itself."""
    a, b = (f"a{n}" for n in chance.sample(range(ACCOUNTS), 2))
    by = chance.randint(1, 20)
    with graph.transaction(message="transfer") as tx:
        before = tx.query(QUERIES, "money", params={"a": a}).to_pylist()[0]
        if before["m"] < by:
            return
        params = {"a": a, "money": before["m"] - by, "moves": before["n"] + 1}
        tx.mutate(QUERIES, "put", params=params)
        tx.mutate(QUERIES, "add", params={"a": b, "b": a, "by": by})
        assert tx.query(QUERIES, "money", params={"a": a}).to_pylist()[0]["m"] == before["m"] - by
        if chance.random() < 0.3:  # an account that comes and goes inside
            tx.mutate(QUERIES, "open", params={"a": "short"})
            tx.mutate(QUERIES, "close", params={"a": "short"})
        tx.mutate(QUERIES, "note", params={"a": a, "b": b, "by": by})


def work(uri: str, seed: int, seconds: float) -> dict[str, int]:
    chance, done, again = random.Random(seed), 0, 0
    ends = time.monotonic() + seconds
    with Graph.open(uri, durability="process") as graph:
        while not done or time.monotonic() < ends:  # a busy machine may need more
            try:
                transfer(graph, chance)
                done += 1
            except ConflictError as conflict:
                if not conflict.retryable:
                    raise
                again += 1
    return {"done": done, "again": again}


if __name__ == "__main__":
    print(json.dumps(work(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))  # noqa: T201
