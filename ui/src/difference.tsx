// A difference, drawn: what is new, gone and changed, among what stayed around it.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { useAsked } from "./asked";
import { graph, type S } from "./api";
import { Waiting, count, plural } from "./bits";
import { MARKS, WORDS, keyOf, titleOf, type Change } from "./changes";
import { same, shown } from "./json";
import { layout, task } from "./layout";

type Op = Change["op"] | "same";

interface Node {
  key: string; // Type:id
  type: string;
  label: string;
  op: Op;
  change?: Change;
  disputed: boolean;
}

interface Edge {
  key: string;
  from: string;
  to: string;
  type: string;
  op: Op;
  change?: Change;
  disputed: boolean;
}

export interface Sides {
  from: string; // commits
  to: string;
  before: S["CatalogOutput"];
  after: S["CatalogOutput"];
}

const DRAWN = 240; // changed entities in one drawing
const AROUND = 5; // neighbours that stayed, of one changed node
const RADIUS = { same: 7, insert: 17, delete: 17, update: 17 };

export function labelsOf(...catalogs: S["CatalogOutput"][]): Map<string, string> {
  return new Map(catalogs.flatMap((one) => one.nodes.map((node) => [node.name, node.label] as [string, string])));
}

/** What is to be drawn: the changes, the ends of changed edges, and a few neighbours. */
async function gathered(changes: Change[], sides: Sides, disputed: Set<string>, signal: AbortSignal): Promise<{ nodes: Node[]; edges: Edge[] }> {
  const labels = labelsOf(sides.before, sides.after);
  const ends = new Map([...sides.before.edges, ...sides.after.edges].map((one) => [one.name, one]));
  const nodes = new Map<string, Node>();
  const edges = new Map<string, Edge>();
  const stayed = new Map<string, { type: string; id: string }>();
  for (const one of changes) {
    if (one.kind !== "node") continue;
    const key = `${one.type.name}:${one.id}`;
    nodes.set(key, { key, type: one.type.name, label: titleOf(one, labels), op: one.op, change: one, disputed: disputed.has(keyOf(one)) });
  }
  for (const one of changes) {
    const type = ends.get(one.type.name);
    const told = (one.after ?? one.before)?.endpoints;
    if (one.kind !== "edge" || !type || !told) continue;
    const [from, to] = [`${type.from}:${told.from}`, `${type.to}:${told.to}`];
    if (!nodes.has(from)) stayed.set(from, { type: type.from, id: told.from });
    if (!nodes.has(to)) stayed.set(to, { type: type.to, id: told.to });
    edges.set(`${one.type.name}:${one.id}`, { key: `${one.type.name}:${one.id}`, from, to, type: one.type.name, op: one.op, change: one, disputed: disputed.has(keyOf(one)) });
  }
  const asked = (keep: (node: Node) => boolean) => {
    const groups = new Map<string, string[]>();
    for (const node of nodes.values()) if (keep(node)) groups.set(node.type, [...(groups.get(node.type) ?? []), node.change!.id]);
    return groups;
  };
  const grouped = (groups: Map<string, string[]>) => [...groups].map(([type_name, ids]) => ({ type_name, ids }));
  const living = asked((node) => node.op !== "delete");
  const limit = Math.max(50, AROUND * 4 * nodes.size);
  const around = living.size ? await graph.neighbours({ snapshot: sides.to, nodes: grouped(living), limit }, signal) : { nodes: [], edges: [] };
  const others = new Map<string, string[]>();
  for (const { type, id } of stayed.values()) others.set(type, [...(others.get(type) ?? []), id]);
  const far = others.size ? await graph.neighbours({ snapshot: sides.from, nodes: grouped(others), among: true }, signal) : { nodes: [], edges: [] };
  const named = new Map([...far.nodes, ...around.nodes].map((one) => [`${one.type_name}:${one.id}`, one]));
  const add = (key: string) => {
    if (nodes.has(key)) return;
    const found = named.get(key);
    const at = key.indexOf(":");
    nodes.set(key, { key, type: key.slice(0, at), label: found?.label ?? key.slice(at + 1), op: "same", disputed: false });
  };
  for (const key of stayed.keys()) add(key);
  const taken = new Map<string, number>();
  for (const edge of [...around.edges, ...far.edges]) {
    const key = `${edge.type_name}:${edge.id}`;
    const [from, to] = [`${edge.from_type}:${edge.from}`, `${edge.to_type}:${edge.to}`];
    if (edges.has(key)) continue;
    const unknown = [from, to].filter((end) => !nodes.has(end));
    if (unknown.length > 1) continue;
    if (unknown.length === 1) {
      const changed = unknown[0] === from ? to : from;
      const n = taken.get(changed) ?? 0;
      if (n >= AROUND) continue;
      taken.set(changed, n + 1);
      add(unknown[0]);
    }
    edges.set(key, { key, from, to, type: edge.type_name, op: "same", disputed: false });
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}

type Places = Map<string, [number, number]>;

/** The places of the layout, large enough that labels do not lie upon each other. */
function spread(nodes: Node[], edges: Edge[], found: Float32Array): Places {
  const places: [number, number][] = nodes.map((_, at) => [found[2 * at], found[2 * at + 1]]);
  const number = new Map(nodes.map((node, at) => [node.key, at]));
  const lengths = edges
    .map((edge) => [places[number.get(edge.from)!], places[number.get(edge.to)!]])
    .filter(([a, b]) => a && b && a !== b)
    .map(([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]))
    .sort((a, b) => a - b);
  const usual = lengths[Math.floor(lengths.length / 2)] || 20;
  const scale = 120 / Math.max(usual, 1e-6);
  const reach = (axis: 0 | 1) => Math.max(...places.map((one) => one[axis])) - Math.min(...places.map((one) => one[axis]));
  const turned = reach(1) > reach(0); // screens are wider than high
  const wide = innerWidth > 760 ? 1.35 : 1;
  for (const one of places) {
    const [x, y] = turned ? [one[1], one[0]] : one;
    [one[0], one[1]] = [x * scale * wide, (y * scale) / wide];
  }
  const half = (node: Node): [number, number] => (node.op === "same" ? [38, 22] : [66, 38]);
  for (let round = 0; round < 60; round++) {
    let moved = false;
    for (let i = 0; i < places.length; i++) {
      for (let j = i + 1; j < places.length; j++) {
        const [dx, dy] = [places[j][0] - places[i][0], places[j][1] - places[i][1]];
        const [a, b] = [half(nodes[i]), half(nodes[j])];
        const [lapX, lapY] = [a[0] + b[0] - Math.abs(dx), a[1] + b[1] - Math.abs(dy)];
        if (lapX <= 0 || lapY <= 0) continue;
        moved = true;
        const along = lapX < lapY ? 0 : 1;
        const push = ((along ? lapY : lapX) / 2) * ((along ? dy : dx) < 0 ? -1 : 1);
        places[i][along] -= push;
        places[j][along] += push;
      }
    }
    if (!moved) break;
  }
  return new Map(nodes.map((node, at) => [node.key, places[at]]));
}

function clipped(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** The first properties of a changed entity that differ, in a line each. */
function told(one: Change): string[] {
  const [before, after] = [one.before?.properties ?? {}, one.after?.properties ?? {}];
  const names = Object.keys(after).filter((name) => !same(before[name] ?? null, after[name] ?? null));
  const lines = names.slice(0, 2).map((name) => clipped(`${name}: ${shown(before[name]) || "∅"} → ${shown(after[name]) || "∅"}`, 30));
  return names.length > 2 ? [...lines.slice(0, 1), `and ${names.length - 1} more`] : lines;
}

interface Props {
  changes: Change[];
  total: number;
  sides: Sides;
  disputed: Set<string>;
  chosen: string;
  choose: (key: string) => void;
}

export function Difference({ changes, total, sides, disputed, chosen, choose }: Props) {
  const some = useMemo(() => changes.slice(0, DRAWN), [changes]);
  const asked = useAsked((signal) => gathered(some, sides, disputed, signal), [some, sides, disputed]);
  return (
    <div class="difference">
      <Waiting asked={asked}>{(found) => <Picture nodes={found.nodes} edges={found.edges} chosen={chosen} choose={choose} />}</Waiting>
      <ul class="legend" aria-label="Meaning of the drawing">
        {(["insert", "update", "delete"] as const).map((op) => (
          <li key={op}>
            <span class={`mark ${op}`}>{MARKS[op]}</span> {WORDS[op]}
          </li>
        ))}
        <li><span class="dot stayed" /> stayed</li>
        {disputed.size > 0 && <li><span class="mark conflict">!</span> conflict</li>}
      </ul>
      {total > some.length && <p class="quiet foot">The first {count(some.length)} of {plural(total, "change")} are drawn; choose a type to see others.</p>}
    </div>
  );
}

interface View {
  x: number;
  y: number;
  width: number;
  height: number;
}

function Picture({ nodes, edges, chosen, choose }: { nodes: Node[]; edges: Edge[]; chosen: string; choose: (key: string) => void }) {
  const places = useSignal<Places | null>(null);
  const view = useSignal<View | null>(null);
  const drag = useRef<{ x: number; y: number; view: View } | null>(null);
  const box = useRef<SVGSVGElement>(null);
  useEffect(() => {
    const keys = nodes.map((node) => node.key);
    const placing = layout(task(keys, edges), (found) => {
      if (!found.done) return;
      places.value = spread(nodes, edges, found.places);
      view.value = null;
    });
    return placing.end;
  }, [nodes, edges]);
  const at = places.value;
  if (!nodes.length) return <p class="quiet">Nothing differs.</p>;
  if (!at || nodes.some((node) => !at.has(node.key))) return <p class="quiet" role="status">Drawing…</p>;
  const whole = bounds([...at.values()]);
  const now = view.value ?? whole;

  const zoom = (factor: number, x = now.x + now.width / 2, y = now.y + now.height / 2) => {
    const width = Math.min(Math.max(now.width * factor, 80), whole.width * 3);
    const real = width / now.width;
    view.value = { x: x - (x - now.x) * real, y: y - (y - now.y) * real, width, height: now.height * real };
  };
  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(box.current!.getScreenCTM()!.inverse());
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, place.x, place.y);
  };
  const moved = (event: PointerEvent) => {
    if (!drag.current) return;
    const scale = now.width / box.current!.clientWidth;
    const start = drag.current;
    view.value = { ...start.view, x: start.view.x - (event.clientX - start.x) * scale, y: start.view.y - (event.clientY - start.y) * scale };
  };
  const pressed = (event: KeyboardEvent) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step) view.value = { ...now, x: now.x + step[0] * now.width * 0.1, y: now.y + step[1] * now.height * 0.1 };
    else if (event.key === "+") zoom(1 / 1.3);
    else if (event.key === "-") zoom(1.3);
    else return;
    event.preventDefault();
  };
  const tally = (op: Op) => nodes.filter((one) => one.op === op).length + edges.filter((one) => one.op === op).length;
  return (
    <div class="canvas">
      <svg
        ref={box}
        class="difference-drawing"
        viewBox={`${now.x} ${now.y} ${now.width} ${now.height}`}
        tabindex={0}
        role="group"
        aria-label={`The difference drawn: ${tally("insert")} new, ${tally("update")} changed, ${tally("delete")} gone`}
        onWheel={wheel}
        onKeyDown={pressed}
        onPointerDown={(event) => (drag.current = { x: event.clientX, y: event.clientY, view: now })}
        onPointerMove={moved}
        onPointerUp={() => (drag.current = null)}
        onPointerLeave={() => (drag.current = null)}
      >
        <defs>
          {(["same", "insert", "delete", "update"] as const).map((op) => (
            <marker key={op} id={`to-${op}`} viewBox="0 0 10 10" refX="9" refY="5" markerWidth={op === "same" ? 7 : 9} markerHeight={op === "same" ? 7 : 9} markerUnits="userSpaceOnUse" orient="auto">
              <path d="M0 1 9 5 0 9Z" class={`head ${op}`} />
            </marker>
          ))}
        </defs>
        {[...edges].sort((a, b) => Number(a.op !== "same") - Number(b.op !== "same")).map((edge) => (
          <Line key={edge.key} edge={edge} from={nodeOf(nodes, at, edge.from)} to={nodeOf(nodes, at, edge.to)} chosen={!!edge.change && keyOf(edge.change) === chosen} choose={choose} />
        ))}
        {[...nodes].sort((a, b) => Number(a.op !== "same") - Number(b.op !== "same")).map((node) => (
          <Spot key={node.key} node={node} place={at.get(node.key)!} chosen={!!node.change && keyOf(node.change) === chosen} choose={choose} />
        ))}
      </svg>
      <div class="canvas-tools">
        <button type="button" aria-label="Zoom in" onClick={() => zoom(1 / 1.4)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={() => zoom(1.4)}>−</button>
        <button type="button" aria-label="Show all" onClick={() => (view.value = null)}>⤢</button>
      </div>
    </div>
  );
}

function bounds(places: [number, number][]): View {
  const [xs, ys] = [places.map(([x]) => x), places.map(([, y]) => y)];
  const [left, top] = [Math.min(...xs) - 90, Math.min(...ys) - 50];
  const [width, height] = [Math.max(...xs) + 90 - left, Math.max(...ys) + 70 - top];
  const wide = Math.max(width, 420); // few nodes are not blown up
  const tall = Math.max(height, 300);
  return { x: left - (wide - width) / 2, y: top - (tall - height) / 2, width: wide, height: tall };
}

function nodeOf(nodes: Node[], at: Places, key: string): { place: [number, number]; radius: number } | null {
  const found = at.get(key);
  const node = nodes.find((one) => one.key === key);
  return found && node ? { place: found, radius: RADIUS[node.op] } : null;
}

/** What makes a part of the drawing a button, for the mouse and for the keyboard. */
function chooser(change: Change | undefined, label: string, choose: (key: string) => void) {
  if (!change) return {};
  const act = () => choose(keyOf(change));
  return {
    role: "button" as const,
    tabindex: 0, // in a drawing attributes are told apart by capitals
    "aria-label": label,
    onClick: act,
    onKeyDown: (event: KeyboardEvent) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      act();
    },
  };
}

function Line({ edge, from, to, chosen, choose }: { edge: Edge; from: ReturnType<typeof nodeOf>; to: ReturnType<typeof nodeOf>; chosen: boolean; choose: (key: string) => void }) {
  if (!from || !to) return null;
  const [[x1, y1], [x2, y2]] = [from.place, to.place];
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
  const self = edge.from === edge.to;
  const path = self
    ? `M${x1 - 8} ${y1 - from.radius}c-30 -50 46 -50 16 -2`
    : `M${x1 + ux * (from.radius + 2)} ${y1 + uy * (from.radius + 2)}L${x2 - ux * (to.radius + 4)} ${y2 - uy * (to.radius + 4)}`;
  const label = edge.op === "same" ? "" : `${WORDS[edge.op]} ${edge.type}`;
  return (
    <g class={`line ${edge.op} ${chosen ? "chosen" : ""}`} {...chooser(edge.change, label, choose)}>
      {edge.change && <path d={path} class="grip" />}
      <path d={path} class="stroke" marker-end={`url(#to-${edge.op})`} />
      {edge.op === "same" ? (
        <title>{edge.type}</title>
      ) : (
        <text x={(x1 + x2) / 2} y={self ? y1 - from.radius - 42 : (y1 + y2) / 2 - 5} class="line-name">
          {MARKS[edge.op]} {edge.disputed ? "! " : ""}
          {edge.type}
        </text>
      )}
    </g>
  );
}

function Spot({ node, place, chosen, choose }: { node: Node; place: [number, number]; chosen: boolean; choose: (key: string) => void }) {
  const radius = RADIUS[node.op];
  const label = node.op === "same" ? "" : `${WORDS[node.op]} ${node.type} ${node.label}${node.disputed ? ", in conflict" : ""}`;
  const lines = node.change && node.op === "update" ? told(node.change) : [];
  return (
    <g class={`spot ${node.op} ${chosen ? "chosen" : ""}`} transform={`translate(${place[0]} ${place[1]})`} {...chooser(node.change, label, choose)}>
      <title>{`${node.type} ${node.label}`}</title>
      {chosen && <circle r={radius + 6} class="ring" />}
      <circle r={radius} class="disc" />
      {node.op !== "same" && <text class="glyph" y="6">{MARKS[node.op]}</text>}
      {node.disputed && (
        <g transform={`translate(${radius * 0.8} ${-radius * 0.8})`}>
          <circle r="8" class="dispute" />
          <text class="dispute-glyph" y="4">!</text>
        </g>
      )}
      <text class="name" y={radius + 13}>{clipped(node.label, node.op === "same" ? 14 : 20)}</text>
      {node.op !== "same" && <text class="type" y={-radius - 5}>{node.type}</text>}
      {lines.map((line, at) => (
        <text key={line} class="told" y={radius + 26 + at * 12}>{line}</text>
      ))}
    </g>
  );
}
