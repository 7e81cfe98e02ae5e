"""The server: HTTP over open graphs.

The only room that says starlette, uvicorn, prometheus_client and mcp. May import `engine`, `wire`,
`policy` and what is below them; `cli` reaches it by `main.py` alone. Start reading at `routes.py`
(everything that can be asked), then `app.py` (what happens to a request) and `graphs.py` (the
graphs that are served). The environment is read in `settings.py`.
"""
