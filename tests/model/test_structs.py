"""A struct that is its own JSON gives what a reader of that JSON would see."""

from __future__ import annotations

from omnigraph.model.structs import JsonStruct


class Report(JsonStruct, frozen=True):
    names: tuple[str, ...]
    parts: tuple[tuple[str, int], ...] = ()
    error: str | None = None


def test_tuples_are_lists_and_an_error_is_told_if_there_is_one():
    assert Report(("a",), (("b", 1),)).to_json() == {"names": ["a"], "parts": [["b", 1]]}
    assert Report(()).to_json() == {"names": [], "parts": []}
    assert Report((), error="e").to_json()["error"] == "e"
