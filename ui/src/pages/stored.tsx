// Queries that the server keeps, each a form.
import { useSignal } from "@preact/signals";
import { failureOf, useAsked, usePermissions } from "../asked";
import { graph, writes, type Failure, type S } from "../api";
import { Button, Problem, Waiting, plural } from "../bits";
import { Fields, packed, unpacked, valuesOf, type Field } from "../form";
import { branch, change, link, place, state } from "../place";
import { Table } from "../table";
import { Changed } from "./query";

type Stored = S["StoredQueryOutput"];

const TYPES: Record<string, string> = { string: "String", bool: "Bool", int: "I64", bigint: "I64", float: "F64", date: "Date", datetime: "DateTime" };

function fieldOf(one: Stored["params"][number]): Field {
  const type = TYPES[one.kind] ?? (one.kind === "list" ? `[${TYPES[one.item_kind ?? ""] ?? one.item_kind}]` : one.kind === "record" ? "{…}" : "Vector");
  if (one.choices && one.kind === "string") return { name: one.name, type: "enum", optional: one.nullable, choices: one.choices, placeholder: "" };
  return { name: one.name, type, optional: one.nullable, choices: type === "Bool" ? ["true", "false"] : [], placeholder: "" };
}

export function StoredPage() {
  const { params } = place.value;
  const asked = useAsked((signal) => graph.queries(signal), []);
  return (
    <div class="page two">
      <h1 class="unseen">Stored queries</h1>
      <Waiting asked={asked}>
        {({ queries }) => {
          if (!queries.length) return <p class="quiet">This graph is served without stored queries: <code>omnigraph serve my.omni --queries FOLDER</code> brings them.</p>;
          const chosen = queries.find((one) => one.name === params.query) ?? queries[0];
          return (
            <>
              <nav class="side" aria-label="Stored queries">
                <ul class="plain">
                  {queries.map((one) => (
                    <li key={one.name}>
                      <a href={link("stored", { query: one.name })} aria-current={one.name === chosen.name ? "true" : undefined}>
                        {one.name} {one.mutation && <span class="badge">changes</span>}
                      </a>
                    </li>
                  ))}
                </ul>
              </nav>
              <StoredForm key={chosen.name} query={chosen} />
            </>
          );
        }}
      </Waiting>
    </div>
  );
}

function StoredForm({ query }: { query: Stored }) {
  const { params } = place.value;
  const may = usePermissions({ branch: branch() });
  const found = useSignal<{ value?: S["ReadOutput"] | S["ChangeOutput"]; failure?: Failure }>({});
  const busy = useSignal(false);
  const fields = query.params.map(fieldOf);
  const texts = unpacked(params.params);
  const denied = may("invoke_query") || (query.mutation ? (params.at ? "the past cannot be changed" : may("change")) : may("read"));
  const run = async () => {
    busy.value = true;
    try {
      found.value = { value: await graph.invoke(query.name, { ...state(), params: valuesOf(fields, texts) }) };
      if (query.mutation) writes.value += 1;
    } catch (problem) {
      found.value = { failure: failureOf(problem) };
    }
    busy.value = false;
  };
  const value = found.value.value;
  return (
    <div class="main">
      <h2>{query.name}</h2>
      {query.description && <p>{query.description}</p>}
      {query.instruction && <p class="quiet">{query.instruction}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!denied) void run();
        }}
      >
        <Fields fields={fields} texts={texts} onChange={(next) => change({ params: packed(next) }, { replace: true })} />
        <Button primary type="submit" denied={denied} disabled={busy.value} onClick={() => undefined}>
          {query.mutation ? `Change ${branch()}` : "Run"}
        </Button>
      </form>
      <Problem failure={found.value.failure} />
      {value && "affected_nodes" in value && <Changed done={value} />}
      {value && "row_count" in value && (
        <>
          <p role="status">{plural(value.row_count, "row")}</p>
          <div class="answer-body">
            <Table columns={value.columns ?? []} rows={value.rows} label="Rows" />
          </div>
        </>
      )}
    </div>
  );
}
