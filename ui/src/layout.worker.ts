// Places nodes by ForceAtlas2, away from the page's own thread. Positions are sent as they settle.
import forceAtlas2 from "graphology-layout-forceatlas2";
import defaults from "graphology-layout-forceatlas2/defaults.js";
import iterate from "graphology-layout-forceatlas2/iterate.js";

export interface Task {
  count: number;
  ends: Uint32Array; // from, to, from, to, …: numbers of nodes
  start: Float32Array; // x, y, x, y, …; NaN where a node has no place yet
}

/** While the page has better things to do, the layout waits. */
export interface Pause {
  paused: boolean;
}

export interface Placed {
  places: Float32Array;
  done: boolean;
}

const MANY = 5_000;
const SLICE_MS = 120; // between two pictures
const LONGEST_MS = 10_000; // nobody waits longer for better places
// What `iterate` keeps of a node: x, y, force, last force, mass, convergence, size, fixed; and of an edge: both ends, weight.
const OF_NODE = 10;
const MASS = 6;

/** How many rounds are worth it: few nodes settle well, many are to be seen soon. */
function rounds(count: number): number {
  return count < 500 ? 400 : 150;
}

/** A place for a node that has none: a sunflower's seeds, so that none lie upon each other. */
function seed(at: number): [number, number] {
  const angle = at * 2.399963;
  const radius = 10 * Math.sqrt(at + 1);
  return [radius * Math.cos(angle), radius * Math.sin(angle)];
}

function matrices({ count, ends, start }: Task): { nodes: Float32Array; edges: Float32Array } {
  const nodes = new Float32Array(OF_NODE * count);
  for (let at = 0; at < count; at++) {
    const [x, y] = Number.isNaN(start[2 * at]) ? seed(at) : [start[2 * at], start[2 * at + 1]];
    nodes.set([x, y, 0, 0, 0, 0, 1, 1, 1, 0], OF_NODE * at);
  }
  const edges: number[] = [];
  const seen = new Set<number>();
  for (let at = 0; at < ends.length; at += 2) {
    const [a, b] = [Math.min(ends[at], ends[at + 1]), Math.max(ends[at], ends[at + 1])];
    if (a === b || seen.has(a * count + b)) continue;
    seen.add(a * count + b);
    edges.push(OF_NODE * a, OF_NODE * b, 1);
    nodes[OF_NODE * a + MASS] += 1;
    nodes[OF_NODE * b + MASS] += 1;
  }
  return { nodes, edges: Float32Array.from(edges) };
}

let resume: (() => void) | undefined;
let paused = false;

function begin(task: Task): void {
  const { count } = task;
  const { nodes, edges } = matrices(task);
  const settings = { ...defaults, ...forceAtlas2.inferSettings(Math.max(count, 2)), barnesHutOptimize: count > 500, barnesHutTheta: count > MANY ? 1.2 : 0.5, gravity: 0.6 };
  const most = rounds(count);
  let done = 0;
  let spent = 0;
  resume = () => {
    const start = performance.now();
    while (done < most && performance.now() - start < SLICE_MS) {
      if (count > 1) iterate(settings, nodes, edges);
      done += 1;
    }
    spent += performance.now() - start;
    const places = Float32Array.from({ length: 2 * count }, (_, at) => nodes[OF_NODE * (at >> 1) + (at & 1)]);
    const placed: Placed = { places, done: done >= most || spent > LONGEST_MS };
    postMessage(placed, { transfer: [places.buffer] });
    if (placed.done) resume = undefined;
    else if (!paused) setTimeout(() => !paused && resume?.(), 0);
  };
  resume();
}

onmessage = ({ data }: MessageEvent<Task | Pause>) => {
  if ("count" in data) return begin(data);
  const waited = paused;
  paused = data.paused;
  if (waited && !paused) resume?.();
};
