"""The query language: `.gq` text in, checked plans out.

Start reading at `ir.py` (what comes out) and `compile.py` (how it gets there): text →
`parse` → `check_*` (names resolved, types checked, all problems collected) → `ir`. May import
`errors`, `model` and `compiler.text` only.
"""

from omnigraph.compiler.query.compile import CompiledQuery, compile_query
from omnigraph.compiler.query.lint.report import LintFinding, LintReport, LintResult, lint_source
from omnigraph.compiler.query.params import bind_params
from omnigraph.compiler.query.parse import parse_file, parse_text
from omnigraph.compiler.query.printer import format_source

__all__ = [
    "CompiledQuery",
    "LintFinding",
    "LintReport",
    "LintResult",
    "bind_params",
    "compile_query",
    "format_source",
    "lint_source",
    "parse_file",
    "parse_text",
]
