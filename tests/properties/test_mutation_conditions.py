"""The `where` of a mutation picks what a `match` finds: of stored rows, and of rows that the same
mutation has just written."""

from __future__ import annotations

import os
import random

from query_cases import SCHEMA, Cases, lines, records

from omnigraph import Graph
from omnigraph.errors import InputError

CASES = int(os.environ.get("OMNIGRAPH_MUTATION_CASES", "40"))
MARKED = SCHEMA.replace("k: String @key", "k: String @key\n  mark: I32?")


class Wheres(Cases):
    """Conditions of one row."""

    def _leaf(self):
        return self._sum() if self.rng.random() < 0.3 else super()._leaf()

    def where(self):
        self._params = {}
        text = self._condition(2)
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in self._params.items())
        return text, declared, {name: value for name, (_, value) in self._params.items()}


def outcome(ask):
    try:
        return ask()
    except InputError as error:
        return str(error).partition(", in statement")[0]  # which a mutation tells besides


def test_a_mutation_picks_the_rows_that_a_match_finds(tmp_path):
    rng = random.Random(3)
    graph = Graph.init(str(tmp_path / "g.omni"), MARKED, durability="process")
    graph.load(lines(records(rng, 60)), mode="append")
    errors = 0
    for number in range(CASES):
        text, declared, params = Wheres(rng).where()
        read = f"query q({declared}) {{ match {{ $p: P  ({text}) }} return {{ $p.k }} }}"
        bare = text.replace("$p.", "")
        # Every other time the rows are pending: the same mutation has touched them all.
        touch = 'update P set { mark: -1 } where not k = ""' if number % 2 else ""
        update = f"update P set {{ mark: {number} }} where {bare}"
        write = f"query u({declared}) {{ {touch}  {update} }}"
        marked = f"query q() {{ match {{ $p: P  $p.mark = {number} }} return {{ $p.k }} }}"

        def found(query, given=None):
            return graph.query(query, params=given or {}).to_pylist()

        def written(query=write, given=params, after=marked):
            graph.mutate(query, params=given)
            return found(after)

        expected = outcome(lambda read=read, params=params: found(read, params))
        errors += isinstance(expected, str)
        assert outcome(written) == expected, (text, params)
    assert errors < CASES // 2, "most conditions mean something"
