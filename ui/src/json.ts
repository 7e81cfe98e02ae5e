// JSON in which whole numbers of any size stay what they are.

export type Value = null | boolean | number | bigint | string | Value[] | { [name: string]: Value };

const LONG = /\d{16}/;

interface Source {
  source?: string;
}

/** The value of a JSON text; a whole number that a double cannot hold becomes a bigint. */
export function parsed(text: string): unknown {
  if (!LONG.test(text)) return JSON.parse(text);
  const exact = (_: string, value: unknown, context?: Source) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(context!.source!)
      : value;
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown);
}

/** The JSON text of a value. */
export function written(value: unknown, indent = 0, depth = 0): string {
  if (typeof value === "bigint") return String(value);
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const isList = Array.isArray(value);
  const items = isList
    ? value.map((one) => written(one, indent, depth + 1))
    : Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}:${indent ? " " : ""}${written(one, indent, depth + 1)}`);
  const [open, close] = isList ? "[]" : "{}";
  if (!items.length) return open + close;
  if (!indent) return open + items.join(",") + close;
  const space = "\n" + " ".repeat(indent * (depth + 1));
  return open + space + items.join("," + space) + "\n" + " ".repeat(indent * depth) + close;
}

/** A value in one line, for people: texts without quotes, nothing for null. */
export function shown(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : written(value);
}

export function same(a: unknown, b: unknown): boolean {
  return a === b || written(a) === written(b);
}
