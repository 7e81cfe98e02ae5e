"""The OpenAPI document, made of the table of routes and the classes of the wire."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from omnigraph import __version__
from omnigraph.server.calls import JSON, OCTETS, Parameter, Route
from omnigraph.wire.failures import ErrorOutput

_REF: Final = "#/components/schemas/{name}"
_BEARER: Final = "bearer_token"
_COMMON: Final = (401, 403, 404, 429, 500, 503)  # that any route of a graph may answer
_REASONS: Final = {
    200: "done",
    206: "a range of it",
    302: "it lies elsewhere",
    304: "unchanged",
    400: "the request does not fit",
    401: "no known token",
    403: "not allowed",
    404: "not found",
    408: "the body did not come in time",
    409: "conflict; nothing happened",
    410: "no longer kept",
    412: "the condition does not hold",
    413: "more than a limit allows",
    415: "another media type is needed",
    416: "the range lies outside",
    424: "an external source failed",
    429: "too much at once",
    431: "the head is too big",
    500: "internal error",
    503: "not available now",
}


def document(routes: Iterable[Route], *, is_open: bool = False) -> dict[str, Any]:
    """The document of these routes; an open server asks for no tokens."""
    listed = [route for route in routes if route.asgi is None and route.path != "/openapi.json"]
    types: list[Any] = [ErrorOutput]
    for route in listed:
        types += [kind for kind in (route.request, *_answers(route)) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    components = {name: _for_generators(one) for name, one in components.items()}
    by_type = {repr(kind): _for_generators(one) for kind, one in zip(types, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for route in listed:
        operation = _operation(route, by_type, is_open=is_open)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "OmniGraph",
            "version": __version__,
            "description": "A typed property graph over HTTP.",
        },
        "paths": paths,
        "components": {"schemas": dict(sorted(components.items()))},
    }
    if not is_open:
        found["components"]["securitySchemes"] = {_BEARER: {"type": "http", "scheme": "bearer"}}
    return found


def _for_generators(schema: Any) -> Any:
    """The same, said so that generators of clients make the types that are meant: a member with a
    default would be one that must be given, an object that tells no members one that has none."""
    if isinstance(schema, list):
        return [_for_generators(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, one in schema.items():
        if key == "properties":  # its keys are names of members, which may be any words
            found[key] = {name: _for_generators(member) for name, member in one.items()}
        elif key != "default":
            found[key] = _for_generators(one)
    if found == {"type": "object"}:
        found["additionalProperties"] = True
    if "enum" in found and all(isinstance(one, str) for one in found["enum"]):
        found["type"] = "string"
    return found


def _answers(route: Route) -> tuple[Any, ...]:
    """The classes that a route answers with; a stored query has two."""
    return route.answer if isinstance(route.answer, tuple) else (route.answer,)


def _operation(route: Route, by_type: dict[str, Any], *, is_open: bool) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.path)
    prefix = "" if route.tag == "server" else "cluster_"
    found: dict[str, Any] = {
        "operationId": prefix + route.operation,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [
            *[_path_parameter(name) for name in names],
            *[_parameter(one, "query") for one in route.parameters],
            *[_parameter(one, "header") for one in route.headers],
        ],
        "responses": _responses(route, by_type),
    }
    if route.request is not None:
        body = {"content": {JSON: {"schema": by_type[repr(route.request)]}}}
        found["requestBody"] = {**body, "required": not route.optional_body}
    elif route.takes is not None:
        body = {"content": {route.takes: {"schema": {"type": "string"}}}}
        found["requestBody"] = {**body, "required": True}
    if route.successor is not None:
        found["deprecated"] = True
    if not route.is_open and not is_open:
        found["security"] = [{_BEARER: []}]
    return found


def _path_parameter(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if name == "graph_id":
        schema |= {"pattern": "^[a-zA-Z0-9-]{1,64}$"}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _parameter(one: Parameter, place: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": one.kind}
    if one.values:
        schema["enum"] = list(one.values)
    if one.kind == "integer":
        schema["minimum"] = 1
    if one.repeated:
        schema = {"type": "array", "items": schema}
    return {
        "name": one.name,
        "in": place,
        "required": one.required,
        "description": one.about,
        "schema": schema,
    }


def statuses(route: Route) -> list[int]:
    """Every status that a route may answer."""
    found = {200, *route.statuses}
    if route.is_of_a_graph:
        found |= {400, *_COMMON}
    if not route.is_open:
        found |= {401, 403}
    if route.method == "POST":
        found |= {400, 408, 413}
    if route.request is not None or route.takes is not None:
        found.add(415)
    return sorted(found | {431, 500})


def _responses(route: Route, by_type: dict[str, Any]) -> dict[str, Any]:
    failure = by_type[repr(ErrorOutput)]
    responses: dict[str, Any] = {}
    for status in statuses(route):
        answer: dict[str, Any] = {"description": _REASONS[status]}
        if status in (200, 206) or (status == 503 and route.operation == "ready"):
            if route.method != "HEAD":
                other = _BYTES if route.media == OCTETS else _TEXT
                shown = [by_type.get(repr(kind), other) for kind in _answers(route)]
                schema = shown[0] if len(shown) == 1 else {"anyOf": shown}
                answer["content"] = {route.media: {"schema": schema}}
        elif status >= 400 and route.method != "HEAD":
            answer["content"] = {JSON: {"schema": failure}}
        responses[str(status)] = answer
    return responses


_TEXT: Final[dict[str, Any]] = {"type": "string"}
_BYTES: Final[dict[str, Any]] = {"type": "string", "format": "binary"}
