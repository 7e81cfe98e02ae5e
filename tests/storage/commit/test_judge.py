"""The decision about an unfinished write is a pure function; here is its table."""

from __future__ import annotations

import pytest

from omnigraph.model.graph import WriterKind
from omnigraph.storage.commit.judge import (
    Abort,
    Discard,
    Finish,
    RollBack,
    RollForward,
    TableFacts,
    TableState,
    classify,
    judge,
)
from omnigraph.storage.commit.sidecar import Effect, Sidecar, UnreadableSidecar, decode, encode

A = Effect(
    table_key="node:A",
    location="nodes/a",
    branch=None,
    expected_version=5,
    version_to_be=6,
    transaction_uuid="uuid-a",
    row_count=7,
)
B = Effect(
    table_key="edge:B",
    location="edges/b",
    branch="01B",
    expected_version=2,
    version_to_be=3,
    transaction_uuid="uuid-b",
    row_count=1,
)


def sidecar(kind=WriterKind.MUTATION, effects=(A, B)):
    return Sidecar(
        operation_id="01OP",
        writer_kind=kind,
        actor_id="act-a",
        graph_branch="main",
        branch_id=None,
        graph_commit_id="01COMMIT",
        rollback_commit_id="01ROLLBACK",
        parent_commit_id="01PARENT",
        created_at=1,
        effects=effects,
    )


def facts(pin, head, uuids=(), operations=()):
    versions = range(pin + 1, head + 1)
    return TableFacts(
        pin=pin,
        head=head,
        uuids=dict(zip(versions, uuids, strict=False)),
        operations=dict(zip(versions, operations, strict=False)),
    )


STILL_A, STILL_B = facts(5, 5), facts(2, 2)
OURS_A, OURS_B = facts(5, 6, ["uuid-a"], ["Update"]), facts(2, 3, ["uuid-b"], ["Append"])

CLASSES = [
    ("the head is behind the pin", facts(5, 4), TableState.INVARIANT_VIOLATION),
    ("nothing moved", STILL_A, TableState.NO_MOVEMENT),
    ("our transaction is the head", OURS_A, TableState.ROLLED_PAST_EXPECTED),
    ("somebody else's transaction", facts(5, 6, ["x"], ["Append"]), TableState.UNEXPECTED_AT_P1),
    (
        "ours with another on top",
        facts(5, 7, ["uuid-a", "x"], ["Update", "Restore"]),
        TableState.UNEXPECTED_MULTISTEP,
    ),
    ("the pin moved on", facts(6, 7, ["uuid-a"], ["Update"]), TableState.UNEXPECTED_AT_P1),
]


@pytest.mark.parametrize(("claim", "found", "state"), CLASSES, ids=[c[0] for c in CLASSES])
def test_a_table_is_classified_by_identity(claim, found, state):
    assert classify(A, found, kind=WriterKind.MUTATION) is state


@pytest.mark.parametrize("operations", [["ReserveFragments"], ["ReserveFragments", "Unreadable"]])
def test_maintenance_recognises_its_own_by_what_it_did(operations):
    found = facts(5, 5 + len(operations), [None] * 2, operations)
    assert classify(A, found, kind=WriterKind.OPTIMIZE) is TableState.ROLLED_PAST_EXPECTED
    assert classify(A, found, kind=WriterKind.LOAD) is not TableState.ROLLED_PAST_EXPECTED


def test_an_append_on_an_optimized_table_is_not_maintenance():
    found = facts(5, 6, ["x"], ["Append"])
    assert classify(A, found, kind=WriterKind.OPTIMIZE) is TableState.UNEXPECTED_AT_P1


def decide(found_a, found_b, *, kind=WriterKind.MUTATION, **told):
    told = {"branch_exists": True, "published": False, "rolled_back": False, **told}
    return judge(sidecar(kind), facts={"node:A": found_a, "edge:B": found_b}, **told)


def test_all_effects_landed_rolls_forward_to_the_heads():
    verdict = decide(OURS_A, OURS_B)
    assert isinstance(verdict, RollForward)
    assert [(u.table_key, u.version, u.branch, u.row_count) for u in verdict.updates] == [
        ("node:A", 6, None, 7),
        ("edge:B", 3, "01B", 1),
    ]


def test_some_effects_landed_rolls_those_back():
    assert decide(OURS_A, STILL_B) == RollBack(moved=(A,))


def test_no_effect_landed_rolls_back_nothing():
    assert decide(STILL_A, STILL_B) == RollBack(moved=())


def test_a_foreign_transaction_rolls_back():
    assert decide(OURS_A, facts(2, 3, ["x"], ["Append"])) == RollBack(moved=(A, B))


def test_a_head_behind_its_pin_aborts_and_names_the_table():
    verdict = decide(facts(5, 4), OURS_B)
    assert isinstance(verdict, Abort)
    assert verdict.tables == ("node:A",)


def test_half_an_optimize_rolls_forward_what_moved():
    moved = facts(5, 7, [None, None], ["ReserveFragments", "Rewrite"])
    verdict = decide(moved, STILL_B, kind=WriterKind.OPTIMIZE)
    assert isinstance(verdict, RollForward)
    assert [(u.table_key, u.version) for u in verdict.updates] == [("node:A", 7)]


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ({"branch_exists": False}, Discard()),
        ({"published": True}, Finish(kind="RolledForward")),
        ({"rolled_back": True}, Finish(kind="RolledBack")),
    ],
)
def test_what_is_settled_already_is_only_finished(told, verdict):
    assert decide(OURS_A, STILL_B, **told) == verdict


def test_a_sidecar_survives_the_disk():
    assert decode("01OP", encode(sidecar())) == sidecar()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"schema_version": 99}',
        b'{"schema_version": 10, "operation_id": "01OP"}',
        encode(sidecar()).replace(b"Mutation", b"Sorcery"),
        encode(sidecar()).replace(b"01OP", b"01XX"),
    ],
)
def test_a_file_we_do_not_understand_is_a_value_with_a_reason(body):
    found = decode("01OP", body)
    assert isinstance(found, UnreadableSidecar)
    assert found.problem
    assert found.body == body
