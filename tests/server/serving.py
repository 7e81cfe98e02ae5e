"""A real server on a loopback port, and a small client of its wire."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3

SOURCES = Path(__file__).resolve().parents[2] / "src"
READY_SECONDS = 60


class Reply:
    """An answer: status, headers (by name in small letters) and body."""

    def __init__(self, found: urllib3.BaseHTTPResponse) -> None:
        self.status = found.status
        self.headers = {name.lower(): value for name, value in found.headers.items()}
        self.body = found.data

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"{self.status} {self.headers} {self.body[:2000]!r}"


class Served:
    """A server process and a way to ask it."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self.log = log
        self.url = f"http://{address}"
        self.pool = urllib3.PoolManager(maxsize=64, retries=False)

    def ask(
        self,
        method: str,
        path: str,
        *,
        json_body: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> Reply:
        sent = dict(headers or {})
        if json_body is not None:
            body = json.dumps(json_body).encode()
            sent.setdefault("content-type", "application/json")
        found = self.pool.request(
            method,
            self.url + path,
            body=body,
            headers=sent,
            timeout=timeout,
            redirect=False,
            decode_content=True,
        )
        return Reply(found)

    def post(self, path: str, json_body: Any = None, **more: Any) -> Reply:
        return self.ask("POST", path, json_body={} if json_body is None else json_body, **more)

    def get(self, path: str, **more: Any) -> Reply:
        return self.ask("GET", path, **more)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60) -> int:
        """Send a signal and wait; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)


@contextmanager
def serving(
    uris: Sequence[str | Path],
    *options: str,
    folder: Path,
    env: Mapping[str, str] | None = None,
    ready: bool = True,
) -> Iterator[Served]:
    """Serve the graphs for the time of the block."""
    log = folder / f"server-{time.monotonic_ns()}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [
                sys.executable,
                *("-m", "omnigraph", "serve", *map(str, uris)),
                *("--bind", "127.0.0.1:0", *options),
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(SOURCES), **(env or {})},
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline().decode().strip()
        name, _, address = line.partition("=")
        assert name == "OMNIGRAPH_LISTEN_ADDR", f"{line!r}\n{log.read_text()}"
        served = Served(process, address, log)
        if ready:
            wait_until_ready(served)
        yield served
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()


def wait_until_ready(served: Served) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while served.get("/readyz").status != 200:
        assert served.process.poll() is None, served.log.read_text()
        assert time.monotonic() < deadline, served.log.read_text()
        time.sleep(0.05)
