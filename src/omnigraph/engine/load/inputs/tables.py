"""Files of Parquet, ORC, CSV and JSON, and Arrow tables: cut into pieces, and read as rows of one
type. A reader gives columns and the number of every row; all that follows is the same for all."""

from __future__ import annotations

import csv as textcsv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Literal

import msgspec
import numpy as np
import orjson
import pyarrow as pa
from msgspec.structs import replace
from pyarrow import csv, orc, parquet

from omnigraph.engine.arrow import Column, Ints, Mask, flat, pc
from omnigraph.engine.check.findings import PlaceWord
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.load.inputs.objects import text_of
from omnigraph.engine.load.inputs.sources import (
    HEADER_SEPARATOR,
    BrokenInputError,
    Mapped,
    Source,
    Split,
    homes_of,
    plan_columns,
    plan_splits,
    read_chunks,
    require_distinct,
)
from omnigraph.engine.load.inputs.tabular import SourceColumns, as_texts, raw_rows
from omnigraph.engine.load.reading import Input, Problem, Reading, ShapedRows, TextOf, shape
from omnigraph.errors import InputError
from omnigraph.model.limits import PIECE_ROWS, SPLIT_CHUNK_BYTES
from omnigraph.storage.objects.files import FileAccess, InputFile, Partitions

_JSON_ROWS: Final = 16_384
_BATCH_ROWS: Final = 65_536
_BLOCK_BYTES = 8 << 20
_MARKS: Final[Sequence[tuple[bytes, str]]] = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_ENCODING_HINT: Final = 'say how it is encoded: Source.csv(path, encoding="latin-1")'


class SourceRows(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows of a source: their columns, their numbers in it, and the text of any of them."""

    columns: SourceColumns
    numbers: Ints
    text: TextOf

    @classmethod
    def of(cls, table: pa.Table, numbers: Ints, *, place: str) -> SourceRows:
        require_distinct(table.column_names, place)
        columns = dict(zip(table.column_names, table.columns, strict=True))
        return cls(columns=columns, numbers=numbers, text=partial(_row_text, table, numbers))


def _row_text(table: pa.Table, numbers: Ints, number: int) -> str:
    """A row as JSON. Days and times that Python does not have are texts."""
    row = table.slice(int(np.searchsorted(numbers, number)), 1)
    cells = {}
    for name in row.column_names:
        try:
            cells[name] = row[name][0].as_py()
        except (OverflowError, ValueError):
            cells[name] = as_texts(row[name])[0].as_py()
    return orjson.dumps(cells, default=str).decode()


class TablePiece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of one file: row groups, stripes, a byte range of lines, or all of it."""

    table_key: str
    format: str
    address: str
    mapped: Mapped
    options: Mapping[str, str] = {}
    groups: tuple[int, ...] = ()
    first: int = 0
    split: Split | None = None
    partitions: Partitions = ()  # columns that the names of its folders add
    above: Partitions = ()  # the same from folders that the user named: the file's own come first

    @property
    def word(self) -> PlaceWord:
        return "row" if self.split is None else "line"

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        """The good rows of the piece, batch after batch."""
        try:
            for rows in _READERS[self.format](self, reading):
                yield from _shaped(self, rows, reading, place=self.address)
        except (pa.ArrowInvalid, BrokenInputError, OSError, UnicodeError) as cause:
            text = f"cannot read on: {str(cause).splitlines()[0]}"
            problem = Problem(number=reading.records, kind="file", text=text)
            reading.problems.add([problem])


class TableBatches(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one type that come as Arrow: of a table in memory, or of one partition of Spark's."""

    table_key: str
    mapped: Mapped
    address: str
    batches: Iterable[pa.RecordBatch]
    first: int = 0

    word: ClassVar[PlaceWord] = "row"

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        for table in _gathered(self.batches):
            numbers = _next_numbers(table, reading)
            rows = SourceRows.of(table, numbers, place=self.table_key)
            yield from _shaped(self, rows, reading, place=self.table_key)


class HeldRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one type that the caller holds as dictionaries."""

    table_key: str
    mapped: Mapped
    address: str
    rows: Sequence[dict[str, Any]]
    first: int = 0

    word: ClassVar[PlaceWord] = "row"

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        for start in range(0, len(self.rows), _JSON_ROWS):
            objects = self.rows[start : start + _JSON_ROWS]
            numbers = np.arange(start, start + len(objects), dtype=np.int64)
            reading.records += len(objects)
            yield from _shaped(self, _object_rows(objects, numbers), reading, place=self.address)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Small batches put together, because every step of shaping costs something."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
        if count >= _BATCH_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _next_numbers(table: pa.Table, reading: Reading) -> Ints:
    """The numbers of rows that follow all those read so far."""
    first = reading.records
    reading.records += table.num_rows
    return np.arange(first, reading.records, dtype=np.int64)


def _shaped(
    source: TablePiece | TableBatches | HeldRows, rows: SourceRows, reading: Reading, *, place: str
) -> Iterator[tuple[str, ShapedRows]]:
    entity = reading.catalog.type_of(source.table_key)
    raw = raw_rows(entity, rows.columns, source.mapped, numbers=rows.numbers, place=place)
    shaped = shape(raw, reading, rows.text)
    if shaped.rows.num_rows or shaped.lost:
        yield source.table_key, shaped


# --- pieces -----------------------------------------------------------------------------------


def plan_pieces(entity: Entity, source: Source, files: FileAccess) -> Sequence[Input]:
    """The pieces of a source, in order; reads no more than the files' own footers."""
    if source.format == "arrow":
        return list(_slices(entity, source))
    if source.format == "rows":
        return list(_row_slices(entity, source))
    pieces: list[TablePiece] = []
    for file in (file for path in source.paths for file in files.found(path)):
        piece = partial(
            TablePiece,
            table_key=entity.table_key,
            format=source.format,
            address=file.address,
            mapped=source.mapped,
            options=source.options,
            partitions=file.partitions,
            above=_named_above(entity, source.mapped, file),
        )
        if source.format == "json":
            pieces += [piece(split=split) for split in plan_splits([file])]
        elif source.format in ("parquet", "orc"):
            found = _groups(file, source.format, files)
            pieces += [piece(groups=groups, first=first) for groups, first in found]
        elif file.size:
            pieces.append(piece())
    return pieces


def _slices(entity: Entity, source: Source) -> Iterator[TableBatches]:
    table: pa.Table = source.frame
    plan_columns(entity, table.column_names, source.mapped, place=f"source of {entity.name}")
    for first in range(0, max(table.num_rows, 1), PIECE_ROWS):
        yield TableBatches(
            table_key=entity.table_key,
            mapped=source.mapped,
            address=entity.name,
            batches=table.slice(first, PIECE_ROWS).to_batches(),
            first=first,
        )


def _row_slices(entity: Entity, source: Source) -> Iterator[HeldRows]:
    for first in range(0, len(source.frame), PIECE_ROWS):
        yield HeldRows(
            table_key=entity.table_key,
            mapped=source.mapped,
            address=entity.name,
            rows=source.frame[first : first + PIECE_ROWS],
            first=first,
        )


def _named_above(entity: Entity, mapped: Mapped, file: InputFile) -> Partitions:
    """What folders in the address itself say. They may mean anything, so only names that the type
    or the mapping knows count; without this, `load("day=3/x.parquet")` would leave `day` null."""
    known = {*homes_of(entity), *mapped.columns, *mapped.columns.values()}
    below = {name for name, _ in file.partitions}
    told = {name: value for name, value in file.above if name in known and name not in below}
    return tuple(told.items())


def _groups(file: InputFile, kind: str, files: FileAccess) -> Iterator[tuple[tuple[int, ...], int]]:
    """Row groups or stripes, gathered until a piece has enough rows, and the number of its first
    row."""
    with files.open(file.address) as opened:
        try:
            if kind == "orc":
                # ORC's reader does not tell the length of a stripe: one piece for the whole file.
                stripes = orc.ORCFile(opened)
                yield tuple(range(stripes.nstripes)) if stripes.nrows else (), 0
                return
            meta = parquet.read_metadata(opened)
        except (pa.ArrowInvalid, OSError) as cause:
            raise InputError(
                f"{file.address}: not a readable {kind} file: {cause}", uri=file.address
            ) from cause
    taken: list[int] = []
    first = seen = 0
    for number in range(meta.num_row_groups):
        taken.append(number)
        seen += meta.row_group(number).num_rows
        if seen - first >= PIECE_ROWS:
            yield tuple(taken), first
            taken, first = [], seen
    if taken:
        yield tuple(taken), first


def _folder_columns(piece: TablePiece, columns: Sequence[str], rows: int) -> dict[str, Column]:
    """The columns that the folders add to these of the file, by name."""
    added = {name: value for name, value in piece.above if name not in columns}
    for name, value in piece.partitions:
        if name in columns or name in added:
            raise InputError(
                f"{piece.address}: column '{name}' is in the file and in the name of its folder",
                hint="take it out of one of them",
                uri=piece.address,
            )
        added[name] = value
    return {name: pa.repeat(pa.scalar(text, pa.string()), rows) for name, text in added.items()}


# --- readers ----------------------------------------------------------------------------------


def _table_rows(piece: TablePiece, table: pa.Table, numbers: Ints) -> SourceRows:
    for name, column in _folder_columns(piece, table.column_names, table.num_rows).items():
        table = table.append_column(name, column)
    return SourceRows.of(table, numbers, place=piece.address)


def _arrow_rows(piece: TablePiece, reading: Reading) -> Iterator[SourceRows]:
    with reading.files.open(piece.address) as opened:
        if piece.format == "parquet":
            groups, file = list(piece.groups), parquet.ParquetFile(opened)
            batches = file.iter_batches(_rows_at_once(file.metadata, groups), row_groups=groups)
        else:
            batches = map(orc.ORCFile(opened).read_stripe, piece.groups)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            yield _table_rows(piece, table, _next_numbers(table, reading))


def _rows_at_once(metadata: parquet.FileMetaData, groups: Sequence[int]) -> int:
    """How many rows are shaped together: fewer if they are long, for memory."""
    some = [metadata.row_group(group) for group in groups]
    rows, size = sum(one.num_rows for one in some), sum(one.total_byte_size for one in some)
    return max(1, min(PIECE_ROWS // 4, SPLIT_CHUNK_BYTES * rows // max(size, 1)))


def _json_rows(piece: TablePiece, reading: Reading) -> Iterator[SourceRows]:
    """One flat object a line."""
    assert piece.split is not None, "files of lines are cut into splits"
    for chunk in read_chunks(piece.split, reading.files):
        objects: list[dict[str, Any]] = []
        numbers: list[int] = []
        for number, line in enumerate(chunk.lines, chunk.first):
            if not line.strip(b" \t\r"):
                continue
            reading.records += 1
            try:
                value, text = orjson.loads(line), "expected a JSON object"
            except orjson.JSONDecodeError as cause:
                value, text = None, f"invalid strict JSON: {cause}"
            if isinstance(value, dict):
                objects.append(value)
                numbers.append(number)
            else:
                raw = line.decode(errors="replace")
                problem = Problem(number=number, kind="record", text=text, raw=raw)
                reading.problems.add([problem])
        reading.lines = chunk.first + len(chunk.lines)
        for start in range(0, len(objects), _JSON_ROWS):
            some = slice(start, start + _JSON_ROWS)
            found = _object_rows(objects[some], np.array(numbers[some], dtype=np.int64))
            added = _folder_columns(piece, list(found.columns), len(found.numbers))
            yield replace(found, columns={**found.columns, **added})


def _object_rows(objects: Sequence[dict[str, Any]], numbers: Ints) -> SourceRows:
    names: dict[str, None] = {}
    for one in objects:
        names.update(dict.fromkeys(one))
    return SourceRows(
        columns={name: [one.get(name) for one in objects] for name in names},
        numbers=numbers,
        text=lambda number: text_of(objects[int(np.searchsorted(numbers, number))]),
    )


def _csv_rows(piece: TablePiece, reading: Reading) -> Iterator[SourceRows]:
    """The rows as text. What Arrow cannot split, and cells that are not text, are problems of
    their rows, so that the rest of the file can still be read."""
    with reading.files.unpacked(piece.address) as content:
        head = content.read(_BLOCK_BYTES)
    if not head:
        return
    marked = (encoding for mark, encoding in _MARKS if head.startswith(mark))
    encoding = next(marked, piece.options.get("encoding", "utf8"))
    names = _names(piece.address, head, encoding, piece.options)
    first = 1 if "header" in piece.options else 2  # what Arrow calls the first row with data
    skipped: list[Problem] = []

    def skip(row: csv.InvalidRow) -> Literal["skip", "error"]:
        assert row.number is not None, "Arrow numbers rows when it uses one thread"
        text = f"expected {row.expected_columns} columns, got {row.actual_columns}"
        number = row.number - first
        skipped.append(Problem(number=number, kind="record", text=text, raw=row.text))
        return "skip"

    with reading.files.unpacked(piece.address) as content:
        position, holes = 0, list[int]()
        for batch in _csv_batches(content, names, encoding, piece.options, skip):
            problems = [*skipped]
            skipped.clear()
            reading.records += batch.num_rows + len(problems)
            # Rows that were skipped leave holes, which may lie ahead of what has been read.
            holes = [hole for hole in holes if hole >= position] + [one.number for one in problems]
            every = np.arange(position, position + batch.num_rows + len(holes), dtype=np.int64)
            numbers = np.setdiff1d(every, np.array(holes, dtype=np.int64))[: batch.num_rows]
            position = int(numbers[-1]) + 1 if len(numbers) else position
            table, numbers = _as_text(batch, numbers, problems)
            reading.problems.add(problems)
            yield _table_rows(piece, table, numbers)
        # Where no row at all is good there is no batch that its problems could come with.
        reading.records += len(skipped)
        reading.problems.add(skipped)


def _csv_batches(
    content: Any,
    names: list[str],
    encoding: str,
    options: Mapping[str, str],
    skip: Callable[[csv.InvalidRow], Literal["skip", "error"]],
) -> Iterable[pa.RecordBatch]:
    return csv.open_csv(
        content,
        read_options=csv.ReadOptions(
            column_names=names if "header" in options else None,
            use_threads=False,
            block_size=_BLOCK_BYTES,
            encoding=encoding,
        ),
        parse_options=csv.ParseOptions(
            delimiter=options.get("delimiter", ","),
            newlines_in_values=True,
            invalid_row_handler=skip,
        ),
        convert_options=csv.ConvertOptions(
            null_values=[options.get("null", "")],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            # Everything is text until the schema says what it is, and bytes until we know which
            # cells are not even text.
            column_types=dict.fromkeys(names, pa.binary()),
        ),
    )


def _as_text(
    batch: pa.RecordBatch, numbers: Ints, problems: list[Problem]
) -> tuple[pa.Table, Ints]:
    """The rows whose cells are all text; the others become problems."""
    columns: list[Column] = []
    bad = np.zeros(batch.num_rows, dtype=bool)
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        column, wrong = _text(values)
        columns.append(column)
        for row in np.flatnonzero(wrong & ~bad):
            text, number = f"column '{name}' is not UTF-8 text", int(numbers[row])
            problems.append(Problem(number=number, kind="record", text=text, hint=_ENCODING_HINT))
        bad |= wrong
    table = pa.Table.from_arrays(columns, names=batch.schema.names)
    return (table.filter(pa.array(~bad)), numbers[~bad]) if bad.any() else (table, numbers)


def _text(values: Any) -> tuple[Column, Mask]:
    """The column as text, null where it is none, and which cells those are."""
    wrong = np.zeros(len(values), dtype=bool)
    try:
        return values.cast(pa.string()), wrong
    except pa.ArrowInvalid:
        for row, cell in enumerate(values.to_pylist()):
            try:
                str(cell or b"", "utf-8")
            except UnicodeDecodeError:
                wrong[row] = True
    fit: Any = pc.if_else(pa.array(wrong), pa.scalar(None, pa.binary()), values)
    return flat(fit).cast(pa.string()), wrong


def _names(address: str, head: bytes, encoding: str, options: Mapping[str, str]) -> list[str]:
    """The names of the columns: those that the user gave, or those of the first line."""
    if "header" in options:
        names = options["header"].split(HEADER_SEPARATOR)
    else:
        text = head.decode(encoding, errors="replace").removeprefix("\ufeff")
        delimiter = options.get("delimiter", ",")
        try:
            # With newline="" a carriage return alone ends a line too, as it does for Arrow.
            lines = textcsv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
            names = next((line for line in lines if line), [])
        except textcsv.Error as cause:
            raise InputError(
                f"{address} row 1: cannot read the names of the columns: {cause}", uri=address
            ) from cause
    if any("\0" in name for name in names):
        raise InputError(
            f"{address} row 1: the names of the columns are not text",
            hint='if it is UTF-16: Source.csv(path, encoding="utf-16")',
            uri=address,
        )
    require_distinct(
        names,
        f"{address} row 1",
        hint="give every column a name of its own with header=[…], after taking the line out",
        uri=address,
    )
    return names


_READERS: Final[Mapping[str, Callable[[TablePiece, Reading], Iterator[SourceRows]]]] = {
    "parquet": _arrow_rows,
    "orc": _arrow_rows,
    "json": _json_rows,
    "csv": _csv_rows,
}
