"""TextMate grammars of both languages, for VS Code, GitHub and all that read them.

The files beside this one are what `tools/grammars.py` writes; a test holds them to the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.compiler.query.functions import CALLABLE
from omnigraph.compiler.words import QUERY_WORDS, SCHEMA_WORDS, Keyword
from omnigraph.model.schema import Scalar

FILES = {"gq": "gq.tmLanguage.json", "pg": "pg.tmLanguage.json"}
_SCOPES = {
    "clause": "keyword.control",
    "statement": "keyword.control",
    "modifier": "keyword.other",
    "block": "keyword.control",
    "operator": "keyword.operator.word",
    "literal": "constant.language",
}


def grammar(language: str) -> dict[str, Any]:
    """The grammar of `gq` or `pg` as the JSON of a `.tmLanguage.json` file."""
    table = QUERY_WORDS if language == "gq" else SCHEMA_WORDS
    patterns = [
        _pattern(r"//.*$", "comment.line.double-slash", language),
        {
            "name": f"comment.block.{language}",
            "begin": r"/\*",
            "end": r"\*/",
        },
        {
            "name": f"string.quoted.double.{language}",
            "begin": '"',
            "end": '"',
            "patterns": [_pattern(r"\\.", "constant.character.escape", language)],
        },
        _pattern(r"@[a-z_]\w*", "storage.modifier", language),
        _pattern(_any(scalar.value for scalar in Scalar), "support.type", language),
        _pattern(r"\b\d+(\.\d+)?([eE][+-]?\d+)?\b", "constant.numeric", language),
    ]
    if language == "gq":
        patterns += [
            _pattern(r"\$[a-z_]\w*", "variable.other", language),
            _pattern(rf"{_any(sorted(CALLABLE))}(?=\s*\()", "support.function", language),
        ]
    # A name before a colon is a property, also one that is called like a word.
    patterns.append(_pattern(r"\b[a-z_]\w*(?=\s*:)", "variable.other.property", language))
    patterns += _words(table, language)
    patterns.append(_pattern(r"\b[A-Z]\w*\b", "entity.name.type", language))
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "OmniGraph query" if language == "gq" else "OmniGraph schema",
        "scopeName": f"source.{language}",
        "fileTypes": [language],
        "patterns": patterns,
    }


def _words(table: Mapping[str, Keyword], language: str) -> list[dict[str, Any]]:
    scopes: dict[str, list[str]] = {}
    for word, made in table.items():
        scopes.setdefault(_SCOPES[made.kind], []).append(word)
    return [_pattern(f"(?i){_any(found)}", scope, language) for scope, found in scopes.items()]


def _pattern(match: str, scope: str, language: str) -> dict[str, Any]:
    return {"name": f"{scope}.{language}", "match": match}


def _any(words: Iterable[str]) -> str:
    return rf"\b({'|'.join(words)})\b"
