"""What an expression of the query language means, told once.

Reads, the `where` of mutations and the value rules of schemas call `evaluate` and `compare`; what
storage may do instead is said by `sql`, and held to the evaluator by a property test. May import
`compiler.query`, `storage.lance` and `model`. Start with `evaluate.py`, which also says how two
values compare and has a kernel for every scalar function of the compiler's table; `order.py` says
which values are equal in groups and which comes first, `sql.py` what may be pushed down to storage.
"""
