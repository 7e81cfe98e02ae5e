"""What callers pass, checked where it is first used: a value of the wrong kind is named before any
work is done. Without this a branch that is a number would fail somewhere inside or, worse, an actor
that is a list would be written into the history.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from omnigraph.errors import InputError, LimitExceededError
from omnigraph.model.limits import COMMIT_MESSAGE_BYTES_MAX

_OURS: Final = ("omnigraph.engine.", "omnigraph.pipeline.")
_SOURCES: Final = frozenset({"source", "schema_text"})  # arguments that are texts of our languages


class Kind(NamedTuple):
    """A kind of argument: its name in messages, and whether a value is one."""

    words: str
    holds: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    """Several texts in any collection but text and mappings, which are one value to people."""
    if not isinstance(value, Collection) or isinstance(value, str | bytes | Mapping):
        return False
    return all(_is_text(item) for item in value)


def instance(of: type) -> Kind:
    return Kind(of.__name__, lambda value: isinstance(value, of))


def or_none(kind: Kind) -> Kind:
    return Kind(f"{kind.words} or None", lambda value: value is None or kind.holds(value))


TEXT: Final = Kind("str", _is_text)
TEXT_OR_NONE: Final = or_none(TEXT)
TEXTS: Final = Kind("Sequence[str]", _are_texts)
TEXTS_OR_NONE: Final = or_none(TEXTS)
INT: Final = Kind("int", _is_int)
INT_OR_NONE: Final = or_none(INT)
FLAG: Final = instance(bool)
MAPPING: Final = Kind("Mapping[str, Any]", lambda v: isinstance(v, dict | Mapping))
MAPPING_OR_NONE: Final = or_none(MAPPING)
PATH: Final = Kind("str or PathLike", lambda v: _is_text(v) or isinstance(v, os.PathLike))
DATA: Final = Kind(
    "str or bytes or PathLike or Iterable", lambda v: isinstance(v, Iterable | os.PathLike)
)
CALL_OR_NONE: Final = or_none(Kind("Callable", callable))
AGE_OR_NONE: Final = or_none(
    Kind(
        "timedelta or int or float",
        lambda v: isinstance(v, timedelta | int | float) and not isinstance(v, bool),
    )
)
REF: Final = Kind("str or datetime", lambda v: _is_text(v) or isinstance(v, datetime))
AT_OR_NONE: Final = or_none(Kind("str or int or datetime", lambda v: REF.holds(v) or _is_int(v)))


def require(kind: Kind, /, **given: Any) -> None:
    """Raise `InputError` with the name of the call and of the first argument that is not of the
    kind."""
    for name, value in given.items():
        if kind.holds(value):
            continue
        if isinstance(value, str) and kind.holds(""):
            problem = "is no text that can be stored: it holds half of a surrogate pair"
        else:
            problem = f"must be {kind.words}, got {type(value).__name__}"
        call = _public_call()
        hint = _advice(value) if name in _SOURCES else None
        raise InputError(f"{call}: {name} {problem}", hint=hint, call=call, argument=name)


def _advice(value: Any) -> str | None:
    """How to make the text of a schema or a query of what was passed."""
    if isinstance(value, os.PathLike):
        return "pass the text of the file: path.read_text()"
    if isinstance(value, bytes):
        return "pass text: data.decode()"
    classes = value if isinstance(value, list | tuple) else [value]
    if classes and all(isinstance(one, type) for one in classes):
        return "omnigraph.schema.from_classes(…) makes the text of a schema of classes"
    return None


def require_message(message: Any) -> None:
    """Raise `InputError` for what no commit or tag can say."""
    require(TEXT_OR_NONE, message=message)
    if message is None:
        return
    if not message.strip():
        raise InputError("a message must not be empty", hint="leave it out", argument="message")
    if (size := len(message.encode())) > COMMIT_MESSAGE_BYTES_MAX:
        raise LimitExceededError(
            resource="bytes of a message", limit=COMMIT_MESSAGE_BYTES_MAX, actual=size
        )


def _public_call() -> str:
    """What the user called: of the calls within our engine that led here, the outermost."""
    frame = inspect.currentframe()
    call = ""
    # Code that is run by `exec` need not say where it stands.
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_OURS):
        call, frame = frame.f_code.co_name, frame.f_back
    return call
