"""The compiler's door: from `.gq` text and a catalog to a checked, cached plan."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Literal

import msgspec

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_match import inner_block
from omnigraph.compiler.query.check_mutation import MutationChecker
from omnigraph.compiler.query.check_read import ReadChecker
from omnigraph.compiler.query.hints.elsewhere import taught_problem
from omnigraph.compiler.query.params import Parameters
from omnigraph.compiler.query.parse import SOURCE_NAME, parse_text
from omnigraph.compiler.query.scope import Context
from omnigraph.compiler.query.types import kind_word
from omnigraph.compiler.text import (
    Problems,
    SourceText,
    did_you_mean,
    facts_of,
)
from omnigraph.errors import (
    InputError,
    MixedMutationError,
    NotFoundError,
    TypeCheckError,
)
from omnigraph.model.limits import CACHED_QUERY_CHARS_MAX, COMPILED_QUERIES_CACHED_MAX
from omnigraph.model.schema import Catalog, EntityKind
from omnigraph.model.structs import JsonStruct
from omnigraph.model.values import json_value

_NAMES_SHOWN_MAX = 20


class TypeUse(JsonStruct, frozen=True, kw_only=True):
    """A type that a query touches."""

    kind: EntityKind
    type_name: str


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What a query takes, returns, reads and writes; types are nodes, then edges, by name."""

    params: tuple[ir.Param | ir.RecordParam, ...]
    result: tuple[ir.ColumnInfo, ...]
    reads: tuple[TypeUse, ...]
    writes: tuple[TypeUse, ...]

    def to_json(self) -> dict[str, Any]:
        params = [_param_json(param) for param in self.params]
        return {
            **({"params": params} if params else {}),
            "result": [_column_json(column) for column in self.result],
            "reads": [use.to_json() for use in self.reads],
            "writes": [use.to_json() for use in self.writes],
        }


def _param_json(param: ir.Param | ir.RecordParam) -> dict[str, Any]:
    if isinstance(param, ir.RecordParam):
        return {"name": param.name, "type": str(param)}
    body: dict[str, Any] = {"name": param.name, "type": str(param.type)}
    if param.default is not None:
        body["default"] = json_value(param.default.value)
    return body


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
    params: tuple[ir.Param | ir.RecordParam, ...]
    plan: ir.QueryPlan | ir.MutationPlan
    columns: tuple[ir.ColumnInfo, ...]
    operation: Operation
    description: str | None
    instruction: str | None


_cache: dict[tuple[str, str, str | None], CompiledQuery] = {}
_cache_lock = Lock()


def compile_query(source: str, catalog: Catalog, name: str | None = None) -> CompiledQuery:
    """The named query of a `.gq` text (the only one when `name` is None) or the body of a query
    without parameters, checked against the catalog.

    Raises ParseError, TypeCheckError (its `errors` list every problem), MixedMutationError, or
    NotFoundError / InputError when the name does not say which query is meant. The same source,
    schema and name give the same object again, as long as it is remembered.
    """
    key = (source, catalog.hash, name)
    found = _cache.get(key)
    if found is None:
        query = choose_query(parse_text(source).queries, name)
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
    message = "the query text contains multiple queries, and none was named"
    raise InputError(message, hint=f"name the query to run, one of: {names}")


def _compiled(query: ast.Query, source: str, catalog: Catalog) -> CompiledQuery:
    require_unmixed(query)
    text = SourceText(source, SOURCE_NAME)
    plan, found = checked(query, text, catalog)
    problems = found.found() or found.unplannable()
    if problems:
        problems = tuple(taught_problem(problem, text) for problem in problems)
        first = problems[0]
        raise TypeCheckError(first.message, t_code=first.t_code, **facts_of(problems, text))
    assert plan is not None, "a query without problems has a plan"
    return CompiledQuery(
        name=query.name,
        kind="mutation" if isinstance(plan, ir.MutationPlan) else "read",
        params=plan.params,
        plan=plan,
        columns=_columns(plan),
        operation=operation_of(plan, catalog),
        description=query.description,
        instruction=query.instruction,
    )


def _columns(plan: ir.QueryPlan | ir.MutationPlan) -> tuple[ir.ColumnInfo, ...]:
    if not isinstance(plan, ir.MutationPlan):
        return plan.columns
    return () if plan.returning is None else plan.returning.plan.columns


def operation_of(plan: ir.QueryPlan | ir.MutationPlan, catalog: Catalog) -> Operation:
    """What the plan returns, reads and writes."""
    if not isinstance(plan, ir.MutationPlan):
        reads = _uses(*_read_by(plan))
        return Operation(params=plan.params, result=plan.columns, reads=reads, writes=())
    read_nodes, read_edges, edges = set[str](), set[str](), set[str]()
    if plan.match is not None:
        read_nodes, read_edges = _read_by(plan.match)
    nodes = {item.type_name for item in plan.simple if item.kind == "node"}
    for statement in plan.simple:
        if statement.kind == "edge":
            edges.add(statement.type_name)
            if isinstance(statement, ir.Insert):
                edge = catalog.edges[statement.type_name]
                read_nodes |= {edge.from_type, edge.to_type}
        elif isinstance(statement, ir.Delete | ir.DeleteFound):
            edges |= {edge.name for edge in catalog.edges_touching(statement.type_name)}
    return Operation(
        params=plan.params,
        result=_columns(plan),
        reads=_uses(nodes | read_nodes, edges | read_edges),
        writes=_uses(nodes, edges),
    )


def _read_by(plan: ir.QueryPlan) -> tuple[set[str], set[str]]:
    """The node and edge types that a read looks at."""
    edges: set[str] = set()
    bound = [var for part in ir.plans_of(plan) for var in part.variables.values()]
    nodes = {name for var in bound if var.kind == "node" for name in var.types}
    legs = [leg for b in ir.blocks_of(plan) for walk in b.traversals for leg in walk.legs]
    for part in ir.parts_of(plan):
        if isinstance(part, ir.Degree):
            edges.add(part.edge_type)
        elif isinstance(part, ir.PathPart):
            legs += part.way.legs
    edges |= {leg.edge_type for leg in legs}
    nodes |= {end for leg in legs for end in (leg.from_type, leg.to_type)}
    return nodes, edges


def _uses(nodes: set[str], edges: set[str]) -> tuple[TypeUse, ...]:
    return (
        *(TypeUse(kind="node", type_name=name) for name in sorted(nodes)),
        *(TypeUse(kind="edge", type_name=name) for name in sorted(edges)),
    )


def require_unmixed(query: ast.Query) -> None:
    """Rule D2: a mutation either inserts and updates, or deletes."""
    if not isinstance(query.body, ast.MutationBody):
        return
    deletes = [isinstance(item, ast.Delete | ast.DeleteFound) for item in query.body.simple]
    if any(deletes) and not all(deletes):
        message = (
            f"mutation '{query.name}' on the same query mixes inserts/updates and deletes; split "
            "into separate mutations: (1) inserts and updates, then (2) deletes"
        )
        raise MixedMutationError(message, name=query.name)


def checked(
    query: ast.Query, source: SourceText, catalog: Catalog
) -> tuple[ir.QueryPlan | ir.MutationPlan | None, Problems]:
    """Check one parsed query of a source text; queries of one text share its `SourceText`.

    A query without problems has a plan; with unplannable ones it is well typed, but cannot be run.
    """
    problems = Problems(source, stage="type")
    params = Parameters(catalog=catalog, problems=problems).declared(query.params)
    context = Context(
        catalog=catalog,
        params={decl.name: decl.type for decl in params if isinstance(decl, ir.Param)},
        records={decl.name: decl for decl in params if isinstance(decl, ir.RecordParam)},
        problems=problems,
        inner=inner_block,
    )
    if isinstance(query.body, ast.ReadBody):
        return ReadChecker(context=context, params=params).plan(query.body), problems
    return MutationChecker(context=context, params=params).plan(query.body), problems
