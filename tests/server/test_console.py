"""What the console asks: completions, columns, the schema as values, neighbours, permissions."""

from __future__ import annotations

import json

import pytest
from in_process import Inside, KnownTokens

from omnigraph import Graph
from omnigraph.policy.document import parse_policy
from omnigraph.policy.engine import Policy
from omnigraph.server.access import Access

SCHEMA = """
node Person { name: String @key  age: I32? }
node Town { name: String @key }
node Ticket { number: I64  note: String? }
edge Knows: Person -> Person
edge LivesIn: Person -> Town
"""
DATA = """
{"type":"Person","data":{"name":"ada"}}
{"type":"Person","data":{"name":"bob"}}
{"type":"Person","data":{"name":"delft"}}
{"type":"Town","data":{"name":"delft"}}
{"type":"Ticket","data":{"id":"t1","number":7}}
{"edge":"Knows","from":"ada","to":"bob","data":{}}
{"edge":"Knows","from":"bob","to":"delft","data":{}}
{"edge":"Knows","from":"bob","to":"bob","data":{}}
{"edge":"LivesIn","from":"ada","to":"delft","data":{}}
"""
POLICY = {
    "version": 1,
    "groups": {"team": ["ada"], "guests": ["eve"]},
    "protected_branches": ["main"],
    "rules": [
        {"id": "all-read", "allow": {"actors": {"group": "team"}, "actions": ["read"]}},
        {
            "id": "guests",
            "allow": {"actors": {"group": "guests"}, "actions": ["read"], "branch_scope": "any"},
        },
        {
            "id": "branches",
            "allow": {
                "actors": {"group": "team"},
                "actions": ["change"],
                "branch_scope": "unprotected",
            },
        },
        {
            "id": "merge",
            "allow": {
                "actors": {"group": "team"},
                "actions": ["branch_merge"],
                "target_branch_scope": "unprotected",
            },
        },
    ],
}
G = "/graphs/g"


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    folder = tmp_path_factory.mktemp("console")
    with Graph.init(folder / "g.omni", SCHEMA, durability="process") as graph:
        graph.load(DATA.strip(), mode="append")
        graph.create_tag("v1", message="first")
        graph.create_branch("topic")
        graph.mutate('query q() { delete Town where name = "delft" }', branch="topic")
    return folder / "g.omni"


@pytest.fixture(scope="module")
def console(uri):
    found = Inside(uri, Access())
    yield found
    found.close()


def told(reply, status=200):
    assert reply.status == status, reply
    return json.loads(reply.body)


def around(console, nodes, **more):
    groups = [{"type_name": name, "ids": ids} for name, ids in nodes.items()]
    found = told(console.ask("POST", f"{G}/neighbours", {"nodes": groups, **more}))
    nodes = {f"{one['type_name']}:{one['id']}" for one in found["nodes"]}
    edges = {
        f"{one['from_type']}:{one['from']} {one['type_name']} {one['to_type']}:{one['to']}"
        for one in found["edges"]
    }
    return nodes, edges, found["truncated"]


def test_neighbours_are_told_in_both_directions_and_types_are_never_mixed_up(console):
    nodes, edges, truncated = around(console, {"Person": ["bob", "nobody"], "Gone": ["x"]})
    assert nodes == {"Person:ada", "Person:bob", "Person:delft"}
    assert edges == {
        "Person:ada Knows Person:bob",
        "Person:bob Knows Person:delft",
        "Person:bob Knows Person:bob",
    }
    assert not truncated


def test_among_nodes_only_edges_between_them_are_told(console):
    given = {"Person": ["ada", "delft"], "Town": ["delft"], "Ticket": ["t1"]}
    nodes, edges, _ = around(console, given, among=True)
    assert nodes == {"Person:ada", "Person:delft", "Town:delft", "Ticket:t1"}
    assert edges == {"Person:ada LivesIn Town:delft"}


def test_a_limit_is_told(console):
    _, edges, truncated = around(console, {"Person": ["bob"]}, limit=1)
    assert truncated
    assert len(edges) in (1, 2)  # one of each direction, which may be the same
    told(console.ask("POST", f"{G}/neighbours", {"nodes": [], "limit": 0}), 400)


def test_neighbours_are_those_of_the_state_that_is_asked_for(console):
    given = {"Person": ["ada"]}
    assert "Town:delft" in around(console, given)[0]
    assert "Town:delft" not in around(console, given, branch="topic")[0]
    assert "Town:delft" in around(console, given, snapshot="v1")[0]


def test_the_catalog_says_what_people_know_nodes_by(console):
    found = told(console.ask("GET", f"{G}/catalog"))
    assert {one["name"]: one["label"] for one in found["nodes"]} == {
        "Person": "name",
        "Ticket": "note",
        "Town": "name",
    }
    knows = found["edges"][0]
    assert (knows["name"], knows["from"], knows["to"]) == ("Knows", "Person", "Person")
    assert found["nodes"][0]["properties"][1] == {"name": "age", "type": "I32?"}
    assert found["schema_source"] == SCHEMA


def test_columns_of_bare_variables_say_their_types(console):
    source = "query q() { match { $p: Person  $p any $x } return { $p, $p.name, $x } }"
    found = told(console.ask("POST", f"{G}/describe", {"query": source}))
    assert [one.get("node_types") for one in found["columns"]] == [
        ["Person"],
        None,
        ["Person", "Town"],
    ]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("query q() { match { $p: ", "Person"),
        ("query q() { match { $p: Person  $p.", "age"),
        ("query 🙂() { match { $p: Person  $p.", "age"),
    ],
)
def test_completions_fit_the_place(console, text, label):
    body = {"source": text, "at": len(text)}
    found = told(console.ask("POST", f"{G}/complete", body))
    assert label in [one["label"] for one in found["completions"]]


@pytest.mark.parametrize("at", [-5, 10**6])
def test_a_place_outside_the_text_is_no_failure(console, at):
    told(console.ask("POST", f"{G}/complete", {"source": "query", "at": at}))


def test_tags_are_listed(console):
    found = told(console.ask("GET", f"{G}/tags"))["tags"]
    assert [(one["name"], one["message"]) for one in found] == [("v1", "first")]


def test_where_anybody_may_do_anything_everything_is_allowed(console):
    found = told(console.ask("GET", f"{G}/permissions?branch=main&target=main"))
    assert found["actor_id"] is None
    assert all(one == {"allowed": True} for one in found["actions"].values())


@pytest.mark.parametrize(
    ("actor", "branch", "allowed"),
    [
        ("ada", "main", {"read"}),
        ("ada", "topic", {"read", "change", "branch_merge"}),
        ("eve", "topic", {"read"}),
        ("stranger", "main", set()),
    ],
)
def test_permissions_are_those_that_the_policy_gives(uri, actor, branch, allowed):
    gate = Policy(parse_policy(json.dumps(POLICY), path="p.yaml"), graph_id="g")
    inside = Inside(uri, Access(tokens=KnownTokens(), gates={"g": gate}))
    try:
        path = f"{G}/permissions?branch={branch}&target={branch}"
        found = told(inside.ask("GET", path, token=f"token-{actor}"))
        told(inside.ask("GET", path), 401)
    finally:
        inside.close()
    assert {name for name, one in found["actions"].items() if one["allowed"]} == allowed
    assert all(one["allowed"] or one["reason"] for one in found["actions"].values())
