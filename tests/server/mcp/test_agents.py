"""What agents get: the official client over HTTP and over stdio, tools by policy, refusals."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from serving import SOURCES, serving

from omnigraph import Graph
from omnigraph.errors import InputError

pytest.importorskip("mcp")

import httpx2
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from omnigraph.server.mcp.serving import SERVER_MCP_ANSWER_BYTES_MAX, shortened
from omnigraph.server.mcp.tools import BUILT_IN, param_schema, request_of, snake_case, stored_tool
from omnigraph.wire.answers import QueryParam, StoredQueryOutput

# What the tests share is made once, by one worker.
pytestmark = pytest.mark.xdist_group("server-agents")

SCHEMA = """node Person { name: String @key  age: I32?  big: I64?  born: Date?  seen: DateTime?
  tags: [String]?  score: F64?  on: Bool? }
edge Knows: Person -> Person"""
QUERIES = """
query by_name($name: String) @description("one person") @instruction("ask for ada") {
  match { $p: Person { name: $name } } return { $p.name, $p.age }
}
query add_person($name: String, $age: I32?, $big: I64?, $born: Date?, $seen: DateTime?,
  $tags: [String]?, $score: F64?, $on: Bool?) {
  insert Person { name: $name, age: $age, big: $big, born: $born, seen: $seen, tags: $tags,
    score: $score, on: $on }
}
"""
POLICY = """
version: 1
groups: {readers: [reader], guests: [guest], writers: [writer], nobodies: [nobody]}
protected_branches: [main]
rules:
  - {id: read, allow: {actors: {group: readers}, actions: [read]}}
  - {id: some, allow: {actors: {group: guests}, actions: [read], branch_scope: unprotected}}
  - {id: all, allow: {actors: {group: writers}, actions: [read, export, change, branch_create,
      branch_delete, branch_merge, invoke_query]}}
"""
TOKENS = {name: f"t-{name}" for name in ("reader", "guest", "writer", "nobody")}
READS = {
    "schema_get", "snapshot", "query", "branches_list", "commits_list", "commits_get",
    "commits_changes", "changes_poll", "lint", "explain", "diff", "merge_preview",
}  # fmt: skip
WRITES = {"mutate", "load", "branches_create", "branches_delete", "branches_merge"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    with Graph.init(folder / "alpha.omni", SCHEMA, durability="process") as graph:
        graph.load('{"type":"Person","data":{"name":"ada","age":36}}', mode="append")
    (folder / "q.gq").write_text(QUERIES)
    (folder / "policy.yaml").write_text(POLICY)
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps(TOKENS))
    tokens.chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def served(place):
    options = ("--queries", str(place / "q.gq"), "--policy", str(place / "policy.yaml"))
    env = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(place / "tokens.json")}
    with serving([place / "alpha.omni"], *options, folder=place, env=env) as found:
        yield found


def over_http(served, token, work, *, path="/graphs/alpha/mcp"):
    async def run():
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(served.url + path, http_client=http)) as client,
        ):
            return await work(client)

    return asyncio.run(run())


def over_stdio(words, work, env=None):
    async def run():
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "omnigraph", "mcp", *words],
            env={**os.environ, "PYTHONPATH": str(SOURCES), **(env or {})},
        )
        async with Client(parameters, read_timeout_seconds=60) as client:
            return await work(client)

    return asyncio.run(run())


async def names(client):
    return {tool.name for tool in (await client.list_tools()).tools}


async def called(client, name, arguments=None):
    found = await client.call_tool(name, arguments or {})
    assert json.loads(found.content[0].text) == found.structured_content
    return found.is_error, found.structured_content


def test_tools_are_shown_as_the_policy_allows_them(served):
    assert over_http(served, "t-reader", names) == READS | {"health"}
    of_no_branch = {"schema_get", "branches_list", "commits_get"}
    assert over_http(served, "t-guest", names) == READS - of_no_branch | {"health"}
    stored = {"by_name", "add_person"}
    assert over_http(served, "t-writer", names) == READS | WRITES | stored | {"health"}
    assert over_http(served, "t-nobody", names) == {"health"}
    assert over_http(served, "t-reader", names, path="/mcp") == {"health"}


def test_a_tool_that_is_hidden_is_one_that_is_not_there(served):
    async def work(client):
        told = []
        for name in ("mutate", "by_name", "no_such_tool"):
            with pytest.raises(MCPError) as caught:
                await client.call_tool(name, {"query": "x"})
            told.append(str(caught.value).replace(name, "NAME"))
        return told

    assert len(set(over_http(served, "t-reader", work))) == 1


def test_an_agent_reads_works_on_a_branch_and_merges(served):
    async def work(client):
        _, schema = await called(client, "schema_get")
        assert "node Person" in schema["schema_source"]
        query = "query q() { match { $p: Person } return { count($p) as n } }"
        _, rows = await called(client, "query", {"query": query})
        before = rows["rows"][0]["n"]
        _, made = await called(client, "branches_create", {"name": "agent"})
        assert made["name"] == "agent"
        insert = "query i($n: String) { insert Person { name: $n } }"
        _, head = await called(client, "commits_list", {"branch": "agent"})
        wrong, told = await called(
            client,
            "mutate",
            {"query": insert, "params": {"n": "x"}, "branch": "agent", "ifGraphCommit": "0" * 26},
        )
        assert (wrong, told["status"]) == (True, 412)
        assert told["detail"]["precondition_failure"]["expected"] == "0" * 26
        assert told["detail"]["branch"] == "agent"
        _, done = await called(
            client,
            "mutate",
            {
                "query": insert,
                "params": {"n": "bob"},
                "branch": "agent",
                "if_graph_commit": head["commits"][0]["graph_commit_id"],
            },
        )
        assert done["actor_id"] == "writer"
        _, changed = await called(client, "diff", {"from": "main", "to": "agent"})
        assert [one["id"] for one in changed["changes"]] == ["bob"]
        _, preview = await called(client, "merge_preview", {"source": "agent"})
        assert preview["conflicts"] == []
        _, merged = await called(
            client, "branches_merge", {"source": "agent", "deleteBranch": True}
        )
        assert (merged["outcome"], merged["branch_deleted"]) == ("fast_forward", True)
        _, rows = await called(client, "query", {"query": query})
        return rows["rows"][0]["n"] - before

    assert over_http(served, "t-writer", work) == 1


def test_stored_queries_are_tools_with_typed_arguments(served):
    given = {
        "name": "eve",
        "age": 3,
        "big": "9007199254740993",
        "born": "2001-02-03",
        "seen": "2001-02-03T04:05:06Z",
        "tags": ["a", "b"],
        "score": 1.5,
        "on": True,
    }

    async def work(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        schema = tools["add_person"].input_schema
        assert schema["required"] == ["name"]
        assert tools["by_name"].annotations.read_only_hint
        assert tools["add_person"].annotations.destructive_hint
        assert "ask for ada" in tools["by_name"].description
        _, done = await called(client, "add_person", given)
        assert done["affected_nodes"] == 1
        _, found = await called(client, "by_name", {"name": "eve"})
        wrong, told = await called(client, "by_name", {})
        assert (wrong, told["status"]) == (True, 400)
        return found["rows"]

    assert over_http(served, "t-writer", work) == [{"p.name": "eve", "p.age": 3}]


def test_resources_are_the_schema_the_branches_and_guides(served):
    async def work(client):
        listed = {str(one.uri) for one in (await client.list_resources()).resources}
        schema = await client.read_resource("omnigraph://schema")
        guide = await client.read_resource("omnigraph://guide/queries")
        branches = await client.read_resource("omnigraph://branches")
        with pytest.raises(MCPError):
            await client.read_resource("omnigraph://secrets")
        return listed, schema.contents[0].text, guide.contents[0].text, branches.contents[0].text

    listed, schema, guide, branches = over_http(served, "t-reader", work)
    assert {"omnigraph://schema", "omnigraph://guide/search"} <= listed
    assert schema.strip() == SCHEMA
    assert guide.startswith("# Queries")
    assert "main" in json.loads(branches)["branches"]


def rpc(served, *, body=None, headers=None, path="/graphs/alpha/mcp"):
    sent = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": "Bearer t-reader",
        **(headers or {}),
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    data = json.dumps(message).encode() if body is None else body
    return served.ask("POST", path, body=data, headers=sent)


def test_strange_origins_hosts_tokens_and_sizes_are_refused(served):
    assert rpc(served).status == 200
    assert rpc(served, headers={"origin": "http://evil.example"}).status == 403
    assert rpc(served, headers={"host": "evil.example", "origin": ""}).status in (403, 421)
    assert rpc(served, headers={"authorization": "Bearer wrong"}).status == 401
    assert rpc(served, body=b" " * (4 * 1024 * 1024 + 1)).status == 413
    assert rpc(served, path="/graphs/none/mcp").status == 404


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 200),
        ({"body": b" " * (4 * 1024 * 1024 + 1)}, 413),
        ({"headers": {"content-type": "text/plain"}}, 400),
        ({"body": b"{"}, 400),
    ],
)
def test_every_answer_to_an_agent_is_json_and_has_the_id_of_its_request(served, sent, status):
    headers = {**sent.get("headers", {}), "x-request-id": "id-of-mine"}
    found = rpc(served, **{**sent, "headers": headers})
    assert (found.status, found.headers["x-request-id"]) == (status, "id-of-mine")
    assert found.headers["content-type"].startswith("application/json")
    assert ("error" in found.json) is (status != 200)


@pytest.mark.slow
def test_an_agent_of_this_machine_gets_the_same_tools(place):
    async def work(client):
        found = await names(client)
        wrong, told = await called(client, "query", {"query": "query q() { nonsense }"})
        assert (wrong, told["status"]) == (True, 400)
        _, rows = await called(client, "by_name", {"name": "ada"})
        return found, rows["rows"]

    words = ["--store", str(place / "alpha.omni"), "--queries", str(place / "q.gq")]
    found, rows = over_stdio(words, work)
    assert found >= READS | WRITES | {"health", "graphs_list", "by_name", "add_person"}
    assert rows == [{"p.name": "ada", "p.age": 36}]


def test_an_agent_reaches_a_server_over_stdio_with_its_token(served):
    words = ["--server", served.url, "--graph", "alpha"]
    env = {"OMNIGRAPH_BEARER_TOKEN": "t-reader"}
    assert over_stdio(words, names, env) == READS | {"health"}


# --- tools as values ------------------------------------------------------------------------------


def test_the_tools_are_these():
    told = [
        {"name": tool.name, "schema": tool.schema, "reads": tool.reads, "path": tool.path}
        for tool in BUILT_IN
    ]
    kept = Path(__file__).with_name("tools.json")
    if os.environ.get("OMNIGRAPH_KEEP"):
        kept.write_text(json.dumps(told, indent=1) + "\n")
    assert told == json.loads(kept.read_text())
    assert len(told) == 19


KINDS = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "bigint": {"type": "string", "pattern": r"^-?\d+$"},
    "float": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "blob": {
        "type": "string",
        "pattern": "^(base64:|[a-z0-9]+://)",
        "description": "base64: and the bytes so written, or an address",
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_parameter_of_each_kind_has_its_schema(kind):
    assert param_schema(QueryParam(name="x", kind=kind, nullable=False)) == KINDS[kind]
    assert param_schema(QueryParam(name="x", kind=kind, nullable=True))["type"][1] == "null"
    listed = QueryParam(name="x", kind="list", item_kind=kind, nullable=False)
    assert param_schema(listed) == {"type": "array", "items": KINDS[kind]}


def test_an_enum_lists_its_values():
    told = {"name": "x", "choices": ["a", "b"]}
    one = QueryParam(**told, kind="string", nullable=False)
    assert param_schema(one) == {"type": "string", "enum": ["a", "b"]}
    left_out = param_schema(QueryParam(**told, kind="string", nullable=True))
    assert left_out == {"type": ["string", "null"], "enum": ["a", "b", None]}
    many = param_schema(QueryParam(**told, kind="list", item_kind="string", nullable=False))
    assert many["items"] == {"type": "string", "enum": ["a", "b"]}


def test_a_vector_has_its_size():
    found = param_schema(QueryParam(name="v", kind="vector", vector_dim=3, nullable=False))
    assert (found["minItems"], found["maxItems"], found["items"]) == (3, 3, {"type": "number"})


def test_a_parameter_wins_over_an_argument_of_ours():
    own = QueryParam(name="branch", kind="int", nullable=False)
    query = StoredQueryOutput(name="q", tool_name="q", mutation=False, params=[own])
    tool = stored_tool(query)
    assert tool.schema["properties"]["branch"] == {"type": "integer"}
    body = json.loads(request_of(tool, {"branch": 7}, stored=query).body)
    assert body == {"params": {"branch": 7}, "expect_mutation": False}


@pytest.mark.parametrize("given", [5, ["main"], {"a": 1}, "", " ", "a\nb"])
@pytest.mark.parametrize(
    ("name", "argument"),
    [("mutate", "if_graph_commit"), ("commits_get", "commit_id"), ("branches_delete", "branch")],
)
def test_what_becomes_part_of_a_path_or_a_header_is_text(name, argument, given):
    tool = next(one for one in BUILT_IN if one.name == name)
    arguments = {"query": "query q() {}"} if name == "mutate" else {}
    with pytest.raises(InputError, match=argument):
        request_of(tool, {**arguments, argument: given}, stored=None)


def test_camel_case_is_understood():
    assert snake_case("ifGraphCommit") == "if_graph_commit"
    assert snake_case("page_token") == "page_token"


def test_a_long_answer_loses_rows_and_says_so():
    rows = [{"text": "x" * 1000} for _ in range(2000)]
    found = shortened({"row_count": 2000, "rows": rows}, 2_000_000)
    assert found["truncated"]
    assert found["row_count"] == found["rows_total"] == 2000
    assert len(json.dumps(found)) < 1.1 * SERVER_MCP_ANSWER_BYTES_MAX
    assert 0 < len(found["rows"]) < 2000
