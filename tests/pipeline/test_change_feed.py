"""What `readChanges` gives: right across schema changes, and what applied in order is the graph."""

from __future__ import annotations

import random

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from twins import edge, ndjson, node

from omnigraph import Graph
from omnigraph.errors import ChangeFeedGapError, InputError
from omnigraph.pipeline.datasource import (
    CHANGE_TYPE,
    COMMIT_ID,
    ChangeStreamReader,
    OmnigraphSource,
    SourceOptions,
)

PERSON = "k: String @key  n: I32?  f: F64?  tags: [String]?  pic: Blob?"
SCHEMA = f"node P {{ {PERSON} }}\nedge E: P -> P {{ w: I32? }}"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(str(tmp_path / "g"), SCHEMA, durability="process") as opened:
        yield opened


def head(graph):
    return graph.commits(limit=1)[0].graph_commit_id


def put(graph, *records, mode="merge"):
    graph.load(ndjson(list(records)), mode=mode)
    return head(graph)


def read(graph, type_name="P", columns=None, **options):
    """Rows of the source, partition after partition, as a task would read them."""
    source = OmnigraphSource({"path": graph.uri, "type": type_name, **options})
    schema = source.schema()
    if columns is not None:
        schema = StructType([field for field in schema.fields if field.name in columns])
    reader = source.reader(schema)
    pieces = [list(reader.read(piece)) for piece in reader.partitions()]
    return [row for batches in pieces for batch in batches for row in batch.to_pylist()]


def changes(graph, start, type_name="P", **options):
    return read(graph, type_name, readChanges="true", start=start, **options)


def told(rows, key="id"):
    return sorted((row[CHANGE_TYPE], row[key]) for row in rows)


# --- across schema changes --------------------------------------------------------------------

# what changed: (type, properties)
EVOLUTIONS = {
    "added": ("P", PERSON + " x: String?"),
    "added and filled": ("P", PERSON + " x: I32 @default(7)"),
    "dropped": ("P", PERSON.replace("f: F64?", "").replace("pic: Blob?", "")),
    "renamed": ("P", PERSON.replace("n: I32?", 'm: I32? @rename_from("n")')),
    "widened": ("P", PERSON.replace("I32", "I64")),
    "all at once": ("P", 'k: String @key n: I64? g: F64? @rename_from("f") x: String?'),
    "type renamed": ("Q", PERSON),
}


def evolve(graph, evolution):
    name, properties = EVOLUTIONS[evolution]
    rename = "" if name == "P" else '@rename_from("P")'
    graph.apply_schema(
        f"node {name} {rename} {{ {properties} }}\nedge E: {name} -> {name} {{ w: I32? }}"
    )
    return name


@pytest.mark.parametrize("evolution", EVOLUTIONS)
def test_a_schema_change_alone_is_no_change_of_rows(graph, evolution):
    start = put(graph, node("P", k="a", n=1), node("P", k="b", f=0.1), node("P", k="c"))
    name = evolve(graph, evolution)
    assert told(changes(graph, start, name)) == []


@pytest.mark.parametrize("evolution", EVOLUTIONS)
def test_changes_after_a_schema_change_are_told_in_the_new_columns(graph, evolution):
    start = put(
        graph,
        *(node("P", k=k, n=5, f=0.5, tags=["t"], pic="base64:AQID") for k in "abcd"),
        edge("E", "a", "b"),
    )
    name = evolve(graph, evolution)
    now = {row["id"]: row for row in read(graph, name)}
    kept = {key: value for key, value in now["b"].items() if key not in ("id", "k", "pic")}
    same = {key: value for key, value in kept.items() if value is not None}
    same |= {"pic": "base64:AQID"} if "pic" in now["b"] else {}
    other = {**same, "n" if "n" in same else "m": 6}
    put(graph, node(name, k="b", **same), node(name, k="c", **other), node(name, k="e"))
    graph.mutate(f'query gone() {{ delete {name} where k = "d" }}')
    found = changes(graph, start, name)
    assert told(found) == [("delete", "d"), ("insert", "e"), ("update", "c")]
    gone = next(row for row in found if row["id"] == "d")
    assert {key: gone[key] for key in kept} == kept


def test_a_type_that_came_later_is_all_inserted(graph):
    start = put(graph, node("P", k="a"))
    graph.apply_schema(SCHEMA + "node R { k: String @key }")
    put(graph, node("R", k="r"))
    assert told(changes(graph, start, "R")) == [("insert", "r")]


def test_a_past_that_was_dropped_for_good_is_a_gap(graph):
    start = put(graph, node("P", k="a", n=1))
    graph.apply_schema(SCHEMA.replace("n: I32?", ""), allow_data_loss=True)
    with pytest.raises(ChangeFeedGapError):
        changes(graph, start)


def test_a_running_stream_says_that_its_columns_are_gone(graph):
    source = OmnigraphSource({"path": graph.uri, "type": "P", "readChanges": "true"})
    options = SourceOptions.parse(source.options)
    stream = ChangeStreamReader(options, source.schema())
    first = stream.initialOffset()
    put(graph, node("P", k="a", n=1))
    evolve(graph, "renamed")
    with pytest.raises(InputError, match="P has no column 'n'"):
        stream.partitions(first, stream.latestOffset())
    again = ChangeStreamReader(options, source.schema())
    pieces = again.partitions(first, again.latestOffset())
    rows = [r for piece in pieces for batch in again.read(piece) for r in batch.to_pylist()]
    assert [(row["id"], row["m"]) for row in rows] == [("a", 1)]


@pytest.mark.parametrize("evolution", EVOLUTIONS)
def test_a_batch_from_before_a_schema_change_is_told_in_the_new_columns(graph, evolution):
    """A query that died, and starts again behind the change, repeats what it had planned."""

    def reader(type_name):
        source = OmnigraphSource({"path": graph.uri, "type": type_name, "readChanges": "true"})
        return ChangeStreamReader(SourceOptions.parse(source.options), source.schema()), source

    put(graph, node("P", k="a", n=1))
    first = reader("P")[0].latestOffset()
    put(graph, node("P", k="b", n=2))
    planned = reader("P")[0].latestOffset()
    again, source = reader(evolve(graph, evolution))
    for start, expected in ((first, ["b"]), (again.initialOffset(), ["a", "b"])):
        pieces = again.partitions(start, planned)
        batches = [batch for piece in pieces for batch in again.read(piece)]
        assert all(batch.schema.names == source.schema().names for batch in batches)
        assert sorted(row["id"] for batch in batches for row in batch.to_pylist()) == expected


@pytest.mark.parametrize("options", [{}, {"readChanges": "true"}])
def test_a_column_that_is_not_there_is_refused_when_the_read_is_planned(graph, options):
    source = OmnigraphSource({"path": graph.uri, "type": "P", **options})
    with pytest.raises(InputError, match="P has no column 'zz'"):
        source.reader(
            StructType([StructField("id", StringType()), StructField("zz", StringType())])
        )


@pytest.mark.parametrize("count", ["0", "-1", "many", ""])
def test_a_partition_holds_at_least_one_row(graph, count):
    source = OmnigraphSource({"path": graph.uri, "type": "P", "rowsPerPartition": count})
    with pytest.raises(InputError, match="rowsPerPartition must be a number of rows"):
        source.schema()


# --- what was replaced ------------------------------------------------------------------------


def test_an_overwritten_entity_is_one_update(graph):
    start = put(graph, *(node("P", k=k, n=1, f="NaN") for k in "abc"))
    put(
        graph,
        node("P", k="a", n=2),
        node("P", k="b", n=1, f="NaN"),
        node("P", k="d"),
        mode="overwrite",
    )
    assert told(changes(graph, start)) == [("delete", "c"), ("insert", "d"), ("update", "a")]


def test_a_change_of_nothing_but_a_blob_is_an_update(graph):
    start = put(graph, node("P", k="a", pic="base64:AQID"), node("P", k="b", pic="base64:AQID"))
    put(graph, node("P", k="a", pic="base64:AQIE"), node("P", k="b", pic="base64:AQID"))
    assert told(changes(graph, start)) == [("update", "a")]


def test_a_first_look_is_cut_into_as_many_pieces_as_it_needs(graph):
    for number in range(5):
        put(graph, node("P", k=f"k{number}"), mode="append")
    source = OmnigraphSource(
        {"path": graph.uri, "type": "P", "readChanges": "true", "rowsPerPartition": "2"}
    )
    reader = source.reader(source.schema())
    assert len(reader.partitions()) == 3
    assert told(read(graph, readChanges="true", rowsPerPartition="2")) == [
        ("insert", f"k{number}") for number in range(5)
    ]


# --- random histories -------------------------------------------------------------------------


def applied(state, rows):
    for row in rows:
        facts = {key: value for key, value in row.items() if key not in (CHANGE_TYPE, COMMIT_ID)}
        match row[CHANGE_TYPE]:
            case "insert":
                assert row["id"] not in state
                state[row["id"]] = facts
            case "update":
                assert row["id"] in state
                state[row["id"]] = facts
            case "delete":
                del state[row["id"]]
    return state


def step(rng, graph):
    some = [node("P", k=rng.choice("abcdefgh"), n=rng.randrange(3)) for _ in range(3)]
    match rng.randrange(6):
        case 0 | 1:
            graph.load(ndjson(some), mode="merge")
        case 2:
            # Overwriting nodes would strand their edges, so both are replaced.
            keys = sorted({one["data"]["k"] for one in some})
            nodes = [node("P", k=key, n=1) for key in keys]
            put(graph, *nodes, edge("E", keys[0], keys[-1], id="e1"), mode="overwrite")
        case 3:
            graph.mutate(f'query gone() {{ delete P where k = "{rng.choice("abcdefgh")}" }}')
        case 4:
            graph.optimize()
        case 5:
            graph.mutate(f"query up() {{ update P set {{ n: {rng.randrange(3)} }} where n = 1 }}")


@pytest.mark.parametrize("seed", range(4))
def test_replaying_the_feed_gives_the_graph(graph, seed):
    rng = random.Random(seed)
    states = {"P": {}, "E": {}}
    seen = None
    for _ in range(12):
        for _ in range(rng.randrange(1, 4)):
            step(rng, graph)
        now = head(graph)
        if now == seen:
            continue
        for name, state in states.items():
            options = {"readChanges": "true", **({"start": seen} if seen else {})}
            rows = read(graph, name, **options)
            if seen is not None:
                diff = graph.diff(seen, now, types=[name])
                assert told(rows) == sorted((one.op, one.id) for one in diff.changes)
            applied(state, rows)
            assert state == {row["id"]: row for row in read(graph, name)}
        seen = now
