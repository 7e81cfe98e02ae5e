// What one branch would bring to another: counted, drawn, entity by entity; conflicts settled; merged.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import { failureOf, useAsked, usePermissions } from "../asked";
import { graph, type Conflict, type Failure, type Preview, type Resolution, type S } from "../api";
import { Button, Problem, Tabs, ValueText, Waiting, count, plural, short } from "../bits";
import { BeforeAfter, ChangeList, MARKS, keyOf, type Change } from "../changes";
import { Difference, labelsOf, type Sides } from "../difference";
import { parsed, shown, written } from "../json";
import { change, link, place } from "../place";

const PAGE = 500; // changes that are fetched at once

type Take = "ours" | "theirs" | Record<string, unknown>;
type Takes = Record<string, Take>;

const conflictKey = (one: Conflict) => `${one.entity_kind}:${one.type_name}:${one.entity_id ?? ""}`;
const canBeSettled = (one: Conflict) => ["divergent_insert", "divergent_update", "delete_vs_update"].includes(one.kind);

function unpackedTakes(text: string | undefined): Takes {
  try {
    return text ? (parsed(text) as Takes) : {};
  } catch {
    return {};
  }
}

function resolutionsOf(conflicts: Conflict[], takes: Takes): Resolution[] {
  return conflicts
    .filter((one) => canBeSettled(one) && one.entity_id !== null && takes[conflictKey(one)] !== undefined)
    .map((one) => ({ type_key: `${one.entity_kind}:${one.type_name}`, entity_id: one.entity_id!, take: takes[conflictKey(one)] }));
}

export function ComparePage() {
  const { params } = place.value;
  const branches = useAsked(() => graph.branches(), []);
  const names = branches.value?.branches ?? [];
  const into = params.into || "main";
  const looking = params.from && params.to; // two states, nothing to merge
  const source = looking ? "" : params.source || (params.branch && params.branch !== into ? params.branch : names.find((name) => name !== into) ?? "");
  const done = useSignal<{ value?: S["BranchMergeOutput"]; failure?: Failure }>({});

  return (
    <div class="page compare-page">
      <div class="answer-head wrap">
        <h1>{looking ? "Compare" : "Compare and merge"}</h1>
        {looking ? (
          <p>
            <code>{short(params.from)}</code> → <code>{short(params.to)}</code> <a href={link("compare", {})}>compare branches</a>
          </p>
        ) : (
          <>
            <label class="inline">
              Bring
              <select value={source} onChange={(event) => change({ source: event.currentTarget.value, take: "", change: "", type: "" })}>
                {!source && <option value="">a branch</option>}
                {names.map((name) => (
                  <option key={name}>{name}</option>
                ))}
              </select>
            </label>
            <label class="inline">
              into
              <select value={into} onChange={(event) => change({ into: event.currentTarget.value, source, take: "", change: "", type: "" })}>
                {names.map((name) => (
                  <option key={name}>{name}</option>
                ))}
              </select>
            </label>
            <Button onClick={() => change({ source: into, into: source, take: "", change: "", type: "" })} disabled={!source} aria-label="Swap the branches">⇄</Button>
          </>
        )}
      </div>
      {done.value.value && <Merged done={done.value.value} />}
      {looking ? (
        <Compared from={params.from} to={params.to} />
      ) : source && source !== into && names.includes(source) ? (
        <Review source={source} into={into} key={`${source} ${into}`} finished={(found) => (done.value = { value: found })} />
      ) : (
        branches.value && <p class="quiet">{names.length < 2 ? "There is one branch. Make another with “New branch” above, change it, and come back." : "Choose two different branches."}</p>
      )}
      <Problem failure={branches.failure} />
    </div>
  );
}

function Merged({ done }: { done: S["BranchMergeOutput"] }) {
  return (
    <div class="done" role="status">
      {done.outcome === "already_up_to_date" ? (
        <><b>{done.target}</b> had everything of <b>{done.source}</b> already.</>
      ) : (
        <>Merged <b>{done.source}</b> into <b>{done.target}</b>.{" "}
          {done.commit && <a href={link("history", { commit: done.commit.graph_commit_id, branch: done.target })}>See it in the history</a>}
        </>
      )}
      {done.branch_deleted && " The branch is deleted."}
      {done.branch_delete_error && ` The branch stays: ${done.branch_delete_error}`}
    </div>
  );
}

// --- a review ------------------------------------------------------------------------------------

function Review({ source, into, finished }: { source: string; into: string; finished: (found: S["BranchMergeOutput"]) => void }) {
  const { params } = place.value;
  const takes = unpackedTakes(params.take);
  const preview = useAsked((signal) => graph.preview(source, into, [], signal), [source, into]);
  const conflicts = preview.value?.conflicts ?? [];
  const resolutions = resolutionsOf(conflicts, takes);
  const settled = useAsked(
    resolutions.length ? (signal) => graph.preview(source, into, resolutions, signal) : null,
    [source, into, written(resolutions), preview.value],
  );
  return (
    <Waiting asked={preview}>
      {(found) => (
        <Compared
          from={params.since === "heads" || !found.base_commit_id ? into : found.base_commit_id}
          to={source}
          conflicts={found.conflicts}
          choice={
            <label class="inline check">
              <input type="checkbox" checked={params.since === "heads"} onChange={(event) => change({ since: event.currentTarget.checked ? "heads" : "" })} /> against {into} as it is now
            </label>
          }
          conflictView={<Conflicts conflicts={found.conflicts} takes={takes} source={source} into={into} left={settled.value?.conflicts} />}
          foot={<MergePanel source={source} into={into} preview={found} settled={resolutions.length ? settled.value : undefined} failure={settled.failure} resolutions={resolutions} finished={finished} />}
        />
      )}
    </Waiting>
  );
}

interface ComparedProps {
  from: string;
  to: string;
  conflicts?: Conflict[];
  choice?: preact.ComponentChildren;
  conflictView?: preact.ComponentChildren;
  foot?: preact.ComponentChildren;
}

const NONE: Conflict[] = [];

function Compared({ from, to, conflicts = NONE, choice, conflictView, foot }: ComparedProps) {
  const { params } = place.value;
  const list = useSignal<{ changes: Change[]; more?: string }>({ changes: [] });
  const busy = useSignal(false);
  const diff = useAsked((signal) => graph.diff(from, to, PAGE, undefined, signal), [from, to]);
  useEffect(() => {
    if (diff.value) list.value = { changes: diff.value.changes, more: diff.value.next_page_token };
  }, [diff.value]);
  const sides = useAsked<Sides>(
    diff.value
      ? async (signal) => {
          const { from_commit_id, to_commit_id } = diff.value!;
          const [before, after] = await Promise.all([graph.catalog({ snapshot: from_commit_id }, signal), graph.catalog({ snapshot: to_commit_id }, signal)]);
          return { from: from_commit_id, to: to_commit_id, before, after };
        }
      : null,
    [diff.value],
  );
  const disputed = useMemo(() => new Set(conflicts.map(conflictKey)), [conflicts]);
  const shownChanges = useMemo(() => list.value.changes.filter((one) => !params.type || `${one.kind}:${one.type.name}` === params.type), [list.value, params.type]);
  const more = async () => {
    busy.value = true;
    const page = await graph.diff(from, to, PAGE, list.value.more).catch(() => null);
    if (page) list.value = { changes: [...list.value.changes, ...page.changes], more: page.next_page_token };
    busy.value = false;
  };
  const schemaDiffers = !!sides.value && sides.value.before.schema_source !== sides.value.after.schema_source;
  const tabs = [
    { id: "drawing", label: "Drawing" },
    { id: "list", label: "Entities" },
    ...(conflicts.length ? [{ id: "conflicts", label: <>Conflicts <span class="badge conflict">{conflicts.length}</span></> }] : []),
    ...(schemaDiffers ? [{ id: "schema", label: "Schema" }] : []),
  ];
  const view = tabs.some((tab) => tab.id === params.view) ? params.view : conflicts.length && !params.view ? "conflicts" : "drawing";
  const choose = (key: string) => change({ change: key });
  return (
    <Waiting asked={diff}>
      {({ stats }) => {
        const total = stats.insert + stats.update + stats.delete;
        const chosen = list.value.changes.find((one) => keyOf(one) === params.change);
        return (
          <div class="compared">
            <aside class="side" aria-label="Summary">
              <h2>{total ? plural(total, "change") : "No change"}</h2>
              <p class="tally">
                <span class="mark insert">+</span> {count(stats.insert)} new <span class="mark update">~</span> {count(stats.update)} changed <span class="mark delete">−</span> {count(stats.delete)} gone
              </p>
              {choice}
              <Summary changes={list.value.changes} whole={!list.value.more} />
              {list.value.more && <Button disabled={busy.value} onClick={() => void more()}>Fetch more changes</Button>}
              {foot}
            </aside>
            <div class="main">
              <Tabs tabs={tabs} chosen={view} choose={(id) => change({ view: id })} label="Views of the difference" />
              {view === "drawing" && (
                <Waiting asked={sides}>
                  {(both) => <Difference changes={shownChanges} total={params.type ? shownChanges.length : total} sides={both} disputed={disputed} chosen={params.change ?? ""} choose={choose} />}
                </Waiting>
              )}
              {view === "list" && (
                <div class="answer-body">
                  <ChangeList changes={shownChanges} chosen={params.change ?? ""} choose={choose} labels={sides.value && labelsOf(sides.value.before, sides.value.after)} disputed={disputed} />
                </div>
              )}
              {view === "conflicts" && conflictView}
              {view === "schema" && sides.value && <SchemaDiff before={sides.value.before.schema_source} after={sides.value.after.schema_source} />}
              {chosen && view !== "conflicts" && view !== "schema" && <BeforeAfter one={chosen} />}
            </div>
          </div>
        );
      }}
    </Waiting>
  );
}

/** How many entities of each type are new, changed and gone; a type can be chosen. */
function Summary({ changes, whole }: { changes: Change[]; whole: boolean }) {
  const { params } = place.value;
  const types = new Map<string, Record<Change["op"], number>>();
  for (const one of changes) {
    const key = `${one.kind}:${one.type.name}`;
    const counts = types.get(key) ?? { insert: 0, update: 0, delete: 0 };
    counts[one.op] += 1;
    types.set(key, counts);
  }
  if (!types.size) return null;
  return (
    <table class="summary">
      <caption class="unseen">Changes by type{whole ? "" : ", so far"}</caption>
      <thead>
        <tr>
          <th scope="col">Type</th>
          {(["insert", "update", "delete"] as const).map((op) => (
            <th key={op} scope="col"><span class={`mark ${op}`}>{MARKS[op]}</span></th>
          ))}
        </tr>
      </thead>
      <tbody>
        {[...types].sort(([a], [b]) => a.localeCompare(b)).map(([key, counts]) => (
          <tr key={key}>
            <th scope="row">
              <button type="button" class="text-button" aria-pressed={params.type === key} onClick={() => change({ type: params.type === key ? "" : key })}>
                {key.slice(key.indexOf(":") + 1)}
              </button>
            </th>
            {(["insert", "update", "delete"] as const).map((op) => (
              <td key={op} class="right">{counts[op] || ""}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

// --- conflicts -----------------------------------------------------------------------------------

const KINDS: Record<string, string> = {
  divergent_insert: "both sides made it, differently",
  divergent_update: "both sides changed it, differently",
  delete_vs_update: "one side deleted it, the other changed it",
  orphan_edge: "an edge would lead nowhere",
  unique_violation: "two entities would share what must be unique",
  cardinality_violation: "too many or too few edges",
  value_constraint_violation: "a value breaks a rule of the schema",
  schema_conflict: "both sides changed the schema, differently",
};

function Conflicts({ conflicts, takes, source, into, left }: { conflicts: Conflict[]; takes: Takes; source: string; into: string; left?: Conflict[] }) {
  const set = (one: Conflict, take: Take | undefined) => {
    const next = { ...takes };
    if (take === undefined) delete next[conflictKey(one)];
    else next[conflictKey(one)] = take;
    change({ take: Object.keys(next).length ? written(next) : "" });
  };
  const open = new Set((left ?? conflicts).map(conflictKey));
  const fresh = (left ?? []).filter((one) => !conflicts.some((each) => conflictKey(each) === conflictKey(one)));
  return (
    <div class="scroll conflicts" tabIndex={0} role="region" aria-label="Conflicts">
      {[...conflicts, ...fresh].map((one, at) => (
        <ConflictCard key={conflictKey(one) + one.kind + at} one={one} take={takes[conflictKey(one)]} set={(take) => set(one, take)} source={source} into={into} open={open.has(conflictKey(one))} />
      ))}
    </div>
  );
}

function ConflictCard({ one, take, set, source, into, open }: { one: Conflict; take?: Take; set: (take: Take | undefined) => void; source: string; into: string; open: boolean }) {
  const group = `take ${conflictKey(one)}`;
  const byProperty = typeof take === "object";
  const option = (value: string, label: preact.ComponentChildren, chosen: boolean, act: () => void) => (
    <label class="choice">
      <input type="radio" name={group} value={value} checked={chosen} onChange={act} /> {label}
    </label>
  );
  const deleted = (side: "ours" | "theirs") => (one.deleted_by === side ? ", which deletes it" : "");
  return (
    <fieldset class={`card conflict-card ${open ? "" : "settled"}`}>
      <legend>
        <span class={`badge ${open ? "conflict" : "good"}`}>{open ? "open" : "settled"}</span> {one.type_name} <b>{one.entity_id ?? ""}</b>
      </legend>
      <p>{KINDS[one.kind] ?? one.kind}. <span class="quiet">{one.message}</span></p>
      {one.properties.length > 0 && (
        <div class="scroll" tabIndex={0}>
          <table class="compare">
            <thead>
              <tr>
                <th scope="col">Property</th>
                <th scope="col">Before both</th>
                <th scope="col">{into} (ours)</th>
                <th scope="col">{source} (theirs)</th>
                {byProperty && <th scope="col">Take</th>}
              </tr>
            </thead>
            <tbody>
              {one.properties.map((each) => (
                <tr key={each.property}>
                  <th scope="row">{each.property}</th>
                  <td><ValueText value={each.base} /></td>
                  <td class={taken(take, each.property) === "ours" ? "is" : ""}><ValueText value={each.ours} /></td>
                  <td class={taken(take, each.property) === "theirs" ? "is" : ""}><ValueText value={each.theirs} /></td>
                  {byProperty && <td><PropertyTake name={each.property} take={take} set={set} start={each.theirs} /></td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {one.step_ours && (
        <p class="steps">
          {into}: <code>{written(one.step_ours)}</code>
          <br />
          {source}: <code>{written(one.step_theirs)}</code>
        </p>
      )}
      {canBeSettled(one) ? (
        <div class="choices">
          {option("ours", <>Keep {into}'s{deleted("ours")}</>, take === "ours", () => set("ours"))}
          {option("theirs", <>Take {source}'s{deleted("theirs")}</>, take === "theirs", () => set("theirs"))}
          {!one.deleted_by && one.properties.length > 0 && option("property", "By property", byProperty, () => set(Object.fromEntries(one.properties.map((each) => [each.property, { take: "theirs" }]))))}
          {take !== undefined && <button type="button" class="text-button" onClick={() => set(undefined)}>Leave open</button>}
        </div>
      ) : (
        <p class="quiet">No choice settles this: change one of the branches, then come back.</p>
      )}
    </fieldset>
  );
}

/** Which side a property is taken from, if from one. */
function taken(take: Take | undefined, property: string): "ours" | "theirs" | "" {
  if (take === "ours" || take === "theirs") return take;
  const told = take?.[property] as { take?: "ours" | "theirs" } | undefined;
  return told && typeof told === "object" && (told.take === "ours" || told.take === "theirs") ? told.take : "";
}

function PropertyTake({ name, take, set, start }: { name: string; take: Record<string, unknown>; set: (take: Take) => void; start: unknown }) {
  const side = taken(take, name);
  // What is being typed is nobody else's: an answer that comes meanwhile must not take it away.
  const text = useSignal("");
  // Before anybody can type: what the effect sets would else come into the middle of a word.
  useLayoutEffect(() => {
    text.value = shown(take[name]);
  }, [written(take[name] ?? null)]);
  const told = (text: string): unknown => {
    try {
      return parsed(text);
    } catch {
      return text;
    }
  };
  return (
    <span class="property-take">
      <select aria-label={`Take ${name} from`} value={side || "own"} onChange={(event) => set({ ...take, [name]: event.currentTarget.value === "own" ? start : { take: event.currentTarget.value } })}>
        <option value="ours">ours</option>
        <option value="theirs">theirs</option>
        <option value="own">own value</option>
      </select>
      {!side && <input type="text" aria-label={`Value of ${name}`} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} onChange={(event) => set({ ...take, [name]: told(event.currentTarget.value) })} />}
    </span>
  );
}

// --- merging -------------------------------------------------------------------------------------

interface MergeProps {
  source: string;
  into: string;
  preview: Preview;
  settled?: Preview;
  failure?: Failure;
  resolutions: Resolution[];
  finished: (found: S["BranchMergeOutput"]) => void;
}

function MergePanel({ source, into, preview, settled, failure, resolutions, finished }: MergeProps) {
  const message = useSignal("");
  const deleteAfter = useSignal(false);
  const problem = useSignal<Failure | undefined>(undefined);
  const busy = useSignal(false);
  const may = usePermissions({ branch: source, target: into });
  const mayDelete = usePermissions({ target: source })("branch_delete");
  const now = settled ?? preview;
  const open = now.conflicts.length;
  const denied = may("branch_merge");
  const reason = denied || (preview.outcome === "already_up_to_date" ? `${into} has everything of ${source}` : open ? `${plural(open, "conflict")} to settle first` : "");
  const merge = async () => {
    busy.value = true;
    problem.value = undefined;
    try {
      const found = await graph.merge({ source, target: into, resolutions: resolutions.length ? resolutions : undefined, message: message.value || undefined, delete_branch: deleteAfter.value || undefined });
      finished(found);
      change({ source: found.branch_deleted ? "" : source, branch: found.branch_deleted && place.value.params.branch === source ? "" : place.value.params.branch ?? "", take: "", change: "", type: "" });
    } catch (found) {
      problem.value = failureOf(found);
    }
    busy.value = false;
  };
  const remove = async () => {
    try {
      await graph.deleteBranch(source);
      change({ source: "", branch: place.value.params.branch === source ? "" : place.value.params.branch ?? "" });
    } catch (found) {
      problem.value = failureOf(found);
    }
  };
  const comes = Object.entries(now.changes);
  return (
    <section class="merge" aria-label="Merge">
      <h2>Merge</h2>
      <p role="status">
        {preview.outcome === "already_up_to_date"
          ? "Nothing to bring."
          : open
            ? `${plural(open, "conflict")} open.`
            : `Ready: ${comes.map(([key, one]) => `${key.slice(key.indexOf(":") + 1)} ${[one.inserted && `+${one.inserted}`, one.updated && `~${one.updated}`, one.deleted && `−${one.deleted}`].filter(Boolean).join(" ")}`).join(", ") || "no entity changes"}.`}
      </p>
      <Problem failure={failure} />
      <label>
        Message
        <input type="text" value={message.value} placeholder={`Merge ${source}`} onInput={(event) => (message.value = event.currentTarget.value)} />
      </label>
      <label class="inline check">
        <input type="checkbox" checked={deleteAfter.value} disabled={mayDelete !== "" || source === "main"} onChange={(event) => (deleteAfter.value = event.currentTarget.checked)} /> delete {source} after
      </label>
      {mayDelete && <p class="reason">{mayDelete}</p>}
      <Button primary denied={reason} disabled={busy.value} onClick={() => void merge()}>Merge into {into}</Button>
      {preview.outcome === "already_up_to_date" && source !== "main" && <p class="buttons"><Button denied={mayDelete} onClick={() => void remove()}>Delete {source}</Button></p>}
      <Problem failure={problem.value} />
    </section>
  );
}

// --- schemas -------------------------------------------------------------------------------------

interface TextLine {
  op: "insert" | "delete" | "same";
  text: string;
}

/** The lines of two texts, by their longest common subsequence. */
function lines(before: string, after: string): TextLine[] {
  const [a, b] = [before.trim().split("\n"), after.trim().split("\n")];
  if (a.length * b.length > 4_000_000) return [...a.map((text) => ({ op: "delete" as const, text })), ...b.map((text) => ({ op: "insert" as const, text }))];
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const found: TextLine[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) found.push({ op: "same", text: a[i++] }), j++;
    else if (j < b.length && (i === a.length || length[i][j + 1] > length[i + 1][j])) found.push({ op: "insert", text: b[j++] });
    else found.push({ op: "delete", text: a[i++] });
  }
  return found;
}

function SchemaDiff({ before, after }: { before: string; after: string }) {
  return (
    <pre class="schema-diff" tabIndex={0} role="region" aria-label="Difference of the schemas">
      {lines(before, after).map((line, at) => (
        <div key={at} class={line.op}>
          {{ insert: "+ ", delete: "− ", same: "  " }[line.op]}
          {line.text}
        </div>
      ))}
    </pre>
  );
}
