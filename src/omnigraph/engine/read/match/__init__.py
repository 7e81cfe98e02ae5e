"""From a plan's `match` to rows: find the entities of a variable, walk edges, filter, join.

May import `memory`, `search` and `context`. Start with `match.py`.
"""
