"""Random queries that search: conditions, scores and rankings over places that have texts and
vectors, in whatever else a query may be made of."""

from __future__ import annotations

import re

from graph_cases import VECTORS
from path_cases import PathCases
from query_cases import OPERATORS, Case

_DIRECTED = re.compile(r"(nearest\([^()]*\)) (?:desc|asc)")  # it always begins with the nearest
WORDS = ["graph", "graphs", "node", "alpha", "alpho", "beta", "gamma", "the", "nothing"]


class SearchCases(PathCases):
    """Makes queries that search among places."""

    _ranked = False  # the order needs a limit

    def _window(self) -> str:
        if not self._ranked:
            return super()._window()
        self._ranked = False
        return f"limit {self.rng.randint(1, 4)} {self.rng.choice(['', 'offset 1'])}"

    def _places(self) -> list[str]:
        return [var for var, kind in self._kinds.items() if kind == "C"]

    def _bound(self, kind: str) -> str:
        return super()._bound("C" if self.rng.random() < 0.4 else kind)

    def case(self) -> Case:
        made = super().case()
        if self.rng.random() > 0.15:
            return Case(_DIRECTED.sub(r"\1", made.text), made.params)
        self._params, self._kinds, self._values = {}, {}, {}
        rng, outer = self.rng, self._new("C")
        condition = f"({self._filter(outer)})" if rng.random() < 0.4 else ""
        here = f"match {{ ${outer}: C  {condition} }} with {{ ${outer} }}"
        inner = [self._bound("C"), *(self._clause(depth=0) for _ in range(rng.randint(0, 1)))]
        var = inner[0].partition(":")[0]
        ranked = f"order {{ nearest({var}.vec, ${outer}.vec) }} limit {rng.randint(1, 2)}"
        self._ranked = False
        shown = f"return {{ ${outer}.k, {var}.k, {self._projection()} }} {ranked}"
        if rng.random() < 0.4:
            shown = f"with {{ ${outer}, {var} }} {ranked} return {{ ${outer}.k, {var}.k as other }}"
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in self._params.items())
        text = f"query q({declared}) {{ {here} match {{ {'  '.join(inner)} }} {shown} }}"
        return Case(text, {name: value for name, (_, value) in self._params.items()})

    # --- what is looked for ---

    def _words(self) -> str:
        """One or two words or a phrase; sums of more scores depend on their order."""
        rng = self.rng
        return self._text(" ".join(rng.sample(WORDS, rng.randint(1, 2))))

    def _typed_words(self) -> str:
        rng = self.rng
        one, two = rng.sample(WORDS, 2)
        forms = [f"{one} -{two}", f"+{one} {two}", f'"{one} {two}"', f"{one[:3]}*", f"-{one}"]
        return self._text(rng.choice([*forms, f'"{one} {two[:2]}*"', f"{one} {two}", one]))

    def _text(self, text: str) -> str:
        escaped = text.replace('"', '\\"')
        return self._given("String", text) if self.rng.random() < 0.3 else f'"{escaped}"'

    def _vector(self, var: str) -> str:
        rng = self.rng
        others = [other for other in self._places() if other != var]
        if others and rng.random() < 0.4:
            return f"${rng.choice(others)}.vec"
        vector = rng.choice([one for one in VECTORS if one])
        return self._given("Vector(2)", vector) if rng.random() < 0.3 else str(vector)

    def _score(self, var: str, *, fused: bool = True) -> str:
        rng = self.rng
        match rng.choice(["bm25", "nearest", "rrf"] if fused else ["bm25", "nearest"]):
            case "bm25":
                return f"bm25(${var}.bio, {self._words()})"
            case "nearest":
                exact = ", exact" if rng.random() < 0.2 else ""
                return f"nearest(${var}.vec, {self._vector(var)}{exact})"
            case _:
                parts = [f"bm25(${var}.bio, {self._words()})"]
                parts.append(f"nearest(${var}.vec, {rng.choice(VECTORS[1:])})")
                rng.shuffle(parts)
                k = rng.choice(["", "", ", 1", ", 7"])
                return f"rrf({', '.join(parts)}{k})"

    def _filter(self, var: str) -> str:
        rng = self.rng
        if self._kinds[var] != "C" or rng.random() < 0.4:
            return super()._filter(var)
        match rng.choice(["search", "match_text", "fuzzy", "score"]):
            case "search":
                found = f"search(${var}.bio, {self._typed_words()})"
            case "match_text":
                found = f"match_text(${var}.bio, {self._words()})"
            case "fuzzy":
                most = rng.choice(["", ", 0", ", 1", ", 2"])
                found = f"fuzzy(${var}.bio, {self._words()}{most})"
            case _:
                score = self._score(var, fused=False)
                return f"{score} {rng.choice(['<', '>'])} {rng.choice(['0.3', '0.8', '1.4'])}"
        return rng.choice(
            [found, found, f"not {found}", f"{found} or {super()._plain_filter(var)}"]
        )

    # --- what is returned ---

    def _computed(self) -> str:
        rng, places = self.rng, self._places()
        if not places or rng.random() < 0.5:
            return super()._computed()
        var = rng.choice(places)
        shown = rng.choice(
            [
                f"highlight(${var}.bio, {self._plain_words()})",
                f'highlight(${var}.bio, {self._plain_words()}, "<", ">")',
                f"snippet(${var}.bio, {self._plain_words()}, {rng.randint(1, 3)})",
            ]
        )
        return shown if rng.random() < 0.3 else self._score(var)

    def _plain_words(self) -> str:
        """Words that are their own stems."""
        return self._text(" ".join(self.rng.sample(["alpha", "beta", "gamma", "alpho"], 2)))

    def _projection(self) -> str:
        places = self._places()
        if places and self.rng.random() < 0.15:
            return f"${self.rng.choice(places)}.{self.rng.choice(['vec', 'bio'])}"
        return super()._projection()

    def _is_flat(self, text: str) -> bool:
        return super()._is_flat(text) and not text.endswith(".vec")

    def _returned(self) -> str:
        rng, places = self.rng, self._places()
        if not places or rng.random() < 0.5:
            return super()._returned()
        shown = [*dict.fromkeys(self._projection() for _ in range(rng.randint(1, 2)))]
        score, named = self._score(rng.choice(places)), rng.random() < 0.5
        if named:
            shown.append(f"{score} as score")
        way = rng.choice(["", "", " desc"]) if score.startswith("bm25") else ""
        keys = [("score" if named else score) + way]
        self._ranked = not score.startswith("bm25")
        keys += [self._flat_projection() + self._way() for _ in range(rng.randint(0, 1))]
        if rng.random() < 0.2:
            keys.reverse()
        word = "return distinct" if named and rng.random() < 0.1 else "return"
        return f"{word} {{ {', '.join(shown)} }} order {{ {', '.join(keys)} }}"

    def _with(self) -> str:
        """A stage, of which one in three hands places on, perhaps the best ones of a ranking."""
        rng, places = self.rng, self._places()
        if not places or rng.random() < 0.6:
            return super()._with()
        var = rng.choice(places)
        carried = [var, *(one for one in self._kinds if one != var and rng.random() < 0.3)]
        self._kinds = {one: self._kinds[one] for one in carried}
        self._values = {}
        order = ""
        if rng.random() < 0.5:
            score = self._score(var)
            order, self._ranked = f" order {{ {score} }}", not score.startswith("bm25")
        items = [f"${one}" for one in carried]
        if rng.random() < 0.3:
            self._count += 1
            items.append(f"{self._score(var, fused=False)} as c{self._count}")
            self._values[f"c{self._count}"] = "real"
        return f"with {{ {', '.join(items)} }}{order} {self._window()}"

    def _pair(self) -> str:
        places = self._places()
        if len(places) > 1 and self.rng.random() < 0.3:
            one, two = self.rng.sample(places, 2)
            compared = self.rng.choice(OPERATORS[2:])
            return f"nearest(${one}.vec, ${two}.vec) {compared} {self.rng.choice(['0.3', '1.4'])}"
        return super()._pair()
