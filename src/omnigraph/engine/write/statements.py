"""The statements of a mutation, run in order into pending rows.

A row of the match, an item of a `for` and entities that were inserted before are parameters of a
statement, beside those of the query. So a statement that runs for a thousand rows is the same as
one that runs once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, counted
from omnigraph.engine.check.findings import Findings, Place
from omnigraph.engine.check.rules import Entity, misfit, missing
from omnigraph.engine.expr.evaluate import Constants, is_constant
from omnigraph.engine.read.run import GivenRows
from omnigraph.engine.rows.blobs import BlobBases
from omnigraph.engine.rows.columns import CellProblem, judged
from omnigraph.engine.rows.keys import canonical_id, respelled_id
from omnigraph.engine.write.pending import FittedRow, Pending, TableRows
from omnigraph.errors import InputError
from omnigraph.model.ports import World
from omnigraph.model.schema import EdgeType, NodeType, Scalar
from omnigraph.model.values import Misfit, fit
from omnigraph.storage.lance.columns import value_type
from omnigraph.storage.table.read import texts

Known = dict[str, Any]  # what statements know of a row, by the names of parameters


def placed(error: InputError, place: Place) -> InputError:
    """The error of a statement with the place of it; one that names a place already is as it is."""
    if type(error) is not InputError or "statement" in error.facts:
        return error
    facts = {**error.facts, **place.facts}
    return InputError(f"{error.message}, in {place}", hint=error.hint, **facts)


class Execution:
    """One run of a plan. `source` says which of several queries it is, for messages."""

    def __init__(
        self, pending: Pending, constants: Constants, world: World, *, source: str = ""
    ) -> None:
        self._pending, self._world, self._source = pending, world, source
        self._bases = BlobBases.of(world.blob_bases)
        self._catalog = pending.catalog
        self._constants = self._base = constants
        self._place: Place | None = None
        self._going: dict[str, dict[str, Place]] = {}  # what deletes found, by table
        self._changed: set[tuple[int, str]] = set()  # statements and what they found and changed
        self._last: list[str] = []  # what the last update or delete by condition met
        self.affected = {"affected_nodes": 0, "affected_edges": 0}
        self.ids: list[str] = []  # of what was inserted, in order
        self.rows: list[Known] = []  # what was known at the end of each row

    def run(self, plan: ir.MutationPlan, found: pa.Table | None) -> None:
        """Carry out the plan; `found` are the rows of its match, if it has one."""
        known: list[Known] = [{}] if plan.match is None else list(_found(plan.match, found))
        self._look_ahead(plan, known)
        for row in known:
            self._run(plan.statements, row, keep=plan.returning is not None)
        for table_key, going in self._going.items():
            self._remove(self._catalog.type_of(table_key), going)
        self._pending.version += 1

    def returned(self, returning: ir.Returning) -> GivenRows:
        """The rows that `returning` looks at."""
        if None in returning.ids.values():
            fixed, count = self.rows[-1] if self.rows else {}, len(self._last)
            found = {
                var: list[str | None](self._last) if name is None else [fixed.get(name)] * count
                for var, name in returning.ids.items()
            }
            return GivenRows(count=count, entities=found)
        ids = {var: str(name) for var, name in returning.ids.items()}
        return GivenRows(
            count=len(self.rows),
            entities={var: [row.get(name) for row in self.rows] for var, name in ids.items()},
            values={
                name: pa.array([row[param.name] for row in self.rows], value_type(param.type))
                for name, param in returning.values.items()
            },
        )

    def _run(self, statements: Sequence[ir.Statement], known: Known, *, keep: bool) -> None:
        last = statements[-1]
        for statement in statements:
            if not isinstance(statement, ir.Loop):
                self._execute(statement, known)
                continue
            for item in self._items(statement):
                inner = {**known, **item}
                for one in statement.statements:
                    self._execute(one, inner)
                if keep and statement is last:
                    self.rows.append(inner)
        if keep and not isinstance(last, ir.Loop):
            self.rows.append(known)

    def _items(self, loop: ir.Loop) -> Iterator[Known]:
        for item in self._base.params[loop.items] or ():
            if loop.fields is None:
                yield {loop.name: item}
            else:
                yield {f"{loop.name}.{name}": (item or {}).get(name) for name in loop.fields}

    def place(self, number: int, line: int) -> Place:
        """Where the statement of that number is."""
        at = (self._pending.version, number)
        return Place(word="statement", number=number, line=line, source=self._source, at=at)

    def _execute(self, statement: ir.Simple, known: Known) -> None:
        self._know(known)
        self._place = self.place(statement.number, statement.line)
        try:
            self._carry_out(statement, known)
        except InputError as error:
            raise placed(error, self._place) from error

    def _carry_out(self, statement: ir.Simple, known: Known) -> None:
        entity = self._catalog.type_of(f"{statement.kind}:{statement.type_name}")
        match statement:
            case ir.Insert():
                self._insert(statement, entity, known)
            case ir.Update():
                self._update(statement, entity)
            case ir.UpdateFound():
                self._update_found(statement, entity)
            case ir.Delete():
                table = self._pending.table(entity)
                self._last = table.matching_ids(statement.where, self._constants)
                assert self._place is not None, "it is a statement that deletes"
                self._remove(entity, dict.fromkeys(self._last, self._place))
            case ir.DeleteFound():
                found = self._constants.value(statement.entity)
                if found is not None:
                    assert self._place is not None, "it is a statement that deletes"
                    self._going.setdefault(entity.table_key, {}).setdefault(found, self._place)

    def _know(self, known: Known) -> None:
        self._constants = self._base
        if known:
            params = {**self._base.params, **known}
            self._constants = Constants(params=params, now_ms=self._base.now_ms)

    def _count(self, entity: Entity, affected: int) -> None:
        self.affected[f"affected_{entity.kind}s"] += affected

    # --- insert ---

    def _insert(self, statement: ir.Insert, entity: Entity, known: Known) -> None:
        given = self._assigned(entity, statement.assignments)
        table = self._pending.table(entity)
        ends = self._ends(statement, entity)
        entity_id = self._identity(entity, given)
        there = None
        if statement.mode != "put" and isinstance(entity, EdgeType):
            there = table.between(ends["src"], ends["dst"])
        elif statement.mode != "put":
            there = entity_id if table.has(entity_id) else None
        row: FittedRow = {prop.name: None for prop in entity.properties}
        row |= given
        row |= {"id": there or entity_id, **ends}
        if there is None:
            if statement.mode == "upsert":
                row |= self._assigned(entity, statement.defaults)
            keyed = isinstance(entity, NodeType) and bool(entity.key)
            table.insert(row, fresh=not keyed)
            self.ids.append(entity_id)
        elif statement.mode == "upsert":
            key = entity.key if isinstance(entity, NodeType) else ()
            table.patch(there, {name: cell for name, cell in given.items() if name not in key})
        if statement.mode != "nothing" or there is None:
            assert self._place is not None, "it is a statement that inserts"
            table.places[row["id"]] = self._place
            self._count(entity, 1)
        if statement.name is not None:
            known[statement.name] = row["id"]
            known |= {f"{statement.name}.{prop.name}": row[prop.name] for prop in entity.properties}

    def _ends(self, statement: ir.Insert, entity: Entity) -> dict[str, str]:
        if not isinstance(entity, EdgeType):
            return {}
        return {
            "src": self._endpoint(entity.from_type, "from", statement.from_id),
            "dst": self._endpoint(entity.to_type, "to", statement.to_id),
        }

    def _identity(self, entity: Entity, given: FittedRow) -> str:
        if not isinstance(entity, NodeType) or not entity.key:
            return self._world.ids.ulid()
        found = Findings()
        lost = (name for name in entity.key if given.get(name) is None)
        found.add(missing(entity, name, self._place, absent=False) for name in lost)
        found.raise_if_any()
        return canonical_id(entity, given)

    def _endpoint(self, node_type: str, side: str, value: ir.Expr | None) -> str:
        text = None if value is None else self._value(value)
        if not isinstance(text, str):
            raise InputError(f"an edge needs '{side}', got null", property=side)
        return respelled_id(self._catalog.nodes[node_type], text)

    def _assigned(self, entity: Entity, assignments: Sequence[ir.Assignment]) -> FittedRow:
        """The fitted values of assignments; all that do not fit are reported together."""
        values: FittedRow = {}
        found = Findings()
        for assignment in assignments:
            name = assignment.property
            given = self._value(assignment.value)
            value = fit(given, entity.by_name[name].type)
            if isinstance(value, Misfit):
                problem = CellProblem(row=0, message=value.message, value=given)
                found.add([misfit(entity, name, problem, self._place)])
            else:
                values[name] = value
        found.raise_if_any()
        if self._bases is not None:
            self._bases.admit_cells(values.values())
        return values

    def _value(self, expr: ir.Expr) -> Any:
        """The value of an expression that looks at no row, as `fit` takes it."""
        if is_constant(expr):
            return self._constants.value(expr)
        return _shown(TableRows(_ONE_ROW, self._constants).values(expr))[0]

    def _look_ahead(self, plan: ir.MutationPlan, known: Sequence[Known]) -> None:
        """Ask storage once for all that upserts of many rows will want to know."""
        for statement in plan.statements:
            loop = statement if isinstance(statement, ir.Loop) else None
            for one in loop.statements if loop else (statement,):
                if not isinstance(one, ir.Insert) or one.mode == "put":
                    continue
                rows: list[Known] = list(known)
                if loop is not None:
                    rows = [{**row, **item} for row in known for item in self._items(loop)]
                if len(rows) > 1:
                    self._look_for(one, rows)

    def _look_for(self, statement: ir.Insert, rows: Sequence[Known]) -> None:
        entity = self._catalog.type_of(f"{statement.kind}:{statement.type_name}")
        table = self._pending.table(entity)
        names = rows[0].keys() | self._base.params.keys()
        key = entity.key if isinstance(entity, NodeType) else ()
        told = [one for one in statement.assignments if one.property in key]
        wanted = [one.value for one in told] + [
            end for end in (statement.from_id, statement.to_id) if end is not None
        ]
        params = (part for expr in wanted for part in ir.walk(expr) if isinstance(part, ir.Param))
        if any(param.name not in names for param in params):
            return  # it stands for something that is only about to be inserted
        ids, pairs = list[str](), list[tuple[str, str]]()
        for row in rows:
            self._know(row)
            if isinstance(entity, EdgeType):
                ends = self._ends(statement, entity)
                pairs.append((ends["src"], ends["dst"]))
            else:
                given = self._assigned(entity, told)
                if all(given.get(name) is not None for name in key):
                    ids.append(canonical_id(entity, given))
        table.look_between(pairs)
        table.look_for(dict.fromkeys(ids))

    # --- update and delete ---

    def _update(self, statement: ir.Update, entity: Entity) -> None:
        table = self._pending.table(entity)
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
        self._last = texts(matched["id"])
        assert self._place is not None, "it is a statement that updates"
        table.places.update(dict.fromkeys(self._last, self._place))
        self._count(entity, matched.num_rows)

    def _computed(self, entity: Entity, assignment: ir.Assignment, rows: TableRows) -> Array:
        """The fitted values of an assignment, one for each row."""
        name = assignment.property
        made = rows.values(assignment.value)
        column, problems = judged(made, entity.by_name[name].type, _shown(made))
        found = Findings()
        found.add(misfit(entity, name, problem, self._place) for problem in problems)
        found.raise_if_any()
        if self._bases is not None and entity.by_name[name].type.scalar is Scalar.BLOB:
            self._bases.admit_column(column)
        return column

    def _update_found(self, statement: ir.UpdateFound, entity: Entity) -> None:
        """Of several rows that set a value of one entity the last one counts."""
        entity_id = self._constants.value(statement.entity)
        if entity_id is None:
            return
        table = self._pending.table(entity)
        table.patch(entity_id, self._assigned(entity, statement.assignments))
        assert self._place is not None, "it is a statement that updates"
        table.places[entity_id] = self._place
        if (statement.number, entity_id) not in self._changed:
            self._changed.add((statement.number, entity_id))
            self._count(entity, 1)

    def _remove(self, entity: Entity, going: Mapping[str, Place]) -> None:
        table = self._pending.table(entity)
        gone = table.delete(list(going))
        table.places.update({one: going[one] for one in gone})
        self._count(entity, len(gone))
        if isinstance(entity, NodeType):
            for place in dict.fromkeys(going[one] for one in gone):
                self._cascade(entity, [one for one in gone if going[one] == place], place)

    def _cascade(self, node: NodeType, gone: list[str], place: Place) -> None:
        """Delete every edge that starts or ends at one of the nodes, each once."""
        ids = pa.array(gone, pa.string())
        for edge in self._catalog.edges_touching(node.name):
            table = self._pending.table(edge)
            lost: dict[str, None] = {}
            for side, end in (("src", edge.from_type), ("dst", edge.to_type)):
                if end == node.name:
                    lost.update(dict.fromkeys(table.touching(side, ids)))
            if lost:
                edges = table.delete(list(lost))
                table.places.update(dict.fromkeys(edges, place))
                self._count(edge, len(edges))


_ONE_ROW = pa.table({"id": pa.nulls(1, pa.string())})


def _shown(values: Array) -> list[Any]:
    """The values as `fit` takes them: days and moments by their numbers."""
    found: list[Any] = counted(values).to_pylist()
    return found


def _found(plan: ir.ReadPlan, rows: pa.Table | None) -> Iterator[Known]:
    """The rows of a match as parameters: dates as such, moments by their numbers."""
    assert rows is not None, "a mutation with a match was given its rows"
    names = [column.name for column in plan.columns]
    cells = [_bound(rows.column(name)) for name in names]
    for at in range(rows.num_rows):
        yield {name: column[at] for name, column in zip(names, cells, strict=True)}


def _bound(column: Any) -> list[Any]:
    kind: Any = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_list(kind) and pa.types.is_timestamp(kind.value_type):
        column = column.cast(pa.list_(pa.int64()))
    found: list[Any] = column.to_pylist()
    return found
