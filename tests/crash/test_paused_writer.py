"""A writer that sleeps until its lease has lapsed, at any moment, does no harm when it wakes up.

On an object store a lease lasts only while it is renewed. A laptop that is closed, a virtual
machine that is paused: everything stands still in the middle of a write, others take over, and
then it goes on.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import assert_settled, history
from stories import BY_NAME, PAIR, build

from inside import store_of
from omnigraph import Graph
from omnigraph.errors import ConflictError, OmnigraphError, OutcomeUnknownError, UnavailableError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step
from omnigraph.storage.objects import lease
from omnigraph.storage.objects.root import Root, aws_environment, open_store

pytestmark = [pytest.mark.s3, pytest.mark.xdist_group("paused")]

NIGHT_S = 3_600.0

RIVALS = {
    "same tables": """
query rival() {
  insert Person { name: "rival", age: 1 }
  insert Knows { from: "rival", to: "cyd" }
}""",
    "other tables": 'query rival() { insert Company { name: "rival" } }',
    "nothing": None,
}


class Night:
    """Time that passes while the writer sleeps: its claim runs out, and so does its own count."""

    def __init__(self, monkeypatch, uri: str) -> None:
        self._store = open_store(Root.parse(uri, aws_environment()), World())
        self._passed, ticks = 0.0, lease._ticks
        monkeypatch.setattr(lease, "_ticks", lambda: ticks() + self._passed)

    def passes(self) -> None:
        for key in self._store.list_keys("__locks"):
            claim = json.loads(self._store.read(key).body)
            if claim["expires_at"]:
                self._store.put(key, json.dumps({**claim, "expires_at": 1}).encode())

    def is_over(self) -> None:
        self._passed += NIGHT_S


class Pause:
    """Stops every thread of the writer at a point, until it is told to go on.

    A point is a step, or right before a table commit or the publish: after the last look at the
    lease, where only the tables themselves can keep a late commit out.
    """

    def __init__(self, point: str | Step, nth: int = 1) -> None:
        self._point, self._left = point, nth
        self._lock = threading.Lock()
        self.asleep, self._awake = threading.Event(), threading.Event()

    def wake(self) -> None:
        self._awake.set()

    def reach(self, point: str | Step) -> None:
        with self._lock:
            if point == self._point and self._left:
                self._left -= 1
                if self._left == 0:
                    self.asleep.set()
        self.rest()

    def rest(self) -> None:
        if self.asleep.is_set():
            assert self._awake.wait(120), "nobody woke the sleeper"

    def watch(self, graph: Graph) -> None:
        store = store_of(graph)
        for owner, name in ((store.tables, "apply"), (store.publisher, "publish")):
            setattr(owner, name, self._before(f"before {name}", getattr(owner, name)))
        renew = store.objects.replace_tagged

        def replace_tagged(*args, **options):
            self.rest()  # the thread that renews the lease sleeps, too
            return renew(*args, **options)

        store.objects.replace_tagged = replace_tagged

    def _before(self, point, call):
        def late(*args):
            self.reach(point)
            return call(*args)

        return late


def opened(uri: str, steps=None) -> Graph:
    world = World() if steps is None else World(steps=steps)
    return Graph.open(uri, world=world, maintenance=None)


def rows(uri: str) -> Counter[str]:
    """Every entity of every branch, counted, without the ids that were made up."""
    with opened(uri) as graph:
        found = [
            f"{branch} {_without_id(line)}"
            for branch in graph.branches()
            for line in graph.export(branch=branch)
        ]
    return Counter(found)


def _without_id(line: str) -> str:
    head, found, rest = line.partition('"id":"01')
    return head + '"id":"…' + rest[24:] if found else line


def run(uri: str, story, rival: str | None, pause: Pause, night: Night) -> tuple[bool | None, bool]:
    """Whether the sleeper said that its write landed, and whether the rival's did."""
    sleeper = opened(uri, pause)
    pause.watch(sleeper)
    with ThreadPoolExecutor(1) as pool:
        asleep = pool.submit(story.act, sleeper)
        try:
            while not pause.asleep.wait(0.05):
                assert not asleep.done(), "the writer never came to that point"
            night.passes()
            with opened(uri) as other:  # opening takes the lease, and recovers
                wrote = rival is not None and _rival_writes(other, rival)
        finally:
            night.is_over()
            pause.wake()
        try:
            asleep.result()
            told: bool | None = True
        except (ConflictError, UnavailableError):
            told = False
        except OutcomeUnknownError:
            told = None
    # The sleeper itself goes on, too.
    sleeper.mutate(PAIR, "after")
    sleeper.close()
    return told, wrote


def _rival_writes(graph: Graph, query: str) -> bool:
    try:
        graph.mutate(query, "rival")
    except OmnigraphError:
        return False
    return True


POINTS = [
    (Step.WRITE_STAGED, 1),
    (Step.WRITE_LEASED, 1),
    (Step.SIDECAR_WRITTEN, 1),
    ("before apply", 1),
    (Step.TABLE_APPLIED, 1),
    ("before apply", 2),
    (Step.TABLES_APPLIED, 1),
    ("before publish", 1),
    (Step.PUBLISH_STAGED, 1),
    (Step.PUBLISHED, 1),
    (Step.WRITE_PUBLISHED, 1),
    (Step.SIDECAR_DELETED, 1),
]
MANY = "merge: with schemas of many tables, into main"
# A table that is on its way: its columns are there, its rows are not.
EVOLVING = [(Step.TABLE_EVOLVED, 1), (Step.TABLE_EVOLVED, 2), (Step.TABLE_EVOLVED, 3)]
EVERY_DAY = {
    (MANY, Step.TABLE_EVOLVED, 2, "nothing"),
    ("mutation: a node and its edge", Step.SIDECAR_WRITTEN, 1, "other tables"),
    ("mutation: a node and its edge", "before apply", 1, "other tables"),
    ("mutation: a node and its edge", "before apply", 2, "same tables"),
    ("mutation: a node and its edge", Step.TABLES_APPLIED, 1, "nothing"),
    ("mutation: a node and its edge", "before publish", 1, "other tables"),
    ("optimize: two tables", "before apply", 2, "other tables"),
}
SLEEPERS = (
    "mutation: a node and its edge",
    "mutation: a delete that cascades",
    "mutation: the first write on a branch",
    "load: merge",
    "load: overwrite",
    "merge: a branch into main",
    MANY,
    "schema: renames, columns, a new and a dropped type",
    "optimize: two tables",
    "ensure_indices",
)
ONE_TABLE = ("load: overwrite",)  # it has no second table to fall asleep before


def cases():
    for name in SLEEPERS:
        for point, nth in (*POINTS, *(EVOLVING if name == MANY else ())):
            if nth > 1 and name in ONE_TABLE:
                continue
            for rival in RIVALS:
                marks = () if (name, point, nth, rival) in EVERY_DAY else (pytest.mark.slow,)
                label = f"{name} x {point} #{nth} x {rival}"
                yield pytest.param(name, point, nth, rival, marks=marks, id=label)


@pytest.mark.parametrize(("name", "point", "nth", "rival"), list(cases()))
def test_a_late_writer_does_no_harm(s3_root, monkeypatch, name, point, nth, rival):
    uri, story = s3_root.uri, BY_NAME[name]
    build(uri, story)
    before = rows(uri)
    night = Night(monkeypatch, uri)
    told, rival_wrote = run(uri, story, RIVALS[rival], Pause(point, nth), night)
    found = rows(uri)
    doubled = {row: count for row, count in found.items() if count > max(1, before[row])}
    assert not doubled, "a row is doubled"
    assert rival_wrote == any('"rival"' in row for row in found), "the rival was told otherwise"
    assert_settled(uri)
    history(uri, story.branch)
    ours = Counter(
        {row: n for row, n in found.items() if "rival" not in row and '"zoe"' not in row}
    )
    changed = ours != before
    assert changed or story.name.startswith(("optimize", "ensure_indices")) or not told
    assert told is not False or not changed, "a ghost write: the caller was told that it failed"
    with opened(uri) as graph:
        # Every table takes writes again.
        keys = graph.snapshot().entries
        assert all(one.classification == "no_drift" for one in graph.repair().datasets)
        if "node:Company" in keys:
            graph.load('{"type":"Company","data":{"name":"last"}}', mode="append")
        graph.load('{"type":"Person","data":{"name":"last"}}', mode="append")
        graph.load('{"edge":"Knows","from":"last","to":"last"}', mode="append")
