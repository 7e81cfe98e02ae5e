"""A plan meets tables: reading, writing, branches, merges, schema changes and maintenance.

May import `compiler` and `storage`. Start with `graph.py`, which is what users hold; `read/` runs
queries, `write/` turns statements and records into staged writes.
"""
