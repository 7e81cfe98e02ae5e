"""What editors and highlighters need: a Pygments lexer, TextMate grammars, a language server.

`compiler/editing.py` has what the server says, as plain values; `server.py` is the only file that
says pygls. Words come from `compiler/words.py` and `compiler/query/functions.py`, here as
everywhere.
"""
