"""The schema IR of the reference system, version 1, as its releases 0.7 and 0.8 write it.

It says what ours says in a few other words: a vector is `{"Vector": 4}`, the marks `@key`, `@index`
and `@unique` stay on their property beside the constraint, rename hints stay, key columns are
sorted, and nothing tells where a property came from. So it is never decoded into a catalog. The
source is compiled, and both are brought into a common form and compared; a field that is not known
here is refused, because what it means would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from omnigraph.compiler.schema.ir import IR_VERSION, stable_id
from omnigraph.errors import CorruptGraphError

IR_FILE: Final = "_schema.ir.json"

Body = dict[str, Any]

_MARKS: Final = frozenset({"key", "unique", "index", "rename_from"})
_HINT: Final = (
    "open the graph with the OmniGraph release that wrote it, or restore the file from a backup"
)


def differences(ours: str, theirs: str) -> list[str]:
    """Where the two texts mean different things; `CorruptGraphError` if theirs makes no sense.

    `ours` may be in our own words or, as `theirs`, in the reference's.
    """
    return list(_differing(_read(ours), _read(theirs), "schema"))


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


_TYPE_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "interface": frozenset({"name", "type_id", "properties"}),
    "node": frozenset(
        {"name", "type_id", "annotations", "implements", "properties", "constraints"}
    ),
    "edge": frozenset(
        {
            "name",
            "type_id",
            "from_type",
            "to_type",
            "cardinality",
            "annotations",
            "properties",
            "constraints",
        }
    ),
}


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
