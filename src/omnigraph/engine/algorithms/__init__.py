"""Whole-graph algorithms behind `graph.algorithms`. Start reading at `run.py`; `kernels.py` has the
arithmetic, over plain arrays."""
