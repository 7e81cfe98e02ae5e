"""Rows on their way into a table, which the write path, loads and checks share.

`columns.py` fits whole columns (one value: `model/values.py`), `keys.py` makes ids, `parts.py` asks
the snapshot, and names what tasks staged and pieces of what is stored.
"""
