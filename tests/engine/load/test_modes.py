"""Request-sized loads: three modes, two forms of input, nothing left behind by a bad record."""

import json
import os
from pathlib import Path

import pytest
from write_world import WriteWorld, company, edge, person

from omnigraph.engine.load.inputs import records
from omnigraph.errors import (
    ConstraintViolationError,
    InputError,
    KeyConflictError,
    LimitExceededError,
    NotFoundError,
    RecordError,
)
from omnigraph.model.limits import LOAD_CHUNK_ROWS, VIOLATIONS_LISTED_MAX


@pytest.fixture
def world(tmp_path):
    return WriteWorld(tmp_path / "g")


def test_records_come_in_any_order_and_edge_names_in_any_case(world):
    result = world.load(edge("knows", "a", "b"), person("b"), person("a"), company("X"))
    assert result.nodes == {"Person": 2, "Company": 1}
    assert result.edges == {"Knows": 1}
    assert result.total_entities == 4
    assert result.commit.graph_commit_id == world.head()


@pytest.mark.parametrize("form", ["text", "bytes", "path", "lines", "byte lines"])
def test_every_form_of_input_is_the_same_load(world, form, tmp_path):
    lines = [json.dumps(person("a")), "", json.dumps(person("b"))]
    text = "\r\n".join(lines)
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    data = {
        "text": text,
        "bytes": text.encode(),
        "path": path,
        "lines": iter(lines),
        "byte lines": [line.encode() + b"\n" for line in lines],
    }[form]
    assert world.graph.load(data, mode="append").nodes == {"Person": 2}


def test_append_refuses_an_existing_id_with_its_line(world):
    world.load(person("a"))
    with pytest.raises(KeyConflictError) as caught:
        world.load(person("b"), person("a"))
    assert (caught.value.type_name, caught.value.entity_id) == ("Person", "a")
    assert str(caught.value).startswith("line 2: ")
    assert set(world.nodes("Person")) == {"a"}


def test_append_refuses_an_existing_edge_id(world):
    world.load(person("a"), edge("Knows", "a", "a", id="e1"))
    with pytest.raises(KeyConflictError, match="edge Knows 'e1'"):
        world.load(edge("Knows", "a", "a", id="e1"))


def test_merge_replaces_whole_rows_and_the_last_record_of_an_id_wins(world):
    world.load(person("a", age=1, email="a@x"))
    result = world.load(person("a", age=2), person("b"), person("a", age=3), mode="merge")
    assert result.nodes == {"Person": 2}
    row = world.nodes("Person")["a"]
    assert (row["age"], row.get("email")) == (3, None)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_other_modes_refuse_an_id_twice(world, mode):
    with pytest.raises(ConstraintViolationError, match="'a' appears in line 1 and line 2"):
        world.load(person("a"), person("a"), mode=mode)


def test_the_permissive_form_refuses_a_keyed_node_twice_even_in_merge(world):
    with pytest.raises(ConstraintViolationError, match=r"@unique violation on Person\.name"):
        world.load(person("a"), person("a"), mode="merge", strict=False)


def test_overwrite_replaces_only_the_types_it_names(world):
    world.load(person("a"), company("X"))
    world.load(company("Y"), mode="overwrite")
    assert set(world.nodes("Person")) == {"a"}
    assert set(world.nodes("Company")) == {"Y"}


def test_overwrite_refuses_to_orphan_edges_that_stay(world):
    world.load(person("a"), person("b"), edge("Knows", "a", "b"))
    with pytest.raises(ConstraintViolationError, match="dst 'b' not found in Person"):
        world.load(person("a"), mode="overwrite")
    world.load(person("a"), edge("Knows", "a", "a"), mode="overwrite")
    assert world.edges("Knows") == [("a", "a")]


def test_overwrite_checks_new_edges_against_the_new_nodes(world):
    world.load(person("a"), person("b"))
    with pytest.raises(ConstraintViolationError, match="src 'b' not found"):
        world.load(person("a"), edge("Knows", "b", "a"), mode="overwrite")


def test_merge_counts_an_edge_moved_to_another_source_once(world):
    world.load(person("a"), person("b"), company("X"), edge("WorksAt", "a", "X", id="w"))
    world.load(edge("WorksAt", "b", "X", id="w"), mode="merge")
    assert world.edges("WorksAt") == [("b", "X")]
    with pytest.raises(ConstraintViolationError, match="source 'b' has 2 edges"):
        world.load(edge("WorksAt", "b", "X", id="v"), mode="merge")


def test_taking_an_edge_away_from_a_source_is_noticed(world):
    world.load(
        *(person(name) for name in "abcd"),
        *(edge("Mentors", s, t, id=s + t) for s, t in ("ac", "ad", "bc", "bd")),
    )
    with pytest.raises(ConstraintViolationError, match="source 'a' has 1 edges"):
        world.load(edge("Mentors", "b", "c", id="ac"), mode="merge")


def test_uniqueness_holds_against_stored_rows_and_inside_the_batch(world):
    world.load(person("a", email="x@x"))
    with pytest.raises(ConstraintViolationError, match="held by 'a' and 'b'"):
        world.load(person("b", email="x@x"), mode="merge")
    with pytest.raises(ConstraintViolationError, match=r"line 2: .*held by 'c' and 'd'"):
        world.load(person("c", email="y@x"), person("d", email="y@x"), mode="merge")
    world.load(person("a", email="y@x"), person("b", email="x@x"), mode="merge")
    assert world.nodes("Person")["b"]["email"] == "x@x"


def test_nulls_are_exempt_from_uniqueness(world):
    world.load(person("a"), person("b"), person("c", email=None))
    world.load(person("d"))
    assert len(world.nodes("Person")) == 4


def test_an_empty_load_makes_no_commit(world):
    before = world.head()
    result = world.graph.load("\n\n", mode="merge")
    assert (result.commit, result.total_entities) == (None, 0)
    assert world.head() == before


def test_explicit_ids_of_keyless_nodes_are_kept_and_others_made(world):
    world.load(
        {"type": "Note", "data": {"id": "n1", "text": "x"}}, {"type": "Note", "data": {"text": "y"}}
    )
    notes = world.nodes("Note")
    assert notes["n1"]["text"] == "x"
    assert len(notes) == 2


def test_defaults_fill_what_is_left_out_but_not_an_explicit_null(tmp_path):
    world = WriteWorld(tmp_path / "d", 'node N { k: String @key  state: String? @default("new") }')
    world.load({"type": "N", "data": {"k": "a"}}, {"type": "N", "data": {"k": "b", "state": None}})
    states = {key: row.get("state") for key, row in world.nodes("N").items()}
    assert states == {"a": "new", "b": None}


BAD_LINES = [
    ("not json", "line 1: invalid strict JSON"),
    ("[]", "expected a JSON object"),
    ('{"type":"Person"} {"type":"Person"}', "invalid strict JSON"),
    ('{"type":"Person","type":"Person","data":{}}', "duplicate JSON member 'type'"),
    ('{"type":"Person","data":{"name":"a","x":{"y":1,"y":2}}}', "duplicate JSON member 'y'"),
    ('{"type":"Person","edge":"Knows","data":{}}', "exactly one of 'type' or 'edge'"),
    ('{"data":{}}', "exactly one of 'type' or 'edge'"),
    ('{"type":"Persn","data":{}}', "unknown node type 'Persn'"),
    ('{"type":3,"data":{}}', "field 'type' must be a string"),
    ('{"edge":"Likes","from":"a","to":"b"}', "unknown edge type 'Likes'"),
    ('{"type":"Person"}', "field 'data' must be an object"),
    ('{"type":"Person","data":[]}', "field 'data' must be an object"),
    ('{"type":"Person","data":{"name":"a"},"from":"b"}', "unknown input field 'from'"),
    ('{"type":"Person","data":{"name":"a"},"_rowid":7}', "reserved physical state"),
    ('{"type":"Person","data":{"name":"a","_rowaddr":7}}', "reserved physical state"),
    ('{"type":"Person","data":{"name":"a","nick":"b"}}', "unknown input field 'nick'"),
    ('{"type":"Person","data":{"name":"a","id":7}}', "field 'id' must be a string"),
    ('{"edge":"Knows","to":"b"}', "edge missing 'from'"),
    ('{"edge":"Knows","from":"a","to":7}', "field 'to' must be a string"),
    ('{"edge":"Knows","from":"a","to":"b","data":{"src":"c"}}', "reserved structural state"),
    ('{"type":"Person","data":{"name":"a","tags":' + "[" * 2000 + "]" * 2000 + "}}", "line 1: "),
]


@pytest.mark.parametrize(("line", "words"), BAD_LINES)
def test_a_bad_line_is_named_and_nothing_lands(world, line, words):
    before = world.head()
    with pytest.raises(RecordError) as caught:
        world.graph.load(line, mode="append")
    assert words in str(caught.value)
    assert caught.value.line == 1
    assert world.head() == before


def test_text_that_looks_like_a_duplicate_member_is_none(world):
    world.graph.load('{"type":"Note","data":{"text":"\\"a\\": \\"a\\":"}}', mode="append")
    assert [note["text"] for note in world.nodes("Note").values()] == ['"a": "a":']


BAD_VALUES = [
    (person("a", age="old"), "field 'age' expects Int32"),
    (person("a", age=2**31), "Int32 range"),
    (person("a", tags=["x", 7]), "null or invalid item"),
    (person("a", vec=[1]), "expects Vector(2)"),
    (person("a", born="2023-02-29"), "expects Date,"),
    (person("a", age=151), "@range violation on Person.age: value 151 > max 150"),
    (person("a", email="nope"), "@check violation on Person.email"),
    (person("a", role="boss"), "invalid enum value 'boss' for Person.role (expected: admin, user)"),
    ({"type": "Person", "data": {}}, "missing required property 'name'"),
    (person(None), "non-nullable property 'name' has null or invalid values"),
    (person("a", id="b"), "does not match its canonical @key id 'a'"),
    (edge("Knows", "a", "zz"), "src 'a' not found in Person"),
]


@pytest.mark.parametrize(("record", "words"), BAD_VALUES)
def test_a_bad_value_is_a_violation_with_its_line(world, record, words):
    before = world.head()
    with pytest.raises(ConstraintViolationError) as caught:
        world.load(company("X"), record)
    assert words in str(caught.value)
    assert str(caught.value.violations[0].place) == "line 2"
    assert caught.value.violations[0].type_name in ("Person", "Knows")
    assert world.head() == before


def test_all_violations_are_counted_and_the_first_hundred_listed(world):
    with pytest.raises(ConstraintViolationError) as caught:
        world.load(*(person(f"p{n}", age=999) for n in range(250)), person("x", age="old"))
    assert caught.value.total == 251
    assert len(caught.value.violations) == VIOLATIONS_LISTED_MAX


def test_a_permissive_stream_may_spread_over_lines_and_ignores_unknown_fields(world):
    text = json.dumps(person("a", nick="x"), indent=2) + json.dumps(person("b", age="old"))
    result = world.graph.load(text, mode="append", strict=False)
    assert result.nodes == {"Person": 2}
    assert world.nodes("Person")["b"].get("age") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"type":"Person","data":{"name":"a"}}\n{"type":', "invalid JSON at record 2"),
        ('{"type":"Nobody"}', "record 1: unknown node type 'Nobody'"),
        ('{"edge":"Knows","to":"a"}', "record 1: edge missing 'from'"),
        ('{"data":{}}', "record 1: expected 'type' or 'edge' field"),
        ('{"type":"Person","data":{"name":NaN}}', "invalid JSON at record 1"),
    ],
)
def test_permissive_errors_count_records(world, text, words):
    with pytest.raises(RecordError, match=words):
        world.graph.load(text, mode="append", strict=False)


def test_other_spellings_of_ids_are_rewritten_only_in_the_permissive_form(tmp_path):
    schema = "node Day { day: Date @key }\nedge Next: Day -> Day"
    records_ = [
        {"edge": "Next", "from": "2024-01-01", "to": "19724"},
        {"type": "Day", "data": {"id": "2024-01-01", "day": "2024-01-01"}},
        {"type": "Day", "data": {"day": 19724}},
    ]
    world = WriteWorld(tmp_path / "d", schema)
    with pytest.raises(ConstraintViolationError, match="canonical @key id '19723'"):
        world.load(*records_)
    world.load(*records_, strict=False)
    assert world.edges("Next") == [("19723", "19724")]


def test_a_composite_key_gives_one_id_however_it_is_written(tmp_path):
    schema = "node M { tenant: String  slot: U32  label: String?  @key(tenant, slot) }"
    world = WriteWorld(tmp_path / "m", schema)
    world.load({"type": "M", "data": {"tenant": "acme", "slot": 7}})
    world.mutate('insert M { tenant: "acme", slot: 7, label: "x" }')
    assert list(world.nodes("M")) == ['["7","acme"]']
    with pytest.raises(KeyConflictError):
        world.load({"type": "M", "data": {"slot": 7, "tenant": "acme"}})


def test_more_than_one_chunk_of_records_keeps_lines_and_rows_apart(world):
    many = [person(f"p{n}", age=n % 100) for n in range(LOAD_CHUNK_ROWS + 10)]
    many[LOAD_CHUNK_ROWS + 5]["data"]["age"] = 999
    with pytest.raises(ConstraintViolationError, match=f"line {LOAD_CHUNK_ROWS + 6}: "):
        world.load(*many)
    many[LOAD_CHUNK_ROWS + 5]["data"]["age"] = 9
    assert world.load(*many).nodes == {"Person": LOAD_CHUNK_ROWS + 10}


def test_only_the_permissive_form_which_is_read_as_a_whole_has_a_limit(world, monkeypatch):
    monkeypatch.setattr(records, "LOAD_REQUEST_BYTES_MAX", 100)
    for data in ("x" * 101, ["\n" * 60, "\n" * 60]):
        with pytest.raises(LimitExceededError, match="limited to 100"):
            world.graph.load(data, mode="append", strict=False)
    assert world.graph.load(iter(["\n" * 60, "\n" * 60]), mode="append").total_entities == 0


def test_a_line_beyond_its_limit_is_refused(world, monkeypatch):
    monkeypatch.setattr(records, "LOAD_LINE_BYTES_MAX", 20)
    with pytest.raises(LimitExceededError, match="line 2"):
        world.graph.load("\n" + "x" * 30, mode="append")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("key", [None, "once"])
def test_a_pipe_is_read_once_and_whole(world, strict, key):
    ours, theirs = os.pipe()
    os.write(theirs, json.dumps(person("a")).encode() + b"\n")
    os.close(theirs)
    try:
        found = world.graph.load(
            Path(f"/dev/fd/{ours}"), mode="append", strict=strict, idempotency_key=key
        )
    finally:
        os.close(ours)
    assert found.total_entities == 1


def test_a_missing_file_and_an_unknown_mode_are_said_so(world, tmp_path):
    with pytest.raises(NotFoundError, match="No such file"):
        world.graph.load(tmp_path / "none.jsonl", mode="append")
    with pytest.raises(InputError, match="unknown load mode"):
        world.graph.load("", mode="upsert")


@pytest.mark.parametrize("key", [None, "once"])
@pytest.mark.parametrize("item", [{"type": "Person", "data": {"name": "a"}}, 5, None])
def test_an_item_that_is_no_line_is_said_so(world, item, key):
    with pytest.raises(InputError, match=f"item 2 of data must be a line .* {type(item).__name__}"):
        world.graph.load([json.dumps(person("b")), item], mode="append", idempotency_key=key)
    assert world.graph.load([b"", bytearray(b"")], mode="append").total_entities == 0


def test_a_folder_without_files_is_refused(world, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="no file"):
        world.graph.load(tmp_path / "empty", mode="append")


def test_a_failed_load_leaves_no_new_branch(world):
    with pytest.raises(ConstraintViolationError):
        world.load(edge("Knows", "x", "y"), branch="new", from_branch="main")
    assert world.graph.branches() == ["main"]
    assert world.load(person("a"), branch="new", from_branch="main").branch_created
    assert set(world.nodes("Person", branch="new")) == {"a"}
    assert world.nodes("Person") == {}
