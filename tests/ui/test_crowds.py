"""Drawings of more nodes than anybody can count."""

from __future__ import annotations

from contextlib import contextmanager
from urllib.parse import quote

import pytest
from serving import serving

from omnigraph import Graph

pytestmark = pytest.mark.xdist_group("console")

EDGES_IN_MOTION = 4_000  # as in many.ts
# Each node has an edge to those so many times its own number.
TIMES = (7, 11, 13, 17, 19)


@contextmanager
def drawn(opened, folder, count, times):
    """The page that draws a graph of `count` nodes, and how many edges they have."""
    with Graph.init(folder / "big.omni", "node N { k: String @key }\nedge E: N -> N") as graph:
        lines = [f'{{"type":"N","data":{{"k":"n{at}"}}}}' for at in range(count)]
        lines += [
            f'{{"edge":"E","from":"n{at}","to":"n{at * factor % count}","data":{{}}}}'
            for factor in times
            for at in range(count)
        ]
        graph.load("\n".join(lines), mode="append")
    with serving([folder / "big.omni"], folder=folder) as served:
        console = opened(served, "big")
        console.page.set_default_timeout(120_000)
        source = f"query q() {{ match {{ $n: N }} return {{ $n }} limit {count} }}"
        page = console.visit(f"query?q={quote(source)}&ran=1&view=graph")
        edges = count * len(times)
        page.locator(f".canvas-drawing[data-nodes='{count}'][data-edges='{edges}']").wait_for()
        yield page, edges
        assert console.problems == []


def rests(page, edges):
    """Every edge is painted, and the nodes have their places."""
    page.locator(f".canvas-drawing[data-layout=done][data-painted='{edges}']").wait_for()


def test_in_motion_some_edges_stand_for_all_and_a_node_of_a_crowd_is_chosen(opened, tmp_path):
    with drawn(opened, tmp_path, 1_100, TIMES) as (page, edges):
        rests(page, edges)
        fewest = page.evaluate(MOVED)["fewest"]
        assert 0 < fewest <= EDGES_IN_MOTION < edges
        rests(page, edges)
        page.get_by_role("button", name="Show all").click()
        rests(page, edges)
        page.mouse.move(*page.evaluate(NODE))
        assert page.locator(".canvas-drawing canvas").evaluate("one => one.style.cursor")
        page.mouse.down()
        page.mouse.up()
        assert page.locator(".chosen").inner_text().startswith("N n")


@pytest.mark.slow
def test_twenty_thousand_nodes_are_drawn_while_the_page_answers(opened, tmp_path, record_property):
    with drawn(opened, tmp_path, 20_000, TIMES[:2]) as (page, edges):
        placing = page.evaluate(MOVED)
        rests(page, edges)
        moving = page.evaluate(MOVED)
        rests(page, edges)
        rates = (placing["rate"], moving["rate"])
        record_property("frames a second while placed, while moved about", rates)
        assert 0 < moving["fewest"] <= EDGES_IN_MOTION


# Zooms in and out at every frame for a while.
MOVED = """() => new Promise(done => {
  let frames = 0, fewest = Infinity; const start = performance.now();
  const box = document.querySelector('.canvas-drawing');
  const {left, top, width, height} = box.getBoundingClientRect();
  const middle = {clientX: left + width / 2, clientY: top + height / 2};
  const tick = now => {
    frames += 1;
    fewest = Math.min(fewest, Number(box.dataset.painted));
    const init = {deltaY: frames % 20 < 10 ? -60 : 60, bubbles: true, ...middle};
    box.querySelector('canvas').dispatchEvent(new WheelEvent('wheel', init));
    if (now - start < 2000) requestAnimationFrame(tick);
    else done({rate: Math.round(frames * 10000 / (now - start)) / 10, fewest});
  };
  requestAnimationFrame(tick);
})"""
# A place on the screen where a node is painted: a point in the colour of the legend.
NODE = """() => {
  const canvas = document.querySelector('.canvas-drawing canvas');
  const colour = getComputedStyle(document.querySelector('.legend .dot')).backgroundColor;
  const wanted = colour.match(/[0-9]+/g).map(Number);
  const {width, height} = canvas;
  const points = canvas.getContext('2d').getImageData(0, 0, width, height).data;
  const {left, top} = canvas.getBoundingClientRect();
  const scale = canvas.clientWidth / width;
  for (let at = 4 * width * Math.floor(height / 2); at < points.length; at += 4)
    if (wanted.every((value, part) => points[at + part] === value))
      return [left + (at / 4 % width) * scale, top + Math.floor(at / 4 / width) * scale];
}"""
