"""Opaque tokens that we hand out and take back: a page's place, a feed's cursor.

A token is base64url of JSON and its SHA-256, so one that was cut or edited is refused. It is no
secret and proves nothing about who holds it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any

import orjson

from omnigraph.errors import InputError
from omnigraph.model.limits import TOKEN_BYTES_MAX

_VERSION = 1
_DIGEST_BYTES = 32


def seal_token(kind: str, facts: dict[str, Any]) -> str:
    """The facts as a token of that kind."""
    body = orjson.dumps({"kind": kind, "version": _VERSION, **facts})
    sealed = body + hashlib.sha256(body).digest()
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def unseal_token(kind: str, token: str) -> dict[str, Any]:
    """The facts of a token of that kind, or `InputError`."""
    if len(token) > TOKEN_BYTES_MAX:
        raise _rejected("it is too long")
    try:
        sealed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        body, digest = sealed[:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
        intact = hashlib.sha256(body).digest() == digest
        facts = orjson.loads(body) if intact else None
    except (binascii.Error, ValueError) as cause:
        raise _rejected("it is not a token") from cause
    if not isinstance(facts, dict):
        raise _rejected("it is damaged")
    if facts.get("kind") != kind or facts.get("version") != _VERSION:
        raise _rejected(f"it is not a {kind}")
    return facts


def _rejected(why: str) -> InputError:
    return InputError(f"change cursor rejected: {why}")
