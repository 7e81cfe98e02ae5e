"""The schema language: `.pg` text to a catalog, and from one catalog to the next.

Reading order: `ast` and `parse` (what a text says), `check` and `catalog` (whether it makes sense),
`compile` (the door in), `ir` (the canonical form), `reference_ir` (the form that the reference
system stores), `recall` (the schema of its past), `printer` (back to text), `evolve` (migrations).
May import `errors`, `model` and `compiler.diagnostics`.
"""

from omnigraph.compiler.schema.compile import (
    catalog_from_ir,
    catalog_from_reference,
    compile_schema,
)
from omnigraph.compiler.schema.evolve import plan_migration
from omnigraph.compiler.schema.printer import format_schema, print_schema
from omnigraph.compiler.schema.recall import OldSchemas

__all__ = [
    "OldSchemas",
    "catalog_from_ir",
    "catalog_from_reference",
    "compile_schema",
    "format_schema",
    "plan_migration",
    "print_schema",
]
