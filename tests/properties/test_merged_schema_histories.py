"""Random histories in which branches change their schemas too, against a model.

The model knows types and properties by identity, merges schemas fact by fact and rows entity by
entity, by its own rules, written from the documentation. `OMNIGRAPH_RANDOM_HISTORIES` sets how many
histories are played, `OMNIGRAPH_FIRST_HISTORY` the first seed.
"""

from __future__ import annotations

import json
import os
import random
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field

import pytest

from omnigraph import Graph
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import MergeConflictsError, NotFoundError
from schema_moves import MOVES, Prop, Shape, Type, change_rule

HISTORIES = int(os.environ.get("OMNIGRAPH_RANDOM_HISTORIES", "8"))
FIRST = int(os.environ.get("OMNIGRAPH_FIRST_HISTORY", "0"))
STEPS = 22


class SchemasDifferError(Exception):
    """The model cannot merge two schemas."""


# --- the model's schemas -----------------------------------------------------------------------


@dataclass
class Schema:
    """Things by id. A type has facts, rules (word, property id) and properties by id; a property
    has facts and what older rows got by it."""

    types: dict = field(default_factory=dict)
    retired: frozenset = frozenset()

    @classmethod
    def after(cls, old, shape):
        """What a schema becomes by an apply of the shape, whose hints say who is who."""
        taken = old.retired | old.ids()
        names = {made["facts"]["name"]: id_ for id_, made in old.types.items()}
        types, ids = {}, {}
        for name, made in shape.types.items():
            before = made.hint or name
            kind = "edge" if made.ends else "node"
            ids[name] = names[before] if before in names else fresh(f"{kind}:{name}", taken)
        for name, made in shape.types.items():
            id_ = ids[name]
            was = old.types.get(id_)
            props, known = {}, {}
            if was:
                known = {one["facts"]["name"]: pid for pid, one in was["props"].items()}
            pids = {}
            for one, prop in made.props.items():
                before = prop.hint or one
                pid = known[before] if before in known else fresh(f"{id_}.{one}", taken)
                fill = was["props"][pid]["fill"] if before in known else prop.default
                pids[one] = pid
                ranges = tuple(rule[2] for rule in made.rules if rule[:2] == ("range", one))
                facts = {"name": one, "kind": prop.kind, "nullable": prop.nullable}
                facts |= {"values": prop.values, "default": prop.default, "words": prop.words}
                props[pid] = {"facts": {**facts, "range": ranges}, "fill": fill}
            facts = {"name": name, "card": made.card, "words": made.words}
            facts["ends"] = tuple(ids[end] for end in made.ends) if made.ends else None
            rules = {(rule[0], pids[rule[1]]) for rule in made.rules if rule[0] != "range"}
            types[id_] = {"facts": facts, "props": props, "rules": rules}
        new = cls(types, old.retired)
        new.retired |= old.ids() - new.ids()
        return new

    def ids(self):
        return set(self.types) | {pid for one in self.types.values() for pid in one["props"]}

    def shape(self):
        """The same as something that can be written down and moved."""
        shape = Shape()
        shape.types = {}
        for made in self.types.values():
            facts = made["facts"]
            props, rules = {}, set()
            for pid, prop in made["props"].items():
                told = prop["facts"]
                name = told["name"]
                props[name] = Prop(
                    told["kind"], told["nullable"], told["values"], told["default"], told["words"]
                )
                rules |= {("range", name, one) for one in told["range"]}
                rules |= {(word, name) for word, one in made["rules"] if one == pid}
            ends = facts["ends"] and tuple(
                self.types[end]["facts"]["name"] for end in facts["ends"]
            )
            shape.types[facts["name"]] = Type(
                ends, facts["card"], props, frozenset(rules), facts["words"]
            )
        return shape

    def lifted(self, state):
        """Rows of another schema under this one."""
        return {
            (tid, key): {
                "ends": row["ends"],
                **{
                    pid: row.get(pid, prop["fill"])
                    for pid, prop in self.types[tid]["props"].items()
                },
            }
            for (tid, key), row in state.items()
            if tid in self.types
        }


def fresh(name, taken):
    life, found = 1, name
    while found in taken:
        life += 1
        found = f"{name}#{life}"
    return found


def merged_schemas(base, ours, theirs):
    """What both sides made of the base; without one, they have to agree."""
    if ours.types == theirs.types and ours.retired == theirs.retired:
        return ours
    if base is None:
        raise SchemasDifferError
    merged = Schema({}, ours.retired | theirs.retired)
    for id_ in {**ours.types, **theirs.types}:
        b, o, t = (side.types.get(id_) for side in (base, ours, theirs))
        if o and t:
            merged.types[id_] = merged_types(b, o, t)
        elif b is None:
            merged.types[id_] = deepcopy(o or t)
        elif more_than_less(b, o or t):
            raise SchemasDifferError
    merged.retired -= merged.ids()
    check(merged)
    return merged


def merged_types(b, o, t):
    props = {}
    for pid in {**o["props"], **t["props"]}:
        pb, po, pt = (side and side["props"].get(pid) for side in (b, o, t))
        if po and pt:
            if not pb and po["fill"] != pt["fill"]:
                raise SchemasDifferError
            facts = merged_facts(pb and pb["facts"], po["facts"], pt["facts"])
            props[pid] = {"facts": facts, "fill": po["fill"]}
        elif not pb:
            props[pid] = deepcopy(po or pt)
        elif changed_more_than_less(pb, po or pt):
            raise SchemasDifferError
    rules = {
        rule
        for rule in o["rules"] | t["rules"]
        if (rule in o["rules"] and rule in t["rules"]) or not (b and rule in b["rules"])
    }
    return {
        "facts": merged_facts(b and b["facts"], o["facts"], t["facts"]),
        "props": props,
        "rules": rules,
    }


def merged_facts(b, o, t):
    merged = {}
    for name in o:
        if o[name] == t[name] or (b and t[name] == b[name]):
            merged[name] = o[name]
        elif b and o[name] == b[name]:
            merged[name] = t[name]
        elif b and name == "values":
            merged[name] = o[name] | t[name]
        else:
            raise SchemasDifferError
    return merged


def more_than_less(b, side):
    """Whether a side did more to a type that the other dropped than take something away."""
    if b["facts"] != side["facts"] or side["rules"] - b["rules"]:
        return True
    return any(
        pid not in b["props"] or changed_more_than_less(b["props"][pid], prop)
        for pid, prop in side["props"].items()
    )


def changed_more_than_less(was, prop):
    facts = [{**one["facts"], "range": ()} for one in (was, prop)]
    return facts[0] != facts[1] or set(prop["facts"]["range"]) - set(was["facts"]["range"])


def check(schema):
    names = [made["facts"]["name"] for made in schema.types.values()]
    if len(set(names)) < len(names):
        raise SchemasDifferError
    for made in schema.types.values():
        names = [prop["facts"]["name"] for prop in made["props"].values()]
        ends = made["facts"]["ends"] or ()
        if len(set(names)) < len(names) or not set(ends) <= set(schema.types):
            raise SchemasDifferError
        if not {pid for _, pid in made["rules"]} <= set(made["props"]):
            raise SchemasDifferError


# --- the model's histories ---------------------------------------------------------------------


@dataclass
class Commit:
    parents: tuple
    schema: Schema
    state: dict  # (type id, entity id) -> {"ends": …, property id: value}


class Model:
    def __init__(self, schema):
        self.commits = [Commit((), schema, {})]
        self.heads = {"main": 0}

    def head(self, branch):
        return self.commits[self.heads[branch]]

    def advance(self, branch, schema, state, merged=None):
        parents = (self.heads[branch],) if merged is None else (self.heads[branch], merged)
        self.commits.append(Commit(parents, schema, state))
        self.heads[branch] = len(self.commits) - 1

    def ancestors(self, number):
        found = {number}
        for parent in self.commits[number].parents:
            found |= self.ancestors(parent)
        return found

    def best(self, ours, theirs):
        mine = set().union(*(self.ancestors(one) for one in ours))
        common = mine & set().union(*(self.ancestors(one) for one in theirs))
        return sorted(
            one
            for one in common
            if not any(one != other and one in self.ancestors(other) for other in common)
        )

    def merge(self, source, target):
        """The outcome, the schema, the state and the entities in conflict."""
        ours, theirs = self.heads[target], self.heads[source]
        bases = self.best([ours], [theirs])
        mine, others = self.commits[ours], self.commits[theirs]
        if bases == [theirs]:
            return "already_up_to_date", mine.schema, mine.state, set()
        schema = merged_schemas(self.base_schema(bases), mine.schema, others.schema)
        base, disputed = self.base_state(bases, schema)
        state, conflicts = three_way(
            base, disputed, schema.lifted(mine.state), schema.lifted(others.state)
        )
        conflicts = conflicts or dangling(schema, state)
        return "fast_forward" if bases == [ours] else "merged", schema, state, conflicts

    def base_schema(self, bases):
        schema, done = self.commits[bases[0]].schema, [bases[0]]
        for one in bases[1:]:
            below = self.base_schema(self.best(done, [one]))
            try:
                schema = merged_schemas(below, schema, self.commits[one].schema)
            except SchemasDifferError:
                return None
            done.append(one)
        return schema

    def base_state(self, bases, schema):
        done, disputed = [bases[0]], set()
        state = schema.lifted(self.commits[bases[0]].state)
        for one in bases[1:]:
            base, unsure = self.base_state(self.best(done, [one]), schema)
            other = schema.lifted(self.commits[one].state)
            state, conflicts = three_way(base, unsure, state, other)
            disputed |= conflicts
            done.append(one)
        return state, disputed


def three_way(base, disputed, ours, theirs):
    state, conflicts = dict(ours), set()
    for key in base.keys() | ours.keys() | theirs.keys():
        b, o, t = base.get(key), ours.get(key), theirs.get(key)
        if o == t or (key not in disputed and t == b):
            continue
        if key not in disputed and o == b:
            if t is None:
                del state[key]
            else:
                state[key] = t
            continue
        conflicts.add(key)
    return state, conflicts


def dangling(schema, state):
    return {
        (tid, key)
        for (tid, key), row in state.items()
        if row["ends"]
        and any(
            (end, one) not in state
            for end, one in zip(schema.types[tid]["facts"]["ends"], row["ends"], strict=True)
        )
    }


def alike(one, other):
    """Whether two branches that added a property added the same thing, perhaps wider."""
    widest = {"I32": "I64", "F32": "F64", "enum": "String"}
    kinds = [prop["facts"]["kind"] for prop in (one, other)]
    return widest.get(kinds[0], kinds[0]) == widest.get(kinds[1], kinds[1])


def differences(older, newer):
    """What `diff` has to say: images before and after, by type id and entity id."""
    before = newer.schema.lifted(older.state)
    for (tid, _), row in before.items():
        was = older.schema.types[tid]["props"]
        for pid, prop in newer.schema.types[tid]["props"].items():
            # Two branches added it as different things: on the other one it is not there.
            if pid in was and not alike(was[pid], prop):
                row[pid] = prop["fill"]
    found = {
        one: (before.get(one), newer.state.get(one))
        for one in before.keys() | newer.state.keys()
        if before.get(one) != newer.state.get(one)
    }
    gone = {one: row for one, row in older.state.items() if one[0] not in newer.schema.types}
    return found | {one: (row, None) for one, row in gone.items()}


# --- playing -----------------------------------------------------------------------------------

# Values below stay within every range and cardinality there may be, but not unique.
CALM = tuple(move for move in MOVES if move is not change_rule)


class Play:
    def __init__(self, folder, seed):
        self.chance = random.Random(seed)
        self.uri = folder / f"g{seed}"
        shape = Shape()
        self.graph = Graph.init(self.uri, shape.text(), durability="process", maintenance=None)
        self.model = Model(Schema.after(Schema(), shape))
        self.seen = {}  # the model's commits by their ids in the graph
        self.told = {
            "already_up_to_date": 0,
            "fast_forward": 0,
            "merged": 0,
            "schema": 0,
            "rows": 0,
        }

    def branch(self):
        return self.chance.choice(sorted(self.model.heads))

    def step(self):
        deeds = [self.write, self.remove, self.apply, self.fork, self.merge, self.clean]
        self.chance.choices(deeds, [8, 2, 6, 2, 7, 1])[0]()
        for branch, number in self.model.heads.items():
            self.seen[self.graph.snapshot(branch).graph_commit_id] = number

    def require_differences(self, times):
        """Any two commits differ in what the model says, whatever lies between them."""
        for _ in range(times):
            (one, older), (other, newer) = self.chance.choices(sorted(self.seen.items()), k=2)
            with suppress(NotFoundError):  # cleanup takes the past now and then
                found = self.graph.diff(one, other).changes
                before, after = (self.model.commits[at] for at in (older, newer))
                images = {
                    (change.type_id, change.id): tuple(
                        image and by_id(self.props(change.type_id, before, after), image)
                        for image in (change.before, change.after)
                    )
                    for change in found
                }
                assert images == differences(before, after), (one, other)

    @staticmethod
    def props(tid, before, after):
        return (after.schema.types.get(tid) or before.schema.types[tid])["props"]

    def apply(self):
        branch = self.branch()
        head = self.model.head(branch)
        moved = head.schema.shape().moved(self.chance, CALM)
        if moved is None:
            return
        plan = self.graph.plan_schema(moved.text(), branch=branch)
        if not plan.supported or not plan.steps:
            return
        self.graph.apply_schema(moved.text(), branch=branch)
        schema = Schema.after(head.schema, moved)
        self.model.advance(branch, schema, schema.lifted(head.state))

    def value(self, prop):
        told = prop["facts"]
        if told["nullable"] and self.chance.random() < 0.3:
            return None
        if told["kind"] == "enum":
            return self.chance.choice(sorted(told["values"]))
        if told["kind"] == "String":
            return self.chance.choice(["", "x", "y"])
        number = self.chance.randint(0, 3)
        return number / 2 if told["kind"][0] == "F" else number

    def write(self):
        branch = self.branch()
        head = self.model.head(branch)
        state, records = dict(head.state), []
        for _ in range(self.chance.randint(1, 3)):
            tid = self.chance.choice(sorted(head.schema.types))
            made = head.schema.types[tid]
            row = {pid: self.value(prop) for pid, prop in made["props"].items()}
            data = {made["props"][pid]["facts"]["name"]: value for pid, value in row.items()}
            name, ends = made["facts"]["name"], made["facts"]["ends"]
            if ends:
                nodes = [sorted(key for one, key in state if one == end) for end in ends]
                if not all(nodes):
                    continue
                pair = tuple(map(self.chance.choice, nodes))
                key = self.chance.choice(["e1", "e2"])
                state[tid, key] = {"ends": pair, **row}
                record = {"edge": name, "from": pair[0], "to": pair[1]}
                records.append({**record, "data": {"id": key, **data}})
            else:
                key = self.chance.choice("abc")
                state[tid, key] = {"ends": None, **row}
                records.append({"type": name, "data": {"k": key, **data}})
        if records:
            before = self.graph.snapshot(branch).graph_commit_id
            self.graph.load("\n".join(map(json.dumps, records)), mode="merge", branch=branch)
            if self.graph.snapshot(branch).graph_commit_id != before:
                self.model.advance(branch, head.schema, state)

    def remove(self):
        branch = self.branch()
        head = self.model.head(branch)
        if not head.state:
            return
        tid, key = self.chance.choice(sorted(head.state))
        state = {one: row for one, row in head.state.items() if one != (tid, key)}
        for one in dangling(head.schema, state):
            del state[one]
        facts = head.schema.types[tid]["facts"]
        what = "id" if facts["ends"] else "k"
        text = f'query q() {{ delete {facts["name"]} where {what} = "{key}" }}'
        self.graph.mutate(text, branch=branch)
        self.model.advance(branch, head.schema, state)

    def fork(self):
        name = next((one for one in "pqr" if one not in self.model.heads), None)
        if name is not None:
            source = self.branch()
            self.graph.create_branch(name, from_branch=source)
            self.model.heads[name] = self.model.heads[source]

    def merge(self):
        if len(self.model.heads) < 2:
            return
        source, target = self.chance.sample(sorted(self.model.heads), 2)
        preview = self.graph.merge_preview(source, into=target)
        try:
            outcome, schema, state, conflicts = self.model.merge(source, target)
        except SchemasDifferError:
            self.told["schema"] += 1
            assert {one.kind for one in preview.conflicts} == {"schema_conflict"}
            with pytest.raises(MergeConflictsError):
                self.graph.merge(source, into=target)
            return
        found = {(f"{one.entity_kind}:{one.type_name}", one.entity_id) for one in preview.conflicts}
        named = {
            id_: f"{id_.partition(':')[0]}:{made['facts']['name']}"
            for id_, made in schema.types.items()
        }
        assert found == {(named[tid], key) for tid, key in conflicts}, preview.conflicts
        if conflicts:
            self.told["rows"] += 1
            with pytest.raises(MergeConflictsError):
                self.graph.merge(source, into=target)
            return
        result = self.graph.merge(source, into=target)
        assert result.outcome == preview.outcome == outcome
        self.told[outcome] += 1
        if result.commit is not None:
            self.model.advance(target, schema, state, merged=self.model.heads[source])
        self.require_same(target)

    def clean(self):
        assert not self.graph.cleanup(keep_versions=1, grace=0).failures
        if self.chance.random() < 0.5:
            before = self.graph.snapshot().graph_commit_id
            self.graph.optimize()
            if self.graph.snapshot().graph_commit_id != before:
                head = self.model.head("main")
                self.model.advance("main", head.schema, head.state)
        if self.chance.random() < 0.3:
            self.graph.close()
            self.graph = Graph.open(self.uri, durability="process", maintenance=None)

    def require_same(self, branch):
        head = self.model.head(branch)
        shown = compile_schema(self.graph.schema_source(branch))
        assert shown.hash == compile_schema(head.schema.shape().text()).hash
        ids = {
            (tid.partition(":")[0], made["facts"]["name"]): tid
            for tid, made in head.schema.types.items()
        }
        seen = {}
        for line in map(json.loads, self.graph.export(branch=branch)):
            data = line["data"]
            node = "type" in line
            tid = ids[("node", line["type"]) if node else ("edge", line["edge"])]
            props = head.schema.types[tid]["props"]
            row = {pid: data.get(prop["facts"]["name"]) for pid, prop in props.items()}
            ends = None if node else (line["from"], line["to"])
            seen[tid, data["id"]] = {"ends": ends, **row}
        assert seen == head.state


def by_id(props, image):
    """An image as the model has its rows."""
    ends = image.endpoints and (image.endpoints["from"], image.endpoints["to"])
    return {
        "ends": ends,
        **{pid: image.properties[prop["facts"]["name"]] for pid, prop in props.items()},
    }


@pytest.mark.parametrize("seed", range(FIRST, FIRST + HISTORIES))
def test_a_random_history_with_schemas_is_what_the_model_says(tmp_path, seed):
    play = Play(tmp_path, seed)
    play.write()
    play.fork()
    play.fork()
    for _ in range(STEPS):
        play.step()
    for branch in sorted(play.model.heads):
        play.require_same(branch)
    play.require_differences(12)
    play.graph.close()
    told = os.environ.get("OMNIGRAPH_TELL_HISTORIES")
    if told:
        with open(told, "a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": seed, **play.told}) + "\n")
