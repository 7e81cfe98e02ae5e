"""Columns as a schema: Arrow schemas, data frames, and files that nobody has described yet."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, dataset, json, types

from omnigraph.compiler.schema import compile_schema, format_schema
from omnigraph.compiler.text import did_you_mean
from omnigraph.engine.rows.columns import BLOB_CELL, batch_schema
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.machine import PACKINGS
from omnigraph.model.schema import PropertyType, Scalar

_ROWS_LOOKED_AT: Final = 100_000
_ENDS: Final = (("from", "to"), ("src", "dst"))
_KEY_NAMES: Final = ("key", "name", "email", "title", "code", "slug", "uuid")
_FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".ndjson": "json"}
_CALLED: Final = {"parquet": "Parquet", "csv": "CSV", "json": "JSON lines"}
_WORDS: Final = re.compile(r"[^A-Za-z0-9_]+")


class Inferred(msgspec.Struct):
    """A property to be, and the column it comes from."""

    name: str
    column: str
    type: PropertyType


def from_arrow(
    types: Mapping[str, Any],
    *,
    keys: Mapping[str, str] | None = None,
    edges: Mapping[str, tuple[str, str]] | None = None,
) -> str:
    """The schema of Arrow schemas by type name, as text for `Graph.init`.

    A type is a `pyarrow.Schema`, or anything that has one (a table, a Polars or pandas frame).
    `keys` says which column is the key of a node type, `edges` between which node types an edge
    type goes; its end columns (`from` and `to`, or `src` and `dst`) are no properties. A column
    that may be null becomes a property that may be missing. `InputError` names a column that no
    type fits.

    Examples:
        >>> import pyarrow as pa
        >>> from omnigraph import schema
        >>> person = pa.schema([pa.field("name", pa.string(), nullable=False), ("age", pa.int32())])
        >>> print(schema.from_arrow({"Person": person}, keys={"Person": "name"}))
        node Person {
            name: String @key
            age: I32?
        }
        <BLANKLINE>
    """
    parts = []
    for name, given in types.items():
        found = [
            Inferred(_name(field.name), field.name, arrow_property(field, where=name))
            for field in _schema_of(given)
        ]
        parts.append(_declared(name, found, (keys or {}).get(name), (edges or {}).get(name)))
    return _checked("\n".join(parts))


def to_arrow(source: str, type_name: str) -> pa.Schema:
    """The columns of a type of a schema, as an Arrow schema; `id`, `src` and `dst` first.

    A property that may be missing is a column that may be null. `NotFoundError` if the schema has
    no such type.

    Examples:
        >>> from omnigraph import schema
        >>> schema.to_arrow("node Town { name: String @key  people: I64? }", "Town").names
        ['id', 'name', 'people']
    """
    catalog = compile_schema(source)
    made = catalog.nodes.get(type_name) or catalog.edges.get(type_name)
    if made is None:
        known = [one.name for one in catalog.types()]
        raise NotFoundError(
            f"the schema has no type '{type_name}'",
            kind="type",
            name=type_name,
            hint=did_you_mean(type_name, known),
        )
    missing = {one.name for one in made.properties if one.type.nullable}
    return pa.schema([one.with_nullable(one.name in missing) for one in batch_schema(made)])


def infer(
    data: Any,
    type_name: str | None = None,
    *,
    key: str | None = None,
    ends: tuple[str, str] | None = None,
) -> str:
    """Propose the schema of one type from data: a path (Parquet, CSV, JSON lines, or a folder of
    such files), a data frame, an Arrow table, or rows as dictionaries.

    The first 100,000 rows are looked at: a column with nulls may be missing, a text column whose
    values differ can be the key. `type_name` is the name of the type (default: of the file), `key`
    its key (default: a column that looks like one). With `ends`, or columns `from` and `to` (or
    `src` and `dst`), it is an edge type. It is a proposal: read it before you use it.

    Examples:
        >>> from omnigraph import schema
        >>> rows = [{"name": "Ulm", "people": 126000}, {"name": "Bonn", "people": None}]
        >>> print(schema.infer(rows, "Town"))
        node Town {
            name: String @key
            people: I64?
        }
        <BLANKLINE>
    """
    table = _table_of(data)
    if type_name is None:
        if not isinstance(data, str | os.PathLike):
            raise InputError("rows do not say of which type they are", hint="pass type_name=")
        type_name = _type_name(data)
    found = []
    for field, column in zip(table.schema, table.columns, strict=True):
        made = arrow_property(field, where=type_name)
        some = column.null_count > 0
        kind = msgspec.structs.replace(made, nullable=some)
        found.append(Inferred(_name(field.name), field.name, kind))
    names = {one.column for one in found}
    is_edge = ends is not None or any(set(pair) <= names for pair in _ENDS)
    if is_edge and ends is None:
        raise InputError(
            f"'{type_name}' has columns for the ends of edges, but not of which types they are",
            hint='pass ends=("Person", "Company"), or --from and --to',
        )
    if key is not None and key not in names:
        raise InputError(
            f"there is no column '{key}'", hint=f"there are {', '.join(sorted(names))}"
        )
    chosen = key if key is not None or is_edge else _key_of(table, found)
    return _checked(_declared(type_name, found, chosen, ends))


def arrow_property(field: pa.Field[Any], *, where: str) -> PropertyType:
    """The property that holds the values of an Arrow column."""
    kind, many = field.type, False
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
        return PropertyType(scalar=Scalar.VECTOR, dimension=kind.list_size, nullable=field.nullable)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        kind, many = kind.value_type, True
    scalar = _scalar(kind)
    if scalar is None:
        raise InputError(
            f"column '{field.name}' of '{where}' has the Arrow type {field.type}, "
            "which no property has",
            hint="leave it out, or turn it into text or numbers first",
        )
    return PropertyType(scalar=scalar, nullable=field.nullable, is_list=many)


def _scalar(kind: pa.DataType) -> Scalar | None:
    narrow = {
        "int8": Scalar.I32, "int16": Scalar.I32, "int32": Scalar.I32, "int64": Scalar.I64,
        "uint8": Scalar.U32, "uint16": Scalar.U32, "uint32": Scalar.U32, "uint64": Scalar.U64,
        "halffloat": Scalar.F32, "float": Scalar.F32, "double": Scalar.F64, "bool": Scalar.BOOL,
        "null": Scalar.STRING,
    }  # fmt: skip
    if str(kind) in narrow:
        return narrow[str(kind)]
    tests = (
        (lambda one: types.is_string(one) or types.is_large_string(one), Scalar.STRING),
        (lambda one: str(one) == "string_view", Scalar.STRING),
        (types.is_date, Scalar.DATE),
        (types.is_timestamp, Scalar.DATETIME),
        (lambda one: types.is_binary(one) or types.is_large_binary(one), Scalar.BLOB),
        (types.is_decimal, Scalar.F64),
        (lambda one: one.equals(BLOB_CELL), Scalar.BLOB),
    )
    return next((scalar for test, scalar in tests if test(kind)), None)


# --- text ----------------------------------------------------------------------------------------


def _declared(
    name: str, found: list[Inferred], key: str | None, ends: tuple[str, str] | None
) -> str:
    ending = {column for pair in _ENDS for column in pair} if ends is not None else set()
    taken = [one for one in found if one.column not in ending and one.column != "id"]
    header = f"node {name}" if ends is None else f"edge {name}: {ends[0]} -> {ends[1]}"
    lines = []
    for one in taken:
        kind, note = one.type, ""
        if one.column == key:
            kind, note = msgspec.structs.replace(kind, nullable=False), " @key"
        told = "" if one.name == one.column else f"  // from the column {one.column!r}"
        lines.append(f"    {one.name}: {kind}{note}{told}")
    return "\n".join([f"{header} {{", *lines, "}"]) + "\n"


def _checked(text: str) -> str:
    compile_schema(text, name="columns")
    return format_schema(text, name="columns")


def _name(column: str) -> str:
    """A column's name as the name of a property."""
    words = _WORDS.sub("_", column).strip("_") or "column"
    return words[0].lower() + words[1:] if words[0].isalpha() else f"c_{words}"


def _type_name(path: str | os.PathLike[str]) -> str:
    stem = Path(path).name.split(".")[0]
    words = "".join(word[:1].upper() + word[1:] for word in _WORDS.sub("_", stem).split("_"))
    return words if words[:1].isalpha() else f"T{words}"


def _key_of(table: pa.Table, found: list[Inferred]) -> str | None:
    """The column that looks most like a key: text or whole numbers, never null, all different.

    None where rows bring an `id`: that of a type with a key is made of the key."""
    if any(one.column == "id" for one in found):
        return None
    fit = [
        one.column
        for one in found
        if one.type.scalar in (Scalar.STRING, Scalar.I32, Scalar.I64) and not one.type.nullable
        if not one.type.is_list
        if table.num_rows and pc.count_distinct(table.column(one.column)).as_py() == table.num_rows
    ]
    named = [column for name in _KEY_NAMES for column in fit if column.lower() == name]
    texts = [c for c in fit if str(table.schema.field(c).type) in ("string", "large_string")]
    return next(iter([*named, *texts, *fit]), None)


# --- data ----------------------------------------------------------------------------------------


def _schema_of(given: Any) -> pa.Schema:
    if isinstance(given, pa.Schema):
        return given
    schema = getattr(given, "schema", None)
    return schema if isinstance(schema, pa.Schema) else _table_of(given).schema


def _table_of(data: Any) -> pa.Table:
    if isinstance(data, str | os.PathLike):
        return _file_table(Path(data))
    if isinstance(data, pa.Table):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return _without_views(pa.table(data))
    if hasattr(data, "to_arrow"):
        made: pa.Table = data.to_arrow()
        return made
    try:
        return pa.Table.from_pylist(list(data))
    except (pa.ArrowException, TypeError, AttributeError) as cause:
        raise InputError(
            f"rows of the type {type(data).__name__} cannot be read as columns: {cause}",
            hint="pass a path, a data frame, an Arrow table or dictionaries",
        ) from cause


def _without_views(table: pa.Table) -> pa.Table:
    """Columns of text as Arrow's functions know them; Polars hands out views."""
    fields = [
        pa.field(one.name, pa.large_string(), one.nullable)
        if str(one.type) == "string_view"
        else one
        for one in table.schema
    ]
    return table.cast(pa.schema(fields))


def _file_table(path: Path) -> pa.Table:
    """The first rows of a file."""
    if not path.exists():
        raise NotFoundError(f"there is no file '{path}'", kind="file", name=str(path))
    file = _first_file(path) if path.is_dir() else path
    suffixes = [suffix for suffix in file.suffixes if suffix not in PACKINGS]
    form = _FORMATS.get(suffixes[-1].lower() if suffixes else "")
    if form is None:
        raise InputError(
            f"the name of '{path}' does not say how it is written",
            hint=f"known endings: {', '.join(_FORMATS)}",
        )
    try:
        if form == "json":
            return _json_table(file)
        # As in a load, a cell of a CSV file that holds nothing is a value that is missing.
        blank = csv.ConvertOptions(strings_can_be_null=True)
        how: Any = dataset.CsvFileFormat(convert_options=blank) if form == "csv" else form
        # Folders called `day=2024-01-31` are columns, as in a load.
        source: Any = dataset.dataset(str(path), format=how, partitioning="hive")
        table: pa.Table = source.head(_ROWS_LOOKED_AT)
    except (pa.ArrowException, OSError, ValueError) as cause:
        # Arrow's own words name its parts; what it says last is about the file.
        why = str(cause).splitlines()[0].rpartition(": ")[2].partition(". ")[0]
        words = f"'{path}' cannot be read as {_CALLED[form]}: {why}"
        raise InputError(words, path=str(path)) from cause
    return table


def _first_file(folder: Path) -> Path:
    """The first file below a folder that holds rows."""
    hidden = (".", "_")
    found = (one for one in sorted(folder.rglob("*")) if one.is_file())
    file = next((one for one in found if not one.name.startswith(hidden)), None)
    if file is None:
        raise InputError(f"the folder '{folder}' holds no files of rows")
    return file


def _json_table(path: Path) -> pa.Table:
    with pa.input_stream(str(path)) as stream:
        head = stream.read(64 * 2**20)
    whole = head[: head.rfind(b"\n") + 1] or head
    return json.read_json(io.BytesIO(whole)).slice(0, _ROWS_LOOKED_AT)
