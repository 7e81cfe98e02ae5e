"""Texts as other languages write them, and the same in `.gq`.

The parser refuses a text at one place. A *habit* is a pattern of Cypher, GQL, SQL or Gremlin, or a
common slip; if it covers that place, it explains the error: its hint shows how the same is written
here, and the place moves to where the habit begins. Nothing here is asked about a text that is
right. Patterns look at a window around the place, so that the size of a text does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final, TypeAlias

import msgspec

from omnigraph.compiler.query.hints.translate import (
    NODE,
    ROAD,
    SURE_ROAD,
    bracketed_list,
    clause_of_road,
    columns,
    cypher_read,
    gremlin,
    inserted,
    likened,
    lowered,
    moved_condition,
    named_path,
    null_test,
    parameter_type,
    quotes,
    set_of_match,
    sql_delete,
    sql_insert,
    sql_read,
    sql_update,
    sql_values,
    translated,
    upserted,
    walked,
    whole_match,
    written,
)
from omnigraph.compiler.text import Problem, SourceText, parse_error
from omnigraph.errors import ParseError

_BEFORE_MAX, _AFTER_MAX = 200, 400  # characters around the place of an error that are looked at
_AHEAD_MAX = 20  # characters that a habit may begin behind the place where the parser gave up
A_QUERY: Final = "a query has a name: `query name() { match { $p: Person } return { $p.name } }`"
_SCHEMA: Final = "types are declared in a schema: "
_UNCLOSED: Final = "a `}` is missing: every `{` is closed, and the query itself too"
_TRANSACTION: Final = (
    "each query is one commit; several are one in `with graph.transaction() as tx`, or with "
    "`omnigraph mutate --transaction`"
)
NODES: Final = "a node is `$p: Person`, an edge `$p knows $f`: `match { $p: Person  $p knows $f }`"
# What people write by habit from Cypher, GQL and SQL where a word is expected, and what is meant.
WORDS: Final[Mapping[str, str]] = {
    "select": "write `match { $p: Person } return { $p.name }`",
    "from": "write `match { $p: Person }`",
    "create": 'write `insert Person { name: "Ann" }`',
    "merge": "write `upsert Person { ... }`, which inserts or changes only what is listed",
    "set": "write `update Person set { age: 1 } where ...`",
    "detach": "write `delete Person where ...`; the edges of a node go with it",
    "where": "conditions are clauses of `match { ... }`",
    "group": "every column of `return` that is no aggregate is a group key",
    "skip": "write `offset 10`",
    "by": "write `order { $p.age desc }`",
    "return": "the columns stand in braces: `return { $p.name, $p.age }`",
    "match": "a query has a name: `query find() { match { $p: Person } return { $p.name } }`",
}
Says: TypeAlias = str | Callable[[re.Match[str]], str]


class Habit(msgspec.Struct, frozen=True, dict=True):
    """A pattern, and what is written instead: a template of `Match.expand`, or a function, which
    may find nothing to say."""

    text: str
    says: Says
    typed: bool = False  # it also explains errors of the checker
    moves: bool = True  # the error moves to the group `at`, or to where the pattern begins

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        # When a text is refused, and not before: all patterns take 70 ms of every process.
        return re.compile(self.text, re.IGNORECASE)

    def hint(self, found: re.Match[str]) -> str:
        return found.expand(self.says) if isinstance(self.says, str) else self.says(found)


def taught(error: ParseError, source: SourceText) -> ParseError:
    """The error, or the same with a hint for somebody who thinks in another language."""
    at = source.offset(error.line, error.column)
    told = _explained(source.text, at, typed=False)
    if told is None:
        return error
    message = error.message.removeprefix("parse error: ")
    return parse_error(source, told[0], message, hint=told[1])


def taught_problem(problem: Problem, source: SourceText) -> Problem:
    """The same for what the checker refuses, where a text was readable but meant something else."""
    at = source.offset(problem.line, problem.column)
    told = _explained(source.text, at, typed=True)
    if told is None:
        return problem
    line, column = source.place(told[0])
    return msgspec.structs.replace(
        problem, line=line, column=column, excerpt=source.excerpt(line, column), hint=told[1]
    )


def _explained(text: str, at: int, *, typed: bool) -> tuple[int, str] | None:
    """Where the habit around a place begins, and its hint."""
    if not typed and _is_outside(text, at):
        for habit in _STATEMENTS:
            found = habit.pattern.match(text, at, at + _AFTER_MAX)
            if found is not None:
                return at, habit.hint(found)
        return None
    if not typed and not text[at:].strip():
        return at, _UNCLOSED
    low, high = max(0, at - _BEFORE_MAX), at + _AFTER_MAX
    for habit in _HABITS:
        if typed and not habit.typed:
            continue
        for found in habit.pattern.finditer(text, low, high):
            if found.start() > at:
                break
            named = found.start("at") if "at" in habit.pattern.groupindex else found.start()
            covers = at <= found.end() and named <= at + _AHEAD_MAX
            hint = habit.hint(found) if covers else ""
            if hint:
                return named if habit.moves else at, hint
    return None


_HEADER = re.compile(r"\bquery\b[^{}]*$", re.IGNORECASE)
_NO_CODE = re.compile(r'"(?:[^"\\\n]|\\.)*+"|//[^\n]*+')


def _is_outside(text: str, at: int) -> bool:
    """Whether a place is outside all queries."""
    before = _NO_CODE.sub("", text[:at])
    return before.count("{") <= before.count("}") and not _HEADER.search(before[-_BEFORE_MAX:])


# --- statements outside of queries ---------------------------------------------------------------


def _habit(pattern: str, says: Says, *, typed: bool = False, moves: bool = True) -> Habit:
    return Habit(pattern, says, typed, moves)


_STATEMENTS: Final[tuple[Habit, ...]] = (
    _habit(
        r"([\w./\\~-]+\.gq)\s*$",
        r'a path is not read: pass `Path("\1").read_text()`, or `omnigraph query --query \1`',
    ),
    _habit(r"(?:explain|profile|analyze)\b", "`omnigraph query --explain` shows how a query runs"),
    _habit(
        rf"optional\s+match\s+({ROAD})",
        lambda found: (
            "it is a clause of a match: "
            f"`match {{ $a: Person  optional {{ {translated(found.group(1))} }} }}`"
        ),
    ),
    _habit(
        r"match\s+((?:(?!\bwhere\b|\breturn\b)[^{]|\{[^{}]*\})*)(?:where\s+((?:(?!\breturn\b).)+))?"
        r"(?:return\s+(distinct\s+)?((?:(?!\border\s+by\b|\bskip\b|\blimit\b).)+))?"
        r"(?:order\s+by\s+((?:(?!\bskip\b|\blimit\b).)+))?(?:limit\s+(\d+))?",
        lambda found: cypher_read(found) if "(" in found.group(1) else A_QUERY,
    ),
    _habit(r"create\s+(?:\w+\s+)?index\b", _SCHEMA + "write `@index` behind the property"),
    _habit(
        r"create\s+constraint\b",
        _SCHEMA + "write `@unique` or `@key` behind the property, or `@check(...)`",
    ),
    _habit(r"create\s+(?:node\s+)?table\s+(\w+)", _SCHEMA + r"`node \1 { name: String @key }`"),
    _habit(r"create\s+(?:graph|database)\b", "a graph is made by `omnigraph init --schema x.pg`"),
    _habit(r"(?:alter|drop)\b", _SCHEMA + "change the file, then `omnigraph schema apply`"),
    _habit(r"(?:show|describe|desc)\b", _SCHEMA + "`omnigraph schema show` prints it"),
    _habit(
        r"call\s+(?:gds|algo)\b",
        "algorithms are called from Python: `graph.algorithms.pagerank(...)`",
    ),
    _habit(r"call\b", _SCHEMA + "`omnigraph schema show` prints it; there are no procedures"),
    _habit(r"(?:load\s+csv|copy)\b", "data is read by `omnigraph load` or `graph.load(...)`"),
    _habit(r"use\b", "the graph is named by the command: `omnigraph query --store DIR`"),
    _habit(r"(?:begin|commit|rollback|start\s+transaction)\b", _TRANSACTION),
    _habit(rf"create\s+({NODE})", inserted),
    _habit(rf"insert\s+({NODE})", inserted),
    _habit(rf"merge\s+({NODE})", upserted),
    _habit(
        r"unwind\s+\$?(\w+)\s+as\s+\$?(\w+)",
        r"write `query add($\1: [{name: String}]) "
        r"{ for $\2 in $\1 insert Person { name: $\2.name } }`",
    ),
    _habit(
        r"(?:detach\s+)?delete\s+(?!from\b)\$?([a-z]\w*)\s*$",
        "write `query drop($n: String) { delete Person where name = $n }`; "
        "the edges of a node go with it",
    ),
    _habit(
        r"select\s+(distinct\s+)?((?:(?!\bfrom\b).)+?)\s+from\s+([A-Za-z]\w*)"
        r"(?:\s+(?:as\s+)?(?!where\b|order\b|group\b|limit\b|join\b)\w+)?"
        r"(?:\s+where\s+((?:(?!\border\b|\bgroup\b|\blimit\b).)+))?",
        sql_read,
    ),
    _habit(r"insert\s+into\s+(\w+)\s*(?:\(([^)]*)\))?\s*(?:values\s*\(([^)]*)\))?", sql_insert),
    _habit(r"update\s+(\w+)\s+set\s+((?:(?!\bwhere\b)[^{])+?)(?:\s+where\s+(.+))?$", sql_update),
    _habit(r"delete\s+from\s+(\w+)(?:\s+where\s+(.+))?", sql_delete),
    _habit(
        r"truncate\s+(?:table\s+)?(\w+)",
        r"write `query clear() { delete \1 where id is not null }`",
    ),
    _habit(
        r"with\b",
        "stages are parts of a query: `match { ... } with { $c, count($p) as n } return { $c, n }`",
    ),
    _habit(r"g\.\w+\(\).*", gremlin),
    _habit(r"\}", "one `}` too many: every brace of the query before is closed"),
    _habit(
        r"(?:match|insert|update|delete|upsert|for|return|from|select|create|merge|where|unwind|"
        r"def|function|let|var|foreach|[{(\[])",
        A_QUERY,
    ),
)


# --- inside a query ------------------------------------------------------------------------------


_V: Final = r"\$[a-z_]\w*"
_P: Final = r"\$[a-z_]\w*(?:\.\w+)?"
_VALUE: Final = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[-\w.$]+)"

_HABITS: Final[tuple[Habit, ...]] = (
    # the head of a query, and braces that are not closed
    _habit(
        r"\bquery\s+\w+\s*\([^)]*\)\s*(?P<at>->|:)",
        "a query has no result type; its columns tell it",
    ),
    _habit(r"\bquery\s*(?P<at>\()", "a query has a name: `query name() { ... }`"),
    _habit(
        r"\bquery\s+\w+\s*\((?:[^)]*,\s*)?(?P<at>([a-z]\w*)\s*:\s*(\w+))",
        r"a parameter takes a dollar sign: `$\2: \3`",
    ),
    _habit(
        r"\bquery\s+\w+\s*\((?:[^)]*,\s*)?(\$\w+)\s*(?P<at>[,)])",
        r"a parameter has a type: `\1: String`",
    ),
    _habit(r"\bquery\s+\w+\s*\([^)]*?:\s*\[?(?P<at>[A-Za-z]\w*)", parameter_type),
    _habit(
        r"\bquery\s+\w+\s*\([^)]*\)\s*\{\s*(?P<at>return)\b",
        "a read begins with a match: `match { $p: Person } return { $p.name }`",
    ),
    _habit(
        r"\b(?:match|return|with)\s*(?:distinct\s*)?\{(?:[^{}]|\{[^{}]*\})*?"
        r"\b(?P<at>return|with|order|having|union|limit|offset)\s*(?:distinct\s*)?\{",
        lambda found: f"a `}}` is missing before `{found.group('at')}`",
    ),
    _habit(r"\}\s*(?P<at>query)\s+\w+\s*\(", "a `}` is missing before the next query"),
    # patterns of Cypher and GQL
    _habit(
        rf"\b(?P<at>optional)\s+match\s*(?:\{{(?P<inner>[^{{}}]*)\}}|(?P<road>{ROAD}))",
        lambda found: (
            "it is a clause of the match before: `optional { "
            + (
                found.group("inner").strip()
                if found.group("inner")
                else translated(found.group("road"))
            )
            + " }`"
        ),
    ),
    _habit(
        rf"\b(?:match\s+)?(?P<at>(?:any|all)\s+shortest)\s*(?P<road>{ROAD})?",
        "a shortest way is bound by `$a $path:knows{1,4} $b`, or `shortest($a, $b, knows)`",
    ),
    _habit(
        r"\bshortest_?path\s*\(|\ballShortestPaths\s*\(",
        "a shortest way is `shortest($a, $b, knows)`, or bound by `$a $path:knows{1,4} $b`",
    ),
    _habit(rf"\b(\w+)\s*=\s*(?P<road>{SURE_ROAD})", named_path),
    _habit(rf"\bmatch\s*(?P<at>(?P<road>{SURE_ROAD}))", whole_match),
    _habit(
        rf"\bnot\s+(?P<at>(?P<road>{SURE_ROAD}))",
        lambda found: f"write `not {{ {translated(found.group('road'))} }}`",
    ),
    _habit(
        rf"\bexists\s*\(\s*(?P<at>(?P<road>{SURE_ROAD}))",
        lambda found: f"write `exists {{ {translated(found.group('road'))} }}`",
    ),
    _habit(
        rf"\b(?P<verb>create|insert)\s+(?P<node>{NODE})",
        lambda found: f"write `insert {written(found.group('node'))}`",
    ),
    _habit(
        rf"\bmerge\s+(?P<node>{NODE})",
        lambda found: f"write `upsert {written(found.group('node'))}`",
    ),
    _habit(rf"(?P<road>{SURE_ROAD})", clause_of_road),
    _habit(rf"({_V})\s*(?P<at>(?:<-|-)\[[^\][\n]*\](?:->|-)|-->|--)\s*({_V})", walked),
    _habit(
        rf"({_V})\s*(?P<at>->)\s*({_V})",
        "there are no arrows; an edge is walked by its name: `$a knows $b`",
    ),
    _habit(
        rf"({_V})\s*<(?P<at>-)\s*({_V})(?!\.)",
        r"there are no arrows; `$other edge \1` walks the other way",
        typed=True,
    ),
    _habit(
        rf"({_V})\s+(\w+)(?P<at>\*)(\d*)(?:\.\.(\d*))?",
        lambda found: (
            f"hops stand in braces: `{found.group(1)} {found.group(2)}"
            f"{{{found.group(4) or 1},{found.group(5) or ''}}} $other`"
        ),
    ),
    _habit(rf"({_V})\s+(\w+)(?P<at>\+)\s+{_V}", r"hops stand in braces: `\1 \2{1,} $other`"),
    _habit(rf"({_V})\s+(?P<at>\[)\s*:?(\w+)\]", r"an edge is walked by its name: `\1 \3 $other`"),
    _habit(r"\{(\d+)(?P<at>\})", r"as many hops as that are `{\1,\1}`"),
    _habit(r"\{(\d+)(?P<at>\.\.)(\d+)", r"hop bounds are written `{min,max}`: `{\1,\3}`"),
    _habit(
        r"\b(?:any|all|none|single)\s*\(\s*\w+\s+in\b",
        'whether a list has a value is `$p.tags contains "a"`, or `"a" in $p.tags`',
    ),
    # where, and other clauses that are none here
    _habit(
        r"\bmatch\s*\{(?P<inside>[^{}]*)\}\s*(?P<at>where|filter)\b\s+"
        r"(?P<test>(?:(?!\breturn\b)[^{}])+)",
        moved_condition,
    ),
    _habit(
        r"\breturn\s*\{[^{}]*\}\s*(?P<at>where|filter)\b\s*(?P<test>[^{}]*)",
        lambda found: (
            "a condition on rows is a clause of `match`, one on groups is "
            f"`having {{ {found.group('test').strip() or 'n > 1'} }}`"
        ),
    ),
    _habit(
        r"\bmatch\s*\{(?:[^{}]|\{[^{}]*\})*?\b(?P<at>where|filter)\b\s+",
        "conditions are clauses of `match { ... }`, without a word",
    ),
    _habit(
        r"\b(?:left|right|full)\s+(?:outer\s+)?join\b",
        "what may be missing is `optional { $p worksAt $c }`",
    ),
    _habit(
        r"\b(?:inner\s+|cross\s+)?join\s+(\w+)",
        "types are joined by walking an edge: `$p worksAt $c`",
    ),
    _habit(r"\bset\s+\$?(\w+)\.(\w+)\s*=\s*([^\s,}]+)", set_of_match),
    _habit(
        r"\bset\s+(?P<at>(\w+)\s*=\s*([^\s,{}]+))",
        lambda found: (
            f"assignments stand in braces: `set {{ {found.group(2)}: {quotes(found.group(3))} }}`"
        ),
    ),
    _habit(r"\bdetach\s+delete\s+\$?(\w+)", r"write `delete $\1`; the edges of a node go with it"),
    _habit(r"\bremove\s+\$?(\w+)\.(\w+)", r"write `update $\1 set { \2: null }`"),
    _habit(r"\bforeach\b", "write `for $row in $rows { insert Person { name: $row.name } }`"),
    _habit(r"\bdelete\s+(?P<at>from)\s+(\w+)", r"write `delete \2 where name = $name`"),
    _habit(r"\binsert\s+(?P<at>into)\s+(\w+)", r"write `insert \2 { name: $name }`"),
    _habit(
        r"\binsert\s+(\w+)\s*(?P<at>\()([^)]*)\)(?:\s*values\s*\(([^)]*)\))?",
        sql_values,
    ),
    _habit(r"\bupdate\s+(\w+)\s*(?P<at>\{[^{}]*\})", r"write `update \1 set \2 where ...`"),
    _habit(
        r"\bon\s+(?:conflict|duplicate|match|create)\b",
        "`insert ... or nothing` keeps what is there, `upsert ...` changes only what it lists",
    ),
    _habit(
        r"\blet\s+(\w+)\s*=\s*([^{}]+?)\s+return", r"write `with { $p, \2 as \1 }` after the match"
    ),
    _habit(r"\bnext\b", "a further stage is `with { ... } match { ... } return { ... }`"),
    _habit(
        r"\b(?:except|intersect|minus)\b", "what must not be there is `not { ... }` in the match"
    ),
    _habit(
        r"\bover\s*\([^)]*",
        "there are no windows; a stage groups first: `with { $c, sum($p.age) as n }`",
        typed=True,
    ),
    _habit(r"\bfetch\s+(?:first|next)\s+(\d+)", r"write `limit \1`"),
    _habit(r"\bskip\s+(\$?\w+)", r"write `offset \1`"),
    _habit(
        r"\bgroup\s+by\b",
        "leave it out: every column of `return` that is no aggregate is a group key",
    ),
    _habit(
        r"\border\s+(?P<at>by)\s+([^{}]+?)(?=\s*(?:\blimit\b|\bskip\b|\boffset\b|[{}]|$))",
        lambda found: f"sort keys stand in braces: `order {{ {lowered(found.group(2))} }}`",
    ),
    _habit(r"\border\s+(?P<at>by)\b", "sort keys stand in braces: `order { $p.age desc }`"),
    _habit(
        r"\bhaving\s+(?P<at>[^{}\s][^{}]*)",
        lambda found: (
            f"conditions on groups stand in braces: `having {{ {found.group('at').strip()} }}`"
        ),
    ),
    _habit(r"\blimit\s+(\d+)\s*(?P<at>,)\s*(\d+)", r"write `limit \3 offset \1`"),
    _habit(r"\b(limit|offset)\s+\S+\s*(?P<at>[-+*/])", r"`\1` takes a whole number or a parameter"),
    _habit(r"\btop\s+(?P<at>(\d+))", r"write `limit \2` after the columns", typed=True),
    _habit(
        r"\bnulls\s+(?:first|last)\b",
        "nulls come first, with `desc` last; `coalesce(x, 0)` places them elsewhere",
    ),
    _habit(r"\b(asc|desc)ending\b", r"write `\1`"),
    # columns
    _habit(
        r"\breturn\s+(?:distinct\s+)?\{?\s*(?P<at>\*)",
        "every property of a node is `return { $p.* }`",
    ),
    _habit(
        rf"\breturn\s+(distinct\s+)?(?P<at>({_P}(?:\s*,\s*{_P})*))",
        columns,
    ),
    _habit(
        r"\breturn\s+(distinct\s+)?(?P<at>([a-z]\w*(?:\.\w+)?(?:\s*,\s*[a-z]\w*(?:\.\w+)?)*))\s*\}",
        columns,
    ),
    _habit(rf"({_V})\s*(?P<at>\{{\s*\.)", r"every property is `\1.*`, a few are `\1.name, \1.age`"),
    _habit(
        rf"({_P})(?P<at>::)\s*(\w+)",
        "a value is converted by `to_string(x)`, `to_int(x)`, `to_float(x)` or `to_date(x)`",
    ),
    _habit(
        rf"\breturn\b[^{{}}]*\{{[^{{}}]*?({_V})(?P<at>:)\s*((?-i:[A-Z])\w*)",
        r"`\1: \3` is a clause of `match`",
    ),
    _habit(r"\b(?:as)\s+(?P<at>(?-i:[A-Z])\w*)", "names of columns start with a lower-case letter"),
    _habit(r"\bas\s*(?P<at>\})", "the column's name is missing: `$p.name as name`"),
    _habit(
        r"\[\s*(?P<at>\w+\s+in\s+)",
        "there are no list comprehensions; `unwind $p.tags as $tag` gives a row for each element "
        "of a list",
    ),
    _habit(
        r"\bcount\s*\(\s*distinct\s+[^,()]+(?P<at>,)",
        "count takes one value: `count(distinct $p.name)`; pairs are counted after a stage: "
        "`with { $p.name as a, $p.age as b, count(*) as n }`",
    ),
    # conditions
    _habit(
        rf"({_P})\s+(?P<at>(starts|ends)\s+with)\b\s*",
        lambda found: f'write `{found.group(1)} {found.group(3).lower()}_with "A"`',
    ),
    _habit(
        rf"({_P})\s+(?P<at>(starts|ends)_?with)\b(?!\s*\()\s*",
        lambda found: f'write `{found.group(1)} {found.group(3).lower()}_with "A"`',
        typed=True,
    ),
    _habit(
        rf"({_P})\s+(?P<at>not)\s+(between\s+{_VALUE}\s+and\s+{_VALUE}|(?:like|matches|contains|starts_with|ends_with)\s+{_VALUE})\s*",
        r"write `not (\1 \3)`",
        typed=True,
    ),
    _habit(
        rf"({_P})\s+(?P<at>i?like|regexp|rlike|similar\s+to|contain|includes?|has)\b\s*({_VALUE})?",
        likened,
        typed=True,
    ),
    _habit(
        rf"({_P})\s*=(?P<at>~)", r"a regular expression is `\1 matches \"A.*\"`".replace('\\"', '"')
    ),
    _habit(
        rf"({_P})\s+(?P<at>isnull|notnull)\b\s*",
        null_test,
        typed=True,
    ),
    _habit(
        r"\bis\s+(not\s+)?(?P<at>nil|none|undefined|empty|missing)\b",
        lambda found: f"write `is {found.group(1) or ''}null`",
        typed=True,
    ),
    _habit(
        r"\bis\s+(not\s+)?(?P<at>distinct)\s+from\b",
        lambda found: (
            f"write `{'=' if found.group(1) else '!='}`; a comparison with null is never true"
        ),
    ),
    _habit(
        r"\bcontains\s+(?P<at>any|all)\b",
        'a list has one value: `$p.tags contains "a"`; several are joined by `or` and `and`',
    ),
    _habit(
        r"\bxor\b\s*",
        "of two conditions `a != b` is the one or the other; `and`, `or` and `not` join them",
        typed=True,
    ),
    _habit(r"\bexists\s*\(\s*select\b", "write `exists { $p knows $x }`"),
    _habit(
        r"\bin\s*\(\s*(?P<at>select)\b\s*",
        "what another pattern finds is `exists { $p knows $x  $x.age > 30 }`",
    ),
    _habit(r"\bexists\s*\(\s*(\$\w+\.\w+)\s*\)", r"write `\1 is not null`"),
    _habit(r"\bin\s*\(\s*([^()]*?,[^()]*?)\)", bracketed_list, moves=False),
    _habit(r"--(?!>|\[)\s*(?=[A-Za-z])", "a comment starts with `//`", typed=True),
    _habit(r"(?<=[\w\s)\]])\^", "write `pow(x, y)`"),
    _habit(r"\|\|(?=\s*[\"'])", 'texts are joined by `+`: `$p.name + "!"`'),
    _habit(
        rf"({_V})\.(?:out|in|both|outE|inE)(?P<at>\()",
        "an edge is walked by its name: `$a knows $b`",
    ),
    _habit(
        r"(?<![\w$.\"')\]])(?P<at>([a-z]\w*)\.(\w+))(?!\s*\()",
        r"a variable takes a dollar sign: `$\2.\3`",
    ),
    _habit(
        r"(?<![\w$])(count|sum|avg|min|max|collect)\s*\(\s*(?P<at>([a-z]\w*))\s*\)",
        r"a variable takes a dollar sign: `\1($\3)`",
        typed=True,
    ),
    _habit(
        rf"(?:{_P}|{_VALUE})\s*(?P<at>,)\s*{_V}[\s:.]",
        "clauses need no comma: a space or a new line is enough",
    ),
    # what is missing
    _habit(
        rf"({_V})\s+(?!asc\b|desc\b|as\b|is\b|limit\b|offset\b)((?-i:[a-z])\w*)\s*(?P<at>\}})",
        r"the other end of the edge is missing: `\1 \2 $f`",
    ),
    _habit(r"\b\w+\((?:[^(){}]|\([^()]*\))*(?P<at>\})", "a `)` is missing: every `(` is closed"),
    _habit(
        r"\bcase\b(?:(?!\bend\b)[^{}])*(?P<at>\})",
        "a case closes with `end`: `case when $p.age >= 18 then 1 else 0 end`",
    ),
)
