"""The compiler's door: from `.gq` text and a catalog to a checked, cached plan."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Literal

import msgspec

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import Context
from omnigraph.compiler.query.check_mutation import MutationChecker
from omnigraph.compiler.query.check_read import ReadChecker
from omnigraph.compiler.query.parse import SOURCE_NAME, parse_file
from omnigraph.compiler.query.types import kind_word
from omnigraph.compiler.text import Problem, Problems, SourceText, did_you_mean, facts_of
from omnigraph.errors import InputError, MixedMutationError, NotFoundError, TypeCheckError
from omnigraph.model.limits import CACHED_QUERY_CHARS_MAX, COMPILED_QUERIES_CACHED_MAX
from omnigraph.model.schema import Catalog, EntityKind

RESERVED_PARAMS = frozenset({"__nanograph_now"})
_NAMES_SHOWN_MAX = 20


class TypeUse(msgspec.Struct, frozen=True, kw_only=True):
    """A type that a query touches."""

    kind: EntityKind
    type_name: str

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "type_name": self.type_name}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a query returns, reads and writes; types are nodes by name, then edges by name."""

    result: tuple[ir.ColumnInfo, ...]
    reads: tuple[TypeUse, ...]
    writes: tuple[TypeUse, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "result": [_column_json(column) for column in self.result],
            "reads": [use.to_json() for use in self.reads],
            "writes": [use.to_json() for use in self.writes],
        }


def _column_json(column: ir.ColumnInfo) -> dict[str, Any]:
    body: dict[str, Any] = {"name": column.label, "column": column.name, "kind": column.kind}
    item = kind_word(column.type, item=True) if column.type.is_list else None
    if item is not None:
        body["item_kind"] = item
    if column.type.dimension is not None:
        body["vector_dim"] = column.type.dimension
    body["nullable"] = column.nullable
    return body


class CompiledQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A checked query: its plan and everything a caller may want to say about it."""

    name: str
    kind: Literal["read", "mutation"]
    params: tuple[ir.ParamDecl, ...]
    plan: ir.ReadPlan | ir.MutationPlan
    columns: tuple[ir.ColumnInfo, ...]
    operation: Operation
    description: str | None
    instruction: str | None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of checking one query: problems, or else a plan.

    A query with `unplannable` problems is well typed, but cannot be run.
    """

    problems: tuple[Problem, ...]
    unplannable: tuple[Problem, ...]
    plan: ir.ReadPlan | ir.MutationPlan | None
    params: tuple[ir.ParamDecl, ...]
    advice: tuple[str, ...] = ()


_cache: dict[tuple[str, str, str | None], CompiledQuery] = {}
_cache_lock = Lock()


def compile_query(source: str, catalog: Catalog, name: str | None = None) -> CompiledQuery:
    """The named query of a `.gq` text (the only one when `name` is None), checked against the
    catalog.

    Raises ParseError, TypeCheckError (its `errors` list every problem), MixedMutationError, or
    NotFoundError / InputError when the name does not say which query is meant. The same source,
    schema and name give the same object again, as long as it is remembered.
    """
    key = (source, catalog.hash, name)
    found = _cache.get(key)
    if found is None:
        query = choose_query(parse_file(source).queries, name)
        found = _compiled(query, source, catalog)
        if len(source) <= CACHED_QUERY_CHARS_MAX:
            _remember(key, found)
    return found


def _remember(key: tuple[str, str, str | None], compiled: CompiledQuery) -> None:
    """Keep a compiled query; the oldest one makes room."""
    with _cache_lock:
        while len(_cache) >= COMPILED_QUERIES_CACHED_MAX:
            del _cache[next(iter(_cache))]
        _cache[key] = compiled


def choose_query(queries: Sequence[ast.Query], name: str | None) -> ast.Query:
    """The query of that name (the first, if several have it), or the only one."""
    if name is not None:
        for query in queries:
            if query.name == name:
                return query
        hint = did_you_mean(name, [query.name for query in queries])
        shown = ", ".join(query.name for query in queries[:_NAMES_SHOWN_MAX]) or "none"
        message = f"query '{name}' not found; the file has: {shown}"
        raise NotFoundError(message, kind="query", name=name, hint=hint)
    if len(queries) == 1:
        return queries[0]
    if not queries:
        raise InputError("the query source holds no query", hint="write `query name() { ... }`")
    names = ", ".join(f"`{query.name}`" for query in queries[:_NAMES_SHOWN_MAX])
    message = "query file contains multiple queries; pass --name"
    raise InputError(message, hint=f"name the query to run, one of: {names}")


def _compiled(query: ast.Query, source: str, catalog: Catalog) -> CompiledQuery:
    require_unmixed(query)
    text = SourceText(source, SOURCE_NAME)
    checked = check_parsed(query, text, catalog)
    problems = checked.problems or checked.unplannable
    if problems:
        first = problems[0]
        raise TypeCheckError(first.message, t_code=first.t_code, **facts_of(problems, text))
    plan = checked.plan
    assert plan is not None, "a query without problems has a plan"
    return CompiledQuery(
        name=query.name,
        kind="read" if isinstance(plan, ir.ReadPlan) else "mutation",
        params=checked.params,
        plan=plan,
        columns=plan.columns if isinstance(plan, ir.ReadPlan) else (),
        operation=operation_of(plan, catalog),
        description=query.description,
        instruction=query.instruction,
    )


def operation_of(plan: ir.ReadPlan | ir.MutationPlan, catalog: Catalog) -> Operation:
    """What the plan returns, reads and writes."""
    if isinstance(plan, ir.ReadPlan):
        return _read_operation(plan)
    return _mutation_operation(plan, catalog)


def _read_operation(plan: ir.ReadPlan) -> Operation:
    nodes = {var.type_name for var in plan.variables.values() if var.kind == "node"}
    edges: set[str] = set()
    pending = [plan.match]
    while pending:
        block = pending.pop()
        edges |= {walk.edge_type for walk in block.traversals}
        pending.extend(item.block for item in block.optionals)
        pending.extend(item.block for item in block.negations)
    return Operation(result=plan.columns, reads=_uses(nodes, edges), writes=())


def _mutation_operation(plan: ir.MutationPlan, catalog: Catalog) -> Operation:
    read_nodes: set[str] = set()
    edges: set[str] = set()
    nodes: set[str] = set()
    for statement in plan.statements:
        if statement.kind == "edge":
            edges.add(statement.type_name)
            if isinstance(statement, ir.Insert):
                edge = catalog.edges[statement.type_name]
                read_nodes |= {edge.from_type, edge.to_type}
            continue
        nodes.add(statement.type_name)
        if isinstance(statement, ir.Delete):
            edges |= {edge.name for edge in catalog.edges_touching(statement.type_name)}
    return Operation(result=(), reads=_uses(nodes | read_nodes, edges), writes=_uses(nodes, edges))


def _uses(nodes: set[str], edges: set[str]) -> tuple[TypeUse, ...]:
    return (
        *(TypeUse(kind="node", type_name=name) for name in sorted(nodes)),
        *(TypeUse(kind="edge", type_name=name) for name in sorted(edges)),
    )


def require_unmixed(query: ast.Query) -> None:
    """Rule D2: a mutation either inserts and updates, or deletes."""
    if not isinstance(query.body, ast.MutationBody):
        return
    deletes = sum(isinstance(item, ast.Delete) for item in query.body.statements)
    if 0 < deletes < len(query.body.statements):
        message = (
            f"mutation '{query.name}' on the same query mixes inserts/updates and deletes; split "
            "into separate mutations: (1) inserts and updates, then (2) deletes"
        )
        raise MixedMutationError(message, name=query.name)


def check_query(source: str, catalog: Catalog, name: str | None = None) -> tuple[Problem, ...]:
    """Every type error of one query; empty when it is well typed. Raises for syntax only."""
    query = choose_query(parse_file(source).queries, name)
    return check_parsed(query, SourceText(source, SOURCE_NAME), catalog).problems


def check_parsed(query: ast.Query, source: SourceText, catalog: Catalog) -> Checked:
    """Check one parsed query of a source text; queries of one text share its `SourceText`."""
    problems = Problems(source, stage="type")
    params = _parameters(query, problems)
    context = Context(
        catalog=catalog, params={decl.name: decl.type for decl in params}, problems=problems
    )
    plan: ir.ReadPlan | ir.MutationPlan | None
    if isinstance(query.body, ast.ReadBody):
        plan = ReadChecker(context=context, params=params).plan(query.body)
    else:
        plan = MutationChecker(context=context, params=params).plan(query.body)
    return Checked(
        problems=problems.found(),
        unplannable=problems.unplannable(),
        plan=plan,
        params=params,
        advice=tuple(problems.advice),
    )


def _parameters(query: ast.Query, problems: Problems) -> tuple[ir.ParamDecl, ...]:
    declared: dict[str, ir.ParamDecl] = {}
    for param in query.params:
        if param.name in RESERVED_PARAMS:
            message = f"parameter `${param.name}` is reserved for runtime timestamp injection"
            problems.report(param.at, message, hint="call now() instead")
        elif param.name == "_":
            problems.report(param.at, "`$_` is the wildcard and cannot be a parameter")
        elif param.name in declared:
            problems.report(param.at, f"parameter `${param.name}` is declared twice")
        declared[param.name] = ir.ParamDecl(name=param.name, type=param.type)
    return tuple(declared.values())
