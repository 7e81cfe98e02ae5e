"""Random queries over edges of several types, variables of several types, and paths."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import graph_cases
from graph_cases import EDGES, PROPERTIES, REALS, TEXT, WHOLE, GraphCases
from query_cases import OPERATORS, Case

NODES = ("C", "Ghost", "P")
OPEN_EDGES = {"|".join(some) for size in (2, 3) for some in combinations(sorted(EDGES), size)}
for pool in (PROPERTIES, REALS, WHOLE, TEXT):
    for size in (2, 3):
        for some in combinations(NODES, size):
            pool["|".join(some)] = [*dict.fromkeys(name for one in some for name in pool[one])]
for kinds in OPEN_EDGES:
    names = [name for one in kinds.split("|") for name in PROPERTIES[one]]
    PROPERTIES[kinds] = [*dict.fromkeys(names)]
graph_cases.EDGE_KINDS |= OPEN_EDGES


class PathCases(GraphCases):
    """Makes queries whose walks go along several edge types and may be paths."""

    def case(self) -> Case:
        self._paths: dict[str, Any] = {}
        return super().case()

    def _touching(self, var: str) -> str:
        kinds = self._kinds[var].split("|")
        return self.rng.choice([e for e, ends in EDGES.items() if set(kinds) & set(ends)])

    def _walk(self) -> str:
        rng = self.rng
        if rng.random() < 0.3 and any(self._kinds[one] in NODES for one in self._nodes()):
            closed = {v: k for v, k in self._kinds.items() if "|" not in k}
            kept, self._kinds = self._kinds, closed
            made = super()._walk()
            self._kinds = {**kept, **self._kinds}
            return made
        var = rng.choice(self._nodes())
        here = set(self._kinds[var].split("|"))
        for _ in range(6):  # most walks lead somewhere
            chosen = rng.sample(sorted(EDGES), rng.choice([1, 2, 2, 3]))
            both = len(chosen) > 1 and rng.random() < 0.4
            forward = rng.random() < 0.6
            low, high, hops = self._hops()
            kinds = _ends(here, chosen, forward=forward, both=both, low=low, high=high)
            if kinds and _starts(here, chosen, forward=forward, both=both):
                break
        written = "any" if len(chosen) == 3 else "|".join(chosen)
        known = [one for one in self._nodes() if set(self._kinds[one].split("|")) & kinds]
        if known and rng.random() < 0.25:
            other = rng.choice(known)
        elif rng.random() < 0.1 or not kinds:
            other = "_"
        else:
            other = self._new("|".join(sorted(kinds)))
        named = ""
        if hops and rng.random() < 0.6:
            self._count += 1
            named = f"$v{self._count}:"
            if self._depth == 0:
                self._paths[f"v{self._count}"] = set(self._kinds)
        elif not hops and other != "_" and rng.random() < 0.4:
            touching = [edge for edge in sorted(chosen) if _fits(edge, here, kinds, both=both)]
            named = f"${self._new('|'.join(touching or sorted(chosen)))}:"
        left, right = (var, other) if forward else (other, var)
        return f"${left} {named}{f'<{written}>' if both else written}{hops} ${right}"

    def _hops(self) -> tuple[int, int, str]:
        rng = self.rng
        if rng.random() < 0.5:
            return 1, 1, ""
        low = rng.choice([0, 1, 1, 2])
        if rng.random() < 0.3:
            return low, 9, f"{{{low},}}"
        high = max(1, low + rng.randint(0, 2))
        return low, high, f"{{{low},{high}}}"

    def _computed(self) -> str:
        rng = self.rng
        if rng.random() < 0.5:
            return super()._computed()
        part = rng.choice(["length", "nodes", "edges", "nodes"])
        paths = [name for name in self._paths if self._paths[name] <= self._kinds.keys()]
        if paths and rng.random() < 0.6:
            return f"{part}(${rng.choice(paths)})"
        if rng.random() < 0.2:
            return f"type(${rng.choice(list(self._kinds))})"
        return f"{part}({self._shortest()})"

    def _projection(self) -> str:
        paths = [name for name in self._paths if self._paths[name] <= self._kinds.keys()]
        if paths and self.rng.random() < 0.3:
            return f"length(${self.rng.choice(paths)})"
        return super()._projection()

    def _shortest(self) -> str:
        rng = self.rng
        one, other = rng.choice(self._nodes()), rng.choice(self._nodes())
        chosen = rng.choice(["any", "knows", "knows|works", "haunts|knows|works"])
        weighted = chosen in ("knows", "knows|works") and rng.random() < 0.5
        shown = f"<{chosen}>" if rng.random() < 0.6 else chosen
        return f"shortest(${one}, ${other}, {shown}{', cost' if weighted else ''})"

    def _pair(self) -> str:
        rng = self.rng
        if rng.random() < 0.3:
            made = self._shortest()
            if rng.random() < 0.3:
                return f"{made} is {rng.choice(['', 'not '])}null"
            return f"length({made}) {rng.choice(OPERATORS)} {rng.randint(0, 3)}"
        paths = [name for name in self._paths if self._paths[name] <= self._kinds.keys()]
        if paths and self._depth == 0 and rng.random() < 0.3:
            path = rng.choice(paths)
            asked = f"${rng.choice(self._nodes())}.k in nodes(${path})"
            return rng.choice(
                [asked, f"length(${path}) {rng.choice(OPERATORS)} {rng.randint(0, 2)}"]
            )
        if rng.random() < 0.2:
            var = rng.choice(list(self._kinds))
            return f'type(${var}) {rng.choice(["=", "!=", "<"])} "{rng.choice(NODES)}"'
        return super()._pair()


def _starts(here: set[str], chosen: list[str], *, forward: bool, both: bool) -> bool:
    pairs = [EDGES[edge] if both else (EDGES[edge][not forward],) for edge in chosen]
    return any(end in here for pair in pairs for end in pair)


def _fits(edge: str, here: set[str], kinds: set[str], *, both: bool) -> bool:
    one, other = EDGES[edge]
    ends = [(one, other), (other, one)] if both else [(one, other)]
    return any((a in here and b in kinds) or (b in here and a in kinds) for a, b in ends)


def _ends(
    here: set[str], chosen: list[str], *, forward: bool, both: bool, low: int, high: int
) -> set[str]:
    """The types that such a walk may lead to."""
    pairs = [EDGES[edge] for edge in chosen]
    pairs = [(a, b) if forward else (b, a) for a, b in pairs]
    pairs += [(b, a) for a, b in pairs] if both else []
    found: set[str] = set(here) if low == 0 else set()
    for depth in range(1, high + 1):
        here = {b for a, b in pairs if a in here}
        found |= here if depth >= low else set()
    return found
