// Ask and change the graph in its own language.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { failureOf, useAsked, usePermissions, type Asked } from "../asked";
import { graph, type Failure, type Lint, type ReadRequest, type S, type Step } from "../api";
import { Button, CommitLink, Problem, Tabs, Waiting, count, plural } from "../bits";
import type { DrawnEdge, DrawnNode } from "../drawing";
import { Fields, fieldOf, packed, unpacked, valuesOf } from "../form";
import { written } from "../json";
import { Canvas, Editor } from "../later";
import { branch, change, link, place, state } from "../place";
import { Table } from "../table";

const VIEWS = [
  { id: "table", label: "Table" },
  { id: "graph", label: "Graph" },
  { id: "json", label: "JSON" },
  { id: "explain", label: "Explain" },
];

/** A first query, about whatever the graph has. */
function firstQuery(catalog: S["CatalogOutput"] | undefined): string {
  const node = catalog?.nodes[0];
  if (!node) return "";
  const edge = catalog.edges.find((one) => one.from === node.name);
  const walk = edge ? `\n    $n ${edge.name[0].toLowerCase()}${edge.name.slice(1)} $m` : "";
  return `query first() {\n  match {\n    $n: ${node.name}${walk}\n  }\n  return { $n, $n.*${edge ? ", $m" : ""} }\n  limit 100\n}\n`;
}

export function QueryPage() {
  const { params } = place.value;
  const catalog = useAsked((signal) => graph.catalog(state(), signal), [params.branch, params.at]);
  const text = useSignal(params.q ?? "");
  const lint = useSignal<Lint | undefined>(undefined);
  const result = useSignal<Asked<S["ReadOutput"]>>({ busy: false });
  const change_ = useSignal<{ value?: S["ChangeOutput"]; failure?: Failure }>({});
  const ran = useSignal<ReadRequest | undefined>(undefined);
  const message = useSignal("");
  const may = usePermissions({ branch: branch() });
  const view = params.view ?? "table";

  useEffect(() => {
    if (params.q !== undefined && params.q !== text.value) text.value = params.q;
  }, [params.q]);
  useEffect(() => {
    if (!params.q && !text.value && catalog.value) text.value = firstQuery(catalog.value);
  }, [catalog.value]);

  const queries = lint.value?.results ?? [];
  const chosen = queries.find((one) => one.name === params.name) ?? queries[0];
  const fields = (chosen?.operation?.params ?? []).map(fieldOf);
  const texts = unpacked(params.params);
  const isMutation = chosen?.kind === "mutation";
  const denied = !isMutation ? may("read") : params.at ? "the past cannot be changed: take the time out of the state" : may("change");

  const run = async () => {
    if (denied || !text.value.trim()) return;
    change({ q: text.value, ran: "1" }, { replace: params.q === text.value });
    const request: ReadRequest = { query: text.value, name: chosen?.name, params: valuesOf(fields, texts), ...state() };
    if (isMutation) {
      result.value = { busy: true };
      change_.value = {};
      try {
        change_.value = { value: await graph.mutate({ ...request, message: message.value || undefined }) };
        message.value = "";
      } catch (problem) {
        change_.value = { failure: failureOf(problem) };
      }
      result.value = { busy: false };
      return;
    }
    change_.value = {};
    ran.value = request;
    result.value = { ...result.value, busy: true };
    try {
      result.value = { value: await graph.query(request), busy: false };
    } catch (problem) {
      result.value = { failure: failureOf(problem), busy: false };
    }
  };

  // A link to a result shows the result, once it is known to be a question; changes are never made by a link.
  const readyToRun = params.ran === "1" && params.q === text.value && chosen?.kind === "read" && chosen.status !== "error" && !ran.value;
  useEffect(() => {
    if (readyToRun) void run();
  }, [readyToRun]);
  // Another state of the graph: the same question.
  useEffect(() => {
    if (ran.value && !isMutation) void run();
  }, [params.branch, params.at]);

  return (
    <div class="page query-page">
      <h1 class="unseen">Query</h1>
      <section class="ask" aria-label="Query">
        <Editor
          text={text.value}
          language="gq"
          label="Query text"
          branch={branch()}
          onChange={(next) => (text.value = next)}
          onLint={(found) => (lint.value = found)}
          onRun={() => void run()}
        />
        <div class="ask-foot">
          {queries.length > 1 && (
            <label class="inline">
              Query
              <select value={chosen?.name} onChange={(event) => change({ name: event.currentTarget.value })}>
                {queries.map((one) => (
                  <option key={one.name}>{one.name}</option>
                ))}
              </select>
            </label>
          )}
          <Fields fields={fields} texts={texts} onChange={(next) => change({ params: packed(next) }, { replace: true })} />
          {isMutation && (
            <label class="inline grow">
              Message
              <input type="text" value={message.value} placeholder="why, for the history" onInput={(event) => (message.value = event.currentTarget.value)} />
            </label>
          )}
          <Button primary denied={denied} disabled={result.value.busy} onClick={() => void run()}>
            {isMutation ? `Change ${branch()}` : "Run"} <kbd>Ctrl ↵</kbd>
          </Button>
        </div>
      </section>
      <section class="answer" aria-label="Result" aria-busy={result.value.busy}>
        <Problem failure={change_.value.failure} />
        {change_.value.value && <Changed done={change_.value.value} />}
        <Problem failure={result.value.failure} />
        {result.value.value && (
          <>
            <div class="answer-head">
              <Tabs tabs={VIEWS} chosen={view} choose={(id) => change({ view: id })} label="Views of the result" />
              <span role="status">
                {plural(result.value.value.row_count, "row")}
                {result.value.value.graph_commit_id && <> at <CommitLink id={result.value.value.graph_commit_id} /></>}
              </span>
            </div>
            <div class="answer-body" role="tabpanel" aria-labelledby={`tab-${view}`}>
              {view === "table" && <Table columns={result.value.value.columns ?? []} rows={result.value.value.rows} label="Rows" />}
              {view === "graph" && <ResultGraph result={result.value.value} request={ran.value!} types={catalog.value?.nodes.map((one) => one.name) ?? []} />}
              {view === "json" && <pre class="json" tabIndex={0}>{written(result.value.value.rows.slice(0, 500), 2)}{result.value.value.row_count > 500 ? "\n… the first 500 rows" : ""}</pre>}
              {view === "explain" && <Explained request={ran.value!} />}
            </div>
          </>
        )}
        {!result.value.value && !result.value.failure && !change_.value.value && !change_.value.failure && (
          <p class="quiet">Rows, a drawing, JSON and the plan of a query appear here. A mutation becomes one commit.</p>
        )}
      </section>
    </div>
  );
}

export function Changed({ done }: { done: S["ChangeOutput"] }) {
  return (
    <div class="done" role="status">
      {done.commit ? (
        <>
          Changed {plural(done.affected_nodes, "node")} and {plural(done.affected_edges, "edge")} on <b>{done.branch}</b>, in commit{" "}
          <a class="mono" href={link("history", { commit: done.commit.graph_commit_id, branch: done.branch })}>{done.commit.graph_commit_id.slice(-8)}</a>
        </>
      ) : (
        <>Nothing had to change on <b>{done.branch}</b>.</>
      )}
      {done.rows && done.rows.length > 0 && <Table columns={Object.keys(done.rows[0])} rows={done.rows} label="Returned rows" />}
    </div>
  );
}

/** The nodes of a result, and the edges among them. */
function ResultGraph({ result, request, types }: { result: S["ReadOutput"]; request: ReadRequest; types: string[] }) {
  const asked = useAsked(
    async (signal) => {
      const { columns } = await graph.describe(request, signal);
      const ids = new Map<string, Set<string>>();
      for (const column of columns) {
        for (const type of column.node_types ?? []) {
          const found = ids.get(type) ?? new Set();
          for (const row of result.rows) if (typeof row[column.name] === "string") found.add(row[column.name] as string);
          ids.set(type, found);
        }
      }
      if (!ids.size) return null;
      const nodes = [...ids].map(([type_name, found]) => ({ type_name, ids: [...found] }));
      return graph.neighbours({ ...state(), nodes, among: true }, signal);
    },
    [result],
  );
  const drawn = useMemo(() => (asked.value ? drawing(asked.value) : null), [asked.value]);
  const chosen = useSignal("");
  if (asked.value === null) {
    return <p class="quiet">There is nothing to draw: return whole nodes, such as <code>$n</code>, and they are drawn with the edges among them.</p>;
  }
  return (
    <Waiting asked={asked}>
      {() => {
        const node = drawn!.nodes.find((one) => one.key === chosen.value);
        return (
          <>
            <Canvas nodes={drawn!.nodes} edges={drawn!.edges} types={types} chosen={chosen.value} onChoose={(key) => (chosen.value = key)} label="Result" />
            {node && (
              <p class="chosen">
                {node.type} <b>{node.label}</b> <a href={link("explore", { focus: node.key })}>Explore</a>
              </p>
            )}
            {asked.value!.truncated && <p class="quiet">Not every edge is drawn.</p>}
          </>
        );
      }}
    </Waiting>
  );
}

/** Nodes and edges as the canvas takes them: keys are `Type:id`. */
export function drawing(found: S["NeighboursOutput"]): { nodes: DrawnNode[]; edges: DrawnEdge[] } {
  const nodes = found.nodes.map((one) => ({ key: `${one.type_name}:${one.id}`, type: one.type_name, label: one.label }));
  const edges = found.edges.map((one) => ({
    key: `${one.type_name}:${one.id}`,
    type: one.type_name,
    from: `${one.from_type}:${one.from}`,
    to: `${one.to_type}:${one.to}`,
  }));
  return { nodes, edges };
}

function Explained({ request }: { request: ReadRequest }) {
  const asked = useAsked((signal) => graph.explain(request, signal), [request]);
  return (
    <Waiting asked={asked}>
      {(step) => (
        <div class="scroll" tabIndex={0}>
          <table class="plan">
            <thead>
              <tr>
                <th>Step</th>
                <th class="right">Rows</th>
                <th class="right">Estimated</th>
                <th class="right">ms</th>
              </tr>
            </thead>
            <tbody>{steps(step, 0)}</tbody>
          </table>
        </div>
      )}
    </Waiting>
  );
}

function steps(step: Step, depth: number): preact.JSX.Element[] {
  const number = (value: number | null) => (value === null ? "" : count(value));
  return [
    <tr key={`${depth}${step.name}${step.detail}`}>
      <td style={{ paddingLeft: `${depth * 1.4 + 0.5}em` }}>
        <b>{step.name}</b> <code>{step.detail}</code>
      </td>
      <td class="right">{number(step.rows)}</td>
      <td class="right">{number(step.estimated_rows)}</td>
      <td class="right">{step.took_ms === null ? "" : step.took_ms.toFixed(2)}</td>
    </tr>,
    ...step.children.flatMap((one) => steps(one, depth + 1)),
  ];
}
