"""How results are described: column names, kinds, and the types a query reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omnigraph.compiler.query import ast, ir
from omnigraph.model.schema import Catalog, EntityKind, PropertyType, Scalar

_KINDS = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.VECTOR: "vector",
    Scalar.BLOB: "blob",
}


def unique_names(projections: Sequence[ast.Projection]) -> tuple[str, ...]:
    """The column names: the alias, else a name made from the expression; a made name that is taken
    gets a number."""
    taken = {projection.alias for projection in projections if projection.alias}
    names: list[str] = []
    for projection in projections:
        name = projection.alias
        if name is None:
            plain = name = generated_name(projection.expr)
            number = 1
            while name in taken:
                number += 1
                name = f"{plain}_{number}"
            taken.add(name)
        names.append(name)
    return tuple(names)


def generated_name(expr: ast.Expr) -> str:
    """`var.prop`, the variable, the name of an aggregate's argument, or the kind of expression."""
    match expr:
        case ast.Access():
            return f"{expr.var}.{expr.prop}"
        case ast.Var() | ast.Word():
            return expr.name
        case ast.Aggregate():
            return expr.name if expr.arg is None else generated_name(expr.arg)
        case ast.Call():
            return expr.name
        case ast.NowCall():
            return "now"
        case ast.Lit() | ast.ListLit():
            return "literal"
        case _:
            return "expr"


def _label(projection: ast.Projection) -> str:
    """The short name of lint descriptions: the alias, else the property alone."""
    if projection.alias is not None:
        return projection.alias
    expr = projection.expr
    while isinstance(expr, ast.Aggregate) and expr.arg is not None:
        expr = expr.arg
    return expr.prop if isinstance(expr, ast.Access) else generated_name(expr)


def kind_of(kind: PropertyType) -> str:
    """The word that descriptions use for a type."""
    return "list" if kind.is_list else _KINDS[kind.scalar]


def item_kind_of(kind: PropertyType) -> str | None:
    return _KINDS[kind.scalar] if kind.is_list else None


def column_info(
    name: str, projection: ast.Projection, kind: PropertyType, *, entity: bool
) -> ir.ColumnInfo:
    """The column of a projection; `entity` says that it is a bare node variable."""
    shown = "object" if entity else kind_of(kind)
    return ir.ColumnInfo(name=name, type=kind, kind=shown, label=_label(projection))


# --- reads and writes --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeUse:
    """A type that a query touches."""

    kind: EntityKind
    type_name: str

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "type_name": self.type_name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
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
    item = item_kind_of(column.type)
    if item is not None:
        body["item_kind"] = item
    if column.type.dimension is not None:
        body["vector_dim"] = column.type.dimension
    body["nullable"] = column.nullable
    return body


def read_operation(plan: ir.ReadPlan) -> Operation:
    nodes = {var.type_name for var in plan.variables.values() if var.kind == "node"}
    edges: set[str] = set()
    pending = [plan.match]
    while pending:
        block = pending.pop()
        edges |= {walk.edge_type for walk in block.traversals}
        pending.extend(item.block for item in block.optionals)
        pending.extend(item.block for item in block.negations)
    return Operation(result=plan.columns, reads=_uses(nodes, edges), writes=())


def mutation_operation(plan: ir.MutationPlan, catalog: Catalog) -> Operation:
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
