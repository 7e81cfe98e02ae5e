"""Everything that is not Spark works without Spark, pandas, Polars and networkx."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.model.machine import EXTRAS

PEOPLE = Path(__file__).resolve().parents[2] / "examples/people"
# A machine without the extras, as far as imports tell.
BARE = f"""
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {sorted(EXTRAS)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BARE + program], capture_output=True, text=True, check=False
    )


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return run(f"from omnigraph.cli.main import entry; sys.exit(entry({[*map(str, words)]}))")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A graph that was made and filled by commands, without the extras."""
    uri = tmp_path_factory.mktemp("bare") / "people.omni"
    for words in (
        ("init", "--schema", PEOPLE / "people.pg", uri),
        ("load", "--mode", "overwrite", "--data", PEOPLE / "people.jsonl", uri),
    ):
        done = command(*words)
        assert done.returncode == 0, done.stderr
    return uri


def test_every_public_name_is_there_without_the_extras():
    done = run("import omnigraph; print([getattr(omnigraph, name) for name in omnigraph.__all__])")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("query", "--query", PEOPLE / "people.gq", "staff", "--store"),
        ("export", "--store"),
        ("optimize", "--store"),
        ("health", "--store"),
        ("commit", "list", "--store"),
    ],
    ids=lambda words: words[0],
)
def test_commands_work_without_the_extras(graph, words):
    done = command(*words, graph)
    assert (done.returncode, done.stderr.count("error")) == (0, 0), done.stderr


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("result.to_pandas()", "pandas"),
        ("result.to_polars()", "polars"),
        ("result.to_networkx(source='a', target='b')", "networkx"),
        ("pipeline.session()", "spark"),
        ("pipeline.load", "spark"),
        ("pipeline.stream", "spark"),
    ],
)
def test_what_needs_an_extra_says_which(graph, call, extra):
    query = "query q() { match { $p: Person } return { $p.name as a, $p.name as b } }"
    done = run(f"""
from omnigraph import Graph, errors, pipeline
with Graph.open({str(graph)!r}) as graph:
    result = graph.query({query!r})
    try:
        {call}
    except errors.PackageMissingError as missing:
        print(missing.extra, "|", missing.hint)
""")
    assert done.stdout == f"{extra} | pip install 'omnigraph[{extra}]'\n", done.stderr


def test_a_command_that_needs_spark_says_so_in_two_lines(graph):
    words = ("load", "--mode", "append", "--data", PEOPLE / "people.jsonl", "--engine", "spark")
    done = command(*words, "--quiet", graph)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "error: pipeline.session needs the package pyspark, which is not installed",
        "hint: pip install 'omnigraph[spark]'",
    ]
    told = json.loads(command(*words, "--quiet", "--json", graph).stderr)
    assert (told["code"], told["extra"]) == ("package-missing", "spark")
