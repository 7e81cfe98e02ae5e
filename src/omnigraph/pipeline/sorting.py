"""Sorting keys into ranges once, for key spaces with many ranges.

Reading every key column again for each of a few ranges is the cheapest way, but its cost grows with
the number of ranges. Beyond a few, each column is read once and written to a file with one batch a
range, so that a task reads its own keys only and all reading stays linear.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph.model.limits import CHECK_DIRECT_RANGES_MAX
from omnigraph.pipeline.arrow import flat
from omnigraph.pipeline.fanout import fan_out
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.idtasks import IdTask, in_range
from omnigraph.pipeline.parts import GraphAccess, KeyRange, Part

_FIELDS: dict[str, pa.DataType] = {"key": pa.string(), "ordinal": pa.int64()}
_SCHEMA = pa.schema(_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortTask:
    """One key column of one part, and the ranges of its key space."""

    access: GraphAccess
    part: Part
    column: str
    ranges: tuple[KeyRange, ...]
    folder: str


def sort_keys(task: SortTask) -> str:
    """Write the column's keys range by range; the address of the file."""
    keys = flat(task.part.columns(task.access, [task.column])[task.column])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SCHEMA) as writer:
        for within in task.ranges:
            chosen, at = in_range(keys, within)
            batch = pa.record_batch([chosen, pa.array(at, pa.int64())], schema=_SCHEMA)
            writer.write_batch(batch)
    address = f"{task.folder}/{uuid.uuid4().hex}.arrow"
    FileAccess(environ=task.access.environ).write(address, sink.getvalue().to_pybytes())
    return address


def with_sorted_keys(
    spark: SparkSession | None, tasks: Sequence[IdTask], folder: str
) -> list[IdTask]:
    """The tasks, those of crowded key spaces with parts whose keys lie sorted in `folder`."""
    spaces: dict[str, list[IdTask]] = {}
    for task in tasks:
        spaces.setdefault(task.table_key, []).append(task)
    crowded = [some for some in spaces.values() if len(some) > CHECK_DIRECT_RANGES_MAX]
    orders = [
        SortTask(
            access=some[0].access,
            part=part,
            column=column,
            ranges=tuple(task.within for task in some),
            folder=folder,
        )
        for some in crowded
        for part, column in _columns(some[0])
    ]
    written = fan_out(spark, orders, sort_keys, stage="sort keys")
    files = {
        (order.part.table_key, order.part.number, order.column): address
        for order, address in zip(orders, written, strict=True)
    }
    return [_with_files(task, files) for task in tasks]


def _columns(task: IdTask) -> list[tuple[Part, str]]:
    return [
        *((part, "id") for part in task.parts),
        *((part, end.column) for end in task.ends for part in end.parts),
    ]


def _with_files(task: IdTask, files: dict[tuple[str, int, str], str]) -> IdTask:
    def sorted_parts(parts: Sequence[Part], column: str) -> tuple[Part, ...]:
        return tuple(
            replace(part, sorted_keys={column: address})
            if (address := files.get((part.table_key, part.number, column)))
            else part
            for part in parts
        )

    return replace(
        task,
        parts=sorted_parts(task.parts, "id"),
        ends=tuple(replace(e, parts=sorted_parts(e.parts, e.column)) for e in task.ends),
        degrees=tuple(replace(d, parts=sorted_parts(d.parts, "src")) for d in task.degrees),
    )
