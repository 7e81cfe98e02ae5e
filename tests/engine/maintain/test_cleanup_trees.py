"""Cleanup of trees of branches: what stays is whole, and a chain costs its length."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from maintain_world import WRITES, StopAt, Stopped, add, make, names, reopened, stats

from inside import core_of, store_of
from omnigraph import Graph
from omnigraph.errors import ConflictError, InputError, NotFoundError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step
from omnigraph.storage.lance import pylance

PEOPLE = ("ada", "bob", "cyd", "dan", "eve", "fay")
STEPS = (Step.CLEANUP_MANIFEST_PRUNED, Step.CLEANUP_VERSIONS_COLLECTED)
DEEDS = ("merge", "merge", "optimize", "optimize", "schema", "tag", "delete", "delete", "restore")
DEEDS += ("cleanup", "cleanup")


@pytest.fixture
def graph(tmp_path):
    with make(tmp_path / "g.omni") as graph:
        add(graph, *PEOPLE)
        yield graph


def chain(graph, length):
    """Branches of which each was made from the one before, with two commits of its own."""
    before = "main"
    for number in range(length):
        graph.create_branch(f"c{number}", before)
        before = f"c{number}"
        add(graph, f"p{number}", f"q{number}", branch=before)


def counted(graph, monkeypatch):
    """Counts what the stores are asked for, and how often Lance opens something."""
    found = Counter()

    def counting(owner, name):
        work = getattr(owner, name)

        def one(*args, **how):
            found[name] += 1
            return work(*args, **how)

        monkeypatch.setattr(owner, name, one)

    for kind in {type(store_of(graph).objects), type(store_of(graph).tables.store)}:
        for name in ("read", "list_keys", "keys_beginning", "folders", "listed"):
            counting(kind, name)
    counting(pylance, "opened")
    return found


@pytest.mark.parametrize(
    "call",
    [
        lambda graph: graph.cleanup(keep_versions=1),
        lambda graph: graph.cleanup(keep_versions=100),
        lambda graph: graph.cleanup(keep_versions=1, preview=True),
        lambda graph: graph.health(),
    ],
    ids=["cleanup", "nothing to clean up", "preview", "health"],
)
def test_a_chain_costs_its_length(tmp_path, monkeypatch, call):
    """Twice as many branches are at most twice as many questions, whatever was made from what."""

    def asked(length):
        with make(tmp_path / f"g{length}.omni", maintenance=None) as graph:
            chain(graph, length)
            with reopened(graph, maintenance=None) as fresh, monkeypatch.context() as patched:
                questions = counted(fresh, patched)
                call(fresh)
                return questions

    few, many = asked(6), asked(12)
    assert few["opened"] + few["read"] > 12
    for name in few:
        assert many[name] <= 2.1 * few[name], (name, few, many)


@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("step", STEPS)
def test_a_cleanup_of_a_chain_that_is_killed_leaves_every_version_whole(graph, step, nth):
    chain(graph, 3)
    graph.create_tag("kept", "c1~1")
    graph.delete_branch("c2", force=True)
    expected = {one: names(graph, branch=one) for one in graph.branches()}
    tagged = names(graph, snapshot="kept")
    uri = graph.uri
    graph.close()
    world = World(steps=StopAt(step, nth), durability="process")
    with Graph.open(uri, world=world) as dying, suppress(Stopped):
        dying.cleanup(keep_versions=1)
    for _ in range(2):
        with Graph.open(uri, durability="process") as fresh:
            assert {one: names(fresh, branch=one) for one in fresh.branches()} == expected
            assert names(fresh, snapshot="kept") == tagged
            assert not fresh.verify(deep=True).problems
            assert not fresh.cleanup(keep_versions=1).failures


def test_damage_in_a_branch_is_told_and_keeps_what_it_stands_on(graph):
    chain(graph, 2)
    entry = core_of(graph).store.manifests.head(core_of(graph).branch("c1")).entries["node:Person"]
    folder = Path(graph.uri, entry.location, "tree", entry.branch, "_versions")
    file = min(folder.glob("*.manifest"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with reopened(graph) as fresh:
        report = fresh.cleanup(keep_versions=1)
        assert file.name in (stats(report, "node:Person").error or "")
        assert stats(report, "edge:Knows").error is None
        health = fresh.health()
        assert any(file.name in one for one in health.damage)
        assert "node:Person" in [one.type_key for one in health.datasets]
    file.write_bytes(whole)
    with reopened(graph) as fresh:
        assert not fresh.verify(deep=True).problems
        done = fresh.cleanup(keep_versions=1, grace=0)
        assert stats(done, "node:Person").old_versions_removed == 10


@pytest.mark.parametrize("seed", range(5))
def test_random_trees_of_branches_answer_the_same_after_every_cleanup(tmp_path, seed):
    """With merges, optimizes, schemas, tags and deletions of their own, also in the middle."""
    chance, uri = random.Random(seed), tmp_path / "g.omni"
    graph = make(uri, maintenance=None)
    add(graph, "ada")
    for number in range(34):
        branches = graph.branches()
        branch = chance.choice(branches[-3:] if chance.random() < 0.6 else branches)
        deed = chance.choice(["add"] * 4 + ["branch"] * 4 + ["age", *DEEDS])
        with suppress(ConflictError, NotFoundError, InputError):
            match deed:
                case "add":
                    add(graph, f"n{number}", branch=branch)
                case "age":
                    graph.mutate(WRITES, "age", params={"name": "ada", "age": 7}, branch=branch)
                case "branch":
                    graph.create_branch(f"b{number}", branch)
                case "merge":
                    graph.merge(branch, into=chance.choice(branches), strategy="ours")
                case "optimize":
                    graph.optimize(branch=branch)
                case "schema":
                    more = f"\nnode T{number} {{ name: String @key }}\n"
                    graph.apply_schema(graph.schema_source(branch) + more, branch=branch)
                case "tag":
                    graph.create_tag(f"t{number}", branch)
                case "delete":
                    graph.delete_branch(branch, force=True)
                case "restore":
                    for one in graph.deleted_branches()[:1]:
                        graph.restore_branch(one.name)
                case "cleanup":
                    graph = cleaned(graph, chance.choice([1, 1, 3]))
    graph = cleaned(graph, 1)
    assert graph.cleanup(keep_versions=1).bytes_removed == 0
    graph.close()


def cleaned(graph, keep):
    """The graph after a cleanup, opened again; all answers are as they were."""

    def answers(graph):
        refs = [*graph.branches(), *(tag.name for tag in graph.tags())]
        return {
            ref: sorted(graph.export(snapshot=graph.commit(ref).graph_commit_id)) for ref in refs
        }

    before = answers(graph)
    report = graph.cleanup(keep_versions=keep)
    assert not report.failures
    assert not [one.error for one in (*report.datasets, report.manifest) if one.error]
    graph.close()
    fresh = reopened(graph, maintenance=None)
    assert answers(fresh) == before
    assert not fresh.verify(deep=True).problems
    return fresh
