"""Graphs of a server: the names of `Graph`, the same values and errors, over HTTP.

Imports `wire` for bodies, and from the engine only the values that its calls give. Start reading at
`graph.py`; `http.py` sends, and turns refusals into the errors they were.
"""
