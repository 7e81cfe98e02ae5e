// Nodes and edges drawn; the list beside it is for those who cannot see or point.
import { useEffect, useRef } from "preact/hooks";
import { count } from "./bits";
import { colourOf, type DrawnEdge, type DrawnNode, type Drawing } from "./drawing";
import { few } from "./few";
import { layout, task } from "./layout";
import { many } from "./many";
import { dark } from "./theme";

const MANY = 1_000; // nodes; arrows and labels of more tell nobody anything

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
  const known = useRef(new Map<string, [number, number]>());
  const drawn = useRef<Drawing>();
  const calls = useRef({ onChoose, onExpand });
  calls.current = { onChoose, onExpand };
  const theme = dark.value;

  useEffect(() => {
    const draw = nodes.length > MANY ? many : few;
    const drawing = draw(box.current!, nodes, edges, (type) => colourOf(type, types), {
      choose: (key) => calls.current.onChoose?.(key),
      expand: (key) => calls.current.onExpand?.(key),
      move: (moving) => placing.pause(moving),
    });
    drawn.current = drawing;
    box.current!.dataset.layout = "busy";
    let last: Float32Array | undefined;
    const placing = layout(task(nodes.map((node) => node.key), edges, known.current), ({ places, done }) => {
      last = places;
      drawing.place(places, done);
      if (box.current) box.current.dataset.layout = done ? "done" : "busy";
    });
    return () => {
      placing.end();
      if (last) nodes.forEach((node, at) => known.current.set(node.key, [last![2 * at], last![2 * at + 1]]));
      drawing.end();
      drawn.current = undefined;
    };
  }, [nodes, edges, theme, types.join()]);

  useEffect(() => drawn.current?.choose(chosen), [chosen, nodes, edges, theme, types.join()]);

  return (
    <div class="canvas">
      <div ref={box} class="canvas-drawing" role="img" aria-label={`${label}: ${count(nodes.length)} nodes, ${count(edges.length)} edges`} data-nodes={nodes.length} data-edges={edges.length} />
      <div class="canvas-tools">
        <button type="button" aria-label="Zoom in" onClick={() => drawn.current?.zoom(1.5)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={() => drawn.current?.zoom(1 / 1.5)}>−</button>
        <button type="button" aria-label="Show all" onClick={() => drawn.current?.showAll()}>⤢</button>
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
