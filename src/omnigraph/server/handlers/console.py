"""What the console and the command line ask beyond the wire of the reference: lint, completion, the
schema as values, what lies around nodes, permissions, tags, health."""

from __future__ import annotations

from typing import Any

from omnigraph.compiler.editing import query_completions
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import InputError
from omnigraph.model.access import ACTIONS, BRANCH_ACTIONS, SERVER_ACTIONS, TARGET_ACTIONS
from omnigraph.model.access import Access as Wanted
from omnigraph.model.graph import MAIN
from omnigraph.model.limits import CONSOLE_EDGES_MAX
from omnigraph.model.schema import Catalog, EdgeType, NodeType, Property, Scalar
from omnigraph.server.calls import Answer, Call, Parameter, Route, branch_name, json_answer
from omnigraph.server.handlers.parameters import BRANCH
from omnigraph.server.handlers.reading import SNAPSHOT, State, readable, resolved, tagged
from omnigraph.wire.answers import maybe
from omnigraph.wire.console import (
    CatalogOutput,
    ColumnOutput,
    CompleteRequest,
    CompletionOutput,
    CompletionsOutput,
    DescribeOutput,
    DrawnEdge,
    DrawnNode,
    EdgeTypeOutput,
    NeighboursOutput,
    NeighboursRequest,
    NodeTypeOutput,
    Permission,
    PermissionsOutput,
    PropertyOutput,
    RecoveriesOutput,
    TagListOutput,
    TagOutput,
)
from omnigraph.wire.requests import LintRequest, QueryRequest

ONLY_READS = frozenset({"read", "export", "invoke_query", "graph_list"})


# --- the editor -----------------------------------------------------------------------------------


def lint(call: Call) -> Answer:
    request = call.decoded(LintRequest)
    name = branch_name(request.branch)
    call.allow("read", branch=name)
    return json_answer(call.graph.lint(request.source, call.branch(name)).to_json())


def complete(call: Call) -> Answer:
    request = call.decoded(CompleteRequest)
    state = readable(call, request.branch, None)
    at = min(max(request.at, 0), len(request.source))
    found = query_completions(request.source, at, _catalog(call, state)[0])
    return json_answer(
        CompletionsOutput(
            completions=[
                CompletionOutput(label=one.label, kind=one.kind, detail=one.detail, says=one.says)
                for one in found
            ]
        )
    )


def describe(call: Call) -> Answer:
    request = call.decoded(QueryRequest)
    name, _ = resolved(request.query, request.name)
    state = readable(call, request.branch, request.snapshot)
    found = call.graph.describe(request.query, name, **state.where)
    columns = [
        ColumnOutput(name=one.name, kind=one.kind, node_types=maybe(list(one.node_types) or None))
        for one in found.operation.result
    ]
    return json_answer(DescribeOutput(query_name=name, kind=found.kind, columns=columns))


# --- the schema as values -------------------------------------------------------------------------


def _catalog(call: Call, state: State) -> tuple[Catalog, str]:
    """The schema of a state, and the commit that it is of."""
    found = call.graph.snapshot(state.branch or MAIN, at=state.snapshot)
    return compile_schema(found.schema.source), found.graph_commit_id


def label_of(node: NodeType) -> str:
    """The property that people know a node by: what it is keyed by, what is called a name, the
    first text, or else its id."""
    texts = [one.name for one in node.properties if _is_text(one)]
    named = [one for one in ("name", "title", "label") if one in texts]
    keyed = [one for one in node.key if one in texts]
    return next(iter([*keyed, *named, *texts]), "id")


def _is_text(one: Property) -> bool:
    return one.type.scalar is Scalar.STRING and not one.type.is_list


def catalog(call: Call) -> Answer:
    state = readable(call, call.text("branch"), call.text("snapshot"))
    found, commit_id = _catalog(call, state)
    body = CatalogOutput(
        nodes=[_node_type(one) for _, one in sorted(found.nodes.items())],
        edges=[_edge_type(one) for _, one in sorted(found.edges.items())],
        schema_source=found.source,
        graph_commit_id=commit_id,
    )
    return tagged(call, commit_id, body)


def _node_type(one: NodeType) -> NodeTypeOutput:
    return NodeTypeOutput(
        name=one.name,
        properties=[_property(each) for each in one.properties],
        key=list(one.key),
        label=label_of(one),
        description=maybe(one.description),
    )


def _edge_type(one: EdgeType) -> EdgeTypeOutput:
    return EdgeTypeOutput(
        name=one.name,
        from_type=one.from_type,
        to_type=one.to_type,
        properties=[_property(each) for each in one.properties],
        description=maybe(one.description),
    )


def _property(one: Property) -> PropertyOutput:
    return PropertyOutput(name=one.name, type=str(one.type), description=maybe(one.description))


# --- what is drawn --------------------------------------------------------------------------------


class Surroundings:
    """Nodes and edges that were found around some nodes, each once."""

    def __init__(self, call: Call, request: NeighboursRequest) -> None:
        self._call = call
        state = readable(call, request.branch, request.snapshot)
        self.catalog, commit_id = _catalog(call, state)
        # All queries ask one commit, whatever is written meanwhile.
        self._state = State(branch=None, snapshot=commit_id)
        self._limit = min(request.limit or CONSOLE_EDGES_MAX, CONSOLE_EDGES_MAX)
        self.nodes: dict[tuple[str, str], DrawnNode] = {}
        self.edges: dict[tuple[str, str], DrawnEdge] = {}
        self.truncated = False

    def _rows(self, pattern: str, returned: str, **params: list[str]) -> list[dict[str, Any]]:
        declared = ", ".join(f"${name}: [String]" for name in params)
        source = (
            f"query around({declared}) {{ match {{ {pattern} }} return {{ {returned} }}"
            f" limit {self._limit + 1} }}"
        )
        # The engine let the actor read this state when the schema was read; its commit by itself
        # may be of another branch.
        found = self._call.whole.query(
            source,
            "around",
            params=params,
            limits=self._call.read_limits(),
            **self._state.where,
        ).to_json_rows()
        self.truncated |= len(found) > self._limit
        return found[: self._limit]

    def _add_node(self, type_name: str, node_id: str, label: Any) -> None:
        shown = node_id if label is None else str(label)
        self.nodes[type_name, node_id] = DrawnNode(type_name=type_name, id=node_id, label=shown)

    def add_nodes(self, node: NodeType, ids: list[str]) -> None:
        """Those of the nodes that are there."""
        label = label_of(node)
        returned = f"$n.id as id, $n.{label} as label"
        for row in self._rows(f"$n: {node.name}  $n.id in $ids", returned, ids=ids):
            self._add_node(node.name, row["id"], row["label"])

    def add_edges(
        self, edge: EdgeType, *, starts: list[str] | None, ends: list[str] | None
    ) -> None:
        """The edges that start and end at these nodes (None = at any), and both their ends."""
        given = {"starts": starts, "ends": ends}
        params = {name: ids for name, ids in given.items() if ids is not None}
        walk = edge.name[0].lower() + edge.name[1:]
        pattern = f"$a: {edge.from_type}  $a $e:{walk} $b"
        pattern += "  $a.id in $starts" if starts is not None else ""
        pattern += "  $b.id in $ends" if ends is not None else ""
        labels = [label_of(self.catalog.nodes[one]) for one in (edge.from_type, edge.to_type)]
        returned = "$e.id as id, $e.src as src, $e.dst as dst"
        returned += f", $a.{labels[0]} as src_label, $b.{labels[1]} as dst_label"
        for row in self._rows(pattern, returned, **params):
            self._add_node(edge.from_type, row["src"], row["src_label"])
            self._add_node(edge.to_type, row["dst"], row["dst_label"])
            self.edges[edge.name, row["id"]] = DrawnEdge(
                type_name=edge.name,
                id=row["id"],
                from_type=edge.from_type,
                from_id=row["src"],
                to_type=edge.to_type,
                to_id=row["dst"],
            )


def neighbours(call: Call) -> Answer:
    request = call.decoded(NeighboursRequest)
    if request.limit is not None and request.limit < 1:
        raise InputError("limit must be at least 1")
    found = Surroundings(call, request)
    given: dict[str, list[str]] = {}
    for group in request.nodes:
        if group.type_name in found.catalog.nodes:  # another state may not have the type
            given.setdefault(group.type_name, []).extend(group.ids)
    for type_name, ids in sorted(given.items()):
        found.add_nodes(found.catalog.nodes[type_name], ids)
    for _, edge in sorted(found.catalog.edges.items()):
        starts, ends = given.get(edge.from_type), given.get(edge.to_type)
        if request.among:
            if starts is not None and ends is not None:
                found.add_edges(edge, starts=starts, ends=ends)
            continue
        if starts is not None:
            found.add_edges(edge, starts=starts, ends=None)
        if ends is not None:
            found.add_edges(edge, starts=None, ends=ends)
    body = NeighboursOutput(
        nodes=[one for _, one in sorted(found.nodes.items())],
        edges=[one for _, one in sorted(found.edges.items())],
        truncated=found.truncated,
    )
    return json_answer(body)


# --- who may, what is named, how it is doing ------------------------------------------------------


def permissions(call: Call) -> Answer:
    branch, target = call.text("branch"), call.text("target")
    gate = call.service.access.gate(call.graph_id)
    actions: dict[str, Permission] = {}
    for action in ACTIONS:
        if action in SERVER_ACTIONS:
            continue
        wanted = Wanted(
            action,
            branch if action in BRANCH_ACTIONS or action == "branch_merge" else None,
            target if action in TARGET_ACTIONS else None,
        )
        decision = None if gate is None else gate.decide(call.actor.id, wanted)
        if call.service.settings.read_only and action not in ONLY_READS:
            actions[action] = Permission(allowed=False, reason="this server only reads")
        elif decision is not None and not decision.allowed:
            actions[action] = Permission(allowed=False, reason=decision.message)
        else:
            actions[action] = Permission(allowed=True)
    return json_answer(PermissionsOutput(actor_id=call.actor.id, actions=actions))


def tags(call: Call) -> Answer:
    call.allow("read")
    found = [
        TagOutput(
            name=one.name,
            graph_commit_id=one.graph_commit_id,
            message=one.message,
            created_by=one.created_by,
            created_at=one.created_us,
        )
        for one in call.graph.tags()
    ]
    return json_answer(TagListOutput(tags=found))


def health(call: Call) -> Answer:
    name = branch_name(call.text("branch"))
    call.allow("read", branch=name)
    return json_answer(call.graph.health(call.branch(name)).to_json())


def recoveries(call: Call) -> Answer:
    call.allow("admin")
    body = RecoveriesOutput(
        pending=[one.to_json() for one in call.graph.pending_recoveries()],
        records=[one.to_json() for one in call.graph.recoveries()],
    )
    return json_answer(body)


def _route(
    method: str, path: str, handler: Any, operation: str, summary: str, **more: Any
) -> Route:
    facts: dict[str, Any] = {"action": "read", "statuses": (400, 404), "tag": "console"} | more
    return Route(
        method=method,
        path=f"/graphs/{{graph_id}}/{path}",
        handler=handler,
        operation=operation,
        summary=summary,
        **facts,
    )


TARGET = Parameter(name="target", about="the branch that is made, merged into or deleted")
READS = (400, 404, 413)

ROUTES = (
    _route(
        "POST",
        "lint",
        lint,
        "lint",
        "Check a query file; bad source becomes findings",
        request=LintRequest,
        answer=dict[str, Any],
        statuses=READS,
    ),
    _route(
        "POST",
        "complete",
        complete,
        "complete",
        "What can be written at a place of a query",
        request=CompleteRequest,
        answer=CompletionsOutput,
        statuses=READS,
    ),
    _route(
        "POST",
        "describe",
        describe,
        "describe",
        "What a query returns, without running it",
        request=QueryRequest,
        answer=DescribeOutput,
        statuses=READS,
    ),
    _route(
        "GET",
        "catalog",
        catalog,
        "getCatalog",
        "The schema as values",
        answer=CatalogOutput,
        statuses=(304, 400, 404),
        parameters=(BRANCH, SNAPSHOT),
    ),
    _route(
        "POST",
        "neighbours",
        neighbours,
        "neighbours",
        "What lies around nodes",
        request=NeighboursRequest,
        answer=NeighboursOutput,
        statuses=READS,
    ),
    _route(
        "GET",
        "permissions",
        permissions,
        "getPermissions",
        "What the asking actor may do",
        action=None,
        answer=PermissionsOutput,
        parameters=(BRANCH, TARGET),
    ),
    _route("GET", "tags", tags, "listTags", "The tags by name", answer=TagListOutput),
    _route(
        "GET",
        "health",
        health,
        "graphHealth",
        "How the graph's tables are doing",
        answer=dict[str, Any],
        parameters=(BRANCH,),
    ),
    _route(
        "GET",
        "recoveries",
        recoveries,
        "listRecoveries",
        "Unfinished writes, and those that were settled",
        action="admin",
        answer=RecoveriesOutput,
    ),
)
