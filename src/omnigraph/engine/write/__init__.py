"""Statements and records become one checked change, and the change becomes staged writes.

`values`, `columns`, `keys` and `constraints` need no storage: the Spark pipeline runs them on its
executors. `mutate` and `load` prepare a change on one snapshot for `storage.writer`. Start with
`change.py`, the change that every writer fills.
"""
