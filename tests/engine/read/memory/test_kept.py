"""Values under a byte budget: counted, made once, and let go of in a good order."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from omnigraph.engine.read.memory import kept as module
from omnigraph.engine.read.memory.kept import Kept


class Held:
    """A value that holds some buffers."""

    def __init__(self, **buffers):
        self._buffers = {ord(name): size for name, size in buffers.items()}

    @property
    def nbytes(self):
        return sum(self._buffers.values())

    def buffers(self):
        return self._buffers


@contextmanager
def running(kept):
    query = kept.begin()
    yield
    kept.end(query)


def kept_after(kept, *keys):
    return [key[0] + key[1] for key in keys if kept.get(key) is not None]


def put(kept, key, **buffers):
    with running(kept):
        return kept.get_or_make(key, lambda: Held(**buffers))


def test_what_was_used_longest_ago_goes_first():
    kept = Kept(100)
    for name in "abc":
        put(kept, ("frame", name), **{name: 40})
    assert kept_after(kept, ("frame", "a"), ("frame", "b"), ("frame", "c")) == ["frameb", "framec"]


def test_what_is_dear_to_make_stays_longer():
    kept = Kept(100)
    put(kept, ("text", "a"), a=40)
    put(kept, ("frame", "b"), b=40)
    put(kept, ("frame", "c"), c=40)
    assert kept_after(kept, ("text", "a"), ("frame", "b"), ("frame", "c")) == ["texta", "framec"]


def test_bytes_that_two_versions_share_count_once():
    kept = Kept(100)
    put(kept, ("frame", "1"), a=80, b=5)
    put(kept, ("frame", "2"), a=80, c=5)
    assert kept.held_bytes() == 90
    assert kept_after(kept, ("frame", "1"), ("frame", "2")) == ["frame1", "frame2"]


def test_what_a_running_query_uses_stays():
    kept = Kept(100)
    with running(kept):
        kept.get_or_make(("frame", "a"), lambda: Held(a=90))
        for name in "bcd":
            put(kept, ("frame", name), **{name: 90})
        assert kept.get(("frame", "a")) is not None
    kept.trim()
    assert kept.held_bytes() <= 100


def test_who_makes_one_value_does_not_hold_up_another():
    kept, begun, go_on, made = Kept(1000), threading.Event(), threading.Event(), []

    def slow():
        made.append("slow")
        begun.set()
        assert go_on.wait(30)
        return Held(a=1)

    makers = [
        threading.Thread(target=kept.get_or_make, args=(("frame", "slow"), slow)) for _ in range(2)
    ]
    for maker in makers:
        maker.start()
    assert begun.wait(30)
    assert kept.get_or_make(("frame", "quick"), lambda: Held(b=1)).nbytes == 1
    go_on.set()
    for maker in makers:
        maker.join(30)
    assert made == ["slow"]


def test_a_value_that_could_not_be_made_is_made_by_the_next():
    kept = Kept(1000)

    def fails():
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - any will do
        kept.get_or_make(("frame", "a"), fails)
    assert kept.get_or_make(("frame", "a"), lambda: Held(a=1)).nbytes == 1


def test_a_value_that_grew_while_it_was_used_counts_with_what_it_has_now():
    kept = Kept(100)
    for name in "ab":
        put(kept, ("frame", name), **{name: 40})
    with running(kept):
        kept.get(("frame", "a"))._buffers[ord("x")] = 50
        kept.trim()  # another query ends meanwhile
        assert kept_after(kept, ("frame", "a")) == ["framea"]
        kept.get(("frame", "a"))._buffers[ord("y")] = 50
    kept.trim()
    assert kept.held_bytes() <= 100


def test_of_many_versions_the_last_used_stay(monkeypatch):
    monkeypatch.setattr(module, "READ_CACHE_VERSIONS_MAX", 2)
    kept = Kept(1000)
    for version in range(5):
        put(kept, ("frame", "a", None, version), a=1)
        kept.get(("frame", "a", None, 0))
        put(kept, ("frame", "b", None, version // 4), b=1)
    found = [
        key
        for key in [("a", 0), ("a", 3), ("a", 4), ("b", 0), ("b", 1)]
        if kept.get(("frame", key[0], None, key[1]))
    ]
    assert found == [("a", 0), ("a", 4), ("b", 0), ("b", 1)]


def test_however_many_things_there_are_few_are_kept(monkeypatch):
    monkeypatch.setattr(module, "READ_CACHE_VALUES_MAX", 3)
    kept = Kept(1000)
    for branch in range(9):
        put(kept, ("frame", "a", str(branch), 1), a=1)
    assert len(kept.matching(lambda _: True)) == 3
