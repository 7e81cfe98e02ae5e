"""The rows of a query: Arrow first, and every other form made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

import msgspec
import pyarrow as pa

from omnigraph.compiler.text import closest
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.machine import Later, optional
from omnigraph.model.pictures.network import NODES_DRAWN_MAX, SmallGraph, draw_graph, small_graph
from omnigraph.model.structs import ROWS_SHOWN_MAX, html_block, html_table
from omnigraph.model.tables import TableStyle, table_lines
from omnigraph.model.values import json_value

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import polars as pl

    from omnigraph.model.pictures import steps as drawing
else:
    drawing = Later("omnigraph.model.pictures.steps")

Array: TypeAlias = Any  # pyarrow.Array
ArrowTable: TypeAlias = pa.Table
RecordBatch: TypeAlias = pa.RecordBatch
Schema: TypeAlias = pa.Schema

BATCH_ROWS: Final = 65_536
ROWS_PRINTED_MAX: Final = 20
CELL_PRINTED_MAX: Final = 40

# Columns with these names say themselves that they are ends; `w.src` and `w.dst` are an edge's.
_ENDS: Final = (("src", "dst"), ("from", "to"), ("source", "target"))

Pair = tuple[str, str]


class Step(msgspec.Struct):
    """One operator: what it does, how many rows were expected, how many came, how long it took."""

    name: str
    detail: str = ""
    estimated_rows: int | None = None
    rows: int | None = None
    took_ms: float | None = None
    children: list[Step] = msgspec.field(default_factory=list)


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The plan as it ran, and what it read from storage. `str()` of it is the tree."""

    root: Step
    reads: int
    rows_read: int
    columns_read: Mapping[str, list[str]]  # by table key

    def to_json(self) -> dict[str, Any]:
        return {
            **msgspec.to_builtins(self.root),
            "reads": self.reads,
            "rows_read": self.rows_read,
            "columns_read": dict(self.columns_read),
        }

    @classmethod
    def of_json(cls, body: Mapping[str, Any]) -> Explanation:
        """The explanation that `to_json` told of."""
        reads = {name: body[name] for name in ("reads", "rows_read", "columns_read")}
        return cls(root=msgspec.convert(body, Step), **reads)

    def to_svg(self) -> str:
        """The tree as a picture, with a bar for the time of each step."""
        return drawing.draw_steps(self.root)

    def _repr_html_(self) -> str:
        """For notebooks: the tree, and what was read."""
        rows = [(table, ", ".join(names)) for table, names in self.columns_read.items()]
        return html_block(
            f"{self.reads:,} reads of storage, {self.rows_read:,} rows",
            self.to_svg(),
            html_table(("table", "columns read"), rows),
        )

    def __str__(self) -> str:
        lines = list(_lines(self.root, "", ""))
        lines.append(f"storage: {self.reads} reads, {self.rows_read} rows")
        lines += [f"  {table}: {', '.join(names)}" for table, names in self.columns_read.items()]
        return "\n".join(lines)


def _lines(step: Step, lead: str, below: str) -> Iterator[str]:
    facts = []
    if step.estimated_rows is not None:
        facts.append(f"about {step.estimated_rows} rows")
    if step.rows is not None:
        facts.append(f"{step.rows} rows")
    if step.took_ms is not None:
        facts.append(f"{step.took_ms:.2f} ms")
    detail = f" {step.detail}" if step.detail else ""
    yield f"{lead}{step.name}{detail}" + (f"  [{', '.join(facts)}]" if facts else "")
    for at, child in enumerate(step.children):
        last = at == len(step.children) - 1
        yield from _lines(
            child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")
        )


class QueryResult:
    """The answer to one query, on the snapshot whose commit it names.

    Big answers are put together batch by batch as `batches()` is read; `to_arrow()` and the others
    hold everything at once.

    Examples:
        >>> result = graph.query(NAMES)
        >>> len(result), result[0], result.column("p.name")
        (3, {'p.name': 'Ada'}, ['Ada', 'Bob', 'Cem'])
        >>> print(result)
        p.name
        ------
        Ada
        Bob
        Cem
    """

    def __init__(
        self,
        *,
        schema: Schema,
        row_count: int,
        graph_commit_id: str,
        make: Callable[[int, int], Sequence[Array]],
    ) -> None:
        self._schema = schema
        self._make = make
        self._held: Sequence[Array] | None = None  # all columns, once somebody asked for them
        self.row_count = row_count
        self.graph_commit_id = graph_commit_id
        self.explanation: Explanation | None = None

    @classmethod
    def of_table(cls, table: ArrowTable, *, graph_commit_id: str) -> QueryResult:
        """A result all of whose rows are there."""
        return cls(
            schema=table.schema,
            row_count=table.num_rows,
            graph_commit_id=graph_commit_id,
            make=slices_of(table.columns),
        )

    @property
    def columns(self) -> list[str]:
        """The column names, in the order written."""
        return list(self._schema.names)

    @property
    def schema(self) -> Schema:
        return self._schema

    def __len__(self) -> int:
        return self.row_count

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: Any) -> dict[str, Any] | list[dict[str, Any]]:
        """The row at a place, or the rows of a slice, as dictionaries."""
        if isinstance(index, slice):
            places = range(self.row_count)[index]
            if places.step == 1:
                return self._rows(places.start, max(places.start, places.stop)).to_pylist()
            return self.to_arrow().take(list(places)).to_pylist()
        if isinstance(index, str):
            raise InputError(
                f"rows are found by their place, got '{index}'",
                hint=f'result.column("{index}") is a column, result[0]["{index}"] a value',
            )
        try:
            place = range(self.row_count)[index]  # as for a list, also from the end
        except IndexError:
            raise IndexError(
                f"there is no row {index}: the answer has {self.row_count:,}"
            ) from None
        row: dict[str, Any] = self._rows(place, place + 1).to_pylist()[0]
        return row

    def one(self) -> dict[str, Any]:
        """The only row. `NotFoundError` if there is none, `InputError` if there are more.

        Examples:
            >>> graph.query("query q() { match { $p: Person } return { count($p) as n } }").one()
            {'n': 3}
        """
        if self.row_count == 0:
            raise NotFoundError("the answer has no row, and one was asked for", kind="row", name="")
        if self.row_count > 1:
            raise InputError(
                f"the answer has {self.row_count:,} rows, and one was asked for",
                hint="result[0] is the first of them",
            )
        return self[0]

    def scalar(self) -> Any:
        """The value of the only row of the only column, for questions such as `count(*)`.

        Examples:
            >>> graph.query("query q() { match { $p: Person } return { avg($p.age) } }").scalar()
            33.0
        """
        if len(self.columns) != 1:
            raise InputError(
                f"the answer has the columns {', '.join(self.columns)}, and one was asked for",
                hint="result.one() is the whole row",
            )
        return self.one()[self.columns[0]]

    def column(self, name: str) -> list[Any]:
        """The values of one column, in order, as Python values; `InputError` if there is none of
        that name.

        Examples:
            >>> graph.query(NAMES).column("p.name")
            ['Ada', 'Bob', 'Cem']
        """
        if name not in self.columns:
            near = closest(name, self.columns)
            raise InputError(
                f"there is no column '{name}'",
                hint=f"did you mean '{near}'?" if near else f"there are {', '.join(self.columns)}",
            )
        values: list[Any] = self.to_arrow().column(name).to_pylist()
        return values

    def __repr__(self) -> str:
        return f"QueryResult({self.row_count} rows, columns {self.columns})"

    def __str__(self) -> str:
        """The first rows as a table."""
        shown = self._rows(0, min(self.row_count, ROWS_PRINTED_MAX)).to_pylist()
        rows = [{name: json_value(value) for name, value in row.items()} for row in shown]
        style = TableStyle(column_width_max=CELL_PRINTED_MAX)
        lines = list(table_lines(self.columns, rows, style=style))
        if self.row_count > len(rows):
            lines.append(f"… and {self.row_count - len(rows):,} more rows")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self.to_arrow(), self.graph_commit_id, self.explanation)
        return (_restored, state)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for whoever takes Arrow streams (Polars, DuckDB, pandas …), without a copy."""
        table: Any = self.to_arrow()  # the stubs do not know the types of the protocol
        return table.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> ArrowTable:
        """All rows as an Arrow table, which the other forms are made of.

        Examples:
            >>> graph.query(NAMES).to_arrow().num_rows
            3
        """
        return ArrowTable.from_arrays([*self._whole()], schema=self._schema)

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[RecordBatch]:
        """The rows in order as Arrow batches, at most `rows` at a time.

        Examples:
            >>> [batch.num_rows for batch in graph.query(NAMES).batches(2)]
            [2, 1]
        """
        for first in range(0, self.row_count, rows):
            table = self._rows(first, min(first + rows, self.row_count))
            yield from table.combine_chunks().to_batches()

    def _rows(self, first: int, last: int) -> ArrowTable:
        """Some of the rows; a big answer is not put together for its first page."""
        make = self._make if self._held is None else slices_of(self._held)
        return ArrowTable.from_arrays([*make(first, last)], schema=self._schema)

    def _whole(self) -> Sequence[Array]:
        if self._held is None:
            self._held = self._make(0, self.row_count)
        return self._held

    def to_pylist(self) -> list[dict[str, Any]]:
        """Rows as dictionaries of Python values (dates and times as `datetime` objects).

        Examples:
            >>> graph.query(NAMES).to_pylist()[0]
            {'p.name': 'Ada'}
        """
        name, *names = self._schema.names
        first, *others = (column.to_pylist() for column in self._whole())
        rows = [{name: cell} for cell in first]
        # Column by column: a `dict(zip(…))` for each row takes two to ten times as long.
        for name, cells in zip(names, others, strict=True):
            for row, cell in zip(rows, cells, strict=True):
                row[name] = cell
        return rows

    def to_json_rows(self) -> list[dict[str, Any]]:
        """Rows as JSON values, as a server answers: dates and times as ISO text.

        Examples:
            >>> graph.query(NAMES).to_json_rows()[0]
            {'p.name': 'Ada'}
        """
        return [
            {name: json_value(value) for name, value in row.items()} for row in self.to_pylist()
        ]

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas frame; needs `pip install 'omnigraph[pandas]'`.

        Examples:
            >>> graph.query(NAMES).to_pandas().shape
            (3, 1)
        """
        optional("pandas", use="to_pandas()")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """The rows as a Polars frame, without a copy; needs `pip install 'omnigraph[polars]'`.

        Examples:
            >>> graph.query(NAMES).to_polars().shape
            (3, 1)
        """
        frame: pl.DataFrame = optional("polars", use="to_polars()").from_arrow(self.to_arrow())
        return frame

    def to_networkx(
        self, *, source: str | None = None, target: str | None = None
    ) -> nx.MultiDiGraph:
        """A directed networkx graph with an edge a row, from the `source` to the `target` column.

        Columns that speak for themselves need not be named: `src` and `dst`, or the same property
        of two variables (`$a.name, $b.name`). The other columns become attributes. Needs
        `pip install 'omnigraph[networkx]'`.

        Examples:
            >>> source = "query q() { match { $a: Person $a knows $b } return { $a.name, $b.name }}"
            >>> sorted(graph.query(source).to_networkx().edges())
            [('Ada', 'Bob'), ('Bob', 'Cem')]
        """
        ends = chosen_ends(self.columns, source, target)
        network = optional("networkx", use="to_networkx()").MultiDiGraph()
        return fill_network(network, ends, self.to_pylist())

    def _repr_html_(self) -> str:
        """For notebooks: the first rows, and a drawing if they are the edges of a small graph."""
        rows = self._rows(0, min(self.row_count, NODES_DRAWN_MAX**2 + 1)).to_pylist()
        graph = drawable(self.columns, rows)
        shown = [[json_value(cell) for cell in row.values()] for row in rows[:ROWS_SHOWN_MAX]]
        return html_block(
            f"{self.row_count:,} rows at commit {self.graph_commit_id}",
            "" if graph is None else draw_graph(graph),
            html_table(self.columns, shown, total=self.row_count),
        )


def _restored(
    table: ArrowTable, graph_commit_id: str, explanation: Explanation | None
) -> QueryResult:
    """A result that came from another process, with all its rows."""
    found = QueryResult.of_table(table, graph_commit_id=graph_commit_id)
    found.explanation = explanation
    return found


def slices_of(columns: Sequence[Array]) -> Callable[[int, int], Sequence[Array]]:
    """The rows from one number to another, of columns that are there."""

    def some(first: int, last: int) -> Sequence[Array]:
        if last - first == len(columns[0]):
            return columns
        return [column.slice(first, last - first) for column in columns]

    return some


# --- rows as a network -------------------------------------------------------------------------


def ends_of(columns: Sequence[str]) -> Pair | None:
    """The columns of the two ends of each row's edge, if their names speak of them.

    Either two columns are called `src` and `dst`, `from` and `to`, or `source` and `target` (also
    behind the same variable), or two variables show the same property: `a.name` and `b.name`.
    """
    parts = {name: (name.rpartition(".")[0], name.rpartition(".")[2]) for name in columns}
    for one, other in combinations(columns, 2):
        (a_var, a), (b_var, b) = parts[one], parts[other]
        if a_var == b_var and ((a, b) in _ENDS or (b, a) in _ENDS):
            return (one, other) if (a, b) in _ENDS else (other, one)
    for one, other in combinations(columns, 2):
        (a_var, a), (b_var, b) = parts[one], parts[other]
        if a_var and b_var and a_var != b_var and a == b:
            return one, other
    return None


def chosen_ends(columns: Sequence[str], source: str | None, target: str | None) -> Pair:
    """The columns the caller named, or those that speak for themselves; else `InputError`."""
    if source is None and target is None:
        found = ends_of(columns)
        if found is None:
            raise InputError(
                f"the columns {list(columns)} do not say which two are the ends of an edge",
                hint="pass source= and target=, or return the same property of two variables",
            )
        return found
    if source is None or target is None:
        raise InputError("source and target go together", hint="pass both, or neither")
    for name in (source, target):
        if name not in columns:
            raise InputError(f"there is no column '{name}'", hint=f"use {', '.join(columns)}")
    return source, target


def drawable(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> SmallGraph | None:
    """The rows as a graph to draw, if they are edges and few."""
    ends = ends_of(columns)
    # Each row brings at most two nodes; many rows can still be few nodes, very many cannot.
    if ends is None or not 0 < len(rows) <= NODES_DRAWN_MAX**2:
        return None
    source, target = ([None if row[end] is None else str(row[end]) for row in rows] for end in ends)
    graph = small_graph(zip(source, target, strict=True))
    return graph if graph.is_small else None


def fill_network(network: Any, ends: Pair, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Add every row to a networkx graph as an edge.

    Columns of an end's own variable become that node's attributes, all others the edge's.
    """
    owners = {side.rpartition(".")[0]: side for side in ends}
    same = len(owners) == 1  # `w.src` and `w.dst`: the other columns of `w` are the edge's
    for row in rows:
        source, target = (row[side] for side in ends)
        attributes: dict[str, dict[str, Any]] = {side: {} for side in (*ends, "")}
        for name, value in row.items():
            if name in ends:
                continue
            variable, dot, property_name = name.rpartition(".")
            owner = owners[variable] if dot and not same and variable in owners else ""
            attributes[owner][property_name if dot else name] = value
        for side in ends:
            if row[side] is not None:
                network.add_node(row[side], **attributes[side])
        if source is not None and target is not None:
            network.add_edge(source, target, **attributes[""])
    return network
