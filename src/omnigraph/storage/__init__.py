"""The graph on disk: the only package that says `lance`.

May import `model`, `errors` and the storage libraries. What leaves it are model values, Arrow data,
our errors and two sealed handles: `Table` (one version of one table, to read and to stage on) and
`StagedWrite` (a write that nobody sees yet). Start reading at `store.py` (the parts, assembled),
then `table/table.py`, `manifest/publisher.py` (how many tables become visible at once) and
`commit/writer.py` (the commit protocol).
"""
