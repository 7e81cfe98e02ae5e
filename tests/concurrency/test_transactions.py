"""Four processes that move money in transactions: none is lost, and none is made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transfer_child import ACCOUNTS, SCHEMA

from omnigraph import Graph

MONEY = 100
FACTS = """
query accounts() { match { $a: Account } return { $a.name, $a.money, $a.moves } }
query moved() {
  match { $a: Account  $a $w:moved $b }
  return { $a.name as a, $b.name as b, $w.amount as by }
}
"""


@pytest.mark.parametrize("seconds", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_transfers_of_four_processes_are_as_if_one_after_the_other(tmp_path, seconds):
    uri = str(tmp_path / "bank.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        lines = [
            json.dumps({"type": "Account", "data": {"name": f"a{n}", "money": MONEY, "moves": 0}})
            for n in range(ACCOUNTS)
        ]
        graph.load("\n".join(lines), mode="append")
        before = len(graph.commits())
    child = Path(__file__).with_name("transfer_child.py")
    running = [
        subprocess.Popen(
            [sys.executable, str(child), uri, str(seed), str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for seed in range(4)
    ]
    told = []
    for process in running:
        out, err = process.communicate(timeout=seconds + 120)
        assert process.returncode == 0, err.decode()
        told.append(json.loads(out))
    with Graph.open(uri, durability="process") as graph:
        accounts = graph.query(FACTS, "accounts").to_pylist()
        moves = graph.query(FACTS, "moved").to_pylist()
        commits = [one for one in graph.commits() if one.message == "transfer"]
        assert graph.verify(deep=True).ok
    assert len(commits) == len(moves), "every transfer is one commit"
    assert len(commits) <= sum(one["done"] for one in told)
    assert min(one["done"] for one in told) > 0, told
    # The log says what every account must hold, in whatever order the transfers came.
    model = {f"a{n}": [MONEY, 0] for n in range(ACCOUNTS)}
    for move in moves:
        for name, by in ((move["a"], -move["by"]), (move["b"], move["by"])):
            model[name][0] += by
            model[name][1] += 1
    found = {row["a.name"]: [row["a.money"], row["a.moves"]] for row in accounts}
    assert found == model
    assert sum(money for money, _ in found.values()) == MONEY * ACCOUNTS
    assert before == 2
