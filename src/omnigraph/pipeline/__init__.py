"""Bulk work on Spark: sessions, loads, exports, streams, and the `omnigraph` data source.

The only room that says `pyspark`. Spark schedules, distributes and retries; rows travel as Arrow
in its Python workers, which write Lance fragments through `storage`, and the driver commits them
through the same one writer as everything else. Start reading at `load.py`; `fanout.py` is the one
primitive under all of it. Names are loaded when they are first used, because a Spark worker opens
this room for one task function and should not pay for the rest.
"""
