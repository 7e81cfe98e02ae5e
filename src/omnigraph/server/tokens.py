"""The tokens that a server accepts: whose they are, kept as digests, read again when they change.

Sources combine: one token of the environment (its actor is `default`), and a file or a JSON text of
`{actor: token}`; a secret of AWS Secrets Manager stands in place of all of them. In place of a
token there may be `{"sha256": "<hex>", "expires": "<time>"}`, or a list of several. What was read
is hashed at once and not kept, neither here nor in the environment.
"""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import json
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from omnigraph.errors import InputError, PackageMissingError, UnavailableError
from omnigraph.model.values import has_lone_surrogate, microseconds, parse_iso

logger = logging.getLogger(__name__)

SINGLE: Final = "OMNIGRAPH_SERVER_BEARER_TOKEN"
FILE: Final = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
JSON: Final = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
AWS_SECRET: Final = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"  # noqa: S105 - a name
DEFAULT_ACTOR: Final = "default"
_HASHED: Final = "sha256:"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One token, by its digest; `expires_us` is None for one that stays."""

    digest: bytes
    actor: str
    expires_us: int | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"sha256": self.digest.hex()}
        if self.expires_us is not None:
            body["expires"] = self.expires_us
        return body


class TokenSet:
    """The tokens of a server. `actor` may be asked from any thread while `reload` runs."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Read every source, or raise `InputError` that names it; see `token_set`."""
        self._environ = environ
        self._entries = _read(environ)
        _forget_plain(environ, self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def actor(self, token: str) -> str | None:
        """Whose token it is; None if it is nobody's. It takes the same time whichever it is: every
        digest is compared, and to its end."""
        asked = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found: Entry | None = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, asked):
                found = entry
        if found is None:
            return None
        if found.expires_us is not None and found.expires_us <= time.time_ns() // 1000:
            return None
        return found.actor

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """What tells whether the file may have changed; None if there is none."""
        return None if self._environ.get(AWS_SECRET) else file_stamp(self._environ.get(FILE))

    def reload(self) -> str | None:
        """Read every source again and take the new set over at once; what is wrong, if anything is,
        and then everything stays as it was."""
        try:
            entries = _read(self._environ)
        except (InputError, UnavailableError, PackageMissingError) as problem:
            return problem.message
        if not entries:
            return "no tokens are left; the old ones stay"
        self._entries = entries
        return None


def file_stamp(path: str | None) -> tuple[int, int, int] | None:
    """Something else when the file was written or replaced; None where no file is named."""
    if not path:
        return None
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def token_set(environ: MutableMapping[str, str]) -> TokenSet | None:
    """The tokens that the environment names; None if it names no source at all."""
    if not any(environ.get(name) for name in (SINGLE, FILE, JSON, AWS_SECRET)):
        return None
    found = TokenSet(environ)
    if not len(found):
        raise InputError("the sources of tokens hold none", hint=f"see {FILE}")
    return found


# --- sources ------------------------------------------------------------------------------------


def _read(environ: Mapping[str, str]) -> tuple[Entry, ...]:
    secret = environ.get(AWS_SECRET)
    if secret:
        return _distinct(_entries(_aws_secret(secret), where=f"secret '{secret}'"))
    more: list[Entry] = []
    if path := environ.get(FILE):
        more = _file_entries(Path(path))
    elif text := environ.get(JSON):
        more = _entries(text, where=JSON)
    single = environ.get(SINGLE)
    if not single:
        return _distinct(more)
    if any(entry.actor == DEFAULT_ACTOR for entry in more):
        raise InputError(f"actor '{DEFAULT_ACTOR}' has tokens in {SINGLE} and in another source")
    return _distinct([_entry(DEFAULT_ACTOR, _plain_or_hashed(single), where=SINGLE), *more])


def _plain_or_hashed(text: str) -> Any:
    return {"sha256": text.removeprefix(_HASHED)} if text.startswith(_HASHED) else text


def _forget_plain(environ: MutableMapping[str, str], entries: tuple[Entry, ...]) -> None:
    """Leave digests in the environment instead of tokens: worker processes inherit it."""
    if environ is os.environ:
        for name in (SINGLE, JSON):
            _blot_out(name)
    if environ.get(SINGLE):
        digest = entries[0].digest.hex() if not environ.get(AWS_SECRET) else ""
        environ[SINGLE] = _HASHED + digest
    if environ.get(JSON):
        by_actor: dict[str, list[dict[str, Any]]] = {}
        for entry in entries[1:] if environ.get(SINGLE) else entries:
            by_actor.setdefault(entry.actor, []).append(entry.to_json())
        # Where a file or a secret counts instead, nobody reads it.
        environ[JSON] = "" if environ.get(FILE) or environ.get(AWS_SECRET) else json.dumps(by_actor)


def _blot_out(name: str) -> None:
    """Overwrite a variable where it lies since the process began: `/proc/<pid>/environ` goes on to
    show what is there, whatever the variable is set to."""
    if not os.environ.get(name):
        return
    getenv = ctypes.CDLL(None).getenv
    getenv.argtypes, getenv.restype = (ctypes.c_char_p,), ctypes.c_void_p
    place = getenv(name.encode())
    assert place is not None, "what is set lies somewhere"
    ctypes.memset(place, ord("x"), len(ctypes.string_at(place)))


def _file_entries(path: Path) -> list[Entry]:
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as cause:
        raise InputError(f"cannot read the tokens in '{path}': {cause}") from cause
    if mode & (stat.S_IRGRP | stat.S_IROTH):
        logger.warning("file of tokens can be read by others", extra={"path": str(path)})
    return _entries(text, where=f"'{path}'")


def _aws_secret(name: str) -> str:
    try:
        boto3 = import_module("boto3")
    except ModuleNotFoundError as cause:
        raise PackageMissingError(use=AWS_SECRET, package="boto3", extra="server") from cause
    try:
        answer = boto3.client("secretsmanager").get_secret_value(SecretId=name)
    except Exception as cause:  # botocore's classes are made at run time
        raise UnavailableError(
            f"cannot read the secret '{name}': {type(cause).__name__}"
        ) from cause
    return str(answer["SecretString"])


# --- reading ------------------------------------------------------------------------------------


def _entries(text: str, *, where: str) -> list[Entry]:
    try:
        body = json.loads(text, object_pairs_hook=lambda pairs: _pairs(pairs, where))
    except (ValueError, RecursionError) as cause:
        # The text of a parser's error would quote the secret.
        raise InputError(f"the tokens in {where} are not valid JSON") from cause.__cause__
    if not isinstance(body, dict):
        raise InputError(f"the tokens in {where} must be an object {{actor: token}}")
    return [
        _entry(actor, one, where=where)
        for actor, given in body.items()
        for one in _several(actor, given, where)
    ]


def _pairs(pairs: list[tuple[str, Any]], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"the tokens in {where} name '{name}' twice")
        found[name] = value
    return found


def _several(actor: str, given: Any, where: str) -> Iterator[Any]:
    if not isinstance(given, list):
        yield given
        return
    if not given:
        raise InputError(f"actor '{actor}' in {where} has no tokens")
    yield from given


def _entry(actor: str, given: Any, *, where: str) -> Entry:
    if not actor.strip():
        raise InputError(f"an actor in {where} has a blank name")
    if has_lone_surrogate(actor):
        raise InputError(f"an actor in {where} has a name that is no text: {actor!a}")
    if isinstance(given, str):
        if not given.strip():
            raise InputError(f"the token of actor '{actor}' in {where} is blank")
        try:
            digest = hashlib.sha256(given.strip().encode()).digest()
        except UnicodeEncodeError:  # half of a surrogate pair; its text would quote the secret
            raise InputError(f"the token of actor '{actor}' in {where} is no text") from None
        return Entry(actor=actor, digest=digest)
    if not isinstance(given, dict) or not set(given) <= {"sha256", "expires"}:
        raise InputError(
            f"the token of actor '{actor}' in {where} must be text or {{sha256, expires}}"
        )
    try:
        digest = bytes.fromhex(given["sha256"])
    except (KeyError, TypeError, ValueError):
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise InputError(f"the sha256 of actor '{actor}' in {where} must be 64 hex digits")
    return Entry(actor=actor, digest=digest, expires_us=_moment(given.get("expires"), actor, where))


def _moment(given: Any, actor: str, where: str) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    moment = parse_iso(given) if isinstance(given, str) else None
    if moment is None:
        raise InputError(f"the token of actor '{actor}' in {where} expires at no time")
    return microseconds(moment)


def _distinct(entries: list[Entry]) -> tuple[Entry, ...]:
    """The entries, if no two have the same token; several tokens of one actor stand in a list."""
    seen: dict[bytes, str] = {}
    for entry in entries:
        if entry.digest in seen:
            raise InputError(f"actors '{seen[entry.digest]}' and '{entry.actor}' have one token")
        seen[entry.digest] = entry.actor
    return tuple(entries)
