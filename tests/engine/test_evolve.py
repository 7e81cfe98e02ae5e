"""Applying schemas: what becomes of the tables, the rows and the past."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from omnigraph import Graph
from omnigraph.errors import ConstraintViolationError, NotFoundError, OmnigraphError

OLD = """
node Person {
  name: String @key
  age: I32?
  score: F32?
  city: String?
}
node Pet { name: String @key }
edge Owns: Person -> Pet { since: I32? }
"""
DATA = [
    {"type": "Person", "data": {"name": "ada", "age": 36, "score": 0.1, "city": "Ulm"}},
    {"type": "Person", "data": {"name": "bob", "age": -7}},
    {"type": "Pet", "data": {"name": "rex"}},
    {"edge": "Owns", "from": "ada", "to": "rex", "data": {"id": "o1", "since": 3}},
]
ALL = "query q() { match { $p: Person } return { $p.name, $p.age, $p.city } order { $p.name } }"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", OLD, durability="process") as graph:
        graph.load("\n".join(map(json.dumps, DATA)), mode="append")
        yield graph


def nodes(graph, type_name, **target):
    lines = map(json.loads, graph.export(types=[type_name], **target))
    return {line["data"]["id"]: line["data"] for line in lines}


def replaced(old, new):
    assert old in OLD
    return OLD.replace(old, new)


def test_a_renamed_type_keeps_its_table_and_its_edges(graph):
    before = graph.snapshot()
    text = OLD.replace("node Person {", 'node Human @rename_from("Person") {')
    text = text.replace("Person ->", "Human ->")
    result = graph.apply_schema(text, actor="act-x")
    after = graph.snapshot()
    assert result.commit.actor_id == "act-x"
    assert [step.kind for step in result.steps] == ["rename_type"]
    assert "node:Person" not in after.entries
    old, new = before.entries["node:Person"], after.entries["node:Human"]
    assert (old.location, old.version, old.row_count) == (new.location, new.version, new.row_count)
    found = graph.query("query q() { match { $h: Human $h owns $p } return { $h.name, $p.name } }")
    assert found.to_pylist() == [{"h.name": "ada", "p.name": "rex"}]
    assert graph.query(ALL, snapshot=before.graph_commit_id).row_count == 2
    graph.mutate('query q() { insert Human { name: "eve" } }')
    assert set(nodes(graph, "Human")) == {"ada", "bob", "eve"}


def test_properties_are_renamed_dropped_added_widened_and_relaxed_in_one_commit(graph):
    before = graph.snapshot()
    text = """
node Being @rename_from("Person") {
  name: String @key
  years: I64? @rename_from("age")
  score: F64?
  rank: I32 @default(7)
  day: Date @default("2024-02-29")
  seen: DateTime? @default("2024-02-29T12:00:00Z")
  word: enum(low, high) @default(low)
  big: U64 @default(18446744073709551615)
  on: Bool @default(true)
  half: F32 @default(0.5)
  note: String?
  tags: [String]?
  vec: Vector(2)?
  blob: Blob?
}
node Pet { name: String @key }
edge Owns: Being -> Pet { since: I64? }
"""
    result = graph.apply_schema(text)
    assert result.applied
    assert graph.plan_schema(text).steps == ()
    assert graph.commits(limit=1)[0].parent_commit_id == before.graph_commit_id
    rows = nodes(graph, "Being")
    assert rows["ada"]["years"] == 36
    assert rows["bob"]["years"] == -7
    assert rows["ada"]["score"] == pytest.approx(0.1)
    found = graph.query(
        'query q() { match { $b: Being { name: "bob" } } '
        "return { $b.rank, $b.word, $b.big, $b.on, $b.half, $b.day } }"
    )
    assert list(found.to_pylist()[0].values()) == [
        7, "low", 2**64 - 1, True, 0.5, dt.date(2024, 2, 29),
    ]  # fmt: skip
    noon = 'match { $b: Being { seen: datetime("2024-02-29T12:00:00Z") } }'
    assert graph.query(f"query q() {{ {noon} return {{ $b.id }} }}").row_count == 2
    assert all(rows["ada"].get(name) is None for name in ("note", "tags", "vec", "blob"))
    assert "city" not in rows["ada"]
    graph.mutate(
        'query q() { insert Being { name: "eve", years: 5000000000, note: "n", tags: ["t"], '
        "vec: [1.0, 2.0] } }"
    )
    assert nodes(graph, "Being")["eve"]["years"] == 5_000_000_000
    # The past is read as it was.
    old = graph.query(ALL, snapshot=before.graph_commit_id).to_pylist()
    assert [row["p.city"] for row in old] == ["Ulm", None]
    assert nodes(graph, "Person", snapshot=before.graph_commit_id)["ada"]["age"] == 36


def test_a_nullable_property_with_a_default_can_be_null_afterwards(graph):
    graph.apply_schema(replaced("city: String?", 'city: String?\n  kind: String? @default("x")'))
    assert nodes(graph, "Person")["ada"]["kind"] == "x"
    graph.mutate('query q() { update Person set { kind: null } where name = "ada" }')
    assert nodes(graph, "Person")["ada"].get("kind") is None


def test_a_property_that_may_be_null_now_takes_null(tmp_path):
    schema = "node T { k: String @key  v: I32 }"
    with Graph.init(tmp_path / "g.omni", schema, durability="process") as graph:
        graph.load('{"type":"T","data":{"k":"a","v":1}}', mode="append")
        text = 'node T { k: String @key  w: I32? @rename_from("v") }'
        graph.apply_schema(text)
        graph.load('{"type":"T","data":{"k":"b"}}', mode="append")
        rows = nodes(graph, "T")
        assert (rows["a"]["w"], rows["b"].get("w")) == (1, None)


def test_properties_are_relaxed_beside_new_ones_with_values(tmp_path):
    schema = "node T { k: String @key  v: I32  l: [String]  e: Vector(2)  b: Blob }"
    row = {"k": "a", "v": 1, "l": ["x", "y"], "e": [1.0, 2.0], "b": "base64:aGk="}
    with Graph.init(tmp_path / "g.omni", schema, durability="process") as graph:
        graph.load(json.dumps({"type": "T", "data": row}), mode="append")
        relaxed = "node T { k: String @key  v: I32?  l: [String]?  e: Vector(2)?  b: Blob"
        graph.apply_schema(f"{relaxed} n: I32 @default(4) }}")
        graph.apply_schema(f"{relaxed}? n: I32 @default(4) }}")
        graph.load('{"type":"T","data":{"k":"b"}}', mode="append")
        rows = nodes(graph, "T")
        assert (rows["a"]["v"], rows["a"]["l"], rows["a"]["e"]) == (1, ["x", "y"], [1.0, 2.0])
        assert [row["n"] for row in rows.values()] == [4, 4]
        assert graph.read_blob("node", "T", "a", "b").read_range(0, 2) == b"hi"
        assert rows["b"].get("e") is None


def test_widening_keeps_every_value_under_deletions(graph):
    graph.mutate('query q() { delete Person where name = "ada" }')
    graph.apply_schema(replaced("age: I32?", "age: I64?"))
    assert nodes(graph, "Person")["bob"]["age"] == -7
    found = graph.query("query q() { match { $p: Person { age: -7 } } return { $p.name } }")
    assert found.to_pylist() == [{"p.name": "bob"}]


def test_a_soft_drop_leaves_the_past_and_a_name_may_live_again(graph):
    before = graph.snapshot()
    gone = "node Person { name: String @key age: I32? score: F32? city: String? }"
    assert graph.apply_schema(gone).applied
    with pytest.raises(OmnigraphError):
        graph.query("query q() { match { $p: Pet } return { $p.name } }")
    assert graph.apply_schema(OLD).applied
    after = graph.snapshot()
    assert after.entries["node:Pet"].location == before.entries["node:Pet"].location + "-2"
    assert nodes(graph, "Pet") == {}
    assert set(nodes(graph, "Pet", snapshot=before.graph_commit_id)) == {"rex"}


def test_a_hard_drop_takes_the_past_of_the_type_alone(graph):
    before = graph.snapshot()
    gone = "node Person { name: String @key age: I32? score: F32? city: String? }"
    assert graph.apply_schema(gone, allow_data_loss=True).applied
    with pytest.raises(NotFoundError):
        nodes(graph, "Pet", snapshot=before.graph_commit_id)
    assert set(nodes(graph, "Person", snapshot=before.graph_commit_id)) == {"ada", "bob"}
    # A later type of that name is never taken for the old one.
    graph.apply_schema(OLD)
    assert graph.snapshot().entries["node:Pet"].location.endswith("-2")
    with pytest.raises(NotFoundError):
        nodes(graph, "Pet", snapshot=before.graph_commit_id)


def test_a_hard_drop_of_a_property_takes_older_versions_of_its_table(graph):
    before = graph.snapshot()
    graph.apply_schema(replaced("  city: String?\n", ""), allow_data_loss=True)
    assert nodes(graph, "Person")["ada"] == {
        "id": "ada", "name": "ada", "age": 36, "score": pytest.approx(0.1),
    }  # fmt: skip
    with pytest.raises(NotFoundError):
        nodes(graph, "Person", snapshot=before.graph_commit_id)
    assert set(nodes(graph, "Pet", snapshot=before.graph_commit_id)) == {"rex"}
    graph.mutate('query q() { update Person set { age: 1 } where name = "bob" }')


def test_new_types_can_be_written_at_once(graph):
    graph.apply_schema(OLD + "node Toy { name: String @key }\nedge Likes: Pet -> Toy")
    graph.mutate(
        'query q() { insert Toy { name: "ball" } insert Likes { from: "rex", to: "ball" } }'
    )
    found = graph.query("query q() { match { $p: Pet $p likes $t } return { $t.name } }")
    assert found.to_pylist() == [{"t.name": "ball"}]


def test_interfaces_and_descriptions_touch_no_table(graph):
    before = graph.snapshot()
    text = "interface Named { name: String }\n" + replaced(
        "node Pet {", 'node Pet @description("an animal") {'
    )
    assert graph.apply_schema(text).applied
    assert graph.snapshot().entries == before.entries
    assert graph.schema_source() == text


def test_data_written_since_an_evolution_survives_the_next_one(graph):
    for n in range(4):
        text = replaced("city: String?", f"city: String?\n  extra{n}: I32? @default({n})")
        graph.apply_schema(text)
        graph.mutate(f'query q() {{ insert Person {{ name: "p{n}" }} }}')
        rows = nodes(graph, "Person")
        assert rows["ada"][f"extra{n}"] == n
        assert rows[f"p{n}"][f"extra{n}"] == n
        assert f"extra{n - 1}" not in rows["ada"]
    assert len(nodes(graph, "Person")) == 6


def test_an_old_query_text_fails_cleanly_and_runs_on_the_past(graph):
    before = graph.snapshot().graph_commit_id
    graph.apply_schema(replaced("age: I32?", 'years: I32? @rename_from("age")'))
    with pytest.raises(OmnigraphError):
        graph.query(ALL)
    assert [row["p.age"] for row in graph.query(ALL, snapshot=before).to_pylist()] == [36, -7]


AGES = "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
OLDER = "query q() { match { $p: Person $p.age > 100 } return { $p.name } }"


def ages(graph):
    return [row["p.age"] for row in graph.query(AGES).to_pylist()]


def test_what_was_read_before_is_not_shown_for_a_property_made_again(graph):
    assert ages(graph) == [36, -7]
    graph.apply_schema(replaced("  age: I32?\n", ""))
    graph.apply_schema(replaced("age: I32?", "age: I32? @default(5)"))
    assert ages(graph) == [5, 5]
    graph.mutate('query q() { insert Person { name: "eve", age: 200 } }')
    assert ages(graph) == [5, 5, 200]


@pytest.mark.parametrize(("default", "value"), [("", None), (' @default("X")', "X")])
def test_a_property_made_again_in_the_same_place_is_another_one(graph, default, value):
    cities = "query q() { match { $p: Person } return { $p.city } order { $p.name } }"
    for _ in range(5):  # often enough for the column to be kept
        assert [row["p.city"] for row in graph.query(cities).to_pylist()] == ["Ulm", None]
    graph.apply_schema(replaced("  city: String?\n", ""))
    graph.apply_schema(replaced("city: String?", f"city: String?{default}"))
    assert [row["p.city"] for row in graph.query(cities).to_pylist()] == [value, value]


def test_what_was_read_before_is_not_shown_under_a_name_that_moved(graph):
    graph.mutate('query q() { update Person set { city: "Rom" } where name = "bob" }')
    cities = "query q() { match { $p: Person } return { $p.city } order { $p.name } }"
    assert [row["p.city"] for row in graph.query(cities).to_pylist()] == ["Ulm", "Rom"]
    graph.apply_schema(replaced("city: String?", 'town: String? @rename_from("city")'))
    graph.apply_schema(replaced("city: String?", "town: String?\n  city: String?"))
    assert [row["p.city"] for row in graph.query(cities).to_pylist()] == [None, None]


def test_what_was_read_before_widening_is_wide_afterwards(graph):
    assert ages(graph) == [36, -7]
    assert graph.query(OLDER).row_count == 0
    graph.apply_schema(replaced("age: I32?", "age: I64?"))
    graph.mutate('query q() { update Person set { age: 5000000000 } where name = "bob" }')
    assert ages(graph) == [36, 5_000_000_000]
    assert graph.query(OLDER).row_count == 1


def test_a_type_made_again_shows_nothing_of_what_was_read_before(graph):
    owners = "query q() { match { $p: Person $p owns $x } return { $x.name } }"
    assert graph.query(owners).row_count == 1
    graph.apply_schema("node Person { name: String @key age: I32? score: F32? city: String? }")
    graph.apply_schema(OLD)
    assert graph.query(owners).row_count == 0
    graph.mutate('query q() { insert Pet { name: "kit" } insert Owns { from: "bob", to: "kit" } }')
    assert graph.query(owners).to_pylist() == [{"x.name": "kit"}]


def test_rows_are_found_by_a_name_that_passed_from_one_property_to_another(tmp_path):
    schema = "node T { k: String @key  a: String? @unique  b: String? }"
    with Graph.init(tmp_path / "g.omni", schema, durability="process") as graph:
        for n in range(12):  # enough small commits for lookups to leave fragments out
            graph.load(f'{{"type":"T","data":{{"k":"k{n}","a":"a{n}","b":"b{n}"}}}}', mode="append")
        graph.apply_schema("node T { k: String @key  b: String? }")
        graph.apply_schema('node T { k: String @key  a: String? @rename_from("b") @unique }')
        with pytest.raises(ConstraintViolationError, match="b7"):
            graph.mutate('query q() { insert T { k: "new", a: "b7" } }')
        graph.mutate('query q() { insert T { k: "new", a: "a7" } }')


def test_schemas_move_on_an_object_store_too(s3_root):
    with Graph.init(s3_root.uri, OLD) as graph:
        graph.load("\n".join(map(json.dumps, DATA)), mode="append")
        before = graph.snapshot()
        gone = (
            'node Human @rename_from("Person") { name: String @key  age: I64?  n: I32 @default(2) }'
        )
        graph.apply_schema(gone, allow_data_loss=True)
        rows = nodes(graph, "Human")
        assert (rows["ada"]["age"], rows["bob"]["n"]) == (36, 2)
        graph.apply_schema(f"{gone} node Pet {{ name: String @key }}")
        assert graph.snapshot().entries["node:Pet"].location.endswith("-2")
        with pytest.raises(NotFoundError):
            nodes(graph, "Pet", snapshot=before.graph_commit_id)
        graph.mutate('query q() { insert Pet { name: "kit" } }')
        assert set(nodes(graph, "Pet")) == {"kit"}
