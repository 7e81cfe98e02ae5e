"""Staged rows and stored rows: columns by address, in any process, and what was relied upon.

A `Part` is what one task staged for one table. A row of it is named by the part and its ordinal,
which holds from staging to the end of the load; that name is turned into a file and a line only
when somebody has to be told.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.engine.arrow import Ints, Mask
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.limits import GROUP_ROWS
from omnigraph.model.ports import World
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.model.structs import HidingStruct
from omnigraph.storage.lance.columns import LOCATED
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.objects.root import Root, branch_folder
from omnigraph.storage.table.stage import read_columns
from omnigraph.storage.table.table import Table, Tables


class GraphAccess(HidingStruct, frozen=True, kw_only=True, dict=True):
    """How a task reaches the graph: a value that travels, and handles made where it arrives."""

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"environ"})

    uri: str
    environ: Mapping[str, str] = msgspec.field(default_factory=dict)  # may hold secrets

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

    def sharing(self, tables: Tables) -> GraphAccess:
        """The same, with tables that are open already, as long as it stays in this process."""
        self.__dict__["tables"] = tables
        return self


class KeyFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with one key of some staged rows, cut into `count` hash buckets."""

    by: tuple[str, ...]  # the columns of the key
    address: str
    count: int


_ORDINAL_BITS: Final = 40
Rows = TypeVar("Rows", int, Ints)  # the number of one row, or of some


def row_number(part: int, ordinals: Ints) -> Ints:
    """One number for each row of a part; rows of earlier input have smaller ones."""
    assert part < 1 << (63 - _ORDINAL_BITS), "so many tasks nobody has"
    return (part << _ORDINAL_BITS) | ordinals


def part_of(rows: Rows) -> Rows:
    """The parts of the rows with these numbers."""
    return rows >> _ORDINAL_BITS


def ordinal_of(rows: Rows) -> Rows:
    """The ordinals of these rows in their parts."""
    return rows & ((1 << _ORDINAL_BITS) - 1)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one task staged for one table, in the order of its input: uncommitted fragments, or
    rows that it holds in memory.

    `number` orders the parts of a load as their input was ordered. `fresh_ids` says that all ids
    were made by us, so that none of them can be met twice.
    """

    number: int
    table_key: str
    entry: TableEntry | None = None  # where the fragments are; None: there are none
    receipts: tuple[str, ...] = ()
    held: tuple[pa.Table, ...] = ()  # all rows, if there are no fragments
    rows: int = 0
    fresh_ids: bool = True
    numbers: tuple[bytes, ...] = ()  # which record each row was, packed
    keys: tuple[KeyFile, ...] = ()  # files with the keys of the rows, if those are checked so
    spills: tuple[str, ...] = ()  # files with the rows, where the fragments cannot be read back
    lost: int = 0  # records of the table that were refused
    ghosts: tuple[str, ...] = ()  # files with the ids of those, for edges that name them
    notes: tuple[str, ...] = ()  # names of the notes about its receipts
    left_out: bytes = b""  # packed ordinals of rows that no check looks at any more

    @property
    def first_row(self) -> int:
        """The number of its first row among all rows of the load."""
        return self.number << _ORDINAL_BITS

    def without(self, ordinals: Ints) -> Part:
        """The part of a load that will fail, without rows of which is known what is wrong."""
        assert not self.left_out, "the rows of a part are left out once"
        return replace(self, left_out=packed(np.sort(ordinals)))

    def judged(self, ordinals: Ints) -> Mask:
        """Which of these rows checks look at."""
        if not self.left_out:
            return np.ones(len(ordinals), dtype=bool)
        return np.isin(ordinals, unpacked(self.left_out), invert=True)

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
        if self.entry is None:
            tables = [table.select(list(names)) for table in self.held]
        else:
            folder = access.folder(self.entry)
            tables = [
                read_columns(folder, access.options, receipt, list(names))
                for receipt in self.receipts
            ]
        found = pa.concat_tables(tables)
        # Stored ids are never null and ids in memory may be: as columns they are alike.
        return pa.Table.from_arrays(found.columns, names=found.column_names)


def staging_folder(uri: str) -> str:
    """Where files are that no commit will ever name."""
    return f"{uri}/__staging"


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


# --- pieces of a stored table, one a task ---------------------------------------------------------


class FragmentGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Some fragments of a stored table."""

    entry: TableEntry
    fragments: tuple[int, ...]


def fragment_groups(table: Table, *, rows: int = GROUP_ROWS) -> Iterator[FragmentGroup]:
    """The table's fragments in runs that hold about so many rows each; none for an empty table."""
    numbers = table.fragment_ids
    if not numbers or not table.entry.row_count:
        return
    tasks = max(1, min(len(numbers), -(-table.entry.row_count // rows)))
    for task in range(tasks):
        start, end = len(numbers) * task // tasks, len(numbers) * (task + 1) // tasks
        yield FragmentGroup(entry=table.entry, fragments=numbers[start:end])


# --- what the snapshot holds, read only where it is needed ----------------------------------------


class Stored:
    """The committed rows of one snapshot, seen by one preparation.

    Every table that is asked here counts as relied upon, also when the answer is "nothing": the
    absence of a row is a fact too.
    """

    def __init__(self, snapshot: Snapshot, open_table: Callable[[str], Table]) -> None:
        self._snapshot, self._open = snapshot, open_table  # by table key
        self.relied_on: set[str] = set()
        self._places: dict[str, dict[str, dict[str, Any] | None]] = {}

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    def table(self, table_key: str) -> Table:
        self.relied_on.add(table_key)
        return self._open(table_key)

    def is_empty(self, table_key: str) -> bool:
        self.relied_on.add(table_key)
        return self._snapshot.entries[table_key].row_count == 0

    def rows(self, table_key: str, columns: Sequence[str]) -> pa.Table:
        """The columns of all rows."""
        if self.is_empty(table_key):
            return self._no_rows(table_key, columns)
        return self.table(table_key).read(columns=list(columns))

    def _no_rows(self, table_key: str, columns: Sequence[str]) -> pa.Table:
        schema = self.table(table_key).schema
        return pa.schema([schema.field(name) for name in columns]).empty_table()

    def placed_rows(
        self,
        table_key: str,
        columns: Sequence[str],
        *,
        where: str | None,
        among: tuple[str, Sequence[Any]] | None,
    ) -> pa.Table:
        """The columns, `_rowid` and `_rowaddr` of the rows that satisfy the SQL condition.

        `among`, if there is one, is a column and values one of which it must hold; the condition
        may then be ignored, because the caller judges every row anyway.
        """
        names = [*columns, ROW_ID, ROW_ADDRESS]
        if self.is_empty(table_key) or where == "false":
            return self._no_rows(table_key, columns)
        if among is not None:
            return self.table(table_key).lookup(among[0], among[1], names)
        return self.table(table_key).read(columns=names, where=where)

    def remember_places(self, table_key: str, rows: pa.Table) -> list[int]:
        """Keep where these rows of `placed_rows` are; their row ids in order."""
        if not rows.num_rows:
            return []
        places = rows.select(LOCATED.names).to_pylist()
        self._places.setdefault(table_key, {}).update({place["id"]: place for place in places})
        return [int(place[ROW_ID]) for place in places]

    def rows_where_in(
        self,
        table_key: str,
        column: str,
        values: pa.Array[Any],
        columns: Sequence[str],
        *,
        and_in: Mapping[str, pa.Array[Any]] | None = None,
    ) -> pa.Table:
        """The columns of the rows whose `column` is one of the values, and so for `and_in`."""
        if len(values) == 0 or self.is_empty(table_key):
            return self._no_rows(table_key, columns)
        more = {name: others.to_pylist() for name, others in (and_in or {}).items()}
        return self.table(table_key).lookup(column, values.to_pylist(), columns, and_in=more)

    def locate(self, table_key: str, ids: Collection[str]) -> None:
        """Look up where these ids are, or that they are not there; later questions are free."""
        known = self._places.setdefault(table_key, {})
        asked = [one for one in ids if one not in known]
        if not asked:
            return
        known.update(dict.fromkeys(asked))
        if self.is_empty(table_key):
            return
        for row in self.table(table_key).lookup("id", asked, LOCATED.names).to_pylist():
            known[row["id"]] = row

    def located(self, table_key: str, ids: Sequence[str]) -> pa.Table | None:
        """`id`, `_rowid` and `_rowaddr` of the ids that are stored; None if not looked up yet."""
        known = self._places.get(table_key, {})
        if not known.keys() >= set(ids):
            return None
        found = [row for one in ids if (row := known[one]) is not None]
        return pa.Table.from_pylist(found, schema=LOCATED)

    def present(self, table_key: str, ids: pa.Array[Any]) -> pa.Array[Any]:
        """Those of the ids that are stored."""
        asked = [str(one) for one in ids.to_pylist()] if table_key in self._places else []
        located = self.located(table_key, asked) if asked else None
        if located is None:
            located = self.rows_where_in(table_key, "id", ids, ["id"])
        found = located["id"]
        return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], pa.string())
