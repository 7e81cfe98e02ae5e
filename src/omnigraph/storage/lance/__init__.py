"""One way to talk to Lance: open, read, commit, fork and drop versions of one dataset.

Knows nothing of graphs. Built on `storage/objects`; tables, the manifest and the audit stand on it.
"""
