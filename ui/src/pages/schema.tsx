// The types of the graph, drawn, listed and as text.
import { useMemo } from "preact/hooks";
import { useAsked } from "../asked";
import { graph, type S } from "../api";
import { Tabs, Waiting, count, plural } from "../bits";
import { colourOf } from "../drawing";
import { Editor } from "../later";
import { change, link, place, state } from "../place";

type Catalog = S["CatalogOutput"];
type Counts = Map<string, number>;

const VIEWS = [
  { id: "drawing", label: "Drawing" },
  { id: "list", label: "Types" },
  { id: "text", label: "Text" },
];

export function SchemaPage() {
  const { params } = place.value;
  const view = params.view ?? "drawing";
  const asked = useAsked(
    async (signal) => {
      const [catalog, snapshot] = await Promise.all([graph.catalog(state(), signal), graph.snapshot(state(), signal)]);
      const counts: Counts = new Map(snapshot.datasets.map((one) => [`${one.entity_kind}:${one.type_name}`, one.entity_count]));
      return { catalog, counts };
    },
    [params.branch, params.at],
  );
  return (
    <div class="page">
      <h1 class="unseen">Schema</h1>
      <Waiting asked={asked}>
        {({ catalog, counts }) => (
          <>
            <div class="answer-head">
              <Tabs tabs={VIEWS} chosen={view} choose={(id) => change({ view: id })} label="Views of the schema" />
              <span role="status">
                {plural(catalog.nodes.length, "node type")}, {plural(catalog.edges.length, "edge type")}
              </span>
            </div>
            {view === "drawing" && <Drawing catalog={catalog} counts={counts} />}
            {view === "list" && <List catalog={catalog} counts={counts} />}
            {view === "text" && (
              <div class="source">
                <Editor text={catalog.schema_source} language="pg" label="Schema text" />
              </div>
            )}
          </>
        )}
      </Waiting>
    </div>
  );
}

// --- the drawing ---------------------------------------------------------------------------------

const WIDE = 210;
const LINE = 18;
const HEAD = 34;
const SHOWN = 7; // properties in a box
const GAP_X = 130;
const GAP_Y = 60;

interface Box {
  type: S["NodeTypeOutput"];
  x: number;
  y: number;
  height: number;
}

function boxHeight(type: S["NodeTypeOutput"]): number {
  const rows = Math.min(type.properties.length, SHOWN) + (type.properties.length > SHOWN ? 1 : 0);
  return HEAD + rows * LINE + 10;
}

/** Boxes in columns: what has the most edges first, what it leads to in the next column. */
function arranged(catalog: Catalog): Box[] {
  const near = new Map(catalog.nodes.map((one) => [one.name, new Set<string>()]));
  for (const edge of catalog.edges) {
    near.get(edge.from)?.add(edge.to);
    near.get(edge.to)?.add(edge.from);
  }
  const order = [...catalog.nodes].sort((a, b) => near.get(b.name)!.size - near.get(a.name)!.size || a.name.localeCompare(b.name));
  const columns: S["NodeTypeOutput"][][] = [];
  const placed = new Set<string>();
  const most = Math.max(2, Math.ceil(Math.sqrt(catalog.nodes.length)));
  let wave = order.slice(0, 1);
  while (wave.length) {
    for (let at = 0; at < wave.length; at += most) columns.push(wave.slice(at, at + most));
    for (const one of wave) placed.add(one.name);
    wave = order.filter((one) => !placed.has(one.name) && wave.some((each) => near.get(each.name)!.has(one.name)));
    if (!wave.length) wave = order.filter((one) => !placed.has(one.name)).slice(0, most);
  }
  const heights = columns.map((column) => column.reduce((sum, one) => sum + boxHeight(one) + GAP_Y, -GAP_Y));
  const tallest = Math.max(0, ...heights);
  return columns.flatMap((column, at) => {
    let y = (tallest - heights[at]) / 2;
    return column.map((type) => {
      const box = { type, x: at * (WIDE + GAP_X), y, height: boxHeight(type) };
      y += box.height + GAP_Y;
      return box;
    });
  });
}

function Drawing({ catalog, counts }: { catalog: Catalog; counts: Counts }) {
  const boxes = useMemo(() => arranged(catalog), [catalog]);
  const byName = new Map(boxes.map((box) => [box.type.name, box]));
  const types = catalog.nodes.map((one) => one.name);
  const width = Math.max(...boxes.map((box) => box.x + WIDE), WIDE);
  const height = Math.max(...boxes.map((box) => box.y + box.height), 100);
  const between = new Map<string, number>();
  return (
    <div class="scroll drawing" tabIndex={0} role="region" aria-label="Drawing of the schema">
      <svg viewBox={`-90 -50 ${width + 180} ${height + 100}`} style={{ minWidth: `${Math.min(width + 180, 900)}px`, maxWidth: `${(width + 180) * 1.3}px` }} role="group" aria-label={`${plural(catalog.nodes.length, "node type")} and ${plural(catalog.edges.length, "edge type")}`}>
        <defs>
          <marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto-start-reverse">
            <path d="M0 1 9 5 0 9Z" fill="var(--quiet)" />
          </marker>
        </defs>
        {catalog.edges.map((edge) => {
          const [a, b] = [byName.get(edge.from), byName.get(edge.to)];
          if (!a || !b) return null;
          const pair = [edge.from, edge.to].sort().join(" ");
          const nth = between.get(pair) ?? 0;
          between.set(pair, nth + 1);
          const way = a === b ? loop(a, nth) : curve(a, b, nth);
          return (
            <g key={edge.name}>
              <path d={way.path} class="schema-edge" marker-end="url(#head)" />
              <text x={way.x} y={way.y} class="schema-edge-name">
                {edge.name} <tspan class="count">{count(counts.get(`edge:${edge.name}`) ?? 0)}</tspan>
              </text>
            </g>
          );
        })}
        {boxes.map((box) => (
          <a key={box.type.name} href={link("explore", { type: box.type.name })} aria-label={`Explore ${box.type.name}`}>
            <g transform={`translate(${box.x} ${box.y})`} class="schema-box">
              <rect width={WIDE} height={box.height} rx="8" />
              <path d={`M0 8a8 8 0 0 1 8-8H${WIDE - 8}a8 8 0 0 1 8 8V26H0Z`} fill={colourOf(box.type.name, types)} />
              <text x="12" y="18" class="schema-name">{clipped(box.type.name, 20)}</text>
              <text x={WIDE - 10} y="18" class="schema-name end">{count(counts.get(`node:${box.type.name}`) ?? 0)}</text>
              {box.type.properties.slice(0, SHOWN).map((one, at) => (
                <g key={one.name} transform={`translate(0 ${HEAD + at * LINE + 10})`}>
                  <text x="12" class={box.type.key.includes(one.name) ? "schema-property key" : "schema-property"}>{clipped(one.name, 15)}</text>
                  <text x={WIDE - 10} class="schema-type end">{clipped(one.type, 14)}</text>
                </g>
              ))}
              {box.type.properties.length > SHOWN && (
                <text x="12" y={HEAD + SHOWN * LINE + 10} class="schema-type">and {box.type.properties.length - SHOWN} more</text>
              )}
            </g>
          </a>
        ))}
      </svg>
    </div>
  );
}

function clipped(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

interface Way {
  path: string;
  x: number;
  y: number;
}

function loop(box: Box, nth: number): Way {
  const reach = 44 + nth * 22;
  const [x, y] = [box.x + WIDE - 60 - nth * 30, box.y];
  return { path: `M${x - 22} ${y}C${x - 30} ${y - reach} ${x + 30} ${y - reach} ${x + 22} ${y}`, x, y: y - reach * 0.75 - 5 };
}

/** From the nearer sides of two boxes; several edges between the same two lie beside each other. */
function curve(a: Box, b: Box, nth: number): Way {
  const shift = (nth % 2 ? 1 : -1) * Math.ceil(nth / 2) * 26;
  if (a.x === b.x) {
    const down = a.y < b.y;
    const [x, y1, y2] = [a.x + WIDE / 2 + shift, down ? a.y + a.height : a.y, down ? b.y : b.y + b.height];
    const bend = Math.abs(y2 - y1) > 2 * GAP_Y ? WIDE * 0.8 : 0;
    return { path: `M${x} ${y1}C${x + bend} ${y1 + (y2 - y1) / 3} ${x + bend} ${y2 - (y2 - y1) / 3} ${x} ${y2}`, x: x + bend * 0.75 + 6, y: (y1 + y2) / 2 };
  }
  const right = a.x < b.x;
  const [x1, x2] = [right ? a.x + WIDE : a.x, right ? b.x : b.x + WIDE];
  const [y1, y2] = [a.y + a.height / 2 + shift, b.y + b.height / 2 + shift];
  const middle = (x1 + x2) / 2;
  return { path: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`, x: middle, y: (y1 + y2) / 2 - 6 };
}

// --- the list ------------------------------------------------------------------------------------

function List({ catalog, counts }: { catalog: Catalog; counts: Counts }) {
  return (
    <div class="scroll types" tabIndex={0}>
      {[...catalog.nodes, ...catalog.edges].map((type) => {
        const isNode = "key" in type;
        return (
          <section key={`${isNode}${type.name}`} class="card">
            <h2>
              {type.name} <small>{isNode ? "node" : `${type.from} → ${type.to}`}, {count(counts.get(`${isNode ? "node" : "edge"}:${type.name}`) ?? 0)}</small>
            </h2>
            {type.description && <p>{type.description}</p>}
            <table>
              <tbody>
                {type.properties.map((one) => (
                  <tr key={one.name}>
                    <th scope="row">{one.name}</th>
                    <td><code>{one.type}</code>{isNode && type.key.includes(one.name) ? " key" : ""}</td>
                    <td>{one.description}</td>
                  </tr>
                ))}
              </tbody>
            </table>
            {!type.properties.length && <p class="quiet">no properties</p>}
          </section>
        );
      })}
    </div>
  );
}
