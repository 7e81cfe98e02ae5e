"""The nouns: frozen values, ids, limits and ports, without any I/O.

May import `errors` only. Start with `graph.py` (snapshot, commit, branch, what a publish says),
then `schema.py` (the catalog) and `values.py` (what a value of each type is).
"""
