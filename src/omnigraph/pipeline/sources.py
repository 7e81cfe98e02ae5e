"""What a load reads: strict graph NDJSON, or one source per type with a column mapping."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

from pyspark.sql import DataFrame

from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.addresses import PACKED_SUFFIXES, local_path
from omnigraph.model.schema import Catalog, EdgeType, NodeType
from omnigraph.pipeline.files import FileAccess

FileFormat = Literal["parquet", "csv", "json", "orc"]
Address = str | os.PathLike[str]

_BY_SUFFIX: Mapping[str, FileFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".orc": "orc",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """How source columns become properties.

    `columns` maps a property (or `id`, `key`, `from`, `to`) to the source column it is taken from.
    Without it the names must be the same and every source column must have a home; with it, source
    columns that are neither named nor called like a property are left out. `casts` maps a property
    to a type of the schema language into which its values are forced first (`"String"` makes
    numbers text, `"I64"` reads numbers from text in any format).
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    casts: Mapping[str, str] = field(default_factory=dict)
    fills_vectors: bool = False  # required `@embed` vectors are made from their text's column


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Rows of one type: files of one format, a Spark table or a DataFrame, and their mapping."""

    format: FileFormat | Literal["frame", "table"]
    paths: tuple[str, ...] = ()
    frame: DataFrame | None = None
    mapped: Mapped = field(default_factory=Mapped)
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parquet(
        cls,
        path: Address | Sequence[Address],
        columns: Mapping[str, str] | None = None,
        *,
        casts: Mapping[str, str] | None = None,
    ) -> Source:
        """Parquet files, folders or patterns."""
        return cls(format="parquet", paths=_paths(path), mapped=_mapped(columns, casts))

    @classmethod
    def orc(
        cls,
        path: Address | Sequence[Address],
        columns: Mapping[str, str] | None = None,
        *,
        casts: Mapping[str, str] | None = None,
    ) -> Source:
        """ORC files, folders or patterns."""
        return cls(format="orc", paths=_paths(path), mapped=_mapped(columns, casts))

    @classmethod
    def csv(
        cls,
        path: Address | Sequence[Address],
        columns: Mapping[str, str] | None = None,
        *,
        casts: Mapping[str, str] | None = None,
        delimiter: str = ",",
        header: Sequence[str] | None = None,
        null: str = "",
        encoding: str = "utf-8",
    ) -> Source:
        """CSV files with a header line, or with the column names given as `header`.

        An unquoted cell that is the text `null` (by default: empty) is null. A byte order mark
        tells UTF-16 and UTF-32 files by itself; other encodings need `encoding`.
        """
        options = {"delimiter": delimiter, "null": null, "encoding": _codec(encoding)}
        if header is not None:
            options["header"] = "\x1f".join(header)
        return cls(
            format="csv", paths=_paths(path), mapped=_mapped(columns, casts), options=options
        )

    @classmethod
    def json(
        cls,
        path: Address | Sequence[Address],
        columns: Mapping[str, str] | None = None,
        *,
        casts: Mapping[str, str] | None = None,
    ) -> Source:
        """Files with one flat JSON object a line, the properties of one row."""
        return cls(format="json", paths=_paths(path), mapped=_mapped(columns, casts))

    @classmethod
    def table(
        cls,
        name: str,
        columns: Mapping[str, str] | None = None,
        *,
        casts: Mapping[str, str] | None = None,
    ) -> Source:
        """A table or view that the Spark session knows."""
        return cls(format="table", paths=(name,), mapped=_mapped(columns, casts))

    @classmethod
    def dataframe(
        cls,
        frame: DataFrame,
        columns: Mapping[str, str] | None = None,
        *,
        casts: Mapping[str, str] | None = None,
    ) -> Source:
        """A DataFrame of the session. It is read exactly once."""
        return cls(format="frame", frame=frame, mapped=_mapped(columns, casts))


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedSource:
    """A source and the type whose rows it holds."""

    table_key: str
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A load's input, resolved against a schema: graph NDJSON by address, and typed sources."""

    graph_files: tuple[str, ...] = ()
    typed: tuple[TypedSource, ...] = ()


def resolve(sources: Any, catalog: Catalog, files: FileAccess) -> Inputs:
    """What the caller gave as `sources`, in one shape; `InputError` names what cannot be read."""
    if isinstance(sources, Mapping):
        typed = [
            TypedSource(table_key=type_named(str(name), catalog).table_key, source=source)
            for name, given in sources.items()
            for source in _each(str(name), given, files)
        ]
        return Inputs(typed=tuple(typed))
    if isinstance(sources, str | os.PathLike):
        return Inputs(graph_files=_paths(sources))
    if isinstance(sources, Sequence) and not isinstance(sources, bytes):
        each = [resolve(one, catalog, files) for one in sources]
        return Inputs(
            graph_files=tuple(path for one in each for path in one.graph_files),
            typed=tuple(source for one in each for source in one.typed),
        )
    raise InputError(
        f"cannot load from {type(sources).__name__}",
        hint="give NDJSON paths, or a mapping from type names to paths, Sources or DataFrames",
    )


def declared(sources: Any) -> Any:
    """What the caller gave as `sources`, as plain values: the same for the same declaration.

    Files are told by their address, DataFrames by their columns; what is in them is not read.
    """
    if isinstance(sources, Mapping):
        return {str(name): declared(given) for name, given in sources.items()}
    if isinstance(sources, str | os.PathLike):
        address = os.fspath(sources)
        path = local_path(address)
        return address if path is None else os.path.abspath(path)
    if isinstance(sources, Source):
        tabular = sources.format == "table"
        return {
            "format": sources.format,
            "paths": list(sources.paths) if tabular else declared(sources.paths),
            "frame": None if sources.frame is None else declared(sources.frame),
            "columns": sources.mapped.columns,
            "casts": sources.mapped.casts,
            "options": sources.options,
        }
    if hasattr(sources, "mapInArrow"):  # a DataFrame, classic or Connect
        return {"frame": sources.schema.simpleString()}
    if isinstance(sources, Sequence) and not isinstance(sources, bytes):
        return [declared(one) for one in sources]
    return type(sources).__name__  # nothing that could be loaded: `resolve` says so


def type_named(name: str, catalog: Catalog) -> NodeType | EdgeType:
    """The type of a name or table key; node types first, edge names in any letter case."""
    kind, separator, rest = name.partition(":")
    if separator and kind in ("node", "edge"):
        found = catalog.nodes.get(rest) if kind == "node" else catalog.edge_named(rest)
    else:
        found = catalog.nodes.get(name) or catalog.edge_named(name)
    if found is None:
        known = ", ".join(entity.name for entity in catalog.types())
        raise NotFoundError(
            f"unknown type '{name}'", kind="type", name=name, hint=f"the schema has {known}"
        )
    return found


def _each(name: str, given: Any, files: FileAccess) -> list[Source]:
    if isinstance(given, Source):
        return [given]
    if isinstance(given, str | os.PathLike):
        return [_guessed(name, os.fspath(given), files)]
    if isinstance(given, list | tuple):
        return [source for one in given for source in _each(name, one, files)]
    if hasattr(given, "mapInArrow"):  # a DataFrame, classic or Connect
        return [Source.dataframe(given)]
    raise InputError(
        f"source of '{name}': cannot read {type(given).__name__}",
        hint="give a path, a Source or a DataFrame",
    )


def _guessed(name: str, address: str, files: FileAccess) -> Source:
    """A source whose format its path tells: by suffix, or by the files in the folder."""
    suffix = _format_suffix(address.rstrip("/*"))
    guess = _BY_SUFFIX.get(suffix)
    if guess is None:
        inside = {_format_suffix(file.address) for file in files.found(address)} & set(_BY_SUFFIX)
        formats = {_BY_SUFFIX[one] for one in inside}
        guess = formats.pop() if len(formats) == 1 else None
        suffix = ".tsv" if inside == {".tsv"} else suffix
    if guess is None:
        raise InputError(
            f"source of '{name}': cannot tell the format of '{address}'",
            hint="say it: Source.parquet(path), Source.csv(path), Source.json(path), …",
        )
    options = {"delimiter": "\t", "null": ""} if suffix == ".tsv" else {}
    return Source(format=guess, paths=(address,), options=options)


def _format_suffix(address: str) -> str:
    """The ending that tells what a file holds, below the one that tells how it is packed."""
    suffixes = [suffix.lower() for suffix in PurePath(address).suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in PACKED_SUFFIXES), "")


def _codec(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError as cause:
        raise InputError(
            f"unknown encoding '{name}'", hint='for example "utf-8", "utf-16", "latin-1"'
        ) from cause


def _paths(given: Address | Sequence[Address]) -> tuple[str, ...]:
    if isinstance(given, str | os.PathLike):
        return (os.fspath(given),)
    return tuple(os.fspath(one) for one in given)


def _mapped(columns: Mapping[str, str] | None, casts: Mapping[str, str] | None) -> Mapped:
    return Mapped(columns=dict(columns or {}), casts=dict(casts or {}))
