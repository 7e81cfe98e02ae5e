"""A write from staged tables to a published commit, and what a crash leaves of one.

Start at `writer.py` for the write and at `recovery.py` for what happens after a crash.
"""
