"""The command as a process of its own: the script, the module, pipes and locales."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.cli.main import entry

SCRIPT = Path(sys.executable).with_name("omnigraph")
SCHEMA = "node Person { name: String @key }\n"
PEOPLE = 5000


def run(*words, env=None, **options):
    return subprocess.run(
        [*map(str, words)],
        capture_output=True,
        check=False,
        env={**os.environ, "OMNIGRAPH_HOME": "no-such-folder", **(env or {})},
        **options,
    )


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A graph with enough people that its export does not fit a pipe's buffer."""
    folder = tmp_path_factory.mktemp("process")
    schema, data, uri = folder / "s.pg", folder / "d.jsonl", folder / "g.omni"
    schema.write_text(SCHEMA)
    names = [f"Zoë {number:05}" for number in range(PEOPLE)]
    records = [json.dumps({"type": "Person", "data": {"name": name}}) for name in names]
    data.write_text("\n".join(records), encoding="utf-8")
    for words in (
        ("init", "--schema", schema, uri),
        ("load", "--mode", "overwrite", "--data", data, uri),
    ):
        done = run(sys.executable, "-m", "omnigraph", *words)
        assert done.returncode == 0, done.stderr
    return uri


def test_the_script_and_the_module_are_the_same_command():
    script, module = (
        run(*way, "version") for way in ((SCRIPT,), (sys.executable, "-m", "omnigraph"))
    )
    assert script.stdout == module.stdout == b"omnigraph 0.10.0\ninternal-schema 100\n"


def test_exit_codes_reach_the_shell():
    assert run(SCRIPT, "snapshot").returncode == 1
    assert run(SCRIPT, "frobnicate").returncode == 2


def test_data_is_utf8_whatever_the_locale(graph):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run(SCRIPT, "export", graph, env=plain)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode("utf-8").splitlines()
    assert len(lines) == PEOPLE
    assert json.loads(lines[0])["data"]["name"] == "Zoë 00000"


def test_a_reader_that_leaves_early_is_no_error_to_shout_about(graph):
    command = f'"{SCRIPT}" export "{graph}" | head -n 1'
    done = run("bash", "-c", command)
    assert json.loads(done.stdout)["data"]["id"] == "Zoë 00000"
    assert done.stderr == b""


def test_results_go_to_stdout_and_notes_to_stderr(graph):
    done = run(SCRIPT, "branch", "create", "side", "--uri", graph, "--json")
    assert json.loads(done.stdout)["name"] == "side"
    assert "omnigraph branch create →".encode() in done.stderr
    quiet = run(SCRIPT, "branch", "create", "other", "--uri", graph, "--json", "--quiet")
    assert quiet.stderr == b""


def test_a_small_query_does_not_wait_for_pandas(graph):
    # Loading pandas would cost more than everything else such a query does.
    words = [
        "query",
        "--store",
        str(graph),
        "-e",
        "query q() { match { $p: Person } return { $p.name } limit 1 }",
    ]
    program = (
        "import sys; from omnigraph.cli.main import entry; "
        f"sys.argv = ['omnigraph', *{words!r}]; "
        "assert entry() == 0; "
        "import pyarrow; "
        "print('pandas' in sys.modules, len(pyarrow.table({'a': [1]}).to_pandas()))"
    )
    done = run(sys.executable, "-c", program)
    assert done.stdout.decode().splitlines()[-1] == "False 1", done.stderr


def test_a_library_that_cannot_be_found_is_told_once(graph):
    program = (
        "import sys; from omnigraph.cli.main import entry\n"
        "class Refusing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'lance': raise ImportError('refused')\n"
        "sys.meta_path.insert(0, Refusing())\n"
        f"sys.argv = ['omnigraph', 'health', '--json', {str(graph)!r}]\n"
        "sys.exit(entry())"
    )
    done = run(sys.executable, "-c", program)
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"] == "ImportError: refused"


@pytest.mark.parametrize(
    ("env", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_obey_the_environment(monkeypatch, capsys, tmp_path, env, coloured):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    (tmp_path / "s.pg").write_text(SCHEMA)
    (tmp_path / "q.gq").write_text("query q() { match { $p: Robot } return { $p.name } }")
    words = ["lint", "--query", str(tmp_path / "q.gq"), "--schema", str(tmp_path / "s.pg")]
    assert entry(words) == 1
    assert ("\x1b[31mERROR" in capsys.readouterr().out) is coloured
    assert entry(["snapshot"]) == 1
    assert ("\x1b[31m" in capsys.readouterr().err) is coloured
