"""`embed`: make the vectors that a graph lacks, or those of an NDJSON file before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.call import Call, exclusive, message_option, read_text, verb
from omnigraph.cli.scope import Capability, ScopeFlags
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.engine.embed_file import EmbedSpec, Mode


@verb("embed", capability=Capability.DIRECT, writes=True)
@click.option("--seed", "seed_path", metavar="FILE", help="a YAML manifest that names all the rest")
@click.option("--input", "input_path", metavar="FILE", help="the NDJSON to read")
@click.option("--output", "output_path", metavar="FILE", help="the NDJSON to write")
@click.option("--spec", "spec_path", metavar="FILE", help="JSON: dimension, and fields per type")
@click.option("--reembed-all", is_flag=True, help="make every vector anew")
@click.option("--clean", is_flag=True, help="remove the vectors")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="only this type; repeatable")
@click.option("--select", "selects", multiple=True, metavar="TYPE:FIELD=VALUE", help="repeatable")
@click.option(
    "--branch", metavar="BRANCH", help="of a graph: the branch to work on  [default: main]"
)
@message_option
def embed(
    call: Call,
    *,
    seed_path: str | None,
    input_path: str | None,
    output_path: str | None,
    spec_path: str | None,
    reembed_all: bool,
    clean: bool,
    types: tuple[str, ...],
    selects: tuple[str, ...],
    branch: str | None,
    message: str | None,
) -> None:
    """Make the vectors that the entities of a graph lack, or those of an NDJSON file."""
    of_files: dict[str, Any] = {
        "--seed": seed_path,
        "--input": input_path,
        "--output": output_path,
        "--spec": spec_path,
        "--select": selects,
        "--reembed-all": reembed_all or None,
        "--clean": clean or None,
    }
    alone = not any(of_files.values()) and call.names_graph
    if alone or call.flags != ScopeFlags() or branch is not None:
        for name, given in of_files.items():
            exclusive({name: given, "a graph": True})
        _embed_graph(call, branch=branch or "main", types=types, message=message)
        return
    exclusive({"--seed": seed_path, "--input": input_path})
    exclusive({"--reembed-all": reembed_all or None, "--clean": clean or None})
    if seed_path is not None:
        source, output, spec = _from_seed(Path(seed_path))
    elif input_path and output_path and spec_path:
        source, output = Path(input_path), Path(output_path)
        spec = _from_json(spec_path)
    else:
        raise click.UsageError(
            "embed needs a graph, or --seed, or all of --input, --output and --spec"
        )
    if not source.is_file():
        read_text(str(source), what="data file")
    mode = _mode(reembed_all=reembed_all, clean=clean, narrowed=bool(types or selects))
    _embed_file(call, source, output, spec, mode=mode, types=types, selects=selects)


def _embed_file(
    call: Call,
    source: Path,
    output: Path,
    spec: EmbedSpec,
    *,
    mode: Mode,
    types: tuple[str, ...],
    selects: tuple[str, ...],
) -> None:
    from omnigraph.engine.embed import EmbedConfig, embedder
    from omnigraph.engine.embed_file import Selection, Selector, embed_file

    config = EmbedConfig.from_environment(call.environ)
    selectors = tuple(Selector.parse(text) for text in selects)
    summary = embed_file(
        source,
        output,
        spec=spec,
        selection=Selection(mode=mode, types=types, selectors=selectors),
        embedder=embedder(config),
    )
    payload = {
        "input": str(source),
        "output": str(output),
        "records": summary.records,
        "selected_records": summary.selected_records,
        "embedded_records": summary.embedded_records,
        "cleaned_records": summary.cleaned_records,
        "mode": mode,
        "dimension": spec.dimension,
        "model": config.model or config.provider,
    }
    call.emit(
        payload,
        human=f"embedded {summary.embedded_records} records "
        f"(selected {summary.selected_records}, cleaned {summary.cleaned_records})",
    )


def _embed_graph(call: Call, *, branch: str, types: tuple[str, ...], message: str | None) -> None:
    call.require_target()
    call.announce()
    with call.graph(write=True, embed=True) as graph:
        report = graph.embed(branch, types=types or None, actor=call.actor, message=message)
    lines = [
        f"{one.type_name}.{one.property}: {one.filled} of {one.missing} vectors made"
        for one in report.properties
    ]
    call.emit(report.to_json(), human=lines or ["no type has vectors that could be made"])


def _mode(*, reembed_all: bool, clean: bool, narrowed: bool) -> Mode:
    if clean:
        return "clean"
    if reembed_all:
        return "reembed_all"
    return "reembed_selected" if narrowed else "fill_missing"


def _from_json(path: str) -> EmbedSpec:
    from omnigraph.engine.embed_file import EmbedSpec

    try:
        body = json.loads(read_text(path, what="spec"))
    except ValueError as cause:
        raise InputError(f"spec '{path}' is not valid JSON: {cause}") from cause
    inner = body.get("embeddings", body) if isinstance(body, dict) else body
    return EmbedSpec.from_mapping(inner, where=f"spec '{path}'")


def _from_seed(path: Path) -> tuple[Path, Path, EmbedSpec]:
    """The files and the spec that a seed manifest names, relative to its own folder."""
    from omnigraph.engine.embed_file import EmbedSpec
    from omnigraph.model.yaml_text import read_yaml

    where = f"seed manifest '{path}'"
    body = read_yaml(read_text(str(path), what="seed manifest"), path=str(path))
    document: dict[str, Any] = body if isinstance(body, dict) else {}
    source = _at(document, "sources", "raw_seed", where)
    output = _at(document, "artifacts", "embedded_seed", where)
    spec = EmbedSpec.from_mapping(document.get("embeddings"), where=f"{where}: 'embeddings'")
    return path.parent / source, path.parent / output, spec


def _at(document: dict[str, Any], section: str, name: str, where: str) -> str:
    part = document.get(section)
    value = part.get(name) if isinstance(part, dict) else None
    if not isinstance(value, str) or not value:
        raise InputError(f"{where} needs '{section}.{name}', a file name")
    return value
