"""The nouns: frozen values, ids, limits and ports, without any I/O.

May import `errors` only. Start with `graph.py` (snapshot, commit, branch), then `changeset.py`
(what a publish says), then `schema.py` (the catalog).
"""
