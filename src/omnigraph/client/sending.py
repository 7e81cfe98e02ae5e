"""What requests are made of: states, filters, parameters, and data as lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from omnigraph.client.http import Reply
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.values import json_value, moment_text, with_text_ends

Ref = str | datetime
At = Ref | int
# What a server does not do, and what to do instead.
DIRECT = {
    "acting_as": "connect with the token of the other actor",
    "algorithms": "run them on the graph's storage",
    "backup": "copy the graph's storage",
    "cleanup": "run it on the graph's storage",
    "clear_recovery_log": "do it in the graph's storage",
    "describe": "see `stored_queries()` and `lint()`, or look at the graph's storage",
    "embed": "do it in the graph's storage",
    "ensure_indices": "run it on the graph's storage",
    "optimize": "run it on the graph's storage",
    "pending_recoveries": "look at the graph's storage",
    "plan_schema": "run it on the graph's storage",
    "recoveries": "look at the graph's storage",
    "recovery_log_problems": "look at the graph's storage",
    "require_branch": "see `branches()`",
    "resolve_recovery": "do it in the graph's storage",
    "retention": "look at the graph's storage",
    "set_retention": "do it in the graph's storage",
    "repair": "run it on the graph's storage",
    "create_tag": "name the commit in the graph's storage",
    "delete_tag": "do it in the graph's storage",
    "deleted_branches": "look at the graph's storage",
    "restore_branch": "do it in the graph's storage",
    "tags": "look at the graph's storage",
    "unreadable_tags": "look at the graph's storage",
    "health": "look at the graph's storage",
    "figures": "ask the server's /metrics",
    "transaction": "put everything into one mutation, or one load",
    "verify": "run it on the graph's storage",
}


def refuse(given: Any, argument: str, why: str) -> None:
    """An argument that says something to a graph's own storage only."""
    if given is not None:
        raise InputError(why, hint=f"leave {argument} out, or open the storage", argument=argument)


def refuse_actor(actor: str | None) -> None:
    if actor is not None:
        raise InputError(
            "the server knows who you are by your token", hint="leave actor out", argument="actor"
        )


def once(key: str | None) -> dict[str, str]:
    return {} if key is None else {"idempotency-key": key}


def replayed(reply: Reply) -> bool:
    return reply.headers.get("idempotency-replayed") == "true"


def ref_text(ref: At) -> str:
    return moment_text(ref) if isinstance(ref, datetime) else str(ref)


def state(branch: str, at: At | None) -> dict[str, Any]:
    return {"branch": branch} if at is None else {"snapshot": ref_text(at)}


def filters(*given: Sequence[str] | None) -> dict[str, Any]:
    return {
        name: list(one)
        for name, one in zip(("kind", "type", "op"), given, strict=True)
        if one is not None
    }


def settling(strategy: str, resolutions: Mapping[tuple[str, str], Any] | None) -> dict[str, Any]:
    if not resolutions:
        return {"strategy": strategy}
    entries = [
        {"type_key": key, "entity_id": entity_id, "take": take}
        for (key, entity_id), take in resolutions.items()
    ]
    return {"strategy": strategy, "resolutions": entries}


def plain(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Parameters as JSON has them."""
    return None if params is None else {name: json_value(value) for name, value in params.items()}


def ndjson(data: Any) -> bytes:
    """What was given as the lines that a server takes."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, os.PathLike):
        try:
            return Path(data).read_bytes()
        except FileNotFoundError as cause:
            raise NotFoundError(
                f"there is no file '{data}'", kind="file", name=os.fspath(data)
            ) from cause
        except OSError as cause:
            raise InputError(f"cannot read '{data}': {cause.strerror}") from cause
    if isinstance(data, Mapping) and "type" not in data and "edge" not in data:
        return b"\n".join(_record(one) for one in _typed(data))
    if isinstance(data, Iterable):
        return b"\n".join(_record(one) for one in data)
    raise InputError(f"a server takes lines or records, got {type(data).__name__}")


def _typed(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of dictionaries by type as records; one with both ends is an edge."""
    for name, rows in data.items():
        if not isinstance(rows, list | tuple):
            raise InputError(
                f"a server takes the rows of '{name}' as dictionaries, got {type(rows).__name__}",
                hint="load frames and files into the graph's storage",
            )
        for row in rows:
            ends = [pair for pair in (("from", "to"), ("src", "dst")) if set(pair) <= set(row)]
            if not ends:
                yield {"type": name, "data": row}
                continue
            start, end = ends[0]
            rest = {key: value for key, value in row.items() if key not in ends[0]}
            yield {"edge": name, "from": row[start], "to": row[end], "data": rest}


def _record(one: Any) -> bytes:
    if isinstance(one, str):
        return one.encode().rstrip(b"\r\n")
    if isinstance(one, bytes):
        return one.rstrip(b"\r\n")
    return orjson.dumps(with_text_ends(json_value(one)), default=json_value)
