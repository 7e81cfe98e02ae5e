"""Mutations: statements run in order into one pending change, which is then checked and staged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.compiler.query import bind_params, ir
from omnigraph.engine.arguments import MAPPING_OR_NONE, TEXT, TEXT_OR_NONE, require
from omnigraph.engine.arrow import Array, counted, flat, picked
from omnigraph.engine.check.bucket import TableChange, stage
from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.rules import Entity, misfit, missing
from omnigraph.engine.check.validate import look_up, validate
from omnigraph.engine.core import Core, compiled_as
from omnigraph.engine.expr.evaluate import Constants, Rows, holding, is_constant
from omnigraph.engine.expr.sql import column_of, listed_values, push_down
from omnigraph.engine.rows.columns import (
    BLOB_CELL,
    CellProblem,
    batch_schema,
    from_fitted,
    judged,
    written_rows,
)
from omnigraph.engine.rows.keys import canonical_id, respelled_id
from omnigraph.engine.rows.parts import Stored
from omnigraph.errors import InputError
from omnigraph.model.graph import Commit, Snapshot, WriterKind
from omnigraph.model.ports import World
from omnigraph.model.requests import KeyedRequest, result_of
from omnigraph.model.schema import Catalog, EdgeType, NodeType
from omnigraph.model.structs import HidingStruct
from omnigraph.model.values import Misfit, fit
from omnigraph.storage.commit.prepared import AppliedBeforeError, Intent, Prepared, remembering
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.table.read import texts

FittedRow = dict[str, Any]  # values by column, as `model.values.fit` gives them


class MutationOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation query as its caller asked for it."""

    source: str
    name: str | None
    params: Mapping[str, Any] | None
    branch: str
    actor_id: str | None
    message: str | None
    if_commit: str | None
    idempotency_key: str | None


class MutationResult(HidingStruct, frozen=True, kw_only=True):
    """What a mutation did. `commit` is None when nothing changed.

    A request with an idempotency key is answered again from its commit: `already_applied` says so,
    and is the only difference, so that it does not count when answers are compared.
    """

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"already_applied"})

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: Commit | None
    already_applied: bool = False

    @classmethod
    def told_again(cls, commit: Commit, *, branch: str) -> MutationResult:
        """The answer to the first submission of the commit's request."""
        told = result_of(commit)
        return cls(
            branch=branch,
            query_name=str(told.get("query_name", "")),
            affected_nodes=int(told.get("affected_nodes", 0)),
            affected_edges=int(told.get("affected_edges", 0)),
            actor_id=commit.actor_id,
            commit=commit,
            already_applied=True,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            **({"already_applied": True} if self.already_applied else {}),
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": None if self.commit is None else self.commit.to_json(),
        }


def mutate(
    core: Core, order: MutationOrder, *, then: Callable[[Snapshot | None], None]
) -> MutationResult:
    """Run one mutation query as one commit; `then` is told what came of it."""
    require(TEXT, source=order.source)
    require(TEXT_OR_NONE, name=order.name)
    require(MAPPING_OR_NONE, params=order.params)
    params = order.params or {}
    request = KeyedRequest.of(
        order.idempotency_key, "mutation", source=order.source, name=order.name, params=params
    )
    intent = Intent(
        branch=core.branch(order.branch),
        kind=WriterKind.MUTATION,
        actor_id=order.actor_id,
        message=order.message,
        if_commit=order.if_commit,
        request=request,
    )

    def prepare(context: WriteContext) -> tuple[Prepared | None, dict[str, Any]]:
        catalog = core.catalog(context.snapshot)
        compiled = compiled_as("mutation", order.source, order.name, catalog)
        assert isinstance(compiled.plan, ir.MutationPlan), "a mutation has a mutation plan"
        prepared, affected = prepare_mutation(
            compiled.plan,
            params=bind_params(compiled.params, params),
            catalog=catalog,
            context=context,
            world=core.world,
        )
        told = {"query_name": compiled.name, **affected}
        return remembering(prepared, request, told), told

    try:
        after, told = core.write(intent, prepare, then=then)
    except AppliedBeforeError as before:
        return MutationResult.told_again(before.commit, branch=order.branch)
    return MutationResult(
        branch=order.branch,
        **told,
        actor_id=order.actor_id,
        commit=after.head if after else None,
    )


def prepare_mutation(
    plan: ir.MutationPlan,
    *,
    params: Mapping[str, Any],
    catalog: Catalog,
    context: WriteContext,
    world: World,
) -> tuple[Prepared | None, dict[str, int]]:
    """Run the statements on the context's snapshot, check the outcome and stage it (None: nothing
    changes); also how many entities were affected.

    Nothing is visible afterwards; a change that the schema forbids raises before any staging.
    """
    stored = Stored(context.snapshot, context.table)
    constants = Constants(params=params, now_ms=world.clock.now_us() // 1000)
    run = _Run(catalog, stored, constants, world)
    for statement in plan.statements:
        run.execute(statement)
    changes = {
        key: change for key, table in run.tables.items() if not (change := table.change()).is_empty
    }
    if not changes:
        return None, dict.fromkeys(run.affected, 0)
    look_up(changes, stored)
    validate(changes, catalog, stored, Findings())
    prepared = Prepared(
        staged=stage(changes, context, stored),
        relied_on=frozenset(stored.relied_on),
        strict=any(not isinstance(statement, ir.Insert) for statement in plan.statements),
    )
    return prepared, run.affected


class _Run:
    """One execution of a plan."""

    def __init__(
        self, catalog: Catalog, stored: Stored, constants: Constants, world: World
    ) -> None:
        self._catalog, self._stored, self._world = catalog, stored, world
        self._constants = constants
        self.tables: dict[str, PendingTable] = {}
        self.affected = {"affected_nodes": 0, "affected_edges": 0}

    def execute(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Insert():
                self._insert(statement)
            case ir.Update():
                self._update(statement)
            case ir.Delete():
                self._delete(statement)

    def _table(self, entity: Entity) -> PendingTable:
        if entity.table_key not in self.tables:
            self.tables[entity.table_key] = PendingTable(entity, self._stored)
        return self.tables[entity.table_key]

    def _entity(self, statement: ir.Statement) -> Entity:
        return self._catalog.type_of(f"{statement.kind}:{statement.type_name}")

    def _count(self, entity: Entity, affected: int) -> None:
        self.affected[f"affected_{entity.kind}s"] += affected

    # --- insert ---

    def _insert(self, statement: ir.Insert) -> None:
        entity = self._entity(statement)
        row: FittedRow = {prop.name: None for prop in entity.properties}
        row |= self._assigned(entity, statement.assignments)
        if isinstance(entity, EdgeType):
            row["src"] = self._endpoint(entity.from_type, "from", statement.from_id)
            row["dst"] = self._endpoint(entity.to_type, "to", statement.to_id)
        keyed = isinstance(entity, NodeType) and bool(entity.key)
        if isinstance(entity, NodeType) and keyed:
            found = Findings()
            lost = (name for name in entity.key if row[name] is None)
            found.add(missing(entity, name, None, absent=False) for name in lost)
            found.raise_if_any()
            row["id"] = canonical_id(entity, row)
        else:
            row["id"] = self._world.ids.ulid()
        self._table(entity).insert(row, fresh=not keyed)
        self._count(entity, 1)

    def _endpoint(self, node_type: str, side: str, value: ir.Expr | None) -> str:
        text = None if value is None else self._value(value)
        if not isinstance(text, str):
            raise InputError(f"an edge needs '{side}', got null", property=side)
        return respelled_id(self._catalog.nodes[node_type], text)

    def _assigned(self, entity: Entity, assignments: tuple[ir.Assignment, ...]) -> FittedRow:
        """The fitted values of assignments; all that do not fit are reported together."""
        values: FittedRow = {}
        found = Findings()
        for assignment in assignments:
            name = assignment.property
            given = self._value(assignment.value)
            value = fit(given, entity.by_name[name].type)
            if isinstance(value, Misfit):
                problem = CellProblem(row=0, message=value.message, value=given)
                found.add([misfit(entity, name, problem, None)])
            else:
                values[name] = value
        found.raise_if_any()
        return values

    def _value(self, expr: ir.Expr) -> Any:
        """The value of an expression that looks at no row, as `fit` takes it."""
        if is_constant(expr):
            return self._constants.value(expr)
        return _shown(TableRows(_ONE_ROW, self._constants).values(expr))[0]

    def _computed(self, entity: Entity, assignment: ir.Assignment, rows: TableRows) -> Array:
        """The fitted values of an assignment, one for each row."""
        name = assignment.property
        made = rows.values(assignment.value)
        column, problems = judged(made, entity.by_name[name].type, _shown(made))
        found = Findings()
        found.add(misfit(entity, name, problem, None) for problem in problems)
        found.raise_if_any()
        return column

    # --- update and delete ---

    def _update(self, statement: ir.Update) -> None:
        entity = self._entity(statement)
        table = self._table(entity)
        fixed = tuple(each for each in statement.assignments if is_constant(each.value))
        values = self._assigned(entity, fixed)
        key = entity.key if isinstance(entity, NodeType) else ()
        named = [each.property for each in statement.assignments]
        if name := next((name for name in key if name in named), None):
            raise InputError(
                f"cannot update @key property '{name}' — delete and re-insert instead",
                property=name,
                type_name=entity.name,
            )
        matched = table.matching(statement.where, self._constants)
        rows = TableRows(matched, self._constants)
        computed = {
            each.property: self._computed(entity, each, rows)
            for each in statement.assignments
            if each not in fixed
        }
        table.update(matched, values, computed)
        self._count(entity, matched.num_rows)

    def _delete(self, statement: ir.Delete) -> None:
        entity = self._entity(statement)
        table = self._table(entity)
        gone = table.delete(table.matching_ids(statement.where, self._constants))
        self._count(entity, len(gone))
        if gone and isinstance(entity, NodeType):
            self._cascade(entity, gone)

    def _cascade(self, node: NodeType, gone: list[str]) -> None:
        """Delete every edge that starts or ends at one of the nodes, each once."""
        ids = pa.array(gone, pa.string())
        for edge in self._catalog.edges_touching(node.name):
            lost: dict[str, None] = {}
            for side, end in (("src", edge.from_type), ("dst", edge.to_type)):
                if end == node.name:
                    found = self._stored.rows_where_in(edge.table_key, side, ids, ["id"])
                    lost.update(dict.fromkeys(texts(found["id"])))
            if lost:
                self._count(edge, len(self._table(edge).delete(list(lost))))


# --- what the statements have done so far -----------------------------------------------------


class TableRows(Rows):
    """The rows that the `where` of a mutation looks at: columns of one table."""

    def __init__(self, table: pa.Table, constants: Constants) -> None:
        self.table = table
        self.count = table.num_rows
        self.constants = constants

    def value_of(self, var: str, name: str) -> Array:
        assert var == ir.SELF, "a statement looks at one entity at a time"
        return flat(self.table[name])

    def endpoint(self, var: str, side: str) -> Array:
        return self.value_of(var, side)

    def at(self, numbers: npt.NDArray[np.int64]) -> TableRows:
        return TableRows(picked(self.table, numbers), self.constants)

    def matching(self, where: ir.Expr) -> pa.Table:
        """The rows for which the condition is true."""
        keep = holding([where], self)
        return self.table if keep.all() else self.table.filter(pa.array(keep))


_ONE_ROW = pa.table({"id": pa.nulls(1, pa.string())})


def _shown(values: Array) -> list[Any]:
    """The values as `fit` takes them: days and moments by their numbers."""
    found: list[Any] = counted(values).to_pylist()
    return found


def columns_of(where: ir.Expr) -> frozenset[str]:
    """The columns that the condition looks at."""
    names = (column_of(part) for part in ir.walk(where))
    return frozenset(name for name in names if name is not None)


class PendingTable:
    """What a mutation has done so far to one table: rows that shadow stored ones, and deletions.

    Rows are Arrow tables with the columns of `batch_schema`. A later statement sees pending rows
    first and stored rows only where nothing shadows them.
    """

    def __init__(self, entity: Entity, stored: Stored) -> None:
        self.entity = entity
        self._stored = stored
        self._schema = batch_schema(entity)
        self._put_rows = self._schema.empty_table()  # each id once
        self._inserted: dict[str, FittedRow] = {}  # by id: newer than those, not yet in Arrow
        self._fresh: set[str] = set()
        self._deleted: set[str] = set()
        self._touched: set[str] | None = set()

    def insert(self, row: FittedRow, *, fresh: bool) -> None:
        """Put a whole new row; `fresh` ids were made by us and cannot be stored."""
        self._inserted[row["id"]] = row
        self._touched = None
        if fresh:
            self._fresh.add(row["id"])

    def update(self, rows: pa.Table, values: FittedRow, computed: Mapping[str, Array]) -> None:
        """Put the rows with some values set: one for all rows, or one for each."""
        if not rows.num_rows:
            return
        columns: dict[str, Any] = {name: rows[name] for name in self._schema.names}
        for name, value in values.items():
            cell = from_fitted([value], self.entity.by_name[name].type)
            columns[name] = picked(cell, np.zeros(rows.num_rows, dtype=np.int64))
        columns |= computed
        self._put(pa.table(columns, schema=self._schema))
        if self._touched is not None:
            self._touched |= values.keys() | computed.keys()

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Remove rows; those of them that were not removed before."""
        new = [entity_id for entity_id in ids if entity_id not in self._deleted]
        self._deleted.update(new)
        self._touched = None
        self._put_rows = _without(self._rows(), new)
        return new

    def matching(self, where: ir.Expr, constants: Constants) -> pa.Table:
        """The rows, pending or stored, for which the condition is true."""
        pending = TableRows(self._rows(), constants).matching(where)
        stored, row_ids = self._stored_matching(where, constants, self._schema.names)
        table = self._stored.table(self.entity.table_key)
        whole = written_rows(self.entity, stored, lambda name: table.blobs(name, row_ids))
        return pa.concat_tables([pending, whole])

    def matching_ids(self, where: ir.Expr, constants: Constants) -> list[str]:
        """The ids of the rows for which the condition is true."""
        pending = TableRows(self._rows(), constants).matching(where)
        stored, _ = self._stored_matching(where, constants, ["id"])
        return [*texts(pending["id"]), *texts(stored["id"])]

    def change(self) -> TableChange:
        """Everything so far, as the validator and the stager want it."""
        rows = self._rows()
        fresh = rows.num_rows > 0 and not self._deleted
        return TableChange(
            entity=self.entity,
            rows=rows,
            deleted=frozenset(self._deleted),
            fresh=fresh and self._fresh.issuperset(texts(rows["id"])),
            touched=None if self._touched is None else frozenset(self._touched),
        )

    def _rows(self) -> pa.Table:
        """The pending rows, each id once."""
        if self._inserted:
            rows = list(self._inserted.values())
            self._inserted = {}
            columns = []
            for name in self._schema.names:
                prop, values = self.entity.by_name.get(name), [row[name] for row in rows]
                columns.append(
                    from_fitted(values, prop.type) if prop else pa.array(values, pa.string())
                )
            self._put(pa.Table.from_arrays(columns, schema=self._schema))
        return self._put_rows

    def _put(self, rows: pa.Table) -> None:
        """Add rows, each id once; what is pending of their ids is replaced in its place."""
        before = self._put_rows
        self._put_rows = pa.concat_tables([before, rows])
        if before.num_rows:
            last = {entity_id: at for at, entity_id in enumerate(texts(self._put_rows["id"]))}
            self._put_rows = picked(self._put_rows, list(last.values()))

    def _stored_matching(
        self, where: ir.Expr, constants: Constants, columns: Sequence[str]
    ) -> tuple[pa.Table, list[int]]:
        """The stored rows that nothing shadows and for which the condition is true, and their row
        ids. Blobs are no columns here: they are read by row id."""
        key = self.entity.table_key
        needed = columns_of(where).union(columns)
        found = self._stored.placed_rows(
            key,
            [
                field.name
                for field in self._schema
                if field.name in needed and field.type != BLOB_CELL
            ],
            where=push_down([where], constants).where,
            among=listed_values(where, constants),
        )
        found = _without(found, [*texts(self._rows()["id"]), *self._deleted])
        # Storage may have looked up a part of the condition only: all of it is judged here.
        matched = TableRows(found, constants).matching(where)
        return matched, self._stored.remember_places(key, matched)


def _without(rows: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The rows that have none of these ids."""
    if not ids or not rows.num_rows:
        return rows
    gone: Any = pc.is_in(rows["id"], value_set=pa.array(ids, pa.string()))
    return rows.filter(pc.invert(gone))
