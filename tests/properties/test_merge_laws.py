"""Laws of branches, merges, differences and the feed, over random histories.

`State` is a graph as plain dictionaries, with a three-way merge of its own; the graph has to agree.
"""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.errors import MergeConflictsError

SCHEMA = """
node N { k: String @key  v: I32?  w: String?  l: [I32]? }
edge E: N -> N { x: I32? }
"""
NAMES = "abcde"
EDGES = ("e1", "e2", "e3")


@dataclass(frozen=True)
class Step:
    """What one commit (or two, if it also deletes) does to a branch."""

    nodes: tuple
    edges: tuple
    gone_nodes: frozenset
    gone_edges: frozenset


VALUES = st.one_of(st.none(), st.integers(0, 2))
TEXTS = st.sampled_from([None, "", "x"])
LISTS = st.sampled_from([None, [], [1], [1, 2]])
STEPS = st.builds(
    Step,
    nodes=st.lists(st.tuples(st.sampled_from(NAMES), VALUES, TEXTS, LISTS), max_size=3).map(tuple),
    edges=st.lists(
        st.tuples(st.sampled_from(EDGES), st.sampled_from(NAMES), st.sampled_from(NAMES), VALUES),
        max_size=2,
    ).map(tuple),
    gone_nodes=st.frozensets(st.sampled_from(NAMES), max_size=1),
    gone_edges=st.frozensets(st.sampled_from(EDGES), max_size=1),
)
HISTORIES = st.lists(STEPS, min_size=1, max_size=3)


@dataclass(frozen=True)
class State:
    """Entities by (kind, id)."""

    entities: dict = field(default_factory=dict)

    def after(self, step):
        found = dict(self.entities)
        for key, v, w, items in step.nodes:
            found["node", key] = {"v": v, "w": w, "l": items}
        for key, source, target, x in self.possible(step):
            found["edge", key] = {"from": source, "to": target, "x": x}
        for key in step.gone_edges:
            found.pop(("edge", key), None)
        for key in step.gone_nodes:
            found.pop(("node", key), None)
        return State(found).without_dangling()

    def possible(self, step):
        """The edges of a step that have both ends by then."""
        there = {key for kind, key in self.entities if kind == "node"}
        there |= {key for key, *_ in step.nodes}
        return [edge for edge in step.edges if {edge[1], edge[2]} <= there]

    def dangling(self):
        return {
            key
            for key, value in self.entities.items()
            if key[0] == "edge"
            and not {("node", value["from"]), ("node", value["to"])} <= self.entities.keys()
        }

    def without_dangling(self):
        gone = self.dangling()
        return State({key: value for key, value in self.entities.items() if key not in gone})


def merged(base, ours, theirs):
    """The merged state and the ids in conflict, by the table of the reference."""
    result, conflicts = dict(ours.entities), set()
    for key in base.entities.keys() | theirs.entities.keys():
        b, o, t = (side.entities.get(key) for side in (base, ours, theirs))
        if t in (b, o):
            continue
        if o != b:
            conflicts.add(key)
        elif t is None:
            del result[key]
        else:
            result[key] = t
    state = State(result)
    return state, conflicts or state.dangling()


def act(graph, branch, step, state):
    """Take the step on a branch; the state after it."""
    records = [
        {"type": "N", "data": {"k": key, "v": v, "w": w, "l": items}}
        for key, v, w, items in step.nodes
    ] + [
        {"edge": "E", "from": source, "to": target, "data": {"id": key, "x": x}}
        for key, source, target, x in state.possible(step)
    ]
    if records:
        graph.load("\n".join(map(json.dumps, records)), mode="merge", branch=branch)
    statements = [f'delete E where id = "{key}"' for key in sorted(step.gone_edges)]
    statements += [f'delete N where k = "{key}"' for key in sorted(step.gone_nodes)]
    if statements:
        graph.mutate(f"query q() {{ {' '.join(statements)} }}", branch=branch)
    return state.after(step)


def seen(graph, **target):
    found = {}
    for line in map(json.loads, graph.export(**target)):
        data = line["data"]
        if "type" in line:
            found["node", data["id"]] = {name: data.get(name) for name in ("v", "w", "l")}
        else:
            ends = {"from": line["from"], "to": line["to"]}
            found["edge", data["id"]] = {**ends, "x": data.get("x")}
    return State(found)


def replayed(state, changes):
    """The state after applying changes, each of which must fit what is there."""
    found = dict(state.entities)
    for change in changes:
        key = (change.kind, change.id)
        assert found.get(key) == image(change.before), change
        if change.after is None:
            del found[key]
        else:
            found[key] = image(change.after)
    return State(found)


def image(of):
    if of is None:
        return None
    properties = {name: value for name, value in of.properties.items() if name != "k"}
    return {**(of.endpoints or {}), **properties}


def in_conflict(found):
    return {(one.entity_kind, one.entity_id) for one in found.conflicts}


class Story:
    """One graph whose main has a past, and branches that go on from there."""

    def __init__(self, folder, past):
        self.graph = Graph.init(folder / "g", SCHEMA, durability="process")
        self.states = {"main": State()}
        self.go_on("main", past)

    def go_on(self, branch, steps):
        for step in steps:
            self.states[branch] = act(self.graph, branch, step, self.states[branch])

    def fork(self, name, steps=(), source="main"):
        self.graph.create_branch(name, from_branch=source)
        self.states[name] = self.states[source]
        self.go_on(name, steps)


@settings(max_examples=40)
@given(past=HISTORIES, ours=HISTORIES, theirs=HISTORIES)
def test_a_merge_is_the_one_of_the_table_and_once_is_enough(tmp_path_factory, past, ours, theirs):
    story = Story(tmp_path_factory.mktemp("merge"), past)
    graph = story.graph
    base = story.states["main"]
    story.fork("side", theirs)
    story.go_on("main", ours)
    before, head = story.states["main"], graph.snapshot()
    expected, conflicts = merged(base, before, story.states["side"])
    preview = graph.merge_preview("side")
    assert graph.snapshot() == head, "a preview wrote something"
    assert in_conflict(preview) == conflicts
    if conflicts:
        with pytest.raises(MergeConflictsError) as refused:
            graph.merge("side")
        assert in_conflict(refused.value) == conflicts
        assert graph.snapshot() == head
        return
    result = graph.merge("side")
    assert result.outcome == preview.outcome
    assert result.changes == preview.changes
    assert seen(graph) == expected
    assert graph.merge("side").outcome == "already_up_to_date"
    if result.commit is not None:
        graph.revert(result.commit.graph_commit_id)
        assert seen(graph) == before, "merge then revert is not before"


@settings(max_examples=15)
@given(past=HISTORIES, one=HISTORIES, two=HISTORIES)
def test_the_order_of_unconflicted_merges_does_not_matter(tmp_path_factory, past, one, two):
    story = Story(tmp_path_factory.mktemp("order"), past)
    graph = story.graph
    for name in ("left", "right"):
        story.fork(name)
    story.fork("a", one)
    story.fork("b", two)
    outcomes = []
    for target, order in (("left", ("a", "b")), ("right", ("b", "a"))):
        try:
            for source in order:
                graph.merge(source, into=target)
            outcomes.append(seen(graph, branch=target))
        except MergeConflictsError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


@settings(max_examples=20)
@given(past=HISTORIES, one=HISTORIES, two=HISTORIES)
def test_a_difference_applied_to_one_side_gives_the_other(tmp_path_factory, past, one, two):
    story = Story(tmp_path_factory.mktemp("diff"), past)
    graph = story.graph
    story.fork("a", one)
    story.fork("b", two)
    start = graph.commits()[-1].graph_commit_id
    for left, right in (("a", "b"), ("main", "a"), ("b", "main"), (start, "b")):
        found = graph.diff(left, right)
        state = State() if left == start else story.states[left]
        assert replayed(state, found.changes) == story.states[right]
        positions = [change.position for change in found.changes]
        assert positions == sorted(positions)
    assert graph.diff("a", "a").changes == ()


@settings(max_examples=20)
@given(past=HISTORIES, one=HISTORIES, two=HISTORIES, limit=st.sampled_from([1, 2, 1000]))
def test_the_feed_from_the_beginning_gives_the_graph(tmp_path_factory, past, one, two, limit):
    story = Story(tmp_path_factory.mktemp("feed"), past)
    graph = story.graph
    story.fork("side", one)
    story.go_on("main", two)
    if not graph.merge_preview("side", strategy="theirs").conflicts:
        graph.merge("side", strategy="theirs")
    if graph.commits(limit=1)[0].parent_commit_id is not None:
        graph.revert(graph.snapshot().graph_commit_id)
    state, where = State(), {"start": "beginning"}
    for _ in range(200):
        page = graph.changes(**where, limit=limit)
        for block in page.blocks:
            state = replayed(state, block.changes)
        if page.caught_up:
            break
        where = {"cursor": page.cursor} if page.cursor else {"page_token": page.next_page_token}
    assert state == seen(graph)
    assert graph.changes(cursor=page.cursor).blocks == ()


@settings(max_examples=15)
@given(past=HISTORIES, first=HISTORIES, second=HISTORIES)
def test_a_branch_made_again_never_shows_old_data(tmp_path_factory, past, first, second):
    story = Story(tmp_path_factory.mktemp("again"), past)
    graph = story.graph
    story.fork("side", first)
    old = graph.commits("side", limit=1)[0].graph_commit_id
    graph.delete_branch("side", force=True)
    story.fork("side")
    assert seen(graph, branch="side") == story.states["main"]
    story.go_on("side", second)
    assert seen(graph, branch="side") == story.states["side"]
    own = {commit.graph_commit_id for commit in graph.commits("side")}
    assert old not in own or old in {commit.graph_commit_id for commit in graph.commits()}


@settings(max_examples=15)
@given(
    past=HISTORIES,
    rounds=st.lists(st.tuples(HISTORIES, HISTORIES, st.booleans()), min_size=2, max_size=3),
)
def test_merges_to_and_fro_keep_both_sides_right(tmp_path_factory, past, rounds):
    story = Story(tmp_path_factory.mktemp("rounds"), past)
    graph = story.graph
    base = story.states["main"]
    story.fork("side")
    for ours, theirs, forward in rounds:
        story.go_on("main", ours)
        story.go_on("side", theirs)
        source, target = ("side", "main") if forward else ("main", "side")
        expected, conflicts = merged(base, story.states[target], story.states[source])
        if conflicts:
            with pytest.raises(MergeConflictsError) as refused:
                graph.merge(source, into=target)
            assert in_conflict(refused.value) == conflicts
            return
        graph.merge(source, into=target)
        assert seen(graph, branch=target) == expected
        # From now on the common past is what the source was.
        base, story.states[target] = story.states[source], expected
