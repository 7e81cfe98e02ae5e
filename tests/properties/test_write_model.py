"""Random mutations, loads, crashes and reopens against a graph made of plain dicts."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

sys.path.insert(0, str(Path(__file__).parents[1] / "crash"))
from harness import Crash, CrashAt, assert_settled, world

from omnigraph import Graph
from omnigraph.errors import ConstraintViolationError, KeyConflictError
from omnigraph.model.steps import Step

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique  @range(age, 0..99) }
edge Knows: Person -> Person @card(0..2) { note: String? }
"""
QUERIES = """
query put($name: String, $age: I32?, $mail: String?) {
  insert Person { name: $name, age: $age, mail: $mail }
}
query grow($age: I32) { update Person set { age: $age } where age < $age }
query drop($name: String) { delete Person where name = $name }
query link($a: String, $b: String) { insert Knows { from: $a, to: $b } }
query cut($a: String) { delete Knows where from = $a }
"""
WRITE_STEPS = [step for step in Step if step.value.startswith(("write.", "publish."))]

names = st.sampled_from(["ada", "bob", "cyd", "dan"])
ages = st.one_of(st.none(), st.integers(-5, 120))
mails = st.one_of(st.none(), st.sampled_from(["x@y", "z@y"]))


class GraphModel(RuleBasedStateMachine):
    """`people` maps a name to (age, mail); `edges` is a list of (from, to)."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.uri = str(self.folder / "g.omni")
        self.graph = Graph.init(self.uri, SCHEMA, durability="process")
        self.people: dict[str, tuple[int | None, str | None]] = {}
        self.edges: list[tuple[str, str]] = []

    def teardown(self) -> None:
        self.graph.close()
        shutil.rmtree(self.folder)

    # --- the model's own rules ---

    def allowed(self, people, edges) -> bool:
        mails = [mail for _, mail in people.values() if mail is not None]
        return (
            all(age is None or 0 <= age <= 99 for age, _ in people.values())
            and len(set(mails)) == len(mails)
            and all(a in people and b in people for a, b in edges)
            and all(sum(a == name for a, _ in edges) <= 2 for name in people)
        )

    def attempt(self, people, edges, act) -> None:
        """The act must succeed exactly if the model allows its result."""
        if self.allowed(people, edges):
            act()
            self.people, self.edges = people, edges
            return
        try:
            act()
        except ConstraintViolationError:
            return
        raise AssertionError("the graph took what the schema forbids")

    # --- what a user may do ---

    @rule(name=names, age=ages, mail=mails)
    def put(self, name, age, mail):
        params = {"name": name, "age": age, "mail": mail}
        people = {**self.people, name: (age, mail)}
        self.attempt(people, self.edges, lambda: self.graph.mutate(QUERIES, "put", params=params))

    @rule(age=st.integers(-5, 120))
    def grow(self, age):
        people = {
            name: (age, mail) if old is not None and old < age else (old, mail)
            for name, (old, mail) in self.people.items()
        }
        act = lambda: self.graph.mutate(QUERIES, "grow", params={"age": age})  # noqa: E731
        self.attempt(people, self.edges, act)

    @rule(name=names)
    def drop(self, name):
        result = self.graph.mutate(QUERIES, "drop", params={"name": name})
        assert (result.commit is not None) == (name in self.people)
        self.people.pop(name, None)
        self.edges = [edge for edge in self.edges if name not in edge]

    @rule(a=names, b=names)
    def link(self, a, b):
        act = lambda: self.graph.mutate(QUERIES, "link", params={"a": a, "b": b})  # noqa: E731
        self.attempt(self.people, [*self.edges, (a, b)], act)

    @rule(a=names)
    def cut(self, a):
        result = self.graph.mutate(QUERIES, "cut", params={"a": a})
        kept = [edge for edge in self.edges if edge[0] != a]
        assert result.affected_edges == len(self.edges) - len(kept)
        self.edges = kept

    @rule(
        rows=st.lists(st.tuples(names, ages, mails), max_size=4),
        mode=st.sampled_from(["merge", "append"]),
    )
    def load(self, rows, mode):
        lines = [
            orjson.dumps({"type": "Person", "data": {"name": n, "age": a, "mail": m}})
            for n, a, m in rows
        ]
        keys = [name for name, _, _ in rows]
        if mode == "append" and (len(set(keys)) < len(keys) or set(keys) & self.people.keys()):
            try:
                self.graph.load(b"\n".join(lines), mode=mode)
            except (KeyConflictError, ConstraintViolationError):
                return
            raise AssertionError("append took an existing key")
        people = {**self.people, **{name: (age, mail) for name, age, mail in rows}}
        self.attempt(people, self.edges, lambda: self.graph.load(b"\n".join(lines), mode=mode))

    @rule(name=names, step=st.sampled_from(WRITE_STEPS))
    def crash_while_putting(self, name, step):
        """Before or after: the model learns which."""
        self.graph.close()
        doomed = Graph.open(self.uri, world=world(CrashAt(step)))
        before, after = self.people, {**self.people, name: (50, None)}
        with suppress(Crash):
            doomed.mutate(QUERIES, "put", params={"name": name, "age": 50, "mail": None})
        self.graph = Graph.open(self.uri, durability="process")
        assert_settled(self.uri)
        self.people = after if self.stored()[0] == after else before

    @rule()
    def reopen(self):
        self.graph.close()
        self.graph = Graph.open(self.uri, durability="process")

    def stored(self):
        records = [orjson.loads(line) for line in self.graph.export()]
        people = {
            r["data"]["name"]: (r["data"].get("age"), r["data"].get("mail"))
            for r in records
            if "type" in r
        }
        return people, sorted((r["from"], r["to"]) for r in records if "edge" in r)

    @invariant()
    def the_graph_is_the_model(self):
        assert self.stored() == (self.people, sorted(self.edges))


GraphModel.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_the_graph_behaves_like_its_model = GraphModel.TestCase
