"""Making derived files: what searches need of big fragments, so that no process has to make it.

It happens after a commit, by whoever brought the rows (`load`, `optimize`, the upkeep that runs by
itself, a change of the schema), in this process or on executors. A reader never waits for a file
and never writes one. What goes wrong is logged: the commit has landed, and the next `optimize`
makes what is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import msgspec

from omnigraph.engine.arrow import pa
from omnigraph.engine.core import Core
from omnigraph.engine.read.search import coded
from omnigraph.engine.read.search import stored as stored_words
from omnigraph.engine.read.search.coded import Coded
from omnigraph.engine.rows.parts import GraphAccess
from omnigraph.engine.text.analysis import Analysis
from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.ports import Runner
from omnigraph.model.schema import EdgeType, Indexing, NodeType, Property, Scalar
from omnigraph.storage.derived import Sections
from omnigraph.storage.objects.root import aws_environment
from omnigraph.storage.table.fragments import ColumnFile

logger = logging.getLogger(__name__)

Made = tuple[Sections, object]  # sections and facts of a file
Maker = Callable[[Any, Indexing], Made]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A file that every big fragment of a table should have: of which column, what is made of it,
    and what the name of the file says."""

    column: str
    what: str  # a key of `MAKERS`
    kind: str
    indexing: Indexing


def _words(values: Any, indexing: Indexing) -> Made:
    return stored_words.made(values, Analysis.of(indexing))


def _numbers(values: Any, _: Indexing) -> Made:
    return Coded.of(values).sections(), {}


# What is made of the values of a column. A task names it, so that it can travel.
MAKERS: Final[Mapping[str, Maker]] = {"words": _words, "numbers": _numbers}


def wanted_of(entity: NodeType | EdgeType) -> tuple[Wanted, ...]:
    """The files that the fragments of a type should have: the words of indexed texts, and the
    numbers that stand for indexed vectors."""
    indexed = dict.fromkeys(chain.from_iterable(entity.index))
    props = (entity.by_name[name] for name in indexed if name in entity.by_name)
    return tuple(chain.from_iterable(_wanted(entity, prop) for prop in props))


def _wanted(entity: NodeType | EdgeType, prop: Property) -> Iterator[Wanted]:
    kind = prop.type
    if kind.scalar is Scalar.STRING and not kind.is_list and kind.enum_values is None:
        is_id = isinstance(entity, NodeType) and entity.key == (prop.name,)
        yield Wanted(
            column="id" if is_id else prop.name,  # reading has a single key there
            what="words",
            kind=Analysis.of(prop.indexing).kind,
            indexing=prop.indexing,
        )
    elif kind.scalar is Scalar.VECTOR and not kind.is_list:
        yield Wanted(column=prop.name, what="numbers", kind=coded.KIND, indexing=prop.indexing)


class DeriveTask(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a fragment that is to be made, or several if that has many bytes."""

    access: GraphAccess
    entry: TableEntry
    file: ColumnFile
    wanted: Wanted
    bytes_max: int  # of the values that one is made of


def derive(
    core: Core,
    runner: Runner,
    snapshot: Snapshot,
    keys: Iterable[str] | None = None,
    *,
    thorough: bool = False,
) -> int:
    """Make the files that the tables of a snapshot lack, or those of some tables; with `thorough`
    also those that are damaged. How many were made; never raises for what only costs time."""
    try:
        tasks = [*_tasks(core, snapshot, keys, thorough=thorough)]
        if tasks:
            runner.run(tasks, run_task, stage="derive")
    except (OmnigraphError, OSError, pa.ArrowException) as cause:
        logger.warning("derived files not made", extra={"why": str(cause)})
        return 0
    return len(tasks)


def _tasks(
    core: Core, snapshot: Snapshot, keys: Iterable[str] | None, *, thorough: bool
) -> Iterator[DeriveTask]:
    catalog, least = core.catalog(snapshot), core.world.derived_rows_min
    access = GraphAccess(uri=core.root.uri, environ=dict(aws_environment()))
    access.sharing(core.store.tables)
    for key in snapshot.entries if keys is None else keys:
        entry = snapshot.entries.get(key)
        if entry is None or entry.row_count < least:
            continue
        for wanted in wanted_of(catalog.type_of(key)):
            missing = core.store.tables.open(entry).underived(
                wanted.column, wanted.kind, rows_min=least, thorough=thorough
            )
            for file in missing:
                yield DeriveTask(
                    access=access,
                    entry=entry,
                    file=file,
                    wanted=wanted,
                    bytes_max=core.world.derived_bytes_max,
                )


def run_task(task: DeriveTask) -> int:
    """Make what a fragment lacks, wherever this runs; of how many rows it is."""
    table, file, wanted = task.access.table(task.entry), task.file, task.wanted
    first = 0
    for values in table.stored_values(file.fragment, wanted.column, bytes_max=task.bytes_max):
        last = first + len(values)
        made = MAKERS[wanted.what](values, wanted.indexing)
        table.put_derived(file, wanted.kind, (first, last), *made)
        first = last
    return first
