"""The plan that Spark has made of a query, as the tree of steps that `Graph.explain` shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from omnigraph.errors import InputError
from omnigraph.pipeline.runner import is_classic
from omnigraph.results.rows import Explanation, Step

# What Spark's operators do, in our words; others keep their names.
_WORDS: Final[Mapping[str, str]] = {
    "Exchange": "shuffle",
    "BroadcastExchange": "send to all",
    "SortMergeJoin": "join, sorted",
    "BroadcastHashJoin": "join with what was sent",
    "ShuffledHashJoin": "join, hashed",
    "BroadcastNestedLoopJoin": "join, each with each",
    "CartesianProduct": "each with each",
    "HashAggregate": "group",
    "ObjectHashAggregate": "group",
    "SortAggregate": "group, sorted",
    "Sort": "order",
    "TakeOrderedAndProject": "first rows in order",
    "Filter": "filter",
    "Project": "columns",
    "Union": "together",
    "ArrowEvalPython": "evaluate",
    "Window": "rank",
    "Generate": "unwind",
    "Expand": "expand",
    "Scan ExistingRDD": "rows that are kept",
}
# Layers around what is done, which say nothing of it.
_AROUND: Final = ("AdaptiveSparkPlan", "WholeStageCodegen", "InputAdapter", "ShuffleQueryStage",
                  "BroadcastQueryStage", "AQEShuffleRead", "ResultQueryStage", "Project",
                  "ColumnarToRow")  # fmt: skip
_READ: Final = re.compile(r"\bread_(\w+)")
_NUMBERS: Final = re.compile(r"#\d+L?")


def explanation(frame: Any, reads: Mapping[str, list[str]]) -> Explanation:
    """The plan of a DataFrame that has been fetched, and what it read, by type."""
    if not is_classic(frame.sparkSession):
        raise InputError("how a query ran is not told over Spark Connect")
    plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001  (PySpark has no word for it)
    root = Step(name="query on Spark", children=list(_steps(plan)))
    scans = [step for step in _all(root) if step.name == "read"]
    rows = sum(step.rows or 0 for step in scans)
    return Explanation(root=root, reads=len(scans), rows_read=rows, columns_read=reads)


def _steps(node: Any) -> Iterator[Step]:
    """The node as a step; what is only around others is these."""
    name = node.nodeName()
    below = [step for child in _children(node) for step in _steps(child)]
    if name.startswith(_AROUND):
        yield from below
        return
    told = _NUMBERS.sub("", node.simpleString(8))
    read = _READ.search(told)
    if name == "MapInArrow" and read is not None:
        yield Step(name="read", detail=read.group(1), rows=_rows(node))
        return
    detail = told.removeprefix(name).strip()
    yield Step(name=_WORDS.get(name, name), detail=detail, rows=_rows(node), children=below)


def _children(node: Any) -> Iterator[Any]:
    name = node.nodeName()
    if name.startswith("AdaptiveSparkPlan"):
        yield node.executedPlan()
    elif name.endswith("QueryStage"):
        yield node.plan()
    else:
        children = node.children()
        for number in range(children.size()):
            yield children.apply(number)


def _rows(node: Any) -> int | None:
    """How many rows came out of it; None where Spark does not count them."""
    metrics = node.metrics()
    names = ["numOutputRows", "pythonNumRowsReceived"]
    if node.nodeName() == "Exchange":  # others shuffle too, but only what they have not thrown away
        names.append("shuffleRecordsWritten")
    for name in names:
        if metrics.contains(name):
            return int(metrics.apply(name).value())
    return None


def _all(step: Step) -> Iterator[Step]:
    yield step
    for child in step.children:
        yield from _all(child)
