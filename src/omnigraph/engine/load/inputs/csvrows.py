"""CSV files as tables of text, with the number of every row in its file.

Arrow splits the rows. What it cannot split, and cells that are not text, are told as problems of
their rows, so that the rest of the file can still be read.
"""

from __future__ import annotations

import csv as textcsv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import csv

from omnigraph.engine.arrow import Column, Ints, flat, pc
from omnigraph.engine.load.reading import Problem
from omnigraph.errors import InputError
from omnigraph.storage.objects.files import FileAccess

HEADER_SEPARATOR: Final = "\x1f"
_BLOCK_BYTES = 8 << 20
_MARKS: Final[Sequence[tuple[bytes, str]]] = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_ENCODING_HINT: Final = 'say how it is encoded: Source.csv(path, encoding="latin-1")'


class CsvRows(msgspec.Struct, frozen=True, kw_only=True):
    """Some rows: `numbers` count all rows of the file that hold data, from 0."""

    table: pa.Table
    numbers: Ints
    problems: tuple[Problem, ...]
    records: int  # rows in the table and rows that are problems


def csv_rows(address: str, options: Mapping[str, str], files: FileAccess) -> Iterator[CsvRows]:
    """All rows of the file, block after block. `OSError`, `pa.ArrowInvalid` or `UnicodeError` say
    that the rest cannot be read; `InputError` that there is no use in trying."""
    with files.unpacked(address) as content:
        head = content.read(_BLOCK_BYTES)
    if not head:
        return
    encoding = _encoding(head, options)
    names = _names(address, head, encoding, options)
    skipped: list[csv.InvalidRow] = []

    def skip(row: csv.InvalidRow) -> Literal["skip", "error"]:
        skipped.append(row)
        return "skip"

    numbering = _Numbering(first=1 if "header" in options else 2)
    with files.unpacked(address) as content:
        batches = csv.open_csv(
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
                # Everything is text until the schema says what it is, and bytes until we know
                # which cells are not even text.
                column_types=dict.fromkeys(names, pa.binary()),
            ),
        )
        for batch in batches:
            problems = numbering.skip(skipped)
            skipped.clear()
            yield _as_text(batch, numbering.take(batch.num_rows), problems)


class _Numbering:
    """Gives rows their numbers although some rows of the file never arrive."""

    def __init__(self, *, first: int) -> None:
        self._first = first  # what Arrow calls the first row with data: rows of the file from 1
        self._next = 0
        self._holes: list[int] = []

    def skip(self, rows: Sequence[csv.InvalidRow]) -> list[Problem]:
        """Leave out the numbers of these rows; they may lie ahead of what has been taken."""
        problems = []
        for row in rows:
            assert row.number is not None, "Arrow numbers rows when it uses one thread"
            number = row.number - self._first
            self._holes.append(number)
            text = f"expected {row.expected_columns} columns, got {row.actual_columns}"
            problems.append(Problem(number=number, kind="record", text=text, raw=row.text))
        return problems

    def take(self, count: int) -> Ints:
        """The numbers of the next rows that do arrive."""
        every = np.arange(self._next, self._next + count + len(self._holes), dtype=np.int64)
        numbers = np.setdiff1d(every, np.array(self._holes, dtype=np.int64))[:count]
        if count:
            self._next = int(numbers[-1]) + 1
        self._holes = [hole for hole in self._holes if hole >= self._next]
        return numbers


def _as_text(batch: pa.RecordBatch, numbers: Ints, problems: list[Problem]) -> CsvRows:
    records = batch.num_rows + len(problems)
    columns: list[Column] = []
    bad = np.zeros(batch.num_rows, dtype=bool)
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        text, wrong = _text(values)
        columns.append(text)
        for row in np.flatnonzero(wrong & ~bad):
            told = f"column '{name}' is not UTF-8 text"
            number = int(numbers[row])
            problems.append(Problem(number=number, kind="record", text=told, hint=_ENCODING_HINT))
        bad |= wrong
    table = pa.Table.from_arrays(columns, names=batch.schema.names)
    if bad.any():
        table, numbers = table.filter(pa.array(~bad)), numbers[~bad]
    return CsvRows(table=table, numbers=numbers, problems=tuple(problems), records=records)


def _text(values: Any) -> tuple[Column, np.ndarray[Any, np.dtype[np.bool_]]]:
    """The column as text, null where it is none, and which cells those are."""
    if pa.types.is_string(values.type):
        return values, np.zeros(len(values), dtype=bool)
    try:
        return values.cast(pa.string()), np.zeros(len(values), dtype=bool)
    except pa.ArrowInvalid:
        pass
    wrong = np.array([not _is_text(cell) for cell in values.to_pylist()], dtype=bool)
    fit: Any = pc.if_else(pa.array(wrong), pa.scalar(None, pa.binary()), values)
    return flat(fit).cast(pa.string()), wrong


def _is_text(cell: bytes | None) -> bool:
    try:
        return cell is None or cell.decode() is not None
    except UnicodeDecodeError:
        return False


def _encoding(head: bytes, options: Mapping[str, str]) -> str:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    return options.get("encoding", "utf8")


def _names(address: str, head: bytes, encoding: str, options: Mapping[str, str]) -> list[str]:
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
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise InputError(
            f"{address} row 1: two columns are named '{twice}'",
            hint="give every column a name of its own with header=[…], after taking the line out",
            uri=address,
        )
    return names
