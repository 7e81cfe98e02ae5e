// Small parts that every page uses.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import type { Failure, S } from "./api";
import type { Asked } from "./asked";
import { shown } from "./json";
import { link } from "./place";

export function Problem({ failure }: { failure?: Failure }) {
  if (!failure) return null;
  return (
    <div class="problem" role="alert">
      <strong>{failure.message}</strong>
      {failure.hint && <span class="hint">{failure.hint}</span>}
    </div>
  );
}

/** What stands for an answer while there is none. */
export function Waiting<T>({ asked, children }: { asked: Asked<T>; children: (value: T) => ComponentChildren }) {
  if (asked.failure) return <Problem failure={asked.failure} />;
  if (asked.value === undefined) return asked.busy ? <p class="quiet" role="status">Loading…</p> : null;
  return <>{children(asked.value)}</>;
}

interface ButtonProps extends Omit<JSX.HTMLAttributes<HTMLButtonElement>, "onClick"> {
  onClick: () => void;
  denied?: string;
  disabled?: boolean;
  primary?: boolean;
  type?: "button" | "submit";
}

/** A button; one that may not be used says why, to everybody. */
export function Button({ denied = "", disabled = false, primary = false, onClick, children, class: more, ...rest }: ButtonProps) {
  const id = useId();
  const button = (
    <button
      type="button"
      {...rest}
      class={`${primary ? "primary" : ""} ${more ?? ""}`}
      disabled={disabled || denied !== ""}
      aria-describedby={denied ? id : undefined}
      onClick={onClick}
    >
      {children}
    </button>
  );
  if (!denied) return button;
  return (
    <span class="denied">
      {button}
      <span id={id} class="reason">{denied}</span>
    </span>
  );
}

interface Tab {
  id: string;
  label: ComponentChildren;
}

/** Tabs with the keys that tabs have. */
export function Tabs({ tabs, chosen, choose, label }: { tabs: Tab[]; chosen: string; choose: (id: string) => void; label: string }) {
  const list = useRef<HTMLDivElement>(null);
  const moved = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = (tabs.findIndex((tab) => tab.id === chosen) + step + tabs.length) % tabs.length;
    choose(tabs[at].id);
    list.current?.querySelectorAll("button")[at]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={moved}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          id={`tab-${tab.id}`}
          aria-selected={tab.id === chosen}
          tabIndex={tab.id === chosen ? 0 : -1}
          onClick={() => choose(tab.id)}
        >
          {tab.label}
        </button>
      ))}
    </div>
  );
}

/** A window above the page. */
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const window = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const shownOne = window.current!;
    shownOne.showModal();
    return () => shownOne.close();
  }, []);
  return (
    <dialog
      ref={window}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
    >
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

export function when(micros: number): string {
  return new Date(micros / 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** The same in two parts: where there is little room the time of day is left out. */
export function When({ micros }: { micros: number }) {
  const moment = new Date(micros / 1000);
  return (
    <time dateTime={moment.toISOString()}>
      {moment.toLocaleDateString(undefined, { dateStyle: "medium" })}
      <span class="clock"> {moment.toLocaleTimeString(undefined, { timeStyle: "short" })}</span>
    </time>
  );
}

export function short(id: string): string {
  return id.slice(-8);
}

export function CommitLink({ id }: { id: string }) {
  return (
    <a class="mono" href={link("history", { commit: id })} title={id}>
      {short(id)}
    </a>
  );
}

/** The first line of what a commit says of itself. */
export function commitTitle(commit: S["CommitOutput"]): string {
  const said = commit.message?.split("\n", 1)[0];
  const merged = commit.properties?.merged_branch;
  if (said) return said;
  if (merged) return `Merge ${merged}`;
  if (commit.merged_parent_commit_id) return "Merge";
  return commit.parent_commit_id ? (WRITERS[commit.properties?.writer_kind ?? ""] ?? "Change") : "The graph is made";
}

const WRITERS: Record<string, string> = {
  Mutation: "Mutation",
  Load: "Load",
  SchemaApply: "Schema applied",
  EnsureIndices: "Indexes made",
  Optimize: "Tables compacted",
};

/** A value as text, never as markup; what is missing is said. */
export function ValueText({ value }: { value: unknown }) {
  if (value === null || value === undefined) return <span class="null">null</span>;
  if (value === "") return <span class="null">""</span>;
  return <span class={typeof value === "number" || typeof value === "bigint" ? "number" : "text"}>{shown(value)}</span>;
}

export function count(n: number): string {
  return n.toLocaleString("en");
}

export function plural(n: number, word: string): string {
  return `${count(n)} ${word}${n === 1 ? "" : word.endsWith("y") ? "" : "s"}`.replace(/(\d) (\w+)y$/, n === 1 ? "$1 $2y" : "$1 $2ies");
}
