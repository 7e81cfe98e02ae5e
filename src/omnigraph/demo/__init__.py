"""`omnigraph demo`: the main job, told with real data.

A package graph of this very machine is loaded on Spark, asked, branched, merged, crashed, recovered
and optimized, and everything is written down as one HTML page. Start reading at `story.py`; the
data comes from `packages.py`.
"""
