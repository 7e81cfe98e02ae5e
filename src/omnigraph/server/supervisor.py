"""Several worker processes on one socket: started, watched, started again when they die."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from types import FrameType
from typing import Final

import msgspec
from prometheus_client.multiprocess import mark_process_dead

from omnigraph.server.settings import Settings, Sockets
from omnigraph.server.telemetry import MULTIPROCESS

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.05
_QUICK_DEATH_SECONDS: Final = 1.0
_BACK_OFF_SECONDS_MAX: Final = 5.0
_KILL_AFTER_SECONDS: Final = 5.0  # beyond the grace that workers have of their own


class Worker:
    """One worker process and the pipes to it."""

    def __init__(self, settings: Settings, sockets: Sockets, folder: str) -> None:
        self.started = time.monotonic()
        self.was_ready = False
        told, tells = os.pipe()
        os.set_blocking(told, False)
        # Not forked: the storage library does not survive that.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "omnigraph.server.worker"],
            stdin=subprocess.PIPE,
            pass_fds=(*sockets.numbers.values(), tells),
            env={**os.environ, MULTIPROCESS: folder},
        )
        os.close(tells)
        self._told = told
        facts = {
            "settings": msgspec.to_builtins(settings),
            "sockets": sockets.numbers,
            "ready": tells,
        }
        assert self.process.stdin is not None, "it was asked for"
        with contextlib.suppress(BrokenPipeError):  # it died at once; that is noticed elsewhere
            self.process.stdin.write(json.dumps(facts).encode() + b"\n")
            self.process.stdin.flush()

    def look(self) -> int | None:
        """Its exit code, None while it runs."""
        if not self.was_ready:
            with contextlib.suppress(BlockingIOError):
                self.was_ready = os.read(self._told, 1) == b"1"
        return self.process.poll()

    def close(self) -> None:
        os.close(self._told)
        assert self.process.stdin is not None, "it was asked for"
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


class Supervisor:
    """Keeps as many workers as were asked for, until it is told to stop."""

    def __init__(self, settings: Settings, sockets: Sockets) -> None:
        self._settings, self._sockets = settings, sockets
        self._stopping = False
        self._hurry = False
        self._quick_deaths = 0

    def run(self) -> int:
        """Serve until a signal says stop; the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        with tempfile.TemporaryDirectory(prefix="omnigraph-metrics-") as folder:
            self._folder = folder
            workers = [self._started() for _ in range(self._settings.workers)]
            signal.signal(signal.SIGHUP, lambda *_: _send(workers, signal.SIGHUP))
            code = self._watch(workers)
            return self._ended(workers, code)

    def _stop(self, _: int, __: FrameType | None) -> None:
        self._hurry, self._stopping = self._stopping, True

    def _started(self) -> Worker:
        worker = Worker(self._settings, self._sockets, self._folder)
        logger.info("worker started", extra={"pid": worker.process.pid})
        return worker

    def _watch(self, workers: list[Worker]) -> int:
        """Replace workers that die; the code to end with once it is time."""
        booted = False
        while not self._stopping:
            for place, worker in enumerate(workers):
                code = worker.look()
                booted = booted or worker.was_ready
                if code is None:
                    continue
                self._buried(worker)
                if not booted:
                    return code or 1  # it cannot serve what was asked for, nor will the next one
                logger.error("worker died", extra={"pid": worker.process.pid, "code": code})
                self._wait_if_dying(worker)
                workers[place] = self._started()
            time.sleep(_LOOK_SECONDS)
        return 0

    def _wait_if_dying(self, worker: Worker) -> None:
        """Workers that die as soon as they live are started ever more slowly."""
        quick = time.monotonic() - worker.started < _QUICK_DEATH_SECONDS
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        if self._quick_deaths > 1:
            time.sleep(min(_BACK_OFF_SECONDS_MAX, 0.1 * 2**self._quick_deaths))

    def _buried(self, worker: Worker) -> None:
        worker.close()
        mark_process_dead(worker.process.pid, self._folder)  # type: ignore[no-untyped-call]

    def _ended(self, workers: list[Worker], code: int) -> int:
        """Ask every worker to end, wait for it, and end those that do not."""
        _send(workers, signal.SIGTERM)
        deadline = time.monotonic() + self._settings.shutdown_grace_seconds + _KILL_AFTER_SECONDS
        for worker in workers:
            while (found := worker.process.poll()) is None:
                if self._hurry or time.monotonic() > deadline:
                    worker.process.kill()
                time.sleep(_LOOK_SECONDS)
            # One that the signal itself ended had not begun to serve.
            code = max(code, 0 if found == -signal.SIGTERM else found if found >= 0 else 2)
        return code


def _send(workers: list[Worker], number: signal.Signals) -> None:
    for worker in workers:
        if worker.process.poll() is None:
            worker.process.send_signal(number)
