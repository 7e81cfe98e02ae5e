"""Export: lines that load back, nodes first, by id."""

from __future__ import annotations

import datetime as dt
import json
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inside import table_of
from omnigraph import Graph
from omnigraph.errors import InputError
from omnigraph.model.values import DAYS_MAX, DAYS_MIN, EPOCH, MS_MAX, MS_MIN

SCHEMA = """
node B { name: String @key  day: Date?  at: DateTime?  big: I64?  raw: Blob?  tags: [String]? }
node A { name: String @key }
edge Link: A -> B { note: String? }
"""
LINES = [
    {"type": "B", "data": {"name": "y", "day": "2024-01-01", "at": "2024-01-01T00:00:00Z"}},
    {"type": "B", "data": {"name": "x", "big": str(2**60), "raw": "base64:aGk=", "tags": ["t"]}},
    {"type": "A", "data": {"name": "a"}},
    {"edge": "Link", "from": "a", "to": "y", "data": {"id": "l2"}},
    {"edge": "Link", "from": "a", "to": "x", "data": {"id": "l1", "note": "n"}},
]


@pytest.fixture
def graph(tmp_path):
    with Graph.init(str(tmp_path / "g.omni"), SCHEMA) as made:
        made.load("\n".join(map(json.dumps, LINES)), mode="append")
        yield made


def test_nodes_come_first_and_rows_by_id(graph):
    records = [json.loads(line) for line in graph.export()]
    assert [(r.get("type") or r["edge"], r["data"]["id"]) for r in records] == [
        ("A", "a"),
        ("B", "x"),
        ("B", "y"),
        ("Link", "l1"),
        ("Link", "l2"),
    ]
    x, y = records[1]["data"], records[2]["data"]
    assert (x["big"], x["raw"], x["tags"], x["day"]) == (str(2**60), "base64:aGk=", ["t"], None)
    assert (y["day"], y["at"]) == ("2024-01-01", "2024-01-01T00:00:00.000Z")
    assert (records[3]["from"], records[3]["to"]) == ("a", "x")


def test_an_export_loads_back_to_the_same_export(graph, tmp_path):
    lines = list(graph.export())
    with Graph.init(str(tmp_path / "copy.omni"), SCHEMA) as copy:
        copy.load("\n".join(lines), mode="overwrite")
        assert list(copy.export()) == lines


def test_types_choose_and_unknown_ones_are_refused(graph):
    assert len(list(graph.export(types=["B"]))) == 2
    with pytest.raises(InputError, match="unknown export type 'C'"):
        graph.export(types=["C"])


def test_an_older_commit_exports_as_it_was(graph):
    before = graph.snapshot().graph_commit_id
    lines = list(graph.export())
    graph.mutate('query d() { delete B where name = "x" }')
    assert list(graph.export(snapshot=before)) == lines
    assert len(list(graph.export())) == 3


# --- one spelling of dates and times ---

CALENDAR = """
node Day { day: Date @key  at: DateTime?  days: [Date]?  ats: [DateTime]? }
node Moment { at: DateTime @key  day: Date? }
edge On: Moment -> Day { since: Date?  at: DateTime? }
"""
DAYS = st.integers(DAYS_MIN, DAYS_MAX) | st.sampled_from([DAYS_MIN, DAYS_MAX, -1, 0, -354_286])
MOMENTS = st.integers(MS_MIN, MS_MAX) | st.sampled_from([MS_MIN, MS_MAX, -1, 0, 1])


def day_text(count):
    return (EPOCH + dt.timedelta(days=count)).isoformat()


def moment_text(count):
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=count)
    return moment.isoformat(timespec="milliseconds") + "Z"


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(
            DAYS,
            MOMENTS,
            st.none() | st.lists(DAYS, max_size=3),
            st.none() | st.lists(MOMENTS, max_size=3),
        ),
        min_size=1,
        max_size=6,
        unique_by=(lambda row: row[0], lambda row: row[1]),
    )
)
def test_dates_are_spelled_one_way_and_come_back_exactly(rows):
    counted, spelled = [], []
    for day, at, days, ats in rows:
        counted += [
            {"type": "Day", "data": {"day": day, "at": at, "days": days, "ats": ats}},
            {"type": "Moment", "data": {"at": at, "day": day}},
            {"edge": "On", "from": str(at), "to": str(day), "data": {"since": day, "at": at}},
        ]
        texts = {
            "day": day_text(day),
            "at": moment_text(at),
            "days": days and list(map(day_text, days)),
            "ats": ats and list(map(moment_text, ats)),
        }
        spelled += [texts, {"at": texts["at"], "day": texts["day"]}]
        spelled += [{"since": texts["day"], "at": texts["at"]}]
    wanted = sorted(map(json.dumps, spelled))

    def init(folder):
        return Graph.init(folder, CALENDAR, durability="process", maintenance=None)

    with TemporaryDirectory() as folder, init(f"{folder}/a") as graph, init(f"{folder}/b") as copy:
        empty = graph.snapshot().graph_commit_id
        graph.load("\n".join(map(json.dumps, counted)), mode="append")
        lines = list(graph.export())
        assert list(graph.changes_baseline().lines) == lines
        exported = [json.loads(line)["data"] for line in lines]
        without_id = ({k: v for k, v in one.items() if k != "id"} for one in exported)
        assert sorted(map(json.dumps, without_id)) == wanted
        head = graph.snapshot().graph_commit_id
        feed = graph.changes(start=f"after:{empty}").to_json()["blocks"][0]
        for told in (graph.diff(empty, head).to_json(), graph.commit_changes(head).to_json(), feed):
            images = (one["after"]["properties"] for one in told["changes"])
            assert sorted(map(json.dumps, images)) == wanted
        copy.load("\n".join(lines), mode="append")
        assert list(copy.export()) == lines
        for key in graph.snapshot().entries:
            mine, theirs = (table_of(one, key).read() for one in (graph, copy))
            assert mine.sort_by("id") == theirs.sort_by("id")
