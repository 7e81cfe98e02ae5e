"""Requests that are carried out once, however often they are submitted.

The caller's key and a digest of the request are written in the commit itself, so there is no moment
in which one exists without the other. What the first submission answered is written there too, for
those that come later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any, Final

import msgspec

from omnigraph.errors import IdempotencyKeyReusedError, InvalidNameError
from omnigraph.model.graph import Commit
from omnigraph.model.limits import IDEMPOTENCY_KEY_BYTES_MAX
from omnigraph.model.values import has_lone_surrogate, plain

KEY_PROPERTY: Final = "idempotency_key"
DIGEST_PROPERTY: Final = "request_digest"
RESULT_PROPERTY: Final = "request_result"
# Bulk loads of the first release wrote their key under this name, without a digest.
FORMER_KEY_PROPERTY: Final = "load_id"


class KeyedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The key that a caller gave to a request, and what tells the request from others."""

    key: str
    digest: str

    @classmethod
    def of(cls, key: str | None, what: str, **facts: Any) -> KeyedRequest | None:
        """The request with these facts; None if it has no key and may be repeated freely."""
        if key is None:
            return None
        return cls(key=checked_key(key), digest=digest(what, facts))

    @property
    def properties(self) -> dict[str, str]:
        """What its commit says."""
        return {KEY_PROPERTY: self.key, DIGEST_PROPERTY: self.digest}

    def require_same(self, commit: Commit) -> None:
        """Raise `IdempotencyKeyReusedError` if the commit with this key was made by another
        request."""
        assert key_of(commit.properties) == self.key, "the commit was found by this key"
        recorded = commit.properties.get(DIGEST_PROPERTY)
        if recorded is not None and recorded != self.digest:
            raise IdempotencyKeyReusedError(key=self.key, graph_commit_id=commit.graph_commit_id)


def key_of(properties: Mapping[str, str]) -> str | None:
    """The idempotency key that a commit's properties hold, if any."""
    return properties.get(KEY_PROPERTY) or properties.get(FORMER_KEY_PROPERTY)


def result_of(commit: Commit) -> dict[str, Any]:
    """What the first submission of the commit's request answered; empty if it was not recorded."""
    text = commit.properties.get(RESULT_PROPERTY)
    return {} if text is None else dict(json.loads(text))


def result_property(facts: Mapping[str, Any]) -> dict[str, str]:
    """The commit property from which `result_of` reads these facts."""
    return {RESULT_PROPERTY: json.dumps(facts, separators=(",", ":"), sort_keys=True)}


def checked_key(key: Any) -> str:
    """The key, or `InvalidNameError` if it cannot be one."""
    problem = None
    if not isinstance(key, str):
        problem = f"must be text, got {type(key).__name__}"
    elif not key.strip():
        problem = "must not be empty"
    elif has_lone_surrogate(key):
        problem = "is no text that can be stored: it holds half of a surrogate pair"
    elif (size := len(key.encode())) > IDEMPOTENCY_KEY_BYTES_MAX:
        problem = f"has at most {IDEMPOTENCY_KEY_BYTES_MAX} bytes, this one has {size}"
    if problem is not None:
        raise InvalidNameError(
            f"an idempotency key {problem}", kind="idempotency key", name=str(key)
        )
    return str(key)


def digest(what: str, facts: Mapping[str, Any]) -> str:
    """The same text for the same request, another one for any other."""
    text = json.dumps([what, _canonical(facts)], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_lines(lines: Iterable[bytes]) -> str:
    """The digest of a text: how its lines end, and whether the last one does, makes no odds."""
    found = hashlib.sha256()
    for line in lines:
        found.update(line.rstrip(b"\r\n"))
        found.update(b"\n")
    return found.hexdigest()


def _canonical(value: Any) -> Any:
    """A value as JSON that is spelled in one way, with nothing folded into anything else."""
    match value := plain(value):
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": repr(value)}  # JSON has no NaN, and 1.0 is not 1
        case bytes():
            return {"bytes": value.hex()}
        case date():
            return {"date": value.isoformat()}
        case Mapping():
            pairs = sorted(value.items(), key=lambda pair: str(pair[0]))
            return {"map": [[str(name), _canonical(one)] for name, one in pairs]}
        case list() | tuple():
            return [_canonical(one) for one in value]
        case _:
            return {type(value).__name__: repr(value)}
