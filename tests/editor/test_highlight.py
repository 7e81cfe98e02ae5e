"""Highlighting knows the words and functions that the parsers know, no more and no fewer."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from pygments import lex
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Error, Keyword, Name, Operator
from query_texts import EXAMPLES

import omnigraph.compiler.query as query_language
from omnigraph.compiler.query.functions import CALLABLE, OPERATORS
from omnigraph.compiler.words import QUERY_NOTES, QUERY_WORDS, SCHEMA_NOTES, SCHEMA_WORDS
from omnigraph.editor.grammar import FILES, grammar
from omnigraph.editor.lexer import GqLexer, PgLexer
from omnigraph.model.schema import Scalar

ROOT = Path(__file__).resolve().parents[2]
EDITOR = ROOT / "src" / "omnigraph" / "editor"
PARSERS = sorted(Path(inspect.getfile(query_language)).parent.glob("parse*.py"))
SCHEMA_PARSER = ROOT / "src" / "omnigraph" / "compiler" / "schema" / "parse.py"
WORD_CALLS = {"at_word", "skip_word", "expect_word"}
WORD = re.compile(r"[a-z_]{2,}")


def words_asked_for(path: Path) -> set[str]:
    """Every word that a parser asks for by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        first = node.args[0]
        if called in WORD_CALLS and isinstance(first, ast.Constant):
            found.add(str(first.value))
    return found


def words_in(path: Path) -> set[str]:
    """Every text in the code of a parser that could be a word."""
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and WORD.fullmatch(node.value)
    }


@pytest.mark.parametrize("path", PARSERS, ids=lambda path: path.name)
def test_every_word_that_a_parser_asks_for_is_in_the_table(path):
    known = {*QUERY_WORDS, *QUERY_NOTES, *CALLABLE}
    assert words_asked_for(path) <= known, "add the word to compiler/words.py"


def test_every_word_of_the_table_is_known_to_a_parser():
    known = set().union(*map(words_in, PARSERS))
    assert set(QUERY_WORDS) <= known
    assert set(QUERY_NOTES) <= set().union(*map(words_in, PARSERS))


def test_every_operator_that_is_a_word_is_in_the_table():
    written = {made.name for made in OPERATORS if f" {made.name} " in made.call}
    assert written <= {word for word, made in QUERY_WORDS.items() if made.kind == "operator"}


def test_the_words_of_schemas_are_those_of_their_parser():
    folder = SCHEMA_PARSER.parent
    known = set().union(*map(words_in, folder.glob("*.py")))
    assert {*SCHEMA_WORDS, *SCHEMA_NOTES} <= known
    assert words_asked_for(SCHEMA_PARSER) <= {*SCHEMA_WORDS, *SCHEMA_NOTES}


# --- Pygments ---


@pytest.mark.parametrize("text", [body for _, body in EXAMPLES])
def test_every_example_of_the_reference_is_made_of_known_tokens(text):
    if "'" in text or "#" in text:
        pytest.skip("an example of what cannot be read")
    tokens = list(lex(text, GqLexer()))
    assert Error not in {kind for kind, _ in tokens}
    assert "".join(part for _, part in tokens).strip() == text.strip()


KINDS = [
    ("query", Keyword), ("MATCH", Keyword), ("and", Operator.Word), ("true", Keyword.Constant),
    ("$p", Name.Variable), ("Person", Name.Class), ("I32", Keyword.Type), ("lower(", Name.Builtin),
    ("// x", Comment.Single), ("@description", Name.Decorator), ("knows", Name),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), KINDS)
def test_a_word_is_shown_as_what_it_is(text, kind):
    (found, _), *_ = lex(text, GqLexer())
    assert found is kind


def test_every_word_and_function_of_the_tables_is_shown_as_one():
    for word, made in QUERY_WORDS.items():
        (found, _), *_ = lex(word + " ", GqLexer())
        assert found in {Keyword, Operator.Word, Keyword.Constant}, made
    for name in CALLABLE:
        (found, _), *_ = lex(f"{name}(", GqLexer())
        assert found is Name.Builtin, name
    for word in SCHEMA_WORDS:
        (found, _), *_ = lex(word + " ", PgLexer())
        assert found in Keyword, word
    for scalar in Scalar:
        assert next(iter(lex(f"{scalar.value} ", PgLexer())))[0] is Keyword.Type


def test_pygments_finds_the_lexers_of_an_installed_package():
    named = {each.name: each.value for each in entry_points(group="pygments.lexers")}
    if "gq" not in named:
        pytest.skip("the package is not installed with its entry points")
    assert isinstance(get_lexer_by_name("gq"), GqLexer)


# --- TextMate ---


@pytest.mark.parametrize("language", FILES)
def test_the_grammar_in_the_package_is_the_one_that_the_tables_make(language):
    assert json.loads((EDITOR / FILES[language]).read_text("utf-8")) == grammar(language)


def test_the_tool_that_writes_the_grammars_agrees():
    script = ROOT / "tools" / "grammars.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0


def test_a_grammar_has_every_word_and_function_and_can_be_compiled():
    patterns = grammar("gq")["patterns"]
    for pattern in patterns:
        re.compile(pattern.get("match", pattern.get("begin")))
    listed = " ".join(pattern.get("match", "") for pattern in patterns)
    for word in {*QUERY_WORDS, *CALLABLE, *(scalar.value for scalar in Scalar)}:
        assert re.search(rf"[(|]{word}[)|]", listed), word
