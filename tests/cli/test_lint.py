"""`lint` and `fmt` as an editor or a hook calls them."""

from __future__ import annotations

import io
import json
import sys

import pytest

from omnigraph.cli.main import entry

SCHEMA = "node Person {\n    name: String @key\n    age: I32?\n}\n"
QUERIES = """query one($x: I32) { match { $p: Person } return { $p.nme } }
query two($x: I32) { match { $p: Person } return { $p.name } }
query three() { match { $p: Person } return $p.name }
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "q.gq").write_text(QUERIES)
    return tmp_path


def lint(folder, *flags):
    return entry(
        ["lint", "--query", str(folder / "q.gq"), "--schema", str(folder / "s.pg"), *flags]
    )


def test_every_error_and_warning_is_a_line_with_its_place(folder, capsys):
    assert lint(folder) == 1
    path = folder / "q.gq"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{path}:1:52: T6 node type `Person` has no property `nme`")
    assert "did you mean `name`?" in lines[0]
    assert lines[1] == f"{path}:2:11: L203 parameter `$x` is not used"
    assert lines[2].startswith(f"{path}:3:45: Q000 expected `{{`, found `$p`")
    assert "`return {{ $p.name }}`".format() in lines[2]


def test_the_json_has_the_fields_of_the_reference(folder, capsys):
    assert lint(folder, "--json") == 1
    body = json.loads(capsys.readouterr().out)
    assert [result["name"] for result in body["results"]] == ["one", "two"]
    assert [finding["code"] for finding in body["findings"]] == ["Q000", "L203"]
    assert (body["errors"], body["warnings"], body["infos"]) == (2, 1, 0)


@pytest.mark.parametrize(
    ("text", "pretty"),
    [
        (SCHEMA.replace("    ", " "), SCHEMA),
        (
            "query q(){delete P where a=1} // end",
            "query q() {\n    delete P where a = 1\n} // end\n",
        ),
    ],
)
def test_fmt_reads_what_comes_in_and_prints_it(text, pretty, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert entry(["fmt", "-"]) == 0
    assert capsys.readouterr().out == pretty
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert entry(["fmt", "-", "--check"]) == 1
    monkeypatch.setattr(sys, "stdin", io.StringIO(pretty))
    assert entry(["fmt", "-", "--check"]) == 0


def test_fmt_takes_files_or_what_comes_in(folder, capsys):
    assert entry(["fmt", "-", str(folder / "q.gq")]) == 2
    assert "stands alone" in capsys.readouterr().err
