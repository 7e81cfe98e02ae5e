"""Loads of what a Python program has at hand: dictionaries, data frames, networks."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import gzip
import json
import uuid
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from omnigraph import Graph, from_networkx
from omnigraph.errors import IdempotencyKeyReusedError, InputError, OmnigraphError

SCHEMA = """
node Person { name: String @key  age: I32?  born: Date?  seen: DateTime?  tags: [String]?
  score: F64?  role: enum(admin, user)?  vec: Vector(2)?  photo: Blob? }
node Event { kind: String }
edge Knows: Person -> Person { since: Date?  weight: F64? }
"""
DAY, MOMENT = dt.date(2020, 2, 29), dt.datetime(2020, 2, 29, 3, 4, 5, 678_900)


class Role(enum.Enum):
    ADMIN = "admin"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process") as made:
        yield made


def stored(graph):
    """Every entity that is stored: properties that are not null, edges with their ends."""
    found = []
    for line in map(json.loads, graph.export()):
        data = {name: value for name, value in line["data"].items() if value is not None}
        ends = (line["from"], line["to"]) if "edge" in line else ()
        kind = line.get("type") or line["edge"]
        found.append((kind, *ends, {name: data[name] for name in data if name != "id"}))
    return found


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"age": np.int64(3)}, {"age": 3}),
        ({"age": decimal.Decimal(4)}, {"age": 4}),
        ({"score": decimal.Decimal("1.5")}, {"score": 1.5}),
        ({"score": float("nan")}, {"score": "NaN"}),
        ({"score": np.float32(0.5)}, {"score": 0.5}),
        ({"born": DAY}, {"born": "2020-02-29"}),
        ({"born": np.datetime64("2020-02-29")}, {"born": "2020-02-29"}),
        ({"seen": MOMENT}, {"seen": "2020-02-29T03:04:05.678Z"}),
        ({"seen": pd.Timestamp(MOMENT)}, {"seen": "2020-02-29T03:04:05.678Z"}),
        (
            {"seen": MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(hours=1)))},
            {"seen": "2020-02-29T02:04:05.678Z"},
        ),
        ({"seen": pd.NaT, "score": pd.NA, "tags": None}, {}),
        ({"tags": ("x", "y")}, {"tags": ["x", "y"]}),
        ({"role": Role.ADMIN}, {"role": "admin"}),
        ({"vec": np.array([1.0, 2.0])}, {"vec": [1.0, 2.0]}),
        ({"photo": b"abc"}, {"photo": "base64:YWJj"}),
    ],
)
@pytest.mark.parametrize("form", ["rows", "records"])
def test_values_of_python_mean_what_json_would_say(graph, form, given, kept):
    person = {"name": "a", **given}
    data = {"Person": [person]} if form == "rows" else [{"type": "Person", "data": person}]
    graph.load(data, mode="append")
    assert stored(graph) == [("Person", {"name": "a", **kept})]


def test_a_uuid_is_text(graph):
    name = uuid.uuid4()
    graph.load({"Person": [{"name": name}]}, mode="append")
    assert stored(graph) == [("Person", {"name": str(name)})]


def test_records_may_come_one_by_one(graph):
    records = ({"type": "Person", "data": {"name": f"p{n}"}} for n in range(3))
    done = graph.load(records, mode="append")
    edges = iter([{"from": "p0", "to": "p1", "since": DAY}])
    graph.load({"Knows": edges}, mode="append")
    assert done.nodes == {"Person": 3}
    assert stored(graph)[-1] == ("Knows", "p0", "p1", {"since": "2020-02-29"})


FRAME = {
    "name": ["m", "n"],
    "age": [1, None],
    "born": [DAY, None],
    "seen": [MOMENT.replace(microsecond=0), None],
    "role": ["admin", None],
    "tags": [["a", "b"], None],
}
FRAMES = {
    "pandas": lambda: pd.DataFrame(FRAME, index=["i", "j"]).astype({"role": "category"}),
    "polars": lambda: pl.DataFrame(FRAME).with_columns(pl.col("role").cast(pl.Categorical)),
    "arrow": lambda: pa.table(FRAME),
    "reader": lambda: pa.table(FRAME).to_reader(),
}


@pytest.mark.parametrize("library", FRAMES)
def test_a_frame_of_any_library_can_be_loaded(graph, library):
    graph.load({"Person": FRAMES[library]()}, mode="append")
    edges = pd.DataFrame({"src": ["m"], "dst": ["n"], "since": ["2020-02-29"]})
    graph.load({"Knows": edges}, mode="append")
    seen = "2020-02-29T03:04:05.000Z"
    full = {"name": "m", "age": 1, "born": "2020-02-29", "seen": seen, "tags": ["a", "b"]}
    assert stored(graph) == [
        ("Person", full | {"role": "admin"}),
        ("Person", {"name": "n"}),
        ("Knows", "m", "n", {"since": "2020-02-29"}),
    ]


def test_a_path_and_a_type_are_enough(graph, tmp_path):
    pl.DataFrame(FRAME).write_parquet(tmp_path / "people.parquet")
    (tmp_path / "x.csv").write_text("name,born\nc,2020-02-29\n")
    (tmp_path / "folder").mkdir()
    with gzip.open(tmp_path / "folder" / "x.jsonl.gz", "wt") as file:
        file.write('{"type": "Person", "data": {"name": "z"}}\n')
    graph.load(tmp_path / "people.parquet", type="Person", mode="append")
    graph.load(tmp_path / "x.csv", type="Person", mode="append")
    graph.load(tmp_path / "folder", mode="append")
    graph.load(pa.table({"name": ["t"]}), type="Person", mode="append")
    assert {entity[-1]["name"] for entity in stored(graph)} == {"m", "n", "c", "z", "t"}


def test_a_type_without_rows_is_emptied_when_it_is_overwritten(graph):
    graph.load({"Person": [{"name": "a"}], "Event": [{"kind": "talk"}]}, mode="append")
    graph.load({"Event": []}, mode="overwrite")
    assert stored(graph) == [("Person", {"name": "a"})]


WRONG = [
    (
        [{"type": "Person", "data": {"name": "z", "agee": 1}}],
        "record 1: unknown input field",
        "age",
    ),
    ([{"type": "Person", "data": {"name": "z", "age": "old"}}], "record 1: .*'age' expects", None),
    ([{"type": "Person", "data": {"name": object()}}], "record 1: a value of type object", None),
    ({"Person": [{"name": "y"}, {"name": "z", "age": "x"}]}, "Person row 2: .*'age'", None),
    ({"Person": [{"name": "y"}, {"name": "z", "agee": 1}]}, "unknown column 'agee'", "'age'"),
    ({"Person": [{"name": "y"}, {"name": object()}]}, "'Person', row 2: a value of type", None),
    ({"Person": [{"name": "y"}, 3]}, "'Person', row 2: expected a dict, got int", None),
    ({"Person": [{"name": float("nan")}]}, "row 1: .*'name' expects String, got nan", None),
    ({"Person": [{1: "z"}]}, "row 1: 1 names no property", None),
    ({"Person": pd.DataFrame({"name": ["x", 3]})}, "'Person': .*name", "one type"),
    ({"Person": [{"name": "\ud83d"}]}, "row 1: .*'name' expects String, got text with a", None),
    ([{"type": "Person", "data": {"name": "z", "age": 2**70}}], "record 1: .*'age' expects", None),
    ({"Person": 5}, "cannot read int", "rows as dicts"),
    ({"Person": pl.LazyFrame({"name": ["y"]})}, "cannot read LazyFrame", "collect()"),
    (nx.path_graph(2), "a Graph does not say which types", "from_networkx("),
    ({"Knows": [{"from": "a", "to": "nobody"}]}, "Knows row 1: .*'a' not found", None),
    ({"type": "Person", "data": {"name": "a"}}, "one record stands where", "into a list"),
    (pa.table({"name": ["a"]}), "not said of which", "mapping"),
    (Path("people.parquet"), "not said of which", "type="),
    ("people.jsonl", "looks like the path of a file", 'pathlib.Path("people.jsonl")'),
    ({"Person": pl.DataFrame({"Name": ["x"]})}, "unknown column 'Name'", '{"name": "Name"}'),
    ([1, 2], "item 1 of data must be a line", "dictionaries"),
    (["a.jsonl", "b.jsonl"], "looks like the path of a file", 'pathlib.Path("a.jsonl")'),
    ([{"name": "a"}], "exactly one of 'type' or 'edge'", '"data": {…}}'),
    ([{"type": "Person", "name": "a"}], "unknown input field 'name'", 'stand in "data"'),
    ('{"type": "Person", "data": {"name": "a",}}', r"line 1: .*\(column 40\)$", None),
    (b'{"type": "Person", "data": {"name": "\xe9"}}', "strict JSON: it is not UTF-8 text$", None),
    ({"Person": pd.DataFrame({"name": ["x", 3]})}, "several types: int, str", "one type"),
]


@pytest.mark.parametrize(("data", "message", "hint"), WRONG)
def test_what_cannot_be_loaded_is_named_and_leaves_nothing(graph, data, message, hint):
    before = graph.snapshot().graph_commit_id
    with pytest.raises(OmnigraphError, match=message) as caught:
        graph.load(data, mode="append")
    if hint is not None:
        assert hint in caught.value.hint
    assert graph.snapshot().graph_commit_id == before


def test_a_key_that_is_a_number_may_end_an_edge_of_any_form(tmp_path):
    schema = "node Shop { code: I64 @key }  edge Near: Shop -> Shop"
    with Graph.init(tmp_path / "shops.omni", schema, durability="process") as graph:
        shops = [{"type": "Shop", "data": {"code": code}} for code in (7, 8)]
        graph.load([*shops, {"edge": "Near", "from": 7, "to": 8}], mode="append")
        graph.load({"Near": [{"from": 8, "to": 7}]}, mode="append")
        assert [ends for kind, *ends, _ in stored(graph) if kind == "Near"] == [
            ["7", "8"],
            ["8", "7"],
        ]


def test_the_same_objects_with_the_same_key_land_once(graph):
    for data in ([{"type": "Person", "data": {"name": "a"}}], {"Event": [{"kind": "talk"}]}):
        key = f"key of a {type(data).__name__}"
        first, again = (graph.load(data, mode="append", idempotency_key=key) for _ in range(2))
        assert first.commit == again.commit
    with pytest.raises(IdempotencyKeyReusedError):
        graph.load({"Event": [{"kind": "tea"}]}, mode="append", idempotency_key="key of a dict")
    assert len(stored(graph)) == 2


def test_bad_records_go_to_a_quarantine_as_lines(graph, tmp_path):
    records = [
        {"type": "Person", "data": {"name": name, "age": age}}
        for name, age in (("a", 1), ("b", "x"), ("c", 3))
    ]
    done = graph.load(records, mode="append", on_error="quarantine", quarantine=tmp_path / "bad")
    assert done.nodes == {"Person": 2}
    text = "".join(path.read_text() for path in (tmp_path / "bad").rglob("*") if path.is_file())
    assert '\\"b\\"' in text or '"b"' in text


def test_half_a_surrogate_pair_goes_to_a_quarantine_too(graph, tmp_path):
    records = [
        {"type": "Person", "data": {"name": "\ud83d"}},
        {"type": "Person", "data": {"name": "a", "\ud83d": 1}},
        {"type": "Person", "data": {"name": "b"}},
    ]
    done = graph.load(records, mode="append", on_error="quarantine", quarantine=tmp_path / "bad")
    assert done.nodes == {"Person": 1}
    files = [path for path in (tmp_path / "bad").rglob("*") if path.is_file()]
    lines = [line for path in files for line in path.read_text().splitlines() if "ud83d" in line]
    assert len([json.loads(line) for line in lines]) == 2


def test_a_network_goes_in_and_comes_out(graph):
    network = nx.DiGraph()
    network.add_node("ada", age=36)
    network.add_node("grace", age=85)
    network.add_edge("ada", "grace", weight=0.5)
    records = from_networkx(network, node_type="Person", edge_type="Knows", key="name")
    graph.load(records, mode="append")
    query = "query q() { match { $a: Person $a $w:knows $b } return { $a.name $b.name $w.weight } }"
    back = graph.query(query).to_networkx()
    assert [(u, v, d["weight"]) for u, v, d in back.edges(data=True)] == [("ada", "grace", 0.5)]
    with pytest.raises(OmnigraphError, match="cannot be an id"):
        list(from_networkx(nx.grid_2d_graph(1, 2), node_type="Person", edge_type="Knows"))


def test_a_mapping_has_its_types_and_a_listener_is_called(graph):
    with pytest.raises(InputError, match="says itself which types") as caught:
        graph.load({"name": "a"}, type="Person", mode="append")
    assert "in a list" in caught.value.hint
    with pytest.raises(InputError, match="load: progress must be"):
        graph.load([], mode="append", progress=3)


def test_progress_is_told(graph):
    ticks = []
    graph.load({"Person": [{"name": "a"}]}, mode="append", progress=ticks.append)
    assert ticks


def test_a_named_index_of_pandas_is_a_column(graph):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"name": ["ada", "bob"]})
    result = graph.load(frame.set_index("name"), mode="append", type="Person")
    assert str(result) == f"append into main: Person 2; {result.commit.graph_commit_id}"
    again = frame.set_index("name", drop=False)
    assert graph.load(again, mode="merge", type="Person").nodes == {"Person": 2}


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ({"Persn": [{"name": "a"}]}, "did you mean 'Person'?"),
        (
            {"Knows": pa.table({"one": ["a"], "two": ["b"]})},
            "an edge has columns 'from' (a Person)",
        ),
        ({"Person": pa.table({"name": ["a"], "xyz": ["b"]})}, "leave it out or rename it"),
    ],
)
def test_what_does_not_fit_the_schema_has_a_way_out(graph, data, hint):
    with pytest.raises(OmnigraphError) as caught:
        graph.load(data, mode="append")
    assert hint in caught.value.hint
