"""Pygments lexers of `.gq` and `.pg`, for documents, notebooks and terminals."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from omnigraph.compiler.query.functions import CALLABLE
from omnigraph.compiler.words import QUERY_WORDS, SCHEMA_WORDS
from omnigraph.model.schema import Scalar

_COMMON: list[Any] = [
    (r"\s+", Text),
    (r"//[^\n]*", Comment.Single),
    (r"/\*(?:[^*]|\*(?!/))*\*/", Comment.Multiline),
    (r'"(?:[^"\\]|\\.)*"', String),
    (r"@[a-z_]\w*", Name.Decorator),
    (r"-?\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+)", Number.Float),
    (r"-?\d+", Number.Integer),
    (words([scalar.value for scalar in Scalar], prefix=r"\b", suffix=r"\b"), Keyword.Type),
]


def _words(table: Any, *kinds: str) -> Any:
    chosen = [word for word, made in table.items() if made.kind in kinds]
    return words(chosen, prefix=r"(?i)\b", suffix=r"\b")


class GqLexer(RegexLexer):  # type: ignore[misc]
    """Queries of OmniGraph."""

    name = "OmniGraph query"
    aliases: ClassVar[list[str]] = ["gq", "omnigraph"]
    filenames: ClassVar[list[str]] = ["*.gq"]
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            *_COMMON,
            (r"(query)(\s+)([a-z_]\w*)", bygroups(Keyword, Text, Name.Function)),
            (r"\$[a-z_]\w*", Name.Variable),
            (r"(\.)(\*|[a-z_]\w*)", bygroups(Punctuation, Name.Attribute)),
            (r"[a-z_]\w*(?=\s*:)", Name.Attribute),
            (words(sorted(CALLABLE), prefix=r"\b", suffix=r"(?=\()"), Name.Builtin),
            (_words(QUERY_WORDS, "literal"), Keyword.Constant),
            (_words(QUERY_WORDS, "operator"), Operator.Word),
            (_words(QUERY_WORDS, "clause", "statement", "modifier", "block"), Keyword),
            (r"[A-Z]\w*", Name.Class),
            (r"[a-z_]\w*", Name),
            (r"<=|>=|!=|\.\.|[-+*/%<>=|]", Operator),
            (r"[{}()\[\],:.?]", Punctuation),
        ]
    }


class PgLexer(RegexLexer):  # type: ignore[misc]
    """Schemas of OmniGraph."""

    name = "OmniGraph schema"
    aliases: ClassVar[list[str]] = ["pg", "omnigraph-schema"]
    filenames: ClassVar[list[str]] = ["*.pg"]
    flags = re.MULTILINE
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            *_COMMON,
            (_words(SCHEMA_WORDS, "statement", "modifier"), Keyword.Declaration),
            (_words(SCHEMA_WORDS, "block"), Keyword.Type),
            (_words(SCHEMA_WORDS, "literal"), Keyword.Constant),
            (r"[a-z_]\w*(?=\s*:)", Name.Attribute),
            (r"[A-Z]\w*", Name.Class),
            (r"[a-z_]\w*", Name),
            (r"->|\.\.|=", Operator),
            (r"[{}()\[\],:.?]", Punctuation),
        ]
    }
