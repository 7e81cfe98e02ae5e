// Many nodes at once, drawn by WebGL; the list beside it is for those who cannot see or point.
import Graph from "graphology";
import { useEffect, useRef } from "preact/hooks";
import Sigma from "sigma";
import { EdgeLineProgram, NodePointProgram } from "sigma/rendering";
import { count } from "./bits";
import { layout, task } from "./layout";
import { dark } from "./theme";

export interface DrawnNode {
  key: string;
  type: string;
  label: string;
}

export interface DrawnEdge {
  key: string;
  from: string;
  to: string;
  type: string;
}

// Told apart by people who see colours differently, and readable on both backgrounds.
const PALETTE = ["#4f6bd8", "#c2571a", "#2a8f6a", "#a5428f", "#8a7a12", "#1f87a8", "#c23b5a", "#6b6f7a", "#5b8c2a", "#7d55c7"];

export function colourOf(type: string, types: string[]): string {
  return PALETTE[Math.max(0, types.indexOf(type)) % PALETTE.length];
}

interface Props {
  nodes: DrawnNode[];
  edges: DrawnEdge[];
  types: string[];
  chosen?: string;
  onChoose?: (key: string) => void;
  onExpand?: (key: string) => void;
  label: string;
}

export function Canvas({ nodes, edges, types, chosen, onChoose, onExpand, label }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const places = useRef(new Map<string, [number, number]>());
  const drawn = useRef<{ sigma: Sigma; graph: Graph }>();
  const calls = useRef({ onChoose, onExpand });
  calls.current = { onChoose, onExpand };
  const theme = dark.value;

  useEffect(() => {
    const graph = new Graph({ type: "directed", multi: true });
    const many = nodes.length > 2_000;
    const degrees = new Map<string, number>();
    for (const edge of edges) for (const end of [edge.from, edge.to]) degrees.set(end, (degrees.get(end) ?? 0) + 1);
    for (const node of nodes) {
      const size = Math.min((many ? 1.5 : 5) + Math.sqrt(degrees.get(node.key) ?? 0), many ? 8 : 14);
      const [x, y] = places.current.get(node.key) ?? [Math.random(), Math.random()];
      graph.mergeNode(node.key, { x, y, size, label: node.label, color: colourOf(node.type, types) });
    }
    for (const edge of edges) {
      if (graph.hasNode(edge.from) && graph.hasNode(edge.to) && !graph.hasEdge(edge.key))
        graph.addEdgeWithKey(edge.key, edge.from, edge.to, { label: edge.type, size: many ? 0.5 : 1.2, type: many ? "line" : "arrow" });
    }
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const sigma = new Sigma(graph, box.current!, {
      defaultEdgeColor: colour("--edge"),
      labelColor: { color: colour("--text") },
      edgeLabelColor: { color: colour("--quiet") },
      labelFont: "system-ui, sans-serif",
      edgeLabelFont: "system-ui, sans-serif",
      edgeLabelSize: 10,
      labelSize: 12,
      renderEdgeLabels: edges.length <= 20,
      labelRenderedSizeThreshold: many ? 6 : 4,
      labelDensity: nodes.length <= 80 ? 20 : 1,
      stagePadding: 50,
      hideEdgesOnMove: edges.length > 5_000,
      allowInvalidContainer: true,
      zIndex: true,
      // One call draws all of them: without a graphics card a call for each costs seconds.
      ...(many ? { nodeProgramClasses: { circle: NodePointProgram }, edgeProgramClasses: { line: EdgeLineProgram } } : {}),
      defaultDrawNodeHover: (context, node, settings) => {
        context.fillStyle = colour("--raised");
        context.strokeStyle = colour("--focus");
        context.lineWidth = 2;
        context.beginPath();
        context.arc(node.x, node.y, node.size + 3, 0, 2 * Math.PI);
        context.fill();
        context.stroke();
        if (node.label) {
          context.font = `600 ${settings.labelSize}px ${settings.labelFont}`;
          const width = context.measureText(node.label).width;
          context.fillStyle = colour("--raised");
          context.fillRect(node.x + node.size + 4, node.y - 9, width + 8, 18);
          context.fillStyle = colour("--text");
          context.fillText(node.label, node.x + node.size + 8, node.y + 4);
        }
      },
    });
    sigma.on("clickNode", ({ node }) => calls.current.onChoose?.(node));
    sigma.on("doubleClickNode", ({ node, preventSigmaDefault }) => {
      preventSigmaDefault();
      calls.current.onExpand?.(node);
    });
    drawn.current = { sigma, graph };
    const keys = nodes.map((node) => node.key);
    box.current!.dataset.layout = "busy";
    const end = layout(task(keys, edges, places.current), (found) => {
      keys.forEach((key, at) => places.current.set(key, [found.places[2 * at], found.places[2 * at + 1]]));
      // One event for all nodes, not one for each.
      graph.updateEachNodeAttributes((key, attributes) => {
        const [x, y] = places.current.get(key)!;
        return { ...attributes, x, y };
      }, { attributes: ["x", "y"] });
      if (box.current) box.current.dataset.layout = found.done ? "done" : "busy";
    });
    return () => {
      end();
      sigma.kill();
      drawn.current = undefined;
    };
  }, [nodes, edges, theme, types.join()]);

  useEffect(() => {
    const now = drawn.current?.graph;
    if (!now || !chosen || !now.hasNode(chosen)) return;
    now.setNodeAttribute(chosen, "highlighted", true);
    return () => {
      if (drawn.current?.graph === now && now.hasNode(chosen)) now.setNodeAttribute(chosen, "highlighted", false);
    };
  }, [chosen, nodes, edges, theme, types.join()]);

  const zoom = (factor: number) => {
    const camera = drawn.current?.sigma.getCamera();
    camera?.setState({ ratio: camera.ratio * factor });
  };
  return (
    <div class="canvas">
      <div ref={box} class="canvas-drawing" role="img" aria-label={`${label}: ${count(nodes.length)} nodes, ${count(edges.length)} edges`} data-nodes={nodes.length} data-edges={edges.length} />
      <div class="canvas-tools">
        <button type="button" aria-label="Zoom in" onClick={() => zoom(1 / 1.5)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={() => zoom(1.5)}>−</button>
        <button type="button" aria-label="Show all" onClick={() => drawn.current?.sigma.getCamera().setState({ x: 0.5, y: 0.5, ratio: 1, angle: 0 })}>⤢</button>
      </div>
      <Legend types={types.filter((type) => nodes.some((node) => node.type === type))} all={types} />
    </div>
  );
}

function Legend({ types, all }: { types: string[]; all: string[] }) {
  return (
    <ul class="legend" aria-label="Types">
      {types.slice(0, 12).map((type) => (
        <li key={type}>
          <span class="dot" style={{ background: colourOf(type, all) }} />
          {type}
        </li>
      ))}
    </ul>
  );
}
