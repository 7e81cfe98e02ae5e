"""The vectors of an NDJSON file: filled, renewed or removed before it is loaded.

Records travel one at a time, so a file of any size needs little memory; the output appears under
its name only when it is complete. Edge records and types that the spec does not name pass by.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from omnigraph.engine.embed import Embedder
from omnigraph.errors import InputError, RecordError

Mode = Literal["fill_missing", "reembed_selected", "reembed_all", "clean"]


class TypeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which property of a node type holds the vector, and which fields make up its text."""

    target: str
    fields: tuple[str, ...]


class EmbedSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to embed: the length of the vectors, and the types that have them."""

    dimension: int
    types: Mapping[str, TypeSpec]

    @classmethod
    def from_mapping(cls, body: Any, *, where: str) -> EmbedSpec:
        """Read `{dimension, types: {T: {target, fields}}}`, or say what is wrong with it."""
        if not isinstance(body, Mapping):
            raise InputError(f"{where} must be a mapping with 'dimension' and 'types'")
        dimension = body.get("dimension")
        if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 1:
            raise InputError(f"{where}: 'dimension' must be a whole number of 1 or more")
        types = body.get("types")
        if not isinstance(types, Mapping) or not types:
            raise InputError(f"{where}: 'types' must name at least one node type")
        return cls(
            dimension=dimension,
            types={str(name): _type_spec(name, value, where) for name, value in types.items()},
        )


def _type_spec(name: Any, value: Any, where: str) -> TypeSpec:
    facts = value if isinstance(value, Mapping) else {}
    target, fields = facts.get("target"), facts.get("fields")
    if not isinstance(target, str) or not target:
        raise InputError(f"{where}: type '{name}' needs a 'target' property")
    if not isinstance(fields, list) or not fields or not all(isinstance(f, str) for f in fields):
        raise InputError(f"{where}: type '{name}' needs 'fields', a list of property names")
    return TypeSpec(target=target, fields=tuple(fields))


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one type whose field has this value."""

    type_name: str
    field: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Selector:
        """Read `Type:field=value`."""
        type_name, colon, rest = text.partition(":")
        field, equals, value = rest.partition("=")
        if not (colon and equals and type_name and field):
            raise InputError(f"'{text}' is not of the form Type:field=value")
        return cls(type_name=type_name, field=field, value=value)

    def matches(self, type_name: str, data: Mapping[str, Any]) -> bool:
        return type_name == self.type_name and _text(data.get(self.field)) == self.value


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are meant. Without types and selectors, every record the spec knows."""

    mode: Mode
    types: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()

    def selects(self, type_name: str, data: Mapping[str, Any]) -> bool:
        every = not self.types and not self.selectors
        chosen = any(selector.matches(type_name, data) for selector in self.selectors)
        return every or chosen or type_name in self.types


class EmbedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a file's records."""

    records: int = 0
    selected_records: int = 0
    embedded_records: int = 0
    cleaned_records: int = 0


def embed_file(
    source: Path, output: Path, *, spec: EmbedSpec, selection: Selection, embedder: Embedder
) -> EmbedSummary:
    """Write the source with its vectors filled, renewed or removed; all of it, or nothing."""
    unknown = sorted(
        {*selection.types, *(one.type_name for one in selection.selectors)} - spec.types.keys()
    )
    if unknown:
        known = ", ".join(sorted(spec.types))
        raise InputError(f"the spec has no type '{unknown[0]}'", hint=f"it has: {known}")
    counts: Counter[str] = Counter()
    unfinished = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as out:
            for record in _records(source):
                counts.update(_treat(record, spec, selection, embedder))
                out.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(output)
    except OSError as cause:
        raise InputError(f"cannot embed '{source}' into '{output}': {cause}") from cause
    finally:
        unfinished.unlink(missing_ok=True)
    return EmbedSummary(**counts)


def _records(source: Path) -> Iterator[dict[str, Any]]:
    with source.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as cause:
                message = f"{source}:{number}: not a JSON value: {cause}"
                raise RecordError(message, line=number) from cause
            if not isinstance(record, dict):
                raise RecordError(f"{source}:{number}: a record is a JSON object", line=number)
            yield record


def _treat(
    record: dict[str, Any], spec: EmbedSpec, selection: Selection, embedder: Embedder
) -> Iterator[str]:
    """Do to one record what the selection says, in place; where the summary is to count it."""
    yield "records"
    type_name, data = record.get("type"), record.get("data")
    rule = spec.types.get(type_name) if isinstance(type_name, str) else None
    if rule is None or not isinstance(type_name, str) or not isinstance(data, dict):
        return
    if not selection.selects(type_name, data):
        return
    yield "selected_records"
    present = data.get(rule.target) is not None
    if selection.mode == "clean":
        data.pop(rule.target, None)
        if present:
            yield "cleaned_records"
    elif not (present and selection.mode == "fill_missing"):
        text = embedding_text(type_name, data, rule.fields)
        vector = embedder.embed(text, dimension=spec.dimension, purpose="document")
        data[rule.target] = list(vector)
        yield "embedded_records"


def embedding_text(type_name: str, data: Mapping[str, Any], fields: Sequence[str]) -> str:
    """The text that stands for a record: its type, then each field that has a value."""
    lines = [f"type: {type_name}"]
    lines += [f"{name}: {_text(data[name])}" for name in fields if data.get(name) is not None]
    return "\n".join(lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
