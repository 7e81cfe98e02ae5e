"""Keys and bytes, wherever they are kept: a local folder or an object store, with locks and leases.

Start at `root.py`, which turns a URI into a store. Imports nothing of the other storage folders.
"""
