// The commits of the graph in lanes, and what each of them changed.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { failureOf, useAsked, usePermissions } from "../asked";
import { graph, type Failure, type S } from "../api";
import { Button, Problem, Waiting, commitTitle, count, plural, short, when, When } from "../bits";
import { BeforeAfter, ChangeList, keyOf, type Change } from "../changes";
import { address, branch, change, link, place } from "../place";
import { Rows } from "../table";

type Commit = S["CommitOutput"];

const PAGE = 200; // commits of one branch, at first and with every "older"
const BRANCHES = 12; // whose commits are shown at once
const CHANGES = 200;
const ROW = 34;
const LANE = 16;

// --- lanes ---------------------------------------------------------------------------------------

interface Lined {
  commit: Commit;
  lane: number;
  links: { from: number; to: number; joins: boolean }[]; // to the next row
}

/** Parents always below their children, the newest first where that leaves a choice. */
function ordered(commits: Map<string, Commit>): Commit[] {
  const children = new Map<string, number>();
  const parents = (one: Commit) => [one.parent_commit_id, one.merged_parent_commit_id].filter((id): id is string => !!id && commits.has(id));
  for (const one of commits.values()) for (const id of parents(one)) children.set(id, (children.get(id) ?? 0) + 1);
  const free = [...commits.values()].filter((one) => !children.get(one.graph_commit_id));
  const found: Commit[] = [];
  while (free.length) {
    free.sort((a, b) => a.created_at - b.created_at);
    const next = free.pop()!;
    found.push(next);
    for (const id of parents(next)) {
      const left = children.get(id)! - 1;
      children.set(id, left);
      if (!left) free.push(commits.get(id)!);
    }
  }
  return found;
}

/** A lane for each line of commits: a commit takes the lane that waits for it. */
function lined(commits: Commit[]): { rows: Lined[]; lanes: number } {
  const waiting: (string | null)[] = [];
  let lanes = 0;
  const rows = commits.map((commit) => {
    const id = commit.graph_commit_id;
    let lane = waiting.indexOf(id);
    if (lane < 0) lane = waiting.indexOf(null);
    if (lane < 0) lane = waiting.length;
    const above = [...waiting];
    for (let at = 0; at < waiting.length; at++) if (waiting[at] === id) waiting[at] = null;
    waiting[lane] = commit.parent_commit_id;
    const links: Lined["links"] = [];
    const merged = commit.merged_parent_commit_id;
    if (merged) {
      let to = waiting.indexOf(merged);
      if (to < 0) {
        to = waiting.findIndex((one, at) => one === null && at !== lane);
        if (to < 0) to = waiting.length;
        waiting[to] = merged;
      }
      links.push({ from: lane, to, joins: true });
    }
    above.forEach((waits, at) => {
      if (waits && waits !== id && waiting[at] === waits) links.push({ from: at, to: at, joins: false });
    });
    if (commit.parent_commit_id) {
      const first = waiting.indexOf(commit.parent_commit_id);
      links.push({ from: lane, to: first, joins: false });
      if (first !== lane) waiting[lane] = null;
    }
    // Lanes that wait for the same commit flow together.
    for (let at = 0; at < waiting.length; at++) {
      const first = waiting[at] ? waiting.indexOf(waiting[at]) : at;
      if (first !== at) {
        links.forEach((one) => {
          if (one.to === at) one.to = first;
        });
        waiting[at] = null;
      }
    }
    lanes = Math.max(lanes, waiting.length, lane + 1);
    return { commit, lane, links };
  });
  return { rows, lanes };
}

function Lanes({ row, before, lanes }: { row: Lined; before?: Lined; lanes: number }) {
  const x = (lane: number) => lane * LANE + LANE / 2;
  const half = ROW / 2;
  const colour = (lane: number) => `var(--lane-${lane % 6})`;
  return (
    <svg class="lanes" width={Math.max(lanes, 1) * LANE} height={ROW} aria-hidden="true">
      {before?.links.map((one, at) => (
        <path key={`a${at}`} d={`M${(x(one.from) + x(one.to)) / 2} 0Q${x(one.to)} ${half / 2} ${x(one.to)} ${half}`} stroke={colour(one.joins ? one.to : one.from)} />
      ))}
      {row.links.map((one, at) => (
        <path key={`b${at}`} d={`M${x(one.from)} ${half}Q${x(one.from)} ${half * 1.5} ${(x(one.from) + x(one.to)) / 2} ${ROW}`} stroke={colour(one.joins ? one.to : one.from)} />
      ))}
      <circle cx={x(row.lane)} cy={half} r={row.commit.merged_parent_commit_id ? 5.5 : 4.5} fill={row.commit.merged_parent_commit_id ? "var(--ground)" : colour(row.lane)} stroke={colour(row.lane)} stroke-width="2" />
    </svg>
  );
}

/** The newest commits of a branch. */
async function newest(name: string, pages: number, signal: AbortSignal): Promise<{ commits: Commit[]; more: boolean }> {
  const commits: Commit[] = [];
  let token: string | undefined;
  for (let at = 0; at < pages; at++) {
    const page = await graph.commits(name, PAGE, token, signal);
    commits.push(...page.commits);
    token = page.next_page_token;
    if (!token) break;
  }
  return { commits, more: token !== undefined };
}

// --- the page ------------------------------------------------------------------------------------

export function HistoryPage() {
  const { params } = place.value;
  const all = params.all !== "no";
  const pages = Math.max(1, Math.floor(Number(params.pages)) || 1);
  const asked = useAsked(
    async (signal) => {
      const { branches } = await graph.branches();
      const shown = all ? [branch(), ...branches.filter((name) => name !== branch())].slice(0, BRANCHES) : [branch()];
      const [{ tags }, ...lists] = await Promise.all([graph.tags(), ...shown.map((name) => newest(name, pages, signal))]);
      const commits = new Map<string, Commit>();
      const heads = new Map<string, string[]>();
      lists.forEach((page, at) => {
        const head = page.commits[0]?.graph_commit_id;
        if (head) heads.set(head, [...(heads.get(head) ?? []), shown[at]]);
        for (const one of page.commits) commits.set(one.graph_commit_id, one);
      });
      // What came in by a merge whose branch is gone: its commits are found by their ids.
      for (let round = 0; round < 6; round++) {
        const missing = [...commits.values()].flatMap((one) => (one.merged_parent_commit_id && !commits.has(one.merged_parent_commit_id) ? [one.merged_parent_commit_id] : []));
        const gone = [...commits.values()].flatMap((one) => (!["main", null, ...shown].includes(one.graph_branch) && one.parent_commit_id && !commits.has(one.parent_commit_id) ? [one.parent_commit_id] : []));
        const wanted = [...new Set([...missing, ...gone])].slice(0, 20);
        if (!wanted.length) break;
        const found = await Promise.all(wanted.map((id) => graph.commit(id, signal).catch(() => null)));
        if (found.every((one) => one === null)) break;
        for (const one of found) if (one) commits.set(one.graph_commit_id, one);
      }
      const tagged = new Map<string, string[]>();
      for (const tag of tags) tagged.set(tag.graph_commit_id, [...(tagged.get(tag.graph_commit_id) ?? []), tag.name]);
      return { commits, heads, tagged, more: branches.length > shown.length, full: lists.some((list) => list.more) };
    },
    [params.branch, params.all, pages],
  );
  const filter = (params.find ?? "").toLowerCase();
  const drawn = useMemo(() => {
    if (!asked.value) return null;
    const found = ordered(asked.value.commits);
    return lined(found);
  }, [asked.value]);
  return (
    <div class="page history-page">
      <div class="answer-head">
        <h1>History</h1>
        <label class="inline check">
          <input type="checkbox" checked={all} onChange={(event) => change({ all: event.currentTarget.checked ? "" : "no" })} /> every branch
        </label>
        <label class="inline">
          Filter
          <input type="search" value={params.find ?? ""} placeholder="message, actor, branch" size={24} onInput={(event) => change({ find: event.currentTarget.value }, { replace: true })} />
        </label>
      </div>
      <div class="history-body">
        <Waiting asked={asked}>
          {({ heads, tagged, more, full }) => {
            const rows = drawn!.rows.filter(({ commit }) => !filter || `${commitTitle(commit)} ${commit.actor_id ?? ""} ${commit.graph_branch ?? "main"}`.toLowerCase().includes(filter));
            return (
              <div class="commits">
                <Rows length={rows.length} rowHeight={ROW} label="Commits">
                  {(at) => {
                    const row = rows[at];
                    const id = row.commit.graph_commit_id;
                    return (
                      <div key={id} role="listitem" class="commit-row">
                        {!filter && <Lanes row={row} before={rows[at - 1]} lanes={drawn!.lanes} />}
                        <a class="commit" href={address(place.value.graph, "history", { ...params, commit: id, change: "" })} aria-current={params.commit === id ? "true" : undefined}>
                          {(heads.get(id) ?? []).map((name) => (
                            <span key={name} class="badge branch">{name}</span>
                          ))}
                          {(tagged.get(id) ?? []).map((name) => (
                            <span key={name} class="badge tag">⚑ {name}</span>
                          ))}
                          <span class="title">{commitTitle(row.commit)}</span>
                          <span class="who">{row.commit.actor_id ?? ""}</span>
                          <When micros={row.commit.created_at} />
                        </a>
                      </div>
                    );
                  }}
                </Rows>
                <p class="quiet foot">
                  {plural(rows.length, "commit")}
                  {full && `, the newest ${count(PAGE * pages)} of each branch`}
                  {more && `, ${BRANCHES} branches; choose another above`}{" "}
                  {full && <button type="button" onClick={() => change({ pages: String(pages + 1) })}>Older commits</button>}
                </p>
              </div>
            );
          }}
        </Waiting>
        {params.commit && <CommitDetails key={params.commit} id={params.commit} />}
      </div>
    </div>
  );
}

function CommitDetails({ id }: { id: string }) {
  const { params } = place.value;
  const asked = useAsked((signal) => graph.commit(id, signal), [id]);
  const changes = useSignal<{ list: Change[]; more?: string; failure?: Failure; busy: boolean }>({ list: [], busy: true });
  const failure = useSignal<Failure | undefined>(undefined);
  const may = usePermissions({ branch: branch() });
  const load = async (token?: string) => {
    changes.value = { ...changes.value, busy: true };
    try {
      const page = await graph.commitChanges(id, CHANGES, token);
      changes.value = { list: [...changes.value.list, ...page.changes], more: page.next_page_token, busy: false };
    } catch (problem) {
      changes.value = { ...changes.value, failure: failureOf(problem), busy: false };
    }
  };
  useEffect(() => void load(), [id]);
  const revert = async () => {
    try {
      const done = await graph.revert(id, branch());
      change({ commit: done.commit?.graph_commit_id ?? id, change: "" });
    } catch (problem) {
      failure.value = failureOf(problem);
    }
  };
  const { list, more, busy } = changes.value;
  const chosen = list.find((one) => keyOf(one) === params.change) ?? list[0];
  return (
    <aside class="details" aria-label="Commit">
      <Waiting asked={asked}>
        {(commit) => (
          <>
            <h2>{commitTitle(commit)}</h2>
            {commit.message?.includes("\n") && <p class="message">{commit.message.split("\n").slice(1).join("\n").trim()}</p>}
            <p class="quiet">
              <span class="mono wrap">{commit.graph_commit_id}</span>
              <br />
              {when(commit.created_at)} on <b>{commit.graph_branch ?? "main"}</b> {commit.actor_id && <>by <b>{commit.actor_id}</b></>}
              {commit.parent_commit_id && (
                <>
                  <br />
                  after <a class="mono" href={address(place.value.graph, "history", { ...params, commit: commit.parent_commit_id, change: "" })}>{short(commit.parent_commit_id)}</a>
                </>
              )}
              {commit.merged_parent_commit_id && (
                <>
                  {" "}and <a class="mono" href={address(place.value.graph, "history", { ...params, commit: commit.merged_parent_commit_id, change: "" })}>{short(commit.merged_parent_commit_id)}</a>
                </>
              )}
            </p>
            <p class="buttons">
              <a class="button" href={link("query", { at: id })}>Query this state</a>
              {commit.parent_commit_id && <a class="button" href={link("compare", { from: commit.parent_commit_id, to: id })}>Draw the change</a>}
              {commit.parent_commit_id && <Button denied={may("change")} onClick={() => void revert()}>Undo on {branch()}</Button>}
            </p>
            <Problem failure={failure.value} />
          </>
        )}
      </Waiting>
      <Problem failure={changes.value.failure} />
      {!busy && !list.length && !changes.value.failure && <p class="quiet">No entity changed.</p>}
      {list.length > 0 && (
        <>
          <h3>{plural(list.length, "change")}{more ? " so far" : ""}</h3>
          <div class="change-list" style={{ height: `${Math.min(list.length, 8) * 32 + 4}px` }}>
            <ChangeList changes={list} chosen={chosen ? keyOf(chosen) : ""} choose={(key) => change({ change: key })} />
          </div>
          {more && <Button disabled={busy} onClick={() => void load(more)}>More changes</Button>}
          {chosen && <BeforeAfter one={chosen} />}
        </>
      )}
    </aside>
  );
}
