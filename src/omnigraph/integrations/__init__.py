"""Adapters for other tools, each in a module of its own that imports the tool; nothing else does.

May use everything that users may. Start reading at `chunks.py`, which the vector stores
share, and `labelled.py`, which the graph stores share.
"""
