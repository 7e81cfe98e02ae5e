"""Many hands publish to one branch: every acknowledged commit is there once, in one line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from publishing import publish_all

from manifest_world import Authority, update
from omnigraph.errors import (
    AlreadyExistsError,
    ExpectedVersionMismatchError,
    RowLevelCasContentionError,
)
from omnigraph.model.graph import TableIs
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH

CHILD = Path(__file__).parent / "publishing.py"
THREADS, PROCESSES, COMMITS = 8, 4, 25


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request):
    return request.getfixturevalue(f"{request.param}_root")


def tables(count):
    return tuple(f"node:T{number}" for number in range(count))


def check(place, acknowledged, writers):
    """The history is one line, holds every acknowledged commit once, and no row is doubled."""
    cold = Authority.over(place)
    line = cold.history.commits(MAIN_BRANCH)
    ids = [commit.graph_commit_id for commit in line]
    assert Counter(ids[:-1]) == Counter(acknowledged)
    assert len(acknowledged) == writers * COMMITS
    assert all(new.parent_commit_id == old.graph_commit_id for new, old in pairwise(line))
    assert [commit.graph_manifest_version for commit in line] == [*range(len(line), 0, -1)]
    assert {entry.version for entry in cold.head().entries.values()} == {COMMITS + 1}
    opened = cold.manifests.datasets.open_latest(None)
    keys = cold.manifests.datasets.all_rows(opened).column("object_id").to_pylist()
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "a handle each"])
def test_threads_lose_no_commit(place, shared):
    first = Authority.created(place, tables=tables(THREADS))
    handles = [first if shared else Authority.over(place) for _ in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        runs = [
            pool.submit(publish_all, handle, key, COMMITS)
            for handle, key in zip(handles, tables(THREADS), strict=True)
        ]
        acknowledged = [commit for run in runs for commit in run.result()]
    check(place, acknowledged, THREADS)


def test_processes_lose_no_commit(place):
    Authority.created(place, tables=tables(PROCESSES))
    children = [
        subprocess.Popen(
            [sys.executable, str(CHILD), place.uri, key, str(COMMITS)],
            env={**os.environ, **place.environ},
            stdout=subprocess.PIPE,
            text=True,
        )
        for key in tables(PROCESSES)
    ]
    acknowledged = []
    for child in children:
        out, _ = child.communicate(timeout=200)
        assert child.returncode == 0
        acknowledged += out.split()
    check(place, acknowledged, PROCESSES)


@pytest.mark.parametrize("racing_for", ["a table version", "a commit id"])
def test_racers_for_one_row_have_one_winner(place, racing_for):
    handles = [Authority.created(place, tables=tables(8))]
    handles += [Authority.over(place) for _ in range(7)]
    for round_number in range(COMMITS if place.uri.startswith("/") else 8):
        outcomes = race(handles, round_number, racing_for)
        assert sorted(outcomes) == ["lost"] * 7 + ["won"], round_number


def race(handles, round_number, racing_for):
    barrier = threading.Barrier(len(handles))
    lineage = handles[0].lineage()

    def run(number):
        handle = handles[number]
        handle.head()
        barrier.wait()
        same_table = racing_for == "a table version"
        key = "node:T0" if same_table else f"node:T{number}"
        pin = handle.head().entries[key].version
        changes = {"expects": [TableIs(table_key=key, version=pin)]}
        if not same_table:
            changes = {"lineage": lineage}
        return outcome(handle, update(key, round_number + 2 if same_table else pin + 1), changes)

    with ThreadPoolExecutor(len(handles)) as pool:
        return list(pool.map(run, range(len(handles))))


def outcome(handle, change, rest):
    for _ in range(1000):
        try:
            handle.publish(change, **rest)
        except RowLevelCasContentionError:
            continue
        except (ExpectedVersionMismatchError, AlreadyExistsError):
            return "lost"
        return "won"
    return "starved"
