"""The words of both languages, told once: what they are and one line about each.

Parsers know where a word may stand; highlighting, completion, hover and the shell know from here
which words there are. A test holds the table and the parsers together. Functions are in
`query/functions.py`, types in `model/schema.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

WordKind: TypeAlias = Literal["clause", "statement", "operator", "modifier", "literal", "block"]


class Keyword(msgspec.Struct, frozen=True):
    """A word that the grammar knows, in any case of letters."""

    word: str
    kind: WordKind
    says: str


_QUERY: Final = (
    Keyword("query", "clause", "a named query: `query name($x: String) { … }`"),
    Keyword("match", "clause", "what must be found: `match { $p: Person  $p knows $f }`"),
    Keyword("return", "clause", "the columns of the answer: `return { $p.name, count($f) as n }`"),
    Keyword("with", "clause", "what a stage hands on: `with { $c, count($p) as n }`"),
    Keyword("having", "clause", "conditions on groups: `having { n > 3 }`"),
    Keyword("order", "clause", "sort keys: `order { $p.age desc, $p.name }`"),
    Keyword("limit", "clause", "at most so many rows: `limit 10`"),
    Keyword("offset", "clause", "leave out the first rows: `offset 20`"),
    Keyword("union", "clause", "the rows of another query of the same columns: `union [all]`"),
    Keyword("unwind", "clause", "a row for each element of a list: `unwind $rows as $row`"),
    Keyword("insert", "statement", 'a new node or edge: `insert Person { name: "Ann" }`'),
    Keyword("update", "statement", "change properties: `update Person set { age: 3 } where …`"),
    Keyword("upsert", "statement", "insert, or change only what is listed"),
    Keyword(
        "delete", "statement", "remove nodes and their edges, or edges: `delete Person where …`"
    ),
    Keyword("for", "statement", "statements for each element: `for $row in $rows { … }`"),
    Keyword("set", "modifier", "the assignments of an update"),
    Keyword("where", "modifier", "which rows a statement changes"),
    Keyword("returning", "clause", "what a mutation gives back: `returning { $e.id }`"),
    Keyword("nothing", "modifier", "`insert … or nothing` leaves an existing node alone"),
    Keyword("not", "operator", "`not condition`, or a block that must not be found: `not { … }`"),
    Keyword("optional", "block", "a block that may be missing; its variables are null then"),
    Keyword("exists", "block", "whether a block is found: `exists { $p knows $x }`"),
    Keyword("count", "block", "how often a block is found: `count { $p knows $x }`"),
    Keyword("and", "operator", "both conditions"),
    Keyword("or", "operator", "one of the conditions"),
    Keyword("in", "operator", "one of a list: `$p.age in [1, 2]`"),
    Keyword("is", "operator", "`is null`, `is not null`"),
    Keyword("between", "operator", "both ends included: `$p.age between 18 and 65`"),
    Keyword("contains", "operator", "a part of a text, or an element of a list"),
    Keyword("starts_with", "operator", "how a text begins"),
    Keyword("ends_with", "operator", "how a text ends"),
    Keyword("like", "operator", "a pattern of `%` and `_` for the whole text"),
    Keyword("matches", "operator", "a regular expression for the whole text"),
    Keyword("distinct", "modifier", "each row or value once"),
    Keyword("as", "modifier", "the name of a column"),
    Keyword("asc", "modifier", "smallest first, nulls before"),
    Keyword("desc", "modifier", "largest first, nulls behind"),
    Keyword("all", "modifier", "`union all` keeps rows that both have"),
    Keyword("any", "modifier", "an edge of any type: `$a any $b`"),
    Keyword("case", "operator", "`case when … then … else … end`"),
    Keyword("when", "operator", "a condition of a case"),
    Keyword("then", "operator", "the value of a case"),
    Keyword("else", "operator", "the value if no condition of a case is true"),
    Keyword("end", "operator", "the end of a case"),
    Keyword("true", "literal", "a Bool"),
    Keyword("false", "literal", "a Bool"),
    Keyword("null", "literal", "no value"),
)
_SCHEMA: Final = (
    Keyword("node", "statement", "a type of nodes: `node Person { name: String @key }`"),
    Keyword("edge", "statement", "a type of edges: `edge Knows: Person -> Person { … }`"),
    Keyword("interface", "statement", "properties that several types share"),
    Keyword("implements", "modifier", "the interfaces whose properties a node type takes over"),
    Keyword("enum", "block", "one of a few words: `role: enum(admin, user)`"),
    Keyword("true", "literal", "a Bool"),
    Keyword("false", "literal", "a Bool"),
)
QUERY_WORDS: Final[Mapping[str, Keyword]] = {made.word: made for made in _QUERY}
SCHEMA_WORDS: Final[Mapping[str, Keyword]] = {made.word: made for made in _SCHEMA}
QUERY_NOTES: Final[Mapping[str, str]] = {
    "description": "what the query answers, for people and tools",
    "instruction": "when an agent should use the query",
}
SCHEMA_NOTES: Final[Mapping[str, str]] = {
    "key": "the id of a node is made of it; one node for each value",
    "unique": "no two have the same value, or the same of several: `@unique(a, b)`",
    "index": "an index for equality and ranges; texts and vectors are searched",
    "range": "the least and the greatest value: `@range(age, 0..150)`",
    "check": 'a pattern that the text must have: `@check(email, "@")`',
    "card": "how many such edges a node may have: `@card(0..1)`",
    "default": "what an insert writes that leaves the property out",
    "embed": "a vector made of a text property: `@embed(bio)`",
    "description": "what it is, for people and tools",
    "instruction": "how an agent should use it",
    "rename_from": "what it was called before, so that an apply renames it",
}
