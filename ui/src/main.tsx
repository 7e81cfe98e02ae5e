// The frame of every page: which graph, which state of it, which page.
import { useSignal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { failureOf, useAsked, usePermissions } from "./asked";
import { graph, server, signIn, signOut, token, tokenWanted, Failure } from "./api";
import { Button, Dialog, Problem } from "./bits";
import { ComparePage } from "./pages/compare";
import { ExplorePage } from "./pages/explore";
import { HealthPage } from "./pages/health";
import { HistoryPage } from "./pages/history";
import { QueryPage } from "./pages/query";
import { SchemaPage } from "./pages/schema";
import { StoredPage } from "./pages/stored";
import { address, branch, change, link, place, visit } from "./place";
import { dark, toggle } from "./theme";

const PAGES = [
  { id: "query", label: "Query", page: QueryPage },
  { id: "schema", label: "Schema", page: SchemaPage },
  { id: "explore", label: "Explore", page: ExplorePage },
  { id: "history", label: "History", page: HistoryPage },
  { id: "compare", label: "Compare", page: ComparePage },
  { id: "stored", label: "Stored queries", page: StoredPage },
  { id: "health", label: "Health", page: HealthPage },
];

function App() {
  const here = place.value;
  const current = PAGES.find((one) => one.id === here.page) ?? PAGES[0];
  useEffect(() => {
    document.title = `${current.label} · ${here.graph || "OmniGraph"}`;
    document.querySelector("nav.pages [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current, here.graph]);
  const Page = current.page;
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => {
        event.preventDefault();
        document.getElementById("content")?.focus();
      }}>Skip to the page</a>
      <header>
        <span class="brand">
          <svg viewBox="0 0 16 16" width="20" height="20" aria-hidden="true">
            <path d="M4 4 12 6 6 12Z" fill="none" stroke="currentColor" stroke-width="1.2" />
            <circle cx="4" cy="4" r="2.3" fill="var(--lane-0)" />
            <circle cx="12" cy="6" r="2.3" fill="var(--lane-1)" />
            <circle cx="6" cy="12" r="2.3" fill="var(--lane-2)" />
          </svg>
          OmniGraph
        </span>
        <GraphChoice />
        <StateChoice key={here.graph} />
        <span class="grow" />
        {token.value && <button type="button" class="text-button" onClick={signOut}>Sign out</button>}
        <button type="button" class="text-button" onClick={toggle} aria-label={dark.value ? "Light colours" : "Dark colours"}>{dark.value ? "☀" : "☾"}</button>
      </header>
      <nav class="pages" aria-label="Pages">
        {PAGES.map((one) => (
          <a key={one.id} href={here.graph ? link(one.id) : undefined} aria-current={one === current ? "page" : undefined}>{one.label}</a>
        ))}
      </nav>
      <main id="content" tabIndex={-1}>{here.graph ? <Page key={`${here.graph} ${current.id}`} /> : <h1 class="quiet">Choose a graph</h1>}</main>
      {tokenWanted.value && <SignIn />}
    </>
  );
}

function GraphChoice() {
  const asked = useAsked(() => server.graphs(), []);
  const here = place.value.graph;
  const names = asked.value?.graphs.map((one) => one.graph_id) ?? [];
  const typed = useSignal(here);
  useEffect(() => {
    if (!here && names.length) visit(address(names[0], "query", {}));
  }, [here, names.length]);
  if (asked.failure) {
    // Who may not list the graphs may still know the name of one.
    return (
      <form class="inline" onSubmit={(event) => {
        event.preventDefault();
        visit(address(typed.value, "query", {}));
      }}>
        <label class="inline">
          Graph
          <input type="text" value={typed.value} size={12} onInput={(event) => (typed.value = event.currentTarget.value)} />
        </label>
      </form>
    );
  }
  return (
    <label class="inline">
      <span class="unseen">Graph</span>
      <select value={here} onChange={(event) => visit(address(event.currentTarget.value, place.value.page, {}))}>
        {here && !names.includes(here) && <option>{here}</option>}
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

const MOMENT = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d:?\d\d)?$/;

/** What a text names. A server takes a moment for one of main: on another branch the commit is looked for here. */
async function stateNamed(text: string, name: string): Promise<string> {
  const found = name === "main" ? null : MOMENT.exec(text);
  if (!found) return text;
  const { tags } = await graph.tags();
  if (tags.some((tag) => tag.name === text)) return text;
  const moment = Date.parse(found[1] && !found[4] ? `${text.replace(" ", "T")}Z` : text.replace(" ", "T"));
  let token: string | undefined;
  do {
    const page = await graph.commits(name, 500, token);
    const commit = page.commits.find((one) => one.created_at <= moment * 1000);
    if (commit) return commit.graph_commit_id;
    token = page.next_page_token;
  } while (token);
  throw new Failure(0, { error: `${name} has no commit as old as ${text}` });
}

/** The branch, tag or moment that every page is about. */
function StateChoice() {
  const { params } = place.value;
  const none = !place.value.graph;
  const ask = async () => {
    const [{ branches }, { tags }] = await Promise.all([graph.branches(), graph.tags()]);
    return { branches, tags: tags.map((one) => one.name) };
  };
  const asked = useAsked(none ? null : ask, []);
  const making = useSignal(false);
  const at = useSignal(params.at ?? "");
  const failure = useSignal<Failure | undefined>(undefined);
  const chosen = async () => {
    failure.value = undefined;
    try {
      change({ at: await stateNamed(at.value.trim(), branch()) });
    } catch (problem) {
      failure.value = failureOf(problem);
    }
  };
  useEffect(() => {
    at.value = params.at ?? "";
  }, [params.at]);
  const branches = asked.value?.branches ?? [];
  const tags = asked.value?.tags ?? [];
  return (
    <>
      <label class="inline">
        <span class="unseen">Branch</span>
        <select value={branch()} onChange={(event) => change({ branch: event.currentTarget.value, at: "" })} disabled={none || !!params.at}>
          {!branches.includes(branch()) && <option>{branch()}</option>}
          {branches.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <button type="button" disabled={none} onClick={() => (making.value = true)}>New branch</button>
      <form class="inline" onSubmit={(event) => event.preventDefault()}>
        <label class="inline">
          at
          <input type="text" list="refs" class={params.at ? "past" : ""} value={at.value} disabled={none} size={14} placeholder="now" title="a commit, a tag, main~2 or a time such as 2026-01-31T12:00 (UTC)" onInput={(event) => (at.value = event.currentTarget.value)} onChange={() => void chosen()} />
        </label>
        <datalist id="refs">
          {tags.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
      </form>
      {params.at && <button type="button" onClick={() => change({ at: "" })}>Back to now</button>}
      <Problem failure={failure.value} />
      {making.value && <NewBranch branches={branches} close={() => (making.value = false)} />}
    </>
  );
}

function NewBranch({ branches, close }: { branches: string[]; close: () => void }) {
  const name = useSignal("");
  const from = useSignal(branch());
  const failure = useSignal<Failure | undefined>(undefined);
  const may = usePermissions({ branch: from.value, target: name.value || "a-new-branch" });
  const make = async () => {
    try {
      await graph.createBranch(name.value, from.value);
      close();
      change({ branch: name.value.trim(), at: "" });
    } catch (problem) {
      failure.value = failureOf(problem);
    }
  };
  return (
    <Dialog title="New branch" close={close}>
      <form onSubmit={(event) => {
        event.preventDefault();
        void make();
      }}>
        <label>
          Name
          <input type="text" value={name.value} required autofocus onInput={(event) => (name.value = event.currentTarget.value)} />
        </label>
        <label>
          From
          <select value={from.value} onChange={(event) => (from.value = event.currentTarget.value)}>
            {branches.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <Problem failure={failure.value} />
        <p class="buttons">
          <Button type="submit" primary denied={may("branch_create")} disabled={!name.value.trim()} onClick={() => undefined}>Make it</Button>
          <Button onClick={close}>Cancel</Button>
        </p>
      </form>
    </Dialog>
  );
}

function SignIn() {
  const text = useSignal("");
  return (
    <Dialog title="Sign in" close={() => undefined}>
      <p>{tokenWanted.value} It stays in this tab and is gone with it.</p>
      <form onSubmit={(event) => {
        event.preventDefault();
        signIn(text.value.trim());
      }}>
        <label>
          Token
          <input type="password" autocomplete="off" value={text.value} required autofocus onInput={(event) => (text.value = event.currentTarget.value)} />
        </label>
        <p class="buttons"><Button type="submit" primary onClick={() => undefined}>Sign in</Button></p>
      </form>
    </Dialog>
  );
}

const root = document.getElementById("app")!;
root.textContent = "";
render(<App />, root);
