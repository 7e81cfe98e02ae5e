"""`RemoteGraph`: a graph of a server, under the names of `Graph`."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self

import orjson
import pyarrow as pa

from omnigraph.client import http
from omnigraph.client.blobs import RemoteBlob
from omnigraph.client.http import ARROW, NDJSON, Address, Connection, Reply, segment
from omnigraph.client.sending import (
    DIRECT,
    At,
    Ref,
    filters,
    ndjson,
    once,
    plain,
    ref_text,
    refuse,
    refuse_actor,
    replayed,
    settling,
    state,
)
from omnigraph.client.values import (
    branch_of,
    change_of,
    commit_of,
    counts_of,
    image_of,
    page_of,
    preview_of,
    snapshot_of,
    steps_of,
    the_commit,
)
from omnigraph.compiler.query import LintReport, lint_source
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import InputError, LimitExceededError
from omnigraph.model.graph import MAIN, Branch, Commit, Snapshot
from omnigraph.model.limits import CLIENT_LOAD_BYTES_MAX
from omnigraph.results.changes import (
    Baseline,
    ChangePage,
    ChangeSet,
    EntityState,
    EntityVersion,
    FeedPage,
)
from omnigraph.results.merging import MergePreview, MergeResult, RevertResult
from omnigraph.results.rows import Explanation, QueryResult
from omnigraph.results.writing import LoadResult, MutationResult, SchemaApplyResult

TIMEOUT_SECONDS = 60.0


class RemoteGraph:
    """One graph of a server; `Graph.connect` makes it. Safe to share between threads.

    A write whose answer is lost raises `OutcomeUnknownError`: it is not sent again, unless you do
    so with the same idempotency key.
    """

    def __init__(self, connection: Connection, graph_id: str) -> None:
        """Use `Graph.connect`."""
        self._connection = connection
        self.graph_id = graph_id
        self._base = f"/graphs/{segment(graph_id)}"

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        token: str | None = None,
        graph: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> RemoteGraph:
        """The graph of that URL; a server with one graph needs no name."""
        address = Address.of(url, graph)
        connection = Connection(address.server, token=token, timeout=timeout)
        return cls(connection, address.graph_id or http.only_graph(connection))

    @property
    def uri(self) -> str:
        return self._connection.server + self._base

    def close(self) -> None:
        """Let go of the connections."""
        self._connection.close()

    def refresh(self) -> None:
        """Nothing to do: every answer is of the graph as it is."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteGraph({self.uri!r})"

    def __getattr__(self, name: str) -> NoReturn:
        if name in DIRECT:
            raise InputError(
                f"`{name}` is not served: it needs the graph's own storage",
                hint=f"{DIRECT[name]}: Graph.open(uri)",
            )
        raise AttributeError(f"'RemoteGraph' object has no attribute '{name}'")

    def _ask(self, method: str, path: str, **what: Any) -> Reply:
        return self._connection.ask(method, self._base + path, **what)

    def _get(self, path: str, **query: Any) -> Any:
        return self._ask("GET", path, query=query).json()

    # --- reading -----------------------------------------------------------------------------

    def query(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        snapshot: At | None = None,
        limits: Any = None,
        explain: bool = False,
    ) -> QueryResult:
        """Run one read query on one snapshot: the branch head, or the graph as it was. With
        `explain` it runs a second time, on the same snapshot."""
        refuse(limits, "limits", "a server has limits of its own")
        body = {"query": source, "name": name, "params": plain(params), **state(branch, snapshot)}
        found = _arrow(self._ask("POST", "/query", body=body, headers={"accept": ARROW}))
        if explain:
            at = found.graph_commit_id
            found.explanation = self.explain(source, name, params=params, snapshot=at)
        return found

    def explain(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> Explanation:
        """Run a read query and tell how: strategies, expected and actual rows, times, reads."""
        body = {"query": source, "name": name, "params": plain(params), **state(branch, snapshot)}
        return Explanation.of_json(self._ask("POST", "/explain", body=body).json())

    def schema_source(self, branch: str = MAIN) -> str:
        return str(self._get("/schema", branch=branch)["schema_source"])

    def lint(self, source: str, branch: str = MAIN) -> LintReport:
        """Check a query file against the schema; bad source becomes findings, never an error."""
        return lint_source(source, compile_schema(self.schema_source(branch)))

    def export(
        self, *, branch: str = MAIN, snapshot: At | None = None, types: Sequence[str] | None = None
    ) -> Iterator[str]:
        """The graph as NDJSON lines that `load` takes back, nodes first."""
        body = {**state(branch, snapshot), "type_names": None if types is None else list(types)}
        return self._connection.lines(f"{self._base}/export", body=body)

    def read_blob(
        self,
        kind: str,
        type_name: str,
        id: str,  # noqa: A002 - the name is fixed by the API
        property: str,  # noqa: A002 - likewise
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> RemoteBlob:
        """The bytes of one Blob property."""
        where = {"entity": kind, "type": type_name, "id": id, "property": property}
        return RemoteBlob(self._ask, {**where, **state(branch, snapshot)})

    # --- writing -----------------------------------------------------------------------------

    def mutate(
        self,
        source: str,
        name: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MutationResult:
        """Run one mutation query as one commit, or not at all."""
        refuse_actor(actor)
        body = {
            "query": source,
            "name": name,
            "params": plain(params),
            "branch": branch,
            "message": message,
        }
        return self._mutated("/mutate", body, if_commit, idempotency_key)

    def _mutated(
        self, path: str, body: Any, if_commit: str | None, key: str | None
    ) -> MutationResult:
        headers = once(key)
        if if_commit is not None:
            path += "/if-graph-commit"
            headers["omnigraph-if-graph-commit"] = if_commit
        reply = self._ask("POST", path, body=body, headers=headers)
        return _mutation(reply.json(), reply)

    def load(
        self,
        data: Any,
        *,
        mode: str,
        type: str | None = None,  # noqa: A002 - as `Graph.load`
        branch: str = MAIN,
        from_branch: str | None = None,
        actor: str | None = None,
        strict: bool = True,
        message: str | None = None,
        idempotency_key: str | None = None,
        on_error: str = "fail",
        quarantine: Any = None,
        progress: Any = None,
    ) -> LoadResult:
        """Load data as one commit, or change nothing: NDJSON as text, bytes or a file, records as
        dictionaries, or rows of dictionaries by type."""
        refuse_actor(actor)
        refuse(progress, "progress", "a server does not tell how far it is")
        refuse(quarantine, "quarantine", "a server has no quarantine")
        refuse(None if on_error == "fail" else on_error, "on_error", "a server has no quarantine")
        text = ndjson(data if type is None else {type: data})
        if len(text) > CLIENT_LOAD_BYTES_MAX:
            raise LimitExceededError(
                resource="load_bytes",
                limit=CLIENT_LOAD_BYTES_MAX,
                actual=len(text),
                hint="load it into the graph's storage (--store), on Spark if it is big",
            )
        if strict:
            asked = {"branch": branch, "from": from_branch, "mode": mode, "message": message}
            headers = {"content-type": NDJSON, **once(idempotency_key)}
            reply = self._ask("POST", "/load/ndjson", query=asked, raw=text, headers=headers)
        else:
            body = {
                "data": text.decode(),
                "branch": branch,
                "from": from_branch,
                "mode": mode,
                "message": message,
            }
            reply = self._ask("POST", "/load", body=body, headers=once(idempotency_key))
        told = reply.json()
        return LoadResult(
            uri=self.uri,
            branch=told["branch"],
            mode=told["mode"],
            nodes={one["name"]: one["entities_loaded"] for one in told["nodes"]},
            edges={one["name"]: one["entities_loaded"] for one in told["edges"]},
            actor_id=told["actor_id"],
            commit=commit_of(told["commit"]),
            base_branch=told["base_branch"],
            branch_created=told["branch_created"],
            already_applied=replayed(reply),
        )

    def apply_schema(
        self,
        source: str,
        allow_data_loss: bool = False,  # noqa: FBT001, FBT002 - the API fixes it
        actor: str | None = None,
        *,
        branch: str = MAIN,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> SchemaApplyResult:
        """Bring a branch to this schema in one commit; other branches keep theirs."""
        refuse_actor(actor)
        body = {
            "schema_source": source,
            "allow_data_loss": allow_data_loss,
            "branch": branch,
            "message": message,
        }
        reply = self._ask("POST", "/schema/apply", body=body, headers=once(idempotency_key))
        told = reply.json()
        return SchemaApplyResult(
            supported=told["supported"],
            applied=told["applied"],
            steps=steps_of(told["steps"]),
            graph_manifest_version=told["graph_manifest_version"],
            actor_id=told["actor_id"],
            commit=commit_of(told["commit"]),
            already_applied=replayed(reply),
        )

    # --- stored queries ----------------------------------------------------------------------

    def stored_queries(self) -> list[dict[str, Any]]:
        """The queries that the server offers by name, with their parameters."""
        return list(self._get("/queries")["queries"])

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        if_commit: str | None = None,
        expect_mutation: bool | None = None,
        idempotency_key: str | None = None,
    ) -> QueryResult | MutationResult:
        """Run a stored query; a read gives rows, a mutation what it did."""
        body = {
            "params": plain(params),
            "branch": branch,
            "snapshot": snapshot,
            "expect_mutation": expect_mutation,
        }
        path = f"/queries/{segment(name)}"
        headers = {"accept": f"{ARROW}, application/json", **once(idempotency_key)}
        if if_commit is not None:
            path += "/if-graph-commit"
            headers["omnigraph-if-graph-commit"] = if_commit
        reply = self._ask("POST", path, body=body, headers=headers)
        if reply.headers.get("content-type", "").startswith(ARROW):
            return _arrow(reply)
        return _mutation(reply.json(), reply)

    # --- branches and history ----------------------------------------------------------------

    def branches(self) -> list[str]:
        """`main` first, then the others by name."""
        names: list[str] = self._get("/branches")["branches"]
        return sorted(names, key=lambda name: (name != MAIN, name))

    def unreadable_branches(self) -> list[Any]:
        """A server tells of branches that can be read."""
        return []

    def create_branch(self, name: str, from_branch: str = MAIN, actor: str | None = None) -> Branch:
        """Fork the whole graph; no table is copied."""
        refuse_actor(actor)
        body = {"name": name, "from": from_branch}
        return branch_of(self._ask("POST", "/branches", body=body).json())

    def delete_branch(
        self,
        name: str,
        actor: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002 - the API fixes it
    ) -> None:
        """End a branch; `UnmergedBranchError` if it has work that no other branch contains, unless
        it is forced."""
        refuse_actor(actor)
        asked = {} if force else {"unmerged": "refuse"}
        self._ask("DELETE", f"/branches/{segment(name)}", query=asked)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        actor: str | None = None,
        *,
        strategy: str = "fail",
        resolutions: Mapping[tuple[str, str], Any] | None = None,
        delete_branch: bool = False,
        message: str | None = None,
        idempotency_key: str | None = None,
    ) -> MergeResult:
        """Merge a branch into another as one commit, or raise `MergeConflictsError`."""
        refuse_actor(actor)
        body = {
            "source": source,
            "target": into,
            "delete_branch": delete_branch,
            "message": message,
            **settling(strategy, resolutions),
        }
        reply = self._ask("POST", "/branches/merge", body=body, headers=once(idempotency_key))
        told = reply.json()
        return MergeResult(
            source=told["source"],
            target=told["target"],
            outcome=told["outcome"],
            actor_id=told["actor_id"],
            commit=commit_of(told["commit"]),
            changes=counts_of(told["changes"]),
            branch_deleted=told.get("branch_deleted"),
            branch_delete_error=told.get("branch_delete_error"),
            already_applied=replayed(reply),
        )

    def merge_preview(
        self,
        source: str,
        into: str = MAIN,
        *,
        strategy: str = "fail",
        resolutions: Mapping[tuple[str, str], Any] | None = None,
    ) -> MergePreview:
        """What `merge` would do now, conflicts included, without writing anything."""
        body = {"source": source, "target": into, **settling(strategy, resolutions)}
        return preview_of(self._ask("POST", "/branches/merge/preview", body=body).json())

    def revert(
        self,
        commit_id: Ref,
        *,
        branch: str = MAIN,
        actor: str | None = None,
        message: str | None = None,
    ) -> RevertResult:
        """Undo one commit by a new one."""
        refuse_actor(actor)
        body = {"branch": branch, "message": message}
        path = f"/commits/{segment(ref_text(commit_id))}/revert"
        told = self._ask("POST", path, body=body).json()
        return RevertResult(
            reverted_commit_id=told["reverted_commit_id"],
            branch=told["branch"],
            actor_id=told["actor_id"],
            commit=commit_of(told["commit"]),
            changes=counts_of(told["changes"]),
        )

    def commits(
        self, branch: str = MAIN, *, actor: str | None = None, limit: int | None = None
    ) -> list[Commit]:
        """The history of a branch, newest first; the last one is the genesis commit."""
        if limit is not None and limit < 0:
            raise InputError(f"limit must be 0 or more, got {limit}")
        if limit == 0:
            return []
        # A server knows no filter by actor: all are fetched where one is wanted.
        told = self._get("/commits", branch=branch, limit=None if actor is not None else limit)
        found = [the_commit(one) for one in told["commits"]]
        if actor is not None:
            found = [one for one in found if one.actor_id == actor]
        return found if limit is None else found[:limit]

    def commit(self, commit_id: Ref) -> Commit:
        """The commit that an id, the beginning of one, or any other ref names."""
        return the_commit(self._get(f"/commits/{segment(ref_text(commit_id))}"))

    def snapshot(self, branch: str = MAIN, at: At | None = None) -> Snapshot:
        """Which version of which dataset makes up the graph, now or `at` a commit or moment."""
        return snapshot_of(self._get("/snapshot", **state(branch, at)))

    # --- differences and the change feed -----------------------------------------------------

    def diff(
        self,
        from_ref: Ref,
        to_ref: Ref,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> ChangeSet:
        """What is different at `to_ref`, seen from `from_ref`."""
        wanted = {"from": ref_text(from_ref), "to": ref_text(to_ref), **filters(kinds, types, ops)}
        told = self._ask("GET", "/diff", query=wanted).json()
        return ChangeSet(
            from_commit_id=told["from_commit_id"],
            to_commit_id=told["to_commit_id"],
            changes=tuple(map(change_of, told["changes"])),
        )

    def commit_changes(
        self,
        commit_id: Ref,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ChangePage:
        """What one commit did to its first parent, with images, page by page."""
        wanted = {"limit": limit, "page_token": page_token, **filters(kinds, types, ops)}
        return page_of(self._get(f"/commits/{segment(ref_text(commit_id))}/changes", **wanted))

    def changes(
        self,
        *,
        branch: str = MAIN,
        cursor: str | None = None,
        start: str | None = None,
        page_token: str | None = None,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> FeedPage:
        """The change feed of a branch after a cursor or a start."""
        wanted = {
            "branch": branch,
            "cursor": cursor,
            "start": start,
            "page_token": page_token,
            "limit": limit,
            **filters(kinds, types, ops),
        }
        told = self._get("/changes", **wanted)
        return FeedPage(
            blocks=tuple(map(page_of, told["blocks"])),
            cursor=told.get("cursor"),
            caught_up=told.get("caught_up"),
            next_page_token=told.get("next_page_token"),
        )

    def changes_baseline(
        self,
        *,
        branch: str = MAIN,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> Baseline:
        """The whole state as NDJSON, and the cursor that polls go on from."""
        body = {"branch": branch, **filters(kinds, types, ops)}
        *lines, last = self._connection.lines(f"{self._base}/changes/baseline", body=body)
        return Baseline(lines=iter(lines), **orjson.loads(last)["baseline"])

    def entity(
        self,
        kind: str,
        type_name: str,
        id: str,  # noqa: A002 - the name that users know
        *,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> EntityState:
        """One entity as it is, or was: its properties and, of an edge, its ends."""
        where = f"/entities/{segment(kind)}/{segment(type_name)}/{segment(id)}"
        told = self._get(where, **state(branch, snapshot))
        found = image_of(told["image"])
        assert found is not None, "what is answered is there"
        return EntityState(graph_commit_id=told["graph_commit_id"], image=found)

    def entity_history(
        self,
        kind: str,
        type_name: str,
        id: str,  # noqa: A002 - the name that users know
        *,
        branch: str = MAIN,
    ) -> list[EntityVersion]:
        """Every version of one entity, newest first, with the commit that made it."""
        where = f"/entities/{segment(kind)}/{segment(type_name)}/{segment(id)}/history"
        return [
            EntityVersion(
                commit=the_commit(one["commit"]), op=one["op"], image=image_of(one["image"])
            )
            for one in self._get(where, branch=branch)["versions"]
        ]


def _arrow(reply: Reply) -> QueryResult:
    with pa.ipc.open_stream(io.BytesIO(reply.body)) as reader:
        table = reader.read_all()
    return QueryResult.of_table(table, graph_commit_id=reply.headers["omnigraph-graph-commit"])


def _mutation(told: Mapping[str, Any], reply: Reply) -> MutationResult:
    return MutationResult(
        branch=told["branch"],
        query_name=told["query_name"],
        affected_nodes=told["affected_nodes"],
        affected_edges=told["affected_edges"],
        actor_id=told["actor_id"],
        commit=commit_of(told["commit"]),
        ids=tuple(told.get("ids", ())),
        rows=list(told.get("rows", ())),
        already_applied=replayed(reply),
    )
