"""What a schema change consists of: a plan of steps, as the planner found them and users see them.

Fields named in the reference hold plain JSON-shaped values, so that a step reads the same in Python
and under `--json`; beside them stand the typed values that the engine works with.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal

import msgspec

from omnigraph.errors import SchemaUnsupportedError
from omnigraph.model.schema import (
    PLAIN_INDEX,
    Annotation,
    Cardinality,
    Catalog,
    Check,
    Indexing,
    Property,
    PropertyType,
    Range,
    Scalar,
)
from omnigraph.model.structs import HidingStruct, html_block, html_table

TypeKind = Literal["interface", "node", "edge"]
DropMode = Literal["soft", "hard"]
JsonObject = Mapping[str, Any]


class Tier(StrEnum):
    """How a step may go wrong: not at all, by data that does not fit, or by losing data."""

    SAFE = "safe"
    VALIDATED = "validated"
    DESTRUCTIVE = "destructive"


class Code(StrEnum):
    """The stable codes of steps that lose data or are refused."""

    DROP_GRAPH = "OG-DS-101"
    DROP_NODE_TYPE = "OG-DS-102"
    DROP_EDGE_TYPE = "OG-DS-103"
    DROP_PROPERTY = "OG-DS-104"
    DROP_VECTOR_PROPERTY = "OG-DS-105"
    REQUIRED_WITHOUT_DEFAULT = "OG-MF-103"
    TIGHTEN_NULLABILITY = "OG-MF-104"
    CHANGE_TYPE = "OG-MF-106"


# --- constraints as values ---------------------------------------------------------------------


class KeyConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """`@key(…)`, in identity order."""

    properties: tuple[str, ...]


class UniqueConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """`@unique(…)`."""

    properties: tuple[str, ...]


class IndexConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """`@index(…)`."""

    properties: tuple[str, ...]


SchemaConstraint = KeyConstraint | UniqueConstraint | IndexConstraint | Range | Check


def constraint_json(constraint: SchemaConstraint) -> dict[str, Any]:
    """The constraint as the schema IR and plans write it."""
    match constraint:
        case KeyConstraint():
            return {"Key": list(constraint.properties)}
        case UniqueConstraint():
            return {"Unique": list(constraint.properties)}
        case IndexConstraint():
            return {"Index": list(constraint.properties)}
        case Range():
            return {
                "Range": {
                    "property": constraint.property,
                    "min": _bound_json(constraint.minimum),
                    "max": _bound_json(constraint.maximum),
                }
            }
        case Check():
            return {"Check": {"property": constraint.property, "pattern": constraint.pattern}}


def _bound_json(bound: int | float | None) -> dict[str, Any] | None:
    if bound is None:
        return None
    return {"Integer": bound} if isinstance(bound, int) else {"Float": bound}


def property_type_json(kind: PropertyType) -> dict[str, Any]:
    """The property type as the schema IR and plans write it."""
    vector = kind.scalar is Scalar.VECTOR
    return {
        "scalar": f"Vector({kind.dimension})" if vector else kind.scalar.value,
        "nullable": kind.nullable,
        "list": kind.is_list,
        "enum_values": None if kind.enum_values is None else list(kind.enum_values),
    }


def indexing_json(indexing: Indexing) -> JsonObject:
    """The arguments of `@index` as plans write them: those that are said."""
    found: JsonObject = msgspec.structs.asdict(indexing)
    plain = msgspec.structs.asdict(PLAIN_INDEX)
    return {name: value for name, value in found.items() if value != plain[name]}


def annotation_json(note: Annotation) -> dict[str, Any]:
    """The annotation as the schema IR and plans write it."""
    body: dict[str, Any] = {"name": note.name, "value": note.value}
    if note.kwargs:
        body["kwargs"] = dict(sorted(note.kwargs))
    return body


# --- steps -------------------------------------------------------------------------------------


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """Tells itself as JSON: its kind, its fields but those `UNTOLD`, its tier."""

    kind: ClassVar[str]
    UNTOLD: ClassVar[frozenset[str]] = frozenset()

    def to_json(self) -> dict[str, Any]:
        names = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        fields = {told: getattr(self, name) for name, told in names if name not in self.UNTOLD}
        tier = fields.pop("tier")
        return {"kind": self.kind, **fields, **({} if tier is None else {"tier": tier.value})}


class AddType(_Step, frozen=True, kw_only=True):
    """A new interface, node type or edge type."""

    kind: ClassVar[str] = "add_type"
    type_kind: TypeKind
    name: str
    tier: Tier = Tier.SAFE


class RenameType(_Step, frozen=True, kw_only=True):
    """A type under a new name; its entities stay where they are. JSON says `from` and `to`."""

    kind: ClassVar[str] = "rename_type"
    type_kind: TypeKind
    from_name: str = msgspec.field(name="from")
    to: str
    tier: Tier = Tier.SAFE

    def __getattr__(self, name: str) -> str:
        return _from_alias(self, name)


class AddProperty(_Step, frozen=True, kw_only=True):
    """A new property: null for existing entities, or its default when it has one."""

    kind: ClassVar[str] = "add_property"
    UNTOLD: ClassVar[frozenset[str]] = frozenset({"property"})
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: JsonObject
    property: Property  # the same, typed
    tier: Tier = Tier.SAFE

    def to_json(self) -> dict[str, Any]:
        body = super().to_json()
        if self.property.default is not None:
            body["default"] = self.property.default
        return body


class RenameProperty(_Step, frozen=True, kw_only=True):
    """A property under a new name. JSON says `from` and `to`."""

    kind: ClassVar[str] = "rename_property"
    type_kind: TypeKind
    type_name: str
    from_name: str = msgspec.field(name="from")
    to: str
    tier: Tier = Tier.SAFE

    def __getattr__(self, name: str) -> str:
        return _from_alias(self, name)


class ExtendEnum(_Step, frozen=True, kw_only=True):
    """More values for an enum."""

    kind: ClassVar[str] = "extend_enum"
    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: list[str]
    tier: Tier = Tier.SAFE


class WidenProperty(_Step, frozen=True, kw_only=True):
    """I32 to I64 or F32 to F64: every old value is a value of the new type."""

    kind: ClassVar[str] = "widen_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    from_type: JsonObject
    to_type: JsonObject
    tier: Tier = Tier.SAFE


class RelaxNullability(_Step, frozen=True, kw_only=True):
    """A required property that may be null from now on."""

    kind: ClassVar[str] = "relax_nullability"
    type_kind: TypeKind
    type_name: str
    property_name: str
    tier: Tier = Tier.SAFE


class AddConstraint(_Step, frozen=True, kw_only=True):
    """A new constraint; all but indexes must hold for the data there is."""

    kind: ClassVar[str] = "add_constraint"
    UNTOLD: ClassVar[frozenset[str]] = frozenset({"value"})
    type_kind: TypeKind
    type_name: str
    constraint: JsonObject
    value: SchemaConstraint
    tier: Tier


class RemoveConstraint(_Step, frozen=True, kw_only=True):
    """A constraint that no longer holds."""

    kind: ClassVar[str] = "remove_constraint"
    UNTOLD: ClassVar[frozenset[str]] = frozenset({"value"})
    type_kind: TypeKind
    type_name: str
    constraint: JsonObject
    value: SchemaConstraint
    tier: Tier = Tier.SAFE


class ChangeCardinality(_Step, frozen=True, kw_only=True):
    """Other bounds on the out-edges of a source; checked when they are tighter anywhere."""

    kind: ClassVar[str] = "change_cardinality"
    UNTOLD: ClassVar[frozenset[str]] = frozenset({"from_cardinality", "to_cardinality"})
    type_kind: TypeKind = "edge"
    type_name: str
    from_cardinality: Cardinality
    to_cardinality: Cardinality
    tier: Tier

    def to_json(self) -> dict[str, Any]:
        body = super().to_json()
        for name, bounds in (("from", self.from_cardinality), ("to", self.to_cardinality)):
            body[name] = {"min": bounds.minimum, "max": bounds.maximum}
        return body


class UpdateTypeMetadata(_Step, frozen=True, kw_only=True):
    """Another description or instruction; `annotations` are those the type has afterwards."""

    kind: ClassVar[str] = "update_type_metadata"
    type_kind: TypeKind
    name: str
    annotations: list[JsonObject]
    tier: Tier = Tier.SAFE


class UpdatePropertyMetadata(_Step, frozen=True, kw_only=True):
    """Another description or default; `annotations` are those the property has afterwards."""

    kind: ClassVar[str] = "update_property_metadata"
    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: list[JsonObject]
    tier: Tier = Tier.SAFE


class ChangeIndex(_Step, frozen=True, kw_only=True):
    """Other arguments of `@index`: texts are compared by other words from the commit on, and what
    is stored for searches is made again."""

    kind: ClassVar[str] = "change_index"
    type_kind: TypeKind
    type_name: str
    property_name: str
    before: JsonObject
    after: JsonObject
    tier: Tier = Tier.SAFE


class DropType(_Step, frozen=True, kw_only=True):
    """A type goes. Soft: older snapshots still show it; hard: its past is deleted too."""

    kind: ClassVar[str] = "drop_type"
    type_kind: TypeKind
    name: str
    mode: DropMode
    code: str
    tier: Tier = Tier.DESTRUCTIVE


class DropProperty(_Step, frozen=True, kw_only=True):
    """A property goes, softly or with its past."""

    kind: ClassVar[str] = "drop_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode
    code: str = Code.DROP_PROPERTY.value
    tier: Tier = Tier.DESTRUCTIVE


class UnsupportedChange(_Step, frozen=True, kw_only=True):
    """A change that cannot be carried out: why, and what to do instead."""

    kind: ClassVar[str] = "unsupported_change"
    UNTOLD: ClassVar[frozenset[str]] = frozenset({"code", "hint"})
    entity: str  # "node:Person", "node:Person.age"
    reason: str
    code: str | None = None
    hint: str | None = None
    tier: Tier | None = None

    @property
    def message(self) -> str:
        prefix = f"[{self.code}] " if self.code else ""
        return f"{prefix}{self.entity}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        extra = {"code": self.code, "hint": self.hint}
        told = {name: value for name, value in extra.items() if value is not None}
        return super().to_json() | told


SchemaStep = (
    AddType | RenameType | AddProperty | RenameProperty | ExtendEnum | WidenProperty
    | RelaxNullability | AddConstraint | RemoveConstraint | ChangeCardinality
    | UpdateTypeMetadata | UpdatePropertyMetadata | ChangeIndex | DropType | DropProperty
    | UnsupportedChange
)  # fmt: skip


def _from_alias(step: RenameType | RenameProperty, name: str) -> str:
    """`from` is a keyword of Python, so it can be no field; `getattr(step, "from")` works."""
    if name == "from":
        return step.from_name
    raise AttributeError(name)


class SchemaPlan(HidingStruct, frozen=True, kw_only=True):
    """The way from the accepted schema to the desired one.

    `catalog` is what the graph has after the plan: the desired schema with identities carried over
    from the accepted one. Store that one, not the freshly compiled text.
    """

    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"catalog"})

    steps: tuple[SchemaStep, ...]
    catalog: Catalog

    @property
    def supported(self) -> bool:
        """Whether every step can be carried out."""
        return not any(isinstance(step, UnsupportedChange) for step in self.steps)

    def _repr_html_(self) -> str:
        """For notebooks: the steps, one a row."""
        rows = []
        for step in self.steps:
            facts = step.to_json()
            kind = facts.pop("kind")
            told = {name: value for name, value in facts.items() if value is not None}
            rows.append((kind, ", ".join(f"{name}={value}" for name, value in told.items())))
        verdict = "supported" if self.supported else "not supported"
        return html_block(f"{len(rows)} steps, {verdict}", html_table(("step", "what"), rows))

    def require_supported(self) -> None:
        """Raise `SchemaUnsupportedError` with the first refused step, if there is one."""
        refused = [step for step in self.steps if isinstance(step, UnsupportedChange)]
        if refused:
            raise SchemaUnsupportedError(
                refused[0].message,
                hint=refused[0].hint,
                steps=[step.to_json() for step in self.steps],
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "supported": self.supported,
            "step_count": len(self.steps),
            "steps": [step.to_json() for step in self.steps],
        }
