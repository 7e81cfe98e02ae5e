// What every drawing of nodes and edges takes and can do, however it is painted.
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

export interface Drawing {
  /** The nodes' places, in their order: x, y, x, y, …; `done` when they will not change any more. */
  place(places: Float32Array, done: boolean): void;
  choose(key: string | undefined): void;
  zoom(factor: number): void;
  showAll(): void;
  end(): void;
}

export interface Calls {
  choose(key: string): void;
  expand(key: string): void;
  /** The view begins to move, or rests again. */
  move(moving: boolean): void;
}

// Told apart by people who see colours differently, and readable on both backgrounds.
const PALETTE = ["#4f6bd8", "#c2571a", "#2a8f6a", "#a5428f", "#8a7a12", "#1f87a8", "#c23b5a", "#6b6f7a", "#5b8c2a", "#7d55c7"];

export function colourOf(type: string, types: string[]): string {
  return PALETTE[Math.max(0, types.indexOf(type)) % PALETTE.length];
}

export const FONT = "system-ui, sans-serif";
export const LABEL_SIZE = 12;

/** The colours of the page as it is now. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  return { ground: colour("--ground"), raised: colour("--raised"), edge: colour("--edge"), text: colour("--text"), quiet: colour("--quiet"), focus: colour("--focus") };
}

export type Colours = ReturnType<typeof colours>;

/** How many edges end at each node. */
export function degreesOf(edges: DrawnEdge[]): Map<string, number> {
  const degrees = new Map<string, number>();
  for (const edge of edges) for (const end of [edge.from, edge.to]) degrees.set(end, (degrees.get(end) ?? 0) + 1);
  return degrees;
}

/** A ring and the whole label, for the node that is chosen or pointed at. */
export function drawRing(context: CanvasRenderingContext2D, node: { x: number; y: number; size: number; label?: string | null }, colour: Colours): void {
  context.fillStyle = colour.raised;
  context.strokeStyle = colour.focus;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(node.x, node.y, node.size + 3, 0, 2 * Math.PI);
  context.fill();
  context.stroke();
  if (!node.label) return;
  context.font = `600 ${LABEL_SIZE}px ${FONT}`;
  const width = context.measureText(node.label).width;
  context.fillStyle = colour.raised;
  context.fillRect(node.x + node.size + 4, node.y - 9, width + 8, 18);
  context.fillStyle = colour.text;
  context.fillText(node.label, node.x + node.size + 8, node.y + 4);
}
