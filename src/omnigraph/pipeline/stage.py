"""Staging: one task's input becomes uncommitted fragments in the tables' folders, and receipts.

Nothing that is written here is visible, and nothing is lost if the task runs twice: only the
receipts of the attempt that Spark kept are ever used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.constraints import rules_of
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import SAMPLES_PER_CHUNK, STAGE_FLUSH_BYTES
from omnigraph.model.schema import Catalog, EdgeType, NodeType, Scalar
from omnigraph.pipeline.arrow import flat
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.linestage import LineCount, shaped_lines, unhurried_collector
from omnigraph.pipeline.notes import Notes, Written
from omnigraph.pipeline.parts import GraphAccess, Part, packed, write_spill
from omnigraph.pipeline.shape import Problem, Problems, ShapedRows
from omnigraph.pipeline.splits import Split
from omnigraph.pipeline.tablestage import TablePiece, shaped_pieces
from omnigraph.pipeline.uniquechecks import unique_keys
from omnigraph.pipeline.vectors import EmbedPlan, VectorFiller
from omnigraph.storage.arrow_schema import arrow_schema
from omnigraph.storage.blobs import seal
from omnigraph.storage.fragments import row_count, write_fragments

PlaceWord = Literal["line", "row"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageJob:
    """What all tasks of one staging share."""

    graph: GraphAccess
    files: FileAccess
    catalog: Catalog
    entries: Mapping[str, TableEntry]  # by table key, on the lines that will be written
    keep_all: bool  # every problem with its text, for a quarantine
    scratch: str  # a folder for files that are only needed while the load runs
    keeps_blobs: bool = False  # keep rows with blobs there: they cannot be read back from fragments
    embed: EmbedPlan | None = None  # None: vectors that the input lacks stay null

    @property
    def notes(self) -> Notes:
        return Notes(graph=self.graph, scratch=self.scratch)

    def filler(self) -> VectorFiller | None:
        """What makes the vectors of one task."""
        return None if self.embed is None else VectorFiller(self.embed, self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTask:
    """One task: a split of graph NDJSON, or a piece of a typed source."""

    number: int
    source: Split | TablePiece


@dataclass(frozen=True, slots=True, kw_only=True)
class StageAnswer:
    """What a task did. `lines` is how many lines its split has (None: it has rows, not lines)."""

    number: int
    address: str
    word: PlaceWord
    first: int  # of the numbers in problems: 0 for splits, which the driver counts up
    lines: int | None
    records: int
    parts: tuple[Part, ...]
    problems: tuple[Problem, ...]
    by_kind: Mapping[str, int] = field(default_factory=dict)
    vectors: int = 0  # made from text

    @property
    def bad(self) -> int:
        return sum(self.by_kind.values())


def run_stage(job: StageJob, task: StageTask) -> StageAnswer:
    """Read, shape, check and write one task's input."""
    problems = Problems(keep_all=job.keep_all)
    count = LineCount()
    filler = job.filler()
    with unhurried_collector():
        if isinstance(task.source, Split):
            shaped = shaped_lines(task.source, job.files, job.catalog, problems, count, filler)
        else:
            shaped = shaped_pieces(task.source, job.files, job.catalog, problems, count, filler)
        parts = write_parts(job, task.number, shaped)
    by_line = isinstance(task.source, Split) or task.source.by_line
    return StageAnswer(
        number=task.number,
        address=task.source.address,
        word="line" if by_line else "row",
        first=0 if isinstance(task.source, Split) else task.source.first_row,
        lines=count.lines if by_line else None,
        records=count.records,
        parts=parts,
        problems=tuple(problems.listed),
        by_kind=dict(problems.by_kind),
        vectors=filler.made if filler else 0,
    )


def write_parts(
    job: StageJob, number: int, shaped: Iterable[tuple[str, ShapedRows]]
) -> tuple[Part, ...]:
    """Write the rows by table. They are written also if the load has failed already, because the
    checks across rows will want to see them."""
    parts: dict[str, Part] = {}
    waiting: dict[str, list[ShapedRows]] = {}
    size = 0
    for key, rows in shaped:
        if job.keep_all and not rows.rows.num_rows:
            continue  # a type whose records are all put aside is not part of the load
        part = parts.get(key)
        if part is None:
            part = Part(
                number=number,
                table_key=key,
                entry=job.entries[key],
                receipts=(),
                rows=0,
                fresh_ids=True,
            )
        parts[key] = replace(
            part,
            fresh_ids=part.fresh_ids and rows.fresh_ids,
            numbers=(*part.numbers, packed(rows.numbers)),
            samples=_sampled(job.catalog.type_of(key), part.samples, rows.rows),
            lost=part.lost + rows.lost,
        )
        waiting.setdefault(key, []).append(rows)
        size += rows.rows.nbytes + sum(map(len, rows.refused))
        if size >= STAGE_FLUSH_BYTES:
            parts.update(_flushed(job, parts, waiting))
            waiting, size = {}, 0
    parts.update(_flushed(job, parts, waiting))
    return tuple(part for _, part in sorted(parts.items()))


def _sampled(
    entity: NodeType | EdgeType, known: Mapping[str, tuple[str, ...]], rows: pa.Table
) -> dict[str, tuple[str, ...]]:
    """Some keys of every key space that the rows belong to, from which ranges are cut."""
    if not rows.num_rows:
        return dict(known)
    at = pa.array(np.unique(np.linspace(0, rows.num_rows - 1, SAMPLES_PER_CHUNK).astype(int)))
    some = rows.take(at)
    keys = {"id": flat(some["id"])}
    for rule in rules_of(entity).unique:
        keys[rule.label] = unique_keys(some, rule.columns)
    return {
        label: (*known.get(label, ()), *(text for text in column.to_pylist() if text is not None))
        for label, column in keys.items()
    }


def _flushed(
    job: StageJob, parts: Mapping[str, Part], waiting: Mapping[str, list[ShapedRows]]
) -> Iterator[tuple[str, Part]]:
    for key, some in waiting.items():
        part = _with_ghosts(job, parts[key], some)
        tables = [one.rows for one in some if one.rows.num_rows]
        if not tables:
            yield key, part
            continue
        schema = arrow_schema(job.catalog.type_of(key))
        rows = seal(pa.concat_tables(tables), schema)
        spill = _spilled(job, key, tables)
        folder = job.graph.folder(part.entry)
        receipts = write_fragments(folder, job.graph.options, rows, schema)
        note = job.notes.add(Written(folder=folder, receipts=tuple(receipts)))
        yield (
            key,
            replace(
                part,
                notes=(*part.notes, note),
                receipts=(*part.receipts, *receipts),
                rows=part.rows + sum(row_count(receipt) for receipt in receipts),
                spills=(*part.spills, *spill),
            ),
        )


def _with_ghosts(job: StageJob, part: Part, some: Sequence[ShapedRows]) -> Part:
    """The part with a file of the ids that were refused. A quarantine wants none: there an edge
    goes with its node."""
    refused = [entity_id for one in some for entity_id in one.refused]
    if not refused or job.keep_all:
        return part
    ids = pa.table({"id": pa.array(refused, pa.string())})
    return replace(part, ghosts=(*part.ghosts, write_spill(job.files, job.scratch, ids)))


def _spilled(job: StageJob, key: str, tables: list[pa.Table]) -> list[str]:
    entity = job.catalog.type_of(key)
    blobs = any(prop.type.scalar is Scalar.BLOB for prop in entity.properties)
    if not job.keeps_blobs or not blobs:
        return []
    return [write_spill(job.files, job.scratch, pa.concat_tables(tables))]
