"""Mutations: the statements of a query become one checked change, staged for one commit.

Start with `mutate.py`; `pending.py` holds what the statements have done so far.
"""
