"""The runner of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omnigraph.model.limits import LOAD_HELD_BYTES_MAX
from omnigraph.model.ports import Answer, Task


class Inline:
    """Runs tasks here (the port `Runner`)."""

    parallelism = 1

    def __init__(self, *, held_bytes: int = LOAD_HELD_BYTES_MAX) -> None:
        self.held_bytes = held_bytes

    def run(
        self, tasks: Sequence[Task], function: Callable[[Task], Answer], *, stage: str
    ) -> list[Answer]:
        del stage
        return [function(task) for task in tasks]
