"""What is made in threads of their own, while queries go on without it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import NamedTuple

from omnigraph.engine.read.memory.compressed import Checkpoint
from omnigraph.errors import OmnigraphError

logger = logging.getLogger(__name__)


class _Stopped(Exception):  # noqa: N818 - not an error: nobody wants it any more
    """The graph was closed, or the program is ending."""


class Thing(NamedTuple):
    """What is made, of which table."""

    kind: str
    location: str


class Builds:
    """The threads of one open graph: at most one at a time for each thing, whatever the version."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[Thing, tuple[Hashable, threading.Thread]] = {}
        self._closed = False

    def going_on(
        self, thing: Thing, version: Hashable, work: Callable[[Checkpoint], object]
    ) -> bool:
        """Whether a thread is making the thing; one is started if none has tried this version. The
        work calls what it is given, between its parts, and ends by whatever that raises."""
        with self._lock:
            last, thread = self._last.get(thing, (None, None))
            if thread is not None and (thread.is_alive() or last == version):
                return thread.is_alive()
            if self._closed:
                return False
            thread = threading.Thread(target=self._run, args=(work,), name=thing.kind)
            self._last[thing] = (version, thread)
            thread.start()
            return True

    def thread_of(self, thing: Thing) -> threading.Thread | None:
        """The thread that is making the thing, if one is and it is not the one that asks."""
        with self._lock:
            _, thread = self._last.get(thing, (None, None))
        if thread is None or not thread.is_alive() or thread is threading.current_thread():
            return None
        return thread

    def close(self) -> None:
        """Stop what is being made, between two parts, and start nothing any more."""
        with self._lock:
            self._closed = True
            threads = [thread for _, thread in self._last.values()]
        for thread in threads:
            thread.join()

    def _run(self, work: Callable[[Checkpoint], object]) -> None:
        try:
            work(self._checkpoint)
        except (_Stopped, OmnigraphError, RuntimeError) as cause:
            # Whoever needs it makes it, and meets the error if it is one.
            logger.info("not made beside", extra={"why": str(cause)})

    def _checkpoint(self) -> None:
        # A program that ends waits for its threads, so this one must notice.
        if self._closed or not threading.main_thread().is_alive():
            raise _Stopped
