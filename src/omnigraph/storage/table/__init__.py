"""One table of a graph: reading, staging writes, indexes and upkeep of a Lance dataset.

Start at `table.py`. Built on `storage/lance`.
"""
