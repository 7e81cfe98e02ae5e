"""Random histories with schema changes on several branches, beside a model that knows no tables.

The model keeps values by identity: what a property holds does not depend on what it is called, and
a state of the past is seen under another schema by taking the same values under other names.
"""

from __future__ import annotations

import json
import os
import random
import struct
from contextlib import suppress
from copy import deepcopy

import pytest

from omnigraph import Graph
from omnigraph.errors import ConflictError, NotFoundError

HISTORIES = int(os.environ.get("OMNIGRAPH_SCHEMA_HISTORIES", "6"))
FIRST = int(os.environ.get("OMNIGRAPH_FIRST_HISTORY", "0"))

# What a property of that name is of, on every branch, and what may be its default.
KINDS = {
    "a": ("I32", [None, 1, 2]),
    "b": ("String", [None, "x", "y"]),
    "c": ("F32", [None, 0.1, 0.5]),
    "d": ("I64", [None, 7]),
    "e": ("Bool", [None, True]),
}
WIDER = {"I32": "I64", "F32": "F64"}
TYPES = ["T", "U", "V"]


def narrowed(value, kind):
    if kind == "F32" and value is not None:
        return struct.unpack("f", struct.pack("f", value))[0]
    return value


class Prop:
    def __init__(self, identity, kind, default):
        self.id, self.kind, self.default = identity, kind, default
        self.filled = narrowed(default, kind)


class State:
    """What one commit shows: types by name, with properties by name and rows by key."""

    def __init__(self):
        self.types = {}  # name -> (id, {name: Prop})
        self.rows = {}  # type id -> {key: {property id: value}}
        self.used = set()

    def fresh(self, name):
        life, found = 1, name
        while found in self.used:
            life += 1
            found = f"{name}#{life}"
        self.used.add(found)
        return found

    def text(self, hints):
        out = []
        for name, (_, props) in sorted(self.types.items()):
            hint = hints.get(name)
            body = ["k: String @key"]
            for prop_name, prop in props.items():
                note = (
                    f' @rename_from("{hints[name, prop_name]}")'
                    if (name, prop_name) in hints
                    else ""
                )
                value = json.dumps(prop.default)
                note += "" if prop.default is None else f" @default({value})"
                body.append(f"{prop_name}: {prop.kind}?{note}")
            head = f'node {name} @rename_from("{hint}")' if hint else f"node {name}"
            out.append(f"{head} {{ {'  '.join(body)} }}")
        return "\n".join(out)

    def shown(self):
        return {
            (name, key): {
                "id": key,
                "k": key,
                **{one: row[prop.id] for one, prop in props.items()},
            }
            for name, (type_id, props) in self.types.items()
            for key, row in self.rows[type_id].items()
        }

    def by_id(self):
        return {type_id: (name, props) for name, (type_id, props) in self.types.items()}


def differences(before, after):
    """What `diff` has to say, as (type, key, op): (before, after)."""
    found = {}
    old, new = before.by_id(), after.by_id()
    for type_id, (name, props) in new.items():
        then = before.rows.get(type_id, {}) if type_id in old else {}
        known = {prop.id for prop in old[type_id][1].values()} if type_id in old else set()
        for key in then.keys() | after.rows[type_id].keys():
            images = [
                None
                if key not in rows
                else {
                    "k": key,
                    **{
                        one: rows[key][prop.id]
                        if rows is not then or prop.id in known
                        else prop.filled
                        for one, prop in props.items()
                    },
                }
                for rows in (then, after.rows[type_id])
            ]
            if images[0] != images[1]:
                op = "insert" if images[0] is None else "delete" if images[1] is None else "update"
                found[name, key, op] = tuple(images)
    for type_id, (name, props) in old.items():
        if type_id not in new:
            for key, row in before.rows[type_id].items():
                image = {"k": key, **{one: row[prop.id] for one, prop in props.items()}}
                found[name, key, "delete"] = (image, None)
    return found


class History:
    def __init__(self, path, seed, *, forgetful=False):
        self.chance = random.Random(seed)
        self.forgetful = forgetful  # drops take the past with them, and cleanup runs now and then
        start = State()
        start.types["T"] = (start.fresh("T"), {"a1": Prop(start.fresh("T.a1"), "I32", None)})
        start.rows["T"] = {}
        self.graph = Graph.init(path, start.text({}), durability="process", maintenance=None)
        self.branches = {"main": start}
        self.past = []

    def step(self):
        branch = self.chance.choice(list(self.branches))
        deeds = [self.write] * 4 + [self.change] * 5 + [self.branch, self.optimize]
        if self.forgetful:
            deeds += [self.cleanup, self.end]
        self.chance.choice(deeds)(branch)
        if branch in self.branches:
            head = self.graph.snapshot(branch).graph_commit_id
            self.past.append((head, deepcopy(self.branches[branch])))

    def branch(self, branch):
        if len(self.branches) < 3:
            name = next(one for one in ("b1", "b2", "b3") if one not in self.branches)
            self.graph.create_branch(name, branch)
            self.branches[name] = deepcopy(self.branches[branch])

    def cleanup(self, branch):
        self.graph.cleanup(keep_versions=self.chance.randrange(1, 4))

    def end(self, branch):
        """A branch goes, and with it what only it had."""
        if branch != "main" and len(self.branches) > 1:
            with suppress(ConflictError):  # another one was made from it
                self.graph.delete_branch(branch, force=True)
                del self.branches[branch]

    def optimize(self, branch):
        self.graph.optimize(branch)

    def write(self, branch):
        state = self.branches[branch]
        name, (type_id, props) = self.chance.choice(sorted(state.types.items()))
        key = self.chance.choice("pqr")
        if self.chance.random() < 0.3:
            self.graph.mutate(f'query q() {{ delete {name} where k = "{key}" }}', branch=branch)
            state.rows[type_id].pop(key, None)
            return
        values = {one: self.value(prop.kind) for one, prop in props.items()}
        line = json.dumps({"type": name, "data": {"k": key, **values}})
        self.graph.load(line, mode="merge", branch=branch)
        state.rows[type_id][key] = {
            prop.id: narrowed(values[one], prop.kind) for one, prop in props.items()
        }

    def value(self, kind):
        chance = self.chance
        if chance.random() < 0.2:
            return None
        numbers = {"I32": chance.randrange(-5, 5), "I64": chance.randrange(2**40)}
        floats = {"F32": chance.choice([0.1, 0.5, -3.0]), "F64": chance.choice([0.1, 1e300])}
        return {**numbers, **floats, "String": chance.choice("xyz"), "Bool": chance.random() < 0.5}[
            kind
        ]

    def change(self, branch):
        old = self.branches[branch]
        state, hints = deepcopy(old), {}
        for _ in range(self.chance.randrange(1, 3)):
            self.one_change(state, old, hints)
        plan = self.graph.plan_schema(state.text(hints), branch=branch)
        assert plan.supported, plan
        for_good = self.forgetful and self.chance.random() < 0.5
        self.graph.apply_schema(state.text(hints), branch=branch, allow_data_loss=for_good)
        assert not self.graph.plan_schema(state.text(hints), branch=branch).steps
        self.branches[branch] = state

    def one_change(self, state, old, hints):
        chance = self.chance
        name, (type_id, props) = chance.choice(sorted(state.types.items()))
        free_types = [one for one in TYPES if one not in state.types and one not in old.types]
        deed = chance.choice(
            [
                "add",
                "add",
                "add",
                "drop",
                "rename",
                "widen",
                "default",
                "add type",
                "rename type",
                "drop type",
            ]
        )
        # A plan matches by names first: what one plan does to a name it does once.
        settled = old.types.get(name, (None, {}))
        fresh_type = settled[0] != type_id
        known = settled[1] if not fresh_type else {}
        steady = {
            one: prop for one, prop in props.items() if one in known and known[one].id == prop.id
        }
        match deed:
            case "add":
                letter = chance.choice(sorted(KINDS))
                kind, defaults = KINDS[letter]
                one = f"{letter}{chance.choice('12')}"
                if one not in props and one not in known:
                    props[one] = Prop(
                        state.fresh(f"{type_id}.{one}"), kind, chance.choice(defaults)
                    )
                    for row in state.rows[type_id].values():
                        row[props[one].id] = props[one].filled
            case "drop" if steady:
                one = chance.choice(sorted(steady))
                prop = props.pop(one)
                for row in state.rows[type_id].values():
                    row.pop(prop.id)
            case "rename" if steady and not fresh_type:
                one = chance.choice(sorted(steady))
                to = f"{one[0]}{3 - int(one[1])}"
                if to not in props and to not in known:
                    props[to] = props.pop(one)
                    hints[name, to] = one
            case "widen":
                narrow = [one for one, prop in steady.items() if prop.kind in WIDER]
                if narrow:
                    prop = props[chance.choice(sorted(narrow))]
                    prop.kind = WIDER[prop.kind]
            case "default" if steady:
                one = chance.choice(sorted(steady))
                props[one].default = chance.choice(KINDS[one[0]][1])
            case "add type" if free_types:
                new = chance.choice(free_types)
                new_id = state.fresh(new)
                state.types[new] = (new_id, {"a1": Prop(state.fresh(f"{new_id}.a1"), "I32", None)})
                state.rows[new_id] = {}
            case "rename type" if (
                free_types and not fresh_type and not hints and not (props.keys() ^ known.keys())
            ):
                to = chance.choice(free_types)
                state.types[to] = state.types.pop(name)
                hints[to] = name
            case "drop type" if len(state.types) > 1 and not fresh_type and not hints:
                state.types.pop(name)
                state.rows.pop(type_id)

    def shown(self, **target):
        lines = map(json.loads, self.graph.export(**target))
        return {(line["type"], line["data"]["id"]): line["data"] for line in lines}

    def check(self):
        for branch, state in self.branches.items():
            assert self.shown(branch=branch) == state.shown()
        gone = NotFoundError if self.forgetful else ()
        for commit, state in self.chance.sample(self.past, 4):
            with suppress(gone):
                assert self.shown(snapshot=commit) == state.shown()
        for _ in range(10):
            with suppress(gone):
                self.check_difference(*self.chance.choices(self.past, k=2))

    def check_difference(self, earlier, later):
        (one, before), (other, after) = earlier, later
        found = {
            (change.type_name, change.id, change.op): tuple(
                None if image is None else image.properties
                for image in (change.before, change.after)
            )
            for change in self.graph.diff(one, other).changes
        }
        assert found == differences(before, after), (one, other)

    def check_blame(self):
        """Nobody wrote a version in an apply, unless it dropped the type."""
        for branch, state in self.branches.items():
            for name, key in sorted(state.shown())[:3]:
                versions = self.graph.entity_history("node", name, key, branch=branch)
                kinds = [one.commit.writer_kind for one in versions]
                assert kinds
                assert "SchemaApply" not in kinds


@pytest.mark.parametrize("seed", range(FIRST, FIRST + HISTORIES))
def test_what_is_forgotten_on_one_branch_stays_on_the_others(tmp_path, seed):
    history = History(tmp_path / "g.omni", seed, forgetful=True)
    for _ in range(30):
        history.step()
        for branch, state in history.branches.items():
            assert history.shown(branch=branch) == state.shown()
    history.check()
    history.graph.close()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + HISTORIES))
def test_every_state_of_a_history_is_seen_as_the_model_sees_it(tmp_path, seed):
    history = History(tmp_path / "g.omni", seed)
    for _ in range(30):
        history.step()
    history.check()
    history.check_blame()
    history.graph.cleanup(keep_versions=1)
    for branch, state in history.branches.items():
        assert history.shown(branch=branch) == state.shown()
    with pytest.raises(NotFoundError):
        history.graph.entity_history("node", "Nobody", "p")
    history.graph.close()
