"""Pieces of text with vectors, as a node type: what vector stores of frameworks are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from omnigraph.compiler.schema import compile_schema
from omnigraph.compiler.text import closest
from omnigraph.engine.graph import Graph
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.schema import NodeType

FOUND_DEFAULT: Final = 4


def chunk_schema(dimension: int, *, name: str = "Chunk") -> str:
    """The schema of a node type that a vector store can use, to be put beside your other types.

    Examples:
        >>> from omnigraph.integrations.chunks import chunk_schema
        >>> "vec: Vector(8)?" in chunk_schema(8)
        True
    """
    return (
        f"node {name} {{\n    key: String @key\n    text: String @index\n"
        f"    vec: Vector({dimension})? @index\n    metadata: String?\n"
        "    document: String? @index\n}\n"
    )


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of text that was found; a small `distance` is near."""

    key: str
    text: str
    metadata: dict[str, Any]
    distance: float = 0.0


class Chunks:
    """The pieces of one node type: adding, finding, deleting. Names are checked at once."""

    def __init__(
        self,
        graph: Graph,
        *,
        node_type: str = "Chunk",
        text: str = "text",
        vector: str = "vec",
        branch: str = "main",
    ) -> None:
        self.graph, self.branch = graph, branch
        made = compile_schema(graph.schema_source(branch)).nodes
        if node_type not in made:
            raise NotFoundError(
                f"the graph has no node type '{node_type}'",
                hint=_meant(node_type, list(made)),
                kind="type",
                name=node_type,
            )
        self.type = made[node_type]
        self.text, self.vector = _named(self.type, text), _named(self.type, vector)
        self.dimension = self.type.by_name[vector].type.dimension
        if self.dimension is None or len(self.type.key) != 1:
            raise InputError(
                f"'{node_type}' cannot hold pieces of text: it needs a @key of one property, and "
                f"'{vector}' to be a Vector",
                hint="chunk_schema(dimension) gives a type that can",
            )
        self.key = self.type.key[0]
        self.extra = [name for name in ("metadata", "document") if name in self.type.by_name]

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put pieces in, in place of those with the same keys, as one commit. A row has the keys
        `key`, `text`, `vector`, `metadata` and `document`."""
        data = []
        for row in rows:
            one = {self.key: row["key"], self.text: row["text"], self.vector: row["vector"]}
            if "metadata" in self.extra:
                one["metadata"] = json.dumps(row.get("metadata") or {}, default=str)
            if "document" in self.extra:
                one["document"] = row.get("document")
            data.append(one)
        if data:
            self.graph.load({self.type.name: data}, mode="merge", branch=self.branch)

    def near(self, vector: Sequence[float], count: int, *, words: str | None = None) -> list[Chunk]:
        """The pieces nearest to the vector; with `words`, ranked by both (hybrid search)."""
        params = f"$v: Vector({self.dimension}), $k: I64" + (", $words: String" * bool(words))
        rank = f"nearest($c.{self.vector}, $v)"
        order = f"rrf({rank}, bm25($c.{self.text}, $words))" if words else rank
        source = (
            f"query near({params}) {{ match {{ $c: {self.type.name} }} "
            f"return {{ {self._columns()}, {rank} as distance }} order {{ {order} }} limit $k }}"
        )
        given = {"v": [float(one) for one in vector], "k": count}
        given |= {"words": words} if words else {}
        return self._chunks(self.graph.query(source, params=given, branch=self.branch))

    def of(self, keys: Sequence[str]) -> list[Chunk]:
        """The pieces with these keys that are there."""
        source = (
            f"query of($keys: [String]) {{ match {{ $c: {self.type.name} "
            f"$c.{self.key} in $keys }} return {{ {self._columns()} }} }}"
        )
        found = self.graph.query(source, params={"keys": list(keys)}, branch=self.branch)
        return self._chunks(found)

    def delete(self, keys: Sequence[str]) -> None:
        """Take the pieces with these keys out, as one commit."""
        source = f"query d($key: String) {{ delete {self.type.name} where {self.key} = $key }}"
        with self.graph.transaction(self.branch) as tx:
            for key in keys:
                tx.mutate(source, params={"key": key})

    def delete_document(self, document: str) -> None:
        """Take all pieces of a document out."""
        source = f"query d($name: String) {{ delete {self.type.name} where document = $name }}"
        self.graph.mutate(source, params={"name": document}, branch=self.branch)

    def _columns(self) -> str:
        extra = ", $c.metadata as metadata" if "metadata" in self.extra else ""
        return f"$c.{self.key} as key, $c.{self.text} as text{extra}"

    def _chunks(self, rows: Any) -> list[Chunk]:
        return [
            Chunk(
                key=str(row["key"]),
                text=row["text"] or "",
                metadata=json.loads(row.get("metadata") or "{}"),
                distance=row.get("distance") or 0.0,
            )
            for row in rows
        ]


def _named(made: NodeType, name: str) -> str:
    if name not in made.by_name:
        raise NotFoundError(
            f"'{made.name}' has no property '{name}'",
            hint=_meant(name, list(made.by_name)),
            kind="property",
            name=name,
        )
    return name


def _meant(name: str, names: list[str]) -> str:
    near = closest(name, names)
    return f"did you mean '{near}'?" if near else f"there are {', '.join(names) or 'none'}"
