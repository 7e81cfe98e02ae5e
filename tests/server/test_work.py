"""The pool of a server: in which order and how many at once its jobs run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from omnigraph.model.limits import SERVER_QUEUE_MAX
from omnigraph.server import work
from omnigraph.server.work import Pool
from omnigraph.wire.failures import RefusedError

FOR_EVER = 3600.0


def in_pool(
    story: Callable[[Pool], Awaitable[Any]], *, threads: int = 4, short_seconds: float = FOR_EVER
) -> Any:
    async def told() -> Any:
        pool = Pool(threads, short_seconds=short_seconds)
        try:
            async with asyncio.timeout(30):
                return await story(pool)
        finally:
            pool.close()

    return asyncio.run(told())


class Crowd:
    """Jobs that count how many of them run at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[int] = []
        self._lock = threading.Lock()

    def job(self, number: int) -> Callable[[], int]:
        def work() -> int:
            with self._lock:
                self.now += 1
                self.most = max(self.most, self.now)
                self.order.append(number)
            with self._lock:
                self.now -= 1
            return number

        return work


def test_short_reads_run_one_after_the_other_in_their_order():
    crowd = Crowd()

    async def story(pool: Pool) -> list[int]:
        return await asyncio.gather(*(pool.run(crowd.job(number)) for number in range(200)))

    assert in_pool(story) == list(range(200))
    assert crowd.order == list(range(200))
    assert crowd.most == 1


def wake_ups(loop: asyncio.AbstractEventLoop) -> list[str]:
    """How often other threads have woken the loop up, from now on."""
    heard: list[str] = []
    wake = loop.call_soon_threadsafe

    def counted(callback: Callable[..., Any], *values: Any, **options: Any) -> asyncio.Handle:
        heard.append(threading.current_thread().name)
        return wake(callback, *values, **options)

    loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
    return heard


def test_after_a_short_read_the_loop_waits_for_the_next_and_nobody_wakes_it_up():
    async def story(pool: Pool) -> list[str]:
        assert await pool.run(lambda: 0) == 0
        heard = wake_ups(asyncio.get_running_loop())
        for number in range(50):
            assert await pool.run(partial(abs, number)) == number
            await asyncio.sleep(0)  # the next turn of the loop
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 // 0)
        assert pool.pending == 0
        return heard

    assert in_pool(story) == []


def test_the_loop_waits_no_longer_than_a_short_read_takes_and_then_for_none_until_one_is_short():
    free, asked = threading.Event(), threading.Event()

    async def story(pool: Pool) -> None:
        assert await pool.run(lambda: 0) == 0
        heard = wake_ups(asyncio.get_running_loop())
        long = asyncio.ensure_future(pool.run(free.wait))
        asyncio.get_running_loop().call_soon(asked.set)
        assert await pool.run_write(lambda: asked.wait(30)), "the loop waits for the long read"
        # Nobody is waited for now: a read after it, which waits for the loop, does not hang.
        went_on = threading.Event()
        asyncio.get_running_loop().call_soon(went_on.set)
        assert await pool.run(lambda: went_on.wait(30))
        free.set()
        assert await long
        assert len(heard) == 3

    in_pool(story, short_seconds=0.05)


def test_of_many_reads_that_come_together_the_loop_waits_for_the_first_ones_alone():
    async def story(pool: Pool) -> list[str]:
        assert await pool.run(lambda: 0) == 0
        heard = wake_ups(asyncio.get_running_loop())
        await asyncio.gather(*(pool.run(partial(time.sleep, 0.002)) for _ in range(50)))
        return heard

    assert len(in_pool(story)) >= 44


def test_reads_that_wait_hold_up_nobody_as_long_as_there_are_threads():
    free = threading.Event()

    async def story(pool: Pool) -> str:
        held = [asyncio.ensure_future(pool.run(free.wait)) for _ in range(3)]
        answer = await pool.run(lambda: "answered")
        assert pool.pending == 3
        free.set()
        await asyncio.gather(*held)
        return answer

    assert in_pool(story, short_seconds=0.001) == "answered"


@pytest.mark.parametrize("is_busy", [False, True])
def test_reads_that_wait_for_storage_begin_together_and_those_that_compute_do_not(
    is_busy, monkeypatch
):
    monkeypatch.setattr(work, "process_time", time.monotonic if is_busy else lambda: 0.0)
    free = threading.Event()
    began: list[float] = []

    def read() -> None:
        began.append(time.monotonic())
        free.wait(30)

    async def story(pool: Pool) -> None:
        asked = [asyncio.ensure_future(pool.run(read)) for _ in range(6)]
        while len(began) < 6:
            await asyncio.sleep(0.001)
        free.set()
        await asyncio.gather(*asked)

    in_pool(story, threads=6, short_seconds=0.2)
    assert (began[5] - began[1] >= 0.4) == is_busy


def test_a_read_behind_full_threads_runs_when_one_is_free():
    free = threading.Event()

    async def story(pool: Pool) -> str:
        held = [asyncio.ensure_future(pool.run(free.wait)) for _ in range(4)]
        last = asyncio.ensure_future(pool.run(lambda: "answered"))
        await asyncio.sleep(0.05)
        assert not last.done()
        free.set()
        await asyncio.gather(*held)
        return await last

    assert in_pool(story, short_seconds=0.001) == "answered"


def test_a_write_begins_beside_a_read_and_half_of_the_threads_take_none():
    free = threading.Event()
    began: list[int] = []

    def write(number: int) -> Callable[[], bool]:
        def work() -> bool:
            began.append(number)
            return free.wait(30)

        return work

    async def story(pool: Pool) -> None:
        read = asyncio.ensure_future(pool.run(free.wait))
        writes = [asyncio.ensure_future(pool.run_write(write(number))) for number in range(3)]
        while len(began) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert sorted(began) == [0, 1]
        free.set()
        await asyncio.gather(read, *writes)
        assert sorted(began) == [0, 1, 2]

    in_pool(story)


def test_a_failure_is_the_asker_s_and_the_thread_goes_on():
    async def story(pool: Pool) -> str:
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 // 0)
        return await pool.run(lambda: "answered")

    assert in_pool(story, threads=1) == "answered"


class Panic(BaseException):
    """What a library in Rust raises."""


@pytest.mark.parametrize(
    "kind", [StopIteration, Panic, SystemExit, KeyboardInterrupt, asyncio.CancelledError]
)
def test_whatever_a_job_raises_is_answered_like_any_failure(kind):
    def job() -> None:
        raise kind

    async def story(pool: Pool) -> None:
        for run in (pool.run, pool.run, pool.run_write):
            with pytest.raises(RuntimeError, match=kind.__name__):
                await run(job)
        assert pool.pending == 0

    in_pool(story, threads=1)


def test_requests_that_are_cancelled_make_no_room_while_their_jobs_wait():
    free = threading.Event()

    async def story(pool: Pool) -> int:
        asked = [asyncio.ensure_future(pool.run(free.wait)) for _ in range(1000)]
        await asyncio.sleep(0.01)
        for one in asked:
            one.cancel()
        refused = sum(
            isinstance(one, RefusedError)
            for one in await asyncio.gather(*asked, return_exceptions=True)
        )
        assert pool.pending == 1000 - refused == pool.threads + SERVER_QUEUE_MAX
        with pytest.raises(RefusedError):
            await pool.run(free.wait)
        free.set()
        while pool.pending:
            await asyncio.sleep(0.001)
        return refused

    assert in_pool(story) > 0


def test_a_write_whose_request_is_cancelled_keeps_its_turn_until_it_ends():
    free = threading.Event()
    began: list[int] = []

    async def story(pool: Pool) -> None:
        def write() -> None:
            began.append(1)
            free.wait(30)

        cancelled = asyncio.ensure_future(pool.run_write(write))
        while not began:
            await asyncio.sleep(0.001)
        cancelled.cancel()
        following = asyncio.ensure_future(pool.run_write(write))
        await asyncio.sleep(0.02)
        assert len(began) == 1
        free.set()
        await following
        assert len(began) == 2

    in_pool(story, threads=2)


def test_a_pool_that_was_closed_refuses_and_lets_nobody_wait():
    async def story(pool: Pool) -> None:
        pool.close()
        for run in (pool.run, pool.run_write, pool.run_always):
            with pytest.raises(RefusedError):
                await run(lambda: "answered")

    in_pool(story)
