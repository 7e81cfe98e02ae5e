"""The manifest: which versions of which tables make up the graph, with branches and history.

Start at `store.py` for reading and `publisher.py` for the one write that makes a commit visible.
"""
