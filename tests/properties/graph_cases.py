"""Random queries over a small graph: walks, optional and negated blocks, groups, orders, pages.

Conditions on one variable are those of `query_cases`, awkward values and all.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from typing import Any

from query_cases import (
    LISTS,
    NAN,
    NUMBERS,
    OPERATORS,
    SCALARS,
    TYPES,
    VALUES,
    Case,
    Cases,
    Values,
    plain,
)
from query_cases import SCHEMA as ONE_TYPE

from omnigraph.model.values import EPOCH_MOMENT, nearest_f32

SCHEMA = (
    ONE_TYPE
    + """
node C { k: String @key  x: I64?  r: F64?  s: String?  bio: String? @index  vec: Vector(2)? @index }
node Ghost { k: String @key  r: F64? }
edge Knows: P -> P { since: I32?  weight: F64?  cost: F64? }
edge Works: P -> C { since: I32?  weight: F64?  cost: F64? }
edge Haunts: Ghost -> P { since: I32? }
"""
)
EDGES = {"knows": ("P", "P"), "works": ("P", "C"), "haunts": ("Ghost", "P")}
EDGE_KINDS = set(EDGES)
COSTS = [None, 0.0, 0.0, 0.5, 1.0, 1.0, 2.5, 2.0**60, float("inf")]
BIOS = [
    None,
    "",
    "graph",
    "graphs of graphs",
    "the node",
    "Node, node and GRAPH",
    "alpha beta",
    "beta alpha alpho",
    "the",
    "gamma! alpha nodes",
]
# No two of them lead the same way but for equal ones, so that equal distances are exactly equal.
VECTORS = [None, [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 1.0], [-1.0, 0.0], [0.0, 0.0]]
PROPERTIES = {
    "P": [*SCALARS, *LISTS, "k"],
    "C": ["k", "x", "r", "s"],
    "Ghost": ["k", "r"],
    "knows": ["since", "weight"],
    "works": ["since", "weight"],
    "haunts": ["since"],
}
_KEYWORDS = re.compile(r"\b(match|return|with|order|limit|union|optional|not|unwind|as)\b(?= \S)")
REALS = {"P": ["d", "e", "f"], "C": ["r"], "Ghost": ["r"]}
WHOLE = {"P": ["i", "u"], "C": [], "Ghost": []}
TEXT = {"P": ["s", "k"], "C": ["s", "k"], "Ghost": ["k"]}


def random_graph(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Entities by type; ids collide between types, edges are parallel, loops and cycles occur."""
    names = [f"n{number}" for number in range(6)]

    def some(top: int) -> list[str]:
        return rng.sample(names, rng.randint(0, top))

    people = [
        {"k": name, **{one: rng.choice(values) for one, values in VALUES.items()}}
        for name in some(6) or some(6)
    ]
    places = [
        {
            "k": name,
            "x": rng.choice([None, 0, 2**63 - 1]),
            "r": rng.choice(VALUES["d"]),
            "s": rng.choice(VALUES["s"]),
            "bio": rng.choice(BIOS),
            "vec": rng.choice(VECTORS),
        }
        for name in some(4) or some(4)
    ]
    ghosts = [{"k": name, "r": rng.choice(VALUES["e"])} for name in some(rng.choice([0, 0, 2]))]
    nodes = {"P": people, "C": places, "Ghost": ghosts}
    edges: dict[str, list[dict[str, Any]]] = {}
    for edge, (source, target) in EDGES.items():
        edges[edge.title()] = []
        if not nodes[source] or not nodes[target]:
            continue
        for number in range(rng.choice([0, 3, 8, 12])):
            row = {"since": rng.choice([None, 0, 1, 2])}
            if edge != "haunts":
                row["weight"] = rng.choice(VALUES["e"])
                row["cost"] = rng.choice(COSTS)
            ends = {"src": rng.choice(nodes[source])["k"], "dst": rng.choice(nodes[target])["k"]}
            edges[edge.title()].append({"id": f"{edge}{number}", **ends, **row})
    return nodes, edges


def lines(nodes: dict[str, Any], edges: dict[str, Any]) -> str:
    made = []
    for kind, rows in nodes.items():
        made += [json.dumps({"type": kind, "data": plain(row)}) for row in rows]
    for kind, rows in edges.items():
        for row in rows:
            data = {name: value for name, value in row.items() if name not in ("src", "dst")}
            line = {"edge": kind, "from": row["src"], "to": row["dst"], "data": plain(data)}
            made.append(json.dumps(line))
    return "\n".join(made)


def naive_nodes(nodes: dict[str, Any]) -> dict[str, Any]:
    """The nodes as the naive reader wants them: ids, and values in the form of the IR."""
    return {
        kind: [
            {"id": row["k"], **{name: _of_ir(name, value) for name, value in row.items()}}
            for row in rows
        ]
        for kind, rows in nodes.items()
    }


def _of_ir(name: str, value: Any) -> Any:
    if value is None:
        return None
    match name:
        case "f":
            return nearest_f32(value)
        case "day":
            return dt.date.fromisoformat(value)
        case "t":
            moment = dt.datetime.fromisoformat(value)
            return (moment - EPOCH_MOMENT) // dt.timedelta(milliseconds=1)
        case _:
            return value


class GraphCases(Cases):
    """Makes queries with several variables."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._kinds: dict[str, str] = {}  # variable to node type, or to edge
        self._values: dict[str, str] = {}  # what comes with rows: its text, and about what it is
        self._count = 0
        self._depth = 0  # of blocks inside conditions

    def case(self) -> Case:
        self._params, self._kinds, self._values = {}, {}, {}
        if self.rng.random() < 0.12:
            body = self._union()
        else:
            body = f"{self._stages()} {self._returned()} {self._window()}"
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in self._params.items())
        text = f"query q({declared}) {{ {body} }}"
        if self.rng.random() < 0.1:
            text = _KEYWORDS.sub(lambda word: word[0].upper(), text)
        return Case(text, {name: value for name, (_, value) in self._params.items()})

    # --- stages and unions ---

    def _stages(self) -> str:
        """All matches of a query, and what stands between them."""
        self._kinds, self._values = {}, {}
        parts = [f"match {{ {'  '.join(self._block(depth=0))} }}"]
        for _ in range(self.rng.choice([0, 0, 0, 1, 1, 2])):
            parts.append(self._with())
            if self._nodes():
                clauses = [self._clause(depth=0) for _ in range(self.rng.randint(0, 2))]
            else:
                clauses = self._block(depth=0)
            parts += [f"match {{ {'  '.join(clauses)} }}"] if clauses else []
        return " ".join(parts)

    def _with(self) -> str:
        """`with`, and what goes on from there."""
        rng = self.rng
        carried = [var for var in self._kinds if rng.random() < 0.5]
        on = {name for name in self._values if rng.random() < 0.5}
        unwound = sorted({name.split(".")[0] for name in on if name.startswith("$")})
        words = sorted(name for name in on if not name.startswith("$"))
        columns = {}
        for _ in range(rng.choice([0, 1, 1, 2])):
            self._count += 1
            text, kind = self._typed(rng.choice(["real", "text", "whole", "list"]))
            columns[f"{'l' if kind == 'list' else 'c'}{self._count}"] = (text, kind)
        way = rng.choice(["plain", "plain", "groups", "groups", "distinct"])
        if way == "groups":
            self._count += 1
            columns[f"c{self._count}"] = self._aggregated()
        if not carried and not columns and not on:
            columns = {"c0": ("count(*)", "whole")}
            way = "groups"
        items = [f"${var}" for var in carried] + unwound + words
        items += [f"{text} as {name}" for name, (text, _) in columns.items()]
        keys = [*words, *(name for name, (_, kind) in columns.items() if kind != "list")]
        keys = [one for one in keys if one.startswith("c")]
        if way != "plain" or rng.random() < 0.5:
            people = [var for var in carried if self._kinds[var] == "P"]
            keys += [f"${var}.{rng.choice(SCALARS)}" for var in people]
        rng.shuffle(keys)
        order = _order([key + self._way() for key in keys[: rng.randint(0, 2)]])
        numbers = [name for name, (_, kind) in columns.items() if kind == "whole"]
        having = ""
        if way == "groups" and numbers and rng.random() < 0.4:
            having = f" having {{ {rng.choice(numbers)} {rng.choice(OPERATORS)} 1 }}"
        kept = {name: kind for name, kind in self._values.items() if name.split(".")[0] in unwound}
        kept |= {name: self._values[name] for name in words}
        self._values = kept | {name: kind for name, (_, kind) in columns.items()}
        self._kinds = {var: self._kinds[var] for var in carried}
        word = "with distinct" if way == "distinct" else "with"
        return f"{word} {{ {', '.join(items)} }}{having}{order} {self._window()}"

    def _typed(self, kind: str) -> tuple[str, str]:
        """A value of about that kind, and the kind that it has."""
        rng, people = self.rng, [var for var, of in self._kinds.items() if of == "P"]
        known = [name for name, of in self._values.items() if of == kind]
        if known and rng.random() < 0.5:
            return rng.choice(known), kind
        if not people:
            plain = {"real": "1.5", "text": '"a"', "whole": "2", "list": "range(0, 2)"}
            return plain[kind], kind
        names = {"real": ["d", "e"], "text": ["s", "k"], "whole": ["l", "i"], "list": list(LISTS)}
        return f"${rng.choice(people)}.{rng.choice(names[kind])}", kind

    def _aggregated(self) -> tuple[str, str]:
        rng, kind = self.rng, self.rng.choice(["real", "text", "whole"])
        text, _ = self._typed(kind)
        found = [("count(*)", "whole"), (f"count({text})", "whole"), (f"min({text})", kind)]
        found += [(f"max({text})", kind), (f"count(distinct {text})", "whole")]
        found.append((f"collect({text})", "list"))
        return rng.choice(found)

    def _union(self) -> str:
        rng = self.rng
        kinds = [rng.choice(["real", "text", "whole"]) for _ in range(rng.randint(1, 3))]
        parts, count = [], rng.randint(2, 3)
        for number in range(count):
            stages = self._stages()
            shown = []
            for at, kind in enumerate(kinds):
                mixed = "whole" if kind == "real" and rng.random() < 0.3 else kind
                text = "null" if rng.random() < 0.1 else self._typed(mixed)[0]
                if rng.random() < 0.1 and self._nodes():
                    text = f"count(${rng.choice(self._nodes())})" if mixed != "text" else text
                shown.append(f"{text} as a{at}")
            word = "return distinct" if rng.random() < 0.2 else "return"
            own = f" order {{ a0 }} {self._window()}" if rng.random() < 0.3 else ""
            parts.append(f"{stages} {word} {{ {', '.join(shown)} }}")
            if number < count - 1:
                parts.append(f"{own} {rng.choice(['union', 'union all'])}")
        keys = [f"a{at}{self._way()}" for at in range(len(kinds))]
        return f"{' '.join(parts)} {_order(keys[: rng.randint(0, 2)])} {self._window()}"

    def _unwind(self) -> str:
        rng, name = self.rng, f"u{self._count + 1}"
        self._count += 1
        people = [var for var, kind in self._kinds.items() if kind == "P"]
        if people and rng.random() < 0.6:
            one = rng.choice(list(LISTS))
            text = f"${rng.choice(people)}.{one}"
            kind = {"tags": "text", "reals": "real"}.get(one, "whole")
        elif rng.random() < 0.4:
            fields = "[{a: F64?, b: String?}]"
            reals, texts = [None, 0.0, -0.0, NAN, 1.5], [None, "", "a", "n1", "n2"]
            pairs = [(rng.choice(reals), rng.choice(texts)) for _ in range(rng.randint(0, 3))]
            text = self._given(fields, [{"a": a, "b": b} for a, b in pairs])
            self._values |= {f"${name}.a": "real", f"${name}.b": "text"}
            return f"unwind {text} as ${name}"
        else:
            lists = [name for name, kind in self._values.items() if kind == "list"]
            if lists and rng.random() < 0.7:
                return f"unwind {rng.choice(lists)} as ${name}"  # of a kind that is not known here
            made, kind = rng.choice([("range(0, 2)", "whole"), ('["n1", "a", "a"]', "text")])
            given = self._given("[F64]", [rng.choice([0.0, NAN, 2.5]) for _ in range(2)])
            text, kind = (made, kind) if rng.random() < 0.6 else (given, "real")
        self._values[f"${name}"] = kind
        return f"unwind {text} as ${name}"

    def _value_test(self) -> str:
        """A condition on what comes with a row."""
        rng = self.rng
        name, kind = rng.choice(list(self._values.items()))
        if kind == "list":
            return f"length({name}) {rng.choice(OPERATORS)} 1"
        nodes = [var for var in self._nodes() if kind != "whole"]
        if not nodes or rng.random() < 0.4:
            constant = self._constant("s") if kind == "text" else self._number()
            return f"{name} {rng.choice(OPERATORS)} {constant}"
        var = rng.choice(nodes)
        names = (TEXT if kind == "text" else REALS)[self._kinds[var]]
        return f"${var}.{rng.choice(names)} {rng.choice(['=', '=', *OPERATORS])} {name}"

    # --- match ---

    def _block(self, depth: int) -> list[str]:
        rng, clauses = self.rng, []
        if depth == 0:
            clauses.append(self._bound(rng.choice(["P", "P", "P", "C", "Ghost"])))
        more = rng.randint(depth, 3 - depth) if depth < 2 else 1
        return [*clauses, *(self._clause(depth) for _ in range(more))]

    def _clause(self, depth: int) -> str:
        rng = self.rng
        kinds = ["walk"] * 6 + ["filter"] + ["pair"] + ["unwind"]
        kinds += ["value"] * 3 if self._values else []
        if depth < 2:
            kinds += ["optional", "not"]
        if depth == 0 and len(self._nodes()) < 3:
            kinds.append("bind")
        match rng.choice(kinds):
            case "walk":
                return self._walk()
            case "unwind":
                return self._unwind()
            case "value":
                return f"({self._value_test()})"
            case "filter":
                var = rng.choice(self._nodes())
                return f"({self._filter(var)})"
            case "pair":
                return f"({self._pair()})"
            case "bind":
                return self._bound(rng.choice(["P", "C"]))
            case word:
                before = dict(self._kinds), dict(self._values)
                # A block has to hang on what is outside: it begins with a walk from there.
                inner = "  ".join([self._walk(), *self._block(depth + 1)[:2]])
                if word == "not":
                    self._kinds, self._values = before
                return f"{word} {{ {inner} }}"

    def _bound(self, kind: str) -> str:
        var = self._new(kind)
        conditions = [f"({self._filter(var)})" for _ in range(self.rng.choice([0, 0, 1]))]
        inline = ""
        if kind in TEXT and self.rng.random() < 0.15:
            inline = f" {{ {self.rng.choice(TEXT[kind])}: {self._constant('s')} }}"
        return "  ".join([f"${var}: {kind}{inline}", *conditions])

    def _new(self, kind: str) -> str:
        self._count += 1  # a name that an inner block has used is not used again outside
        var = f"v{self._count}"
        self._kinds[var] = kind
        return var

    def _nodes(self) -> list[str]:
        return [var for var, kind in self._kinds.items() if kind not in EDGE_KINDS]

    def _walk(self) -> str:
        rng = self.rng
        var = rng.choice(self._nodes())
        fitting = [edge for edge, ends in EDGES.items() if self._kinds[var] in ends]
        edge = rng.choice(fitting)
        source, target = EDGES[edge]
        forward = self._kinds[var] == source
        if source == target and rng.random() < 0.4:
            forward = False
        kind = target if forward else source
        known = [one for one in self._nodes() if self._kinds[one] == kind]
        other = rng.choice(known) if known and rng.random() < 0.25 else None
        if other is None:
            other = "_" if rng.random() < 0.1 else self._new(kind)
        left, right = (var, other) if forward else (other, var)
        shown, hops, named = edge, "", ""
        if source == target and rng.random() < 0.25:
            shown = f"<{edge}>"
        match rng.random():
            case luck if luck < 0.3 and other != "_":
                named = f"${self._new(edge)}:"
            case luck if luck < 0.5 and source == target:
                low = rng.randint(1, 2)
                hops = f"{{{low},{low + rng.randint(0, 2)}}}"
        return f"${left} {named}{shown}{hops} ${right}"

    def _filter(self, var: str) -> str:
        if self.rng.random() < 0.25:
            asked = self._asked(var)
            return asked if self.rng.random() < 0.5 else f"{asked} or ({self._plain_filter(var)})"
        return self._plain_filter(var)

    def _asked(self, var: str) -> str:
        """A condition on the edges around a node."""
        rng, edge = self.rng, self._touching(var)
        match rng.choice(["degree", "exists", "count", "not exists"]):
            case "degree":
                out = EDGES[edge][0] == self._kinds[var] and rng.random() < 0.6
                shown = edge if out else f"<{edge}>"
                return f"degree(${var}, {shown}) {rng.choice(OPERATORS)} {rng.randint(0, 3)}"
            case "count":
                return f"{self._block_value('count')} {rng.choice(OPERATORS)} {rng.randint(0, 3)}"
            case word:
                return self._block_value(word)

    def _touching(self, var: str) -> str:
        return self.rng.choice([e for e, ends in EDGES.items() if self._kinds[var] in ends])

    def _block_value(self, word: str) -> str:
        before = dict(self._kinds), dict(self._values)
        self._depth += 1
        more = [self._walk()] if self.rng.random() < 0.4 else []
        more += [self._unwind()] if self.rng.random() < 0.1 else []
        if self._values and self.rng.random() < 0.4:
            more.append(f"({self._value_test()})")
        if self._depth < 3 and self.rng.random() < 0.5:
            more.append(f"({self._filter(self.rng.choice(self._nodes()))})")
        inner = "  ".join([self._walk(), *more])
        self._depth -= 1
        self._kinds, self._values = before
        return f"{word} {{ {inner} }}"

    def _plain_filter(self, var: str) -> str:
        kind = self._kinds[var]
        if kind == "P":
            if self.rng.random() < 0.08:
                chosen = self._given("P.c", self.rng.choice(["red", "green"]))
                ago = self.rng.choice(["now()", "now() - days(2)", "now() + seconds(1.5)"])
                compared = self.rng.choice(OPERATORS)
                return self.rng.choice([f"${var}.c = {chosen}", f"${var}.t {compared} {ago}"])
            return self._condition(self.rng.randint(0, 1)).replace("$p.", f"${var}.")
        name = self.rng.choice(PROPERTIES[kind])
        constant = self._constant("s") if name in ("k", "s") else self._number()
        return f"${var}.{name} {self.rng.choice(OPERATORS)} {constant}"

    def _leaf(self) -> str:
        """Whole-number arithmetic stays small: which rows overflow depends on the way taken."""
        while True:
            text = super()._leaf()
            signs = (" + ", " - ", " * ", " / ", " % ")
            if not any(f"$p.{one}{sign}" in text for one in "lwiu" for sign in signs):
                return text

    def _pair(self) -> str:
        rng = self.rng
        one, two = rng.choice(self._nodes()), rng.choice(self._nodes())
        pools = [pool for pool in (REALS, WHOLE, TEXT) if pool[self._kinds[one]]]
        edges = [var for var, kind in self._kinds.items() if kind in EDGE_KINDS]
        if edges and rng.random() < 0.5:
            edge = rng.choice(edges)
            return rng.choice(
                [
                    f"${edge}.since {rng.choice(OPERATORS)} {rng.randint(0, 2)}",
                    f"${edge}.src {rng.choice(OPERATORS)} ${one}.k",
                    f"${edge}.dst = ${edge}.src",
                ]
            )
        pool = rng.choice(pools)
        names = pool[self._kinds[two]]
        if not names:
            return f"${one} {rng.choice(['=', '!=', '<'])} ${two}"
        left = f"${one}.{rng.choice(pool[self._kinds[one]])}"
        right = f"${two}.{rng.choice(names)}"
        if pool is TEXT and rng.random() < 0.3:
            return f"{left} {rng.choice(['contains', 'starts_with'])} {right}"
        if pool is not TEXT and rng.random() < 0.3:
            return f"{left} {rng.choice('+-*%')} 2 {rng.choice(OPERATORS)} {right} * 3"
        return f"{left} {rng.choice(['=', '=', *OPERATORS])} {right}"

    def _window(self) -> str:
        if self.rng.random() < 0.5:
            return ""
        limit = f"limit {self.rng.choice([0, 1, 3, 10])}"
        return f"{limit} {self.rng.choice(['', '', 'offset 1', 'offset 3'])}"

    # --- return ---

    def _returned(self) -> str:
        rng = self.rng
        shown = [self._projection() for _ in range(rng.randint(1, 3))]
        shown = list(dict.fromkeys(shown))
        flat = [one for one in shown if self._is_flat(one)]
        match rng.choice(["rows", "rows", "groups", "count", "distinct"]):
            case "count":
                return f"return {{ {self._counts()} }}"
            case "groups":
                keys = ["n", *flat]
                order = [one + self._way() for one in keys[: rng.randint(0, 2)]]
                if rng.random() < 0.4:
                    shown.append(f"{self._computed()} as made")
                having = rng.choice(["", "", " having { n > 1 }", " having { not n = 1  n < 9 }"])
                counts = self._counts()
                return f"return {{ {', '.join(shown)}, {counts} }}{having}{_order(order)}"
            case "distinct":
                order = [one + self._way() for one in flat[: rng.randint(0, 2)]]
                return f"return distinct {{ {', '.join(shown)} }}{_order(order)}"
            case _:
                keys = [self._flat_projection() + self._way() for _ in range(rng.randint(0, 3))]
                if rng.random() < 0.3:
                    keys.insert(0, self._computed() + self._way())
                shown += [f"{self._computed()} as v{at}x" for at in range(rng.choice([0, 0, 1, 2]))]
                whole = rng.choice(list(self._kinds) or [""])
                if whole and rng.random() < 0.15:
                    shown = [one for one in shown if not one.startswith(f"${whole}.")]
                    shown.insert(0, f"${whole}.*")
                return f"return {{ {', '.join(shown)} }}{_order(keys)}"

    def _computed(self) -> str:
        """A value made of the properties of one variable, or of the edges around it."""
        rng, var = self.rng, self.rng.choice(list(self._kinds) or [""])
        if not var:
            return self._typed(rng.choice(["real", "text", "whole"]))[0]
        kind = self._kinds[var]
        if kind == "P" and rng.random() < 0.7:
            return Values(rng).of(rng.choice("SNRDT")).replace("$p.", f"${var}.")
        if kind in EDGE_KINDS:
            return rng.choice([f"type(${var})", f"id(${var})", f"coalesce(${var}.since, -1)"])
        if rng.random() < 0.4:
            return f"degree(${var}, <{self._touching(var)}>)"
        return self._block_value("count")

    def _projection(self) -> str:
        rng = self.rng
        if self._values and (not self._kinds or rng.random() < 0.3):
            return rng.choice(list(self._values))
        if not self._kinds:
            return '"a"'
        var = rng.choice(list(self._kinds))
        kind = self._kinds[var]
        if kind in EDGE_KINDS:
            return f"${var}.{rng.choice([*PROPERTIES[kind], 'id', 'src', 'dst'])}"
        return f"${var}" if rng.random() < 0.2 else f"${var}.{rng.choice(PROPERTIES[kind])}"

    def _flat_projection(self) -> str:
        for _ in range(100):
            found = self._projection()
            if self._is_flat(found):
                return found
        return "1"

    def _is_flat(self, text: str) -> bool:
        listed = text.endswith(tuple(f".{name}" for name in LISTS))
        return not listed and self._values.get(text) != "list"

    def _counts(self) -> str:
        rng = self.rng
        counted = ["*", *self._values]
        if self._nodes():
            var = rng.choice(self._nodes())
            counted = ["*", f"${var}", f"distinct ${var}", *self._values]
        made = [f"count({rng.choice(counted)}) as n"]
        people = [one for one in self._nodes() if self._kinds[one] == "P"]
        if people:
            one, number = rng.choice(people), rng.choice(NUMBERS)
            scalar = rng.choice([name for name in SCALARS if TYPES[name] != "Bool"])
            made += rng.sample(
                [
                    f"min(${one}.{number}) as lo",
                    f"max(${one}.{number}) as hi",
                    f"sum(${one}.{number}) as total",
                    f"avg(${one}.{number}) as mean",
                    f"count(distinct ${one}.{scalar}) as different",
                    f"collect(${one}.{scalar}) as items",
                    f"collect(distinct ${one}.{scalar}) as others",
                    f"median(${one}.{number}) as middle",
                    f"stddev(${one}.d) as spread",
                    f"percentile(${one}.{number}, 0.3) as share",
                    f"max(${one}.day) as last",
                    f"min(${one}.t) as first",
                ],
                rng.randint(0, 3),
            )
        return ", ".join(made)


def _order(keys: list[str]) -> str:
    return f" order {{ {', '.join(dict.fromkeys(keys))} }}" if keys else ""
