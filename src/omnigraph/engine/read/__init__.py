"""Reading: a checked plan meets one snapshot and becomes rows.

May import `compiler`, `storage` and `model`. Entities travel as positions: small integers into a
*frame*, which is one table version seen as columns. Start with `run.py`, then `match/match.py` (how
a match runs); `memory` holds the tables, `search` is text and vector search.
"""
