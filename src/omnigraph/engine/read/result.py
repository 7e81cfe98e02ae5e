"""The rows of a query: Arrow first, and every other form made from it, down to a picture.

The picture is SVG text. It is computed without chance, so that it is the same every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, overload

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.compiler.text import closest
from omnigraph.engine.arrow import ArrowTable, RecordBatch, Schema
from omnigraph.engine.read.context import Explanation
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.machine import optional
from omnigraph.model.structs import ROWS_SHOWN_MAX, html_block, html_table
from omnigraph.model.tables import TableStyle, table_lines
from omnigraph.model.values import json_value

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import polars as pl

BATCH_ROWS: Final = 65_536
ROWS_PRINTED_MAX: Final = 20
CELL_PRINTED_MAX: Final = 40
NODES_DRAWN_MAX: Final = 60
EDGES_DRAWN_MAX: Final = 240
LABEL_CHARACTERS_MAX: Final = 24
LAYOUT_ROUNDS: Final = 120
COLOURS: Final = (
    *("#3b6ea5", "#c8553d", "#5b8c5a", "#8e6c8a", "#d9a441"),
    *("#2a9d9d", "#7a7a7a", "#b5567d", "#6b5b2e", "#86a63c"),
)
WIDTH: Final = 760
_HEIGHT, _MARGIN, _LEGEND = 460, 40, 130

# Columns with these names say themselves that they are ends; `w.src` and `w.dst` are an edge's.
_ENDS: Final = (("src", "dst"), ("from", "to"), ("source", "target"))

Pair = tuple[str, str]
Point = tuple[float, float]


class QueryResult:
    """The answer to one query, on the snapshot whose commit it names.

    Big answers are put together batch by batch as `batches()` is read; `to_arrow()` and the others
    hold everything at once.
    """

    def __init__(
        self,
        *,
        schema: Schema,
        row_count: int,
        graph_commit_id: str,
        make: Callable[[int, int], ArrowTable],
    ) -> None:
        self._schema = schema
        self._make = make
        self._table: ArrowTable | None = None
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
            make=lambda first, last: table.slice(first, last - first),
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
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        """The row at a place, or the rows of a slice, as dictionaries."""
        if isinstance(index, slice):
            places = range(self.row_count)[index]
            if places.step == 1:
                return self._rows(places.start, max(places.start, places.stop)).to_pylist()
            return self.to_arrow().take(list(places)).to_pylist()
        place = range(self.row_count)[index]  # IndexError as for a list, and places from the end
        row: dict[str, Any] = self._rows(place, place + 1).to_pylist()[0]
        return row

    def one(self) -> dict[str, Any]:
        """The only row. `NotFoundError` if there is none, `InputError` if there are more."""
        if self.row_count == 0:
            raise NotFoundError("the answer has no row, and one was asked for", kind="row", name="")
        if self.row_count > 1:
            raise InputError(
                f"the answer has {self.row_count:,} rows, and one was asked for",
                hint="result[0] is the first of them",
            )
        return self[0]

    def scalar(self) -> Any:
        """The value of the only row of the only column, for questions such as `count(*)`."""
        if len(self.columns) != 1:
            raise InputError(
                f"the answer has the columns {', '.join(self.columns)}, and one was asked for",
                hint="result.one() is the whole row",
            )
        return self.one()[self.columns[0]]

    def column(self, name: str) -> list[Any]:
        """The values of one column, in order, as Python values."""
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
        if self._table is None:
            self._table = self._make(0, self.row_count)
        return self._table

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[RecordBatch]:
        """The rows in order, at most `rows` at a time."""
        for first in range(0, self.row_count, rows):
            table = self._rows(first, min(first + rows, self.row_count))
            yield from table.combine_chunks().to_batches()

    def _rows(self, first: int, last: int) -> ArrowTable:
        """Some of the rows; a big answer is not put together for its first page."""
        if self._table is None:
            return self._make(first, last)
        return self._table.slice(first, last - first)

    def to_pylist(self) -> list[dict[str, Any]]:
        """Rows as dictionaries of Python values (dates and times as `datetime` objects)."""
        return self.to_arrow().to_pylist()

    def to_json_rows(self) -> list[dict[str, Any]]:
        """Rows as JSON values: see `json_value`."""
        return [
            {name: json_value(value) for name, value in row.items()} for row in self.to_pylist()
        ]

    def to_pandas(self) -> pd.DataFrame:
        optional("pandas", use="to_pandas()")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        frame: pl.DataFrame = optional("polars", use="to_polars()").from_arrow(self.to_arrow())
        return frame

    def to_networkx(
        self, *, source: str | None = None, target: str | None = None
    ) -> nx.MultiDiGraph:
        """A directed networkx graph with an edge a row, from the `source` to the `target` column.

        Columns that speak for themselves need not be named: `src` and `dst`, or the same property
        of two variables (`$a.name, $b.name`). The other columns become attributes.
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


# --- the picture -------------------------------------------------------------------------------


class SmallGraph(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn: nodes by name, directed edges between them, and a group for each colour."""

    nodes: tuple[str, ...]
    edges: tuple[Pair, ...]
    groups: Mapping[str, str]

    @property
    def is_small(self) -> bool:
        """Whether a drawing of it would be readable."""
        return 0 < len(self.nodes) <= NODES_DRAWN_MAX and len(self.edges) <= EDGES_DRAWN_MAX


def small_graph(
    pairs: Iterable[tuple[str | None, str | None]], groups: Mapping[str, str] | None = None
) -> SmallGraph:
    """The graph of these pairs; a pair with one end missing is a node without that edge."""
    nodes: dict[str, None] = {}
    edges: dict[Pair, None] = {}
    for source, target in pairs:
        nodes.update((end, None) for end in (source, target) if end is not None)
        if source is not None and target is not None:
            edges[source, target] = None
    return SmallGraph(nodes=tuple(nodes), edges=tuple(edges), groups=groups or {})


def draw_graph(graph: SmallGraph) -> str:
    """Nodes as dots with names, edges as arrows; nodes pull along edges and push otherwise."""
    places = _layout(graph)
    kinds = sorted({graph.groups.get(node, "") for node in graph.nodes})
    colour = {kind: COLOURS[index % len(COLOURS)] for index, kind in enumerate(kinds)}
    parts = [_arrow(places[a], places[b]) for a, b in graph.edges if a != b]
    for node in graph.nodes:
        x, y = places[node]
        fill = colour[graph.groups.get(node, "")]
        parts.append(
            f'<g><title>{escaped(node)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="5" '
            f'fill="{fill}"/><text x="{x + 7:.1f}" y="{y + 4:.1f}">{label(node)}</text></g>'
        )
    for index, kind in enumerate(kinds):
        if kind:
            y = 16 + 16 * index
            parts.append(
                f'<circle cx="12" cy="{y - 4}" r="5" fill="{colour[kind]}"/>'
                f'<text x="22" y="{y}">{label(kind)}</text>'
            )
    return svg(WIDTH, _HEIGHT, parts, title="graph")


def _layout(graph: SmallGraph) -> dict[str, Point]:
    """A spring layout from a circle: no chance in it, so a picture can be compared.

    Fruchterman and Reingold's forces; in a round no node moves more than `step`.
    """
    count = len(graph.nodes)
    index = {node: number for number, node in enumerate(graph.nodes)}
    links = np.zeros((count, count))
    for a, b in graph.edges:
        links[index[a], index[b]] += a != b
    links += links.T
    # Well-connected parts would collapse under the sum of their pulls, so those share one.
    degree = links.sum(axis=1)
    links *= 2 / np.maximum(degree[:, None] + degree, 1)
    # The golden angle keeps neighbours in the list apart and breaks every symmetry.
    turns, far = np.arange(count) * 2.399963, np.sqrt(np.arange(1, count + 1) / count)
    places = np.stack([np.cos(turns) * far, np.sin(turns) * far], axis=1)
    ideal = 1.6 / math.sqrt(count)
    for step in 0.12 * (1 - np.arange(LAYOUT_ROUNDS) / LAYOUT_ROUNDS) + 0.002:
        apart = places[:, None] - places
        square = (apart**2).sum(axis=2)
        force = ideal**2 / np.maximum(square, 1e-6) - 4 * links * np.sqrt(square) / ideal
        # A weak pull to the middle keeps parts that nothing connects in the picture.
        moves = (apart * force[:, :, None]).sum(axis=1) - 1.5 * places
        lengths = np.maximum(np.hypot(*moves.T), 1e-9)
        places = places + moves * np.minimum(step / lengths, 1.0)[:, None]
    left = _LEGEND if graph.groups else _MARGIN
    across = _stretched(places[:, 0], left, WIDTH - 4 * _MARGIN)  # room for names on the right
    down = _stretched(places[:, 1], _MARGIN, _HEIGHT - _MARGIN)
    return dict(zip(graph.nodes, zip(across, down, strict=True), strict=True))


def _stretched(values: npt.NDArray[np.float64], low: float, high: float) -> list[float]:
    first, extent = values.min(), values.max() - values.min()
    share = (values - first) / extent if extent >= 1e-9 else np.full(len(values), 0.5)
    found: list[float] = (low + share * (high - low)).tolist()
    return found


def _arrow(start: Point, end: Point) -> str:
    dx, dy = end[0] - start[0], end[1] - start[1]
    far = max(math.hypot(dx, dy), 1e-6)
    x, y = end[0] - dx / far * 7, end[1] - dy / far * 7
    left = f"{x - (dx + dy * 0.5) / far * 6:.1f},{y - (dy - dx * 0.5) / far * 6:.1f}"
    right = f"{x - (dx - dy * 0.5) / far * 6:.1f},{y - (dy + dx * 0.5) / far * 6:.1f}"
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{x:.1f}" y2="{y:.1f}" '
        f'stroke="#aab"/><polygon points="{x:.1f},{y:.1f} {left} {right}" fill="#889"/>'
    )


def svg(width: float, height: float, parts: Sequence[str], *, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escaped(title)}" '
        'font-family="system-ui,sans-serif" font-size="11">'
        '<rect width="100%" height="100%" fill="#fff"/>' + "".join(parts) + "</svg>"
    )


def label(name: str, *, limit: int = LABEL_CHARACTERS_MAX) -> str:
    return escaped(name if len(name) <= limit else name[: limit - 1] + "…")


def escaped(words: str) -> str:
    """Text that an SVG may hold: escaped, and without the characters that XML has no words for."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in words))
