"""Schemas from classes, from columns, from files, and back."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Literal, Optional

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel, Field

from omnigraph import Graph, schema
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import InputError, NotFoundError, OmnigraphError
from omnigraph.model.schema import Scalar


class Mood(enum.StrEnum):
    GOOD = "good"
    BAD = "bad"


@schema.node("@range(age, 0..150)", "@unique(name, born)")
@dataclass
class Person:
    """A human being."""

    name: Annotated[str, "@key"]
    age: Annotated[int, "I32"] | None = None
    born: dt.date | None = None
    seen: Optional[dt.datetime] = None  # noqa: UP045 - as older code says it
    mood: Mood | None = None
    level: Literal["low", "high"] = "low"
    tags: list[str] | None = None
    photo: bytes | None = None
    vec: Annotated[list[float] | None, "Vector(3)"] = None
    score: float = 0.5
    active: bool = True


class Company(BaseModel):
    name: Annotated[str, "@key"] = Field(description="its legal name")
    founded: int | None = None


@schema.edge(Person, "Company", "@card(0..1)")
@dataclass
class WorksAt:
    src: str
    dst: str
    since: dt.date | None = None


TEXT = """\
node Person @description("A human being.") {
    name: String @key
    age: I32?
    born: Date?
    seen: DateTime?
    mood: enum(good, bad)?
    level: enum(low, high) @default("low")
    tags: [String]?
    photo: Blob?
    vec: Vector(3)?
    score: F64 @default(0.5)
    active: Bool @default(true)
    @range(age, 0..150)
    @unique(name, born)
}

node Company {
    name: String @key @description("its legal name")
    founded: I64?
}

edge WorksAt: Person -> Company @card(0..1) {
    since: Date?
}
"""


def test_classes_become_the_schema_that_they_mean():
    assert schema.from_classes(Person, Company, WorksAt) == TEXT


class SqlField:
    """What SQLModel's fields have."""

    def __init__(self, **facts):
        self.__dict__.update(facts)


class Hero:
    name: str
    team: str
    age: int | None
    model_fields = {  # noqa: RUF012 - as SQLModel has it
        "name": SqlField(primary_key=True),
        "team": SqlField(index=True, primary_key=False),
        "age": SqlField(unique=True, default=None),
    }


def test_fields_of_sqlmodel_say_keys_and_indexes():
    made = compile_schema(schema.from_classes(Hero)).nodes["Hero"]
    assert made.key == ("name",)
    assert ("team",) in made.index
    assert ("age",) in made.unique


class Wrong:
    facts: dict[str, int]


class Mixed:
    value: int | str


class Unknown:
    other: "Nowhere"  # noqa: F821, UP037 - that is the point


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (Wrong, "field 'facts' of class Wrong"),
        (Mixed, "field 'value' of class Mixed"),
        (Unknown, "type hints of class Unknown"),
    ],
)
def test_a_field_that_is_no_property_is_named(cls, words):
    with pytest.raises(InputError, match=words):
        schema.from_classes(cls)


def test_objects_are_loaded(tmp_path):
    with Graph.init(tmp_path / "g.omni", schema.from_classes(Person, Company, WorksAt)) as graph:
        rows = [
            Person("Ada", age=36, mood=Mood.GOOD, vec=[1.0, 2.0, 3.0]),
            Company(name="Engines", founded=1833),
            WorksAt("Ada", "Engines", dt.date(1843, 1, 1)),
        ]
        assert graph.load(schema.records(rows), mode="append").total_entities == 3
        query = "query q() { match { $p: Person  $p worksAt $c } return { $p.mood, $c.founded } }"
        assert graph.query(query).one() == {"p.mood": "good", "c.founded": 1833}


# --- back -----------------------------------------------------------------------------------------

FULL = """
node Person @description("a \\"human\\"") @instruction("ask") {
    name: String @key
    age: I32? @index
    small: U32  big: U64?  ratio: F32?
    tags: [I32]?
    mood: enum(good, bad)?
    moods: [String]?
    vec: Vector(4)? @embed("name", model="m")
    city: String @default("Basel")
    @range(age, 0..150)
    @check(name, "^[A-Z]")
    @unique(name, age)
    @index(city)
}
node Event { at: DateTime  note: String? }
node Empty {}
edge Knows: Person -> Person @card(0..5) @description("well") { since: Date?  @unique(src, dst) }
edge Saw: Person -> Event
"""


@pytest.mark.parametrize("source", [TEXT, FULL, "node One { name: String @key }", ""])
def test_generated_classes_mean_the_schema_they_came_from(source, tmp_path, monkeypatch):
    if not source:
        assert "ROWS = ()" in schema.to_python(source)
        return
    code = schema.to_python(source)
    (tmp_path / "generated_rows.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "generated_rows", raising=False)
    import generated_rows

    made = schema.from_classes(*generated_rows.ROWS)
    assert compile_schema(made).hash == compile_schema(source).hash


# --- columns --------------------------------------------------------------------------------------


def test_arrow_schemas_become_types_and_types_arrow_schemas():
    columns = pa.schema(
        [
            pa.field("name", pa.string(), nullable=False),
            pa.field("First Seen", pa.timestamp("us")),
            pa.field("vec", pa.list_(pa.float32(), 8)),
            pa.field("tags", pa.large_list(pa.large_string())),
            pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
        ]
    )
    made = schema.from_arrow(
        {"Thing": columns, "Near": pa.schema([("from", pa.string()), ("to", pa.string())])},
        keys={"Thing": "name"},
        edges={"Near": ("Thing", "Thing")},
    )
    thing = compile_schema(made).nodes["Thing"]
    kinds = {one.name: str(one.type) for one in thing.properties}
    assert kinds == {
        "name": "String",
        "first_Seen": "DateTime?",
        "vec": "Vector(8)?",
        "tags": "[String]?",
        "kind": "String?",
    }
    assert schema.to_arrow(made, "Near").names == ["id", "src", "dst"]
    with pytest.raises(NotFoundError):
        schema.to_arrow(made, "Nothing")
    with pytest.raises(InputError, match="column 'm' of 'T'"):
        schema.from_arrow({"T": pa.schema([("m", pa.map_(pa.string(), pa.int32()))])})


ROWS = [{"code": "a", "n": 1, "note": None}, {"code": "b", "n": 2, "note": "x"}]
PROPOSED = "node Town {\n    code: String @key\n    n: I64\n    note: String?\n}\n"


@pytest.mark.parametrize(
    "data",
    [ROWS, pd.DataFrame(ROWS), pl.DataFrame(ROWS), pa.Table.from_pylist(ROWS)],
    ids=["dicts", "pandas", "polars", "arrow"],
)
def test_data_propose_a_schema(data):
    assert schema.infer(data, "Town") == PROPOSED


def test_every_type_goes_to_arrow_and_back():
    scalars = [one.value for one in Scalar if one is not Scalar.VECTOR]
    lines = ["code: String @key", "vec: Vector(3)", "names: [String]", "days: [Date]?"]
    lines += [f"{one.lower()}: {one}" for one in scalars]
    lines += [f"no_{one.lower()}: {one}?" for one in scalars]
    body = "".join(f"    {line}\n" for line in lines)
    text = f"node Thing {{\n{body}}}\n\nedge Near: Thing -> Thing {{\n    far: F64\n}}\n"
    types = {name: schema.to_arrow(text, name) for name in ("Thing", "Near")}
    ends = {"Near": ("Thing", "Thing")}
    assert schema.from_arrow(types, keys={"Thing": "code"}, edges=ends) == text


@pytest.mark.parametrize("frame", [list, pd.DataFrame, pl.DataFrame])
def test_rows_that_bring_ids_are_proposed_a_type_without_a_key(frame, tmp_path):
    data = frame([{"id": 7, "word": "x"}, {"id": 8, "word": "y"}])
    made = schema.infer(data, "Token")
    assert made == "node Token {\n    word: String\n}\n"
    with Graph.init(tmp_path / "g.omni", made) as graph:
        graph.load({"Token": data}, mode="append")
        assert sorted(graph.query("match { $t: Token } return { $t.id }").column("t.id")) == [
            "7",
            "8",
        ]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "csv.gz"])
def test_files_propose_a_schema_and_can_then_be_loaded(ending, tmp_path):
    path = tmp_path / f"town.{ending}"
    table = pa.Table.from_pylist(ROWS)
    if ending == "parquet":
        pq.write_table(table, path)
    elif ending.startswith("csv"):
        pd.DataFrame(ROWS).to_csv(path, index=False)
    else:
        pd.DataFrame(ROWS).to_json(path, orient="records", lines=True)
    made = schema.infer(path)
    assert made == PROPOSED
    with Graph.init(tmp_path / "g.omni", made) as graph:
        assert graph.load({"Town": path}, mode="append").total_entities == 2


@pytest.mark.parametrize(
    ("data", "facts", "words"),
    [
        (ROWS, {}, "of which type"),
        (ROWS, {"type_name": "T", "key": "nothing"}, "no column 'nothing'"),
        ([{"from": "a", "to": "b"}], {"type_name": "E"}, "ends of edges"),
        ("nothing.csv", {}, "no file"),
        (__file__, {}, "does not say how it is written"),
    ],
)
def test_what_cannot_be_proposed_is_said(data, facts, words):
    with pytest.raises(OmnigraphError, match=words):
        schema.infer(data, **facts)


def test_the_command_line_proposes_and_generates(tmp_path):
    path = tmp_path / "town.csv"
    pd.DataFrame(ROWS).to_csv(path, index=False)

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "omnigraph", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    proposed = run("schema", "infer", str(path))
    assert proposed == PROPOSED
    (tmp_path / "town.pg").write_text(proposed)
    assert "class Town:" in run("codegen", "python", "--schema", str(tmp_path / "town.pg"))
    assert run("schema", "infer", str(path), "--type", "City", "--key", "n").startswith("node City")
    graph = str(tmp_path / "g.omni")
    run("init", "--schema", str(tmp_path / "town.pg"), graph)
    assert "class Town:" in run("codegen", "python", "--store", graph)
    assert run("schema", "show", graph, "--svg").startswith("<svg")
    assert run("commit", "list", graph, "--svg").startswith("<svg")


def test_a_folder_of_files_proposes_a_schema_and_can_then_be_loaded(tmp_path):
    for day in ("2024-01-01", "2024-01-02"):
        place = tmp_path / "trips" / f"day={day}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"trip": [f"{day}/a", f"{day}/b"]}), place / "part.parquet")
    made = schema.infer(tmp_path / "trips", key="trip")
    assert " ".join(made.split()) == "node Trips { trip: String @key day: String }"
    with Graph.init(tmp_path / "g.omni", made) as graph:
        assert graph.load(tmp_path / "trips", mode="append", type="Trips").nodes == {"Trips": 4}
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no files of rows"):
        schema.infer(tmp_path / "none")


def test_classes_are_given_one_by_one():
    with pytest.raises(InputError, match="a schema is made of classes, got list"):
        schema.from_classes([Graph])


def test_a_file_that_is_not_what_its_name_says_is_told_so(tmp_path):
    (tmp_path / "town.parquet").write_text("no parquet")
    with pytest.raises(OmnigraphError, match=r"town\.parquet' cannot be read as Parquet: [^.]*$"):
        schema.infer(tmp_path / "town.parquet")


def test_a_type_that_is_not_there_has_a_likely_name():
    with pytest.raises(OmnigraphError) as caught:
        schema.to_arrow("node Town { name: String @key }", "Twon")
    assert caught.value.hint == "did you mean `Town`?"
