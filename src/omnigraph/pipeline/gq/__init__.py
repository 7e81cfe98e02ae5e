"""`.gq` on Spark: a read plan as DataFrames over one pinned snapshot.

Starts at `run.py`. `layout` says which columns stand for the variables of a plan, `scan` reads
tables as DataFrames, `values` makes columns of expressions, `match`, `walk` and `ways` find rows,
`stages` and `aggregates` make groups, columns and an order of them. What an expression means is
told by `engine/expr` alone: Spark's own operators stand in for it only where they mean exactly the
same.
"""
