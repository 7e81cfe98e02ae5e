// Fields for the parameters of a query, by their types.
import type { QueryParameter } from "./api";
import { parsed, written } from "./json";

export type Texts = Record<string, string>;

const WHOLE = /^[IU](32|64)$/;
const FRACTION = /^F(32|64)$/;

export interface Field {
  name: string;
  type: string; // without the mark of what may be left out
  optional: boolean;
  choices: string[];
  placeholder: string;
}

export function fieldOf(one: QueryParameter): Field {
  const optional = one.type.endsWith("?") || one.default !== undefined;
  const type = one.type.replace(/\?$/, "");
  const named = /^enum\((.*)\)$/.exec(type);
  const choices = named ? named[1].split(", ") : type === "Bool" ? ["true", "false"] : [];
  return { name: one.name, type, optional, choices, placeholder: one.default === undefined ? "" : String(one.default) };
}

/** The value that a field's text stands for; undefined leaves the parameter out. */
export function valueOf(field: Field, text: string): unknown {
  if (text === "" && (field.optional || field.type !== "String")) return undefined;
  if (field.type === "Bool") return text === "true";
  if (WHOLE.test(field.type) && /^-?\d+$/.test(text)) {
    const number = Number(text);
    return Number.isSafeInteger(number) ? number : BigInt(text);
  }
  if (FRACTION.test(field.type) && text.trim() !== "" && !Number.isNaN(Number(text))) return Number(text);
  if (/^[[{]/.test(text.trim()) && !["String", "Date", "DateTime"].includes(field.type) && !field.choices.length) {
    try {
      return parsed(text);
    } catch {
      return text; // the server says what is wrong with it
    }
  }
  return text;
}

export function valuesOf(fields: Field[], texts: Texts): Record<string, unknown> {
  const found = fields.map((field) => [field.name, valueOf(field, texts[field.name] ?? "")]);
  return Object.fromEntries(found.filter(([, value]) => value !== undefined));
}

/** Texts of fields as one parameter of an address, and back. */
export const packed = (texts: Texts): string => {
  const told = Object.entries(texts).filter(([, text]) => text !== "");
  return told.length ? written(Object.fromEntries(told)) : "";
};

export function unpacked(text: string | undefined): Texts {
  try {
    return text ? (JSON.parse(text) as Texts) : {};
  } catch {
    return {};
  }
}

const INPUTS: Record<string, string> = { Date: "date" };

export function Fields({ fields, texts, onChange }: { fields: Field[]; texts: Texts; onChange: (texts: Texts) => void }) {
  if (!fields.length) return null;
  return (
    <div class="fields" role="group" aria-label="Parameters">
      {fields.map((field) => {
        const told = { value: texts[field.name] ?? "", onInput: (event: Event) => onChange({ ...texts, [field.name]: (event.target as HTMLInputElement).value }) };
        return (
          <label key={field.name}>
            <span>
              ${field.name} <small>{field.type}{field.optional ? ", may be empty" : ""}</small>
            </span>
            {field.choices.length ? (
              <select {...told}>
                <option value="">{field.placeholder || "—"}</option>
                {field.choices.map((choice) => (
                  <option key={choice}>{choice}</option>
                ))}
              </select>
            ) : /^[[{]|^Vector/.test(field.type) ? (
              <textarea rows={2} placeholder={field.placeholder || "JSON"} {...told} />
            ) : (
              <input type={INPUTS[field.type] ?? "text"} placeholder={field.placeholder} autocomplete="off" {...told} />
            )}
          </label>
        );
      })}
    </div>
  );
}
