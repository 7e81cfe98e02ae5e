"""Where a query is answered follows from what it looks at."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.engine import choosing
from omnigraph.errors import InputError

SCHEMA = """
node Person { name: String @key  bio: String?  vec: Vector(64)? }
node Town { name: String @key }
edge Knows: Person -> Person
"""


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("chosen") / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        people = [{"type": "Person", "data": {"name": f"p{n}"}} for n in range(100)]
        edges = [{"edge": "Knows", "from": f"p{n}", "to": "p0"} for n in range(50)]
        graph.load([*people, *edges, {"type": "Town", "data": {"name": "Bern"}}], mode="append")
    return uri


def held(uri, body):
    return choosing.choose_engine(uri, f"query q() {{ {body} }}").held_bytes


def test_every_column_and_every_edge_weighs(uri):
    plain = held(uri, "match { $p: Person } return { count(*) as n }")
    assert held(uri, "match { $t: Town } return { count(*) as n }") * 100 == plain
    assert held(uri, "match { $p: Person } return { $p.bio }") > plain
    assert held(uri, "match { $p: Person } return { $p.vec }") == plain + 100 * 64 * 4
    walked = held(uri, "match { $p: Person  $p knows $q } return { count(*) as n }")
    assert walked > 2 * plain
    counted = held(uri, "match { $p: Person } return { degree($p, knows) as d }")
    assert plain < counted < walked


def test_what_does_not_fit_goes_to_spark(uri, monkeypatch):
    source = "query q() { match { $p: Person } return { $p.name } }"
    assert choosing.choose_engine(uri, source).engine == "local"
    monkeypatch.setattr(choosing, "usual_budget", lambda: 1000)
    assert choosing.choose_engine(uri, source).engine == "spark"


def test_a_mutation_is_no_question(uri):
    with pytest.raises(InputError, match="is a mutation"):
        choosing.choose_engine(uri, 'query m() { delete Person where name = "p1" }')
