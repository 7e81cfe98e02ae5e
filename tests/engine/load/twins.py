"""Two graphs with one schema: one load holds its rows until they are checked, the other one writes
them first, as tasks on Spark do."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.engine.load.order import checked_order
from omnigraph.engine.load.run import run_load
from omnigraph.engine.runner import Inline
from omnigraph.errors import OmnigraphError
from omnigraph.model.ports import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a load, in a form that both engines share."""

    error: str | None
    message: str = ""
    hint: str | None = None
    violations: tuple[Any, ...] = ()
    offenders: tuple[Any, ...] = ()
    by_kind: tuple[Any, ...] = ()
    total: int = 0


def verdict_of(error: OmnigraphError | None, source: str = "") -> Verdict:
    """Everything that an error of a load says, in its order. Only two things are made alike: the
    name of the file `source`, and ids that each engine makes for itself."""
    if error is None:
        return Verdict(error=None)

    def told(text: Any) -> str:
        return _MADE.sub(
            "<made>", str(text).replace(f"{source}:", "line ") if source else str(text)
        )

    return Verdict(
        error=type(error).__name__,
        message=told(error.message),
        hint=error.hint,
        violations=tuple(
            (told(one.place), one.kind, one.type_name, one.property, one.value, told(one.text))
            for one in error.facts.get("violations", ())
        ),
        offenders=tuple(
            tuple((name, told(value)) for name, value in one.items())
            for one in error.facts.get("offenders", ())
        ),
        by_kind=tuple(error.facts.get("by_kind", {}).items()),
        total=error.facts.get("total", 0),
    )


_MADE = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")


class Twins:
    """`local` takes loads in process, `bulk` through the pipeline without a JVM."""

    def __init__(self, folder: Path, schema: str) -> None:
        self.folder = folder
        self.local = Graph.init(folder / "local", schema, durability="process")
        Graph.init(folder / "bulk", schema, durability="process").close()
        self._count = 0

    @property
    def bulk_uri(self) -> str:
        return str(self.folder / "bulk")

    def write(self, text: str) -> Path:
        self._count += 1
        path = self.folder / f"input-{self._count}.jsonl"
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, lines: list[Any] | str, mode: str, **options: Any) -> tuple[Verdict, Verdict]:
        """Load the same into both; the verdicts, in process first."""
        text = lines if isinstance(lines, str) else ndjson(lines)
        path = self.write(text)
        return (
            self._verdict(lambda: self.local.load(text, mode=mode, **options)),
            self._verdict(
                lambda: bulk_load(self.bulk_uri, str(path), mode=mode, **options), str(path)
            ),
        )

    @staticmethod
    def _verdict(load: Any, source: str = "") -> Verdict:
        try:
            load()
        except OmnigraphError as error:
            return verdict_of(error, source)
        return verdict_of(None)

    def contents(self, branch: str = "main") -> tuple[list[Any], list[Any]]:
        """What both hold, with generated edge ids left out."""
        self.local.refresh()
        with Graph.open(self.bulk_uri) as bulk:
            return content(self.local, branch), content(bulk, branch)


def cut_into(monkeypatch: Any, buckets: int) -> None:
    """Check loads in so many hash buckets, each in a task of its own."""
    counted = "omnigraph.engine.load.intake.bucket_count"
    monkeypatch.setattr(counted, lambda input_bytes, stored_rows: buckets)
    monkeypatch.setattr("omnigraph.engine.check.checks.CHECK_BUCKET_KEYS", 1)


def bulk_load(uri: str, sources: Any, *, mode: str, spark: Any = None, **options: Any) -> Any:
    """A pipeline load; without a session its tasks run here, one after the other."""
    facts = {
        "branch": "main",
        "from_branch": None,
        "actor": None,
        "on_error": "fail",
        "quarantine": None,
        "idempotency_key": None,
        "message": None,
        **options,
    }
    order = checked_order(uri=uri, sources=sources, mode=mode, **facts)
    world = World(durability="process")
    if spark is None:
        return run_load(Inline(held_bytes=0), order, listener=None, world=world)
    from omnigraph.pipeline.loads import load_on

    return load_on(spark, order, world=world)


def ndjson(lines: list[Any]) -> str:
    return "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines)


def content(graph: Graph, branch: str = "main") -> list[Any]:
    """Every entity as comparable JSON text, generated ids left out."""
    rows = []
    for line in graph.export(branch=branch):
        record = json.loads(line)
        record["data"]["id"] = _MADE.sub("<made>", record["data"]["id"])
        rows.append(json.dumps(record, sort_keys=True))
    return sorted(rows)


def node(type_name: str, /, **data: Any) -> dict[str, Any]:
    return {"type": type_name, "data": data}


def edge(type_name: str, source: str, target: str, /, **data: Any) -> dict[str, Any]:
    return {"edge": type_name, "from": source, "to": target, **({"data": data} if data else {})}
