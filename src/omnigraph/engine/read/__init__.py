"""Reading: a checked plan meets one snapshot and becomes rows.

May import `compiler`, `storage` and `model`. Entities travel as positions: small integers into a
*frame*, which is one table version seen as columns. Start with `run.py` (the door), then
`match.py` (how a match runs), `frame.py` and `topology.py` (what is kept in memory).
"""
