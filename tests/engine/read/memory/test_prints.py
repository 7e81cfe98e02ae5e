"""Fingerprints miss no row, whatever the texts and wherever the rows are."""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.engine.core import OpenMode
from omnigraph.engine.read.memory import cache, frame, prints
from omnigraph.engine.read.memory.ids import end_words
from omnigraph.engine.read.memory.prints import Prints
from omnigraph.errors import UnavailableError

SCHEMA = "node N { name: String @key }\nedge E: N -> N { w: I32 }"
TEXTS = st.one_of(
    st.sampled_from(["", "a", "é", "12345678", "123456789", "a" * 40, "b" * 40]), st.text()
)


@given(st.lists(TEXTS, max_size=30), st.integers(0, 5))
def test_equal_texts_have_equal_numbers_wherever_they_stand(texts, skipped):
    column = pa.array([*texts, *reversed(texts)], pa.string()).slice(skipped)
    by_text = {}
    for text, number in zip(column.to_pylist(), end_words(column).tolist(), strict=True):
        assert by_text.setdefault(text, number) == number
        assert end_words(pa.array([text])).tolist() == [number]


def test_texts_of_one_size_are_told_apart_by_their_ends():
    texts = pa.array([f"person-{number:09}" for number in range(5000)])
    assert len(set(end_words(texts).tolist())) == 5000


@pytest.fixture
def graph(tmp_path):
    """A big table, as far as the settings say, of which nothing is in memory."""
    with Graph.init(str(tmp_path / "graph"), SCHEMA) as made:
        rows = [{"type": "N", "data": {"name": f"n{number:03}"}} for number in range(40)]
        for number in range(80):
            ends = {"from": f"n{number % 40:03}", "to": f"n{(number * 7 + number // 40) % 40:03}"}
            rows.append({"edge": "E", **ends, "data": {"w": number}})
        made.load(rows, mode="append")
        yield made


def edges_table(graph):
    entries = graph._core.snapshot("main", None).entries
    return graph._reader._caches.table(entries["edge:E"])


@pytest.mark.parametrize("compared", [0, 100])
def test_rows_that_may_hold_a_text_are_all_that_do(graph, compared, monkeypatch):
    monkeypatch.setattr(prints, "COMPARED_MAX", compared)
    monkeypatch.setattr(prints, "_BATCH_ROWS", 7)
    monkeypatch.setattr(prints, "_SEARCHED_ROWS", 9)
    table = edges_table(graph)
    made = Prints.of(table, "src")
    for wanted in (["n007"], ["n007", "n008", None], ["nobody"], [f"n{n:03}" for n in range(20)]):
        column = pa.array(wanted, pa.string())
        rows = table.read(["src"])
        meant = rows.filter(pc.is_in(rows["src"], value_set=column.drop_null()))["_rowid"]
        assert set(made.meant(column).tolist()) >= set(meant.to_pylist())


def test_too_many_rows_are_left_to_a_scan(graph, monkeypatch):
    monkeypatch.setattr(prints, "MEANT_ROWS_MAX", 1)
    assert Prints.of(edges_table(graph), "src").meant(pa.array(["n001"])) is None


def test_a_table_with_deleted_rows_has_none(graph):
    assert Prints.can_be(edges_table(graph), "src")
    graph.mutate("query d() { delete E where w = 3 }")
    assert not Prints.can_be(edges_table(graph), "src")


def test_an_index_is_better(graph):
    graph.optimize()
    assert not Prints.can_be(edges_table(graph), "src")


QUESTION = 'query q() { match { $a: N { name: "n003" }  $a e $b } return { $b.name } }'


@pytest.fixture
def big(monkeypatch):
    """Every table is a big one."""
    monkeypatch.setattr(cache, "LOOKUP_EDGES_MIN", 0)
    monkeypatch.setattr(cache, "LOOKUP_WALKS", 100)
    monkeypatch.setattr(cache, "IDS_AT_ONCE_ROWS", 0)
    monkeypatch.setattr(frame, "PRINTED_ROWS_MIN", 0)
    monkeypatch.setattr(frame, "SMALL_TABLE_ROWS", 0)
    monkeypatch.setattr(frame, "SEARCHED_IDS_MAX", 16)
    monkeypatch.setattr(frame, "HOT_FETCHES", 100)


@pytest.mark.usefixtures("big")
def test_the_second_look_reads_no_column(graph):
    with Graph.open(graph.uri, OpenMode.READ_ONLY) as reader:
        first = reader.query(QUESTION, explain=True)
        second = reader.query(QUESTION, explain=True)
        assert first.to_pylist() == second.to_pylist()
        assert len(first.to_pylist()) == 2
        assert first.explanation.rows_read >= 40 + 80
        assert second.explanation.rows_read < 20


@pytest.mark.usefixtures("big")
def test_the_edges_of_a_node_are_looked_at_while_the_node_is_looked_for(graph, monkeypatch):
    """Each of the two scans goes on only when the other one has begun, too."""
    begun = {"id": threading.Event(), "src": threading.Event()}
    marks_of = Prints.of

    def meeting(table, column, *more):
        begun[column].set()
        other = "src" if column == "id" else "id"
        assert begun[other].wait(20), "the other scan has not begun"
        return marks_of(table, column, *more)

    monkeypatch.setattr(Prints, "of", meeting)
    with Graph.open(graph.uri, OpenMode.READ_ONLY) as reader:
        assert len(reader.query(QUESTION)) == 2


@pytest.mark.usefixtures("big")
def test_a_look_beside_that_fails_is_made_again_by_who_needs_it(graph, monkeypatch):
    marks_of, told = Prints.of, []

    def failing(table, column, *more):
        if column == "src" and threading.current_thread() is not threading.main_thread():
            told.append(column)
            raise UnavailableError("the disk is away for a moment")
        return marks_of(table, column, *more)

    monkeypatch.setattr(Prints, "of", failing)
    with Graph.open(graph.uri, OpenMode.READ_ONLY) as reader:
        assert len(reader.query(QUESTION)) == 2
    assert told in ([], ["src"])
