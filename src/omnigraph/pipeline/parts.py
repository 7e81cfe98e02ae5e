"""Staged rows and stored rows as tasks see them: columns by address, in any process.

A `Part` is what one task staged for one table. A row of it is named by the part and its ordinal,
which holds from staging to the end of the load; that name is turned into a file and a line only
when somebody has to be told.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import World
from omnigraph.pipeline.arrow import Ints, Mask, pc
from omnigraph.pipeline.files import FileAccess
from omnigraph.storage import sql
from omnigraph.storage.fragments import read_columns
from omnigraph.storage.layout import branch_folder
from omnigraph.storage.objects import Root
from omnigraph.storage.table import Table, Tables


@dataclass(frozen=True, kw_only=True)
class GraphAccess:
    """How a task reaches the graph: a value that travels, and handles made where it arrives."""

    uri: str
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets

    @cached_property
    def root(self) -> Root:
        return Root.parse(self.uri, self.environ)

    def table(self, entry: TableEntry) -> Table:
        """The stored table at the entry's version."""
        return self.tables.open(entry)

    def folder(self, entry: TableEntry) -> str:
        """Where the fragments of a table's line are written."""
        return self.root.child(branch_folder(entry.location, entry.branch))

    @property
    def options(self) -> dict[str, str]:
        return self.root.storage_options

    @cached_property
    def tables(self) -> Tables:
        return Tables(self.root, World())

    def __getstate__(self) -> dict[str, Any]:
        return {"uri": self.uri, "environ": dict(self.environ)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one task staged for one table: uncommitted fragments, in the order of its input.

    `number` orders the parts of a load as their input was ordered. `fresh_ids` says that all ids
    were made by us, so that none of them can be met twice.
    """

    number: int
    table_key: str
    entry: TableEntry
    receipts: tuple[str, ...]
    rows: int
    fresh_ids: bool = False
    numbers: tuple[bytes, ...] = ()  # which record each row was, packed
    samples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # keys by rule label
    spills: tuple[str, ...] = ()  # files with the rows, where the fragments cannot be read back
    lost: int = 0  # records of the table that were refused
    ghosts: tuple[str, ...] = ()  # files with the ids of those, for edges that name them
    notes: tuple[str, ...] = ()  # names of the notes about its receipts
    left_out: bytes = b""  # packed ordinals of rows that no check looks at any more

    def without(self, ordinals: Ints) -> Part:
        """The part of a load that will fail, without rows of which is known what is wrong."""
        assert not self.left_out, "the rows of a part are left out once"
        return replace(self, left_out=packed(np.sort(ordinals)))

    def judged(self, ordinals: Ints) -> Mask:
        """Which of these rows checks look at."""
        if not self.left_out:
            return np.ones(len(ordinals), dtype=bool)
        return np.isin(ordinals, unpacked(self.left_out), invert=True)

    sorted_keys: Mapping[str, str] = field(default_factory=dict)  # column → file, a batch a range

    def record_numbers(self) -> Ints:
        """Which record of the part's input each row was."""
        none = np.empty(0, dtype=np.int64)
        return np.concatenate([none, *(unpacked(one) for one in self.numbers)])

    def all_rows(self, access: GraphAccess, names: Sequence[str]) -> pa.Table:
        """Every row with these columns, for being written again."""
        if not self.spills:
            return self.columns(access, names)
        files = FileAccess(environ=access.environ)
        tables = []
        for spill in self.spills:
            with files.open(spill) as file, pa.ipc.open_file(file) as reader:
                tables.append(reader.read_all().select(list(names)))
        return pa.concat_tables(tables)

    def columns(self, access: GraphAccess, names: Sequence[str]) -> pa.Table:
        """These columns of all rows, in order."""
        tables = [
            read_columns(access.folder(self.entry), access.options, receipt, list(names))
            for receipt in self.receipts
        ]
        return pa.concat_tables(tables)


STAGING_FOLDER = "__staging"


def staging_folder(uri: str) -> str:
    """Where files are that no commit will ever name."""
    return f"{uri}/{STAGING_FOLDER}"


def scratch_folder(uri: str) -> str:
    """A folder of its own below the graph for files that live only as long as a load."""
    return f"{staging_folder(uri)}/{uuid.uuid4().hex}"


def write_spill(files: FileAccess, folder: str, rows: pa.Table) -> str:
    """Keep rows in a file of their own; its address."""
    address = f"{folder}/{uuid.uuid4().hex}.arrow"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    files.write(address, sink.getvalue().to_pybytes())
    return address


def packed(numbers: Ints) -> bytes:
    """Growing numbers in few bytes: mostly their distances are one."""
    if not len(numbers):
        return b""
    steps = np.diff(numbers).astype(np.uint32).tobytes()
    return int(numbers[0]).to_bytes(8, "little") + zlib.compress(steps, 1)


def unpacked(content: bytes) -> Ints:
    """The numbers that `packed` packed."""
    if not content:
        return np.empty(0, dtype=np.int64)
    steps = np.frombuffer(zlib.decompress(content[8:]), dtype=np.uint32)
    first = np.array([int.from_bytes(content[:8], "little")], dtype=np.int64)
    return np.cumsum(np.concatenate([first, steps.astype(np.int64)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Keys from `low` (inclusive) to `high` (exclusive); None is open."""

    low: str | None = None
    high: str | None = None
    number: int = 0  # among the ranges of its key space

    def where(self, column: str) -> str | None:
        """The range as a condition on a stored column."""
        terms = []
        if self.low is not None:
            terms.append(f"{sql.column(column)} >= {sql.literal(self.low)}")
        if self.high is not None:
            terms.append(f"{sql.column(column)} < {sql.literal(self.high)}")
        return " AND ".join(terms) or None

    def mask(self, keys: Any) -> Any:
        """Which of the keys lie in the range; None means all (nulls lie nowhere)."""
        mask: Any = None
        if self.low is not None:
            mask = pc.greater_equal(keys, pa.scalar(self.low))
        if self.high is not None:
            below = pc.less(keys, pa.scalar(self.high))
            mask = below if mask is None else pc.and_(mask, below)
        return mask


def ranges_of(splitters: Sequence[str]) -> Iterator[KeyRange]:
    """The ranges between sorted splitters, open at both ends."""
    ends = [None, *splitters, None]
    for number, (low, high) in enumerate(pairwise(ends)):
        yield KeyRange(low=low, high=high, number=number)
