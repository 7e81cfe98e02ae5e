"""The arguments of a property's `@index`: understood, refused, printed, planned and merged."""

from __future__ import annotations

import pytest

from omnigraph.compiler.schema import compile_schema, plan_migration
from omnigraph.compiler.schema.merge import merge_schemas
from omnigraph.compiler.schema.printer import format_schema, print_schema
from omnigraph.errors import InputError
from omnigraph.model.schema import Indexing


def schema(note, kind="String?"):
    return f"node Doc {{\n    name: String @key\n    text: {kind} {note}\n}}\n"


def indexing(note, kind="String?"):
    doc = compile_schema(schema(note, kind)).nodes["Doc"]
    assert ("text",) in doc.index
    return doc.by_name["text"].indexing


@pytest.mark.parametrize(
    ("note", "kind", "expected"),
    [
        ("@index", "String?", Indexing()),
        ('@index(language="german")', "String?", Indexing(language="german")),
        ('@index(language="german", tokenizer="words")', "String?", Indexing(language="german")),
        ('@index(tokenizer="cjk")', "String?", Indexing(tokenizer="cjk")),
        (
            '@index(tokenizer="ngram", language="english")',
            "String",
            Indexing(language="english", tokenizer="ngram"),
        ),
        ("@index(ann=true)", "Vector(3)?", Indexing(ann=True)),
        ("@index(ann=false)", "Vector(3)?", Indexing()),
    ],
)
def test_arguments_are_read_printed_and_read_again(note, kind, expected):
    assert indexing(note, kind) == expected
    made = compile_schema(schema(note, kind))
    printed = print_schema(made)
    assert compile_schema(printed).hash == made.hash
    assert format_schema(schema(note, kind)) == schema(note, kind)


def test_what_holds_anyway_is_no_difference():
    plain, said = (compile_schema(schema(n)) for n in ("@index", '@index(tokenizer="words")'))
    assert plain.hash == said.hash


@pytest.mark.parametrize(
    ("note", "kind", "words"),
    [
        ('@index(langage="german")', "String?", "no argument 'langage'"),
        ('@index(language="klingon")', "String?", "language cannot be 'klingon'"),
        ('@index(language="chinese")', "String?", "language cannot be 'chinese'"),
        ("@index(language=3)", "String?", "language cannot be 3"),
        ('@index(tokenizer="spaces")', "String?", "tokenizer cannot be 'spaces'"),
        ("@index(ann=true)", "String?", "only for a Vector"),
        ("@index(ann=1)", "Vector(3)", "ann cannot be 1"),
        ('@index(language="german")', "Vector(3)", "only for a String"),
        ('@index(language="german")', "enum(a, b)", "only for a String"),
        ('@index(language="german")', "[String]", "list property"),
        ('@index(language="german", language="german")', "String?", "argument twice"),
        ('@unique(language="german")', "String?", "@unique on Doc.text takes no arguments"),
        ("@index(language=german)", "String?", "needs a literal"),
        ('@index("german")', "String?", "expected property name"),
    ],
)
def test_other_arguments_are_refused_at_their_place(note, kind, words):
    with pytest.raises(InputError) as caught:
        compile_schema(schema(note, kind))
    assert words in caught.value.message
    assert caught.value.facts["line"] == 3


def test_named_arguments_belong_behind_a_property():
    with pytest.raises(InputError, match="stand behind the property"):
        compile_schema('node Doc { @index(language="german") text: String }')


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ("@index", '@index(language="german")', ["change_index"]),
        ('@index(language="german")', '@index(language="french")', ["change_index"]),
        ('@index(language="german")', "@index", ["change_index"]),
        ("", '@index(language="german")', ["add_constraint", "change_index"]),
        ("@index", '@index(tokenizer="words")', []),
    ],
)
def test_a_change_of_arguments_is_a_step(before, after, steps):
    plan = plan_migration(compile_schema(schema(before)), compile_schema(schema(after)))
    assert plan.supported
    assert sorted(step.kind for step in plan.steps) == steps
    for step in plan.steps:
        if step.kind == "change_index":
            assert (step.property_name, step.tier) == ("text", "safe")


def merged(base, ours, theirs):
    catalogs = [compile_schema(schema(note)) for note in (base, ours, theirs)]
    return merge_schemas(*catalogs)


def test_a_merge_takes_the_arguments_of_the_side_that_changed_them():
    german = '@index(language="german")'
    for sides in (("@index", german), (german, "@index")):
        found = merged("@index", *sides)
        assert not found.conflicts
        assert found.catalog.nodes["Doc"].by_name["text"].indexing.language == "german"


def test_other_arguments_on_both_sides_are_a_conflict():
    found = merged("@index", '@index(language="german")', '@index(language="french")')
    assert len(found.conflicts) == 1
    (conflict,) = found.conflicts
    assert "change_index" in str(conflict)
