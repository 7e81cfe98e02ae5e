"""The functions of the query language, told once, in one table.

An entry says how a call is written, which types it takes and gives, what null does to it, and its
line in the reference. The parser, the checker, the hints for unknown names, the shell's completion
and `tools/reference.py` read the table. A scalar function, a duration or an operator is one entry
here and the kernel of the same name in `engine/expr/kernels.py`. Searches, aggregates and what
asks the graph look at more than the values of one row: `check_expr` types them, and only their
names, the numbers of their arguments and their words are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ir
from omnigraph.compiler.query.types import (
    BOOL,
    DATE,
    DATETIME,
    F64,
    I64,
    STRING,
    U64,
    common_type,
    core,
    element,
    is_integer,
    is_null,
    is_number,
    is_text,
)
from omnigraph.compiler.text import MisfitError, closest
from omnigraph.model.schema import CALENDAR, PropertyType, Scalar

FunctionKind: TypeAlias = Literal[
    "scalar", "duration", "operator", "graph", "search", "aggregate", "clock"
]
# How far the units of `trunc` and of durations reach, in milliseconds; a month has no fixed reach.
TRUNC_UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
DURATIONS_MS: Final[Mapping[str, int]] = {
    "days": 86_400_000,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1_000,
}


class Accepts(msgspec.Struct, frozen=True):
    """What an argument may be: a word for messages, and the test of its type."""

    word: str
    test: Callable[[PropertyType], bool]


def is_calendar(kind: PropertyType) -> bool:
    return kind.scalar in CALENDAR and not kind.is_list


def _is_plain(kind: PropertyType) -> bool:
    return kind.scalar not in {Scalar.BLOB, Scalar.VECTOR} and not kind.is_list


def _is(*scalars: Scalar) -> Callable[[PropertyType], bool]:
    return lambda kind: kind.scalar in scalars and not kind.is_list


def _is_list(kind: PropertyType) -> bool:
    return kind.is_list


TEXT: Final = Accepts("String", is_text)
ANYTHING: Final = Accepts("a value", lambda kind: kind.scalar is not Scalar.BLOB)
_NUMBER: Final = Accepts("a number", is_number)
_WHOLE: Final = Accepts("a whole number", is_integer)
_LIST: Final = Accepts("a list", _is_list)
_SIZED: Final = Accepts("String or a list", lambda kind: is_text(kind) or kind.is_list)
_PLAIN: Final = Accepts("a single value", _is_plain)
_CALENDAR: Final = Accepts("Date or DateTime", is_calendar)
_MOMENT: Final = Accepts("DateTime", _is(Scalar.DATETIME))
_ORDERED: Final = Accepts(
    "numbers, texts, dates or times",
    lambda kind: is_number(kind) or is_text(kind) or is_calendar(kind),
)
_READABLE: Final = Accepts("a number or String", lambda kind: is_number(kind) or is_text(kind))
_COUNTABLE: Final = Accepts(
    "a number, Bool or String",
    lambda kind: is_number(kind) or is_text(kind) or _is(Scalar.BOOL)(kind),
)
_DATED: Final = Accepts("Date, DateTime or String", lambda kind: is_calendar(kind) or is_text(kind))

Gives: TypeAlias = Callable[[Sequence[ir.Expr]], PropertyType]


def _as_number(args: Sequence[ir.Expr]) -> PropertyType:
    """Whole numbers stay whole, in 64 bits; others are floats."""
    kind = args[0].type
    if not is_integer(kind) or is_null(args[0]):
        return F64
    return U64 if kind.scalar is Scalar.U64 else I64


def _like(place: int) -> Gives:
    return lambda args: args[place].type


def _items(args: Sequence[ir.Expr]) -> PropertyType:
    return element(args[0].type)


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function; `call` is how the reference writes it and `says` what it gives.

    `accepts` has an entry for every argument; the last `optional` of them may be left out, and the
    very last one may be repeated if `repeats`. `result` is a type, or tells it from the arguments,
    or is "common" for the type that all arguments can become: they are brought to it before the
    kernel runs. The result is null if `nulls` of the arguments are; "never" and "perhaps" do not
    depend on them. A function that `fails` may end in an error for a value.
    """

    name: str
    kind: FunctionKind = "scalar"
    call: str
    says: str
    accepts: tuple[Accepts, ...] = (ANYTHING,)
    optional: int = 0
    repeats: bool = False
    result: PropertyType | Gives | Literal["common"] = "common"
    nulls: Literal["any", "all", "perhaps"] = "any"
    fails: bool = False

    @property
    def least(self) -> int:
        return len(self.accepts) - self.optional

    @property
    def most(self) -> int | None:
        return None if self.repeats else len(self.accepts)

    def result_type(self, args: Sequence[ir.Expr], names: Sequence[str] = ()) -> PropertyType:
        """The type of a call, or `MisfitError`; `names` say what the arguments are called."""
        if len(args) < self.least or (self.most is not None and len(args) > self.most):
            raise self._misfit(f"`{self.name}` cannot take {len(args)} arguments")
        for index, arg in enumerate(args):
            accepts = self.accepts[min(index, len(self.accepts) - 1)]
            if not is_null(arg) and not accepts.test(arg.type):
                what = f" ({names[index]})" if index < len(names) and names[index] else ""
                message = f"{self.name} requires {accepts.word}, got {core(arg.type)}{what}"
                raise self._misfit(message)
        if self.result == "common":
            kind = self._common(args)
        else:
            kind = self.result if isinstance(self.result, PropertyType) else self.result(args)
        return replace(kind, nullable=self._may_be_null(args))

    def _may_be_null(self, args: Sequence[ir.Expr]) -> bool:
        if self.nulls == "perhaps":
            return True
        among = any if self.nulls == "any" else all
        return among(arg.type.nullable for arg in args)

    def _common(self, args: Sequence[ir.Expr]) -> PropertyType:
        found = common_type([arg for arg in args if not is_null(arg)])
        if found is not None:
            return found
        names = " and ".join(dict.fromkeys(core(arg.type) for arg in args if not is_null(arg)))
        raise self._misfit(f"{self.name} requires values of one type, got {names}")

    def _misfit(self, message: str) -> MisfitError:
        return MisfitError(message, code="T7", hint=f"write `{self.call}`")


def _scalar(
    call: str,
    says: str,
    accepts: tuple[Accepts, ...],
    result: PropertyType | Gives | Literal["common"],
    *,
    optional: int = 0,
    repeats: bool = False,
    nulls: Literal["any", "all", "perhaps"] = "any",
    fails: bool = False,
) -> Function:
    return Function(
        name=call.partition("(")[0],
        call=call,
        says=says,
        accepts=accepts,
        optional=optional,
        repeats=repeats,
        result=result,
        nulls=nulls,
        fails=fails,
    )


def _operator(
    name: str,
    call: str,
    says: str,
    accepts: tuple[Accepts, ...],
    result: PropertyType | Gives | Literal["common"],
    *,
    nulls: Literal["any", "perhaps"] = "any",
    fails: bool = False,
) -> Function:
    return replace(
        _scalar(call, says, accepts, result, nulls=nulls, fails=fails), name=name, kind="operator"
    )


def _part(name: str, says: str, accepts: Accepts = _CALENDAR) -> Function:
    return _scalar(f"{name}(d)", f"the {says}, a whole number", (accepts,), I64)


def _duration(name: str) -> Function:
    made = _scalar(
        f"{name}(n)",
        f"a duration of n {name}, to be added to or taken from a Date or DateTime",
        (_NUMBER,),
        I64,
        nulls="perhaps",
        fails=True,
    )
    return replace(made, kind="duration")


def _search(call: str, says: str, *, most: int = 2, optional: int = 0) -> Function:
    name, accepts = call.partition("(")[0], (ANYTHING,) * most
    return Function(
        name=name, kind="search", call=call, says=says, accepts=accepts, optional=optional
    )


def _aggregate(call: str, says: str) -> Function:
    return Function(name=call.partition("(")[0], kind="aggregate", call=call, says=says)


def _graph(call: str, says: str) -> Function:
    return Function(name=call.partition("(")[0], kind="graph", call=call, says=says)


_NEAREST: Final = (
    "score: cosine distance (0 same direction, 2 opposite), smallest first; q is a vector, that of "
    "another node (`$e.vec`), or text to be embedded; needs a limit; `exact` keeps it from an "
    "approximate index that the schema wishes for"
)
_EDITS: Final = "condition: a term within that many edits (2 if not given)"
_RRF: Final = "score: reciprocal rank fusion of two of the above (k 60 if not given); needs a limit"
_COUNT: Final = "how many values; of `count(*)` rows, of `count(distinct x)` different values"
_COLLECT: Final = (
    "the values as a list, in the order of the rows; of `collect(distinct x)` each once"
)
_PERCENTILE: Final = (
    "the number below which the share (0 to 1) of all lies, between two of them by their distance"
)
_HIGHLIGHT: Final = (
    "the text with marks around what the search text q finds in it; the marks are `**` if not given"
)
_SNIPPET: Final = (
    "about so many words of the text, those around which q finds most, with marks; `…` stands for "
    "what was left out"
)
_LOWER: Final = "the text in lower case, letter by letter as Unicode maps them"
_UPPER: Final = "the text in upper case, letter by letter as Unicode maps them (ß gives ẞ)"
_SUBSTRING: Final = (
    "n characters from place `from` on (the first is 0), or all of them; null if a number is "
    "negative"
)
_SPLIT: Final = "the parts between separators; an empty separator gives the characters"
_REPLACE: Final = "the text with b for every a; an empty a changes nothing"
_COALESCE: Final = "the first argument that is not null, as the one type that fits all of them"
_ROUND: Final = (
    "the nearest whole number, or number of so many decimal digits, halves away from zero"
)
_TRUNC: Final = (
    'the first day or moment of its "year", "quarter", "month", "week" (from Monday), "day", '
    '"hour", "minute" or "second"'
)
_TO_INT: Final = "the whole number that it is or says, without its fraction; null if there is none"
_TO_STRING: Final = "as text; dates and times as exports write them"
_TO_DATE: Final = "the day of a DateTime or of `YYYY-MM-DD`; null if there is none"
_TO_DATETIME: Final = "the moment of RFC 3339 text, or where a day begins; null if there is none"
_SLICE: Final = (
    "the elements from place a up to, not including, b; a negative place counts from the end"
)

SCALARS: Final[tuple[Function, ...]] = (
    # text
    _scalar("lower(text)", _LOWER, (TEXT,), STRING),
    _scalar("upper(text)", _UPPER, (TEXT,), STRING),
    _scalar("trim(text)", "the text without white space at its ends", (TEXT,), STRING),
    _scalar("length(x)", "how many characters, or elements of a list", (_SIZED,), I64),
    _scalar(
        "substring(text, from, n)",
        _SUBSTRING,
        (TEXT, _WHOLE, _WHOLE),
        STRING,
        optional=1,
        nulls="perhaps",
    ),
    _scalar("replace(text, a, b)", _REPLACE, (TEXT, TEXT, TEXT), STRING),
    _scalar("split(text, separator)", _SPLIT, (TEXT, TEXT), replace(STRING, is_list=True)),
    _scalar("concat(a, b, …)", "the texts one after the other", (TEXT,), STRING, repeats=True),
    _scalar("highlight(text, q, before, behind)", _HIGHLIGHT, (TEXT,) * 4, STRING, optional=2),
    _scalar(
        "snippet(text, q, words, before, behind)",
        _SNIPPET,
        (TEXT, TEXT, _WHOLE, TEXT, TEXT),
        STRING,
        optional=2,
        fails=True,
    ),
    # null
    _scalar("coalesce(a, b, …)", _COALESCE, (ANYTHING,), "common", repeats=True, nulls="all"),
    # numbers
    _scalar("abs(x)", "the number without its sign", (_NUMBER,), _as_number, fails=True),
    _scalar("round(x, digits)", _ROUND, (_NUMBER, _WHOLE), _as_number, optional=1, fails=True),
    _scalar("floor(x)", "the greatest whole number that is not above x", (_NUMBER,), _as_number),
    _scalar("ceil(x)", "the least whole number that is not below x", (_NUMBER,), _as_number),
    _scalar("sqrt(x)", "the square root, a float; NaN of a negative number", (_NUMBER,), F64),
    _scalar("pow(x, y)", "x to the power of y, a float", (_NUMBER, _NUMBER), F64),
    _scalar("sign(x)", "-1, 0 or 1; null of NaN", (_NUMBER,), I64, nulls="perhaps"),
    _scalar("least(a, b, …)", "the smallest; NaN is above", (_ORDERED,), "common", repeats=True),
    _scalar("greatest(a, b, …)", "the largest; NaN is above", (_ORDERED,), "common", repeats=True),
    # conversion
    _scalar("to_string(x)", _TO_STRING, (_PLAIN,), STRING),
    _scalar("to_int(x)", _TO_INT, (_COUNTABLE,), I64, nulls="perhaps"),
    _scalar(
        "to_float(x)", "the number; null if a text is none", (_READABLE,), F64, nulls="perhaps"
    ),
    _scalar("to_date(x)", _TO_DATE, (_DATED,), DATE, nulls="perhaps"),
    _scalar("to_datetime(x)", _TO_DATETIME, (_DATED,), DATETIME, nulls="perhaps"),
    _scalar(
        "date(x)",
        "the same as `to_date(x)`; of a text in quotes a literal",
        (_DATED,),
        DATE,
        nulls="perhaps",
    ),
    _scalar(
        "datetime(x)",
        "the same as `to_datetime(x)`; of a text in quotes a literal",
        (_DATED,),
        DATETIME,
        nulls="perhaps",
    ),
    # lists
    _scalar(
        "range(a, b)",
        "the whole numbers from a to b, both included",
        (_WHOLE, _WHOLE),
        replace(I64, is_list=True),
        fails=True,
    ),
    # time
    _part("year", "year"),
    _part("month", "month, from 1"),
    _part("day", "day of the month, from 1"),
    _part("hour", "hour (UTC)", _MOMENT),
    _part("minute", "minute", _MOMENT),
    _part("second", "whole second", _MOMENT),
    _scalar("trunc(unit, d)", _TRUNC, (TEXT, _CALENDAR), _like(1), fails=True),
    *map(_duration, DURATIONS_MS),
)
OPERATORS: Final[tuple[Function, ...]] = (
    _operator("ends_with", "text ends_with part", "whether it ends so", (TEXT, TEXT), BOOL),
    _operator(
        "like",
        "text like pattern",
        "whether the whole text is of the pattern: `%` any text, `_` one character, `\\` before "
        "one of them means itself",
        (TEXT, TEXT),
        BOOL,
    ),
    _operator(
        "matches",
        "text matches pattern",
        "whether the whole text is of the regular expression (RE2, linear time)",
        (TEXT, TEXT),
        BOOL,
        fails=True,
    ),
    _operator(
        "element",
        "list[place]",
        "the element at a place (the first is 0, the last -1); null if there is none",
        (_LIST, _WHOLE),
        _items,
        nulls="perhaps",
    ),
    _operator("slice", "list[a..b]", _SLICE, (_LIST, _WHOLE, _WHOLE), _like(0)),
    _operator("joined", "list + list", "the elements of both", (_LIST, _LIST), "common"),
    _operator(
        "single",
        "list + value",
        "the elements and one more",
        (_PLAIN,),
        lambda args: replace(args[0].type, is_list=True),
    ),
    _operator(
        "shifted", "d + duration", "the day or moment", (_CALENDAR, _WHOLE), _like(0), fails=True
    ),
    _operator(
        "since",
        "d - d",
        "seconds between moments, or days between dates",
        (_CALENDAR, _CALENDAR),
        lambda args: I64 if args[0].type.scalar is Scalar.DATE else F64,
    ),
)
_NOW: Final = Function(
    name="now", kind="clock", call="now()", accepts=(), says="the moment of this run, a DateTime"
)

FUNCTIONS: Final[Mapping[str, Function]] = {
    made.name: made
    for made in (
        *SCALARS,
        *OPERATORS,
        _graph("id($v)", "the id of a node or edge"),
        _graph("type($v)", "the name of its type"),
        _graph(
            "degree($v, edge)",
            "how many edges go out from the node; with `<edge>`, how many touch it",
        ),
        _graph(
            "shortest($a, $b, edges[, weight])",
            "the shortest path between two nodes along these edges (`one|other`, `<edge>`, `any`): "
            "fewest edges, or least sum of a property that is 0 or more; null if there is none",
        ),
        _graph("nodes(path)", "the ids of its nodes, in order"),
        _graph("edges(path)", "the ids of its edges, in order"),
        _search("search($v.text, q)", "condition: any term of q occurs"),
        _search("fuzzy($v.text, q, edits)", _EDITS, most=3, optional=1),
        _search("match_text($v.text, q)", "condition: the terms of q in a row"),
        _search("bm25($v.text, q)", "score: relevance, best first in `order`"),
        _search("nearest($v.vec, q, exact)", _NEAREST, most=3, optional=1),
        _search("rrf(rank, rank, k)", _RRF, most=3, optional=1),
        _aggregate("count(x)", _COUNT),
        _aggregate("sum(x)", "the sum of numbers"),
        _aggregate("avg(x)", "the mean of numbers, a float"),
        _aggregate("min(x)", "the smallest number, text, day or moment"),
        _aggregate("max(x)", "the largest number, text, day or moment"),
        _aggregate("collect(x)", _COLLECT),
        _aggregate("median(x)", "the middle of numbers, a float"),
        _aggregate("stddev(x)", "the standard deviation of a sample; null of fewer than two"),
        _aggregate("percentile(x, share)", _PERCENTILE),
        _NOW,
    )
}
# Functions that show what a search found: how many arguments stand before the marks.
SHOWING: Final[Mapping[str, int]] = {"highlight": 2, "snippet": 3}
SHOWN_MARK: Final = "**"
# Names that are called like functions; operators are written between their values.
CALLABLE: Final[frozenset[str]] = frozenset(
    name for name, made in FUNCTIONS.items() if made.kind != "operator"
)

# --- names of other languages ------------------------------------------------------------------

_ELSEWHERE: Final[Mapping[str, str]] = {
    "`length(x)`": "size len char_length character_length cardinality array_length list_length",
    "`lower(text)`": "tolower lcase",
    "`upper(text)`": "toupper ucase",
    "`trim(text)`": "ltrim rtrim btrim strip",
    "`substring(text, from, n)`": "substr mid left right",
    "`coalesce(a, b)`": "ifnull nvl isnull",
    "`pow(x, y)`": "power exp",
    "`ceil(x)`": "ceiling",
    "`to_int(x)`": "tointeger toint int",
    "`to_string(x)`, `to_int(x)`, `to_float(x)` or `to_date(x)`": "cast convert try_cast",
    "`to_float(x)`": "tofloat float",
    "`to_string(x)`": "tostring str",
    "`to_date(x)`": "todate localdate",
    "`trunc(unit, d)`": "date_trunc datetrunc truncate",
    "`days(n)` and its like": "duration interval date_add dateadd",
    "`now()`": "timestamp current_timestamp getdate today",
    "`text matches pattern`": "regexp regexp_match regexp_like regex regexp_matches",
    "`text starts_with part`": "startswith",
    "`text ends_with part`": "endswith",
    "`list[0]`": "head first list_extract",
    "`list[-1]`": "last",
    "`least(a, b)` of values, `min(x)` of rows": "minimum",
    "`greatest(a, b)` of values, `max(x)` of rows": "maximum",
    "`avg(x)`": "average mean",
    "`collect(x)`": "collect_list collect_set array_agg group_concat string_agg list listagg",
    "`stddev(x)`": "stdev stddev_samp std",
    "`percentile(x, 0.95)`": "percentilecont percentiledisc quantile percentile_cont",
    "`type($v)`": "label labels",
    "`degree($v, edge)`": "out_degree outdegree",
    "`id($v)`": "element_id elementid internal_id oid",
    "`$p.*` in `return`": "properties keys to_map row_to_json",
    "`case when $p.age > 3 then 1 else 0 end`": "if iif decode choose",
    "`case when x = y then null else x end`": "nullif",
    "`year(d)`, `month(d)` and their like": "extract date_part datepart",
    "`order { $p.age } limit 10`": "row_number rank dense_rank first_value ntile",
    "`x is not null`": "exists isnotnull",
    '`"a" in $p.tags`': "any all none array_contains list_contains has",
    "`shortest($a, $b, knows)`": "shortestpath allshortestpaths shortest_path",
    "`nodes($path)`": "path_nodes vertices",
    "`edges($path)`": "relationships rels",
    "`length($path)`": "path_length path_len",
}
_MEANT: Final[Mapping[str, str]] = {
    word: ours for ours, words in _ELSEWHERE.items() for word in words.split()
}


def unknown_function_hint(name: str) -> str | None:
    """What to write for a function that we do not have: its name here, or the nearest ones."""
    if name.lower() in _MEANT:
        return f"write {_MEANT[name.lower()]}"
    first = closest(name, CALLABLE)
    if first is None or first == name:
        return None
    second = closest(name, CALLABLE - {first})
    return (
        f"did you mean `{first}`?" if second is None else f"did you mean `{first}` or `{second}`?"
    )
