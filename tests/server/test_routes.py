"""Every route of the table against a real server: what it answers, and how it refuses."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from omnigraph.server.calls import ARROW, JSON
from omnigraph.server.openapi import statuses
from omnigraph.server.routes import ROUTES

# What the tests share is made once, by one worker.
pytestmark = pytest.mark.xdist_group("server-routes")

G = "/graphs/people"
READ = "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name asc } }"
INSERT = "query add($n: String) { insert Person { name: $n } }"
BLOB = "entity=node&type=Person&id=ada&property=photo"

# By operation: the path below the graph, and the request; `{head}` is main's head.
REQUESTS = {
    "health": ("//healthz", {}),
    "ready": ("//readyz", {}),
    "listGraphs": ("//graphs", {}),
    "metrics": ("//metrics", {}),
    "openapi": ("//openapi.json", {}),
    "getSnapshot": ("/snapshot", {}),
    "query": ("/query", {"json_body": {"query": READ}}),
    "read": ("/read", {"json_body": {"query_source": READ}}),
    "explain": ("/explain", {"json_body": {"query": READ}}),
    "getSchema": ("/schema", {}),
    "mutate": ("/mutate", {"json_body": {"query": INSERT, "params": {"n": "r1"}}}),
    "mutateIfGraphCommit": (
        "/mutate/if-graph-commit",
        {
            "json_body": {"query": INSERT, "params": {"n": "r2"}},
            "headers": {"omnigraph-if-graph-commit": "{head}"},
        },
    ),
    "change": ("/change", {"json_body": {"query_source": INSERT, "params": {"n": "r3"}}}),
    "load": ("/load", {"json_body": {"data": '{"type":"Town","data":{"name":"Oslo"}}'}}),
    "loadNdjson": (
        "/load/ndjson?branch=main&mode=merge",
        {
            "body": b'{"type":"Town","data":{"name":"Rome"}}\n',
            "headers": {"content-type": "application/x-ndjson; charset=utf-8"},
        },
    ),
    "ingest": ("/ingest", {"json_body": {"data": '{"type":"Town","data":{"name":"Bonn"}}'}}),
    "applySchema": ("/schema/apply", {"json_body": {"schema_source": "{schema}"}}),
    "listBranches": ("/branches", {}),
    "createBranch": ("/branches", {"json_body": {"name": "made/by-test"}}),
    "deleteBranch": ("/branches/made%2Fby-test", {}),
    "mergeBranches": ("/branches/merge", {"json_body": {"source": "side", "target": "main"}}),
    "previewMerge": ("/branches/merge/preview", {"json_body": {"source": "side"}}),
    "revertCommit": ("/commits/{head}/revert", {"json_body": {}}),
    "listCommits": ("/commits", {}),
    "getCommit": ("/commits/{head}", {}),
    "getCommitChanges": ("/commits/{head}/changes", {}),
    "pollChanges": ("/changes?start=beginning", {}),
    "diff": ("/diff?from=main~1&to=main", {}),
    "getEntity": ("/entities/node/Person/ada", {}),
    "getEntityHistory": ("/entities/node/Person/ada/history", {}),
    "export": ("/export", {"json_body": {"type_names": ["Person"]}}),
    "changesBaseline": ("/changes/baseline", {"json_body": {"kind": ["node"]}}),
    "listQueries": ("/queries", {}),
    "invokeQuery": ("/queries/person", {"json_body": {"params": {"name": "ada"}}}),
    "invokeQueryIfGraphCommit": (
        "/queries/add_person/if-graph-commit",
        {
            "json_body": {"params": {"name": "r4"}},
            "headers": {"omnigraph-if-graph-commit": "{head}"},
        },
    ),
    "getBlob": (f"/blob?{BLOB}", {}),
    "headBlob": (f"/blob?{BLOB}", {}),
    "lint": ("/lint", {"json_body": {"source": "query ( nonsense"}}),
    "complete": ("/complete", {"json_body": {"source": "query q() { match { $p: ", "at": 24}}),
    "describe": ("/describe", {"json_body": {"query": READ}}),
    "getCatalog": ("/catalog", {}),
    "neighbours": (
        "/neighbours",
        {"json_body": {"nodes": [{"type_name": "Person", "ids": ["ada"]}]}},
    ),
    "getPermissions": ("/permissions?branch=main&target=main", {}),
    "listTags": ("/tags", {}),
    "graphHealth": ("/health", {}),
    "listRecoveries": ("/recoveries", {}),
    "console": ("//ui", {}),
    "consoleFile": ("//ui/index.js", {}),
}
OWN = [route for route in ROUTES if route.asgi is None]
POSTS = [route for route in OWN if route.request is not None]


def named(route):
    return route.operation


def asked(served, route):
    path, request = REQUESTS[route.operation]
    if "side" in str(request):
        served.post(f"{G}/branches", {"name": "side"})
    facts = {}
    if "{head}" in path + str(request):
        facts["{head}"] = served.get(f"{G}/commits?limit=1").json["commits"][0]["graph_commit_id"]
    if "{schema}" in str(request):
        facts["{schema}"] = served.get(f"{G}/schema").json["schema_source"]
    text = json.dumps({k: v for k, v in request.items() if k != "body"})
    for name, value in facts.items():
        path = path.replace(name, value)
        text = text.replace(name, json.dumps(value)[1:-1])
    more = {"body": request["body"]} if "body" in request else {}
    path = path[1:] if path.startswith("//") else G + path
    return served.ask(route.method, path, **json.loads(text), **more)


@pytest.mark.parametrize("route", OWN, ids=named)
def test_every_route_answers_what_it_promises(served, route):
    reply = asked(served, route)
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == route.media, reply
    assert re.fullmatch(r"[A-Z0-9]{26}", reply.headers["x-request-id"])
    assert ("deprecation" in reply.headers) == (route.successor is not None)
    if route.successor is not None:
        assert reply.headers["link"] == f'<{route.successor}>; rel="successor-version"'


@pytest.mark.parametrize("path", ["/healthz", f"{G}/schema", f"{G}/commits?limit=1", "/ui/"])
def test_head_is_a_get_without_what_it_answers(served, path):
    whole, head = served.get(path), served.ask("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    for name in ("content-type", "content-length", "etag"):
        assert head.headers.get(name) == whole.headers.get(name)


def filled(path):
    return re.sub(r"{\w+}", "x", path.replace("{graph_id}", "people"))


@pytest.mark.parametrize("route", OWN, ids=named)
def test_another_method_is_refused_and_the_right_ones_are_named(served, route):
    reply = served.ask("PUT", filled(route.path))
    assert reply.status == 405, reply
    assert reply.json["code"] == "method_not_allowed"
    assert route.method in reply.headers["allow"].split(", ")


@pytest.mark.parametrize("route", [one for one in OWN if one.is_of_a_graph], ids=named)
@pytest.mark.parametrize(
    ("graph", "status"), [("nobody", 404), ("not_an-id", 400), ("graphs", 400)]
)
def test_a_graph_that_is_not_served_is_refused(served, route, graph, status):
    path = filled(route.path.replace("{graph_id}", graph))
    reply = served.ask(route.method, path)
    assert reply.status == status, reply
    if route.method != "HEAD":
        assert reply.json["error"]


@pytest.mark.parametrize("route", POSTS, ids=named)
@pytest.mark.parametrize(
    ("body", "media", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'"\xff"', "application/json", 400),
        (b"{}", "text/plain", 415),
    ],
)
def test_a_body_that_does_not_fit_is_refused_in_json(served, route, body, media, status):
    path = filled(route.path)
    headers = {"content-type": media}
    if path.endswith("/if-graph-commit"):
        headers["omnigraph-if-graph-commit"] = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    reply = served.ask(route.method, path, body=body, headers=headers)
    assert reply.status == status, reply
    assert reply.json["code"] == "bad_request"
    assert reply.headers["content-type"] == "application/json"
    assert status in statuses(route)


@pytest.mark.parametrize(
    "path", ["/", "/query", "/snapshot", "/graphs/people/nothing", "/graphs/people", "/healthz/x"]
)
def test_a_path_without_a_route_is_404_in_json(served, path):
    reply = served.get(path)
    assert (reply.status, reply.json["code"]) == (404, "not_found")


# --- single promises ------------------------------------------------------------------------------


def test_a_receipt_is_byte_for_byte_what_the_commit_says(served):
    made = served.post(f"{G}/mutate", {"query": INSERT, "params": {"n": "receipt"}})
    told = served.get(f"{G}/commits/{made.json['commit']['graph_commit_id']}")
    assert json.dumps(made.json["commit"]) == json.dumps(told.json)
    assert told.body in made.body


def test_a_keyed_merge_that_deletes_its_branch_is_told_again(served):
    def add(name):
        body = {"query": INSERT, "params": {"n": name}, "branch": "keyed"}
        assert served.post(f"{G}/mutate", body).status == 200

    def merge():
        body = {"source": "keyed", "delete_branch": True}
        return served.post(f"{G}/branches/merge", body, headers={"idempotency-key": "merge-1"})

    served.post(f"{G}/branches", {"name": "keyed"})
    add("keyed-1")
    first, again = merge(), merge()
    assert (first.status, again.status) == (200, 200)
    assert first.json["commit"] == again.json["commit"]
    assert again.headers["idempotency-replayed"] == "true"
    assert first.json["branch_deleted"] is again.json["branch_deleted"] is True
    served.post(f"{G}/branches", {"name": "keyed"})
    add("keyed-2")  # work that was never merged: the old request does not delete it
    assert merge().json["branch_deleted"] is False
    assert served.ask("DELETE", f"{G}/branches/keyed").status == 200


def test_one_key_sent_ten_times_at_once_makes_one_commit(served):
    before = len(served.get(f"{G}/commits").json["commits"])
    body = {"query": INSERT, "params": {"n": "once"}}

    def send(_):
        return served.post(f"{G}/mutate", body, headers={"idempotency-key": "key-1"})

    with ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(send, range(10)))
    assert {reply.status for reply in replies} == {200}
    assert len({reply.json["commit"]["graph_commit_id"] for reply in replies}) == 1
    assert sum("idempotency-replayed" not in reply.headers for reply in replies) == 1
    assert len(served.get(f"{G}/commits").json["commits"]) == before + 1
    other = served.post(
        f"{G}/mutate",
        {"query": INSERT, "params": {"n": "twice"}},
        headers={"idempotency-key": "key-1"},
    )
    assert (other.status, other.json["detail"]["code"]) == (409, "idempotency-key-reused")


@pytest.mark.parametrize("key", ["", "ü", "a b", "x" * 256])
def test_a_key_that_is_none_is_refused(served, key):
    body = {"query": INSERT, "params": {"n": "never"}}
    headers = {"idempotency-key": key.encode("latin-1").decode("latin-1")}
    assert served.post(f"{G}/mutate", body, headers=headers).status == 400


@pytest.mark.parametrize("path", ["/schema", "/snapshot", "/commits", "/queries"])
def test_what_the_client_has_already_is_not_sent_again(served, path):
    first = served.get(G + path)
    again = served.get(G + path, headers={"if-none-match": f"W/{first.headers['etag']}"})
    assert (again.status, again.body) == (304, b"")
    served.post(f"{G}/queries/add_person", {"params": {"name": f"etag {path}"}})
    changed = served.get(G + path, headers={"if-none-match": first.headers["etag"]})
    assert changed.status == (304 if path == "/queries" else 200)


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("Application/Vnd.Apache.Arrow.Stream", ARROW),
        (f"{ARROW};q=0.5, */*", ARROW),
        (f"{ARROW}; q=0.0, */*", JSON),
        ("*/*", JSON),
    ],
)
def test_what_is_accepted_decides_how_rows_come(served, accept, media):
    reply = served.post(f"{G}/query", {"query": READ}, headers={"accept": accept})
    assert (reply.status, reply.headers["content-type"]) == (200, media)


def test_rows_come_as_an_arrow_stream_where_it_is_asked_for(served):
    accept = {"accept": "application/vnd.apache.arrow.stream"}
    for path, body in (
        ("/query", {"query": READ}),
        ("/queries/person", {"params": {"name": "ada"}}),
    ):
        reply = served.post(G + path, body, headers=accept)
        plain = served.post(G + path, body).json
        table = pa.ipc.open_stream(reply.body).read_all()
        assert table.num_rows == plain["row_count"]
        assert table.column_names == plain["columns"]
        assert reply.headers["omnigraph-graph-commit"] == plain["graph_commit_id"]
        assert reply.headers["omnigraph-query-name"] == plain["query_name"]


def test_one_of_several_queries_must_be_named(served):
    reply = served.post(f"{G}/query", {"query": f"{READ} {INSERT}"})
    assert reply.status == 400
    assert reply.json["error"].startswith("query file contains multiple queries; pass --name")


def test_a_request_id_of_the_client_is_kept_if_it_is_one(served):
    good = served.get("/healthz", headers={"x-request-id": "mine-1.2_3"})
    assert good.headers["x-request-id"] == "mine-1.2_3"
    bad = served.get("/healthz", headers={"x-request-id": "x" * 65})
    assert bad.headers["x-request-id"] != "x" * 65


def test_big_answers_are_packed_for_those_who_can_read_it(served):
    lines = "\n".join(
        json.dumps({"type": "Town", "data": {"name": f"town {n}"}}) for n in range(300)
    )
    served.post(f"{G}/load", {"data": lines})
    query = {"query": "query t() { match { $t: Town } return { $t.name } }"}
    packed = served.post(f"{G}/query", query, headers={"accept-encoding": "gzip"})
    plain = served.post(f"{G}/query", query)
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json == plain.json


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/query", {"query": READ, "branch": "main~1"}),
        ("/query", {"query": READ, "branch": "nope"}),
        ("/mutate", {"query": INSERT, "params": {"n": "x"}, "branch": "nope"}),
        ("/export", {"branch": "nope"}),
        ("/branches/merge", {"source": "nope"}),
        ("/branches", {"name": "n", "from": "nope"}),
    ],
)
def test_only_a_branch_is_a_branch(served, path, body):
    reply = served.post(G + path, body)
    assert (reply.status, reply.json["code"]) == (404, "not_found"), reply


@pytest.mark.parametrize("blank", ["", "  ", "\t"])
@pytest.mark.parametrize("path", ["/query", "/mutate", "/export"])
def test_a_blank_branch_is_no_branch(served, path, blank):
    body = {"branch": blank} if path == "/export" else {"query": READ, "branch": blank}
    assert served.post(G + path, body).status == 400


def test_a_padded_branch_is_the_branch(served):
    found = served.post(f"{G}/query", {"query": READ, "branch": " main "})
    assert found.json["target"] == {"branch": "main", "snapshot": None}


def test_pages_of_commits_and_branches_give_all_of_them_once(served):
    for path, name in (("/commits", "commits"), ("/branches", "branches")):
        whole = served.get(G + path).json[name]
        pages, token = [], ""
        while True:
            page = served.get(f"{G}{path}?limit=1{token}").json
            pages += page[name]
            if "next_page_token" not in page:
                break
            token = f"&page_token={page['next_page_token']}"
        assert pages == whole


def test_stored_queries_say_what_they_take(served):
    found = {one["name"]: one for one in served.get(f"{G}/queries").json["queries"]}
    assert found["person"] == {
        "name": "person",
        "tool_name": "person",
        "description": "One person by name",
        "mutation": False,
        "params": [{"name": "name", "kind": "string", "nullable": False}],
    }
    assert found["add_person"]["params"][1] == {"name": "age", "kind": "int", "nullable": True}


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/queries/person", {"expect_mutation": True}, "is a read"),
        ("/queries/add_person", {"expect_mutation": False}, "is a mutation"),
        ("/queries/add_person", {"snapshot": "main"}, "takes no snapshot"),
        ("/queries/person", {"params": {}}, "'name'"),
        ("/queries/person", {"branch": "main", "snapshot": "main"}, "only one of"),
    ],
)
def test_a_stored_query_that_is_called_wrongly_says_how(served, path, body, words):
    reply = served.post(G + path, body)
    assert reply.status == 400
    assert words in reply.json["error"]


def test_a_schema_that_a_stored_query_does_not_fit_is_refused(served):
    source = "node Town { name: String @key }"
    reply = served.post(f"{G}/schema/apply", {"schema_source": source, "allow_data_loss": True})
    assert (reply.status, reply.json["code"]) == (409, "conflict")
    assert "stored query" in reply.json["error"]


def test_an_export_can_be_loaded_again_and_an_export_of_nothing_is_empty(served):
    lines = served.post(f"{G}/export", {}).body.decode().splitlines()
    counted = sum(one["entity_count"] for one in served.get(f"{G}/snapshot").json["datasets"])
    assert len(lines) == counted
    served.post(f"{G}/branches", {"name": "copy"})
    loaded = served.post(
        f"{G}/load", {"data": "\n".join(lines), "mode": "overwrite", "branch": "copy"}
    )
    assert loaded.json["total_entities"] == len(lines)


def test_the_last_line_of_a_baseline_is_where_the_feed_goes_on(served):
    body = served.post(f"{G}/changes/baseline", {}).body.decode().splitlines()
    told = json.loads(body[-1])["baseline"]
    poll = served.get(f"{G}/changes?cursor={told['resume_cursor']}").json
    assert (poll["blocks"], poll["caught_up"]) == ([], True)


def test_the_head_of_a_request_has_a_size(served):
    assert served.get("/healthz", headers={"x-filler": "x" * 20_000}).status == 431


def test_metrics_count_by_route_and_hold_no_names_of_people(served):
    served.post(f"{G}/query", {"query": READ})
    text = served.get("/metrics").body.decode()
    assert 'omnigraph_http_requests_total{method="POST",route="/graphs/{graph_id}/query"' in text
    assert 'omnigraph_graph_state{graph="people"} 1.0' in text
    assert "ada" not in text
