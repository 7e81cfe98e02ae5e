"""The graph on disk: the only room that says `lance`.

May import `model`, `errors` and the storage libraries. What leaves it are model values, Arrow data,
our errors and two sealed handles: `Table` (one version of one table, to read and to stage on) and
`StagedWrite` (a write that nobody sees yet). Start reading at `table.py`, then `publisher.py` (how
many tables become visible at once) and `writer.py` (the commit protocol); `objects.py` and
`lease.py` are the ground they stand on.
"""
