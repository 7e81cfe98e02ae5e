"""The reference page compiles: every example means what it says, every code has an example."""

from __future__ import annotations

import pytest
from query_texts import CATALOG, EXAMPLES

from omnigraph.compiler.query import compile_query, lint_source, parse_file
from omnigraph.errors import OmnigraphError

CODES = [f"T{number}" for number in range(1, 25)] + [
    "Q000",
    *(f"L20{number}" for number in range(1, 8)),
]


@pytest.mark.parametrize("source", [body for code, body in EXAMPLES if not code])
def test_an_example_compiles(source):
    for query in parse_file(source).queries:
        compile_query(source, CATALOG, query.name)


@pytest.mark.parametrize(("code", "source"), [(c, b) for c, b in EXAMPLES if c])
def test_a_bad_example_is_refused_with_its_code(code, source):
    report = lint_source(source, CATALOG)
    if code[0] in "QL":
        assert [finding.code for finding in report.findings] == [code]
        return
    (result,) = report.results
    with pytest.raises(OmnigraphError) as caught:
        compile_query(source, CATALOG)
    if code.startswith("T"):
        assert result.code == code
        assert caught.value.t_code == code
    else:
        assert result.status == "error"
        assert caught.value.code == code


def test_every_code_has_an_example():
    assert set(CODES) <= {code for code, _ in EXAMPLES}
