"""A bar on the terminal for work that takes a while; nothing where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from omnigraph.cli.call import Call

Advance = Callable[[str, int, int], None]


def wants_progress(call: Call) -> bool:
    """Bars are for people who look: a terminal, no JSON, not told to be quiet."""
    return sys.stderr.isatty() and not call.as_json and not call.quiet


@contextmanager
def progress_bar(call: Call) -> Iterator[Advance | None]:
    """Something to call with (what, done, total), or None when no bar is wanted."""
    if not wants_progress(call):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(call.verb, total=None)

        def advance(what: str, done: int, total: int) -> None:
            bars.update(task, description=f"{call.verb} {what}", completed=done, total=total)

        yield advance
