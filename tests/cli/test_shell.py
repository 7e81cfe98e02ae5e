"""`omnigraph shell`, fed from a pipe."""

from __future__ import annotations

import io
import json

import pytest

from omnigraph import Graph
from omnigraph.cli.main import entry
from omnigraph.cli.shell import is_complete, on_one_line, rules_of
from omnigraph.compiler.schema import compile_schema

SCHEMA = """node Person {
    name: String @key
    age: I32?
}
edge Knows: Person -> Person
"""
PEOPLE = [
    {"type": "Person", "data": {"name": "Ada", "age": 36}},
    {"type": "Person", "data": {"name": "Grace", "age": 45}},
    {"edge": "Knows", "from": "Ada", "to": "Grace"},
]


@pytest.fixture
def shell(tmp_path, capsys, monkeypatch):
    """Run a script through the shell; what it printed, or its error with another exit code."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA) as graph:
        graph.load("\n".join(map(json.dumps, PEOPLE)), mode="append")
        graph.create_branch("side")

    def run(script, code=0):
        monkeypatch.setattr("sys.stdin", io.StringIO(script))
        capsys.readouterr()
        assert entry(["shell", uri, "--quiet"]) == code
        out, err = capsys.readouterr()
        return err if code else out

    return run


def test_a_query_may_take_many_lines(shell):
    script = """query all() {
    match { $p: Person }   // a brace in a comment: }
    return { $p.name }
    order { $p.name asc }
}
"""
    assert shell(script).split() == ["p.name", "------", "Ada", "Grace"]


def test_parameters_are_set_once_and_given_to_the_queries_that_declare_them(shell):
    script = r"""\params {"name": "Ada", "age": 37}
\format csv
query set($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query one($name: String) { match { $p: Person { name: $name } } return { $p.age } }
"""
    lines = shell(script).splitlines()
    assert lines[0].startswith("1 nodes, 0 edges; ")
    assert lines[1:] == ["p.age", "37"]


def test_a_branch_can_be_used_and_left_again(shell):
    script = r"""\format csv
\use side
query add() { insert Person { name: "Alan" } }
query n() { match { $p: Person } return { count($p) as n } }
\use main
query n() { match { $p: Person } return { count($p) as n } }
\b
"""
    assert shell(script).splitlines()[1:] == ["n", "3", "n", "2", "* main", "  side"]


def test_the_types_and_their_properties_can_be_looked_up(shell):
    assert shell("\\d\n").splitlines()[2:] == [
        "node  Person         2",
        "edge  Knows          1",
    ]
    assert shell("\\d Person\n").splitlines()[2:] == [
        "name      String  @key",
        "age       I32?",
    ]
    assert shell("\\d knows\n").splitlines()[-1] == "Person -> Person @card(0..)"


RULES = """interface Named { title: String @index(language="german") }
node Book implements Named {
    isbn: String
    edition: I32
    pages: I32 @default(1)
    state: enum(draft, out)?
    price: F64? @unique
    vec: Vector(2)? @embed(title)
    @key(isbn, edition)
    @range(price, 0.0..)
    @check(isbn, "^[0-9]+$")
    @unique(title, state)
}
edge Cites: Book -> Book @card(0..3) { page: I32 @index }
"""


@pytest.mark.parametrize(
    ("name", "rules", "whole"),
    [
        (
            "Book",
            {
                "isbn": ['@check("^[0-9]+$")'],
                "edition": [],
                "pages": ["@default(1)"],
                "state": [],
                "price": ["@unique", "@range(0.0..)"],
                "vec": ["@embed(title)"],
                "title": ['@index(language="german")', "(from Named)"],
            },
            ["@key(edition, isbn)", "@unique(title, state)"],
        ),
        ("Cites", {"page": ["@index"]}, ["Book -> Book @card(0..3)"]),
    ],
)
def test_the_rules_of_a_type_are_told_in_the_words_of_the_schema(name, rules, whole):
    catalog = compile_schema(RULES)
    assert rules_of(catalog.nodes.get(name) or catalog.edges[name]) == (rules, whole)


@pytest.mark.parametrize(
    "script",
    [
        "match { $p: Person } return { $p.name } order { $p.name asc }\n",
        "match { $p: Person }\nreturn { $p.name }\norder { $p.name asc };\n",
        "match { $p: Person }\n  return { $p.name }  // who\norder { $p.name asc }\n\n",
        "match { $p: Person }\nreturn { $p.name }\norder { $p.name asc }\n",
    ],
)
def test_a_query_needs_no_name(shell, script):
    assert shell(script).split() == ["p.name", "------", "Ada", "Grace"]


def test_a_query_is_one_entry_of_the_history():
    text = 'query q() { // 1\n  match { $p: Person { name: "a // b" } }\n\n  return { $p.age }\n}'
    assert on_one_line(text) == (
        'query q() { match { $p: Person { name: "a // b" } } return { $p.age } }'
    )


def test_history_and_help_are_there(shell):
    assert len(shell("\\log\n").splitlines()) == 2
    assert "\\q" in shell("\\?\n")


def test_nothing_after_leaving_is_run(shell):
    assert shell("\\q\nnonsense\n\n") == ""


def test_explain_shows_the_plan_instead_of_the_rows(shell):
    script = "\\explain\nquery n() { match { $p: Person } return { $p.name } }\n"
    assert "scan $p: Person" in shell(script)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("\\frobnicate\n", "unknown shell command '\\frobnicate'"),
        ("\\use nope\n", "nope"),
        ("\\format xml\n", "no format 'xml'"),
        ("\\d Robot\n", "no type 'Robot'"),
        ("\\d Persn\n", "did you mean 'Person'?"),
        ("\\params [1]\n", "must be a JSON object"),
        ("query q() { match { $r: Robot } return { $r.name } }\n", "Robot"),
        ("query unfinished() { match {\n", "query:"),
    ],
)
def test_a_script_stops_at_its_first_error(shell, script, text):
    assert text in shell(script + "\\b\n", code=1)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("query q() {", False),
        ("query q() { }", True),
        ('query q() { insert P { name: "}" }', False),
        ("query q() { // }\n", False),
        ("query q()", False),
        ("match { $p: P }", False),
        ("match { $p: P } return { $p.a }", True),
        ("match { $p: P }\nreturn { $p.a }", False),
        ("match { $p: P }\nreturn { $p.a };", True),
        ('delete P where a = ";"', True),
        ("delete P", False),
    ],
)
def test_a_query_is_complete_when_its_braces_are(text, complete):
    assert is_complete(text) is complete


ADD = 'query add() { insert Person { name: "Eve" } as $p returning { $p.name } }\n'
ALL = "query all() { match { $p: Person } return { count(*) as n } }\n"


def test_what_stands_between_begin_and_commit_is_one_commit(shell):
    out = shell(
        "\\format jsonl\nbegin\n"
        + ADD
        + ALL
        + 'query drop() { delete Person where name = "Ada" }\n'
        "COMMIT;\n" + ALL + "\\log\n"
    )
    assert "1 nodes, 0 edges; pending" in out
    assert "Eve" in out
    assert out.count('"n": 3') + out.count('"n":3') == 1
    assert out.count('"n": 2') + out.count('"n":2') == 1
    newest = [line.split()[0] for line in out.splitlines() if "T" in line and "Z" in line][:1]
    assert newest
    assert out.count(newest[0]) == 2  # told by commit, and the newest of the log


def test_rollback_leaves_nothing(shell):
    out = shell("\\format jsonl\nbegin\n" + ADD + "rollback\n" + ALL)
    assert "rolled back" in out
    assert '"n": 2' in out or '"n":2' in out


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("commit\n", "no transaction is open"),
        ("begin\nbegin\n", "open already"),
        ("begin\n\\use side\n", "a transaction is open"),
    ],
)
def test_a_transaction_word_out_of_place_is_an_error(shell, script, words):
    assert words in shell(script, code=1)
