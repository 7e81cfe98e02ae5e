// A table of any length: only the rows in sight are in the page.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Row } from "./api";
import { ValueText } from "./bits";
import { shown } from "./json";

const ROW = 28;
const BEYOND = 10; // rows kept above and below those in sight

interface ListProps {
  length: number;
  rowHeight: number;
  label: string;
  children: (at: number) => ComponentChildren;
  role?: "list" | "table";
  head?: ComponentChildren;
}

/** Rows of one height, as many as are in sight. */
export function Rows({ length, rowHeight, label, children, role = "list", head }: ListProps) {
  const box = useRef<HTMLDivElement>(null);
  const view = useSignal({ top: 0, height: 600 });
  useEffect(() => {
    const measured = () => {
      const found = box.current;
      if (found) view.value = { top: found.scrollTop, height: found.clientHeight };
    };
    measured();
    const watch = new ResizeObserver(measured);
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(view.value.top / rowHeight) - BEYOND);
  const last = Math.min(length, Math.ceil((view.value.top + view.value.height) / rowHeight) + BEYOND);
  return (
    <div
      class="rows"
      ref={box}
      role={role}
      aria-label={label}
      aria-rowcount={role === "table" ? length + 1 : undefined}
      tabIndex={0}
      onScroll={(event) => {
        view.value = { top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight };
      }}
    >
      {head}
      <div class="rows-space" role={role === "table" ? "rowgroup" : "presentation"} style={{ height: `${length * rowHeight}px` }}>
        <div role="presentation" style={{ transform: `translateY(${first * rowHeight}px)` }}>
          {Array.from({ length: Math.max(0, last - first) }, (_, at) => children(first + at))}
        </div>
      </div>
    </div>
  );
}

/** How wide each column wants to be, in characters, by its name and first values. */
function widths(columns: string[], rows: Row[]): string {
  return columns
    .map((name) => {
      const longest = rows.slice(0, 60).reduce((most, row) => Math.max(most, shown(row[name]).length), name.length);
      return `minmax(${Math.min(Math.max(longest, 4), 40) + 3}ch, 1fr)`;
    })
    .join(" ");
}

export function Table({ columns, rows, label }: { columns: string[]; rows: Row[]; label: string }) {
  const template = { gridTemplateColumns: widths(columns, rows), height: `${ROW}px` };
  const head = (
    <div class="row head" role="row" aria-rowindex={1} style={template}>
      {columns.map((name) => (
        <span key={name} role="columnheader" title={name}>
          {name}
        </span>
      ))}
    </div>
  );
  return (
    <Rows length={rows.length} rowHeight={ROW} label={label} role="table" head={head}>
      {(at) => (
        <div key={at} class="row" role="row" aria-rowindex={at + 2} style={template}>
          {columns.map((name) => (
            <span key={name} role="cell" title={shown(rows[at][name])}>
              <ValueText value={rows[at][name]} />
            </span>
          ))}
        </div>
      )}
    </Rows>
  );
}
