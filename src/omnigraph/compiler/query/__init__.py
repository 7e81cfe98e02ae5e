"""The query language: `.gq` text in, checked plans out.

Start reading at `ir.py` (what comes out) and `compile.py` (how it gets there). May import `errors`,
`model` and `compiler.diagnostics` only.
"""
