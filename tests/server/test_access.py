"""Who is let in, and what they may do: the same at the door and in the engine."""

from __future__ import annotations

import json

import pytest
from in_process import Inside, KnownTokens

from omnigraph import Graph, errors
from omnigraph.policy.document import parse_policy
from omnigraph.policy.engine import Policy
from omnigraph.server.access import Access
from omnigraph.server.boot import access_of
from omnigraph.server.settings import GraphSpec, Settings
from omnigraph.server.tokens import FILE, JSON, SINGLE

# What the tests share is made once, by one worker.
pytestmark = pytest.mark.xdist_group("server-access")

SCHEMA = "node Person { name: String @key age: I32? photo: Blob? }"
NOTHING = 'query none() { delete Person where name = "nobody" }'
READ = "query all() { match { $p: Person } return { $p.name } }"
STORED = (
    "query all_people() { match { $p: Person } return { $p.name } }\n"
    "query drop_nobody($n: String) { delete Person where name = $n }\n"
)
BRANCH_ACTIONS = ("read", "export", "change")
TARGET_ACTIONS = ("schema_apply", "branch_create", "branch_delete", "branch_merge")
SCOPES = (None, "any", "protected", "unprotected")


def team(action, scope):
    """The actor who has one right, and nothing else."""
    return f"{action}-{scope or 'plain'}"


def policy_text():
    rules, groups = [], {"strangers": ["stranger"]}
    for action in (*BRANCH_ACTIONS, *TARGET_ACTIONS):
        for scope in SCOPES:
            name = team(action, scope)
            groups[name] = [name]
            allow = {"actors": {"group": name}, "actions": [action]}
            if scope is not None:
                word = "branch_scope" if action in BRANCH_ACTIONS else "target_branch_scope"
                allow[word] = scope
            rules.append({"id": name, "allow": allow})
    for name, actions in {
        "invoker": ["invoke_query"],
        "reader": ["invoke_query", "read"],
        "writer": ["invoke_query", "change"],
        "upkeep": ["admin"],
        "merger": ["branch_merge"],
    }.items():
        groups[name] = [name]
        rules.append({"id": name, "allow": {"actors": {"group": name}, "actions": actions}})
    body = {"version": 1, "groups": groups, "protected_branches": ["main"], "rules": rules}
    return json.dumps(body)


@pytest.fixture(scope="module")
def policy():
    return Policy(parse_policy(policy_text(), path="policy.yaml"), graph_id="g")


@pytest.fixture(scope="module")
def inside(tmp_path_factory, policy):
    folder = tmp_path_factory.mktemp("access")
    with Graph.init(folder / "g.omni", SCHEMA, durability="process") as graph:
        graph.load('{"type":"Person","data":{"name":"ada","photo":"base64:SGk="}}', mode="append")
        graph.create_branch("topic")
        graph.create_branch("other")
    (folder / "q.gq").write_text(STORED)
    access = Access(tokens=KnownTokens(), gates={"g": policy})
    found = Inside(folder / "g.omni", access, queries=str(folder / "q.gq"))
    yield found
    found.close()


G = "/graphs/g"
# What is asked over HTTP, and the same of an open graph. None of them changes anything.
DEEDS = {
    "read main": (("GET", f"{G}/snapshot?branch=main"), lambda g: g.snapshot("main")),
    "read topic": (("GET", f"{G}/snapshot?branch=topic"), lambda g: g.snapshot("topic")),
    "read": (("GET", f"{G}/branches"), lambda g: g.branches()),
    "export main": (("POST", f"{G}/export", {"branch": "main"}), lambda g: g.export()),
    "export topic": (
        ("POST", f"{G}/export", {"branch": "topic"}),
        lambda g: g.export(branch="topic"),
    ),
    "change main": (("POST", f"{G}/mutate", {"query": NOTHING}), lambda g: g.mutate(NOTHING)),
    "change topic": (
        ("POST", f"{G}/mutate", {"query": NOTHING, "branch": "topic"}),
        lambda g: g.mutate(NOTHING, branch="topic"),
    ),
    "apply to main": (
        ("POST", f"{G}/schema/apply", {"schema_source": SCHEMA}),
        lambda g: g.apply_schema(SCHEMA),
    ),
    "create main": (
        ("POST", f"{G}/branches", {"name": "main"}),
        lambda g: g.create_branch("main"),
    ),
    "create topic": (
        ("POST", f"{G}/branches", {"name": "topic"}),
        lambda g: g.create_branch("topic"),
    ),
    "delete main": (("DELETE", f"{G}/branches/main"), lambda g: g.delete_branch("main")),
    "delete nothing": (("DELETE", f"{G}/branches/gone"), lambda g: g.delete_branch("gone")),
    "merge into main": (
        ("POST", f"{G}/branches/merge", {"source": "topic"}),
        lambda g: g.merge("topic"),
    ),
    "merge into other": (
        ("POST", f"{G}/branches/merge", {"source": "topic", "target": "other"}),
        lambda g: g.merge("topic", "other"),
    ),
}
ACTORS = (
    *(team(action, scope) for action in BRANCH_ACTIONS + TARGET_ACTIONS for scope in SCOPES),
    *("stranger", "nobody-at-all", "upkeep", "invoker"),
)


def engine_denies(graph, deed):
    try:
        deed(graph)
    except errors.PolicyDeniedError:
        return True
    except errors.OmnigraphError:
        return False
    return False


def test_the_door_and_the_engine_agree_on_every_right(inside, policy):
    assert len(ACTORS) * len(DEEDS) >= 200
    wrong, denied = [], 0
    for actor in ACTORS:
        view = inside.served.graph.acting_as(actor, policy=policy)
        for name, (request, deed) in DEEDS.items():
            reply = inside.ask(*request, token=f"token-{actor}")
            assert reply.status not in (401, 500), (actor, name, reply)
            refused = engine_denies(view, deed)
            denied += refused
            if (reply.status == 403) != refused:
                wrong.append((actor, name, reply.status, refused))
    assert wrong == []
    assert denied > 200  # most have no such right


@pytest.mark.parametrize(
    "sent",
    [
        (),
        ((b"authorization", b"Bearer"),),
        ((b"authorization", b"Bearer  "),),
        ((b"authorization", b"Basic token-stranger"),),
        ((b"authorization", b"Bearer wrong"),),
        ((b"authorization", b"Bearer token-a"), (b"authorization", b"Bearer token-b")),
        ((b"x-actor-id", b"read-plain"), (b"cookie", b"token=token-read-plain")),
    ],
)
def test_without_a_token_nobody_learns_which_graphs_there_are(inside, sent):
    told = set()
    for path in (f"{G}/snapshot", "/graphs/none/snapshot", "/graphs/!!/snapshot"):
        reply = inside.ask("GET", path, headers=sent)
        assert reply.status == 401
        told.add(reply.body)
    assert len(told) == 1


def test_who_acts_is_said_by_the_token_alone(inside):
    headers = ((b"x-actor-id", b"change-plain"), (b"x-forwarded-user", b"change-plain"))
    body = {"query": NOTHING, "actor": "change-plain", "actor_id": "change-plain"}
    reply = inside.ask("POST", f"{G}/mutate", body, token="token-stranger", headers=headers)
    assert reply.status == 403
    assert b"'stranger'" in reply.body
    good = inside.ask("POST", f"{G}/mutate", body, token="token-change-plain", headers=headers)
    assert json.loads(good.body)["actor_id"] == "change-plain"


@pytest.mark.parametrize("name", ["main", " main", "main ", "%6dain", "main%20", "ma%69n"])
def test_padding_and_encoding_do_not_get_past_a_rule(inside, name):
    token = f"token-{team('read', 'unprotected')}"
    path = f"{G}/snapshot?branch={name.replace(' ', '%20')}"
    assert inside.ask("GET", path, token=token).status in (403, 404)
    body = {"query": NOTHING, "branch": name.replace("%20", " ")}
    token = f"token-{team('change', 'unprotected')}"
    assert inside.ask("POST", f"{G}/mutate", body, token=token).status in (403, 404)


def test_a_commit_counts_as_its_branch_whatever_it_is_called(inside):
    head = inside.served.graph.commit("main").graph_commit_id
    token = f"token-{team('read', 'unprotected')}"
    for ref in (head, head[:12], "main~0"):
        body = {"query": READ, "snapshot": ref}
        assert inside.ask("POST", f"{G}/query", body, token=token).status == 403


AROUND = {"nodes": [{"type_name": "Person", "ids": ["ada"]}]}
BLOB = f"{G}/blob?entity=node&type=Person&id=ada&property=photo"


@pytest.mark.parametrize(
    "request_of",
    [
        lambda name: ("POST", f"{G}/query", {"query": READ, "snapshot": name}),
        lambda name: ("GET", f"{G}/snapshot?snapshot={name}"),
        lambda name: ("GET", f"{G}/diff?from={name}&to={name}"),
        lambda name: ("GET", f"{BLOB}&branch={name}"),
        lambda name: ("GET", f"{BLOB}&snapshot={name}"),
        lambda name: ("POST", f"{G}/neighbours", AROUND | {"branch": name}),
    ],
)
def test_a_branch_that_has_no_commit_yet_is_no_part_of_the_one_it_came_from(inside, request_of):
    for scope, statuses in (("unprotected", [403, 200]), ("protected", [200, 403])):
        token = f"token-{team('read', scope)}"
        found = [inside.ask(*request_of(name), token=token) for name in ("main", "topic")]
        assert [one.status for one in found] == statuses


def test_nothing_is_said_about_what_is_not_there(inside):
    body = {"query": READ, "snapshot": "no-such"}
    assert inside.ask("POST", f"{G}/query", body, token="token-stranger").status == 403
    assert inside.ask("POST", f"{G}/query", body, token="token-reader").status == 404


def test_changes_of_a_commit_that_may_not_be_read_are_not_there(inside):
    head = inside.served.graph.commit("main").graph_commit_id
    unknown = "0" * 26
    token = f"token-{team('read', 'unprotected')}"
    hidden = inside.ask("GET", f"{G}/commits/{head}/changes", token=token)
    missing = inside.ask("GET", f"{G}/commits/{unknown}/changes", token=token)
    assert (hidden.status, missing.status) == (404, 404)
    assert hidden.body.replace(head.encode(), b"ID") == missing.body.replace(b"0" * 26, b"ID")


def test_commits_that_a_beginning_may_mean_are_told_to_readers_only(inside):
    lines = [f'{{"type":"Person","data":{{"name":"p{n}"}}}}' for n in range(4)]
    made = [inside.served.graph.load(one, mode="append", branch="other") for one in lines]
    begins = [one.commit.graph_commit_id[:8] for one in made]  # the same for a second
    twice = max(begins, key=begins.count)
    for token, status in (("token-stranger", 404), ("token-reader", 400)):
        reply = inside.ask("GET", f"{G}/commits/{twice}/changes", token=token)
        assert (reply.status, b"candidates" in reply.body) == (status, status == 400)


def test_a_stored_query_that_is_denied_is_not_there(inside, monkeypatch):
    with monkeypatch.context() as patch:  # to wait for a turn to write would tell that it is there
        patch.setattr(inside.service.pool, "run_write", None)
        body = {"params": {"n": "x"}}
        denied = inside.ask("POST", f"{G}/queries/drop_nobody", body, token="token-stranger")
        assert denied.status == 404
    for token in ("token-stranger", f"token-{team('read', None)}"):
        missing = inside.ask("POST", f"{G}/queries/no_such", {}, token=token)
        for name in ("all_people", "drop_nobody"):
            denied = inside.ask("POST", f"{G}/queries/{name}", {}, token=token)
            assert (denied.status, denied.body) == (missing.status, missing.body)
        assert denied.status == 404
    assert inside.ask("POST", f"{G}/queries/all_people", {}, token="token-invoker").status == 403
    assert inside.ask("POST", f"{G}/queries/all_people", {}, token="token-reader").status == 200
    body = {"params": {"n": "x"}}
    assert inside.ask("POST", f"{G}/queries/drop_nobody", body, token="token-reader").status == 403
    assert inside.ask("POST", f"{G}/queries/drop_nobody", body, token="token-writer").status == 200


def test_a_merge_that_may_not_delete_its_source_stands(inside):
    body = {"source": "topic", "target": "other", "delete_branch": True}
    reply = inside.ask("POST", f"{G}/branches/merge", body, token="token-merger")
    told = json.loads(reply.body)
    assert (reply.status, told["branch_deleted"]) == (200, False)
    assert "branch_delete" in told["branch_delete_error"]
    assert "topic" in inside.served.graph.branches()


def test_graphs_are_listed_by_the_servers_own_policy_only(inside):
    assert inside.ask("GET", "/graphs", token="token-reader").status == 403


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080", 200),
        ("localhost:8080", "http://localhost:8080", 200),
        ("127.0.0.1:8080", "https://app.example", 200),  # which the operator lets in
        ("127.0.0.1:8080", "http://evil.example", 403),
        ("127.0.0.1:8080", "null", 403),
        ("evil.example:8080", "http://evil.example:8080", 421),  # a name that was led here
        ("127.0.0.1.evil.example", "http://127.0.0.1.evil.example", 421),
    ],
)
def test_no_strange_page_uses_an_open_server_by_its_readers_browser(tmp_path, host, origin, status):
    Graph.init(tmp_path / "g.omni", SCHEMA, durability="process").close()
    found = Inside(tmp_path / "g.omni", Access(), cors_origins=("https://app.example",))
    try:
        headers = ((b"host", host.encode()), (b"origin", origin.encode()))
        reply = found.ask("POST", f"{G}/query", {"query": READ}, headers=headers)
        assert reply.status == status
        if status != 200:
            assert found.ask("POST", f"{G}/commits/main/revert", headers=headers).status == status
        assert found.ask("GET", f"{G}/schema", headers=headers).status == 200
    finally:
        found.close()


# --- the states that a server starts in -----------------------------------------------------------

SPEC = (GraphSpec(graph_id="g", uri="g.omni"),)


@pytest.fixture
def environ(monkeypatch):
    for name in (SINGLE, FILE, JSON):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch.setenv


def test_without_tokens_a_server_is_open_on_this_machine_only(environ):
    assert access_of(Settings(graphs=SPEC)).is_open
    assert access_of(Settings(graphs=SPEC, unauthenticated="yes")).is_open
    for said in ("no", "yes"):
        with pytest.raises(errors.InputError, match="open to everybody"):
            access_of(Settings(graphs=SPEC, host="0.0.0.0", unauthenticated=said))
    assert access_of(Settings(graphs=SPEC, host="0.0.0.0", unauthenticated="public")).is_open


def test_tokens_without_a_policy_allow_reading_only(environ):
    environ(JSON, '{"ada": "t-ada"}')
    found = access_of(Settings(graphs=SPEC, host="0.0.0.0"))
    actor = found.authenticate(["bearer t-ada"])
    assert (found.is_open, actor.id) == (False, "ada")
    found.authorize("g", actor, "read", "main")
    for action in ("change", "export", "admin", "invoke_query", "branch_delete"):
        with pytest.raises(errors.PolicyDeniedError):
            found.authorize("g", actor, action)
    with pytest.raises(errors.PolicyDeniedError):
        found.authorize(None, actor, "graph_list")


def test_a_policy_needs_tokens(environ, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(policy_text())
    with pytest.raises(errors.InputError, match="a policy needs tokens"):
        access_of(Settings(graphs=SPEC, policy=str(path)))
    environ(JSON, '{"reader": "t-1", "stranger": "t-2"}')
    server = tmp_path / "server.yaml"
    server.write_text(
        "version: 1\ngroups: {all: [reader]}\n"
        "rules: [{id: l, allow: {actors: {group: all}, actions: [graph_list]}}]\n"
    )
    found = access_of(Settings(graphs=SPEC, policy=str(path), server_policy=str(server)))
    reader, stranger = (found.authenticate([f"Bearer t-{n}"]) for n in (1, 2))
    found.authorize("g", reader, "read", "main")
    found.authorize(None, reader, "graph_list")
    for graph_id, action in (("g", "read"), (None, "graph_list")):
        with pytest.raises(errors.PolicyDeniedError):
            found.authorize(graph_id, stranger, action)


def test_decisions_are_logged_with_their_rule_and_without_tokens(inside, caplog):
    with caplog.at_level("INFO", logger="omnigraph.server.decisions"):
        inside.ask("POST", f"{G}/mutate", {"query": NOTHING}, token="token-change-plain")
        inside.ask("POST", f"{G}/mutate", {"query": NOTHING}, token="token-stranger")
    made = [(one.actor, one.action, one.allowed, one.rule) for one in caplog.records]
    assert made[:1] == [("change-plain", "change", True, "change-plain")]
    assert ("stranger", "change", False, None) in made
    assert all(one.request_id for one in caplog.records)
    assert "token-" not in caplog.text
