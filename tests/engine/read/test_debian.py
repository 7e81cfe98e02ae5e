"""The package graph of this machine's own distribution, against answers computed without a graph.

Needs the generator from the shared folder and a Debian package index; skipped where either is
missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import Graph

REPOSITORY = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("OMNIGRAPH_SHARED", REPOSITORY.parent / "shared"))
GENERATOR = SHARED / "datasets" / "debian_packages.py"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def debian(tmp_path_factory):
    """The loaded graph, its queries and the answer key."""
    folder = tmp_path_factory.mktemp("debian")
    if not GENERATOR.is_file():
        pytest.skip("no dataset generator in a shared folder beside the checkout")
    made = subprocess.run(
        [sys.executable, str(GENERATOR), str(folder)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0 or not (folder / "answers.json").is_file():
        pytest.skip("no Debian package index on this machine")
    schema = (folder / "schema.pg").read_text()
    with Graph.init(str(folder / "g.omni"), schema, durability="process") as graph:
        graph.load(folder / "seed.jsonl", mode="append")
        answers = json.loads((folder / "answers.json").read_text())
        yield graph, (folder / "queries.gq").read_text(), answers


def ask(debian, query, **params):
    graph, queries, _ = debian
    return graph.query(queries, query, params=params).to_pylist()


def test_every_entity_arrived(debian):
    graph, _, answers = debian
    counts = {one.type_key: one.entity_count for one in graph.snapshot().datasets}
    assert counts == answers["counts"]


def test_walks_give_the_answers(debian):
    answers = debian[2]
    for name, expected in answers["direct_deps"].items():
        rows = ask(debian, "direct_deps", name=name)
        assert sorted({row["q.name"] for row in rows}) == expected
    for name, expected in answers["dependents_count"].items():
        assert ask(debian, "dependents_count", name=name) == [{"p.name": name, "n": expected}]
    for name, expected in answers["reach2_count"].items():
        assert len(ask(debian, "reach2", name=name)) == expected


def test_groups_filters_and_negation_give_the_answers(debian):
    answers = debian[2]
    assert [row["p.name"] for row in ask(debian, "essential")] == answers["essential"]
    assert len(ask(debian, "leaf_libs")) == answers["leaf_libs_count"]
    sections = ask(debian, "by_section")
    assert [row["n"] for row in sections] == [n for _, n in answers["by_section_top10_n"]]
    maintainers = ask(debian, "maintainers")
    assert [row["n"] for row in maintainers] == [n for _, n in answers["maintainers_top10"]]


def test_search_within_a_section_finds_the_word(debian):
    graph = debian[0]
    rows = graph.query(
        'query q() { match { $p: Package { section: "games" } } return { $p.name, $p.summary } }'
    ).to_pylist()
    expected = [row["p.name"] for row in rows if "chess" in words_of(row["p.summary"])]
    assert [row["p.name"] for row in ask(debian, "games")] == sorted(expected)


def words_of(text):
    return "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()
