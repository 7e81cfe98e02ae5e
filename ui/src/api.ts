// The one client of the server. Its types are those of the OpenAPI document.
import { signal } from "@preact/signals";
import { parsed, written } from "./json";
import { place } from "./place";
import type { components } from "./wire";

export type S = components["schemas"];
export type Row = Record<string, unknown>;

const KEY = "omnigraph.token";

/** The token of this tab; it is gone with the tab, and never in an address. */
export const token = signal(sessionStorage.getItem(KEY) ?? "");
/** Why a token is asked for; empty while none is needed. */
export const tokenWanted = signal("");
/** Goes up with every write, so that what is shown is asked for again. */
export const writes = signal(0);

export function signIn(value: string): void {
  sessionStorage.setItem(KEY, value);
  token.value = value;
  tokenWanted.value = "";
}

export function signOut(): void {
  sessionStorage.removeItem(KEY);
  token.value = "";
  tokenWanted.value = "Signed out.";
}

/** What a server answers to a request that fails. */
export class Failure extends Error {
  constructor(
    readonly status: number,
    readonly body: { error?: string; detail?: { hint?: string; code?: string } & Record<string, unknown>; merge_conflicts?: unknown[] },
  ) {
    super(body.error ?? `status ${status}`);
  }

  get hint(): string {
    return this.body.detail?.hint ?? "";
  }
}

export interface Asked {
  query?: Record<string, string | number | undefined>;
  body?: unknown;
  signal?: AbortSignal;
}

async function ask<T>(method: string, path: string, { query, body, signal }: Asked = {}): Promise<T> {
  const told = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== "");
  const parameters = new URLSearchParams(told.map(([name, value]) => [name, String(value)])).toString();
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  const sent = token.value;
  if (sent) headers.authorization = `Bearer ${sent}`;
  let reply: Response;
  try {
    reply = await fetch(parameters ? `${path}?${parameters}` : path, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : written(body),
      cache: "no-cache",
      credentials: "omit",
    });
  } catch (problem) {
    if ((problem as Error).name === "AbortError") throw problem;
    throw new Failure(0, { error: "The server does not answer." });
  }
  const text = await reply.text();
  let found: unknown = {};
  try {
    found = parsed(text);
  } catch {
    found = { error: text.slice(0, 200) || `status ${reply.status}` };
  }
  if (reply.status === 401 && sent === token.value) tokenWanted.value = token.value ? "The server does not know this token." : "The server asks for a token.";
  if (!reply.ok) throw new Failure(reply.status, found as Failure["body"]);
  return found as T;
}

/** Whom and what is asked; when it changes, so do all answers. */
export const asking = () => `${place.value.graph} ${token.value}`;

const of = (path: string) => `/graphs/${encodeURIComponent(place.value.graph)}${path}`;
const get = <T>(path: string, query?: Asked["query"], signal?: AbortSignal) => ask<T>("GET", of(path), { query, signal });
const post = <T>(path: string, body: unknown, signal?: AbortSignal) => ask<T>("POST", of(path), { body, signal });

async function wrote<T>(answer: Promise<T>): Promise<T> {
  const found = await answer;
  writes.value += 1;
  return found;
}

export interface State {
  branch?: string;
  snapshot?: string;
}

export interface LintPlace {
  message: string;
  line?: number;
  column?: number;
  hint?: string;
  severity?: string;
  code?: string;
}

export interface QueryParameter {
  name: string;
  type: string;
  default?: unknown;
}

export interface LintResult {
  name: string;
  kind: "read" | "mutation";
  status: string;
  error?: string;
  errors?: LintPlace[];
  operation?: { params?: QueryParameter[] };
}

export interface Lint {
  status: string;
  results: LintResult[];
  findings: LintPlace[];
}

export interface Step {
  name: string;
  detail: string;
  estimated_rows: number | null;
  rows: number | null;
  took_ms: number | null;
  children: Step[];
}

export interface PropertyConflict {
  property: string;
  base: unknown;
  ours: unknown;
  theirs: unknown;
}

export interface Conflict {
  entity_kind: "node" | "edge";
  type_name: string;
  entity_id: string | null;
  kind: string;
  message: string;
  properties: PropertyConflict[];
  deleted_by?: "ours" | "theirs";
  step_ours?: Record<string, unknown>;
  step_theirs?: Record<string, unknown>;
}

export interface Counts {
  inserted: number;
  updated: number;
  deleted: number;
}

export interface Preview {
  outcome: "already_up_to_date" | "fast_forward" | "merged" | "conflict";
  base_commit_id: string | null;
  changes: Record<string, Counts>;
  conflicts: Conflict[];
}

export interface Resolution {
  type_key: string;
  entity_id: string;
  take: "ours" | "theirs" | Record<string, unknown>;
}

export interface TableHealth {
  type_key: string;
  entity_count: number;
  deleted_rows: number;
  fragments: number;
  versions: number;
  indexes: { name: string; rows_unindexed: number }[];
  missing_indexes: string[];
  bytes_live: number;
  bytes_reclaimable: number;
}

export interface Health {
  uri: string;
  healthy: boolean;
  advice: string[];
  damage: string[];
  datasets: TableHealth[];
  manifest_versions: number;
  pending_recoveries: string[];
}

export interface ReadRequest extends State {
  query: string;
  name?: string;
  params?: Record<string, unknown>;
}

export const server = {
  graphs: () => ask<S["GraphListOutput"]>("GET", "/graphs"),
  health: () => ask<S["HealthOutput"]>("GET", "/healthz"),
  ready: () => ask<S["ReadyOutput"]>("GET", "/readyz"),
};

export const graph = {
  branches: () => get<S["BranchListOutput"]>("/branches"),
  tags: () => get<S["TagListOutput"]>("/tags"),
  snapshot: (at: State, signal?: AbortSignal) => get<S["SnapshotOutput"]>("/snapshot", { ...at }, signal),
  catalog: (at: State, signal?: AbortSignal) => get<S["CatalogOutput"]>("/catalog", { ...at }, signal),
  permissions: (scope: { branch?: string; target?: string }) => get<S["PermissionsOutput"]>("/permissions", scope),

  query: (request: ReadRequest, signal?: AbortSignal) => post<S["ReadOutput"]>("/query", request, signal),
  explain: (request: ReadRequest, signal?: AbortSignal) => post<Step>("/explain", request, signal),
  describe: (request: ReadRequest, signal?: AbortSignal) => post<S["DescribeOutput"]>("/describe", request, signal),
  mutate: (request: ReadRequest & { message?: string }) => wrote(post<S["ChangeOutput"]>("/mutate", request)),
  lint: (source: string, branch: string, signal?: AbortSignal) => post<Lint>("/lint", { source, branch }, signal),
  complete: (source: string, at: number, branch: string) => post<S["CompletionsOutput"]>("/complete", { source, at, branch }),

  neighbours: (request: State & { nodes: { type_name: string; ids: string[] }[]; among?: boolean; limit?: number }, signal?: AbortSignal) =>
    post<S["NeighboursOutput"]>("/neighbours", request, signal),
  entity: (kind: string, type: string, id: string, at: State, signal?: AbortSignal) =>
    get<S["EntityOutput"]>(`/entities/${kind}/${encodeURIComponent(type)}/${encodeURIComponent(id)}`, { ...at }, signal),
  entityHistory: (kind: string, type: string, id: string, branch: string, signal?: AbortSignal) =>
    get<S["EntityHistoryOutput"]>(`/entities/${kind}/${encodeURIComponent(type)}/${encodeURIComponent(id)}/history`, { branch }, signal),

  commits: (branch: string, limit: number, page_token?: string, signal?: AbortSignal) =>
    get<S["CommitListOutput"]>("/commits", { branch, limit, page_token }, signal),
  commit: (id: string, signal?: AbortSignal) => get<S["CommitOutput"]>(`/commits/${encodeURIComponent(id)}`, {}, signal),
  commitChanges: (id: string, limit: number, page_token?: string, signal?: AbortSignal) =>
    get<S["CommitChangesOutput"]>(`/commits/${encodeURIComponent(id)}/changes`, { limit, page_token }, signal),
  revert: (id: string, branch: string, message?: string) =>
    wrote(post<S["RevertOutput"]>(`/commits/${encodeURIComponent(id)}/revert`, { branch, message })),
  diff: (from: string, to: string, limit: number, page_token?: string, signal?: AbortSignal) =>
    get<S["DiffOutput"]>("/diff", { from, to, limit, page_token }, signal),

  createBranch: (name: string, from: string) => wrote(post<S["BranchCreateOutput"]>("/branches", { name, from })),
  deleteBranch: (name: string) => wrote(ask<S["BranchDeleteOutput"]>("DELETE", of(`/branches/${encodeURIComponent(name)}`), { query: { unmerged: "refuse" } })),
  preview: (source: string, target: string, resolutions: Resolution[], signal?: AbortSignal) =>
    post<Preview>("/branches/merge/preview", { source, target, resolutions: resolutions.length ? resolutions : undefined }, signal),
  merge: (request: { source: string; target: string; resolutions?: Resolution[]; message?: string; delete_branch?: boolean }) =>
    wrote(post<S["BranchMergeOutput"]>("/branches/merge", request)),

  queries: (signal?: AbortSignal) => get<S["QueriesOutput"]>("/queries", {}, signal),
  invoke: (name: string, request: State & { params: Record<string, unknown>; message?: string }) =>
    post<S["ReadOutput"] | S["ChangeOutput"]>(`/queries/${encodeURIComponent(name)}`, request),

  health: (branch: string, signal?: AbortSignal) => get<Health>("/health", { branch }, signal),
  recoveries: (signal?: AbortSignal) => get<S["RecoveriesOutput"]>("/recoveries", {}, signal),
};
