"""Errors: what Python shows of one that nobody caught, and how they travel."""

from __future__ import annotations

import pickle
import traceback

import pytest

from omnigraph import Graph
from omnigraph.errors import InputError, MissingParameterError, NotFoundError, OmnigraphError


def shown(error):
    return "".join(traceback.format_exception_only(error))


def test_the_message_stands_alone_and_the_hint_is_a_note():
    error = InputError("there is no color 'rde'", hint="did you mean 'red'?")
    assert str(error) == "there is no color 'rde'"
    assert error.__notes__ == ["hint: did you mean 'red'?"]
    assert shown(error).splitlines()[1:] == ["hint: did you mean 'red'?"]


def test_an_uncaught_error_of_a_query_shows_the_place(tmp_path):
    with (
        Graph.init(str(tmp_path / "g.omni"), "node P { name: String @key }") as graph,
        pytest.raises(OmnigraphError) as caught,
    ):
        graph.query("query q() {\n  match { $p: P }\n  return { $p.nam }\n}")
    text = shown(caught.value)
    assert "3 |   return { $p.nam }" in text
    assert text.count("^") == 1
    assert "hint: " in text


@pytest.mark.parametrize(
    "error",
    [
        InputError("plain"),
        InputError("told", hint="do this", excerpt="query:1:2\n1 | x\n  | ^"),
        MissingParameterError(name="n", query="q"),
    ],
)
def test_notes_come_along_when_an_error_travels(error):
    there = pickle.loads(pickle.dumps(error))
    assert getattr(there, "__notes__", []) == getattr(error, "__notes__", [])
    assert (type(there), str(there), there.facts) == (type(error), str(error), error.facts)


def test_a_new_advice_takes_the_place_of_the_old_one():
    error = NotFoundError("gone", kind="branch", name="x", hint="first")
    error.add_note("of the caller")
    error.advise("second")
    assert error.hint == "second"
    assert error.__notes__ == ["of the caller", "hint: second"]
