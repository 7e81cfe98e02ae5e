// Where the reader is: everything that a link must bring back stands in the address.
import { signal } from "@preact/signals";

export type Params = Record<string, string>;

export interface Place {
  graph: string;
  page: string;
  params: Params;
}

// What stays when the page changes: the state of the graph that is looked at.
const KEPT = ["branch", "at"];

function parsed(hash: string): Place {
  const [path, query] = hash.replace(/^#\/?/, "").split("?", 2);
  const [graph, page] = path.split("/", 2).map(decodeURIComponent);
  return { graph: graph ?? "", page: page || "query", params: Object.fromEntries(new URLSearchParams(query)) };
}

export const place = signal<Place>(parsed(location.hash));
addEventListener("hashchange", () => {
  place.value = parsed(location.hash);
});

/** The address of a page; empty parameters are left out. */
export function address(graph: string, page: string, params: Params): string {
  const told = Object.entries(params).filter(([, value]) => value !== "");
  const query = new URLSearchParams(told).toString();
  return `#/${encodeURIComponent(graph)}/${page}${query ? `?${query}` : ""}`;
}

/** The address of another page about the same state of the graph. */
export function link(page: string, params: Params = {}): string {
  const now = place.value;
  const kept = Object.fromEntries(KEPT.filter((name) => now.params[name]).map((name) => [name, now.params[name]]));
  return address(now.graph, page, { ...kept, ...params });
}

/** Change parameters of this page: a new entry of the browser's history, or the same one. */
export function change(params: Params, { replace = false } = {}): void {
  const now = place.value;
  const next = address(now.graph, now.page, { ...now.params, ...params });
  if (replace) history.replaceState(null, "", next);
  else history.pushState(null, "", next);
  place.value = parsed(next);
}

export function visit(target: string): void {
  history.pushState(null, "", target);
  place.value = parsed(target);
}

/** The state that is looked at, as requests name it: a branch, or any other ref instead. */
export function state(): { branch?: string; snapshot?: string } {
  const { branch, at } = place.value.params;
  return at ? { snapshot: at } : { branch: branch || "main" };
}

export function branch(): string {
  return place.value.params.branch || "main";
}
