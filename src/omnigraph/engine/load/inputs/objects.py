"""What a Python program has at hand: records and rows as dictionaries, and data frames.

Values are brought to what JSON would say of them, so that the rules of lines decide what fits.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import enum
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine.check.findings import PlaceWord
from omnigraph.engine.load.inputs.records import BadRecordError, Record, StrictRecords, gather
from omnigraph.engine.load.reading import Problem, Reading, ShapedRows, shape
from omnigraph.errors import InputError
from omnigraph.model.values import moment_text, with_text_ends

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


class ObjectRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records of graph NDJSON as dictionaries; `first` is the number of the first of them."""

    records: Sequence[Any]
    first: int = 0

    address: ClassVar[str] = ""
    word: ClassVar[PlaceWord] = "record"

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        rules = StrictRecords(reading.catalog)
        reading.records += len(self.records)
        for raw in gather(self._read(rules, reading), reading.catalog, strict=True):
            shaped = shape(raw, reading, self._text)
            if shaped.rows.num_rows or shaped.lost:
                yield raw.entity.table_key, shaped

    def _read(self, rules: StrictRecords, reading: Reading) -> Iterator[Record]:
        for number, value in enumerate(self.records):
            try:
                yield rules.record(number, with_text_ends(plain(value)))
            except BadRecordError as error:
                raw = self._text(number) if reading.problems.keep_all else None
                problem = Problem(
                    number=number, kind="record", text=error.text, hint=error.hint, raw=raw
                )
                reading.problems.add([problem])

    def _text(self, number: int) -> str:
        return text_of(self.records[number])


def text_of(value: Any) -> str:
    """A record as a line, also if it holds what cannot be loaded."""
    try:
        return orjson.dumps(value, default=_loosely, option=orjson.OPT_NON_STR_KEYS).decode()
    except orjson.JSONEncodeError:
        # Half of a surrogate pair, or an integer of more than 64 bits: the slow encoder has words.
        return json.dumps(value, default=_loosely, skipkeys=True)


def _loosely(value: Any) -> Any:
    try:
        return plain(value)
    except BadRecordError:
        return str(value)


def plain(value: Any) -> Any:
    """The value as JSON has it; `BadRecordError` names the type of one that cannot be stored."""
    if type(value) in _PLAIN:
        return value
    match value:
        case Mapping():
            return {_name(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case dt.datetime():
            # What pandas has for a time that is missing is not equal to itself.
            return moment_text(value, "microseconds") if value == value else None
        case dt.date():
            return value.isoformat()
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case uuid.UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return f"base64:{base64.b64encode(value).decode()}"
        case enum.Enum():
            return plain(value.value)
        case np.datetime64():
            unit = "D" if np.datetime_data(value.dtype)[0] in "YMWD" else "us"
            return plain(value.astype(f"datetime64[{unit}]").item())
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case str() | int() | float():
            return value  # of a class of their own
        case _ if type(value).__name__ == "NAType":  # what pandas has for any other missing value
            return None
        case _:
            raise BadRecordError(f"a value of type {type(value).__name__} cannot be loaded")


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise BadRecordError(f"{name!r} names no property: names are text")
    return str(name)


# --- networks ----------------------------------------------------------------------------------


def from_networkx(
    network: Any, *, node_type: str, edge_type: str, key: str = "id"
) -> Iterator[dict[str, Any]]:
    """The nodes and edges of a networkx graph as records for `Graph.load`.

    The networkx node goes into the property `key`; attributes become properties of the same name.
    An edge of an undirected graph becomes one edge, from its first end to its second.
    """
    for node, attributes in network.nodes(data=True):
        value = _node_id(node) if key == "id" else node
        yield {"type": node_type, "data": {**attributes, key: value}}
    for source, target, attributes in network.edges(data=True):
        yield {
            "edge": edge_type,
            "from": _node_id(source),
            "to": _node_id(target),
            "data": dict(attributes),
        }


def _node_id(node: Any) -> str:
    if isinstance(node, str | int) and not isinstance(node, bool):
        return str(node)
    raise InputError(
        f"the networkx node {node!r} cannot be an id: it is a {type(node).__name__}",
        hint="name nodes by text or whole numbers: networkx.relabel_nodes(graph, str)",
    )


# --- data frames -------------------------------------------------------------------------------


def is_rows(given: Any) -> bool:
    """Whether these may be rows as dictionaries: a list of them, or something that gives them."""
    if isinstance(given, list | tuple):
        return not given or isinstance(given[0], Mapping)
    return isinstance(given, Iterator) and not hasattr(given, "__arrow_c_stream__")


def rows_of(name: str, given: Iterable[Any]) -> list[dict[str, Any]]:
    """The rows, with values as JSON has them; `InputError` names the row that is none."""
    found = []
    for number, row in enumerate(given, 1):
        if not isinstance(row, Mapping):
            raise InputError(
                f"source of '{name}', row {number}: expected a dict, got {type(row).__name__}"
            )
        try:
            found.append(plain(row))
        except BadRecordError as cause:
            raise InputError(f"source of '{name}', row {number}: {cause.text}") from cause
    return found


def as_arrow(name: str, given: Any) -> pa.Table | None:
    """The frame as an Arrow table, without a copy where its library has none to make; None if
    this is no frame."""
    try:
        if type(given).__module__.partition(".")[0] == "pandas" and hasattr(given, "columns"):
            # An index with a name is data, such as the key that a group-by left there.
            names = given.index.names
            named = all(name is not None and name not in given.columns for name in names)
            return pa.Table.from_pandas(given, preserve_index=named)
        if hasattr(given, "__arrow_c_stream__"):
            return _without_views(pa.table(given))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as cause:
        raise InputError(
            f"source of '{name}': {_mixed(given, cause)}",
            hint="give every column values of one type, or give rows as dicts",
        ) from cause
    return None


def _mixed(frame: Any, cause: Exception) -> str:
    """Which column of a data frame has no one type, and the types of what is in it."""
    for column in getattr(frame, "columns", ()):
        if str(getattr(frame[column], "dtype", "")) == "object":
            kinds = sorted({type(value).__name__ for value in frame[column].dropna()})
            if len(kinds) > 1:
                return f"column '{column}' holds values of several types: {', '.join(kinds)}"
    # What pandas adds to Arrow's words is a second argument.
    return ": ".join(str(part).splitlines()[0] for part in reversed(cause.args))


def _without_views(table: pa.Table) -> pa.Table:
    """The table with text in the layout that Arrow's kernels know: those of Polars have another,
    for which hardly any kernel is there yet."""
    for place, field in enumerate(table.schema):
        wanted = _plain_type(field.type)
        if wanted != field.type:
            chunks = [_as_type(chunk, wanted) for chunk in table.column(place).chunks]
            table = table.set_column(place, field.name, pa.chunked_array(chunks, wanted))
    return table


def _as_type(chunk: Any, wanted: pa.DataType) -> Any:
    if isinstance(chunk, pa.DictionaryArray):
        assert isinstance(wanted, pa.DictionaryType), "only its values change"
        words = chunk.dictionary.cast(wanted.value_type)
        return pa.DictionaryArray.from_arrays(chunk.indices, words)
    return chunk.cast(wanted)


def _plain_type(kind: Any) -> Any:
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if isinstance(kind, pa.DictionaryType):
        return pa.dictionary(kind.index_type, _plain_type(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    return kind
