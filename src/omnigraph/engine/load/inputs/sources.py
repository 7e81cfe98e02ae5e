"""What a load reads: strict graph NDJSON, or one source per type with a column mapping; and how
files of lines are cut, so that several tasks can read one."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa

from omnigraph.compiler.text import closest
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.load.inputs.objects import as_arrow, is_rows, rows_of, text_of
from omnigraph.engine.load.reading import Input
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.limits import LOAD_LINE_BYTES_MAX, SPLIT_BYTES, SPLIT_CHUNK_BYTES
from omnigraph.model.machine import PACKED_SUFFIXES, local_path
from omnigraph.model.schema import Catalog, EdgeType, PropertyType, Scalar
from omnigraph.storage.objects.files import FileAccess, InputFile, packing_of

FileFormat = Literal["parquet", "csv", "json", "orc"]
Address = str | os.PathLike[str]
Paths = Address | Sequence[Address]
Names = Mapping[str, str] | None  # by the name of a property; None: as the source has them
HEADER_SEPARATOR: Final = "\x1f"

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


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """How source columns become properties.

    `columns` maps a property (or `id`, `key`, `from`, `to`) to the source column it is taken from.
    Without it the names must be the same and every source column must have a home; with it, source
    columns that are neither named nor called like a property are left out. `casts` maps a property
    to a type of the schema language into which its values are forced first (`"String"` makes
    numbers text, `"I64"` reads numbers from text in any format).
    """

    columns: Mapping[str, str] = msgspec.field(default_factory=dict)
    casts: Mapping[str, str] = msgspec.field(default_factory=dict)
    fills_vectors: bool = False  # required `@embed` vectors are made from their text's column


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one type and their mapping: files of one format, an Arrow table, or a table or
    DataFrame of Spark's."""

    format: FileFormat | Literal["arrow", "rows", "frame", "table"]
    paths: tuple[str, ...] = ()
    frame: Any = None
    mapped: Mapped = msgspec.field(default_factory=Mapped)
    options: Mapping[str, str] = msgspec.field(default_factory=dict)

    @classmethod
    def parquet(cls, path: Paths, columns: Names = None, *, casts: Names = None) -> Source:
        """Parquet files, folders or patterns."""
        return cls(format="parquet", paths=_paths(path), mapped=_mapped(columns, casts))

    @classmethod
    def orc(cls, path: Paths, columns: Names = None, *, casts: Names = None) -> Source:
        """ORC files, folders or patterns."""
        return cls(format="orc", paths=_paths(path), mapped=_mapped(columns, casts))

    @classmethod
    def csv(
        cls,
        path: Paths,
        columns: Names = None,
        *,
        casts: Names = None,
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
            options["header"] = HEADER_SEPARATOR.join(header)
        return cls(
            format="csv", paths=_paths(path), mapped=_mapped(columns, casts), options=options
        )

    @classmethod
    def json(cls, path: Paths, columns: Names = None, *, casts: Names = None) -> Source:
        """Files with one flat JSON object a line, the properties of one row."""
        return cls(format="json", paths=_paths(path), mapped=_mapped(columns, casts))

    @classmethod
    def arrow(cls, table: pa.Table, columns: Names = None, *, casts: Names = None) -> Source:
        """An Arrow table in memory."""
        if not isinstance(table, pa.Table):
            raise InputError(
                f"table must be a pyarrow Table, got {type(table).__name__}",
                hint='paths of files go to "Source.parquet" or "Source.csv"',
            )
        return cls(format="arrow", frame=table, mapped=_mapped(columns, casts))

    @classmethod
    def table(cls, name: str, columns: Names = None, *, casts: Names = None) -> Source:
        """A table or view that the Spark session knows."""
        return cls(format="table", paths=(name,), mapped=_mapped(columns, casts))

    @classmethod
    def dataframe(cls, frame: Any, columns: Names = None, *, casts: Names = None) -> Source:
        """A DataFrame of the session. It is read exactly once."""
        return cls(format="frame", frame=frame, mapped=_mapped(columns, casts))


class TypedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source and the type whose rows it holds."""

    table_key: str
    source: Source


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """A load's input, resolved against a schema: graph NDJSON by address, and typed sources."""

    graph_files: tuple[str, ...] = ()
    typed: tuple[TypedSource, ...] = ()
    ready: tuple[Input, ...] = ()  # what a caller handed over, cut into tasks

    @property
    def any_type(self) -> bool:
        """Whether rows of every type may come."""
        return bool(self.graph_files or self.ready)


def resolve(sources: Any, catalog: Catalog, files: FileAccess) -> Inputs:
    """What the caller gave as `sources`, in one shape; `InputError` names what cannot be read."""
    if isinstance(sources, Inputs):
        return sources
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

    Files are told by their address, DataFrames by their columns; what is in them is not read. Only
    tables in memory are told by their rows.
    """
    if isinstance(sources, Mapping):
        return {str(name): declared(given) for name, given in sources.items()}
    if isinstance(sources, str | os.PathLike):
        address = os.fspath(sources)
        path = local_path(address)
        return address if path is None else os.path.abspath(path)
    if isinstance(sources, Source) and sources.format == "rows":
        lines = "\n".join(map(text_of, sources.frame))
        return {"rows": hashlib.sha256(lines.encode(errors="surrogatepass")).hexdigest()}
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
    if isinstance(sources, pa.Table):
        found = hashlib.sha256(sources.schema.serialize())
        for batch in sources.combine_chunks().to_batches():
            found.update(batch.serialize())
        return {"arrow": found.hexdigest()}
    if hasattr(sources, "mapInArrow"):  # a DataFrame, classic or Connect
        return {"frame": sources.schema.simpleString()}
    if isinstance(sources, Sequence) and not isinstance(sources, bytes):
        return [declared(one) for one in sources]
    return type(sources).__name__  # nothing that could be loaded: `resolve` says so


def type_named(name: str, catalog: Catalog) -> Entity:
    """The type of a name or table key; node types first, edge names in any letter case."""
    kind, separator, rest = name.partition(":")
    if separator and kind in ("node", "edge"):
        found = catalog.nodes.get(rest) if kind == "node" else catalog.edge_named(rest)
    else:
        found = catalog.nodes.get(name) or catalog.edge_named(name)
    if found is None:
        known = [entity.name for entity in catalog.types()]
        near = closest(name, known)
        hint = f"did you mean '{near}'?" if near else f"the schema has {', '.join(known)}"
        raise NotFoundError(f"unknown type '{name}'", kind="type", name=name, hint=hint)
    return found


def held(name: str, given: Any) -> Any:
    """Rows and frames of the caller's as a `Source`, which can be read twice; anything else as it
    is."""
    if is_rows(given):
        return Source(format="rows", frame=rows_of(name, given))
    if isinstance(given, Source | str | os.PathLike) or hasattr(given, "mapInArrow"):
        return given
    table = as_arrow(name, given)
    return given if table is None else Source.arrow(table)


def _each(name: str, given: Any, files: FileAccess) -> list[Source]:
    given = held(name, given)
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
        hint="give its collect()"  # Polars has read nothing yet
        if hasattr(given, "collect")
        else "give rows as dicts, a DataFrame, an Arrow table, a path or a Source",
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


def _paths(given: Paths) -> tuple[str, ...]:
    if isinstance(given, str | os.PathLike):
        return (os.fspath(given),)
    return tuple(os.fspath(one) for one in given)


def _mapped(columns: Names, casts: Names) -> Mapped:
    return Mapped(columns=dict(columns or {}), casts=dict(casts or {}))


_CAST_NAMES: Mapping[str, Scalar] = {
    **{scalar.value.lower(): scalar for scalar in Scalar},
    "str": Scalar.STRING,
    "boolean": Scalar.BOOL,
    "int": Scalar.I32,
    "integer": Scalar.I32,
    "long": Scalar.I64,
    "bigint": Scalar.I64,
    "float": Scalar.F32,
    "double": Scalar.F64,
    "timestamp": Scalar.DATETIME,
}


class ColumnPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Table column → source column, and table column → type to force it into first."""

    takes: Mapping[str, str]
    casts: Mapping[str, PropertyType] = msgspec.field(default_factory=dict)


def plan_columns(
    entity: Entity, available: Sequence[str], mapped: Mapped, *, place: str
) -> ColumnPlan:
    """The plan for a source with these columns, or `InputError` that names what does not fit.

    `mapped.columns` reads "property: source column". Written the other way round it is understood
    as well, if that is the only reading that fits.
    """
    homes = homes_of(entity)
    takes: dict[str, str] = {}
    for target, column in _oriented(mapped.columns, homes, available).items():
        home = homes.get(target)
        if home is None:
            raise InputError(
                f"{place}: {entity.name} has no property '{target}'",
                hint=f"it has {', '.join(sorted(homes))}",
            )
        if column not in available:
            raise InputError(
                f"{place}: there is no column '{column}'", hint=f"it has {', '.join(available)}"
            )
        if home in takes:
            raise InputError(f"{place}: '{home}' of {entity.name} is mapped twice")
        takes[home] = column
    left = [column for column in available if column not in takes.values()]
    unknown = [column for column in left if column not in homes]
    for column in left:
        if column in homes:
            takes.setdefault(homes[column], column)
    if unknown and not mapped.columns:
        near = closest(unknown[0], homes)
        hint = f"did you mean '{near}'?" if near else _way_out(entity, takes, unknown[0])
        if near and re.sub(r"\W+", "_", unknown[0]).lower() == near.lower():  # as `infer` names it
            hint = f'rename it, or map it by columns={{"{near}": "{unknown[0]}"}} of a Source'
        raise InputError(
            f"{place}: unknown column '{unknown[0]}' for {entity.name}",
            hint=hint,
            columns=unknown,
        )
    _require_needed(entity, takes, mapped, place=place)
    return ColumnPlan(takes=takes, casts=_casts(entity, mapped.casts, homes, place=place))


def _way_out(entity: Entity, takes: Mapping[str, str], column: str) -> str:
    """What to do about a column that the type does not know."""
    if isinstance(entity, EdgeType) and not {"src", "dst"} <= takes.keys():
        return f"an edge has columns 'from' (a {entity.from_type}) and 'to' (a {entity.to_type})"
    return (
        "leave it out or rename it; of files, "
        f'Source.parquet(path, columns={{"<property>": "{column}"}}) reads what it names'
    )


def homes_of(entity: Entity) -> dict[str, str]:
    """Every word that may name a column of the type, and the column that it names."""
    if isinstance(entity, EdgeType):
        words = {"from": "src", "to": "dst", "src": "src", "dst": "dst"}
    else:
        words = {"key": entity.key[0] if len(entity.key) == 1 else "id"}
    return {"id": "id", **words, **{prop.name: prop.name for prop in entity.properties}}


def require_distinct(
    names: Sequence[str], place: str, *, hint: str | None = None, **facts: str
) -> None:
    """Refuse a source with two columns of one name."""
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise InputError(f"{place}: two columns are named '{twice}'", hint=hint, **facts)


def _oriented(
    columns: Mapping[str, str], homes: Mapping[str, str], available: Sequence[str]
) -> Mapping[str, str]:
    def fits(pairs: Mapping[str, str]) -> bool:
        return all(target in homes and column in available for target, column in pairs.items())

    turned = {column: target for target, column in columns.items()}
    return turned if not fits(columns) and len(turned) == len(columns) and fits(turned) else columns


def _require_needed(
    entity: Entity, takes: Mapping[str, str], mapped: Mapped, *, place: str
) -> None:
    ends = ("src", "dst") if isinstance(entity, EdgeType) else ()
    required = [
        prop.name
        for prop in entity.properties
        if not prop.type.nullable and prop.default is None
        if not (mapped.fills_vectors and prop.embed is not None and prop.embed.source in takes)
    ]
    for column in (*ends, *required):
        if column not in takes:
            word = {"src": "from", "dst": "to"}.get(column, column)
            raise InputError(
                f"{place}: no column for required '{word}' of {entity.name}",
                hint=f"call the column '{word}', or of files name it: "
                f'Source.parquet(path, columns={{"{word}": "<column>"}})',
            )


def _casts(
    entity: Entity, casts: Mapping[str, str], homes: Mapping[str, str], *, place: str
) -> dict[str, PropertyType]:
    plan: dict[str, PropertyType] = {}
    for target, name in casts.items():
        scalar = _CAST_NAMES.get(name.lower())
        if target not in homes:
            raise InputError(f"{place}: {entity.name} has no property '{target}' to cast")
        if scalar is None or scalar in (Scalar.VECTOR, Scalar.BLOB):
            raise InputError(
                f"{place}: cannot cast to '{name}'",
                hint="use String, Bool, I32, I64, U32, U64, F32, F64, Date or DateTime",
            )
        plan[homes[target]] = PropertyType(scalar=scalar, nullable=True)
    return plan


# --- files of lines, cut into byte ranges ---------------------------------------------------------

# A line belongs to the split in which it starts. Compressed files cannot be entered in the middle:
# they are one split each.

_SEEK_BYTES: Final = 1 << 16
BOM: Final = b"\xef\xbb\xbf"
_WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A byte range of a line file; `end=None` means to the end (compressed files)."""

    address: str
    start: int
    end: int | None


class LineChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Whole lines of a split, without their ends; `first` counts from 0 within the split.

    `text` is the same lines with their ends, for whoever can use them all at once.
    """

    first: int
    lines: Sequence[bytes]
    text: bytes


class BrokenInputError(Exception):
    """The bytes end early or cannot be unpacked; carries how many whole lines came before."""

    def __init__(self, message: str, lines_before: int) -> None:
        super().__init__(message)
        self.lines_before = lines_before


def plan_splits(files: Sequence[InputFile], *, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """Splits in file order; empty files have none."""
    splits: list[Split] = []
    for file in files:
        if file.packing is not None:
            splits.append(Split(address=file.address, start=0, end=None))
            continue
        for start in range(0, file.size, split_bytes):
            end = min(start + split_bytes, file.size)
            splits.append(Split(address=file.address, start=start, end=end))
    return splits


def read_chunks(split: Split, access: FileAccess) -> Iterator[LineChunk]:
    """The lines that start in the split, in chunks of bounded size."""
    packing = packing_of(split.address)
    with access.unpacked(split.address) as file:
        whole = iter(partial(file.read, SPLIT_CHUNK_BYTES), b"")
        blocks = _range_blocks(file, split) if packing is None else whole
        if split.start == 0:
            blocks = _narrow(blocks, split.address)
        lines = 0
        try:
            for chunk in line_chunks(blocks):
                yield chunk
                lines = chunk.first + len(chunk.lines)
        except OSError as cause:
            if packing is None:
                raise  # the store's failure, not the file's
            raise BrokenInputError(f"broken {packing} data: {cause}", lines) from cause


def line_chunks(blocks: Iterator[bytes]) -> Iterator[LineChunk]:
    """The lines of text that comes in blocks, as many of each block as are whole."""
    first = 0
    carried = b""
    for block in blocks:
        text = carried + block
        cut = text.rfind(b"\n") + 1
        if not cut:
            carried = text
            if len(carried) > LOAD_LINE_BYTES_MAX + _SEEK_BYTES:
                # Longer than any line may be: hand it over to be refused, skip the rest.
                carried = carried[: LOAD_LINE_BYTES_MAX + 1]
            continue
        carried = text[cut:]
        whole = text[:cut] if carried else text
        lines = whole.split(b"\n")
        lines.pop()
        yield LineChunk(first=first, lines=lines, text=whole)
        first += len(lines)
    if carried:
        yield LineChunk(first=first, lines=[carried], text=carried + b"\n")


def _range_blocks(file: Any, split: Split) -> Iterator[bytes]:
    assert split.end is not None, "only compressed files have open ends"
    position = split.start
    if position > 0:  # the line that starts before us is not ours
        position -= 1
        position += sum(map(len, _rest_of_line(file, position)))
    while position < split.end:
        file.seek(position)
        block = file.read(min(SPLIT_CHUNK_BYTES, split.end - position))
        if not block:
            return
        position += len(block)
        yield block
        if position >= split.end and not block.endswith(b"\n"):
            # The last line runs over the end of the split: it is ours to the end of the line.
            yield from _rest_of_line(file, position)


def _rest_of_line(file: Any, position: int) -> Iterator[bytes]:
    file.seek(position)
    while block := file.read(_SEEK_BYTES):
        cut = block.find(b"\n")
        if cut >= 0:
            yield block[: cut + 1]
            return
        yield block


def _narrow(blocks: Iterator[bytes], address: str) -> Iterator[bytes]:
    """The blocks of a file from its start, without its mark, unless its characters are wide."""
    for number, block in enumerate(blocks):
        if number == 0 and block.startswith(_WIDE_MARKS):
            raise InputError(
                f"{address}: UTF-16 or UTF-32 text, but lines of JSON are UTF-8",
                hint=f"convert it first: iconv -f UTF-16 -t UTF-8 {address}",
                uri=address,
            )
        yield block.removeprefix(BOM) if number == 0 else block
