"""The tools that agents get, as values: what each takes, and which request it becomes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

import msgspec

from omnigraph.errors import InputError
from omnigraph.model.access import Action
from omnigraph.wire.answers import QueryParam, StoredQueryOutput

Place = Literal["graph", "server"]
Method = Literal["GET", "POST", "DELETE"]
_STRING: Final = {"type": "string"}
_STRINGS: Final = {"type": "array", "items": {"type": "string"}}
_BRANCH: Final = {"type": "string", "description": "the branch; main if left out"}
_COMMIT: Final = {"type": "string", "description": "the id of a commit"}
_PARAMS: Final = {"type": "object", "description": "the query's parameters by name"}
_LIMIT: Final = {"type": "integer", "minimum": 1, "description": "changes in the answer"}
_PAGE: Final = {"type": "string", "description": "next_page_token of the answer before"}
_IF_COMMIT: Final = {
    "type": "string",
    "description": "do it only if this commit is still the head of the branch",
}
_FILTERS: Final = {"kind": _STRINGS, "type": _STRINGS, "op": _STRINGS}
_QUERY: Final = {"type": "string", "description": "source text in the .gq language"}
_STATE: Final = {
    "branch": _BRANCH,
    "snapshot": {"type": "string", "description": "an earlier state: a commit id; not with branch"},
}
IF_COMMIT: Final = "omnigraph-if-graph-commit"


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool. `path` is below the graph (or the server); names in braces come from arguments."""

    name: str
    about: str
    method: Method
    path: str
    actions: tuple[Action, ...]  # needed to see it; none: anybody may
    place: Place = "graph"
    arguments: Mapping[str, Any] = msgspec.field(default_factory=dict)
    required: tuple[str, ...] = ()
    reads: bool = True

    @property
    def schema(self) -> dict[str, Any]:
        """What it takes, as JSON Schema."""
        body: dict[str, Any] = {"type": "object", "properties": dict(self.arguments)}
        if self.required:
            body["required"] = list(self.required)
        return {**body, "additionalProperties": False}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool asks of the routes."""

    method: str
    path: str  # with the query string; below the graph or the server
    body: bytes = b""
    if_commit: str | None = None


_QUERIED: Final = {"query!": _QUERY, "name": _STRING, "params": _PARAMS}
_PAGED: Final = {"limit": _LIMIT, "page_token": _PAGE}
_MODE: Final = {"type": "string", "enum": ["append", "merge", "overwrite"]}
_START: Final = {"type": "string", "description": "now, beginning or after:<commit>"}
_LINES: Final = {"type": "string", "description": "one JSON object a line"}

# Name, request, the action that it takes (none: anybody may), what it is for, and its arguments;
# those with a `!` are required.
_TABLE: Final[tuple[tuple[str, str, Action | None, str, Mapping[str, Any]], ...]] = (
    ("health", "GET /healthz", None, "Whether the server is there, and its version.", {}),
    ("graphs_list", "GET /graphs", "graph_list", "The graphs that the server offers.", {}),
    (
        "schema_get",
        "GET /schema",
        "read",
        (
            "The schema of the graph as .pg text: node types, edge types, properties. "
            "Read it before writing queries."
        ),
        {},
    ),
    (
        "snapshot",
        "GET /snapshot",
        "read",
        "Which types the graph has and how many entities of each.",
        {"branch": _BRANCH},
    ),
    (
        "query",
        "POST /query",
        "read",
        "Run one read query and get its rows.",
        {**_QUERIED, **_STATE},
    ),
    (
        "mutate",
        "POST /mutate",
        "change",
        "Run one mutation query as one commit, or not at all.",
        {**_QUERIED, "branch": _BRANCH, "if_graph_commit": _IF_COMMIT},
    ),
    (
        "load",
        "POST /load",
        "change",
        (
            "Load graph NDJSON as one commit. mode is append, merge or overwrite; "
            "with `from` a missing branch is made from that one."
        ),
        {"data!": _LINES, "branch": _BRANCH, "from": _STRING, "mode": _MODE},
    ),
    ("branches_list", "GET /branches", "read", "The branches by name.", {}),
    (
        "branches_create",
        "POST /branches",
        "branch_create",
        "Make a branch from the head of another; nothing is copied.",
        {"name!": _STRING, "from": _BRANCH},
    ),
    (
        "branches_delete",
        "DELETE /branches/{branch}",
        "branch_delete",
        "Delete a branch.",
        {"branch!": _STRING},
    ),
    (
        "branches_merge",
        "POST /branches/merge",
        "branch_merge",
        "Merge a branch into another as one commit; conflicts leave everything as it was.",
        {"source!": _STRING, "target": _BRANCH, "delete_branch": {"type": "boolean"}},
    ),
    (
        "commits_list",
        "GET /commits",
        "read",
        "The history of a branch, newest first.",
        {"branch": _BRANCH, **_PAGED},
    ),
    (
        "commits_get",
        "GET /commits/{commit_id}",
        "read",
        "One commit by its id.",
        {"commit_id!": _COMMIT},
    ),
    (
        "commits_changes",
        "GET /commits/{commit_id}/changes",
        "read",
        "What one commit changed, entity by entity, with the values before and after.",
        {"commit_id!": _COMMIT, **_PAGED, **_FILTERS},
    ),
    (
        "changes_poll",
        "GET /changes",
        "read",
        "What happened on a branch after a cursor; store the cursor and pass it next time.",
        {
            "branch": _BRANCH,
            "cursor": _STRING,
            "start": _START,
            "page_token": _PAGE,
            "limit": _LIMIT,
            **_FILTERS,
        },
    ),
    (
        "lint",
        "POST /lint",
        "read",
        "Check query text against the schema without running it.",
        {"source!": _QUERY},
    ),
    (
        "explain",
        "POST /explain",
        "read",
        "Run a read query and tell how it was done.",
        {**_QUERIED, **_STATE},
    ),
    (
        "diff",
        "GET /diff",
        "read",
        "What is different between two states: branches or commits.",
        {"from!": _STRING, "to!": _STRING, **_PAGED, **_FILTERS},
    ),
    (
        "merge_preview",
        "POST /branches/merge/preview",
        "read",
        "What a merge would do now, conflicts included, without doing it.",
        {"source!": _STRING, "target": _BRANCH},
    ),
)


def _tool(
    name: str, request: str, action: Action | None, about: str, arguments: Mapping[str, Any]
) -> Tool:
    method, _, path = request.partition(" ")
    return Tool(
        name=name,
        about=about,
        method=msgspec.convert(method, Method),
        path=path,
        actions=() if action is None else (action,),
        place="server" if action in (None, "graph_list") else "graph",
        arguments={word.rstrip("!"): schema for word, schema in arguments.items()},
        required=tuple(word.rstrip("!") for word in arguments if word.endswith("!")),
        reads=action in (None, "graph_list", "read"),
    )


BUILT_IN: Final = tuple(_tool(*row) for row in _TABLE)
NAMES: Final = frozenset(tool.name for tool in BUILT_IN)
# What they tell is of no branch: a right that is bounded by branches never covers them.
OF_NO_BRANCH: Final = frozenset({"schema_get", "branches_list", "commits_get"})


# --- stored queries ------------------------------------------------------------------------------


def stored_tool(query: StoredQueryOutput) -> Tool:
    """The tool that runs a stored query; its parameters are its arguments."""
    own: dict[str, Any] = {param.name: param_schema(param) for param in query.params}
    extra = {"branch": _BRANCH, "if_graph_commit": _IF_COMMIT} if query.mutation else dict(_STATE)
    about = query.description or f"The stored query {query.name}."
    if query.instruction:
        about = f"{about}\n\n{query.instruction}"
    return Tool(
        name=query.tool_name,
        about=about,
        method="POST",
        path=f"/queries/{quote(query.name, safe='')}",
        actions=("invoke_query", "change" if query.mutation else "read"),
        arguments={**extra, **own},  # a parameter wins over an argument of ours
        required=tuple(param.name for param in query.params if not param.nullable),
        reads=not query.mutation,
    )


def param_schema(param: QueryParam) -> dict[str, Any]:
    """A parameter's kind as JSON Schema."""
    schema = _kind_schema(param.kind, param)
    if param.nullable and "type" in schema:
        schema = {**schema, "type": [schema["type"], "null"]}
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return schema


def _kind_schema(kind: str, param: QueryParam) -> dict[str, Any]:
    match kind:
        case "bool":
            return {"type": "boolean"}
        case "int":
            return {"type": "integer"}
        case "bigint":
            return {"type": "string", "pattern": r"^-?\d+$"}
        case "float":
            return {"type": "number"}
        case "date":
            return {"type": "string", "format": "date"}
        case "datetime":
            return {"type": "string", "format": "date-time"}
        case "blob":
            return {
                "type": "string",
                "pattern": "^(base64:|[a-z0-9]+://)",
                "description": "base64: and the bytes so written, or an address",
            }
        case "vector":
            size = {"minItems": param.vector_dim, "maxItems": param.vector_dim}
            return {"type": "array", "items": {"type": "number"}, **size}
        case "list":
            item = param.item_kind if isinstance(param.item_kind, str) else "string"
            return {"type": "array", "items": _kind_schema(item, param)}
        case "record":
            return {"type": "object"}
        case _ if isinstance(param.choices, list):
            return {"type": "string", "enum": param.choices}
        case _:
            return {"type": "string"}


# --- from arguments to a request ---------------------------------------------------------------


def request_of(
    tool: Tool, given: Mapping[str, Any], *, stored: StoredQueryOutput | None
) -> Request:
    """The request that a call of the tool becomes; arguments may be spelled in camelCase."""
    own = {param.name for param in stored.params} if stored is not None else set()
    arguments = _known(tool, given, own)
    missing = [name for name in tool.required if arguments.get(name) is None]
    if missing:
        raise InputError(f"the tool '{tool.name}' needs '{missing[0]}'")
    if_commit = None
    if "if_graph_commit" in tool.arguments and "if_graph_commit" not in own:
        if_commit = arguments.pop("if_graph_commit", None)
        if if_commit is not None:
            if_commit = _text(tool, "if_graph_commit", if_commit)
    path = tool.path
    if if_commit is not None:
        path += "/if-graph-commit"
    if stored is not None:
        ours = {name: arguments.pop(name) for name in list(arguments) if name not in own}
        body: dict[str, Any] = {**ours, "params": arguments, "expect_mutation": stored.mutation}
        return Request(
            method="POST", path=path, body=msgspec.json.encode(body), if_commit=if_commit
        )
    for name in re.findall(r"{(\w+)}", path):
        path = path.replace(f"{{{name}}}", quote(_text(tool, name, arguments.pop(name)), safe=""))
    if tool.method == "POST":
        return Request(
            method="POST", path=path, body=msgspec.json.encode(arguments), if_commit=if_commit
        )
    asked = [
        (name, str(one))
        for name, value in arguments.items()
        for one in (value if isinstance(value, list) else [value])
        if one is not None
    ]
    return Request(method=tool.method, path=path + (f"?{urlencode(asked)}" if asked else ""))


def _text(tool: Tool, name: str, given: Any) -> str:
    """An argument that becomes part of a path or a header."""
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise InputError(f"the tool '{tool.name}' takes text as '{name}'")
    return given


def _known(tool: Tool, given: Mapping[str, Any], own: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        known = name if name in tool.arguments or name in own else snake_case(name)
        if known == "name" and "name" not in tool.arguments and "branch" in tool.required:
            known = "branch"
        if known not in tool.arguments:
            raise InputError(f"the tool '{tool.name}' takes no '{name}'")
        found[known] = value
    return found


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: "_" + found[1].lower(), name)
