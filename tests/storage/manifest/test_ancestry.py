"""Best common ancestors, against a reference that looks at every commit.

`OMNIGRAPH_RANDOM_DAGS` sets how many random histories are compared.
"""

from __future__ import annotations

import os
import random
from itertools import combinations

import pytest

from omnigraph.storage.manifest.history import (
    Bases,
    bases_of_all,
    best_common,
    contained,
    contracted,
)

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
