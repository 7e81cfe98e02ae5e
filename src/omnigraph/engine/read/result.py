"""The rows of a query: Arrow first, and every other form made from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from omnigraph.engine.arrow import ArrowTable, RecordBatch, Schema
from omnigraph.engine.read.context import Explanation
from omnigraph.engine.read.network import (
    NODES_DRAWN_MAX,
    chosen_ends,
    draw_graph,
    drawable,
    fill_network,
)
from omnigraph.model.machine import optional
from omnigraph.model.structs import ROWS_SHOWN_MAX, html_block, html_table
from omnigraph.model.values import json_value

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import polars as pl

BATCH_ROWS: Final = 65_536


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
        explanation: Explanation | None = None,
    ) -> None:
        self._schema = schema
        self._make = make
        self._table: ArrowTable | None = None
        self.row_count = row_count
        self.graph_commit_id = graph_commit_id
        self.explanation = explanation

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

    def __repr__(self) -> str:
        return f"QueryResult({self.row_count} rows, columns {self.columns})"

    def to_arrow(self) -> ArrowTable:
        if self._table is None:
            self._table = self._make(0, self.row_count)
        return self._table

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[RecordBatch]:
        """The rows in order, at most `rows` at a time."""
        for first in range(0, self.row_count, rows):
            last = min(first + rows, self.row_count)
            table = (
                self._make(first, last)
                if self._table is None
                else self._table.slice(first, last - first)
            )
            yield from table.combine_chunks().to_batches()

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
        enough = min(self.row_count, NODES_DRAWN_MAX**2 + 1)
        # A big answer is not put together for its first page.
        known = self._make(0, enough) if self._table is None else self._table.slice(0, enough)
        rows = known.to_pylist()
        graph = drawable(self.columns, rows)
        shown = [[json_value(cell) for cell in row.values()] for row in rows[:ROWS_SHOWN_MAX]]
        return html_block(
            f"{self.row_count:,} rows at commit {self.graph_commit_id}",
            "" if graph is None else draw_graph(graph),
            html_table(self.columns, shown, total=self.row_count),
        )
