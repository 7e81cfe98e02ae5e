"""What to do about an unfinished write: a pure decision over facts that `recovery.py` gathers.

Ownership is proved by transaction uuid, not by version arithmetic: another writer may own the next
version. The decision is all or nothing, except for maintenance (Optimize, EnsureIndices), whose
tables keep their content whichever of them moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

from omnigraph.model.graph import TableUpdate, WriterKind
from omnigraph.storage.commit.sidecar import Effect, Sidecar

# Writers that change how rows are stored and never which rows there are.
MAINTENANCE = frozenset({WriterKind.OPTIMIZE, WriterKind.ENSURE_INDICES})
_MAINTENANCE_OPERATIONS = frozenset({"Rewrite", "ReserveFragments", "CreateIndex", "Unreadable"})


class TableState(StrEnum):
    """How a table of a sidecar stands now."""

    NO_MOVEMENT = "NoMovement"
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    INVARIANT_VIOLATION = "InvariantViolation"


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of one table: the published pin, the head, and the transactions between.

    `uuids` and `operations` are by version, for versions after the pin. A pin of 0 means that the
    table is not published; a head of 0 that its dataset or branch is not there.
    """

    pin: int
    head: int
    uuids: Mapping[int, str | None]
    operations: Mapping[int, str]


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome is published already; only the audit row or the disarming is missing."""

    kind: Literal["RolledForward", "RolledBack"]


class RollForward(msgspec.Struct, frozen=True, kw_only=True):
    """Every effect landed: publish them."""

    updates: tuple[TableUpdate, ...]


class RollBack(msgspec.Struct, frozen=True, kw_only=True):
    """Not every effect landed: restore the tables that moved (none, if nothing did)."""

    moved: tuple[Effect, ...]


class Discard(msgspec.Struct, frozen=True, kw_only=True):
    """The branch is gone, and everything on it."""


class Abort(msgspec.Struct, frozen=True, kw_only=True):
    """A table contradicts the manifest: keep the sidecar, touch nothing, call a person."""

    reason: str
    tables: tuple[str, ...]


Verdict = Finish | RollForward | RollBack | Discard | Abort


def classify(effect: Effect, facts: TableFacts, *, kind: WriterKind) -> TableState:
    """How one table stands, by the identity of what happened to it since its pin."""
    assert effect.version_to_be > effect.expected_version, "an effect is a new version"
    # Published versions never go away by themselves: something outside of us took them.
    if facts.head < facts.pin:
        return TableState.INVARIANT_VIOLATION
    if facts.head == facts.pin:
        return TableState.NO_MOVEMENT
    between = range(facts.pin + 1, facts.head + 1)
    assert all(version in between for version in facts.uuids), "facts are of what came since"
    # If the pin is not what the writer saw, others have published since: what lies ahead of it
    # cannot be the writer's, which would have been refused.
    if facts.pin == effect.expected_version:
        # Maintenance takes several versions and changes no content: the kind of operation is proof
        # enough, and Lance does not let us choose the uuid of each.
        if kind in MAINTENANCE and all(
            facts.operations.get(version, "Unreadable") in _MAINTENANCE_OPERATIONS
            for version in between
        ):
            return TableState.ROLLED_PAST_EXPECTED
        # Ours must be the newest and stand where it was planned: anything else was built on it.
        landed_at = [v for v in between if facts.uuids.get(v) == effect.transaction_uuid]
        if landed_at == [facts.head] and facts.head == effect.version_to_be:
            return TableState.ROLLED_PAST_EXPECTED
    # Somebody else's, or ours with another on top: neither is ours to publish.
    if facts.head == facts.pin + 1:
        return TableState.UNEXPECTED_AT_P1
    return TableState.UNEXPECTED_MULTISTEP


def judge(
    sidecar: Sidecar,
    *,
    branch_exists: bool,
    published: bool,
    rolled_back: bool,
    facts: Mapping[str, TableFacts],
) -> Verdict:
    """Decide about a sidecar. `facts` is by table key and may be empty if the branch is gone or
    the write is published."""
    assert not (published and rolled_back), "a write lands or is undone, never both"
    if not branch_exists:
        return Discard()
    # The history decides before the tables do: what is in it was acknowledged, or may have been.
    if published:
        return Finish(kind="RolledForward")
    if rolled_back:
        return Finish(kind="RolledBack")
    states = {
        effect.table_key: classify(effect, facts[effect.table_key], kind=sidecar.writer_kind)
        for effect in sidecar.effects
    }
    assert states.keys() <= facts.keys(), "every table was looked at"
    # One contradiction keeps all of it: undoing the rest would tear the write apart.
    broken = [key for key, state in states.items() if state is TableState.INVARIANT_VIOLATION]
    if broken:
        return Abort(
            reason="head is behind the published version of " + ", ".join(broken),
            tables=tuple(broken),
        )
    moved = tuple(
        effect
        for effect in sidecar.effects
        if states[effect.table_key] is not TableState.NO_MOVEMENT
    )
    # All or nothing: a table that moved in another way means that the write did not land whole.
    forward = all(states[effect.table_key] is TableState.ROLLED_PAST_EXPECTED for effect in moved)
    complete = len(moved) == len(sidecar.effects) or sidecar.writer_kind in MAINTENANCE
    # A write without table effects (pure re-pointing) has nothing that could have landed before
    # its publish, so it is rolled back: nobody was told that it succeeded.
    if moved and forward and complete:
        return RollForward(
            updates=tuple(
                TableUpdate(
                    table_key=effect.table_key,
                    version=facts[effect.table_key].head,
                    branch=effect.branch,
                    row_count=effect.row_count,
                )
                for effect in moved
            )
        )
    return RollBack(moved=moved)
