// The editor of queries: colours from our TextMate grammars, problems and completions from the server.
import { autocompletion, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { HighlightStyle, StreamLanguage, bracketMatching, syntaxHighlighting, type StreamParser } from "@codemirror/language";
import { linter, lintKeymap, type Diagnostic } from "@codemirror/lint";
import { EditorState, Prec } from "@codemirror/state";
import { EditorView, drawSelection, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import gq from "../../src/omnigraph/editor/gq.tmLanguage.json";
import pg from "../../src/omnigraph/editor/pg.tmLanguage.json";
import { graph, type Lint, type LintPlace } from "./api";

// --- colours -------------------------------------------------------------------------------------

interface Pattern {
  name: string;
  match?: string;
  begin?: string;
  end?: string;
}

interface Rule {
  style: string;
  match: RegExp;
  end?: RegExp;
}

const STYLES: [string, string][] = [
  ["comment", "comment"],
  ["string", "string"],
  ["constant.numeric", "number"],
  ["constant.language", "atom"],
  ["variable.other.property", "propertyName"],
  ["variable.other", "variableName"],
  ["support.function", "labelName"],
  ["support.type", "typeName"],
  ["entity.name.type", "typeName"],
  ["storage", "meta"],
  ["keyword", "keyword"],
];

function sticky(source: string): RegExp {
  const folded = source.startsWith("(?i)");
  return new RegExp(folded ? source.slice(4) : source, folded ? "iy" : "y");
}

/** A reader of lines that follows a TextMate grammar: the first pattern that fits counts. */
function reader(patterns: Pattern[]): StreamParser<{ inside: Rule | null }> {
  const rules: Rule[] = patterns.map((one) => ({
    style: STYLES.find(([scope]) => one.name.startsWith(scope))?.[1] ?? "",
    match: sticky(one.match ?? one.begin!),
    end: one.end ? new RegExp(one.end, "g") : undefined,
  }));
  return {
    startState: () => ({ inside: null }),
    token(stream, state) {
      if (state.inside) {
        const end = state.inside.end!;
        const { style } = state.inside;
        end.lastIndex = stream.pos;
        let found = end.exec(stream.string);
        while (found && stream.string[found.index - 1] === "\\") found = end.exec(stream.string);
        if (found) {
          stream.pos = found.index + found[0].length;
          state.inside = null;
        } else {
          stream.skipToEnd();
          if (style === "string") state.inside = null;
        }
        return style;
      }
      for (const rule of rules) {
        rule.match.lastIndex = stream.pos;
        const found = rule.match.exec(stream.string);
        if (!found?.[0]) continue;
        stream.pos += found[0].length;
        if (rule.end) state.inside = rule;
        return rule.style;
      }
      if (!stream.eatWhile(/[\w$@]/)) stream.next();
      return null;
    },
  };
}

const LANGUAGES = {
  gq: StreamLanguage.define(reader(gq.patterns as Pattern[])),
  pg: StreamLanguage.define(reader(pg.patterns as Pattern[])),
};

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--code-keyword)", fontWeight: "600" },
  { tag: tags.string, color: "var(--code-string)" },
  { tag: [tags.number, tags.atom], color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--code-comment)", fontStyle: "italic" },
  { tag: tags.variableName, color: "var(--code-variable)" },
  { tag: tags.typeName, color: "var(--code-type)" },
  { tag: [tags.labelName, tags.meta], color: "var(--code-function)" },
]);

const look = EditorView.theme({
  "&": { fontSize: "13.5px", height: "100%" },
  "&.cm-focused": { outline: "2px solid var(--focus)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--quiet)", border: "none" },
  ".cm-selectionBackground, &.cm-focused .cm-selectionBackground, ::selection": { backgroundColor: "var(--selection) !important" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
});

// --- problems and completions --------------------------------------------------------------------

const PREFIX = /^(?:type|parse|catalog) error: (?:T\d+: )?/;

function problems(found: Lint, view: EditorView): Diagnostic[] {
  const told: LintPlace[] = [...found.findings];
  for (const result of found.results) told.push(...(result.errors ?? []).map((one) => ({ ...one, severity: "error" })));
  return told
    .filter((one) => one.line && one.line <= view.state.doc.lines)
    .map((one) => {
      const line = view.state.doc.line(one.line!);
      // Columns count characters, positions count UTF-16 units.
      const before = [...line.text].slice(0, (one.column ?? 1) - 1).join("").length;
      const from = Math.min(line.from + before, line.to);
      const word = /^[$@]?\w+/.exec(view.state.sliceDoc(from, line.to))?.[0].length ?? 1;
      const severity = one.severity === "warning" || one.severity === "info" ? one.severity : "error";
      const message = one.message.replace(PREFIX, "") + (one.hint ? ` — ${one.hint}` : "");
      return { from, to: Math.min(from + word, view.state.doc.length), severity, message } as Diagnostic;
    });
}

const KINDS: Record<string, string> = { type: "class", edge: "enum", note: "keyword" };

async function completions(context: CompletionContext, branch: string): Promise<CompletionResult | null> {
  const word = context.matchBefore(/[$@]?\w*/);
  const before = context.state.sliceDoc(0, context.pos);
  if (!context.explicit && !word?.text && !/[.:]\s?$/.test(before)) return null;
  const found = await graph.complete(context.state.doc.toString(), [...before].length, branch).catch(() => null);
  if (!found?.completions.length) return null;
  return {
    from: word?.from ?? context.pos,
    options: found.completions.map((one) => ({
      label: one.label,
      type: KINDS[one.kind] ?? one.kind,
      detail: one.detail,
      info: one.says.replace(/```\w*\n?/g, "") || undefined,
    })),
    validFor: /^[$@]?\w*$/,
  };
}

// --- the editor ----------------------------------------------------------------------------------

interface Props {
  text: string;
  language: "gq" | "pg";
  label: string;
  branch?: string;
  onChange?: (text: string) => void;
  onLint?: (found: Lint) => void;
  onRun?: () => void;
}

export function Editor(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>();
  const now = useRef(props);
  now.current = props;

  useEffect(() => {
    const { language, label } = props;
    const written = props.onChange !== undefined;
    const run = () => {
      now.current.onRun?.();
      return true;
    };
    const checked = linter(
      async (shownView) => {
        const { branch, onLint } = now.current;
        const found = await graph.lint(shownView.state.doc.toString(), branch ?? "main").catch(() => null);
        if (!found) return [];
        onLint?.(found);
        return problems(found, shownView);
      },
      { delay: 250 },
    );
    view.current = new EditorView({
      parent: place.current!,
      state: EditorState.create({
        doc: now.current.text,
        extensions: [
          lineNumbers(),
          history(),
          drawSelection(),
          bracketMatching(),
          LANGUAGES[language],
          syntaxHighlighting(colours),
          look,
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label }),
          EditorState.readOnly.of(!written),
          written
            ? [
                checked,
                autocompletion({ override: [(context) => completions(context, now.current.branch ?? "main")], icons: false }),
                Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
                // Tab leaves the editor after Escape, as CodeMirror's own users expect.
                keymap.of([...completionKeymap, ...lintKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
                EditorView.updateListener.of((update) => {
                  if (update.docChanged) now.current.onChange?.(update.state.doc.toString());
                }),
              ]
            : [],
        ],
      }),
    });
    return () => view.current!.destroy();
  }, [props.branch]);

  // In the same breath as the drawing: later, whoever types fast would have an older text put back, and again.
  useLayoutEffect(() => {
    const shownView = view.current;
    if (!shownView) return;
    const text = shownView.state.doc.toString();
    if (text !== props.text) shownView.dispatch({ changes: { from: 0, to: text.length, insert: props.text } });
  }, [props.text]);

  return <div class="editor" ref={place} />;
}
