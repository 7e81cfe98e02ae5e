// How the graph is doing: sizes, upkeep, unfinished writes.
import { useAsked } from "../asked";
import { graph, server } from "../api";
import { CommitLink, Waiting, count, plural, when } from "../bits";
import { branch, place } from "../place";

function bytes(n: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const at = n < 1 ? 0 : Math.min(Math.floor(Math.log10(n) / 3), units.length - 1);
  return `${(n / 1000 ** at).toFixed(at ? 1 : 0)} ${units[at]}`;
}

export function HealthPage() {
  const { params } = place.value;
  const health = useAsked((signal) => graph.health(branch(), signal), [params.branch]);
  const recoveries = useAsked((signal) => graph.recoveries(signal), []);
  const about = useAsked(async () => ({ ...(await server.health()), ...(await server.ready()) }), []);
  return (
    <div class="page scroll" tabIndex={0}>
      <h1>Health of {branch()}</h1>
      <Waiting asked={health}>
        {(found) => (
          <>
            <section class={found.healthy ? "card good" : "card warn"} aria-label="Advice">
              <h2>{found.healthy ? "Nothing needs to be done" : "Advice"}</h2>
              <ul>
                {found.advice.map((one) => (
                  <li key={one}>{one}</li>
                ))}
              </ul>
              <p class="quiet">
                <span class="mono">{found.uri}</span>, {count(found.manifest_versions)} versions of the manifest,{" "}
                {found.pending_recoveries.length} unfinished writes
              </p>
            </section>
            <div class="scroll" tabIndex={0} role="region" aria-label="Tables">
              <table class="wide">
                <thead>
                  <tr>
                    <th>Type</th>
                    <th class="right">Entities</th>
                    <th class="right">Size</th>
                    <th class="right">Cleanup frees</th>
                    <th class="right">Versions</th>
                    <th class="right">Fragments</th>
                    <th class="right">Deleted rows</th>
                    <th>Indexes</th>
                  </tr>
                </thead>
                <tbody>
                  {found.datasets.map((one) => (
                    <tr key={one.type_key}>
                      <th scope="row">{one.type_key.replace(":", " ")}</th>
                      <td class="right">{count(one.entity_count)}</td>
                      <td class="right">{bytes(one.bytes_live)}</td>
                      <td class="right">{bytes(one.bytes_reclaimable)}</td>
                      <td class="right">{count(one.versions)}</td>
                      <td class="right">{count(one.fragments)}</td>
                      <td class="right">{count(one.deleted_rows)}</td>
                      <td>
                        {one.indexes.length} made{one.missing_indexes.length ? `, missing: ${one.missing_indexes.join(", ")}` : ""}
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </>
        )}
      </Waiting>
      <h2>Unfinished and settled writes</h2>
      <Waiting asked={recoveries}>
        {({ pending, records }) => (
          <>
            {!pending.length && !records.length && <p class="quiet">No write was ever cut off.</p>}
            {pending.length > 0 && (
              <ul>
                {pending.map((one) => (
                  <li key={String(one.operation_id)} class="mono">{String(one.operation_id)} {String(one.writer_kind ?? one.problem)}: the next write settles it</li>
                ))}
              </ul>
            )}
            {records.length > 0 && (
              <table class="wide">
                <thead>
                  <tr><th>When</th><th>What</th><th>Branch</th><th>Commit</th></tr>
                </thead>
                <tbody>
                  {records.map((one) => (
                    <tr key={String(one.operation_id)}>
                      <td>{when(Number(one.created_at))}</td>
                      <td>{String(one.recovery_kind)}</td>
                      <td>{String(one.graph_branch ?? "main")}</td>
                      <td>{one.graph_commit_id ? <CommitLink id={String(one.graph_commit_id)} /> : ""}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )}
          </>
        )}
      </Waiting>
      <h2>The server</h2>
      <Waiting asked={about}>
        {(found) => (
          <p>
            OmniGraph {found.version}, {found.status}, {plural(found.served_graph_count, "graph")} served, {found.quarantined_graph_count} put aside.
            {Object.entries(found.problems ?? {}).map(([name, text]) => (
              <span key={name} class="problem">{name}: {text}</span>
            ))}
          </p>
        )}
      </Waiting>
    </div>
  );
}
