"""`pipeline.load`: any amount of data as one commit, on a Spark session.

And `load_job`: loads that a small YAML file describes, for schedulers and people who read them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.sql import SparkSession

from omnigraph.engine.access import OPEN, Gate, PolicySource
from omnigraph.engine.arguments import PATH, Kind, require
from omnigraph.engine.core import world_of
from omnigraph.engine.embed import (
    Embed,
    EmbedConfig,
    Embedder,
    embedder_for,
    environment_config,
)
from omnigraph.engine.load.inputs.sources import Source
from omnigraph.engine.load.order import LoadOrder, OnError, checked_order
from omnigraph.engine.load.report import Listener, PipelineReport
from omnigraph.engine.load.run import StageInput, run_load
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import MAIN
from omnigraph.model.machine import local_path
from omnigraph.model.ports import World
from omnigraph.model.yaml_text import read_yaml
from omnigraph.pipeline.progress import listening
from omnigraph.pipeline.runner import SparkRunner
from omnigraph.pipeline.staged_frames import SparkFrames

_EMBED: Final = Kind(
    "Callable or EmbedConfig or bool or None",
    lambda value: isinstance(value, EmbedConfig | Embedder | bool | None) or callable(value),
)


def load(  # noqa: PLR0913  (the names are fixed by the API)
    spark: SparkSession,
    uri: str | os.PathLike[str],
    sources: Any,
    *,
    mode: str,
    branch: str = MAIN,
    from_branch: str | None = None,
    actor: str | None = None,
    on_error: OnError = "fail",
    quarantine: str | os.PathLike[str] | None = None,
    progress: Listener | bool | None = None,
    idempotency_key: str | None = None,
    message: str | None = None,
    durability: Literal["power", "process"] = "power",
    embed: Embed | EmbedConfig | bool | None = None,
    policy: PolicySource | None = None,
) -> PipelineReport:
    """Load any amount of data as one commit, or change nothing.

    `sources` is graph NDJSON (paths, folders, patterns) or a mapping from type names to paths,
    `Source`s or DataFrames. `on_error="quarantine"` writes bad records to the folder `quarantine`
    (default: beside the graph, `<graph>.quarantine`) and loads the rest. A load with an
    `idempotency_key` lands once, however often and however many times at once it is submitted; the
    same key with another mode or other sources raises `IdempotencyKeyReusedError`. `progress` is a
    listener, or True for bars on the terminal.

    With `embed`, executors make the vectors of `@embed` properties that records leave out from
    their text: by a callable (texts in, vectors out) that can travel to them, by the embedder that
    an `EmbedConfig` describes, or (True) by the one that this process's environment names
    (`OMNIGRAPH_EMBED_PROVIDER`, `OMNIGRAPH_EMBEDDINGS_MOCK` and so on). A text that cannot be
    embedded after the embedder's own retries fails the load with `EmbeddingError`, also under a
    quarantine. Finished vectors are kept until the load lands, so that submitting it again asks
    for the rest only.
    A `policy` must allow the load to the actor.

    Examples:
        >>> spark = pipeline.session()
        >>> sources = {"Person": "people.parquet", "Knows": Source.csv("knows.csv")}
        >>> print(pipeline.load(spark, "people.omni", sources, mode="append").to_text())
    """
    require(PATH, uri=uri)
    require(_EMBED, embed=embed)
    order = checked_order(
        uri=os.fspath(uri),
        sources=sources,
        mode=mode,
        branch=branch,
        from_branch=from_branch,
        actor=actor,
        on_error=on_error,
        quarantine=quarantine,
        idempotency_key=idempotency_key,
        message=message,
        embed=_embedding(embed),
    )
    world = world_of({"durability": durability})
    with listening(progress) as listener:
        gate = Gate.of(policy, actor)
        return load_on(spark, order, listener=listener, world=world, gate=gate)


def _embedding(asked: Any) -> EmbedConfig | Embedder | None:
    """What the tasks make vectors with. A configuration travels as it is."""
    if asked is True:
        return environment_config()
    return asked if isinstance(asked, EmbedConfig) else embedder_for(asked)


def load_on(
    spark: SparkSession,
    order: LoadOrder,
    *,
    listener: Listener | None = None,
    world: World,
    stage_input: StageInput | None = None,
    gate: Gate = OPEN,
) -> PipelineReport:
    """Carry out an order with the session's executors."""
    return run_load(
        SparkRunner(spark, listener),
        order,
        listener=listener,
        world=world,
        stage_input=stage_input,
        frames=SparkFrames(spark),
        gate=gate,
    )


# --- jobs: loads as YAML ----------------------------------------------------------------------

_KEYS = frozenset({
    "graph", "mode", "branch", "from", "actor", "on_error", "quarantine", "idempotency_key",
    "message", "sources", "embed",
})  # fmt: skip
_FORMATS: Mapping[str, Callable[..., Source]] = {
    "parquet": Source.parquet,
    "csv": Source.csv,
    "json": Source.json,
    "orc": Source.orc,
    "table": Source.table,
}
_SOURCE_KEYS = frozenset({"ndjson", "type", "columns", "casts", "options", *_FORMATS})
_CSV_OPTIONS = frozenset({"delimiter", "encoding", "header", "null"})


def load_job(
    spark: SparkSession,
    job: str | os.PathLike[str] | Mapping[str, Any],
    *,
    uri: str | None = None,
    actor: str | None = None,
    progress: Listener | bool | None = None,
    **overrides: Any,
) -> PipelineReport:
    """Run the load that a YAML file (or its content as a mapping) describes.

    `uri`, `actor` and other arguments of `load` win over what the file says. Relative paths in the
    file are taken from where the file is. `InputError` names a key that a job does not have.

    Examples:
        >>> report = pipeline.load_job(spark, "nightly.yaml", branch="staging")
    """
    given = job_arguments(job, uri=uri, actor=actor, **overrides)
    return load(spark, progress=progress, **given)


def job_arguments(
    job: str | os.PathLike[str] | Mapping[str, Any],
    *,
    uri: str | None = None,
    actor: str | None = None,
    **overrides: Any,
) -> dict[str, Any]:
    """What a job says, as the arguments of `load`."""
    facts, base = (job, None) if isinstance(job, Mapping) else _read(job)
    _refuse_unknown(facts, _KEYS, what="job")
    if not (uri or facts.get("graph")):
        raise InputError("the job names no graph", hint="add `graph:` or pass the graph's address")
    if not isinstance(facts.get("embed"), bool | None):
        raise InputError(
            "`embed` of the job must be true or false",
            hint="which embedder is used is told by the environment",
        )
    given: dict[str, Any] = {
        "uri": uri or str(facts["graph"]),
        "mode": facts.get("mode"),
        "branch": facts.get("branch", MAIN),
        "from_branch": facts.get("from"),
        "actor": actor or facts.get("actor"),
        "on_error": facts.get("on_error", "quarantine" if facts.get("quarantine") else "fail"),
        "quarantine": facts.get("quarantine") and _located(facts["quarantine"], base),
        "idempotency_key": _as_text(facts.get("idempotency_key")),
        "message": _as_text(facts.get("message")),
        "embed": facts.get("embed"),
        **{name: value for name, value in overrides.items() if value is not None},
    }
    if given["mode"] is None:
        raise InputError("the job has no mode", hint="add `mode: append`, `merge` or `overwrite`")
    listed = facts.get("sources")
    if not isinstance(listed, list) or not listed:
        raise InputError("the job has no sources", hint="add a list `sources:`")
    return given | {"sources": [_source(one, base, n) for n, one in enumerate(listed, 1)]}


def _as_text(given: Any) -> Any:
    """A key is often a number or a day, and YAML makes them what they look like."""
    plain = isinstance(given, int | date) and not isinstance(given, bool)
    return str(given) if plain else given


def _source(one: Any, base: Path | None, number: int) -> Any:
    what = f"source {number}"
    if isinstance(one, str):
        return _located(one, base)
    if not isinstance(one, Mapping):
        raise InputError(f"{what} of the job must be a path or a mapping")
    _refuse_unknown(one, _SOURCE_KEYS, what=what)
    if "ndjson" in one:
        return [_located(path, base) for path in _listed(one["ndjson"])]
    formats = [name for name in _FORMATS if name in one]
    if len(formats) != 1 or "type" not in one:
        raise InputError(
            f"{what} of the job needs `type` and exactly one of {', '.join(_FORMATS)}, or `ndjson`"
        )
    return {str(one["type"]): _typed(one, formats[0], base, what)}


def _typed(one: Mapping[str, Any], form: str, base: Path | None, what: str) -> Source:
    mapped: dict[str, dict[str, str]] = {}
    for key in ("columns", "casts"):
        found = one.get(key) or {}
        if not isinstance(found, Mapping):
            raise InputError(f"`{key}` of {what} must be a mapping")
        mapped[key] = {str(name): str(value) for name, value in found.items()}
    given = _listed(one[form])
    if form == "table":
        return Source.table(str(given[0]), **mapped)
    options = one.get("options") or {}
    if form == "csv":
        _refuse_unknown(options, _CSV_OPTIONS, what=f"options of {what}")
    elif options:
        raise InputError(f"{what} of the job: only csv has options")
    return _FORMATS[form]([_located(path, base) for path in given], **mapped, **options)


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _read(job: str | os.PathLike[str]) -> tuple[Mapping[str, Any], Path]:
    require(PATH, job=job)
    path = Path(job)
    try:
        content = read_yaml(path.read_text(encoding="utf-8"), path=str(path))
    except FileNotFoundError as cause:
        raise NotFoundError(f"no job file '{path}'", kind="file", name=str(path)) from cause
    except UnicodeDecodeError as cause:
        raise InputError(f"'{path}' is no UTF-8 text") from cause
    if not isinstance(content, Mapping):
        raise InputError(f"'{path}' must be a mapping with `sources`")
    return content, path.parent


def _refuse_unknown(facts: Mapping[str, Any], known: frozenset[str], *, what: str) -> None:
    for name in facts:
        if name not in known:
            raise InputError(
                f"{what}: unknown key '{name}'", hint=f"known: {', '.join(sorted(known))}"
            )


def _located(given: Any, base: Path | None) -> str:
    """An address of the job; a relative path is taken from where the job is."""
    address = str(given)
    is_elsewhere = local_path(address) != address or os.path.isabs(address)
    return address if base is None or is_elsewhere else str(base / address)
