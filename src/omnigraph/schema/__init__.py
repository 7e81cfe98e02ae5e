"""Schemas from Python and back: classes, Arrow schemas and files to `.pg`, and `.pg` to classes.

Start reading at `classes.py`. Imports the compiler, and pyarrow where a call needs it.
"""

from omnigraph.schema.classes import edge, from_classes, node, records
from omnigraph.schema.codegen import to_python
from omnigraph.schema.columns import from_arrow, infer, to_arrow

__all__ = [
    "edge",
    "from_arrow",
    "from_classes",
    "infer",
    "node",
    "records",
    "to_arrow",
    "to_python",
]
