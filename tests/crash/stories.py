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


OTHER = """
node Person { name: String @key  age: I32?  nick: String? @default("none") }
node Company { name: String @key  city: String? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
"""


def _two_schemas(graph: Graph) -> None:
    """A branch and main that both went on, each with a schema of its own."""
    graph.create_branch("side")
    graph.apply_schema(EVOLVED, branch="side")
    graph.load(
        "\n".join(
            [
                '{"type":"Person","data":{"name":"ada","years":5,"rank":1}}',
                '{"type":"Toy","data":{"name":"ball"}}',
            ]
        ),
        mode="merge",
        branch="side",
    )
    graph.apply_schema(OTHER)
    # One table moves in several versions: how many of several tables moved would be chance.
    graph.load(
        '{"type":"City","data":{"name":"rome"}}\n{"type":"Person","data":{"name":"eve","age":7}}',
        mode="append",
    )


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
        "merge: with schemas, into main",
        lambda graph: graph.merge("side", actor="act-merger"),
        prepare=_two_schemas,
    ),
    Story(
        "merge: with schemas, into a branch",
        lambda graph: graph.merge("main", into="side", actor="act-merger"),
        prepare=_two_schemas,
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
