"""Identity: the canonical id of a keyed node, and other spellings of it.

One key property: the id is its text. Several: the id is a compact JSON array of their texts, in the
key's identity order (`NodeType.key`), which neither a rewritten schema nor a rename changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.arrow import Column, counted, flat
from omnigraph.model.ports import ULID_LENGTH, ulids
from omnigraph.model.schema import CALENDAR, FLOATS, INTEGERS, NodeType, PropertyType, Scalar
from omnigraph.model.values import Misfit, fit


def canonical_id(node: NodeType, row: Mapping[str, Any]) -> str:
    """The id that the fitted values of a row give. Every key value must be there and finite."""
    texts = [key_text(row[name], node.by_name[name].type) for name in node.key]
    return texts[0] if len(texts) == 1 else orjson.dumps(texts).decode()


def canonical_ids(node: NodeType, table: pa.Table | pa.RecordBatch) -> pa.Array[Any]:
    """The ids of many rows; null where a key value is null."""
    columns = [_key_texts(flat(table.column(name)), node.by_name[name].type) for name in node.key]
    if len(columns) == 1:
        return columns[0]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    ids = (None if None in row else orjson.dumps(row).decode() for row in rows)
    return pa.array(ids, type=pa.string())


def fresh_ids(count: int) -> Column:
    """New ids for many rows."""
    ends = np.arange(0, (count + 1) * ULID_LENGTH, ULID_LENGTH, dtype=np.int32)
    buffers = pa.py_buffer(ends.tobytes()), pa.py_buffer(ulids(count))
    return pa.StringArray.from_buffers(count, *buffers)


def key_text(value: Any, kind: PropertyType) -> str:
    """One fitted key value as it stands in an id."""
    if kind.scalar is Scalar.BOOL:
        return "true" if value else "false"
    if kind.scalar in FLOATS:
        return _float_text(value, kind)
    return str(value)


def respelled_id(node: NodeType, text: str) -> str:
    """The canonical spelling of an id that was written by hand: `007` or an ISO date becomes the
    number it stands for. Text that does not read as the key's type is returned as it is."""
    if len(node.key) != 1:
        return text
    kind = node.by_name[node.key[0]].type
    if kind.scalar is Scalar.STRING:
        return text
    value = fit(_read(text, kind), kind)
    if value is None or isinstance(value, Misfit) or value != value:
        return text
    return key_text(value, kind)


def respelled_ids(node: NodeType, ids: pa.Array[Any], aliases: Mapping[str, str]) -> pa.Array[Any]:
    """`respelled_id` for a column, `aliases` first; strings without those cost nothing."""
    spelled_once = len(node.key) != 1 or node.by_name[node.key[0]].type.scalar is Scalar.STRING
    if spelled_once and not aliases:
        return ids
    encoded = ids.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    respelled = [respelled_id(node, aliases.get(word, word)) for word in map(str, words)]
    return pc.take(pa.array(respelled, type=pa.string()), encoded.indices)


def _read(text: str, kind: PropertyType) -> Any:
    """The value that an id's text stands for, as JSON would have it."""
    try:
        if kind.scalar in INTEGERS or (kind.scalar in CALENDAR and "-" not in text[1:]):
            return int(text)
        if kind.scalar in FLOATS:
            return float(text)
    except ValueError:
        return None
    if kind.scalar is Scalar.BOOL:
        return {"true": True, "false": False}.get(text)
    return text


def _float_text(value: float, kind: PropertyType) -> str:
    number = np.float32(value) if kind.scalar is Scalar.F32 else np.float64(value)
    # Adding zero turns -0 into 0, so that equal keys have equal ids.
    return np.format_float_positional(number + number.dtype.type(0), unique=True, trim="-")


def _key_texts(values: pa.Array[Any], kind: PropertyType) -> pa.Array[Any]:
    if kind.scalar is Scalar.STRING:
        return values
    if kind.scalar in FLOATS:
        texts = (None if v is None else _float_text(v, kind) for v in values.to_pylist())
        return pa.array(texts, type=pa.string())
    numbers: pa.Array[Any] = counted(values)
    return numbers.cast(pa.string())
