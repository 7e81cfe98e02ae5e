"""The schemas of old graphs: what the reference system stored, and what its past was.

Its schema IR, version 1 (releases 0.7 and 0.8), says what ours says in a few other words: a vector
is `{"Vector": 4}`, the marks `@key`, `@index` and `@unique` stay on their property beside the
constraint, rename hints stay, key columns are sorted, and nothing tells where a property came from.
So it is never decoded into a catalog. The source is compiled, and both are brought into a common
form and compared; a field that is not known here is refused, because what it means would be lost.

Old formats keep one schema for the whole graph: the newest. For a snapshot from before a schema
change the columns of its tables tell what there was; the newest schema tells what it meant, as far
as names or rename hints lead there. What leads nowhere (a type or a property that was dropped)
is taken for what its column says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from omnigraph.compiler.schema.compile import (
    IR_VERSION,
    Types,
    catalog_of,
    compile_schema,
    stable_id,
    with_key_order,
)
from omnigraph.compiler.schema.parse import ConstraintDecl, NodeDecl, Word, parse_schema
from omnigraph.compiler.schema.printer import print_schema
from omnigraph.compiler.text import SourceText
from omnigraph.errors import CorruptGraphError, InputError
from omnigraph.model.schema import (
    Annotation,
    Catalog,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
)

_T = TypeVar("_T", NodeType, EdgeType)
Columns = Mapping[str, PropertyType]  # the properties of a table, by name


class OldSchemas:
    """What storage must know of the schemas of old graphs, and may not ask a compiler itself."""

    def read(self, ir: str, source: str) -> Catalog:
        """The catalog of a graph that the reference system wrote, from its IR and source text.

        The source decides, and the IR must mean the same, else `CorruptGraphError`: an IR that is
        not understood to the last field is no ground to change a graph on.
        """
        try:
            compiled = compile_schema(source)
        except InputError as cause:
            raise CorruptGraphError(
                f"the stored schema source does not compile: {cause.message}",
                hint="export the graph with the OmniGraph release that wrote it and load it here",
                part="_schema.pg",
            ) from cause
        found = tuple(_differing(_read(compiled.ir), _read(ir), "schema"))
        if found:
            raise CorruptGraphError(
                f"the stored schema source does not compile to the stored schema: {found[0]}",
                part="_schema.pg",
                differences=found,
            )
        return with_key_order(compiled, _declared_keys(source))

    def recall(self, newest: Catalog, tables: Mapping[str, Columns]) -> Catalog:
        """The catalog that tables were written under; `newest` itself if they are what it says.

        An edge type that the newest schema does not know is left out: which nodes it joined is told
        by no column.
        """
        nodes: dict[str, NodeType] = {}
        edges: dict[str, EdgeType] = {}
        names: dict[str, str] = {}  # a node type's name now -> then
        # All nodes before the first edge, which must know their names.
        for key, columns in sorted(tables.items(), key=lambda table: table[0].startswith("edge:")):
            kind, _, name = key.partition(":")
            if kind == "node":
                now = newest.nodes.get(name) or _renamed(newest.nodes.values(), name)
                nodes[name] = _node(name, now, columns, newest.interfaces)
                if now is not None:
                    names[now.name] = name
            elif kind == "edge":
                joined = newest.edges.get(name) or _renamed(newest.edges.values(), name)
                if joined is not None and {joined.from_type, joined.to_type} <= names.keys():
                    edges[name] = _edge(name, joined, columns, names)
        types = Types(interfaces=dict(newest.interfaces), nodes=nodes, edges=edges)
        then = catalog_of(types, source="")
        if then.ir == newest.ir:
            return newest
        then = replace(then, source=print_schema(then))
        try:
            # As its own text gives it, so that it can be stored and read back as text.
            return compile_schema(then.source)
        except InputError:  # a word that the language refuses by now; what was decoded still holds
            return then


def _declared_keys(source: str) -> dict[str, tuple[str, ...]]:
    """Key columns as declared: the order in which the reference writes them into ids."""
    return {
        decl.name: tuple(arg.text for arg in member.args if isinstance(arg, Word))
        for decl in parse_schema(SourceText(source, "schema"))
        if isinstance(decl, NodeDecl)
        for member in decl.members
        if isinstance(member, ConstraintDecl) and member.name == "key"
    }


def _renamed(types: Iterable[_T], name: str) -> _T | None:
    return next((each for each in types if each.rename_from == name), None)


def _node(
    name: str, now: NodeType | None, columns: Columns, interfaces: Mapping[str, InterfaceType]
) -> NodeType:
    if now is None:
        return NodeType(name=name, properties=tuple(_plain(columns)))
    then = _names(now, columns)
    implemented = [
        each
        for each in now.implements
        if all(then.get(prop.name) == prop.name for prop in interfaces[each].properties)
    ]
    return replace(
        now,
        **_facts(name, now, then),
        properties=_properties(now, columns, then, implemented),
        key=_mapped(now.key, then) or (),
        ranges=tuple(
            replace(each, property=then[each.property])
            for each in now.ranges
            if each.property in then
        ),
        checks=tuple(
            replace(each, property=then[each.property])
            for each in now.checks
            if each.property in then
        ),
        implements=tuple(implemented),
    )


def _edge(name: str, now: EdgeType, columns: Columns, nodes: Mapping[str, str]) -> EdgeType:
    then = {**_names(now, columns), "src": "src", "dst": "dst"}
    return replace(
        now,
        **_facts(name, now, then),
        from_type=nodes[now.from_type],
        to_type=nodes[now.to_type],
        properties=_properties(now, columns, then, ()),
    )


def _facts(name: str, now: NodeType | EdgeType, then: Mapping[str, str]) -> Any:
    """What nodes and edges have in common."""
    return {
        "name": name,
        "unique": _kept(now.unique, then),
        "index": _kept(now.index, then),
        "annotations": _without_hint(now.annotations),
        "rename_from": None,
    }


def _names(now: NodeType | EdgeType, columns: Columns) -> dict[str, str]:
    """The properties of today that there were already, and what they were called."""
    found: dict[str, str] = {}
    for prop in now.properties:
        for name in (prop.name, prop.rename_from or prop.name):
            # Enums are told by no column.
            if name in columns and _shape(columns[name]) == _shape(prop.type):
                found[prop.name] = name
                break
    return found


def _shape(kind: PropertyType) -> object:
    return kind.scalar, kind.is_list, kind.dimension


def _properties(
    now: NodeType | EdgeType, columns: Columns, then: Mapping[str, str], implements: Collection[str]
) -> tuple[Property, ...]:
    kept = [
        replace(
            prop,
            name=then[prop.name],
            rename_from=None,
            annotations=_without_hint(prop.annotations),
            inherited_from=prop.inherited_from
            if (prop.inherited_from or "") in implements
            else None,
        )
        for prop in now.properties
        if prop.name in then
    ]
    told = {prop.name for prop in kept}
    return (*kept, *_plain({name: columns[name] for name in columns if name not in told}))


def _without_hint(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    return tuple(note for note in annotations if note.name != "rename_from")


def _plain(columns: Columns) -> Iterable[Property]:
    return (Property(name=name, type=kind) for name, kind in columns.items())


def _mapped(names: Iterable[str], then: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names of then; None if one of them was not there."""
    wanted = tuple(names)
    return tuple(then[name] for name in wanted) if all(one in then for one in wanted) else None


def _kept(
    groups: Iterable[tuple[str, ...]], then: Mapping[str, str]
) -> tuple[tuple[str, ...], ...]:
    mapped = (_mapped(group, then) for group in groups)
    return tuple(group for group in mapped if group is not None)


IR_FILE: Final = "_schema.ir.json"

Body = dict[str, Any]

_MARKS: Final = frozenset({"key", "unique", "index", "rename_from"})
_HINT: Final = (
    "open the graph with the OmniGraph release that wrote it, or restore the file from a backup"
)


def _read(ir: str) -> Body:
    try:
        body = json.loads(ir)
    except ValueError as cause:
        raise _corrupt(f"it is no JSON ({cause})") from cause
    try:
        return _schema(body)
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise _corrupt(f"{cause!r}") from cause


def _corrupt(reason: str) -> CorruptGraphError:
    return CorruptGraphError(
        f"the stored schema IR cannot be understood: {reason}", hint=_HINT, part=IR_FILE
    )


# --- the common form -------------------------------------------------------------------------


def _schema(body: Body) -> Body:
    _known(body, "schema", {"ir_version", "interfaces", "nodes", "edges"})
    if body["ir_version"] != IR_VERSION:
        raise _corrupt(f"its version is {body['ir_version']}, expected {IR_VERSION}")
    return {
        kind: _by_name(body[f"{kind}s"], partial(_type, kind))
        for kind in ("interface", "node", "edge")
    }


_TYPE_FIELDS: Final = {
    "interface": ("name", "type_id", "properties"),
    "node": ("name", "type_id", "annotations", "implements", "properties", "constraints"),
    "edge": (
        "name", "type_id", "from_type", "to_type", "cardinality", "annotations", "properties",
        "constraints",
    ),
}  # fmt: skip


def _type(kind: str, body: Body) -> Body:
    name = body["name"]
    place = f"{kind} {name}"
    _known(body, place, _TYPE_FIELDS[kind])
    _check_id(body["type_id"], f"{kind}:{name}", place)
    made: Body = {
        "properties": _by_name(
            body["properties"], lambda each: _property(each, f"{kind}:{name}", place)
        )
    }
    if kind == "interface":
        return made
    made["annotations"] = _annotations(body["annotations"], place)
    made["constraints"] = sorted({_constraint(each, place) for each in body["constraints"]})
    if kind == "node":
        made["implements"] = sorted(set(body["implements"]))
        return made
    _known(body["cardinality"], f"the cardinality of {place}", {"min", "max"})
    return {
        **made,
        "from_type": body["from_type"],
        "to_type": body["to_type"],
        "cardinality": dict(body["cardinality"]),
    }


def _property(body: Body, owner: str, place: str) -> Body:
    place = f"{place}, property {body['name']}"
    known = {"name", "prop_id", "prop_type", "annotations"}
    _known(body, place, known, optional={"inherited_from"})
    _check_id(body["prop_id"], f"{owner}:{body['name']}", place)
    return {
        "type": _property_type(body["prop_type"], place),
        "annotations": _annotations(body["annotations"], place),
    }


def _property_type(body: Body, place: str) -> Body:
    _known(body, f"the type of {place}", {"scalar", "nullable", "list", "enum_values"})
    scalar = body["scalar"]
    if isinstance(scalar, dict):
        _known(scalar, f"the type of {place}", {"Vector"})
        scalar = f"Vector({int(scalar['Vector'])})"
    values = body["enum_values"]
    return {
        "scalar": str(scalar),
        "nullable": bool(body["nullable"]),
        "list": bool(body["list"]),
        "enum_values": None if values is None else sorted(values),
    }


def _annotations(bodies: Iterable[Body], place: str) -> list[Any]:
    kept = []
    for body in bodies:
        where = f"an annotation of {place}"
        _known(body, where, {"name", "value"}, optional={"kwargs"})
        if body["name"] not in _MARKS:
            kwargs = {name: _literal(value) for name, value in body.get("kwargs", {}).items()}
            kept.append([body["name"], _literal(body["value"]), sorted(kwargs.items())])
    return sorted(kept, key=lambda each: json.dumps(each))


def _literal(value: Any) -> str | None:
    """A literal by its text: the reference keeps `5` as "5", we as a number."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        return repr(float(text))
    except ValueError:
        return text


def _constraint(body: Body, place: str) -> str:
    """A constraint by its text. Of columns only the set counts: the source has their order."""
    ((kind, what),) = body.items()
    match kind:
        case "Key" | "Unique" | "Index":
            meaning: Any = sorted(what)
        case "Range":
            _known(what, f"a range of {place}", {"property", "min", "max"})
            meaning = [what["property"], _bound(what["min"]), _bound(what["max"])]
        case "Check":
            _known(what, f"a check of {place}", {"property", "pattern"})
            meaning = [what["property"], what["pattern"]]
        case _:
            raise _corrupt(f"{place} has a constraint of the unknown kind '{kind}'")
    return json.dumps([kind, meaning])


def _bound(body: Body | None) -> float | None:
    if body is None:
        return None
    ((kind, value),) = body.items()
    if kind not in ("Integer", "Float"):
        raise _corrupt(f"a bound of the unknown kind '{kind}'")
    return float(value)


# --- details ---------------------------------------------------------------------------------


def _by_name(bodies: Iterable[Body], read: Callable[[Body], Body]) -> Body:
    found: Body = {}
    for body in bodies:
        if body["name"] in found:
            raise _corrupt(f"'{body['name']}' is there twice")
        found[body["name"]] = read(body)
    return found


def _known(body: Body, place: str, fields: Iterable[str], *, optional: Iterable[str] = ()) -> None:
    if not isinstance(body, dict):
        raise _corrupt(f"{place} is no object")
    needed = set(fields)
    unknown = sorted(body.keys() - needed - set(optional))
    if unknown:
        raise _corrupt(f"{place} has the unknown field '{unknown[0]}'")
    missing = sorted(needed - body.keys())
    if missing:
        raise _corrupt(f"{place} has no field '{missing[0]}'")


def _check_id(found: Any, text: str, place: str) -> None:
    if found != stable_id(text):
        raise _corrupt(f"{place} has the id {found}, its name makes {stable_id(text)}")


def _differing(ours: Any, theirs: Any, place: str) -> Iterable[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted(ours.keys() | theirs.keys()):
            inner = f"{place}.{name}"
            if name not in theirs:
                yield f"{inner} is only in the source"
            elif name not in ours:
                yield f"{inner} is only in the IR"
            else:
                yield from _differing(ours[name], theirs[name], inner)
    elif ours != theirs:
        yield f"{place} is {ours} in the source and {theirs} in the IR"
