"""The schema language: `.pg` text to a catalog, and from one catalog to the next.

Reading order: `parse` (what a text says), `check` (whether a declaration makes sense),
`compile` (declarations to a catalog and its canonical form), `legacy` (graphs of the reference
system), `printer` (back to text), `evolve` (migrations), `identity` (who is who after
them), `merge` (two schemas into one: taken apart by `things`, told as steps by `changes`).
May import `errors`, `model` and `compiler.text`.
"""

from omnigraph.compiler.schema.compile import catalog_from_ir, compile_schema
from omnigraph.compiler.schema.evolve import plan_migration, steps_between
from omnigraph.compiler.schema.legacy import OldSchemas
from omnigraph.compiler.schema.merge import SchemaConflict, merge_schemas
from omnigraph.compiler.schema.printer import format_schema, print_schema

__all__ = [
    "OldSchemas",
    "SchemaConflict",
    "catalog_from_ir",
    "compile_schema",
    "format_schema",
    "merge_schemas",
    "plan_migration",
    "print_schema",
    "steps_between",
]
