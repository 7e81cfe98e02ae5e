"""A server of the SDK for one graph, or for the server as a whole, over whatever answers requests.

`Backend` is what it needs: to ask a request, to say which tools the caller may see, and the stored
queries. A tool that the caller may never use does not exist for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import mcp_types as types
import msgspec
import orjson
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from omnigraph import __version__
from omnigraph.errors import InputError
from omnigraph.model.limits import SERVER_MCP_ANSWER_BYTES_MAX
from omnigraph.server.mcp.guides import GUIDES, guide
from omnigraph.server.mcp.tools import BUILT_IN, Place, Request, Tool, request_of, stored_tool
from omnigraph.wire.answers import StoredQueryOutput

INSTRUCTIONS: Final = (
    "A typed property graph with branches and history. Read the schema first (schema_get), "
    "then ask with query; omnigraph://guide/queries explains the language. "
    "Change a branch of your own rather than main, and merge it when it is right."
)
UNKNOWN_TOOL: Final = -32602
_SCHEMA, _BRANCHES, _GRAPHS = (f"omnigraph://{name}" for name in ("schema", "branches", "graphs"))
_MEDIA: Final = {_SCHEMA: "text/plain"}
_PLACES: Final[dict[str, tuple[str, Place, str]]] = {
    _SCHEMA: ("/schema", "graph", "the schema of the graph"),
    _BRANCHES: ("/branches", "graph", "the branches of the graph"),
    _GRAPHS: ("/graphs", "server", "the graphs of the server"),
}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered to a request."""

    status: int
    body: bytes
    request_id: str | None = None


class Backend(Protocol):
    """What a session asks; one for each message, because callers differ."""

    has_graph: bool

    async def ask(self, request: Request, place: Place) -> Reply: ...

    def may_see(self, tool: Tool) -> bool: ...

    async def stored(self) -> Sequence[StoredQueryOutput]: ...


BackendOf = Callable[[Any], Backend]


def mcp_server(backend_of: BackendOf) -> Server[Any]:
    """A server whose every message is answered by the backend of its request."""

    async def list_tools(ctx: Any, _: Any) -> types.ListToolsResult:
        found = await _visible(backend_of(ctx.request))
        return types.ListToolsResult(tools=[_described(tool) for tool, _ in found])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await _called(backend_of(ctx.request), params.name, params.arguments or {})

    async def list_resources(ctx: Any, _: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=_resources(backend_of(ctx.request)))

    async def read_resource(
        ctx: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await _read(backend_of(ctx.request), str(params.uri))

    return Server(
        "omnigraph",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


# --- tools ---------------------------------------------------------------------------------------


async def _visible(backend: Backend) -> list[tuple[Tool, StoredQueryOutput | None]]:
    found: list[tuple[Tool, StoredQueryOutput | None]] = [
        (tool, None)
        for tool in BUILT_IN
        if (backend.has_graph or tool.place == "server") and backend.may_see(tool)
    ]
    for query in await backend.stored() if backend.has_graph else ():
        tool = stored_tool(query)
        if backend.may_see(tool):
            found.append((tool, query))
    return found


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.about,
        input_schema=tool.schema,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.reads, destructive_hint=not tool.reads, open_world_hint=False
        ),
    )


async def _called(backend: Backend, name: str, given: dict[str, Any]) -> types.CallToolResult:
    found = next((one for one in await _visible(backend) if one[0].name == name), None)
    if found is None:
        raise MCPError(UNKNOWN_TOOL, f"Unknown tool: {name}")
    tool, stored = found
    try:
        request = request_of(tool, given, stored=stored)
    except InputError as cause:
        return _refused({"error": cause.message, "status": 400, "code": "bad_request"})
    reply = await backend.ask(request, tool.place)
    try:
        body = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        body = {"error": "the answer is no JSON"}
    if reply.status >= 400:
        return _refused(_refusal(reply, body))
    if len(reply.body) > SERVER_MCP_ANSWER_BYTES_MAX:
        body = shortened(body, len(reply.body))
    return _told(body)


def _refusal(reply: Reply, body: Any) -> dict[str, Any]:
    """The failure for an agent: what, and every detail that it may go by."""
    known = body if isinstance(body, dict) else {}
    told = {"error": known.get("error", "the request failed"), "status": reply.status}
    if "code" in known:
        told["code"] = known["code"]
    if reply.request_id is not None:
        told["request_id"] = reply.request_id
    detail = known.get("detail")
    more = detail if isinstance(detail, dict) else {}
    more |= {
        key: value
        for key, value in known.items()
        if key not in ("error", "code", "detail", "request_id")
    }
    return {**told, **({"detail": more} if more else {})}


def shortened(body: Any, size: int) -> Any:
    """An answer that is too long, with fewer rows: as many of its longest list as fit."""
    if not isinstance(body, dict):
        return {"truncated": True}
    lists = {name: value for name, value in body.items() if isinstance(value, list) and value}
    if not lists:
        return {"truncated": True, "error": f"the answer has {size} bytes"}
    name = max(lists, key=lambda one: len(orjson.dumps(lists[one])))
    rows, fits, room = lists[name], 0, SERVER_MCP_ANSWER_BYTES_MAX
    room -= len(orjson.dumps({**body, name: []}))
    for row in rows:
        room -= len(orjson.dumps(row)) + 1
        if room < 0:
            break
        fits += 1
    return {**body, name: rows[:fits], "truncated": True, f"{name}_total": len(rows)}


def _told(body: Any) -> types.CallToolResult:
    text = json.dumps(body, ensure_ascii=False)
    return types.CallToolResult(
        content=[types.TextContent(text=text)],
        structured_content=body if isinstance(body, dict) else {"result": body},
    )


def _refused(body: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=json.dumps(body, ensure_ascii=False))],
        structured_content=body,
        is_error=True,
    )


# --- resources -----------------------------------------------------------------------------------


def _resources(backend: Backend) -> list[types.Resource]:
    found = [
        types.Resource(
            uri=uri,
            name=uri.rpartition("/")[2],
            description=about,
            mime_type=_MEDIA.get(uri, "application/json"),
        )
        for uri, (_, place, about) in _PLACES.items()
        if backend.has_graph or place == "server"
    ]
    found += [
        types.Resource(
            uri=f"omnigraph://guide/{name}",
            name=name,
            description=about,
            mime_type="text/markdown",
        )
        for name, about in GUIDES.items()
    ]
    return found


async def _read(backend: Backend, uri: str) -> types.ReadResourceResult:
    name = uri.removeprefix("omnigraph://guide/")
    if name in GUIDES:
        return _contents(uri, guide(name), "text/markdown")
    known = _PLACES.get(uri)
    if known is None or (known[1] == "graph" and not backend.has_graph):
        raise MCPError(UNKNOWN_TOOL, f"Unknown resource: {uri}")
    path, place, _ = known
    reply = await backend.ask(Request(method="GET", path=path), place)
    if reply.status >= 400:
        told = _refusal(reply, orjson.loads(reply.body))
        raise MCPError(UNKNOWN_TOOL, str(told["error"]), told)
    if uri == _SCHEMA:
        return _contents(uri, str(orjson.loads(reply.body)["schema_source"]), "text/plain")
    return _contents(uri, reply.body.decode(), "application/json")


def _contents(uri: str, text: str, media: str) -> types.ReadResourceResult:
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, text=text, mime_type=media)]
    )
