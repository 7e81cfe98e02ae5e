"""schema_parse.jsonl: what a schema text means, and how it is refused."""

from __future__ import annotations

import re

import pytest
from casebook import cases

from omnigraph.compiler.schema import compile_schema
from omnigraph.compiler.schema.parse import parse_schema
from omnigraph.compiler.text import SourceText
from omnigraph.errors import InputError, ParseError
from omnigraph.model.plan import property_type_json


@pytest.mark.parametrize("case", cases("schema_parse.jsonl"))
def test_a_schema_means_what_the_case_says(case):
    if not case["ok"]:
        _assert_refused(case)
    elif case.get("catalog_ok") is False:
        _assert_parses_only(case)
    else:
        _assert_means(compile_schema(case["schema"]), case.get("expect", {}))


def _assert_refused(case):
    with pytest.raises(InputError) as caught:
        compile_schema(case["schema"])
    error = caught.value
    if case["stage"] == "parse":
        assert isinstance(error, ParseError)
    for part in case.get("error_contains", []):
        assert part in error.message
    if "error_exact" in case:
        assert error.message == case["error_exact"]
    assert error.line >= 1
    assert error.column >= 1
    assert error.excerpt.endswith("^")


def _assert_parses_only(case):
    tree = parse_schema(SourceText(case["schema"], "schema"))
    found = {decl.name: decl for decl in tree}
    for name, wanted in case["expect"]["edges"].items():
        assert (found[name].source.name, found[name].target.name) == (wanted["from"], wanted["to"])
        assert len(found[name].members) == len(wanted["properties"])
    with pytest.raises(InputError):
        compile_schema(case["schema"])


def _assert_means(catalog, expect):
    for key, wanted in expect.items():
        match key:
            case "decl_count":
                types = (catalog.nodes, catalog.edges, catalog.interfaces)
                assert sum(map(len, types)) == wanted
            case "node_types":
                assert sorted(catalog.nodes) == sorted(wanted)
            case "edge_types":
                assert sorted(catalog.edges) == sorted(wanted)
            case "edge_lookup":
                assert {name: catalog.edge_named(name).name for name in wanted} == wanted
            case "shape_hash_equals":
                assert catalog.hash == compile_schema(_without_hints(catalog.source)).hash
            case "nodes" | "edges" | "interfaces":
                for name, facts in wanted.items():
                    made = getattr(catalog, key)[name]
                    for fact, value in facts.items():
                        assert _fact(made, fact) == value, fact
            case _:
                pytest.fail(f"this runner does not know the expectation {key!r}")


def _without_hints(source):
    """The same types in another order, without comments and rename hints."""
    stripped = re.sub(r'//[^\n]*|@rename_from\("[^"]*"\)', "", source)
    head, body, tail = re.split(r"[{}]", stripped, maxsplit=2)
    lines = [line for line in body.splitlines() if line.strip()]
    return "\n".join([head, "{", *reversed(lines), "}", tail])


def _fact(made, name):
    readers = {
        "property_order": lambda: [prop.name for prop in made.properties],
        "properties": lambda: {prop.name: _property(prop) for prop in made.properties},
        "implements": lambda: list(made.implements),
        "key": lambda: list(made.key) or None,
        "unique": lambda: [list(columns) for columns in made.unique],
        "index_declared": lambda: [list(columns) for columns in made.index],
        "indices": lambda: [list(columns) for columns in made.index],
        "range": lambda: {bound.property: _range(bound) for bound in made.ranges},
        "check": lambda: {check.property: check.pattern for check in made.checks},
        "embed": lambda: {
            prop.name: {"source": prop.embed.source, "model": prop.embed.model}
            for prop in made.properties
            if prop.embed
        },
        "property_descriptions": lambda: {
            prop.name: prop.description for prop in made.properties if prop.description
        },
        "from": lambda: made.from_type,
        "to": lambda: made.to_type,
        "card": lambda: {"min": made.cardinality.minimum, "max": made.cardinality.maximum},
        "description": lambda: made.description,
        "instruction": lambda: made.instruction,
        "rename_from": lambda: made.rename_from,
    }
    return readers[name]()


def _property(prop):
    body = property_type_json(prop.type)
    return {key: value for key, value in body.items() if key != "enum_values" or value is not None}


def _range(bound):
    whole = all(isinstance(end, int) for end in (bound.minimum, bound.maximum) if end is not None)
    return {
        "min": bound.minimum,
        "max": bound.maximum,
        "kind": "integer" if whole else "float",
    }
