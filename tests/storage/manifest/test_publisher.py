"""One publish is one version; what it relied on is checked; nothing lands by halves."""

from __future__ import annotations

import math

import lance
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from manifest_world import Authority, update
from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpectedVersionMismatchError,
    NotFoundError,
    PreconditionFailedError,
)
from omnigraph.model.graph import (
    Changeset,
    Commit,
    HeadIs,
    Lineage,
    Registration,
    SchemaRecord,
    TableEntry,
    TableIs,
    TableUpdate,
    Tombstone,
)
from omnigraph.model.limits import MANIFEST_TAIL_COMMITS_MAX, MANIFEST_TAIL_COMMITS_MIN
from omnigraph.model.schema import Identities
from omnigraph.storage.manifest.publisher import check_expectations, sealing, successor
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH
from omnigraph.storage.manifest.rows import CommitRow, Tail, new_commit, read_tail, tail_table

PERSON, KNOWS = "node:Person", "edge:Knows"


@pytest.fixture
def graph(local_root):
    return Authority.created(local_root)


def versions(graph, branch=MAIN_BRANCH):
    return {key: entry.version for key, entry in graph.head(branch).entries.items()}


def test_a_publish_is_one_version_with_pins_commit_and_head(graph, local_root):
    before = graph.head()
    after = graph.publish(
        update(PERSON, 2, rows=7), update(KNOWS, 3), lineage=graph.lineage(actor="ann")
    )
    assert after.manifest_version == before.manifest_version + 1
    assert after.head.graph_manifest_version == after.manifest_version
    assert after.head.parent_commit_id == before.head.graph_commit_id
    assert after.head.actor_id == "ann"
    assert after.entries[PERSON].row_count == 7
    assert Authority.over(local_root).head() == after


def test_the_genesis_commit_has_no_parent(graph):
    assert [commit.parent_commit_id for commit in graph.history.commits(MAIN_BRANCH)] == [None]


def test_a_second_create_changes_nothing(graph, local_root):
    before = graph.head()
    with pytest.raises(AlreadyExistsError):
        Authority.created(local_root, tables=("node:Other",))
    assert Authority.over(local_root).head() == before


@pytest.mark.parametrize(
    ("expectation", "error"),
    [
        (TableIs(table_key=PERSON, version=2), ExpectedVersionMismatchError),
        (TableIs(table_key=PERSON, version=1, branch="b"), ExpectedVersionMismatchError),
        (TableIs(table_key=PERSON, version=0), ExpectedVersionMismatchError),
        (TableIs(table_key="node:None", version=1), ExpectedVersionMismatchError),
        (HeadIs(commit_id="not it"), PreconditionFailedError),
    ],
)
def test_a_broken_expectation_lands_nothing(graph, expectation, error):
    before = graph.head()
    with pytest.raises(error):
        graph.publish(update(KNOWS, 2), expects=[expectation])
    assert graph.head() == before


def test_a_mismatch_names_the_table_and_both_versions(graph):
    graph.publish(update(PERSON, 5))
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        graph.publish(update(PERSON, 2), expects=[TableIs(table_key=PERSON, version=1)])
    assert (caught.value.table_key, caught.value.expected, caught.value.actual) == (PERSON, 1, 5)


def test_expectations_that_hold_are_no_obstacle(graph):
    head = graph.head().head.graph_commit_id
    graph.publish(
        update(PERSON, 2),
        expects=[
            TableIs(table_key=PERSON, version=1),
            TableIs(table_key="node:None", version=0),
            HeadIs(commit_id=head),
        ],
    )
    assert versions(graph) == {KNOWS: 1, PERSON: 2}


def test_expectations_alone_are_checked_and_write_nothing(graph):
    before = graph.head()
    holds = Changeset(expects=(TableIs(table_key=PERSON, version=1),))
    assert graph.publisher.publish(MAIN_BRANCH, holds) == before
    with pytest.raises(ExpectedVersionMismatchError):
        graph.publisher.publish(
            MAIN_BRANCH, Changeset(expects=(TableIs(table_key=PERSON, version=2),))
        )


@pytest.mark.parametrize("version", [1, 2])
def test_a_version_that_is_there_already_is_refused(graph, version):
    graph.publish(update(PERSON, 2))
    with pytest.raises(ExpectedVersionMismatchError):
        graph.publish(update(PERSON, version))


def test_a_table_may_be_handed_to_another_owner_at_the_same_version(graph):
    graph.publish(update(PERSON, 2, rows=3))
    graph.publish(update(PERSON, 2, branch="other", rows=3))
    assert graph.head().entries[PERSON].branch == "other"


def test_a_hand_over_cannot_change_the_rows(graph):
    graph.publish(update(PERSON, 2, rows=3))
    with pytest.raises(ExpectedVersionMismatchError):
        graph.publish(update(PERSON, 2, branch="other", rows=4))


def test_a_commit_id_lands_once(graph):
    lineage = graph.lineage()
    graph.publish(update(PERSON, 2), lineage=lineage)
    with pytest.raises(AlreadyExistsError):
        graph.publish(update(PERSON, 3), lineage=lineage)
    assert versions(graph)[PERSON] == 2


def test_a_commit_id_lands_once_though_many_commits_have_passed(graph):
    lineage = graph.lineage()
    graph.publish(update(PERSON, 2), lineage=lineage)
    for version in range(3, 203):
        graph.publish(update(PERSON, version))
    with pytest.raises(AlreadyExistsError):
        graph.publish(update(PERSON, 999), lineage=lineage)


def test_a_schema_changes_together_with_the_tables(graph, local_root):
    identities = Identities(
        born={"node:City": "node:Town"}, retired=("node:City",), filled={"node:Town.x": 1.0}
    )
    schema = SchemaRecord(
        source="node Person {}\n// ☃", ir="{}", hash="sha256:1", identities=identities
    )
    graph.publish(
        update("node:City", 1),
        registrations=(Registration(table_key="node:City", location="nodes/c1"),),
        tombstones=(Tombstone(table_key=KNOWS, version=1),),
        schema=schema,
    )
    seen = Authority.over(local_root).head()
    assert seen.schema == schema
    assert list(seen.entries) == ["node:City", PERSON]
    assert seen.entries["node:City"].location == "nodes/c1"


def test_a_dropped_table_is_gone_now_and_there_before(graph):
    before = graph.head()
    graph.publish(tombstones=(Tombstone(table_key=KNOWS, version=1),))
    assert KNOWS not in graph.head().entries
    assert graph.manifests.at_commit(before.graph_commit_id).entries == before.entries


def test_a_write_to_a_dropped_table_is_refused(graph):
    graph.publish(tombstones=(Tombstone(table_key=KNOWS, version=4),))
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        graph.publish(update(KNOWS, 2), expects=[TableIs(table_key=KNOWS, version=1)])
    assert caught.value.actual == 4


def test_a_name_may_live_again_at_a_lower_version(graph):
    graph.publish(update(KNOWS, 9))
    graph.publish(tombstones=(Tombstone(table_key=KNOWS, version=9),))
    graph.publish(
        update(KNOWS, 1),
        registrations=(Registration(table_key=KNOWS, location="edges/0a-2"),),
        expects=[TableIs(table_key=KNOWS, version=0)],
    )
    assert graph.head().entries[KNOWS].location == "edges/0a-2"
    assert graph.head().entries[KNOWS].version == 1


def test_a_rename_keeps_the_location_and_the_version(graph):
    old = graph.publish(update(PERSON, 4, rows=2)).entries[PERSON]
    graph.publish(
        update("node:Human", 4, rows=2),
        registrations=(Registration(table_key="node:Human", location=old.location),),
        tombstones=(Tombstone(table_key=PERSON, version=4),),
    )
    new = graph.head().entries["node:Human"]
    assert (new.location, new.version, new.row_count) == (old.location, 4, 2)


def test_a_registered_table_is_not_registered_twice(graph):
    with pytest.raises(ConflictError):
        graph.publish(
            update(PERSON, 2),
            registrations=(Registration(table_key=PERSON, location="elsewhere"),),
        )


def test_an_outdated_handle_publishes_after_looking_again(graph, local_root):
    other = Authority.over(local_root)
    other.head()
    graph.publish(update(PERSON, 2))
    other.publish(update(KNOWS, 2))
    assert versions(graph) == {KNOWS: 2, PERSON: 2}


def test_an_outdated_handle_does_not_refuse_what_holds_by_now(graph, local_root):
    other = Authority.over(local_root)
    other.head()
    graph.publish(update(PERSON, 2))
    other.publish(update(PERSON, 3), expects=[TableIs(table_key=PERSON, version=2)])
    assert versions(graph)[PERSON] == 3


def test_an_outdated_handle_writes_to_a_table_that_it_has_not_seen(graph, local_root):
    other = Authority.over(local_root)
    other.head()
    new = Registration(table_key="node:City", location="nodes/c1")
    graph.publish(update("node:City", 1), registrations=(new,))
    other.publish(update("node:City", 2))
    assert versions(graph)["node:City"] == 2


def test_a_deleted_branch_takes_no_commits(graph):
    branch = graph.refs.create("gone", actor_id=None)
    graph.refs.delete("gone")
    graph.refs.create("gone", actor_id=None)
    with pytest.raises(NotFoundError):
        graph.publish(update(PERSON, 2), branch=branch)


def test_every_fragment_but_the_tail_holds_commits_only_and_no_key_is_doubled(graph, local_root):
    for version in range(2, 602):
        graph.publish(update(PERSON, version))
    dataset = lance.dataset(f"{local_root.uri}/__manifest")
    keys = dataset.to_table(columns=["object_id"]).column("object_id").to_pylist()
    assert len(keys) == len(set(keys))
    *history, tail = dataset.get_fragments()
    assert 1 <= len(history) <= 5
    for fragment in history:
        kinds = fragment.to_table(columns=["object_type"]).column("object_type").to_pylist()
        assert set(kinds) == {"graph_commit"}
    assert tail.count_rows() < 150


# --- the decisions, without any storage: what is sealed when, and what follows what -----------

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
            created_us=number,
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
    assert [row.commit.created_us for row in line] == [*range(commits)]
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
        parent, version = tail.head.id, number + 1
        commit = new_commit(lineage, MAIN_BRANCH, parent=parent, version=version, publish_id="p")
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
        check_expectations(tail, expectations, branch="main")
        return
    with pytest.raises(ExpectedVersionMismatchError) as caught:
        check_expectations(tail, expectations, branch="main")
    assert (caught.value.expected, caught.value.actual) == (expected, version)
