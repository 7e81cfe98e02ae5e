"""Deciding which source column feeds which column of a table. Pure: names in, names out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from omnigraph.errors import InputError
from omnigraph.model.schema import EdgeType, NodeType, PropertyType, Scalar
from omnigraph.pipeline.sources import Mapped

_CAST_NAMES: Mapping[str, Scalar] = {
    **{scalar.value.lower(): scalar for scalar in Scalar},
    "str": Scalar.STRING,
    "boolean": Scalar.BOOL,
    "int": Scalar.I32,
    "integer": Scalar.I32,
    "long": Scalar.I64,
    "bigint": Scalar.I64,
    "float": Scalar.F32,
    "double": Scalar.F64,
    "timestamp": Scalar.DATETIME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """Table column → source column, and table column → type to force it into first."""

    takes: Mapping[str, str]
    casts: Mapping[str, PropertyType] = field(default_factory=dict)


def plan_columns(
    entity: NodeType | EdgeType, available: Sequence[str], mapped: Mapped, *, place: str
) -> ColumnPlan:
    """The plan for a source with these columns, or `InputError` that names what does not fit.

    `mapped.columns` reads "property: source column". Written the other way round it is understood
    as well, if that is the only reading that fits.
    """
    homes = homes_of(entity)
    renames = _oriented(mapped.columns, homes, available)
    takes: dict[str, str] = {}
    for target, column in renames.items():
        home = homes.get(target)
        if home is None:
            raise InputError(
                f"{place}: {entity.name} has no property '{target}'",
                hint=f"it has {', '.join(sorted(homes))}",
            )
        if column not in available:
            raise InputError(
                f"{place}: there is no column '{column}'", hint=f"it has {', '.join(available)}"
            )
        if home in takes:
            raise InputError(f"{place}: '{home}' of {entity.name} is mapped twice")
        takes[home] = column
    used = set(takes.values())
    unknown: list[str] = []
    for column in available:
        home = homes.get(column)
        if column in used:
            continue
        if home is None:
            unknown.append(column)
        elif home not in takes:
            takes[home] = column
    if unknown and not mapped.columns:
        raise InputError(
            f"{place}: unknown column '{unknown[0]}' for {entity.name}",
            hint="map the columns you want with columns={property: column}; others are left out",
            columns=unknown,
        )
    _require_needed(entity, takes, mapped, place=place)
    return ColumnPlan(takes=takes, casts=_casts(entity, mapped.casts, homes, place=place))


def homes_of(entity: NodeType | EdgeType) -> dict[str, str]:
    """Every word that may name a column of the type, and the column that it names."""
    homes = {prop.name: prop.name for prop in entity.properties}
    homes.setdefault("id", "id")
    if isinstance(entity, EdgeType):
        for word, column in (("from", "src"), ("to", "dst"), ("src", "src"), ("dst", "dst")):
            homes.setdefault(word, column)
    else:
        homes.setdefault("key", entity.key[0] if len(entity.key) == 1 else "id")
    return homes


def _oriented(
    columns: Mapping[str, str], homes: Mapping[str, str], available: Sequence[str]
) -> Mapping[str, str]:
    def fits(pairs: Mapping[str, str]) -> bool:
        return all(target in homes and column in available for target, column in pairs.items())

    turned = {column: target for target, column in columns.items()}
    if not fits(columns) and len(turned) == len(columns) and fits(turned):
        return turned
    return columns


def _require_needed(
    entity: NodeType | EdgeType, takes: Mapping[str, str], mapped: Mapped, *, place: str
) -> None:
    ends = ("src", "dst") if isinstance(entity, EdgeType) else ()
    required = [
        prop.name
        for prop in entity.properties
        if not prop.type.nullable and prop.default is None
        if not (mapped.fills_vectors and prop.embed is not None and prop.embed.source in takes)
    ]
    for column in (*ends, *required):
        if column not in takes:
            word = {"src": "from", "dst": "to"}.get(column, column) if ends else column
            raise InputError(
                f"{place}: no column for required '{word}' of {entity.name}",
                hint=f'map it with columns={{"{word}": "<column>"}}',
            )


def _casts(
    entity: NodeType | EdgeType,
    casts: Mapping[str, str],
    homes: Mapping[str, str],
    *,
    place: str,
) -> dict[str, PropertyType]:
    plan: dict[str, PropertyType] = {}
    for target, name in casts.items():
        scalar = _CAST_NAMES.get(name.lower())
        if target not in homes:
            raise InputError(f"{place}: {entity.name} has no property '{target}' to cast")
        if scalar is None or scalar in (Scalar.VECTOR, Scalar.BLOB):
            raise InputError(
                f"{place}: cannot cast to '{name}'",
                hint="use String, Bool, I32, I64, U32, U64, F32, F64, Date or DateTime",
            )
        plan[homes[target]] = PropertyType(scalar=scalar, nullable=True)
    return plan
