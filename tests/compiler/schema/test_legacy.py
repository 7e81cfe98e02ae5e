"""The schema IR of the reference system beside ours, and schemas that only a later one tells of."""

from __future__ import annotations

import json

import pytest

from omnigraph.compiler.schema import OldSchemas, compile_schema
from omnigraph.compiler.schema.compile import stable_id
from omnigraph.errors import CorruptGraphError
from omnigraph.model.schema import PropertyType, Scalar

SOURCE = """
interface Named { name: String @key @description("what it is called") }
node Doc implements Named {
  pages: I32? @index
  weight: F64?
  vec: Vector(3)? @embed("name", model="m") @note(5)
  kind: enum(b, a)?
  tags: [String]?
  isbn: String @unique
  @range(pages, 1..)
  @range(weight, ..0.5)
  @check(isbn, "^[0-9]+$")
  @unique(name, isbn)
}
node Place @rename_from("Spot") { b: I64 a: String @key(b, a) }
edge LiesAt: Doc -> Place @card(0..2) @description("where") { since: Date? @rename_from("start") }
"""


def theirs(source=SOURCE):
    """The IR that the reference would write: ours in its words."""
    body = json.loads(compile_schema(source).ir)
    for group in ("interfaces", "nodes", "edges"):
        for made in body[group]:
            for prop in made["properties"]:
                prop.pop("inherited_from", None)
                kind = prop["prop_type"]
                if kind["scalar"].startswith("Vector"):
                    kind["scalar"] = {"Vector": int(kind["scalar"][7:-1])}
                for note in prop["annotations"]:
                    note["value"] = None if note["value"] is None else str(note["value"])
                    if "kwargs" in note:
                        note["kwargs"] = {key: str(each) for key, each in note["kwargs"].items()}
            for constraint in made.get("constraints", ()):
                if constraint.get("Key"):
                    constraint["Key"] = sorted(constraint["Key"])
    marks = {("Doc", "name"): "key", ("Doc", "pages"): "index", ("Doc", "isbn"): "unique"}
    for made in body["nodes"]:
        for prop in made["properties"]:
            if mark := marks.get((made["name"], prop["name"])):
                prop["annotations"].append({"name": mark, "value": None})
    body["nodes"][1]["annotations"].append({"name": "rename_from", "value": "Spot"})
    return body


def test_the_words_of_the_reference_mean_the_same():
    catalog = OldSchemas().read(json.dumps(theirs()), SOURCE)
    assert catalog.nodes["Doc"] == compile_schema(SOURCE).nodes["Doc"]
    assert catalog.edges == compile_schema(SOURCE).edges


def test_our_own_words_are_understood_too():
    ours = compile_schema(SOURCE)
    assert OldSchemas().read(ours.ir, SOURCE).nodes["Doc"] == ours.nodes["Doc"]


def test_ids_are_encoded_in_the_order_in_which_the_reference_declares_the_key():
    assert OldSchemas().read(json.dumps(theirs()), SOURCE).nodes["Place"].key == ("b", "a")
    assert compile_schema(SOURCE).nodes["Place"].key == ("a", "b")


CHANGES = {
    "nullable": lambda doc: doc["properties"][1]["prop_type"].update(nullable=False),
    "dimension": lambda doc: _named(doc, "vec")["prop_type"].update(scalar={"Vector": 4}),
    "enum": lambda doc: _named(doc, "kind")["prop_type"]["enum_values"].append("c"),
    "constraint": lambda doc: doc["constraints"].pop(),
    "bound": lambda doc: _range(doc)["min"].update(Integer=2),
    "annotation": lambda doc: _named(doc, "vec")["annotations"][0]["kwargs"].update(model="n"),
    "interface": lambda doc: doc["implements"].clear(),
    "property": lambda doc: doc["properties"].pop(),
}


def _named(made, name):
    return next(prop for prop in made["properties"] if prop["name"] == name)


def _range(made):
    ranges = (each["Range"] for each in made["constraints"] if "Range" in each)
    return next(each for each in ranges if each["property"] == "pages")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_another_meaning_is_refused(change):
    body = theirs()
    change(body["nodes"][0])
    with pytest.raises(CorruptGraphError, match="does not compile to the stored schema"):
        OldSchemas().read(json.dumps(body), SOURCE)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body.update(ir_version=2),
        lambda body: body["nodes"][0].update(type_id=7),
        lambda body: body["nodes"][0].pop("implements"),
        lambda body: body["nodes"].append(body["nodes"][0]),
        lambda body: body["nodes"].__setitem__(0, None),
        lambda body: body["nodes"][0]["properties"][0]["prop_type"].update(scalar={"Matrix": 3}),
        lambda body: body["nodes"][0]["constraints"].append({"Range": None}),
        lambda body: body.update(nodes=3),
    ],
)
def test_an_ir_that_makes_no_sense_is_refused(change):
    body = theirs()
    change(body)
    with pytest.raises(CorruptGraphError) as refused:
        OldSchemas().read(json.dumps(body), SOURCE)
    assert refused.value.part == "_schema.ir.json"


def test_a_source_that_does_not_compile_is_refused_by_its_file():
    with pytest.raises(CorruptGraphError, match="does not compile") as refused:
        OldSchemas().read(json.dumps(theirs()), SOURCE.replace("node Doc", "nod Doc"))
    assert refused.value.part == "_schema.pg"


def test_ids_are_hashes_of_names():
    assert stable_id("node:Human") == 685098282


# --- what is left of the past ------------------------------------------------------------------

TEXT, DAY = PropertyType(scalar=Scalar.STRING), PropertyType(scalar=Scalar.DATE, nullable=True)
DOC = {
    "name": TEXT,
    "isbn": TEXT,
    "pages": PropertyType(scalar=Scalar.I32, nullable=True),
    "weight": PropertyType(scalar=Scalar.F64, nullable=True),
    "vec": PropertyType(scalar=Scalar.VECTOR, nullable=True, dimension=3),
    "kind": PropertyType(scalar=Scalar.STRING, nullable=True),
    "tags": PropertyType(scalar=Scalar.STRING, nullable=True, is_list=True),
}
PLACE = {"a": TEXT, "b": PropertyType(scalar=Scalar.I64)}


def recalled(tables):
    return OldSchemas().recall(compile_schema(SOURCE), tables)


def test_tables_that_fit_the_newest_schema_were_written_under_it():
    tables = {"node:Doc": DOC, "node:Place": PLACE, "edge:LiesAt": {"since": DAY}}
    assert recalled(tables) is compile_schema(SOURCE)


def test_renamed_types_and_properties_have_their_names_of_then():
    then = recalled({"node:Doc": DOC, "node:Spot": PLACE, "edge:LiesAt": {"start": DAY}})
    assert set(then.nodes) == {"Doc", "Spot"}
    assert then.edges["LiesAt"].to_type == "Spot"
    assert then.edges["LiesAt"].by_name["start"].type == DAY
    assert then.nodes["Spot"].key == ("a", "b")
    assert compile_schema(then.source).ir == then.ir


def test_what_was_added_later_is_not_there_and_what_was_dropped_is():
    old = {name: DOC[name] for name in ("name", "isbn", "pages")} | {"old": DAY, "vec": TEXT}
    then = recalled({"node:Doc": old, "node:Gone": {"x": DAY}})
    doc = then.nodes["Doc"]
    assert {prop.name: prop.type for prop in doc.properties} == old
    assert doc.key == ("name",)
    assert [each.property for each in doc.ranges] == ["pages"]
    assert then.nodes["Gone"].by_name["x"].type == DAY
    assert then.edges == {}
