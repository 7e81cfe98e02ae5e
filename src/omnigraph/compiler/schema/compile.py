"""Text to catalog, and a stored catalog back from its canonical form."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from omnigraph.compiler.diagnostics import SourceText
from omnigraph.compiler.schema.ast import ConstraintDecl, NodeDecl, Word
from omnigraph.compiler.schema.catalog import Types, build_types
from omnigraph.compiler.schema.ir import DecodedTypes, decode, encode, hash_of, stable_id
from omnigraph.compiler.schema.parse import parse_schema
from omnigraph.compiler.schema.problems import Problems
from omnigraph.compiler.schema.reference_ir import differences
from omnigraph.errors import CorruptGraphError, InputError
from omnigraph.model.limits import COMPILED_SCHEMAS_CACHED_MAX
from omnigraph.model.schema import Catalog, NodeType


@lru_cache(maxsize=COMPILED_SCHEMAS_CACHED_MAX)
def _compiled(source: str, name: str) -> Catalog:
    text = SourceText(source, name)
    problems = Problems()
    types = build_types(parse_schema(text), problems)
    _check_ids(types, problems)
    error = problems.error(text)
    if error is not None:
        raise error
    return catalog_of(types, source=source)


def compile_schema(source: str, *, name: str = "schema") -> Catalog:
    """The checked meaning of a schema text.

    `ParseError` when a declaration is wrong by itself, `SchemaError` when declarations do not fit
    together. Both have `line`, `column`, `excerpt`, and all problems under `errors`.
    """
    return _compiled(source, name)


def catalog_of(types: Types | DecodedTypes, *, source: str) -> Catalog:
    """The catalog of checked types."""
    ir = encode(interfaces=types.interfaces, nodes=types.nodes, edges=types.edges)
    return Catalog(
        nodes=types.nodes,
        edges=types.edges,
        interfaces=types.interfaces,
        source=source,
        ir=ir,
        hash=hash_of(ir),
    )


def with_key_order(catalog: Catalog, keys: dict[str, tuple[str, ...]]) -> Catalog:
    """The catalog with the key columns of some node types in another (identity) order."""
    changed = {name: key for name, key in keys.items() if catalog.nodes[name].key != key}
    if not changed:
        return catalog
    nodes: dict[str, NodeType] = {
        name: replace(node, key=changed.get(name, node.key)) for name, node in catalog.nodes.items()
    }
    types = Types(interfaces=dict(catalog.interfaces), nodes=nodes, edges=dict(catalog.edges))
    return catalog_of(types, source=catalog.source)


def catalog_from_ir(ir: str, source: str) -> Catalog:
    """The catalog that a graph stored as its IR and source text.

    The IR is the authority, identities included; the source adds what the IR leaves out (order of
    properties, rename hints). A source that compiles to another meaning is `CorruptGraphError`; one
    that this version no longer accepts is kept as text only.
    """
    stored = decode(ir)
    try:
        compiled = compile_schema(source)
    except InputError:
        return replace(catalog_of(stored, source=source), ir=ir, hash=hash_of(ir))
    keys = {
        name: node.key
        for name, node in stored.nodes.items()
        if name in compiled.nodes and set(node.key) == set(compiled.nodes[name].key)
    }
    restored = with_key_order(compiled, keys)
    if restored.ir != ir:
        raise CorruptGraphError(
            "the stored schema source does not compile to the stored schema",
            part="schema",
            expected=hash_of(ir),
            actual=restored.hash,
        )
    return restored


def catalog_from_reference(ir: str, source: str) -> Catalog:
    """The catalog of a graph that the reference system wrote, from its IR and source text.

    The source decides, and the IR must mean the same, else `CorruptGraphError`: an IR that is not
    understood to the last field is no ground to change a graph on.
    """
    try:
        compiled = compile_schema(source)
    except InputError as cause:
        raise CorruptGraphError(
            f"the stored schema source does not compile: {cause.message}",
            hint="export the graph with the OmniGraph release that wrote it and load it here",
            part="_schema.pg",
        ) from cause
    found = differences(compiled.ir, ir)
    if found:
        raise CorruptGraphError(
            f"the stored schema source does not compile to the stored schema: {found[0]}",
            part="_schema.pg",
            differences=tuple(found),
        )
    return with_key_order(compiled, _declared_keys(source))


def _declared_keys(source: str) -> dict[str, tuple[str, ...]]:
    """Key columns as declared: the order in which the reference writes them into ids."""
    return {
        decl.name: tuple(arg.text for arg in member.args if isinstance(arg, Word))
        for decl in parse_schema(SourceText(source, "schema")).declarations
        if isinstance(decl, NodeDecl)
        for member in decl.members
        if isinstance(member, ConstraintDecl) and member.name == "key"
    }


def _check_ids(types: Types, problems: Problems) -> None:
    """Two names with one id would be one thing to whoever reads the IR by id."""
    owners = {
        f"{kind}:{name}": made.properties
        for kind, group in (
            ("interface", types.interfaces),
            ("node", types.nodes),
            ("edge", types.edges),
        )
        for name, made in group.items()
    }
    _check_distinct(list(owners), problems)
    for owner, properties in owners.items():
        _check_distinct([f"{owner}:{prop.name}" for prop in properties], problems)


def _check_distinct(names: list[str], problems: Problems) -> None:
    seen: dict[int, str] = {}
    for name in names:
        other = seen.setdefault(stable_id(name), name)
        if other != name:
            problems.report(
                f"the names {name} and {other} hash to the same id",
                offset=0,
                stage="catalog",
                hint="rename one of them",
            )
