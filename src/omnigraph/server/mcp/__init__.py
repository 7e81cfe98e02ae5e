"""The server for agents: the Model Context Protocol, over HTTP and over stdio.

Every tool is one request of the server's own routes (`tools.py`), so that agents get the same
answers, the same refusals and the same policy as everybody else. `serving.py` makes a server of
the SDK from them, `mount.py` puts it below the routes, `stdio.py` serves one graph to one agent.
Only this folder says `mcp`.
"""
