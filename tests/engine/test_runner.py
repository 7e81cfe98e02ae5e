"""Tasks side by side end as if they had run one after the other."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph.engine.runner import Inline
from omnigraph.model.limits import LOAD_THREADS_MAX


@pytest.fixture(autouse=True)
def _many_processors(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 64)


def run(work, tasks=range(20), **options):
    return Inline(**options).run(list(tasks), work, stage="test")


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_answers_come_in_the_order_of_the_tasks(threads):
    def work(task):
        time.sleep(0.001 * (task % 3))
        return task * task

    assert run(work, threads=threads) == [task * task for task in range(20)]
    assert run(work, tasks=[], threads=threads) == []


def test_no_more_tasks_run_at_once_than_there_are_threads():
    running, most, lock = set(), [], threading.Lock()

    def work(task):
        with lock:
            running.add(task)
            most.append(len(running))
        time.sleep(0.002)
        with lock:
            running.remove(task)

    run(work)
    assert 1 < max(most) <= LOAD_THREADS_MAX
    most.clear()
    run(work, threads=1)
    assert max(most) == 1


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_first_task_that_fails_says_why_whoever_fails_first(threads):
    begun = []

    def work(task):
        begun.append(task)
        time.sleep(0.02 if task == 3 else 0.001)
        if task >= 3:
            raise ValueError(f"task {task}")

    with pytest.raises(ValueError, match="task 3"):
        run(work, tasks=range(100), threads=threads)
    assert len(begun) < 50, "the rest is given up"
    at_the_end = len(begun)
    time.sleep(0.02)
    assert len(begun) == at_the_end, "nothing runs on"


def test_a_task_that_comes_late_to_its_turn_is_not_given_up_for_a_later_one():
    class Late(ThreadPoolExecutor):
        """The threads take the tasks in order, but the first one sleeps before it begins."""

        def submit(self, run, *of):
            def begin():
                time.sleep(0.02 if 0 in of else 0)
                return run(*of)

            return super().submit(begin)

    def work(task):
        raise ValueError(f"task {task}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omnigraph.engine.runner.ThreadPoolExecutor", Late)
        with pytest.raises(ValueError, match="task 0"):
            run(work)


def test_an_interrupt_ends_the_run_when_the_tasks_under_way_have_ended():
    begun, ended = [], []

    def work(task):
        begun.append(task)
        if task == 2:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.05)
        ended.append(task)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(work, tasks=range(50))
    finally:
        signal.signal(signal.SIGINT, usual)
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 50
    assert not [one for one in threading.enumerate() if one.name.startswith("omnigraph-load")]


@pytest.mark.parametrize("threads", [1, 3])
def test_every_task_that_is_done_is_told(threads):
    heard = []
    runner = Inline(threads=threads, heard=lambda *facts: heard.append(facts))
    assert runner.run([1, 2, 3], lambda task: task * 2, stage="twice") == [2, 4, 6]
    assert heard == [("twice", done, 3) for done in range(4)]
    assert runner.run([], lambda task: task, stage="none") == []
    assert len(heard) == 4


def test_a_task_that_failed_is_not_counted():
    heard = []
    runner = Inline(threads=1, heard=lambda *facts: heard.append(facts))
    with pytest.raises(ZeroDivisionError):
        runner.run([1, 0], lambda task: 1 // task, stage="s")
    assert heard == [("s", 0, 2), ("s", 1, 2)]
