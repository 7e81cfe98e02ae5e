"""Work that an interrupt must not cut in two.

Python raises `KeyboardInterrupt` in the main thread, between any two of its steps, and other tools
raise `SystemExit` or their own exceptions in a thread in the same way. So whatever must be done as
a whole is done in a thread of its own, which nobody interrupts; the caller waits for its end. An
interrupt ends the waiting only after the work has ended: by then it is known what was done.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class Stop:
    """Says whether the waiting thread was interrupted. Work may end early, but need not."""

    def __init__(self) -> None:
        self._asked = False

    @property
    def asked(self) -> bool:
        return self._asked

    def ask(self) -> None:
        self._asked = True


class StoppedError(Exception):
    """The work was given up because its caller was interrupted; nobody but `unbroken` sees it."""


class _Here(threading.local):
    stop: Stop | None = None


_here = _Here()


def stop_if_asked() -> None:
    """Give the work up here if its caller was interrupted. Only where nothing is half done."""
    if _here.stop is not None and _here.stop.asked:
        raise StoppedError


def unbroken(work: Callable[[Stop], _Result]) -> _Result:
    """Do the work as a whole, whatever strikes this thread meanwhile; then go on with that.

    Work inside such work is part of it.
    """
    if _here.stop is not None:
        return work(_here.stop)
    run = _Run(work)
    struck = run.outlast()
    if struck is not None:
        raise struck
    return run.result()


class _Run(Generic[_Result]):
    """One piece of work in its own thread."""

    def __init__(self, work: Callable[[Stop], _Result]) -> None:
        self._work = work
        self._stop = Stop()
        self._begun = threading.Lock()  # whoever takes it decides whether the work begins
        # A plain lock: the waiting side of an Event is Python code that an interrupt can break.
        self._running = threading.Lock()
        self._running.acquire()
        self._ended = False
        self._answer: list[_Result] = []
        self._error: BaseException | None = None

    def outlast(self) -> BaseException | None:
        """Begin, and wait for the end; what struck the waiting thread first, if anything did."""
        struck: BaseException | None = None
        context = contextvars.copy_context()
        try:
            threading.Thread(target=context.run, args=(self._do,), name="omnigraph-write").start()
        except RuntimeError:
            self._do()  # no thread is to be had, as when the interpreter is about to end
        except BaseException as interrupt:  # noqa: BLE001 - it goes on when the work has ended
            self._stop.ask()
            struck = interrupt
            if self._begun.acquire(blocking=False):
                return struck  # it had not begun, and now never will
        while not self._ended:
            try:
                self._running.acquire()
            except BaseException as interrupt:  # noqa: BLE001 - likewise, however many come
                self._stop.ask()
                struck = struck or interrupt
        return struck

    def result(self) -> _Result:
        assert self._ended, "the work is awaited before anybody asks for its result"
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def _do(self) -> None:
        if not self._begun.acquire(blocking=False):
            return
        assert _here.stop is None, "work inside of work runs in the same thread"
        _here.stop = self._stop
        try:
            self._answer.append(self._work(self._stop))
        except BaseException as error:  # noqa: BLE001 - carried to the waiting thread as it is
            self._error = error
        finally:
            _here.stop = None
            # In this order: whoever wakes up finds the end, and does not wait for it again.
            self._ended = True
            self._running.release()
