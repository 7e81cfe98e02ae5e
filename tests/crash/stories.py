"""The stories of the crash matrix: how each kind of writer is brought to each of its steps.

A story builds a small graph, then does one thing to it (`act`). The matrix runs `act` once
undisturbed to learn which steps it reaches and what the graph looks like afterwards, and then again
with a crash at each of these steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lance

from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
"""

SEED = "\n".join(
    [
        '{"type":"Person","data":{"name":"ada","age":36}}',
        '{"type":"Person","data":{"name":"bob","age":25}}',
        '{"type":"Person","data":{"name":"cyd"}}',
        '{"type":"Company","data":{"name":"acme"}}',
        '{"edge":"Knows","from":"ada","to":"bob","data":{"id":"k1"}}',
        '{"edge":"Knows","from":"bob","to":"cyd","data":{"id":"k2"}}',
        '{"edge":"WorksAt","from":"ada","to":"acme","data":{"id":"w1"}}',
    ]
)

PAIR = """
query pair() {
  insert Person { name: "eve", age: 7 }
  insert Knows { from: "ada", to: "eve" }
}
query older() { update Person set { age: 99 } where name = "ada" }
query drop() { delete Person where name = "bob" }
query people() { match { $p: Person } return { $p.name } }
query found() {
  match { $p: Person  $p knows $q }
  update $p set { age: 1 }
  returning { $p.age }
}
query after() { insert Person { name: "zoe" } }
"""


@dataclass(frozen=True)
class Story:
    """One writer at work. `branch` is the branch whose content the act changes.

    `again` says that the act itself is what has to be done again if it never began.
    """

    name: str
    act: Callable[[Graph], Any]
    prepare: Callable[[Graph], Any] = lambda graph: None
    branch: str = "main"
    again: bool = False

    def mend(self, graph: Graph) -> None:
        if self.again:
            self.act(graph)


def _load(mode: str, *lines: str, branch: str = "main") -> Callable[[Graph], Any]:
    return lambda graph: graph.load("\n".join(lines), mode=mode, branch=branch)


def _mutate(name: str, branch: str = "main") -> Callable[[Graph], Any]:
    return lambda graph: graph.mutate(PAIR, name, branch=branch, actor="act-writer")


def _transaction(branch: str = "main") -> Callable[[Graph], Any]:
    def act(graph: Graph) -> None:
        with graph.transaction(branch, actor="act-writer", message="all at once") as tx:
            tx.mutate(PAIR, "pair")
            assert tx.query(PAIR, "people").row_count == 4
            tx.load('{"type":"Company","data":{"name":"new"}}', mode="append")
            tx.mutate(PAIR, "drop")
            assert tx.mutate(PAIR, "found").affected_nodes == 1

    return act


NOTES = SCHEMA + 'node Note { name: String @key  text: String? @index(language="english") }'


EVOLVED = """
node Person { name: String @key  years: I64? @rename_from("age")  rank: I32 @default(7) }
node Firm @rename_from("Company") { name: String @key  city: String? }
node Toy { name: String @key }
edge Knows: Person -> Person { since: Date? }
"""


DROPPED = """
node Person { name: String @key }
edge Knows: Person -> Person
"""


def _two_sides(graph: Graph) -> None:
    """A branch and main that both went on, without a conflict."""
    graph.create_branch("side")
    graph.mutate(PAIR, "pair", branch="side")
    graph.mutate(PAIR, "older")


# Each side brings columns to three tables and makes a type; one also names one anew and drops one.
SHARED = """
node Person { name: String @key  age: I32?  rank: I32 @default(7) }
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
edge Likes: Person -> Person
"""
SIDE = """
node Person {
  name: String @key  years: I64? @rename_from("age")  rank: I32?  level: I32 @default(3)
}
node Firm @rename_from("Company") { name: String @key  size: I32 @default(1) }
node Toy { name: String @key }
edge Knows: Person -> Person { since: Date?  weight: F64? @default(0.5) }
edge WorksAt: Person -> Firm
"""
HERE = """
node Person { name: String @key  age: I32?  rank: I32 @default(7)  born: Date? }
node Company { name: String @key  city: String? @default("?") }
node City { name: String @key }
edge Knows: Person -> Person { since: Date?  note: String? }
edge WorksAt: Person -> Company
edge Likes: Person -> Person
"""
FILLED = """
node Person { name: String @key  rank: I32 @default(7) }
node Company { name: String @key  size: I32 @default(1) }
edge Knows: Person -> Person { weight: F64 @default(0.5) }
edge WorksAt: Person -> Company { role: String @default("staff") }
"""
# New values, and columns that may be null now: Lance takes those in two versions of a table.
RELAXED = """
node Person { name: String @key  rank: I32?  born: I32 @default(1) }
node Company { name: String @key  size: I32?  city: String @default("?") }
edge Knows: Person -> Person { weight: F64?  note: String @default("") }
edge WorksAt: Person -> Company { role: String? }
"""


def _many_tables(graph: Graph) -> None:
    """Two schemas over many tables: some need columns, some rows and some both, on either side."""
    graph.apply_schema(SHARED)
    graph.load('{"edge":"Likes","from":"ada","to":"bob","data":{"id":"l1"}}', mode="append")
    graph.create_branch("side")
    graph.apply_schema(SIDE, branch="side")
    graph.load(
        "\n".join(
            [
                '{"type":"Person","data":{"name":"ada","years":5,"level":1}}',
                '{"type":"Person","data":{"name":"fay","years":8}}',
                '{"type":"Toy","data":{"name":"ball"}}',
                '{"edge":"Knows","from":"fay","to":"ada","data":{"id":"k7","weight":2.0}}',
                '{"edge":"WorksAt","from":"fay","to":"acme","data":{"id":"w7"}}',
            ]
        ),
        mode="merge",
        branch="side",
    )
    graph.mutate(PAIR, "drop", branch="side")
    graph.apply_schema(HERE)
    graph.load(
        "\n".join(
            [
                '{"type":"City","data":{"name":"rome"}}',
                '{"type":"Company","data":{"name":"new","city":"rome"}}',
                '{"type":"Person","data":{"name":"eve","age":7}}',
                '{"edge":"Knows","from":"eve","to":"ada","data":{"id":"k8","note":"hi"}}',
                '{"edge":"WorksAt","from":"eve","to":"acme","data":{"id":"w8"}}',
            ]
        ),
        mode="merge",
    )


def _filled(graph: Graph) -> None:
    """Some tables are the branch's own, one it has only inherited."""
    graph.apply_schema(FILLED, allow_data_loss=True)
    graph.create_branch("side")
    graph.mutate(PAIR.replace(", age: 7", ""), "pair", branch="side")


def _small_commits(graph: Graph, branch: str = "main") -> None:
    for name in ("fay", "gus"):
        line = f'{{"type":"Person","data":{{"name":"{name}"}}}}'
        edge = f'{{"edge":"Knows","from":"{name}","to":"ada","data":{{"id":"{name}"}}}}'
        graph.load(f"{line}\n{edge}", mode="append", branch=branch)


def _delete_behind_its_back(graph: Graph) -> None:
    for key in ("node:Person", "edge:Knows"):
        entry = graph.snapshot().entries[key]
        lance.dataset(f"{graph.uri}/{entry.dataset_path}").delete("id in ('ada', 'k1')")


STORIES: tuple[Story, ...] = (
    Story("mutation: a node and its edge", _mutate("pair")),
    Story("mutation: an update", _mutate("older")),
    Story("mutation: a delete that cascades", _mutate("drop")),
    Story(
        "mutation: the first write on a branch",
        _mutate("pair", "side"),
        prepare=lambda graph: graph.create_branch("side"),
        branch="side",
    ),
    Story("transaction: inserts, reads, a load and a delete", _transaction()),
    Story(
        "transaction: on a branch",
        _transaction("side"),
        prepare=lambda graph: graph.create_branch("side"),
        branch="side",
    ),
    Story("mutation: what a pattern finds, returned", _mutate("found")),
    Story(
        "load: append",
        _load(
            "append",
            '{"type":"Person","data":{"name":"eve"}}',
            '{"edge":"Knows","from":"eve","to":"ada","data":{"id":"k9"}}',
        ),
    ),
    Story(
        "load: merge",
        _load(
            "merge",
            '{"type":"Person","data":{"name":"ada","age":1}}',
            '{"type":"Company","data":{"name":"new"}}',
        ),
    ),
    Story(
        "load: overwrite",
        _load("overwrite", '{"edge":"Knows","from":"cyd","to":"ada","data":{"id":"k5"}}'),
    ),
    Story(
        "merge: a branch into main",
        lambda graph: graph.merge("side", actor="act-merger"),
        prepare=_two_sides,
    ),
    Story(
        "merge: main into a branch",
        lambda graph: graph.merge("main", into="side", actor="act-merger"),
        prepare=_two_sides,
        branch="side",
    ),
    Story(
        "merge: with schemas of many tables, into main",
        lambda graph: graph.merge("side", actor="act-merger"),
        prepare=_many_tables,
    ),
    Story(
        "merge: with schemas of many tables, into a branch",
        lambda graph: graph.merge("main", into="side", actor="act-merger"),
        prepare=_many_tables,
        branch="side",
    ),
    Story(
        "schema: columns of many tables in several versions on a branch",
        lambda graph: graph.apply_schema(RELAXED, actor="act-architect", branch="side"),
        prepare=_filled,
        branch="side",
    ),
    Story(
        "revert: a node and its edge",
        lambda graph: graph.revert(graph.snapshot().graph_commit_id, actor="act-undoer"),
        prepare=_mutate("pair"),
    ),
    Story(
        "schema: renames, columns, a new and a dropped type",
        lambda graph: graph.apply_schema(EVOLVED, actor="act-architect"),
    ),
    Story(
        "schema: renames, columns, a new and a dropped type on a branch",
        lambda graph: graph.apply_schema(EVOLVED, actor="act-architect", branch="side"),
        prepare=_two_sides,
        branch="side",
    ),
    Story(
        "schema: drops with their past on a branch",
        lambda graph: graph.apply_schema(DROPPED, allow_data_loss=True, branch="side"),
        prepare=_two_sides,
        branch="side",
    ),
    Story("branch: create", lambda graph: graph.create_branch("side")),
    Story(
        "branch: delete",
        lambda graph: graph.delete_branch("side"),
        prepare=lambda graph: (_two_sides(graph), graph.merge("side")),
    ),
    Story(
        "branch: delete of unmerged work",
        lambda graph: graph.delete_branch("side", force=True),
        prepare=_two_sides,
    ),
    Story(
        "branch: restore",
        lambda graph: graph.restore_branch("side"),
        prepare=lambda graph: (_two_sides(graph), graph.delete_branch("side", force=True)),
    ),
    Story(
        "branch: delete of one that a tag needs",
        lambda graph: graph.delete_branch("side", force=True),
        prepare=lambda graph: (_two_sides(graph), graph.create_tag("kept", "side")),
    ),
    Story("tag: create", lambda graph: graph.create_tag("v1", "side~1"), prepare=_two_sides),
    Story(
        "tag: delete",
        lambda graph: graph.delete_tag("v1"),
        prepare=lambda graph: (_two_sides(graph), graph.create_tag("v1", "side")),
    ),
    Story("optimize: two tables", lambda graph: graph.optimize(), prepare=_small_commits),
    Story(
        "optimize: a branch",
        lambda graph: graph.optimize("side"),
        prepare=lambda graph: (graph.create_branch("side"), _small_commits(graph, "side")),
        branch="side",
    ),
    Story(
        "load: texts whose words are stored",
        _load("append", '{"type":"Note","data":{"name":"n1","text":"a graph"}}'),
        prepare=lambda graph: graph.apply_schema(NOTES),
    ),
    Story("ensure_indices", lambda graph: graph.ensure_indices()),
    Story(
        "repair: two tables put back",
        lambda graph: graph.repair(confirm=True, restore=True),
        prepare=_delete_behind_its_back,
        again=True,
    ),
)

BY_NAME = {story.name: story for story in STORIES}


def build(uri: str, story: Story) -> None:
    """The graph as it is before the act."""
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load(SEED, mode="overwrite", actor="act-seed")
        story.prepare(graph)
