// Places nodes by ForceAtlas2, away from the page's own thread. Positions are sent as they settle.
import Graph from "graphology";
import forceAtlas2 from "graphology-layout-forceatlas2";

export interface Task {
  count: number;
  ends: Uint32Array; // from, to, from, to, …: numbers of nodes
  start: Float32Array; // x, y, x, y, …; NaN where a node has no place yet
  fixed: number; // the first so many nodes stay where they are
}

export interface Placed {
  places: Float32Array;
  done: boolean;
}

const MANY = 5_000;
const SLICE_MS = 120; // between two pictures
const SLICE_OF_MANY_MS = 500; // a picture of many nodes takes long itself
const LONGEST_MS = 10_000; // nobody waits longer for better places

/** How many rounds are worth it: few nodes settle well, many are to be seen soon. */
function rounds(count: number): number {
  return count < 500 ? 400 : count < MANY ? 150 : 60;
}

/** A place for a node that has none: a sunflower's seeds, so that none lie upon each other. */
function seed(at: number): [number, number] {
  const angle = at * 2.399963;
  const radius = 10 * Math.sqrt(at + 1);
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
}

onmessage = (event: MessageEvent<Task>) => {
  const { count, ends, start, fixed } = event.data;
  const graph = new Graph({ type: "undirected", multi: false });
  for (let at = 0; at < count; at++) {
    const [x, y] = Number.isNaN(start[2 * at]) ? seed(at) : [start[2 * at], start[2 * at + 1]];
    graph.addNode(at, { x, y, size: 1, fixed: at < fixed });
  }
  for (let at = 0; at < ends.length; at += 2) {
    if (ends[at] !== ends[at + 1]) graph.mergeEdge(ends[at], ends[at + 1]);
  }
  const settings = { ...forceAtlas2.inferSettings(Math.max(count, 2)), barnesHutOptimize: count > 500, gravity: 0.6, adjustSizes: false };
  const most = rounds(count);
  const last = performance.now() + LONGEST_MS;
  let done = 0;
  const slice = () => {
    const until = performance.now() + (count > MANY ? SLICE_OF_MANY_MS : SLICE_MS);
    while (done < most && performance.now() < until) {
      const iterations = Math.min(count > MANY ? 1 : 10, most - done);
      if (count > 1) forceAtlas2.assign(graph, { iterations, settings });
      done += iterations;
    }
    const places = new Float32Array(2 * count);
    graph.forEachNode((key, node) => {
      places[2 * Number(key)] = node.x as number;
      places[2 * Number(key) + 1] = node.y as number;
    });
    const placed: Placed = { places, done: done >= most || performance.now() > last };
    postMessage(placed, { transfer: [places.buffer] });
    if (!placed.done) setTimeout(slice, 0);
  };
  slice();
};
