"""Transactions: several queries and loads, one commit, and reads that see what is pending."""

# ruff: noqa: PT012, SIM117 - it is the end of a block that fails

import json
import threading

import pytest
from write_world import WriteWorld, company, edge, person

from omnigraph import Graph
from omnigraph.errors import (
    ConflictError,
    ConstraintViolationError,
    KeyConflictError,
    PreconditionFailedError,
    TransactionConflictError,
    TransactionStateError,
    TypeCheckError,
)

PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.age } }"
KNOWS = "query q() { match { $p: Person  $p knows $q } return { $p.name as a, $q.name as b } }"


@pytest.fixture
def world(tmp_path):
    world = WriteWorld(tmp_path / "g")
    world.load(
        person("a", age=5, email="a@x", vec=[1, 0]),
        person("b", age=40, vec=[0, 1]),
        company("Acme"),
        edge("Knows", "a", "b"),
    )
    return world


def run(tx, text):
    return tx.mutate(f"query q() {{ {text} }}")


def names(result):
    return [row["p.name"] for row in result]


def pairs(result):
    return [(row["a"], row["b"]) for row in result]


def lines(*records):
    return "\n".join(map(json.dumps, records))


def test_everything_is_one_commit(world):
    before = len(world.graph.commits())
    with world.graph.transaction(actor="me", message="why") as tx:
        run(tx, 'insert Person { name: "c" }')
        tx.load(lines(edge("Knows", "c", "a")), mode="append")
        run(tx, 'delete Person where name = "b"')
    assert len(world.graph.commits()) == before + 1
    assert (tx.commit.actor_id, tx.commit.message) == ("me", "why")
    assert tx.commit.graph_commit_id == world.head()
    assert sorted(world.nodes("Person")) == ["a", "c"]
    assert world.edges("Knows") == [("c", "a")]


def test_reads_see_what_is_pending_and_others_do_not(world):
    graph = world.graph
    graph.query(KNOWS)  # a warm cache must not tell the old story
    with graph.transaction() as tx:
        run(
            tx,
            'insert Person { name: "c", age: 1, vec: [1, 0] } insert Knows { from: "c", to: "a" }',
        )
        assert names(tx.query(PEOPLE)) == ["a", "b", "c"]
        assert pairs(tx.query(KNOWS)) == [("a", "b"), ("c", "a")]
        near = "return { $p.name } order { nearest($p.vec, [1, 0]) } limit 2"
        found = tx.query(f"query q() {{ match {{ $p: Person }} {near} }}")
        assert sorted(names(found)) == ["a", "c"]
        text = 'query q() { match { $p: Person search($p.name, "c") } return { $p.name } }'
        assert names(tx.query(text)) == ["c"]
        run(tx, 'delete Person where name = "b"')
        assert pairs(tx.query(KNOWS)) == [("c", "a")]
        count = "query q() { match { $p: Person } return { count(*) as n, sum($p.age) as s } }"
        assert tx.query(count).to_pylist() == [{"n": 2, "s": 6}]
        assert names(graph.query(PEOPLE)) == ["a", "b"]
        assert pairs(graph.query(KNOWS)) == [("a", "b")]
    assert pairs(graph.query(KNOWS)) == [("c", "a")]
    assert names(graph.query(PEOPLE)) == ["a", "c"]


def test_a_match_sees_what_is_pending(world):
    with world.graph.transaction() as tx:
        run(tx, 'insert Person { name: "c", age: 1 }')
        done = run(tx, "match { $p: Person  $p.age < 10 } update $p set { age: $p.age + 1 }")
        assert done.affected_nodes == 2
        done = run(tx, "match { $p: Person } delete $p returning { $p.name, $p.age }")
        assert done.rows[0] == {"p.name": "a", "p.age": 6}
        assert (done.affected_nodes, done.affected_edges) == (3, 1)
        run(tx, 'insert Person { name: "a", age: 9 }')
    assert {name: row["age"] for name, row in world.nodes("Person").items()} == {"a": 9}
    assert world.edges("Knows") == []


def test_inserts_and_deletes_count_in_their_order(world):
    with world.graph.transaction() as tx:
        run(tx, 'insert Person { name: "c" } insert Knows { from: "c", to: "a" }')
        run(tx, 'delete Person where name = "c"')
        run(tx, 'delete Person where name = "a"')
        run(tx, 'insert Person { name: "a", age: 1 }')
        run(tx, 'upsert Person { name: "a", email: "n@x" }')
    row = world.nodes("Person")["a"]
    assert (row["age"], row["email"], row.get("vec")) == (1, "n@x", None)
    assert world.edges("Knows") == []
    assert sorted(world.nodes("Person")) == ["a", "b"]


def test_what_comes_to_nothing_is_no_commit(world):
    before = world.head()
    with world.graph.transaction() as tx:
        run(tx, 'insert Note { text: "x" }')
        run(tx, 'delete Note where text = "x"')
    assert tx.commit is None
    with world.graph.transaction() as tx:
        tx.query(PEOPLE)
    assert tx.commit is None
    assert world.head() == before


def test_the_whole_is_checked_at_the_end(world):
    with world.graph.transaction() as tx:
        run(tx, 'insert Knows { from: "later", to: "a" }')  # its end comes with the next query
        assert pairs(tx.query(KNOWS)) == [("a", "b")]
        run(tx, 'insert Person { name: "later", email: "a@x" }')
        run(tx, 'update Person set { email: null } where name = "a"')
    assert world.edges("Knows") == [("a", "b"), ("later", "a")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('insert Knows { from: "a", to: "nobody" }', "nobody"),
        ('insert Person { name: "z", email: "a@x" }', "a@x"),
        ('insert Mentors { from: "a", to: "b" }', "min 2"),
    ],
)
def test_a_transaction_that_breaks_a_rule_leaves_nothing(world, tmp_path, text, words):
    before = world.head()
    with pytest.raises(ConstraintViolationError, match=words), world.graph.transaction() as tx:
        run(tx, 'insert Person { name: "c" }')
        run(tx, text)
    assert world.head() == before
    with pytest.raises(TransactionStateError):
        _ = tx.commit
    assert not list((tmp_path / "g").rglob("_versions/d*"))


def test_a_value_that_breaks_a_rule_is_told_at_once(world):
    with pytest.raises(ConstraintViolationError, match=r"statement 1 of mutation 2 \(line 1\)"):
        with world.graph.transaction() as tx:
            run(tx, 'insert Person { name: "c" }')
            run(tx, 'insert Person { name: "z", age: 200 }')
            raise AssertionError("not reached")


def test_an_exception_leaves_nothing(world, tmp_path):
    before = world.head()
    with pytest.raises(ZeroDivisionError), world.graph.transaction() as tx:
        run(tx, 'insert Person { name: "c" }')
        assert names(tx.query(PEOPLE)) == ["a", "b", "c"]
        raise ZeroDivisionError
    assert world.head() == before
    assert not list((tmp_path / "g").rglob("_versions/d*"))
    assert world.graph.verify(deep=True).ok


def test_rollback_ends_it(world):
    before = world.head()
    with world.graph.transaction() as tx:
        run(tx, 'insert Person { name: "c" }')
        tx.rollback()
        with pytest.raises(TransactionStateError):
            tx.query(PEOPLE)
    assert world.head() == before


def test_a_part_that_failed_is_not_committed_by_half(world):
    with pytest.raises(TransactionStateError, match="rolled back"):
        with world.graph.transaction() as tx:
            with pytest.raises(ConstraintViolationError):
                run(tx, 'insert Person { name: "c" } insert Person { name: "d", age: 200 }')
            with pytest.raises(TransactionStateError):
                tx.query(PEOPLE)
    assert sorted(world.nodes("Person")) == ["a", "b"]


def test_a_text_that_is_wrong_changes_nothing_and_may_be_put_right(world):
    with world.graph.transaction() as tx:
        with pytest.raises(TypeCheckError):
            run(tx, "insert Person { nope: 1 }")
        run(tx, 'insert Person { name: "c" }')
    assert "c" in world.nodes("Person")


# --- loads ---


def test_a_load_knows_what_is_pending(world):
    with world.graph.transaction() as tx:
        run(tx, 'insert Person { name: "c", age: 1 }')
        with pytest.raises(KeyConflictError):
            tx.load(lines(person("c")), mode="append")
        done = tx.load(lines(person("c", age=2), person("a", age=3)), mode="merge")
        assert done.nodes == {"Person": 2}
        tx.load(lines(company("New")), mode="overwrite")
        assert tx.query(PEOPLE).to_pylist()[2] == {"p.name": "c", "p.age": 2}
    assert list(world.nodes("Company")) == ["New"]
    assert world.nodes("Person")["a"].get("email") is None


def test_an_overwrite_that_orphans_edges_is_refused(world):
    with pytest.raises(ConstraintViolationError), world.graph.transaction() as tx:
        tx.load(lines(person("z")), mode="overwrite")
    with world.graph.transaction() as tx:
        tx.load(lines(person("z")), mode="overwrite")
        run(tx, 'delete Knows where from = "a"')
    assert sorted(world.nodes("Person")) == ["z"]


# --- others at the same time ---


def test_a_table_that_was_read_and_moved_is_a_conflict(world):
    with pytest.raises(TransactionConflictError) as caught, world.graph.transaction() as tx:
        total = tx.query("query q() { match { $p: Person } return { sum($p.age) as s } }")
        world.mutate('update Person set { age: 1 } where name = "a"')
        run(tx, f'insert Note {{ text: "{total.to_pylist()[0]["s"]}" }}')
    assert caught.value.retryable
    assert isinstance(caught.value, ConflictError)
    assert caught.value.table_key == "node:Person"
    assert world.nodes("Note") == {}


def test_a_table_that_is_written_and_moved_is_a_conflict(world):
    with pytest.raises(TransactionConflictError), world.graph.transaction() as tx:
        run(tx, 'update Person set { age: age + 1 } where name = "a"')
        world.mutate('update Person set { age: 10 } where name = "a"')
    assert world.nodes("Person")["a"]["age"] == 10


def test_other_tables_may_move(world):
    with world.graph.transaction() as tx:
        run(tx, 'insert Note { text: "x" }')
        world.mutate('update Person set { age: 10 } where name = "a"')
    assert tx.commit.parent_commit_id == world.graph.commits()[1].graph_commit_id
    assert (len(world.nodes("Note")), world.nodes("Person")["a"]["age"]) == (1, 10)


def test_upkeep_is_no_conflict(world):
    for n in range(3):
        world.load(person(f"x{n}"))
    with world.graph.transaction() as tx:
        assert tx.query(PEOPLE).row_count == 5
        run(tx, 'update Person set { age: 1 } where name = "x0"')
        assert world.graph.optimize().commit is not None
    assert world.nodes("Person")["x0"]["age"] == 1


def test_a_head_that_was_insisted_on(world):
    head = world.head()
    with world.graph.transaction(if_commit=head) as tx:
        run(tx, 'insert Note { text: "x" }')
    with pytest.raises(PreconditionFailedError), world.graph.transaction(if_commit=head):
        raise AssertionError("not reached")
    with (
        pytest.raises(PreconditionFailedError),
        world.graph.transaction(if_commit=world.head()) as tx,
    ):
        run(tx, 'insert Note { text: "y" }')
        world.mutate('update Company set { founded: 1 } where name = "Acme"')


def test_a_branch_is_written_without_touching_its_parent(world):
    world.graph.create_branch("side")
    with world.graph.transaction("side") as tx:
        run(tx, 'insert Person { name: "c" }')
        assert names(tx.query(PEOPLE)) == ["a", "b", "c"]
    assert sorted(world.nodes("Person", "side")) == ["a", "b", "c"]
    assert sorted(world.nodes("Person")) == ["a", "b"]


# --- how it may not be used ---


def test_transactions_do_not_nest(world):
    with world.graph.transaction() as tx:
        with pytest.raises(TransactionStateError, match="open already"):
            world.graph.transaction().__enter__()
        run(tx, 'insert Note { text: "x" }')
    with world.graph.transaction() as tx:
        run(tx, 'insert Note { text: "y" }')
    assert len(world.nodes("Note")) == 2


@pytest.mark.parametrize("use", ["query", "mutate", "load", "rollback", "__enter__"])
def test_it_cannot_be_used_after_its_end(world, use):
    with world.graph.transaction() as tx:
        pass
    args = {"query": (PEOPLE,), "mutate": ("query q() { insert Note { text: 'x' } }",)}
    with pytest.raises(TransactionStateError):
        getattr(tx, use)(
            *args.get(use, ("",) if use == "load" else ()),
            **({"mode": "append"} if use == "load" else {}),
        )


def test_it_cannot_be_used_before_its_beginning(world):
    with pytest.raises(TransactionStateError, match="new"):
        world.graph.transaction().query(PEOPLE)


def test_it_belongs_to_one_thread(world):
    found = []
    with world.graph.transaction() as tx:

        def other():
            try:
                tx.query(PEOPLE)
            except TransactionStateError as error:
                found.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        run(tx, 'insert Note { text: "x" }')
    assert len(found) == 1
    assert len(world.nodes("Note")) == 1


def test_what_a_killed_transaction_leaves_behind_bothers_nobody(tmp_path):
    world = WriteWorld(tmp_path / "g")
    world.load(person("a"), person("b"))
    tx = world.graph.transaction()
    tx.__enter__()
    run(tx, 'insert Person { name: "c" }')
    tx.query(PEOPLE)
    assert list((tmp_path / "g").rglob("_versions/d*"))
    with Graph.open(
        tmp_path / "g", durability="process"
    ) as other:  # the first one is as good as dead
        assert other.query(PEOPLE).row_count == 2
        other.mutate('query q() { insert Person { name: "d" } }')
        other.optimize()
        other.cleanup(keep_versions=1)
        assert other.verify(deep=True).ok
        other.backup(tmp_path / "copy")
    with Graph.open(tmp_path / "copy", durability="process") as copy:
        assert copy.query(PEOPLE).row_count == 3
        assert copy.verify(deep=True).ok
    world.graph.close()
    with Graph.open(tmp_path / "g", durability="process") as alone:
        alone.cleanup(keep_versions=1)
        assert not list((tmp_path / "g").rglob("_versions/d*"))
        assert alone.query(PEOPLE).row_count == 3
