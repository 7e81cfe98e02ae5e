"""Random lives of graphs: rows, schemas, branches, merges, tags, deletions, restores, upkeep and
moves to other places, one after the other in any order.

What a row, a schema or a branch becomes by a step of one branch is predicted by a model. What comes
out of a merge is not (`test_merged_schema_histories.py` does that), but nothing else may change by
it, and from then on it is what the model goes on with. In the end, and at random moments, every
branch, tag and commit must answer what it answered when it was made, wherever the graph is now.
`OMNIGRAPH_RANDOM_HISTORIES` sets how many lives are played, `OMNIGRAPH_FIRST_HISTORY` the first
seed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from copy import deepcopy
from datetime import timedelta

import pytest

import omnigraph
from omnigraph import Graph
from omnigraph.errors import ConflictError, CorruptGraphError, MergeConflictsError, NotFoundError

LIVES = int(os.environ.get("OMNIGRAPH_RANDOM_HISTORIES", "5"))
FIRST = int(os.environ.get("OMNIGRAPH_FIRST_HISTORY", "0"))
STEPS = 40
TYPES, PROPERTIES = ("P", "Q", "R"), ("a", "b", "c", "d")
STEPS_BY_WEIGHT = {
    "insert": 8, "update": 5, "delete": 3, "add_property": 3, "drop_property": 2,
    "rename_property": 2, "add_type": 2, "drop_type": 1, "rename_type": 1, "create_branch": 4,
    "merge": 5, "tag": 2, "delete_branch": 2, "restore_branch": 3, "optimize": 2, "cleanup": 1,
    "copy": 1, "backup": 1, "reopen": 1,
}  # fmt: skip


HOW = {"durability": "process", "maintenance": None}


class State:
    """A branch as the model knows it: properties by type, with what older rows got by default, and
    rows by type and key."""

    def __init__(self):
        self.types = {"P": {"a": None}}
        self.rows = {}

    def source(self, hints=()):
        hints = dict(hints)
        made = []
        for name, properties in sorted(self.types.items()):
            hint = f' @rename_from("{hints[name]}")' if name in hints else ""
            body = ["k: String @key"]
            for one, default in sorted(properties.items()):
                was = hints.get((name, one))
                words = f' @rename_from("{was}")' if was else ""
                kind = "I32?" if default is None else f"I32 @default({default})"
                body.append(f"{one}: {kind}{words}")
            made.append(f"node {name}{hint} {{ {'  '.join(body)} }}")
        return "\n".join(made)


def content(graph, **at):
    """All rows of a state, by type and key."""
    found = {}
    for line in map(json.loads, graph.export(**at)):
        data = dict(line["data"])
        data.pop("id")
        found[line["type"], data.pop("k")] = data
    return found


class Life:
    def __init__(self, folder, seed):
        self.chance, self.folder, self.place = random.Random(seed), folder, 0
        self.branches = {"main": State()}
        self.tags, self.commits, self.deleted = {}, {}, {}
        self.made_on = {}  # the branch of each commit
        self.has_forgotten = False  # whether cleanup or a hard drop may have taken older commits
        self.counter = 0
        self.graph = Graph.init(self.uri, State().source(), **HOW)
        self.note("main")

    @property
    def uri(self):
        return self.folder / f"place{self.place}"

    def play(self):
        words, weights = zip(*STEPS_BY_WEIGHT.items(), strict=True)
        for _ in range(STEPS):
            word = self.chance.choices(words, weights)[0]
            branch = self.chance.choice(sorted(self.branches))
            getattr(self, word)(branch, self.branches[branch])
            self.look(some=2)
        self.look(some=None)
        self.graph.close()

    def number(self):
        self.counter += 1
        return self.counter

    # --- what must be true ---------------------------------------------------------------------

    def note(self, branch):
        """The head of the branch is what the model says, and is remembered."""
        state = self.branches[branch]
        assert content(self.graph, branch=branch) == state.rows
        assert self.graph.plan_schema(state.source(), branch=branch).steps == ()
        head = self.graph.commits(branch, limit=1)[0].graph_commit_id
        self.commits[head] = deepcopy(state.rows)
        self.made_on.setdefault(head, branch)

    def look(self, *, some):
        """Every branch, tag and commit, or some of each, answers what it always did."""

        def chosen(names):
            names = sorted(names)
            return names if some is None else self.chance.sample(names, min(some, len(names)))

        assert sorted(self.graph.branches()) == sorted(self.branches)
        assert {one.name for one in self.graph.tags()} == set(self.tags)
        for branch in chosen(self.branches):
            assert content(self.graph, branch=branch) == self.branches[branch].rows
        for tag in chosen(self.tags):
            assert content(self.graph, snapshot=tag) == self.tags[tag]
        for commit in chosen(self.commits):
            try:
                found = content(self.graph, snapshot=commit)
            except NotFoundError:
                assert self.has_forgotten
                del self.commits[commit]
            else:
                assert found == self.commits[commit]

    # --- rows ----------------------------------------------------------------------------------

    def insert(self, branch, state):
        name = self.chance.choice(sorted(state.types))
        for _ in range(self.chance.randint(1, 3)):
            key = f"n{self.chance.randint(0, 12)}"
            given = {one: self.chance.randint(0, 9) for one in state.types[name]}
            record = {"type": name, "data": {"k": key, **given}}
            self.graph.load([json.dumps(record)], mode="merge", branch=branch)
            state.rows[name, key] = given
        self.note(branch)

    def update(self, branch, state):
        there = [(key, one) for key in sorted(state.rows) for one in sorted(state.rows[key])]
        if there:
            (name, key), one = self.chance.choice(there)
            value = self.chance.randint(10, 99)
            text = f'query q() {{ update {name} set {{ {one}: {value} }} where k = "{key}" }}'
            self.graph.mutate(text, branch=branch)
            state.rows[name, key][one] = value
            self.note(branch)

    def delete(self, branch, state):
        if state.rows:
            name, key = self.chance.choice(sorted(state.rows))
            self.graph.mutate(f'query q() {{ delete {name} where k = "{key}" }}', branch=branch)
            del state.rows[name, key]
            self.note(branch)

    # --- schemas -------------------------------------------------------------------------------

    def apply(self, branch, state, hints=(), *, hard=False):
        self.graph.apply_schema(state.source(hints), branch=branch, allow_data_loss=hard)
        self.has_forgotten = self.has_forgotten or hard
        self.note(branch)

    def add_property(self, branch, state):
        name = self.chance.choice(sorted(state.types))
        free = sorted(set(PROPERTIES) - set(state.types[name]))
        if free:
            one, default = self.chance.choice(free), self.chance.choice([None, 7])
            state.types[name][one] = default
            for (kind, _), row in state.rows.items():
                if kind == name:
                    row[one] = default
            self.apply(branch, state)

    def drop_property(self, branch, state):
        name = self.chance.choice(sorted(state.types))
        if state.types[name]:
            one = self.chance.choice(sorted(state.types[name]))
            del state.types[name][one]
            for (kind, _), row in state.rows.items():
                if kind == name:
                    del row[one]
            self.apply(branch, state, hard=self.chance.random() < 0.4)

    def rename_property(self, branch, state):
        name = self.chance.choice(sorted(state.types))
        free = sorted(set(PROPERTIES) - set(state.types[name]))
        if free and state.types[name]:
            old, new = self.chance.choice(sorted(state.types[name])), self.chance.choice(free)
            state.types[name][new] = state.types[name].pop(old)
            for (kind, _), row in state.rows.items():
                if kind == name:
                    row[new] = row.pop(old)
            self.apply(branch, state, {(name, new): old})

    def add_type(self, branch, state):
        free = sorted(set(TYPES) - set(state.types))
        if free:
            state.types[self.chance.choice(free)] = {self.chance.choice(PROPERTIES): None}
            self.apply(branch, state)

    def drop_type(self, branch, state):
        if len(state.types) > 1:
            name = self.chance.choice(sorted(state.types))
            del state.types[name]
            state.rows = {key: row for key, row in state.rows.items() if key[0] != name}
            self.apply(branch, state, hard=self.chance.random() < 0.4)

    def rename_type(self, branch, state):
        free = sorted(set(TYPES) - set(state.types))
        if free:
            old, new = self.chance.choice(sorted(state.types)), self.chance.choice(free)
            state.types[new] = state.types.pop(old)
            state.rows = {
                (new if kind == old else kind, key): row for (kind, key), row in state.rows.items()
            }
            self.apply(branch, state, {new: old})

    # --- branches and tags ---------------------------------------------------------------------

    def create_branch(self, branch, state):
        if len(self.branches) < 6:
            name = f"b{self.number()}"
            self.graph.create_branch(name, branch)
            self.branches[name] = deepcopy(state)

    def merge(self, branch, state):
        others = sorted(set(self.branches) - {branch})
        if not others:
            return
        source = self.chance.choice(others)
        how = {
            "into": branch,
            "strategy": self.chance.choice(["fail", "ours", "theirs", "property"]),
        }
        preview = self.graph.merge_preview(source, **how)
        if preview.conflicts:
            with pytest.raises(MergeConflictsError) as refused:
                self.graph.merge(source, **how)
            assert list(preview.conflicts) == list(refused.value.conflicts)
            return
        result = self.graph.merge(source, **how)
        assert (preview.outcome, preview.changes) == (result.outcome, result.changes)
        if result.outcome == "already_up_to_date":
            return
        self.adopt(branch, state)
        if result.outcome == "fast_forward":
            assert state.rows == self.branches[source].rows
        assert self.graph.merge_preview(source, into=branch).outcome == "already_up_to_date"

    def adopt(self, branch, state):
        """The branch is what it is now."""
        state.rows = content(self.graph, branch=branch)
        state.types = {}
        for type_ in self.graph._core.catalog(self.graph.snapshot(branch)).types():
            state.types[type_.name] = {
                one.name: one.default for one in type_.properties if one.name != "k"
            }
        self.note(branch)

    def tag(self, branch, state):
        name = f"t{self.number()}"
        self.graph.create_tag(name, at=branch)
        self.tags[name] = deepcopy(state.rows)
        if len(self.tags) > 3:
            gone = self.chance.choice(sorted(self.tags))
            self.graph.delete_tag(gone)
            del self.tags[gone]

    def delete_branch(self, branch, state):
        if branch != "main":
            try:
                self.graph.delete_branch(branch, force=True)
            except ConflictError:
                return  # another branch was made from it
            del self.branches[branch]
            if branch in {one.name for one in self.graph.deleted_branches()}:
                self.deleted[branch] = state
            else:  # others have all its work, and what the graph was on the way goes with it
                for commit in [one for one in self.commits if self.made_on[one] == branch]:
                    del self.commits[commit]

    def restore_branch(self, branch, state):
        if self.deleted:
            name = self.chance.choice(sorted(self.deleted))
            self.graph.restore_branch(name)
            self.branches[name] = self.deleted.pop(name)
            self.note(name)

    # --- upkeep and moves ----------------------------------------------------------------------

    def optimize(self, branch, state):
        self.graph.optimize(branch=branch)
        self.note(branch)

    def cleanup(self, branch, state):
        self.graph.cleanup(keep_versions=self.chance.randint(1, 4), grace=timedelta(0))
        self.has_forgotten, self.deleted = True, {}
        self.look(some=None)

    def reopen(self, branch, state):
        self.graph.close()
        self.graph = Graph.open(self.uri, **HOW)

    def copy(self, branch, state):
        """As people do it: the folder is copied, the original is gone."""
        self.graph.close()
        old, self.place = self.uri, self.place + 1
        shutil.copytree(old, self.uri)
        shutil.rmtree(old)
        if len(self.branches) > 1:
            with pytest.raises(CorruptGraphError, match="moved or copied"):
                Graph.open(self.uri).close()
        omnigraph.relocate(self.uri)
        self.graph = Graph.open(self.uri, **HOW)
        self.look(some=None)

    def backup(self, branch, state):
        old, self.place = self.uri, self.place + 1
        self.graph.backup(self.uri)
        self.graph.close()
        shutil.rmtree(old)
        self.graph = Graph.open(self.uri, **HOW)
        assert self.graph.verify(deep=True).problems == ()
        self.look(some=None)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + LIVES))
def test_whatever_happens_everything_answers_what_it_always_did(tmp_path, seed):
    life = Life(tmp_path, seed)
    life.play()
    with Graph.open(life.uri) as graph:
        assert graph.verify(deep=True).problems == ()
