"""Random walks through schemas: a small schema that can be written down, and moves upon it.

Names come from small pools, so that what two branches do on their own sooner or later meets.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

NODES = ("A", "B", "C", "D")
EDGES = ("E", "F", "G")
PROPERTIES = ("p", "q", "r", "s")


@dataclass
class Prop:
    kind: str  # I32, I64, F32, F64, String, enum
    nullable: bool = True
    values: frozenset = frozenset()
    default: object = None
    words: str | None = None
    hint: str | None = None

    def text(self, name):
        kind = f"enum({', '.join(sorted(self.values))})" if self.kind == "enum" else self.kind
        notes = ""
        if self.default is not None:
            told = f'"{self.default}"' if self.kind == "String" else str(self.default)
            notes += f" @default({told})"
        if self.words:
            notes += f' @description("{self.words}")'
        if self.hint:
            notes += f' @rename_from("{self.hint}")'
        return f"    {name}: {kind}{'?' if self.nullable else ''}{notes}\n"


@dataclass
class Type:
    ends: tuple | None = None
    card: str | None = None
    props: dict = field(default_factory=dict)
    rules: frozenset = frozenset()  # ("unique", name), ("index", name), ("range", name, text)
    words: str | None = None
    hint: str | None = None

    def text(self, name):
        notes = f' @description("{self.words}")' if self.words else ""
        notes += f' @rename_from("{self.hint}")' if self.hint else ""
        if self.ends:
            card = f" @card({self.card})" if self.card else ""
            head = f"edge {name}: {self.ends[0]} -> {self.ends[1]}{card}{notes}"
            body = ""
        else:
            head, body = f"node {name}{notes}", "    k: String @key\n"
        body += "".join(prop.text(one) for one, prop in self.props.items())
        for word, one, *rest in sorted(self.rules):
            body += f"    @{word}({', '.join([one, *rest])})\n"
        return f"{head} {{\n{body}}}\n"


class Shape:
    """A schema that can be moved."""

    def __init__(self):
        self.types = {"A": Type(props={"p": Prop("I32")})}

    def copy(self):
        return copy.deepcopy(self)

    def text(self):
        return "\n".join(made.text(name) for name, made in self.types.items())

    def settled(self):
        """The same after its hints have done their work."""
        new = self.copy()
        for made in new.types.values():
            made.hint = None
            for prop in made.props.values():
                prop.hint = None
        return new

    def moved(self, chance, moves=None):
        """The schema after one random move, or None if there was nothing to do."""
        new = self.settled()
        move = chance.choice(moves or MOVES)
        return new if move(new, chance) else None


def _free(pool, taken, chance):
    names = [name for name in pool if name not in taken]
    return chance.choice(names) if names else None


def _any(shape, chance):
    name = chance.choice(sorted(shape.types))
    return name, shape.types[name]


def _any_prop(shape, chance):
    found = [(t, p) for t, made in shape.types.items() for p in made.props]
    if not found:
        return None
    owner, name = chance.choice(sorted(found))
    return shape.types[owner], name, shape.types[owner].props[name]


def add_node(shape, chance):
    name = _free(NODES, shape.types, chance)
    if name:
        shape.types[name] = Type(props={"p": Prop(chance.choice(["I32", "String"]))})
    return name


def add_edge(shape, chance):
    nodes = [name for name, made in shape.types.items() if not made.ends]
    name = _free(EDGES, shape.types, chance)
    if name:
        shape.types[name] = Type(ends=(chance.choice(nodes), chance.choice(nodes)))
    return name


def rename_type(shape, chance):
    name, made = _any(shape, chance)
    new = _free(EDGES if made.ends else NODES, shape.types, chance)
    if not new:
        return False
    made.hint = name
    shape.types = {new if one == name else one: each for one, each in shape.types.items()}
    for each in shape.types.values():
        if each.ends:
            each.ends = tuple(new if end == name else end for end in each.ends)
    return True


def drop_type(shape, chance):
    name, made = _any(shape, chance)
    nodes = [one for one, each in shape.types.items() if not each.ends]
    if not made.ends and len(nodes) == 1:
        return False
    del shape.types[name]
    for one in [one for one, each in shape.types.items() if each.ends and name in each.ends]:
        del shape.types[one]
    return True


def add_property(shape, chance):
    _, made = _any(shape, chance)
    name = _free(PROPERTIES, made.props, chance)
    if name:
        made.props[name] = chance.choice(
            [
                Prop("I32"),
                Prop("F32"),
                Prop("String"),
                Prop("enum", values=frozenset("ab")),
                Prop("I32", default=7),
                Prop("String", nullable=False, default="d"),
            ]
        )
    return name


def rename_property(shape, chance):
    found = _any_prop(shape, chance)
    if not found:
        return False
    made, name, prop = found
    new = _free(PROPERTIES, made.props, chance)
    if not new:
        return False
    prop.hint = name
    made.props = {new if one == name else one: each for one, each in made.props.items()}
    made.rules = frozenset(
        (word, new if one == name else one, *rest) for word, one, *rest in made.rules
    )
    return True


def drop_property(shape, chance):
    found = _any_prop(shape, chance)
    if not found:
        return False
    made, name, _ = found
    del made.props[name]
    made.rules = frozenset(rule for rule in made.rules if rule[1] != name)
    return True


def change_type(shape, chance):
    found = _any_prop(shape, chance)
    if not found:
        return False
    _, _, prop = found
    if prop.kind == "enum":
        prop.values |= {chance.choice("cde")}
    elif prop.kind in ("I32", "F32") and chance.random() < 0.7:
        prop.kind = {"I32": "I64", "F32": "F64"}[prop.kind]
    else:
        prop.nullable = True
    return True


def change_words(shape, chance):
    found = _any_prop(shape, chance)
    target = found[2] if found and chance.random() < 0.6 else _any(shape, chance)[1]
    target.words = chance.choice(["one", "two", None])
    return True


def change_default(shape, chance):
    found = _any_prop(shape, chance)
    if not found or found[2].kind not in ("I32", "I64"):
        return False
    found[2].default = chance.choice([7, 8] if not found[2].nullable else [7, 8, None])
    return True


def change_rule(shape, chance):
    found = _any_prop(shape, chance)
    if not found:
        return False
    made, name, prop = found
    rule = chance.choice([("index", name), ("unique", name), ("range", name, "0..1000")])
    if rule[0] == "range" and (made.ends or prop.kind not in ("I32", "I64")):
        return False
    if rule[0] == "range" and chance.random() < 0.5:
        rule = ("range", name, "0..2000")
        made.rules -= {("range", name, "0..1000")}
    made.rules ^= {rule}
    return True


def change_card(shape, chance):
    edges = sorted(name for name, made in shape.types.items() if made.ends)
    if not edges:
        return False
    shape.types[chance.choice(edges)].card = chance.choice(["0..5", "0..9", None])
    return True


MOVES = (
    add_node, add_edge, rename_type, drop_type, add_property, add_property, rename_property,
    drop_property, change_type, change_words, change_default, change_rule, change_card,
)  # fmt: skip
