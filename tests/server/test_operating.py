"""What an operator has: metrics, logs, traces, policies that change, and hosts that come slowly."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time

import pytest
from in_process import Inside, KnownTokens
from opentelemetry import trace

from omnigraph import Graph
from omnigraph.server import worker
from omnigraph.server.access import Access
from omnigraph.server.app import App
from omnigraph.server.boot import access_of, with_policies
from omnigraph.server.calls import Route
from omnigraph.server.main import bound_socket
from omnigraph.server.settings import GraphSpec, Settings, graph_specs
from omnigraph.server.tokens import FILE
from omnigraph.server.tracing import Tracing

# What the tests share is made once, by one worker.
pytestmark = pytest.mark.xdist_group("server-operating")

SCHEMA = "node Person { name: String @key  photo: Blob? }"
READ = "query all() { match { $p: Person } return { $p.name } }"
ADD = "query add($n: String) { insert Person { name: $n } }"
PERSON = '{{"type":"Person","data":{{"name":"x","photo":"{}"}}}}'


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    path = tmp_path_factory.mktemp("operating") / "g.omni"
    with Graph.init(path, SCHEMA, durability="process") as graph:
        graph.load({"Person": [{"name": "ada"}, {"name": "bob"}]}, mode="append")
    return path


@pytest.fixture(scope="module")
def inside(uri):
    found = Inside(uri, Access(), access_log=True)
    yield found
    found.close()


def metrics(inside, **more):
    return inside.ask("GET", "/metrics", **more)


def test_metrics_tell_of_requests_and_of_the_engine(inside):
    inside.ask("POST", "/graphs/g/query", {"query": READ})
    inside.ask("POST", "/graphs/g/mutate", {"query": ADD, "params": {"n": "dora"}})
    text = metrics(inside).body.decode()
    for line in (
        'omnigraph_inflight{kind="read"} 0.0',
        'omnigraph_http_requests_total{method="POST",route="/graphs/{graph_id}/query",status="200"}',
        'omnigraph_engine_seconds_count{graph="g",op="query"}',
        'omnigraph_commits_total{graph="g",kind="mutation"} 1.0',
        'omnigraph_commit_retries_total{graph="g"} 0.0',
        'omnigraph_recoveries_total{graph="g"} 0.0',
        'omnigraph_cache_bytes{graph="g",kind="frame"}',
        'omnigraph_graph_state{graph="g"} 1.0',
    ):
        assert line in text, line


def test_strangers_see_neither_metrics_nor_what_is_wrong_with_which_graph(uri):
    guarded = Inside(uri, Access(tokens=KnownTokens()))
    try:
        guarded.service._note("policy", "the file is broken")
        assert metrics(guarded).status == 401
        assert metrics(guarded, token="token-ann").status == 200
        assert "problems" not in json.loads(guarded.ask("GET", "/readyz").body)
        told = json.loads(guarded.ask("GET", "/readyz", token="token-ann").body)
        assert told["problems"] == {"policy": "the file is broken"}
    finally:
        guarded.close()


def test_metrics_with_an_address_of_their_own_have_no_path(uri):
    apart = Inside(uri, Access(), metrics="127.0.0.1:0")
    try:
        assert metrics(apart).status == 404
    finally:
        apart.close()


def test_every_request_is_a_line_of_the_log_where_that_is_asked_for(inside, caplog):
    with caplog.at_level(logging.INFO, logger="omnigraph.server.app"):
        inside.ask("GET", "/graphs/g/branches", headers=[(b"x-request-id", b"abc")])
        inside.ask("GET", "/nothing")
    facts = [
        (one.method, one.route, one.graph, one.status, one.request_id) for one in caplog.records
    ]
    assert facts[0] == ("GET", "/graphs/{graph_id}/branches", "g", 200, "abc")
    assert facts[1][:4] == ("GET", "unknown", None, 404)


def test_a_blob_that_lies_elsewhere_is_refused_with_its_address(inside):
    data = PERSON.format("s3://key:secret@bucket/x?token=1")
    found = inside.ask("POST", "/graphs/g/load", {"data": data})
    told = json.loads(found.body)
    assert found.status == 424
    assert told["external_blob_source"]["uri"] == "s3://bucket/x"
    assert told["detail"]["code"] == "external-blob-source"


# --- policies that change -------------------------------------------------------------------------


def policy(*actions):
    rule = {"id": "r", "allow": {"actors": {"group": "all"}, "actions": list(actions)}}
    return json.dumps({"version": 1, "groups": {"all": ["ann"]}, "rules": [rule]})


def test_a_policy_that_changes_counts_and_a_broken_one_does_not(uri, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(policy("read"))
    specs = (GraphSpec(graph_id="g", uri=str(uri)),)
    access = with_policies(Access(tokens=KnownTokens()), Settings(graphs=specs, policy=str(path)))
    inside = Inside(uri, access, policy=str(path))
    try:

        def status():
            return inside.ask("POST", "/graphs/g/export", {}, token="token-ann").status

        assert status() == 403
        path.write_text(policy("read", "export"))
        inside.service.reload()
        assert status() == 200
        path.write_text("version: nonsense")
        inside.service.reload()
        assert status() == 200
        told = json.loads(inside.ask("GET", "/readyz", token="token-ann").body)
        assert "policy.yaml" in told["problems"]["policy"]
        path.write_text("version: 2026-13-45")  # no such day: YAML's library has no error for it
        inside.service.reload()
        assert status() == 200
    finally:
        inside.close()


def test_a_token_may_have_any_letters(uri, tmp_path, monkeypatch):
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"ann": "žluťoučký-🐎"}))
    tokens.chmod(0o600)
    monkeypatch.setenv(FILE, str(tokens))
    found = access_of(Settings(graphs=(GraphSpec(graph_id="g", uri=str(uri)),)))
    sent = "Bearer žluťoučký-🐎".encode().decode("latin-1")
    assert found.authenticate([sent]).id == "ann"


# --- traces ---------------------------------------------------------------------------------------


class Spans:
    """A tracer that keeps what it is told."""

    def __init__(self):
        self.ended = []

    def start_span(self, name, context=None, start_time=None, **_):
        parent = trace.get_current_span(context)
        return Span(self, name, parent)

    def start_as_current_span(self, name, context=None, **_):
        return trace.use_span(self.start_span(name, context), end_on_exit=True)


class Span(trace.NonRecordingSpan):
    def __init__(self, spans, name, parent):
        super().__init__(trace.SpanContext(1, 2 + len(spans.ended), is_remote=False))
        self.spans, self.name, self.attributes = spans, name, {}
        self.parent = getattr(parent, "name", None) or parent.get_span_context().span_id

    def is_recording(self):
        return True

    def update_name(self, name):
        self.name = name

    def set_attribute(self, key, value):
        self.attributes[key] = value

    def end(self, end_time=None):
        self.spans.ended.append(self)


def test_a_request_is_a_span_with_the_engines_work_below_it(uri):
    inside, spans = Inside(uri, Access()), Spans()
    inside.service.tracing = Tracing(trace, spans)
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    try:
        inside.ask("POST", "/graphs/g/query", {"query": READ}, headers=[(b"traceparent", parent)])
    finally:
        inside.close()
    *steps, engine, request = spans.ended
    assert request.name == "POST /graphs/{graph_id}/query"
    assert request.parent == 0xB7AD6B7169203331
    assert request.attributes["http.response.status_code"] == 200
    assert (engine.name, engine.attributes) == ("query", {"omnigraph.graph": "g"})
    assert steps
    assert {one.parent for one in steps} <= {"query", *(one.name for one in steps)}


def test_without_a_provider_there_is_no_tracing(inside):
    assert inside.service.tracing is None


# --- clients that come slowly, or in numbers ------------------------------------------------------


@pytest.fixture
def listening(inside, monkeypatch):
    monkeypatch.setattr(worker, "SERVER_HEAD_MS_MAX", 300)
    monkeypatch.setattr(worker, "SERVER_CONNECTIONS_MAX", 3)
    found = bound_socket("127.0.0.1", 0)
    config = worker.uvicorn_config(inside.service.settings)
    config.app = inside.app
    server = worker.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[found])))
    thread.start()
    yield found.getsockname()
    server.should_exit = True
    thread.join(10)
    found.close()


def said(client):
    client.settimeout(10)
    parts = []
    while part := client.recv(65_536):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nhost: x\r\nslow: "])
def test_a_head_that_does_not_come_is_not_waited_for(listening, sent):
    with socket.create_connection(listening) as client:
        client.sendall(sent)
        assert said(client).startswith(b"HTTP/1.1 408 ")


def request(method, path, body=b"", *headers):
    head = [f"{method} {path} HTTP/1.1", "host: x", *headers, f"content-length: {len(body)}"]
    return "\r\n".join([*head, "content-type: application/json", "", ""]).encode() + body


ASKED = json.dumps({"query": READ}).encode()
BIG = json.dumps({"query": READ + " " * 60_000}).encode()


def test_what_came_before_something_broken_is_answered_first(listening):
    with socket.create_connection(listening) as client:
        client.sendall(request("POST", "/graphs/g/query", ASKED) + b"\0 no request\r\n\r\n")
        assert said(client).startswith(b"HTTP/1.1 200 ")


def test_a_head_is_not_charged_with_the_bytes_before_it(listening):
    following = request("GET", "/healthz", b"", "connection: close")
    with socket.create_connection(listening) as client:
        client.sendall(request("POST", "/graphs/g/query", BIG) + following[:20])
        time.sleep(0.05)
        client.sendall(following[20:])
        assert said(client).count(b"HTTP/1.1 200 ") == 2


def test_a_wish_for_http_2_takes_no_body_away(listening):
    wish = ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEA"]
    with socket.create_connection(listening) as client:
        client.sendall(request("POST", "/graphs/g/query", ASKED, *wish))
        client.sendall(request("GET", "/healthz", b"", "connection: close"))
        assert said(client).count(b"HTTP/1.1 200 ") == 2


def test_a_refused_page_of_another_origin_is_told_in_json(uri):
    inside = Inside(uri, Access(), cors_origins=("https://ok.example",))
    asking = [(b"access-control-request-method", b"POST"), (b"x-request-id", b"mine")]
    try:
        inside.app = worker.application(inside.service)
        for origin, status in ((b"https://ok.example", 200), (b"https://bad.example", 400)):
            headers = [(b"origin", origin), *asking]
            reply = inside.ask("OPTIONS", "/graphs/g/query", headers=headers)
            assert (reply.status, reply.request_id) == (status, "mine")
        assert json.loads(reply.body)["code"] == "bad_request"
        assert "origin" in json.loads(reply.body)["error"]
    finally:
        inside.close()


def with_server(uri, app, ask):
    """What `ask` does with the address of a server that answers with the application."""
    config = worker.uvicorn_config(Settings(graphs=graph_specs([str(uri)])))
    config.app = app
    found = bound_socket("127.0.0.1", 0)

    async def story() -> None:
        server = worker.Server(config)
        task = asyncio.create_task(server.serve(sockets=[found]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            await ask(found.getsockname())
        finally:
            server.should_exit = True
            await task

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(story())


def test_many_connections_that_come_together_all_get_in(uri):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def ask(address):
        clients = []
        try:
            # Nobody takes a connection while this loop is busy: the system keeps them all.
            for _ in range(300):
                clients.append(socket.create_connection(address, timeout=5))  # noqa: PERF401
        finally:
            for one in clients:
                one.close()

    with_server(uri, app, ask)


def test_a_client_that_hangs_up_is_noticed_though_it_had_asked_for_more(uri):
    heard = []

    async def app(scope, receive, send):
        while len(heard) < 2:
            heard.append((await receive())["type"])

    async def ask(address):
        with socket.create_connection(address) as client:
            client.sendall(request("GET", "/") + request("GET", "/"))
            while not heard:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            while len(heard) < 2:
                await asyncio.sleep(0.01)

    with_server(uri, app, ask)
    assert heard == ["http.request", "http.disconnect"]


def test_beyond_its_connections_a_server_says_so(listening):
    open_ones = [socket.create_connection(listening) for _ in range(3)]
    try:
        with socket.create_connection(listening) as client:
            assert said(client).startswith(b"HTTP/1.1 503 ")
    finally:
        for one in open_ones:
            one.close()


def test_whatever_goes_wrong_with_one_file_the_others_are_read(uri, tmp_path):
    class Damaged(KnownTokens):
        def reload(self):
            raise MemoryError

    path = tmp_path / "policy.yaml"
    path.write_text(policy("read"))
    settings = Settings(graphs=(GraphSpec(graph_id="g", uri=str(uri)),), policy=str(path))
    inside = Inside(uri, with_policies(Access(tokens=Damaged()), settings), policy=str(path))
    try:
        path.write_text(policy("read", "export"))
        inside.service.reload()
        assert inside.ask("POST", "/graphs/g/export", {}, token="token-ann").status == 200
        told = json.loads(inside.ask("GET", "/readyz", token="token-ann").body)
        assert told["problems"] == {"tokens": "MemoryError"}
    finally:
        inside.close()


def test_a_read_whose_client_hung_up_is_no_failure(inside, caplog):
    def given_up(call):
        while not call.gone:
            time.sleep(0.01)
        return call.graph.query(READ, limits=call.read_limits())

    route = Route(
        method="POST",
        path="/graphs/{graph_id}/query",
        handler=given_up,
        operation="query",
        summary="Ask and go away",
    )
    coming = [{"type": "http.request"}, {"type": "http.disconnect"}]
    sent = []

    async def receive():
        return coming.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/graphs/g/query"}
    scope |= {"query_string": b"", "headers": []}
    inside.run(App(inside.service, [route])(scope, receive, send))
    assert (coming, sent, caplog.records) == ([], [], [])
