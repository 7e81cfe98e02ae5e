"""The picture of a network is well-formed, harmless and the same every time."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from omnigraph.engine.read.network import draw_graph, small_graph

NASTY = "<script>alert('&')</script>\x00\x1b"


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", "b"), ("b", "c"), ("c", "a")],
        [("alone", None)],
        [("loop", "loop")],
        [(NASTY, "b")],
        [("a", "b"), ("x", "y")],
        [(f"n{n}", f"n{n * 7 % 60}") for n in range(60)],
    ],
    ids=["cycle", "alone", "loop", "nasty", "two parts", "largest"],
)
def test_a_graph_is_drawn_with_every_node_inside_the_picture(pairs):
    graph = small_graph(pairs)
    svg = draw_graph(graph)
    root = ET.fromstring(svg)
    circles = [one for one in root.iter() if one.tag.endswith("circle")]
    assert len(circles) == len(graph.nodes)
    for one in circles:
        assert 0 < float(one.get("cx")) < 760
        assert 0 < float(one.get("cy")) < 460
    assert len({(one.get("cx"), one.get("cy")) for one in circles}) == len(circles)
    assert svg == draw_graph(graph)
    assert "<script" not in svg


def test_a_graph_is_small_up_to_a_limit():
    assert small_graph((f"{n}", f"{n + 1}") for n in range(59)).is_small
    assert not small_graph((f"{n}", f"{n + 1}") for n in range(60)).is_small
    assert not small_graph([]).is_small
