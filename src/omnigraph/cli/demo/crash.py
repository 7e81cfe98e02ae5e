"""Killing a writer in the middle, and looking at the graph before, during and after."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from omnigraph import Graph, OpenMode
from omnigraph.errors import UnavailableError
from omnigraph.model.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """What was seen of one killed write."""

    step: Step
    seen_meanwhile: bool
    left_behind: int
    verdict: str
    seen_after: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "killed at": self.step.value,
            "readers saw it": "yes" if self.seen_meanwhile else "no",
            "unfinished writes left": self.left_behind,
            "the next writer": self.verdict,
            "it is there now": "yes" if self.seen_after else "no",
        }


def killed_writer(uri: str, step: Step, *, queries: str, name: str, needs: str) -> Crash:
    """Let another process write, kill it at the step, and settle what it left behind."""
    with _stopped_writer(uri, step, name=name, needs=needs) as writer:
        with Graph.open(uri, mode=OpenMode.READ_ONLY) as reader:
            seen_meanwhile = _is_there(reader, queries, name)
        writer.kill()
        writer.wait()
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as reader:
        left_behind = len(reader.pending_recoveries())
    with Graph.open(uri) as graph:  # opening for writing settles it
        settled = [one.recovery_kind for one in graph.recoveries()][-1:]
        return Crash(
            step=step,
            seen_meanwhile=seen_meanwhile,
            left_behind=left_behind,
            verdict=settled[0] if settled and left_behind else "had nothing to do",
            seen_after=_is_there(graph, queries, name),
        )


@contextmanager
def _stopped_writer(
    uri: str, step: Step, *, name: str, needs: str
) -> Iterator[subprocess.Popen[str]]:
    """A process that has written up to the step and waits there."""
    words = [sys.executable, "-m", "omnigraph.cli.demo.victim", uri, step.value, name, needs]
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout is not None, "it has a pipe"
            line = writer.stdout.readline().strip()
            if line != f"at {step}":
                writer.kill()
                assert writer.stderr is not None, "it has a pipe"
                said = writer.stderr.read().strip().splitlines()[-1:]
                raise UnavailableError(f"the writer to be killed ended by itself: {said}")
            yield writer
        finally:
            writer.kill()


def _is_there(graph: Graph, queries: str, name: str) -> bool:
    return bool(graph.query(queries, "one", params={"name": name}).row_count)
