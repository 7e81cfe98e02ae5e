"""The compiler: `.pg` and `.gq` text in, checked values out.

Everything here is pure: no files, no clock, no Arrow, no Lance. It may import `errors` and `model`
only. Start reading at `schema/__init__.py` and `query/__init__.py`; `text.py` has the tools
of both: source text, tokens, cursor, problems, escapes and comments.
"""
