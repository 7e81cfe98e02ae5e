"""Making a command's process start fast.

Arrow looks for pandas the first time it makes a scalar, which Lance does while it is imported. No
command needs pandas unless it starts Spark, and loading it costs more than everything else a small
query does. So while a command opens the engine, pandas looks as if it were not installed; anybody
who asks for it afterwards gets it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _NotNow:
    """A finder that says of pandas that it is not there.

    It is one by what it does: the base class for finders would itself be slow to import.
    """

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing; refuse pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out of the start", name=name)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Import what the block imports as if pandas were not installed."""
    finder: Any = _NotNow()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
