"""Mutations: statements become one commit with everything in it, or nothing at all."""

import pytest
from write_world import WriteWorld, company, edge, person

from omnigraph.errors import ConstraintViolationError, InputError, MixedMutationError


@pytest.fixture
def world(tmp_path):
    world = WriteWorld(tmp_path / "g")
    world.load(
        person("a", age=5, email="a@x", tags=["t"], vec=[1, 2], born="2020-01-01"),
        person("b", age=40),
        person("c"),
        company("Acme"),
        company("Beta"),
        edge("Knows", "a", "b", since="2020-05-05"),
        edge("Knows", "b", "c"),
        edge("Knows", "c", "c"),
        edge("WorksAt", "a", "Acme"),
    )
    return world


def test_a_keyed_insert_replaces_the_whole_row(world):
    result = world.mutate('insert Person { name: "a", age: 6 }')
    assert (result.affected_nodes, result.affected_edges) == (1, 0)
    row = world.nodes("Person")["a"]
    assert row["age"] == 6
    assert row.get("email") is None
    assert row.get("tags") is None


def test_inserting_one_key_twice_leaves_the_second(world):
    world.mutate('insert Person { name: "z", age: 1 }', 'insert Person { name: "z", age: 2 }')
    assert world.nodes("Person")["z"]["age"] == 2
    assert len(world.nodes("Person")) == 4


def test_a_keyless_insert_makes_a_new_id_each_time(world):
    world.mutate('insert Note { text: "x" }', 'insert Note { text: "x" }')
    assert [note["text"] for note in world.nodes("Note").values()] == ["x", "x"]


def test_edges_may_point_to_nodes_of_the_same_query(world):
    world.mutate('insert Person { name: "new" }', 'insert Knows { from: "a", to: "new" }')
    assert ("a", "new") in world.edges("Knows")


def test_an_update_sees_what_earlier_statements_did(world):
    result = world.mutate(
        'insert Person { name: "n", age: 10 }',
        "update Person set { age: 50 } where age = 10",
        'update Person set { role: "admin" } where age > 45',
    )
    assert result.affected_nodes == 3
    people = world.nodes("Person")
    assert people["n"]["age"] == 50
    assert [name for name, row in people.items() if row.get("role") == "admin"] == ["n"]


def test_a_pending_row_shadows_its_stored_version(world):
    result = world.mutate(
        'update Person set { age: 41 } where name = "b"',
        "update Person set { age: 1 } where age = 40",
    )
    assert result.affected_nodes == 1
    assert world.nodes("Person")["b"]["age"] == 41


def test_an_update_keeps_what_it_does_not_set(world):
    world.mutate('update Person set { age: 7 } where name = "a"')
    row = world.nodes("Person")["a"]
    assert (row["age"], row["email"], row["tags"], row["vec"]) == (7, "a@x", ["t"], [1.0, 2.0])


def test_edges_can_be_updated_by_their_ends(world):
    result = world.mutate('update Knows set { since: date("2021-01-01") } where from = "a"')
    assert (result.affected_nodes, result.affected_edges) == (0, 1)


WHERES = [
    ('name = "a"', {"a"}),
    ('name != "a"', {"b", "c"}),
    ("age < 40", {"a"}),
    ("age <= 40", {"a", "b"}),
    ("age > 4.5", {"a", "b"}),
    ("age = 5.0", {"a"}),
    ("age > 3000000000", set()),
    ("age < 3000000000", {"a", "b"}),
    ("age is null", {"c"}),
    ("not (age > 10)", {"a"}),
    ('age > 10 or name = "c"', {"b", "c"}),
    ("age > 10 and age < 50", {"b"}),
    ('name in ["a", "c", "zz"]', {"a", "c"}),
    ('born = date("2020-01-01")', {"a"}),
    ('born < date("2020-01-01")', set()),
    ("seen < now()", set()),
    ('id = "b"', {"b"}),
]


@pytest.mark.parametrize(("where", "matched"), WHERES)
def test_a_condition_selects_stored_and_pending_rows_alike(world, where, matched):
    stored = world.mutate(f'update Person set {{ role: "user" }} where {where}')
    assert stored.affected_nodes == len(matched)
    hit = {name for name, row in world.nodes("Person").items() if row.get("role") == "user"}
    assert hit == matched
    # Touching every row first makes all of them pending.
    pending = world.mutate(
        'update Person set { role: "admin" } where name != ""',
        f'update Person set {{ role: "user" }} where {where}',
    )
    assert pending.affected_nodes == 3 + len(matched)


def test_deleting_nodes_takes_their_edges_along_and_counts_each_once(world):
    result = world.mutate('delete Person where name = "c"')
    assert (result.affected_nodes, result.affected_edges) == (1, 2)
    assert world.edges("Knows") == [("a", "b")]


def test_overlapping_deletes_count_every_row_once(world):
    result = world.mutate(
        'delete Person where name = "b"',
        "delete Person where age > 1",
        'delete Knows where from = "a"',
    )
    assert (result.affected_nodes, result.affected_edges) == (2, 3)
    assert world.edges("Knows") == [("c", "c")]


def test_a_delete_leaves_tables_without_matches_alone(world):
    before = world.version("edge:Knows")
    world.mutate('insert Person { name: "lonely" }')
    world.mutate('delete Person where name = "lonely"')
    assert world.version("edge:Knows") == before


@pytest.mark.parametrize(
    "statement",
    [
        'update Person set { age: 1 } where name = "nobody"',
        'delete Person where name = "nobody"',
        'delete Knows where since > date("2999-01-01")',
    ],
)
def test_nothing_to_change_makes_no_commit(world, statement):
    before = world.head()
    result = world.mutate(statement)
    assert (result.affected_nodes, result.affected_edges, result.commit) == (0, 0, None)
    assert world.head() == before


def test_null_is_never_matched_by_a_comparison(world):
    assert world.mutate("delete Person where age != 5").affected_nodes == 1
    assert set(world.nodes("Person")) == {"a", "c"}


def test_a_nullable_parameter_sets_null(world):
    world.mutate('update Person set { email: $e } where name = "a"', e=("String?", None))
    assert world.nodes("Person")["a"].get("email") is None


def test_now_is_one_moment_in_the_whole_query(world):
    world.mutate(
        'update Person set { seen: now() } where name = "a"',
        'update Person set { seen: now() } where name = "b"',
    )
    people = world.nodes("Person")
    assert people["a"]["seen"] == people["b"]["seen"] is not None


def test_an_integer_parameter_fits_a_float_column_and_is_range_checked(tmp_path):
    world = WriteWorld(tmp_path / "f", "node M { k: String @key  v: F64?  n: I32? }")
    world.mutate('insert M { k: "a", v: 3 }')
    assert world.nodes("M")["a"]["v"] == 3
    with pytest.raises(InputError, match="Int32"):
        world.mutate('insert M { k: "b", n: $n }', n=("I64", 2**40))


REFUSED = [
    (['insert Knows { from: "a", to: "zz" }'], "dst 'zz' not found in Person"),
    (['insert Knows { from: "zz", to: "a" }'], "src 'zz' not found in Person"),
    (['insert Knows { from: "a", to: "b" }'], "@unique violation on Knows.(src, dst)"),
    (['insert WorksAt { from: "a", to: "Beta" }'], "@card violation on edge WorksAt: source 'a'"),
    (['insert Mentors { from: "a", to: "b" }'], "has 1 edges (min 2)"),
    (['insert Person { name: "q", email: "a@x" }'], "@unique violation on Person.email"),
    (['update Person set { email: "a@x" } where name = "b"'], "held by 'a' and 'b'"),
    (['update Person set { email: "same@x" } where name != "c"'], "value 'same@x' held by"),
    (['update Person set { age: 151 } where name = "a"'], "value 151 > max 150"),
    (['update Person set { email: "nope" } where name = "a"'], "does not match pattern"),
]


@pytest.mark.parametrize(("statements", "words"), REFUSED)
def test_a_change_that_the_schema_forbids_leaves_nothing(world, statements, words):
    before = world.head()
    with pytest.raises(ConstraintViolationError) as caught:
        world.mutate('insert Person { name: "bystander" }', *statements)
    assert words in str(caught.value)
    assert caught.value.total == len(caught.value.violations) >= 1
    assert world.head() == before
    assert "bystander" not in world.nodes("Person")


def test_a_value_freed_in_the_same_query_may_be_taken(world):
    world.mutate(
        'update Person set { email: "tmp@x" } where name = "a"',
        'update Person set { email: "a@x" } where name = "b"',
    )
    assert world.nodes("Person")["b"]["email"] == "a@x"


def test_two_mentorships_in_one_query_meet_the_minimum_that_one_would_break(world):
    world.mutate('insert Mentors { from: "a", to: "b" }', 'insert Mentors { from: "a", to: "c" }')
    with pytest.raises(ConstraintViolationError, match="min 2"):
        world.mutate('delete Mentors where to = "b"')
    assert world.mutate('delete Person where name = "a"').affected_edges == 4
    assert world.edges("Mentors") == []


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (
            ['update Person set { name: "q" } where name = "a"'],
            "cannot update @key property 'name'",
        ),
        (['insert Person { name: "q" }', 'delete Person where name = "q"'], "mixes inserts"),
    ],
)
def test_the_compiler_refuses_before_anything_is_read(world, statements, words):
    with pytest.raises(InputError, match=words):
        world.mutate(*statements)


def test_mixing_inserts_and_deletes_has_its_own_error(world):
    with pytest.raises(MixedMutationError):
        world.mutate('insert Note { text: "x" }', 'delete Note where text = "x"')


def test_a_branch_gets_its_own_lines_of_the_tables_it_writes(world):
    world.graph.create_branch("side")
    source = 'query q() { update Person set { age: 9 } where name = "a" }'
    world.graph.mutate(source, branch="side")
    world.graph.mutate('query q() { insert Person { name: "a", age: 10 } }', branch="side")
    assert world.nodes("Person", branch="side")["a"]["age"] == 10
    assert world.nodes("Person")["a"]["age"] == 5
