"""A plan meets tables: reading, writing, merging and maintaining one graph.

May import `compiler` and `storage` and what lies below them. Start with `graph.py` (the names that
users call), then `core.py` (the parts of an open graph), then `read/` and `write/`.
"""
