"""Pictures: well-formed, the same every time, safe, and no name above another."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from itertools import combinations

import msgspec
import pytest

from omnigraph.compiler.schema import compile_schema
from omnigraph.model.graph import Commit
from omnigraph.model.pictures.commits import Commits, draw_commits, in_order
from omnigraph.model.pictures.network import _layout, draw_graph, label_boxes, small_graph
from omnigraph.model.pictures.schema import TYPES_DRAWN_MAX, draw_schema
from omnigraph.model.pictures.steps import draw_steps
from omnigraph.model.pictures.svg import Box, text_width

NASTY = "<script>alert('&')</script>\x00\x1b"


def texts(svg: str) -> list[str]:
    return ["".join(one.itertext()) for one in ET.fromstring(svg).iter() if one.tag[-4:] == "text"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("nodes", [2, 15, 60])
def test_no_name_of_a_network_stands_above_another(seed, nodes):
    chance = random.Random(seed)
    names = [f"node-{n}-{'x' * chance.randrange(24)}" for n in range(nodes)]
    graph = small_graph((chance.choice(names), chance.choice(names)) for _ in range(3 * nodes))
    boxes = label_boxes(graph, _layout(graph))
    assert not [(a, b) for (a, one), (b, two) in combinations(boxes.items(), 2) if one.meets(two)]


@pytest.mark.parametrize(
    "schema",
    [
        "node Alone { name: String @key }",
        "node A { x: I32? }\nnode B { y: I32? }\nedge Likes: A -> B\nedge Hates: A -> B",
        "node A { x: I32? }\nedge Self: A -> A\nedge Again: A -> A\nedge More: A -> A",
        'node A @description("<&>") { x: I32? }\nedge Self: A -> A',
        "\n".join(f"node T{n} {{ name: String @key }}" for n in range(TYPES_DRAWN_MAX + 3)),
    ],
)
def test_a_schema_shows_its_types_properties_and_edges_apart(schema):
    catalog = compile_schema(schema)
    svg = draw_schema(catalog)
    shown = texts(svg)
    for name in [*list(catalog.nodes)[:2], *catalog.edges]:
        assert name in shown
    assert svg == draw_schema(catalog)
    boxes = [
        Box(float(one.get("x")), float(one.get("y")) - 10, text_width(one.text or ""), 12)
        for one in ET.fromstring(svg).iter()
        if one.tag.endswith("text")
    ]
    assert not [(one, two) for one, two in combinations(boxes, 2) if one.meets(two)]


def commit(commit_id, parent, *, branch="main", merged=None, at=0):
    return Commit(
        graph_commit_id=commit_id,
        parent_commit_id=parent,
        merged_parent_commit_id=merged,
        graph_branch=branch,
        graph_manifest_version=1,
        actor_id=NASTY,
        created_us=at,
        properties={"message": f"{NASTY}\nmore"},
    )


def test_a_history_links_every_commit_to_both_its_parents():
    commits = [
        commit("m", "b", merged="c", at=4),
        commit("c", "a", branch="draft", at=3),
        commit("b", "a", at=2),
        commit("a", None, at=1),
    ]
    svg = draw_commits(in_order(commits), {"m": ["main"], "c": ["draft"]})
    assert svg.count("<path") == 4
    assert "[draft]" in "".join(texts(svg))
    assert "<script" not in svg
    assert "<svg" in Commits(commits)._repr_html_()


def test_a_history_without_its_oldest_commits_is_still_drawn():
    assert draw_commits([commit("b", "gone")], {}).count("<path") == 0
    assert draw_commits([], {}).startswith("<svg")


class Step(msgspec.Struct):
    name: str
    detail: str = ""
    estimated_rows: int | None = None
    rows: int | None = None
    took_ms: float | None = None
    children: list[Step] = msgspec.field(default_factory=list)


def test_steps_are_a_tree_with_a_line_each():
    tree = Step(
        "query", rows=3, children=[Step("match", NASTY, 9, 4, 2.5, [Step("scan")]), Step("order")]
    )
    shown = texts(draw_steps(tree))
    assert shown[0] == "query"
    assert "4 of about 9 rows" in shown
    assert "2.50 ms" in shown
    assert ET.fromstring(draw_steps(Step("query"))) is not None


def test_every_picture_has_its_own_ground_and_colours_for_the_dark():
    for svg in (draw_graph(small_graph([("a", "b")])), draw_steps(Step("q")), draw_commits([], {})):
        assert "prefers-color-scheme:dark" in svg
        assert 'class="og-ground"' in svg
