"""Snapshots now and then, lines of commits, merge bases, and how little a warm handle reads.

Best common ancestors are held against a reference that looks at every commit;
`OMNIGRAPH_RANDOM_DAGS` sets how many random histories are compared.
"""

from __future__ import annotations

import os
import random
from itertools import combinations, pairwise

import pytest

from manifest_world import Authority, update
from omnigraph.errors import NotFoundError
from omnigraph.model.graph import Registration
from omnigraph.storage.lance.collect import How
from omnigraph.storage.manifest.history import (
    Bases,
    bases_of_all,
    best_common,
    contained,
    contracted,
)
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH

PERSON = "node:Person"


@pytest.fixture
def graph(local_root):
    return Authority.created(local_root)


def ids(commits):
    return [commit.graph_commit_id for commit in commits]


def test_the_line_is_newest_first_down_to_genesis(graph):
    made = [graph.head().graph_commit_id]
    made += [graph.advance().graph_commit_id for _ in range(300)]
    line = graph.history.commits(MAIN_BRANCH)
    assert ids(line) == made[::-1]
    assert all(new.parent_commit_id == old.graph_commit_id for new, old in pairwise(line))
    assert line[-1].parent_commit_id is None


@pytest.mark.parametrize("limit", [0, 1, 5, 200, 10_000])
def test_a_limit_cuts_the_line(graph, limit):
    for _ in range(210):
        graph.advance()
    assert (
        ids(graph.history.commits(MAIN_BRANCH, limit=limit))
        == (ids(graph.history.commits(MAIN_BRANCH))[:limit])
    )


def test_a_filter_by_actor_comes_before_the_limit(graph):
    for number in range(6):
        graph.advance(lineage=graph.lineage(actor="ann" if number % 2 else "bob"))
    found = graph.history.commits(MAIN_BRANCH, actor="ann", limit=2)
    assert [commit.actor_id for commit in found] == ["ann", "ann"]


def test_what_a_commit_carries_comes_back(graph, local_root):
    lineage = graph.lineage(actor="ann", merged="OTHER", properties={"load": "7", "π": "√2"})
    graph.advance(lineage=lineage)
    commit = Authority.over(local_root).history.commit(lineage.commit_id)
    assert commit.properties == {"load": "7", "π": "√2"}
    assert commit.merged_parent_commit_id == "OTHER"
    assert commit.created_us == lineage.created_at


def test_every_commit_gives_its_own_snapshot(graph, local_root):
    taken = [graph.head()] + [graph.advance() for _ in range(150)]
    cold = Authority.over(local_root)
    for snapshot in taken:
        assert cold.manifests.at_commit(snapshot.graph_commit_id) == snapshot
        assert cold.manifests.at_version(MAIN_BRANCH, snapshot.manifest_version) == snapshot


def test_a_branch_sees_its_parents_past(graph):
    old = graph.advance()
    graph.advance()
    branch = graph.refs.create("b", actor_id=None)
    new = graph.advance(branch=branch)
    assert graph.manifests.at_version(branch, old.manifest_version).entries == old.entries
    assert graph.manifests.at_version(branch, new.manifest_version) == new
    assert ids(graph.history.commits(branch))[1:] == ids(graph.history.commits(MAIN_BRANCH))


def test_a_commit_of_a_branch_is_found_and_its_snapshot_is_the_branchs(graph):
    branch = graph.refs.create("b", actor_id=None)
    made = graph.advance(branch=branch)
    assert graph.history.commit(made.graph_commit_id).graph_branch == "b"
    assert graph.manifests.at_commit(made.graph_commit_id) == made
    assert graph.head().entries[PERSON].version == 1


def test_an_unknown_commit_and_version_are_not_found(graph):
    with pytest.raises(NotFoundError):
        graph.history.commit("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    with pytest.raises(NotFoundError):
        graph.manifests.at_commit("it's none")
    with pytest.raises(NotFoundError):
        graph.manifests.at_version(MAIN_BRANCH, 99)


def test_a_deleted_branch_takes_its_own_commits_along(graph):
    branch = graph.refs.create("b", actor_id=None)
    made = graph.advance(branch=branch)
    graph.refs.delete("b")
    with pytest.raises(NotFoundError) as caught:
        graph.history.commit(made.graph_commit_id)
    assert "deleted branch" in caught.value.hint


def test_a_commit_is_found_on_its_own_branch_only(graph):
    branch = graph.refs.create("b", actor_id=None)
    made = graph.advance(branch=branch).graph_commit_id
    assert graph.manifests.find_commit(branch, made) is not None
    assert graph.manifests.find_commit(MAIN_BRANCH, made) is None


def test_the_base_of_two_branches_is_where_they_parted(graph):
    graph.advance()
    fork = graph.head().graph_commit_id
    branch = graph.refs.create("b", actor_id=None)
    theirs = graph.advance(branch=branch).graph_commit_id
    ours = graph.advance().graph_commit_id
    assert bases(graph, ours, theirs) == Bases(best=(fork,))
    parents = graph.history.descent().parents
    assert fork in contained([theirs], parents)
    assert ours not in contained([theirs], parents)


def test_after_a_merge_the_base_is_what_was_merged(graph):
    branch = graph.refs.create("b", actor_id=None)
    first = graph.advance(branch=branch).graph_commit_id
    merged = graph.advance(lineage=graph.lineage(merged=first)).graph_commit_id
    second = graph.advance(branch=branch).graph_commit_id
    assert bases(graph, merged, second) == Bases(best=(first,))


def test_a_base_outlives_its_branch(graph):
    gone = graph.refs.create("gone", actor_id=None)
    other = graph.refs.create("other", actor_id=None)
    shared = graph.advance(branch=gone).graph_commit_id
    ours = graph.advance(lineage=graph.lineage(merged=shared)).graph_commit_id
    theirs = graph.advance(branch=other, lineage=graph.lineage(merged=shared)).graph_commit_id
    assert bases(graph, ours, theirs) == Bases(best=(shared,))
    graph.refs.delete("gone")
    assert bases(graph, ours, theirs) == Bases(best=(shared,))
    assert graph.manifests.at_commit(shared).graph_commit_id == shared


def test_a_merged_commit_that_nobody_knows_makes_a_base_doubtful(graph):
    fork = graph.head().graph_commit_id
    other = graph.refs.create("other", actor_id=None)
    ours = graph.advance(lineage=graph.lineage(merged="01LOST")).graph_commit_id
    theirs = graph.advance(branch=other).graph_commit_id
    assert bases(graph, ours, theirs) == Bases(best=(fork,), unknown=frozenset({"01LOST"}))
    after = graph.refs.create("after", actor_id=None)
    later = graph.advance(branch=after).graph_commit_id
    assert bases(graph, ours, later) == Bases(best=(ours,)), "both contain what it may lead to"


def bases(graph, ours, theirs):
    return best_common([ours], [theirs], graph.history.descent().parents)


def test_a_warm_handle_sees_every_commit_of_another(graph, local_root):
    reader = Authority.over(local_root)
    for _ in range(140):
        written = graph.advance()
        assert reader.head() == written


def test_a_warm_handle_far_behind_catches_up_though_versions_between_are_gone(graph, local_root):
    reader = Authority.over(local_root)
    reader.head()
    for _ in range(5):
        graph.advance()
    graph.manifests.datasets.drop_versions({None: [2, 3, 4, 5]}, How())
    assert reader.head() == graph.head()


def test_a_version_that_cleanup_took_is_not_found(graph, local_root):
    old = graph.advance()
    graph.advance()
    graph.manifests.datasets.drop_versions({None: [old.manifest_version]}, How())
    with pytest.raises(NotFoundError, match="not kept any more"):
        Authority.over(local_root).manifests.at_commit(old.graph_commit_id)


def test_publishing_many_tables_keeps_their_order(graph):
    keys = [f"node:T{number:03}" for number in range(200)]
    graph.publish(
        *(update(key, 1, rows=number) for number, key in enumerate(reversed(keys))),
        registrations=tuple(Registration(table_key=key, location=key) for key in keys),
    )
    assert list(graph.head().entries) == sorted([*keys, "edge:Knows", PERSON])


# --- against a reference ---------------------------------------------------------------------

DAGS = int(os.environ.get("OMNIGRAPH_RANDOM_DAGS", "300"))


class History:
    """A random history: commit 0 is the first, each other one follows one or two earlier ones."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        size = self.chance.randint(1, 24)
        merges = self.chance.choice([0.1, 0.4, 0.8])
        self.parents = {"c00": ()}
        for number in range(1, size):
            earlier = [f"c{one:02d}" for one in range(number)]
            recent = earlier[-self.chance.choice([2, 4, 24]) :]
            chosen = {self.chance.choice(recent)}
            if self.chance.random() < merges:
                chosen.add(self.chance.choice(earlier))
            self.parents[f"c{number:02d}"] = tuple(sorted(chosen))
        self.commits = list(self.parents)

    def some(self, most):
        return self.chance.sample(self.commits, min(len(self.commits), most))

    def behind(self, commit):
        """What lies strictly behind a commit, by the definition."""
        found = set()
        for parent in self.parents[commit]:
            found |= {parent} | self.behind(parent)
        return found

    def best(self, ours, theirs):
        shared = {
            commit
            for commit in self.commits
            if any(commit == one or commit in self.behind(one) for one in ours)
            and any(commit == one or commit in self.behind(one) for one in theirs)
        }
        return {one for one in shared if not any(one in self.behind(other) for other in shared)}


@pytest.mark.parametrize("block", range(10))
def test_the_best_common_ancestors_are_those_that_no_other_contains(block):
    for seed in range(block, DAGS, 10):
        history = History(seed)
        ours, theirs = history.some(2), history.some(1)
        found = best_common(ours, theirs, history.parents.get)
        assert found == Bases(best=tuple(sorted(history.best(ours, theirs)))), seed


@pytest.mark.parametrize("block", range(10))
def test_one_walk_finds_the_bases_of_all_pairs_and_of_those_bases(block):
    for seed in range(block, DAGS, 10):
        history = History(seed)
        heads = set(history.some(5))
        expected, marks = set(), set(heads)
        while True:
            for one, other in combinations(sorted(marks), 2):
                expected |= history.best([one], [other])
            if expected <= marks:
                break
            marks |= expected
        assert bases_of_all(heads, history.parents.get) == expected, seed


@pytest.mark.parametrize("block", range(10))
def test_forgotten_commits_make_a_base_doubtful_or_leave_it_right(block):
    for seed in range(block, DAGS, 10):
        history = History(seed)
        (ours,), (theirs,) = history.some(1), history.some(1)
        gone = set(history.some(6)) - {ours, theirs}
        known = {one: history.parents[one] for one in history.commits if one not in gone}
        found = best_common([ours], [theirs], known.get)
        if not found.unknown:
            best = history.best([ours], [theirs])
            assert best <= set(found.best), seed
            # An older one may pass for another best if the way to it is forgotten. Then what the
            # two share is doubtful, so that nothing is concluded from the older one.
            for extra in set(found.best) - best:
                ahead = [one for one in best if extra in history.behind(one)]
                assert ahead, seed
                assert all(best_common([extra], [one], known.get).unknown for one in ahead), seed
        # Most of the time there is nothing to doubt: else this would prove little.
        if not gone & (contained([ours], known.get) | contained([theirs], known.get)):
            assert not found.unknown, seed


@pytest.mark.parametrize("block", range(10))
def test_what_is_written_down_of_forgotten_commits_keeps_the_rest_as_it_was(block):
    for seed in range(block, DAGS, 10):
        history = History(seed)
        heads = history.some(4)
        gone = set(history.some(8)) - set(heads)
        left = {one: history.parents[one] for one in history.commits if one not in gone}
        bases = bases_of_all(heads, history.parents.get)
        short = contracted(left, {one: history.parents[one] for one in gone}, bases=bases)
        assert short.keys() <= gone
        known = {**short, **left}
        for head in heads:
            before = contained([head], history.parents.get)
            assert contained([head], known.get) - gone == before - gone, seed
        for ours, theirs in combinations(sorted(heads), 2):
            found = best_common([ours], [theirs], known.get)
            assert found == Bases(best=tuple(sorted(history.best([ours], [theirs])))), seed


def test_a_thousand_branches_are_answered_in_one_walk():
    parents = {"m0": ()}
    heads = []
    for number in range(1, 1001):
        parents[f"m{number}"] = (f"m{number - 1}",)
        parents[f"b{number}"] = (f"m{number}",)
        heads.append(f"b{number}")
    asked = []

    def counted(commit):
        asked.append(commit)
        return parents.get(commit)

    assert bases_of_all(heads, counted) == {f"m{number}" for number in range(1, 1000)}
    assert len(asked) < 30 * len(parents)
