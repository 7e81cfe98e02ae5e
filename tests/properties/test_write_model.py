"""Random writes against a model of plain dictionaries: same graph, same refusals."""

import json
import operator
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.errors import ConflictError, ConstraintViolationError

SCHEMA = """
node P { name: String @key  age: I32?  email: String? @unique  @range(age, 0..9) }
edge E: P -> P @card(0..2)
"""
OPERATORS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}
EDGES_MAX = 2


class RefusedError(Exception):
    """The model says no; the class of the error that must follow is its argument."""


@dataclass(frozen=True)
class Model:
    """Nodes by name, and edges by id; ids that the graph makes are counted instead."""

    nodes: dict = field(default_factory=dict)
    edges: dict = field(default_factory=dict)
    made: int = 0
    open: bool = False  # inside a transaction: rows are judged against each other at its end

    def checked(self):
        emails = Counter(row["email"] for row in self.nodes.values() if row["email"] is not None)
        degrees = Counter(source for source, _ in self.edges.values())
        ends = {end for pair in self.edges.values() for end in pair}
        ages = [row["age"] for row in self.nodes.values() if row["age"] is not None]
        fine = all(0 <= age <= 9 for age in ages) and (
            self.open
            or (
                all(count == 1 for count in emails.values())
                and all(count <= EDGES_MAX for count in degrees.values())
                and ends <= self.nodes.keys()
            )
        )
        if not fine:
            raise RefusedError(ConstraintViolationError)
        return self

    def with_node(self, name, age, email):
        return replace(self, nodes={**self.nodes, name: {"age": age, "email": email}})

    def with_edge(self, source, target, edge_id=None):
        key = edge_id or ("made", self.made)
        return replace(self, edges={**self.edges, key: (source, target)}, made=self.made + 1)


NAMES = st.sampled_from("abcd")
AGES = st.one_of(st.none(), st.integers(0, 10))
EMAILS = st.one_of(st.none(), st.sampled_from(["x", "y"]))
NODES = st.tuples(NAMES, AGES, EMAILS)
PAIRS = st.tuples(NAMES, NAMES)
WHERES = st.tuples(st.sampled_from(sorted(OPERATORS)), st.integers(0, 9))


def text(value):
    return "null" if value is None else json.dumps(value)


def inserted(nodes, pairs):
    statements = [
        f"insert P {{ name: {text(n)}, age: {text(a)}, email: {text(e)} }}" for n, a, e in nodes
    ]
    statements += [f"insert E {{ from: {text(s)}, to: {text(t)} }}" for s, t in pairs]

    def model(before):
        after = before
        for node in nodes:
            after = after.with_node(*node)
        for pair in pairs:
            after = after.with_edge(*pair)
        return after.checked()

    return mutation(statements, model)


def updated(where, email):
    sign, bound = where

    def model(before):
        hit = {n for n, row in before.nodes.items() if _matches(row["age"], sign, bound)}
        nodes = {
            name: {**row, "email": email} if name in hit else row
            for name, row in before.nodes.items()
        }
        return replace(before, nodes=nodes).checked()

    return mutation([f"update P set {{ email: {text(email)} }} where age {sign} {bound}"], model)


def deleted(where, source):
    sign, bound = where

    def model(before):
        gone = {n for n, row in before.nodes.items() if _matches(row["age"], sign, bound)}
        nodes = {name: row for name, row in before.nodes.items() if name not in gone}
        edges = {
            key: pair
            for key, pair in before.edges.items()
            if not gone & set(pair) and pair[0] != source
        }
        return replace(before, nodes=nodes, edges=edges).checked()

    statements = [f"delete P where age {sign} {bound}", f"delete E where from = {text(source)}"]
    return mutation(statements, model)


def upserted(nodes, *, which, leave):
    """Some properties of nodes that may be there; with `leave` only of those that are not."""
    listed = ("age", "email") if leave else which
    statements = []
    for name, age, email in nodes:
        cells = {"age": age, "email": email}
        values = "".join(f", {one}: {text(cells[one])}" for one in listed)
        verb, tail = ("insert", " or nothing") if leave else ("upsert", "")
        statements.append(f"{verb} P {{ name: {text(name)}{values} }}{tail}")

    def model(before):
        after = before
        for name, age, email in nodes:
            old = after.nodes.get(name)
            if leave and old is not None:
                continue
            given = {one: value for one, value in (("age", age), ("email", email)) if one in listed}
            new = {"age": None, "email": None, **(old or {}), **given}
            after = replace(after, nodes={**after.nodes, name: new})
        return after.checked()

    return mutation(statements, model)


def looped(names, age):
    source = "query q($names: [String]) { for $n in $names upsert P { name: $n, age: %s } }"

    def model(before):
        after = before
        for name in names:
            old = after.nodes.get(name, {"email": None})
            after = replace(after, nodes={**after.nodes, name: {**old, "age": age}})
        return after.checked()

    return lambda graph: graph.mutate(source % text(age), params={"names": names}), model


def raised(where, by):
    sign, bound = where

    def model(before):
        nodes = {
            name: {**row, "age": row["age"] + by} if _matches(row["age"], sign, bound) else row
            for name, row in before.nodes.items()
        }
        return replace(before, nodes=nodes).checked()

    found = f"match {{ $p: P  $p.age {sign} {bound} }}"
    return mutation([found, f"update $p set {{ age: age + {by} }} returning {{ $p.age }}"], model)


def linked(where):
    """An edge from every node that is met to every node that comes after it."""
    sign, bound = where

    def model(before):
        after = before
        for source, row in sorted(before.nodes.items()):
            if _matches(row["age"], sign, bound):
                for target in sorted(before.nodes):
                    after = after.with_edge(source, target) if source < target else after
        return after.checked()

    found = f"match {{ $a: P  $b: P  $a.age {sign} {bound}  $a.name < $b.name }}"
    return mutation([found, "insert E { from: $a, to: $b }"], model)


def unlinked(where, *, whole):
    """Edges to the nodes that are met go; with `whole`, the nodes that they begin at."""
    sign, bound = where

    def model(before):
        hit = {
            key: pair
            for key, pair in before.edges.items()
            if set(pair) <= before.nodes.keys()
            and _matches(before.nodes[pair[1]]["age"], sign, bound)
        }
        if not whole:
            edges = {key: pair for key, pair in before.edges.items() if key not in hit}
            return replace(before, edges=edges).checked()
        gone = {source for source, _ in hit.values()}
        nodes = {name: row for name, row in before.nodes.items() if name not in gone}
        edges = {key: pair for key, pair in before.edges.items() if not gone & set(pair)}
        return replace(before, nodes=nodes, edges=edges).checked()

    found = f"match {{ $a: P  $a $w:e $b  $b.age {sign} {bound} }}"
    return mutation([found, f"delete {'$a' if whole else '$w'}"], model)


def together(steps):
    """Several writes as one transaction, with a look at what is pending after each."""
    states = []

    def act(graph):
        with graph.transaction() as tx:
            for (one, _), state in zip(steps, [*states, *[None] * len(steps)], strict=False):
                one(tx)
                if state is not None:
                    assert_seen(tx, state)

    def model(before):
        states.clear()
        after = replace(before, open=True)
        for _, rule in steps:
            after = rule(after)
            states.append(after)
        return replace(after, open=False).checked()

    return act, model


READS = """
query nodes() { match { $p: P } return { $p.name as n, $p.age as a, $p.email as e } }
query edges() { match { $a: P  $a $w:e $b } return { $a.name as s, $b.name as t } }
"""


def assert_seen(reader, model):
    """Reads tell what the model has; an edge without one of its ends is passed over."""
    found = {row["n"]: {"age": row["a"], "email": row["e"]} for row in reader.query(READS, "nodes")}
    assert found == model.nodes
    pairs = Counter((row["s"], row["t"]) for row in reader.query(READS, "edges"))
    there = [pair for pair in model.edges.values() if set(pair) <= model.nodes.keys()]
    assert pairs == Counter(there)


def _matches(age, sign, bound):
    return age is not None and OPERATORS[sign](age, bound)


def mutation(statements, model):
    source = f"query q() {{ {' '.join(statements)} }}"
    return lambda graph: graph.mutate(source), model


def loaded(mode, nodes, edges):
    lines = [{"type": "P", "data": {"name": n, "age": a, "email": e}} for n, a, e in nodes] + [
        {"edge": "E", "from": s, "to": t, "data": {"id": i}} for i, (s, t) in edges
    ]

    def model(before):
        return _after_load(before, mode, nodes, edges)

    body = "\n".join(map(json.dumps, lines))
    return lambda graph: graph.load(body, mode=mode), model


def _after_load(before, mode, nodes, edges):
    if any(age is not None and age > 9 for _, age, _ in nodes):
        raise RefusedError(ConstraintViolationError)
    after = before
    if mode == "overwrite":
        after = replace(
            after, nodes={} if nodes else after.nodes, edges={} if edges else after.edges
        )
    if mode != "merge":
        names, ids = [n for n, _, _ in nodes], [i for i, _ in edges]
        if len(set(names)) < len(names) or len(set(ids)) < len(ids):
            raise RefusedError(ConstraintViolationError)
    if mode == "append" and (
        {n for n, _, _ in nodes} & after.nodes.keys() or {i for i, _ in edges} & after.edges.keys()
    ):
        raise RefusedError(ConflictError)
    for node in nodes:
        after = after.with_node(*node)
    for edge_id, pair in edges:
        after = after.with_edge(*pair, edge_id=edge_id)
    return after.checked()


WHICH = st.sampled_from([("age",), ("email",), ("age", "email")])
STEPS = st.one_of(
    st.builds(upserted, st.lists(NODES, min_size=1, max_size=3), which=WHICH, leave=st.booleans()),
    st.builds(looped, st.lists(NAMES, max_size=4), AGES),
    st.builds(raised, WHERES, st.integers(-2, 2)),
    st.builds(linked, WHERES),
    st.builds(unlinked, WHERES, whole=st.booleans()),
    st.builds(inserted, st.lists(NODES, min_size=1, max_size=2), st.lists(PAIRS, max_size=2)),
    st.builds(inserted, st.just([]), st.lists(PAIRS, min_size=1, max_size=2)),
    st.builds(updated, WHERES, EMAILS),
    st.builds(deleted, WHERES, NAMES),
    st.builds(
        loaded,
        st.sampled_from(["append", "merge", "overwrite"]),
        st.lists(NODES, max_size=4),
        st.lists(st.tuples(st.sampled_from(["e1", "e2", "e3"]), PAIRS), max_size=3),
    ),
)


def seen(graph):
    nodes, edges = {}, {}
    for line in map(json.loads, graph.export()):
        data = line["data"]
        if "type" in line:
            nodes[data["name"]] = {"age": data.get("age"), "email": data.get("email")}
        else:
            edges[data["id"]] = (line["from"], line["to"])
    return nodes, edges


def assert_same(graph, model):
    nodes, edges = seen(graph)
    assert nodes == model.nodes
    named = {key: pair for key, pair in model.edges.items() if isinstance(key, str)}
    assert named.items() <= edges.items()
    assert Counter(edges.values()) == Counter(model.edges.values())


WRITES = st.one_of(STEPS, STEPS, st.builds(together, st.lists(STEPS, min_size=1, max_size=5)))


@settings(max_examples=25)
@given(steps=st.lists(WRITES, min_size=4, max_size=10))
def test_random_writes_leave_the_graph_of_the_model(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("model")
    model = Model()
    with Graph.init(folder / "g", SCHEMA, durability="process") as graph:
        for act, rule in steps:
            head = graph.snapshot().graph_commit_id
            try:
                after = rule(model)
            except RefusedError as no:
                try:
                    act(graph)
                except no.args[0]:
                    assert graph.snapshot().graph_commit_id == head
                else:
                    raise AssertionError("the graph took what the model refuses") from no
                continue
            act(graph)
            model = after
            assert_same(graph, model)
            assert_seen(graph, model)
