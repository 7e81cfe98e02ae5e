"""Results: their forms, their values, their limits, and many threads at once."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.engine.read.context import ReadLimits
from omnigraph.errors import (
    InputError,
    LimitExceededError,
    MissingParameterError,
    NotFoundError,
    TimeLimitError,
)
from omnigraph.model.pictures.network import draw_graph, small_graph
from omnigraph.model.values import json_value

SCHEMA = """
node Thing {
  name: String @key
  small: I32?
  big: I64?
  free: U64?
  real: F64?
  short: F32?
  flag: Bool?
  day: Date?
  at: DateTime?
  tags: [String]?
  days: [Date]?
  vec: Vector(2)?
}
edge Link: Thing -> Thing
"""
THING = {
    "name": "t",
    "small": -1,
    "big": 2**60,
    "free": 2**63 - 1,
    "real": 1.5,
    "short": 0.1,
    "flag": True,
    "day": "2024-02-29",
    "at": "2024-02-29T12:34:56.789Z",
    "tags": ["x", "y"],
    "days": ["2024-01-01"],
    "vec": [0.5, -0.5],
}
SHOWN = " ".join(f"$t.{name} as {name}" for name in THING)
ALL = f"query q() {{ match {{ $t: Thing }} return {{ {SHOWN} }} }}"


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    made = Graph.init(str(tmp_path_factory.mktemp("results") / "g.omni"), SCHEMA)
    made.load(
        "\n".join(
            [
                json.dumps({"type": "Thing", "data": THING}),
                json.dumps({"type": "Thing", "data": {"name": "u"}}),
                json.dumps({"edge": "Link", "from": "t", "to": "u"}),
            ]
        ),
        mode="append",
    )
    yield made
    made.close()


def test_values_keep_their_types(graph):
    result = graph.query(ALL)
    full, empty = result.to_pylist()
    assert result.columns == list(THING)
    assert full["big"] == 2**60
    assert full["free"] == 2**63 - 1
    assert full["day"] == dt.date(2024, 2, 29)
    assert full["at"] == dt.datetime(2024, 2, 29, 12, 34, 56, 789_000, tzinfo=dt.UTC)
    assert full["days"] == [dt.date(2024, 1, 1)]
    assert full["vec"] == [0.5, -0.5]
    assert [value for name, value in empty.items() if name != "name"] == [None] * 11
    assert result.graph_commit_id == graph.snapshot().graph_commit_id


def test_arrow_rows_pandas_and_polars_hold_the_same(graph):
    result = graph.query(ALL)
    table = result.to_arrow()
    assert isinstance(table, pa.Table)
    assert table.schema.field("at").type == pa.timestamp("ms", tz="UTC")
    assert table.to_pylist() == result.to_pylist() == list(result)
    assert len(result) == result.row_count == table.num_rows == 2
    assert result.to_pandas()["name"].tolist() == ["t", "u"]
    assert result.to_polars()["name"].to_list() == ["t", "u"]


def test_json_rows_are_safe_for_every_reader(graph):
    row = graph.query(ALL).to_json_rows()[0]
    assert row["big"] == str(2**60)
    assert row["day"] == "2024-02-29"
    assert row["at"] == "2024-02-29T12:34:56.789Z"
    assert json.loads(json.dumps(row)) == row


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2**53 - 1, 2**53 - 1),
        (2**53, str(2**53)),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        ([dt.date(2000, 1, 1), None], ["2000-01-01", None]),
        (True, True),
    ],
)
def test_json_values(value, shown):
    assert json_value(value) == shown


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("$t.small < -0.5", ["t"]),
        ("$t.big > 1152921504606846975.0", []),
        ("$t.big >= 1152921504606846975", ["t"]),
        ("$t.free > -1", ["t"]),
        ("$t.short = 0.1", ["t"]),
        ('$t.day = date("2024-02-29")', ["t"]),
        ('$t.day < date("2024-03-01")', ["t"]),
        ('$t.at >= datetime("2024-02-29T12:34:56.789Z")', ["t"]),
        ("$t.at < now()", ["t"]),
        ("$t.flag = true", ["t"]),
        ('$t.tags contains "y"', ["t"]),
        ('$t.name in ["u", "v"]', ["u"]),
        ('$t.day in [date("2024-02-29")]', ["t"]),
        ("$t.small is null", ["u"]),
        ("$t.real * 2 = 3", ["t"]),
        ("not ($t.small > 0)", ["t"]),
    ],
)
def test_conditions_compare_without_loss(graph, condition, found):
    query = f"query q() {{ match {{ $t: Thing  {condition} }} return {{ $t.name }} }}"
    assert [row["t.name"] for row in graph.query(query).to_pylist()] == found


def test_a_result_can_be_read_batch_by_batch(tmp_path):
    with Graph.init(str(tmp_path / "g.omni"), "node N { name: String @key  n: I32 }") as graph:
        lines = (f'{{"type": "N", "data": {{"name": "{n:05}", "n": {n}}}}}' for n in range(10_000))
        graph.load("\n".join(lines), mode="append")
        result = graph.query("query q() { match { $n: N } return { $n.n } order { $n.n desc } }")
        batches = list(result.batches(3_000))
        assert [batch.num_rows for batch in batches] == [3_000, 3_000, 3_000, 1_000]
        numbers = [value for batch in batches for value in batch.column(0).to_pylist()]
        assert numbers == list(range(9_999, -1, -1))
        assert result.to_arrow().column(0).to_pylist() == numbers


def test_an_integer_never_wraps_around(graph):
    query = "query q() { match { $t: Thing } return { $t.big * 16 as x } }"
    with pytest.raises(InputError, match="does not fit"):
        graph.query(query).to_pylist()


def test_a_required_parameter_is_asked_for_before_anything_is_read(graph):
    query = "query q($n: String) { match { $t: Thing { name: $n } } return { $t.name } }"
    with pytest.raises(MissingParameterError):
        graph.query(query)


CROSS = (
    "query q() { match { $a: Thing  $b: Thing  $c: Thing  $d: Thing } return { count(*) as n } }"
)


def test_memory_and_time_have_limits_with_errors_of_their_own(graph):
    assert graph.query(CROSS).to_pylist() == [{"n": 16}]
    with pytest.raises(LimitExceededError) as caught:
        graph.query(CROSS, limits=ReadLimits(memory_bytes=200))
    assert caught.value.facts["limit"] == 200
    with pytest.raises(TimeLimitError):
        graph.query(CROSS, limits=ReadLimits(time_ms=0))


def test_many_threads_read_while_one_writes(tmp_path):
    schema = "node N { name: String @key }\nedge E: N -> N"
    query = 'query q() { match { $a: N { name: "hub" }  $a e $b } return { $b.name } }'
    with Graph.init(str(tmp_path / "g.omni"), schema, durability="process") as graph:
        graph.load('{"type": "N", "data": {"name": "hub"}}', mode="append")

        def read(_):
            return graph.query(query).row_count

        with ThreadPoolExecutor(4) as pool:
            for number in range(15):
                asked = [pool.submit(read, at) for at in range(4)]
                graph.load(
                    f'{{"type": "N", "data": {{"name": "n{number}"}}}}\n'
                    f'{{"edge": "E", "from": "hub", "to": "n{number}"}}',
                    mode="append",
                )
                assert all(number <= one.result() <= number + 1 for one in asked)
        assert graph.query(query).row_count == 15


# --- the picture of a network: well-formed, harmless and the same every time --------------------

NASTY = "<script>alert('&')</script>\x00\x1b"


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", "b"), ("b", "c"), ("c", "a")],
        [("alone", None)],
        [("loop", "loop")],
        [(NASTY, "b")],
        [("a", "b"), ("x", "y")],
        [(f"n{n}", f"n{n * 7 % 60}") for n in range(60)],
    ],
    ids=["cycle", "alone", "loop", "nasty", "two parts", "largest"],
)
def test_a_graph_is_drawn_with_every_node_inside_the_picture(pairs):
    graph = small_graph(pairs)
    svg = draw_graph(graph)
    root = ET.fromstring(svg)
    circles = [one for one in root.iter() if one.tag.endswith("circle")]
    assert len(circles) == len(graph.nodes)
    for one in circles:
        assert 0 < float(one.get("cx")) < 760
        assert 0 < float(one.get("cy")) < 460
    assert len({(one.get("cx"), one.get("cy")) for one in circles}) == len(circles)
    assert svg == draw_graph(graph)
    assert "<script" not in svg


def test_a_graph_is_small_up_to_a_limit():
    assert small_graph((f"{n}", f"{n + 1}") for n in range(59)).is_small
    assert not small_graph((f"{n}", f"{n + 1}") for n in range(60)).is_small
    assert not small_graph([]).is_small


# --- a result as a Python value ------------------------------------------------------------------

NAMES = "query q() { match { $t: Thing } return { $t.name, $t.small } order { $t.name } }"
TAGS = "query q() { match { $t: Thing } return { $t.name, $t.n } order { $t.name } }"


def names(graph):
    return graph.query(NAMES)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    schema = "node Thing { name: String @key  n: I32? }"
    folder = str(tmp_path_factory.mktemp("many") / "g.omni")
    with Graph.init(folder, schema, durability="process") as made:
        things = ({"name": f"t{i:02}", "n": i * 7 if i else None} for i in range(22))
        made.load(
            "\n".join(json.dumps({"type": "Thing", "data": t}) for t in things), mode="append"
        )
        yield made


def test_rows_are_had_by_their_place(many):
    result = many.query(TAGS)
    rows = result.to_pylist()
    assert [result[0], result[-1]] == [rows[0], rows[-1]]
    for cut in (slice(1, 3), slice(None, -1), slice(5, 1), slice(None, None, -1), slice(99, None)):
        assert result[cut] == rows[cut]
    with pytest.raises(IndexError, match=f"no row {len(rows)}: the answer has {len(rows)}"):
        result[len(rows)]


def test_a_place_does_not_put_the_whole_answer_together(graph):
    result = names(graph)
    made = []
    make = result._make
    result._make = lambda first, last: made.append((first, last)) or make(first, last)
    assert result[1]["t.name"]
    assert made == [(1, 2)]


def test_one_row_is_one_row(graph):
    assert names(graph).column("t.name") == [row["t.name"] for row in names(graph)]
    only = graph.query("query q() { match { $t: Thing } return { count($t) as things } }")
    assert only.one() == {"things": len(names(graph))}
    assert only.scalar() == len(names(graph))
    with pytest.raises(InputError, match=r"\d+ rows, and one was asked for"):
        names(graph).one()
    with pytest.raises(InputError, match=r"columns t\.name, t\.small"):
        names(graph).scalar()
    none = graph.query('query q() { match { $t: Thing $t.name = "?" } return { $t.name } }')
    with pytest.raises(NotFoundError, match="no row"):
        none.one()
    with pytest.raises(NotFoundError, match="no row"):
        none.scalar()


def test_a_column_that_is_not_there_is_told_with_the_nearest(graph):
    with pytest.raises(InputError, match=r"no column 't\.nam'") as caught:
        names(graph).column("t.nam")
    assert caught.value.hint == "did you mean 't.name'?"


def test_a_row_is_no_column(graph):
    with pytest.raises(InputError, match=r"by their place, got 't\.name'") as caught:
        names(graph)["t.name"]
    assert 'result.column("t.name")' in caught.value.hint


def test_other_libraries_take_the_rows_without_a_copy(graph):
    result = names(graph)
    assert pa.table(result).equals(result.to_arrow())
    mine = result.to_arrow().column("t.small").chunk(0).buffers()[1]
    theirs = pa.table(result).column("t.small").chunk(0).buffers()[1]
    assert mine.address == theirs.address


def test_a_result_travels_to_another_process(graph):
    result = graph.query(NAMES, explain=True)
    there = pickle.loads(pickle.dumps(result))
    assert there.to_pylist() == result.to_pylist()
    assert there.graph_commit_id == result.graph_commit_id
    assert str(there.explanation) == str(result.explanation)
    assert there[1:2] == result[1:2]


def test_a_printed_result_is_a_small_table(many):
    lines = str(many.query(TAGS)).splitlines()
    assert lines[:4] == ["t.name  t.n", "------  ---", "t00", "t01       7"]
    assert lines[-1] == "… and 2 more rows"
    assert len(lines) == 2 + 20 + 1
