// What happened to entities: a list of them, and one of them before and after.
import type { S } from "./api";
import { ValueText } from "./bits";
import { same } from "./json";
import { link } from "./place";
import { Rows } from "./table";

export type Change = S["ChangeEntry"];

export const MARKS = { insert: "+", delete: "−", update: "~" } as const;
export const WORDS = { insert: "new", delete: "gone", update: "changed" } as const;

export function keyOf(one: Change): string {
  return `${one.kind}:${one.type.name}:${one.id}`;
}

/** What people know an entity by, as far as its own values tell. */
export function titleOf(one: Change, labels?: Map<string, string>): string {
  const image = one.after ?? one.before;
  if (one.kind === "edge" && image?.endpoints) return `${image.endpoints.from} → ${image.endpoints.to}`;
  const label = labels?.get(one.type.name);
  const value = label ? image?.properties[label] : undefined;
  return typeof value === "string" && value ? value : one.id;
}

interface ListProps {
  changes: Change[];
  chosen: string;
  choose: (key: string) => void;
  labels?: Map<string, string>;
  disputed?: Set<string>;
}

export function ChangeList({ changes, chosen, choose, labels, disputed }: ListProps) {
  return (
    <Rows length={changes.length} rowHeight={32} label="Changed entities">
      {(at) => {
        const one = changes[at];
        const key = keyOf(one);
        return (
          <div key={key} role="listitem">
            <button type="button" class={`change ${one.op}`} aria-pressed={key === chosen} onClick={() => choose(key)}>
              <span class={`mark ${one.op}`} role="img" aria-label={WORDS[one.op]}>{MARKS[one.op]}</span>
              <span class="kind">{one.type.name}</span>
              <span class="title">{titleOf(one, labels)}</span>
              {disputed?.has(key) && <span class="badge conflict">conflict</span>}
            </button>
          </div>
        );
      }}
    </Rows>
  );
}

/** One entity before and after, by property; what stayed is told last. */
export function BeforeAfter({ one }: { one: Change }) {
  const [before, after] = [flat(one.before), flat(one.after)];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changed = names.filter((name) => one.op !== "update" || !same(before[name], after[name]));
  const stayed = names.filter((name) => !changed.includes(name));
  return (
    <section class="before-after" aria-label="Before and after">
      <h2>
        <span class={`mark ${one.op}`}>{MARKS[one.op]}</span> {one.type.name} <span class="mono">{one.id}</span>
        {one.kind === "node" && one.op !== "delete" && <a class="aside" href={link("explore", { focus: `${one.type.name}:${one.id}` })}>Explore</a>}
      </h2>
      <div class="scroll" tabIndex={0}>
        <table class="compare">
          <thead>
            <tr>
              <th scope="col">Property</th>
              <th scope="col">Before</th>
              <th scope="col">After</th>
            </tr>
          </thead>
          <tbody>
            {[...changed, ...stayed].map((name) => (
              <tr key={name} class={changed.includes(name) ? "differs" : "stays"}>
                <th scope="row">{name}</th>
                <td class={changed.includes(name) && name in before ? "was" : ""}>{name in before ? <ValueText value={before[name]} /> : <span class="null">not there</span>}</td>
                <td class={changed.includes(name) && name in after ? "is" : ""}>{name in after ? <ValueText value={after[name]} /> : <span class="null">not there</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function flat(image: Change["before"]): Record<string, unknown> {
  if (!image) return {};
  return { ...(image.endpoints ?? {}), ...image.properties };
}
