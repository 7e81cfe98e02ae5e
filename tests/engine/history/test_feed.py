"""Commit changes and the feed: images, paging, filters, cursors, refusals and gaps."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.errors import (
    ChangeFeedGapError,
    InputError,
    NotFoundError,
    ParentlessCommitError,
)

SCHEMA = """
node P { k: String @key  v: I32?  s: String?  b: Blob?  e: Vector(2)?  t: [String]? }
node Q { k: String @key }
edge E: P -> Q { w: F64? }
"""


def load(graph, *records, mode="merge", **options):
    return graph.load("\n".join(map(json.dumps, records)), mode=mode, **options).commit


def p(key, **data):
    return {"type": "P", "data": {"k": key, **data}}


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process") as graph:
        yield graph


def told(changes):
    return [(one.kind, one.type_name, one.id, one.op) for one in changes]


def test_a_commit_tells_its_changes_in_the_frozen_order_with_images(graph):
    load(graph, p("b", v=1), p("a", v=1), p("z"), {"type": "Q", "data": {"k": "q"}})
    commit = load(
        graph,
        p("b", v=2, s=""),
        p("c"),
        {"type": "Q", "data": {"k": "r"}},
        {"edge": "E", "from": "a", "to": "q", "data": {"id": "e", "w": 0.5}},
    )
    page = graph.commit_changes(commit.graph_commit_id)
    assert told(page.changes) == [
        ("node", "P", "b", "update"),
        ("node", "P", "c", "insert"),
        ("node", "Q", "r", "insert"),
        ("edge", "E", "e", "insert"),
    ]
    update, insert, _, edge = page.changes
    assert (update.before.properties["v"], update.after.properties["v"]) == (1, 2)
    assert (update.before.properties["s"], update.after.properties["s"]) == (None, "")
    assert insert.before is None
    assert edge.after.endpoints == {"from": "a", "to": "q"}
    assert page.to_json()["cause"]["graph_commit_id"] == commit.graph_commit_id
    gone = graph.mutate('query q() { delete P where k = "a" }').commit
    page = graph.commit_changes(gone.graph_commit_id)
    assert told(page.changes) == [("node", "P", "a", "delete"), ("edge", "E", "e", "delete")]
    assert page.changes[1].before.properties == {"w": 0.5}


def test_a_write_that_changes_nothing_is_no_change(graph):
    load(graph, p("a", v=1, t=["x"], e=[1.0, 2.0], b="base64:aGk="))
    again = load(graph, p("a", v=1, t=["x"], e=[1.0, 2.0], b="base64:aGk="))
    if again is not None:
        assert graph.commit_changes(again.graph_commit_id).changes == ()


def test_blobs_vectors_and_lists_have_images(graph):
    load(graph, p("a", b="base64:aGk=", e=[1.0, 2.0], t=["x"]))
    commit = load(graph, p("a", b="base64:aG8=", e=[1.0, 2.5], t=["x", "y"]))
    (change,) = graph.commit_changes(commit.graph_commit_id).changes
    before, after = change.before.properties, change.after.properties
    assert (before["b"]["size"], after["b"]["size"]) == (2, 2)
    assert before["b"]["sha256"] != after["b"]["sha256"]
    assert (after["e"], after["t"]) == ([1.0, 2.5], ["x", "y"])
    assert json.loads(json.dumps(change.to_json()))["after"]["properties"]["e"] == [1.0, 2.5]


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_together_are_the_whole(graph, limit):
    commit = load(graph, *(p(f"n{at}") for at in range(6)), {"type": "Q", "data": {"k": "q"}})
    whole = graph.commit_changes(commit.graph_commit_id).changes
    found, token = [], None
    for _ in range(20):
        page = graph.commit_changes(commit.graph_commit_id, limit=limit, page_token=token)
        assert len(page.changes) <= limit
        found += page.changes
        token = page.next_page_token
        if token is None:
            break
    assert tuple(found) == whole


def test_filters_take_kinds_types_and_ops(graph):
    load(graph, p("a"), {"type": "Q", "data": {"k": "q"}})
    edge = {"edge": "E", "from": "a", "to": "q", "data": {"id": "e"}}
    commit = load(graph, p("a", v=1), p("b"), {"type": "Q", "data": {"k": "r"}}, edge)

    def ids(**filters):
        return [one.id for one in graph.commit_changes(commit.graph_commit_id, **filters).changes]

    assert ids(kinds=["edge"]) == ["e"]
    assert ids(types=["P"]) == ["a", "b"]
    assert ids(ops=["update"]) == ["a"]
    assert ids(types=["P", "Q"], ops=["insert"]) == ["b", "r"]
    assert ids(ops=["delete"]) == []
    for wrong in ({"kinds": ["nod"]}, {"ops": ["upsert"]}):
        with pytest.raises(InputError):
            ids(**wrong)
    with pytest.raises(NotFoundError):
        ids(types=["Nobody"])
    assert [one.id for one in graph.diff("main", "main", types=["P"]).changes] == []


def test_the_genesis_has_no_parent_to_differ_from(graph):
    with pytest.raises(ParentlessCommitError):
        graph.commit_changes(graph.commits()[-1].graph_commit_id)
    with pytest.raises(NotFoundError):
        graph.commit_changes("01M0000000000000000000000X")


def test_a_schema_change_is_no_change_of_entities(graph):
    load(graph, p("a", v=1))
    before = graph.snapshot().graph_commit_id
    text = SCHEMA.replace("v: I32?", 'w: I32? @rename_from("v")  d: I32 @default(3)')
    more = SCHEMA.replace("v: I32?", "n: F64?  w: I64?  d: I32 @default(4)")
    for new in (text, text.replace("w: I32?", "w: I64?"), more):
        applied = graph.apply_schema(new).commit
        assert not graph.commit_changes(applied.graph_commit_id).changes
        assert not graph.diff(before, "main").changes
        assert not graph.diff("main", before).changes
    load(graph, {"type": "P", "data": {"k": "a", "w": 2**40, "d": 3}})
    (change,) = graph.diff(before, "main").changes
    assert (change.op, change.before.properties["w"], change.after.properties["w"]) == (
        "update",
        1,
        2**40,
    )
    (back,) = graph.diff("main", before).changes
    assert (back.before.properties["v"], back.after.properties["v"]) == (2**40, 1)


def test_the_entities_of_a_dropped_type_are_deleted_and_those_of_a_new_one_inserted(graph):
    load(graph, p("a", v=1))
    before = graph.snapshot().graph_commit_id
    dropped = graph.apply_schema("node X { k: String @key }").commit
    assert told(graph.commit_changes(dropped.graph_commit_id).changes) == [
        ("node", "P", "a", "delete")
    ]
    (change,) = graph.commit_changes(dropped.graph_commit_id, types=["P"]).changes
    assert change.before.properties["v"] == 1
    again = graph.apply_schema(SCHEMA).commit
    assert not graph.commit_changes(again.graph_commit_id).changes
    load(graph, p("a", v=1), p("b"))
    assert told(graph.diff(before, "main").changes) == [
        ("node", "P", "a", "delete"),
        ("node", "P", "a", "insert"),
        ("node", "P", "b", "insert"),
    ]
    with pytest.raises(NotFoundError):
        graph.diff(before, "main", types=["X"])


def replayed(state, changes):
    """What a reader has who knows nothing of types that share a name."""
    for one in changes:
        if one.op == "delete":
            del state[one.kind, one.type_name, one.id]
        else:
            state[one.kind, one.type_name, one.id] = one.after.properties
    return state


def test_who_repeats_the_changes_of_a_type_that_was_made_again_ends_with_what_is_there(graph):
    q = {"type": "Q", "data": {"k": "q"}}
    e = {"edge": "E", "from": "a", "to": "q", "data": {"id": "e", "w": 1}}
    base = load(graph, p("a", v=1), p("b"), q, e).graph_commit_id
    state = replayed({}, graph.diff(graph.commits()[-1].graph_commit_id, base).changes)
    graph.create_branch("side")
    graph.apply_schema("node Q { k: String @key }", branch="side")
    new = "node P { k: String @key  v: String? } node Q { k: String @key } edge E: P -> Q"
    graph.apply_schema(new, branch="side")
    load(graph, p("a", v="x"), p("c"), {**e, "data": {"id": "e"}}, branch="side")
    merged = graph.merge("side").commit.graph_commit_id
    expected = {
        ("node", "P", "a"): {"k": "a", "v": "x"},
        ("node", "P", "c"): {"k": "c", "v": None},
        ("node", "Q", "q"): {"k": "q"},
        ("edge", "E", "e"): {},
    }
    told_at_once = graph.diff(base, "main").changes
    assert told(told_at_once)[:2] == [("node", "P", "a", "delete"), ("node", "P", "a", "insert")]
    assert replayed({**state}, told_at_once) == expected
    pages, token = [], None
    while token is not None or not pages:
        pages.append(graph.commit_changes(merged, limit=1, page_token=token))
        token = pages[-1].next_page_token
    assert replayed({**state}, [one for page in pages for one in page.changes]) == expected
    fed = graph.changes(start=f"after:{base}").blocks
    assert replayed({**state}, [one for block in fed for one in block.changes]) == expected


def test_branches_of_different_schemas_are_compared(graph):
    load(graph, p("a", v=1), p("b", v=2))
    graph.create_branch("side")
    graph.apply_schema(
        SCHEMA.replace("node P {", 'node R @rename_from("P") { d: I32 @default(3) ').replace(
            "P -> Q", "R -> Q"
        ),
        branch="side",
    )
    assert not graph.diff("main", "side").changes
    load(graph, p("b", v=5))
    graph.load('{"type":"R","data":{"k":"a","v":1,"d":4}}', mode="merge", branch="side")
    assert told(graph.diff("main", "side").changes) == [
        ("node", "R", "a", "update"),
        ("node", "R", "b", "update"),
    ]
    assert told(graph.diff("side", "main", types=["R"]).changes) == [("node", "P", "b", "update")]


@pytest.mark.parametrize("seen_as", ["Blob", "String", "Vector(2)", "Bool"])
def test_branches_that_added_one_property_as_different_things_are_compared(graph, seen_as):
    load(graph, p("a", v=1), p("b", v=2))
    values = {
        "Blob": "base64:YQ==", "String": "x", "Vector(2)": [1.0, 2.0], "Vector(3)": [1.0, 2.0, 3.0],
        "I32": 5, "Bool": True,
    }  # fmt: skip
    for kind, value in values.items():
        graph.create_branch(kind)
        graph.apply_schema(SCHEMA.replace("v: I32?", f"v: I32?  new: {kind}?"), branch=kind)
        graph.load([p("a", v=1, new=value)], mode="merge", branch=kind)
    for kind in values.keys() - {seen_as}:
        (change,) = graph.diff(kind, seen_as).changes
        assert (change.id, change.op, change.before.properties["new"]) == ("a", "update", None)
        assert change.after.properties["new"] is not None
        assert len(graph.entity_history("node", "P", "a", branch=kind)) == 2


# --- the feed --------------------------------------------------------------------------------


def test_a_feed_goes_on_where_its_cursor_says(graph):
    start = graph.changes()
    assert (start.blocks, start.caught_up) == ((), True)
    first, second = load(graph, p("a")), load(graph, p("b"))
    page = graph.changes(cursor=start.cursor)
    assert [block.cause.graph_commit_id for block in page.blocks] == [
        first.graph_commit_id,
        second.graph_commit_id,
    ]
    assert page.caught_up
    assert graph.changes(cursor=page.cursor).blocks == ()
    after = graph.changes(start=f"after:{first.graph_commit_id}")
    assert [block.cause.graph_commit_id for block in after.blocks] == [second.graph_commit_id]
    # At least once: the same cursor gives the same again.
    assert graph.changes(cursor=start.cursor) == page


def test_a_page_ends_on_a_commit_or_says_where_inside(graph):
    load(graph, p("a"), p("b"), p("c"))
    load(graph, p("d"))
    page = graph.changes(start="beginning", limit=2)
    assert page.cursor is None
    assert page.caught_up is None
    assert told(page.blocks[0].changes)[0][2] == "a"
    rest = graph.changes(page_token=page.next_page_token, limit=2)
    assert [one[2] for block in rest.blocks for one in told(block.changes)] == ["c", "d"]
    assert rest.caught_up
    body = json.loads(json.dumps(page.to_json()))
    assert "cursor" not in body
    assert body["next_page_token"] == page.next_page_token


def test_a_merge_is_one_block_of_the_target(graph):
    load(graph, p("a"))
    graph.create_branch("side")
    load(graph, p("b"), branch="side")
    load(graph, p("c"), branch="side")
    cursor = graph.changes().cursor
    merge = graph.merge("side").commit
    (block,) = graph.changes(cursor=cursor).blocks
    assert block.cause.graph_commit_id == merge.graph_commit_id
    assert [one.id for one in block.changes] == ["b", "c"]


def test_a_filtered_feed_still_walks_every_commit(graph):
    load(graph, p("a"))
    load(graph, {"type": "Q", "data": {"k": "q"}})
    page = graph.changes(start="beginning", types=["Q"])
    assert [len(block.changes) for block in page.blocks] == [0, 1]
    assert page.caught_up


WRONG = [
    lambda graph, cursor: graph.changes(cursor=cursor[:-4]),
    lambda graph, cursor: graph.changes(cursor="A" + cursor[1:]),
    lambda graph, cursor: graph.changes(cursor="no token"),
    lambda graph, cursor: graph.changes(cursor=""),
    lambda graph, cursor: graph.changes(cursor="é"),
    lambda graph, cursor: graph.changes(cursor="A" * 5000),
    lambda graph, cursor: graph.changes(page_token=cursor),
    lambda graph, cursor: graph.changes(cursor=cursor, types=["P"]),
    lambda graph, cursor: graph.changes(cursor=cursor, branch="side"),
    lambda graph, cursor: graph.commit_changes(graph.snapshot().graph_commit_id, page_token=cursor),
]


@pytest.mark.parametrize("ask", WRONG)
def test_a_token_that_does_not_belong_here_is_rejected(graph, ask):
    load(graph, p("a"))
    graph.create_branch("side")
    cursor = graph.changes().cursor
    with pytest.raises(InputError, match="change cursor rejected: "):
        ask(graph, cursor)


def test_a_cursor_of_another_life_of_a_branch_is_rejected(graph):
    graph.create_branch("side")
    cursor = graph.changes(branch="side").cursor
    graph.delete_branch("side", force=True)
    graph.create_branch("side")
    with pytest.raises(InputError, match="change cursor rejected: "):
        graph.changes(branch="side", cursor=cursor)


def test_a_cursor_of_another_graph_is_rejected(graph, tmp_path):
    with Graph.init(tmp_path / "other.omni", SCHEMA, durability="process") as other:
        cursor = other.changes().cursor
    with pytest.raises(InputError, match="change cursor rejected: "):
        graph.changes(cursor=cursor)


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": "yesterday"},
        {"start": "after:"},
        {"start": "now", "cursor": "x"},
        {"start": "now", "limit": 0},
        {"start": "now", "limit": 100_000},
    ],
)
def test_a_wrong_start_is_an_input_error(graph, wrong):
    with pytest.raises(InputError):
        graph.changes(**wrong)


def test_a_start_after_an_unknown_commit_is_a_gap(graph):
    with pytest.raises(ChangeFeedGapError):
        graph.changes(start="after:01M0000000000000000000000X")


def test_a_hard_drop_leaves_a_gap_that_is_named(graph):
    load(graph, p("a", s="x"))
    commit = load(graph, p("a", s="y"))
    graph.apply_schema(SCHEMA.replace("  s: String?", ""), allow_data_loss=True)
    with pytest.raises(ChangeFeedGapError):
        graph.commit_changes(commit.graph_commit_id)


def test_a_feed_goes_through_schema_changes(graph):
    load(graph, p("a"))
    graph.apply_schema(SCHEMA.replace("v: I32?", "v: I64?") + "node T { k: String @key }")
    load(graph, p("b"), {"type": "T", "data": {"k": "t"}})
    page = graph.changes(start="beginning")
    assert [one.id for block in page.blocks for one in block.changes] == ["a", "b", "t"]
    assert page.caught_up
    late = graph.changes(start="beginning", types=["T"])
    assert [one.id for block in late.blocks for one in block.changes] == ["t"]
    graph.apply_schema(SCHEMA.replace("v: I32?", "v: I64?"))
    gone = graph.changes(cursor=late.cursor, types=["T"])
    assert [(one.id, one.op) for block in gone.blocks for one in block.changes] == [("t", "delete")]
    with pytest.raises(NotFoundError):
        graph.changes(start="beginning", types=["Nobody"])
