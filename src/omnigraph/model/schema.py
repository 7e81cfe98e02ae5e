"""The catalog: what a schema means, as frozen values that every room above may read.

The compiler makes a `Catalog` from `.pg` text; storage, engine and pipeline only read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import ClassVar, Final, Literal

import msgspec

EntityKind = Literal["node", "edge"]


class Scalar(StrEnum):
    """The element types of the schema language; the value is how a schema spells it."""

    STRING = "String"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    VECTOR = "Vector"
    BLOB = "Blob"


INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMBERS = INTEGERS | FLOATS
CALENDAR = frozenset({Scalar.DATE, Scalar.DATETIME})

# Columns that Lance keeps beside a table's own; no property may have such a name.
ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
PHYSICAL = frozenset(
    {
        ROW_ID,
        ROW_ADDRESS,
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)

LiteralValue = str | int | float | bool


class PropertyType(msgspec.Struct, frozen=True, kw_only=True):
    """A scalar, possibly a list of it, possibly nullable; enums are strings with a value set."""

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None  # Vector(n) only

    def __str__(self) -> str:
        if self.enum_values is not None:
            core = f"enum({', '.join(self.enum_values)})"
        elif self.scalar is Scalar.VECTOR:
            core = f"Vector({self.dimension})"
        else:
            core = self.scalar.value
        return (f"[{core}]" if self.is_list else core) + ("?" if self.nullable else "")


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """An annotation as written: `@name(value, key=value)`."""

    name: str
    value: LiteralValue | None = None
    kwargs: tuple[tuple[str, LiteralValue], ...] = ()


class Embed(msgspec.Struct, frozen=True, kw_only=True):
    """`@embed(source, model="…")` on a Vector property."""

    source: str
    model: str | None = None


Tokenizer = Literal["words", "cjk", "ngram"]
TOKENIZERS: Final = ("words", "cjk", "ngram")
# Those whose stems Snowball knows.
LANGUAGES: Final = (
    "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english", "esperanto",
    "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish",
    "italian", "lithuanian", "nepali", "norwegian", "persian", "polish", "portuguese", "romanian",
    "russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish",
)  # fmt: skip


class Indexing(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a property's `@index(…)`: how its text is cut into words and compared, and
    whether its vectors may be searched by an approximate index."""

    language: str | None = None
    tokenizer: Tokenizer = "words"
    ann: bool = False


PLAIN_INDEX: Final = Indexing()


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """One declared property of a type."""

    name: str
    type: PropertyType
    annotations: tuple[Annotation, ...] = ()
    embed: Embed | None = None
    default: LiteralValue | None = None  # `@default(value)`; None = there is none
    description: str | None = None
    rename_from: str | None = None
    inherited_from: str | None = None  # the interface that brought it; None = declared by the type

    @property
    def indexing(self) -> Indexing:
        """What `@index(…)` says; whether there is an index at all is told by the type."""
        for note in self.annotations:
            if note.name == "index":
                return msgspec.convert(dict(note.kwargs), Indexing)
        return PLAIN_INDEX


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """`@range(property, lo..hi)`, both ends inclusive and optional."""

    property: str
    minimum: int | float | None
    maximum: int | float | None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """`@check(property, "regex")`: the pattern must be found somewhere in the value."""

    property: str
    pattern: str


class Cardinality(msgspec.Struct, frozen=True, kw_only=True):
    """How many out-edges of one edge type each source may have."""

    minimum: int = 0
    maximum: int | None = None


class InterfaceType(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle of properties copied into the nodes that implement it."""

    name: str
    properties: tuple[Property, ...]


class EntityType(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What node types and edge types share. `unique` and `index` hold property tuples as declared,
    single ones included; on edges `src` and `dst` may appear in them."""

    name: str
    properties: tuple[Property, ...]
    unique: tuple[tuple[str, ...], ...] = ()
    index: tuple[tuple[str, ...], ...] = ()
    annotations: tuple[Annotation, ...] = ()
    description: str | None = None
    instruction: str | None = None
    rename_from: str | None = None

    @cached_property
    def by_name(self) -> Mapping[str, Property]:
        return {prop.name: prop for prop in self.properties}


class NodeType(EntityType, frozen=True, kw_only=True):
    """A node type. `key` is empty when ids are made by us (ULIDs).

    `key` stands in identity order, the order in which ids are encoded: by name when the type was
    made, and unchanged by later renames of its properties.
    """

    key: tuple[str, ...] = ()
    ranges: tuple[Range, ...] = ()
    checks: tuple[Check, ...] = ()
    implements: tuple[str, ...] = ()

    kind: EntityKind = "node"
    identity: ClassVar[tuple[str, ...]] = ("id",)  # the columns that every table of nodes has

    @property
    def table_key(self) -> str:
        return f"node:{self.name}"


class EdgeType(EntityType, frozen=True, kw_only=True):
    """An edge type from one node type to another (or the same)."""

    from_type: str
    to_type: str
    cardinality: Cardinality = msgspec.field(default_factory=Cardinality)

    kind: EntityKind = "edge"
    identity: ClassVar[tuple[str, ...]] = ("id", "src", "dst")

    @property
    def table_key(self) -> str:
        return f"edge:{self.name}"


class Identities(msgspec.Struct, frozen=True, kw_only=True):
    """Who the types and properties of a schema are, whatever they are called now.

    An id is the name at birth: `node:Person`, and `node:Person.age` for a property of the type with
    that id; a later life of a name ends with `#2`, `#3`, …. So two branches that add the same name
    mean the same thing. Only what the names do not tell is kept, which is nothing in most graphs.
    """

    # The id of each type key and of each `<type key>.<property>` that was not born under its name.
    born: Mapping[str, str] = msgspec.field(default_factory=dict)
    # The ids of dropped things: whatever takes such a name again is another thing.
    retired: tuple[str, ...] = ()
    # What entities got that were there before a property, by its id, where the default it has now
    # does not say it; None = null.
    filled: Mapping[str, LiteralValue | None] = msgspec.field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.born or self.retired or self.filled)

    def type_id(self, type_key: str) -> str:
        """The id of `node:T`, `edge:T` or `interface:T`."""
        return self.born.get(type_key, type_key)

    def property_id(self, type_key: str, name: str) -> str:
        """The id of a property of that type."""
        return self.born.get(f"{type_key}.{name}", f"{self.type_id(type_key)}.{name}")


class Catalog(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A whole checked schema. Type names are exact; edge names are found in any letter case.

    `ir` is the canonical JSON text and `hash` its "sha256:<hex>"; two schemas that mean the same
    have the same hash. `identities` come from the graph's history: a text alone has none.
    """

    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    interfaces: Mapping[str, InterfaceType]
    source: str
    ir: str
    hash: str
    identities: Identities = msgspec.field(default_factory=Identities)

    @cached_property
    def edges_by_folded_name(self) -> Mapping[str, EdgeType]:
        return {name.casefold(): edge for name, edge in self.edges.items()}

    def edge_named(self, name: str) -> EdgeType | None:
        """The edge type of that name in any letter case, or None."""
        return self.edges_by_folded_name.get(name.casefold())

    def types(self) -> Iterator[NodeType | EdgeType]:
        """Every node type by name, then every edge type by name."""
        yield from (self.nodes[name] for name in sorted(self.nodes))
        yield from (self.edges[name] for name in sorted(self.edges))

    def type_of(self, table_key: str) -> NodeType | EdgeType:
        """The type behind `node:T` or `edge:T`."""
        kind, _, name = table_key.partition(":")
        return self.nodes[name] if kind == "node" else self.edges[name]

    @cached_property
    def by_type_id(self) -> Mapping[str, NodeType | EdgeType]:
        """Every node and edge type by its id."""
        return {self.identities.type_id(one.table_key): one for one in self.types()}

    def property_ids(self, table_key: str) -> dict[str, str]:
        """The ids of a type's properties, by their names."""
        found = self.identities.property_id
        return {one.name: found(table_key, one.name) for one in self.type_of(table_key).properties}

    def filling(self, table_key: str, prop: Property) -> LiteralValue | None:
        """What a property holds in entities that were there before it; None = null."""
        prop_id = self.identities.property_id(table_key, prop.name)
        return self.identities.filled.get(prop_id, prop.default)

    def edges_touching(self, node_type: str) -> tuple[EdgeType, ...]:
        """Every edge type that starts or ends at the node type, by name."""
        return tuple(
            edge
            for _, edge in sorted(self.edges.items())
            if node_type in (edge.from_type, edge.to_type)
        )
