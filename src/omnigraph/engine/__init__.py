"""A plan meets tables: reading, writing, merging and maintaining one graph.

May import `compiler` and `storage` and what lies below them. Start with `graph.py` (the names that
users call), then `core.py` (the parts of an open graph), then `read/` and `write/`.
"""

from omnigraph.storage.compute_quickly import import_compute
from omnigraph.storage.pandas_later import put_off_pandas

# Before anything else makes an Arrow value, and so before any module of this package is imported.
put_off_pandas()
import_compute()
