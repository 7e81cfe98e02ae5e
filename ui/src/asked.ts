// Answers of the server as parts of a page: asked when something they depend on changes.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Failure, graph, asking, writes, type S } from "./api";

export interface Asked<T> {
  value?: T;
  failure?: Failure;
  busy: boolean;
}

/** Ask whenever one of `by` changes; the last good answer stays until the next one is there. */
export function useAsked<T>(question: ((signal: AbortSignal) => Promise<T>) | null, by: unknown[]): Asked<T> {
  const found = useSignal<Asked<T>>({ busy: question !== null });
  useEffect(() => {
    if (!question) {
      found.value = { busy: false };
      return;
    }
    const ended = new AbortController();
    found.value = { ...found.value, busy: true };
    question(ended.signal).then(
      (value) => {
        if (!ended.signal.aborted) found.value = { value, busy: false };
      },
      (problem: unknown) => {
        if (!ended.signal.aborted) found.value = { failure: failureOf(problem), busy: false };
      },
    );
    return () => ended.abort();
  }, [...by, writes.value, asking()]);
  return found.value;
}

export function failureOf(problem: unknown): Failure {
  return problem instanceof Failure ? problem : new Failure(0, { error: String((problem as Error)?.message ?? problem) });
}

const OPEN: S["PermissionsOutput"] = { actor_id: null, actions: {} };

/** What the reader may do to these branches, and why not: an empty text means "may". */
export function usePermissions(scope: { branch?: string; target?: string }): (action: string) => string {
  const found = useAsked(() => graph.permissions(scope), [scope.branch, scope.target]).value ?? OPEN;
  return (action) => {
    const one = found.actions[action];
    return !one || one.allowed ? "" : (one.reason ?? "not allowed");
  };
}
