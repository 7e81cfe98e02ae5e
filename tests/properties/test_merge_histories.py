"""Random histories of many branches against a model that never forgets a commit.

Branches are made from each other, merged in every direction and at once, deleted and cleaned up in
between. The model keeps the whole graph of commits with the state after each, finds ancestors by
looking at all of them and merges by its own rules, written from the documentation.
`OMNIGRAPH_RANDOM_HISTORIES` sets how many histories are played, `OMNIGRAPH_FIRST_HISTORY` the first
seed.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass

import pytest

from omnigraph import Graph
from omnigraph.errors import ConflictError, MergeConflictsError

HISTORIES = int(os.environ.get("OMNIGRAPH_RANDOM_HISTORIES", "15"))
FIRST = int(os.environ.get("OMNIGRAPH_FIRST_HISTORY", "0"))
STEPS = 20

SCHEMA = """
node N { k: String @key  v: I32?  w: String? }
edge E: N -> N { x: I32? }
"""


# --- the model -------------------------------------------------------------------------------


@dataclass
class Commit:
    number: int
    parents: tuple
    state: dict  # (kind, id) -> properties


@dataclass
class Merged:
    outcome: str
    state: dict
    conflicts: set


class Model:
    def __init__(self):
        self.commits = [Commit(0, (), {})]
        self.heads = {"main": 0}
        self.children = {"main": set()}
        self.parent = {}

    def state(self, branch):
        return self.commits[self.heads[branch]].state

    def advance(self, branch, state, merged=None):
        parents = (self.heads[branch],) if merged is None else (self.heads[branch], merged)
        self.commits.append(Commit(len(self.commits), parents, state))
        self.heads[branch] = len(self.commits) - 1

    def ancestors(self, number):
        found = {number}
        for parent in self.commits[number].parents:
            found |= self.ancestors(parent)
        return found

    def best(self, ours, theirs):
        """The best common ancestors of two groups of commits."""
        mine = set().union(*(self.ancestors(one) for one in ours))
        others = set().union(*(self.ancestors(one) for one in theirs))
        common = mine & others
        return sorted(
            one
            for one in common
            if not any(one != other and one in self.ancestors(other) for other in common)
        )

    def merge(self, source, target, strategy):
        ours, theirs = self.heads[target], self.heads[source]
        bases = self.best([ours], [theirs])
        if bases == [theirs]:
            return Merged("already_up_to_date", self.state(target), set())
        base, disputed = self.virtual(bases, strategy)
        sides = self.state(target), self.state(source)
        state, conflicts = three_way(base, disputed, *sides, strategy)
        conflicts = conflicts or dangling(state)
        return Merged("fast_forward" if bases == [ours] else "merged", state, conflicts)

    def virtual(self, bases, strategy):
        """Several ancestors as one, and what they are at odds about."""
        done = [bases[0]]
        state, disputed = self.commits[bases[0]].state, set()
        for one in bases[1:]:
            base, unsure = self.virtual(self.best(done, [one]), strategy)
            how = "property" if strategy == "property" else "fail"
            state, conflicts = three_way(base, unsure, state, self.commits[one].state, how)
            disputed |= conflicts
            done.append(one)
        return state, disputed


def three_way(base, disputed, ours, theirs, strategy):
    state, conflicts = dict(ours), set()
    for key in base.keys() | ours.keys() | theirs.keys():
        b, o, t = base.get(key), ours.get(key), theirs.get(key)
        if o == t:
            continue
        if key not in disputed:
            if t == b:
                continue
            if o == b:
                put(state, key, t)
                continue
            if strategy == "property" and None not in (b, o, t):
                names = [name for name in b if o[name] != b[name] and t[name] != b[name]]
                if all(o[name] == t[name] for name in names):
                    state[key] = {n: t[n] if t[n] != b[n] else o[n] for n in b}
                    continue
        if strategy == "theirs":
            put(state, key, t)
        elif strategy != "ours":
            conflicts.add(key)
    return state, conflicts


def put(state, key, value):
    if value is None:
        state.pop(key, None)
    else:
        state[key] = value


def dangling(state):
    nodes = {key for kind, key in state if kind == "node"}
    return {
        one
        for one, value in state.items()
        if one[0] == "edge" and not {value["from"], value["to"]} <= nodes
    }


# --- playing ---------------------------------------------------------------------------------


class Play:
    def __init__(self, folder, seed):
        self.chance = random.Random(seed)
        self.uri = folder / f"g{seed}"
        self.graph = Graph.init(self.uri, SCHEMA, durability="process", maintenance=None)
        self.model = Model()
        self.made = 0
        self.merges = {"already_up_to_date": 0, "fast_forward": 0, "merged": 0, "conflict": 0}
        self.several = 0

    def branch(self):
        return self.chance.choice(sorted(self.model.heads))

    def step(self):
        deed = self.chance.choices(
            [self.write, self.remove, self.fork, self.merge, self.cross, self.delete, self.clean],
            [8, 3, 3, 6, 6, 1, 2],
        )[0]
        deed()

    def write(self, branch=None):
        branch = branch or self.branch()
        state = dict(self.model.state(branch))
        records = []
        for _ in range(self.chance.randint(1, 2)):
            key, v = self.chance.choice("abcd"), self.chance.randint(0, 2)
            w = self.chance.choice([None, "", "x"])
            state["node", key] = {"v": v, "w": w}
            records.append({"type": "N", "data": {"k": key, "v": v, "w": w}})
        nodes = sorted(key for kind, key in state if kind == "node")
        if self.chance.random() < 0.4:
            key, x = self.chance.choice(["e1", "e2"]), self.chance.randint(0, 1)
            ends = {"from": self.chance.choice(nodes), "to": self.chance.choice(nodes)}
            state["edge", key] = {**ends, "x": x}
            records.append({"edge": "E", **ends, "data": {"id": key, "x": x}})
        before = self.graph.snapshot(branch).graph_commit_id
        self.graph.load("\n".join(map(json.dumps, records)), mode="merge", branch=branch)
        # Whether writing what is there already makes a commit is not what is asked here.
        if self.graph.snapshot(branch).graph_commit_id != before:
            self.model.advance(branch, state)

    def remove(self):
        branch = self.branch()
        state = dict(self.model.state(branch))
        if not state:
            return
        kind, key = self.chance.choice(sorted(state))
        del state[kind, key]
        for one in dangling(state):
            del state[one]
        what = f'E where id = "{key}"' if kind == "edge" else f'N where k = "{key}"'
        self.graph.mutate(f"query q() {{ delete {what} }}", branch=branch)
        self.model.advance(branch, state)

    def fork(self, source=None):
        if len(self.model.heads) >= 6:
            return None
        source = source or self.branch()
        # Names come back: a deleted branch and its successor must not be taken for each other.
        name = next(one for one in ("p", "q", "r", "s", "t", "u") if one not in self.model.heads)
        self.graph.create_branch(name, from_branch=source)
        self.model.heads[name] = self.model.heads[source]
        self.model.parent[name] = source
        return name

    def merge(self, source=None, target=None):
        if len(self.model.heads) < 2:
            return
        if source is None:
            source, target = self.chance.sample(sorted(self.model.heads), 2)
        strategy = self.chance.choice(["fail", "fail", "ours", "theirs", "property"])
        expected = self.model.merge(source, target, strategy)
        heads = [self.model.heads[one] for one in (source, target)]
        self.several += len(self.model.best(heads[:1], heads[1:])) > 1
        preview = self.graph.merge_preview(source, into=target, strategy=strategy)
        assert in_conflict(preview) == expected.conflicts
        if expected.conflicts:
            self.merges["conflict"] += 1
            with pytest.raises(MergeConflictsError) as refused:
                self.graph.merge(source, into=target, strategy=strategy)
            assert in_conflict(refused.value) == expected.conflicts
            return
        result = self.graph.merge(source, into=target, strategy=strategy)
        assert result.outcome == preview.outcome == expected.outcome
        self.merges[result.outcome] += 1
        if result.commit is not None:
            self.model.advance(target, expected.state, merged=self.model.heads[source])
        assert self.seen(target) == expected.state
        if source != "main" and self.childless(source) and self.chance.random() < 0.3:
            self.end(source)

    def cross(self):
        """Two branches merge each other at once."""
        if len(self.model.heads) < 2:
            return
        one, other = self.chance.sample(sorted(self.model.heads), 2)
        self.write(one)
        still = self.fork(one)
        if still is None:
            return
        self.write(other)
        self.merge(other, one)
        if other in self.model.heads:
            self.merge(still, other)
            # What was exchanged is changed, perhaps back, and merged again.
            self.write(other)
            self.merge(*self.chance.sample([one, other], 2))
        if still in self.model.heads:
            self.end(still)

    def childless(self, name):
        return not any(parent == name for parent in self.model.parent.values())

    def delete(self):
        name = self.branch()
        if name == "main":
            return
        if self.childless(name):
            self.end(name)
        else:
            with pytest.raises(ConflictError):
                self.graph.delete_branch(name)

    def end(self, name):
        self.graph.delete_branch(name, force=True)
        del self.model.heads[name]
        del self.model.parent[name]

    def clean(self):
        report = self.graph.cleanup(keep_versions=1, grace=0)
        assert not report.failures
        if self.chance.random() < 0.3:
            before = self.graph.snapshot().graph_commit_id
            self.graph.optimize()
            if self.graph.snapshot().graph_commit_id != before:
                self.model.advance("main", self.model.state("main"))
        if self.chance.random() < 0.3:
            self.graph.close()
            self.graph = Graph.open(self.uri, durability="process", maintenance=None)

    def seen(self, branch):
        found = {}
        for line in map(json.loads, self.graph.export(branch=branch)):
            data = line["data"]
            if "type" in line:
                found["node", data["id"]] = {"v": data.get("v"), "w": data.get("w")}
            else:
                ends = {"from": line["from"], "to": line["to"]}
                found["edge", data["id"]] = {**ends, "x": data.get("x")}
        return found


def in_conflict(found):
    return {(one.entity_kind, one.entity_id) for one in found.conflicts}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + HISTORIES))
def test_a_random_history_of_branches_is_what_the_model_says(tmp_path, seed):
    play = Play(tmp_path, seed)
    play.write("main")
    for _ in range(2):
        play.fork("main")
    for _ in range(STEPS):
        play.step()
    for branch in sorted(play.model.heads):
        assert play.seen(branch) == play.model.state(branch)
    assert play.graph.branches() == ["main", *sorted(play.model.heads.keys() - {"main"})]
    play.graph.close()
    told = os.environ.get("OMNIGRAPH_TELL_HISTORIES")
    if told:
        with open(told, "a", encoding="utf-8") as file:
            line = {**play.merges, "several": play.several, "commits": len(play.model.commits)}
            file.write(json.dumps({"seed": seed, **line}) + "\n")
