"""Killed at any moment, whatever moves branches, schemas and whole graphs is before or after.

The crash matrix kills at named steps; here the moment is random, in a process of its own.
`OMNIGRAPH_TEST_KILLS` is how often each act is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import time

import pytest
from harness import assert_settled, history
from stories import BY_NAME, build

from omnigraph import Graph, relocate
from omnigraph.engine.core import OpenMode
from omnigraph.engine.maintain.verify import verify_at
from omnigraph.errors import CorruptGraphError, NotFoundError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0)]

KILLS = int(os.environ.get("OMNIGRAPH_TEST_KILLS", "40"))
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["omnigraph", "lance", "stories", "harness"])
MERGE = "merge: with schemas of many tables, into main"
STORIES = (
    "schema: columns of many tables in several versions on a branch",
    MERGE,
    "merge: with schemas of many tables, into a branch",
    "tag: create",
)


def told(uri):
    """All that can be seen of a graph: each branch's schema and rows, and the tags."""
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as graph:
        branches = {
            name: (graph.schema_source(name), sorted(graph.export(branch=name)))
            for name in graph.branches()
        }
        return branches, sorted((tag.name, tag.graph_commit_id) for tag in graph.tags())


def act(what, uri, dest):
    """What the process does that is killed."""
    if what == "relocate":
        relocate(uri)
        return
    with Graph.open(uri, durability="process", maintenance=None) as graph:
        if what == "backup":
            graph.backup(dest)
        else:
            BY_NAME[what].act(graph)


def killed_after(seconds, *args):
    """Whether the process was still at it so many seconds after it began."""
    process = PROCESSES.Process(target=act, args=args)
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -9), f"the act failed by itself: {process.exitcode}"
    return process.exitcode != 0


def copied(source, dest):
    shutil.rmtree(dest, ignore_errors=True)
    shutil.copytree(source, dest)


def moments(count, *args):
    """How long to wait before each kill: anything up to what the act takes by itself."""
    began = time.perf_counter()
    assert not killed_after(300, *args)
    took = time.perf_counter() - began
    chance = random.Random(str(args[0]))
    return [chance.uniform(0, took * 1.1) for _ in range(count)]


@pytest.mark.parametrize("name", STORIES)
def test_a_killed_writer_is_before_or_after(tmp_path, name, record_property):
    uri, kept = tmp_path / "g", tmp_path / "kept"
    build(str(uri), BY_NAME[name])
    shutil.copytree(uri, kept)  # branches hold absolute paths, so it is put back where it was
    before = told(uri)
    waits = moments(KILLS, name, str(uri), "-")
    after = told(uri)
    landed = struck = 0
    for wait in waits:
        copied(kept, uri)
        struck += killed_after(wait, name, str(uri), "-")
        Graph.open(uri, durability="process").close()  # recovers
        seen = told(uri)
        assert len(seen[0]) == len(before[0])
        is_after = _alike(seen, after)
        assert is_after or _alike(seen, before), f"killed after {wait:.3f} s"
        landed += is_after
        history(str(uri))
        assert_settled(str(uri))
        assert verify_at(str(uri), deep=True).ok
    record_property("killed", struck)
    record_property("landed", landed)
    print(f"{name}: {struck} of {KILLS} killed at work, {landed} landed")  # noqa: T201


def _alike(one, other):
    """The same but for ids that were made up: of commits, and of entities without a key."""
    (branches, tags), (others, other_tags) = one, other
    if [name for name, _ in tags] != [name for name, _ in other_tags]:
        return False
    return branches == others


def made(uri):
    build(str(uri), BY_NAME[MERGE])
    return told(uri)


def test_a_killed_backup_is_no_graph_or_the_whole_one(tmp_path):
    uri, dest = tmp_path / "g", tmp_path / "copy"
    whole = made(uri)
    struck = finished = 0
    for wait in moments(KILLS, "backup", str(uri), str(dest)):
        shutil.rmtree(dest, ignore_errors=True)
        struck += killed_after(wait, "backup", str(uri), str(dest))
        try:
            assert told(dest) == whole
            finished += 1
        except NotFoundError:
            pass
        assert told(uri) == whole
    with Graph.open(uri, durability="process", maintenance=None) as graph:
        if (dest / "_refs").exists() and not finished:
            graph.backup(dest)
            assert told(dest) == whole
    assert verify_at(str(uri), deep=True).ok
    print(f"backup: {struck} of {KILLS} killed at work, {finished} whole")  # noqa: T201


def test_a_killed_relocation_is_refused_or_whole_and_the_next_one_ends_it(tmp_path):
    first, kept, uri = tmp_path / "g", tmp_path / "kept", tmp_path / "moved"
    whole = made(first)
    shutil.move(first, kept)
    copied(kept, uri)
    struck = finished = 0
    for wait in moments(KILLS, "relocate", str(uri), "-"):
        copied(kept, uri)
        struck += killed_after(wait, "relocate", str(uri), "-")
        refusal = ""
        try:
            assert told(uri) == whole
            finished += 1
        except CorruptGraphError as error:
            refusal = str(error)
        assert not refusal or "was moved or copied" in refusal
        relocate(uri)
        assert told(uri) == whole
    assert verify_at(str(uri), deep=True).ok
    print(f"relocate: {struck} of {KILLS} killed at work, {finished} whole")  # noqa: T201
