"""One place where what lance and the operating system raise becomes one of our errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from omnigraph.errors import (
    CorruptGraphError,
    NotFoundError,
    OmnigraphError,
    StorageUnavailableError,
)
from omnigraph.model.limits import BRANCH_LISTING_TRIES_MAX

# A file where a folder should be means that what is asked for below it is not there either.
_MISSING: Final = (
    "not found: ",  # a path follows; a missing column is told in other words
    "was not found",
    "does not exist",
    "no such file",
    "not a directory",
)
_REFUSALS: Final = ("not supported", "invalid user input")
_INTERRUPT: Final = re.compile(r"\berror: KeyboardInterrupt\b", re.IGNORECASE)
_DAMAGE: Final = (
    "corrupt",
    "magic",
    "decode",
    "for object of size",
    "out of range",
    "file size is too small",
    "failed to fill whole buffer",
    "unexpected end",
    "unexpected eof",
    "correct footer",
    "parser error",
    "negative or overflowing position",
    "is a directory",
)
_JSON: Final = re.compile(r"\bat line \d+ column \d+")
# What is said when a store cannot be reached or will not let us: nothing about the bytes in it.
_AWAY: Final = (
    "os error",
    "permission denied",
    "access denied",
    "forbidden",
    "unauthorized",
    "credential",
    "generic s3 error",
    "error performing",
    "error sending request",
    "connect",
    "timed out",
    "timeout",
    "no space left",
    "too many open files",
    "out of memory",
)
# What is said about a question that cannot be answered, whatever the table holds.
_QUESTION: Final = (
    "error during planning",
    "sql",
    "no field named",
    "not found in schema",
    "cast",
    "compute error",
    "divide",
    "overflow",
    "not supported",
    "not implemented",
)
FOREIGN: Final = (OSError, ValueError, RuntimeError, pa.ArrowException)
_SOURCES: Final = re.compile(r",? ?/\S+\.rs:\d+:\d+")
_LISTING: Final = "error performing list request"


def is_missing(cause: BaseException) -> bool:
    """Whether the library says that the thing is not there."""
    text = str(cause).lower()
    if _LISTING in text:
        # A folder that is not there lists as empty: here the bucket or the server is missing.
        return False
    return isinstance(cause, FileNotFoundError) or any(words in text for words in _MISSING)


def is_damage(cause: BaseException) -> bool:
    """Whether the library says that the bytes are there but make no sense."""
    text = str(cause).lower()
    told = any(words in text for words in _DAMAGE) or _JSON.search(text) is not None
    return told or is_panic(cause)


def is_damaged_version(cause: BaseException) -> bool:
    """Whether a version that is there cannot be opened because of what it holds.

    To open one nothing is asked but its name, so whatever is not said about the store is about the
    bytes.
    """
    text = str(cause).lower()
    return is_damage(cause) or not any(words in text for words in _AWAY)


def is_damaged_read(cause: BaseException) -> bool:
    """The same for reading rows, where it may be the question that is wrong."""
    text = str(cause).lower()
    return is_damage(cause) or not any(words in text for words in (*_AWAY, *_QUESTION))


def is_panic(cause: BaseException) -> bool:
    """Whether the library gave up in the middle, which it does over bytes that it trusted.

    Its class derives from BaseException and cannot be imported, so it is known by its name.
    """
    return type(cause).__name__ == "PanicException"


def is_foreign(cause: BaseException) -> bool:
    """Whether lance, arrow or the operating system raised it, so that it needs translation.

    An interrupt that the library tells as a failure of its own goes on as what it is.
    """
    if not isinstance(cause, FOREIGN) and not is_panic(cause):
        return False
    if is_interrupt(cause):
        raise KeyboardInterrupt from cause
    return True


def is_refusal(cause: BaseException) -> bool:
    """Whether the library says no to what it was asked for: before it did any of it."""
    return str(cause).lower().startswith(_REFUSALS)


def is_interrupt(cause: BaseException) -> bool:
    """Whether Ctrl-C struck while the library was calling back: it takes that for an error."""
    return _INTERRUPT.search(str(cause)) is not None


def reason_of(cause: BaseException) -> str:
    """The first line of what the library said, without the places in its own source."""
    line = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    return _SOURCES.sub("", line)[:500]


def steadily(ask: Callable[[], Any]) -> Any:
    """What Lance answers once no branch is deleted while it looks at them all one by one."""
    for _ in range(BRANCH_LISTING_TRIES_MAX - 1):
        try:
            return ask()
        except (OSError, ValueError) as cause:
            if not is_missing(cause):
                raise
    return ask()


@contextmanager
def translated(uri: str, *, doing: str) -> Iterator[None]:
    """Run the body; anything foreign that says "the store failed" leaves as one of ours."""
    try:
        yield
    except BaseException as cause:
        if not is_foreign(cause):
            raise
        raise as_ours(cause, uri=uri, doing=doing) from cause


def as_ours(cause: BaseException, *, uri: str, doing: str) -> OmnigraphError:
    """The error of ours that says the same."""
    reason = reason_of(cause)
    if is_missing(cause):
        return NotFoundError(
            f"cannot {doing} '{uri}': it is not there", kind="table", name=uri, reason=reason
        )
    if is_damage(cause):
        return corrupt(uri, doing=doing, reason=reason)
    return StorageUnavailableError(f"cannot {doing} '{uri}': {reason}", uri=uri, reason=reason)


def corrupt(part: str, *, doing: str, reason: str) -> CorruptGraphError:
    """What is said about a file or folder of the graph that is damaged or gone."""
    return CorruptGraphError(
        f"cannot {doing}: '{part}' is missing or damaged: {reason}",
        hint="put it back from a copy of the graph; nothing was changed",
        part=part,
        reason=reason,
    )
