"""The decisions of a publish, without any storage: what is sealed when, and what follows what."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from omnigraph.errors import AlreadyExistsError, ExpectedVersionMismatchError
from omnigraph.model.changeset import (
    Changeset,
    Lineage,
    Registration,
    TableIs,
    TableUpdate,
    Tombstone,
)
from omnigraph.model.graph import Commit, SchemaRecord, TableEntry
from omnigraph.model.limits import MANIFEST_TAIL_COMMITS_MAX, MANIFEST_TAIL_COMMITS_MIN
from omnigraph.storage.manifest.plan import check_expectations, next_commit, sealing, successor
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH
from omnigraph.storage.manifest.rows import CommitRow, Tail, read_tail, tail_table

SCHEMA = SchemaRecord(source="", ir="{}", hash="")


def commit_row(number):
    return CommitRow(
        commit=Commit(
            graph_commit_id=f"{number:026d}",
            parent_commit_id=f"{number - 1:026d}" if number else None,
            merged_parent_commit_id=None,
            graph_branch="main",
            graph_manifest_version=number + 1,
            actor_id=None,
            created_at=number,
        ),
        branch_id=None,
    )


def empty():
    return Tail(schema=SCHEMA, entries={}, commits=(commit_row(0),))


@pytest.mark.parametrize("commits", [10, 128, 129, 1000, 20_000])
def test_sealing_keeps_every_commit_in_few_fragments_at_a_low_price(commits):
    tail, fragments, rewritten = empty(), [], 0
    for number in range(1, commits):
        tail = replace(tail, commits=(*tail.commits, commit_row(number)))
        plan = sealing(tail, [len(each) for each in reversed(fragments)])
        if plan is None:
            continue
        kept, folded = divide(fragments, plan.folded)
        rewritten += sum(len(each) for each in folded)
        fragments = [*kept, [row for each in folded for row in each] + list(plan.commits)]
        tail = plan.tail
        assert len(tail.commits) >= MANIFEST_TAIL_COMMITS_MIN
        assert tail.sealed_through == fragments[-1][-1].id
    line = [row for each in fragments for row in each] + list(tail.commits)
    assert [row.commit.created_at for row in line] == [*range(commits)]
    assert len(tail.commits) <= MANIFEST_TAIL_COMMITS_MAX
    levels = math.log2(max(2, commits / (MANIFEST_TAIL_COMMITS_MAX - MANIFEST_TAIL_COMMITS_MIN)))
    assert len(fragments) <= levels + 2
    assert rewritten <= commits * (levels + 1)


def divide(fragments, last):
    return fragments[: len(fragments) - last], fragments[len(fragments) - last :]


KEYS = ("node:A", "node:B", "edge:C")
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["update", "register", "drop", "hand over"]),
        st.sampled_from(KEYS),
        st.integers(1, 5),
    ),
    max_size=30,
)


@given(CHANGES)
def test_whatever_is_published_reads_back_as_it_was_written(changes):
    """Accepted changes follow a plain model; refused ones say so; the rows tell the same."""
    tail, model = empty(), {}
    for number, (kind, key, amount) in enumerate(changes, start=1):
        changeset = change(kind, key, amount, model)
        lineage = Lineage(commit_id=f"{number:026d}", actor_id=None, created_at=number)
        commit = next_commit(tail, MAIN_BRANCH, lineage, version=number + 1, publish_id="p")
        allowed = (key not in model) if kind == "register" else (key in model)
        try:
            tail = successor(tail, changeset, commit)
        except (ExpectedVersionMismatchError, AlreadyExistsError):
            assert not allowed
            continue
        assert allowed
        apply(model, kind, key, changeset)
        assert dict(tail.entries) == dict(sorted(model.items()))
        assert read_tail(tail_table(tail)) == tail


def change(kind, key, amount, model):
    entry = model.get(key)
    version, rows = (entry.version, entry.row_count) if entry else (7, 7)
    match kind:
        case "drop":
            return Changeset(tombstones=(Tombstone(table_key=key, version=version),))
        case "register":
            return Changeset(
                registrations=(Registration(table_key=key, location=f"nodes/{amount:x}"),),
                updates=(TableUpdate(table_key=key, version=amount, branch=None, row_count=0),),
            )
        case "hand over":
            owner = "other" if entry is None or entry.branch is None else None
            moved = TableUpdate(table_key=key, version=version, branch=owner, row_count=rows)
            return Changeset(updates=(moved,))
        case _:
            owner = entry.branch if entry else None
            moved = TableUpdate(
                table_key=key, version=version + amount, branch=owner, row_count=amount
            )
            return Changeset(updates=(moved,))


def apply(model, kind, key, changeset):
    if kind == "drop":
        del model[key]
        return
    (moved,) = changeset.updates
    location = changeset.registrations[0].location if kind == "register" else model[key].location
    model[key] = TableEntry(
        table_key=key,
        location=location,
        version=moved.version,
        branch=moved.branch,
        row_count=moved.row_count,
    )


@given(st.integers(0, 9), st.sampled_from([None, "b"]), st.integers(0, 9))
def test_an_expectation_holds_for_exactly_one_pin(version, branch, expected):
    entries = {}
    if version:
        entries["node:A"] = TableEntry(
            table_key="node:A", location="nodes/a", version=version, branch=branch
        )
    tail = replace(empty(), entries=entries)
    holds = expected == version and (version == 0 or branch is None)
    expectations = [TableIs(table_key="node:A", version=expected)]
    if holds:
        check_expectations(tail, expectations)
        return
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        check_expectations(tail, expectations)
    assert (caught.value.expected, caught.value.actual) == (expected, version)
