// Thousands of nodes, painted point by point into one picture. Without a graphics card a browser needs longer to lay
// the many layers of a WebGL drawing upon each other than this takes; with one, this is fast enough as well.
// In motion some of the edges stand for all of them; at rest everything is there.
import { FONT, LABEL_SIZE, colours, degreesOf, drawRing, type Calls, type DrawnEdge, type DrawnNode, type Drawing } from "./drawing";

const EDGES_IN_MOTION = 4_000;
const REST_MS = 250; // after the last move everything is drawn
const MARGIN = 50;
const EDGE_STRENGTH = 90; // of 256: where many edges cross it is darker
const COVERED = 0.3; // how much of the drawing its nodes may cover
const SMALLEST = 0.75; // a node's radius, however many there are
const LARGEST = 40; // a node's radius, however near one looks
const LABELLED_FROM = 5; // a node's radius, when it is big enough for a label
const ALWAYS_LABELLED = 12; // the biggest nodes
const MOST_LABELS = 150;
const CLICK_PX = 4; // a pointer that moves further drags

/** A colour of CSS as a canvas keeps it in memory. */
function packed(context: CanvasRenderingContext2D, colour: string): number {
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return new Uint32Array(context.getImageData(0, 0, 1, 1).data.buffer)[0];
}

/** `over` laid upon `under`, so strongly of 256; red and blue are reckoned together, they cannot touch each other. */
function blended(under: number, over: number, strength: number): number {
  const ends = under & 0xff00ff;
  const middle = under & 0xff00;
  const both = (ends + ((((over & 0xff00ff) - ends) * strength) >> 8)) & 0xff00ff;
  return 0xff000000 | both | ((middle + ((((over & 0xff00) - middle) * strength) >> 8)) & 0xff00);
}

interface Disc {
  reach: number;
  spans: Int8Array; // for each row: how far the points that are wholly covered go to both sides, or -1
  dx: Int8Array; // the points that are partly covered
  dy: Int8Array;
  strength: Uint16Array; // of 256: how much is covered
}

const discs: Disc[] = [];

/** The points of a disc, kept for each quarter of a pixel. */
function disc(radius: number): Disc {
  const size = Math.round(radius * 4);
  if (discs[size]) return discs[size];
  const reach = Math.ceil(radius);
  const spans = new Int8Array(2 * reach + 1).fill(-1);
  const rim: [number, number, number][] = [];
  for (let dy = -reach; dy <= reach; dy++) {
    for (let dx = -reach; dx <= reach; dx++) {
      const covered = Math.round(256 * Math.min(Math.max(radius + 0.5 - Math.hypot(dx, dy), 0), 1));
      if (covered === 256) spans[dy + reach] = Math.abs(dx);
      else if (covered) rim.push([dx, dy, covered]);
    }
  }
  discs[size] = { reach, spans, dx: Int8Array.from(rim, ([dx]) => dx), dy: Int8Array.from(rim, ([, dy]) => dy), strength: Uint16Array.from(rim, ([, , covered]) => covered) };
  return discs[size];
}

/** A picture in memory that lines and discs are painted into. */
class Picture {
  image: ImageData;
  points: Uint32Array;

  constructor(readonly width: number, readonly height: number) {
    this.image = new ImageData(width, height);
    this.points = new Uint32Array(this.image.data.buffer);
  }

  line(x1: number, y1: number, x2: number, y2: number, colour: number, strength: number): void {
    // Only what lies in the picture: shares of the line's length, from `first` to `last`.
    const { points, width, height } = this;
    const dx = x2 - x1;
    const dy = y2 - y1;
    if ((dx === 0 && (x1 < 0 || x1 >= width)) || (dy === 0 && (y1 < 0 || y1 >= height))) return;
    const atLeft = dx ? -x1 / dx : -Infinity;
    const atRight = dx ? (width - 1 - x1) / dx : Infinity;
    const atTop = dy ? -y1 / dy : -Infinity;
    const atBottom = dy ? (height - 1 - y1) / dy : Infinity;
    const first = Math.max(0, Math.min(atLeft, atRight), Math.min(atTop, atBottom));
    const last = Math.min(1, Math.max(atLeft, atRight), Math.max(atTop, atBottom));
    if (first >= last) return;
    const count = Math.ceil(Math.max(Math.abs(dx), Math.abs(dy)) * (last - first));
    const stepX = (dx * (last - first)) / count;
    const stepY = (dy * (last - first)) / count;
    let x = x1 + dx * first;
    let y = y1 + dy * first;
    for (let at = 0; at < count; at++) {
      const place = (y | 0) * width + (x | 0);
      points[place] = blended(points[place], colour, strength);
      x += stepX;
      y += stepY;
    }
  }

  disc(x: number, y: number, radius: number, colour: number): void {
    const { reach, spans, dx, dy, strength } = disc(radius);
    const { points, width, height } = this;
    const left = Math.round(x);
    const top = Math.round(y);
    if (left < -reach || top < -reach || left >= width + reach || top >= height + reach) return;
    for (let row = Math.max(0, reach - top); row < spans.length && top + row - reach < height; row++) {
      if (spans[row] < 0) continue;
      const start = (top + row - reach) * width;
      const last = start + Math.min(left + spans[row], width - 1);
      for (let place = start + Math.max(left - spans[row], 0); place <= last; place++) points[place] = colour;
    }
    for (let at = 0; at < dx.length; at++) {
      const px = left + dx[at];
      const py = top + dy[at];
      if (px < 0 || py < 0 || px >= width || py >= height) continue;
      const place = py * width + px;
      points[place] = blended(points[place], colour, strength[at]);
    }
  }
}

export function many(box: HTMLElement, nodes: DrawnNode[], edges: DrawnEdge[], colourOf: (type: string) => string, calls: Calls): Drawing {
  return new Crowd(box, nodes, edges, colourOf, calls);
}

class Crowd implements Drawing {
  private canvas = document.createElement("canvas");
  private context = this.canvas.getContext("2d", { alpha: false, willReadFrequently: true })!;
  private picture = new Picture(1, 1);
  private colour = colours();
  private paints: Record<"ground" | "edge", number>;
  private nodeColours: string[];
  private nodePaints: Uint32Array;
  private sizes: Float32Array;
  private area: number; // of all nodes, if none lay upon another
  private biggestFirst: Uint32Array;
  private ends: Uint32Array;
  private numbers: Map<string, number>;
  private places: Float32Array;
  private bounds = { x: 0, y: 0, width: 1, height: 1 };
  private settled = false;
  // Where the nodes lie on the picture, and how large they are there.
  private onPicture: Float32Array;
  private growth = 1;
  private smallest = 1;
  // How the view differs from that of everything.
  private view = { x: 0, y: 0, zoom: 1 };
  private moving = false;
  private frame = 0;
  private rest = 0;
  private labelled: number[] = [];
  private chosen = -1;
  private pointedAt = -1;
  private pointers = new Map<number, [number, number]>();
  private dragged = 0;
  private watcher = new ResizeObserver(() => this.resized());

  constructor(private box: HTMLElement, private nodes: DrawnNode[], edges: DrawnEdge[], colourOf: (type: string) => string, private calls: Calls) {
    const degrees = degreesOf(edges);
    this.numbers = new Map(nodes.map((node, at) => [node.key, at]));
    this.sizes = Float32Array.from(nodes, (node) => Math.min(1.5 + Math.sqrt(degrees.get(node.key) ?? 0), 8));
    this.area = this.sizes.reduce((sum, size) => sum + Math.PI * size * size, 0);
    this.biggestFirst = Uint32Array.from(nodes.keys()).sort((a, b) => this.sizes[b] - this.sizes[a]);
    this.places = Float32Array.from({ length: 2 * nodes.length }, () => Math.random());
    this.onPicture = new Float32Array(2 * nodes.length);
    this.ends = Uint32Array.from(edges.flatMap(({ from, to }) => {
      const [a, b] = [this.numbers.get(from), this.numbers.get(to)];
      return a === undefined || b === undefined ? [] : [a, b];
    }));
    const paint = (css: string) => packed(this.context, css);
    const paints = new Map([...new Set(nodes.map((node) => node.type))].map((type) => [type, paint(colourOf(type))]));
    this.paints = { ground: paint(this.colour.ground), edge: paint(this.colour.edge) };
    this.nodeColours = nodes.map((node) => colourOf(node.type));
    this.nodePaints = Uint32Array.from(nodes, (node) => paints.get(node.type)!);
    this.canvas.style.cssText = "position:absolute;inset:0;width:100%;height:100%;touch-action:none";
    this.listen();
    box.append(this.canvas);
    this.watcher.observe(box);
  }

  place(places: Float32Array, done: boolean): void {
    this.places = places;
    this.settled = done;
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let at = 0; at < places.length; at += 2) {
      left = Math.min(left, places[at]);
      right = Math.max(right, places[at]);
      top = Math.min(top, places[at + 1]);
      bottom = Math.max(bottom, places[at + 1]);
    }
    this.bounds = { x: (left + right) / 2, y: (top + bottom) / 2, width: right - left || 1, height: bottom - top || 1 };
    this.draw();
  }

  choose(key: string | undefined): void {
    this.chosen = (key === undefined ? undefined : this.numbers.get(key)) ?? -1;
    this.show();
  }

  zoom(factor: number, x = this.box.clientWidth / 2, y = this.box.clientHeight / 2): void {
    const zoom = Math.min(Math.max(this.view.zoom * factor, 0.1), 500);
    const real = zoom / this.view.zoom;
    const [dx, dy] = [x - this.box.clientWidth / 2, y - this.box.clientHeight / 2];
    this.move({ x: dx + (this.view.x - dx) * real, y: dy + (this.view.y - dy) * real, zoom });
  }

  showAll(): void {
    this.move({ x: 0, y: 0, zoom: 1 });
  }

  end(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.rest);
    this.watcher.disconnect();
    this.canvas.remove();
  }

  private move(view: { x: number; y: number; zoom: number }): void {
    if (!this.moving) this.calls.move(true);
    this.view = view;
    this.moving = true;
    clearTimeout(this.rest);
    this.rest = window.setTimeout(() => {
      this.moving = false;
      this.calls.move(false);
      this.draw();
    }, REST_MS);
    this.draw();
  }

  private draw(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.paint(this.moving || !this.settled);
      this.show();
    });
  }

  private resized(): void {
    const ratio = window.devicePixelRatio;
    this.canvas.width = Math.max(1, Math.round(this.box.clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(this.box.clientHeight * ratio));
    this.picture = new Picture(this.canvas.width, this.canvas.height);
    // At once: a canvas whose size has changed is black.
    this.paint(true);
    this.show();
    this.draw();
  }

  /** The picture in memory: in motion with few edges and no labels. */
  private paint(moving: boolean): void {
    const { picture, places, onPicture, bounds, view, ends } = this;
    const ratio = picture.width / Math.max(1, this.box.clientWidth);
    const [width, height] = [picture.width / ratio, picture.height / ratio];
    const fit = Math.max(Math.min((width - 2 * MARGIN) / bounds.width, (height - 2 * MARGIN) / bounds.height), 1e-9);
    const scale = fit * view.zoom * ratio;
    const [left, top] = [(width / 2 + view.x) * ratio - bounds.x * scale, (height / 2 + view.y) * ratio + bounds.y * scale];
    for (let at = 0; at < places.length; at += 2) {
      onPicture[at] = left + places[at] * scale;
      onPicture[at + 1] = top - places[at + 1] * scale;
    }
    const crowding = Math.sqrt((COVERED * fit * fit * bounds.width * bounds.height) / this.area);
    this.growth = Math.min(Math.sqrt(view.zoom), crowding * view.zoom) * ratio;
    this.smallest = SMALLEST * ratio;
    picture.points.fill(this.paints.ground);
    const count = ends.length / 2;
    const step = moving ? Math.max(1, Math.ceil(count / EDGES_IN_MOTION)) : 1;
    for (let at = 0; at < count; at += step) {
      const a = 2 * ends[2 * at];
      const b = 2 * ends[2 * at + 1];
      picture.line(onPicture[a], onPicture[a + 1], onPicture[b], onPicture[b + 1], this.paints.edge, EDGE_STRENGTH);
    }
    for (let at = 0; at < this.nodes.length; at++) picture.disc(onPicture[2 * at], onPicture[2 * at + 1], this.radius(at), this.nodePaints[at]);
    this.labelled = moving ? [] : this.toLabel(ratio);
    this.box.dataset.painted = String(Math.ceil(count / step)); // edges
  }

  private radius(at: number): number {
    return Math.min(Math.max(this.sizes[at] * this.growth, this.smallest), LARGEST);
  }

  /** The biggest nodes, as far as their labels have room. */
  private toLabel(ratio: number): number[] {
    const found: number[] = [];
    const { onPicture, picture } = this;
    const wide = (at: number) => (this.nodes[at].label.length * 7 + 20) * ratio;
    for (const [rank, at] of this.biggestFirst.entries()) {
      if ((rank >= ALWAYS_LABELLED && this.radius(at) < LABELLED_FROM * ratio) || found.length === MOST_LABELS) break;
      const [x, y] = [onPicture[2 * at], onPicture[2 * at + 1]];
      if (x < 0 || y < 0 || x >= picture.width || y >= picture.height) continue;
      const near = (other: number) => {
        const dx = onPicture[2 * other] - x;
        return Math.abs(onPicture[2 * other + 1] - y) < 18 * ratio && dx < wide(at) && -dx < wide(other);
      };
      if (!found.some(near)) found.push(at);
    }
    return found;
  }

  /** The picture with labels, and what is chosen or pointed at, upon it. */
  private show(): void {
    const { context, picture, onPicture, colour } = this;
    context.resetTransform();
    context.putImageData(picture.image, 0, 0);
    const ratio = picture.width / Math.max(1, this.box.clientWidth);
    context.scale(ratio, ratio);
    context.font = `${LABEL_SIZE}px ${FONT}`;
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.strokeStyle = colour.ground;
    context.fillStyle = colour.text;
    for (const at of this.labelled) {
      const [x, y] = [(onPicture[2 * at] + this.radius(at)) / ratio + 3, onPicture[2 * at + 1] / ratio + 4];
      context.strokeText(this.nodes[at].label, x, y);
      context.fillText(this.nodes[at].label, x, y);
    }
    for (const at of new Set([this.chosen, this.pointedAt])) {
      if (at < 0) continue;
      const node = { x: onPicture[2 * at] / ratio, y: onPicture[2 * at + 1] / ratio, size: this.radius(at) / ratio, label: this.nodes[at].label };
      drawRing(context, node, colour);
      context.fillStyle = this.nodeColours[at];
      context.beginPath();
      context.arc(node.x, node.y, node.size, 0, 2 * Math.PI);
      context.fill();
    }
  }

  /** The node nearest to a place of the box, or -1 where there is none. */
  private nodeAt(x: number, y: number): number {
    const ratio = this.picture.width / Math.max(1, this.box.clientWidth);
    let [found, nearest] = [-1, Infinity];
    for (let at = 0; at < this.nodes.length; at++) {
      const away = Math.hypot(this.onPicture[2 * at] - x * ratio, this.onPicture[2 * at + 1] - y * ratio);
      if (away < nearest && away <= Math.max(this.radius(at), 4 * ratio)) [found, nearest] = [at, away];
    }
    return found;
  }

  private listen(): void {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const turned = event.deltaY * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1);
      this.zoom(Math.exp(-turned * 0.002), ...this.placeOf(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      if (!this.pointers.size) this.dragged = 0;
      this.pointers.set(event.pointerId, this.placeOf(event));
    });
    canvas.addEventListener("pointermove", (event) => this.pointed(event));
    canvas.addEventListener("pointerleave", () => this.pointAt(-1));
    for (const end of ["pointerup", "pointercancel"] as const) canvas.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("click", (event) => {
      const at = this.dragged < CLICK_PX ? this.nodeAt(...this.placeOf(event)) : -1;
      if (at >= 0) this.calls.choose(this.nodes[at].key);
    });
    canvas.addEventListener("dblclick", (event) => {
      const at = this.nodeAt(...this.placeOf(event));
      if (at >= 0) this.calls.expand(this.nodes[at].key);
      else this.zoom(2, ...this.placeOf(event));
    });
  }

  private placeOf(event: MouseEvent): [number, number] {
    const { left, top } = this.box.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  }

  /** One pointer drags, two also zoom; one that is not pressed points at a node. */
  private pointed(event: PointerEvent): void {
    if (!this.pointers.has(event.pointerId)) return this.pointAt(this.nodeAt(...this.placeOf(event)));
    const before = spanned([...this.pointers.values()]);
    this.pointers.set(event.pointerId, this.placeOf(event));
    const after = spanned([...this.pointers.values()]);
    const [dx, dy] = [after.x - before.x, after.y - before.y];
    this.dragged += Math.hypot(dx, dy);
    if (this.dragged < CLICK_PX) return;
    this.move({ ...this.view, x: this.view.x + dx, y: this.view.y + dy });
    if (before.span && after.span) this.zoom(after.span / before.span, after.x, after.y);
  }

  private pointAt(at: number): void {
    if (at === this.pointedAt) return;
    this.pointedAt = at;
    this.canvas.style.cursor = at < 0 ? "" : "pointer";
    this.show();
  }
}

/** The middle of the pointers, and how far they are from each other. */
function spanned(places: [number, number][]): { x: number; y: number; span: number } {
  const [x, y] = [0, 1].map((axis) => places.reduce((sum, place) => sum + place[axis], 0) / places.length);
  const span = places.length > 1 ? Math.hypot(places[0][0] - places[1][0], places[0][1] - places[1][1]) : 0;
  return { x, y, span };
}
