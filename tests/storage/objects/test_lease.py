"""One writer at a time: between threads, between processes, and after a writer died."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph.errors import LeaseUnavailableError, StorageUnavailableError
from omnigraph.model.limits import LEASE_EXPIRY_MS
from omnigraph.model.ports import World
from omnigraph.storage.objects.lease import Leases
from omnigraph.storage.objects.root import Root, open_store


class MovableClock:
    def __init__(self):
        self.now = 1_800_000_000_000_000

    def now_us(self):
        return self.now


def leases(place, clock=None):
    root = Root.parse(place.uri, place.environ)
    world = World(clock=clock) if clock else World()
    return Leases(root, open_store(root, world), world)


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request):
    found = request.getfixturevalue(f"{request.param}_root")
    open_store(Root.parse(found.uri, found.environ), World()).put("graph", b"")
    return found


def test_threads_take_turns(place):
    inside, most, gate = [], [], threading.Barrier(4)

    def work():
        mine = leases(place)
        gate.wait()
        for _ in range(5):
            with mine.hold(None, wait_ms=30_000) as lease:
                inside.append(1)
                most.append(len(inside))
                lease.check()
                inside.pop()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
    assert len(most) == 20
    assert max(most) == 1


def test_waiting_ends_with_a_typed_error(place):
    with (
        leases(place).hold(None, wait_ms=0),
        pytest.raises(LeaseUnavailableError) as raised,
        leases(place).hold(None, wait_ms=30),
    ):
        pass
    assert raised.value.branch == "main"
    with leases(place).hold(None, wait_ms=0):
        pass


def test_branches_do_not_wait_for_each_other(place):
    with leases(place).hold(None, wait_ms=0), leases(place).hold("01OTHER", wait_ms=0) as other:
        other.check()


def test_a_failed_block_frees_the_lease(place):
    with pytest.raises(ZeroDivisionError), leases(place).hold(None, wait_ms=0):
        _ = 1 / 0
    with leases(place).hold(None, wait_ms=0):
        pass


HOLD = """
import sys, time
from omnigraph.model.ports import World
from omnigraph.storage.objects.lease import Leases
from omnigraph.storage.objects.root import Root, open_store
root = Root.parse(sys.argv[1], {})
with Leases(root, open_store(root, World()), World()).hold(None, wait_ms=0):
    sys.stdout.write("held\\n"); sys.stdout.flush()
    sys.stdin.read()
"""


def test_a_killed_process_frees_its_file_lock(local_root):
    open_store(Root.parse(local_root.uri, {}), World()).put("graph", b"")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, local_root.uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LeaseUnavailableError), leases(local_root).hold(None, wait_ms=20):
            pass
        holder.kill()
        holder.wait()
        with leases(local_root).hold(None, wait_ms=5_000):
            pass


def test_a_lock_file_that_was_replaced_is_a_lost_lease(local_root, tmp_path):
    open_store(Root.parse(local_root.uri, {}), World()).put("graph", b"")
    with leases(local_root).hold(None, wait_ms=0) as lease:
        (lock,) = (tmp_path / "graph.omni" / "__locks").iterdir()
        lock.unlink()
        with pytest.raises(LeaseUnavailableError):
            lease.check()


@pytest.mark.s3
def test_a_stored_lease_is_taken_over_when_its_time_is_up(s3_root):
    clock = MovableClock()
    dead = leases(s3_root, clock).hold(None, wait_ms=0)
    first = dead.__enter__()
    with pytest.raises(LeaseUnavailableError), leases(s3_root, clock).hold(None, wait_ms=20):
        pass
    clock.now += (LEASE_EXPIRY_MS + 10_000) * 1000
    with leases(s3_root, clock).hold(None, wait_ms=0) as second:
        assert second.token == first.token + 1
        # The late one gives back what is not its own any more: the new holder keeps the branch.
        dead.__exit__(None, None, None)
        with pytest.raises(LeaseUnavailableError), leases(s3_root, clock).hold(None, wait_ms=20):
            pass


@pytest.mark.s3
def test_tokens_of_a_stored_lease_grow(s3_root):
    tokens = []
    for _ in range(3):
        with leases(s3_root).hold("01B", wait_ms=0) as lease:
            tokens.append(lease.token)
    assert tokens == [1, 2, 3]


@pytest.mark.s3
@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[]", b'{"owner": "\xff", "token": 7, "expires_at": 9}']
)
def test_a_garbled_lease_object_does_not_lock_the_branch_for_ever(s3_root, body):
    root = Root.parse(s3_root.uri, s3_root.environ)
    open_store(root, World()).put("__locks/main.json", body)
    with leases(s3_root).hold(None, wait_ms=0) as lease:
        assert lease.token == 1


@pytest.mark.s3
def test_a_lease_taken_again_and_given_back_costs_two_requests(s3_root, request_counter):
    mine = leases(s3_root)
    with mine.hold(None, wait_ms=0):
        pass
    with request_counter.counted() as seen, mine.hold(None, wait_ms=0):
        pass
    assert seen.by_verb() == {"PUT": 2}


@pytest.mark.s3
def test_a_lease_that_others_had_meanwhile_is_found_again(s3_root):
    mine = leases(s3_root)
    with mine.hold(None, wait_ms=0):
        pass
    with (
        leases(s3_root).hold(None, wait_ms=0),
        pytest.raises(LeaseUnavailableError),
        mine.hold(None, wait_ms=10),
    ):
        pass
    with mine.hold(None, wait_ms=0) as lease:
        assert lease.token == 3


def test_a_place_without_locks_says_so_and_leaves_no_file_open(local_root, monkeypatch):
    open_store(Root.parse(local_root.uri, {}), World()).put("graph", b"")

    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    before = len(os.listdir("/dev/fd"))
    for _ in range(9):
        with pytest.raises(StorageUnavailableError), leases(local_root).hold(None, wait_ms=0):
            pass
    assert len(os.listdir("/dev/fd")) < before + 9


FORK = """
import os, sys, threading
from omnigraph.errors import LeaseUnavailableError
from omnigraph.model.ports import World
from omnigraph.storage.objects.lease import Leases
from omnigraph.storage.objects.root import Root, open_store
root = Root.parse(sys.argv[1], {})
leases = Leases(root, open_store(root, World()), World())
reading, writing = os.pipe()
with leases.hold(None, wait_ms=0) as lease:
    child = os.fork()
    if child == 0:
        try:
            lease.check()
        except LeaseUnavailableError:
            os.read(reading, 1)  # it lives on, but it does not hold what its parent held
            os._exit(7)
        os._exit(1)
    lease.check()
try:
    with leases.hold(None, wait_ms=5_000):
        print("free")
finally:
    os.write(writing, b"x")
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_forked_child_does_not_keep_the_lease(local_root):
    open_store(Root.parse(local_root.uri, {}), World()).put("graph", b"")
    done = subprocess.run(
        [sys.executable, "-c", FORK, local_root.uri],
        capture_output=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, b"free\n"), done.stderr.decode()


def test_leases_of_dead_branches_are_collected(place):
    mine = leases(place)
    for branch in (None, "01ALIVE", "01DEAD", "01DEAD2"):
        with mine.hold(branch, wait_ms=0):
            pass
    with mine.hold("01DEAD2", wait_ms=0) as held:
        assert leases(place).collect({"01ALIVE"}) == 1
        held.check()
    assert leases(place).collect({"01ALIVE"}) == 1
    assert leases(place).collect({"01ALIVE"}) == 0
    for branch in (None, "01ALIVE", "01DEAD"):
        with mine.hold(branch, wait_ms=0) as lease:
            lease.check()


def test_who_waits_for_a_lock_file_that_is_taken_away_still_waits_alone(local_root):
    """The file goes while others are queued up for it: none of them may mistake it for the lock."""
    open_store(Root.parse(local_root.uri, {}), World()).put("graph", b"")
    inside, most, stop = [], [], threading.Event()

    def collect():
        while not stop.is_set():
            leases(local_root).collect(set())

    def work():
        for _ in range(25):
            with leases(local_root).hold("01B", wait_ms=30_000) as lease:
                inside.append(1)
                most.append(len(inside))
                lease.check()
                inside.pop()

    collector = threading.Thread(target=collect)
    collector.start()
    with ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(work) for _ in range(4)]
        try:
            for wait in waits:
                wait.result()
        finally:
            stop.set()
            collector.join()
    assert len(most) == 100
    assert max(most) == 1
