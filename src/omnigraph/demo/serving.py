"""The demo's last words: a server on its graph, asked once, and left running on a terminal."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import urllib3

from omnigraph.model.machine import is_installed

ASKED: Final = "size"  # a stored query without parameters
PATIENCE: Final = urllib3.Timeout(total=60)


def show_server(uri: str, folder: Path, *, stay: bool, say: Callable[[str], None]) -> None:
    """Start a server on the graph, ask it for its health and one stored query, and tell where it
    is. With `stay` it runs until somebody interrupts; otherwise it is stopped at once."""
    if not is_installed("uvicorn"):
        say("a server for it: pip install 'omnigraph[server]'")
        return
    queries = folder / "packages.gq"
    words = ["serve", f"demo={uri}", "--queries", str(queries)]
    queries.write_text(
        Path(__file__).with_name("packages.gq").read_text(encoding="utf-8"), encoding="utf-8"
    )
    with _started([*words, "--bind", "127.0.0.1:0"]) as address:
        health = urllib3.request("GET", f"http://{address}/healthz", timeout=PATIENCE)
        path = f"/graphs/demo/queries/{ASKED}"
        answer = urllib3.request("POST", f"http://{address}{path}", timeout=PATIENCE)
        say(f"served at http://{address}: healthz {health.status}, POST {path} {answer.status}")
        say(f"  {answer.data.decode()[:200]}")
        say(f"see it in the browser: http://{address}/ui/")
        say(f"again: omnigraph ui {' '.join(words[1:])}")
        if stay:
            say("Ctrl-C ends it")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()


@contextlib.contextmanager
def _started(words: list[str]) -> Iterator[str]:
    """A server process; its address."""
    process = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "omnigraph", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None, "it was asked for"
    try:
        yield process.stdout.readline().decode().strip().partition("=")[2]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
