"""How an error becomes a status and a JSON body, and a body an error again: the one table.

A body is `{error, code?, <one detail member>?, detail}`. `code` is one of eight words that older
clients know; `detail` holds our own code, whether to try again, and the facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph import errors

INTERNAL_TEXT: Final = "internal error"
RETRY_AFTER_SECONDS: Final = 1

Code = Literal[
    "unauthorized",
    "forbidden",
    "bad_request",
    "not_found",
    "method_not_allowed",
    "conflict",
    "too_many_requests",
    "internal",
]


class MergeConflictOutput(msgspec.Struct, frozen=True, kw_only=True):
    entity_kind: str
    type_name: str
    entity_id: str | None
    kind: str
    message: str


class KeyConflict(msgspec.Struct, frozen=True, kw_only=True):
    entity_kind: str
    type_name: str
    entity_id: str | UnsetType = UNSET


class VersionConflict(msgspec.Struct, frozen=True, kw_only=True):
    entity_kind: str
    type_name: str
    expected_published_dataset_version: int
    actual_published_dataset_version: int


class ReadSetConflict(msgspec.Struct, frozen=True, kw_only=True):
    member: str
    expected: str | None
    actual: str | None


class ResourceLimit(msgspec.Struct, frozen=True, kw_only=True):
    resource: str
    limit: int
    actual: int


class RecoveryRequired(msgspec.Struct, frozen=True, kw_only=True):
    operation_id: str


class PreconditionFailure(msgspec.Struct, frozen=True, kw_only=True):
    expected: str
    actual: str | UnsetType = UNSET


class ChangeFeedGap(msgspec.Struct, frozen=True, kw_only=True):
    first_unreadable_commit_id: str
    cursor: str | UnsetType = UNSET


class ChangeDiffRefusal(msgspec.Struct, frozen=True, kw_only=True):
    reason: Literal["parentless_commit", "schema_boundary"]
    graph_commit_id: str
    type_name: str | UnsetType = UNSET


class ExternalBlobSource(msgspec.Struct, frozen=True, kw_only=True):
    uri: str
    reason: str


class BlobRange(msgspec.Struct, frozen=True, kw_only=True):
    start: int | None
    end: int | None
    length: int


class ErrorOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What every failing request answers."""

    error: str
    code: Code | UnsetType = UNSET
    merge_conflicts: list[MergeConflictOutput] | UnsetType = UNSET
    key_conflict: KeyConflict | UnsetType = UNSET
    published_dataset_version_conflict: VersionConflict | UnsetType = UNSET
    read_set_conflict: ReadSetConflict | UnsetType = UNSET
    resource_limit: ResourceLimit | UnsetType = UNSET
    recovery_required: RecoveryRequired | UnsetType = UNSET
    precondition_failure: PreconditionFailure | UnsetType = UNSET
    change_feed_gap: ChangeFeedGap | UnsetType = UNSET
    change_diff_refusal: ChangeDiffRefusal | UnsetType = UNSET
    external_blob_source: ExternalBlobSource | UnsetType = UNSET
    blob_range: BlobRange | UnsetType = UNSET
    detail: dict[str, Any] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A status, the body that goes with it, and headers beyond the usual ones."""

    status: int
    body: ErrorOutput
    headers: tuple[tuple[str, str], ...] = ()


class RefusedError(Exception):
    """A request that the server itself refuses, before any engine has seen it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: Code | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        **members: Any,
    ) -> None:
        super().__init__(message)
        told = CODES.get(status) if code is None else code
        body = ErrorOutput(error=message, code=UNSET if told is None else told, **members)
        self.failure = Failure(status=status, body=body, headers=headers)

    @classmethod
    def by(cls, problem: errors.OmnigraphError, status: int) -> RefusedError:
        """The problem under another status than its own, which the wire has for it here; a client
        knows it by its detail all the same."""
        return cls(status, problem.message, detail=failure_of(problem).body.detail)


CODES: Final[Mapping[int, Code]] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "bad_request",
    415: "bad_request",
    416: "bad_request",
    429: "too_many_requests",
    431: "bad_request",
    500: "internal",
}
# The first class that fits decides. Those without a code say enough by their detail member.
_STATUSES: Final[tuple[tuple[type[errors.OmnigraphError], int], ...]] = (
    (errors.TimeLimitError, 413),
    (errors.LimitExceededError, 413),
    (errors.UnauthenticatedError, 401),
    (errors.PolicyDeniedError, 403),
    (errors.ChangeFeedGapError, 410),
    (errors.PreconditionFailedError, 412),
    (errors.ExternalBlobError, 424),
    (errors.InputError, 400),
    (errors.NotFoundError, 404),
    (errors.ConflictError, 409),
    (errors.OutcomeUnknownError, 500),
    (errors.UnavailableError, 503),
)
# Facts of a failure that are for the operator's log: paths, tables and what storage said.
_INNER: Final = frozenset({"uri", "path", "part", "output", "looked_at", "reason"})
_FACT_ITEMS_MAX: Final = 1_000


def failure_of(error: errors.OmnigraphError) -> Failure:
    """The answer that an error means."""
    status = next((found for kind, found in _STATUSES if isinstance(error, kind)), 500)
    if status == 500 and not isinstance(error, errors.OutcomeUnknownError):
        return internal(code=error.code)
    headers: list[tuple[str, str]] = []
    if status == 401:
        headers.append(("www-authenticate", "Bearer"))
    if status == 503 and not isinstance(error, errors.RecoveryRequiredError):
        headers.append(("retry-after", str(RETRY_AFTER_SECONDS)))
    detail = {"code": error.code, "retryable": error.retryable, **dict(_facts(error))}
    if error.hint:
        detail["hint"] = error.hint
    body = ErrorOutput(
        error=error.message,
        code=CODES.get(status, UNSET),
        detail=detail,
        **_member(error),
    )
    return Failure(status=status, body=body, headers=tuple(headers))


def internal(*, code: str = "internal") -> Failure:
    """The answer to what nobody expected: one text, and nothing of what is inside."""
    body = ErrorOutput(
        error=INTERNAL_TEXT, code="internal", detail={"code": code, "retryable": False}
    )
    return Failure(status=500, body=body)


def _facts(error: errors.OmnigraphError) -> Iterator[tuple[str, Any]]:
    for name, value in error.facts.items():
        if name in _INNER:
            continue
        if isinstance(value, list | tuple):
            shown = [_item(one) for one in value[:_FACT_ITEMS_MAX]]
            if None not in shown:
                yield name, shown
        elif (told := _item(value)) is not None or value is None:
            yield name, told


def _item(value: Any) -> Any:
    """One fact as JSON; None if it cannot be."""
    if isinstance(value, str | int | float | bool | dict):
        return value
    to_json = getattr(value, "to_json", None)
    return to_json() if callable(to_json) else None


def _member(error: errors.OmnigraphError) -> dict[str, Any]:
    """The one detail member that the error's class has, by name."""
    facts = error.facts
    match error:
        case errors.LimitExceededError():
            limit = ResourceLimit(
                resource=facts["resource"], limit=facts["limit"], actual=facts["actual"]
            )
            return {"resource_limit": limit}
        case errors.TimeLimitError():
            most = int(facts.get("limit_ms", 0))
            spent = int(facts.get("actual_ms", most))
            limit = ResourceLimit(resource="query_time_ms", limit=most, actual=spent)
            return {"resource_limit": limit}
        case errors.MergeConflictsError():
            return {"merge_conflicts": [_conflict(one) for one in error.conflicts]}
        case errors.KeyConflictError():
            conflict = KeyConflict(
                entity_kind=facts["entity_kind"],
                type_name=facts["type_name"],
                entity_id=facts["entity_id"],
            )
            return {"key_conflict": conflict}
        case errors.ExpectedVersionMismatchError():
            kind, _, name = error.table_key.partition(":")
            moved = VersionConflict(
                entity_kind=kind,
                type_name=name,
                expected_published_dataset_version=error.expected,
                actual_published_dataset_version=error.actual,
            )
            return {"published_dataset_version_conflict": moved}
        case errors.RowLevelCasContentionError() | errors.TransactionConflictError():
            member = str(facts.get("table_key") or f"branch:{facts['branch']}")
            return {"read_set_conflict": ReadSetConflict(member=member, expected=None, actual=None)}
        case errors.ParentlessCommitError():
            refusal = ChangeDiffRefusal(
                reason="parentless_commit", graph_commit_id=facts["commit_id"]
            )
            return {"change_diff_refusal": refusal}
        case errors.ChangeFeedGapError():
            gap = ChangeFeedGap(first_unreadable_commit_id=facts["first_unreadable_commit_id"])
            return {"change_feed_gap": gap}
        case errors.PreconditionFailedError():
            actual = facts["actual"]
            lost = PreconditionFailure(
                expected=facts["expected"], actual=UNSET if actual is None else actual
            )
            return {"precondition_failure": lost}
        case errors.ExternalBlobError():
            source = ExternalBlobSource(uri=_without_secrets(facts["uri"]), reason=facts["reason"])
            return {"external_blob_source": source}
        case errors.RecoveryRequiredError():
            return {"recovery_required": RecoveryRequired(operation_id=error.operation_id)}
        case _:
            return {}


def _without_secrets(uri: str) -> str:
    """The address without a name and password, and without what follows its path."""
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _conflict(one: Any) -> MergeConflictOutput:
    return MergeConflictOutput(
        entity_kind=one.entity_kind,
        type_name=one.type_name,
        entity_id=one.entity_id,
        kind=one.kind,
        message=one.message,
    )


# --- and back -------------------------------------------------------------------------------------


def error_of(status: int, body: Mapping[str, Any]) -> errors.OmnigraphError:
    """The error that an answer tells of: the class by our own code, else by the status."""
    detail = dict(body.get("detail") or {})
    code, hint = detail.pop("code", None), detail.pop("hint", None)
    retryable = detail.pop("retryable", None)
    kind = _classes().get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _by_status(status)
    message = str(body.get("error") or f"the server answered {status}")
    facts = {**detail, **_restored_facts(body)}
    error = kind.__new__(kind)
    errors.OmnigraphError.__init__(error, message, hint=hint, **facts)
    error.__dict__["status"] = status
    if isinstance(retryable, bool) and retryable != kind.retryable:
        error.__dict__["retryable"] = retryable
    return error


def _classes() -> dict[str, type[errors.OmnigraphError]]:
    """Every class of error by its code; of two with one code the more general."""
    found: dict[str, type[errors.OmnigraphError]] = {}
    waiting: list[type[errors.OmnigraphError]] = [errors.OmnigraphError]
    for kind in waiting:
        found.setdefault(kind.code, kind)
        waiting += kind.__subclasses__()
    return found


def _by_status(status: int) -> type[errors.OmnigraphError]:
    """What an answer without a code of ours means, such as one of a proxy."""
    if status == 500:
        return errors.OmnigraphError  # nobody knows what happened: not to be tried again blindly
    if status in (429, 502, 503, 504):
        return errors.ServerUnavailableError
    for kind, found in reversed(_STATUSES):
        if found == status:
            return kind
    return errors.InputError if 400 <= status < 500 else errors.UnavailableError


def _restored_facts(body: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that a detail member holds, under the names that errors have for them."""
    facts: dict[str, Any] = {}
    for name in (
        "key_conflict",
        "precondition_failure",
        "resource_limit",
        "recovery_required",
        "external_blob_source",
    ):
        facts |= body.get(name) or {}
    if "precondition_failure" in body:
        facts.setdefault("actual", None)
    if "merge_conflicts" in body and "conflicts" not in (body.get("detail") or {}):
        facts["conflicts"] = tuple(
            msgspec.convert(one, MergeConflictOutput) for one in body["merge_conflicts"]
        )
    gap = body.get("change_feed_gap")
    if gap:
        facts["first_unreadable_commit_id"] = gap.get("first_unreadable_commit_id")
    return facts
