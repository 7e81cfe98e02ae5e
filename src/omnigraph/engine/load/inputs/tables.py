"""Pieces of Parquet, ORC, CSV and JSON files to shaped rows of one type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import orjson
import pyarrow as pa
from pyarrow import orc, parquet

from omnigraph.engine.arrow import Column, Ints, nulls, pc
from omnigraph.engine.check.findings import PlaceWord, Violation
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.check.values import misfit, missing
from omnigraph.engine.load.inputs.csvrows import CsvRows, csv_rows
from omnigraph.engine.load.inputs.sources import ColumnPlan, Mapped, Source, homes_of, plan_columns
from omnigraph.engine.load.inputs.splits import BrokenInputError, Split, plan_splits, read_chunks
from omnigraph.engine.load.inputs.tabular import as_texts, fitted_column, identity_column
from omnigraph.engine.load.reading import Input, Problem, Problems, Reading, ShapedRows
from omnigraph.engine.load.shape import RawRows, place_of, shape
from omnigraph.engine.rows.columns import CellProblem, batch_schema, column
from omnigraph.errors import InputError
from omnigraph.model.limits import PIECE_ROWS
from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.storage.objects.files import FileAccess, InputFile, Partitions

Fitted = tuple[Column, list[CellProblem]]  # a column of the type, null where a cell does not fit

_IDENTITY = ("id", "src", "dst")
_JSON_ROWS = 16_384
_BATCH_ROWS = 65_536
_TEXT = PropertyType(scalar=Scalar.STRING, nullable=True)


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
            if self.split is not None:
                yield from _shaped_json(self, self.split, reading)
                return
            for read in _read(self, reading):
                reading.problems.add(read.problems)
                table = _with_folder_columns(read.table, self)
                yield from _shaped_table(
                    self, table, reading, numbers=read.numbers, place=self.address
                )
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
        for table in _gathered(iter(self.batches)):
            numbers = np.arange(reading.records, reading.records + table.num_rows, dtype=np.int64)
            reading.records += table.num_rows
            yield from _shaped_table(self, table, reading, numbers=numbers, place=self.table_key)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
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


def _shaped_table(
    source: TablePiece | TableBatches,
    table: pa.Table,
    reading: Reading,
    *,
    numbers: Ints,
    place: str,
) -> Iterator[tuple[str, ShapedRows]]:
    entity = reading.catalog.type_of(source.table_key)
    raw = raw_rows(entity, table, source.mapped, numbers=numbers, place=place)
    shaped = shape(raw, reading, RowTexts(table, numbers))
    if shaped.rows.num_rows or shaped.lost:
        yield source.table_key, shaped


def plan_pieces(entity: Entity, source: Source, files: FileAccess) -> Sequence[Input]:
    """The pieces of a source, in order; reads no more than the files' own footers."""
    if source.format == "arrow":
        return list(_slices(entity, source))
    found = [file for path in source.paths for file in files.found(path)]
    pieces: list[TablePiece] = []
    for file in found:
        common: dict[str, Any] = {
            "table_key": entity.table_key,
            "format": source.format,
            "address": file.address,
            "mapped": source.mapped,
            "options": source.options,
            "partitions": file.partitions,
            "above": _named_above(entity, source.mapped, file),
        }
        if source.format == "json":
            pieces += [TablePiece(split=split, **common) for split in plan_splits([file])]
        elif source.format in ("parquet", "orc"):
            pieces += [
                TablePiece(groups=groups, first=first, **common)
                for groups, first in _groups(file, source.format, files)
            ]
        elif file.size:
            pieces.append(TablePiece(**common))
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


def _named_above(entity: Entity, mapped: Mapped, file: InputFile) -> Partitions:
    """What folders in the address itself say. They may mean anything, so only names that the type
    or the mapping knows count; without this, `load("day=3/x.parquet")` would leave `day` null."""
    known = {*homes_of(entity), *mapped.columns, *mapped.columns.values()}
    below = {name for name, _ in file.partitions}
    told = {name: value for name, value in file.above if name in known and name not in below}
    return tuple(told.items())


def _groups(file: InputFile, kind: str, files: FileAccess) -> Iterator[tuple[tuple[int, ...], int]]:
    """Row groups or stripes, gathered until a piece has enough rows."""
    with files.open(file.address) as opened:
        try:
            if kind == "parquet":
                meta = parquet.read_metadata(opened)
                sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
            else:
                stripes = orc.ORCFile(opened)
                rows, count = stripes.nrows, stripes.nstripes
                # ORC's reader does not tell the length of a stripe: one piece for the whole file.
                yield (tuple(range(count)), 0) if rows else ((), 0)
                return
        except (pa.ArrowInvalid, OSError) as cause:
            raise InputError(
                f"{file.address}: not a readable {kind} file: {cause}", uri=file.address
            ) from cause
    taken: list[int] = []
    first = seen = 0
    for number, size in enumerate(sizes):
        taken.append(number)
        seen += size
        if seen - first >= PIECE_ROWS:
            yield tuple(taken), first
            taken, first = [], seen
    if taken:
        yield tuple(taken), first


def _read(piece: TablePiece, reading: Reading) -> Iterator[CsvRows]:
    """The rows of the piece with their numbers, and what is wrong with those that are missing."""
    if piece.format == "csv":
        for rows in csv_rows(piece.address, piece.options, reading.files):
            reading.records += rows.records
            yield rows
        return
    for table in _tables(piece, reading.files):
        numbers = np.arange(reading.records, reading.records + table.num_rows, dtype=np.int64)
        reading.records += table.num_rows
        yield CsvRows(table=table, numbers=numbers, problems=(), records=table.num_rows)


def _tables(piece: TablePiece, files: FileAccess) -> Iterator[pa.Table]:
    with files.open(piece.address) as opened:
        match piece.format:
            case "parquet":
                reader = parquet.ParquetFile(opened)
                for batch in reader.iter_batches(PIECE_ROWS // 4, row_groups=list(piece.groups)):
                    yield pa.Table.from_batches([batch])
            case "orc":
                stripes = orc.ORCFile(opened)
                for number in piece.groups:
                    yield pa.Table.from_batches([stripes.read_stripe(number)])
            case other:
                raise AssertionError(f"no reader for {other}")


def _folder_columns(piece: TablePiece, columns: Sequence[str]) -> dict[str, str | None]:
    """The columns that the folders add to these of the file, by name."""
    added: dict[str, str | None] = {n: value for n, value in piece.above if n not in columns}
    for name, value in piece.partitions:
        if name in columns or name in added:
            raise InputError(
                f"{piece.address}: column '{name}' is in the file and in the name of its folder",
                hint="take it out of one of them",
                uri=piece.address,
            )
        added[name] = value
    return added


def _with_folder_columns(table: pa.Table, piece: TablePiece) -> pa.Table:
    for name, value in _folder_columns(piece, table.column_names).items():
        table = table.append_column(name, _repeated(value, table.num_rows))
    return table


def _repeated(value: str | None, rows: int) -> Column:
    return pa.repeat(pa.scalar(value, pa.string()), rows)


def _plain(cell: Any) -> Any:
    """The one value of a column. Days and times that Python does not have are texts."""
    try:
        return cell[0].as_py()
    except (OverflowError, ValueError):
        return as_texts(cell)[0].as_py()


class RowTexts(Mapping[int, str]):
    """The rows of a table as JSON text, made only when it is asked for."""

    def __init__(self, table: pa.Table, numbers: Ints) -> None:
        self._table, self._numbers = table, numbers

    def __getitem__(self, number: int) -> str:
        at = int(np.searchsorted(self._numbers, number))
        if at >= len(self._numbers) or self._numbers[at] != number:
            raise KeyError(number)
        row = self._table.slice(at, 1)
        cells = {name: _plain(row[name]) for name in row.column_names}
        return orjson.dumps(cells, default=str).decode()

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers.tolist())

    def __len__(self) -> int:
        return self._table.num_rows


def raw_rows(
    entity: Entity, table: pa.Table, mapped: Mapped, *, numbers: Ints, place: str
) -> RawRows:
    """The source's columns as the type's columns, with what does not fit."""
    plan = plan_columns(entity, table.column_names, mapped, place=place)

    def fit(target: str, name: str, cast: PropertyType | None) -> Fitted:
        return _fitted(entity, target, table.column(name), cast)

    return _raw_rows(entity, plan, fit, rows=table.num_rows, numbers=numbers)


def _raw_rows(
    entity: Entity,
    plan: ColumnPlan,
    fit: Callable[[str, str, PropertyType | None], Fitted],
    *,
    rows: int,
    numbers: Ints,
) -> RawRows:
    """The type's columns, each by `fit` from its name, the source's name for it and its cast."""
    columns: dict[str, Column] = {}
    violations: list[Violation] = []
    misfits: set[tuple[int, str]] = set()
    for target, name in plan.takes.items():
        cast = plan.casts.get(target)
        columns[target], problems = fit(target, name, cast)
        misfits |= {(problem.row, target) for problem in problems}
        violations += [
            misfit(entity, target, problem, place_of(int(numbers[problem.row])))
            for problem in problems
        ]
    violations += _open_ends(entity, columns, misfits, numbers)
    return RawRows(
        entity=entity,
        rows=completed(entity, columns, rows),
        numbers=numbers,
        misfits=frozenset(misfits),
        violations=tuple(violations),
    )


def _fitted(entity: Entity, target: str, values: Column, cast: PropertyType | None) -> Fitted:
    if target in _IDENTITY:
        return identity_column(values, cast)
    return fitted_column(values, entity.by_name[target].type, cast)


def _open_ends(
    entity: Entity,
    columns: Mapping[str, Column],
    misfits: set[tuple[int, str]],
    numbers: Ints,
) -> list[Violation]:
    """Edges that do not say where they start or end."""
    return [
        missing(entity, word, place_of(int(numbers[row])), absent=False)
        for target, word in (("src", "from"), ("dst", "to"))
        if target in columns and columns[target].null_count
        for row in np.flatnonzero(np.asarray(pc.is_null(columns[target])))
        if (int(row), target) not in misfits
    ]


def completed(entity: Entity, columns: Mapping[str, Column], rows: int) -> pa.Table:
    """All columns of the type: missing ones are null or the default, and so are null cells of a
    property that has a default and may not be null."""
    filled: list[Column] = []
    for field_ in batch_schema(entity):
        prop = entity.by_name.get(field_.name)
        values = columns.get(field_.name)
        given = values is not None
        if values is None:
            values = nulls(rows, field_.type)
        if prop is None or prop.default is None or not values.null_count:
            filled.append(values)
            continue
        if not given or not prop.type.nullable:
            values = pc.fill_null(values, column([prop.default], prop.type, strict=True)[0][0])
        filled.append(values)
    return pa.Table.from_arrays(filled, schema=batch_schema(entity))


# --- JSON: one flat object a line -------------------------------------------------------------


def _shaped_json(
    piece: TablePiece, split: Split, reading: Reading
) -> Iterator[tuple[str, ShapedRows]]:
    entity = reading.catalog.type_of(piece.table_key)
    for chunk in read_chunks(split, reading.files):
        objects: list[dict[str, Any]] = []
        numbers: list[int] = []
        for number, line in enumerate(chunk.lines, chunk.first):
            if line.strip(b" \t\r"):
                found = _json_object(number, line, reading.problems)
                if found is not None:
                    objects.append(found)
                    numbers.append(number)
                reading.records += 1
        reading.lines = chunk.first + len(chunk.lines)
        for start in range(0, len(objects), _JSON_ROWS):
            some = objects[start : start + _JSON_ROWS]
            at = np.array(numbers[start : start + _JSON_ROWS], dtype=np.int64)
            raw = _json_rows(entity, some, piece, numbers=at)
            shaped = shape(raw, reading, _ObjectTexts(at, some))
            if shaped.rows.num_rows or shaped.lost:
                yield piece.table_key, shaped


class _ObjectTexts(Mapping[int, str]):
    """JSON objects as text by their line numbers."""

    def __init__(self, numbers: Ints, objects: Sequence[dict[str, Any]]) -> None:
        self._objects = dict(zip(numbers.tolist(), objects, strict=True))

    def __getitem__(self, number: int) -> str:
        return orjson.dumps(self._objects[number]).decode()

    def __iter__(self) -> Iterator[int]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)


def _json_object(number: int, line: bytes, problems: Problems) -> dict[str, Any] | None:
    try:
        value = orjson.loads(line)
        text = None if isinstance(value, dict) else "expected a JSON object"
    except orjson.JSONDecodeError as cause:
        value, text = None, f"invalid strict JSON: {cause}"
    if text is None:
        return dict(value)
    raw = line.decode(errors="replace")
    problems.add([Problem(number=number, kind="record", text=text, raw=raw)])
    return None


def _json_rows(
    entity: Entity, objects: Sequence[dict[str, Any]], piece: TablePiece, *, numbers: Ints
) -> RawRows:
    names: dict[str, None] = {}
    for one in objects:
        names.update(dict.fromkeys(one))
    folders = _folder_columns(piece, list(names))
    plan = plan_columns(entity, [*names, *folders], piece.mapped, place=piece.address)

    def fit(target: str, name: str, cast: PropertyType | None) -> Fitted:
        if name in folders:
            return _fitted(entity, target, _repeated(folders[name], len(objects)), cast)
        return _json_cells(entity, target, [one.get(name) for one in objects], cast)

    return _raw_rows(entity, plan, fit, rows=len(objects), numbers=numbers)


def _json_cells(
    entity: Entity, target: str, values: list[Any], cast: PropertyType | None
) -> Fitted:
    kind = _TEXT if target in _IDENTITY else entity.by_name[target].type
    if target in _IDENTITY:
        values = [str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]
    if cast is not None:
        values = [_cast_cell(value, cast) for value in values]
    return column(values, kind, strict=True)


def _cast_cell(value: Any, cast: PropertyType) -> Any:
    if value is None:
        return None
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    fitted, problems = fitted_column(pa.array([text]), cast)
    return value if problems else fitted[0].as_py()
