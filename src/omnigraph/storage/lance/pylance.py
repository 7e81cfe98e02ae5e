"""What we know of pylance beyond its documentation, each fact told here once.

Which words of its errors mean what, which calls it makes on our behalf unless told otherwise, what
it cannot show, and the private attributes that we use. `tests/storage/lance/test_pylance.py` holds
pylance to every fact, so that a new release which behaves otherwise fails there and not in a graph.

- *Opening* reads the schema only when it is asked for, and panics over a type it does not know. It
  trusts its hint of the newest version, panics over some damaged version files, and takes one that
  holds zeros for version 0.
- *Committing* moves an append, an update or a deletion on top of what others committed meanwhile,
  and tries again when it lost (20 times; we always say `max_retries=0`: our retries, not theirs).
  Never moved are an overwrite, and an update that names a fragment which others touched; a restore
  always is. So every write of ours names one (`table/stage.py`) or looks first, under a lease.
- *A conflict* is `CommitConflictError` from a commit, but a plain `OSError` from a compaction.
- *A compaction* takes two versions, and one that moved indexes cannot be read back (`TypeError`).
- *Asked to clean up a version that never was*, it still sweeps files that were never committed.
- *Branches* are listed by reading every reference; one that is deleted meanwhile fails the listing.
- *Filters* read double quotes as text, numbers beyond 63 bits as floats, order NaN above all
  numbers and find it with `isnan` only, and take -0.0 for 0.0 (`sql.py` writes accordingly).
- *Many deletions* of a fragment are a roaring bitmap, few an Arrow file (`files.py` reads both). A
  `Bitmap` is pickled as such a bitmap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import lance
import msgspec
import pyarrow as pa
from lance.bitmap import Bitmap
from lance.commit import CommitConflictError
from lance.dataset import LanceDataset
from lance.fragment import write_fragments

from omnigraph.errors import (
    CorruptGraphError,
    NotFoundError,
    OmnigraphError,
    StorageUnavailableError,
)
from omnigraph.model.limits import (
    BRANCH_LISTING_TRIES_MAX,
    SESSION_INDEX_BYTES_MAX,
    SESSION_METADATA_BYTES_MAX,
)
from omnigraph.storage.lance.wire import fields

_FRAGMENTS: Final = 2  # fields of a version's protocol buffer
_VERSION: Final = 3
_NEXT_ROW_ID: Final = 14
_FRAGMENT_ID: Final = 1  # and of a fragment in it
_ROWS: Final = 4
_ROW_IDS: Final = 5
_STAMPS: Final = 7

# --- what its errors say ---------------------------------------------------------------------

# A file where a folder should be means that what is asked for below it is not there either. Behind
# "not found: " a path follows; a missing column is told in other words.
_MISSING: Final = re.compile(
    r"not found: |was not found|does not exist|no such file|not a directory", re.IGNORECASE
)
_REFUSAL: Final = re.compile(r"not supported|invalid user input", re.IGNORECASE)
_INTERRUPT: Final = re.compile(r"\berror: KeyboardInterrupt\b", re.IGNORECASE)
_DAMAGE: Final = re.compile(
    r"corrupt|magic|decode|for object of size|out of range|file size is too small|"
    r"failed to fill whole buffer|unexpected end|unexpected eof|correct footer|"
    # A parser of files: one of questions says that the question makes no sense.
    r"(?<!sql )parser error|negative or overflowing position|is a directory|"
    r"\bat line \d+ column \d+",
    re.IGNORECASE,
)
# What is said when a store cannot be reached or will not let us: nothing about the bytes in it.
_AWAY: Final = re.compile(
    r"os error|permission denied|access denied|forbidden|unauthorized|credential|"
    r"generic s3 error|error performing|error sending request|connect|timed out|timeout|"
    r"no space left|too many open files|out of memory",
    re.IGNORECASE,
)
# What is said about a question that cannot be answered, whatever the table holds.
_QUESTION: Final = re.compile(
    r"error during planning|sql|no field named|not found in schema|cast|compute error|divide|"
    r"overflow|not supported|not implemented",
    re.IGNORECASE,
)
FOREIGN: Final = (OSError, ValueError, RuntimeError, pa.ArrowException)
_SOURCES: Final = re.compile(r",? ?/\S+\.rs:\d+:\d+")
_LISTING: Final = re.compile(r"error performing list request", re.IGNORECASE)


def is_missing(cause: BaseException) -> bool:
    """Whether the library says that the thing is not there."""
    if _LISTING.search(str(cause)):
        # A folder that is not there lists as empty: here the bucket or the server is missing.
        return False
    return isinstance(cause, FileNotFoundError) or _MISSING.search(str(cause)) is not None


def is_damage(cause: BaseException) -> bool:
    """Whether the library says that the bytes are there but make no sense."""
    return _DAMAGE.search(str(cause)) is not None or is_panic(cause)


def is_damaged_version(cause: BaseException) -> bool:
    """Whether a version that is there cannot be opened because of what it holds.

    To open one nothing is asked but its name, so whatever is not said about the store is about the
    bytes.
    """
    return is_damage(cause) or not _AWAY.search(str(cause))


def is_damaged_read(cause: BaseException) -> bool:
    """The same for reading rows, where it may be the question that is wrong."""
    text = str(cause)
    return is_damage(cause) or not (_AWAY.search(text) or _QUESTION.search(text))


def is_panic(cause: BaseException) -> bool:
    """Whether the library gave up in the middle, which it does over bytes that it trusted.

    Its class derives from BaseException and cannot be imported, so it is known by its name.
    """
    return type(cause).__name__ == "PanicException"


def is_foreign(cause: BaseException) -> bool:
    """Whether lance, arrow or the operating system raised it, so that it needs translation.

    An interrupt that struck while the library was calling back, and which it takes for an error,
    goes on as what it is.
    """
    if not isinstance(cause, FOREIGN) and not is_panic(cause):
        return False
    if _INTERRUPT.search(str(cause)):
        raise KeyboardInterrupt from cause
    return True


def is_refusal(cause: BaseException) -> bool:
    """Whether the library says no to what it was asked for: before it did any of it."""
    return _REFUSAL.match(str(cause)) is not None


def is_conflict(cause: BaseException) -> bool:
    """Whether the library says, in one of its ways, that somebody else was there before."""
    if isinstance(cause, CommitConflictError):
        return True
    text = str(cause).lower()
    return "conflict" in text or "incompatible transaction" in text


def is_taken(cause: BaseException) -> bool:
    """Whether a dataset could not be made because there is one; of one that was made meanwhile,
    Lance misses the version before the first."""
    text = str(cause).lower()
    told = "already exists" in text or "/0.manifest was not found" in text
    return isinstance(cause, CommitConflictError) or told


def reason_of(cause: BaseException) -> str:
    """The first line of what the library said, without the places in its own source."""
    line = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    return _SOURCES.sub("", line)[:500]


@contextmanager
def told_by(ours: Callable[[BaseException], OmnigraphError]) -> Iterator[None]:
    """Run the body; whatever the library raises leaves as the error of ours that is made of it."""
    try:
        yield
    except BaseException as cause:
        if not is_foreign(cause):
            raise
        raise ours(cause) from cause


def translated(uri: str, *, doing: str) -> AbstractContextManager[None]:
    """Run the body; anything foreign that says "the store failed" leaves as one of ours."""
    return told_by(lambda cause: as_ours(cause, uri=uri, doing=doing))


def as_ours(cause: BaseException, *, uri: str, doing: str) -> OmnigraphError:
    """The error of ours that says the same."""
    reason = reason_of(cause)
    if is_missing(cause):
        return NotFoundError(
            f"cannot {doing} '{uri}': it is not there", kind="table", name=uri, reason=reason
        )
    if is_damage(cause):
        return CorruptGraphError.at(uri, doing=doing, reason=reason)
    return unavailable(cause, uri=uri, doing=doing)


def unavailable(cause: BaseException, *, uri: str, doing: str) -> StorageUnavailableError:
    """What is said when the store failed and nothing is wrong with the graph."""
    reason = reason_of(cause)
    return StorageUnavailableError(f"cannot {doing} '{uri}': {reason}", uri=uri, reason=reason)


# --- opening ---------------------------------------------------------------------------------


def new_session() -> Any:
    """Caches that the datasets of one graph share."""
    return lance.Session(  # type: ignore[attr-defined]  # not in its __all__
        index_cache_size_bytes=SESSION_INDEX_BYTES_MAX,
        metadata_cache_size_bytes=SESSION_METADATA_BYTES_MAX,
    )


def opened(
    uri: str, options: Mapping[str, str], *, version: int | None = None, session: Any = None
) -> Any:
    """The dataset at that version; None = at the newest."""
    dataset = lance.dataset(
        uri, version=version, storage_options=dict(options) or None, session=session
    )
    _ = dataset.schema  # read only now, and a panic over a type that it does not know
    return dataset


def steadily(ask: Callable[[], Any]) -> Any:
    """What Lance answers once no branch is deleted while it looks at them all one by one."""
    for _ in range(BRANCH_LISTING_TRIES_MAX - 1):
        try:
            return ask()
        except (OSError, ValueError) as cause:
            if not is_missing(cause):
                raise
    return ask()


def bitmap(body: bytes) -> Any:
    """The set of numbers in a roaring bitmap of the portable form, which a `Bitmap` pickles to."""
    pickled: Any = Bitmap().__reduce__()
    return pickled[0](body)


# --- committing ------------------------------------------------------------------------------


def drafted(
    uri: str, rows: pa.Table, options: Mapping[str, str], *, file_version: str | None = None
) -> Any:
    """The first rows of a dataset in files that nobody sees, as a transaction that makes it."""
    return write_fragments(
        rows,
        uri,
        schema=rows.schema,
        mode="create",
        return_transaction=True,
        data_storage_version=file_version,
        enable_stable_row_ids=True,
        storage_options=dict(options) or None,
    )


def commit_first(uri: str, draft: Any, options: Mapping[str, str]) -> Any:
    """Make the dataset. With retries a late racer would replace the winner's."""
    return LanceDataset.commit(
        uri,
        draft,
        max_retries=0,
        enable_stable_row_ids=True,
        enable_v2_manifest_paths=True,
        storage_options=dict(options) or None,
    )


def commit(dataset: Any, transaction: Any) -> Any:
    """Commit on the version that the transaction was made on, or raise; never try again."""
    return LanceDataset.commit(dataset, transaction, max_retries=0)


def commit_detached(dataset: Any, transaction: Any) -> Any:
    """Make a version that is in no history, which nobody finds who does not know its number. The
    transaction can still be committed."""
    # The retries are for numbers: Lance takes one at random until it is free.
    return LanceDataset.commit(dataset, transaction, detached=True, max_retries=5)


def segment_names(dataset: Any) -> frozenset[str]:
    """The folders of the index segments that a version names."""
    found = dataset.describe_indices()
    return frozenset(str(segment.uuid) for index in found for segment in index.segments)


class VersionTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """What made one version of a table. `uuid` is None where Lance cannot tell."""

    version: int
    uuid: str | None
    operation: str
    read_version: int | None = None  # the version it was made on
    properties: Mapping[str, str] = {}


def transaction(dataset: Any, version: int) -> VersionTransaction:
    """What made the version."""
    made, untold = None, "Unknown"
    try:
        made = dataset.read_transaction(version)
    except TypeError:
        untold = "Rewrite"  # the library cannot show a compaction that also moved indexes
    except (OSError, ValueError) as cause:
        if not is_damage(cause):
            raise
        untold = "Unreadable"  # synced together with its version: this one was never acknowledged
    if made is None:
        return VersionTransaction(version=version, uuid=None, operation=untold)
    name = type(made.operation).__name__
    return VersionTransaction(
        version=version,
        uuid=made.uuid,
        # The library has no class for what a compaction does first.
        operation="ReserveFragments" if name == "BaseOperation" else name,
        read_version=int(made.read_version),
        properties=dict(made.transaction_properties or {}),
    )


# --- private attributes ----------------------------------------------------------------------


def take_rows(dataset: Any, row_ids: pa.Array[Any], columns: Sequence[str]) -> pa.Table:
    """The rows with these row ids, in this order; ids that are gone are left out. `take` wants
    offsets, and a filter by row id neither keeps the order nor is as fast."""
    rows: pa.Table = dataset._take_rows(row_ids, list(columns))  # noqa: SLF001
    return rows


def file_names(fragment: Any) -> tuple[str, ...]:
    """The data files of a fragment. `path` makes a new class on every call, which shows on tables
    of many fragments."""
    return tuple(file._path for file in fragment.files)  # noqa: SLF001


def row_ids_given(dataset: Any) -> int | None:
    """How many stable row ids were ever given out, which no public call tells; None if the version
    does not say so where this release writes it."""
    try:
        found = dict(fields(dataset._ds.serialized_manifest()))  # noqa: SLF001
    except (IndexError, ValueError):
        return None
    given = found.get(_NEXT_ROW_ID, 0)
    # Another number in the place of the version would be another form.
    return given if isinstance(given, int) and found.get(_VERSION) == dataset.version else None


def fragments_apart(newer: Any, older: Any) -> tuple[list[int], list[int]]:
    """The numbers of the fragments that the one version does not store as the other does, of each.
    The others are the same in every respect. Every small commit adds a fragment, and making an
    object of each takes three to five times as long."""
    mine, theirs = stored_fragments(newer), stored_fragments(older)
    if mine is None or theirs is None:
        return list(newer.fragment_ids()), list(older.fragment_ids())
    return sorted(map(_fragment_number, mine - theirs)), sorted(
        map(_fragment_number, theirs - mine)
    )


def stored_fragments(dataset: Any) -> Set[bytes] | None:
    """Each fragment as the version stores it; None if this release writes them elsewhere."""
    # The next version is compared with this one. A handle may be moved by whoever has it alone.
    version, known = _fragments.get(dataset, (None, None))
    if version == dataset.version:
        return known
    try:
        told = [*fields(dataset._ds.serialized_manifest())]  # noqa: SLF001
    except (IndexError, ValueError):
        return None
    found = frozenset(body for at, body in told if at == _FRAGMENTS and isinstance(body, bytes))
    if len(found) != len(dataset.fragment_ids()):
        return None
    _fragments[dataset] = (dataset.version, found)
    return found


_fragments: Final[WeakKeyDictionary[Any, tuple[Any, frozenset[bytes]]]] = WeakKeyDictionary()


class RowNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What a version says of the rows of a fragment, deleted ones included: how many there are,
    their row ids, and when they were last changed."""

    rows: int
    row_ids: bytes
    stamps: bytes


def row_notes(dataset: Any, numbers: Collection[int]) -> dict[int, RowNotes]:
    """The notes of these fragments by number, as far as the version has them in it."""
    found: dict[int, RowNotes] = {}
    for body in stored_fragments(dataset) or ():
        number = _fragment_number(body)
        if number not in numbers:
            continue
        told = dict(fields(body))
        rows, ids, stamps = (told.get(one) for one in (_ROWS, _ROW_IDS, _STAMPS))
        if isinstance(rows, int) and isinstance(ids, bytes) and isinstance(stamps, bytes):
            found[number] = RowNotes(rows=rows, row_ids=ids, stamps=stamps)
    return found


def _fragment_number(body: bytes) -> int:
    field, number = next(fields(body))
    # It comes first; that of the first fragment, 0, is left out.
    return number if field == _FRAGMENT_ID and isinstance(number, int) else 0
