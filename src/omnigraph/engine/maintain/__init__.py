"""Keeping a graph fast and small: indexes, optimize, cleanup, repair, health.

Nothing here changes what a query answers. Start with `optimize.py` for how work is done beside the
writers, and with `retention.py` for what may be thrown away.
"""
