"""Errors on the wire: the status, the words, the detail, and the way back."""

from __future__ import annotations

import msgspec
import pytest

from omnigraph import errors
from omnigraph.wire.failures import CODES, ErrorOutput, RefusedError, error_of, failure_of, internal


class Conflict(msgspec.Struct):
    entity_kind: str = "node"
    type_name: str = "Person"
    entity_id: str | None = "ada"
    kind: str = "divergent_update"
    message: str = "both changed it"


# error, status, code, detail member
CASES = [
    (errors.InputError("bad"), 400, "bad_request", None),
    (errors.ParseError("bad", line=1, column=2), 400, "bad_request", None),
    (
        errors.LimitExceededError(resource="x", limit=1, actual=2),
        413,
        "bad_request",
        "resource_limit",
    ),
    (errors.TimeLimitError("slow", limit_ms=5), 413, "bad_request", "resource_limit"),
    (errors.UnauthenticatedError("who"), 401, "unauthorized", None),
    (errors.PolicyDeniedError("no", action="read", actor="a"), 403, "forbidden", None),
    (errors.NotFoundError("no", kind="branch", name="x"), 404, "not_found", None),
    (
        errors.MergeConflictsError(source="a", target="b", conflicts=[Conflict()] * 5),
        409,
        "conflict",
        "merge_conflicts",
    ),
    (
        errors.KeyConflictError(entity_kind="node", type_name="T", entity_id="1"),
        409,
        "conflict",
        "key_conflict",
    ),
    (
        errors.ExpectedVersionMismatchError(table_key="node:T", expected=1, actual=2),
        409,
        "conflict",
        "published_dataset_version_conflict",
    ),
    (
        errors.RowLevelCasContentionError(branch="main", attempts=3),
        409,
        "conflict",
        "read_set_conflict",
    ),
    (
        errors.TransactionConflictError(table_key="node:T", branch="main"),
        409,
        "conflict",
        "read_set_conflict",
    ),
    (errors.ParentlessCommitError(commit_id="c"), 409, "conflict", "change_diff_refusal"),
    (errors.ChangeFeedGapError(commit_id="c"), 410, None, "change_feed_gap"),
    (
        errors.PreconditionFailedError(expected="a", actual="b", branch="main"),
        412,
        None,
        "precondition_failure",
    ),
    (errors.RecoveryRequiredError("stuck", operation_id="op"), 503, None, "recovery_required"),
    (errors.StorageUnavailableError("gone"), 503, None, None),
    (errors.LeaseUnavailableError("busy"), 503, None, None),
    (errors.OutcomeUnknownError("perhaps", graph_commit_id="c"), 500, "internal", None),
    (errors.CorruptGraphError("/secret/place", part="/secret"), 500, "internal", None),
]


def told(error):
    failure = failure_of(error)
    return failure, msgspec.json.decode(msgspec.json.encode(failure.body))


@pytest.mark.parametrize(("error", "status", "code", "member"), CASES)
def test_every_error_has_its_status_code_and_detail_member(error, status, code, member):
    failure, body = told(error)
    assert failure.status == status
    assert body.get("code") == code
    members = set(body) - {"error", "code", "detail"}
    assert members == ({member} if member else set())
    assert body["detail"]["code"] == error.code


@pytest.mark.parametrize(
    "error", [case[0] for case in CASES if case[1] != 500], ids=lambda error: error.code
)
def test_the_way_back_gives_the_same_class_words_and_facts(error):
    failure, body = told(error)
    back = error_of(failure.status, body)
    assert type(back) is type(error)
    assert (str(back), back.hint, back.retryable) == (str(error), error.hint, error.retryable)
    for name, value in error.facts.items():
        if name not in ("conflicts", "uri", "part"):
            assert getattr(back, name) == value, name


def test_what_is_inside_stays_inside():
    _, body = told(errors.CorruptGraphError("'/secret/place' is damaged", part="/secret/place"))
    assert "secret" not in str(body)
    assert internal().body.error == body["error"]


def test_a_conflict_names_three_of_many_and_lists_all():
    _, body = told(CASES[7][0])
    assert "and 2 more" in body["error"]
    assert len(body["merge_conflicts"]) == 5


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 415, 416, 429, 500])
def test_what_the_server_itself_refuses_has_the_code_of_its_status(status):
    body = RefusedError(status, "no").failure.body
    assert isinstance(body, ErrorOutput)
    assert body.code == CODES[status]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InputError),
        (401, errors.UnauthenticatedError),
        (403, errors.PolicyDeniedError),
        (404, errors.NotFoundError),
        (409, errors.ConflictError),
        (429, errors.ServerUnavailableError),
        (500, errors.OmnigraphError),
        (502, errors.ServerUnavailableError),
    ],
)
def test_an_answer_without_our_detail_is_understood_by_its_status(status, kind):
    assert type(error_of(status, {"error": "words"})) is kind
