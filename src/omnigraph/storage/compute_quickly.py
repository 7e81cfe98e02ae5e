"""Imports Arrow's compute functions in half the time.

For each of its 300 functions Arrow reads the documentation and the signature of a class of options
again, and there are 60 such classes: these two readings are half of the import. Here each class is
read once. What is imported is the same to the letter; where Arrow no longer works in this way,
nothing is gained and nothing is lost.
"""

from __future__ import annotations

import inspect
import sys
from functools import cache
from importlib import import_module
from typing import Any

_COMPUTE = "pyarrow.compute"
_DOCUMENTATION = "pyarrow.vendored.docscrape"
_CLASS = "NumpyDocString"


def import_compute() -> None:
    """Import `pyarrow.compute`, unless the process has it already."""
    if _COMPUTE in sys.modules:
        return
    try:
        documentation = import_module(_DOCUMENTATION)
        read = getattr(documentation, _CLASS)
    except (ImportError, AttributeError):
        return
    true, known = inspect.signature, dict[type, inspect.Signature]()

    def signature(obj: Any, **options: Any) -> inspect.Signature:
        if options or not isinstance(obj, type):
            return true(obj, **options)
        if obj not in known:
            known[obj] = true(obj)
        return known[obj]

    # For as long as the import takes; other threads get what they would get.
    inspect.signature = signature
    setattr(documentation, _CLASS, cache(read))
    try:
        import_module(_COMPUTE)
    finally:
        inspect.signature = true
        setattr(documentation, _CLASS, read)
