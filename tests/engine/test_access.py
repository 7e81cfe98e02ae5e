"""A graph that is open with a policy does nothing that the policy does not allow."""

from __future__ import annotations

import ast
import inspect
import textwrap
from contextlib import suppress

import pytest

from omnigraph import Graph, OpenMode, errors
from omnigraph.engine.access import FREE, RIGHTS, Gate
from omnigraph.engine.load.order import checked_order
from omnigraph.engine.load.run import run_load
from omnigraph.engine.runner import Inline
from omnigraph.engine.write.transaction import Transaction
from omnigraph.model.access import Access, Decision
from omnigraph.model.ports import World

# What the tests share is made once, by one worker.
pytestmark = pytest.mark.xdist_group("engine-access")

SCHEMA = "node Person { name: String @key age: I32? note: Blob? }\nedge Knows: Person -> Person"
INSERT = 'query add() { insert Person { name: "zoe" } }'
READ = "query all() { match { $p: Person } return { $p.name } }"
PEOPLE = '{"type":"Person","data":{"name":"ada","note":"base64:AAEC"}}\n'


class Asked:
    """A policy that allows what it is told, and remembers what it was asked."""

    def __init__(self, *allowed):
        self.allowed, self.asked = set(allowed), []

    def decide(self, actor, access):
        self.asked.append((actor, access))
        allowed = actor is not None and access in self.allowed
        return Decision(allowed=allowed, message=f"{'yes' if allowed else 'no'}: {access.words}")


@pytest.fixture
def graph(tmp_path):
    yield from _made(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """One graph for all calls that only read."""
    yield from _made(tmp_path_factory.mktemp("read"))


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """One graph for all calls that write, in the order of `CALLS`."""
    yield from _made(tmp_path_factory.mktemp("written"))


def _made(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, maintenance=None, durability="process") as found:
        found.load(PEOPLE, mode="append")
        found.create_branch("topic")
        found.create_branch("done")
        found.create_branch("old")
        found.create_tag("v1")
        yield found


def without(kind, deed, *words):
    """It is allowed, and there is nothing of that name."""
    with suppress(kind):
        deed(*words)


R = Access
CALLS = {
    "query": (lambda g: g.query(READ, branch="topic"), [R("read", "topic")]),
    "algorithms": (lambda g: g.algorithms.pagerank("Knows", branch="topic"), [R("read", "topic")]),
    "explain": (lambda g: g.explain(READ), [R("read", "main")]),
    "describe": (lambda g: g.describe(READ, branch="topic"), [R("read", "topic")]),
    "lint": (lambda g: g.lint(READ), [R("read", "main")]),
    "read_blob": (lambda g: g.read_blob("node", "Person", "ada", "note"), [R("read", "main")]),
    "snapshot": (lambda g: g.snapshot("topic"), [R("read", "topic")]),
    "health": (lambda g: g.health("topic"), [R("read", "topic")]),
    "commits": (lambda g: g.commits("topic"), [R("read", "topic")]),
    "commit_changes": (lambda g: g.commit_changes("main"), [R("read", "main")]),
    "changes": (lambda g: g.changes(branch="topic"), [R("read", "topic")]),
    "diff": (lambda g: g.diff("main", "topic"), [R("read", "main"), R("read", "topic")]),
    "entity": (
        lambda g: g.entity("node", "Person", "ada", branch="topic"),
        [R("read", "topic")],
    ),
    "entity_history": (
        lambda g: g.entity_history("node", "Person", "ada", branch="topic"),
        [R("read", "topic")],
    ),
    "merge_preview": (
        lambda g: g.merge_preview("topic"),
        [R("read", "topic"), R("read", "main")],
    ),
    "plan_schema": (lambda g: g.plan_schema(SCHEMA, branch="topic"), [R("read", "topic")]),
    "schema_source": (lambda g: g.schema_source(), [R("read")]),
    "branches": (lambda g: g.branches(), [R("read")]),
    "require_branch": (lambda g: g.require_branch("topic"), [R("read")]),
    "unreadable_branches": (lambda g: g.unreadable_branches(), [R("read")]),
    "deleted_branches": (lambda g: g.deleted_branches(), [R("read")]),
    "tags": (lambda g: g.tags(), [R("read")]),
    "unreadable_tags": (lambda g: g.unreadable_tags(), [R("read")]),
    "commit": (lambda g: g.commit("main"), [R("read")]),
    "retention": (lambda g: g.retention(), [R("read")]),
    "figures": (lambda g: g.figures(), [R("read")]),
    "export": (lambda g: list(g.export(branch="topic")), [R("export", "topic")]),
    "changes_baseline": (lambda g: g.changes_baseline(branch="topic"), [R("export", "topic")]),
    "mutate": (lambda g: g.mutate(INSERT, branch="topic"), [R("change", "topic")]),
    "load": (
        lambda g: g.load(PEOPLE, mode="merge", branch="fresh", from_branch="topic"),
        [R("change", "fresh"), R("branch_create", "topic", "fresh")],
    ),
    "embed": (lambda g: without(errors.InputError, g.embed, "topic"), [R("change", "topic")]),
    "transaction": (lambda g: g.transaction("topic"), [R("change", "topic")]),
    "revert": (lambda g: g.revert("main"), [R("change", "main")]),
    "apply_schema": (
        lambda g: g.apply_schema(SCHEMA, branch="topic"),
        [R("schema_apply", None, "topic")],
    ),
    "create_branch": (lambda g: g.create_branch("b", "topic"), [R("branch_create", "topic", "b")]),
    "restore_branch": (
        lambda g: without(errors.NotFoundError, g.restore_branch, "gone"),
        [R("branch_create", None, "gone")],
    ),
    "create_tag": (lambda g: g.create_tag("v2", "topic"), [R("branch_create", "topic", "v2")]),
    "merge": (lambda g: g.merge("topic", "done"), [R("branch_merge", "topic", "done")]),
    "delete_branch": (lambda g: g.delete_branch("old"), [R("branch_delete", None, "old")]),
    "delete_tag": (lambda g: g.delete_tag("v1"), [R("branch_delete", None, "v1")]),
    "ensure_indices": (lambda g: g.ensure_indices(), [R("admin")]),
    "optimize": (lambda g: g.optimize(), [R("admin")]),
    "set_retention": (lambda g: g.set_retention({}), [R("admin")]),
    "cleanup": (lambda g: g.cleanup(keep_versions=100), [R("admin")]),
    "repair": (lambda g: g.repair(), [R("admin")]),
    "verify": (lambda g: g.verify(), [R("admin")]),
    "backup": (lambda g: g.backup(g.uri + ".copy"), [R("admin")]),
    "recoveries": (lambda g: g.recoveries(), [R("admin")]),
    "recovery_log_problems": (lambda g: g.recovery_log_problems(), [R("admin")]),
    "clear_recovery_log": (lambda g: g.clear_recovery_log(), [R("admin")]),
    "pending_recoveries": (lambda g: g.pending_recoveries(), [R("admin")]),
    "resolve_recovery": (
        lambda g: without(errors.NotFoundError, g.resolve_recovery, "nothing"),
        [R("admin")],
    ),
}


def test_no_public_name_of_a_graph_is_forgotten():
    names = {name for name in dir(Graph) if not name.startswith("_")}
    assert names == set(RIGHTS) | FREE
    assert set(CALLS) == set(RIGHTS)


def test_every_public_method_asks_for_its_own_right():
    """Read in the source: a method that reaches the parts of the graph has named itself."""
    for name in RIGHTS:
        if name in ("algorithms", "explain"):  # they go through `_reading` and `query`
            continue
        owner = next(one for one in Graph.__mro__ if name in vars(one))
        tree = ast.parse(textwrap.dedent(inspect.getsource(vars(owner)[name])))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        named = {
            node.args[0].value
            for node in calls
            if isinstance(node.func, ast.Attribute)
            and node.func.attr in ("_allowed", "_state", "_told_by", "require", "require_load")
            and node.args
            and isinstance(node.args[0], ast.Constant)
        }
        loads = any(getattr(node.func, "attr", "") == "require_load" for node in calls)
        assert name in named or (name == "load" and loads), name


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_made_with_its_rights_and_refused_without_any_of_them(request, name):
    deed, rights = CALLS[name]
    reads = RIGHTS[name].action in ("read", "export")
    graph = request.getfixturevalue("unchanged" if reads else "changed")
    for missing in rights:
        policy = Asked(*(set(rights) - {missing}))
        before = graph.commits(limit=1)
        with pytest.raises(errors.PolicyDeniedError) as caught:
            deed(graph.acting_as("act-a", policy=policy))
        assert caught.value.facts["actor"] == "act-a"
        assert policy.asked[-1] == ("act-a", missing)
        assert graph.commits(limit=1) == before
    with pytest.raises(errors.PolicyDeniedError):
        deed(graph.acting_as(None, policy=Asked(*rights)))
    policy = Asked(*rights)
    deed(graph.acting_as("act-a", policy=policy))
    assert {access for _, access in policy.asked} == set(rights)


def test_a_ref_counts_as_the_branch_that_it_is_of(graph):
    graph.mutate(INSERT, branch="topic")
    commit = graph.commit("topic").graph_commit_id
    main_only = graph.acting_as("a", policy=Asked(R("read", "main")))
    assert main_only.query(READ).row_count == 1
    for ref in ("topic", commit, commit[:12], "topic~0"):
        for deed in (
            lambda ref=ref: main_only.query(READ, branch=ref),
            lambda ref=ref: main_only.query(READ, snapshot=ref),
            lambda ref=ref: main_only.commits(ref),
            lambda ref=ref: main_only.commit_changes(ref),
            lambda ref=ref: main_only.diff("main", ref),
        ):
            with pytest.raises(errors.PolicyDeniedError):
                deed()


@pytest.mark.parametrize("name", ["nowhere", " main", "main ", "Main", "0123456789ABCDEF"])
def test_a_branch_that_is_not_there_is_denied_before_it_is_missed(unchanged, name):
    graph = unchanged
    stranger = graph.acting_as("a", policy=Asked())
    with pytest.raises(errors.PolicyDeniedError):
        stranger.query(READ, branch=name)
    with pytest.raises(errors.PolicyDeniedError):
        stranger.mutate(INSERT, branch=name)
    allowed = graph.acting_as("a", policy=Asked(R("read", name), R("change", name)))
    with pytest.raises(errors.NotFoundError):
        allowed.query(READ, branch=name)
    with pytest.raises(errors.OmnigraphError) as caught:
        allowed.mutate(INSERT, branch=name)
    assert not isinstance(caught.value, errors.PolicyDeniedError)


def test_a_merge_stands_when_its_source_may_not_be_deleted(graph):
    graph.mutate(INSERT, branch="topic")
    merger = graph.acting_as("a", policy=Asked(R("branch_merge", "topic", "main")))
    result = merger.merge("topic", delete_branch=True)
    assert (result.outcome, result.branch_deleted) == ("fast_forward", False)
    assert "branch_delete" in result.branch_delete_error
    assert "topic" in graph.branches()


def test_reads_of_a_transaction_need_the_right_to_read(graph):
    writer = graph.acting_as("a", policy=Asked(R("change", "main")))
    with writer.transaction() as tx:
        tx.mutate(INSERT)
        with pytest.raises(errors.PolicyDeniedError):
            tx.query(READ)
    assert tx.commit.actor_id == "a"
    assert isinstance(tx, Transaction)


def test_the_actor_of_a_handle_signs_its_writes_and_cannot_be_another(graph):
    plain = graph.acting_as("ada")
    assert plain.mutate(INSERT).commit.actor_id == "ada"
    bound = graph.acting_as("ada", policy=Asked(R("change", "main")))
    assert bound.load(PEOPLE, mode="merge", actor="ada").total_entities == 1
    with pytest.raises(errors.PolicyDeniedError, match="open for actor 'ada'"):
        bound.mutate(INSERT, actor="bob")


def test_a_policy_without_an_actor_goes_by_the_actor_of_each_call(graph):
    handle = graph.acting_as(None, policy=Asked(R("change", "main")))
    handle.mutate(INSERT, actor="ada")
    with pytest.raises(errors.PolicyDeniedError) as caught:
        handle.mutate(INSERT)
    assert "actor=" in caught.value.hint


def test_a_graph_opens_with_the_file_of_a_policy(graph, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(
        "version: 1\ngroups: {team: [ada]}\nprotected_branches: [main]\nrules:\n"
        "  - {id: r, allow: {actors: {group: team}, actions: [read]}}\n"
        "  - {id: w, allow: {actors: {group: team}, actions: [change], branch_scope: unprotected}}"
    )
    with Graph.open(graph.uri, policy=path, actor="ada", maintenance=None) as found:
        assert found.query(READ).row_count == 1
        found.mutate(INSERT, branch="topic")
        with pytest.raises(errors.PolicyDeniedError):
            found.mutate(INSERT)
        with pytest.raises(errors.PolicyDeniedError):
            found.optimize()
    with (
        Graph.open(graph.uri, policy=str(path), mode=OpenMode.READ_ONLY) as nobody,
        pytest.raises(errors.PolicyDeniedError),
    ):
        nobody.query(READ)
    with pytest.raises(errors.InputError, match="policy must be a file"):
        Graph.open(graph.uri, policy=7)


def test_a_handle_of_another_actor_ends_with_its_graph(graph):
    view = graph.acting_as("ada")
    view.close()
    assert graph.branches()
    graph.close()
    with pytest.raises(errors.InputError, match="is closed"):
        view.branches()


def test_loads_on_spark_and_upkeep_there_ask_the_policy_first(graph, tmp_path):
    """Before Spark is touched: a session that is none is never used."""
    pytest.importorskip("pyspark")
    from omnigraph import pipeline

    nobody = Asked()
    data = tmp_path / "x.jsonl"
    data.write_text(PEOPLE)
    order = checked_order(
        uri=graph.uri, sources=[str(data)], mode="merge", idempotency_key=None, actor="a"
    )
    for deed in (
        lambda: run_load(Inline(), order, listener=None, world=World(), gate=Gate.of(nobody, "a")),
        lambda: pipeline.optimize(None, graph.uri, policy=nobody),
        lambda: pipeline.export(None, graph.uri, tmp_path / "out", policy=nobody),
    ):
        with pytest.raises(errors.PolicyDeniedError):
            deed()
