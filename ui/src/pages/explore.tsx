// Find an entity, look around it, see how it came to be what it is.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { failureOf, useAsked } from "../asked";
import { graph, type Failure, type S } from "../api";
import { Button, CommitLink, Problem, Tabs, ValueText, Waiting, plural, when } from "../bits";
import { MARKS, WORDS } from "../changes";
import { colourOf } from "../drawing";
import { same } from "../json";
import { Canvas } from "../later";
import { branch, change, place, state } from "../place";
import { drawing } from "./query";

type Catalog = S["CatalogOutput"];

interface Found {
  type: string;
  id: string;
  label: string;
}

const MOST = 30; // hits of one type
const NEAR = 100; // edges of one type around a node

function split(key: string): { type: string; id: string } {
  const at = key.indexOf(":");
  return { type: key.slice(0, at), id: key.slice(at + 1) };
}

// Ids may hold anything, so that a list of nodes in an address is JSON.
function listed(text: string | undefined): string[] {
  try {
    return text ? (JSON.parse(text) as string[]) : [];
  } catch {
    return [];
  }
}

async function search(catalog: Catalog, type: string, text: string, signal: AbortSignal): Promise<Found[]> {
  const types = catalog.nodes.filter((one) => !type || one.name === type).slice(0, 40);
  const answers = await Promise.all(
    types.map(async (one) => {
      const where = text ? `  lower($n.${one.label}) contains lower($text)` : "";
      const query = `query find(${text ? "$text: String" : ""}) { match { $n: ${one.name}${where} } return { $n.id as id, $n.${one.label} as label } limit ${MOST} }`;
      const { rows } = await graph.query({ query, params: text ? { text } : {}, ...state() }, signal);
      return rows.map((row) => ({ type: one.name, id: String(row.id), label: String(row.label ?? row.id) }));
    }),
  );
  return answers.flat();
}

export function ExplorePage() {
  const { params } = place.value;
  const catalog = useAsked((signal) => graph.catalog(state(), signal), [params.branch, params.at]);
  const text = useSignal(params.find ?? "");
  const hits = useAsked(
    catalog.value && (params.find || params.type || !params.focus) ? (signal) => search(catalog.value!, params.type ?? "", params.find ?? "", signal) : null,
    [catalog.value, params.find, params.type, params.branch, params.at],
  );
  const opened = listed(params.open);
  const focus = params.focus ?? "";
  const around = useAsked(
    focus || opened.length
      ? async (signal) => {
          const groups = new Map<string, string[]>();
          const keys = [...new Set([focus, ...opened].filter(Boolean))];
          for (const key of opened.length ? opened : keys) {
            const { type, id } = split(key);
            groups.set(type, [...(groups.get(type) ?? []), id]);
          }
          const nodes = [...groups].map(([type_name, ids]) => ({ type_name, ids }));
          return graph.neighbours({ ...state(), nodes, limit: NEAR * keys.length }, signal);
        }
      : null,
    [params.open ?? focus, params.branch, params.at],
  );
  const drawn = useMemo(() => (around.value ? drawing(around.value) : null), [around.value]);
  useEffect(() => {
    text.value = params.find ?? "";
  }, [params.find]);
  const types = catalog.value?.nodes.map((one) => one.name) ?? [];
  const expand = (key: string) => {
    const before = opened.length ? opened : focus ? [focus] : [];
    change({ focus: key, edge: "", open: JSON.stringify([...new Set([...before, key])]) });
  };
  return (
    <div class="page three">
      <h1 class="unseen">Explore</h1>
      <aside class="side" aria-label="Find">
        <form
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            change({ find: text.value });
          }}
        >
          <label>
            Find
            <input type="search" value={text.value} placeholder="part of a name" onInput={(event) => (text.value = event.currentTarget.value)} />
          </label>
          <label>
            Type
            <select value={params.type ?? ""} onChange={(event) => change({ type: event.currentTarget.value })}>
              <option value="">every type</option>
              {types.map((type) => (
                <option key={type}>{type}</option>
              ))}
            </select>
          </label>
          <Button type="submit" primary onClick={() => undefined}>Find</Button>
        </form>
        <Waiting asked={hits}>
          {(found) => (
            <>
              <p role="status" class="quiet">{found.length ? `${plural(found.length, "node")}${found.length >= MOST ? " at least" : ""}` : "Nothing found."}</p>
              <ul class="plain hits">
                {found.slice(0, 200).map((one) => {
                  const key = `${one.type}:${one.id}`;
                  return (
                    <li key={key}>
                      <button type="button" class="hit" aria-pressed={key === focus} onClick={() => change({ focus: key, edge: "", open: JSON.stringify([key]) })}>
                        <span class="dot" style={{ background: colourOf(one.type, types) }} /> {one.label} <small>{one.type}</small>
                      </button>
                    </li>
                  );
                })}
              </ul>
            </>
          )}
        </Waiting>
      </aside>
      <div class="main">
        {!focus && !opened.length && <p class="quiet">Choose a node on the left. A double click on a node, or “Expand”, shows what is around it.</p>}
        <Problem failure={around.failure} />
        {drawn && <Canvas nodes={drawn.nodes} edges={drawn.edges} types={types} chosen={focus} onChoose={(key) => change({ focus: key, edge: "", open: JSON.stringify(opened.length ? opened : [focus]) })} onExpand={expand} label="Surroundings" />}
        {around.value?.truncated && <p class="quiet">Some neighbours are not drawn: there are too many.</p>}
      </div>
      {params.edge ? (
        <aside class="side last" aria-label="Entity">
          <Entity key={params.edge} kind="edge" entity={split(params.edge)}>
            <Button onClick={() => change({ edge: "" })}>Back to {focus ? split(focus).id : "the nodes"}</Button>
          </Entity>
        </aside>
      ) : focus && (
        <aside class="side last" aria-label="Entity">
          <Entity key={focus} kind="node" entity={split(focus)}>
            <Button onClick={() => expand(focus)} disabled={opened.includes(focus)}>{opened.includes(focus) ? "Expanded" : "Expand"}</Button>
          </Entity>
          {drawn && <Near drawn={drawn} focus={focus} />}
        </aside>
      )}
    </div>
  );
}

/** The neighbours of the chosen node as a list, for the keyboard. */
function Near({ drawn, focus }: { drawn: ReturnType<typeof drawing>; focus: string }) {
  const labels = new Map(drawn.nodes.map((one) => [one.key, one]));
  const near = drawn.edges.filter((edge) => edge.from === focus || edge.to === focus).slice(0, 200);
  if (!near.length) return null;
  return (
    <>
      <h3>Around it</h3>
      <ul class="plain near">
        {near.map((edge) => {
          const other = edge.from === focus ? edge.to : edge.from;
          return (
            <li key={edge.key}>
              <button type="button" class="text-button edge" title={`The edge ${edge.key}`} onClick={() => change({ edge: edge.key })}>{edge.from === focus ? `${edge.type} →` : `← ${edge.type}`}</button>{" "}
              <button type="button" class="text-button" onClick={() => change({ focus: other, edge: "" })}>{labels.get(other)?.label ?? other}</button>
            </li>
          );
        })}
      </ul>
    </>
  );
}

const VIEWS = [
  { id: "properties", label: "Properties" },
  { id: "versions", label: "History" },
  { id: "blame", label: "Blame" },
];

type Kind = "node" | "edge";

function Entity({ kind, entity, children }: { kind: Kind; entity: { type: string; id: string }; children: ComponentChildren }) {
  const { params } = place.value;
  const view = params.side ?? "properties";
  const found = useAsked((signal) => graph.entity(kind, entity.type, entity.id, state(), signal), [params.branch, params.at]);
  return (
    <>
      <h2>
        {entity.type} <span class="mono wrap">{entity.id}</span>
      </h2>
      {children}
      <Tabs tabs={VIEWS} chosen={view} choose={(id) => change({ side: id })} label="About the entity" />
      {view === "properties" ? (
        <Waiting asked={found}>
          {({ image }) => (
            <table class="properties">
              <tbody>
                {Object.entries(image.endpoints ?? {}).map(([end, id]) => (
                  <tr key={`end ${end}`}>
                    <th scope="row">{end}</th>
                    <td><ValueText value={id} /></td>
                  </tr>
                ))}
                {Object.entries(image.properties).map(([name, value]) => (
                  <tr key={name}>
                    <th scope="row">{name}</th>
                    <td><ValueText value={value} /></td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Waiting>
      ) : (
        <Versions kind={kind} entity={entity} blame={view === "blame"} />
      )}
    </>
  );
}

type Version = S["EntityVersionOutput"];

function Versions({ kind, entity, blame }: { kind: Kind; entity: { type: string; id: string }; blame: boolean }) {
  const found = useSignal<{ versions?: Version[]; failure?: Failure }>({});
  const { params } = place.value;
  useEffect(() => {
    const ended = new AbortController();
    graph.entityHistory(kind, entity.type, entity.id, branch(), ended.signal).then(
      ({ versions }) => (found.value = { versions }),
      (problem: unknown) => {
        if (!ended.signal.aborted) found.value = { failure: failureOf(problem) };
      },
    );
    return () => ended.abort();
  }, [params.branch]);
  const { versions, failure } = found.value;
  if (failure) return <Problem failure={failure} />;
  if (!versions) return <p class="quiet" role="status">Loading…</p>;
  if (blame) return <Blame versions={versions} />;
  return (
    <ol class="plain versions">
      {versions.map((one, at) => (
        <li key={one.commit.graph_commit_id}>
          <p>
            <span class={`mark ${one.op}`} role="img" aria-label={WORDS[one.op]}>{MARKS[one.op]}</span> <CommitLink id={one.commit.graph_commit_id} /> {when(one.commit.created_at)}{" "}
            {one.commit.actor_id && <>by {one.commit.actor_id}</>}
          </p>
          {one.commit.message && <p class="quiet">{one.commit.message}</p>}
          <ul class="plain">
            {differing(versions[at + 1], one).map(([name, before, after]) => (
              <li key={name}>
                {name}: {at + 1 < versions.length && <><del><ValueText value={before} /></del> → </>}
                <ins><ValueText value={after} /></ins>
              </li>
            ))}
          </ul>
        </li>
      ))}
    </ol>
  );
}

function differing(before: Version | undefined, after: Version): [string, unknown, unknown][] {
  const [was, is] = [before?.image?.properties ?? {}, after.image?.properties ?? {}];
  const names = [...new Set([...Object.keys(is), ...Object.keys(was)])];
  return names.filter((name) => !same(was[name] ?? null, is[name] ?? null)).map((name) => [name, was[name], is[name]]);
}

/** For each property the commit that made it what it is. */
function Blame({ versions }: { versions: Version[] }) {
  const now = versions[0]?.image?.properties ?? {};
  const since = (name: string) => {
    let at = 0;
    while (at + 1 < versions.length && versions[at + 1].image && same(versions[at + 1].image!.properties[name] ?? null, now[name] ?? null)) at += 1;
    return versions[at].commit;
  };
  return (
    <table class="properties">
      <tbody>
        {Object.entries(now).map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td><ValueText value={value} /></td>
            <td><CommitLink id={since(name).graph_commit_id} /> <small>{since(name).actor_id ?? ""}</small></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
