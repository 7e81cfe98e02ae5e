"""The examples in the docstrings of the public names are run, each on a graph of its own."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import omnigraph
from omnigraph import Graph, QueryResult, errors, pipeline, schema
from omnigraph.engine.write.transaction import Transaction

# The graph that the examples are about; docs/reference/python.md shows the same.
SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
edge Knows: Person -> Person
"""
DATA = {
    "Person": [
        {"name": "Ada", "age": 36, "photo": b"png"},
        {"name": "Bob", "age": 30},
        {"name": "Cem"},
    ],
    "Knows": [{"from": "Ada", "to": "Bob"}, {"from": "Bob", "to": "Cem"}],
}
NAMES = "query names() { match { $p: Person } return { $p.name } order { $p.name } }"
ADD = "query add($name: String) { insert Person { name: $name } }"

CLASSES = [
    one
    for name in omnigraph.__all__
    if inspect.isclass(one := getattr(omnigraph, name)) or inspect.isfunction(one)
]
MODULES = [
    "omnigraph.engine.write.transaction",
    "omnigraph.schema.classes",
    "omnigraph.schema.codegen",
    "omnigraph.schema.columns",
]


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=True, exclude_empty=True)
    found: dict[str, doctest.DocTest] = {}
    for one in CLASSES:
        for part in [one, *one.__mro__[1:]] if inspect.isclass(one) else [one]:
            if part.__module__.startswith("omnigraph"):
                for test in finder.find(part, f"{part.__module__}.{part.__qualname__}", globs={}):
                    found[test.name] = test
    for name in MODULES:
        for test in finder.find(importlib.import_module(name), name, globs={}):
            found[test.name] = test
    return [test for test in found.values() if test.examples]


@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name.removeprefix("omnigraph."))
def test_the_example_does_what_it_says(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    with Graph.init(tmp_path / "people.omni", SCHEMA, durability="process") as graph:
        graph.load(DATA, mode="append")
        names = {"Graph": Graph, "NAMES": NAMES, "ADD": ADD, "Path": Path}
        test.globs.update(names, graph=graph, folder=tmp_path, omnigraph=omnigraph)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        assert runner.run(test, out=told.append).failed == 0, "".join(told)


def documented() -> dict[str, str]:
    """The docstrings of everything that the page of the Python API shows."""
    parts = {f"{one.__module__}.{one.__qualname__}": one for one in CLASSES}
    for one in [*CLASSES, Transaction]:
        for name, part in inspect.getmembers(one) if inspect.isclass(one) else ():
            if not name.startswith("_") and str(getattr(part, "__module__", "")).startswith("omni"):
                parts[f"{one.__name__}.{name}"] = part
    for module in (schema, pipeline):
        parts |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    return {name: inspect.getdoc(one) or "" for name, one in parts.items()}


def test_errors_that_are_named_are_there():
    named = {
        (where, error)
        for where, text in documented().items()
        for error in re.findall(r"`([A-Z]\w+Error)`", text)
    }
    assert {error for _, error in named} >= {"ParseError", "NotFoundError"}
    assert [one for one in named if not hasattr(errors, one[1])] == []


# For servers, for what only damage shows, or for a provider: their docstrings say enough.
WITHOUT = {
    "close",
    "connect",
    "refresh",
    "describe",
    "embed",
    "require_branch",
    "algorithms",
    "clear_recovery_log",
    "recovery_log_problems",
    "resolve_recovery",
    "unreadable_branches",
    "unreadable_tags",
    "uri",
    "of_table",  # how the engine makes a result
    "PipelineReport",
    "Source",
}


@pytest.mark.parametrize("owner", [Graph, QueryResult, Transaction, pipeline, schema])
def test_every_public_call_has_an_example(owner):
    names = getattr(owner, "__all__", None) or [name for name in dir(owner) if name[0] != "_"]
    calls = {name: one for name in names if callable(one := getattr(owner, name))}
    found = {name: inspect.getdoc(one) or "" for name, one in calls.items()}
    lacking = {name for name, text in found.items() if ">>>" not in text}
    assert lacking - WITHOUT == set()
