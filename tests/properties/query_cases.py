"""Random queries over one node type with awkward values, as text and parameters."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NAN, INF = math.nan, math.inf

SCHEMA = """
node P {
  k: String @key
  b: Bool?
  i: I32? @index
  l: I64?
  u: U32?
  w: U64? @index
  f: F32?
  d: F64? @index
  e: F64?
  s: String? @index
  c: enum(red, green)?
  day: Date? @index
  t: DateTime? @index
  tags: [String]?
  reals: [F64]?
  wholes: [I64]?
}
"""

_STEP = 2.0**-24
VALUES: dict[str, list[Any]] = {
    "b": [None, True, False],
    "i": [None, -(2**31), 2**31 - 1, -1, 0, 1, 5],
    "l": [None, -(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1, 0, 1],
    "u": [None, 0, 1, 7, 2**32 - 1],
    "w": [None, 0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1],
    "f": [None, 0.0, -0.0, 0.1, 1.5, NAN, INF, -INF, 16777216.0, 3.4028234663852886e38, _STEP],
    "d": [None, 0.0, -0.0, 0.1, -1.5, 2.5, NAN, INF, -INF, 2.0**53, 1.7e308, 5e-324],
    "e": [None, 0.0, -0.0, 2.5, NAN, INF, 2.0**63],
    "s": [
        None,
        "",
        "a",
        "A",
        "ab",
        "a%",
        "a_b",
        "it's",
        'say "x"',
        "back\\slash",
        "é",
        "日本",
        "🙂",
    ],
    "c": [None, "red", "green"],
    "day": [None, "0001-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31"],
    "t": [
        None,
        "0001-01-01T00:00:00.000Z",
        "1969-12-31T23:59:59.999Z",
        "1970-01-01T00:00:00.000Z",
        "2024-02-29T12:00:00.123Z",
        "9999-12-31T23:59:59.999Z",
    ],
    "tags": [None, [], ["a"], ["a", "a"], ["b", "a"], [""]],
    "reals": [None, [], [0.0], [-0.0], [NAN], [NAN, 1.0], [1.0, NAN], [INF]],
    "wholes": [None, [], [1], [1, 2], [2**63 - 1], [-(2**63), 0]],
}
TYPES = {
    "b": "Bool", "i": "I32", "l": "I64", "u": "U32", "w": "U64", "f": "F32", "d": "F64", "e": "F64",
    "s": "String", "c": "String", "day": "Date", "t": "DateTime",
}  # fmt: skip
NUMBERS = ("i", "l", "u", "w", "f", "d", "e")
LISTS = {"tags": "String", "reals": "F64", "wholes": "I64"}
SCALARS = tuple(TYPES)
WHOLE = [0, 1, -1, 5, 2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2**53 + 1, 2**63 - 1, -(2**63)]
REAL = [0.0, -0.0, 0.1, 0.5, 1.5, -1.5, 2.5, 1e300, -1e300, 2.0**53, 2.0**63, 2.0**64, 16777217.0]
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


def records(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Entities whose every property is one of the awkward values."""
    made = []
    for number in rng.sample(range(count * 3), count):
        row = {name: rng.choice(values) for name, values in VALUES.items()}
        made.append({"k": f"k{number:06d}", **row})
    return made


def lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps({"type": "P", "data": plain(row)}) for row in rows)


def plain(value: Any) -> Any:
    """NaN and the infinities as the words that loads take."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


@dataclass
class Case:
    """A query with its parameters."""

    text: str
    params: dict[str, Any] = field(default_factory=dict)


class Values:
    """Random expressions of a type over `$p`, made of functions and operators."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def of(self, kind: str, depth: int = 2) -> str:
        """The text of an expression; none of them can end in an error."""
        if depth == 0 or self.rng.random() < 0.25:
            return self.rng.choice(_LEAVES[kind])
        made = self.rng.choice(_MADE[kind])
        while "{" in made:
            before, _, rest = made.partition("{")
            inner, _, after = rest.partition("}")
            made = before + self.of(inner, depth - 1) + after
        return f"({made})" if made[-1] != ")" or " " in made.partition("(")[0] else made


# Kinds: S text, N whole number, R float, D day, T moment, B truth, L list of texts.
_LEAVES = {
    "S": ["$p.s", "$p.s", "$p.k", "$p.c", '"a"', '"a%"', '""', '"🙂b"', "$p.tags[0]"],
    "N": ["$p.i", "$p.u", "0", "2", "-1", "$p.wholes[-1]"],
    "R": ["$p.d", "$p.e", "0.5", "-2.5", "2.675", "$p.reals[0]"],
    "D": ["$p.day", "$p.day", 'date("2024-03-31")'],
    "T": ["$p.t", "$p.t", 'datetime("2024-03-31T23:59:59.5Z")'],
    "B": ["$p.b", "$p.i is null", "coalesce($p.b, true)"],
    "L": ["$p.tags", "$p.tags", '["a", "b"]', "[]"],
}
_MADE = {
    "S": [
        "lower({S})", "upper({S})", "trim({S})", "substring({S}, 1)", "substring({S}, 0, 1)",
        "substring({S}, {N})", 'replace({S}, "a", "bb")', "replace({S}, {S}, {S})", "{S} + {S}",
        'concat({S}, "-", {S})', "to_string({N})", "to_string({R})", "to_string({D})",
        "to_string({T})", "to_string({B})", "coalesce({S}, {S})", "least({S}, {S})",
        "{L}[1]", "{L}[{N}]", "case when {B} then {S} else {S} end",
        'case {S} when "a" then {S} when {S} then "q" end',
    ],
    "N": [
        "length({S})", "length({L})", "year({D})", "month({T})", "day({D})", "hour({T})",
        "minute({T})", "second({T})", "to_int({S})", "to_int({R})", "sign({R})", "sign({N})",
        "{D} - {D}", "coalesce({N}, 7)", "case when {B} then {N} end", "floor({N})",
        "greatest({N}, {N})",
    ],
    "R": [
        "abs({R})", "round({R})", "round({R}, 2)", "round({R}, -1)", "floor({R})", "ceil({R})",
        "sqrt({R})", "pow({R}, 2)", "to_float({S})", "to_float({N})", "{T} - {T}",
        "least({R}, {R})", "greatest({R}, {N}, {R})", "{R} * {R}", "{N} / {R}",
        "case when {B} then {R} when {B} then {N} else {R} end",
    ],
    "D": [
        "to_date({T})", "date({T})", "to_date({S})", 'trunc("month", {D})', 'trunc("week", {D})',
        "coalesce({D}, {D})",
        "case when year($p.day) > 1 and year($p.day) < 9999 then $p.day + days(3) - hours(49) end",
    ],
    "T": [
        "datetime({D})", "to_datetime({S})", 'trunc("hour", {T})', 'trunc("year", {T})',
        "greatest({T}, {T})",
        "case when year($p.t) between 2 and 9998 then $p.t - (days(2) + minutes(1)) else null end",
    ],
    "B": [
        "{S} = {S}", "{S} < {S}", "{N} >= {N}", "{R} != {N}", "{D} <= {D}", "{T} > {T}",
        "{S} ends_with {S}", "{S} like {S}", '{S} like "%a_%"', '{S} matches "[a-z]+.?"',
        "{S} contains {S}", "{S} starts_with {S}", "{N} between {N} and {R}",
        "{S} between {S} and {S}", "{S} in {L}", "not {B}", "{B} and {B}", "{B} or {B}",
        "{S} is null", "{L} is not null", "coalesce({B}, false)",
    ],
    "L": [
        'split({S}, "a")', 'split({S}, "")', "{L} + {L}", "{L} + {S}", "{L}[1..]", "{L}[..-1]",
        "{L}[{N}..{N}]", "coalesce({L}, [])", "case when {B} then {L} else {L} end",
    ],
}  # fmt: skip


class Cases:
    """Makes queries; every constant is written out or given as a parameter."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._params: dict[str, tuple[str, Any]] = {}

    def case(self) -> Case:
        self._params = {}
        rng = self.rng
        conditions = [self._condition(rng.randint(0, 2)) for _ in range(rng.choice([0, 1, 1, 2]))]
        body = self._answer()
        window = self._window()
        declared = ", ".join(f"${name}: {kind}" for name, (kind, _) in self._params.items())
        matched = "  ".join(["$p: P", *(f"({one})" for one in conditions)])
        text = f"query q({declared}) {{ match {{ {matched} }} {body} {window} }}"
        return Case(text, {name: value for name, (_, value) in self._params.items()})

    # --- what is returned ---

    def _answer(self) -> str:
        rng = self.rng
        columns = rng.sample([*SCALARS, *LISTS], rng.randint(1, 3))
        shown = ", ".join(f"$p.{one}" for one in columns)
        match rng.choice(["rows", "rows", "rows", "count", "groups", "distinct"]):
            case "count":
                return "return { count(*) as n }"
            case "groups":
                having = rng.choice(
                    ["", "", " having { n > 1 }", " having { count($p.s) < 3  n != 2 }"]
                )
                order = self._group_order(columns)
                if rng.random() < 0.3:
                    shown += f", {Values(rng).of(rng.choice('SNRDTB'))} as made"
                return f"return {{ {shown}, {self._aggregates()} }}{having}{order}"
            case "distinct":
                flat = [one for one in columns if one not in LISTS]  # no list may be ordered by
                order = [f"$p.{one}{self._way()}" for one in flat[: rng.randint(0, 2)]]
                return f"return distinct {{ {shown} }}{_order(order)}"
            case _:
                order = [self._order_key() + self._way() for _ in range(rng.randint(0, 3))]
                made = [f", {Values(rng).of(kind)} as {kind.lower()}x" for kind in "SNRDTBL"]
                shown += "".join(rng.sample(made, rng.choice([0, 1, 3])))
                return f"return {{ $p.k, {shown} }}{_order(order)}"

    def _aggregates(self) -> str:
        number = self.rng.choice(NUMBERS)
        made = ["count(*) as n"]
        made += self.rng.sample(
            [
                f"min($p.{number}) as lo",
                f"max($p.{number}) as hi",
                f"sum($p.{number}) as total",
                f"avg($p.{number}) as mean",
                f"count(distinct $p.{self.rng.choice(SCALARS)}) as different",
                f"collect($p.{self.rng.choice(SCALARS)}) as items",
                f"collect(distinct {Values(self.rng).of('S', 1)}) as texts",
                f"median($p.{number}) as middle",
                f"stddev($p.{number}) as spread",
                f"percentile($p.{number}, {self.rng.choice(['0', '0.3', '0.95', '1'])}) as share",
                "max($p.day) as last",
                "min($p.t) as first",
            ],
            self.rng.randint(0, 3),
        )
        return ", ".join(made)

    def _group_order(self, columns: list[str]) -> str:
        keys = ["n", *(f"$p.{one}" for one in columns if one not in LISTS)]
        return _order([one + self._way() for one in keys[: self.rng.randint(0, 2)]])

    def _order_key(self) -> str:
        if self.rng.random() < 0.3:
            return Values(self.rng).of(self.rng.choice("SNRDT"))
        return f"$p.{self.rng.choice([*SCALARS, 'k'])}"

    def _way(self) -> str:
        return self.rng.choice(["", " desc", " asc"])

    def _window(self) -> str:
        rng, parts = self.rng, []
        if rng.random() < 0.6:
            parts.append(f"limit {rng.choice([0, 1, 2, 5, 50, 2**62])}")
        if rng.random() < 0.3:
            parts.append(f"offset {rng.choice([0, 1, 3, 100, 2**62])}")
        return " ".join(parts)

    # --- conditions ---

    def _condition(self, depth: int) -> str:
        rng = self.rng
        if depth == 0 or rng.random() < 0.4:
            return self._leaf()
        match rng.choice(["not", "and", "or"]):
            case "not":
                return f"not ({self._condition(depth - 1)})"
            case word:
                return f"({self._condition(depth - 1)}) {word} ({self._condition(depth - 1)})"

    def _leaf(self) -> str:
        rng = self.rng
        kinds = ["columns", "list", "null", "text", "member", "sum", "call"]
        kind = rng.choice(["compare"] * 4 + kinds)
        if kind == "columns":
            one = rng.choice(SCALARS)
            others = NUMBERS if one in NUMBERS else [o for o in SCALARS if TYPES[o] == TYPES[one]]
            return f"$p.{one} {rng.choice(OPERATORS)} $p.{rng.choice(others)}"
        if kind == "list":
            one = rng.choice(SCALARS)
            word = rng.choice(["in", "not in"])
            return f"$p.{one} {word} {self._options(one)}"
        if kind == "null":
            return f"$p.{rng.choice([*SCALARS, *LISTS])} is {rng.choice(['', 'not '])}null"
        if kind == "text":
            word = rng.choice(["contains", "starts_with"])
            return f"$p.s {word} {self._constant('s')}"
        if kind == "member":
            one = rng.choice(list(LISTS))
            return f"$p.{one} contains {self._constant({'tags': 's', 'reals': 'd'}.get(one, 'l'))}"
        if kind == "sum":
            return self._sum()
        if kind == "call":
            return self._call() if rng.random() < 0.3 else Values(rng).of("B")
        one = rng.choice(SCALARS)
        if one == "b" and rng.random() < 0.5:
            return "$p.b"
        sides = [f"$p.{one}", self._constant(one)]
        if rng.random() < 0.3:
            sides.reverse()
        return f"{sides[0]} {rng.choice(OPERATORS)} {sides[1]}"

    def _sum(self) -> str:
        one, sign = self.rng.choice(NUMBERS), self.rng.choice("+-*/%")
        return f"$p.{one} {sign} {self._number()} {self.rng.choice(OPERATORS)} {self._number()}"

    def _call(self) -> str:
        rng = self.rng
        if rng.random() < 0.3:
            return f"lower($p.s) {rng.choice(OPERATORS)} {self._constant('s')}"
        one = rng.choice(SCALARS)
        alike = [other for other in SCALARS if TYPES[other] == TYPES[one]]
        args = [f"$p.{one}", f"$p.{rng.choice(alike)}"]
        if one not in NUMBERS:
            args.insert(rng.randint(0, 2), self._constant(one))
        return f"coalesce({', '.join(args)}) {rng.choice(OPERATORS)} {self._constant(one)}"

    def _options(self, name: str) -> str:
        rng = self.rng
        if name in NUMBERS:
            pool, kind = rng.choice([(WHOLE, "I64"), ([*REAL, NAN, INF], "F64")])
        else:
            pool, kind = self._pool(name), TYPES[name]
        values = [rng.choice(pool) for _ in range(rng.randint(0, 3))]
        if not values or rng.random() < 0.5:
            return self._given(f"[{kind}]", values)
        texts = [self._written(value, kind) for value in values]
        if any(text is None for text in texts):
            return self._given(f"[{kind}]", values)
        return f"[{', '.join(str(text) for text in texts)}]"

    def _constant(self, name: str) -> str:
        if name in NUMBERS:
            return self._number()
        value, kind = self.rng.choice(self._pool(name)), TYPES[name]
        if self.rng.random() < 0.1:
            return self._given(f"{kind}?", None)
        text = self._written(value, kind)
        return text if text is not None and self.rng.random() < 0.7 else self._given(kind, value)

    def _number(self) -> str:
        rng = self.rng
        if rng.random() < 0.5:
            value = rng.choice([*WHOLE, 2**64 - 1])
            small = -(2**63) < value < 2**63
            return self._given("I64", value) if small and rng.random() < 0.3 else str(value)
        kind = rng.choice(["F64", "F64", "F32"])
        value = rng.choice([*REAL, NAN, INF, -INF])
        if kind == "F32" and 1e39 < abs(value) < INF:
            value = 1.5
        written = self._written(value, kind) if rng.random() < 0.6 else None
        return self._given(kind, value) if written is None else written

    def _pool(self, name: str) -> list[Any]:
        others = {"s": ["b", "a'", "%", "_", "\n", "\x00", "a\x00b", "zz"], "c": ["blue"]}
        others["day"] = ["1900-01-01", "2024-03-01"]
        others["t"] = ["1677-09-21T00:12:43.145Z", "2262-04-11T23:47:16.855Z"]
        return [*(one for one in VALUES[name] if one is not None), *others.get(name, [])]

    def _given(self, kind: str, value: Any) -> str:
        name = f"x{len(self._params)}"
        self._params[name] = (kind, value)
        return f"${name}"

    def _written(self, value: Any, kind: str) -> str | None:
        """The constant as a literal; None where the language has none."""
        if kind == "String":
            return json.dumps(value, ensure_ascii=False) if "\x00" not in value else None
        if kind == "Bool":
            return "true" if value else "false"
        if kind in ("Date", "DateTime"):
            return f'{kind.lower()}("{value}")'
        if kind in ("F64", "F32"):
            if not math.isfinite(value):
                return None
            text = repr(value)
            return text if "." in text or "e" in text else f"{text}.0"
        return str(value)


def _order(keys: list[str]) -> str:
    return f" order {{ {', '.join(keys)} }}" if keys else ""


def comparable(table: pa.Table) -> pa.Table:
    """An answer that equals another exactly where both mean the same: Arrow's NaN equals none."""
    return pa.table({name: _without_nan(table[name]) for name in table.column_names})


def _without_nan(column: Any) -> Any:
    values = column.combine_chunks()
    if pa.types.is_list(values.type) and pa.types.is_floating(values.type.value_type):
        return pa.chunked_array([pa.array([repr(one) for one in values.to_pylist()], pa.string())])
    if pa.types.is_floating(values.type):
        shown = pa.scalar(math.pi, values.type)
        return pa.chunked_array([pc.if_else(pc.is_nan(values), shown, values)])
    return pa.chunked_array([values])
