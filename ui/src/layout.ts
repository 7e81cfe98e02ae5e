// Asks the worker for places.
import type { Pause, Placed, Task } from "./layout.worker";

export interface Layout {
  /** Let it wait, or go on. */
  pause(paused: boolean): void;
  end(): void;
}

/** Begin to place nodes; `placed` is called until they have settled. */
export function layout(task: Task, placed: (found: Placed) => void): Layout {
  const worker = new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" });
  worker.onmessage = (event: MessageEvent<Placed>) => {
    placed(event.data);
    if (event.data.done) worker.terminate();
  };
  worker.postMessage(task);
  return {
    pause: (paused) => worker.postMessage({ paused } satisfies Pause),
    end: () => worker.terminate(),
  };
}

/** What the worker is told of nodes and edges that are known by keys. */
export function task(keys: string[], edges: { from: string; to: string }[], known: Map<string, [number, number]> = new Map()): Task {
  const numbers = new Map(keys.map((key, at) => [key, at]));
  const ends: number[] = [];
  for (const { from, to } of edges) {
    const [a, b] = [numbers.get(from), numbers.get(to)];
    if (a !== undefined && b !== undefined) ends.push(a, b);
  }
  const start = new Float32Array(2 * keys.length).fill(NaN);
  keys.forEach((key, at) => {
    const found = known.get(key);
    if (found) start.set(found, 2 * at);
  });
  return { count: keys.length, ends: Uint32Array.from(ends), start };
}
